# %% [markdown]
# # 9 · The Transformer
#
# **How do the parts of the paper's Figure 1 become one model, and where do its 65 million
# parameters sit?** Let's open one block, stack N of them, wire the whole of Figure 1 with
# `keras.Input` and `keras.Model`, and give it the weights of the package's `Transformer`: the
# logits must agree. Then we count every parameter, and hold the paper's Table 3 to account. Run
# time: about 15 s.
#
# *In plain words:* all parts are known by now. The encoder is a stack of blocks that read, the
# decoder is a stack of blocks that read what is written and what the encoder has left. One matrix
# of words stands at both ends, and most of the rest is multiplication.
#
# *Paper: sections 3.1 and 3.4, Figure 1, Table 3. Géron: chapter 16, "Attention Is All You Need:
# The Original Transformer Architecture". Article: 002.*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather

keras.utils.set_random_seed(9)
rng = np.random.default_rng(9)


def distance(a, b):
    """The largest difference of two tensors."""
    return np.abs(ops.convert_to_numpy(a) - ops.convert_to_numpy(b)).max()


def draw_weights(layer):
    """Fresh biases are 0 and fresh gains 1, which hides mistakes: let's move every weight."""
    for weight in layer.weights:
        weight.assign(weight + 0.1 * rng.normal(size=weight.shape))


# %% [markdown]
# ## One encoder block, opened
#
# A block of the encoder is two sublayers, self-attention and a feed-forward network, each inside
# $\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$. With the layers of the last chapters that is two
# lines:

# %%
D_MODEL, D_FF, HEADS = 64, 128, 4
x = ops.convert_to_tensor(rng.normal(size=(2, 7, D_MODEL)), "float32")
mask = kt.padding_mask(np.array([[5] * 7, [5] * 4 + [0] * 3]))  # the second sentence has four words

attention, feed_forward = kt.MultiHeadAttention(HEADS), kt.FeedForward(D_FF)
add_norm_1, add_norm_2 = kt.AddNorm(), kt.AddNorm()


def opened_block(x):
    x = add_norm_1(x, sublayer=lambda x: attention(x, x, attention_mask=mask))
    return add_norm_2(x, sublayer=feed_forward)


block = kt.EncoderBlock(HEADS, D_FF)
other_weights = distance(opened_block(x), block(x, attention_mask=mask))
draw_weights(block)
attention.set_weights(block.self_attention.get_weights())
add_norm_1.set_weights(block.self_attention_add_norm.get_weights())
feed_forward.set_weights(block.feed_forward.get_weights())
add_norm_2.set_weights(block.feed_forward_add_norm.get_weights())
same_weights = distance(opened_block(x), block(x, attention_mask=mask))
print(f"with other weights they differ by {other_weights:.1f}, with the same by {same_weights:.0e}")
assert same_weights < 1e-5 < 0.1 < other_weights

# %% [markdown]
# ## What a decoder block adds
#
# One often reads of the decoder that "its only difference from the encoder is the additional masked
# multi-head attention" (article 002: 它和 encoder 的唯一不同就是多了 Masked Multi-Head Attention
# 部分). Let's count, sublayer by sublayer:

# %%
decoder_block = kt.DecoderBlock(HEADS, D_FF)
memory = ops.convert_to_tensor(rng.normal(size=(2, 5, D_MODEL)), "float32")
decoder_block(x, memory)
for sublayer in ("self_attention", "cross_attention", "feed_forward"):
    for name in (sublayer, f"{sublayer}_add_norm"):
        both = [getattr(each, name, None) for each in (block, decoder_block)]
        counts = ["none" if part is None else f"{part.count_params():,}" for part in both]
        print(f"{name:25} encoder block {counts[0]:>7}, decoder block {counts[1]:>7}")
more = decoder_block.count_params() - block.count_params()
print(f"a decoder block has {more:,} more parameters")
assert more == 4 * (D_MODEL**2 + D_MODEL) + 2 * D_MODEL

# %% [markdown]
# The extra part is the *cross*-attention with its LayerNorm (the article comes to it three
# sentences later). The masked attention is the encoder's self-attention, for a mask has no weights.
# Let's prove it: silence the cross-attention with a zero output projection, and what remains of a
# decoder block is an encoder block under a look-ahead mask. (Its fresh LayerNorm also remains, but
# a second one does not change what has just been normalized.)

