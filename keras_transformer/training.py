"""What `model.fit` needs: loss, metrics, schedule, and a checkpoint that survives a kill."""

import os
import pathlib
import time

import keras
import numpy as np
from keras import ops

from .arguments import check_at_least, check_rates
from .tokenizers import PADDING


def nats_per_token(labels, logits, label_smoothing=0.0):
    """-sum_k q_k log p_k with p = softmax(logits), q = (1 - e) onehot(label) + e / V, everywhere.

    Its gradient is p - q, written out below: automatic differentiation would take three more
    passes over an array as large as the logits. No one-hot matrix is built.

    Args:
        labels: int, (batch, length).
        logits: float, (batch, length, vocabulary size).
        label_smoothing: float in [0, 1), e.

    Returns:
        float32, (batch, length), nats.

    Source: Szegedy et al. 2016, section 7; Vaswani et al. 2017, section 5.4.
    """
    on_label, on_each = 1 - label_smoothing, label_smoothing / logits.shape[-1]  # q in two parts
    labels = ops.expand_dims(labels, -1)

    @ops.custom_gradient
    def nats(logits):
        log_p = ops.log_softmax(logits, axis=-1)
        of_label = ops.squeeze(ops.take_along_axis(log_p, labels, axis=-1), -1)

        def gradient(*args, upstream=None):
            p_minus_q = ops.exp(log_p)
            p_minus_q -= on_each  # on PyTorch, where each new array costs, in place
            p_minus_q = _subtract_at(p_minus_q, labels, on_label)
            p_minus_q *= ops.expand_dims(args[0] if upstream is None else upstream, -1)
            return p_minus_q

        if not label_smoothing:
            return -of_label, gradient
        return -on_label * of_label - on_each * ops.sum(log_p, axis=-1), gradient

    return nats(ops.cast(logits, "float32"))


def _subtract_at(x, indices, number):
    """x with `number` subtracted at one index of its last axis; on PyTorch, x itself."""
    if keras.backend.backend() == "torch":
        return x.scatter_add_(-1, indices.long(), x.new_full(indices.shape, -number))
    hit = ops.equal(indices, ops.arange(x.shape[-1], dtype=indices.dtype))
    return ops.where(hit, x - number, x)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenCrossEntropy(keras.losses.Loss):
    """Cross-entropy in nats per real target token; padding counts for nothing.

    Args:
        label_smoothing: float in [0, 1), the share of probability spread over the vocabulary.

    Call arguments:
        y_true: int, (batch, length), labels padded with 0.
        y_pred: float, (batch, length, vocabulary size), logits.
        sample_weight: float, broadcastable to (batch, length).

    Returns:
        float32 scalar: (weighted) sum over real tokens / their (weighted) number.

    Source: Vaswani et al. 2017, section 5.4.
    Departs: Keras would divide by the padded positions too; here they do not exist.
    """

    def __init__(self, label_smoothing=0.0, name="token_cross_entropy"):
        super().__init__(name=name)
        check_rates(label_smoothing=label_smoothing)
        self.label_smoothing = label_smoothing

    def call(self, y_true, y_pred):
        return nats_per_token(y_true, y_pred, self.label_smoothing)

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true, "int32")
        weights = _token_weights(y_true, sample_weight)
        total = ops.sum(self.call(y_true, y_pred) * weights)
        return total / ops.maximum(ops.sum(weights), keras.config.epsilon())

    def get_config(self):
        return {"name": self.name, "label_smoothing": self.label_smoothing}


def _token_weights(labels, sample_weight=None):
    """1 at real tokens, 0 at padding; times the sample weight."""
    weights = ops.cast(ops.not_equal(labels, PADDING), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.convert_to_tensor(sample_weight, "float32")
    if len(sample_weight.shape) == 1:  # one weight a sentence
        sample_weight = ops.expand_dims(sample_weight, -1)
    return weights * sample_weight


def _flat(values, weights):
    """One row of tokens: keras.metrics.Mean would divide what a batch counts by its length."""
    return ops.ravel(values), ops.ravel(weights)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TokenAccuracy(keras.metrics.Mean):
    """Share of real target tokens whose largest logit is the label's, in [0, 1].

    Call arguments: those of `TokenCrossEntropy`.
    """

    def __init__(self, name="token_accuracy", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true, "int32")
        hits = ops.equal(ops.cast(ops.argmax(y_pred, axis=-1), "int32"), y_true)
        super().update_state(*_flat(hits, _token_weights(y_true, sample_weight)))


@keras.saving.register_keras_serializable(package="keras_transformer")
class Perplexity(keras.metrics.Mean):
    """exp(total nats / number of real target tokens), without label smoothing.

    Call arguments: those of `TokenCrossEntropy`.

    Source: Jelinek et al. 1977; a mean of batch perplexities is a different, larger number.
    """

    def __init__(self, name="perplexity", **kwargs):
        super().__init__(name=name, **kwargs)

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = ops.convert_to_tensor(y_true, "int32")
        nats = nats_per_token(y_true, y_pred)
        super().update_state(*_flat(nats, _token_weights(y_true, sample_weight)))

    def result(self):
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(package="keras_transformer")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), with step from 1.

    Args:
        d_model: int, width of the model.
        warmup_steps: int, steps of linear growth; the peak is scale / sqrt(d_model warmup_steps).
        scale: float.

    Source: Vaswani et al. 2017, equation 3.
    Departs: Keras counts finished steps from 0; the first step here is step 1 of the paper, so
    that no step has the rate 0.
    """

    def __init__(self, d_model, warmup_steps=4000, scale=1.0):
        check_at_least(1, warmup_steps=warmup_steps)
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    @classmethod
    def with_peak(cls, peak, warmup_steps):
        """The same curve, named by its largest learning rate, reached after `warmup_steps`."""
        return cls(1, warmup_steps, scale=peak * warmup_steps**0.5)

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        warmup = step * self.warmup_steps**-1.5
        return self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(step), warmup)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}


def paper_optimizer(learning_rate, **kwargs):
    """Adam with beta_1 = 0.9, beta_2 = 0.98 and epsilon = 1e-9.

    Args:
        learning_rate: float or schedule, for instance `WarmupSchedule`.
        **kwargs: of keras.optimizers.Adam, such as clipnorm or use_ema.

    Source: Vaswani et al. 2017, section 5.3.
    """
    return keras.optimizers.Adam(learning_rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9, **kwargs)


def pays_to_compile():
    """Whether `compile(jit_compile=...)` makes a step faster here.

    JAX always compiles. XLA on TensorFlow pays on a GPU; on a CPU it is slower and compiles anew
    for every shape. torch.compile does the latter everywhere.
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    return keras.backend.backend() == "jax"


