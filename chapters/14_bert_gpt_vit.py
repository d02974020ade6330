# %% [markdown]
# # 14 · BERT, GPT and ViT
#
# **How do the same blocks fill in blanks, write text, and look at pictures?** Let's train the
# encoder block three times: as BERT on masked words, as GPT on next characters, as ViT on the
# patches of an image. What differs is the mask, the input layer and the loss; and as we make the
# data, we can count how good each can get. Run time: about 40 s.
#
# *In plain words:* hide words and let a model guess them from both sides: BERT. Let it see the left
# side only and guess what comes next: GPT. Cut a picture into squares and call them words: ViT. The
# blocks are the same.
#
# *Paper: section 3.1, one half of Figure 1 at a time. Géron: chapter 16, "An Avalanche of
# Transformer Models" and "Vision Transformers". Articles: 002, which names BERT and GPT-2, and
# 000, which leaves ViT to "下一篇" (the next article).*

# %%
from collections import Counter

import keras
import numpy as np
from keras import layers, ops

import figures
import keras_transformer as kt

array = ops.convert_to_numpy
keras.utils.set_random_seed(14)
rng = np.random.default_rng(14)
D_MODEL, D_FF = 48, 96


def encoder(num_layers):
    """The blocks of all three: pre-norm, as in GPT-2 and ViT."""
    return kt.Encoder(num_layers, num_heads=4, d_ff=D_FF, norm_first=True)


# %%
# extra code – a model with an optimizer and a schedule (chapter 10)
def compiled(inputs, outputs, loss, steps, peak=0.01):
    """With a warm-up as in the paper, and then GPT's half cosine down to 0."""
    model, warmup = keras.Model(inputs, outputs), steps // 5
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - warmup, warmup_target=peak, warmup_steps=warmup
    )
    model.compile(kt.paper_optimizer(schedule), loss)
    return model


# %% [markdown]
# ## A language that we can count
#
# The verb of these sentences depends on words on both sides of it: on the subject (he *drinks*, we
# *drink*), on the object (one drinks tea, and eats bread) and on the time (yesterday he *drank*). A
# quarter of all sentences is never shown in training.

# %%
things = {"eat eats ate": "bread rice soup", "drink drinks drank": "tea milk water"}
things["write writes wrote"] = "books letters songs"
sentences = []
for subject in ("he", "she", "we", "they"):
    for verbs, objects in things.items():
        plural, singular, past = verbs.split()
        present = singular if subject in ("he", "she") else plural
        for thing in objects.split():
            for adjective in ("good", "old", "new"):
                for time in ("", "now", "today", "yesterday"):
                    verb = past if time == "yesterday" else present
                    sentences.append([subject, verb, adjective, thing, *time.split()])
rng.shuffle(sentences)
num_test = len(sentences) // 4  # the first quarter is for testing
BATCH = 2 * num_test  # for predictions
print(len(sentences), "sentences, such as", *(" ".join(s) + ";" for s in sentences[:4]))

# %% [markdown]
# ## BERT: masked words
#
# A word that is asked for must not be seen, or there is nothing to learn; but all words may see
# both sides. So BERT hides words in the *input*: of the 15 % that it chooses, 80 % become a mask,
# 10 % another word, and 10 % stay (at inference there are no masks, so it must also have an opinion
# about visible words). Only the chosen words have a label. All others get `kt.PADDING`, which
# `kt.TokenCrossEntropy` leaves out.

# %%
words = sorted({word for sentence in sentences for word in sentence})
MASK, FIRST = 1, 2  # 0 is kt.PADDING
word_id = {word: FIRST + i for i, word in enumerate(words)}
PLACES = ["subject", "verb", "adjective", "object", "time"]
texts = np.zeros((len(sentences), 5), int)
for row, sentence in zip(texts, sentences, strict=True):
    row[: len(sentence)] = [word_id[word] for word in sentence]


def corrupted(ids):
    chosen, dice = (rng.random(ids.shape) < 0.15) & (ids != kt.PADDING), rng.random(ids.shape)
    given = np.where(chosen & (dice < 0.8), MASK, ids)
    others = rng.integers(FIRST, FIRST + len(words), ids.shape)
    given = np.where(chosen & (dice >= 0.9), others, given)
    return given, np.where(chosen, ids, kt.PADDING)


