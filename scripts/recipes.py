"""What suits a task and an amount of data: every number of a training run, with its reason.

`train_translation.py --recipe NAME` starts from one of TRANSLATION, the other scripts from one of
theirs; any option on the command line goes before it. What a recipe does not name keeps the default
of the command line (`--help`).
"""

# A thin model and many epochs, for few sentence pairs. The sizes, the dropout and the beams are
# those of Wu et al. 2021 ("Transformer-Tiny" on Multi30k, 29,000 pairs).
THIN = dict(
    output="runs/text",
    num_layers=4,  # thin and deep rather than wide: fewer parameters to fit by heart
    d_model=128,
    num_heads=4,
    d_ff=256,
    dropout=0.3,  # dozens of epochs show nothing but the same pairs
    norm_first=True,  # aligns source and target in 3 epochs; post-norm had not after 5
    vocabulary="bpe",
    vocabulary_size=10000,  # 4,000 gave 0.6 BLEU less on Multi30k's val, and took as long
    tokens_per_batch=4096,  # 127 updates an epoch on 29,000 pairs
    epochs=40,  # 1.7 BLEU more than 30 on Multi30k's val
    learning_rate=4e-3,  # 2e-3 learns more slowly from the start
    warmup_steps=300,  # two epochs
    schedule="cosine",  # to 0: what a mean over many weights would do for a rate that stays
    average=4,  # evens out the last epochs; not compared with none
    beams=5,
    length_penalty=1.2,  # translations came out short: 0.1 to 0.6 BLEU on Multi30k's val
)

TRANSLATION = dict(
    # 30,000 made-up dates: a regular language of short strings, learnt in minutes on two cores.
    dates=dict(
        output="runs/dates",
        preset="tiny",  # 2 + 2 layers, d_model 64: twelve characters need no more
        vocabulary="char",  # digits are copied one by one; some 60 ids
        batch_size=128,  # strings are of like length, so count them and not tokens
        epochs=7,  # 236 steps each; exact on all held-out dates
        learning_rate=4e-3,  # small models bear, and need, large rates
        warmup_steps=300,  # a little over an epoch
        threads=1,  # its operations are too small to share out: 40 % more steps a second
        schedule="cosine",  # down to 0: the last epoch settles, no mean of weights is needed
    ),
    quick=THIN,  # some 30,000 sentence pairs in half an hour on two cores
    # Up to some 100,000 pairs, and hours: two more pairs for each, from a teacher each way. With
    # 4,000 subwords they brought 1.7 BLEU on Multi30k's validation set.
    small=dict(THIN, diversify=1),
    # Some 100,000 to a million pairs (TED talks): the sizes that IWSLT papers use.
    medium=dict(
        output="runs/text",
        num_layers=6,
        d_model=512,
        num_heads=4,  # 128 wide each
        d_ff=1024,  # half of base's: the data would not fill it
        dropout=0.3,
        vocabulary="bpe",
        vocabulary_size=10000,
        tokens_per_batch=4096,
        epochs=40,
        learning_rate=5e-4,  # wider models bear smaller rates
        warmup_steps=4000,
        clip_norm=1.0,  # one bad batch in a million cannot throw the run
        average=5,
        beams=5,
    ),
    # Millions of pairs: the paper's base model (section 5), on a GPU.
    large=dict(
        output="runs/text",
        preset="base",
        vocabulary="bpe",
        vocabulary_size=37000,
        tokens_per_batch=8192,  # three of these an update make the paper's 25,000
        accumulate=3,
        epochs=18,  # 100,000 updates on the 4.5 million pairs of WMT 2014
        learning_rate=7e-4,  # 512 ** -0.5 * 4000 ** -0.5, the peak of equation 3
        warmup_steps=4000,
        clip_norm=1.0,
        average=5,
        beams=4,
    ),
)

TAGGING = dict(
    # 10,000 generated sentences, to see in two minutes that it learns.
    grammar=dict(
        output="runs/tags",
        preset="tiny",  # some hundred words and a few rules
        num_layers=2,
        batch_size=32,
        epochs=4,
        learning_rate=4e-3,  # small models bear, and need, large rates
        warmup_steps=200,
        schedule="cosine",
        threads=1,  # its operations are too small to share out
        rotary=True,  # who stands next to whom tells a tag, not where in the sentence
        label_smoothing=0.0,  # what a rule decides is certain
    ),
    # Some 10,000 sentences of a treebank: much dropout against learning them by heart.
    treebank=dict(
        output="runs/tags",
        num_layers=3,
        d_model=128,
        num_heads=4,
        d_ff=256,
        dropout=0.4,
        r_drop=1.0,  # two draws of so much dropout should agree
        word_stddev=0.1,  # a word seen once hardly leaves its beginning: let its spelling speak
        batch_size=32,
        epochs=14,
        learning_rate=2e-3,
        warmup_steps=500,
        schedule="cosine",
        ema=0.998,
        clip_norm=1.0,
        rotary=True,
    ),
)

