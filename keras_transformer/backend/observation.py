"""Observers of attention, which read the weights of its heads and may change their outputs."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

# Each thread has its own.
_observer = contextvars.ContextVar[Callable | None]("observer_of_heads", default=None)


def observer_of_heads() -> Callable | None:
    """The function given to `observed_heads` in this thread, or None."""
    return _observer.get()


@contextlib.contextmanager
def observed_heads(observe: Callable) -> Iterator[None]:
    """Calls a function in every call of a `MultiHeadAttention`.

    A compiled program contains what the function did when it was traced.

    Args:
        observe: function of the path of the layer, its heads, (batch, num_heads, target length,
            key_dim), and their weights, (batch, num_heads, target length, source length); it
            returns the heads to continue with.
    """
    token = _observer.set(observe)
    try:
        yield
    finally:
        _observer.reset(token)
