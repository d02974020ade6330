# %% [markdown]
# # 8 · Add & Norm, and the feed-forward network
#
# **Two thirds of an encoder block is not attention: what are the other two boxes for?** Let's build
# layer normalization, the residual path and the feed-forward network by hand, measure what each
# keeps alive through 12 blocks, and find out what mixes what. Run time: about 40 s.
#
# *In plain words:* attention lets the words of a sentence talk; then each word has to think about
# what it heard. That is the feed-forward network. Adding the input back and normalizing the sum
# keep this healthy when it is repeated many times.
#
# *Paper: sections 3.1, 3.3 and 5.4. Géron: chapter 16, "Attention Is All You Need: The Original
# Transformer Architecture"; he introduces layer normalization in chapter 15, "Fighting the Unstable
# Gradients Problem", and residual connections with ResNet in chapter 14. Article: 002.*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather

keras.utils.set_random_seed(8)
rng = np.random.default_rng(8)


def array(tensor):
    return ops.convert_to_numpy(tensor)


# %% [markdown]
# ## Which axis?
#
# Batch and layer normalization both subtract a mean and divide by a standard deviation. In
# training, the whole difference is what the mean is taken over. One often reads that batch
# normalization treats one dimension of all inputs of a batch, layer normalization each input
# (article 002). Right, if "each input" is each *token*, not each sentence. (Both layers then
# multiply each dimension by a trained gain and add a trained bias. These begin as 1 and 0, so here
# they change nothing.)


# %%
def normalized(x, axes, epsilon=1e-6):
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon), mean.size


x = rng.normal(0.5, 1.0, size=(3, 5, 8)).astype("float32")  # sentence, token, dimension
x[1, 2] *= 5  # a loud token
x[:, :, 6] *= 5  # a wide dimension

over_dimensions, num_tokens = normalized(x, axes=-1)
over_tokens, num_dimensions = normalized(x, axes=(0, 1))
layer_norm = keras.layers.LayerNormalization(epsilon=1e-6)
batch_norm = keras.layers.BatchNormalization(epsilon=1e-6)
np.testing.assert_allclose(over_dimensions, array(layer_norm(x)), atol=1e-5)
np.testing.assert_allclose(over_tokens, array(batch_norm(x, training=True)), atol=1e-5)
by_add_norm = kt.AddNorm()(x, sublayer=ops.zeros_like)  # the package's: the norm of x + 0
np.testing.assert_allclose(over_dimensions, array(by_add_norm), atol=1e-5)
print(f"layer normalization: {num_tokens} means, one per token, each of 8 numbers")
print(f"batch normalization: {num_dimensions} means, one per dimension, each of 15 numbers")
assert (num_tokens, num_dimensions) == (15, 8)

# %%
# extra code – the same numbers three times
figure, rows = figures.panels(3, width=2.6, height=3.4)
for panel, table, title in zip(
    rows,
    (x, over_dimensions, over_tokens),
    ("x", "layer norm of x", "batch norm of x"),
    strict=True,
):
    table = table.reshape(15, 8)
    image = panel.imshow(table, cmap="PuOr", vmin=-3, vmax=3, aspect="auto")
    panel.set(title=title, xlabel="dimension", yticks=[0, 5, 10], xticks=range(0, 8, 2))
    panel.axhline(4.5, color="0.3", lw=0.8)
    panel.axhline(9.5, color="0.3", lw=0.8)
figure.colorbar(image, ax=rows, label="value", extend="both")
rows[0].set_ylabel("token (3 sentences of 5)")
for words, place, at in (("loud token", (1, 7), (0, 3)), ("wide dimension", (6, 12), (0, 12))):
    rows[0].annotate(
        words, place, at, arrowprops={"arrowstyle": "->"}, bbox={"fc": "white", "ec": "none"}
    )
figures.show(figure, "08_axes")

