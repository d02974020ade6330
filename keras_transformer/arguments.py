"""What is said of an argument out of its range: expected, received."""

import numpy as np


def check(holds, expected, **received):
    """Raises a ValueError that says what was expected and received, unless it `holds`."""
    if not holds:
        received = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ValueError(f"{expected}; received {received}.")


def check_at_least(smallest, **numbers):
    """Names the first that is neither None nor an integer of at least `smallest`."""
    for name, value in numbers.items():
        fits = value is None or isinstance(value, (int, np.integer)) and value >= smallest
        check(fits, f"{name} must be an integer of at least {smallest}", **{name: value})


def check_rates(**rates):
    """Names the first outside [0, 1); dropping all would leave nothing."""
    for name, rate in rates.items():
        check(0 <= rate < 1, f"{name} must be in [0, 1)", **{name: rate})
