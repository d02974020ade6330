"""What suits a task and an amount of data: every number of a training run, with its reason.

`train_translation.py --recipe NAME` starts from one of TRANSLATION; any option on the command line
goes before it. What a recipe does not name keeps the default of the command line (`--help`).
"""

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
    # Some 30,000 sentence pairs, to see within the hour on two cores what it can do.
    quick=dict(
        output="runs/text",
        preset="small",  # 3 + 3 layers, d_model 256: the largest that fits the time
        vocabulary="bpe",
        tokens_per_batch=2048,  # small batches: more steps an epoch, and there are few epochs
        epochs=10,  # longer and it learns the training pairs by heart: dropout is only 0.1
        learning_rate=1e-3,
        warmup_steps=1000,  # four epochs of Multi30k
        ema=0.998,  # a running mean over some 500 steps makes fewer slips than any one step
    ),
    # Up to some 100,000 pairs, and time: a thin model, much dropout, many epochs. The numbers that
    # give no reason are those of Wu et al. 2021 ("Transformer-Tiny" on Multi30k).
    small=dict(
        output="runs/text",
        num_layers=4,  # thin and deep rather than wide: fewer parameters to fit by heart
        d_model=128,
        num_heads=4,
        d_ff=256,
        dropout=0.3,  # as many epochs as these show each pair a hundred times
        vocabulary="bpe",
        vocabulary_size=10000,  # joint: names and numbers look the same on both sides
        tokens_per_batch=8192,  # their 8,000: even gradients, for the large rate below
        epochs=140,  # some 8,000 updates on 29,000 pairs
        learning_rate=5e-3,
        warmup_steps=2000,
        average=10,  # the mean of the last ten epochs' weights, for what a falling rate would do
        beams=5,
    ),
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