# %% [markdown]
# ## Neighbors and padding
#
# The consequence: a batch statistic belongs to the batch. Let's normalize one sentence alone, then
# beside three others, then padded with zeros as a batch of unequal lengths is, and see how far its
# own numbers move.

# %%
sentence = x[:1]
others = rng.normal(1.0, 3.0, size=(3, 5, 8)).astype("float32")
company = {
    "beside three others": np.concatenate([sentence, others]),
    "padded with 5 zeros": np.pad(sentence, [(0, 0), (0, 5), (0, 0)]),
}
for how, batch in company.items():
    moved = {}
    for name, norm in (("layer", layer_norm), ("batch", batch_norm)):
        alone, here = (array(norm(b, training=True))[:1, :5] for b in (sentence, batch))
        moved[name] = np.abs(here - alone).max()
    print(f"{how}: batch norm moves it by {moved['batch']:.2f}, layer norm by {moved['layer']:.0e}")
    assert moved["layer"] < 1e-6 and moved["batch"] > 0.1

# %% [markdown]
# A translator that read a sentence differently in different company would be strange (chapter 6
# took pains to mask padding; here nothing needs masking). Batch normalization also has a
# second face: at inference it uses running averages of what it saw in training. (They begin at 0
# and 1 and move by 1 % per batch. Ours have seen a handful, so the gap is large.) Layer
# normalization is the same function in both modes:

# %%
for name, norm in (("layer", layer_norm), ("batch", batch_norm)):
    gap = np.abs(array(norm(x, training=True)) - array(norm(x, training=False))).max()
    print(f"{name} norm: training and inference differ by {gap:.2f}")
    assert gap == 0 if name == "layer" else gap > 0.1

# %% [markdown]
# ## A surprise: epsilon
#
# $\epsilon$ keeps the division finite. The paper does not mention it; the authors' code has 1e-6,
# as does the package, and Keras's default is 1e-3. Compared with the variance of a quiet token that
# is not small: such tokens come out too quiet.

# %%
token = rng.normal(size=(1, 512)).astype("float32")
token = (token - token.mean()) / token.std()
for scale in (1.0, 0.1, 0.02):
    add_norm, keras_norm = kt.AddNorm(), keras.layers.LayerNormalization()
    of_package = add_norm(token * scale, sublayer=ops.zeros_like)
    sizes = [array(output).std() for output in (of_package, keras_norm(token * scale))]
    print(f"standard deviation {scale:4} becomes {sizes[0]:.3f} (1e-6), {sizes[1]:.3f} (1e-3)")
    by_hand = [scale / np.sqrt(scale**2 + epsilon) for epsilon in (1e-6, 1e-3)]
    np.testing.assert_allclose(sizes, by_hand, rtol=1e-3)
assert sizes[0] > 0.99 and sizes[1] < 0.6

# %% [markdown]
# ## Add, then norm
#
# $$\begin{aligned}
# \text{post-norm, the paper:}\quad x &\leftarrow \mathrm{LayerNorm}(x + \mathrm{Sublayer}(x)) \\
# \text{pre-norm:}\quad x &\leftarrow x + \mathrm{Sublayer}(\mathrm{LayerNorm}(x))
# \end{aligned}$$
#
# A *sublayer* is an attention or a feed-forward network; the $x$ that is added is the *residual
# path*. The sum needs both sides to be equally wide, so every sublayer of the paper ends in
# $d_{model}$ dimensions. `kt.AddNorm` is called with $x$ and the sublayer, and any function will do
# as one:

# %%
post, pre = kt.AddNorm(), kt.AddNorm(norm_first=True)
post_norm = normalized(x + np.tanh(x), -1)[0]
pre_norm = x + np.tanh(normalized(x, -1)[0])
for add_norm, by_hand in ((post, post_norm), (pre, pre_norm)):
    np.testing.assert_allclose(array(add_norm(x, sublayer=ops.tanh)), by_hand, atol=1e-5)
