"""Recipes: values of options that suit a task and an amount of data, each with its rationale.

`keras-transformer train translation --recipe NAME` takes its defaults from one of TRANSLATION, the
other tasks from one of theirs; options on the command line override them. An option that a recipe
does not name has the default of its group in options.py, or of `TransformerConfig`.
"""

from typing import Any

from options import Classification, LanguageModelling, Options, Pretraining, Tagging, Translation


def named(task: type[Options], recipes: dict[str, dict], **shared: Any) -> dict[str, Any]:
    """Options of a task by the names of recipes, each with the values that all of them share."""
    return {name: task.of(**shared | values) for name, values in recipes.items()}


def fine_tuned(recipe: dict, epochs: int) -> dict:
    """A recipe for a trained model and other data (--init-from): few updates, and small ones."""
    rate = recipe["learning_rate"] / 4
    few = dict(epochs=epochs, learning_rate=rate, warmup_steps=50, average=0, ema=None)
    return recipe | few | dict(optimizer="adam", schedule="cosine")


# Generated data: a regular language of short strings, learned in minutes on two cores.
GENERATED = dict(
    num_layers=2,
    d_model=64,
    num_heads=4,
    d_ff=128,
    learning_rate=4e-3,  # small models tolerate, and need, large rates
    warmup_steps=200,
    threads=1,  # its operations are too small to split: 40 % more steps per second
)
SMALL = dict(num_layers=2, d_model=128, num_heads=4, d_ff=256)


# Translation.

# A thin model and many epochs, for few sentence pairs. The sizes, the dropout and the beams are
# those of Wu et al. 2021 ("Transformer-Tiny" on Multi30k, 29,000 pairs).
THIN = SMALL | dict(
    num_layers=4,  # thin and deep rather than wide: fewer parameters to overfit with
    dropout=0.3,  # dozens of epochs show nothing but the same pairs
    norm_first=True,  # aligns source and target in 3 epochs; post-norm had not after 5
    vocabulary_size=10000,  # 4,000 gave 0.6 BLEU less on Multi30k's val, and took as long
    tokens_per_batch=4096,  # 127 updates per epoch on 29,000 pairs
    rotary=True,  # 41.8 BLEU on Multi30k's val; with sinusoids 41.2
    epochs=24,
    optimizer="muon",  # as good in 24 epochs as Adam with cosine in 40
    learning_rate=4e-3,  # 2e-3 learns more slowly from the start
    warmup_steps=300,  # two epochs
    schedule="wsd",  # without an average: it would mix in what precedes the decay
    beams=5,
    length_penalty=1.2,  # translations were too short: 0.1 to 0.6 BLEU on Multi30k's val
)
# The width, the warm-up and the averaging of the paper (section 5), for more pairs.
WIDE = dict(
    warmup_steps=4000,
    clip_norm=1.0,  # one bad batch in a million cannot derail the run
    average=5,
)
TRANSLATION = named(
    Translation,
    {
        # 30,000 generated dates: twelve characters need no more than 2 + 2 layers, d_model 64.
        "dates": GENERATED
        | dict(
            output="runs/dates",
            # There is no noise to fit; after three epochs it cost ten times the errors
            # (docs/experiments.md).
            dropout=0.0,
            # After three epochs 1 of 20,000 dates is wrong, with the paper's sinusoids 344.
            rotary=True,
            vocabulary="char",  # digits are copied one by one; some 60 ids
            batch_size=128,  # strings of similar length, so examples are counted and not tokens
            epochs=6,  # 237 updates each; after four, one seed of four had 2 of 20,000 wrong
            warmup_steps=300,  # a little over an epoch
            schedule="cosine",  # to 0: the last epoch settles, no averaging is needed
        ),
        # Some 30,000 sentence pairs in 88 minutes on one core. With 24 epochs perplexity 4.89 on
        # Multi30k's val, 41.8 BLEU; with 30 4.80, 42.2.
        "quick": THIN | dict(epochs=30),
        # Some thousand pairs: a quarter of the batch, three times the updates. 3,000 of Multi30k's
        # have 19.7 BLEU on its val (quick: 13.9), with 2,000 subwords 19.8.
        "few": THIN | dict(tokens_per_batch=1024),
        # Up to some 100,000 pairs, and hours: two more pairs per pair, from a teacher per
        # direction. With 4,000 subwords they added 1.7 BLEU on Multi30k's validation set.
        "small": THIN | dict(diversify=1),
        # Some 100,000 to a million pairs (TED talks): the sizes of papers on IWSLT.
        "medium": WIDE
        | dict(
            num_heads=4,  # of width 128
            d_ff=1024,  # half of base's: so little data would not use more
            dropout=0.3,
            vocabulary_size=10000,
            tokens_per_batch=4096,
            epochs=40,
            learning_rate=5e-4,  # wider models tolerate smaller rates
            beams=5,
        ),
        # A trained translator and some thousand pairs of another kind of text (--init-from).
        "fine-tune": fine_tuned(THIN, epochs=6),
        # Millions of pairs, on a GPU: the paper's base model, whose sizes are the defaults.
        "large": WIDE
        | dict(
            vocabulary_size=37000,
            tokens_per_batch=8192,  # three of these per update are the paper's 25,000
            accumulate=3,
            epochs=18,  # 100,000 updates on the 4.5 million pairs of WMT 2014
            learning_rate=7e-4,  # 512 ** -0.5 * 4000 ** -0.5, the peak of equation 3
            beams=4,
        ),
    },
    output="runs/text",
)


