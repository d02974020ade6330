"""Scaled dot-product attention and its heads: sections 3.2.1 and 3.2.2."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from .. import backend
from ..backend import Tensor
from ..checks import check, check_at_least, check_optional, check_rates
from .masks import add_look_ahead, per_head
from .positions import apply_rotary_embedding


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor = None,
    dropout: Callable | None = None,
) -> tuple[Tensor, Tensor]:
    """softmax(Q K^T / sqrt(d_k)) V.

    The softmax is taken in float32. A query that may attend to nothing gets exact zeros.

    Args:
        query: float, (..., target length, d_k).
        key: float, (..., source length, d_k).
        value: float, (..., source length, d_v).
        attention_mask: bool, broadcastable to (..., target length, source length),
            True = may be attended to. None: everything may.
        dropout: function of the weights, such as a keras.layers.Dropout; or None.

    Returns:
        output: float, (..., target length, d_v), a weighted mean of the values.
        weights: float, (..., target length, source length), before dropout; each row sums to 1
            (or is all 0).

    Source: Vaswani et al. 2017, equation 1.
    """
    d_k = query.shape[-1]
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    weights = _masked_softmax(ops.cast(scores, "float32") * d_k**-0.5, attention_mask)
    weights = ops.cast(weights, query.dtype)
    return ops.matmul(dropout(weights) if dropout else weights, value), weights


def _masked_softmax(scores, mask):
    """softmax over what the mask allows; a row that allows nothing is all 0."""
    if mask is None:
        return ops.softmax(scores)
    # -1e9 would do in float32; `where` afterwards makes a row without any True exactly zero.
    return ops.where(mask, ops.softmax(ops.where(mask, scores, -1e9)), 0.0)


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Concat(head_1, ..., head_h) W^O, where head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    The heads are slices of one projection.

    Args:
        num_heads: int, h; it must divide the width of the query unless `key_dim` is given.
        key_dim: int, d_k = d_v, the width of one head; None: width of the query / num_heads.
        dropout: float in [0, 1), dropout rate on the attention weights.
        rotary: bool, True: rotary positions, see `apply_rotary_embedding`; key_dim must be even.

    Call arguments:
        query: float, (batch, target length, d_model).
        value: float, (batch, source length, width of the value).
        key: float, (batch, source length, width of the key); None: the value.
        attention_mask: bool, (batch or 1, target length or 1, source length), such as
            `padding_mask(ids)`, or (target length, source length), or four axes, the second of
            them for the heads; True = may be attended to. Keras's implicit masks are not used.
        use_causal_mask: bool, True: position i attends to positions 0..i only.
        return_attention_scores: bool, True: also return the weights (after the softmax, before
            dropout), as keras.layers.MultiHeadAttention does.
        cache: `Cache`. Self-attention adds the keys and values of `value`; cross-attention reads
            those of the memory. `key` and `use_causal_mask` are ignored; self-attention then needs
            attention_mask, bool, (batch or 1, target length or 1, slots).

    Returns:
        output: float, (batch, target length, d_model).
        weights: float, (batch, num_heads, target length, source length), on request.

    Raises:
        ValueError: an argument is out of range; on build, num_heads does not divide the width of
            the query, or a rotary head has an odd width; on call, key and value differ in length.

    Source: Vaswani et al. 2017, section 3.2.2; rotary: Su et al. 2021.
    Departs: the projections have biases, as in the authors' released code.
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        dropout: float = 0.0,
        rotary: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_at_least(1, num_heads=num_heads)
        check_optional(1, key_dim=key_dim)
        check_rates(dropout=dropout)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.dropout = dropout
        self.rotary = rotary

    def build(self, query_shape, value_shape, key_shape=None):
        d_model = query_shape[-1]
        if self.key_dim is None and d_model % self.num_heads:
            raise ValueError(
                f"num_heads must divide d_model; received num_heads={self.num_heads}, "
                f"d_model={d_model}. Choose another num_heads, or give key_dim."
            )
        self.head_width = self.key_dim or d_model // self.num_heads
        if self.rotary and self.head_width % 2:
            raise ValueError(
                "Rotary embedding rotates pairs of features, so the width of a head must be even; "
                f"received {self.head_width}. Choose another num_heads or key_dim."
            )
        width = self.num_heads * self.head_width
        self.query = self._projection("query", width, query_shape)
        self.key = self._projection("key", width, key_shape or value_shape)
        self.value = self._projection("value", width, value_shape)
        self.output_projection = self._projection("output", d_model, (None, None, width))
        self.weights_dropout = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)

    def _projection(self, name, units, input_shape):
        linear = backend.Linear(units, dtype=self.dtype_policy, name=name)
        linear.build(input_shape)
        return linear

    def call(
        self,
        query: Tensor,
        value: Tensor,
        key: Tensor = None,
        attention_mask: Tensor = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        training: bool | None = None,
        cache: Any = None,
    ):
        positions = None if cache is None else cache.positions
        q = self.rotate(self.split_heads(self.query(query)), positions)
        if cache is None:
            k, v = self.keys_and_values(value, key)
        else:
            k, v = cache.keys_and_values(self, value)

        observe, revealed = backend.observer_of_heads()
        needs_weights = return_attention_scores or observe or (training and self.dropout)
        fused = backend.has_fused_attention(q.dtype) and cache is None and not needs_weights
        mask, is_causal = per_head(attention_mask), use_causal_mask and cache is None
        if is_causal and not (fused and mask is None):  # the kernel has a look-ahead mask itself
            mask = add_look_ahead(mask, ops.shape(q)[2], ops.shape(k)[2])
            mask = mask if revealed is None else ops.logical_or(mask, revealed)
        if fused:
            heads, weights = backend.fused_attention(q, k, v, mask, is_causal), None
        else:
            heads, weights = scaled_dot_product_attention(q, k, v, mask, self.weights_dropout)
        if observe:
            heads = observe(self.path, heads, weights)
        output = self.output_projection(self.join_heads(heads))
        return (output, weights) if return_attention_scores else output

    def keys_and_values(
        self, value: Tensor, key: Tensor = None, positions: Tensor = None
    ) -> tuple[Tensor, Tensor]:
        """K W^K and V W^V in heads.

        Args:
            value: float, (batch, source length, width of the value).
            key: float, (batch, source length, width of the key); None: the value.
            positions: int, (source length,), for rotary ones; None: 0, 1, ...

        Returns:
            keys, values: float, (batch, num_heads, source length, key_dim).
        """
        key = value if key is None else key
        lengths = {key.shape[1], value.shape[1]} - {None}
        check(len(lengths) < 2, "key and value must have the same length", lengths=sorted(lengths))
        k = self.rotate(self.split_heads(self.key(key)), positions)
        return k, self.split_heads(self.value(value))

    def split_heads(self, x: Tensor) -> Tensor:
        """(batch, length, num_heads * key_dim) -> (batch, num_heads, length, key_dim)."""
        batch, length, _ = backend.shape_of(x)
        heads = ops.reshape(x, (batch, length, self.num_heads, self.head_width))
        return ops.transpose(heads, (0, 2, 1, 3))

    def join_heads(self, heads: Tensor) -> Tensor:
        """(batch, num_heads, length, key_dim) -> (batch, length, num_heads * key_dim)."""
        heads = ops.transpose(heads, (0, 2, 1, 3))
        batch, length, _, _ = backend.shape_of(heads)
        return ops.reshape(heads, (batch, length, self.num_heads * self.head_width))

    def rotate(self, heads: Tensor, positions: Tensor = None) -> Tensor:
        """Queries or keys, (batch, num_heads, length, key_dim), rotated if positions are rotary."""
        return apply_rotary_embedding(heads, positions) if self.rotary else heads

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return query_shape

    def compute_output_spec(self, query, value, *others, return_attention_scores=False, **kwargs):
        output = keras.KerasTensor(query.shape, dtype=self.compute_dtype)
        shape = query.shape[0], self.num_heads, query.shape[1], value.shape[1]
        weights = keras.KerasTensor(shape, dtype=self.compute_dtype)
        return (output, weights) if return_attention_scores else output

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "dropout": self.dropout,
            "rotary": self.rotary,
        }


def attention_scores(layer: keras.layers.Layer, *args: Any, **kwargs: Any) -> dict[str, Tensor]:
    """The weights, after the softmax, of every `MultiHeadAttention` in a call of a layer or model.

        scores = attention_scores(transformer, {"source_ids": source, "target_ids": target})
        scores["decoder/block_1/cross_attention"]  # (batch, num_heads, target, source length)

    Args:
        layer: built keras.layers.Layer or keras.Model: a block, a stack, a model.
        *args, **kwargs: what it is called with.

    Returns:
        Dict from the path of an attention layer, in the order of their calls, to its weights:
        float, (batch, num_heads, target length, source length). Further calls of one path, such as
        of a shared layer, have #2, #3 after it.
    """
    scores: dict[str, Tensor] = {}

    def keep(path, heads, weights):
        earlier = sum(each.partition("#")[0] == path for each in scores)
        scores[f"{path}#{earlier + 1}" if earlier else path] = weights
        return heads

    with backend.observed_heads(keep):
        layer(*args, **kwargs)
    return scores
