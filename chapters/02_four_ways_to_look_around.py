# %% [markdown]
# # 2 · Four ways to look around
#
# **How far is it from one word of a sentence to another: through a recurrent layer, a convolution,
# a fully connected layer, and attention?** Let's see which words reach which, count the steps on
# the way, train all four on a task in which only the distance matters, and measure the time. Run
# time: about 35 s.
#
# *In plain words:* news can travel from person to person, in small groups, or by a shout to
# everyone. A recurrent layer is the first, a convolution the second, attention the third. The more
# hands it passes through, the longer it takes and the less arrives.
#
# *Paper: section 4 and Table 1. Géron: chapter 15, "Handling Long Sequences", and chapter 16,
# "Bidirectional RNNs". Articles: 000, 002 and 004.*

# %%
import time

import keras
import numpy as np
from keras import layers

import figures
import keras_transformer as kt

keras.utils.set_random_seed(2)
rng = np.random.default_rng(2)

# %% [markdown]
# ## One after the other
#
# A recurrent layer keeps a state and changes it word by word, $h_t = \tanh(x_t W + h_{t-1} U + b)$:
# from the present input and the step before. A bidirectional layer is two of them, the second of
# which reads from the end.


# %%
def recurrent(x, W, U, b):
    h, states = np.zeros(len(b)), []
    for x_t in x:  # each step waits for the one before
        h = np.tanh(x_t @ W + h @ U + b)
        states.append(h)
    return np.stack(states)


def bidirectional(x, W, U, b, *backward_weights):
    backward = recurrent(x[::-1], *backward_weights)[::-1]
    return np.concatenate([recurrent(x, W, U, b), backward], axis=-1)


# %% [markdown]
# ## Who sees whom
#
# Here are both as Keras layers, next to four others. Each maps N vectors to N vectors; that much is
# true of a sentence that one often reads: self-attention fits wherever a recurrent layer does
# (article 002, which also says what is then missing, the order of the words; chapter 5 adds it). To
# find out who sees whom, we nudge one input after the other and see which outputs move.

# %%
N, D, WIDTH = 12, 16, 5  # words, numbers per word, words that one convolution sees
x_in = keras.Input((N, D))
both_ways = layers.Bidirectional(layers.SimpleRNN(D, return_sequences=True))
convolution, *two = (layers.Conv1D(D, WIDTH, padding="same") for _ in range(3))
outputs = {
    "recurrent": layers.SimpleRNN(D, return_sequences=True)(x_in),
    "bidirectional": both_ways(x_in),
    "convolution": convolution(x_in),
    "two convolutions": two[1](two[0](x_in)),
    "fully connected": layers.Reshape((N, D))(layers.Dense(N * D)(layers.Flatten()(x_in))),
    "self-attention": kt.MultiHeadAttention(num_heads=2)(x_in, x_in),
}
x = rng.normal(size=(N, D)).astype("float32")
sentences = np.repeat(x[None], N + 1, axis=0)  # the last copy is unchanged
for i, nudge in enumerate(rng.normal(size=(N, D)) / np.sqrt(D)):
    sentences[i, i] += nudge  # in copy i, word i
moved = keras.Model(x_in, outputs).predict(sentences, batch_size=N + 1, verbose=0)
error = np.abs(bidirectional(x, *both_ways.get_weights()) - moved["bidirectional"][N]).max()
print(f"our two loops and keras.layers.Bidirectional differ by {error:.0e}")
assert error < 1e-5

# %% [markdown]
# How far did each output move when each input was nudged? And who should see whom?

# %%
influence = {
    name: np.linalg.norm(moved[name][:N] - moved[name][N], axis=-1).T  # [output, input]
    for name in outputs
}
position = np.arange(N)
gap = np.abs(position[:, None] - position)
all_pairs = np.ones((N, N), bool)
expected = {
    "recurrent": np.tril(all_pairs),
    "bidirectional": all_pairs,
    "convolution": gap <= 2,
    "two convolutions": gap <= 4,
    "fully connected": all_pairs,
    "self-attention": all_pairs,
}
for name, matrix in influence.items():
    sees = matrix > 1e-5
    print(f"{name:18} word 1 sees {sees[0].sum():2}, word 12 sees {sees[-1].sum():2} of {N} words")
    np.testing.assert_array_equal(sees, expected[name])

