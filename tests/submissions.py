"""Layers and functions as learners hand them in, each in a style of its own.

`RIGHT` and `WRONG` list them for tests/cli/test_grading.py; most have no get_config, which is a
remark and not a fault. The other list, tests/learners.py, breaks one layer in each known way.
"""

import keras
import numpy as np
from keras import layers, ops

# Right: functions


def attention_by_loops(query, key, value):
    output = np.zeros((len(query), query.shape[1], value.shape[2]))
    for b in range(len(query)):
        for i in range(query.shape[1]):
            scores = [float(query[b, i] @ k) / query.shape[2] ** 0.5 for k in key[b]]
            total = sum(np.exp(score) for score in np.array(scores) - max(scores))
            for score, v in zip(scores, value[b], strict=True):
                output[b, i] += np.exp(score - max(scores)) / total * v
    return output


def masked_attention(q, k, v, mask):
    scores = ops.einsum("btd,bsd->bts", q, k) * q.shape[-1] ** -0.5
    return ops.softmax(ops.where(mask, scores, -1e9)) @ v


def complex_positional_encoding(length, d_model):
    rates = 10000 ** (-np.arange(0, d_model, 2) / d_model)
    waves = np.exp(1j * np.arange(length)[:, None] * rates)
    return np.stack([waves.imag, waves.real], -1).reshape(length, d_model)


def broadcast_mask(length):
    return np.arange(length) <= np.arange(length)[:, None]


def decoder_mask(n):
    return [[i >= j for j in range(n)] for i in range(n)]


# Right: layers


class EinsumAttention(layers.Layer):
    """A kernel per projection with an axis for the heads, which comes first."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.width = num_heads, d_model // num_heads

    def build(self, *shapes):
        d_model = self.h * self.width
        self.kernels = [self.add_weight(shape=(self.h, d_model, self.width)) for _ in range(3)]
        self.last = self.add_weight(shape=(self.h, self.width, d_model))

    def call(self, query, value, mask=None):
        W_Q, W_K, W_V = self.kernels
        q = ops.einsum("btd,hdk->bhtk", query, W_Q)
        k, v = (ops.einsum("bsd,hdk->bhsk", value, W) for W in (W_K, W_V))
        scores = ops.einsum("bhtk,bhsk->bhts", q, k) / np.sqrt(self.width)
        heads = ops.einsum("bhts,bhsk->bhtk", self.weights_of(scores, mask), v)
        return ops.einsum("bhtk,hkd->btd", heads, self.last)

    def weights_of(self, scores, mask):
        if mask is not None:
            scores = ops.where(mask[:, None], scores, -1e9)
        return ops.softmax(scores)


class StackedAttention(layers.Layer):
    """One weight of three square matrices."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = self.add_weight(shape=(3, dim, dim))
        self.out = layers.EinsumDense("btd,de->bte", (None, dim), bias_axes="e")

    def call(self, x):
        parts = ops.einsum("btd,pde->pbte", x, self.qkv)
        q, k, v = ops.transpose(
            ops.reshape(parts, (*parts.shape[:-1], self.heads, -1)), (0, 1, 3, 2, 4)
        )
        weights = ops.softmax(q @ ops.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5)
        return self.out(ops.reshape(ops.swapaxes(weights @ v, 1, 2), x.shape))


class DensePerHead(layers.Layer):
    def __init__(self, d_model, num_heads):
        super().__init__()
        width = d_model // num_heads
        self.queries = [layers.Dense(width) for _ in range(num_heads)]
        self.keys = [layers.Dense(width) for _ in range(num_heads)]
        self.values = [layers.Dense(width) for _ in range(num_heads)]
        self.out = layers.Dense(d_model)

    def call(self, query, key, value):
        heads = []
        for W_Q, W_K, W_V in zip(self.queries, self.keys, self.values, strict=True):
            scores = W_Q(query) @ ops.transpose(W_K(key), (0, 2, 1)) / W_Q.units**0.5
            heads.append(ops.softmax(scores) @ W_V(value))
        return self.joined(heads)

    def joined(self, heads):
        return self.out(ops.concatenate(heads, axis=-1))


