"""Scaled dot-product attention and its heads: sections 3.2.1 and 3.2.2."""

import keras
from keras import ops

from .arguments import check_at_least, check_rates
from .masks import look_ahead_mask
from .positions import rotated


def scaled_dot_product_attention(query, key, value, attention_mask=None):
    """softmax(Q K^T / sqrt(d_k)) V.

    The softmax is taken in float32. A query that may attend to nothing gets exact zeros.

    Args:
        query: float, (..., target length, d_k).
        key: float, (..., source length, d_k).
        value: float, (..., source length, d_v).
        attention_mask: bool, broadcastable to (..., target length, source length),
            True = may be attended to. None: everything may.

    Returns:
        output: float, (..., target length, d_v), a weighted mean of the values.
        weights: float, (..., target length, source length); each row sums to 1 (or is all 0).

    Source: Vaswani et al. 2017, equation 1.
    """
    weights = attention_weights(query, key, attention_mask)
    return ops.matmul(weights, value), weights


def attention_weights(query, key, attention_mask=None):
    """softmax(Q K^T / sqrt(d_k)): the left half of equation 1; arguments as above."""
    d_k = query.shape[-1]
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))
    scores = ops.multiply(ops.cast(scores, "float32"), d_k**-0.5)
    if attention_mask is None:
        return ops.cast(ops.softmax(scores), query.dtype)
    # -1e9 would do in float32; `where` afterwards makes a row without any True exactly zero.
    weights = ops.softmax(ops.where(attention_mask, scores, -1e9))
    return ops.cast(ops.where(attention_mask, weights, 0.0), query.dtype)


def by_rows(product, x):
    """`product`, such as a Dense, of one row a token: (batch, length, d) -> (batch, length, units).

    The gradient of a kernel sums over batch and length; XLA on a CPU is a quarter slower at that
    when they are two axes. Elsewhere it makes no difference.
    """
    rows = product(ops.reshape(x, (-1, x.shape[-1])))
    return ops.reshape(rows, (-1, ops.shape(x)[1], rows.shape[-1]))


