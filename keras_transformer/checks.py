"""Checks of arguments; an error says what was expected and what was received."""

import math
import numbers
from typing import Any

import numpy as np


def check(holds: Any, expected: str, **received: Any) -> None:
    """Raises a `ValueError` that names what was expected and received, unless `holds` is true."""
    if not holds:
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ValueError(f"{expected}; received {values}.")


def check_at_least(smallest: int, **numbers: int | None) -> None:
    """Raises a `ValueError` for the first number that is neither None nor an int >= `smallest`."""
    for name, value in numbers.items():
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        holds = value is None or (whole and value >= smallest)
        check(holds, f"{name} must be an integer of at least {smallest}", **{name: value})


def check_finite(**values: float) -> None:
    """Raises a `ValueError` for the first value that is infinite or not a real number.

    NaN is left to the check of a range, which it fails.
    """
    for name, value in values.items():
        holds = isinstance(value, numbers.Real) and abs(value) != math.inf
        check(holds, f"{name} must be a finite number", **{name: value})


def check_above_0(**numbers: float | None) -> None:
    """Raises a `ValueError` for the first number that is neither None nor finite and above 0."""
    for name, value in numbers.items():
        if value is not None:
            check_finite(**{name: value})
            check(value > 0, f"{name} must be above 0", **{name: value})


def check_rates(**rates: float) -> None:
    """Raises a `ValueError` for the first rate outside [0, 1)."""
    for name, rate in rates.items():
        holds = isinstance(rate, numbers.Real) and 0 <= rate < 1
        check(holds, f"{name} must be in [0, 1)", **{name: rate})
