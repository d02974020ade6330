"""How the weights move: the paper's learning rate and Adam, and what a backend does best."""

import keras
from keras import ops

from ..arguments import check_at_least


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
        **kwargs: of keras.optimizers.Adam, such as clipnorm or use_ema. With
            gradient_accumulation_steps, a schedule and a running mean count batches, not updates.

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


def use_threads(number):
    """Lets one operation use so many threads, on TensorFlow and PyTorch; JAX has no such setting.

    Operations of a small model lose more by being shared out than they gain. To be called before
    the backend's first operation.

    Args:
        number: int from 1.
    """
    check_at_least(1, number=number)
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(number)
    if keras.backend.backend() == "torch":
        import torch

        torch.set_num_threads(number)


def make_deterministic():
    """Asks the backend for operations that give the same bits each time, at some cost."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    if keras.backend.backend() == "torch":
        import torch

        torch.use_deterministic_algorithms(True)