# %%
plain, silenced = kt.EncoderBlock(HEADS, D_FF), kt.DecoderBlock(HEADS, D_FF)
plain(x), silenced(x, memory)  # a layer makes its weights when it is first called
for name in ("self_attention", "feed_forward"):
    getattr(plain, name).set_weights(getattr(silenced, name).get_weights())
before = distance(silenced(x, memory), plain(x, attention_mask=kt.look_ahead_mask(7)))
for weight in silenced.cross_attention.output_projection.weights:
    weight.assign(0 * weight)
after = distance(silenced(x, memory), plain(x, attention_mask=kt.look_ahead_mask(7)))
unmasked = distance(silenced(x, memory), plain(x))
print(f"difference {before:.1f}; silenced {after:.0e}; and without the mask {unmasked:.1f}")
assert after < 1e-4 < 0.1 < min(before, unmasked)

# %% [markdown]
# ## The stack of N
#
# "Nx" (方框中的部分可以重复 N 次, "the part in the box can be repeated N times", 002) repeats the
# *shape* of a block. Each of the N has weights of its own:

# %%
encoder = kt.Encoder(3, num_heads=HEADS, d_ff=D_FF)
encoder(x, attention_mask=mask)
draw_weights(encoder)
in_a_row = repeated = x
for each in encoder.blocks:
    in_a_row = each(in_a_row, attention_mask=mask)
    repeated = encoder.blocks[0](repeated, attention_mask=mask)
stacked = encoder(x, attention_mask=mask)
in_a_row, repeated = distance(stacked, in_a_row), distance(stacked, repeated)
print(f"the stack differs from its blocks in a row by {in_a_row:.0e}", end=", ")
print(f"from its first block, three times, by {repeated:.1f}")
assert in_a_row < 1e-5 < 0.1 < repeated and encoder.count_params() == 3 * block.count_params()

# %% [markdown]
# ## Figure 1, wired by hand
#
# Embed the words and add the positions, on either side, with one embedding for both; run the
# encoder's blocks; give what comes out, the *memory*, to **every** block of the decoder; multiply
# by the embedding matrix once more, transposed, to get a logit for each word of the vocabulary.
# (Dropout is chapter 10's.) The whole model:

# %%
VOCABULARY, N = 100, 2
source_ids = keras.Input((None,), dtype="int32", name="source_ids")
target_ids = keras.Input((None,), dtype="int32", name="target_ids")
embed = kt.TokenEmbedding(VOCABULARY, D_MODEL)
encoder_blocks = [kt.EncoderBlock(HEADS, D_FF, dropout=0.1) for _ in range(N)]
decoder_blocks = [kt.DecoderBlock(HEADS, D_FF, dropout=0.1) for _ in range(N)]

source_mask = kt.padding_mask(source_ids)
memory = keras.layers.Dropout(0.1)(kt.PositionalEncoding()(embed(source_ids)))
for each in encoder_blocks:
    memory = each(memory, attention_mask=source_mask)

y = keras.layers.Dropout(0.1)(kt.PositionalEncoding()(embed(target_ids)))
for each in decoder_blocks:
    y = each(y, memory, cross_attention_mask=source_mask)
logits = embed(y, reverse=True)

by_hand = keras.Model({"source_ids": source_ids, "target_ids": target_ids}, logits)

# %% [markdown]
# The package's `Transformer` is the same wiring, with two stacks in place of the loops. Let's put
# its weights, part by part, into the model made by hand:

# %%
sizes = dict(num_layers=N, d_model=D_MODEL, num_heads=HEADS, d_ff=D_FF)
transformer = kt.Transformer(VOCABULARY, **sizes)
draw_weights(transformer)
ids = {
    "source_ids": np.array([[7, 23, 5, 42, 3], [9, 8, 3, 0, 0]]),
    "target_ids": np.array([[2, 11, 64, 12, 99, 4], [2, 31, 31, 0, 0, 0]]),
}
before = distance(by_hand(ids), transformer(ids))
mine = [embed, *encoder_blocks, *decoder_blocks]
theirs = [transformer.target_embedding, *transformer.encoder.blocks, *transformer.decoder.blocks]
for my_part, their_part in zip(mine, theirs, strict=True):
    my_part.set_weights(their_part.get_weights())
after, shape = distance(by_hand(ids), transformer(ids)), tuple(transformer(ids).shape)
print(f"logits {shape} differ by {before:.1f} before, by {after:.0e} after")
assert after < 1e-5 < 0.1 < before and shape == (2, 6, VOCABULARY)
assert by_hand.count_params() == transformer.count_params()

