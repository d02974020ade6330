# %% [markdown]
# # 6 · Masks, and the target shifted right
#
# **How can a decoder learn every word of a sentence in one pass without ever seeing the word it
# must predict?** Let's write two masks out (of what comes next, and of padding), apply them rightly
# and wrongly, shift a target, and train the same small model with the look-ahead mask and without:
# the one without has a loss that is too good to be true. Run time: about 35 s.
#
# *In plain words:* in training the whole answer lies on the table. The mask is the hand that covers
# what comes next, so that every word can be asked for at once and none can be copied. A loss that
# is too good is a sign that the hand has slipped.
#
# *Paper: sections 3.1 (the shift) and 3.2.3 (the mask). Géron: chapter 16, "Multi-head attention"
# (its padding and causal masks) and "An Encoder–Decoder Network for Neural Machine Translation"
# (the shift). Articles: 000, 002 and 003.*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather
from keras_transformer import plots

keras.utils.set_random_seed(6)
rng = np.random.default_rng(6)
array = ops.convert_to_numpy


def softmax(scores):
    return array(ops.softmax(scores))


# %% [markdown]
# ## The look-ahead mask of 我 爱 吃 苹果 ("I love to eat apples")
#
# To predict 爱 the decoder may see 我 only, to predict 吃 it may see 我 爱, and so on. One row for
# each query, one column for each key; True, as everywhere in the package, means *may be attended
# to*.
#
# ![The look-ahead mask](../docs/drawings/mask.svg)

# %%
words = ["我", "爱", "吃", "苹果"]
mask = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]], bool)
np.testing.assert_array_equal(mask, array(kt.look_ahead_mask(4)))
for row, predicted in zip(mask[:3], words[1:], strict=True):
    print(f"to predict {predicted} it sees", *np.array(words)[row])

# %% [markdown]
# ## Minus infinity takes the column away
#
# The mask works *before* the softmax: a score of $-\infty$ is a weight of $e^{-\infty} = 0$, and
# the others share the whole 1. That is the same as never having had those columns:

# %%
Q, K, V = rng.normal(size=(3, 4, 8)).astype("float32")
scores = Q @ K.T / 8**0.5
weights = softmax(np.where(mask, scores, -np.inf))
for i in range(1, 4):  # the first word sees itself alone
    np.testing.assert_allclose(weights[i, : i + 1], softmax(scores[i, : i + 1]), atol=1e-6)
_, packages = kt.scaled_dot_product_attention(Q, K, V, attention_mask=mask)
error = np.abs(array(packages) - weights).max()
print(weights.round(2), f"\nthe package differs by {error:.0e}")
assert error < 1e-6 and not weights[~mask].any()

# %% [markdown]
# ## Before the softmax, and minus infinity
#
# One reads of three ways: the scores of what is not yet decoded become $-\infty$, before the
# softmax (article 000, and right); its *weights* are set to 0 (002); its *relevance*, $QK^T$,
# becomes 0 (003, whose formula has the $-\infty$). Let's take all three at their word, and then
# exchange the key of the last word, which no other word may see:


# %%
def three_ways(scores):
    return {
        "scores −∞": softmax(np.where(mask, scores, -np.inf)),
        "weights 0": softmax(scores) * mask,
        "scores 0": softmax(scores * mask),
    }


other_K = np.concatenate([K[:3], -K[3:]])
changed = three_ways(Q @ other_K.T / 8**0.5)
for way, weights in three_ways(scores).items():
    sums, ahead = weights.sum(axis=-1), weights[~mask].sum()
    moved = np.abs(weights - changed[way])[:3, :3].max()
    print(f"{way:9}: rows sum to {sums.round(2)}, ahead {ahead:.2f}, exchange moves {moved:.3f}")
    assert np.allclose(sums, 1) == (way != "weights 0")
    assert (ahead > 0) == (way == "scores 0")
    assert (moved > 0.01) == (way == "weights 0")

# %% [markdown]
# Weights set to 0 *after* the softmax leave rows that do not sum to 1, and they leak: the future is
# still in the denominator. Scores set to 0 give the future a good part of the weight ("ahead"), and
# with it the values of words not yet written. Other queries and keys, drawn twenty times, say the
# same:

