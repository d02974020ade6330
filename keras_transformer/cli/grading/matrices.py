"""Which of a learner's matrices plays which part: all ways to read them, the likely ones first.

The ways are tried on values, so that neither names nor the order of the matrices matter.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np


def ways(kind: str, kernels: list[Any], d_model: int, num_heads: int) -> Iterator[dict[str, Any]]:
    """Yields each way to read the matrices of a layer, as `formulas.layer` takes them.

    Args:
        kind: str, a key of kinds.toml.
        kernels: list of float64 arrays, in the order in which they were made.
        d_model: int.
        num_heads: int.

    Returns:
        Iterator of dicts: "self" and "cross", each a dict from "query", "key", "value" and
        "output" to a matrix; "inner" and "outer", W_1 and W_2; "fault", the name of the fault of
        whoever has these matrices, or None.
    """
    if kind in ("attention", "layer_norm"):
        yield {"fault": None}
    if kind == "multi_head_attention":
        for way in _attentions(kernels, d_model, num_heads):
            yield {"self": way, "fault": way["fault"]}
        return
    for inner, outer, others in _feed_forwards(kernels, d_model):
        found = {"inner": inner, "outer": outer, "fault": None}
        if kind == "feed_forward":
            yield found
        elif kind == "encoder_block":
            for way in _attentions(others, d_model, num_heads):
                yield {**found, "self": way, "fault": way["fault"]}
        else:
            half = len(others) // 2
            parts = others[:half], others[half:]
            halves = (_attentions(part, d_model, num_heads) for part in parts)
            for one, other in zip(*halves, strict=False):
                found["fault"] = one["fault"] or other["fault"]
                yield {**found, "self": one, "cross": other}
                yield {**found, "self": other, "cross": one}


def _feed_forwards(kernels, d_model):
    """W_1 (d_model, d_ff), W_2 (d_ff, d_model) and the other matrices, wherever they are clear."""
    flat = [kernel[0] if kernel.shape[0] == 1 else kernel for kernel in kernels]  # convolutions
    for width in sorted({kernel.shape[1] for kernel in flat} - {d_model}):
        inner = [i for i, kernel in enumerate(flat) if kernel.shape == (d_model, width)]
        outer = [i for i, kernel in enumerate(flat) if kernel.shape == (width, d_model)]
        if len(inner) == len(outer) == 1:
            others = [kernel for i, kernel in enumerate(flat) if i not in (*inner, *outer)]
            yield flat[inner[0]], flat[outer[0]], others


def _attentions(kernels, d_model, num_heads):
    """Any matrix may be W^O, the last one first; the others are W^Q, W^K and W^V side by side."""
    for i in [*reversed(range(len(kernels))), None]:
        inner = [
            np.moveaxis(kernel, kernel.shape.index(d_model), 0).reshape(d_model, -1)
            for n, kernel in enumerate(kernels)
            if n != i and d_model in kernel.shape
        ]
        is_outer = i is None or kernels[i].shape[-1] == d_model
        if not inner or not is_outer or len(inner) < len(kernels) - (i is not None):
            continue
        output = None if i is None else kernels[i].reshape(-1, d_model)
        for fault, (query, key, value) in _projections(inner, d_model, num_heads):
            width = query.shape[1]
            if output is None and width == d_model:
                fault = fault or "W^O"
            elif output is None or len(output) not in (width, width // num_heads):
                continue
            elif width == d_model * num_heads > d_model:
                fault = fault or "wide heads"
            yield {"query": query, "key": key, "value": value, "output": output, "fault": fault}


def _projections(inner, d_model, num_heads):
    """The missing matrix, if any, with each triple of those that make queries, keys and values."""
    wide = np.concatenate(inner, axis=1)
    for count in (3, 2, 1):  # matrices of the three that there are
        width = wide.shape[1] // count
        if width * count != wide.shape[1] or width % num_heads:
            continue
        layouts: list[Any] = [np.split(wide, count, axis=1)]  # role by role
        if len(inner) != count:
            by_head = wide.reshape(d_model, num_heads, count, -1)
            layouts.append(by_head.transpose(2, 0, 1, 3).reshape(count, d_model, width))
        for parts in layouts:
            if count == 3:
                yield from ((None, triple) for triple in itertools.permutations(parts))
                continue
            pool = [*parts, *[np.eye(d_model)] * (width == d_model)]
            for chosen in itertools.product(range(len(pool)), repeat=3):
                if {*range(count)} <= set(chosen):
                    is_own = [i < count and i not in chosen[:n] for n, i in enumerate(chosen)]
                    yield f"W^{'QKV'[is_own.index(False)]}", [pool[i] for i in chosen]
