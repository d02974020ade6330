"""The paper's formulas in float64 NumPy, and the wrong forms of them that learners write.

A `Formula` holds the choices that the paper makes. A wrong form changes one of them, so that it can
also be computed, and recognized by its numbers.
"""

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Formula:
    """The choices of the paper; the defaults are right.

    Args:
        scale: "sqrt(d_k)"; or "none", "d_k", "times", "after the softmax", "sqrt(d_model)",
            "sqrt(length)".
        similarity: "dot product" or "cosine".
        normalization: "softmax"; or "none", "sigmoid".
        axis: what the softmax sums to 1 over: "keys"; or "queries", "batch", "heads".
        values: what the weights average: "values" or "keys".
        mask: what a mask does: "hides"; or "inverted", "ignored", "zero score", "zero weight",
            "added", "transposed".
        look_ahead: the mask of the future: "right"; or "none", "leak by one", "not itself".
        heads: "slices" or "interleaved", which are both right; "mixed split", "mixed join",
            "mixed both": reshaped without a transposition; "one": not split at all.
        residual: "both"; or "none", "attention only", "feed-forward only".
        norm: "after" (post-norm) or "before" (pre-norm), which are both right; "none", "last only".
        norm_axis: "features"; or "batch", "length", "batch and length", "length and features".
        norm_form: "standard deviation"; or "variance", "n - 1", "no mean", "no epsilon".
        epsilon: float, added to the variance.
        feed_forward: "relu"; or "linear", "relu twice".
        memory: what cross-attention reads: "memory"; or "target", "input", that of the block.
        memory_mask: what the mask of the memory does, as `mask`.
        order: of a decoder's attentions: "self first" or "cross first".
    """

    scale: str = "sqrt(d_k)"
    similarity: str = "dot product"
    normalization: str = "softmax"
    axis: str = "keys"
    values: str = "values"
    mask: str = "hides"
    look_ahead: str = "right"
    heads: str = "slices"
    residual: str = "both"
    norm: str = "after"
    norm_axis: str = "features"
    norm_form: str = "standard deviation"
    epsilon: float = 1e-6
    feed_forward: str = "relu"
    memory: str = "memory"
    memory_mask: str = "hides"
    order: str = "self first"


PAPER = Formula()


def attention(
    query: Any, key: Any, value: Any, mask: Any = None, formula: Formula = PAPER, num_heads: int = 1
) -> tuple[Any, Any]:
    """softmax(Q K^T / sqrt(d_k)) V, or a wrong form of it.

    Args:
        query, key, value: float64, (..., length, width).
        mask: bool, broadcastable to (..., target length, source length), True = may be attended
            to; None: everything may.
        formula: `Formula`.
        num_heads: int, heads per layer, for the scale sqrt(d_model).

    Returns:
        output: float64, (..., target length, width); NaN where a query may attend to nothing.
        weights: float64, (..., target length, source length).
    """
    d_k, length = query.shape[-1], key.shape[-2]
    if formula.similarity == "cosine":
        query, key = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (query, key))
    divisor = {
        "sqrt(d_k)": np.sqrt(d_k),
        "d_k": d_k,
        "times": 1 / np.sqrt(d_k),
        "sqrt(d_model)": np.sqrt(d_k * num_heads),
        "sqrt(length)": np.sqrt(length),
    }.get(formula.scale, 1.0)
    scores = query @ np.swapaxes(key, -1, -2) / divisor
    if formula.mask == "transposed" and mask is not None and mask.shape[-1] == mask.shape[-2]:
        mask = np.swapaxes(mask, -1, -2)
    mask = None if formula.mask == "ignored" else mask
    if mask is not None:
        scores = _masked(scores, np.broadcast_to(mask, scores.shape), formula.mask)
    weights = _normalized(scores, formula)
    if mask is not None and formula.mask == "zero weight":
        weights = weights * mask
    if formula.scale == "after the softmax":
        weights = weights / np.sqrt(d_k)
    return weights @ (key if formula.values == "keys" else value), weights