# %% [markdown]
# In the long run, 15 % are asked, and four of five of these are hidden:

# %%
steps = 300
drawn = texts[rng.integers(num_test, len(texts), 64 * steps)]
given, labels = corrupted(drawn)
asked = labels != kt.PADDING
shares = [(given[asked] == MASK).mean(), (given[asked] == labels[asked]).mean()]
print(f"asked {asked.sum() / (drawn > 0).sum():.3f} of the words; of these", end=" ")
print(f"{shares[0]:.2f} masked, {shares[1]:.2f} as they were")
assert (given == drawn)[~asked].all() and abs(shares[0] - 0.8) < 0.02
loss = kt.TokenCrossEntropy()
logits = rng.normal(size=(1, 5, 30)).astype("float32")
of_five = loss(np.array([[0, 0, 7, 0, 0]]), logits)  # no other place counts
of_one = loss(np.array([[7]]), logits[:, 2:3])
np.testing.assert_allclose(array(of_five), array(of_one), rtol=1e-5)

# %% [markdown]
# BERT is one block between an embedding and the same matrix transposed, and sees all but padding:

# %%
ids = keras.Input((5,), dtype="int32")
embedding = kt.TokenEmbedding(FIRST + len(words), D_MODEL)
h = encoder(1)(kt.PositionalEncoding()(embedding(ids)), attention_mask=kt.padding_mask(ids))
bert = compiled(ids, embedding(h, reverse=True), loss, steps)
history = bert.fit(given, labels, batch_size=64, verbose=0).history
print(f"BERT, {bert.count_params():,} parameters: loss {history['loss'][-1]:.2f} (mean)")


def fill(sentence):
    """The words that BERT puts for each _."""
    row = [MASK if word == "_" else word_id[word] for word in sentence.split()]
    best = bert.predict_on_batch(np.array([row + [0] * (5 - len(row))]))[0, : len(row)].argmax(-1)
    return [words[best[i] - FIRST] for i, word in enumerate(row) if word == MASK]


blanks = {"he _ old tea yesterday": "drank", "he _ old tea now": "drinks"}
blanks |= {"they _ old tea now": "drink", "they _ old songs": "write"}
for sentence, verb in blanks.items():
    print(f"{sentence}: {fill(sentence)[0]}")
    assert fill(sentence) == [verb]

# %% [markdown]
# Now in numbers. With one word masked, how often could a reader be right who sees only what stands
# to its left, to its right, or both? Count: for each context, the most frequent word. Beside it,
# BERT on the test sentences.


# %%
def ceiling(place, seen):
    """The accuracy of the best guesser that sees these places."""
    counts = Counter((tuple(row[list(seen)]), row[place]) for row in texts if row[place])
    best = {}
    for (known, _), count in counts.items():
        best[known] = max(best.get(known, 0), count)
    return sum(best.values()) / counts.total()


# %% [markdown]
# And BERT: each word of a test sentence is masked in turn, where there is one.

# %%
found = {"left only": [], "right only": [], "both sides": [], "BERT": []}
for place in range(5):
    left, right = range(place), range(place + 1, 5)
    found["left only"].append(ceiling(place, left))
    found["right only"].append(ceiling(place, right))
    found["both sides"].append(ceiling(place, [*left, *right]))
    masked, there = texts[:num_test].copy(), texts[:num_test, place] > 0
    masked[there, place] = MASK
    guess = bert.predict(masked, batch_size=num_test, verbose=0)[:, place].argmax(-1)
    found["BERT"].append((guess == texts[:num_test, place])[there].mean())
for who, right in found.items():
    print(
        f"{who:10}",
        *(f"{name} {share:.2f}" for name, share in zip(PLACES, right, strict=True)),
        sep="  ",
    )
ceilings = np.array(found["both sides"])
asked = (texts[:num_test] > 0).sum(axis=0)  # at each place; some sentences end before the last
luck = np.sqrt(ceilings * (1 - ceilings) / asked)  # the standard deviation of a share of so few
print("standard deviation of a share of", asked, "sentences:", luck.round(2))
assert (found["BERT"] <= ceilings + 3 * luck + 1e-6).all()
one_side = max(found["left only"][1], found["right only"][1])
assert found["both sides"][1] == 1 and found["BERT"][1] > 0.9 > one_side + 0.2