class Head(layers.Layer):
    def __init__(self, head_size):
        super().__init__()
        self.q, self.k, self.v = (layers.Dense(head_size, use_bias=False) for _ in range(3))

    def call(self, x, mask):
        scores = self.q(x) @ ops.transpose(self.k(x), (0, 2, 1)) * self.q.units**-0.5
        return ops.softmax(ops.where(mask, scores, -1e9)) @ self.v(x)


class AttentionOfHeadLayers(layers.Layer):
    """A layer per head, and a mask that must be given."""

    def __init__(self, n_heads, d_model):
        super().__init__()
        self.all = [Head(d_model // n_heads) for _ in range(n_heads)]
        self.proj = layers.Dense(d_model)

    def call(self, x, mask):
        return self.proj(ops.concatenate([head(x, mask) for head in self.all], -1))


class MyMultiHeadAttention(layers.Layer):
    """The exercise of chapter 4, with keras.layers.Dense alone."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (layers.Dense(d_model) for _ in range(4))

    def split(self, x):
        width = x.shape[-1] // self.num_heads
        return ops.transpose(ops.reshape(x, (*x.shape[:2], self.num_heads, width)), (0, 2, 1, 3))

    def join(self, x):
        x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (*x.shape[:2], -1))

    def scale(self, d_k):
        return d_k**0.5

    def call(self, query, key, value):
        q, k, v = (
            self.split(self.W_Q(query)),
            self.split(self.W_K(key)),
            self.split(self.W_V(value)),
        )
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2))) / self.scale(q.shape[-1])
        return self.W_O(self.join(ops.matmul(ops.softmax(scores, axis=-1), v)))


class MyAttentionToSave(MyMultiHeadAttention):
    def __init__(self, d_model, num_heads, **kwargs):
        layers.Layer.__init__(self, **kwargs)
        self.d_model, self.num_heads = d_model, num_heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (layers.Dense(d_model) for _ in range(4))

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model, "num_heads": self.num_heads}


class KeysWithValues(layers.Layer):
    """One matrix for the queries, one for keys and values, and a mask of (batch, length)."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.to_q, self.to_kv = layers.Dense(embed_dim), layers.Dense(2 * embed_dim)
        self.to_out = layers.Dense(embed_dim)

    def heads(self, x):
        return ops.swapaxes(ops.reshape(x, (*x.shape[:2], self.num_heads, -1)), 1, 2)

    def call(self, x, context, padding_mask=None):
        q, (k, v) = self.to_q(x), ops.split(self.to_kv(context), 2, axis=-1)
        q, k, v = map(self.heads, (q, k, v))
        scores = q @ ops.swapaxes(k, -1, -2) / q.shape[-1] ** 0.5
        if padding_mask is not None:
            scores = ops.where(padding_mask[:, None, None, :], scores, -1e9)
        out = ops.swapaxes(ops.softmax(scores) @ v, 1, 2)
        return self.to_out(ops.reshape(out, x.shape))


class CausalSelfAttention(layers.Layer):
    """That of nanoGPT."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head, self.n_embd = n_head, n_embd
        self.c_attn, self.c_proj = layers.Dense(3 * n_embd), layers.Dense(n_embd)

    def call(self, x):
        B, T, C = x.shape
        q, k, v = (
            ops.transpose(ops.reshape(part, (B, T, self.n_head, C // self.n_head)), (0, 2, 1, 3))
            for part in ops.split(self.c_attn(x), 3, axis=2)
        )
        att = ops.matmul(q, ops.swapaxes(k, -2, -1)) * (C // self.n_head) ** -0.5
        att = ops.softmax(ops.where(self.bias(T), att, -1e9), axis=-1)
        y = ops.transpose(ops.matmul(att, v), (0, 2, 1, 3))
        return self.c_proj(ops.reshape(y, (B, T, C)))

    def bias(self, T):
        return np.tril(np.ones((1, 1, T, T), dtype=bool))


class AttentionOfKeras(layers.Layer):
    def __init__(self, d_model, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.sizes = {"d_model": d_model, "num_heads": num_heads}
        self.inner = layers.MultiHeadAttention(num_heads, d_model // num_heads)

    def call(self, q, v, attention_mask=None, use_causal_mask=False):
        return self.inner(q, v, attention_mask=attention_mask, use_causal_mask=use_causal_mask)

    def get_config(self):
        return {**super().get_config(), **self.sizes}


def functional_attention(scaled=True):
    query, value = keras.Input((None, 12), name="query"), keras.Input((None, 12), name="value")
    heads = []
    for _ in range(3):
        q, k, v = (layers.Dense(4)(x) for x in (query, value, value))
        scores = ops.matmul(q, ops.transpose(k, (0, 2, 1)))
        weights = ops.softmax(scores / 2 if scaled else scores)
        heads.append(ops.matmul(weights, v))
    output = layers.Dense(12)(ops.concatenate(heads, axis=-1))
    return keras.Model([query, value], output, name="functional_attention")


def functional_encoder(second=True, with_mask=False):
    x = keras.Input((None, 24))
    mask = keras.Input((1, None), dtype="bool")
    attention = layers.MultiHeadAttention(4, 6)
    attended = attention(x, x, attention_mask=mask) if with_mask else attention(x, x)
    y = layers.LayerNormalization(epsilon=1e-6)(x + layers.Dropout(0.1)(attended))
    z = layers.Dense(24)(layers.Dense(96, activation="relu")(y))
    output = layers.LayerNormalization(epsilon=1e-6)(y + z if second else z)
    return keras.Model([x, mask] if with_mask else x, output, name="encoder")


def functional_encoder_with_a_mask():
    return functional_encoder(with_mask=True)


def functional_decoder():
    """Its inputs are a dict."""
    inputs = {name: keras.Input((None, 12), name=name) for name in ("target", "memory")}
    inputs["memory_mask"] = keras.Input((1, None), dtype="bool", name="memory_mask")
    target, memory, mask = inputs.values()
    own, cross = (layers.MultiHeadAttention(2, 6) for _ in range(2))
    norms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(3)]
    x = norms[0](target + own(target, target, use_causal_mask=True))
    x = norms[1](x + cross(x, memory, attention_mask=mask))
    x = norms[2](x + layers.Dense(12)(layers.Dense(30, activation="relu")(x)))
    return keras.Model(inputs, x, name="decoder")


def sequential_feed_forward():
    return keras.Sequential([layers.Dense(20, activation="relu"), layers.Dense(12)])


class SwishMLP(layers.Layer):
    def __init__(self, n_embd):
        super().__init__()
        self.c_fc, self.c_proj = layers.Dense(4 * n_embd), layers.Dense(n_embd)

    def call(self, x):
        return self.c_proj(ops.silu(self.c_fc(x)))


class Block(layers.Layer):
    """A block of the encoder; the subclasses below are other people's."""

    activation = "relu"

    def __init__(self, d_model, num_heads, d_ff):
        super().__init__()
        self.attention = self.attends(d_model, num_heads)
        self.first, self.second = layers.Dense(d_ff, self.activation), layers.Dense(d_model)
        self.norms = [self.norm() for _ in range(3)]

    def attends(self, d_model, num_heads):
        return layers.MultiHeadAttention(num_heads, d_model // num_heads)

    def norm(self):
        return layers.LayerNormalization(epsilon=1e-6)

    def network(self, x):
        return self.second(self.first(x))

    def call(self, x, attention_mask=None):
        x = self.norms[0](x + self.attention(x, x, attention_mask=attention_mask))
        return self.norms[1](x + self.network(x))


class PreNormBlock(Block):
    def call(self, x, padding_mask=None):
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, attention_mask=padding_mask)
        return x + self.network(self.norms[1](x))


class GeluBlock(Block):
    activation = "gelu"

    def norm(self):
        return layers.LayerNormalization()


class GPTBlock(Block):
    """Of a decoder without a memory."""

    activation = staticmethod(lambda x: ops.gelu(x, approximate=True))

    def call(self, x):
        normed = self.norms[0](x)
        x = x + self.attention(normed, normed, use_causal_mask=True)
        return x + self.network(self.norms[1](x))


class DecoderOfTheTutorial(layers.Layer):
    """Two masks that must be given."""

    def __init__(self, d_model, num_heads, dff, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.sizes = {"d_model": d_model, "num_heads": num_heads, "dff": dff, "rate": rate}
        self.mha1, self.mha2 = (EinsumAttention(d_model, num_heads) for _ in range(2))
        self.ffn = keras.Sequential([layers.Dense(dff, activation="relu"), layers.Dense(d_model)])
        self.layernorms = [layers.LayerNormalization(epsilon=1e-6) for _ in range(3)]
        self.drop = layers.Dropout(rate)

    def cross(self, x, encoded, mask):
        return self.mha2(x, encoded, mask)

    def call(self, x, enc_output, look_ahead_mask, padding_mask):
        x = self.layernorms[0](x + self.drop(self.mha1(x, x, look_ahead_mask)))
        x = self.layernorms[1](x + self.drop(self.cross(x, enc_output, padding_mask)))
        return self.layernorms[2](x + self.drop(self.ffn(x)))

    def get_config(self):
        return {**super().get_config(), **self.sizes}


class DecoderWithOneMask(DecoderOfTheTutorial):
    """Its only mask is that of the target."""

    def call(self, x, memory, mask):
        return super().call(x, memory, mask, None)


RIGHT = {  # name: what is checked, its kind, words of its remarks
    "loops": (attention_by_loops, "attention", ["a padding mask, because"]),
    "a mask that must be given": (masked_attention, None, []),
    "complex sinusoids": (complex_positional_encoding, None, []),
    "a comparison of positions": (broadcast_mask, None, []),
    "lists": (decoder_mask, None, []),
    "einsum": (EinsumAttention, None, ["cannot be saved yet"]),
    "a stack of matrices": (StackedAttention, None, ["cannot be saved yet"]),
    "Dense per head": (DensePerHead, "multi_head_attention", ["cannot be saved yet"]),
    "a layer per head": (AttentionOfHeadLayers, None, ["cannot be saved yet"]),
    "Dense alone": (MyMultiHeadAttention, None, ["cannot be saved yet", "a padding mask"]),
    "Dense alone, to save": (MyAttentionToSave, None, ["a padding mask"]),
    "another width": (lambda: MyAttentionToSave(32, 8), "multi_head_attention", []),
    "keys with values": (KeysWithValues, "multi_head_attention", ["cannot be saved yet"]),
    "nanoGPT": (CausalSelfAttention, None, ["hides the future by itself", "cannot be saved"]),
    "the layer of Keras": (AttentionOfKeras, None, []),
    "functional attention": (functional_attention, "multi_head_attention", ["a padding mask"]),
    "functional block": (functional_encoder, "encoder_block", ["a padding mask"]),
    "functional block, mask": (functional_encoder_with_a_mask, "encoder_block", []),
    "functional decoder": (functional_decoder, "decoder_block", []),
    "Sequential": (sequential_feed_forward, "feed_forward", []),
    "swish": (SwishMLP, None, ["activation is SiLU", "cannot be saved"]),
    "a block of Keras's layers": (Block, "encoder_block", ["cannot be saved yet"]),
    "pre-norm": (PreNormBlock, "encoder_block", ["cannot be saved yet"]),
    "GELU and Keras's epsilon": (GeluBlock, "encoder_block", ["is GELU;", "epsilon", "be saved"]),
    "GPT": (GPTBlock, "encoder_block", ["is GELU;", "hides the future by itself", "be saved"]),
    "decoder of a tutorial": (DecoderOfTheTutorial, None, []),
    "decoder with one mask": (DecoderWithOneMask, None, []),
    "epsilon": (layers.LayerNormalization, None, ["epsilon of its normalization is 0.001"]),
}


# Wrong: those of a review


def attention_over_queries(Q, K, V):
    scores = np.exp(Q @ K.transpose(0, 2, 1) / np.sqrt(Q.shape[-1]))
    return scores / scores.sum(axis=1, keepdims=True) @ V


def unscaled_attention(query, key, value):
    weights = ops.softmax(ops.einsum("bid,bjd->bij", query, key))
    return ops.einsum("bij,bjd->bid", weights, value)


def attention_that_hides_true(q, k, v, mask=None):
    scores = ops.matmul(q, ops.swapaxes(k, 1, 2)) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + ops.cast(mask, "float32") * -1e9
    return ops.matmul(ops.softmax(scores), v)


def causal_mask_of_lists(n):
    return np.array([[j <= i + 1 for j in range(n)] for i in range(n)])


def causal_mask_by_triu(size):
    return np.triu(np.ones((size, size)), k=2) == 0


class JoinsByReshape(MyMultiHeadAttention):
    def join(self, x):
        return ops.reshape(x, (x.shape[0], x.shape[2], -1))


def positions_from_one(max_len, d_model):
    table = np.zeros((max_len, d_model))
    for row in range(max_len):
        for i in range(d_model // 2):
            table[row, 2 * i] = np.sin((row + 1) / 10000 ** (2 * i / d_model))
            table[row, 2 * i + 1] = np.cos((row + 1) / 10000 ** (2 * i / d_model))
    return table


class WithoutAttentionsResidual(Block):
    def call(self, x):
        x = self.norms[0](self.attention(x, x))
        return self.norms[1](x + self.network(x))


def layer_norm_of_the_batch(x, gamma, beta):
    return gamma * (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-6) + beta


class MyNorm(layers.Layer):
    def call(self, x):
        mean = ops.mean(x, axis=0, keepdims=True)
        deviation = ops.sqrt(ops.mean((x - mean) ** 2, axis=0, keepdims=True) + 1e-6)
        return (x - mean) / deviation


class BlockOfMyNorm(Block):
    def norm(self):
        return MyNorm()


class DropoutStaysOn(DensePerHead):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.drop = layers.Dropout(0.5)

    def joined(self, heads):
        return self.out(self.drop(ops.concatenate(heads, -1), training=True))


class KeysForValues(MyMultiHeadAttention):
    def call(self, query, value):
        q, k = self.split(self.W_Q(query)), self.split(self.W_K(value))
        self.W_V(value)
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) / q.shape[-1] ** 0.5
        return self.W_O(self.join(ops.matmul(ops.softmax(scores), k)))


class ScaledByTheLayer(MyMultiHeadAttention):
    def scale(self, d_k):
        return (d_k * self.num_heads) ** 0.5


class CrossReadsTheTarget(DecoderOfTheTutorial):
    def cross(self, x, encoded, mask):
        return self.mha2(x, x, None)


class DecoderWithoutCausalMask(DecoderOfTheTutorial):
    def call(self, x, enc_output, padding_mask=None):
        return super().call(x, enc_output, None, padding_mask)


def softmax_twice_attention(query, key, value):
    scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1])
    return ops.softmax(ops.softmax(scores)) @ value


class OneMatrixForQueriesAndKeys(MyMultiHeadAttention):
    def call(self, query, key, value):
        q, k, v = (
            self.split(self.W_Q(query)),
            self.split(self.W_Q(key)),
            self.split(self.W_V(value)),
        )
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) / q.shape[-1] ** 0.5
        return self.W_O(self.join(ops.matmul(ops.softmax(scores), v)))


