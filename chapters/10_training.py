# %% [markdown]
# # 10 · Training
#
# **What goes into a Transformer, what must come out, and what moves its weights?** Let's train one
# on dates ("April 22, 2019" becomes "2019-04-22"), and check each part of the recipe by hand on the
# way: batches, loss, perplexity, schedule, optimizer, dropout. One file answers on two backends. At
# the end we take the parts out, one at a time, and see which of them it needed. Run time: about
# 50 s.
#
# *In plain words:* the model reads the true beginning of each answer, and the more probability it
# gives to the right next token, the less it pays. Nearly everything else in the recipe (small steps
# at first, blurred labels, scaled embeddings, dropout) is there to keep that simple game from
# failing.
#
# *Paper: sections 5.1, 5.3 and 5.4, equation 3. Géron: chapter 16, "An Encoder–Decoder Network for
# Neural Machine Translation" and exercise 9. Articles: 000 ("shifted right"), 002.*

# %%
import datetime
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import keras
import numpy as np
from keras import ops

import figures
import keras_transformer as kt
import weather
from keras_transformer import backend, data, evaluation, plots

keras.utils.set_random_seed(10)
rng = np.random.default_rng(10)

# %% [markdown]
# ## Dates
#
# `data.dates` writes any date in one of 21 forms; to learn them all takes some minutes (it is the
# first command of the README). For a chapter we take the form of Géron's exercise and two
# centuries, and no date twice:

# %%
print("; ".join(data.dates(num_train=6).train.source))
start = datetime.date(1900, 1, 1)
days = [start + datetime.timedelta(int(n)) for n in rng.choice(73_000, 1_836, replace=False)]
pairs = [(data.write_date(day, "{month} {day}, {year}"), day.isoformat()) for day in days]
train, valid, test = (
    data.Examples([source for source, _ in part], [target for _, target in part])
    for part in (pairs[:1_600], pairs[1_600:1_800], pairs[1_800:])
)
print(f"{len(train.source)} to learn from; the first: {train.source[0]} -> {train.target[0]}")

# %% [markdown]
# ## Text becomes ids
#
# Digits are copied one by one, so each character gets an id of its own, after four special ones.
# What was learned can be decoded again; what was never seen is unknown. (The result of
# `kt.train_tokenizer` is a `kt.SentencePieceTokenizer`.)

# %%
tokenizer = kt.train_tokenizer(train.source + train.target, model_type="char")
V = tokenizer.vocabulary_size()
ids = [tokenizer.encode(side) for side in train]
print(f"{V} ids: padding {kt.PADDING}, unknown {kt.UNKNOWN}, start {kt.START}, end {kt.END}, ...")
print(f"{train.target[0]} is {ids[1][0]}, and 四 ('four') is {tokenizer.encode(['四'])[0]}")
assert [tokenizer.decode(side) for side in ids] == list(train)
assert tokenizer.encode(["四"]) == [[kt.UNKNOWN]]

# %% [markdown]
# Real languages are cut into longer pieces, as in the paper: chapter 16 shows how.
#
# ## Shifted right
#
# The decoder reads the target moved by one place and must write the target: `target_ids` has at
# each position what `labels` asked for at the position before.

# %%
batches = kt.TranslationBatches(*ids, batch_size=32, num_buckets=1)
inputs, labels = batches[0]
print(batches.summary())
for name, rows in {**inputs, "labels": labels}.items():
    print(f"{name:10}", *rows[0])
without_end = np.where(labels == kt.END, kt.PADDING, labels)
np.testing.assert_array_equal(inputs["target_ids"][:, 1:], without_end[:, :-1])
assert (inputs["target_ids"][:, 0] == kt.START).all()

# %% [markdown]
# So it is given the *true* beginning, whatever it would have written: teacher forcing (教师强制,
# 000). One pass is enough for all positions, thanks to the look-ahead mask (chapter 6).

# %% [markdown]
# ## The loss, with label smoothing
#
# Section 5.4 smooths the labels with $\epsilon = 0.1$ (Szegedy et al. 2016): the label keeps $1 -
# \epsilon$ of the probability, and $\epsilon$ is spread over the whole vocabulary. The loss is
# $-\sum_k q_k \log p_k$, where $p$ is what the model says and $q = (1 - \epsilon)\,\mathrm{onehot}
# + \epsilon / V$. Let's write that out in NumPy, for the real tokens only, and see what nine
# columns of padding change:


