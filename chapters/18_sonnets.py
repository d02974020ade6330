# %% [markdown]
# # 18 · Forty sonnets
#
# **What does a Transformer learn from forty of Shakespeare's sonnets, and when does it begin to
# recite them?** Let's train a small language model on thirty of them, character by character, read
# what it writes on the way, measure when learning becomes memory, and try three remedies:
# dropout, weight decay, a shared embedding. Run time: about 50 s.
#
# *In plain words:* a text of 18,000 characters has less in it than the model can remember. At first
# it learns what all sonnets share (letters, words, lines); then it learns these thirty by heart,
# and from that moment on it becomes worse at every other.
#
# *Paper: sections 3.4 and 5.4. Géron: chapter 16, "Generating Shakespearean Text", and chapter 11,
# "Avoiding Overfitting Through Regularization". Article: 004, its last section. Text: Shakespeare's
# Sonnets, 1609, in today's spelling; in the public domain.*

# %%
import keras
import numpy as np
from keras import layers

import figures
import keras_transformer as kt
from keras_transformer import backend

keras.utils.set_random_seed(18)
rng = np.random.default_rng(18)

# %% [markdown]
# ## The text
#
# Every fourth sonnet is kept aside. A sonnet has 14 lines; that is all the structure the model is
# given, as characters in a row.

# %%
sonnets = figures.sonnets()
kept_aside = sonnets[3::4]
known = "\n\n".join(sonnet for n, sonnet in enumerate(sonnets) if n % 4 != 3)
new = "\n\n".join(kept_aside)
tokenizer = kt.train_tokenizer([*known.splitlines(keepends=True), new], model_type="char")
ids, new_ids = (np.array(tokenizer.encode([text])[0]) for text in (known, new))
assert all(len(sonnet.splitlines()) == 14 for sonnet in sonnets)
_, counts = np.unique(ids, return_counts=True)
by_frequency = -(counts / counts.sum() * np.log(counts / counts.sum())).sum()
print(f"{len(ids):,} characters to learn from, {len(new_ids):,} others;", end=" ")
print(f"{tokenizer.vocabulary_size()} ids; {by_frequency:.2f} nats by frequency alone")

# %% [markdown]
# ## Epoch by epoch
#
# The model is `kt.LanguageModel` with two blocks and rotary positions (chapter 17), and nothing
# against overfitting. In every epoch the text is cut at other points.

# %%
WINDOW, EPOCHS = 64, 48
batches = kt.TextBatches(
    kt.chunks(ids, WINDOW),
    append_end=False,
    batch_size=16,
    multiple=1,
    resample=lambda epoch: [kt.chunks(ids, WINDOW, 11 * epoch)],
)
tests = kt.TextBatches(kt.chunks(new_ids, WINDOW), append_end=False, batch_size=94, multiple=1)
model = kt.LanguageModel(
    tokenizer.vocabulary_size(),
    **dict(num_layers=2, d_model=64, num_heads=4, d_ff=256, dropout=0.0),
    norm_first=True,
    rotary=True,
)
steps = EPOCHS * len(batches)
schedule = keras.optimizers.schedules.CosineDecay(
    0.0, steps - 60, warmup_target=0.006, warmup_steps=60
)
model.compile(
    kt.paper_optimizer(schedule), kt.TokenCrossEntropy(), jit_compile=backend.prefers_jit()
)
print(f"{model.count_params():,} parameters for {len(ids):,} characters; {steps} steps")

# %% [markdown]
# After some epochs it writes four beginnings, and we count how much of them it has copied: of all
# strings of 16 characters, the share that stands in the thirty sonnets word for word. The ten other
# sonnets show how much of that is mere English.


# %%
def recited(texts):
    strings = [text[i : i + 16] for text in texts for i in range(len(text) - 15)]
    return np.mean([string in known for string in strings])


