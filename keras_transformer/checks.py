"""Checks of arguments; an error says what was expected and what was received."""

import dataclasses
import importlib
import numbers
from typing import Any, Self

import numpy as np

SMALLEST, LARGEST = (float(getattr(np.finfo("float32"), name)) for name in ("tiny", "max"))


class TextError(ValueError):
    """A text of a list that has no answer.

    Args:
        number: int from 0, its place in the list.
        problem: str, what it must have, and what was received.
        name: str, what precedes its number in the sentence.
        side: int, 1 for the target of a pair.
    """

    def __init__(self, number: int, problem: str, name: str = "Text", side: int = 0):
        super().__init__(f"{name} {number} {problem}")
        self.number, self.problem, self.name, self.side = number, problem, name, side


def check(holds: Any, expected: str, /, **received: Any) -> None:
    """Raises a `ValueError` that names what was expected and received, unless `holds` is true."""
    if not holds:
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise ValueError(f"{expected}; received {values}.")


def imported(name: str, purpose: str, package: str | None = None) -> Any:
    """A library that is not always installed.

    Args:
        name: str, of the module.
        purpose: str, what needs it, the beginning of the error.
        package: str, its name for pip, or several; None: that of the module.

    Raises:
        ImportError: It is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs the package {name.partition('.')[0]} ({error}); install it with "
            f"pip install {package or name.partition('.')[0]}."
        ) from None


def unexpected(place: Any, expected: str, received: Any, cure: str) -> ValueError:
    """The error of a file, of a line in it, or of a dataset."""
    return ValueError(f"{place}: expected {expected}, received {received}. {cure}")


def first_line(error: Exception) -> str:
    """The first line of an exception's text, at most 200 characters, without the full stop."""
    text = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
    line = next(iter(text.strip().splitlines()), "") or type(error).__name__
    return line[:200].rstrip(".")


class Library:
    """A library that is imported when it is first used; the arguments of `imported`."""

    def __init__(self, *arguments: str):
        self._arguments = arguments

    def __getattr__(self, name: str) -> Any:
        return getattr(imported(*self._arguments), name)


def check_at_least(smallest: int, **numbers: int) -> None:
    """Raises a `ValueError` for the first number that is not an int >= `smallest`."""
    for name, value in numbers.items():
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        holds = whole and value >= smallest
        check(holds, f"{name} must be an integer of at least {smallest}", **{name: value})


def check_optional(smallest: int, **numbers: int | None) -> None:
    """As `check_at_least`, of numbers that may also be None."""
    check_at_least(smallest, **{n: value for n, value in numbers.items() if value is not None})


def check_finite(**values: float) -> None:
    """Raises a `ValueError` for the first value that is infinite in float32 or no real number.

    NaN is left to the check of a range, which it fails.
    """
    for name, value in values.items():
        holds = isinstance(value, numbers.Real) and not abs(value) > LARGEST
        check(holds, f"{name} must be a finite number", **{name: value})


def check_above_0(**numbers: float) -> None:
    """Raises a `ValueError` for the first number that is not finite and above 0 in float32."""
    for name, value in numbers.items():
        check_finite(**{name: value})
        check(value >= SMALLEST, f"{name} must be above 0", **{name: value})


def check_from_0(**numbers: float) -> None:
    """Raises a `ValueError` for the first number that is not finite and at least 0."""
    for name, value in numbers.items():
        check_finite(**{name: value})
        check(value >= 0, f"{name} must be at least 0", **{name: value})


def check_rates(**rates: float) -> None:
    """Raises a `ValueError` for the first rate outside [0, 1)."""
    for name, rate in rates.items():
        holds = isinstance(rate, numbers.Real) and 0 <= rate < 1
        check(holds, f"{name} must be in [0, 1)", **{name: rate})


def check_weightless(sublayer: Any) -> None:
    """Refuses a layer with weights as an argument of a call in a functional model.

    Raises:
        ValueError: It has some, or is not built yet.
    """
    import keras  # which takes seconds; most of these checks need none

    if isinstance(sublayer, keras.Layer):
        builds = type(sublayer).build is not keras.Layer.build
        check(
            not (sublayer.weights or (builds and not sublayer.built)),
            "A functional model would not train or save the weights of a sublayer; call AddNorm in "
            "a layer of your own that has both",
            sublayer=sublayer,
        )


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A configuration that can be copied with changes; names that do not exist are refused."""

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed.

        Raises:
            ValueError: There is no such field, or a value is out of range.
        """
        known = [field.name for field in dataclasses.fields(self)]
        unknown = [name for name in changes if name not in known]
        check(not unknown, f"Options are {', '.join(known)}", unknown=", ".join(unknown))
        return dataclasses.replace(self, **changes)