# %%
moved_by, ahead_by = [], []
for q, k in rng.normal(size=(20, 2, 4, 8)).astype("float32"):
    ways, changed = (
        three_ways(q @ keys.T / 8**0.5) for keys in (k, np.concatenate([k[:3], -k[3:]]))
    )
    moved_by.append(np.abs(ways["weights 0"] - changed["weights 0"])[:3, :3].max())
    ahead_by.append(ways["scores 0"][~mask].sum())
print(f"weights 0: the exchange moves them by {min(moved_by):.3f} to {max(moved_by):.3f}")
print(f"scores 0: of four rows' weight {min(ahead_by):.2f} to {max(ahead_by):.2f} lie ahead")
assert min(moved_by) > 0.01 and min(ahead_by) > 1

# %% [markdown]
# ## −10⁹, −∞, and a row without any key
#
# Many programs put $-10^9$ in place of $-\infty$, others add it to the score. In float32 the result
# is the same to the last bit (in float16 −10⁹ is −∞), with one exception: a row in which nothing
# may be seen. Such rows exist: the sentences of a batch are filled up to one length with *padding*,
# a token that nobody may see, and the package fills up the last batch of an epoch with whole
# sentences of it, so that all batches have one shape.

# %%
nothing = np.zeros((1, 4), bool)
rows = {}
with np.errstate(invalid="ignore"):
    for name, low in (("−∞", -np.inf), ("−10⁹", -1e9)):
        rows[name] = softmax(np.where(nothing, scores[:1], low))[0]
rows["package"] = array(kt.scaled_dot_product_attention(Q[:1], K, V, attention_mask=nothing)[1])[0]
print({name: row.round(2).tolist() for name, row in rows.items()})
assert np.isnan(rows["−∞"]).all() and not rows["package"].any()
np.testing.assert_allclose(rows["−10⁹"], 1 / 4)
minus_infinity, large = (softmax(np.where(mask, scores, low)) for low in (-np.inf, -1e9))
np.testing.assert_array_equal(minus_infinity, large)
added = softmax(scores + np.where(mask, 0, -1e9).astype("float32"))
np.testing.assert_array_equal(minus_infinity, added)
assert np.isnan(0 * rows["−∞"]).all()

# %% [markdown]
# $-\infty$ gives $0/0$, a NaN. The loss gives padding the weight 0, but 0 times NaN is NaN. $-10^9$
# attends to all that is forbidden, evenly. The package answers with exact zeros.
#
# ## The future cannot reach back
#
# Now a whole block of the decoder: masked self-attention, attention to the encoder's memory
# (chapter 7) and a small network for each word (chapter 8). Let's see once more which outputs move
# with which word: the table that results should be the mask itself. A block of the encoder has no
# such mask.

# %%
x, memory = rng.normal(size=(2, 1, 4, 16)).astype("float32")
decoder_block = kt.DecoderBlock(num_heads=2, d_ff=32)
encoder_block = kt.EncoderBlock(num_heads=2, d_ff=32)
blocks = {"decoder": lambda x: decoder_block(x, memory), "encoder": encoder_block}
for name, block in blocks.items():
    moves = figures.who_moves(block, x)
    print(f"{name}: output i (row) moves with word j", *moves.astype(int), sep="\n  ")
    assert (moves == mask).all() if name == "decoder" else moves.all()

# %% [markdown]
# ## Shifted right
#
# The mask lets the row of a word see the word itself, so its output has to be compared with the
# *next* one. That is the shift of the paper's Figure 1: START (the `<s>` of our translator) stands
# before the decoder's input, END (its `</s>`) after the labels. `kt.TranslationBatches` adds both
# (and END to the source), and fills up with padding, ·. Let's look at the arrays of two sentences:

# %%
pairs = ("我 爱 吃 苹果", "I love to eat apples"), ("我 吃 苹果", "I eat an apple")
# the first four ids are special: padding, unknown, START, END
vocabulary = ["·", "?", "START", "END", *"我 爱 吃 苹果 I love to eat apples an apple".split()]
number = {word: i for i, word in enumerate(vocabulary)}
# all sources and all targets, each sentence a list of ids
sides = [
    [[number[word] for word in text.split()] for text in side] for side in zip(*pairs, strict=True)
]
# one bucket: sentences of all lengths in one batch
inputs, labels = kt.TranslationBatches(*sides, num_buckets=1, shuffle=False)[0]
for name, ids in (*inputs.items(), ("labels", labels)):
    print(f"{name:11}", *(" ".join(f"{vocabulary[i]:7}" for i in row) for row in ids), sep="\n  ")
source_ids, target_ids = inputs["source_ids"], inputs["target_ids"]
# where a label is a word, it is the next input of the decoder
middle = (labels != kt.END) & (labels != kt.PADDING)
np.testing.assert_array_equal(target_ids[:, 1:][middle[:, :-1]], labels[:, :-1][middle[:, :-1]])

# %% [markdown]
# The decoder reads the correct beginning whatever it would have written itself; this is *teacher
# forcing*. Thanks to the mask, one pass then does the work of many: row $t$ of it equals the last
# row of a pass over the first $t$ words alone. (`kt.Transformer` is the whole model, with random
# weights; chapter 9 wires it.)
#
# ![Teacher forcing: the target shifted right](../docs/drawings/teacher_forcing.svg)

# %%
model = kt.Transformer(len(vocabulary), num_layers=1, d_model=16, num_heads=2, d_ff=32, dropout=0.0)
logits = model.predict_on_batch(inputs)
for t in (2, 5):
    step = model.predict_on_batch({"source_ids": source_ids, "target_ids": target_ids[:, :t]})
    error = np.abs(step[:, -1] - logits[:, t - 1]).max()
    print(f"row {t} of one pass and the last row of a pass over {t} words differ by {error:.0e}")
    assert error < 1e-5

# %% [markdown]
# ## The padding mask
#
# The shorter sentence was filled up with padding (·). Its logits must not depend on that, nor on
# the other sentence: padding has to be invisible as a key, in the encoder and in the
# cross-attention, where the keys are the *source's*. The target's own padding needs no mask: it
# stands in the future of every real word. Let's take the model apart and vary its two masks:


# %%
def read(source_ids, target_ids, encoder_mask, cross_mask):
    x = model.source_positions(model.source_embedding(source_ids))
    memory = model.encoder(x, attention_mask=encoder_mask)
    y = model.target_positions(model.target_embedding(target_ids))
    y = model.decoder(y, memory, cross_attention_mask=cross_mask)
    return array(model.target_embedding(y, reverse=True))  # from vectors to logits: chapter 9


of_source, of_target = kt.padding_mask(source_ids), kt.padding_mask(target_ids)
print("padding mask of the sources:", array(of_source).astype(int).tolist())
ways = {
    "both masks of the source": (of_source, of_source),
    "no mask in the encoder": (None, of_source),
    "no mask in the cross-attention": (of_source, None),
    "the target's mask in the cross-attention": (of_source, of_target),
}
alone = {"source_ids": source_ids[1:, :4], "target_ids": target_ids[1:, :5]}  # nothing to mask
alone = model.predict_on_batch(alone)[0]
for way, masks in ways.items():
    difference = np.abs(read(source_ids, target_ids, *masks)[1, :5] - alone).max()
    print(f"{way:41}: 我 吃 苹果 alone and in the batch differ by {difference:.0e}")
    assert (difference < 1e-5) == (way == "both masks of the source")
np.testing.assert_allclose(read(source_ids, target_ids, of_source, of_source), logits, atol=1e-5)

# %% [markdown]
# Only the first is right, and `kt.Transformer` does just that. Where source and target are padded
# to the same length, the last one raises no error.

