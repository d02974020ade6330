"""Custom gradients, and results computed once more in the backward pass instead of kept."""

import contextvars
import functools
from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from .platform import name
from .private import layers_of

# The rematerialized layer that this thread is in the call of.
_computed_now = contextvars.ContextVar[keras.layers.Layer | None]("computed_now", default=None)


def with_gradient(function: Callable, gradient: Callable) -> Callable:
    """A function with a custom gradient, computed from the tensors that it asks to keep.

    `ops.custom_gradient` keeps whatever the gradient mentions: on PyTorch out of the sight of
    rematerialization. And JAX lets it mention nothing that is being traced. Of what is kept PyTorch
    knows no gradient, so that it refuses a second derivative.

    Args:
        function: from a float tensor and constants to a tensor, and a tuple of tensors to keep.
        gradient: from the gradient by the result, and the kept tensors, to that by the first
            argument.

    Returns:
        A function with the arguments of `function`, to its first result.
    """
    if name() == "torch":
        return functools.partial(_with_gradient_on_torch().apply, function, gradient)
    if name() == "jax":
        import jax

        def differentiable(x, *constants):
            def backward(kept, upstream):
                return gradient(upstream, *kept), *[None] * len(constants)

            result = jax.custom_vjp(lambda *args: function(*args)[0])
            result.defvjp(function, backward)
            return result(x, *constants)

        return differentiable

    import tensorflow as tf

    @tf.custom_gradient
    def traced(x, *constants):
        result, kept = function(x, *constants)
        return result, lambda upstream: (gradient(upstream, *kept), *[None] * len(constants))

    return traced


@functools.cache
def _with_gradient_on_torch():
    """One class for all functions: making one takes longer than a small operation."""
    import torch

    class NotDifferentiable(torch.autograd.Function):
        @staticmethod
        def forward(context, gradient, result):  # the result depends on what it is a gradient by
            return gradient.view_as(gradient)

        @staticmethod
        def backward(context, upstream):
            raise RuntimeError(
                "The loss has no second derivative on PyTorch; use TensorFlow or JAX, or a loss of "
                "keras.losses."
            )

    class WithGradient(torch.autograd.Function):
        @staticmethod
        def forward(context, function, gradient, x, *constants):
            result, kept = function(x, *constants)
            context.save_for_backward(result, *kept)
            context.gradient, context.num_constants = gradient, len(constants)
            return result

        @staticmethod
        def backward(context, upstream):
            result, *kept = context.saved_tensors
            by_x = context.gradient(upstream, *kept)
            if torch.is_grad_enabled():  # create_graph=True
                by_x = NotDifferentiable.apply(by_x, result)
            return None, None, by_x, *[None] * context.num_constants

    return WithGradient


class RematerializedLayer(keras.layers.Layer):
    """A layer whose call is computed once more in the backward pass if `keras.RematScope` says so.

    keras.remat alone cannot do it: it computes again outside of Keras's call, where dropout is
    off, or with other random numbers, and JAX takes flags for tensors. Here what is computed again
    depends on tensors alone, the states of the dropouts included. Each of these is called once.
    """

    def rematerialized_call(self, layer_call, *args, **kwargs):
        """`layer_call`, or what replaces it in training, where the scope names this layer."""
        chosen = super().rematerialized_call(layer_call, *args, **kwargs) is not layer_call
        if not chosen or not kwargs.get("training") or _computed_now.get() is self:
            return layer_call
        return self._computed_twice

    def _computed_twice(self, *args, **kwargs):
        def call(*args, **kwargs):
            token = _computed_now.set(self)
            try:
                return self(*args, **kwargs)  # with `training`, which dropout reads
            finally:
                _computed_now.reset(token)

        values = [_present_value(variable) for variable in self.variables]
        output = _computed_again(self.variables, values, call, args, kwargs)
        for inner in layers_of(self):
            if isinstance(inner, keras.layers.Dropout) and inner.rate > 0:
                inner.seed_generator.next()  # as it has done within the scope
        return output


def one_by_one(variables: list, function: Callable, *arrays: Any) -> Any:
    """`function` of the rows of arrays, one after the other: only one is in memory.

    In the backward pass it is computed once more.

    Args:
        variables: list of variables, the weights that the result of `function` depends on.
        function: from a row of each array to a list of tensors.
        *arrays: tensors with as many rows.

    Returns:
        List of tensors, each with as many rows.
    """
    values = [_present_value(variable) for variable in variables]
    if name() == "jax":  # of operations without a loop, XLA would keep all results
        return ops.map(lambda row: _computed_again(variables, values, function, row, {}), arrays)
    results: list[list] = []
    for row in zip(*(ops.unstack(x) for x in arrays), strict=True):
        if results and name() == "tensorflow":  # which would compute all at once
            results[-1][0], *values = _in_turn(results[-1][0], *values)
        results.append(list(_computed_again(variables, values, function, row, {})))
    return [ops.stack(rows) for rows in zip(*results, strict=True)]


def _in_turn(result, *values):
    """The identity, but the values only once the result is known; in the gradient, reversed."""
    import tensorflow as tf

    @tf.custom_gradient
    def identity(result, *values):
        with tf.control_dependencies([result]):
            later = [tf.identity(value) for value in values]

        def gradient(by_result, *by_values):
            with tf.control_dependencies(by_values):
                return tf.identity(by_result), *by_values

        return (tf.identity(result), *later), gradient

    return identity(result, *values)


def _computed_again(variables, values, function, args, kwargs):
    """`function(*args, **kwargs)`, which reads variables, once more in the backward pass."""
    structure = (args, kwargs), values
    values = keras.tree.flatten(structure)
    places = [place for place, value in enumerate(values) if _is_float(value)]

    def compute(*floats):  # what else there is, masks and random states, has no gradient
        given = list(values)
        for place, value in zip(places, floats, strict=True):
            given[place] = value
        (args, kwargs), states = keras.tree.pack_sequence_as(structure, given)
        with keras.StatelessScope(list(zip(variables, states, strict=True))):
            return function(*args, **kwargs)

    return keras.remat(compute)(*(values[place] for place in places))


def _present_value(variable):
    """The value of a variable as a tensor, which on TensorFlow a variable is itself."""
    if name() == "tensorflow":
        import tensorflow as tf

        return tf.identity(variable.value)
    return variable.value


def _is_float(value):
    return ops.is_tensor(value) and keras.backend.is_float_dtype(value.dtype)
