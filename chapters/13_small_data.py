# %% [markdown]
# # 13 · Small data: overfitting, weight decay, weight sharing
#
# **Which of MLP, CNN and Transformer learns from few examples, and what do weight decay and weight
# sharing do about overfitting?** Let's make two tasks that differ in how far apart the words stand
# that decide, and train three networks of one size on 50 to 800 examples of each. Then we take the
# sharing out of the convolution, and help the MLP. Run time: about 40 s.
#
# *Paper: sections 3.4 (shared embeddings) and 5.4 (regularization). Géron: chapter 11, "Avoiding
# Overfitting Through Regularization", beside chapter 16. Article: 004, its last section.*

# %%
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
# class is the shape of the item asked for. No single word carries any information in either task.

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
train = {name: task(800) for name, task in tasks.items()}
test = {name: task(1000) for name, task in tasks.items()}
for name, (ids, labels) in train.items():
    print(f"{name:5}", *(f"{words[name][i]:2}" for i in ids[0]), " class", labels[0])

# %% [markdown]
# ## Three networks of 13,500 parameters
#
# The MLP has weights of its own for every place. The CNN looks through a window of three words,
# twice, and averages over places; the Transformer is one encoder block, with the same average.

# %%
starts = {}


def network(*body, optimizer=None):
    model = keras.Sequential([keras.Input((LENGTH,), dtype="int32"), *body, layers.Dense(CLASSES)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or keras.optimizers.Adam(5e-3), loss, metrics=["accuracy"])
    model.optimizer.build(model.trainable_variables)
    variables = model.variables + model.optimizer.variables
    # Copies: on PyTorch the array would be the weight itself.
    starts[model] = [(v, np.array(ops.convert_to_numpy(v))) for v in variables]
    return model


def mlp():
    body = [layers.Embedding(VOCABULARY, 32), layers.Flatten()]
    return [*body, layers.Dense(32, "relu"), layers.Dense(24, "relu")]


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
# Each starts from its first weights, takes 100 steps of 64 sentences, drawn from 50, 200 or 800
# training examples, and is tested on 1,000 sentences that it has never seen.


# %%
def fit(model, ids, labels, steps=100, **options):
    for variable, value in starts[model]:
        variable.assign(value)
    drawn = rng.integers(len(ids), size=64 * steps)
    return model.fit(ids[drawn], labels[drawn], batch_size=64, verbose=0, **options).history


def accuracies(model, ids, labels, name):
    """On these examples, and on the test set."""
    sentences = np.concatenate([ids, test[name][0]])
    right = model.predict(sentences, batch_size=150, verbose=0).argmax(-1)
    return (right[: len(ids)] == labels).mean(), (right[len(ids) :] == test[name][1]).mean()


numbers = [50, 200, 800]
few = {(name, n): [array[:n] for array in train[name]] for name in tasks for n in numbers}
found = {}
for kind, model in networks.items():
    for name in tasks:
        for n in numbers:
            fit(model, *few[name, n])
            found[kind, name, n] = accuracies(model, *few[name, n], name)
        line = ("{}: {:.2f} / {:.2f}".format(n, *found[kind, name, n]) for n in numbers)
        print(f"{name:5} {kind:12} train / test accuracy at", ", ".join(line))

# %%
# extra code – training and test accuracy against the number of examples
figure, panels = figures.panels(2, width=4.2)
styles = {
    "MLP": (figures.ORANGE, "o"),
    "CNN": (figures.BLUE, "s"),
    "Transformer": (figures.GREEN, "^"),
}
titles = {"near": "near: the order of three neighbors", "far": "far: a question and its answer"}
for panel, name in zip(panels, tasks, strict=True):
    for kind, (color, marker) in styles.items():
        curves = np.array([found[kind, name, n] for n in numbers])
        panel.plot(numbers, curves[:, 1], marker + "-", color=color, label=f"{kind}, test")
        panel.plot(numbers, curves[:, 0], marker + ":", color=color, alpha=0.6, mfc="none")
    panel.axhline(1 / CLASSES, color="0.7", linewidth=0.8, zorder=0)
    panel.text(numbers[0], 0.27, "chance", color="0.4", va="top")
    panel.set(xscale="log", xlabel="training examples", ylim=(0.2, 1.05), title=titles[name])
    panel.set_xticks(numbers, numbers)
    panel.minorticks_off()
panels[0].set_ylabel("accuracy")
handles, names = panels[0].get_legend_handles_labels()
handles += panels[0].plot([], [], "D:", color="0.5", mfc="none")
figure.legend(handles, [*names, "on the training set"], loc="outside upper center", ncols=4)
figures.show(figure, "13_small_data")

# %% [markdown]
# Dotted: every network learns 50 sentences by heart. Solid: what it knows of others. So the MLP
# overfits, as article 004 says, but not it alone: from 50 and 200 examples the Transformer overfits
# *near* as badly (for 800 its 100 steps are too few: it has not even learned these). 004 says that
# the CNN generalizes better. In *near* it does, from 50 examples, where the MLP needs 800; in *far*
# it stays at chance with any number.

# %%
assert min(found[kind, name, 50][0] for kind in networks for name in tasks) > 0.95
assert found["CNN", "near", 50][1] > 0.85
assert max(found[kind, "near", 50][1] for kind in ("MLP", "Transformer")) < 0.6
assert found["Transformer", "far", 200][1] > 0.85 and found["MLP", "far", 200][1] < 0.55
assert max(found["CNN", "far", n][1] for n in numbers) < 0.45

# %% [markdown]
# So it should: two windows of three words reach over five, question and answer are at least six
# places apart, and the average adds up what windows contribute one by one. In *far*, no window has
# any information without the question, so its best guess by this loss is chance. An architecture
# generalizes where its assumption is true: here, that a neighborhood means the same wherever it
# stands.
#
# 004 also says that the Transformer has the larger capacity. One measure is how fast it learns by
# heart where there is nothing else to learn: 800 sentences with labels drawn at random.

# %%
drawn_labels, by_heart = rng.integers(CLASSES, size=800), {}
for kind, model in networks.items():
    fit(model, train["near"][0], drawn_labels)
    by_heart[kind], _ = accuracies(model, train["near"][0], drawn_labels, "near")
print("random labels learned in 100 steps:", {k: f"{share:.2f}" for k, share in by_heart.items()})
assert by_heart["MLP"] > max(by_heart["CNN"], by_heart["Transformer"]) + 0.1

# %% [markdown]
# With the same parameters the MLP learns by heart fastest, the Transformer about as slowly as the
# CNN. What is larger in a Transformer is not the speed of its memory but what it can relate: only
# it, and at 800 examples the MLP, ever answered the question in *far*.
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
# own.


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
fit(unshared, *few["near", 50])
of_training, of_test = accuracies(unshared, *few["near", 50], "near")
shared_test = found["CNN", "near", 50][1]
print(
    f"near, 50 examples: {sizes['CNN']:,} shared weights {shared_test:.2f} of the test set, "
    f"{unshared.count_params():,} unshared {of_test:.2f} (training {of_training:.2f})"
)
assert of_training > 0.95 and of_test < shared_test - 0.25

# %% [markdown]
# Windows alone do not help: what one place has learned, its neighbor has not. (Attention shares,
# too: $W^Q$, $W^K$ and $W^V$ are the same at every place. But which places are neighbors, it has to
# learn from the positions.)
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
# *near*, for three times as long, with 900 more sentences for validation:

# %%
longer = dict(steps=20, epochs=15, validation_data=near(900), validation_batch_size=150)
remedies = {
    "no remedy": networks["MLP"],
    "weight decay": network(*mlp(), optimizer=keras.optimizers.AdamW(5e-3, weight_decay=2.0)),
}
curves, helped = {}, {}
for remedy, model in remedies.items():
    curves[remedy] = fit(model, *few["near", 200], **longer)
    helped[remedy] = accuracies(model, *few["near", 200], "near")
    lowest = int(np.argmin(curves[remedy]["val_loss"]))
    print(
        f"{remedy:12} train / test accuracy {helped[remedy][0]:.2f} / {helped[remedy][1]:.2f}; "
        f"validation loss {curves[remedy]['val_loss'][lowest]:.2f} after {20 * lowest + 20} steps "
        f"(the lowest), {curves[remedy]['val_loss'][-1]:.2f} at the end"
    )
assert helped["no remedy"][1] + 0.05 < helped["weight decay"][1] < shared_test

# %%
# extra code – validation loss and accuracy while training
figure, (left, right) = figures.panels(2)
steps = 20 * np.arange(1, 16)
looks = {
    "no remedy": (figures.ORANGE, "-"),
    "weight decay": (figures.BLUE, "--"),
}
for remedy, (color, line) in looks.items():
    left.plot(steps, curves[remedy]["val_loss"], line, color=color, label=remedy, linewidth=2)
    right.plot(steps, curves[remedy]["val_accuracy"], line, color=color, linewidth=2)
left.set(xlabel="training steps", ylabel="validation loss (nats)", ylim=(0, None))
right.set(xlabel="training steps", ylabel="validation accuracy", ylim=(0.3, 1.02))
left.legend()
figures.show(figure, "13_remedies")

# %% [markdown]
# With no remedy, the validation loss rises while the training comes to perfection: this is what
# overfitting looks like. Weight decay helps, as article 004 says, and does not make up for a wrong
# architecture: the CNN was better with a quarter of the examples.
#
# ## One matrix for reading and for writing
#
# The Transformer shares weights over places, and once more: the paper's section 3.4 uses one matrix
# as source embedding, target embedding and last linear layer. With its 37,000 ids and 512 numbers
# each, that saves 38 of 101 million parameters:

# %%
base = kt.PRESETS["base"]
tied = kt.Transformer(37_000, config=base).count_params()
matrix = 37_000 * base.d_model
print(f"base with one matrix {tied / 1e6:.1f} million, with three {(tied + 2 * matrix) / 1e6:.1f}")
assert 0.35 < 2 * matrix / (tied + 2 * matrix) < 0.4

# %% [markdown]
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
copier.fit(known, dict.fromkeys(logits, known), batch_size=64, verbose=0)
copied = {}
for kind, sentences in (("known", known[:200]), ("new", new[:200])):
    for name, output in copier.predict(sentences, batch_size=200, verbose=0).items():
        copied[name, kind] = (output.argmax(-1) == sentences).mean()
for name in logits:
    print(f"{name:6}:", *(f"{kind} words {copied[name, kind]:.0%}" for kind in ("known", "new")))
assert min(copied["tied", "known"], copied["untied", "known"]) > 0.9
assert copied["tied", "new"] > 0.5 and copied["untied", "new"] < 0.05

# %% [markdown]
# With one matrix "write the word you read" becomes a rule, which holds for most of the words that
# no example showed; with two it has to be learned word by word.
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
# 1\. Few, and it brings back the weights of the lowest validation *loss*. The accuracy is no better
# for it, and may be worse: beyond that point the MLP becomes surer, of right and wrong alike, and
# continues to learn a little.

# %%
stopping = keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True)
mlp_model = networks["MLP"]
stopped = fit(mlp_model, *few["near", 200], **longer, callbacks=[stopping])
_, early = accuracies(mlp_model, *few["near", 200], "near")
taken = 20 * len(stopped["loss"])
print(f"stopped after {taken} of 300 steps: test {early:.2f}, {helped['no remedy'][1]:.2f} without")
assert taken < 300 and early < helped["no remedy"][1] + 0.1

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
    body = keras.Sequential([keras.Input((100,), dtype="int32"), *networks[kind].layers])
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
