# %% [markdown]
# # 18 · Forty sonnets
#
# **What does a Transformer learn from forty of Shakespeare's sonnets, and when does it begin to
# recite them?** Let's train a small language model on thirty of them, character by character, read
# what it writes on the way, measure when learning becomes memory, and try what is said to help:
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
# The model is `kt.LanguageModel` with two blocks. In every epoch the text is cut at other points.
# After some epochs we look at three things: the nats per character on the thirty sonnets, on the
# ten others, and what it writes.

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
sizes = dict(num_layers=2, d_model=64, num_heads=4, d_ff=256, dropout=0.0)
model = kt.LanguageModel(tokenizer.vocabulary_size(), **sizes, norm_first=True, rotary=True)
steps = EPOCHS * len(batches)
schedule = keras.optimizers.schedules.CosineDecay(
    0.0, steps - 60, warmup_target=0.006, warmup_steps=60
)
model.compile(
    kt.paper_optimizer(schedule), kt.TokenCrossEntropy(), jit_compile=backend.prefers_jit()
)
writer = kt.TextGenerator(model, tokenizer, window=WINDOW, append_end=False)


class ReadAlong(keras.callbacks.Callback):
    """Lets the model write after some epochs."""

    def on_epoch_end(self, epoch, logs=None):
        if epoch + 1 in (1, 6, 12, EPOCHS):
            sample = writer.generate(["\n\n"], max_tokens=80, temperature=0.7, seed=epoch)[0]
            texts[epoch + 1] = sample
            print(f"--- after {epoch + 1} epochs:", sample.strip().replace("\n", " / "))


texts = {}
history = model.fit(
    batches,
    validation_data=tests,
    epochs=EPOCHS,
    shuffle=False,
    verbose=0,
    callbacks=[ReadAlong()],
).history
loss, val_loss = np.array(history["loss"]), np.array(history["val_loss"])
best = int(val_loss.argmin())
print(f"lowest on the other sonnets {val_loss[best]:.2f} nats after {best + 1} epochs, at the end")
print(f"{val_loss[-1]:.2f}; on its own {loss[best]:.2f} then, {loss[-1]:.2f} at the end")
