"""The examination of functions, and of layers without matrices: masks, positions, attention."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from . import faults, formulas
from .comparison import close, explanation, fits, unexplained
from .faults import Fault
from .formulas import PAPER, Formula
from .subjects import arguments_for, call, make, mask_role, parameters, role_of

BATCH, TARGET, SOURCE, WIDTH = 3, 4, 5, 6  # all different, and none the number of heads
PADDED = (np.arange(SOURCE) < np.array([[5], [3], [4]]))[:, None]  # (batch, 1, source length)


def normal(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Any:
    """Random float32 numbers.

    Args:
        rng: numpy.random.Generator.
        *shape: int.
        scale: float, standard deviation.

    Returns:
        float32, `shape`.
    """
    return (scale * rng.normal(size=shape)).astype("float32")


def mark_attention(function: Callable, checked: list[str]) -> Fault | None:
    """Examines a function of query, key and value, and perhaps of a mask.

    Args:
        function: function that returns the output, or the output and the weights.
        checked: list to which the names of what was examined are added.

    Returns:
        `Fault`, or None.
    """
    rng = np.random.default_rng(0)
    q, k, v = (normal(rng, BATCH, length, WIDTH) for length in (TARGET, SOURCE, SOURCE))
    k *= np.linspace(0.5, 2, SOURCE, dtype="float32")[:, None]

    def output(q, k, v, mask=None):
        values = {"query": q, "key": k, "value": v}
        masks = {} if mask is None else dict.fromkeys(("padding", "look_ahead", "memory"), mask)
        try:
            result = call(function, arguments_for(function, values, masks))
        except Exception:
            if not masks:
                raise
            masks = {role: each.astype("float32") for role, each in masks.items()}
            result = call(function, arguments_for(function, values, masks))
        return result if isinstance(result, tuple) else (result,)

    def examine(wrongs, q, k, v, mask=None):
        found, *weights = output(q, k, v, mask)
        q, k, v = (x.astype("float64") for x in (q, k, v))

        def predict(formula):
            yield formulas.attention(q, k, v, mask, formula)[0]

        if not fits(found, predict, PAPER):
            fault = explanation([found], predict, [PAPER], wrongs)
            expected = next(predict(PAPER))
            return fault or unexplained(found, expected, 3, "softmax(Q K^T / √d_k) V")
        right = formulas.attention(q, k, v, mask)[1]
        is_other = weights and weights[0].shape == right.shape and not close(weights[0], right)
        return faults.RETURNED_WEIGHTS if is_other else None

    checked += ["shape", "values", "scale"]
    fault = examine(faults.SCALE + faults.SOFTMAX, q, k, v)
    if fault:
        return fault
    if any(mask_role(name) for name in parameters(function)):
        checked += ["mask", "polarity of the mask", "a query without keys"]
        padded = np.broadcast_to(PADDED, (BATCH, TARGET, SOURCE))
        triangle = np.broadcast_to(formulas.look_ahead(SOURCE), (BATCH, SOURCE, SOURCE))
        fault = examine(faults.MASK, q, k, v, padded)
        fault = fault or examine(faults.MASK, k, k, v, triangle)
        if fault:
            return fault
        nothing = padded & (np.arange(BATCH) > 0)[:, None, None]
        if not np.isfinite(output(q, k, v, nothing)[0]).all():
            return faults.NAN_ROW
    checked.append("large scores")
    return None if np.isfinite(output(100 * q, 100 * k, v)[0]).all() else faults.OVERFLOW


def mark_look_ahead_mask(function: Callable, checked: list[str]) -> Fault | None:
    """Examines a function of a length.

    Args:
        function: function that returns a mask of (length, length), perhaps with leading ones.
        checked: list to which the names of what was examined are added.

    Returns:
        `Fault`, or None.
    """
    checked += ["shape", "polarity", "leak of the future", "dtype"]
    found = call(function, arguments_for(function, {"length": SOURCE}, {}))
    if found.shape[-2:] != (SOURCE, SOURCE) or found.size != SOURCE**2:
        return Fault(f"The mask has the shape {found.shape} instead of {(SOURCE, SOURCE)}.", 6)
    found = found.reshape(SOURCE, SOURCE)
    if found.min() < 0:
        return faults.ADDITIVE
    right = np.tri(SOURCE, dtype=bool)
    wrongs = [(~right, faults.FUTURE_INVERTED), (right.T, faults.FUTURE_TRANSPOSED)]
    diagonals = (SOURCE, 1, -1)  # the last ones that are seen
    wrongs += [
        (np.tri(SOURCE, k=k, dtype=bool), fault)
        for k, fault in zip(diagonals, faults.LOOK_AHEAD, strict=True)
    ]
    faults_found = [fault for wrong, fault in wrongs if np.array_equal(found, wrong)]
    return faults_found[0] if faults_found else _unless_right(found, right)


def _unless_right(found, right):
    if not np.array_equal(found, right):
        return faults.WRONG_MASK
    return None if found.dtype == bool else faults.NOT_BOOLEAN


def mark_padding_mask(function: Callable, checked: list[str]) -> Fault | None:
    """Examines a function of ids, 0 being padding.

    Args:
        function: function that returns a mask of (batch, 1, length), (batch, length) or
            (batch, 1, 1, length).
        checked: list to which the names of what was examined are added.

    Returns:
        `Fault`, or None.
    """
    checked += ["shape", "polarity", "dtype"]
    ids = np.array([[7, 5, 3, 9], [4, 8, 0, 0], [6, 0, 0, 0]], dtype="int32")
    found, right = call(function, arguments_for(function, {"ids": ids}, {})), ids != 0
    if found.shape in ((3, 4, 1), (3, 1, 4, 1)):
        return faults.PADDING_AXIS
    if found.shape not in ((3, 1, 4), (3, 4), (3, 1, 1, 4)):
        sentence = f"The mask has the shape {found.shape} instead of (3, 1, 4)"
        return Fault(f"{sentence}: (batch, 1, length).", 6)
    found = found.reshape(3, 4)
    if found.min() < 0:
        return faults.ADDITIVE
    if np.array_equal(found, ~right):
        return faults.PADDING_INVERTED
    return faults.PADDING_SEEN if found.all() else _unless_right(found, right)


def mark_positional_encoding(thing: Any, checked: list[str]) -> Fault | None:
    """Examines a function of length and d_model, or a layer that adds the table to its input.

    Args:
        thing: function, layer, or class of one.
        checked: list to which the names of what was examined are added.

    Returns:
        `Fault`, or None.
    """
    d_model, length = 12, 1000
    checked += ["shape", "values", "first position", "1,000 positions"]
    if isinstance(thing, keras.layers.Layer) or inspect.isclass(thing):
        layer = make(thing, {"length": length, "d_model": d_model, "dropout": 0.0})
        name = next(iter(parameters(layer.call)))
        x = normal(np.random.default_rng(0), BATCH, 7, d_model)
        found = call(layer, {name: x})
        if found.shape != x.shape:
            return unexplained(found, x, 5, "the input plus the table")
        table = found - x
        if not close(table[1], table[0]):
            return faults.NOT_ADDED
        zeros = np.zeros((1, length, d_model), "float32")
        table = call(layer, {name: zeros})[0]
        checked.append("sum with the input")
    else:
        sizes = {"length": length, "d_model": d_model}
        table = call(thing, arguments_for(thing, sizes, {}))
        table = table[0] if table.ndim == 3 and len(table) == 1 else table
    right = formulas.sinusoids(length, d_model)
    if table.shape != right.shape:
        return Fault(f"The table has the shape {table.shape} instead of {right.shape}.", 5)
    if close(table[:7], right[:7]):
        return None if close(table, right, 1e-3) else faults.COARSE_POSITIONS
    for form, fault in faults.SINUSOIDS.items():
        if close(table[:7], formulas.sinusoids(7, d_model, form), 5e-3):
            return fault
    return faults.OTHER_TABLE


def mark_layer_norm(thing: Any, checked: list[str]) -> Fault | None:
    """Examines a function or layer that normalizes each token.

    Args:
        thing: function, layer, or class of one; a gain and a bias are passed as ones and zeros.
        checked: list to which the names of what was examined are added.

    Returns:
        `Fault`, or None.
    """
    layer = make(thing) if inspect.isclass(thing) else thing
    if isinstance(layer, keras.layers.BatchNormalization):
        return faults.BATCH_NORMALIZATION
    function = layer.call if isinstance(layer, keras.layers.Layer) else layer
    growing = np.linspace(1, 3, SOURCE, dtype="float32")[:, None]
    x = 1 + growing * normal(np.random.default_rng(0), BATCH, SOURCE, WIDTH)

    def predict(formula):
        yield formulas.layer_norm(x.astype("float64"), formula)

    checked += ["shape", "values", "axis", "equal features"]
    found = call(layer, _with_gain_and_bias(function, x))
    if not any(fits(found, predict, Formula(epsilon=epsilon)) for epsilon in (1e-6, 1e-3)):
        fault = explanation([found], predict, [PAPER], faults.NORM)
        return fault or unexplained(found, next(predict(PAPER)), 8, "layer normalization")
    found = call(layer, _with_gain_and_bias(function, np.ones_like(x)))
    return None if np.isfinite(found).all() else faults.EQUAL_FEATURES


def _with_gain_and_bias(function, x):
    first, *others = parameters(function).items()
    arguments = {first[0]: x}
    for name, parameter in others:
        if parameter.default is inspect.Parameter.empty:
            is_gain = role_of(name, ("gain",))
            arguments[name] = (np.ones if is_gain else np.zeros)(x.shape[-1], "float32")
    return arguments
