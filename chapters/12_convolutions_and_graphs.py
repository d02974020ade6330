# %% [markdown]
# # 12 · Attention, convolution, graphs
#
# **Is a convolution a special Transformer, and the Transformer a special graph network?** Let's
# turn the package's attention into `Conv1D`, `Conv2D` and a graph convolution by setting its
# weights and its mask, and see what each of them cannot do. Run time: about 20 s.
#
# *In plain words:* attention, convolution and message passing all do one thing: each place takes a
# weighted sum of others. They differ in who may be taken (the graph) and in what decides the
# weight: the distance, or the content.
#
# *Paper: section 4 (self-attention beside convolutions). Géron: chapter 16, "Attention Is All You
# Need"; chapter 14 for convolutions. Article: 000, "Transformer与RNN/CNN".*

# %%
import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt

array = ops.convert_to_numpy
keras.utils.set_random_seed(12)
rng = np.random.default_rng(12)
attend = kt.scaled_dot_product_attention


def tensors(*arrays):
    return [ops.convert_to_tensor(x.astype("float32")) for x in arrays]


# %% [markdown]
# ## A convolution is multi-head attention
#
# A convolution of width 3 adds three terms, each a neighbor times its own matrix; multi-head
# attention adds one term per head, a weighted mean of all positions times $W^V_h W^O_h$:
#
# $$y_t = \sum_{\delta=-1}^{1} x_{t+\delta}\,K_\delta \qquad\qquad
#   y_t = \sum_h \Big(\sum_s w^h_{ts}\, x_s\Big) W^V_h W^O_h$$
#
# They are equal if each head looks at one offset, $w^h_{ts} = 1$ at $s = t + \delta_h$ (we call
# such a head *hard*), and if $W^V_h W^O_h$ is that slice of the kernel (Cordonnier et al. 2020). By
# hand:

# %%
length, d_model, offsets = 8, 16, (-1, 0, 1)
x = rng.normal(size=(1, length, d_model)).astype("float32")
convolution = keras.layers.Conv1D(d_model, 3, padding="same")
convolved = array(convolution(x))
kernel, bias = convolution.get_weights()  # (3, 16, 16) and (16,)
padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))  # one zero at each end
hard = [np.eye(length, length + 2, k=1 + offset) for offset in offsets]
by_hand = sum(w @ padded[0] @ kernel[h] for h, w in enumerate(hard)) + bias
print(f"three hard heads and Conv1D differ by {np.abs(by_hand - convolved[0]).max():.0e}")
np.testing.assert_allclose(by_hand, convolved[0], atol=1e-5)

# %% [markdown]
# Can the package's layer do it, with a softmax? Its weights must then come from positions alone, so
# let the sinusoids be query and key, and `x` the value. $PE_{t+\delta}$ is a rotation of $PE_t$:
# that is $W^Q_h$, times a large number, so that the softmax becomes sharp. $W^K_h$ and $W^V_h$ are
# identities, and $W^O$ is the kernel, laid flat. (A head must be as wide as the model here: the
# rank of $W^V_h W^O_h$ is at most the width of a head.)


# %%
def rotation(offset):
    """R with PE_t R = PE_(t + offset): one turn for each pair of sine and cosine."""
    angle = offset / 10000 ** (np.arange(0, d_model, 2) / d_model)
    R, i = np.zeros((d_model, d_model)), np.arange(0, d_model, 2)
    R[i, i] = R[i + 1, i + 1] = np.cos(angle)
    R[i + 1, i], R[i, i + 1] = np.sin(angle), -np.sin(angle)
    return R


# %% [markdown]
# The layer gets its identities and its kernel; only $W^Q$, with the rotations, is still missing.

# %%
print("ranks of the three slices:", np.linalg.matrix_rank(kernel), "for d_model", d_model)
positions = array(kt.sinusoids(length + 2, d_model))
np.testing.assert_allclose(positions[:-3] @ rotation(3), positions[3:], atol=1e-5)
identities, zeros = np.tile(np.eye(d_model), 3), np.zeros(3 * d_model)
attention = kt.MultiHeadAttention(num_heads=3, key_dim=d_model)
attention.build((1, length, d_model), (1, length + 2, d_model))
attention.key.set_weights([identities, zeros])
attention.value.set_weights([identities, zeros])
attention.output_projection.set_weights([kernel.reshape(-1, d_model), bias])