print(f"size of a token: post-norm {post_norm.std():.2f}, pre-norm {pre_norm.std():.2f}")
np.testing.assert_allclose(post_norm.std(axis=-1), 1, atol=1e-4)

# %% [markdown]
# ## Through 12 blocks
#
# What do the two parts do for a deep stack? Let's join 12 times attention and feed-forward in five
# ways: with neither part, with one, and with both in either order. How large is the gradient at
# each depth? A trick shows it on any backend: we smuggle in a zero at each depth, as a weight. It
# changes nothing; what one step of training makes of it is the gradient there. (The step is one of
# `SGD(1.0)`, which subtracts just the gradient; the loss is the output's product with a fixed
# random direction.) First the five joins, and the weights that all of them share:

# %%
d_model, length, num_blocks = 32, 8, 12
layer_norm = keras.layers.LayerNormalization(epsilon=1e-6)
JOINS = {  # of x with the sublayer f
    "neither": lambda x, f: f(x),
    "add alone": lambda x, f: x + f(x),
    "norm alone": lambda x, f: layer_norm(f(x)),
    "post-norm": lambda x, f: layer_norm(x + f(x)),
    "pre-norm": lambda x, f: x + f(layer_norm(x)),
}


def kernel(rows, columns):
    # as large as a Dense layer begins
    drawn = rng.normal(size=(rows, columns), scale=(2 / (rows + columns)) ** 0.5)
    return ops.convert_to_tensor(drawn, "float32")


kernels = [
    [kernel(d_model, d_model) for _ in "QKV"] + [kernel(d_model, 128), kernel(128, d_model)]
    for _ in range(num_blocks)
]


# %% [markdown]
# Now the stack. Its blocks are plain functions; its only weights are the zeros, one for each depth.


# %%
def attention_with(W_q, W_k, W_v):
    return lambda x: kt.scaled_dot_product_attention(x @ W_q, x @ W_k, x @ W_v)[0]


def network_with(W_1, W_2):
    return lambda x: ops.relu(x @ W_1) @ W_2


class Stack(keras.layers.Layer):
    def __init__(self, join):
        super().__init__()
        self.join = join

    def build(self, shape):
        shape = (1, length, d_model)
        self.zeros = [self.add_weight(shape, "zeros") for _ in range(num_blocks + 1)]

    def call(self, x):
        self.depths = []
        for zero, (*W_qkv, W_1, W_2) in zip(self.zeros[:-1], kernels, strict=True):
            x = x + zero
            self.depths.append(x)
            x = self.join(x, attention_with(*W_qkv))
            x = self.join(x, network_with(W_1, W_2))
        self.depths.append(x)
        return x + self.zeros[-1]


# %% [markdown]
# While we are at it, we look at the size of $x$, and at how similar the tokens have become: the
# mean cosine between two of them.
#
# *Predict before you run:* in which of the five joins does the gradient arrive at the bottom about
# as large as it was at the top? And in which do all tokens become one vector?


# %%
def mean_cosine(x):
    unit = x / np.linalg.norm(x, axis=-1, keepdims=True)
    return ((unit @ unit.T).sum() - length) / (length * (length - 1))


start, direction = rng.normal(size=(2, 1, length, d_model)).astype("float32")
gradients, sizes, cosines = {}, {}, {}
for name, join in JOINS.items():
    stack = Stack(join)
    stack(start)
    depths = [array(x)[0] for x in stack.depths]
    sizes[name] = [x.std() for x in depths]
    cosines[name] = [mean_cosine(x) for x in depths]
    model = keras.Sequential([keras.Input((length, d_model)), stack])
    model.compile(
        keras.optimizers.SGD(1.0), loss=lambda y, output: ops.sum(y * output), run_eagerly=True
    )
    model.fit(start, direction, verbose=0)
    gradients[name] = [np.linalg.norm(array(zero)) for zero in stack.zeros]
    print(
        f"{name:10}: gradient at the bottom / top {gradients[name][0] / gradients[name][-1]:8.2g}; "
        f"size of x {sizes[name][-1]:7.2g}; cosine {cosines[name][4]:.2f} after 4 blocks, "
        f"{cosines[name][-1]:.2f} after 12"
    )

