# %% [markdown]
# # 5 · Positions
#
# **Attention reads a sentence as a bag of words: where does the order come from, and why from waves
# that are added to the embeddings?** Let's show that attention is blind to order, build the waves,
# test what people say about them, and train one small model with four kinds of positions. Run
# time: about 30 s.
#
# *In plain words:* to attention a sentence is a bag of words. So each position gets a pattern of
# its own, like the hands of many clocks that run at different speeds, and it is added to the word.
# From two such patterns one can read how far apart they are.
#
# *Paper: section 3.5 and row (E) of Table 3. Géron: chapter 16, "Positional encodings" and its
# figure 16-9. Articles: 000, 002 and 004.*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather

keras.utils.set_random_seed(5)
rng = np.random.default_rng(5)


def array(x):
    return ops.convert_to_numpy(ops.cast(x, "float32"))


# %% [markdown]
# ## Without positions, 狗咬人 is 人咬狗
#
# 狗 咬 人 ("dog bites man") and 人 咬 狗 ("man bites dog") are the same three vectors in another
# order. Let's give both to self-attention with random weights.
#
# *Predict before you run:* by how much does the vector that comes out for 狗 (dog) change?

# %%
dog_bites_man = rng.normal(size=(1, 3, 16)).astype("float32")
backwards = [2, 1, 0]
attention, positions = kt.MultiHeadAttention(num_heads=2), kt.PositionalEncoding()
sentences = dog_bites_man, dog_bites_man[:, backwards]
changes = []
for one, other in (sentences, [positions(sentence) for sentence in sentences]):
    outputs = array(attention(one, one)), array(attention(other, other))
    changes.append(np.abs(outputs[0][:, backwards] - outputs[1]).max())
print(f"the order changes {changes[0]:.0e} without positions, {changes[1]:.2f} with them")
assert changes[0] < 1e-5 and changes[1] > 0.05

# %% [markdown]
# Permute the words and the outputs are permuted with them, no more (attention is
# *permutation-equivariant*): 狗 gets the same vector whether it bites or is bitten. The position
# has to be part of the input.
#
# ## The formula
#
# $$PE_{(pos,\,2i)} = \sin\frac{pos}{10000^{2i/d_{model}}} \qquad
#   PE_{(pos,\,2i+1)} = \cos\frac{pos}{10000^{2i/d_{model}}}$$
#
# $pos$ is the position of the token, from 0, and $i$ counts the pairs of dimensions, from 0. Each
# pair is one wave, as sine and as cosine; the wavelengths grow from $2\pi$ to nearly
# $10000 \cdot 2\pi$.


# %%
def interleave(angles_of_sines, angles_of_cosines):
    table = np.empty((1000, 512))
    # the even dimensions, and the odd ones
    table[:, 0::2], table[:, 1::2] = np.sin(angles_of_sines), np.cos(angles_of_cosines)
    return table


pos, i, d_model = np.arange(1000)[:, None], np.arange(256), 512
angles = pos / 10000 ** (2 * i / d_model)
PE = interleave(angles, angles)  # in float64
error = np.abs(PE[:200] - array(kt.sinusoids(200, d_model))).max()
frequencies = 10000 ** (-2 * i / d_model)  # of the waves
shortest, longest = 2 * np.pi / frequencies[[0, -1]]
print(f"by hand and package differ by {error:.0e}; wavelengths {shortest:.2f} to {longest:.0f}")
assert error < 1e-4 and 60_000 < longest < 20_000 * np.pi

# %% [markdown]
# > **Often read** (article 000): the exponent is $2i/d$ if $i$ is even, $2(i-1)/d$ if $i$ is odd.
# > That is loose, and two tables can be meant. If $i$ counts dimensions, then sine and cosine share
# > their angle, but each exponent is twice the paper's, and half as many dimensions vary much over
# > the first 1,000 positions. If $i$ counts pairs, then a cosine takes the wave of the pair before:
# > that breaks the pairs, on which the rest of this chapter stands.