class ReadAlong(keras.callbacks.Callback):
    """Lets the model write after some epochs."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 in (1, 6, 12, 24, EPOCHS):
            texts = writer.generate(["\n"] * 4, max_tokens=64, temperature=0.7, seed=epoch)
            copied[epoch + 1] = recited(texts)
            first = texts[0].strip().replace("\n", " / ")
            print(f"{epoch + 1:2} epochs, {copied[epoch + 1]:.0%} copied: {first}")


writer = kt.TextGenerator(model, tokenizer, window=WINDOW, append_end=False)
copied = {}
options = dict(epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[ReadAlong()])
history = model.fit(batches, validation_data=tests, **options).history

# %%
loss, val_loss = np.array(history["loss"]), np.array(history["val_loss"])
best = int(val_loss.argmin())
print(f"nats per character on the other sonnets: {val_loss[best]:.2f} after {best + 1} epochs,")
print(f"{val_loss[-1]:.2f} after {EPOCHS}; on its own {loss[best]:.2f} and {loss[-1]:.2f}")
print(f"of the other sonnets {recited(kept_aside):.1%} stands in the thirty")
assert 3 < best + 1 < EPOCHS - 5 and val_loss[best] < by_frequency - 0.8
assert val_loss[-1] > val_loss[best] + 0.2 and loss[-1] < 0.8 < val_loss[best]
assert copied[1] < 0.1 and copied[EPOCHS] > 0.3 and recited(kept_aside) < 0.02

# %% [markdown]
# After one epoch it spells; then come words, then lines with a meter. At its lowest the validation
# loss is at the point where what it learns is still about sonnets. From there on the model becomes
# surer about *these* sonnets, and pays for it at every other; what it writes reads better and
# better, because Shakespeare wrote it. Beautiful samples are no proof of learning.
#
# ## What helps?
#
# Now three remedies, side by side: dropout, weight decay, and one matrix for reading and writing
# (section 3.4). For the last one to matter, the vocabulary should be large, so we read pieces
# (chapter 16) instead of characters. One network has no remedy, three have one each, and one has
# all three. Again they share one `fit`, and no weight.

# %%
pieces = kt.train_tokenizer(known.splitlines(keepends=True), 400, model_type="bpe")
piece_ids, new_piece_ids = (np.array(pieces.encode([text])[0], "int32") for text in (known, new))
LENGTH, ROUNDS = 32, 24


def windows(ids, start=0):
    starts = range(start % LENGTH, len(ids) - LENGTH, LENGTH)
    return np.stack([ids[at : at + LENGTH + 1] for at in starts])


def network(ids, tied=False, dropout=0.0):
    embed = kt.TokenEmbedding(pieces.vocabulary_size(), 64)
    x = layers.Dropout(dropout)(kt.PositionalEncoding()(embed(ids)))
    x = kt.Encoder(2, num_heads=4, d_ff=256, dropout=dropout, norm_first=True)(
        x, attention_mask=kt.look_ahead_mask(LENGTH)
    )
    return embed(x, reverse=True) if tied else layers.Dense(pieces.vocabulary_size())(x)


# %%
inputs = keras.Input((LENGTH,), dtype="int32")
outputs = {
    "plain": network(inputs),
    "tied": network(inputs, tied=True),
    "decay": network(inputs),
    "dropout": network(inputs, dropout=0.3),
    "all": network(inputs, tied=True, dropout=0.3),
}
study = keras.Model(inputs, outputs)
with_decay = keras.Model(inputs, [outputs["decay"], outputs["all"]]).trainable_variables
kernels = {id(v) for v in with_decay if v.path.endswith(("kernel", "embeddings"))}
rounds = [windows(piece_ids, 7 * n) for n in range(ROUNDS)]
per_round = min(map(len, rounds)) // 16
rows = np.concatenate([rng.permutation(each)[: 16 * per_round] for each in rounds])
cosine = keras.optimizers.schedules.CosineDecay(
    0.0, len(rows) // 16 - 40, warmup_target=0.005, warmup_steps=40
)
optimizer = keras.optimizers.AdamW(cosine, weight_decay=0.5)
optimizer.exclude_from_weight_decay([v for v in study.variables if id(v) not in kernels])
losses = {name: kt.TokenCrossEntropy() for name in outputs}
study.compile(optimizer, losses, jit_compile=backend.prefers_jit())

# %% [markdown]
# (Weight decay is for matrices: biases and the gains of layer normalization are left alone, as is
# every weight of the networks without it.)

# %%
unseen = windows(new_piece_ids)
history = study.fit(
    rows[:, :-1],
    dict.fromkeys(outputs, rows[:, 1:]),
    batch_size=16,
    epochs=ROUNDS,
    steps_per_epoch=per_round,
    shuffle=False,
    verbose=0,
    validation_data=(unseen[:, :-1], dict.fromkeys(outputs, unseen[:, 1:])),
    validation_batch_size=len(unseen),
).history
curves = {name: np.array(history[f"val_{name}_loss"]) for name in outputs}
lowest = {name: curve.min() for name, curve in curves.items()}
for name, curve in curves.items():
    print(f"{name:8} {lowest[name]:.3f} nats per piece at the lowest, {curve[-1]:.3f} at the end;")
    print(f"         {history[f'{name}_loss'][-1]:.2f} on the thirty sonnets")
ranking = sorted(lowest, key=lowest.get)
print("from the best to the worst:", ", ".join(ranking))
assert lowest["dropout"] < lowest["plain"] - 0.05 and lowest["all"] < lowest["plain"] - 0.05
assert curves["plain"][-1] > lowest["plain"] + 0.3

# %%
# extra code – learning and memory; what helps
figure, (left, right) = figures.panels(2, width=4.4, height=3.2)
epochs = np.arange(1, EPOCHS + 1)
left.plot(epochs, loss, ":", color=figures.BLUE, label="the thirty sonnets")
left.plot(epochs, val_loss, "-", color=figures.BLUE, label="ten others")
left.plot(best + 1, val_loss[best], "o", color=figures.BLACK)
left.set(xlabel="epoch", ylabel="nats per character", ylim=(0, 3.2))
for epoch, share in copied.items():
    left.annotate(f"{share:.0%}", (epoch, 0.08), ha="center", fontsize=8, color="0.35")
left.text(1, 0.3, "copied word for word:", fontsize=8, color="0.35")
left.legend()
looks = {
    "plain": ("o-", figures.BLACK, "no remedy"),
    "decay": ("s--", figures.ORANGE, "weight decay"),
    "tied": ("^-.", figures.PURPLE, "one matrix"),
    "dropout": ("v-", figures.GREEN, "dropout 0.3"),
    "all": ("D:", figures.BLUE, "all three"),
}
for name, (style, color, label) in looks.items():
    right.plot(range(1, ROUNDS + 1), curves[name], style, color=color, label=label, markersize=3)
highest = curves["plain"][:2].max()
right.set(xlabel="epoch", ylabel="nats per piece, ten others", ylim=(4.3, highest + 0.2))
right.legend()
figures.show(figure, "18_sonnets")

# %% [markdown]
# Dropout helps most, in this as in most small texts: a network that loses a third of its numbers at
# every step cannot store exact lines. The other two help less, and all of them only lower the
# price. What would help is more text: `scripts/train_language_model.py` trains on yours, with the
# same parts.
#
# ## Exercises
#
# 1. Take the model at its end and let it continue "Shall I compare thee", which is in the thirty
#    sonnets. At temperature 0, how many characters does it recite?
# 2. How many nats per character are the nats per piece above? Can they be compared with the first
#    model's?
# 3. With which of the two losses would you choose the number of epochs for a model that is to be
#    sold as a poet, and why is the sonnets' test no longer one once you have chosen?
#
# ## Answers
#
# 1\. Many, without a mistake. It has not learned that summer is temperate; it has learned this
# line.

# %%
prompt = "Shall I compare thee"
(line,) = writer.generate([prompt], max_tokens=60, temperature=0)
at = known.index(prompt) if prompt in known else None
print(repr(line), "in the thirty sonnets" if at is not None else "in the ten others")

# %% [markdown]
# 2\. Divide by the characters of a piece. The windows differ, so the comparison is rough:

# %%
characters_per_piece = len(new) / len(new_piece_ids)
rough = {name: lowest[name] / characters_per_piece for name in ("plain", "dropout")}
print(f"{characters_per_piece:.2f} characters per piece:", end=" ")
print(*(f"{name} {value:.2f} nats per character" for name, value in rough.items()), sep=", ")
assert 1.5 < min(rough.values()) < 3

# %% [markdown]
# 3\. By the validation loss; but the number of epochs is then fitted to these ten sonnets, and an
# honest test needs sonnets that have not been used for any choice, either. There are 114 more.

# %%
assert len(sonnets) + 114 == 154

# %%
# extra code – the numbers of the gallery
figures.record(0.1, lowest=val_loss[best])
figures.record(12, best_epoch=best + 1)
figures.record(0.5, at_the_end=val_loss[-1], training=loss[-1], recited=copied[EPOCHS])
figures.record(0.15, plain=lowest["plain"], dropout=lowest["dropout"])
figures.record(0.15, tied=lowest["tied"], decay=lowest["decay"])

# %% [markdown]
# ## In short
#
# - A small text is learned twice: first what it shares with others, then itself. The validation
#   loss turns up where the second begins.
# - Good samples prove nothing: count what is copied.
# - Dropout, a shared matrix and weight decay lower the price of a small text; only more text
#   removes it.
#
# **Next**: your own text. [The scripts](../README.md) train on it, and everything that they print
# has been opened in one of these chapters.