# %%
def dense_loss(labels, logits, epsilon):
    logits = logits.astype("float64")
    log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    q = (1 - epsilon) * np.eye(V)[labels] + epsilon / V  # np.eye(V)[labels] is one-hot
    return -(q * log_p).sum(axis=-1)[labels != kt.PADDING].mean()


model = kt.Transformer(V, num_layers=1, d_model=64, num_heads=4, d_ff=128, dropout=0.0)
loss = kt.TokenCrossEntropy(label_smoothing=0.1)
logits = model.predict_on_batch(inputs)
noise = rng.normal(size=(len(labels), 9, V)).astype("float32")
padded = np.pad(labels, [(0, 0), (0, 9)]), np.concatenate([logits, noise], axis=1)
losses = [dense_loss(labels, logits, 0.1), float(loss(labels, logits)), float(loss(*padded))]
print("by hand {:.6f}, package {:.6f}, with more padding {:.6f}".format(*losses))
np.testing.assert_allclose(losses, losses[0], rtol=1e-6)

# %% [markdown]
# A warning: this loss does not go to 0. It is smallest when the model predicts $q$ itself, and then
# equals the entropy of $q$.

# %%
q = np.append(np.full(V - 1, 0.1 / V), 0.9 + 0.1 / V)
floor = -(q * np.log(q)).sum()
best = float(loss(np.array([[V - 1]]), np.log(q)[None, None].astype("float32")))
print(f"with {V} ids the loss cannot fall below {floor:.4f}; the logits log q have {best:.4f}")
np.testing.assert_allclose(best, floor, rtol=1e-5)

# %% [markdown]
# ## Perplexity and accuracy
#
# Perplexity is exp(nats per token): 1 for a model that is certain and right, $V$ for one that
# guesses; one that predicts $q$ is never certain, and has 1.11. Careful with averages: total nats
# divided by total tokens first, the exponential last. Let's try two batches, of nine tokens and of
# one:


# %%
def logits_costing(nats):
    """Logits of ids 0, 1, 2 by which id 1 costs these nats."""
    p = np.exp(-np.array(nats))[None, :, None]
    return np.log(np.concatenate([(1 - p) / 2, p, (1 - p) / 2], axis=-1)).astype("float32")


for easy, hard in ((9, 1), (1, 9)):
    metrics, each = (kt.Perplexity(), kt.TokenAccuracy()), []
    for nats in ([0.1] * easy, [3.0] * hard):
        for metric in metrics:
            metric.update_state(np.ones((1, len(nats)), int), logits_costing(nats))
        each.append(np.exp(np.mean(nats)))
    perplexity = np.exp((0.1 * easy + 3.0 * hard) / 10)
    print(f"{easy} easy, {hard} hard: perplexity {perplexity:.1f}, mean of two {np.mean(each):.1f}")
    results = [float(metric.result()) for metric in metrics]
    np.testing.assert_allclose(results, [perplexity, easy / 10], rtol=1e-5)
    assert abs(perplexity - np.mean(each)) > 4
print(f"{1 / q[-1]:.2f} for the model that predicts q")

# %% [markdown]
# The mean of batch perplexities is off by a lot, and in either direction.
#
# ## The learning rate
#
# Equation 3, $d_{model}^{-0.5} \cdot \min(step^{-0.5},\ step \cdot warmup\_steps^{-1.5})$, grows in
# a straight line and falls with the root of the step. (Keras counts steps from 0, the paper from
# 1.)

# %%
step = np.arange(1, 100_001)


def equation_3(d_model, warmup_steps):
    return d_model**-0.5 * np.minimum(step**-0.5, step * warmup_steps**-1.5)


schedules = {
    "base": kt.WarmupSchedule(d_model=512, warmup_steps=4000),
    "big": kt.WarmupSchedule(d_model=1024, warmup_steps=4000),
    "this chapter": kt.WarmupSchedule.with_peak(0.008, warmup_steps=80),  # the same curve, scaled
}
rates = {name: ops.convert_to_numpy(each(step - 1)) for name, each in schedules.items()}
for name, curve in rates.items():
    print(f"{name:12} peak {curve.max():.1e} at step {step[curve.argmax()]:,}")