# %%
# extra code – masks as matrices
figure, row_of_panels = figures.panels(3, width=3.2, height=3.1)
tokens = [figures.glossed(*pair) for pair in (("我", "I"), ("爱", "love"), ("茶", "tea"))]
tokens = ["START", *tokens, "padding", "padding"]
look_ahead, padding = array(kt.look_ahead_mask(6)), np.tile(np.arange(6) < 4, (6, 1))
masks = {"look-ahead": look_ahead, "padding": padding, "both": look_ahead & padding}
for panel, (name, matrix) in zip(row_of_panels, masks.items(), strict=True):
    panel.imshow(matrix, cmap="Blues", vmin=0, vmax=1.4)
    for (i, j), seen in np.ndenumerate(matrix):
        panel.text(j, i, int(seen), ha="center", va="center", color="white" if seen else "0.5")
    panel.set_title(name)
    panel.set_xticks(range(6), tokens, rotation=45, ha="right", rotation_mode="anchor")
    panel.set_yticks(range(6), tokens if name == "look-ahead" else [""] * 6)
    panel.tick_params(length=0)
    panel.set_xlabel("key token")
row_of_panels[0].set_ylabel("query token")
figures.show(figure, "06_masks")

# %% [markdown]
# ## The leak
#
# What if the look-ahead mask is forgotten? The model "knows the answer in advance" (article 003).
# Let's commit the crime on a small task written as one line: four different digits, =, and the same
# digits sorted, in Chinese, as in 7 1 4 9 = 一 四 七 九. The digits are drawn at random, so that no
# honest model can guess them: on average each line costs at least $\ln(10 \cdot 9 \cdot 8 \cdot 7)$
# nats. (The first digit is one of ten and costs $\ln 10$, the next is one of nine, and so on; the
# rest of the line follows from them.)

# %%
vocabulary = ["·", "?", "START", "END", "=", *"0123456789", *"零一二三四五六七八九"]


def draw(number):
    # each row: four of the ten digits
    digits = rng.permuted(np.tile(np.arange(10), (number, 1)), axis=1)[:, :4]
    start, equals, end = (np.full((number, 1), vocabulary.index(w)) for w in ("START", "=", "END"))
    return np.hstack([start, digits + 5, equals, np.sort(digits) + 15, end])  # 0 is id 5, 零 is 15


training, test = draw(2000), draw(200)
floor = np.log(10 * 9 * 8 * 7) / 10  # of the 11 tokens of a line all but START are predicted
print(*(vocabulary[i] for i in training[0]), f"(the floor is {floor:.2f} nats per token)")


# %% [markdown]
# There is no source, so one block of the encoder will do: under a look-ahead mask it is a decoder's
# block without cross-attention. Its mask comes from outside: padding alone, or padding and
# look-ahead together. In training it reads the true beginning. To *write*, it gets the line up to =
# and adds one token after the other; what is not yet written is padding, which no token attends to.
# (The model is a subclass so that its mask can be read, and forgotten, in `call`.)


# %%
class LanguageModel(keras.Model):
    def __init__(self, look_ahead):
        super().__init__()
        self.look_ahead = look_ahead
        self.embedding = kt.TokenEmbedding(len(vocabulary), 64)
        self.positions = kt.PositionalEncoding()
        self.block = kt.EncoderBlock(num_heads=1, d_ff=128)
        self.logits = keras.layers.Dense(len(vocabulary))

    def call(self, ids):
        mask = kt.padding_mask(ids)
        if self.look_ahead:
            mask = ops.logical_and(mask, kt.look_ahead_mask(ids.shape[1]))
        x = self.block(self.positions(self.embedding(ids)), attention_mask=mask)
        return self.logits(x)


def write(model, lines):
    ids = np.where(np.arange(11) < 6, lines, kt.PADDING)  # START, four digits, =
    for t in range(5, 10):
        ids[:, t + 1] = model.predict_on_batch(ids[:, :-1])[:, t].argmax(axis=-1)
    return ids


# %% [markdown]
# Two of them start from the same weights, and train on the same lines; in the last two of eight
# epochs the learning rate is a fifth, so that they settle what has been learned.
#
# *Predict before you run:* which of the two has the lower loss on new lines? Which one writes more
# of them right?