class AveragesHeads(DensePerHead):
    def joined(self, heads):
        return self.out(sum(heads) / len(heads))


# Wrong: twenty more


class ForgetsToBeCausal(CausalSelfAttention):
    def bias(self, T):
        return np.ones((1, 1, T, T), dtype=bool)


class CausalAttentionByTriu(CausalSelfAttention):
    def bias(self, T):
        return np.triu(np.ones((1, 1, T, T)), k=2) == 0


class HeadsWithoutOutput(DensePerHead):
    def joined(self, heads):
        return ops.concatenate(heads, axis=-1)


class AddsHeads(DensePerHead):
    def joined(self, heads):
        return self.out(sum(heads))


class NormsInside(Block):
    def call(self, x):
        x = x + self.norms[0](self.attention(x, x))
        return x + self.norms[1](self.network(x))


class ValuesAsTheyCome(MyMultiHeadAttention):
    def call(self, query, value):
        q, k, v = self.split(self.W_Q(query)), self.split(self.W_K(value)), self.split(value)
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) / q.shape[-1] ** 0.5
        return self.W_O(self.join(ops.matmul(ops.softmax(scores), v)))


class QueriesAsTheyCome(MyMultiHeadAttention):
    def call(self, query, value):
        q, k, v = map(self.split, (query, self.W_K(value), self.W_V(value)))
        scores = ops.matmul(q, ops.swapaxes(k, -1, -2)) / q.shape[-1] ** 0.5
        return self.W_O(self.join(ops.matmul(ops.softmax(scores), v)))