np.testing.assert_allclose(rates["base"], equation_3(512, 4000), rtol=1e-5)
np.testing.assert_allclose(rates["big"], equation_3(1024, 4000), rtol=1e-5)
scale = 0.008 * (64 * 80) ** 0.5  # equation 3 itself has its peak at (64 * 80) ** -0.5
np.testing.assert_allclose(rates["this chapter"], scale * equation_3(64, 80), rtol=1e-5)
np.testing.assert_allclose(rates["base"][4 * 4000 - 1], rates["base"].max() / 2, rtol=1e-5)

# %% [markdown]
# At four times the warm-up, half of the peak is left. Small models tolerate large learning rates:
# our peak is eleven times that of base.
#
# ## Adam
#
# Adam divides a running mean of the gradient by the root of a running mean of its square. (Both
# means begin at 0 and so are too small at first; dividing them by $1 - \beta^t$ at step $t$ mends
# that.) So a lone first step moves *every* weight by the learning rate, whether its gradient is
# 1000 or 0.001; that is one reason to begin with small rates. Let's do three steps by hand, with
# the paper's $\beta_1 = 0.9$ (of the mean), $\beta_2 = 0.98$ (of the square) and ε (against a
# division by 0; not the ε of the labels):

# %%
gradients = np.array([[1000.0, 1.0, -0.001], [-500.0, 1.0, 0.002], [10.0, 1.0, -0.001]], "float32")
weights, optimizer = keras.Variable(np.zeros(3, "float32")), kt.paper_optimizer(0.01)
by_hand, mean, square = np.zeros((3, 3))  # three numbers each
for t, gradient in enumerate(gradients, start=1):
    optimizer.apply([ops.convert_to_tensor(gradient)], [weights])
    mean = 0.9 * mean + 0.1 * gradient
    square = 0.98 * square + 0.02 * gradient**2
    by_hand = by_hand - 0.01 * mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.98**t)) + 1e-9)
    print(f"gradients {gradient}: weights {ops.convert_to_numpy(weights).round(4)}")
    np.testing.assert_allclose(ops.convert_to_numpy(weights), by_hand, rtol=1e-3)
    assert t > 1 or np.allclose(np.abs(by_hand), 0.01, rtol=1e-4)

# %% [markdown]
# ## Dropout
#
# In training each number of a sublayer's output is dropped (set to 0) with probability 0.1, and the
# others are divided by 0.9, so that the mean stays. At inference nothing is dropped:

# %%
ones = ops.convert_to_numpy(keras.layers.Dropout(0.1)(ops.ones((200, 200)), training=True))
print(f"{np.mean(ones == 0):.1%} dropped, the others {ones.max():.3f}, mean {ones.mean():.3f}")
block, x = kt.EncoderBlock(num_heads=4, d_ff=128, dropout=0.1), ops.ones((1, 5, 64))
for mode in (True, False):
    one, other = (ops.convert_to_numpy(block(x, training=mode)) for _ in range(2))
    print(f"training={mode}: two passes differ by {np.abs(one - other).max():.1f}")
    assert np.array_equal(one, other) == (not mode)
assert abs(np.mean(ones == 0) - 0.1) < 0.01 and np.isclose(ones.max(), 1 / 0.9)

# %% [markdown]
# ## `fit`
#
# Everything together, with the `model` made above for the loss. (`shuffle=False`: these batches
# shuffle themselves. `backend.prefers_jit()` says whether compiling pays on the backend at hand.
# And no dropout: 1,600 dates seen seven times are not learned by heart, as the last lines check.)

# %%
model.compile(
    kt.paper_optimizer(schedules["this chapter"]),
    kt.TokenCrossEntropy(label_smoothing=0.1),
    metrics=[kt.TokenAccuracy(), kt.Perplexity()],
    jit_compile=backend.prefers_jit(),
)
valid_ids = [tokenizer.encode(side) for side in valid]
valid_batches = kt.TranslationBatches(*valid_ids, batch_size=200, num_buckets=1)
history = model.fit(
    batches, validation_data=valid_batches, epochs=7, shuffle=False, verbose=2
).history
second, last = ({name: values[n] for name, values in history.items()} for n in (1, -1))
assert second["val_token_accuracy"] > second["token_accuracy"]
assert last["val_token_accuracy"] > max(0.95, last["token_accuracy"] - 0.02)
assert floor < last["val_loss"] < floor + 0.15

