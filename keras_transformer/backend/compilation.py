"""Functions compiled by XLA, their arguments, and where the programs are kept."""

import functools
import os
import threading
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ..atomic import named
from ..checks import check
from .platform import name, on_accelerator
from .private import layers_of

MOST_PROGRAMS = 32  # per model; beyond them the one that was used least recently is dropped
# Tokens of a call; beyond them XLA, or PyTorch's recorder, saves more time than it takes.
FEW_TOKENS = {"tensorflow": 2**17, "torch": 2**8, "jax": 0}  # JAX has nothing but XLA

_lock = threading.Lock()  # of the programs of all models


@keras.saving.register_keras_serializable(package="keras_transformer")
class FunctionalModel(keras.Model):
    """A functional keras.Model whose first training step TensorFlow traces once instead of twice.

    An optimizer that is built within that step would have it traced again; so do metrics that are
    made in it, as for several outputs.
    """

    def make_train_function(self, force=False):
        if self.optimizer is not None and not self.optimizer.built:
            self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)

    def __setattr__(self, name, value):
        if isinstance(value, keras.Layer) and not hasattr(self, "inputs"):
            # The graph tracks the layers; PyTorch refuses them before the constructor has run.
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """Refuses a `keras.RematScope` that rematerializes the whole model, blocks and all."""
        if super().rematerialized_call(layer_call, *args, **kwargs) is not layer_call:
            raise ValueError(
                "Blocks alone can be rematerialized, by their names; received a keras.RematScope "
                f'of the whole {self.name}. Use mode="list_of_layers", '
                'layer_names=["block_1", ...].'
            )
        return layer_call


def prefers_jit() -> bool:
    """Whether `compile(jit_compile=...)` makes a training step faster.

    JAX always compiles. XLA on TensorFlow helps on a GPU. On a CPU a step is as fast without it
    where freed memory is kept; it would compile each shape, and it knows nothing of several
    devices. torch.compile takes long for each shape everywhere.
    """
    if name() == "tensorflow":
        import tensorflow as tf

        several = tf.distribute.get_strategy().num_replicas_in_sync > 1
        return on_accelerator() and not several
    return name() == "jax"


def are_few(tokens: int) -> bool:
    """Whether a call has so few tokens that programs should be ready soon, at the price of speed.

    Args:
        tokens: int, of all texts of the call, times the beams.
    """
    return tokens <= FEW_TOKENS[name()]


def jit(function: Callable, programs: "Programs", *static: str) -> Callable:
    """`function` as one XLA program per shape; the weights of the model are read at each call.

    On PyTorch it runs uncompiled, in inference mode; see `trace`.

    Args:
        function: its positional arguments are structures of tensors.
        programs: `Programs` of the model whose weights it reads.
        *static: names of keyword arguments that are plain values, not tensors.

    Returns:
        A function with the same arguments and `few`: bool, True: on TensorFlow a graph without XLA
        is run instead.
    """
    if name() == "tensorflow":
        import tensorflow as tf

        options: Any = {"autograph": False, "reduce_retracing": True}
        graph = tf.function(function, jit_compile=False, **options)
        if programs.full:
            return lambda *args, few=False, **kwargs: graph(*args, **kwargs)
        compiled = tf.function(function, jit_compile=True, **options)
        return lambda *args, few=False, **kwargs: (graph if few else compiled)(*args, **kwargs)
    if name() == "jax":
        import jax

        model = programs.model
        variables = functools.cache(lambda: list(model.variables))  # a walk through all layers

        def stateless(values, *args, **kwargs):
            with keras.StatelessScope(state_mapping=zip(variables(), values, strict=True)):
                return function(*args, **kwargs)

        program = jax.jit(stateless, static_argnames=static)
        return lambda *args, few=False, **kwargs: program(
            [v.value for v in variables()], *args, **kwargs
        )

    import torch

    uncompiled = torch.inference_mode()(function)
    return lambda *args, few=False, **kwargs: uncompiled(*args, **kwargs)


class Programs:
    """Compiled programs of a model, for any number of threads: the 32 that were used last.

    All are compiled again after LoRA or quantization, which give layers other weights.

    Args:
        model: keras.Model; the layers of another object cannot change in this way.
    """

    def __init__(self, model: Any):
        self.model = model
        layers = layers_of(model) if isinstance(model, keras.Model) else ()
        self._layers = [layer for layer in layers if hasattr(layer, "lora_enabled")]
        self._programs: dict = {}
        self._adapted: list | None = None

    @property
    def full(self) -> bool:
        """Whether a program that is made now replaces another, and so is made for few texts.

        TensorFlow never frees what XLA has compiled.
        """
        return len(self._programs) >= MOST_PROGRAMS

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """The program of a key for the present weights, made by `make` if it is missing."""
        with _lock:
            adapted = [(layer.lora_enabled, layer.quantization_mode) for layer in self._layers]
            if adapted != self._adapted:
                self._programs, self._adapted = {}, adapted
            program = self._programs.pop(key, None)
            if program is None:
                program = make()
                if self.full:
                    del self._programs[next(iter(self._programs))]
            self._programs[key] = program  # the last one
            return program


def to_tensors(structure: Any) -> Any:
    """A structure of arrays as tensors of the backend; None stays None."""
    convert = ops.convert_to_tensor
    return keras.tree.map_structure(lambda x: None if x is None else convert(x), structure)


def to_arguments(structure: Any) -> Any:
    """NumPy arrays as what a function compiled by `jit` takes: tensors; None stays None.

    On JAX it takes the arrays themselves, in a tenth of the time that tensors would need.

    Args:
        structure: NumPy arrays or scalars, or None, in tuples.

    Returns:
        The same structure.
    """
    return structure if name() == "jax" else to_tensors(structure)


def split_rows(structure: Any) -> Any:
    """`to_arguments`; on JAX with several devices, their rows are split over the devices.

    If the number of rows is not a multiple of the devices, each device computes all of them.

    Args:
        structure: arrays with one row per example, or None.
    """
    structure = to_arguments(structure)
    distribution = keras.distribution.distribution() if name() == "jax" else None
    if distribution is None:
        return structure
    import jax

    def split(x):
        if x is None or x.shape[0] % distribution.num_model_replicas:
            return x
        return jax.device_put(x, distribution.get_data_layout(x.shape).backend_layout)

    return keras.tree.map_structure(split, structure)


def keep_programs(folder: str | os.PathLike) -> None:
    """Keeps compiled programs in a folder: a later process loads them instead of compiling them.

    JAX alone does so. Call it before the first operation.

    Args:
        folder: path; it is made when the first program is kept.

    Raises:
        ValueError: On TensorFlow and PyTorch; or the folder has no name.
        NotADirectoryError: It is a file.
    """
    named(folder, "The folder for compiled programs")
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(f"{folder} is a file; name a folder for compiled programs.")
    expected = "Compiled programs are kept on JAX alone, so leave out the folder"
    check(name() == "jax", expected, backend=name())
    import jax

    jax.config.update("jax_compilation_cache_dir", os.path.abspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
