# %% [markdown]
# # 1 · Sets of vectors
#
# **A sentence is a row of vectors, one per word: how can a network label each of them by the words
# around it?** Let's write a grammar in which one word is a verb here and a noun there, and give it
# to a layer that sees one word, to one that sees a window, and to self-attention; then turn the N
# outputs into one label, and into M of them. Run time: about 20 s.
#
# *In plain words:* what a word is depends on its neighbors, so a network that labels words has to
# look around. One that sees a few neighbors is blind beyond them; attention looks everywhere.
# Attention, the encoder block around it and the positions are black boxes here: chapters 3 to 8
# open them.
#
# *Paper: the opening of section 3, and section 4 (Vaswani et al. 2017, "Attention Is All You
# Need"). Géron: chapter 15, "Input and Output Sequences", and chapter 16, "Sentiment Analysis" and
# "An Encoder–Decoder Network for Neural Machine Translation" ("Hands-On Machine Learning", 3rd
# edition). Article: 001 (000 to 004 are study notes on the paper, in Chinese; the page "Things
# people say about attention, measured" names them).*

# %%
from collections import Counter

import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt

keras.utils.set_random_seed(1)
rng = np.random.default_rng(1)

# %% [markdown]
# ## I saw a saw
#
# Let's take an example from part-of-speech tagging (article 001): *I saw a saw*, with the tags N V
# DET N (today's universal tags are PRON VERB DET NOUN). The second word and the fourth are one
# word, and the answer differs. So we make a grammar of such phrases. A pronoun makes "saw" a verb,
# a determiner makes it a noun, and any number of hesitations may come between them, which carry no
# information: "I um er saw", "a oh saw". The distance from "saw" to the word that decides is ours
# to choose.

# %%
DECIDING = {"VERB": ["I", "we", "they"], "NOUN": ["a", "the", "my"]}
HESITATIONS = ["um", "er", "well", "oh", "hmm"]
WORDS = ["", *DECIDING["VERB"], *DECIDING["NOUN"], *HESITATIONS, "saw"]  # 0 is padding
TAGS = ["", "PRON", "VERB", "DET", "NOUN", "INTJ"]
D_MODEL = 32  # width of the vectors


def phrase(saw, distance):
    """Words and tags of a phrase whose last word is "saw", with the given tag."""
    words = [rng.choice(DECIDING[saw]), *rng.choice(HESITATIONS, distance - 1), "saw"]
    first = "PRON" if saw == "VERB" else "DET"
    return list(map(str, words)), [first, *["INTJ"] * (distance - 1), saw]


def ids_of(rows, names):
    """One row of ids per sentence, padded with 0."""
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, names_of_row in zip(ids, rows, strict=True):
        row[: len(names_of_row)] = [names.index(name) for name in names_of_row]
    return ids


# %% [markdown]
# A sentence is two such phrases, each with its own answer. In training the word that decides is at
# most eight words away.

# %%
FARTHEST = 8  # words back, in training
sentences, tags = [], []
for _ in range(1_920):
    sentence, of_sentence = [], []
    for _ in range(2):
        words, of_words = phrase(rng.choice(["VERB", "NOUN"]), rng.integers(1, FARTHEST + 1))
        sentence += words
        of_sentence += of_words
    sentences.append(sentence)
    tags.append(of_sentence)
for n in range(3):
    print(*map("/".join, zip(sentences[n], tags[n], strict=True)))
word_ids, tag_ids = ids_of(sentences, WORDS), ids_of(tags, TAGS)
i_saw_a_saw = ids_of([["I", "saw", "a", "saw"]], WORDS)

# %% [markdown]
# ## From words to vectors
#
# The plainest vector for a word is one-hot: 1 at its own place, 0 elsewhere. It carries no meaning:
# every two words are equally far apart. An embedding is one trained vector per word, and looking it
# up *is* the product of the one-hot vector with the table:

# %%
one_hot = np.eye(len(WORDS))
apart = np.linalg.norm(one_hot[:, None] - one_hot, axis=-1)[~np.eye(len(WORDS), dtype=bool)]
start = keras.initializers.RandomNormal(stddev=1.0)
embedding = keras.layers.Embedding(len(WORDS), D_MODEL, start)
embedded = ops.convert_to_numpy(embedding(i_saw_a_saw))[0]
by_product = one_hot[i_saw_a_saw[0]] @ ops.convert_to_numpy(embedding.embeddings)
print(f"one-hot vectors lie from {apart.min():.3f} to {apart.max():.3f} apart")
print("I saw a saw as vectors:", embedded.shape)
np.testing.assert_allclose(apart, np.sqrt(2))
np.testing.assert_allclose(embedded, by_product, rtol=1e-6)

# %% [markdown]
# ## One word at a time: equal in, equal out
#
# A fully connected layer applied to each vector alone is a function of that vector, so the two
# "saw" get the same answer, whatever its weights. The best it can do is to guess the more frequent
# tag. One often reads that self-attention can tell them apart (article 001). Surprise:
# self-attention *alone* cannot. Equal vectors ask equal questions of the same set of words. It
# takes the positions (chapter 5), which make a set of vectors a sequence. (In `attention(x, x)` the
# first `x` asks and the second answers: chapter 3.)

# %%
x = embedding(i_saw_a_saw)
attention = kt.MultiHeadAttention(num_heads=1)
x_with_positions = kt.PositionalEncoding()(x)
layers = {
    "fully connected, each word alone": keras.layers.Dense(32)(x),
    "self-attention": attention(x, x),
    "self-attention with positions": attention(x_with_positions, x_with_positions),
}
difference = {}
for name, output in layers.items():
    output = ops.convert_to_numpy(output)[0]
    difference[name] = np.abs(output[1] - output[3]).max()
    print(f"{name:33} the two outputs at 'saw' differ by {difference[name]:.0e}")
alone, no_positions, positions = difference.values()
assert alone < 1e-6 and no_positions < 1e-6 and positions > 0.01

# %% [markdown]
# How far does guessing get? Let's count the tags of "saw" in the training sentences:

# %%
of_saw = Counter(tag_ids[word_ids == WORDS.index("saw")].tolist())
best = max(of_saw.values()) / of_saw.total()
print({TAGS[tag]: count for tag, count in of_saw.items()}, f": the best guess is right {best:.1%}")
assert best < 0.53

# %% [markdown]
# ## A window
#
# A first way out: let each vector see its neighbors. A window is a fully connected layer on the
# concatenation of a word's vector and those around it, and applied at each word it is a
# convolution, `Conv1D`:


# %%
def window_layer(x, kernel, bias):
    width, d, units = kernel.shape
    padded = np.pad(x, ((width // 2, width // 2), (0, 0)))
    concatenated = np.stack([padded[i : i + width].ravel() for i in range(len(x))])
    return concatenated @ kernel.reshape(width * d, units) + bias


conv = keras.layers.Conv1D(64, kernel_size=3, padding="same")
convolved = ops.convert_to_numpy(conv(x))[0]
by_hand = window_layer(embedded, *map(ops.convert_to_numpy, (conv.kernel, conv.bias)))
print(f"window by hand and Conv1D differ by {np.abs(by_hand - convolved).max():.0e};", end=" ")
print(f"the two 'saw' by {np.abs(convolved[1] - convolved[3]).max():.2f}")
np.testing.assert_allclose(by_hand, convolved, atol=1e-5)
assert np.abs(convolved[1] - convolved[3]).max() > 0.01

# %% [markdown]
# Why not a window that covers everything, then? Sentences differ in length, so it must be wide
# enough for the longest, and its parameters grow with the width. Those of attention depend on no
# length at all:


# %%
def count_window(width, d=D_MODEL):
    layer = keras.layers.Conv1D(d, width)
    layer.build((None, None, d))
    return layer.count_params()


lengths = [2, 8, 32, 128, 512]
windows = [count_window(2 * n - 1) for n in lengths]  # from the first word to the last, both ways
attentions = []
for n in lengths:
    layer = kt.MultiHeadAttention(num_heads=1)
    layer.build((None, n, D_MODEL), (None, n, D_MODEL))
    attentions.append(layer.count_params())
for n, of_window, of_attention in zip(lengths, windows, attentions, strict=True):
    ratio = of_window / of_attention
    print(f"{n:3} words: window {of_window:9,}, attention {of_attention:,}; ratio {ratio:.2f}")
assert windows == [(2 * n - 1) * D_MODEL**2 + D_MODEL for n in lengths]
assert attentions == [4 * (D_MODEL**2 + D_MODEL)] * len(lengths)

# %% [markdown]
# A window of three words has fewer parameters than attention; one that reaches across 512 words
# has 248 times as many. What grows with the length in attention is the arithmetic: 512 words make
# 512² pairs.
#
# ## Train them
#
# Four taggers: windows of 1 (each word alone), 3 and 11, and one block of the paper's encoder on
# embeddings with positions. They share nothing but the input; standing side by side in one model,
# they need only one `fit`. The encoder gets a second output, which we shall come to.
# (`kt.padding_mask` hides the padding from attention, chapter 6; `kt.TokenCrossEntropy` leaves it
# out of the loss, chapter 10.)

# %%
WIDTHS = 1, 3, 11
inputs = keras.Input((None,), dtype="int32")


def embed():
    start = keras.initializers.RandomNormal(stddev=0.2)
    return keras.layers.Embedding(len(WORDS), D_MODEL, start)


taggers = {}
for width in WIDTHS:
    h = keras.layers.Conv1D(64, width, padding="same", activation="relu")(embed()(inputs))
    taggers[f"window_{width}"] = keras.layers.Dense(len(TAGS))(h)

table = embed()
h = kt.PositionalEncoding()(table(inputs))
h = kt.EncoderBlock(num_heads=1, d_ff=64)(h, attention_mask=kt.padding_mask(inputs))
taggers["attention"] = keras.layers.Dense(len(TAGS))(h)

pooled = keras.layers.GlobalAveragePooling1D()(h, mask=ops.not_equal(inputs, 0))
has_noun = keras.layers.Dense(1)(pooled)

model = keras.Model(inputs, {**taggers, "has_noun": has_noun})
losses = {name: kt.TokenCrossEntropy() for name in taggers}
losses["has_noun"] = keras.losses.BinaryCrossentropy(from_logits=True)
loss_weights = dict.fromkeys(taggers, 1.0)
loss_weights["has_noun"] = 0.1  # the second question must not disturb the first
model.compile(keras.optimizers.Adam(4e-3), losses, loss_weights)
targets = dict.fromkeys(taggers, tag_ids)
targets["has_noun"] = np.array([["NOUN" in sentence] for sentence in tags], "float32")
history = model.fit(word_ids, targets, batch_size=64, epochs=7, verbose=0).history
print("loss per word:", {name: round(history[f"{name}_loss"][-1], 3) for name in taggers})

# %% [markdown]
# The test leaves nothing to luck. Each sentence comes with a twin in which only the word that
# decides on the last "saw" is exchanged, "I" for "a", and with it the right answer. A network that
# cannot see that word gives both the same answer, and is right in exactly one of the two. We also
# go twice as far back as in training.

# %%
distances = np.arange(1, 2 * FARTHEST + 1)
test, answers, with_noun = [], [], []
for distance in distances:
    for _ in range(50):
        before, of_before = phrase(rng.choice(["VERB", "NOUN"]), rng.integers(1, FARTHEST + 1))
        words, _ = phrase("VERB", distance)
        for answer in ("VERB", "NOUN"):
            test.append([*before, str(rng.choice(DECIDING[answer])), *words[1:]])
            answers.append(TAGS.index(answer))
            with_noun.append("NOUN" in [*of_before, answer])
last = np.array([len(words) - 1 for words in test])
outputs = model.predict(ids_of(test, WORDS), batch_size=800, verbose=0)
accuracy = {}
for name in taggers:
    right = outputs[name][np.arange(len(test)), last].argmax(axis=-1) == answers
    accuracy[name] = right.reshape(len(distances), 100).mean(axis=1)
    print(f"{name:9}", " ".join(f"{share:4.0%}" for share in accuracy[name]))

# %%
for width in WIDTHS:
    sees = distances <= width // 2
    assert (accuracy[f"window_{width}"][sees] > 0.97).all()
    assert (accuracy[f"window_{width}"][~sees] == 0.5).all()
assert (accuracy["attention"][:FARTHEST] > 0.9).all()

# %%
# extra code – accuracy against distance
figure, panel = figures.panels(width=6.4, height=3.4)
panel.axvspan(FARTHEST + 0.5, distances[-1] + 0.5, color="0.93")
panel.text(12.5, 43, "farther than in training", ha="center", color="0.35")
styles = {
    "window_1": ("v:", figures.BLACK, "each word alone"),
    "window_3": ("^-.", figures.GREEN, "window of 3 words"),
    "window_11": ("s--", figures.ORANGE, "window of 11 words"),
    "attention": ("o-", figures.BLUE, "attention with positions"),
}
for name, (line, color, label) in styles.items():
    panel.plot(distances, 100 * accuracy[name], line, color=color, label=label, markersize=5)
panel.set(xlabel="distance from 'saw' to the word that decides (words)", ylim=(40, 104))
panel.set_ylabel("accuracy on the last 'saw' (%)")
panel.set(xlim=(0.5, distances[-1] + 0.5), xticks=distances)
panel.legend(loc="center right", bbox_to_anchor=(1, 0.42))
figures.show(figure, "01_distance")

# %% [markdown]
# A window is right as far as it reaches, half its width, and beyond that it is a coin toss: exactly
# 50 %. Attention is right over 90 % of the time at every distance that it was trained on. (Its
# parameters also serve farther words, on any length. Whether the answers stay right is another
# matter, and differs from seed to seed; the gray part shows one seed.)
#
# What did the embeddings learn? In the one-hot table all words were equally far apart. Now:

# %%
vectors = ops.convert_to_numpy(table.embeddings)[1:]
kind = np.array([0] * 3 + [1] * 3 + [2] * 5 + [3])  # pronouns, determiners, hesitations, "saw"
apart = np.linalg.norm(vectors[:, None] - vectors, axis=-1)
within = apart[(kind[:, None] == kind) & (apart > 0)].mean()
between = apart[kind[:, None] != kind].mean()
print(f"words of one kind are {within:.2f} apart on average, of two kinds {between:.2f}")
assert within < 0.8 * between

# %% [markdown]
# ## N to N, N to 1, N to M
#
# The tagger was **N to N**: a label for each vector. For **N to 1**, one label per sentence (its
# sentiment, say), put a pooling layer on the same encoder: a mean over the words, of real words
# only. That is the second output from above, which answers whether any "saw" in the sentence is a
# noun:

# %%
near = np.repeat(distances, 100) <= FARTHEST
right = (outputs["has_noun"][:, 0] > 0) == with_noun
print(f"N to N: {outputs['attention'].shape}; N to 1: {outputs['has_noun'].shape}", end=", ")
print(f"right {right[near].mean():.1%} (always yes: {np.mean(with_noun):.0%})")
assert outputs["attention"].shape == (len(test), max(map(len, test)), len(TAGS))
assert outputs["has_noun"].shape == (len(test), 1)
assert right[near].mean() > 0.95 > 0.85 > np.mean(with_noun)

# %% [markdown]
# **N to M** is translation. Our sentence becomes 我看见一把锯子, seven characters for four words,
# so no label belongs *to* a word. The Transformer's encoder turns the N words into N vectors, and
# its decoder writes one character after the other, looking at all of them, until it writes END.
# Here are the shapes, for this pair and for a shorter target of the same model, which is not
# trained (chapter 7 trains one):

# %%
source, characters = "I saw a saw".split(), "我看见一把锯子"  # I · see · one · (measure) · saw
source_ids = [[4 + WORDS.index(word) for word in source]]  # 0 to 3 are padding, START and the like
transformer = kt.Transformer(
    4 + len(WORDS), 4 + len(characters), num_layers=1, d_model=32, num_heads=2, d_ff=64
)
for target in (characters, "我看见"):
    target_ids = [[4 + characters.index(character) for character in target]]
    pair, labels = kt.TranslationBatches(source_ids, target_ids, multiple=1)[0]
    logits = transformer.predict(pair, verbose=0)
    print(f"{len(source)} words and END {pair['source_ids'].shape}", end=", ")
    print(f"{len(target)} characters and END {labels.shape}: logits {tuple(logits.shape)}")
    assert pair["source_ids"].shape == (1, len(source) + 1)
    assert logits.shape == (1, len(target) + 1, 4 + len(characters))

# %% [markdown]
# ## Exercises
#
# 1. How wide must a window be to see a deciding word 20 words back, and how many parameters has
#    the layer between vectors of width 32? How many has attention?
# 2. Self-attention *without* positions sees a bag of words. How often can it be right about the
#    last "saw" of our test sentences at best? Count; do not train.
# 3. One often reads that the input of a CNN is a picture of one fixed size, such as 3 × 224 × 224
#    (article 001). Which layer of a CNN is it that demands the size?
#
# ## Answers
#
# 1. Twenty words to each side and the word itself:

# %%
print(f"a window of 41: {count_window(41):,} parameters; attention: {attentions[0]:,}")
assert count_window(41) > 9 * attentions[0]

# %% [markdown]
# 2. For each bag, the more frequent of its answers. We count bags of *kinds* of words, since only
#    the kinds matter; bags of the words themselves would nearly all occur only once:

# %%
bags = {}
for words, answer in zip(test, ["VERB", "NOUN"] * (len(test) // 2), strict=True):
    kinds = frozenset(tag for tag in DECIDING for word in words if word in DECIDING[tag])
    bags.setdefault(kinds, Counter())[answer] += 1
share = sum(max(bag.values()) for bag in bags.values()) / len(test)
for kinds, bag in bags.items():
    print(f"deciding words for {' and '.join(sorted(kinds)):13} the answers are {dict(bag)}")
print(f"at best {share:.1%}: right where both phrases are of one kind, a guess where they differ")
assert 0.7 < share < 0.8

# %% [markdown]
# 3. Not the convolution, but the `Dense` layer after a `Flatten`, which has a weight for each
#    pixel. With a global pooling in between, pictures of any size will do (N to 1, in two
#    dimensions):

# %%
convolution = keras.layers.Conv2D(1, 3)
large, small = (convolution(keras.Input((size, size, 3))) for size in (224, 160))
after_pooling, after_flatten = keras.layers.Dense(1), keras.layers.Dense(1)
pool, flatten = keras.layers.GlobalAveragePooling2D(), keras.layers.Flatten()
print("pooled:", after_pooling(pool(large)).shape, after_pooling(pool(small)).shape)
after_flatten(flatten(large))
try:
    after_flatten(flatten(small))
    refused = False
except ValueError as error:
    refused = True
    print("flattened:", str(error).splitlines()[0])
assert refused and convolution.count_params() == 3 * 3 * 3 + 1

# %%
# extra code – the numbers of the gallery
figures.record(kernel=convolution.count_params(), large=224, small=160)
figures.record(no_positions_below=1e-6, positions_above=0.01)  # as asserted above

# %% [markdown]
# ## In short
#
# - Equal words in, equal vectors out: neither a layer applied to each word alone nor attention
#   alone can distinguish the two "saw". It takes neighbors, and their order.
# - A window is right as far as it reaches and a coin toss beyond; its parameters grow with its
#   width, those of attention do not.
# - N vectors become N labels, one label by pooling, or M words by a decoder.
#
# **Next**: [chapter 2](02_four_ways_to_look_around.py) compares four ways to look around.