# %%
# extra code – influence as six pictures
figure, panels = figures.panels(3, 2, width=2.6, height=2.4)
for panel, (name, matrix) in zip(panels.flat, influence.items(), strict=True):
    shown = np.ma.masked_where(matrix < 1e-5, matrix)
    image = panel.imshow(shown, norm="log", cmap="Blues", vmin=1e-3, vmax=1)
    panel.set_title(name, fontsize=10)
    panel.set(xticks=[0, 5, 11], xticklabels=[1, 6, 12], yticks=[0, 5, 11], yticklabels=[1, 6, 12])
for panel in panels[-1]:
    panel.set_xlabel("input (word)")
for panel in panels[:, 0]:
    panel.set_ylabel("output (word)")
figure.colorbar(image, ax=panels, label="change of the output (white: none at all)")
figures.show(figure, "02_influence")

# %% [markdown]
# One often reads that a convolution is local, a fully connected layer and attention are global, and
# a recurrent layer has the present and everything before (article 004). We may add that the
# recurrent layer is limited only because it reads one way, the convolution only because it has few
# layers. And "global" is not the whole story. How strongly does the first word still move the last?

# %%
for name in ("recurrent", "fully connected", "self-attention"):
    near, far = influence[name][-1, -2], influence[name][-1, 0]
    print(
        f"{name:16} last output: moved {near:.3f} by the word before, {far:.3f} by the first word"
    )
fades = influence["recurrent"][-1, 0] / influence["recurrent"][-1, -2]
assert fades < 0.2

# %% [markdown]
# In the recurrent layer the first word has to pass through every state on the way, and fades. The
# fully connected layer has another weakness: its weights belong to places, so it takes sentences of
# one length only, where the others take any. Let's compare it with a convolution:

# %%
refused = []
for name, layer in {"convolution": convolution, "fully connected": layers.Dense(N * D)}.items():
    for n in (N, N + 1):
        words = keras.Input((n, D))
        try:
            layer(layers.Flatten()(words) if name == "fully connected" else words)
        except ValueError:
            refused.append((name, n))
print("refused:", refused)
assert refused == [("fully connected", N + 1)]

# %% [markdown]
# ## Count the steps
#
# Table 1 of the paper compares layers by three numbers. The first, the arithmetic, comes under
# *Time*; the others are the operations that must wait for one another, and the longest path that a
# signal takes between two words. Let's write each layer down as a graph, every vector with the
# vectors that it is computed from, and count both.


# %%
def recurrent_graph(n):
    return {(1, t): [(0, t)] + [(1, t - 1)] * (t > 0) for t in range(n)}


