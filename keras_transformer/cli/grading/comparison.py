"""Search for the formula that gives the numbers that were found."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .faults import Fault
from .formulas import Formula

RIGHT, WRONG = 2e-4, 2e-3  # tolerances: float32, and for wrong forms an epsilon of any size
Predict = Callable[[Formula], Iterable[Any]]


def close(found: Any, expected: Any, tolerance: float = RIGHT) -> bool:
    """Whether arrays agree where `expected` is a number.

    Args:
        found, expected: float64 arrays.
        tolerance: float, relative to the largest number that is expected, or to 1.

    Returns:
        bool; False also for other shapes, and where nothing is expected.
    """
    if found.shape != expected.shape:
        return False
    counts = ~np.isnan(expected)
    if not counts.any() or not np.isfinite(found[counts]).all():
        return False
    scale = max(1.0, float(np.abs(expected[counts]).max()))
    return bool(np.abs(found[counts] - expected[counts]).max() <= tolerance * scale)


def fits(
    found: Any, predict: Predict, formula: Formula, tolerance: float = RIGHT, most: Any = None
) -> bool:
    """Whether one of the outputs that a formula may give is the one that was found.

    Args:
        found: float64 array.
        predict: function of a `Formula` that yields the outputs it may give, one for each way in
            which the learner's weights can be read.
        formula: `Formula`.
        tolerance: float, relative to the largest number that is expected, or to 1.
        most: int, outputs that are compared, the likely ones first; None: all.

    Returns:
        bool.
    """
    with np.errstate(all="ignore"):
        expected = itertools.islice(predict(formula), most)
        return any(close(found, each, tolerance) for each in expected)


def fitting(
    outputs: Iterable[Any], predict: Predict, rights: Sequence[Formula]
) -> tuple[Formula | None, list[Any]]:
    """The first right formula that gives one of the outputs.

    Args:
        outputs: iterable of float64 arrays, one for each way in which the learner's code can be
            called; those after the first that fits are not made.
        predict: function of a `Formula` that yields the outputs it may give.
        rights: list of `Formula`, the likely ones first.

    Returns:
        `Formula`, or None if none of the outputs is right; the outputs that were made.
    """
    found = []
    for output in outputs:
        if any(close(output, each) for each in found):
            continue  # as with another form of the mask
        found.append(output)
        for formula in rights:
            if fits(output, predict, formula):
                return formula, found
    return None, found


def explanation(
    outputs: Iterable[Any], predict: Predict, rights: Sequence[Formula], wrongs: Sequence[Fault]
) -> Fault | None:
    """The first fault, or pair of faults, whose formula gives one of the outputs.

    Args:
        outputs: iterable of float64 arrays.
        predict: function of a `Formula` that yields the outputs it may give.
        rights: list of `Formula`; each fault changes each of them.
        wrongs: list of `Fault`.

    Returns:
        `Fault`, or None.
    """
    pairs = [
        Fault(f"{one.sentence} {other.sentence}", one.chapter, {**one.changes, **other.changes})
        for one, other in itertools.combinations(wrongs, 2)
        if not set(one.changes) & set(other.changes)
    ]
    for faults, most in ((wrongs, None), (pairs, 6)):
        for output, fault, formula in itertools.product(outputs, faults, rights):
            wrong = dataclasses.replace(formula, **fault.changes)
            if fits(output, predict, wrong, WRONG, most):
                return fault
    return None


def unexplained(found: Any, expected: Any, chapter: int, what: str) -> Fault:
    """The fault that no formula explains: another shape, NaN, or the distance from what is right.

    Args:
        found: float64 array.
        expected: float64 array, or None where it depends on how weights are read.
        chapter: int.
        what: str, what the output should have been.

    Returns:
        `Fault`.
    """
    if expected is not None and found.shape != expected.shape:
        sentence = f"The output has the shape {found.shape}; {what} has {expected.shape}."
    elif not np.isfinite(found).all():
        sentence = f"The output has NaN or infinite values where {what} is finite."
    elif expected is None:
        sentence = f"The values are not those of {what}, however its weights are read."
    else:
        distance = np.nanmax(np.abs(found - expected))
        sentence = f"The values differ from {what} by up to {distance:.2g}."
    return Fault(sentence, chapter)
