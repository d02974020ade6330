"""The paper's learning rate schedule and optimizer, and newer ones."""

from typing import Any

import keras
from keras import ops

from .checks import check, check_above_0, check_at_least

OPTIMIZERS = ("adam", "adamw", "lion", "muon")
# Names of the weights that weight decay leaves alone: all but kernels.
WITHOUT_DECAY = ("bias", "gamma", "beta", "embeddings", "positions")


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


@keras.saving.register_keras_serializable(package="keras_transformer")
class WSDSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """peak * min(step / warmup_steps, 1, (num_steps + 1 - step) / decay_steps), with step from 1.

    Warm-up, stable, decay: the rate is constant between two straight lines.

    Args:
        peak: float above 0.
        warmup_steps: int from 1, steps of linear growth.
        num_steps: int from 1, steps of the training; after them the rate is 0.
        decay_steps: int from 1, steps of the linear decay at its end.

    Raises:
        ValueError: If a number is out of range.

    Source: Hu et al. 2024 (MiniCPM), section 4.
    Departs: the decay is linear, as in Hägele et al. 2024, section 3, not exponential.
    """

    def __init__(self, peak: float, warmup_steps: int, num_steps: int, decay_steps: int):
        check_above_0(peak=peak)
        check_at_least(1, warmup_steps=warmup_steps, num_steps=num_steps, decay_steps=decay_steps)
        self.peak, self.warmup_steps = peak, warmup_steps
        self.num_steps, self.decay_steps = num_steps, decay_steps

    def __call__(self, step):
        step = ops.cast(step, "float32") + 1.0
        lines = ops.minimum(
            step / self.warmup_steps, (self.num_steps + 1 - step) / self.decay_steps
        )
        return self.peak * ops.clip(lines, 0.0, 1.0)

    def get_config(self):
        return dict(vars(self))


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


def create_optimizer(
    optimizer: str, learning_rate: Any, weight_decay: float = 0.01, **kwargs: Any
) -> keras.optimizers.Optimizer:
    """An optimizer by name; its weight decay is for kernels alone.

    Biases, layer normalizations, embeddings and learned positions do not decay. Keras does not save
    that with a compiled model: compile a loaded one again.

    Args:
        optimizer: "adam", that of the paper, without weight decay; "adamw", the same with it;
            "lion", whose learning rate should be more than ten times smaller; or "muon", which
            takes the rate of Adam, and is for the kernels of blocks: "adamw" updates all other
            weights.
        learning_rate: float or schedule.
        weight_decay: float, the share of a kernel that an update subtracts, per learning rate.
        **kwargs: of a keras.optimizers.Optimizer; see `paper_optimizer`.

    Returns:
        keras.optimizers.Optimizer.

    Raises:
        ValueError: There is no such optimizer.

    Source: Loshchilov and Hutter 2019 (AdamW); Chen et al. 2023 (Lion); Jordan et al. 2024 and Liu
        et al. 2025 (Muon); keras.optimizers.
    """
    expected = f"optimizer must be one of {', '.join(OPTIMIZERS)}"
    check(optimizer in OPTIMIZERS, expected, optimizer=optimizer)
    if optimizer == "adam":
        return paper_optimizer(learning_rate, **kwargs)
    kwargs |= {"learning_rate": learning_rate, "weight_decay": weight_decay}
    if optimizer == "lion":
        made = keras.optimizers.Lion(**kwargs)
    elif optimizer == "adamw":
        made = keras.optimizers.AdamW(beta_1=0.9, beta_2=0.98, epsilon=1e-9, **kwargs)
    else:
        by_adam = ["positions", "^labels/"]  # and embeddings, and all but matrices
        adam = dict(adam_beta_2=0.98, epsilon=1e-9, adam_weight_decay=weight_decay)
        made = keras.optimizers.Muon(exclude_layers=by_adam, **adam, **kwargs)
    made.exclude_from_weight_decay(var_names=WITHOUT_DECAY)
    return made
