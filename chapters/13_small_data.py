# %% [markdown]
# # 13 · Small data: overfitting, weight decay, weight sharing
#
# **Which of MLP, CNN and Transformer learns from few examples, and what do weight decay and weight
# sharing do about overfitting?** Let's make two tasks that differ in how far apart the words stand
# that decide, and train three networks of one size on 50 to 800 examples of each. Then we take the
# sharing out of the convolution, and help the MLP. Run time: about 50 s.
#
# *In plain words:* a network with few examples falls back on what its shape assumes. If the shape
# is right (neighbors mean the same everywhere), a handful of examples is enough; if it is wrong, it
# takes many, or no number is enough. Weight decay and shared weights are two more ways to say what
# we expect.
#
# *Paper: sections 3.4 (shared embeddings) and 5.4 (regularization). Géron: chapter 11, "Avoiding
# Overfitting Through Regularization", beside chapter 16. Article: 004, its last section.*

# %%
import itertools

import keras
import numpy as np
from keras import layers, ops

import figures
import keras_transformer as kt

keras.utils.set_random_seed(13)
rng = np.random.default_rng(13)

# %% [markdown]
# ## Two tasks of one size
#
# Sentences of 12 words, a vocabulary of 16, three classes. *Near*: A, B and C stand side by side,
# anywhere, and the class is their order: ABC, BCA or CAB. *Far*: the first word asks for a color;
# in the second half there is one item of each of three colors, each in a shape of its own, and the
# class is the shape of the item asked for. In *far* no single word says anything about the class;
# in *near* the position of a letter says a little, at the two ends.

# %%
LENGTH, VOCABULARY, CLASSES = 12, 16, 3
words = {
    "near": list("ABCdefghijklmnop"),
    "far": [color + shape for color in "rgb" for shape in "123"] + ["r?", "g?", "b?", *"...."],
}


def near(number):
    ids, labels = rng.integers(3, 16, (number, LENGTH)), rng.integers(CLASSES, size=number)
    start = rng.integers(LENGTH - 2, size=number)
    for offset in range(3):
        ids[np.arange(number), start + offset] = (labels + offset) % 3
    return ids, labels


def far(number):
    ids, asked = rng.integers(12, 16, (number, LENGTH)), rng.integers(3, size=number)
    shapes = rng.permuted(np.tile(np.arange(3), (number, 1)), axis=1)  # of r, g and b
    places = rng.permuted(np.tile(np.arange(6, LENGTH), (number, 1)), axis=1)[:, :3]
    np.put_along_axis(ids, places, 3 * np.arange(3) + shapes, axis=1)
    ids[:, 0] = 9 + asked
    return ids, shapes[np.arange(number), asked]


tasks = {"near": near, "far": far}
draws = [{name: task(800) for name, task in tasks.items()} for _ in range(3)]
test = {name: task(1000) for name, task in tasks.items()}
for name, (ids, labels) in draws[0].items():
    print(f"{name:5}", *(f"{words[name][i]:2}" for i in ids[0]), " class", labels[0])

# %% [markdown]
# ## Three networks of one size
#
# The MLP has weights of its own for every place. The CNN looks through a window of three words,
# twice, and averages over places; the Transformer is one encoder block, with the same average. We
# keep the first weights of each, to start again from them.

# %%
BATCH, STEPS = 64, 13  # sentences per step, steps per epoch

# %%
# extra code – a model that is compiled, and can start again from its first weights
starts = {}
# The networks are so small that the Python around a step takes longer than the step.
AT_ONCE = 1 if keras.backend.backend() == "torch" else STEPS


def compiled(model, optimizer):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    accuracy = keras.metrics.SparseCategoricalAccuracy("accuracy")
    model.compile(optimizer, loss, metrics=[accuracy], steps_per_execution=AT_ONCE)
    model.optimizer.build(model.trainable_variables)
    variables = model.variables + model.optimizer.variables
    # Copies: on PyTorch the array would be the weight itself.
    starts[model] = [(v, np.array(ops.convert_to_numpy(v))) for v in variables]
    return model


def restart(model):
    for variable, value in starts[model]:
        variable.assign(value)


# %% [markdown]
# Each ends in a linear layer with one output per class. The MLP, which we need more than once:


# %%
def network(*body, optimizer=None):
    x = ids = keras.Input((LENGTH,), dtype="int32")
    for layer in [*body, layers.Dense(CLASSES)]:
        x = layer(x)
    return compiled(keras.Model(ids, x), optimizer or keras.optimizers.Adam(5e-3))