# %% [markdown]
# ## Parameter by parameter
#
# Each part has a closed form. With $d$ for $d_{model}$ and $V$ words (not the values $V$): the
# embedding has $Vd$; an attention $4(d^2 + d)$, for queries, keys, values and output (heads and
# sinusoids are free); a feed-forward network $2dd_{ff} + d_{ff} + d$; a LayerNorm $2d$, a gain and
# a bias for each dimension.
#
# *Predict before you run:* our model has a width of 64 and a vocabulary of 100. Where are most of
# its parameters: in the embedding, the attentions or the feed-forward networks?


# %%
def of_attention(d_model, d_keys, biases):
    """Queries and keys are h d_k = d_keys wide, values and output d_model."""
    columns = 2 * d_keys + 2 * d_model
    return d_model * columns + (columns if biases else 0)


def parameters(vocabulary, sizes, biases=True):
    """A dict from each part of the model to its number of parameters."""
    d, d_ff, n = sizes["d_model"], sizes["d_ff"], sizes["num_layers"]
    attention = of_attention(d, sizes.get("d_keys", d), biases)
    feed_forward, add_norm = 2 * d * d_ff + d_ff + d, 2 * d
    return {
        "embedding": vocabulary * d,
        "encoder self_attention": n * attention,
        "encoder feed_forward": n * feed_forward,
        "encoder add_norm": n * 2 * add_norm,
        "decoder self_attention": n * attention,
        "decoder cross_attention": n * attention,
        "decoder feed_forward": n * feed_forward,
        "decoder add_norm": n * 3 * add_norm,
    }


def count_parameters(vocabulary, sizes):
    return sum(parameters(vocabulary, sizes).values())


# %% [markdown]
# A Keras weight has a path, so each sum can be compared with the model:

# %%
counted = parameters(VOCABULARY, sizes)
found = dict.fromkeys(counted, 0)
for weight in transformer.weights:
    stack, *names = weight.path.split("/")  # encoder/block_1/self_attention/query/kernel
    kind = names[1] if len(names) > 2 else ""  # the embedding stands outside the blocks
    kind = "add_norm" if "add_norm" in weight.path else kind
    found[f"{stack} {kind}".strip()] += int(np.prod(weight.shape))
for part, number in found.items():
    print(f"{part:24}{number:8,} {number / sum(found.values()):6.1%}")
print(f"{'sum':24}{sum(found.values()):8,}")
assert found == counted
assert sum(found.values()) == transformer.count_params() == count_parameters(VOCABULARY, sizes)

# %% [markdown]
# ## The paper's 65 and 213 million
#
# These are Table 3's numbers for its base and its big model (in `kt.PRESETS`, each row a
# `kt.TransformerConfig`); section 5.1 has a vocabulary of "about 37000" tokens, each with an id. We
# get:

# %%
base, big = vars(kt.PRESETS["base"]), vars(kt.PRESETS["big"])
for preset, paper in ((base, 65), (big, 213)):
    number = count_parameters(37_000, preset)
    print(f"d_model {preset['d_model']:4}: {number:11,}, that is {number / 1e6:.1f}", end=" ")
    print(f"million; the paper: {paper} million")
    assert 1e6 < abs(number - paper * 1e6) < 2e6
built = kt.Transformer(37_000, config=kt.PRESETS["base"])
assert built.count_params() == count_parameters(37_000, base)

# %% [markdown]
# One is too small and the other too large. (What follows is for readers who like detective stories;
# the others find the answer to "where" below the next figure.) Let's reverse the question. The
# number of ids is the only size that Table 3 does not state: how many make each row's number, up to
# rounding?

# %%
table_3 = [  # what a row has in place of base's sizes, and its millions of parameters
    *[({}, 65), ({"d_keys": 8 * 16}, 58), ({"d_keys": 8 * 32}, 60)],  # base and row (B)
    *[({"num_layers": 2}, 36), ({"num_layers": 4}, 50), ({"num_layers": 8}, 80)],  # row (C)
    *[({"d_model": 256}, 28), ({"d_model": 1024}, 168), ({"d_ff": 1024}, 53), ({"d_ff": 4096}, 90)],
    (big, 213),
]


def range_of_ids(row, millions, biases=True):
    row = base | row
    rest = sum(parameters(0, row, biases=biases).values())
    return [((millions + half) * 1e6 - rest) / row["d_model"] for half in (-0.5, 0.5)]