def _masked(scores, mask, form):
    forms = {
        "inverted": np.where(mask, -np.inf, scores),
        "zero score": np.where(mask, scores, 0.0),
        "zero weight": scores,
        "added": scores + mask,
    }
    return forms.get(form, np.where(mask, scores, -np.inf))


def _normalized(scores, formula):
    if formula.normalization == "none":
        return np.where(np.isneginf(scores), 0.0, scores)
    if formula.normalization == "sigmoid":
        return 1 / (1 + np.exp(-scores))
    axis = {"keys": -1, "queries": -2, "batch": 0, "heads": 1}[formula.axis]
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return exponentials / exponentials.sum(axis=axis, keepdims=True)


def multi_head_attention(
    query: Any,
    memory: Any,
    kernels: dict,
    num_heads: int,
    mask: Any = None,
    formula: Formula = PAPER,
) -> Any:
    """Concat(head_1, ..., head_h) W^O, or a wrong form of it.

    Args:
        query: float64, (batch, target length, d_model).
        memory: float64, (batch, source length, d_model), of which keys and values are made.
        kernels: dict of float64 matrices: "query", "key", "value", and "output" or None.
        num_heads: int.
        mask: bool, (batch or 1, target length or 1, source length); None: everything may.
        formula: `Formula`.

    Returns:
        float64, (batch, target length, d_model).
    """
    count = 1 if formula.heads == "one" else num_heads
    q, k, v = (
        _split(x @ kernels[name], count, formula.heads)
        for name, x in (("query", query), ("key", memory), ("value", memory))
    )
    mask = None if mask is None else mask[:, None]
    output, _ = attention(q, k, v, mask, formula, count)
    joined = _join(output, formula.heads)
    return joined if kernels["output"] is None else joined @ kernels["output"]