@keras.saving.register_keras_serializable(package="keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Concat(head_1, ..., head_h) W^O, where head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V).

    The heads are slices of one projection. Without dropout and when no weights are asked for,
    the backend's fused kernel computes the same numbers.

    Args:
        num_heads: int, h; it must divide the width of the query unless `key_dim` is given.
        key_dim: int, d_k = d_v, the width of one head; None: width of the query / num_heads.
        dropout: float in [0, 1), applied to the attention weights.
        rotary: bool, True: queries and keys are turned by their positions, see
            `positions.rotated`; key_dim must then be even.

    Call arguments:
        query: float, (batch, target length, d_model).
        value: float, (batch, source length, d_value).
        key: float, (batch, source length, d_key); None: the value.
        attention_mask: bool, (batch or 1, target length or 1, source length) or
            (target length, source length), True = may be attended to.
        use_causal_mask: bool, True: position i attends to positions 0..i only.
        return_attention_scores: bool, True: return the weights (after the softmax, before
            dropout) too, as keras.layers.MultiHeadAttention does.

    Returns:
        output: float, (batch, target length, d_model).
        weights: float, (batch, num_heads, target length, source length), on request.

    Raises:
        ValueError: num_heads is below 1 or dropout outside [0, 1); on build, num_heads does not
            divide the width of the query, or a rotary head has an odd width.

    Source: Vaswani et al. 2017, section 3.2.2; rotary: Su et al. 2021.
    Departs: the projections have biases, as in the authors' released code.
    """

    def __init__(self, num_heads, key_dim=None, dropout=0.0, rotary=False, **kwargs):
        super().__init__(**kwargs)
        check_at_least(1, num_heads=num_heads)
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
                "Rotary positions turn pairs of values, so the width of a head must be even; "
                f"received {self.head_width}. Choose another num_heads or key_dim."
            )
        self._width = self.num_heads * self.head_width
        self.query = self._projection("query", self._width, query_shape)
        self.key = self._projection("key", self._width, key_shape or value_shape)
        self.value = self._projection("value", self._width, value_shape)
        self.output_projection = self._projection("output", d_model, (None, None, self._width))
        self.weights_dropout = keras.layers.Dropout(self.dropout, dtype=self.dtype_policy)

    def _projection(self, name, units, input_shape):
        dense = keras.layers.Dense(units, dtype=self.dtype_policy, name=name)
        dense.build(input_shape)
        return dense

    def call(
        self,
        query,
        value,
        key=None,
        attention_mask=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
    ):
        q = self.turned(self.split_heads(by_rows(self.query, query)))
        k = self.turned(self.split_heads(by_rows(self.key, value if key is None else key)))
        v = self.split_heads(by_rows(self.value, value))
        attention_mask = _per_head(attention_mask)
        weights_needed = return_attention_scores or (training and self.dropout)
        # TensorFlow has no such kernel: there two matmuls beat the einsums that stand in for it.
        if not weights_needed and keras.backend.backend() != "tensorflow":
            return self.join_heads(_fused_attention(q, k, v, attention_mask, use_causal_mask))
        if use_causal_mask:
            attention_mask = _no_look_ahead(attention_mask, q, k)
        q, k, v = (ops.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
        weights = attention_weights(q, k, attention_mask)
        heads = ops.matmul(self.weights_dropout(weights), v)
        output = self.join_heads(ops.transpose(heads, (0, 2, 1, 3)))
        return (output, weights) if return_attention_scores else output

    def split_heads(self, x):
        """(batch, length, num_heads * key_dim) -> (batch, length, num_heads, key_dim)."""
        return ops.reshape(x, (-1, ops.shape(x)[1], self.num_heads, self.head_width))

    def turned(self, heads, positions=None):
        """Queries or keys, (batch, length, num_heads, key_dim); if rotary, at their positions."""
        return rotated(heads, positions) if self.rotary else heads

    def join_heads(self, heads):
        """Concat(head_1, ..., head_h) W^O, from (batch, length, num_heads, key_dim)."""
        heads = ops.reshape(heads, (-1, ops.shape(heads)[1], self._width))
        return by_rows(self.output_projection, heads)

    def keys_and_values(self, value, positions=None):
        """K and V of `value`, laid out as `attend_to` reads them: a product a head, no transposes.

        Args:
            value: float, (batch, length, d_value).
            positions: int, (length,), for rotary ones; None: 0, 1, ..., length - 1.

        Returns:
            K^T, float, (batch, num_heads, key_dim, length).
            V, float, (batch, num_heads, length, key_dim).
        """
        k = self.turned(self.split_heads(self.key(value)), positions)
        v = self.split_heads(self.value(value))
        return ops.transpose(k, (0, 2, 3, 1)), ops.transpose(v, (0, 2, 1, 3))

    def empty_cache(self, batch_size, places):
        """Zeros in the layout of `keys_and_values`, for so many tokens."""
        keys = batch_size, self.num_heads, self.head_width, places
        values = batch_size, self.num_heads, places, self.head_width
        return tuple(ops.zeros(shape, self.compute_dtype) for shape in (keys, values))

    def add_to_cache(self, cache, place, value, positions=None):
        """The cache with the keys and values of `value` from an int `place` on."""
        (k, v), (new_k, new_v) = cache, self.keys_and_values(value, positions)
        if keras.backend.backend() == "torch":  # in place; a copy of all of it would cost
            places = ops.cast(place + ops.arange(new_v.shape[2], dtype="int32"), "int64")
            return k.index_copy_(3, places, new_k), v.index_copy_(2, places, new_v)
        return ops.slice_update(k, (0, 0, 0, place), new_k), ops.slice_update(
            v, (0, 0, place, 0), new_v
        )

    def attend_to(self, query, keys_and_values, attention_mask=None, positions=None):
        """`call` in inference, with K and V already projected.

        Args:
            query: float, (batch, target length, d_model).
            keys_and_values: from the method of that name, or a cache.
            attention_mask: bool, as in `call`.
            positions: int, (target length,), of the query, for rotary ones; None: 0, 1, ...

        Returns:
            float, (batch, target length, d_model).
        """
        k, v = keys_and_values
        q = self.turned(self.split_heads(self.query(query)), positions)
        q = ops.transpose(q, (0, 2, 1, 3))
        k = ops.swapaxes(k, -1, -2)
        heads, _ = scaled_dot_product_attention(q, k, v, _per_head(attention_mask))
        return self.join_heads(ops.transpose(heads, (0, 2, 1, 3)))

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "dropout": self.dropout,
            "rotary": self.rotary,
        }


def _per_head(attention_mask):
    """Room for the axis of heads: (batch, 1, target length, source length)."""
    if attention_mask is None or len(attention_mask.shape) == 4:
        return attention_mask
    return ops.expand_dims(attention_mask, axis=-3)


def _no_look_ahead(attention_mask, q, k):
    """The mask and the look-ahead mask in one; q and k are (batch, length, head, key_dim)."""
    mask = look_ahead_mask(ops.shape(q)[1], ops.shape(k)[1])
    return mask if attention_mask is None else ops.logical_and(attention_mask, mask)


def _fused_attention(q, k, v, attention_mask, use_causal_mask):
    """The backend's kernel for equation 1, on (batch, length, head, key_dim).

    A row without any True is uniform or NaN there, depending on the kernel; here it is zero.
    """
    if attention_mask is None:
        return ops.dot_product_attention(q, k, v, is_causal=use_causal_mask)
    if use_causal_mask:
        attention_mask = _no_look_ahead(attention_mask, q, k)
    if len(attention_mask.shape) == 3:  # (1, target length, source length)
        attention_mask = ops.expand_dims(attention_mask, axis=0)
    heads = ops.dot_product_attention(q, k, v, mask=attention_mask)
    may_attend = ops.any(attention_mask, axis=-1)  # (batch, 1, target length)
    return ops.where(ops.expand_dims(ops.swapaxes(may_attend, 1, 2), axis=-1), heads, 0.0)