for biases in (False, True):
    lows, highs = zip(*(range_of_ids(*row, biases) for row in table_3), strict=True)
    low, high = max(lows[:-1]), min(highs[:-1])
    print(f"{'with' if biases else 'without'} biases in the attention: ten rows agree on", end=" ")
    print(f"{low:,.0f} to {high:,.0f} ids, big needs {lows[-1]:,.0f} to {highs[-1]:,.0f}")
    assert highs[-1] < 37_000 < low < high
print(f"with biases: about {round((low + high) / 2, -3):,.0f} ids for the ten rows")

# %% [markdown]
# The ten rows of base agree on one vocabulary, of 41,000 ids, and big needs fewer than 37,000. No
# number of ids gives 65 *and* 213 million, with biases or without; 63.1 and 214.2 are what 37,000
# give. (The paper does not say where the difference comes from.)

# %%
# extra code – how many ids each row of Table 3 needs
figure, panel = figures.panels(width=6.4, height=3.4)
labels = []
for height, (row, millions) in enumerate(reversed(table_3)):
    name = "big" if row is big else ", ".join(f"{k} = {v}" for k, v in row.items()) or "base"
    labels.append(f"{name.replace('d_keys', 'h d_k')}: {millions} million")
    color = figures.ORANGE if row is big else figures.BLUE
    ids_needed = range_of_ids(row, millions)
    panel.plot(ids_needed, [height, height], color=color, linewidth=6, solid_capstyle="butt")
panel.axvspan(low, high, color="0.8", zorder=0)
panel.axvline(37_000, color=figures.BLACK, linestyle="--", linewidth=1)
panel.text(37_080, 10.6, "section 5.1")
panel.text(high + 80, 10.6, "all but big")
panel.set_yticks(range(len(labels)), labels)
panel.set(xlabel="ids in the vocabulary that make the row's parameters", ylim=(-0.6, 11.4))
panel.xaxis.set_major_formatter("{x:,.0f}")
figures.show(figure, "09_table_3")

# %% [markdown]
# Where do they sit? In a small model with an alphabet for a vocabulary, in the attentions and the
# feed-forward networks. With a vocabulary of thousands the embedding takes its part, and as the
# width grows it shrinks again:

# %%
# extra code – shares of the parameters, as bars
kinds = ["embedding", "self_attention", "cross_attention", "feed_forward"]
vocabularies = {"tiny": 60, "mini": 8_000, "base": 37_000, "big": 37_000}
shares, labels = [], []
for name, vocabulary in vocabularies.items():
    parts = parameters(vocabulary, vars(kt.PRESETS[name]))
    total = sum(parts.values())
    of_kinds = [sum(n for part, n in parts.items() if part.endswith(kind)) for kind in kinds]
    shares.append(np.divide(of_kinds, total))
    labels.append(f"{name}: {total / 1e6:.1f} M\n{vocabulary:,} ids")
figure, panel = figures.panels(width=6.4, height=2.9)
colors = [figures.ORANGE, figures.BLUE, figures.PURPLE, figures.GREEN]
left = np.zeros(len(labels))
for kind, share, color, hatch in zip(
    kinds, np.transpose(shares), colors, ["//", "", "..", ""], strict=True
):
    style = dict(color=color, alpha=0.6, hatch=hatch, edgecolor="white", label=kind)
    bars = panel.barh(labels, 100 * share, left=left, **style)
    panel.bar_label(bars, fmt="%.0f", label_type="center")
    left += 100 * share
panel.invert_yaxis()
panel.set(xlabel="share of the parameters (%)", xlim=(0, 100))
figure.legend(*panel.get_legend_handles_labels(), loc="outside upper center", ncols=4)
figures.show(figure, "09_parameters")

# %%
embedding = dict(zip(vocabularies, np.array(shares)[:, 0], strict=True))
print("the embedding's share:", ", ".join(f"{name} {s:.0%}" for name, s in embedding.items()))
print(f"LayerNorms have at most {1 - min(map(sum, shares)):.1%} everywhere")
assert embedding["tiny"] < 0.05 < embedding["big"] < 0.7 * embedding["base"]
assert min(map(sum, shares)) > 0.98

# %% [markdown]
# ## One matrix, three jobs
#
# Section 3.4: source embedding, target embedding and output projection share one matrix $E$ (they
# are *tied*). A word $w$ goes in as $\sqrt{d}\,E_w$; for an output $h$ of the decoder (here not the
# number of heads) the logits are $hE^T$. That saves two matrices of three:

# %%
E = ops.convert_to_numpy(transformer.target_embedding.embeddings)
h = rng.normal(size=(1, 3, D_MODEL)).astype("float32")
np.testing.assert_allclose(ops.convert_to_numpy(embed(h, reverse=True)), h @ E.T, atol=1e-4)
words = ids["source_ids"]
np.testing.assert_allclose(ops.convert_to_numpy(embed(words)), 8 * E[words], atol=1e-5)  # 8 = √64
saved = 2 * parameters(37_000, base)["embedding"]
tied = count_parameters(37_000, base)
print(f"base: {saved:,} saved of {tied + saved:,}, {saved / (tied + saved):.0%}")
assert round(saved / (tied + saved), 2) == 0.38 and round((tied + saved) / 1e6) == 101
two_sides = kt.Transformer(VOCABULARY, VOCABULARY, **sizes)  # a vocabulary for each language
assert two_sides.count_params() - transformer.count_params() == VOCABULARY * D_MODEL

# %% [markdown]
# Why $\sqrt{d}$? As an output projection $E$ has to be small, of standard deviation $d^{-1/2}$, for
# logits of the order of 1. Next to the positions, such an embedding would hardly be heard: chapter
# 5 measures it in its first exercise, and chapter 10 trains without the factor.

# %% [markdown]
# ## What `norm_first` changes
#
# Pre-norm, $x + \mathrm{Sublayer}(\mathrm{LayerNorm}(x))$, leaves the residual path without any
# normalization, so each stack needs a last LayerNorm. Let's send 250 words through two fresh
# models, and follow the path in the encoder, and what comes out:

# %%
words = rng.integers(4, 1_000, (10, 25))
counts, echoes, paths = [], [], []
for norm_first in (False, True):
    wider = dict(num_layers=3, d_model=128, num_heads=HEADS, d_ff=256)
    config = kt.TransformerConfig(**wider, norm_first=norm_first)
    model = kt.Transformer(1_000, config=config)
    path = [model.source_positions(model.source_embedding(words))]
    for each in model.encoder.blocks:
        path.append(each(path[-1]))
    paths.append([ops.convert_to_numpy(each).std() for each in path])
    # the source of another sentence: what comes back comes from the target
    next_words = ops.argmax(model({"source_ids": words[::-1], "target_ids": words}), axis=-1)
    echoes.append(np.mean(ops.convert_to_numpy(next_words) == words))
    counts.append(model.count_params())
    print(f"norm_first={norm_first}: {counts[-1]:,} parameters; standard deviation", end=" ")
    print(*(f"{each:.2f}" for each in paths[-1]), f"; {echoes[-1]:.0%} of the words come back")
assert counts[1] - counts[0] == 2 * 2 * 128
assert np.allclose(paths[0][1:], 1, atol=0.01) and paths[1] == sorted(paths[1])
assert echoes[1] > 0.6 > 0.2 > echoes[0]

# %%
# extra code – the path through the encoder, and the echo
figure, (left, right) = figures.panels(2, width=3.2, height=2.6)
looks = ("post-norm", "o-", figures.BLUE), ("pre-norm", "s--", figures.ORANGE)
for (name, style, color), path in zip(looks, paths, strict=True):
    left.plot(path, style, color=color, label=name)
right.bar([0, 1], 100 * np.array(echoes), 0.5, color=[color for *_, color in looks])
right.set_xticks([0, 1], [name for name, *_ in looks])
left.set(xlabel="depth (blocks)", ylabel="standard deviation of x", xticks=range(4), ylim=(0, None))
left.legend()
right.set(ylabel="words that come back (%)", ylim=(0, 100))
figures.show(figure, "09_echo")

# %% [markdown]
# Two more LayerNorms, a path that grows, and a surprise: an untrained pre-norm model is an echo.
# The likeliest next word is the one just read, because the free path carries $\sqrt{d}\,E_w$ to the
# end and the tied output reads it off again.

# %% [markdown]
# ## What we have so far
#
# Our translator as Figure 1 has it: two blocks on either side instead of one, and one matrix in
# three places.


# %%
def translator(ids):
    embed, mask = kt.TokenEmbedding(weather.VOCABULARY_SIZE, 32), kt.padding_mask(ids["source_ids"])
    x = kt.PositionalEncoding()(embed(ids["source_ids"]))
    memory = kt.Encoder(2, num_heads=4, d_ff=64)(x, attention_mask=mask)
    y = kt.PositionalEncoding()(embed(ids["target_ids"]))
    y = kt.Decoder(2, num_heads=4, d_ff=64)(y, memory, cross_attention_mask=mask)
    return embed(y, reverse=True)