# %%
# extra code – how often the masked word is found, by place
figure, panel = figures.panels(1, width=6.4)
shades = (figures.ORANGE, figures.PURPLE, figures.BLUE)
for i, (who, color, hatch) in enumerate(zip(found, shades, ("//", "..", ""), strict=False)):
    place = np.arange(5) + 0.25 * (i - 1)
    panel.bar(place, found[who], 0.23, color=color, alpha=0.75, hatch=hatch, ec="white", label=who)
two = dict(yerr=2 * luck, fmt="none", ecolor="0.3", capsize=3, label="luck in 108 sentences")
panel.errorbar(np.arange(5) + 0.25, ceilings, **two)
panel.plot(np.arange(5) + 0.25, found["BERT"], "D", color=figures.BLACK, label="BERT, new text")
panel.set_xticks(range(5), PLACES)
panel.set(xlabel="word that is masked", ylabel="share found", ylim=(0, 1.05))
handles, names = panel.get_legend_handles_labels()  # BERT, drawn last, comes first
handles, names = [*handles[1:], handles[0]], [*names[1:], names[0]]
figure.legend(handles, names, loc="outside upper center", ncols=3)
figures.show(figure, "14_both_sides")

# %% [markdown]
# The verb takes both sides, and BERT uses them: it finds nearly every verb, where no reader of one
# side gets past two thirds. At the other places even both sides leave a choice, and among words
# that are equally likely a guess can be lucky: BERT may lie a little above the best share, within
# what 108 sentences allow.
#
# ## GPT: the next character
#
# Now two of these blocks get `kt.look_ahead_mask`, and characters instead of words: each is asked
# for the next. Here we have a floor: a sentence drawn evenly from $N$ costs at least $\log N$ nats
# on average, whatever the model (Gibbs' inequality).

# %%
lines = [" ".join(sentence) + "." for sentence in sentences]
characters = sorted(set("".join(lines)))
START, LENGTH = 1, max(map(len, lines))


def encoded(lines):
    """The inputs of GPT, shifted right, and the ids that should come out."""
    following = np.zeros((len(lines), LENGTH), int)
    for row, line in zip(following, lines, strict=True):
        row[: len(line)] = [2 + characters.index(character) for character in line]
    return np.pad(following[:, :-1], ((0, 0), (1, 0)), constant_values=START), following


preceding, following = encoded(lines)
ids = keras.Input((LENGTH,), dtype="int32")
embedding = kt.TokenEmbedding(2 + len(characters), D_MODEL)
h = encoder(2)(kt.PositionalEncoding()(embedding(ids)), attention_mask=kt.look_ahead_mask(LENGTH))
gpt = compiled(ids, embedding(h, reverse=True), loss, steps)
drawn = rng.integers(num_test, len(lines), 32 * steps)
gpt.fit(preceding[drawn], following[drawn], batch_size=32, verbose=0)
logits = gpt.predict(preceding, batch_size=BATCH, verbose=0)
of_all, floor = float(loss(following, logits)), np.log(len(lines)) / np.mean([*map(len, lines)])
_, counts = np.unique(following[following > 0], return_counts=True)
by_frequency = -(counts * np.log(counts / counts.sum())).sum() / counts.sum()
print(f"nats per character: by frequency alone {by_frequency:.2f}, GPT {of_all:.3f}", end=" ")
print(f"(of {gpt.count_params():,} parameters), floor log {len(lines)} / length = {floor:.3f}")
assert floor < of_all < 1.3 * floor

# %% [markdown]
# GPT comes near the floor and stays above it. Does it spend its nats where it must? We can count
# what the next character costs a reader who knows the language: by the share of sentences that
# continue so.


# %%
def counted(line):
    """-log of the share, of the sentences with the same beginning, that have the next character."""
    alike = [sum(other.startswith(line[:i]) for other in lines) for i in range(len(line) + 1)]
    return np.log(alike[:-1]) - np.log(alike[1:])