# %% [markdown]
# Early on validation looks *better* than training. It is measured when the epoch is over; the
# training numbers are means over the epoch, while the model learns (and with dropout, if there is
# any).

# %%
# extra code – the learning curves
figures.show(plots.plot_history(history), "10_history")

# %% [markdown]
# ## Save, load, use, on any backend
#
# A `Translator` is the model with its tokenizer, text in and text out, in one `.keras` file:

# %%
path = pathlib.Path(tempfile.mkdtemp()) / "dates.keras"
kt.Translator(model, tokenizer).save(path)
translator = kt.load(path)
summary = kt.check_file(path)  # what the file holds, read without loading it
print(f"a {summary.task} of {summary.parameters:,} parameters, {path.stat().st_size / 1e6:.1f} MB")
logits, loaded = (each.predict_on_batch(inputs) for each in (model, translator))
print(f"after loading the logits differ by {np.abs(logits - loaded).max()}")
assert np.array_equal(logits, loaded)

# %% [markdown]
# We ask for dates that it has never seen, and for some of them in CAPITALS:

# %%
asked = test.source + [text.upper() for text in test.source[:16]]
answers = translator.translate(asked)
for question, answer in list(zip(asked, answers, strict=True))[33:39]:
    print(f"{question} -> {answer}")
exact = evaluation.exact_match(answers[:36], test.target)
in_capitals = evaluation.exact_match(answers[36:], test.target[:16])
print(f"right to the last character: {exact:.0%} of 36 new dates, {in_capitals:.0%} in capitals")
assert exact > 0.5 > in_capitals

# %% [markdown]
# What it was never shown it cannot do: capitals are unknown ids to it, except initials. What it has
# learned it can do anywhere. The same file, on another backend:

# %%
# extra code – a second process on another backend, which reads nothing but the file
USE = """
import json, sys, keras_transformer
print(json.dumps(keras_transformer.load(sys.argv[1]).translate(sys.argv[2:])))
"""
here = keras.backend.backend()
others = [b for b in ("torch", "jax", "tensorflow") if b != here and importlib.util.find_spec(b)]
for other in others[:1]:
    used = subprocess.run(
        [sys.executable, "-c", USE, path, *asked],
        env={**os.environ, "KERAS_BACKEND": other},
        capture_output=True,
        text=True,
    )
    assert used.returncode == 0, used.stderr
    elsewhere = json.loads(used.stdout.splitlines()[-1])
    same = np.mean([a == b for a, b in zip(elsewhere, answers, strict=True)])
    print(f"trained on {here}, used on {other}: {same:.0%} of the answers are the same")
assert not others or same == 1

# %% [markdown]
# ## Which parts did it need?
#
# Let's train it again with one thing changed each time: without label smoothing, without the
# $\sqrt{d_{model}}$ by which embeddings are multiplied, with dropout, and without warm-up (the rate
# stays at its peak for the 80 steps of the warm-up, and then falls as before). The wiring is
# chapter 9's; a switch divides the embeddings by $\sqrt{d_{model}}$ again.


# %%
class WithoutWarmup(kt.WarmupSchedule):
    """The same curve, its peak in place of the rise."""

    def __call__(self, step):
        return super().__call__(ops.maximum(ops.cast(step, "float32"), self.warmup_steps - 1.0))


names = ("source_ids", "target_ids")
ids_of = {name: keras.Input((None,), dtype="int32", name=name) for name in names}


def network(dropout=0.0, scaled=True):
    """A model of the same sizes."""
    embed, mask = kt.TokenEmbedding(V, 64), kt.padding_mask(ids_of["source_ids"])
    sizes = dict(num_heads=4, d_ff=128, dropout=dropout)
    read = {}
    for name, ids in ids_of.items():
        x = embed(ids) if scaled else embed(ids) / 64**0.5
        read[name] = keras.layers.Dropout(dropout)(kt.PositionalEncoding()(x))
    memory = kt.Encoder(1, **sizes)(read["source_ids"], attention_mask=mask)
    y = kt.Decoder(1, **sizes)(read["target_ids"], memory, cross_attention_mask=mask)
    return keras.Model(ids_of, embed(y, reverse=True))