def mlp():
    body = [layers.Embedding(VOCABULARY, 32), layers.Flatten()]
    return [*body, layers.Dense(32, "relu"), layers.Dense(24, "relu")]


# %% [markdown]
# Their widths are chosen so that all three have nearly the same number of parameters:

# %%
networks = {
    "MLP": network(*mlp()),
    "CNN": network(
        layers.Embedding(VOCABULARY, 32),
        layers.Conv1D(48, 3, padding="same", activation="relu"),
        layers.Conv1D(56, 3, padding="same", activation="relu"),
        layers.GlobalAveragePooling1D(),
    ),
    "Transformer": network(
        kt.TokenEmbedding(VOCABULARY, 32),
        kt.PositionalEncoding(),
        kt.Encoder(num_layers=1, num_heads=4, d_ff=128, norm_first=True),
        layers.GlobalAveragePooling1D(),
    ),
}
sizes = {kind: model.count_params() for kind, model in networks.items()}
print(sizes)
assert max(sizes.values()) < 1.03 * min(sizes.values())

# %% [markdown]
# Each starts from its first weights and learns 50, 200 or 800 training examples, one after the
# other and again from the first, in epochs of 13 steps of 64 sentences, until an epoch passes
# without a mistake; 20 epochs are the most. Only then may we compare: a network that is still
# learning has not overfitted yet. It is tested on 1,000 sentences that it has never seen, and all
# of it is done for three draws of the training data.