def as_convolution(sharpness, queries, keys, value, offsets=offsets):
    """Output and weights of three heads that look at these offsets."""
    turns = np.concatenate([sharpness * rotation(offset) for offset in offsets], axis=1)
    attention.query.set_weights([turns, zeros])
    output, weights = attention(queries[None], value, keys[None], return_attention_scores=True)
    return array(output)[0], array(weights)[0]


# %% [markdown]
# The sharper the queries, the more each head looks at its one offset and nowhere else:

# %%
pictures, errors = {}, []
for sharpness in (1, 10, 100, 1000):
    output, weights = as_convolution(sharpness, positions[1:-1], positions, padded)
    pictures[f"sharpness {sharpness}"] = weights
    errors.append(np.abs(output - convolved[0]).max())
    print(f"sharpness {sharpness:4}: weight at the offset {weights[0, 4, 4]:.4f},", end=" ")
    print(f"kt.MultiHeadAttention and Conv1D differ by {errors[-1]:.0e}")
assert errors[-1] < 1e-5 and errors[0] > 0.1
print(f"parameters: {attention.count_params()}, Conv1D {convolution.count_params()};", end=" ")
print(f"weights computed: {weights.size}, of them used {(weights > 0.5).sum()}")
assert (weights > 0.5).sum() == 3 * length