# %% [markdown]
# *Predict before you run:* which of the four changes costs the most accuracy? The first four
# networks share the schedule, so that one `fit` trains them side by side; they have no weight in
# common. Adam treats each weight alone, and so nobody disturbs anybody.

# %%
EPOCHS, STARTS = 3, figures.STARTS  # 1, or 3 with FULL=1
peak = schedules["this chapter"]
late_start = WithoutWarmup.with_peak(0.008, warmup_steps=80)
networks = {"recipe": network(), "no_smoothing": network(), "no_sqrt_d": network(scaled=False)}
networks |= {"dropout": network(dropout=0.1), "no_warmup": network()}


def study_of(names, schedule):
    """One model of several networks, each with its loss."""
    study = keras.Model(ids_of, {name: networks[name].output for name in names})
    study.compile(
        kt.paper_optimizer(schedule),
        {name: kt.TokenCrossEntropy(0.0 if name == "no_smoothing" else 0.1) for name in names},
        metrics={name: [kt.TokenAccuracy(), kt.Perplexity()] for name in names},
        jit_compile=backend.prefers_jit(),
    )
    return study


*with_warmup, without = networks  # the last is no_warmup
studies = [(with_warmup, study_of(with_warmup, peak)), ([without], study_of([without], late_start))]

# %%
# extra code – all batches as arrays; studies that are traced once, and can start again
all_of_it = [batches[i] for i in range(len(batches))]
arrays = {name: np.concatenate([inputs[name] for inputs, _ in all_of_it]) for name in names}
all_labels = np.concatenate([labels for _, labels in all_of_it])
valid_inputs, valid_labels = valid_batches[0]
for of_study, study in studies:
    # Keras would add the metrics, and Adam's state, within the first step: traced twice.
    study.optimizer.build(study.trainable_variables)
    study.evaluate(valid_inputs, dict.fromkeys(of_study, valid_labels), batch_size=200, verbose=0)


def start_again(of_study, study, seed):
    """Gives all networks the same new weights, and Adam no memory."""
    keras.utils.set_random_seed(seed)
    weights = network().get_weights()
    for name in of_study:
        networks[name].set_weights(weights)
    for variable in study.optimizer.variables:
        variable.assign(ops.zeros(variable.shape, variable.dtype))


# %% [markdown]
# All five begin with the same weights. How much a part counts differs from start to start: run the
# chapter with `FULL=1` in its environment, and it takes three.

# %%
curves = {name: [] for name in networks}  # of each start
for start in range(STARTS):
    for of_study, study in studies:
        start_again(of_study, study, seed=10 + start)
        seen = study.fit(
            arrays,
            dict.fromkeys(of_study, all_labels),
            batch_size=32,
            epochs=EPOCHS,
            validation_data=(valid_inputs, dict.fromkeys(of_study, valid_labels)),
            validation_batch_size=200,
            verbose=0,
        ).history
        for name in of_study:
            one = f"{name}_" if len(of_study) > 1 else ""
            metrics = seen[f"val_{one}token_accuracy"], seen[f"val_{one}perplexity"]
            curves[name].append(metrics)
right, perplexity = ({name: np.array(curves[name])[:, i] for name in curves} for i in (0, 1))
for name in networks:
    print(f"{name:12} accuracy after each epoch", *(row.round(3) for row in right[name]), end="")
    print(f", perplexity {perplexity[name][:, -1].mean():.2f} at the end")

# %%
mean = {name: table.mean(axis=0) for name, table in right.items()}  # of the starts
assert mean["recipe"][1] > mean["no_sqrt_d"][1] + 0.08
assert STARTS == 1 or mean["recipe"][1:].mean() > mean["no_warmup"][1:].mean()
assert min(mean, key=lambda name: mean[name][1:].mean()) == "no_sqrt_d"
assert mean["no_warmup"][0] > mean["recipe"][0] - 0.05
assert mean["recipe"][-1] > mean["dropout"][-1]