# %%
# extra code – the two readings
doubled = pos / 10000 ** (4 * i / d_model)
pair_before = pos / 10000 ** (2 * (i - 1) / d_model)
tables = {"paper": PE, "i a dimension": interleave(doubled, doubled)}
tables["i a pair"] = interleave(angles, pair_before)
moving = {name: (np.ptp(table, axis=0) > 1).sum() for name, table in tables.items()}
circle = {name: (table[:, 0::2] ** 2 + table[:, 1::2] ** 2).min() for name, table in tables.items()}
for name in tables:
    print(f"{name:13}: {moving[name]} dimensions move by over 1, sin² + cos² >= {circle[name]:.2f}")
assert moving["i a dimension"] < 0.55 * moving["paper"]
assert circle["i a pair"] < 0.1 < 0.999 < circle["paper"]

# %% [markdown]
# ## The picture
#
# Géron's figure of this table marks the dimensions 100 and 101 and the positions 22 and 60. One
# also reads that the values of 22 and **66** are the same (article 002). The wavelength there
# decides:

# %%
wavelength = 2 * np.pi * 10000 ** (100 / 512)  # of dimension 2i = 100
apart = {p: np.abs(PE[22, 100:102] - PE[p, 100:102]).max() for p in (60, 66)}
print(f"wavelength {wavelength:.2f}; 22 to 60: {apart[60]:.3f}, 22 to 66: {apart[66]:.2f}")
assert round(wavelength) == 60 - 22 and apart[60] < 0.01 and apart[66] > 0.5

# %% [markdown]
# 22 and 60 are one wavelength apart and agree; 66 is a typo.

# %%
# extra code – the table; and its corner above two of its rows
figure = figures.plot_positional_encoding(kt.sinusoids(201, d_model))
for position in (22, 60):
    figure.axes[0].axvline(position, color=figures.BLACK, linestyle=":")
figure.axes[0].axhline(100.5, color=figures.BLACK, linestyle="--", linewidth=1)
figures.show(figure, "05_table")
figure, panels = figures.panels(1, 3, width=7.5, height=2.1)
sines, cosines, waves = panels[:, 0]
for panel, first, title in (
    (sines, 0, "sines: even dimensions"),
    (cosines, 1, "cosines: odd dimensions"),
):
    table = PE[:121, first::2].T  # neighbors in one map, or the eye would average the two
    image = panel.imshow(table, cmap="PuOr", vmin=-1, vmax=1, aspect="auto", origin="lower")
    panel.axhline(50, color=figures.BLACK, linestyle="--", linewidth=1)
    panel.set(title=title, ylabel="dimension", yticks=[0, 50, 150, 250])
    panel.set_yticklabels([first + 2 * pair for pair in (0, 50, 150, 250)])
figure.colorbar(image, ax=[sines, cosines], label="value")
waves.plot(PE[:121, 100], "-", color=figures.BLUE, label="dimension 100 (sine)")
waves.plot(PE[:121, 101], "--", color=figures.ORANGE, label="dimension 101 (cosine)")
for position, marker in ((22, "o"), (60, "o"), (66, "x")):
    for panel in (sines, cosines, waves):
        panel.axvline(position, color="0.4", linestyle=":")
    waves.plot([position] * 2, PE[position, 100:102], marker, color=figures.BLACK)
    waves.text(position + 0.8, 1.12, str(position))
waves.set(xlabel="position (token)", ylabel="value", xlim=(0, 120), ylim=(-1.15, 1.4))
waves.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
figures.show(figure, "05_wave")

# %% [markdown]
# ## What the dot product of two positions shows
#
# It is $PE_t \cdot PE_{t+k} = \sum_j \cos(c_j k)$ with $c_j = 10000^{-2j/d_{model}}$, the same for
# $+k$ and $-k$. Each pair contributes $\sin a \sin b + \cos a \cos b = \cos(a - b)$. Let's check it
# for all $t$ and $k$ by hand, and for 64 positions in the package's float32:

# %%
of_distance = np.cos(np.outer(np.arange(10_000), frequencies)).sum(axis=-1)
distance = np.abs(np.arange(1000)[:, None] - np.arange(1000))
np.testing.assert_allclose(PE @ PE.T, of_distance[distance], atol=1e-9)
float32 = array(kt.sinusoids(64, d_model)).astype("float64")
error = np.abs(float32 @ float32.T - of_distance[distance[:64, :64]]).max()
rises = int(np.argmax(np.diff(of_distance) > 0))  # the first k after which it grows
print(f"float32 off by {error:.0e}; falls until k = {rises},", of_distance[[0, 1, 5, 20]].round(1))
assert error < 1e-4 and 20 < rises < 100