class ReluAtTheEnd(layers.Layer):
    def __init__(self, d_model, dff):
        super().__init__()
        self.one, self.two = layers.Dense(dff), layers.Dense(d_model, activation="relu")

    def call(self, x):
        return self.two(self.one(x))


class RMSBlock(Block):
    def norm(self):
        return layers.RMSNormalization(epsilon=1e-6)


class EinsumByZero(EinsumAttention):
    def weights_of(self, scores, mask):
        return ops.softmax(scores if mask is None else scores * mask[:, None])


class EinsumOverQueries(EinsumAttention):
    def weights_of(self, scores, mask):
        return ops.softmax(scores, axis=2)


class ForgetsTheMemorysMask(DecoderOfTheTutorial):
    def cross(self, x, encoded, mask):
        return self.mha2(x, encoded)


class CrossFirst(DecoderOfTheTutorial):
    def call(self, x, enc_output, look_ahead_mask, padding_mask):
        x = self.layernorms[0](x + self.mha2(x, enc_output, padding_mask))
        x = self.layernorms[1](x + self.mha1(x, x, look_ahead_mask))
        return self.layernorms[2](x + self.ffn(x))


def encoding_by_dimension(seq_len, d_model):
    angles = np.arange(seq_len)[:, None] / np.power(10000, np.arange(d_model) / d_model)
    angles[:, 0::2], angles[:, 1::2] = np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])
    return angles