def nats(logits, following):
    """The cost of each character by these logits; 0 at padding."""
    logits = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    of_next = np.take_along_axis(logits, following[..., None], axis=-1)[..., 0]
    return np.where(following > 0, -of_next, 0)


cost = nats(logits, following)
shown = lines.index("he drank old tea yesterday.")
line, by_count, by_gpt = lines[shown], counted(lines[shown]), cost[shown, : len(lines[shown])]
of_time = by_gpt[line.index(" yest") :].sum()
print(f"{line}: {by_count.sum():.2f} nats by counting = log {len(lines)},", end=" ")
print(f"GPT {by_gpt.sum():.2f}, of them {of_time:.2f} for the time")
np.testing.assert_allclose(by_count.sum(), np.log(len(lines)))
np.testing.assert_allclose(cost.sum() / counts.sum(), of_all, rtol=1e-4)
assert by_count[line.index(" yest") :].sum() == 0 and of_time < 0.5

# %%
# extra code – what each character costs
figure, panel = figures.panels(1, width=7.5)
place = np.arange(len(line))
panel.bar(place, by_count, 0.8, color=figures.BLUE, alpha=0.5, label="by counting")
panel.plot(place, by_gpt, "D", color=figures.BLACK, markersize=4, label="GPT")
panel.set_xticks(place, line.replace(" ", "␣"))
panel.set(xlabel="next character", ylabel="nats")
panel.legend()
figures.show(figure, "14_next_character")

# %% [markdown]
# It pays where the sentence chooses and next to nothing where it spells. "yesterday" is free: it
# was decided long before, by the *a* of "drank". (At the space before it GPT still pays a little,
# in case the sentence should end there.) Now let it write: draw a character, append, repeat.


# %%
def draw(logits):
    """An id for each row of logits, by the probabilities of its softmax."""
    p = np.exp(logits.astype("float64"))
    return [rng.choice(len(row), p=row / row.sum()) for row in p]


def write(model, number):
    """Sentences drawn one character at a time, up to the full stop."""
    ids = np.full((number, LENGTH + 1), kt.PADDING)
    ids[:, 0] = START
    for t in range(LENGTH):
        ids[:, t + 1] = draw(model.predict_on_batch(ids[:, :-1])[:, t])
    texts = ("".join(("??" + "".join(characters))[i] for i in row[1:]) for row in ids)
    return [text.split(".")[0] + "." for text in texts]


written = write(gpt, BATCH)
correct = np.isin(written, lines).mean()
new = set(written) & set(lines[:num_test])
print(*(text + ";" for text in written[:5]))
print(f"{correct:.0%} are in the language; {len(set(written))} different, of them", end=" ")
print(f"{len(new)} that it has never seen")
assert correct > 0.7 and len(new) > 10

# %% [markdown]
# BERT is not made for that. Given five masks, it draws the five words at once, and no word knows
# what the others became:

# %%
of_masks = bert.predict_on_batch(np.full((num_test, 5), MASK))
drawn = np.reshape(draw(of_masks.reshape(5 * num_test, -1)), (num_test, 5))
drawn = [" ".join(words[i - FIRST] if i >= FIRST else "?" for i in row) for row in drawn]
at_once = np.isin(drawn, [" ".join(sentence) for sentence in sentences]).mean()
print(*(text + ";" for text in drawn[:4]), f"{at_once:.0%} are in the language")
assert at_once < 0.4 < correct - 0.3

# %% [markdown]
# What GPT cannot do is look to the right. Let's change one word in the middle. In 000's words,
# masked attention "只依赖已生成的内容" (depends on nothing but what is there already): so it does.

# %%
other = line.replace("old", "new")
pair = [shown, lines.index(other)]
differ = np.flatnonzero(preceding[pair[0]] != preceding[pair[1]])
moved = np.flatnonzero(np.abs(np.subtract(*logits[pair])).max(axis=-1) > 1e-4)
print(f"GPT: characters {differ} differ; logits before {moved.min()} stay")
assert moved.min() == differ.min() > 0
of_words = bert.predict_on_batch(texts[pair])
moved = np.flatnonzero(np.abs(np.subtract(*of_words)).max(axis=-1) > 1e-4)
print("BERT: the third word differs, logits move at", moved.tolist())
assert moved.tolist() == [0, 1, 2, 3, 4]