def make_deterministic():
    """Asks the backend for operations that give the same bits each time, at some cost."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    if keras.backend.backend() == "torch":
        import torch

        torch.use_deterministic_algorithms(True)


class Checkpoint(keras.callbacks.Callback):
    """Saves all that training depends on after every epoch, so that a killed run resumes.

    One file an epoch holds weights and optimizer; it is written beside its place and then
    renamed, so that a kill at any moment leaves the last whole one. What is random (dropout, the
    order of the batches) starts every epoch from (seed, epoch) alone: a resumed epoch is the
    epoch that would have been.

        checkpoint = Checkpoint("runs/dates/checkpoint", batches, seed=0)
        first = checkpoint.restore(model)
        model.fit(batches, epochs=8, initial_epoch=first, callbacks=[checkpoint])

    Args:
        folder: where the checkpoint lives.
        batches: what is fitted on; its `epoch` is set at the start of every epoch.
        seed: int.

    Departs: keras.callbacks.BackupAndRestore writes weights and epoch number as two files, not
    at one moment, and keeps no state of the random generators.
    """

    def __init__(self, folder, batches, seed=0):
        super().__init__()
        self.folder = pathlib.Path(folder)
        self.batches = batches
        self.seed = seed

    def restore(self, model):
        """Puts the last checkpoint, if there is one, into a compiled model.

        Returns:
            int: the number of finished epochs, for `fit(initial_epoch=...)`.
        """
        finished = self._finished()
        if finished:
            model.optimizer.build(model.trainable_variables)
            model.load_weights(self._path(finished))
        return finished

    def on_epoch_begin(self, epoch, logs=None):
        self.batches.epoch = epoch
        if keras.backend.backend() == "torch":  # whose dropout draws from torch's own generator
            import torch

            torch.manual_seed(self.seed + epoch)
        states = [v for v in self.model.variables if v.name == "seed_generator_state"]
        seeds = np.random.SeedSequence([self.seed, epoch]).generate_state(len(states)) >> 1
        for state, seed in zip(states, seeds):
            state.assign(np.array([seed, 0], "uint32"))

    def on_epoch_end(self, epoch, logs=None):
        self.folder.mkdir(parents=True, exist_ok=True)
        beside = self.folder / "unfinished.weights.h5"
        self.model.save_weights(beside, overwrite=True)
        previous = self._finished()
        os.replace(beside, self._path(epoch + 1))
        if previous and previous != epoch + 1:
            self._path(previous).unlink()

    def _path(self, finished):
        return self.folder / f"epoch-{finished:04d}.weights.h5"

    def _finished(self):
        names = [path.name for path in self.folder.glob("epoch-*.weights.h5")]
        return max((int(name[6:10]) for name in names), default=0)


class TrainingLog(keras.callbacks.CSVLogger):
    """keras.callbacks.CSVLogger that goes on where a resumed run begins.

    Args:
        path: the CSV file.
        initial_epoch: int, finished epochs; rows after them are of a killed epoch and dropped.
    """

    def __init__(self, path, initial_epoch=0):
        super().__init__(path, append=True)
        path = pathlib.Path(path)
        if path.exists():
            header, *rows = path.read_text().splitlines(keepends=True)
            rows = [row for row in rows if int(row.split(",")[0]) < initial_epoch]
            beside = path.with_suffix(".unfinished")
            beside.write_text("".join([header, *rows]))
            os.replace(beside, path)


class TokensPerSecond(keras.callbacks.Callback):
    """Adds real target tokens a second to the progress bar and the log.

    Args:
        num_tokens: int, real target tokens in an epoch.
        num_batches: int, batches in an epoch.
    """

    def __init__(self, num_tokens, num_batches):
        super().__init__()
        self.tokens_per_batch = num_tokens / num_batches

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        elapsed = time.perf_counter() - self.start
        self.rate = (batch + 1) * self.tokens_per_batch / elapsed
        logs["tokens_per_second"] = self.rate

    def on_epoch_end(self, epoch, logs=None):
        logs["tokens_per_second"] = self.rate


class SampleTranslations(keras.callbacks.Callback):
    """Prints a few translations after every epoch, so that one can watch it learn.

    Args:
        translator: a `Translator` over the model in training.
        examples: `Examples` it is not trained on.
        number: int, how many of them, spread over all.
    """

    def __init__(self, translator, examples, number=3):
        super().__init__()
        self.translator = translator
        every = max(1, len(examples.source) // number)
        self.source = examples.source[::every][:number]
        self.target = examples.target[::every][:number]

    def on_epoch_end(self, epoch, logs=None):
        print()
        for text, reference, said in zip(
            self.source, self.target, self.translator.translate(self.source)
        ):
            print(f"  source     {text}\n  model      {said}\n  reference  {reference}\n")