# %% [markdown]
# Read the table from the top. With **neither**, signal and gradient both fade. **Add alone** passes
# all of $x$ on and adds to it: signal and gradient both grow with each block that they pass. **Norm
# alone** keeps both sizes, but look at the cosine: after four blocks all tokens are the same
# vector. With **both**, the tokens stay apart, in post-norm for some blocks only, in pre-norm to
# the end, where $x$ and the gradient grow a little. (These weights are untrained; Dong et al. 2021
# prove that attention alone, without the residual path and the network, makes all tokens the same.)
# What makes them similar? Mostly attention, which averages:

# %%
x = ops.convert_to_tensor(start)
after = [attention_with(*kernels[0][:3])(x), network_with(*kernels[0][3:])(x)]
cosine, *after = (mean_cosine(array(x)[0]) for x in (start, *after))
print(f"cosine {cosine:.2f}; after one attention {after[0]:.2f}, after one network {after[1]:.2f}")
assert after[0] > after[1] + 0.1 and after[0] > cosine + 0.3

top = {name: g[0] / g[-1] for name, g in gradients.items()}
assert top["neither"] < 1e-2 and top["add alone"] > 50
assert all(0.1 < top[name] < 10 for name in ("norm alone", "post-norm", "pre-norm"))
assert sizes["neither"][-1] < 0.01 and sizes["add alone"][-1] > 10
np.testing.assert_allclose([sizes["norm alone"][-1], sizes["post-norm"][-1]], 1, atol=1e-3)
assert 1.5 < sizes["pre-norm"][-1] < 10
assert cosines["norm alone"][4] > 0.95 and cosines["norm alone"][4] > cosines["post-norm"][4] + 0.1
assert cosines["pre-norm"][-1] < 0.9 < 0.95 < min(cosines[n][-1] for n in JOINS if n != "pre-norm")

# %%
# extra code – gradient, size and likeness at each depth
figure, panels = figures.panels(3, width=3.1)
for name, color, line in zip(
    JOINS,
    (figures.BLACK, figures.PURPLE, figures.ORANGE, figures.BLUE, figures.GREEN),
    (":", "--", "-.", "o-", "s-"),
    strict=True,
):
    relative = np.array(gradients[name]) / gradients[name][-1]
    for panel, values in zip(panels, (relative, sizes[name], cosines[name]), strict=True):
        panel.plot(values, line, color=color, label=name, markersize=3)
panels[0].set(yscale="log", ylabel="gradient (that at the top = 1)")
panels[1].set(yscale="log", ylabel="standard deviation of x")
panels[2].set(ylabel="mean cosine of two tokens", ylim=(-0.1, 1.05))
for panel in panels:
    panel.set(xlabel="depth (blocks)", xticks=range(0, 13, 3))
figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=5)
figures.show(figure, "08_depth")

# %% [markdown]
# ## Post-norm or pre-norm?
#
# The paper normalizes after the addition; GPT-2 and most of its successors do so before. Let's
# train both in four blocks, on a task that needs attention, to write a sequence backwards, at a
# learning rate that is high from the first step; and post-norm once more with the remedy of the
# paper, warm-up (chapter 10): the rate rises in 80 steps from nearly 0 to the same height, and then
# falls slowly.

# %%
digits = rng.integers(10, size=(32 * 320, 8)).astype("int32")
warmup = kt.WarmupSchedule.with_peak(6e-3, warmup_steps=80)
contestants = {"post-norm": (False, 6e-3), "pre-norm": (True, 6e-3)}
contestants["post-norm, warm-up"] = False, warmup