def create_padding_mask(seq):
    return ops.cast(ops.equal(seq, 0), "float32")[:, None, None, :]


def create_look_ahead_mask(size):
    return np.triu(np.ones((size, size)), k=1)


def attention_scaled_by_length(q, k, v):
    return ops.softmax(q @ ops.swapaxes(k, 1, 2) / k.shape[1] ** 0.5) @ v


class WideDense(MyMultiHeadAttention):
    def __init__(self, d_model, num_heads):
        super().__init__(d_model, num_heads)
        self.W_Q, self.W_K, self.W_V = (layers.Dense(d_model * num_heads) for _ in range(3))


class AddsPositionsTwice(layers.Layer):
    def call(self, x):
        return x + 2 * complex_positional_encoding(x.shape[1], x.shape[2])[None].astype("float32")


def linear_feed_forward():
    return keras.Sequential([layers.Dense(20), layers.Dense(12)])


def attention_with_mask_after(q, k, v, mask=None):
    weights = ops.softmax(q @ ops.swapaxes(k, 1, 2) / q.shape[-1] ** 0.5)
    return (weights if mask is None else weights * ops.cast(mask, "float32")) @ v


class BlockScaledByWidth(Block):
    def attends(self, d_model, num_heads):
        return Positional(ScaledByTheLayer(d_model, num_heads))


