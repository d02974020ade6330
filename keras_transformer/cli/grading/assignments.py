"""Which of a learner's matrices plays which part: all ways to read them, the likely ones first."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from .subjects import squeezed

ROLES = ("query", "key", "value", "output")
HINTS = {
    "query": ("query", "wq", "w_q"),
    "key": ("key", "wk", "w_k"),
    "value": ("value", "wv", "w_v"),
}


def attention_kernels(
    kernels: list[tuple[str, Any]], d_model: int, num_heads: int
) -> Iterator[dict[str, Any]]:
    """Yields each way to read matrices as W^Q, W^K, W^V and W^O.

    They may be four matrices, with or without an axis for the heads; one for query, key and value
    together; or one per head.

    Args:
        kernels: list of (name, float64 array), in the order in which they were made.
        d_model: int.
        num_heads: int.

    Returns:
        Iterator of dicts from "query", "key", "value" and "output" to (d_model, width) or
        (width, d_model); "output" is None where there are three matrices only.
    """
    inner, outer = [], []
    for _, kernel in kernels:
        shape = squeezed(kernel.shape)
        is_outer = len(shape) == 3 and shape[-1] == d_model and shape[0] == num_heads
        flat = kernel.reshape(-1, d_model) if is_outer else kernel.reshape(d_model, -1)
        (outer if is_outer else inner).append(flat)
    wide = [kernel for kernel in inner if kernel.shape[1] == 3 * d_model]
    narrow = [kernel for kernel in inner if kernel.shape[1] == d_model // num_heads]
    square = [kernel for kernel in inner if kernel.shape == (d_model, d_model)] + outer
    if len(wide) == 1 and len(square) < 2:
        output = square[0] if square else None
        yield from _together(wide[0], output, d_model, num_heads)
    elif len(narrow) == 3 * num_heads and num_heads > 1:
        output = square[0] if square else None
        yield from _per_head(narrow, output, num_heads)
    elif len(square) == 3:
        for q, k, v in itertools.permutations(square):
            yield dict(zip(ROLES, (q, k, v, None), strict=True))
    elif len(square) == 4:
        for order in _orders([name for name, _ in kernels], bool(outer)):
            yield {role: square[i] for role, i in zip(ROLES, order, strict=True)}


def _orders(names, output_is_last):
    """The permutations of four matrices, that of their names first."""
    orders = list(itertools.permutations(range(4)))
    if output_is_last:
        orders = [order for order in orders if order[3] == 3]

    def unlike(order):
        return -sum(
            any(word in names[i].lower() for word in HINTS[role])
            for role, i in zip(HINTS, order, strict=False)
        )

    return sorted(orders, key=unlike)


def _together(wide, output, d_model, num_heads):
    """Query, key and value in one matrix: side by side, or side by side within each head."""
    by_head = wide.reshape(d_model, num_heads, 3, -1)
    parts = [np.split(wide, 3, axis=1)]
    parts.append([by_head[:, :, i].reshape(d_model, d_model) for i in range(3)])
    for part in parts:
        for q, k, v in itertools.permutations(part):
            yield dict(zip(ROLES, (q, k, v, output), strict=True))


def _per_head(narrow, output, num_heads):
    """One matrix per head: made head by head, or projection by projection."""
    by_head = [np.concatenate(narrow[i::3], axis=1) for i in range(3)]
    by_role = [
        np.concatenate(narrow[i * num_heads : (i + 1) * num_heads], axis=1) for i in range(3)
    ]
    for part in (by_role, by_head):
        for q, k, v in itertools.permutations(part):
            yield dict(zip(ROLES, (q, k, v, output), strict=True))


def feed_forward_kernels(
    kernels: list[tuple[str, Any]], d_model: int
) -> tuple[Any, Any, list[tuple[str, Any]]]:
    """W_1 and W_2, known by their shapes, and the other matrices.

    Args:
        kernels: list of (name, float64 array).
        d_model: int.

    Returns:
        inner: float64, (d_model, d_ff), or None.
        outer: float64, (d_ff, d_model), or None.
        others: list of (name, float64 array).
    """
    flat = [(name, kernel.reshape(squeezed(kernel.shape))) for name, kernel in kernels]
    shapes = {kernel.shape for _, kernel in flat if kernel.ndim == 2}
    widths = {width for _, width in shapes if width != d_model and (width, d_model) in shapes}
    if len(widths) != 1:
        return None, None, flat
    (width,) = widths
    inner = [kernel for _, kernel in flat if kernel.shape == (d_model, width)]
    outer = [kernel for _, kernel in flat if kernel.shape == (width, d_model)]
    if len(inner) != 1 or len(outer) != 1:
        return None, None, flat
    others = [(name, k) for name, k in flat if k is not inner[0] and k is not outer[0]]
    return inner[0], outer[0], others


def block_kernels(
    kernels: list[tuple[str, Any]], d_model: int, num_heads: int, is_decoder: bool
) -> Iterator[dict[str, Any]]:
    """Yields each way to read the matrices of a block, as `formulas.block` takes them.

    Args:
        kernels: list of (name, float64 array), in the order in which they were made.
        d_model, num_heads: int.
        is_decoder: bool, True: there are two attentions.

    Returns:
        Iterator of dicts.
    """
    inner, outer, others = feed_forward_kernels(kernels, d_model)
    if inner is None:
        return
    common = {"inner": inner, "outer": outer}
    if not is_decoder:
        for attention in attention_kernels(others, d_model, num_heads):
            yield {**common, "self": attention}
        return
    half = len(others) // 2
    first, second = others[:half], others[half:]
    ways = zip(
        attention_kernels(first, d_model, num_heads),
        attention_kernels(second, d_model, num_heads),
        strict=True,
    )
    for one, other in ways:
        yield {**common, "self": one, "cross": other}
        yield {**common, "self": other, "cross": one}