def learned_backwards(norm_first, rate, seed):
    """The accuracy after each 20 of 320 steps."""
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [
            keras.Input((8,), dtype="int32"),
            kt.TokenEmbedding(10, d_model),
            kt.PositionalEncoding(),
            kt.Encoder(num_layers=4, num_heads=2, d_ff=64, norm_first=norm_first),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)  # or the first step would be compiled twice
    options = dict(batch_size=32, epochs=16, steps_per_epoch=20, verbose=0)
    return model.fit(digits, digits[:, ::-1], **options).history["accuracy"]


# %% [markdown]
# One start of each, or three with `FULL=1` in the environment of the chapter:

# %%
curves, needed = {}, {}  # of each start
for name, (norm_first, rate) in contestants.items():
    starts = range(8, 8 + figures.STARTS)
    curves[name] = np.array([learned_backwards(norm_first, rate, seed) for seed in starts])
    # each 20 steps: learned or not; and a True at the end, for those that never do
    learned = [[*(curve > 0.9), True] for curve in curves[name]]
    needed[name] = [20 * (1 + curve.index(True)) for curve in learned]  # 340: not within 320 steps
    print(f"{name:18} has 90 % of the digits right after", *needed[name], "steps")
assert max(needed["pre-norm"]) < 160 and curves["pre-norm"][:, -1].min() > 0.95
assert max(needed["pre-norm"]) < min(needed["post-norm, warm-up"])
assert 1.5 * max(needed["pre-norm"]) < min(needed["post-norm"])
of_post, of_warmup = needed["post-norm"], needed["post-norm, warm-up"]
assert figures.STARTS == 1 or np.mean(of_warmup) < np.mean(of_post)

# %%
# extra code – accuracy while training
figure, panel = figures.panels(width=5.5)
looks = ("o-", figures.ORANGE), ("s-", figures.GREEN), ("^--", figures.BLUE)
steps = 20 * np.arange(1, 17)
for (name, of_starts), (style, color) in zip(curves.items(), looks, strict=True):
    low, high = of_starts.min(axis=0), of_starts.max(axis=0)
    panel.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
    panel.plot(steps, of_starts.mean(axis=0), style, color=color, label=name, markersize=4)
panel.set(xlabel="training steps", ylabel="digits right", ylim=(0, 1.05))
panel.legend()
figures.show(figure, "08_post_or_pre")

# %% [markdown]
# At this rate post-norm needs about twice as many steps as pre-norm, and its starts lie further
# apart (`FULL=1` shows three). Xiong et al. (2020) put it down to large gradients near the output
# at initialization. The paper's own remedy, to begin with tiny steps, does help: with it post-norm
# gets there sooner, though not as soon as pre-norm, which needs no warm-up.
#
# ## The feed-forward network
#
# $$\mathrm{FFN}(x) = \max(0,\, xW_1 + b_1)\,W_2 + b_2$$
#
# Two layers, to the width $d_{ff}$ and back, with ReLU between, the same at every position. The
# paper remarks that this is two convolutions of width 1; let's put the package's kernels into
# Keras's convolutions.

# %%
feed_forward = kt.FeedForward(d_ff=32)
x = rng.normal(size=(2, 6, 8)).astype("float32")
output = array(feed_forward(x))
W_1, b_1, W_2, b_2 = (array(weight) for weight in feed_forward.weights)
np.testing.assert_allclose(output, np.maximum(0, x @ W_1 + b_1) @ W_2 + b_2, atol=1e-5)

convolutions = keras.Sequential(
    [keras.layers.Conv1D(32, kernel_size=1, activation="relu"), keras.layers.Conv1D(8, 1)]
)
convolutions.build((None, 6, 8))
# W_1[None] is a kernel with an axis for its width, 1
convolutions.set_weights([W_1[None], b_1, W_2[None], b_2])
gap = np.abs(array(convolutions(x)) - output).max()
print(f"kernels of shape {W_1[None].shape} and {W_2[None].shape}: they differ by {gap:.0e}")
assert gap < 1e-5