CLASSIFICATION = dict(
    # 10,000 generated reviews in which the order of words decides.
    reviews=dict(
        output="runs/labels",
        preset="tiny",
        batch_size=64,
        epochs=6,
        learning_rate=3e-3,
        warmup_steps=200,
        schedule="cosine",
        threads=1,
        rotary=True,
        label_smoothing=0.0,
    ),
    # Some thousand labelled texts and more.
    texts=dict(
        output="runs/labels",
        num_layers=2,
        d_model=128,
        num_heads=4,
        d_ff=256,
        dropout=0.4,
        r_drop=1.0,  # two draws of so much dropout should agree
        batch_size=64,
        epochs=6,
        learning_rate=1e-3,
        warmup_steps=500,
        schedule="cosine",
        clip_norm=1.0,
        rotary=True,
    ),
)
# Their phrases too, each with its label (SST-2): the same words come again and again.
CLASSIFICATION["phrases"] = CLASSIFICATION["texts"] | dict(
    dropout=0.5,
    forget=5.0,  # else it knows the rare words of each sentence by heart
    epochs=3,  # ten times the texts, and each word in many of them
    ema=0.998,
)

PRETRAINING = dict(
    # The words that a tagger or a classifier will be trained on, and as many more as there are.
    words=dict(
        output="runs/words",
        num_layers=2,
        d_model=128,
        num_heads=4,
        d_ff=256,
        dropout=0.1,  # masks differ in every epoch: the data does not repeat itself
        batch_size=32,
        epochs=20,
        learning_rate=2e-3,
        warmup_steps=500,
        schedule="cosine",
        clip_norm=1.0,
        rotary=True,
        label_smoothing=0.0,
        min_count=2,  # a word seen once cannot be learnt as an answer
    ),
)

LANGUAGE = dict(
    # Generated sentences whose true entropy is known.
    grammar=dict(
        output="runs/language",
        preset="tiny",
        vocabulary="char",
        lines=True,
        batch_size=64,
        epochs=4,
        learning_rate=4e-3,
        warmup_steps=200,
        schedule="cosine",
        threads=1,
        norm_first=True,
        rotary=True,
        dropout=0.0,  # more sentences than it can learn by heart
        label_smoothing=0.0,  # perplexity is what counts, and smoothing costs it
    ),
    # A million characters in ten minutes on two cores: nanoGPT's sizes for a CPU.
    characters=dict(
        output="runs/language",
        num_layers=4,
        d_model=128,
        num_heads=4,
        d_ff=512,
        dropout=0.0,  # a few epochs only
        vocabulary="char",
        window=64,
        batch_size=32,
        epochs=6,
        learning_rate=3e-3,
        warmup_steps=200,
        schedule="cosine",
        clip_norm=1.0,
        norm_first=True,  # as GPT-2: bears the large rate
        rotary=True,
        label_smoothing=0.0,
    ),
    # The same text with the sizes nanoGPT has on a GPU, 10.65 million parameters: two hours on two
    # cores, with --precision bfloat16 --batch-size 8 --accumulate 4, which are the same batches.
    gpu=dict(
        output="runs/language",
        num_layers=6,
        d_model=384,
        num_heads=6,
        d_ff=1536,
        dropout=0.2,
        attention_dropout=0.2,  # ten parameters a character: it would learn the text by heart
        vocabulary="char",
        window=256,
        batch_size=32,  # of nanoGPT's 64, 22 epochs: 1.513 nats a character; of these, 32: 1.457
        epochs=32,  # nanoGPT is at its best after 28 (its issue 493), then overfits
        average=4,  # evens out the last epochs; not compared with none
        learning_rate=1e-3,
        warmup_steps=100,
        schedule="cosine",
        clip_norm=1.0,
        norm_first=True,
        rotary=True,
        label_smoothing=0.0,
    ),
)
