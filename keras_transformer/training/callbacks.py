"""What one sees while it trains, and when it ends."""

import time

import keras

from ..arguments import check, check_at_least


class Progress(keras.callbacks.Callback):
    """Adds real target tokens a second to the bar and the log, and to the bar the minutes left.

    The minutes are those of all epochs, at the speed of this one so far.

    Args:
        batches: `TranslationBatches`, or what else tells `num_tokens` an epoch and its length.
    """

    def __init__(self, batches):
        super().__init__()
        self.batches = batches

    def on_epoch_begin(self, epoch, logs=None):
        self.tokens_per_batch = self.batches.num_tokens / len(self.batches)
        self.epochs_after = self.params["epochs"] - epoch - 1
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        elapsed, done = time.perf_counter() - self.start, batch + 1
        left = (self.epochs_after + 1) * len(self.batches) - done
        self.rate = done * self.tokens_per_batch / elapsed
        logs["tokens_per_second"] = self.rate
        logs["minutes_left"] = left / done * elapsed / 60

    def on_epoch_end(self, epoch, logs=None):
        logs["tokens_per_second"] = self.rate


class ValidationScore(keras.callbacks.Callback):
    """Translates the same sentences after every epoch and logs how good that is.

    Place it before the callbacks that read the log.

    Args:
        translator: a `Translator` over the model in training.
        examples: `Examples` it is not trained on.
        score: function of translations and references, such as `evaluation.bleu`.
        number: int, how many of the examples, spread over all.
        name: str, under which the log has it; a bare number or the `value` of what `score` returns.
    """

    def __init__(self, translator, examples, score, number=200, name="val_bleu"):
        super().__init__()
        self.translator, self.score, self.name = translator, score, name
        self.source, self.target = (spread(side, number) for side in examples)

    def on_epoch_end(self, epoch, logs=None):
        score = self.score(self.translator.translate(self.source), self.target)
        logs[self.name] = float(getattr(score, "value", score))


class EarlyStopping(keras.callbacks.Callback):
    """Ends training once a number of the log has not become better for `patience` epochs.

    Args:
        monitor: str, its name in the log, such as "val_perplexity".
        patience: int from 1, epochs.
        mode: "min" or "max": which is better.
        past: list of dict, the log of epochs before a resumption, oldest first.

    Departs: keras.callbacks.EarlyStopping begins to count anew when a run is resumed, and trains
    one more batch of a run that had ended.
    """

    def __init__(self, monitor, patience, mode="min", past=()):
        super().__init__()
        check_at_least(1, patience=patience)
        check(mode in ("min", "max"), "mode must be min or max", mode=mode)
        self.monitor, self.patience, self.sign = monitor, patience, 1 if mode == "min" else -1
        self.values = [self.sign * float(row[monitor]) for row in past]

    @property
    def ended(self):
        """bool, whether the last improvement is `patience` epochs ago."""
        if not self.values:
            return False
        return len(self.values) - 1 - self.values.index(min(self.values)) >= self.patience

    def on_epoch_end(self, epoch, logs=None):
        self.values.append(self.sign * float(logs[self.monitor]))
        self.model.stop_training |= self.ended


class Samples(keras.callbacks.Callback):
    """Prints what a function says after every epoch, so that one can watch the model learn.

    Args:
        say: function without arguments that returns a str.
    """

    def __init__(self, say):
        super().__init__()
        self.say = say

    def on_epoch_end(self, epoch, logs=None):
        print(f"\n{self.say()}")


def spread(examples, number):
    """So many of a list of examples, evenly spread over it."""
    return examples[:: max(1, len(examples) // number)][:number]
