"""The paper's formulas in float64 NumPy, and the wrong forms of them that learners write.

A `Formula` holds the choices that the paper makes. A wrong form changes one of them, so that it can
also be computed, and recognized by its numbers.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Formula:
    """The choices of the paper; the defaults are right.

    The wrong forms are the keys of the tables in faults.toml. Forms that are right: `norm` "before"
    (pre-norm), `heads` "interleaved", and `activation` each of `ACTIVATIONS`.

    Args:
        scale: str, what the scores are divided by.
        similarity: str, of query and key.
        normalization: str, what makes weights of scores.
        axis: str, what the softmax sums to 1 over.
        values: str, what the weights average.
        mask: str, what a mask of padding does.
        look_ahead: str, the mask of the future; "none" if nothing is to be hidden.
        heads: str, how they are split and joined.
        residual: str, the sublayers that have a residual connection.
        norm: str, where layer normalization stands.
        norm_axis: str, what it runs over.
        norm_form: str, what it divides by.
        epsilon: float, added to the variance.
        activation: str, of the feed-forward network.
        memory: str, what cross-attention reads.
        order: str, of a decoder's attentions.
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
    activation: str = "relu"
    memory: str = "memory"
    order: str = "self first"


PAPER = Formula()
ACTIVATIONS: dict[str, Callable] = {
    "linear": np.array,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2,
    "gelu by tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
}


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
    if "cosine" in formula.similarity:
        query, key = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (query, key))
    divisor = {
        "sqrt(d_k)": np.sqrt(d_k),
        "d_k": d_k,
        "times": 1 / np.sqrt(d_k),
        "sqrt(d_model)": np.sqrt(d_k * num_heads),
        "sqrt(length)": np.sqrt(length),
    }.get("none" if formula.similarity == "cosine" else formula.scale, 1.0)
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
    weights = _softmax(scores, axis)
    return _softmax(weights, axis) if formula.normalization == "twice" else weights


def _softmax(scores, axis):
    with np.errstate(invalid="ignore"):
        exponentials = np.exp(scores - scores.max(axis=axis, keepdims=True))
        return exponentials / exponentials.sum(axis=axis, keepdims=True)


def multi_head_attention(
    query: Any, memory: Any, kernels: dict, num_heads: int, mask: Any, formula: Formula = PAPER
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
    if form in ("averaged", "summed"):
        return heads.sum(axis=1) / (num_heads if form == "averaged" else 1)
    if form in ("mixed join", "mixed both"):
        return heads.reshape(batch, length, num_heads * width)
    axes = (0, 2, 3, 1) if form == "interleaved" else (0, 2, 1, 3)
    return heads.transpose(axes).reshape(batch, length, num_heads * width)


def look_ahead(length: int, form: str = "right") -> Any:
    """The mask that hides the future, or a wrong form of it.

    Args:
        length: int.
        form: str.

    Returns:
        bool, (length, length).
    """
    last = {"none": length, "leak by one": 1, "not itself": -1}.get(form, 0)
    mask = np.tri(length, k=last, dtype=bool)
    return {"inverted": ~mask, "transposed": mask.T}.get(form, mask)


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
    form = {"relu twice": "relu", "relu last": "linear"}.get(formula.activation, formula.activation)
    output = ACTIVATIONS[form](x @ inner) @ outer
    return np.maximum(output, 0) if form != formula.activation else output


def _add_norm(x, sublayer, is_residual, is_last, formula):
    output = sublayer(layer_norm(x, formula) if formula.norm == "before" else x)
    output = layer_norm(output, formula) if formula.norm == "inside" else output
    x = x + output if is_residual else output
    is_normed = formula.norm == "after" or (formula.norm == "last only" and is_last)
    return layer_norm(x, formula) if is_normed else x


def layer(kind: str, given: dict, kernels: dict, num_heads: int, formula: Formula = PAPER) -> Any:
    """A layer of any kind, or a wrong form of it.

    Args:
        kind: str, a key of kinds.toml.
        given: dict of float64 arrays, (batch, length, width): "query" and, for what is read,
            "key", "value" and "memory"; "mask": bool, (batch, 1 or length, source length), True =
            may be attended to, or None.
        kernels: dict, as `matrices.ways` yields it.
        num_heads: int.
        formula: `Formula`.

    Returns:
        float64, (batch, length, width).
    """
    block_input, memory, mask = given["query"], given["memory"], given["mask"]
    is_decoder, own = kind == "decoder_block", mask
    if is_decoder or formula.look_ahead != "none":
        future = look_ahead(block_input.shape[1], formula.look_ahead)[None]
        own = future if is_decoder or mask is None else future & mask

    def attend_to_itself(x):
        form = dataclasses.replace(formula, mask="hides") if is_decoder else formula
        return multi_head_attention(x, x, kernels["self"], num_heads, own, form)

    def attend_to_memory(x):
        read = {"target": x, "input": block_input}.get(formula.memory, memory)
        hidden = mask if formula.memory == "memory" else None
        return multi_head_attention(x, read, kernels["cross"], num_heads, hidden, formula)

    def transform(x):
        return feed_forward(x, kernels["inner"], kernels["outer"], formula)

    x = block_input
    if kind == "attention":
        return attention(x, given["key"], given["value"], own, formula)[0]
    if kind == "multi_head_attention":
        return multi_head_attention(x, memory, kernels["self"], num_heads, own, formula)
    if kind == "layer_norm":
        return layer_norm(x, formula)
    if kind == "feed_forward":
        return transform(x)
    attentions = [attend_to_itself] + [attend_to_memory] * is_decoder
    if formula.order == "cross first":
        attentions.reverse()
    for sublayer in attentions:
        x = _add_norm(x, sublayer, formula.residual in ("both", "attention only"), False, formula)
    return _add_norm(x, transform, formula.residual in ("both", "feed-forward only"), True, formula)


def sinusoids(length: int, d_model: int, form: str = "right") -> Any:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos, or a wrong form.

    Args:
        length: int.
        d_model: int, even.
        form: str.

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