# %%
losses, shares, models = {}, {}, {}
rate = keras.optimizers.schedules.PiecewiseConstantDecay([6 * 40], [5e-3, 1e-3])  # 40 per epoch
for name, look_ahead in (("with the mask", True), ("without", False)):
    keras.utils.set_random_seed(6)  # the same weights to begin with
    model = models[name] = LanguageModel(look_ahead)
    model.compile(kt.paper_optimizer(rate), kt.TokenCrossEntropy())
    losses[name], shares[name] = [], []
    for _ in range(8):
        model.fit(training[:, :-1], training[:, 1:], batch_size=50, verbose=0)
        loss = model.evaluate(test[:, :-1], test[:, 1:], batch_size=len(test), verbose=0)
        losses[name].append(loss)
        written = write(model, test)
        shares[name].append((written == test).all(axis=-1).mean())
    line = " ".join(vocabulary[i] for i in written[0, 1:])
    print(f"{name:13}: loss {losses[name][-1]:.2f}, {shares[name][-1]:.0%} right, such as {line}")
assert 0.97 * floor < losses["with the mask"][-1] < 1.25 * floor
assert losses["without"][-1] < 0.3 * floor
assert shares["with the mask"][-1] > 0.7 > 0.5 > shares["without"][-1]

# %% [markdown]
# The model without the mask wins on the loss by far and cannot do the task. The other comes near
# the floor, and sorts. So beware of a loss that is better than the data allow. How does the cheat
# work? Let's look at the question, whose four digits were drawn at random, and at how much
# attention each place pays to the next one: `kt.attention_scores` returns the weights of every
# attention in a layer or a model, by its path, from one pass.

# %%
attention = {}
for name, model in models.items():
    guesses = model.predict_on_batch(test[:, :-1])[:, :4].argmax(axis=-1)
    guessed = (guesses == test[:, 1:5]).mean()
    (weights,) = kt.attention_scores(model, test[:, :-1]).values()  # of its only attention
    attention[name] = array(weights)[:, 0]
    ahead = attention[name][:, range(9), range(1, 10)].mean()
    print(f"{name:13}: {guessed:.0%} of the random digits guessed, {ahead:.0%} of attention ahead")
    if name == "without":
        assert guessed > 0.9 and ahead > 0.3  # by chance 0.1
    else:
        assert guessed <= 0.2 and ahead == 0

# %% [markdown]
# It looks up the next token and repeats it, even where nobody could know it. When it has to write,
# nothing stands there.

# %%
# extra code – the learning curves, and where both models look
figure, (left, right) = figures.panels(2)
looks = {"with the mask": ("o-", figures.BLUE), "without": ("s--", figures.ORANGE)}
for name, (style, color) in looks.items():
    left.plot(range(1, 9), losses[name], style, color=color, label=name)
    right.plot(range(1, 9), 100 * np.array(shares[name]), style, color=color, label=name)
left.axhline(floor, color="0.5", linestyle=":")
left.text(8.1, floor - 0.12, "floor: what nobody can know", ha="right", color="0.3")
left.set(xlabel="epoch", ylabel="loss of new lines (nats per token)", ylim=(0, None))
right.set(xlabel="epoch", ylabel="new lines that are right (%)", ylim=(-3, 103))
right.legend(loc="center right")
figures.show(figure, "06_leak")
labels = [vocabulary[i] if figures.CHINESE or i < 15 else str(i - 15) for i in test[0, :10]]
maps = {name: weights[0] for name, weights in attention.items()}
figures.show(plots.plot_attention(maps, labels, labels), "06_where_they_look")

# %% [markdown]
# ## What we have so far
#
# Our translator has had a look-ahead mask from the beginning: the triangular matrix of chapter 3.
# *Break it:* let's take the mask away, and then let both translators write the sentences, one word
# after the other.


# %%
def translator(ids, masked=True):
    x = kt.TokenEmbedding(weather.VOCABULARY_SIZE, 32)(ids)
    x = kt.PositionalEncoding()(x)
    x = kt.MultiHeadAttention(num_heads=4)(x, x, use_causal_mask=masked)
    return keras.layers.Dense(weather.VOCABULARY_SIZE)(x)


