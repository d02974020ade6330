"""Observers of attention, which read the weights of its heads and may change their outputs."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

# Each thread has its own.
_observer = contextvars.ContextVar[tuple]("observer_of_heads", default=(None, None))


def observer_of_heads() -> tuple[Callable | None, Any]:
    """The arguments of `observed_heads` in this thread, or None for each."""
    return _observer.get()


@contextlib.contextmanager
def observed_heads(observe: Callable, revealed: Any = None) -> Iterator[None]:
    """Calls a function in every call of a `MultiHeadAttention`.

    A compiled program contains what the function did when it was traced.

    Args:
        observe: function of the path of the layer, its heads, (batch, num_heads, target length,
            key_dim), and their weights, (batch, num_heads, target length, source length); it
            returns the heads to continue with.
        revealed: bool, (batch, 1, 1, length), the positions that every other one may attend to in
            spite of the look-ahead mask; or None.
    """
    token = _observer.set((observe, revealed))
    try:
        yield
    finally:
        _observer.reset(token)