# %%
# extra code – what each part is worth, and the rates with and without warm-up
figure, (left, right_panel) = figures.panels(2, width=4.2)
looks = {
    "recipe": ("o-", figures.BLACK, "the recipe"),
    "no_smoothing": ("s--", figures.GREEN, "no label smoothing"),
    "dropout": ("v--", figures.PURPLE, "with dropout 0.1"),
    "no_warmup": ("^-.", figures.ORANGE, "no warm-up"),
    "no_sqrt_d": ("D:", figures.BLUE, "no √d"),
}
epochs = range(1, EPOCHS + 1)
for name, (style, color, label) in looks.items():
    low, high = right[name].min(axis=0), right[name].max(axis=0)
    left.fill_between(epochs, low, high, color=color, alpha=0.12, linewidth=0)
    left.plot(epochs, mean[name], style, color=color, label=label, markersize=4)
left.set(xlabel="epoch", ylabel="validation accuracy (per token)", ylim=(0.4, 1.01))
if STARTS > 1:
    left.set_title(f"mean and range of {STARTS} starts", fontsize=9)
left.set_xticks(epochs)
left.legend(loc="lower right")
steps = np.arange(50 * EPOCHS)
for schedule, name in ((peak, "recipe"), (late_start, "no_warmup")):
    rate = ops.convert_to_numpy(schedule(steps))
    right_panel.plot(
        steps + 1, rate, looks[name][0][1:], color=looks[name][1], label=looks[name][2]
    )
right_panel.set(xlabel="step", ylabel="learning rate", ylim=(0, None))
right_panel.legend()
figures.show(figure, "10_ablation")

# %% [markdown]
# The factor $\sqrt{d_{model}}$ counts most: without it the positions drown the characters at first.
# Without warm-up the first epoch is no worse, but the later ones are; by how much, differs from
# start to start. (With four blocks, leaving it out delays the learning: chapter 8.) Label smoothing
# keeps the model from being certain: in the end its perplexity would be the 1.11 of above, and
# without it 1. After three epochs neither is there, and either can be ahead; what smoothing buys,
# if anything, is accuracy. And dropout has nothing to prevent here, where no date is learned by
# heart: it only slows the learning. Chapter 18 has a text on which the validation loss rises
# much less with it. One small task: enough to see what a part is *for*, not to rank recipes.
#
# Two more parts belong to the recipe of a large model. The paper counts its batches in tokens, some
# 25 thousand of each language (`tokens_per_batch` of `kt.TranslationBatches`). And many clip the
# norm of the gradient, which the paper does not mention: `kt.paper_optimizer(rate, clipnorm=1.0)`.

# %% [markdown]
# ## What we have so far
#
# Our translator of chapter 9, trained by the paper's recipe: its Adam, and a rate that rises for 50
# steps to three times what we took until now, and then falls. It takes no step more than before.


# %%
def our_translator(ids):
    embed, mask = kt.TokenEmbedding(weather.VOCABULARY_SIZE, 32), kt.padding_mask(ids["source_ids"])
    x = kt.PositionalEncoding()(embed(ids["source_ids"]))
    memory = kt.Encoder(2, num_heads=4, d_ff=64)(x, attention_mask=mask)
    y = kt.PositionalEncoding()(embed(ids["target_ids"]))
    y = kt.Decoder(2, num_heads=4, d_ff=64)(y, memory, cross_attention_mask=mask)
    return embed(y, reverse=True)


of_paper = kt.paper_optimizer(kt.WarmupSchedule.with_peak(0.01, warmup_steps=50))
so_far, _ = weather.train(our_translator, weather.two_rows, of_paper, starts=STARTS)
print(f"by the paper's recipe: {min(so_far):.4f} to {max(so_far):.4f} nats per token")
assert max(so_far) < 0.006

# %%
# extra code – the picture that grows
figures.show(weather.picture(10, warm_up=so_far), "10_so_far")

# %% [markdown]
# Several times lower, after the same number of steps. The peak of the rate, its rise and fall,
# $\beta_2$ and ε have changed together; which of them did it, we have not measured here.
#
# ## Exercises
#
# 1. What is the floor of the loss with the paper's 37,000 ids? What would exp(loss) then be for a
#    perfect model, and why does `Perplexity` leave the smoothing out?
# 2. With which `warmup_steps` does equation 3 have a peak of 0.001 for `d_model=64`? How does the
#    package get that peak after 150 steps?
# 3. The paper takes $\beta_2 = 0.98$, Keras 0.999. Let a gradient be 1 for 1,000 steps and 0.01
#    from then on. How large are Adam's updates, in learning rates, 200 steps later?
#
# *Break it:* write an accuracy that counts padding. How right is a model that writes nothing but
# padding, on the batch with nine more columns of it? What does `kt.TokenAccuracy` say?
#
# ## Answers
#
# 1\. 1.38 nats, and exp of it 4: a perfect model would seem to hesitate between four words. So
# `Perplexity` asks for the probability of the right word alone.

