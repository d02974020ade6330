"""The paper's learning rate schedule and optimizer."""

from typing import Any

import keras
from keras import ops

from .checks import check_at_least


@keras.saving.register_keras_serializable(package="keras_transformer")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), with step from 1.

    Args:
        d_model: int, width of the model.
        warmup_steps: int, steps of linear growth; the peak is scale / sqrt(d_model warmup_steps).
        scale: float.

    Raises:
        ValueError: If `d_model` or `warmup_steps` is below 1.

    Source: Vaswani et al. 2017, equation 3.
    Departs: Keras counts finished steps from 0; the first step here is step 1 of the paper, so
        that no step has the rate 0.
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, scale: float = 1.0):
        check_at_least(1, d_model=d_model, warmup_steps=warmup_steps)
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale

    @classmethod
    def with_peak(cls, peak: float, warmup_steps: int) -> "WarmupSchedule":
        """The same curve, given by its largest learning rate, reached after `warmup_steps`."""
        return cls(1, warmup_steps, scale=peak * warmup_steps**0.5)

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        warmup = step * self.warmup_steps**-1.5
        return self.scale * self.d_model**-0.5 * ops.minimum(ops.rsqrt(step), warmup)

    def get_config(self):
        return {"d_model": self.d_model, "warmup_steps": self.warmup_steps, "scale": self.scale}


def paper_optimizer(learning_rate: Any, **kwargs: Any) -> keras.optimizers.Adam:
    """Adam with beta_1 = 0.9, beta_2 = 0.98 and epsilon = 1e-9.

    Args:
        learning_rate: float or schedule, for instance `WarmupSchedule`.
        **kwargs: of keras.optimizers.Adam, such as clipnorm or use_ema. With
            gradient_accumulation_steps, a schedule and an exponential moving average count
            batches, not updates.

    Returns:
        keras.optimizers.Adam.

    Source: Vaswani et al. 2017, section 5.3.
    """
    return keras.optimizers.Adam(learning_rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9, **kwargs)
