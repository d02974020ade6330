# %% [markdown]
# # 17 · Since 2017
#
# **What have the models of today changed in the paper's block, and what is each change worth?**
# Let's build the block from plain Keras operations with five switches (rotary positions, RMSNorm, a
# gated feed-forward network, grouped keys, no biases), check it against the package, and train
# every switch beside the paper's parts on Shakespeare's sonnets. Run time: about 40 s.
#
# The block normalizes first (chapter 8), as nearly all models of today do: "the paper's parts" are
# its positions, norm, network, heads and biases in such a block.
#
# *In plain words:* the plan of 2017 still stands. What has changed are the parts: positions that
# turn instead of add, a norm with less to compute, a network that multiplies, fewer keys to keep.
# Most of it saves something; only one of them changes much within a minute of training.
#
# *Paper: sections 3.2, 3.3 and 3.5, which these replace. Géron: chapter 16, "An Avalanche of
# Transformer Models". Articles: none, they end with the paper.*

# %%
import keras
import numpy as np
from keras import layers, ops

import figures
import keras_transformer as kt

array = ops.convert_to_numpy
keras.utils.set_random_seed(17)
rng = np.random.default_rng(17)
D_MODEL, HEADS, D_FF, LENGTH = 48, 4, 192, 48
D_K = D_MODEL // HEADS

# %% [markdown]
# ## Positions that rotate
#
# Chapter 5 added waves to the embeddings, and found that a step is a rotation. RoFormer's *rotary*
# positions (Su et al. 2021) add nothing: they rotate each query and each key by its position, pair
# by pair. As complex numbers, in which a rotation is a product:


# %%
def rotated_by_hand(x, positions):
    """x, (length, d), with the pair 2i, 2i + 1 rotated by position / 10000^(2i / d)."""
    d = x.shape[-1]
    angles = np.outer(positions, 10000.0 ** (-np.arange(0, d, 2) / d))
    pairs = (x[:, 0::2] + 1j * x[:, 1::2]) * np.exp(1j * angles)
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


x = rng.normal(size=(12, 8)).astype("float32")
by_package = array(kt.apply_rotary_embedding(x))
print(f"by hand and package: {np.abs(rotated_by_hand(x, np.arange(12)) - by_package).max():.0e}")
np.testing.assert_allclose(rotated_by_hand(x, np.arange(12)), by_package, atol=1e-5)
np.testing.assert_allclose(np.linalg.norm(by_package, axis=-1), np.linalg.norm(x, axis=-1), 1e-5)

# %% [markdown]
# What does it do to a score? Let's put the same query and the same key at every place:

# %%
query, key = rng.normal(size=(2, 1, 8)) * np.ones((12, 1))
here, there = np.arange(12), 100 + np.arange(12)
scores = rotated_by_hand(query, here) @ rotated_by_hand(key, here).T
later = rotated_by_hand(query, there) @ rotated_by_hand(key, there).T
print("row 0:", scores[0, :4].round(2), "row 8:", scores[8, 8:].round(2), end=" ")
print("column 0:", scores[:4, 0].round(2))
np.testing.assert_allclose(scores[1:, 1:], scores[:-1, :-1])  # the distance decides,
np.testing.assert_allclose(scores, later)  # not the place,
assert np.abs(scores - scores.T).max() > 0.1  # and the side counts

# %% [markdown]
# A score sees only how far apart two positions are, and which comes first; no vector gets longer.
# The value is not rotated: position says where to look, not what is found.
#
# ## RMSNorm
#
# Layer normalization subtracts the mean and divides by the standard deviation. RMSNorm (Zhang and
# Sennrich 2019) leaves the mean where it is and divides by the root mean square, so it has a gain
# and no bias. (Chapter 8, exercise 2: for tokens of mean 0 the two are the same.)


# %%
class RMSNorm(layers.Layer):
    """gain * x / sqrt(mean(x^2) + 1e-6)"""

    def build(self, shape):
        self.gain = self.add_weight((shape[-1],), "ones", name="gain")

    def call(self, x):
        return self.gain * x * ops.rsqrt(ops.mean(x * x, axis=-1, keepdims=True) + 1e-6)