# %% [markdown]
# So it depends on the distance alone. One often reads that it shows how *near* two positions are
# (article 000): at this width it does so up to some forty tokens; then it ripples. Three things are
# demanded of such a code: values in $[-1, 1]$, the same code whatever the length of the sentence,
# and a different code for each position. Sines of $pos$ have the first two. For the third, each
# $PE_t$ has length $\sqrt{d_{model}/2}$, so that
# $\|PE_t - PE_{t+k}\|^2 = d_{model} - 2\,PE_t \cdot PE_{t+k}$:

# %%
nearest = np.sqrt(d_model - 2 * of_distance[1:]).min()
print(f"the two most alike of 10,000 positions are {nearest:.2f} apart (each has length 16)")
assert nearest > 1 and np.abs(PE).max() <= 1
np.testing.assert_allclose(np.linalg.norm(PE, axis=-1), 16)
np.testing.assert_array_equal(array(kt.sinusoids(1000, 512))[:10], array(kt.sinusoids(10, 512)))

# %% [markdown]
# ## A step is a rotation
#
# The paper chose waves because $PE_{t+k}$ is a linear function of $PE_t$: each pair rotates by the
# angle $c_j k$, whatever $t$. Let's build that matrix.


# %%
def rotation(k):
    """M with M @ PE[t] == PE[t + k], for every t."""
    M = np.zeros((d_model, d_model))
    for j, angle in enumerate(k * frequencies):
        block = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
        M[2 * j : 2 * j + 2, 2 * j : 2 * j + 2] = block
    return M


error = np.abs(PE[:-7] @ rotation(7).T - PE[7:]).max()
full_turn = rotation(38)[100:102, 100:102]
print(f"M PE(t) and PE(t + 7) differ by {error:.0e}; after 38 steps:", full_turn.round(2).tolist())
np.testing.assert_allclose(full_turn, np.eye(2), atol=0.01)
assert error < 1e-12

# %% [markdown]
# After 38 steps the pair 100, 101 has made a full turn: that is the picture again, and the sense of
# "equal spacing, equal values in some dimensions" (article 002; those whose wavelength fits).
#
# One often reads that the code has no direction (article 004). The bare product has none, but
# attention multiplies by $W^Q$ and $W^K$ first, and these can contain a rotation. Let's rotate the
# query by −3:

# %%
bare, rotated = PE[100] @ PE.T, rotation(-3) @ PE[100] @ PE.T
print(f"bare: {bare[97]:.1f} at -3, {bare[103]:.1f} at +3;", end=" ")
print(f"rotated: {rotated[97]:.1f} at -3, {rotated[103]:.1f} at +3")
assert np.isclose(bare[97], bare[103])
assert rotated.argmax() == 97 and rotated[97] > rotated[103] + 20
for width in (512, 64):  # all pairs; the 32 fastest
    waves, turn = PE[:, :width], rotation(-3)[:width, :width]
    back = (waves[3:] @ turn.T @ waves.T).argmax(axis=-1)
    assert (back == np.arange(len(back))).all()  # three before, from every position

# %% [markdown]
# Each position now scores highest at the one three tokens *before* it, and the 32 fastest pairs are
# enough, for which a head of width 64 has room: it can learn to look back.

# %%
# extra code – the product against the distance
figure, panel = figures.panels(width=6.5)
panel.plot(range(-40, 41), bare[60:141], "-", color=figures.BLUE, label="bare: symmetric")
panel.plot(range(-40, 41), rotated[60:141], "--", color=figures.ORANGE, label="query rotated by −3")
panel.axvline(-3, color="0.6", linestyle=":")
panel.set(xlabel="distance k (tokens)", ylabel="dot product of t and t + k")
panel.legend()
figures.show(figure, "05_distance")

# %% [markdown]
# ## In practice: half precision merges neighbors
#
# bfloat16, half as long as float32 and common on accelerators, keeps 8 significant bits: between
# 256 and 512 it has only the even numbers. The package takes angles in float32 and rounds the
# finished wave. Let's count how many of 2,048 positions stay apart:

# %%
c = ops.convert_to_tensor(frequencies.astype("float32"))
angles = ops.outer(ops.cast(ops.arange(2048), "bfloat16"), ops.cast(c, "bfloat16"))
careless = array(ops.concatenate([ops.sin(angles), ops.cos(angles)], axis=-1))
packages = array(ops.cast(kt.sinusoids(2048, d_model), "bfloat16"))
distinct = [len(np.unique(table, axis=0)) for table in (careless, packages)]
print(f"different rows of 2,048: {distinct[0]} with bfloat16 angles, {distinct[1]} in the package")
assert distinct[0] < 1024 and distinct[1] == 2048
assert not (array(ops.cast(ops.arange(256, 512), "bfloat16")) % 2).any()

# %% [markdown]
# ## Adding or concatenating?
#
# Why is the position added to the word and not put beside it? The usual answer is a product of
# block matrices (article 002): the next projection adds up anyway, $W\,[x; p] = W_x x + W_p p$.

# %%
W, x, p = rng.normal(size=(16, 1024)), rng.normal(size=512), PE[5]
W_x, W_p = W[:, :512], W[:, 512:]
np.testing.assert_allclose(W @ np.concatenate([x, p]), W_x @ x + W_p @ p)
np.testing.assert_allclose(np.hstack([W_x, W_x]) @ np.concatenate([x, p]), W_x @ (x + p))

# %% [markdown]
# Both lines hold, and the second adds a caution: adding is concatenation with *equal matrices*.
# Concatenation can do more. But unless another matrix takes the result back to 512 at once, all
# that follows is wider. Let's count what that would cost the paper's *base* model (width 512, six
# blocks on either side), and what adding costs the words: how many of 512 directions do 100
# positions fill (as principal components count them)?


# %%
def parameters_of_blocks(d_model):
    """Parameters of six blocks on either side, as in the base model."""
    shape = (1, 8, d_model)
    encoder_block, decoder_block = kt.EncoderBlock(8, d_ff=2048), kt.DecoderBlock(8, d_ff=2048)
    encoder_block.build(shape)
    decoder_block.build(shape, shape)
    return 6 * (encoder_block.count_params() + decoder_block.count_params())


added, concatenated = parameters_of_blocks(512), parameters_of_blocks(1024)
singular = np.linalg.svd(PE[:100] - PE[:100].mean(axis=0), compute_uv=False)
# how many of the largest make 99 % of the variance
directions = 1 + np.searchsorted(np.cumsum(singular**2) / np.sum(singular**2), 0.99)
print(f"the blocks of the base model: {added:,} parameters, concatenated {concatenated:,}")
print(f"99 % of the variance of 100 positions lies in {directions} of 512 directions")
assert 2.5 < concatenated / added < 3 and directions < 64

# %% [markdown]
# Adding is far cheaper than that, and for the first 100 positions most of the room is left to the
# words.
#
# ## Four models and a question of order
#
# At each position, name the token two before. We train one encoder block (attention and the two
# boxes that chapter 8 opens) with one head, by Adam with the paper's constants: without positions,
# with waves added, with learned positions (one trained vector per position), and with waves beside
# the word: of the 32 numbers, 16 for the word and 16 for the position.

# %%
LENGTH, TOKENS, BACK = 12, 10, 2


def draw(number, length):
    ids = rng.integers(1, TOKENS + 1, size=(number, length))
    labels = np.zeros_like(ids)  # 0 is padding: the first two positions are not asked
    labels[:, BACK:] = ids[:, :-BACK]
    return ids, labels


class BesideTheWord(keras.layers.Layer):
    """Concatenates waves as wide as the word."""

    def __init__(self):
        super().__init__()
        self.waves = kt.PositionalEncoding()

    def call(self, x):
        return ops.concatenate([x, self.waves(ops.zeros_like(x))], axis=-1)  # the waves alone