class Positional(layers.Layer):
    """Calls an attention with query, key and value."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, query, value, attention_mask=None):
        return self.inner(query, value, value)


WRONG = {  # name: what is checked, its kind, words of the sentence; the first 19 of a review
    "softmax over queries": (attention_over_queries, None, "over the queries"),
    "no scale": (unscaled_attention, None, "not scaled"),
    "True is hidden": (attention_that_hides_true, None, "mask is inverted"),
    "causal by lists": (causal_mask_of_lists, None, "leaks by one"),
    "causal by triu": (causal_mask_by_triu, None, "leaks by one"),
    "joined by reshape": (JoinsByReshape, "multi_head_attention", "when they are joined"),
    "positions from 1": (positions_from_one, None, "count from 1"),
    "no residual": (WithoutAttentionsResidual, "encoder_block", "around the attention"),
    "norm of the batch": (layer_norm_of_the_batch, None, "over the batch"),
    "norm layer of the batch": (MyNorm, None, "over the batch"),
    "block of the batch": (BlockOfMyNorm, "encoder_block", "over the batch"),
    "dropout stays on": (DropoutStaysOn, "multi_head_attention", "Two calls with the same input"),
    "keys for values": (KeysForValues, "multi_head_attention", "average the keys"),
    "scale of the layer": (ScaledByTheLayer, "multi_head_attention", "The scale is √d_model"),
    "cross reads the target": (CrossReadsTheTarget, "decoder_block", "reads the target"),
    "no causal mask": (DecoderWithoutCausalMask, None, "The future leaks: nothing"),
    "softmax twice": (softmax_twice_attention, None, "softmax is taken twice"),
    "one matrix": (OneMatrixForQueriesAndKeys, "multi_head_attention", "W^K is missing"),
    "heads averaged": (AveragesHeads, "multi_head_attention", "averaged instead of concatenated"),
    "not causal": (ForgetsToBeCausal, "multi_head_attention", "The future leaks: nothing"),
    "causal heads by triu": (CausalAttentionByTriu, None, "leaks by one"),
    "no output": (HeadsWithoutOutput, None, "W^O is missing"),
    "heads added": (AddsHeads, None, "added up instead of concatenated"),
    "norm inside": (NormsInside, "encoder_block", "comes before the addition"),
    "values as they come": (ValuesAsTheyCome, "multi_head_attention", "W^V is missing"),
    "queries as they come": (QueriesAsTheyCome, "multi_head_attention", "W^Q is missing"),
    "ReLU at the end": (ReluAtTheEnd, "feed_forward", "behind the second layer"),
    "RMS": (RMSBlock, "encoder_block", "RMS normalization"),
    "masked by zero": (EinsumByZero, "multi_head_attention", "set to 0, which is not"),
    "heads over queries": (EinsumOverQueries, "multi_head_attention", "over the queries"),
    "memory's mask": (ForgetsTheMemorysMask, "decoder_block", "mask has no effect"),
    "cross first": (CrossFirst, "decoder_block", "before the self-attention"),
    "exponents": (encoding_by_dimension, "positional_encoding", "its own wavelength"),
    "padding is 1": (create_padding_mask, None, "mask is inverted"),
    "future is 1": (create_look_ahead_mask, None, "mask is inverted"),
    "scale of the length": (attention_scaled_by_length, None, "root of the number of keys"),
    "wide heads": (WideDense, "multi_head_attention", "as wide as the whole layer"),
    "positions twice": (AddsPositionsTwice, None, "differs from the sinusoids"),
    "linear": (linear_feed_forward, "feed_forward", "no activation"),
    "mask after the softmax": (attention_with_mask_after, None, "set to 0 after the softmax"),
    "functional, no scale": (
        lambda: functional_attention(scaled=False),
        "multi_head_attention",
        "not scaled",
    ),
    "functional, one residual": (
        lambda: functional_encoder(second=False),
        "encoder_block",
        "around the feed-forward network",
    ),
    "block of a wide scale": (BlockScaledByWidth, "encoder_block", "The scale is √d_model"),
}