# %%
class UntilNoMistake(keras.callbacks.Callback):
    """Ends the training after an epoch without a mistake."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = logs["accuracy"] == 1


def learn(model, ids, labels, epochs=20):
    """Returns the training accuracy in each epoch."""
    restart(model)
    in_turn = np.arange(STEPS * BATCH) % len(ids)
    options = dict(batch_size=BATCH, epochs=epochs, callbacks=[UntilNoMistake()], verbose=0)
    data = ids[in_turn], labels[in_turn]
    return model.fit(*data, steps_per_epoch=STEPS, **options).history["accuracy"]


def accuracies(model, draw, name, number):
    """On the first examples of the draw, and on the test set."""
    ids, labels = (np.concatenate(pair) for pair in zip(draw[name], test[name], strict=True))
    right = model.predict_on_batch(ids).argmax(axis=-1) == labels
    return right[:number].mean(), right[len(draw[name][1]) :].mean()


# %%
numbers = [50, 200, 800]
found = {}  # {(network, task): accuracies, (draw, number of examples, training or test)}
for kind, model in networks.items():
    for name in tasks:
        table = np.zeros((len(draws), len(numbers), 2))
        for of_draw, draw in zip(table, draws, strict=True):
            for i, n in enumerate(numbers):
                learn(model, *(array[:n] for array in draw[name]))
                of_draw[i] = accuracies(model, draw, name, n)
        found[kind, name] = table
        line = (
            f"{n}: {table[:, i, 0].min():.2f} / {table[:, i, 1].min():.2f}"
            f" to {table[:, i, 1].max():.2f}"
            for i, n in enumerate(numbers)
        )
        print(f"{name:5}{kind:12} least training / test accuracy at", ", ".join(line))

# %%
# extra code – test accuracy against the number of examples, the band of three draws
figure, panels = figures.panels(2, width=4.2)
styles = {
    "MLP": (figures.ORANGE, "o"),
    "CNN": (figures.BLUE, "s"),
    "Transformer": (figures.GREEN, "^"),
}
titles = {"near": "near: the order of three neighbors", "far": "far: a question and its answer"}
for panel, name in zip(panels, tasks, strict=True):
    for kind, (color, marker) in styles.items():
        of_test = found[kind, name][:, :, 1]
        panel.fill_between(numbers, of_test.min(0), of_test.max(0), color=color, alpha=0.2, lw=0)
        panel.plot(numbers, of_test.mean(0), marker + "-", color=color, label=kind)
    panel.axhline(1 / CLASSES, color="0.7", linewidth=0.8, zorder=0)
    panel.text(numbers[0], 0.27, "chance", color="0.4", va="top")
    panel.set(xscale="log", xlabel="training examples", ylim=(0.2, 1.05), title=titles[name])
    panel.set_xticks(numbers, numbers)
    panel.minorticks_off()
panels[0].set_ylabel("test accuracy")
handles, names = panels[0].get_legend_handles_labels()
figure.legend(handles, names, loc="outside upper center", ncols=3)
figures.show(figure, "13_small_data")

# %% [markdown]
# Every network learns its training examples by heart, except for the CNN in *far*, which is slow
# with 200 examples and has not learned 800 when its time is up. So what is missing in the picture
# is not training but generalization. One often reads that MLPs overfit and CNNs generalize better
# (article 004). In *near* that is so: the CNN needs 50 examples, the MLP 800. But the Transformer
# is no better there than the MLP, and in *far* the order is another: the Transformer needs 200
# examples, the MLP 800, and the CNN stays at chance with any number.

# %%
least = {key: table.min(axis=0) for key, table in found.items()}  # of the three draws
most = {key: table.max(axis=0) for key, table in found.items()}
for kind, name in found:
    learned = least[kind, name][:, 0]
    if (kind, name) == ("CNN", "far"):  # slow
        assert learned[1] > 0.8 > learned[2]
    else:
        assert learned.min() > 0.97
assert least["CNN", "near"][0, 1] > 0.85
for kind in ("MLP", "Transformer"):
    assert most[kind, "near"][0, 1] < 0.6 and least[kind, "near"][1, 1] < 0.9
    assert least[kind, "near"][2, 1] > 0.95
assert least["Transformer", "far"][1, 1] > 0.9 > 0.7 > most["MLP", "far"][1, 1]
assert least["MLP", "far"][2, 1] > 0.95 and most["CNN", "far"][:, 1].max() < 0.45

# %% [markdown]
# Why does the CNN fail? Two convolutions of width 3 see five words, and question and answer are at
# least six places apart: no window holds both. The average adds up what the windows contribute one
# by one, and neither the question nor the items alone say anything about the class. So the loss is
# lowest where all three classes get the same probability: chance.
#
# (The loss leads there, not the structure alone. A score that adds one number for the question and
# one for the items can be right more often than chance, if it is content to be badly wrong
# elsewhere. Let's draw such scores at random and keep the best of them:)

# %%
orders = np.array(list(itertools.permutations(range(3))))  # the shapes of r, g and b
right_class = orders.T  # (question, order of shapes)
of_question, of_items = rng.normal(size=(2, 20_000, 6, CLASSES))
totals = of_question[:, :3, None] + of_items[:, None]  # (draw, question, order, class)
share = (totals.argmax(axis=-1) == right_class).mean(axis=(1, 2))
print(f"sums drawn at random: the best of 20,000 is right in {share.max():.2f} of the 18 cases")
assert share.max() > 0.5

# %% [markdown]
# A network generalizes where what it assumes is true; the convolution assumes that a neighborhood
# means the same wherever it stands.
#
# ## The best of both?
#
# One reads that the two complement each other (互补), so that one fuses them and gets something
# better (article 004). Let's put a convolution in front of the Transformer's block, make the block
# smaller so that the size is the same, and give it 200 examples of each task.
#
# *Predict before you run:* does it now learn *near* as well as the CNN does, and *far* as well as
# the Transformer does?

# %%
fused = network(
    kt.TokenEmbedding(VOCABULARY, 32),
    layers.Conv1D(32, 3, padding="same", activation="relu"),
    kt.PositionalEncoding(),
    kt.Encoder(num_layers=1, num_heads=4, d_ff=80, norm_first=True),
    layers.GlobalAveragePooling1D(),
)
of_fused = {name: [] for name in tasks}
for name, draw in itertools.product(tasks, draws):
    learn(fused, *(array[:200] for array in draw[name]))
    of_fused[name].append(accuracies(fused, draw, name, 200))
for name, pairs in of_fused.items():
    of_training, of_test = np.transpose(pairs)
    alone = found["Transformer", name][:, 1, 1]
    print(f"{name:5} fused: test accuracy {of_test.min():.2f} to {of_test.max():.2f}", end=" ")
    print(f"(training {of_training.min():.2f}); Transformer alone {alone.min():.2f}", end=" ")
    print(f"to {alone.max():.2f}")
fused_near, fused_far = (np.array(of_fused[name])[:, 1] for name in ("near", "far"))
print(f"{fused.count_params():,} parameters")
assert fused_near.min() > 0.9 and fused_near.mean() > found["Transformer", "near"][:, 1, 1].mean()
assert fused_far.mean() < 0.75 < 0.9 < found["Transformer", "far"][:, 1, 1].min()

# %% [markdown]
# In *near*, yes: 200 examples do. In *far* it loses most of what the Transformer had: a likely
# reason is that each place now holds three words in one, and which of them is the item asked for,
# the block has to untangle. The convolution's assumption comes in with the convolution. (Large
# models combine the two with success where the assumption is true: in speech, Gulati et al. 2020,
# and in images, Dai et al. 2021.)
#
# ## Who learns by heart?
#
# 004 also says that the Transformer has the larger capacity. Let's take away all that could be
# understood: 400 sentences with labels drawn at random, the test of Zhang et al. (2017). A network
# that gets these right has learned them by heart: the field calls it *memorization*. We give each
# up to 100 epochs, and also look at the way there.

# %%
drawn_labels, by_heart = rng.integers(CLASSES, size=400), {}
steps_needed, at_100 = {}, {}
for kind, model in networks.items():
    by_heart[kind] = learn(model, draws[0]["near"][0][:400], drawn_labels, epochs=100)
    steps_needed[kind] = STEPS * (1 + int(np.argmax(np.array(by_heart[kind]) > 0.95)))
    at_100[kind] = by_heart[kind][:8][-1]
    print(
        f"{kind:12} {at_100[kind]:.2f} by step {8 * STEPS}; 0.95 after {steps_needed[kind]}; "
        f"at the end {by_heart[kind][-1]:.2f}"
    )
assert min(curve[-1] for curve in by_heart.values()) > 0.97
assert steps_needed["MLP"] < min(steps_needed["CNN"], steps_needed["Transformer"])

# %%
# extra code – share of the random labels learned, against steps
figure, panel = figures.panels(width=5.5)
for kind, (color, _) in styles.items():
    steps = STEPS * np.arange(1, 1 + len(by_heart[kind]))
    panel.plot(steps, by_heart[kind], color=color, label=kind)
panel.set(xlabel="training steps", ylabel="share of random labels right", ylim=(0.3, 1.02))
panel.legend()
figures.show(figure, "13_by_heart")

# %% [markdown]
# All three learn all of it, so this cannot rank their *capacity*: whoever stops after 100 steps has
# measured speed. The MLP learns by heart fastest. What the Transformer has shown more of, in *far*,
# is not memory: it relates words that stand apart.
#
# ## A convolution is a dense layer with shared weights
#
# Let's write the convolution of three words as a dense layer, from all places to all places:

# %%
conv = layers.Conv1D(2, 3, padding="same", use_bias=False)
x = rng.normal(size=(5, 8, 2)).astype("float32")
by_conv = ops.convert_to_numpy(conv(x))
kernel = ops.convert_to_numpy(conv.kernel)  # (offset, channel in, channel out)
dense = np.zeros((8, 2, 8, 2))  # (place in, channel in, place out, channel out)
for place in range(8):
    for offset in (-1, 0, 1):
        if 0 <= place + offset < 8:
            dense[place + offset, :, place] = kernel[offset + 1]
by_dense = x.reshape(5, 16) @ dense.reshape(16, 16)
np.testing.assert_allclose(by_dense.reshape(5, 8, 2), by_conv, atol=1e-5)
used = np.count_nonzero(dense)
print(f"{dense.size} weights, {used} of them not zero, {kernel.size} different")
assert len(np.unique(dense[dense != 0])) == kernel.size == 12

# %%
# extra code – the dense matrix of a convolution
figure, panel = figures.panels(width=3.6, height=3.2)
matrix = np.where(dense == 0, np.nan, dense).reshape(16, 16).T
limit = np.abs(kernel).max()
image = panel.imshow(matrix, cmap="PuOr", vmin=-limit, vmax=limit)
panel.set(xlabel="input: 8 places, 2 channels", ylabel="output: 8 places, 2 channels")
panel.set_xticks(np.arange(0, 17, 2) - 0.5, [""] * 9)
panel.set_yticks(np.arange(0, 17, 2) - 0.5, [""] * 9)
panel.grid(color="0.85", linewidth=0.6)
panel.spines[["top", "right"]].set_visible(True)
figure.colorbar(image, label="weight (white: zero)")
figures.show(figure, "13_shared")

# %% [markdown]
# The same little block, repeated: that is the sharing. But is it the sharing that generalizes, or
# is it the zeros, the narrow window? Let's keep the windows and give every place a kernel of its
# own: a *locally connected* layer.


# %%
class Windows(layers.Layer):
    """ReLU(W [x_(i-1), x_i, x_(i+1)] + b), with one W and b for all places, or one for each."""

    def __init__(self, filters, shared):
        super().__init__()
        self.filters, self.shared = filters, shared

    def build(self, shape):
        places, width = 1 if self.shared else shape[1], 3 * shape[2]
        glorot = keras.initializers.RandomNormal(stddev=(2 / (width + self.filters)) ** 0.5)
        self.kernel = self.add_weight((places, width, self.filters), glorot, name="kernel")
        self.bias = self.add_weight((places, 1, self.filters), "zeros", name="bias")

    def call(self, x):
        padded = ops.pad(x, ((0, 0), (1, 1), (0, 0)))
        windows = ops.concatenate([padded[:, :-2], x, padded[:, 2:]], axis=-1)
        windows = ops.transpose(windows, (1, 0, 2))  # (place, batch, width)
        output = ops.relu(ops.matmul(windows, self.kernel) + self.bias)
        return ops.transpose(output, (1, 0, 2))


# %% [markdown]
# With one kernel for all places it is the convolution above. With a kernel for each place it has
# the same windows, and twelve times the weights:

# %%
windows = Windows(2, shared=True)
windows.build(x.shape)
windows.kernel.assign(kernel.reshape(1, 6, 2))
np.testing.assert_allclose(ops.convert_to_numpy(windows(x)), np.maximum(by_conv, 0), atol=1e-5)

unshared = network(
    layers.Embedding(VOCABULARY, 32),
    Windows(48, shared=False),
    Windows(56, shared=False),
    layers.GlobalAveragePooling1D(),
)
of_unshared = []
for draw in draws:
    learn(unshared, *(array[:50] for array in draw["near"]))
    of_unshared.append(accuracies(unshared, draw, "near", 50))
of_training, of_test = np.transpose(of_unshared)
of_shared = found["CNN", "near"][:, 0, 1]
print(
    f"near, 50 examples: {sizes['CNN']:,} shared weights {of_shared.min():.2f} of the test set at "
    f"least, {unshared.count_params():,} unshared {of_test.max():.2f} at most (training "
    f"{of_training.min():.2f})"
)
assert of_training.min() > 0.95 and of_test.max() < of_shared.min() - 0.25

# %% [markdown]
# Windows alone do not help: what one place has learned, its neighbor has not. (Attention also
# shares: $W^Q$, $W^K$ and $W^V$ are the same at every place. But which places are neighbors, it has
# to learn from the positions.)
#
# ## Weight decay
#
# Weight decay shrinks every weight by a constant share each step, on top of the gradient step.
# Let's see it alone, on a batch whose examples weigh nothing:

# %%
decaying = keras.Sequential([keras.Input((4,)), layers.Dense(1)])
decaying.compile(keras.optimizers.AdamW(5e-3, weight_decay=2.0), "mse")
before, _ = decaying.get_weights()
decaying.fit(np.ones((8, 4)), np.ones(8), sample_weight=np.zeros(8), verbose=0)
after, _ = decaying.get_weights()
print("one step leaves of each weight", (after / before).ravel())
np.testing.assert_allclose(after, (1 - 5e-3 * 2.0) * before, rtol=1e-4)

# %% [markdown]
# The share is learning rate times `weight_decay`, 1 % per step here. Now the MLP on 200 examples of
# *near*, for 300 steps, on each of the three draws, with 600 more sentences for validation:

# %%
validation = near(600)
remedies = {
    "no remedy": networks["MLP"],
    "weight decay": network(*mlp(), optimizer=keras.optimizers.AdamW(5e-3, weight_decay=2.0)),
}
longer = dict(batch_size=BATCH, steps_per_epoch=30, epochs=10)
longer |= dict(validation_data=validation, validation_batch_size=600, validation_steps=1)


def fit_longer(model, draw, **options):
    """10 epochs of 30 steps; returns their history."""
    restart(model)
    ids, labels = (array[:200] for array in draw["near"])
    drawn = rng.integers(200, size=30 * BATCH)
    return model.fit(ids[drawn], labels[drawn], verbose=0, **longer, **options).history


curves, helped = {}, {}
for remedy, model in remedies.items():
    histories, tested = [], []
    for draw in draws:
        histories.append(fit_longer(model, draw))
        tested.append(accuracies(model, draw, "near", 200))
    curves[remedy] = {
        key: np.array([h[key] for h in histories]) for key in ("loss", "val_loss", "val_accuracy")
    }
    helped[remedy] = np.array(tested)

# %%
for remedy, tested in helped.items():
    of_validation = curves[remedy]["val_loss"]
    print(
        f"{remedy:12} training accuracy {tested[:, 0].min():.2f} at least, test "
        f"{tested[:, 1].min():.2f} to {tested[:, 1].max():.2f}; validation loss "
        f"{of_validation.min(axis=1).mean():.2f} at its lowest, {of_validation[:, -1].mean():.2f} "
        f"at the end; training loss {curves[remedy]['loss'][:, -1].max():.2f} at most"
    )
gain = (helped["weight decay"] - helped["no remedy"])[:, 1]
assert gain.min() > 0 and gain.mean() > 0.03
assert helped["weight decay"][:, 1].mean() < of_shared.mean() + 0.02
rise = curves["no remedy"]["val_loss"][:, -1] / curves["no remedy"]["val_loss"].min(axis=1)
print("without a remedy the validation loss ends above its lowest by a factor of", rise.round(2))
assert rise.max() > 1.1
of_training, of_validation = (curves["no remedy"][key][:, -1] for key in ("loss", "val_loss"))
assert (of_training < 0.4 * of_validation).all()

# %%
# extra code – training and validation loss, and accuracy, while training
figure, (left, right) = figures.panels(2)
steps = 30 * np.arange(1, 11)
looks = {"no remedy": figures.ORANGE, "weight decay": figures.BLUE}
for remedy, color in looks.items():
    for panel, key in ((left, "val_loss"), (right, "val_accuracy")):
        values = curves[remedy][key]
        panel.fill_between(steps, values.min(0), values.max(0), color=color, alpha=0.2, lw=0)
        panel.plot(steps, values.mean(0), color=color, label=f"{remedy}: validation", linewidth=2)
    of_training = curves[remedy]["loss"].mean(0)
    left.plot(steps, of_training, ":", color=color, label=f"{remedy}: training")
left.set(xlabel="training steps", ylabel="loss (nats)", ylim=(0, None))
right.set(xlabel="training steps", ylabel="validation accuracy", ylim=(0.3, 1.02))
left.legend()
figures.show(figure, "13_remedies")

# %% [markdown]
# With no remedy, the validation loss stops far above the training loss, which goes to 0, and in
# some draws it rises again: this is what overfitting looks like. Weight decay helps in each of the
# draws, as article 004 says, and does not make up for a wrong architecture: on average the CNN was
# as good or better with a quarter of the examples. (Chapter 18 tries it on real text, beside
# dropout and a shared embedding.)
#
# ## One matrix for reading and for writing
#
# The Transformer shares weights over places, and once more: the paper's section 3.4 uses one matrix
# as source embedding, target embedding and last linear layer. Chapter 9 counts what that saves.
# Does it also generalize? Let's copy sentences of six words. In training only words 1 to 100 occur,
# in the test only words 101 to 200: their rows in the matrix have never been read or written. One
# network gets both ways to write, the embedding's matrix and one of its own.

# %%
known, new = (rng.integers(low, low + 100, (64 * 60, 6)) for low in (1, 101))
ids = keras.Input((6,), dtype="int32")
embedding = kt.TokenEmbedding(201, 64)
x = kt.PositionalEncoding()(embedding(ids))
x = kt.Encoder(num_layers=1, num_heads=4, d_ff=64, norm_first=True)(x)
logits = {"tied": embedding(x, reverse=True), "untied": layers.Dense(201)(x)}
copier = keras.Model(ids, logits)
copier.compile(keras.optimizers.Adam(5e-3), {name: kt.TokenCrossEntropy() for name in logits})


def copied():
    """The shares of the known and of the new words that each way writes right."""
    shares = {}
    for kind, sentences in (("known", known[:200]), ("new", new[:200])):
        for name, output in copier.predict(sentences, batch_size=200, verbose=0).items():
            shares[name, kind] = (output.argmax(-1) == sentences).mean()
    return shares


# %%
before = copied()
copier.fit(known, dict.fromkeys(logits, known), batch_size=64, verbose=0)
after = copied()
for name in logits:
    words = (
        f"{kind} words {before[name, kind]:.0%}, then {after[name, kind]:.0%}"
        for kind in ("known", "new")
    )
    print(f"{name:6}:", *words, sep="  ")
assert min(after["tied", "known"], after["untied", "known"]) > 0.9
assert min(before["tied", "new"], after["tied", "new"]) > 0.5 and after["untied", "new"] < 0.05

# %% [markdown]
# With one matrix the network copies most words before it is trained: it is the echo of chapter 9.
# Training keeps this for the words that no example showed. With two matrices copying has to be
# learned word by word.
#
# ## Exercises
#
# 1. Stop the MLP early (`keras.callbacks.EarlyStopping`), at the lowest validation loss. How many
#    steps does that take, and what does it do to the test accuracy?
# 2. Sentences of 100 words instead of 12: how many parameters more does each network need?
# 3. Is $L_2$ regularization (the loss plus $\lambda \sum w^2$) the same as weight decay? Take one
#    step of each with Adam, on the batch whose examples weigh nothing.
#
# ## Answers
#
# 1\. Few in most draws (where the validation loss does not rise, it takes them all), and it brings
# back the weights of the lowest validation *loss*. The accuracy is on average no better for it,
# and mostly worse: beyond that point the MLP becomes surer, of right and of wrong, which costs
# loss, and still it continues to learn.

# %%
stopping = keras.callbacks.EarlyStopping(patience=2, restore_best_weights=True)
early, taken = [], []
for draw in draws:
    taken.append(30 * len(fit_longer(networks["MLP"], draw, callbacks=[stopping])["loss"]))
    early.append(accuracies(networks["MLP"], draw, "near", 200)[1])
early, late, stopped = np.array(early), helped["no remedy"][:, 1], np.array(taken) < 300
print(f"stopped after {taken} of 300 steps: test {early.round(2)}, {late.round(2)} without")
assert stopped.any() and early[stopped].mean() < late[stopped].mean() + 0.02
assert early.mean() < late.mean() + 0.02

# %% [markdown]
# 2\. The CNN and the Transformer none, since they share their weights over places. The MLP has
# $32 \times 32$ of its own for each of the 88 places more:

# %%
long_sentence = keras.Sequential(
    [keras.Input((100,), dtype="int32"), *mlp(), layers.Dense(CLASSES)]
)
print(f"MLP: {sizes['MLP']:,} for 12 words, {long_sentence.count_params():,} for 100")
assert long_sentence.count_params() == sizes["MLP"] + 88 * 32 * 32
for kind in ("CNN", "Transformer"):
    body = keras.Sequential([keras.Input((100,), dtype="int32"), *networks[kind].layers[1:]])
    assert body.count_params() == sizes[kind]

# %% [markdown]
# 3\. Not with Adam. It divides by the size of the gradient, so that a large weight and a small one
# lose the same: the learning rate. Weight decay takes a share of each (Loshchilov and Hutter 2019).

# %%
penalty = keras.regularizers.L2(1.0)
penalized = keras.Sequential([keras.Input((4,)), layers.Dense(1, kernel_regularizer=penalty)])
penalized.compile(keras.optimizers.Adam(5e-3), "mse")
before, _ = penalized.get_weights()
penalized.fit(np.ones((8, 4)), np.ones(8), sample_weight=np.zeros(8), verbose=0)
after, _ = penalized.get_weights()
print("weights", before.ravel().round(3), "lose", (before - after).ravel().round(4))
np.testing.assert_allclose(before - after, 5e-3 * np.sign(before), rtol=1e-2)

# %%
# extra code – the numbers of the gallery
# As asserted above, for each of the three draws:
figures.record(cnn_near_50_above=0.85, near_50_below=0.6, transformer_far_200_above=0.9)
figures.record(mlp_far_200_below=0.7, cnn_far_below=0.45, unshared_fewer=0.25)
figures.record(fused_near_above=0.9, by_heart_above=0.97)

# %% [markdown]
# ## In short
#
# - A network generalizes from few examples where its assumption is true: the CNN in *near*, the
#   Transformer in *far*; the MLP, which assumes neither, needs many in both.
# - Compare networks when all have finished: labels drawn at random are learned by heart by all
#   three, though not at the same speed.
# - Weight decay lowers the price of a wrong architecture; sharing weights (over places, or between
#   reading and writing) makes it a right one where what is shared is the same.
#
# **Next**: [chapter 14](14_bert_gpt_vit.py) gives the blocks three more jobs: filling in blanks,
# writing, and looking at pictures.