# %% [markdown]
# A network at one position does not see the others. Change the last token and see which positions
# notice:

# %%
attention = kt.MultiHeadAttention(num_heads=2)
changed = x.copy()
changed[:, -1] += 1
notices = {}
for name, layer in (("attention", lambda x: attention(x, x)), ("feed-forward", feed_forward)):
    notices[name] = np.abs(array(layer(changed)) - array(layer(x))).max(axis=(0, 2))
    print(f"{name:12} changes at positions 1 to 6 by", notices[name].round(3))
assert notices["feed-forward"][:5].max() == 0 < notices["feed-forward"][5]
assert notices["attention"].min() > 1e-3

# %% [markdown]
# ## What mixes dimensions?
#
# One often reads that before the feed-forward network the dimensions of an input have not
# interacted, and that combining them is what this network is for (article 002). Let's nudge one
# input dimension of a token and see which output dimensions of the same token move: in attention
# with its weights held fixed and nothing else (a mean of values), in attention where $Q = K = V =
# x$, in the layer with its projections, and in the feed-forward network.

# %%
one = x[:1]
held = array(kt.scaled_dot_product_attention(one, one, one)[1])
LAYERS = {
    "weights held fixed": lambda x: held @ x,
    "no projections": lambda x: array(kt.scaled_dot_product_attention(x, x, x)[0]),
    "attention layer": lambda x: array(attention(x, x)),
    "feed-forward": lambda x: array(feed_forward(x)),
}
moves = {}
for name, layer in LAYERS.items():
    nudged = np.repeat(one, 8, axis=0)
    nudged[np.arange(8), 0, np.arange(8)] += 0.5  # in copy i, dimension i of token 0
    moves[name] = np.abs(np.stack([layer(copy[None])[0, 0] for copy in nudged]) - layer(one)[0, 0])
    others = moves[name][~np.eye(8, dtype=bool)]
    print(f"{name:15} moves {(others > 1e-5).sum():2} of {others.size} other dimensions")
    if name == "weights held fixed":
        assert not (others > 1e-5).any()
    else:
        assert (others > 1e-5).mean() > 0.8

# %%
# extra code – who moves whom
figure, panels = figures.panels(4, width=2.3, height=2.7)
for panel, (name, table) in zip(panels, moves.items(), strict=True):
    image = panel.imshow(table / table.max(), cmap="Blues", vmin=0, vmax=1)
    panel.set(title=name, xlabel="output dimension", xticks=[0, 7], yticks=[0, 7])
panels[0].set_ylabel("nudged input dimension")
figure.colorbar(image, ax=list(panels), label="movement (largest = 1)", fraction=0.05)
figures.show(figure, "08_mixing")

# %% [markdown]
# That is right about the first panel only, the weighted mean itself. The weights depend on all
# dimensions of the query and the keys, and each of the four projections is a full matrix. What
# attention lacks is something else: once its weights are held fixed, it is *linear* in the values.
# The feed-forward network is not:

# %%
a, b = rng.normal(size=(2, 1, 6, 8)).astype("float32")
functions = {
    "attention, query and key held": lambda value: array(attention(one, value, key=one)),
    "feed-forward": lambda value: array(feed_forward(value)),
}
for name, f in functions.items():  # (all biases are still 0)
    gap = np.abs(f(a + b) - f(a) - f(b)).max()
    print(f"{name}: f(a + b) and f(a) + f(b) differ by {gap:.1g}")
    assert gap < 1e-5 if "attention" in name else gap > 0.1

# %% [markdown]
# That is what the ReLU is for. Without it, the two layers are one matrix in disguise:

# %%
linear = kt.FeedForward(d_ff=32, activation=None)
linear.build(x.shape)
linear.set_weights([W_1, b_1, W_2, b_2])
np.testing.assert_allclose(array(linear(x)), x @ (W_1 @ W_2) + (b_1 @ W_2 + b_2), atol=1e-5)
many = rng.normal(size=(5000, 8)).astype("float32")
answers = array(feed_forward(many[None]))[0]
best = many @ np.linalg.lstsq(many, answers - answers.mean(axis=0), rcond=None)[0]
missed = ((answers - answers.mean(axis=0) - best) ** 2).sum() / answers.var(axis=0).sum() / 5000
print(f"without ReLU: {W_1.size + W_2.size} numbers do the work of {(W_1 @ W_2).size}")
print(f"with ReLU, the best single matrix misses {missed:.0%} of the output's variance")
assert missed > 0.1

# %% [markdown]
# ## Two thirds of a block
#
# With the paper's $d_{ff} = 4\,d_{model}$ an attention has $4\,d_{model}^2$ weights and a
# feed-forward network $8\,d_{model}^2$. Counted in blocks of the paper's base model, $d_{model} =
# 512$ (a decoder block has two attentions, so there it is half):

# %%
shape = (None, None, 512)
encoder_block, decoder_block = kt.EncoderBlock(8, 2048), kt.DecoderBlock(8, 2048)
encoder_block.build(shape)
decoder_block.build(shape, shape)
for name, block in (("encoder", encoder_block), ("decoder", decoder_block)):
    part, whole = block.feed_forward.count_params(), block.count_params()
    print(f"{name} block: {part:,} of {whole:,} parameters are feed-forward, {part / whole:.1%}")
    np.testing.assert_allclose(part / whole, 2 / 3 if name == "encoder" else 1 / 2, atol=0.001)

# %% [markdown]
# ## What we have so far
#
# Chapter 7 left our translator with the three attentions of the paper and nothing between them.
# Let's put what is opened now between them: around each attention its Add & Norm, and then behind
# them the feed-forward network, on either side.


# %%
def add_norm(x, output):
    return keras.layers.LayerNormalization(epsilon=1e-6)(x + output)


def translator(network):
    """A function from ids to logits, with or without the feed-forward networks."""

    def build(ids):
        embed = kt.TokenEmbedding(weather.VOCABULARY_SIZE, 32)
        mask = kt.padding_mask(ids["source_ids"])
        x = kt.PositionalEncoding()(embed(ids["source_ids"]))
        x = add_norm(x, kt.MultiHeadAttention(num_heads=4)(x, x, attention_mask=mask))
        x = add_norm(x, kt.FeedForward(64)(x)) if network else x
        y = kt.PositionalEncoding()(embed(ids["target_ids"]))
        y = add_norm(y, kt.MultiHeadAttention(num_heads=4)(y, y, use_causal_mask=True))
        y = add_norm(y, kt.MultiHeadAttention(num_heads=4)(y, x, attention_mask=mask))
        y = add_norm(y, kt.FeedForward(64)(y)) if network else y
        return keras.layers.Dense(weather.VOCABULARY_SIZE)(y)

    return build


# %%
so_far = {}
for name, network in (("add_norm", False), ("feed_forward", True)):
    so_far[name], _ = weather.train(translator(network), weather.two_rows, starts=figures.STARTS)
    print(f"{name:12} {min(so_far[name]):.4f} to {max(so_far[name]):.4f} nats per token")
assert max(so_far["add_norm"] + so_far["feed_forward"]) < 0.04

# %%
# extra code – the picture that grows
figures.show(weather.picture(8, **so_far), "08_so_far")

# %% [markdown]
# With Add & Norm every start comes down to the same low loss, where bare attentions ended several
# times higher. The network adds little: in this language nothing has to be worked out that looking
# up does not give.
#
# ## Exercises
#
# 1. Keras's `BatchNormalization` takes a `mask`. Does it mend the padding? Does it mend the
#    neighbors?
# 2. `keras.layers.RMSNormalization` divides by the root mean square and subtracts nothing. For
#    which tokens does it agree with layer normalization?
# 3. Which $d_{ff}$ gives the feed-forward network as many weights as the attention has?
#
# *Break it:* write a layer normalization that takes its mean over all tokens of a sentence, and let
# `kt.check_layer` mark it. What does it say? And what would a decoder do with it?
#
# Write a block of the encoder yourself, and
# [check it](../docs/grading.md): `kt.check_layer(MyEncoderBlock)`. Layer
# normalization and the feed-forward network can be checked alone: "layer_norm", "feed_forward".
#
# ## Answers
#
# 1. The padding, yes. The neighbors, no: they are not padding.