# Tagging and classification.

LABELS = SMALL | dict(
    dropout=0.4,
    r_drop=1.0,  # two draws of strong dropout should agree
    warmup_steps=500,
    clip_norm=1.0,
)
TREEBANKS = LABELS | dict(
    num_layers=3,
    word_stddev=0.1,  # a word seen once hardly leaves its initial vector: spelling decides
    epochs=14,
    learning_rate=2e-3,
    ema=0.998,
)
TAGGING = named(
    Tagging,
    {
        # 10,000 generated sentences, of some hundred words and a few rules: shows in two minutes
        # that it learns. What a rule decides is certain.
        "grammar": GENERATED | dict(epochs=4, label_smoothing=0.0),
        "treebank": TREEBANKS,  # some 10,000 sentences: strong dropout against overfitting
        # A trained tagger and other sentences.
        "fine-tune": fine_tuned(TREEBANKS, epochs=4),
    },
    output="runs/tags",
    rotary=True,  # a tag depends on the neighbors of a word, not on its position
    batch_size=32,
    schedule="cosine",
)
TEXTS = LABELS | dict(epochs=6, learning_rate=1e-3)
CLASSIFICATION = named(
    Classification,
    {
        # 10,000 generated reviews in which the order of the words decides.
        "reviews": GENERATED | dict(epochs=6, learning_rate=3e-3, label_smoothing=0.0),
        "texts": TEXTS,  # some thousand labeled texts and more
        # Their phrases as well, each with a label (SST-2): the same words many times.
        "phrases": TEXTS
        | dict(
            dropout=0.5,
            word_dropout=5.0,  # otherwise it memorizes the rare words of each sentence
            epochs=3,  # ten times the texts, and each word in many of them
            ema=0.998,
        ),
        # A trained classifier and other texts.
        "fine-tune": fine_tuned(TEXTS, epochs=3),
    },
    output="runs/labels",
    rotary=True,
    batch_size=64,
    schedule="cosine",
)


# Language modelling.

CHARACTERS = SMALL | dict(
    num_layers=4,
    d_ff=512,
    dropout=0.0,  # a few epochs only
    batch_size=32,
    epochs=6,
    optimizer="muon",  # 1.540 nats per character; Adam 1.556
    schedule="wsd",  # 1.530; cosine 1.540
    learning_rate=3e-3,
    warmup_steps=200,
    clip_norm=1.0,
)
LANGUAGE_MODELLING = named(
    LanguageModelling,
    {
        # Generated sentences whose true entropy is known.
        "grammar": GENERATED
        | dict(
            dropout=0.0,  # more sentences than it can memorize
            lines=True,
            batch_size=64,
            epochs=4,
        ),
        # A million characters in ten minutes on two cores: nanoGPT's sizes for a CPU.
        "characters": CHARACTERS,
        # The same text with nanoGPT's sizes for a GPU, 10.65 million parameters: two hours on two
        # cores, with --precision bfloat16 --batch-size 8 --accumulate 4, which are the same
        # batches.
        "gpu": dict(
            d_model=384,
            num_heads=6,
            d_ff=1536,
            dropout=0.2,
            attention_dropout=0.2,  # ten parameters per character: it would memorize the text
            window=256,
            batch_size=32,  # nanoGPT's 64, 22 epochs: 1.513 nats per character; 32, 32: 1.457
            epochs=32,  # nanoGPT is best after 28 (its issue 493), then overfits
            average=4,  # smooths the last epochs; not compared with none
            learning_rate=1e-3,
            warmup_steps=100,
            clip_norm=1.0,
        ),
        # A trained generator and other text.
        "fine-tune": fine_tuned(CHARACTERS, epochs=3),
    },
    output="runs/language",
    norm_first=True,  # as GPT-2: tolerates the large rates
    rotary=True,
    vocabulary="char",
    schedule="cosine",
    label_smoothing=0.0,  # it would cost perplexity, which is what counts
)


# Pretraining.

# The text that a tagger or a classifier will be trained on, and as much other text as there is.
# The dropout stays small: each epoch has other masks, so that the data does not repeat itself.
WORDS = SMALL | dict(epochs=20, learning_rate=2e-3, warmup_steps=500)
PRETRAINING = named(
    Pretraining,
    {
        "words": WORDS,
        # Trained words and other text.
        "fine-tune": fine_tuned(WORDS, epochs=5),
    },
    output="runs/words",
    rotary=True,
    batch_size=32,
    schedule="cosine",
    clip_norm=1.0,
    label_smoothing=0.0,
    min_count=2,  # a word seen once cannot be learned as an answer
)