written, so_far = {}, {}
for masked in (True, False):
    # masked=masked holds on to the value of this round
    so_far[masked], model = weather.train(lambda ids, masked=masked: translator(ids, masked))
    written[masked] = weather.share_written(model)
    name = "with the mask" if masked else "without"
    nats = f"{min(so_far[masked]):.4f} to {max(so_far[masked]):.4f} nats per token"
    print(f"{name:13}: {nats}, {written[masked]:.0%} of the sentences written right")
assert max(so_far[False]) < max(so_far[True]) and written[True] > 0.8 > 0.1 > written[False]

# %%
# extra code – the picture that grows
figures.show(weather.picture(6, unmasked=so_far[False]), "06_so_far")

# %% [markdown]
# Every start of the translator without a mask has a very small loss, and it writes next to nothing
# right: it reads the answer from the next place, and when it writes, that place is empty. So in our
# picture it does not count, and the translator keeps its mask. (With it, it is the one of chapter
# 5.)
#
# ## Exercises
#
# 1. Write the mask of a decoder that sees only itself and the two words before (a *sliding
#    window*). How many scores does it keep for 100 words, and how many does the look-ahead mask?
# 2. Write the mask of a *prefix*: the first two of five words see each other, the rest is written
#    from left to right. Which entries does it add to the look-ahead mask?
# 3. Pad a target on the LEFT. What goes wrong with the look-ahead mask alone, and which mask helps?
#
# Write the look-ahead mask yourself, as a function of the length, and
# [have it marked](../docs/grading.md):
# `kt.check_layer(my_mask, "look_ahead_mask")`.
#
# ## Answers
#
# 1\. Each mask is a comparison of positions: $0 \le i - j < 3$.

# %%
back = np.arange(100)[:, None] - np.arange(100)
window = (back >= 0) & (back < 3)
print(f"window {window.sum()}, look-ahead {array(kt.look_ahead_mask(100)).sum()} of {100**2}")
assert window.sum() == 3 * 100 - 3 and array(kt.look_ahead_mask(100)).sum() == 100 * 101 / 2

report = kt.check_layer(lambda length: np.tri(length, k=1, dtype=bool), "look_ahead_mask")
print(report)
assert not report.passed and "leaks by one" in str(report)

# %% [markdown]
# 2\. One entry: the first word may see the second.

# %%
j = np.arange(5)
prefix = array(kt.look_ahead_mask(5)) | (j < 2)
print(prefix.astype(int))
assert np.argwhere(prefix != array(kt.look_ahead_mask(5))).tolist() == [[0, 1]]

# %% [markdown]
# 3\. Padding then lies in the *past*, where the look-ahead mask lets it be seen. `kt.DecoderBlock`
# takes a padding mask for that. (Positions would also be shifted; this model has no positions.)

# %%
x, memory = rng.normal(size=(2, 1, 6, 16)).astype("float32")
block, padding = kt.DecoderBlock(num_heads=2, d_ff=32), np.array([[[0, 0, 1, 1, 1, 1]]], bool)
alone = array(block(x[:, 2:], memory))
padded = [array(block(x, memory, attention_mask=mask))[:, 2:] for mask in (None, padding)]
errors = [np.abs(alone - p).max() for p in padded]
print(
    f"two places of padding on the left: {errors[0]:.2f} without the mask, {errors[1]:.0e} with it"
)
assert errors[0] > 0.01 and errors[1] < 1e-5

# %%
# extra code – the numbers of the gallery
figures.record(floor=floor)
# As asserted above:
figures.record(without_below=0.3, right_without_below=0.5)
figures.record(with_mask_below=1.25, right_with_above=0.7)
figures.record(moved_least=min(moved_by), moved_most=max(moved_by))
figures.record(ahead_least=min(ahead_by), ahead_most=max(ahead_by))
figures.record(0.01, so_far_least=min(so_far[False]), so_far_most=max(so_far[False]))

# %% [markdown]
# ## In short
#
# - Masks work on scores, before the softmax: $-\infty$ there is a column that does not exist.
# - The look-ahead mask lets one pass train all positions; the padding mask of cross-attention is
#   the source's.
# - A loss on new text below what the data allow is a leak: such a model cannot write. (Training
#   text may also be learned by heart: chapter 18.)
#
# **Next**: [chapter 7](07_cross_attention.py) lets the decoder look at the source.
