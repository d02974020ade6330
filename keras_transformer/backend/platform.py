"""The running backend and its device. Importing this module does not import Keras."""

from typing import Any, TypeAlias

Tensor: TypeAlias = Any  # of the running backend; where one is read, NumPy's arrays also do


def name() -> str:
    """The running backend: "tensorflow", "jax" or "torch"."""
    import keras

    return keras.backend.backend()


def on_accelerator() -> bool:
    """Whether the backend computes on a GPU or a TPU."""
    if name() == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    if name() == "jax":
        import jax

        return jax.default_backend() != "cpu"
    return torch_device().type != "cpu"


def torch_device():
    """The torch.device of Keras, which KERAS_TORCH_DEVICE can choose."""
    import keras

    return keras.ops.zeros(()).device