so_far, _ = weather.train(translator, weather.two_rows, starts=figures.STARTS)
print(f"two blocks, one matrix: {min(so_far):.4f} to {max(so_far):.4f} nats per token")
assert max(so_far) < 0.04

# %%
# extra code – the picture that grows
figures.show(weather.picture(9, blocks=so_far), "09_so_far")

# %% [markdown]
# About as low as with one block and a matrix for each place, after the same number of steps: one
# block can already learn all that this language asks for. What is still missing is not a part of
# the model.
#
# ## Exercises
#
# 1. Let all blocks of a stack share one set of weights (as ALBERT does). Try it on the encoder
#    block above. How many parameters has base then, and what is most of them?
# 2. The paper's attention has matrices only; its code of 2017 has biases too, and so has the
#    package. How many are they in base? (What those of the keys do: chapter 3, exercise 1.)
# 3. How many of base's parameters would a decoder without cross-attention save? And how many
#    does GPT save, which leaves out the encoder altogether?
#
# *Break it:* wire Figure 1 without `cross_attention_mask`. Nothing complains. For which of the two
# sentences above do the logits change?
#
# Write a block of the decoder yourself, and
# [check it](../docs/grading.md): `kt.check_layer(MyDecoderBlock)`.
#
# ## Answers
#
# 1\. A layer that is called three times has its weights once. Base keeps 26 million, and most of
# them are the embedding:

# %%
inputs = keras.Input((None, D_MODEL))
shared = keras.Model(inputs, block(block(block(inputs))))
one_layer = count_parameters(37_000, base | {"num_layers": 1})
share = 37_000 * 512 / one_layer
print(
    f"three calls: {shared.count_params():,}; base: {one_layer:,}, the embedding {share:.0%} of it"
)
assert shared.count_params() == block.count_params() and one_layer < 2 * 37_000 * 512

# %% [markdown]
# 2\. Some 37,000 of 63 million:

# %%
number = tied - sum(parameters(37_000, base, biases=False).values())
print(f"base has {number:,} biases in its attentions, {number / tied:.2%} of all")
assert number == 18 * 4 * 512

# %% [markdown]
# 3\. Six cross-attentions with their LayerNorms are a tenth of it; the encoder, six blocks of two
# sublayers, is nearly a third:

# %%
cross = built.decoder.count_params() - built.encoder.count_params()
of_encoder = built.encoder.count_params()
print(f"cross-attention {cross:,} ({cross / tied:.0%}), encoder {of_encoder:,}", end=" ")
print(f"({of_encoder / tied:.0%})")
assert cross == sum(n for part, n in parameters(37_000, base).items() if "cross" in part) + 6 * 1024
assert of_encoder == 6 * (4 * (512**2 + 512) + 2 * 512 * 2048 + 2048 + 512 + 2 * 2 * 512)

# %% [markdown]
# *Broken:* for the second, whose source has two places of padding; they are read as if they were
# words. The first has none. (A test with a single sentence would never find it.)

# %%
y = kt.PositionalEncoding()(embed(target_ids))
for each in decoder_blocks:
    y = each(y, memory)
broken = keras.Model({"source_ids": source_ids, "target_ids": target_ids}, embed(y, reverse=True))
moved = [distance(broken(ids)[row], by_hand(ids)[row]) for row in (0, 1)]
print(f"the logits move by {moved[0]:.0e} in the first sentence, by {moved[1]:.1f} in the second")
assert moved[0] < 1e-5 < 0.01 < moved[1]

# %%
# extra code – the numbers of the gallery
if figures.FULL:  # of three starts
    figures.record(0.01, blocks_least=min(so_far), blocks_most=max(so_far))
figures.record(ids=(low + high) / 2, cross_attention=more)
figures.record(saved=saved / 1e6, untied=(tied + saved) / 1e6)
figures.record(silenced_below=1e-4)  # as asserted above

# %% [markdown]
# ## In short
#
# - Two stacks of blocks, one memory given to every block of the decoder, one matrix of words at
#   three places: that is Figure 1.
# - A decoder block is a masked encoder block with cross-attention in between.
# - Every parameter can be counted in closed form; the paper's 65 and 213 million do not fit one
#   vocabulary.
#
# **Next**: the model is wired and knows nothing. [Chapter 10](10_training.py) trains it.