# %% [markdown]
# ## Which half of the Transformer?
#
# One often reads that the Transformer is "本质上是一个 Encoder-Decoder 模型" (in essence an
# encoder-decoder model), and BERT and GPT-2 "based on" it (article 002). Each is one half. BERT is
# called encoder-only and GPT decoder-only, but a decoder without an encoder has nothing for its
# cross-attention to read. Chapter 9 has silenced that: what remains is the encoder block with a
# mask, up to rounding.
#
# ## ViT: the patches of an image
#
# An image has no words. ViT cuts it into patches, lays each flat, and projects it to d_model: that
# is a convolution whose stride is as wide as its kernel. Our images are 12 × 12, the patches
# 3 × 3, and a bar of three patches lies across, upright, or along one of the diagonals.

# %%
SIDE, PATCH, KINDS = 4, 3, ["across", "upright", "falling", "rising"]


def images(number):
    """Images (number, 12, 12, 1) of bars under noise, and which kind of bar."""
    kind, start = rng.integers(4, size=number), rng.integers(SIDE, size=(number, 2))
    down, right = np.array([[0, 1], [1, 0], [1, 1], [-1, 1]])[kind].T
    row = np.where(down == 0, start[:, 0], start[:, 0] % 2 + 2 * (down < 0))
    column = np.where(right == 0, start[:, 1], start[:, 1] % 2)
    grid = np.zeros((number, SIDE, SIDE))
    for i in range(3):
        grid[np.arange(number), row + i * down, column + i * right] = 1
    drawn = np.kron(grid, np.ones((PATCH, PATCH))) + rng.normal(0, 0.2, (number, 12, 12))
    return drawn[..., None].astype("float32"), kind


def patches(images):
    """(batch, 12, 12, 1) -> (batch, 16, 9)"""
    blocks = images.reshape(-1, SIDE, PATCH, SIDE, PATCH).swapaxes(2, 3)
    return blocks.reshape(-1, SIDE**2, PATCH**2)


pictures, _ = images(5)
convolution = layers.Conv2D(D_MODEL, PATCH, strides=PATCH, data_format="channels_last")
convolved = array(convolution(pictures)).reshape(5, SIDE**2, D_MODEL)
kernel, bias = convolution.get_weights()
by_hand = patches(pictures) @ kernel.reshape(-1, D_MODEL) + bias
print(f"flattened and projected, or convolved: {np.abs(by_hand - convolved).max():.0e}")
np.testing.assert_allclose(by_hand, convolved, atol=1e-5)

# %% [markdown]
# Two more things are learned: a position for each place, and a class token in front, from whose
# last state alone the class is read. To see what the positions are for, we train one without.


# %%
class ClassToken(layers.Layer):
    """One learned vector in front of the sequence."""

    def build(self, x_shape):
        self.token = self.add_weight(shape=(1, 1, x_shape[-1]), initializer="zeros", name="token")

    def call(self, x):
        token = ops.broadcast_to(self.token, (ops.shape(x)[0], 1, x.shape[-1]))
        return ops.concatenate([token, x], axis=1)


small = keras.initializers.RandomNormal(stddev=0.02)  # as the positions begin


def vit(patches, positions):
    project = layers.Dense(D_MODEL, kernel_initializer=small)
    x = ClassToken()(project(patches))
    x = kt.LearnedPositionalEncoding(1 + SIDE**2)(x) if positions else x
    return layers.Dense(len(KINDS))(encoder(1)(x)[:, 0])


# %% [markdown]
# Both are trained in one fit, since they share no weights.

# %%
inputs = keras.Input((SIDE**2, PATCH**2))
both = {"with": vit(inputs, positions=True), "without": vit(inputs, positions=False)}
alone = keras.Model(inputs, both["with"])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
steps = 300
vits = compiled(inputs, both, dict.fromkeys(both, loss), steps, peak=0.005)
(seen, kinds), (tested, expected) = images(64 * steps), images(1000)
vits.fit(patches(seen), dict.fromkeys(both, kinds), batch_size=64, verbose=0)
order = rng.permutation(SIDE**2)
of_images = vits.predict(patches(tested), 500, verbose=0)
of_shuffled = vits.predict(patches(tested)[:, order], 500, verbose=0)
right, moved = {}, {}
for name in both:
    right[name] = (of_images[name].argmax(axis=-1) == expected).mean()
    moved[name] = np.abs(of_shuffled[name] - of_images[name]).max()
    print(f"ViT {name} positions: {right[name]:.3f} right; logits move by", end=" ")
    print(f"{moved[name]:.0e} if the patches are shuffled")