x = rng.normal(1.0, 2.0, size=(2, 5, D_MODEL)).astype("float32")
layer_norm, rms_norm = layers.LayerNormalization(epsilon=1e-6), RMSNorm()
of_keras = array(layers.RMSNormalization(epsilon=1e-6)(x))
np.testing.assert_allclose(array(rms_norm(x)), of_keras, atol=1e-5)
moved = [np.abs(array(norm(x + 3.0)) - array(norm(x))).max() for norm in (layer_norm, rms_norm)]
print(f"3 added to every number: layer norm moves by {moved[0]:.0e}, RMSNorm by {moved[1]:.1f}")
assert moved[0] < 1e-4 < 0.1 < moved[1]
assert rms_norm.count_params() * 2 == layer_norm.count_params()

# %% [markdown]
# ## A network that multiplies
#
# The paper's network, without its biases, is $\max(0, xW_1)W_2$. The gated one, SwiGLU (Shazeer
# 2020), has two first layers, and multiplies their outputs number by number ($\odot$):
# $(\mathrm{silu}(xW_1) \odot xV)\,W_2$ with $\mathrm{silu}(z) = z\,\sigma(z)$, where $\sigma$ is
# the sigmoid. These are three matrices instead of two; to have no more weights, they are two thirds
# as wide:


# %%
class GatedFeedForward(layers.Layer):
    """(silu(x W_1) * x V) W_2, with as many weights as a network of width d_ff has."""

    def __init__(self, d_ff, biases):
        super().__init__()
        width = 2 * d_ff // 3
        self.gate, self.up = (layers.Dense(width, use_bias=biases) for _ in range(2))
        self.down = layers.Dense(D_MODEL, use_bias=biases)

    def call(self, x):
        return self.down(ops.silu(self.gate(x)) * self.up(x))


gated, plain = GatedFeedForward(D_FF, biases=False), kt.FeedForward(D_FF)
gated(x), plain(x)
weights = sum(w.size for w in plain.get_weights() if w.ndim == 2)
print(f"weights: gated {gated.count_params():,}, ReLU {weights:,} (and its biases)")
assert gated.count_params() == weights

# %% [markdown]
# ## Grouped keys and values
#
# While a model writes, the keys and values of all it has read must be kept (chapter 11). With
# multi-query attention (Shazeer 2019) all heads of queries share one head of keys and values; with
# grouped-query attention (Ainslie et al. 2023) each group of them does. Here is the attention, with
# three of the switches:


# %%
class Attention(layers.Layer):
    """Multi-head attention whose heads of keys and values may be fewer than those of queries."""

    def __init__(self, rotary, kv_heads, biases):
        super().__init__()
        self.rotary, self.kv_heads = rotary, kv_heads
        self.q = layers.Dense(D_MODEL, use_bias=biases)
        self.k = layers.Dense(kv_heads * D_K, use_bias=biases)
        self.v = layers.Dense(kv_heads * D_K, use_bias=biases)
        self.o = layers.Dense(D_MODEL, use_bias=biases)

    def heads(self, x, number):
        split = ops.reshape(x, (-1, x.shape[1], number, D_K))
        return ops.transpose(split, (0, 2, 1, 3))  # (batch, head, token, d_k)

    def call(self, x, mask):
        q = self.heads(self.q(x), HEADS)
        k, v = (self.heads(part(x), self.kv_heads) for part in (self.k, self.v))
        if self.rotary:
            q, k = (kt.apply_rotary_embedding(part) for part in (q, k))
        k, v = (ops.repeat(part, HEADS // self.kv_heads, axis=1) for part in (k, v))
        output, _ = kt.scaled_dot_product_attention(q, k, v, attention_mask=mask)
        output = ops.transpose(output, (0, 2, 1, 3))
        return self.o(ops.reshape(output, (-1, x.shape[1], D_MODEL)))


# %% [markdown]
# And the block around it, with all five; a mask comes from outside:


# %%
class Block(layers.Layer):
    """A pre-norm block: the paper's parts, each of which can be exchanged."""

    def __init__(self, rms=False, gated=False, rotary=False, kv_heads=HEADS, biases=True):
        super().__init__()
        self.norms = [RMSNorm() if rms else layers.LayerNormalization(epsilon=1e-6) for _ in "ab"]
        self.attention = Attention(rotary, kv_heads, biases)
        if gated:
            self.network = [GatedFeedForward(D_FF, biases)]
        else:
            self.network = [layers.Dense(D_FF, "relu", use_bias=biases)]
            self.network += [layers.Dense(D_MODEL, use_bias=biases)]

    def call(self, x, mask):
        x = x + self.attention(self.norms[0](x), mask)
        h = self.norms[1](x)
        for layer in self.network:
            h = layer(h)
        return x + h


# %% [markdown]
# With all switches off it must be the package's block. And a block with one head of keys and values
# must equal a full one whose heads of keys and values are copies of that head:

# %%
mask = kt.look_ahead_mask(5)
ours, theirs = Block(), kt.EncoderBlock(HEADS, D_FF, norm_first=True)
ours(x, mask), theirs(x, attention_mask=mask)
pairs = {"query": "q", "key": "k", "value": "v", "output_projection": "o"}
for name, letter in pairs.items():
    of_ours = getattr(ours.attention, letter).get_weights()
    getattr(theirs.self_attention, name).set_weights(of_ours)
theirs.feed_forward.set_weights([w for layer in ours.network for w in layer.get_weights()])
error = np.abs(array(ours(x, mask)) - array(theirs(x, attention_mask=mask))).max()
print(f"our block and kt.EncoderBlock differ by {error:.0e}")
assert error < 1e-5

grouped, full = Block(kv_heads=1), Block()
grouped(x, mask), full(x, mask)
for letter in "qkvo":
    kernel, bias = getattr(grouped.attention, letter).get_weights()
    times = HEADS if letter in "kv" else 1
    getattr(full.attention, letter).set_weights([np.tile(kernel, times), np.tile(bias, times)])
for one, other in zip(full.network, grouped.network, strict=True):
    one.set_weights(other.get_weights())
error = np.abs(array(grouped(x, mask)) - array(full(x, mask))).max()
kept = [2 * block.attention.kv_heads * D_K for block in (full, grouped)]
print(f"grouped and repeated differ by {error:.0e}; numbers kept per token: {kept}")
assert error < 1e-5 and kept[0] == HEADS * kept[1]

# %% [markdown]
# ## No biases
#
# Chapter 3, exercise 1: a bias of the keys does nothing at all (unless positions are rotary: then
# it is another vector at each position). Most models of today also leave out those of the other
# matrices. They are few:

# %%
without = Block(biases=False)
without(x, mask)
of_biases = ours.count_params() - without.count_params()
print(f"{of_biases:,} of {ours.count_params():,} parameters are biases: "
      f"{of_biases / ours.count_params():.1%}")  # fmt: skip
assert of_biases == 4 * D_MODEL + D_FF + D_MODEL

# %% [markdown]
# ## Side by side
#
# Now let's train them: language models of one block on characters of thirty sonnets, for the same
# 300 steps. As in chapter 2, they stand in one model and share nothing but the data. One contestant
# has the paper's parts once more, from another start: a difference that is no larger than between
# these two means nothing. (Two starts are a poor ruler. With `FULL=1` in its environment the
# chapter trains all of it three times, from other weights on other windows of the text.)

# %%
sonnets = figures.sonnets()
kept_aside = sonnets[3::4]
known = [sonnet for n, sonnet in enumerate(sonnets) if n % 4 != 3]
tokenizer = kt.train_tokenizer(sonnets, model_type="char")
VOCABULARY = tokenizer.vocabulary_size()
text, new_text = (
    np.concatenate(tokenizer.encode(["\n\n".join(part)])).astype("int32")
    for part in (known, kept_aside)
)


def windows(text, length, starts):
    return np.stack([text[start : start + length + 1] for start in starts])


steps, batch = 300, 12
print(f"{len(text):,} characters to learn from, {len(new_text):,} of other sonnets for the test")

# %%
variants = {
    "paper": {},
    "paper, again": {},
    "rotary": dict(rotary=True),
    "RMSNorm": dict(rms=True),
    "gated": dict(gated=True),
    "one key and value head": dict(kv_heads=1),
    "no biases": dict(biases=False),
    "all five": dict(rotary=True, rms=True, gated=True, kv_heads=1, biases=False),
}


def parts(**options):
    """The embedding, positions, block and last norm of a language model."""
    positions = layers.Identity() if options.get("rotary") else kt.PositionalEncoding()
    norm = RMSNorm() if options.get("rms") else layers.LayerNormalization(epsilon=1e-6)
    return kt.TokenEmbedding(VOCABULARY, D_MODEL), positions, Block(**options), norm


def reader(networks, length):
    """A model from ids of this length to all logits, (batch, network, length, vocabulary)."""
    ids, outputs = keras.Input((length,), dtype="int32"), []
    for embed, positions, block, norm in networks:
        h = block(positions(embed(ids)), kt.look_ahead_mask(length))
        outputs.append(embed(norm(h), reverse=True))
    return keras.Model(ids, ops.stack(outputs, axis=1))


# %%
def trained(networks):
    """A model of these networks, after 300 steps on windows drawn for it."""
    model = reader(networks, LENGTH)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps - 50, warmup_target=0.01, warmup_steps=50
    )
    model.compile(kt.paper_optimizer(schedule), kt.TokenCrossEntropy())
    model.optimizer.build(model.trainable_variables)
    drawn = windows(text, LENGTH, rng.integers(len(text) - LENGTH, size=steps * batch))
    targets = np.repeat(drawn[:, None, 1:], len(networks), axis=1)
    model.fit(drawn[:, :-1], targets, batch_size=batch, shuffle=False, verbose=0)
    return model


# %% [markdown]
# How many nats does each pay for a character of sonnets that it has not seen?


# %%
def nats_at(model, rows):
    """Mean nats of each network at each place, (networks, places)."""
    log_p = array(ops.log_softmax(model(rows[:, :-1])))
    of_next = np.take_along_axis(log_p, rows[:, None, 1:, None], axis=-1)[..., 0]
    return -of_next.mean(axis=0)


test = windows(new_text, LENGTH, range(0, len(new_text) - LENGTH, LENGTH))
of_starts = []
for _ in range(figures.STARTS):
    networks = [parts(**options) for options in variants.values()]
    of_starts.append(nats_at(trained(networks), test).mean(axis=1))
nats = dict(zip(variants, np.transpose(of_starts), strict=True))  # each of them of each start

# %%
sizes, kept_numbers = {}, {}
for name, (_, _, block, norm) in zip(variants, networks, strict=True):
    sizes[name] = block.count_params() + norm.count_params()
    kept_numbers[name] = 2 * block.attention.kv_heads * D_K
    print(f"{name:22}", *nats[name].round(3), "nats per character;", end=" ")
    print(f"{sizes[name]:,} parameters in the block; {kept_numbers[name]} numbers kept per token")
of_paper = (nats["paper"] + nats["paper, again"]) / 2
spread = np.abs(nats["paper"] - nats["paper, again"])
saved = {name: of_paper - nats[name] for name in list(variants)[2:]}
print("two starts of the paper's parts differ by", *spread.round(3))
assert min(*saved["rotary"], *saved["all five"]) > 0.05
for name in ("RMSNorm", "gated", "one key and value head", "no biases"):
    assert saved[name].mean() < saved["rotary"].mean()

# %%
# extra code – what each change is worth
figure, panel = figures.panels(width=6.4, height=2.9)
means = [of_starts.mean() for of_starts in saved.values()]
lowest, highest = (np.array([f(of_starts) for of_starts in saved.values()]) for f in (min, max))
ranges = [means - lowest, highest - means]
panel.barh(list(saved), means, 0.65, color=figures.BLUE, alpha=0.75, xerr=ranges)
panel.axvspan(-spread.max(), spread.max(), color="0.85", zorder=0)
panel.axvline(0, color=figures.BLACK, linewidth=0.8)
for i, name in enumerate(saved):
    text_of = f"{sizes[name] / sizes['paper'] - 1:+.0%} parameters"
    text_of += f", {kept_numbers[name] / kept_numbers['paper']:.0%} of the cache"
    panel.text(max(highest[i], 0) + 0.006, i, text_of, va="center", fontsize=8)
panel.text(
    0, -0.75, "two starts of the paper's parts differ", ha="center", fontsize=8, color="0.35"
)
panel.set(xlabel="nats per character better than the paper's parts", ylim=(5.6, -1.1))
panel.set(xlim=(min(-0.1, lowest.min(), -spread.max()) - 0.02, highest.max() + 0.14))
figures.show(figure, "17_since_2017")

# %% [markdown]
# Rotary positions are worth most: none of the other four changes gains as much, and all five
# together gain about as much. A likely reason: distance is what spelling needs, and the paper's
# waves leave it to $W^Q$ and $W^K$ to find distances in sums of words and places. The gated network
# is better in most starts, by about as much as two starts differ. RMSNorm and no biases change no
# more than another start does; one head of keys may cost a little, and leaves a quarter of the
# cache. (In a minute of training, on this text. What pays in a large model has to be measured in a
# large model.)
#
# ## Farther than in training
#
# Rotary scores depend on distances alone, and so they ought to be at home at any place. Are they?
# Let's read twice as far as in training, with the paper's parts and with rotary positions:

# %%
two = [networks[0], networks[2]]
double = windows(new_text, 2 * LENGTH, range(0, len(new_text) - 2 * LENGTH, LENGTH))
far = nats_at(reader(two, 2 * LENGTH), double)
for name, of_network in zip(("paper", "rotary"), far, strict=True):
    within, beyond = of_network[LENGTH // 2 : LENGTH].mean(), of_network[LENGTH:].mean()
    print(f"{name:7} {within:.3f} nats at places {LENGTH // 2} to {LENGTH - 1},", end=" ")
    print(f"{beyond:.3f} beyond")
    assert beyond > within + 0.02

# %% [markdown]
# No: both are worse where they have never been, also the rotary model. It was never asked about a
# distance of more than 47. As in chapter 5, no length limit is not the same as working at any
# length; the models of today that read long texts have been trained on long texts.
#
# ## Exercises
#
# 1. Positions 0 to 47 and 100 to 147: are the scores of a rotary block the same? Those of the
#    paper's?
# 2. Count the cache of a model of 32 blocks with 32 heads of width 128 that has read 8,192 tokens,
#    in 16-bit numbers; and with 8 heads of keys and values.
# 3. In a gated network, what does the output do if the input is doubled? And in the paper's?
#
# ## Answers
#
# 1\. With rotary positions they are, since only distances count. (`kt.apply_rotary_embedding` takes
# the positions.) With waves added they change: $W^Q$ and $W^K$ see the word and the wave together.
# (The dot products of the bare waves would not: chapter 5.)

# %%
q, k = rng.normal(size=(2, 1, HEADS, LENGTH, D_K)).astype("float32")
at = np.arange(LENGTH)
x, waves = rng.normal(size=(LENGTH, D_MODEL)), array(kt.sinusoids(148, D_MODEL))
W_Q, W_K = rng.normal(size=(2, D_MODEL, D_MODEL)) / D_MODEL**0.5
scores = {"rotary": [], "waves": []}
for start in (0, 100):
    rotated = [array(kt.apply_rotary_embedding(part, start + at)) for part in (q, k)]
    scores["rotary"].append(rotated[0] @ rotated[1].swapaxes(-1, -2) / D_K**0.5)
    read = x + waves[start + at]
    scores["waves"].append((read @ W_Q) @ (read @ W_K).T / D_MODEL**0.5)
moved = {name: np.abs(np.subtract(*two)).max() for name, two in scores.items()}
print("the scores move by", *(f"{most:.0e} ({name})" for name, most in moved.items()))
assert moved["rotary"] < 1e-3 < 1 < moved["waves"]

# %% [markdown]
# 2\. Keys and values, blocks, heads, widths, tokens, two bytes each:

# %%
sizes_of_cache = [2 * 32 * heads * 128 * 8192 * 2 / 2**30 for heads in (32, 8)]
print("{:.0f} GiB, and {:.0f} GiB".format(*sizes_of_cache))
assert sizes_of_cache == [4.0, 1.0]

# %% [markdown]
# 3\. Far from zero silu(z) is z or 0, as ReLU is: the paper's network then doubles, and the gated
# one, a product of two such factors, quadruples.

# %%
x = 100 * rng.normal(size=(1, 1, D_MODEL)).astype("float32")
bare = GatedFeedForward(D_FF, biases=False)
for name, layer, factor in (("gated", bare, 4), ("ReLU", kt.FeedForward(D_FF), 2)):
    ratio = np.linalg.norm(array(layer(2 * x))) / np.linalg.norm(array(layer(x)))
    print(f"{name}: {ratio:.2f} times as large")
    assert abs(ratio - factor) < 0.05

# %%
# extra code – the numbers of the gallery
figures.record(cache=kept_numbers["all five"] / kept_numbers["paper"])
if figures.FULL:  # of three starts
    others = np.concatenate([saved[name] for name in saved if name not in ("rotary", "all five")])
    figures.record(0.03, rotary_least=min(saved["rotary"]), rotary_most=max(saved["rotary"]))
    figures.record(0.03, others_least=min(others), others_most=max(others), spread=max(spread))

# %% [markdown]
# ## In short
#
# - Rotary positions turn queries and keys, so that of two positions a score knows only how far
#   apart they are, and on which side; in this small model they pay most.
# - RMSNorm, grouped keys and fewer biases change little and save parameters and memory; a gated
#   network may be a little better for the same weights.
# - Compare a difference with the difference of two starts, or it may mean nothing.
#
# **Next**: [chapter 18](18_sonnets.py) trains on the sonnets until the model knows them too well.