# %%
training = draw(2000, LENGTH)
learned = kt.LearnedPositionalEncoding(max_length=LENGTH)
kinds = {"none": keras.layers.Identity(), "waves": kt.PositionalEncoding(), "learned": learned}
kinds["beside"] = BesideTheWord()
curves, models = {}, {}
for kind, positions in kinds.items():
    ids = keras.Input((None,), dtype="int32")
    x = positions(kt.TokenEmbedding(TOKENS + 1, 16 if kind == "beside" else 32)(ids))
    x = kt.EncoderBlock(num_heads=1, d_ff=64)(x)
    model = models[kind] = keras.Model(ids, keras.layers.Dense(TOKENS + 1)(x))
    metrics = [kt.TokenAccuracy()]
    # Adam as in chapter 10; cross-entropy and accuracy that leave padding out
    model.compile(kt.paper_optimizer(5e-3), kt.TokenCrossEntropy(), metrics=metrics)
    history = model.fit(*training, epochs=7, batch_size=50, verbose=0)
    curves[kind] = history.history["token_accuracy"]
    print(f"{kind:8}{model.count_params():6,} parameters, accuracy {curves[kind][-1]:.2f}")
both = {"added": curves["waves"][-1], "concatenated": curves["beside"][-1]}
assert 0.15 < curves["none"][-1] < 0.4 < 0.95 < min(curves["waves"][-1], curves["learned"][-1])
assert both["concatenated"] > 0.9

# %% [markdown]
# Without positions the model knows which tokens there are and guesses among them. Waves and learned
# positions both learn the task (the paper: "nearly identical results", row (E)). So does the model
# with the waves beside its words, at the same width: what adding saves is width, and what
# concatenating could do more this task does not need.
#
# Now to inputs twice as long: the paper chose the waves because they "may allow the model to
# extrapolate" to them. Learned positions end there with a clear error; waves continue:

# %%
try:
    learned.call(ops.zeros((1, 2 * LENGTH, 32)))
    raise AssertionError("a position that was never learned was read")
except ValueError as error:
    print(error)
ids, labels = draw(500, 2 * LENGTH)
hits = models["waves"].predict_on_batch(ids).argmax(axis=-1) == labels
by_place = hits[:, BACK:].mean(axis=0)
within, after = by_place[: LENGTH - BACK].mean(), by_place[LENGTH - BACK :].mean()
print(
    f"waves in new inputs of 24: accuracy {within:.2f} up to position {LENGTH}, {after:.2f} beyond"
)
assert within > 0.9 > after

# %% [markdown]
# Surprise: the waves continue, but the *model* does not, for it was never trained at these
# positions. No length limit is not the same as working at any length.

# %%
# extra code – learning curves, and accuracy beyond the trained length
figure, (left, right) = figures.panels(2)
looks = [("o-", figures.BLACK), ("s-", figures.BLUE), ("^--", figures.ORANGE)]
looks.append(("D:", figures.GREEN))
for (kind, curve), (style, color) in zip(curves.items(), looks, strict=True):
    left.plot(range(1, 8), curve, style, color=color, label=kind, markersize=4)
places = range(BACK + 1, 2 * LENGTH + 1)
right.plot(places, by_place, "s-", color=figures.BLUE, markersize=4, label="waves")
right.axhline(1 / TOKENS, color="0.5", linestyle=":", label="guessing")
left.set(xlabel="epoch", ylabel="token accuracy (training)", ylim=(0, 1.05))
left.legend()
right.axvspan(LENGTH + 0.5, 2 * LENGTH + 0.5, color="0.93")
right.text(LENGTH + 1, 0.02, "never read in training")
right.legend(loc="center left")
right.set(
    xlabel="position in an input of 24 tokens", ylabel="token accuracy (test)", ylim=(0, 1.05)
)
figures.show(figure, "05_order")

# %% [markdown]
# ## What we have so far
#
# One thing the translator with four heads cannot know: in 他 等 她 ("he awaits her"), who awaits
# whom? One line more, and its words have positions:


# %%
def translator(ids):
    x = kt.TokenEmbedding(weather.VOCABULARY_SIZE, 32)(ids)
    x = kt.PositionalEncoding()(x)
    x = kt.MultiHeadAttention(num_heads=4)(x, x, use_causal_mask=True)
    return keras.layers.Dense(weather.VOCABULARY_SIZE)(x)