assert moved["without"] < 1e-3 and moved["with"] > 1
assert right["with"] > 0.8 and right["without"] < 0.32

# %%
# extra code – one image of each kind, and what is left of it without positions
figure, panels = figures.panels(4, 2, width=1.7, height=1.75)
for panels_of_kind, kind in zip(panels.T, range(4), strict=True):
    image = tested[np.flatnonzero(expected == kind)[:1]]
    mixed = patches(image)[:, order].reshape(SIDE, SIDE, PATCH, PATCH).swapaxes(1, 2)
    for panel, picture in zip(
        panels_of_kind, (image.reshape(12, 12), mixed.reshape(12, 12)), strict=True
    ):
        panel.imshow(picture, cmap="gray", vmin=-0.5, vmax=1.5)
        panel.set_xticks(np.arange(-0.5, 12, PATCH), [""] * 5)
        panel.set_yticks(np.arange(-0.5, 12, PATCH), [""] * 5)
        panel.tick_params(length=0)
        panel.grid(color=figures.ORANGE, linewidth=0.8)
    panels_of_kind[0].set_title(KINDS[kind])
panels[0, 0].set_ylabel("16 patches")
panels[1, 0].set_ylabel("shuffled")
figures.show(figure, "14_vit")

# %% [markdown]
# Without positions the two rows of the figure are one and the same to the model: a bag of patches.
# Three bright ones in a bag look the same for all four kinds, so it guesses, 1 in 4, and no
# training could help. ViT's positions are learned: nothing in it says that an image has rows.
#
# ## The real ones
#
# BERT-base, GPT-2 small and ViT-B/16 all have 12 blocks, $d_{model}$ 768 and $d_{ff}$ 3072. Let's
# build one such block, and count the rest by a formula that we try on our three models first.


# %%
def parameters(num_layers, d_model, d_ff, *others):
    """Of the blocks, and of all with the others, which are (rows, columns)."""
    attention, feed_forward = 4 * (d_model**2 + d_model), 2 * d_model * d_ff + d_ff + d_model
    blocks = num_layers * (attention + feed_forward + 4 * d_model)
    return blocks, blocks + sum(rows * columns for rows, columns in others)


norm, ours = (2, D_MODEL), (D_MODEL, D_FF)
assert bert.count_params() == parameters(1, *ours, (2 + len(words), D_MODEL), norm)[1]
assert gpt.count_params() == parameters(2, *ours, (2 + len(characters), D_MODEL), norm)[1]
others = (PATCH**2 + 1, D_MODEL), (1, D_MODEL), (SIDE**2 + 1, D_MODEL), norm, (D_MODEL + 1, 4)
assert alone.count_params() == parameters(1, *ours, *others)[1]

real = {  # words or patches (and the class token), positions, norm, and what else there is
    "BERT-base": [(30522, 768), (512, 768), (2, 768), (2, 768), (768 + 1, 768)],
    "GPT-2 small": [(50257, 768), (1024, 768), (2, 768)],
    "ViT-B/16": [(3 * 16**2 + 1, 768), (1, 768), (14**2 + 1, 768), (2, 768), (768 + 1, 1000)],
}
block = kt.EncoderBlock(12, 3072)
block.build((1, 8, 768))
for (name, others), millions in zip(real.items(), (110, 124, 86), strict=True):
    blocks, total = parameters(12, 768, 3072, *others)
    print(f"{name:11}: 12 blocks {blocks:,} + {total - blocks:10,} = {total:11,}")
    assert blocks == 12 * block.count_params() and abs(total / millions / 1e6 - 1) < 0.01

