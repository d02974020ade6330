"""The examination of tables of constants: masks and positional encodings."""

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from . import formulas
from .comparison import close, unexplained
from .faults import FAULTS, OTHERS, Fault
from .subjects import call, make, parameters, roles_in


def mark_look_ahead_mask(function: Callable) -> Fault | None:
    """Examines a function of a length.

    Args:
        function: function that returns a mask of (length, length), perhaps with leading ones.

    Returns:
        `Fault`, or None.
    """
    found = np.array(call(function, roles_in(function, ["length"]), {"length": 5}))
    if found.shape[-2:] != (5, 5) or found.size != 25:
        return Fault(f"The mask has the shape {found.shape} instead of (5, 5).", 6)
    wrongs = [(formulas.look_ahead(5, form), each) for form, each in FAULTS["look_ahead"].items()]
    return _compared(found.reshape(5, 5), formulas.look_ahead(5), wrongs)


def _compared(found, right, wrongs):
    """The fault of a mask, if any."""
    if found.min() < 0:
        return OTHERS["additive"]
    if np.array_equal(found, right):
        return None if found.dtype == bool else OTHERS["not boolean"]
    faults = [fault for wrong, fault in wrongs if np.array_equal(found, wrong)]
    return faults[0] if faults else OTHERS["wrong mask"]


def mark_padding_mask(function: Callable) -> Fault | None:
    """Examines a function of ids, 0 being padding.

    Args:
        function: function that returns a mask of (batch, 1, length), (batch, length) or
            (batch, 1, 1, length).

    Returns:
        `Fault`, or None.
    """
    ids = np.array([[7, 5, 3, 9], [4, 8, 0, 0], [6, 0, 0, 0]], dtype="int32")
    found, right = np.array(call(function, roles_in(function, ["ids"]), {"ids": ids})), ids != 0
    if found.shape in ((3, 4, 1), (3, 1, 4, 1)):
        return OTHERS["padding of queries"]
    if found.shape not in ((3, 1, 4), (3, 4), (3, 1, 1, 4)):
        sentence = f"The mask has the shape {found.shape} instead of (3, 1, 4)"
        return Fault(f"{sentence}: (batch, 1, length).", 6)
    seen = right | True, OTHERS["padding seen"]
    return _compared(found.reshape(3, 4), right, [(~right, OTHERS["padding inverted"]), seen])


def mark_positional_encoding(thing: Any) -> Fault | None:
    """Examines a function of length and d_model, or a layer that adds the table to its input.

    Args:
        thing: function, layer, or class of one.

    Returns:
        `Fault`, or None.
    """
    d_model, length = 12, 1000
    sizes = {"length": length, "d_model": d_model}
    if isinstance(thing, keras.layers.Layer) or inspect.isclass(thing):
        layer = make(thing, {**sizes, "dropout": 0.0})
        roles = {next(iter(parameters(layer))): "query"}
        x = np.random.default_rng(0).normal(size=(3, 7, d_model)).astype("float32")
        found = call(layer, roles, {"query": x})
        if found.shape != x.shape:
            return unexplained(found, x, 5, "the input plus the table")
        table = found - x
        if not close(table[1], table[0]):
            return OTHERS["not added"]
        zeros = np.zeros((1, length, d_model), "float32")
        table = call(layer, roles, {"query": zeros})[0]
    else:
        table = call(thing, roles_in(thing, sizes), sizes)
        table = table[0] if table.ndim == 3 and len(table) == 1 else table
    right = formulas.sinusoids(length, d_model)
    if table.shape != right.shape:
        return Fault(f"The table has the shape {table.shape} instead of {right.shape}.", 5)
    if close(table[:7], right[:7]):
        return None if close(table, right, 1e-3) else OTHERS["coarse positions"]
    for form, fault in FAULTS["sinusoids"].items():
        if close(table[:7], formulas.sinusoids(7, d_model, form), 5e-3):
            return fault
    return OTHERS["table"]