def _split(x, num_heads, form):
    """(batch, length, width) -> (batch, heads, length, width per head)."""
    batch, length, width = x.shape
    if form in ("mixed split", "mixed both"):
        return x.reshape(batch, num_heads, length, width // num_heads)
    if form == "interleaved":
        return x.reshape(batch, length, width // num_heads, num_heads).transpose(0, 3, 1, 2)
    return x.reshape(batch, length, num_heads, width // num_heads).transpose(0, 2, 1, 3)


def _join(heads, form):
    batch, num_heads, length, width = heads.shape
    if form in ("mixed join", "mixed both"):
        return heads.reshape(batch, length, num_heads * width)
    axes = (0, 2, 3, 1) if form == "interleaved" else (0, 2, 1, 3)
    return heads.transpose(axes).reshape(batch, length, num_heads * width)


def look_ahead(length: int, formula: Formula = PAPER) -> Any:
    """The mask that hides the future, or a wrong form of it.

    Args:
        length: int.
        formula: `Formula`.

    Returns:
        bool, (1, length, length); None for the form "none".
    """
    offset = {"leak by one": 1, "not itself": -1}.get(formula.look_ahead, 0)
    return None if formula.look_ahead == "none" else np.tri(length, k=offset, dtype=bool)[None]


def layer_norm(x: Any, formula: Formula = PAPER) -> Any:
    """(x - mean) / sqrt(variance + epsilon), or a wrong form of it.

    Args:
        x: float64, (batch, length, d_model).
        formula: `Formula`.

    Returns:
        float64, as `x`.
    """
    axes = {
        "features": (-1,),
        "batch": (0,),
        "length": (1,),
        "batch and length": (0, 1),
        "length and features": (1, 2),
    }[formula.norm_axis]
    mean = x.mean(axis=axes, keepdims=True) * (formula.norm_form != "no mean")
    variance = ((x - mean) ** 2).mean(axis=axes, keepdims=True)
    if formula.norm_form == "n - 1":
        count = np.prod([x.shape[axis] for axis in axes])
        variance = variance * count / (count - 1)
    divisor = variance + formula.epsilon
    return (x - mean) / (divisor if formula.norm_form == "variance" else np.sqrt(divisor))


def feed_forward(x: Any, inner: Any, outer: Any, formula: Formula = PAPER) -> Any:
    """max(0, x W_1) W_2, or a wrong form of it.

    Args:
        x: float64, (batch, length, d_model).
        inner, outer: float64 matrices, W_1 and W_2.
        formula: `Formula`.

    Returns:
        float64, as `x`.
    """
    hidden = x @ inner
    output = (hidden if formula.feed_forward == "linear" else np.maximum(hidden, 0)) @ outer
    return np.maximum(output, 0) if formula.feed_forward == "relu twice" else output


def block(
    x: Any,
    kernels: dict,
    num_heads: int,
    mask: Any = None,
    memory: Any = None,
    memory_mask: Any = None,
    formula: Formula = PAPER,
) -> Any:
    """A block of the encoder; with a memory, one of the decoder; or a wrong form of it.

    Args:
        x: float64, (batch, length, d_model).
        kernels: dict: "self" and, for a decoder, "cross", as `multi_head_attention` takes them;
            "inner" and "outer".
        num_heads: int.
        mask: bool, (batch or 1, length or 1, length), for the self-attention.
        memory: float64, (batch, source length, d_model).
        memory_mask: bool, (batch, 1, source length).
        formula: `Formula`.

    Returns:
        float64, (batch, length, d_model).
    """

    def attend_to_itself(x):
        return multi_head_attention(x, x, kernels["self"], num_heads, mask, formula)

    def attend_to_memory(x):
        read = {"target": x, "input": block_input}.get(formula.memory, memory)
        hidden = memory_mask if formula.memory == "memory" else None
        cross = dataclasses.replace(formula, mask=formula.memory_mask)
        return multi_head_attention(x, read, kernels["cross"], num_heads, hidden, cross)

    def transform(x):
        return feed_forward(x, kernels["inner"], kernels["outer"], formula)

    block_input = x
    attentions = [attend_to_itself] + [attend_to_memory] * (memory is not None)
    if formula.order == "cross first":
        attentions.reverse()
    for sublayer in attentions:
        x = _add_norm(x, sublayer, formula.residual in ("both", "attention only"), False, formula)
    return _add_norm(x, transform, formula.residual in ("both", "feed-forward only"), True, formula)


def _add_norm(x, sublayer, is_residual, is_last, formula):
    normed = sublayer(layer_norm(x, formula) if formula.norm == "before" else x)
    x = x + normed if is_residual else normed
    is_normed = formula.norm == "after" or (formula.norm == "last only" and is_last)
    return layer_norm(x, formula) if is_normed else x


def sinusoids(length: int, d_model: int, form: str = "right") -> Any:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos, or a wrong form.

    Args:
        length, d_model: int; d_model is even.
        form: "right"; or "from 1", "exchanged", "own exponents", "double exponents", "halves",
            "sines only", "1000", "multiplied", "radians of degrees".

    Returns:
        float64, (length, d_model).
    """
    position = np.arange(length)[:, None] + (form == "from 1")
    dimension = np.arange(d_model)
    pairs = dimension // 2 * 2
    exponent = {"own exponents": dimension, "double exponents": 2 * dimension}.get(form, pairs)
    if form == "halves":
        exponent = 2 * (dimension % (d_model // 2))
    base = 1000.0 if form == "1000" else 10000.0
    divisor = base ** (exponent / d_model)
    angle = position * divisor if form == "multiplied" else position / divisor
    is_sine = dimension % 2 == 0
    if form == "exchanged":
        is_sine = ~is_sine
    if form == "halves":
        is_sine = dimension < d_model // 2
    if form == "sines only":
        is_sine = dimension >= 0
    if form == "radians of degrees":
        angle = np.radians(angle)
    return np.where(is_sine, np.sin(angle), np.cos(angle))