# %%
label, each = 0.9 + 0.1 / 37_000, 0.1 / 37_000
floor = -label * np.log(label) - 36_999 * each * np.log(each)
print(f"floor {floor:.3f} nats, exp(floor) {np.exp(floor):.2f}")
assert 1.37 < floor < 1.38 and 3.9 < np.exp(floor) < 4

# %% [markdown]
# 2\. The peak is $(d_{model} \cdot warmup\_steps)^{-0.5}$, so $10^6 / 64$ = 15,625 steps; or the
# same curve times a factor:

# %%
for schedule, last in (
    (kt.WarmupSchedule(64, 15_625), 15_625),
    (kt.WarmupSchedule.with_peak(1e-3, 150), 150),
):
    print(f"step {last:6,}: {float(schedule(last - 1)):.6f}")
    np.testing.assert_allclose(float(schedule(last - 1)), 1e-3, rtol=1e-5)

# %% [markdown]
# 3\. Both still brake. 0.98 remembers some 50 steps: after 200 the old squares have shrunk to 2 %,
# and still outweigh the new ones. 0.999 remembers 1,000 and has hardly started to forget:

# %%
moves = {}
for beta_2 in (0.98, 0.999):
    mean = square = 0.0
    for t in range(1, 1_201):
        gradient = 1.0 if t <= 1_000 else 0.01
        mean = 0.9 * mean + 0.1 * gradient
        square = beta_2 * square + (1 - beta_2) * gradient**2
    moves[beta_2] = mean / (1 - 0.9**t) / np.sqrt(square / (1 - beta_2**t))
    print(f"beta_2 = {beta_2}: an update of {moves[beta_2]:.3f} learning rates")
assert moves[0.98] > 4 * moves[0.999]

# %% [markdown]
# *Broken:* nearly half of its answers are right, and it has not read one date. Each loss and each
# metric has to leave out what nobody asked for.

# %%
labels, nothing = padded[0], np.full(padded[0].shape, kt.PADDING)
metric = kt.TokenAccuracy()
metric.update_state(labels, np.eye(V, dtype="float32")[nothing])
print(f"padding counted: {np.mean(labels == nothing):.0%} right;", end=" ")
print(f"kt.TokenAccuracy: {float(metric.result()):.0%}")
assert np.mean(labels == nothing) > 0.4 and float(metric.result()) == 0

# %%
# extra code – the numbers of the gallery
if figures.FULL:  # of three starts, after two epochs and after three
    two, three = ({name: table[:, epoch] for name, table in right.items()} for epoch in (1, 2))
    recipe, without = two["recipe"], two["no_sqrt_d"]
    figures.record(0.1, recipe_2_least=min(recipe), recipe_2_most=max(recipe))
    figures.record(0.1, no_sqrt_d_2_least=min(without), no_sqrt_d_2_most=max(without))
    recipe, without = three["recipe"], three["no_warmup"]
    figures.record(0.1, recipe_3_least=min(recipe), recipe_3_most=max(recipe))
    figures.record(0.1, no_warmup_3_least=min(without), no_warmup_3_most=max(without))
    figures.record(0.005, warm_up_least=min(so_far), warm_up_most=max(so_far))
figures.record(0.05, megabytes=path.stat().st_size / 1e6)

# %% [markdown]
# ## In short
#
# - The decoder reads the target shifted right and is scored on each token at once: cross-entropy
#   over real tokens, smoothed, which never falls to 0.
# - Adam's first steps are as large as the learning rate, whatever the gradient; warm-up makes them
#   small. $\sqrt{d_{model}}$ makes words as loud as positions.
# - Count perplexity over all tokens, and compare training with validation numbers with care: one is
#   a mean over the epoch, the other is measured after it.
#
# **Next**: the model ranks next tokens. [Chapter 11](11_decoding.py) makes sentences of that.