so_far, model = weather.train(translator)
print(f"with positions: {min(so_far):.3f} to {max(so_far):.3f} nats per token")
asked, _ = weather.lines([("他 等 她".split(), []), ("她 等 他".split(), [])])
first = array(ops.softmax(model.predict(asked, verbose=0)[:, 3]))  # at <s>, the fourth word
for source, row in zip(("他 等 她", "她 等 他"), first, strict=True):
    he, she = row[weather.ID["He"]], row[weather.ID["She"]]
    print(f"{source} begins with He: {he:.2f}, with She: {she:.2f}")
assert sorted(so_far)[1] < 0.05  # two of three starts
assert first[0, weather.ID["He"]] > 0.9 < first[1, weather.ID["She"]]

# %%
# extra code – the picture that grows
figures.show(weather.picture(5, positions=so_far), "05_so_far")

# %% [markdown]
# Part of what was left was this: two persons in one sentence, and nothing to tell them apart.
# Without positions, each of the two is equally likely to be the one who waits.
#
# ## Exercises
#
# 1. The embedding of a word is multiplied by $\sqrt{d_{model}}$ before the position is added
#    (section 3.4; `kt.TokenEmbedding` does it). Compare the lengths of both vectors, with the
#    factor and without.
# 2. Leave the cosines out. Is a step still a linear map?
# 3. *Break it:* what is 10000 for? Replace it by 1 and look for the two most similar of 1,000
#    positions.
#
# Write the table yourself, as a function of length and d_model, and
# [have it marked](../docs/grading.md):
# `kt.check_layer(my_positions)`.
#
# ## Answers
#
# 1\. Each pair adds $\sin^2 + \cos^2 = 1$: a position has length $\sqrt{d_{model}/2}$. The numbers
# of an embedding start with standard deviation $1/\sqrt{d_{model}}$, so a word has length 1:
# without the factor the position would drown it.

# %%
words = array(kt.TokenEmbedding(1000, d_model)(np.arange(1000)[None]))
length = np.linalg.norm(words, axis=-1).mean()
print(f"position {np.linalg.norm(PE[9]):.1f}, word {length:.1f}, unscaled {length / 512**0.5:.2f}")
assert abs(length - 512**0.5) < 1

# %% [markdown]
# 2\. No: $\sin(a + b)$ needs $\cos a$. The best matrix for 16 sines misses, that for 16 pairs does
# not:

# %%
left_over = []
for table in (PE[:, 0:32:2], PE[:, :32]):
    best = np.linalg.lstsq(table[:-7], table[7:], rcond=None)[0]
    left_over.append(np.abs(table[:-7] @ best - table[7:]).max())
print(f"largest error: {left_over[0]:.2f} with sines alone, {left_over[1]:.0e} with both")
assert left_over[0] > 0.1 and left_over[1] < 1e-9

# %% [markdown]
# 3\. All waves are then the same one, of length $2\pi$, and $710 \approx 113 \cdot 2\pi$: it takes
# the slow waves to distinguish distant positions.

# %%
gaps = np.sqrt(d_model - d_model * np.cos(np.arange(1, 1000)))
print(f"with 1 for 10000: {gaps.min():.4f} at a distance of {gaps.argmin() + 1}")
assert gaps.min() < 0.01 and gaps.argmin() + 1 == 710

# %%
# extra code – the numbers of the gallery
figures.record(wavelength=wavelength, rises=rises)
figures.record(apart_60=apart[60], apart_66=apart[66])
figures.record(moving=moving["i a dimension"], should_move=moving["paper"])
figures.record(bare=bare[97], rotated_back=rotated[97], rotated_ahead=rotated[103])
figures.record(added=added / 1e6, concatenated=concatenated / 1e6)
figures.record(trained_above=0.9)  # as asserted above
figures.record(0.02, so_far_least=min(so_far), so_far_most=max(so_far))

# %% [markdown]
# ## In short
#
# - Without positions attention cannot distinguish 狗咬人 from 人咬狗; the waves give each position
#   a pattern of its own at any length.
# - The dot product of two patterns knows their distance, and behind $W^Q$ and $W^K$ the direction.
# - Adding costs nothing in width and, in training, nothing in accuracy; but neither of the two
#   kinds of position made a model work at lengths on which it was not trained.
#
# **Next**: the decoder must not see all positions. [Chapter 6](06_masks.py) hides some.