# %%
# extra code – the heads that make a convolution
figure, panels = figures.panels(5, width=1.9, height=2.6)
limit = np.abs(convolved[0]).max()
for panel, weights_of_head, offset in zip(
    panels, pictures["sharpness 1000"], offsets, strict=False
):
    panel.imshow(weights_of_head, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    panel.set(title=f"head at offset {offset:+}", xlabel="key", xticks=[], yticks=[])
for panel, numbers, title in zip(
    panels[3:], (output, convolved[0]), ("heads with W^O", "Conv1D"), strict=True
):
    panel.imshow(numbers, cmap="PuOr", vmin=-limit, vmax=limit, aspect="auto")
    panel.set(title=title, xlabel="channel", xticks=[], yticks=[])
panels[0].set_ylabel("query (place)")
panels[4].set_ylabel(f"differ by at most {errors[-1]:.1g}")
figures.show(figure, "12_heads")

# %% [markdown]
# In this sense what one often reads is right, "CNN可以看作是一种特殊的Transformer" (a CNN can be
# seen as a special Transformer; article 000): a convolution is attention whose scores come from
# positions alone (in Cordonnier's proof from relative ones). It continues:
# "把CNN的卷积核看作是一种特殊的注意力机制" (the kernel as a special attention). Here we must be
# careful: the kernel is not the weights, it is $W^V W^O$. Weights are positive and sum to 1: given
# a constant input, one head returns that constant (times its $W^V W^O$). It can blur. The kernel
# (-1, 0, 1) is a difference, and of a constant it returns 0: that takes two heads.

# %%
left, right = hard[0], hard[2]
for name, signal in (("constant", np.ones(length + 2)), ("squares", np.arange(length + 2.0) ** 2)):
    two_heads = np.stack([left @ signal, right @ signal], axis=1) @ [-1, 1]  # W^O
    print(f"{name}: one head {left @ signal}, two heads {two_heads}")
    assert (two_heads == signal[2:] - signal[:-2]).all()
assert (left @ np.ones(length + 2) == 1).all()

# %% [markdown]
# ## At the border
#
# The zeros at both ends stood for `padding="same"`. Without them the head at offset -1 finds no key
# at its place when the first token asks, nor the head at +1 when the last one does. A softmax has
# to look somewhere: it takes the nearest, so the border is repeated. Under a mask such a query has
# no key at all, and the package returns zeros (chapter 6), which is zero padding again.

# %%
repeated, _ = as_convolution(1000, positions[1:-1], positions[1:-1], x)
valid = keras.layers.Conv1D(d_model, 3)
valid.build(x.shape)
valid.set_weights([kernel, bias])
by_edge = array(valid(np.pad(x, ((0, 0), (1, 1), (0, 0)), mode="edge")))[0]
away = np.abs(repeated - convolved[0]).max(axis=-1)
print(f"no padding: within {np.abs(repeated - by_edge).max():.0e} of a repeated border,", end=" ")
print("away from zero padding at", np.flatnonzero(away > 1e-4))
np.testing.assert_allclose(repeated, by_edge, atol=1e-5)
masks = np.stack([np.eye(length, k=offset, dtype=bool) for offset in offsets])
nothing, values = tensors(np.zeros((3, length, 1)), x[0] @ kernel)
of_heads, _ = attend(nothing, nothing, values, attention_mask=masks)
masked = array(of_heads).sum(axis=0) + bias
print(f"masks instead of scores, and Conv1D: {np.abs(masked - convolved[0]).max():.0e}")
np.testing.assert_allclose(masked, convolved[0], atol=1e-5)

# %% [markdown]
# With such a mask no score matters any more (queries and keys were zeros): keep that in mind for
# the graphs. In two dimensions a 3 × 3 kernel takes nine heads. Let $p$ be the place of the pixel
# that asks, $r$ that of a pixel that answers, and $\delta$ the head's offset. The score is
# Cordonnier's, $-\alpha\lVert p + \delta - r \rVert^2$, which a dot product of three numbers per
# pixel can express: $2(p + \delta) \cdot r - \lVert r \rVert^2$ is the same but for the factor
# $\alpha$ and a constant in each row.

# %%
image = rng.normal(size=(1, 6, 7, 4)).astype("float32")
convolution_2d = keras.layers.Conv2D(5, 3, padding="same")
expected = array(convolution_2d(image)).reshape(-1, 5)
kernel_2d, bias_2d = convolution_2d.get_weights()  # (3, 3, 4, 5) and (5,)
pixels = np.stack(np.mgrid[-1:7, -1:8], axis=-1).reshape(-1, 2)  # with a frame of zeros
centers = np.stack(np.mgrid[:6, :7], axis=-1).reshape(-1, 2)
shifts = np.stack(np.mgrid[-1:2, -1:2], axis=-1).reshape(-1, 1, 2)
queries = np.concatenate([2 * (centers + shifts), np.full((9, 42, 1), -1)], axis=-1)
keys = np.concatenate([pixels, (pixels**2).sum(axis=-1, keepdims=True)], axis=-1)
framed = np.pad(image[0], ((1, 1), (1, 1), (0, 0))).reshape(-1, 4)
given = tensors(100 * queries, keys, framed @ kernel_2d.reshape(9, 4, 5))
of_heads, weights_2d = attend(*given)
output = array(of_heads).sum(axis=0) + bias_2d
print(f"nine heads over {len(pixels)} pixels and Conv2D: {np.abs(output - expected).max():.0e}")
np.testing.assert_allclose(output, expected, atol=1e-5)

# %% [markdown]
# ## What a convolution does not have
#
# Its weights do not depend on what they weigh. Let's swap two tokens, 1 and 5:

# %%
swapped = x.copy()
swapped[0, [1, 5]] = x[0, [5, 1]]
content = kt.MultiHeadAttention(num_heads=2)
(before, w_before), (after, w_after) = (
    [array(part)[0] for part in content(each, each, return_attention_scores=True)]
    for each in (x, swapped)
)
changed = {
    "Conv1D": np.abs(array(convolution(swapped)) - convolved)[0].max(axis=-1),
    "attention": np.abs(after - before).max(axis=-1),
}
for name, by_row in changed.items():
    print(f"{name}: outputs that changed:", np.flatnonzero(by_row > 1e-4).tolist())
gone_along = np.abs(w_after[:, 0, 1] - w_before[:, 0, 5]).max()
print(f"attention's weights moved by up to {np.abs(w_after - w_before).max():.2f},", end=" ")
print(f"those of token 0 with the two tokens, within {gone_along:.0e}")
assert np.flatnonzero(changed["Conv1D"] > 1e-4).tolist() == [0, 1, 2, 4, 5, 6]
assert np.flatnonzero(changed["attention"] > 1e-4).tolist() == [1, 5]
assert np.abs(w_after - w_before).max() > 0.01
assert gone_along < 1e-6

# %% [markdown]
# The convolution's outputs changed near the two places, as its weights stayed where they were.
# Attention's weights went with the tokens: for all others nothing changed. (It has no positions
# here.) With fixed weights a convolution is linear in its input; attention is not:

# %%
linear = array(convolution(2 * x)) - bias - 2 * (convolved - bias)
curved = array(content(2 * x, 2 * x)) - 2 * before  # all biases begin as 0
linear, curved = np.abs(linear).max(), np.abs(curved).max()
print(f"f(2x) - 2 f(x): convolution {linear:.0e}, attention {curved:.2f}")
assert linear < 1e-5 and curved > 0.01

# %% [markdown]
# ## A graph convolution is attention with a mask
#
# A *graph* is a set of nodes, some of them joined by edges; nodes with an edge between them are
# *neighbors*. Its *adjacency matrix* $A$ has a 1 in row $i$, column $j$ where $i$ and $j$ are. In
# *message passing* each node takes a sum or a mean over its neighbors.
#
# A sentence on graphs (Sanchez-Lengeling et al. 2021; quoted in article 000): "message passing and
# convolution are operations to aggregate and process the information of an element's neighbors in
# order to update the element's value". Let's pass messages as it says, over each node's neighbors
# and the node itself; then as $D^{-1}\tilde{A}XW$, where $\tilde{A}$ is $A$ with an edge from each
# node to itself (`loops` in the code) and $D$ the diagonal matrix of its row sums; then as
# attention whose queries are all zero, with `loops` as its mask.

# %%
neighbors = {0: [1, 2], 1: [0, 2], 2: [0, 1, 3], 3: [2, 4, 5], 4: [3, 5], 5: [3, 4], 6: []}
nodes, W = rng.normal(size=(7, 4)), rng.normal(size=(4, 4)) / 2
A = np.array([[j in neighbors[i] for j in range(7)] for i in range(7)])
loops = A | np.eye(7, dtype=bool)

by_messages = np.stack(
    [np.mean([nodes[j] @ W for j in [i, *near]], axis=0) for i, near in neighbors.items()]
)
by_matrix = loops / loops.sum(axis=1, keepdims=True) @ nodes @ W
nothing, values = tensors(np.zeros((7, 4)), nodes @ W)
by_attention, uniform = attend(nothing, nothing, values, attention_mask=loops)
print(f"messages and matrix: {np.abs(by_messages - by_matrix).max():.0e};", end=" ")
print(f"matrix and attention: {np.abs(by_matrix - array(by_attention)).max():.0e}")
np.testing.assert_allclose(by_messages, by_matrix, atol=1e-12)
np.testing.assert_allclose(array(by_attention), by_matrix, atol=1e-6)
alone, _ = attend(nothing, nothing, values, attention_mask=A)
print("node 6, without the loop to itself:", array(alone)[6])
assert not array(alone)[6].any()

# %% [markdown]
# That is a row-normalized graph convolution. Kipf and Welling's GCN (2017) normalizes both sides,
# $D^{-1/2}\tilde{A}D^{-1/2}$: its rows do not sum to 1, so no softmax can give them. Scaling what
# goes in by $D^{-1/2}$ and what comes out by $D^{1/2}$ makes up for it:

# %%
root = np.sqrt(loops.sum(axis=1, keepdims=True))
symmetric = loops / root / root.T
(scaled,) = tensors(nodes @ W / root)
rescaled = root * array(attend(nothing, nothing, scaled, attention_mask=loops)[0])
print("rows of the GCN sum to", symmetric.sum(axis=1).round(2))
assert np.abs(symmetric.sum(axis=1) - 1).max() > 0.05
np.testing.assert_allclose(rescaled, symmetric @ nodes @ W, atol=1e-5)

# %% [markdown]
# ## Lines, grids, everything
#
# A sentence is a chain (a *path graph*), an image a grid, and without a mask all are neighbors of
# all:

# %%
chain = np.abs(np.subtract.outer(range(length), range(length))) <= 1
nothing, values = tensors(np.zeros((length, 1)), x[0])
of_chain, of_all = (array(attend(nothing, nothing, values, mask)[0]) for mask in (chain, None))
mean_filter = keras.layers.Conv1D(d_model, 3, padding="same", use_bias=False)
mean_filter.build(x.shape)
mean_filter.set_weights([np.stack([np.eye(d_model)] * 3) / 3])
filtered = array(mean_filter(x))[0]
print("chain / mean filter:", (of_chain / filtered)[:, 0].round(3))
at_the_ends = np.where(np.isin(range(length), [0, length - 1]), 1.5, 1.0)[:, None]
np.testing.assert_allclose(of_chain, at_the_ends * filtered, atol=1e-6)
pooled = array(keras.layers.GlobalAveragePooling1D()(x))
np.testing.assert_allclose(of_all, np.repeat(pooled, length, axis=0), atol=1e-6)
print("full graph: every node gets the mean of all, as from GlobalAveragePooling1D")
inside = (pixels >= 0).all(axis=1) & (pixels < [6, 7]).all(axis=1)
degrees = (array(weights_2d)[:, :, inside] > 0.5).sum(axis=(0, 2))
seen = {int(degree): int((degrees == degree).sum()) for degree in np.unique(degrees)}
print("neighbors of a pixel, itself included, and the number of such pixels:", seen)
assert sorted(seen) == [4, 6, 9]

# %% [markdown]
# Attention on a chain is the mean filter except at the ends, where it divides by 2 and the
# convolution by 3. And the quoted text continues that in an image "each pixel has a set number of
# neighboring elements": at the border it has fewer, and it is the zero padding that hides this.
#
# ## The Transformer is a graph network whose weights depend on content
#
# A graph attention network (Veličković et al. 2018) keeps neighbors and values, and changes only
# the weights: a softmax over the neighbors of LeakyReLU($a \cdot [W x_i; W x_j]$), where $x_i$ is
# the vector of node $i$, $[\,;\,]$ puts two vectors end to end, and $a$ is trained. (In the code
# `h` has the $W x_i$.) With dot products instead, and all nodes neighbors,
# "Transformer可以看作是一种特殊的GNN" (the Transformer can be seen as a special graph network), as
# article 000 says. One loop passes all these messages:


# %%
def messages(scores, values, graph):
    """For each node, a softmax over its neighbors, and the mean with those weights."""
    output = []
    for i, near in enumerate(graph):
        j = np.flatnonzero(near)
        weights = np.exp(scores[i, j]) / np.exp(scores[i, j]).sum()
        output.append(weights @ values[j])
    return np.stack(output)


h, a = nodes @ W, rng.normal(size=8)
additive = np.add.outer(h @ a[:4], h @ a[4:])
leaky = np.where(additive > 0, additive, 0.2 * additive)
np.testing.assert_allclose(messages(0 * leaky, h, loops), by_matrix, atol=1e-12)  # a = 0: uniform

# %% [markdown]
# With dot products for scores the same loop is the package's layer, on this graph and on the full
# one:

# %%
layer = kt.MultiHeadAttention(num_heads=1)
(h_tensor,) = tensors(h[None])
for name, graph in (("this graph", loops), ("full graph", np.ones((7, 7), bool))):
    output, dot = layer(h_tensor, h_tensor, attention_mask=graph, return_attention_scores=True)
    q, k, v = (array(part(h_tensor))[0] for part in (layer.query, layer.key, layer.value))
    W_O = layer.output_projection.get_weights()[0]
    error = np.abs(messages(q @ k.T / 2, v, graph) @ W_O - array(output)[0]).max()
    print(f"{name}: {graph.sum()} messages, loop and kt.MultiHeadAttention differ by {error:.0e}")
    assert error < 1e-5
    if name == "this graph":
        of_graph = array(dot)[0, 0]
shown = [each[3, loops[3]] for each in (array(uniform), of_graph)]
shown.append(np.exp(leaky[3, loops[3]]) / np.exp(leaky[3, loops[3]]).sum())
for name, weights_of_3 in zip(
    ("convolution", "dot product", "graph attention"), shown, strict=True
):
    print(f"node 3, {name}: weights of 2, 3, 4, 5 are", weights_of_3.round(2))
assert not of_graph[~loops].any()

# %%
# extra code – the graph, and its mask with two kinds of weights
figure, (left, middle, right) = figures.panels(3, width=3.4, height=3.0)
place = np.array([[0, 0], [0, 1], [0.8, 0.5], [1.7, 0.5], [2.5, 0], [2.5, 1], [1.25, 1.15]])
for i, j in np.argwhere(np.triu(A)):
    left.plot(*place[[i, j]].T, color=figures.BLACK, zorder=1)
left.scatter(*place.T, s=260, color=figures.BLUE, zorder=2)
for i, (px, py) in enumerate(place):
    left.text(px, py, str(i), color="white", ha="center", va="center")
left.set(xlim=(-0.3, 2.8), ylim=(-0.3, 1.45), xticks=[], yticks=[], title="the graph")
left.spines[["left", "bottom"]].set_visible(False)
both_weights = {"convolution": array(uniform), "attention": of_graph}
for panel, (title, matrix) in zip((middle, right), both_weights.items(), strict=True):
    shade = panel.imshow(np.where(loops, matrix, np.nan), cmap="Blues", vmin=0, vmax=1)
    panel.set(xticks=range(7), yticks=range(7), xlabel="from node", ylabel="to node", title=title)
    panel.set_facecolor("0.85")
figure.colorbar(shade, ax=[middle, right], label="weight (gray: masked)")
figures.show(figure, "12_graph")

# %% [markdown]
# A graph has no first node: renumbered, each node gets what it got before. The same holds for a
# Transformer without positions, and not for a convolution, which distinguishes left from right.

# %%
order = rng.permutation(7)
renumbered = messages(leaky[np.ix_(order, order)], h[order], loops[np.ix_(order, order)])
np.testing.assert_allclose(renumbered, messages(leaky, h, loops)[order], atol=1e-12)
shuffled = array(content(x[:, ::-1], x[:, ::-1]))[0, ::-1]
mirrored = array(convolution(x[:, ::-1]))[0, ::-1]
print(f"read backwards: attention moves by {np.abs(shuffled - before).max():.0e},", end=" ")
print(f"the convolution by {np.abs(mirrored - convolved[0]).max():.1f}")
assert np.abs(shuffled - before).max() < 1e-5 and np.abs(mirrored - convolved[0]).max() > 0.1

# %% [markdown]
# ## Trained: what are the mask and the weights for?
#
# 2,500 random graphs of eight nodes, a fifth of them for validation; each node has a key and a
# value, and must return the value of that neighbor (or itself) whose key is largest. Three models,
# the same except for one thing: the queries of one stay at zero, so its weights are uniform;
# another does not get the mask.

# %%
graphs = rng.random((2500, 8, 8)) < 0.3
graphs = graphs | graphs.swapaxes(1, 2) | np.eye(8, dtype=bool)
features = np.stack([rng.uniform(-1, 1, (2500, 8)), rng.normal(size=(2500, 8))], axis=-1)
largest = np.where(graphs, features[:, None, :, 0], -np.inf).argmax(axis=-1)
labels = np.take_along_axis(features[..., 1], largest, axis=1)[..., None]
features, labels = features.astype("float32"), labels.astype("float32")


# %% [markdown]
# One function trains all three; a switch holds the queries at zero, another leaves out the mask.


# %%
def trained(uniform=False, masked=True):
    keras.utils.set_random_seed(1)
    x, mask = keras.Input((8, 2)), keras.Input((8, 8), dtype="bool")
    h, layer = keras.layers.Dense(16)(x), kt.MultiHeadAttention(num_heads=1)
    output = keras.layers.Dense(1)(layer(h, h, attention_mask=mask if masked else None))
    if uniform:
        layer.query.trainable = False
        layer.query.set_weights([np.zeros((16, 16)), np.zeros(16)])
    model = keras.Model([x, mask], output)
    model.compile(keras.optimizers.Adam(0.01), "mse")
    given = [features, graphs]
    history = model.fit(given, labels, batch_size=50, epochs=12, validation_split=0.2, verbose=0)
    return np.array(history.history["val_loss"]) / labels[2000:].var()


curves = {
    "graph convolution: mask, uniform weights": trained(uniform=True),
    "attention to all: no mask": trained(masked=False),
    "graph attention: mask and weights": trained(),
}
for name, curve in curves.items():
    print(f"{name}: {curve[-1]:.2f} of the variance left")
uniform_only, unmasked, both = (curve[-1] for curve in curves.values())
assert both < 0.2 < 0.4 < min(uniform_only, unmasked)

# %%
# extra code – learning curves
figure, panel = figures.panels(1, width=5.5)
for (name, curve), color, line in zip(
    curves.items(), (figures.GREEN, figures.ORANGE, figures.BLUE), ("--", ":", "-"), strict=True
):
    panel.plot(range(1, len(curve) + 1), curve, line, color=color, label=name)
panel.set(xlabel="epoch", ylabel="validation error / variance", ylim=(0, 1.25))
panel.legend()
figures.show(figure, "12_learning")

# %% [markdown]
# Only the one with both learns it: the mask shows what is a neighbor, the weights choose one.
#
# ## Exercises
#
# 1. Which line makes `kt.MultiHeadAttention` a dilated convolution (`dilation_rate=2`)?
# 2. Show that in the graph attention above all nodes of a full graph put the nodes in the same
#    order, and that with dot products they do not (Brody et al. 2022).
# 3. How many graph convolutions does a message need from one end of the line to the other?
#
# ## Answers
#
# 1. The offsets, and two zeros at each end:

# %%
dilated = keras.layers.Conv1D(d_model, 3, padding="same", dilation_rate=2)
dilated.build(x.shape)
dilated.set_weights([kernel, bias])
positions = array(kt.sinusoids(length + 4, d_model))
wide = np.pad(x, ((0, 0), (2, 2), (0, 0)))
output, _ = as_convolution(1000, positions[2:-2], positions, wide, offsets=(-2, 0, 2))
np.testing.assert_allclose(output, array(dilated(x))[0], atol=1e-5)

# %% [markdown]
# 2. In row i the score is LeakyReLU of (a number of i) + (a number of j), and LeakyReLU is
#    increasing: all rows have the order of the second number.

# %%
for name, scores in (("graph attention", leaky), ("dot product", q @ k.T)):
    orders = {tuple(row) for row in np.argsort(scores, axis=1)}
    print(f"{name}: {len(orders)} orders for 7 nodes")
    assert (len(orders) == 1) == (name == "graph attention")

# %% [markdown]
# 3. One layer reaches as far as $\tilde{A}$, k layers as far as $\tilde{A}^k$:

# %%
layers = next(k for k in range(1, 20) if np.linalg.matrix_power(chain.astype(int), k)[0, -1])
print(f"{layers} layers for {length} tokens; attention without a mask: 1")
assert layers == length - 1

# %%
# extra code – the numbers of the gallery
figures.record(offset_heads=len(offsets))
# As asserted above:
figures.record(as_convolution_below=1e-5, both_below=0.2, alone_above=0.4)

# %% [markdown]
# ## In short
#
# - A convolution is one head per offset with weights fixed by position; its kernel is $W^V W^O$.
# - A graph convolution is attention with uniform weights under the adjacency matrix as mask.
# - The Transformer is a graph network on the full graph whose weights depend on content; mask and
#   weights do different work, and a task may need both.
#
# **Next**: [chapter 13](13_small_data.py) asks which of these networks learns from few examples.