# %%
alone = array(batch_norm(sentence, training=True))
for how, batch in company.items():
    real = np.abs(batch).sum(axis=-1) > 0  # (batch, length), True at tokens
    masked = array(batch_norm(batch, training=True, mask=ops.convert_to_tensor(real)))
    gap = np.abs(masked[:1, :5] - alone).max()
    print(f"{how}, with a mask: batch norm moves the sentence by {gap:.2f}")
    assert gap < 1e-4 if "padded" in how else gap > 0.1

# %% [markdown]
# 2. For those whose mean is 0 already: then the variance is the mean square.

# %%
rms_norm = keras.layers.RMSNormalization(epsilon=1e-6)
centered = x - x.mean(axis=-1, keepdims=True)
gaps = [np.abs(array(rms_norm(v)) - normalized(v, -1)[0]).max() for v in (x, centered)]
print(f"they differ by {gaps[0]:.2f}, on tokens with mean 0 by {gaps[1]:.0e}")
assert gaps[1] < 1e-4 < 0.1 < gaps[0]

# %% [markdown]
# 3. $4\,d_{model}^2 = 2\,d_{model}\,d_{ff}$ gives $d_{ff} = 2\,d_{model}$.

# %%
block = kt.EncoderBlock(num_heads=8, d_ff=2 * 512)
block.build(shape)
sizes = [block.self_attention.count_params(), block.feed_forward.count_params()]
print(f"attention {sizes[0]:,}, feed-forward {sizes[1]:,} (the difference is biases)")
np.testing.assert_allclose(*sizes, rtol=1e-3)

# %% [markdown]
# *Broken:* the sum of squares is right, the shape is right, and a later token changes an earlier
# one. No mask can repair that; a decoder would read the answer while it is trained.


# %%
def over_the_sentence(x):
    return normalized(x, axes=(1, 2))[0]


report = kt.check_layer(over_the_sentence, "layer_norm")
print(report)
assert not report.passed
assert figures.who_moves(over_the_sentence, sentence).all()  # every output, by every token

# %%
# extra code – the numbers of the gallery
off_diagonal = moves["attention layer"][~np.eye(8, dtype=bool)]
if figures.FULL:  # of three starts
    of_pre = needed["pre-norm"]
    figures.record(32, pre_norm_first=min(of_pre), pre_norm_last=max(of_pre))
    figures.record(32, with_warmup_first=min(of_warmup), with_warmup_last=max(of_warmup))
    figures.record(32, post_norm_first=min(of_post), post_norm_last=max(of_post))
    alone, network = so_far["add_norm"], so_far["feed_forward"]
    figures.record(0.01, add_norm_least=min(alone), add_norm_most=max(alone))
    figures.record(0.01, feed_forward_least=min(network), feed_forward_most=max(network))
figures.record(layer_means=num_tokens, moved_dimensions=(off_diagonal > 1e-5).sum())

# %% [markdown]
# ## In short
#
# - Layer normalization looks at one token at a time: no neighbor and no padding can change it.
# - The normalization keeps the size of signal and gradient, the residual path keeps the tokens
#   apart for longer (in pre-norm to the end of our 12 blocks); a deep stack needs both. Post-norm
#   also gains from warm-up.
# - Attention mixes tokens and is linear in its values; the feed-forward network bends each token by
#   itself, and holds two thirds of an encoder block's parameters.
#
# **Next**: all parts are there. [Chapter 9](09_the_transformer.py) puts them together.