# %% [markdown]
# The same 85,054,464 in all three; the models differ in what they read. (BERT also has two segment
# vectors and a "pooler", for its second task, whether two sentences follow each other, which we
# left out; its blocks are post-norm. GPT-2's paper says 117 million; by our count it has 124.)
#
# ## Exercises
#
# 1. One reads that self-attention "不能提供位置信息" (cannot give positions; article 002). Take the
#    positions from GPT: does it still know the order of what it has read? And with one block?
# 2. BERT fills in a blank at a glance. Can GPT also fill it in, looking left only?
# 3. ViT-B/32 has patches of 32 × 32. Has it more parameters than ViT-B/16, or fewer? How many
#    weights does a head compute?
#
# ## Answers
#
# 1. With two blocks it does: each state that the first block puts out is a mean over the tokens up
#    to there, a different one at each position. One block does not: its last row is a mean of all,
#    in any order the same. It can only tell how many there are (Haviv et al. 2022): if the first
#    token is always the same, its share of the mean falls.

# %%
x = rng.normal(size=(1, 6, D_MODEL)).astype("float32")
for num_layers in (1, 2):
    stack = encoder(num_layers)
    last = [array(stack(y, kt.look_ahead_mask(6)))[0, -1] for y in (x, x[:, [1, 0, 2, 3, 4, 5]])]
    difference = np.abs(np.subtract(*last)).max()
    print(f"first two tokens swapped, {num_layers} block(s): the last moves by {difference:.0e}")
    assert (difference > 1e-3) == (num_layers == 2)

marked = np.concatenate([x[:, :1], np.repeat(x[:, 1:2], 5, axis=1)], axis=1)
states = array(encoder(1)(marked, kt.look_ahead_mask(6)))[0, 1:]
apart = np.abs(np.diff(states, axis=0)).max(axis=-1).min()
print(f"one block, five equal tokens after another one: states at least {apart:.3f} apart")
assert apart > 1e-3

# %% [markdown]
# 2. Yes: write each verb into the blank and keep the sentence that is cheapest as a whole. After a
#    wrong verb, what follows is expensive. But that is nine sentences to score for one blank:

# %%
verbs = " ".join(things).split()
asked = sentences[: BATCH // len(verbs) * 4]  # test sentences, in full batches
tried = [" ".join([s[0], verb, *s[2:]]) + "." for s in asked for verb in verbs]
inputs, outputs = encoded(tried)
total = nats(gpt.predict(inputs, batch_size=BATCH, verbose=0), outputs).sum(axis=-1)
best = total.reshape(-1, len(verbs)).argmin(axis=-1)
by_scoring = np.mean([verbs[i] == sentence[1] for i, sentence in zip(best, asked, strict=True)])
print(f"verbs found: GPT {by_scoring:.2f} of {len(asked)}, BERT {found['BERT'][1]:.2f}", end=" ")
print(f"(from the left alone {found['left only'][1]:.2f})")
assert len(asked) <= num_test and by_scoring > 0.8

# %% [markdown]
# 3. More, as its projection is four times as large; but its 49 patches need fewer positions and
#    far fewer weights, as these grow with the square of the number of tokens:

# %%
for patch in (16, 32):
    tokens = (224 // patch) ** 2 + 1
    others = (3 * patch**2 + 1, 768), (1, 768), (tokens, 768), (2, 768), (768 + 1, 1000)
    total = parameters(12, 768, 3072, *others)[1]
    print(f"ViT-B/{patch}: {total:,} parameters, {tokens} tokens, {tokens**2:,} weights per head")
assert total > parameters(12, 768, 3072, *real["ViT-B/16"])[1]

# %%
# extra code – the numbers of the gallery
figures.record(one_side=one_side, floor=floor, blocks=blocks)
figures.record(bert_above=0.9, gpt_below=1.3, one_block_below=1e-3)  # as asserted above

# %% [markdown]
# ## In short
#
# - BERT sees both sides and fills in; GPT sees the left side and writes; ViT reads patches. Mask,
#   input layer and loss differ; all three are made of the paper's blocks.
# - Where we make the data we know the floor: no reader of one side finds all verbs, no model spends
#   less than $\log N$ nats on average on $N$ sentences that are equally probable.
# - The parameters of the real models differ in what sits outside the blocks, words and positions.
#
# **Next**: [chapter 15](15_four_tasks.py) uses the package for four tasks with one stack.