def convolution_graph(n, dilations):
    """Nodes are (layer, position); layer 0 is the input."""
    graph = {}
    for layer, dilation in enumerate(dilations, 1):
        for t in range(n):
            sees = [t + dilation * offset for offset in range(-(WIDTH // 2), WIDTH // 2 + 1)]
            graph[layer, t] = [(layer - 1, s) for s in sees if 0 <= s < n]
    return graph


def attention_graph(n):
    return {(1, t): [(0, s) for s in range(n)] for t in range(n)}


# %% [markdown]
# In such a graph, the number of steps that must wait for one another is the length of the longest
# way from any input; a path length is that of the shortest way from one input.


# %%
def count_dependent_steps(graph):
    steps = {}
    for node, sources in graph.items():  # sources come first
        steps[node] = 1 + max(steps.get(source, 0) for source in sources)
    return max(steps.values())


def path_lengths(graph, n):
    """[i, j]: the fewest steps from input j to output i; infinite if there is no way."""
    lengths = {(0, t): np.where(np.arange(n) == t, 0, np.inf) for t in range(n)}
    for node, sources in graph.items():
        lengths[node] = 1 + np.min([lengths[source] for source in sources], axis=0)
    return np.stack([lengths[max(graph)[0], t] for t in range(n)])


for name, graph in {
    "recurrent": recurrent_graph(N),
    "convolution": convolution_graph(N, [1]),
    "two convolutions": convolution_graph(N, [1, 1]),
    "self-attention": attention_graph(N),
}.items():
    np.testing.assert_array_equal(np.isfinite(path_lengths(graph, N)), expected[name])
print("The graphs connect what the layers connect.")

# %% [markdown]
# One convolution does not see everything; it takes many, one on top of the other. So we add layers
# until each word sees each other word: with neighboring inputs, and with gaps that grow threefold
# from layer to layer (dilated convolutions; with fivefold gaps some pairs could only meet beyond
# the ends of the sentence):


# %%
def stack_until_all_seen(n, growth):
    dilations = [1]
    while np.isinf(path_lengths(convolution_graph(n, dilations), n)).any():
        dilations.append(dilations[-1] * growth)
    return convolution_graph(n, dilations)


# %% [markdown]
# Now both numbers for sentences of up to 64 words:

# %%
lengths = [4, 8, 16, 32, 64]
longest = {"recurrent": [], "convolutions": [], "dilated": [], "attention": []}
print("words   dependent steps / longest path:", *(f"{name:>14}" for name in longest))
for n in lengths:
    graphs = {
        "recurrent": recurrent_graph(n),
        "convolutions": stack_until_all_seen(n, 1),
        "dilated": stack_until_all_seen(n, WIDTH // 2 + 1),
        "attention": attention_graph(n),
    }
    row = []
    for name, graph in graphs.items():
        paths = path_lengths(graph, n)
        longest[name].append(int(paths[np.isfinite(paths)].max()))
        row.append(f"{count_dependent_steps(graph)} / {longest[name][-1]}")
        assert count_dependent_steps(graph) == longest[name][-1]
    print(f"{n:5}", " " * 33, *(f"{cell:>14}" for cell in row))
assert longest["recurrent"] == lengths
assert longest["convolutions"] == [-(-(n - 1) // 2) for n in lengths]
assert longest["dilated"] == [int(np.ceil(np.log(n) / np.log(3))) for n in lengths]
assert longest["attention"] == [1] * len(lengths)

# %% [markdown]
# Here is the paper's Table 1 (O(n / k) is in the text of its section 4), with $n$ words and kernels
# of width $k$, and our count next to it. O leaves out constant factors: a kernel of width 5 reaches
# 2 places to either side, so 63 places take 32 layers; and our gaps grow threefold, so they take 4
# dilated ones.
#
# | layer | sequential operations | longest path | counted, 64 words |
# |---|---|---|---|
# | self-attention | O(1) | O(1) | 1 |
# | recurrent | O(n) | O(n) | 64 |
# | convolutions, dilated | O(1) | O(log_k n) | 4 |
# | convolutions, not dilated | O(1) | O(n / k) | 32 |
#
# The table's O(1) for a convolution is one layer, which does not see everything; a stack that does
# waits once per layer. (In the fully connected layer each output has each input: its graph is that
# of attention.)

# %% [markdown]
# ## A task of distance alone
#
# Now let's train them. A sentence has 33 characters: a question mark, and 16 letters on each side
# of it. One letter is a capital; at the question mark the network must say which. The only
# difficulty is how far away the capital stands:

# %%
LETTERS, SIDE = "abcdefgh", 16
VOCABULARY = "?" + LETTERS + LETTERS.upper()
offsets = np.array([*range(-SIDE, 0), *range(1, SIDE + 1)])


def examples(number):
    """Each offset equally often, in turn."""
    ids = rng.integers(1, len(LETTERS) + 1, (number, 2 * SIDE + 1))
    ids[:, SIDE] = 0
    capital = np.arange(number), SIDE + np.resize(offsets, number)
    answers = ids[capital] - 1
    ids[capital] += len(LETTERS)
    return ids.astype("int32"), answers.astype("int32")


train_ids, train_answers = examples(48 * len(offsets))
test_ids, test_answers = examples(50 * len(offsets))
for ids, answer in zip(train_ids[:40:13], train_answers[:40:13], strict=True):
    print("".join(VOCABULARY[n] for n in ids), "->", LETTERS[answer])

# %% [markdown]
# As in chapter 1, one model contains them all, and they share nothing but the input. (With one
# exception: a bidirectional layer's first half *is* a recurrent layer, so we read it off there.)
# The cell of the recurrent layer is a GRU (gated recurrent unit; Géron, chapter 15), which forgets
# less than the plain one above.

# %%
sentence = keras.Input((2 * SIDE + 1,), dtype="int32")


def embed():
    start = keras.initializers.RandomNormal(stddev=0.2)
    return layers.Embedding(len(VOCABULARY), 32, start)(sentence)


h = layers.Bidirectional(layers.GRU(32, return_sequences=True))(embed())
at_question = {"recurrent": h[:, SIDE, :32], "bidirectional": h[:, SIDE]}
h = layers.Conv1D(32, WIDTH, padding="same", activation="relu")(embed())
h = layers.Conv1D(32, WIDTH, padding="same", activation="relu")(h)
at_question["two convolutions"] = h[:, SIDE]
at_question["fully connected"] = layers.Dense(128, activation="relu")(layers.Flatten()(embed()))
h = kt.EncoderBlock(num_heads=1, d_ff=64)(kt.PositionalEncoding()(embed()))
at_question["self-attention"] = h[:, SIDE]

# %% [markdown]
# On each of these vectors stands one linear layer, which names the letter:

# %%
names = list(at_question)
model = keras.Model(sentence, [layers.Dense(len(LETTERS))(h) for h in at_question.values()])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(4e-3), [loss] * len(names))


def accuracy(ids, answers):
    """The accuracy of each network at each offset."""
    logits = model.predict(ids, batch_size=len(offsets) * 25, verbose=0)
    right = [(of_network.argmax(axis=-1) == answers) for of_network in logits]
    return {
        name: r.reshape(-1, len(offsets)).mean(axis=0) for name, r in zip(names, right, strict=True)
    }


epochs = []
for epoch in range(7):
    model.fit(train_ids, [train_answers] * len(names), batch_size=64, verbose=0)
    epochs.append(accuracy(test_ids, test_answers))
    means = (f"{name} {epochs[-1][name].mean():.2f}" for name in names)
    print(f"epoch {epoch + 1}:", ", ".join(means))

# %%
final = epochs[-1]
sees = {name: np.ones(len(offsets), bool) for name in names}
sees["recurrent"] = offsets < 0
sees["two convolutions"] = np.abs(offsets) <= 4
for name in names:
    inside, outside = final[name][sees[name]], final[name][~sees[name]]
    there = f", elsewhere {outside.mean():4.0%}" if outside.size else ""
    print(f"{name:16} right where it sees {inside.mean():4.0%}" + there)
    assert not outside.size or outside.mean() < 0.2  # a guess is right once in eight times
assert final["self-attention"].min() > 0.9 and final["bidirectional"].mean() > 0.85
assert final["recurrent"][offsets < 0].mean() > 0.85
assert final["two convolutions"][np.abs(offsets) <= 4].mean() > 0.6
of_training = accuracy(train_ids, train_answers)["fully connected"].mean()
print(f"fully connected: {of_training:.0%} of the sentences it was trained on")
assert of_training > 0.95 and 0.3 < final["fully connected"].mean() < 0.75

# %%
# extra code – who finds the capital, at which offset
figure, panel = figures.panels(width=7, height=3.2)
image = panel.imshow(
    100 * np.array([np.insert(final[name], SIDE, np.nan) for name in names]),
    cmap="Blues",
    vmin=0,
    vmax=100,
    aspect="auto",
)
panel.set(yticks=range(len(names)), yticklabels=names, xlabel="offset of the capital (letters)")
panel.set(xticks=range(0, 2 * SIDE + 1, 4), xticklabels=range(-SIDE, SIDE + 1, 4))
bar = figure.colorbar(image, label="accuracy (%)", ticks=[0, 12.5, 25, 50, 75, 100])
bar.set_ticklabels(["0", "chance", "25", "50", "75", "100"])
figures.show(figure, "02_who_finds_it")

# %% [markdown]
# Each layer learns what it can see, and nothing else. One surprise: the fully connected network
# sees everything and knows its training sentences by heart, and is right on less than 75 % of
# others. It has to learn the eight letters again at each of 32 places, where the others have one
# set of weights for all. (This is called overfitting; chapter 13 goes into it.)
#
# And what about the length of the path? Let's look at the epochs on the way.

# %%
near, far = (offsets < 0) & (offsets >= -4), offsets <= -9
lead = {}
for name in ("recurrent", "self-attention"):
    lead[name] = sum(epoch[name][near].mean() - epoch[name][far].mean() for epoch in epochs)
    for what, where in (("1 to 4", near), ("9 to 16", far)):
        shares = " ".join(f"{epoch[name][where].mean():4.0%}" for epoch in epochs)
        print(f"{name:14} {what:>7} letters back, by epoch: {shares}")
assert lead["recurrent"] > 0.3 and lead["recurrent"] > lead["self-attention"] + 0.2

# %%
# extra code – epochs against distance
figure, panels = figures.panels(2, width=3.6, height=2.6)
for panel, name in zip(panels, ("recurrent", "self-attention"), strict=True):
    shares = 100 * np.array([epoch[name][:SIDE][::-1] for epoch in epochs])
    image = panel.imshow(shares, cmap="Blues", vmin=0, vmax=100, aspect="auto")
    panel.set_title(name, fontsize=10)
    panel.set(yticks=range(7), yticklabels=range(1, 8), xlabel="distance back (letters)")
    panel.set(xticks=range(0, SIDE, 3), xticklabels=range(1, SIDE + 1, 3))
panels[0].set_ylabel("epoch")
figure.colorbar(image, ax=panels, label="accuracy (%)")
figures.show(figure, "02_near_first")

# %% [markdown]
# The recurrent network learns from near to far: what is far away sends its signal through every
# state in between. For attention all distances are one step, and it learns them together.
#
# ## Time
#
# No machine can do dependent steps at the same time. We can count multiplications, from the
# weights, and measure the time: what a layer does in one large product runs faster than the same
# amount in many small ones, even on a single core.

# %%
D_TIME, timed = 64, {"recurrent": [], "attention": []}
words = keras.Input((None, D_TIME))
gru, attention = layers.GRU(D_TIME, return_sequences=True), kt.MultiHeadAttention(num_heads=1)
models = {
    "recurrent": keras.Model(words, gru(words)),
    "attention": keras.Model(words, attention(words, words)),
}
# the matrices with one row per input; the biases of a GRU are also a matrix
products = {
    name: sum(w.size for w in m.get_weights() if w.shape[0] == D_TIME and w.ndim == 2)
    for name, m in models.items()
}
assert products == {"recurrent": 6 * D_TIME**2, "attention": 4 * D_TIME**2}  # per word

# %% [markdown]
# Now the clock, for eight sentences at once:

# %%
times_at, rates = [16, 64, 256], {}
for n in times_at:
    batch = np.ones((8, n, D_TIME), "float32")
    for name, layer in models.items():
        layer.predict_on_batch(batch)  # the first call compiles
        seconds = []
        for _ in range(5):
            start = time.perf_counter()
            layer.predict_on_batch(batch)
            seconds.append(time.perf_counter() - start)
        pairs = 2 * n * D_TIME if name == "attention" else 0  # scores, and the mean of values
        rates[name] = 8 * n * (products[name] + pairs) / min(seconds) / 1e9
        timed[name].append(1e3 * min(seconds))
        print(f"{n:4} words, {name:9}: {timed[name][-1]:6.1f} ms,", end=" ")
        print(f"{rates[name]:5.2f} billion products/s")
ratio = rates["attention"] / rates["recurrent"]
print(f"at {n} words attention does {ratio:.1f} times as many products per second")

# %%
# extra code – time against length
figure, panel = figures.panels(width=4.2, height=2.6)
for name, style, color in (
    ("recurrent", "o-", figures.ORANGE),
    ("attention", "s--", figures.BLUE),
):
    panel.plot(times_at, timed[name], style, color=color, label=name)
panel.set(
    xscale="log", xlabel="words in a sentence", ylabel="time (ms), 8 sentences", ylim=(0, None)
)
panel.set_xticks(times_at, times_at)
panel.minorticks_off()
panel.legend()
figures.show(figure, "02_time")

# %% [markdown]
# The last line says how much less the recurrent layer gets out of the same machine. Yet attention
# pays for its short paths with $n \times n$ scores: there comes a length at which it has more to
# compute.
#
# ## Exercises
#
# 1. At which length do both layers take the same number of multiplications?
# 2. A *causal* convolution of width 2 sees its place and one before; stack them with gaps 1, 2, 4,
#    8 and so on. How many layers does the last of 1,000 words need to see the first?
# 3. Take the positions away from the attention that looks for the capital. Does it still find it?
#
# ## Answers
#
# 1\. Per word $6d^2$ against $4d^2 + 2nd$: at $n = d$, where the paper's section 4 also has
# them meet. Below, attention is the cheaper one.

# %%
per_word = {n: products["attention"] + 2 * n * D_TIME for n in (D_TIME - 1, D_TIME, D_TIME + 1)}
print(per_word, "beside", products["recurrent"])
assert per_word[D_TIME - 1] < products["recurrent"] == per_word[D_TIME] < per_word[D_TIME + 1]

# %% [markdown]
# 2\. Ten: each layer doubles what is seen, and $2^{10} \geq 1000$.

# %%
seen, num_layers = {999}, 0
while 0 not in seen:
    seen |= {max(t - 2**num_layers, 0) for t in seen}
    num_layers += 1
print(num_layers, "layers")
assert num_layers == int(np.ceil(np.log2(1000))) == 10

# %% [markdown]
# 3\. It does: a capital is known by what it is, not by where it stands. Distance is not an obstacle
# to attention, and position is not even information here. (Chapter 1 has a task in which the
# neighbors matter; there it is right three times in four at best, as exercise 2 counts.)

# %%
h = kt.EncoderBlock(num_heads=1, d_ff=64)(embed())
unordered = keras.Model(sentence, layers.Dense(len(LETTERS))(h[:, SIDE]))
unordered.compile(keras.optimizers.Adam(4e-3), loss)
unordered.fit(train_ids, train_answers, batch_size=64, epochs=7, verbose=0)
answers = unordered.predict(test_ids, batch_size=len(offsets) * 25, verbose=0).argmax(axis=-1)
print(f"without positions {(answers == test_answers).mean():.0%} are right")
assert (answers == test_answers).mean() > 0.9


# %% [markdown]
# Attention alone does not know any order: read a sentence backwards, and the outputs also come
# backwards, each of them the same.

# %%
alone, forwards = kt.MultiHeadAttention(num_heads=2), rng.normal(size=(1, N, D)).astype("float32")
outputs = [keras.ops.convert_to_numpy(alone(x, x))[0] for x in (forwards, forwards[:, ::-1])]
of_order = np.abs(outputs[0][::-1] - outputs[1]).max()
print(f"forwards and backwards, the {N} outputs differ by {of_order:.0e}")
assert of_order < 1e-5

# %%
# extra code – the numbers of the gallery
figures.record(recurrent=longest["recurrent"][-1], convolutions=longest["convolutions"][-1])
figures.record(attention=longest["attention"][-1])
figures.record(of_order_below=1e-5, by_heart_above=0.95, others_below=0.75)  # as asserted above

# %% [markdown]
# ## In short
#
# - Between the ends of a sentence lie as many steps as it has words (recurrent), a fraction of them
#   (convolutions), or one (attention).
# - What is many steps away is learned late, or never; attention learns all distances together.
# - Short paths have a price: attention compares all pairs.
#
# **Next**: how does a word choose among all the others? [Chapter
# 3](03_scaled_dot_product_attention.py) builds the attention that was a black box until now.
