"""Layers, masks and functions as learners write them: right ones in several styles, and wrong ones.

`RIGHT` and `WRONG` list them for tests/cli/test_grading.py; of a wrong one, words of the
sentence that must name its fault, and the chapter that explains it.
"""

import keras
import numpy as np
from keras import layers, ops

NEVER = -1e9


# Right: functions


def attention_in_a_loop(Q, K, V):
    outputs = np.zeros((*Q.shape[:2], V.shape[-1]))
    for place in np.ndindex(Q.shape[:2]):
        scores = np.array([Q[place] @ k / np.sqrt(len(k)) for k in K[place[0]]])
        weights = np.exp(scores - scores.max())
        outputs[place] = weights @ V[place[0]] / weights.sum()
    return outputs


def attention_with_einsum(query, key, value, mask=None):
    scores = ops.einsum("btd,bsd->bts", query, key) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = ops.where(mask, scores, NEVER)
    weights = ops.softmax(scores)
    return ops.einsum("bts,bsv->btv", weights, value), weights


def attention_that_adds_a_mask(q, k, v, attention_mask=None):
    scores = ops.matmul(q, ops.transpose(k, (0, 2, 1))) / ops.sqrt(ops.cast(k.shape[-1], "float32"))
    if attention_mask is not None:
        scores += (1 - ops.cast(attention_mask, "float32")) * NEVER
    return ops.matmul(ops.softmax(scores, axis=-1), v)


def causal_mask(n):
    return np.arange(n)[:, None] >= np.arange(n)


def look_ahead_mask(length):
    return ops.cast(ops.tril(ops.ones((1, length, length))), "bool")


def padding_mask(ids):
    return (ids != 0)[:, None, :]


def padding_mask_of_keras(token_ids):
    return ops.expand_dims(ops.not_equal(token_ids, 0), 1)


def positional_encoding(length, d_model):
    table = np.zeros((length, d_model))
    for i in range(0, d_model, 2):
        angle = np.arange(length) / 10000 ** (i / d_model)
        table[:, i], table[:, i + 1] = np.sin(angle), np.cos(angle)
    return table


def layer_norm(x, gamma, beta, epsilon=1e-5):
    mean, variance = ops.mean(x, -1, keepdims=True), ops.var(x, -1, keepdims=True)
    return gamma * (x - mean) / ops.sqrt(variance + epsilon) + beta


# Right: layers


class Sinusoids(layers.Layer):
    def call(self, x):
        table = positional_encoding(x.shape[1], x.shape[2])
        return x + ops.convert_to_tensor(table[None], "float32")


class MultiHead(layers.Layer):
    """Four Dense layers; subclasses below break one method each."""

    def __init__(self, d_model, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.d_model, self.num_heads = d_model, num_heads
        self.key_dim = d_model // num_heads
        self.wq, self.wk, self.wv, self.wo = (layers.Dense(d_model) for _ in range(4))

    def split(self, x):
        x = ops.reshape(x, (-1, x.shape[1], self.num_heads, self.key_dim))
        return ops.transpose(x, (0, 2, 1, 3))

    def join(self, x):
        x = ops.transpose(x, (0, 2, 1, 3))
        return ops.reshape(x, (-1, x.shape[1], self.d_model))

    def scaled(self, scores, length):
        return scores / self.key_dim**0.5

    def hidden(self, scores, mask):
        return scores if mask is None else ops.where(mask[:, None], scores, NEVER)

    def weights_of(self, scores, mask):
        return ops.softmax(scores)

    def call(self, query, value, key=None, mask=None):
        q = self.split(self.wq(query))
        k = self.split(self.wk(value if key is None else key))
        v = self.split(self.wv(value))
        scores = ops.matmul(q, ops.transpose(k, (0, 1, 3, 2)))
        scores = self.hidden(self.scaled(scores, k.shape[2]), mask)
        return self.wo(self.join(ops.matmul(self.weights_of(scores, mask), v)))

    def get_config(self):
        sizes = {"d_model": self.d_model, "num_heads": self.num_heads}
        return {**super().get_config(), **sizes}


class FusedSelfAttention(layers.Layer):
    """One matrix for queries, keys and values, as in nanoGPT, and a causal flag."""

    def __init__(self, dim, heads, **kwargs):
        super().__init__(**kwargs)
        self.dim, self.heads = dim, heads
        self.qkv, self.out = layers.Dense(3 * dim, use_bias=False), layers.Dense(dim)

    def call(self, x, mask=None, use_causal_mask=False):
        length = x.shape[1]
        q, k, v = (
            ops.reshape(part, (-1, length, self.heads, self.dim // self.heads))
            for part in ops.split(self.qkv(x), 3, axis=-1)
        )
        scores = ops.einsum("bthd,bshd->bhts", q, k) * (self.dim // self.heads) ** -0.5
        if mask is not None:
            scores = ops.where(ops.expand_dims(mask, 1), scores, NEVER)
        if use_causal_mask:
            scores = ops.where(self.future(length), scores, NEVER)
        context = ops.einsum("bhts,bshd->bthd", ops.softmax(scores), v)
        return self.out(ops.reshape(context, (-1, length, self.dim)))

    def future(self, length):
        return np.tri(length, dtype=bool)

    def get_config(self):
        return {**super().get_config(), "dim": self.dim, "heads": self.heads}


class HeadByHead(layers.Layer):
    """A list of small projections, head after head, as the equation is written."""

    def __init__(self, num_heads, **kwargs):
        super().__init__(**kwargs)
        self.num_heads = num_heads

    def build(self, shape):
        width = shape[-1] // self.num_heads
        for name in ("kernels_of_heads", "output_kernel"):
            assert not hasattr(self, name)
        self.heads = [
            [self.add_weight(shape=(shape[-1], width), name=f"{role}_{head}") for role in "kqv"]
            for head in range(self.num_heads)
        ]
        self.output_kernel = self.add_weight(shape=(shape[-1], shape[-1]), name="o")

    def call(self, inputs):
        heads = []
        for W_K, W_Q, W_V in self.heads:
            k, q, v = (ops.matmul(inputs, W) for W in (W_K, W_Q, W_V))
            heads.append(attention_with_einsum(q, k, v)[0])
        return ops.matmul(ops.concatenate(heads, axis=-1), self.output_kernel)


class KerasAttention(layers.Layer):
    """The layer of Keras in a wrapper."""

    def __init__(self, num_heads, key_dim, **kwargs):
        super().__init__(**kwargs)
        self.num_heads, self.key_dim = num_heads, key_dim
        self.attention = layers.MultiHeadAttention(num_heads, key_dim)

    def call(self, query, value, attention_mask=None):
        return self.attention(query, value, attention_mask=attention_mask)

    def get_config(self):
        return {**super().get_config(), "num_heads": self.num_heads, "key_dim": self.key_dim}


class FeedForward(layers.Layer):
    def __init__(self, d_model, d_ff, **kwargs):
        super().__init__(**kwargs)
        self.d_model, self.d_ff = d_model, d_ff
        self.inner, self.outer = self.parts()

    def parts(self):
        return layers.Dense(self.d_ff, activation="relu"), layers.Dense(self.d_model)

    def call(self, x):
        return self.outer(self.inner(x))

    def get_config(self):
        return {**super().get_config(), "d_model": self.d_model, "d_ff": self.d_ff}


class ConvolutionalFeedForward(FeedForward):
    def parts(self):
        return layers.Conv1D(self.d_ff, 1, activation="relu"), layers.Conv1D(self.d_model, 1)


class Encoder(layers.Layer):
    """Of a learner's attention and Keras's layers; subclasses break one method each."""

    def __init__(self, d_model, num_heads, d_ff, rate=0.1, **kwargs):
        super().__init__(**kwargs)
        self.sizes = {"d_model": d_model, "num_heads": num_heads, "d_ff": d_ff, "rate": rate}
        self.num_heads = num_heads
        self.attention = self.make_attention()
        self.ffn1 = layers.Dense(d_ff, activation=self.activation)
        self.ffn2 = layers.Dense(d_model)
        self.norm1, self.norm2 = self.make_norm(), self.make_norm()
        self.drop = layers.Dropout(rate)

    activation = "relu"

    def make_attention(self):
        return MultiHead(self.sizes["d_model"], self.num_heads)

    def make_norm(self):
        return layers.LayerNormalization(epsilon=1e-6)

    def call(self, x, mask=None):
        x = self.norm1(x + self.drop(self.attention(x, x, mask=mask)))
        return self.norm2(x + self.drop(self.ffn2(self.ffn1(x))))

    def get_config(self):
        return {**super().get_config(), **self.sizes}


class PreNormEncoder(Encoder):
    def make_norm(self):
        return layers.LayerNormalization()  # Keras's epsilon, 1e-3

    def call(self, x, mask=None):
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, mask=mask)
        return x + self.ffn2(self.ffn1(self.norm2(x)))


class Decoder(Encoder):
    def __init__(self, d_model, num_heads, d_ff, rate=0.1, **kwargs):
        super().__init__(d_model, num_heads, d_ff, rate, **kwargs)
        self.cross, self.norm3 = self.make_attention(), self.make_norm()

    def look_ahead(self, length):
        return ops.convert_to_tensor(np.tri(length, dtype=bool)[None])

    def call(self, x, encoder_output, padding_mask=None):
        future = self.look_ahead(x.shape[1])
        x = self.norm1(x + self.attention(x, x, mask=future))
        x = self.norm2(x + self.cross(x, encoder_output, mask=padding_mask))
        return self.norm3(x + self.ffn2(self.ffn1(x)))


class DecoderWithKerasAttention(Decoder):
    def make_attention(self):
        heads = self.sizes["num_heads"]
        return layers.MultiHeadAttention(heads, self.sizes["d_model"] // heads)

    def call(self, target, context, look_ahead_mask=None, memory_mask=None):
        x = self.norm1(target + self.attention(target, target, attention_mask=look_ahead_mask))
        x = self.norm2(x + self.cross(x, context, attention_mask=memory_mask))
        return self.norm3(x + self.ffn2(self.ffn1(x)))


class AnotherTutorial(layers.Layer):
    """Values first, and a mask with an axis for the heads."""

    def __init__(self, embed_size, heads, **kwargs):
        super().__init__(**kwargs)
        self.embed_size, self.heads = embed_size, heads
        self.values, self.keys, self.queries = (
            layers.Dense(embed_size, use_bias=False) for _ in range(3)
        )
        self.fc_out = layers.Dense(embed_size)

    def call(self, values, keys, query, mask=None):
        parts = (self.values(values), self.keys(keys), self.queries(query))
        v, k, q = (ops.reshape(x, (x.shape[0], x.shape[1], self.heads, -1)) for x in parts)
        energy = ops.einsum("nqhd,nkhd->nhqk", q, k)
        if mask is not None:
            energy = self.hide(energy, mask)
        attention = ops.softmax(energy / (self.embed_size // self.heads) ** 0.5, axis=3)
        out = ops.einsum("nhql,nlhd->nqhd", attention, v)
        return self.fc_out(ops.reshape(out, (query.shape[0], query.shape[1], -1)))

    def hide(self, energy, mask):
        return ops.where(mask == 0, -1e20, energy)


class EncoderOfAnotherTutorial(Encoder):
    def make_attention(self):
        return AnotherTutorial(self.sizes["d_model"], self.num_heads)

    def call(self, x, mask=None):
        x = self.norm1(x + self.attention(x, x, x, mask))
        return self.norm2(x + self.ffn2(self.ffn1(x)))


RIGHT = [  # what is checked, and its kind
    (attention_in_a_loop, "attention"),
    (attention_with_einsum, "attention"),
    (attention_that_adds_a_mask, "attention"),
    (causal_mask, "look_ahead_mask"),
    (look_ahead_mask, "look_ahead_mask"),
    (padding_mask, "padding_mask"),
    (padding_mask_of_keras, "padding_mask"),
    (positional_encoding, "positional_encoding"),
    (Sinusoids, "positional_encoding"),
    (layer_norm, "layer_norm"),
    (layers.LayerNormalization, "layer_norm"),
    (MultiHead, "multi_head_attention"),
    (FusedSelfAttention, "multi_head_attention"),
    (HeadByHead, "multi_head_attention"),
    (AnotherTutorial, "multi_head_attention"),
    (KerasAttention, "multi_head_attention"),
    (lambda: layers.MultiHeadAttention(2, 6), "multi_head_attention"),
    (FeedForward, "feed_forward"),
    (ConvolutionalFeedForward, "feed_forward"),
    (Encoder, "encoder_block"),
    (PreNormEncoder, "encoder_block"),
    (EncoderOfAnotherTutorial, "encoder_block"),
    (Decoder, "decoder_block"),
    (DecoderWithKerasAttention, "decoder_block"),
]


# Wrong: functions of query, key, value and mask


def softmax_attention(scale=lambda s, d: s / d**0.5, after=lambda w, d: w, axis=-1):
    def attention(query, key, value):
        d_k = query.shape[-1]
        scores = scale(ops.matmul(query, ops.swapaxes(key, -1, -2)), d_k)
        return ops.matmul(after(ops.softmax(scores, axis=axis), d_k), value)

    return attention


def masked_attention(hide):
    def attention(query, key, value, mask=None):
        scores = ops.matmul(query, ops.swapaxes(key, -1, -2)) / query.shape[-1] ** 0.5
        if mask is None:
            return ops.matmul(ops.softmax(scores), value)
        return ops.matmul(hide(scores, ops.convert_to_tensor(mask)), value)

    return attention


def overflowing_attention(query, key, value):
    exponentials = ops.exp(ops.matmul(query, ops.swapaxes(key, -1, -2)) / query.shape[-1] ** 0.5)
    return ops.matmul(exponentials / ops.sum(exponentials, axis=-1, keepdims=True), value)


def cosine_attention(query, key, value):
    query, key = ops.normalize(query, axis=-1), ops.normalize(key, axis=-1)
    return ops.matmul(ops.softmax(ops.matmul(query, ops.swapaxes(key, -1, -2))), value)


def attention_to_keys(query, key, value):
    return attention_with_einsum(query, key, key)


def scaled_cosine_attention(query, key, value):
    query, key = ops.normalize(query, axis=-1), ops.normalize(key, axis=-1)
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2)) / query.shape[-1] ** 0.5
    return ops.matmul(ops.softmax(scores), value)


def sigmoid_attention(query, key, value):
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2)) / query.shape[-1] ** 0.5
    return ops.matmul(ops.sigmoid(scores), value)


def transposed_mask(scores, mask):
    if mask.shape[-1] == mask.shape[-2]:
        mask = ops.swapaxes(mask, -1, -2)
    return ops.softmax(ops.where(mask, scores, NEVER))


def unweighted_attention(query, key, value):
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2)) / query.shape[-1] ** 0.5
    return ops.matmul(scores, value)


def attention_with_other_weights(query, key, value):
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2)) / query.shape[-1] ** 0.5
    return ops.matmul(ops.softmax(scores), value), scores


def negative_infinity(scores, mask):
    return ops.softmax(ops.where(mask, scores, -np.inf))


def table_of(exponent=lambda i, d: i // 2 * 2 / d, first=0, base=10000.0, waves=(np.sin, np.cos)):
    def positional_encoding(length, d_model):
        table = np.zeros((length, d_model))
        for i in range(d_model):
            angle = (np.arange(length) + first) / base ** exponent(i, d_model)
            table[:, i] = waves[i % 2](angle)
        return table

    return positional_encoding


def angles_of(length, d_model):
    return np.arange(length)[:, None] / 10000 ** (np.arange(0, d_model, 2) / d_model)


def sines_then_cosines(length, d_model):
    angles = angles_of(length, d_model)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)


def in_degrees(length, d_model):
    angles = np.radians(angles_of(length, d_model))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, d_model)


def multiplied_positions(length, d_model):
    angles = np.arange(length)[:, None] * 10000 ** (np.arange(0, d_model, 2) / d_model)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, d_model)


def coarse_positions(length, d_model):
    positions = np.arange(length, dtype="float32")
    coarse = ops.cast(ops.cast(positions, "bfloat16"), "float32")
    return ops.convert_to_numpy(
        ops.reshape(
            ops.stack(
                [wave(ops.outer(coarse, frequencies(d_model))) for wave in (ops.sin, ops.cos)], -1
            ),
            (length, d_model),
        )
    )


def frequencies(d_model):
    return (10000.0 ** (-np.arange(0, d_model, 2) / d_model)).astype("float32")


class PositionsAlone(Sinusoids):
    def call(self, x):
        return super().call(x) - x


class ScaledInput(Sinusoids):
    def call(self, x):
        return super().call(2 * x)


def norm_over(*axes, root=lambda x: ops.sqrt(x + 1e-6), centered=True, correction=1.0):
    def layer_norm(x):
        mean = ops.mean(x, axes, keepdims=True) if centered else 0.0
        return (x - mean) / root(ops.mean((x - mean) ** 2, axes, keepdims=True) * correction)

    return layer_norm


# Wrong: layers


class Unscaled(MultiHead):
    def scaled(self, scores, length):
        return scores


class ScaledAfter(Unscaled):
    def weights_of(self, scores, mask):
        return ops.softmax(scores) / self.key_dim**0.5


class ScaledByWidth(MultiHead):
    def scaled(self, scores, length):
        return scores / self.d_model**0.5


class ScaledByLength(MultiHead):
    def scaled(self, scores, length):
        return scores / length**0.5


class MixedAndUnscaled(Unscaled):
    def split(self, x):
        return ops.reshape(x, (-1, self.num_heads, x.shape[1], self.key_dim))


class SoftmaxOverQueries(MultiHead):
    def weights_of(self, scores, mask):
        return ops.softmax(scores, axis=-2)


class SoftmaxOverHeads(MultiHead):
    def weights_of(self, scores, mask):
        return ops.softmax(scores, axis=1)


class MixedSplit(MultiHead):
    def split(self, x):
        return ops.reshape(x, (-1, self.num_heads, x.shape[1], self.key_dim))


class MixedJoin(MultiHead):
    def join(self, x):
        return ops.reshape(x, (-1, x.shape[2], self.d_model))


class MixedBoth(MixedSplit, MixedJoin):
    pass


class OneHead(MultiHead):
    def __init__(self, d_model, num_heads, **kwargs):
        super().__init__(d_model, 1, **kwargs)
        self.num_heads = num_heads

    def split(self, x):
        return x[:, None]

    def join(self, x):
        return x[:, 0]

    def scaled(self, scores, length):
        return scores / self.d_model**0.5


class WithoutOutput(MultiHead):
    def __init__(self, d_model, num_heads, **kwargs):
        super().__init__(d_model, num_heads, **kwargs)
        self.wo = layers.Identity()


class MaskInverted(MultiHead):
    def hidden(self, scores, mask):
        return scores if mask is None else ops.where(mask[:, None], NEVER, scores)


class MaskIgnored(MultiHead):
    def hidden(self, scores, mask):
        return scores


class MaskByZero(MultiHead):
    def hidden(self, scores, mask):
        return scores if mask is None else scores * ops.cast(mask[:, None], "float32")


class MaskAfter(MaskIgnored):
    def weights_of(self, scores, mask):
        weights = ops.softmax(scores)
        return weights if mask is None else weights * ops.cast(mask[:, None], "float32")


class MaskWithInfinity(MultiHead):
    def hidden(self, scores, mask):
        return scores if mask is None else ops.where(mask[:, None], scores, -np.inf)


class TutorialOfOnes(AnotherTutorial):
    """Adds -1e9 where the mask is 1, so that 1 means hidden."""

    def hide(self, energy, mask):
        return energy + mask * NEVER


class WithoutKeywords(AnotherTutorial):
    def __init__(self, embed_size, heads):
        super().__init__(embed_size, heads)


class Forgetful(MultiHead):
    def __init__(self, d_model=12, num_heads=4, **kwargs):
        super().__init__(d_model, num_heads, **kwargs)

    def get_config(self):
        return layers.Layer.get_config(self)


class DroppingAlways(MultiHead):
    def weights_of(self, scores, mask):
        self.seed = getattr(self, "seed", 0) + 1
        return keras.random.dropout(ops.softmax(scores), 0.5, seed=self.seed)


class LeakByOne(FusedSelfAttention):
    def future(self, length):
        return np.tri(length, k=1, dtype=bool)


class NotItself(FusedSelfAttention):
    def future(self, length):
        return np.tri(length, k=-1, dtype=bool)


class LinearFeedForward(FeedForward):
    def parts(self):
        return layers.Dense(self.d_ff), layers.Dense(self.d_model)


class TwiceActive(FeedForward):
    def parts(self):
        return (layers.Dense(n, activation="relu") for n in (self.d_ff, self.d_model))


class WideConvolution(FeedForward):
    def call(self, x):
        return self.outer(self.inner(x + ops.roll(x, 1, axis=1)))


class NormOverBatch(layers.Layer):
    def call(self, x):
        return norm_over(0)(x)


class NormOverLength(layers.Layer):
    def call(self, x):
        return norm_over(1)(x)


class EncoderOverBatch(Encoder):
    def make_norm(self):
        return NormOverBatch()


class EncoderOverLength(Encoder):
    def make_norm(self):
        return NormOverLength()


class OwnBatchNormalization(layers.BatchNormalization):
    pass


class EncoderWithBatchNormalization(Encoder):
    def make_norm(self):
        return OwnBatchNormalization()


class EncoderWithoutResiduals(Encoder):
    def call(self, x, mask=None):
        x = self.norm1(self.attention(x, x, mask=mask))
        return self.norm2(self.ffn2(self.ffn1(x)))


class EncoderWithoutSecondResidual(Encoder):
    def call(self, x, mask=None):
        x = self.norm1(x + self.attention(x, x, mask=mask))
        return self.norm2(self.ffn2(self.ffn1(x)))


class EncoderWithoutFirstResidual(Encoder):
    def call(self, x, mask=None):
        x = self.norm1(self.attention(x, x, mask=mask))
        return self.norm2(x + self.ffn2(self.ffn1(x)))


class EncoderWithOneNorm(Encoder):
    def call(self, x, mask=None):
        x = x + self.attention(x, x, mask=mask)
        return self.norm2(x + self.ffn2(self.ffn1(x)))


class NormOverSentence(layers.Layer):
    def call(self, x):
        return norm_over(1, 2)(x)


class EncoderOverSentence(Encoder):
    def make_norm(self):
        return NormOverSentence()


class EncoderOfNeighbors(Encoder):
    def call(self, x, mask=None):
        return super().call(x) + ops.mean(x, axis=0)


class EncoderWithoutNorm(Encoder):
    def call(self, x, mask=None):
        x = x + self.attention(x, x, mask=mask)
        return x + self.ffn2(self.ffn1(x))


class EncoderForgetsMask(Encoder):
    def call(self, x, mask=None):
        return super().call(x)


class EncoderInvertsMask(Encoder):
    def make_attention(self):
        return MaskInverted(self.sizes["d_model"], self.num_heads)


class LinearEncoder(Encoder):
    activation = None


class LinearEncoderWithoutResiduals(EncoderWithoutResiduals):
    activation = None


class UnscaledEncoder(Encoder):
    def make_attention(self):
        return Unscaled(self.sizes["d_model"], self.num_heads)


class LeakingDecoder(Decoder):
    def look_ahead(self, length):
        return None


class LeakingDecoderOfAnotherScale(LeakingDecoder):
    def call(self, x, encoder_output, padding_mask=None):
        return 1.5 * super().call(x, encoder_output)


class DecoderLeaksByOne(Decoder):
    def look_ahead(self, length):
        return ops.convert_to_tensor(np.tri(length, k=1, dtype=bool)[None])


class DecoderWithoutMemory(Decoder):
    def call(self, x, encoder_output, padding_mask=None):
        return super().call(x, x)


class DecoderCrossesFirst(Decoder):
    def call(self, x, encoder_output, padding_mask=None):
        x = self.norm1(x + self.cross(x, encoder_output, mask=padding_mask))
        x = self.norm2(x + self.attention(x, x, mask=self.look_ahead(x.shape[1])))
        return self.norm3(x + self.ffn2(self.ffn1(x)))


class DecoderSeesPadding(Decoder):
    def call(self, x, encoder_output, padding_mask=None):
        return super().call(x, encoder_output)


def as_numbers(mask):
    return ops.cast(mask, "float32")


WRONG = {  # name: what is checked, its kind, words of the sentence, chapter
    "no scale": (softmax_attention(scale=lambda s, d: s), "attention", "not scaled", 3),
    "scale after the softmax": (
        softmax_attention(scale=lambda s, d: s, after=lambda w, d: w / d**0.5),
        "attention",
        "scale comes after the softmax",
        3,
    ),
    "divided by d_k": (
        softmax_attention(scale=lambda s, d: s / d),
        "attention",
        "divided by d_k instead of its square root",
        3,
    ),
    "multiplied": (
        softmax_attention(scale=lambda s, d: s * d**0.5),
        "attention",
        "multiplied by √d_k",
        3,
    ),
    "softmax over queries": (softmax_attention(axis=-2), "attention", "over the queries", 3),
    "softmax over the batch": (softmax_attention(axis=0), "attention", "sentences of the batch", 3),
    "no softmax": (unweighted_attention, "attention", "no softmax", 3),
    "sigmoid": (sigmoid_attention, "attention", "sigmoid replaces the softmax", 3),
    "scaled cosine": (scaled_cosine_attention, "attention", "cosine of query and key", 3),
    "mask transposed": (masked_attention(transposed_mask), "attention", "mask is transposed", 6),
    "cosine": (cosine_attention, "attention", "cosine", 3),
    "average of keys": (attention_to_keys, "attention", "average the keys", 3),
    "other weights": (attention_with_other_weights, "attention", "weights that are returned", 3),
    "overflow": (overflowing_attention, "attention", "overflow", 3),
    "mask inverted": (
        masked_attention(lambda s, m: ops.softmax(ops.where(m, NEVER, s))),
        "attention",
        "mask is inverted",
        6,
    ),
    "mask ignored": (
        masked_attention(lambda s, m: ops.softmax(s)),
        "attention",
        "mask has no effect",
        6,
    ),
    "score of zero": (
        masked_attention(lambda s, m: ops.softmax(s * as_numbers(m))),
        "attention",
        "set to 0, which is not a weight of 0",
        6,
    ),
    "mask after the softmax": (
        masked_attention(lambda s, m: ops.softmax(s) * as_numbers(m)),
        "attention",
        "set to 0 after the softmax",
        6,
    ),
    "mask added": (
        masked_attention(lambda s, m: ops.softmax(s + as_numbers(m))),
        "attention",
        "added to the scores as 0 and 1",
        6,
    ),
    "NaN for a masked row": (masked_attention(negative_infinity), "attention", "gets NaN", 6),
    "future is True": (
        lambda length: ~np.tri(length, dtype=bool),
        "look_ahead_mask",
        "mask is inverted",
        6,
    ),
    "upper triangle": (
        lambda length: np.tri(length, dtype=bool).T,
        "look_ahead_mask",
        "transposed",
        6,
    ),
    "leak by one": (
        lambda length: np.tri(length, k=1, dtype=bool),
        "look_ahead_mask",
        "leaks by one",
        6,
    ),
    "not itself": (
        lambda length: np.tri(length, k=-1, dtype=bool),
        "look_ahead_mask",
        "does not see itself",
        6,
    ),
    "additive mask": (
        lambda length: NEVER * (1 - np.tri(length)),
        "look_ahead_mask",
        "additive mask",
        6,
    ),
    "mask of numbers": (lambda length: np.tri(length), "look_ahead_mask", "make it boolean", 6),
    "a mask of everything": (
        lambda length: np.ones((length, length), dtype=bool),
        "look_ahead_mask",
        "The future leaks: nothing",
        6,
    ),
    "another mask": (
        lambda length: np.eye(length, dtype=bool),
        "look_ahead_mask",
        "differs from the one",
        6,
    ),
    "padding not hidden": (
        lambda ids: np.ones((len(ids), 1, ids.shape[1]), dtype=bool),
        "padding_mask",
        "hides nothing",
        6,
    ),
    "padding is True": (lambda ids: (ids == 0)[:, None], "padding_mask", "mask is inverted", 6),
    "padding of queries": (
        lambda ids: (ids != 0)[:, :, None],
        "padding_mask",
        "queries instead of keys",
        6,
    ),
    "padding as numbers": (
        lambda ids: (ids != 0).astype("float32"),
        "padding_mask",
        "make it boolean",
        6,
    ),
    "positions from 1": (table_of(first=1), "positional_encoding", "count from 1", 5),
    "sine and cosine exchanged": (
        table_of(waves=(np.cos, np.sin)),
        "positional_encoding",
        "exchanged",
        5,
    ),
    "an exponent for each dimension": (
        table_of(lambda i, d: i / d),
        "positional_encoding",
        "its own wavelength",
        5,
    ),
    "exponent twice": (
        table_of(lambda i, d: 2 * i / d),
        "positional_encoding",
        "exponent is twice as large",
        5,
    ),
    "base 1000": (table_of(base=1000.0), "positional_encoding", "1,000 instead of 10,000", 5),
    "sines, then cosines": (sines_then_cosines, "positional_encoding", "All sines come first", 5),
    "sines only": (table_of(waves=(np.sin, np.sin)), "positional_encoding", "must be cosines", 5),
    "multiplied positions": (multiplied_positions, "positional_encoding", "is multiplied by", 5),
    "degrees": (in_degrees, "positional_encoding", "in radians already", 5),
    "another table": (
        lambda length, d_model: np.ones((length, d_model)),
        "positional_encoding",
        "differs from the sinusoids",
        5,
    ),
    "coarse positions": (coarse_positions, "positional_encoding", "share a row", 5),
    "positions not added": (PositionsAlone, "positional_encoding", "return its input plus", 5),
    "input scaled": (ScaledInput, "positional_encoding", "return its input plus", 5),
    "norm over batch": (norm_over(0), "layer_norm", "over the batch", 8),
    "norm over length": (norm_over(1), "layer_norm", "over the positions", 8),
    "norm over a sentence": (norm_over(1, 2), "layer_norm", "all tokens of a sentence", 8),
    "norm over batch and length": (norm_over(0, 1), "layer_norm", "batch and positions", 8),
    "no root": (norm_over(-1, root=lambda x: x), "layer_norm", "instead of its square root", 8),
    "no mean": (norm_over(-1, centered=False), "layer_norm", "mean is not subtracted", 8),
    "n - 1": (norm_over(-1, correction=12 / 11), "layer_norm", "n - 1", 8),
    "no epsilon": (norm_over(-1, root=ops.sqrt), "layer_norm", "add epsilon", 8),
    "batch normalization": (layers.BatchNormalization, "layer_norm", "batch normalization", 8),
    "heads: no scale": (Unscaled, "multi_head_attention", "not scaled", 3),
    "heads: scale after": (ScaledAfter, "multi_head_attention", "after the softmax", 3),
    "heads: scale of the layer": (ScaledByWidth, "multi_head_attention", "√d_model", 4),
    "heads: scale of the length": (ScaledByLength, "multi_head_attention", "number of keys", 3),
    "heads: softmax over queries": (
        SoftmaxOverQueries,
        "multi_head_attention",
        "over the queries",
        3,
    ),
    "heads: softmax over heads": (SoftmaxOverHeads, "multi_head_attention", "over the heads", 4),
    "heads mixed, split": (MixedSplit, "multi_head_attention", "when they are split", 4),
    "heads mixed, joined": (MixedJoin, "multi_head_attention", "when they are joined", 4),
    "heads mixed, both": (MixedBoth, "multi_head_attention", "before and after the attention", 4),
    "one head": (OneHead, "multi_head_attention", "only one head", 4),
    "no output projection": (WithoutOutput, "multi_head_attention", "W^O is missing", 4),
    "wide heads": (
        lambda: layers.MultiHeadAttention(2, 12),
        "multi_head_attention",
        "as wide as the whole layer",
        4,
    ),
    "heads: mask inverted": (MaskInverted, "multi_head_attention", "mask is inverted", 6),
    "heads: mask ignored": (MaskIgnored, "multi_head_attention", "mask has no effect", 6),
    "heads: score of zero": (MaskByZero, "multi_head_attention", "set to 0, which is not", 6),
    "heads: mask after": (MaskAfter, "multi_head_attention", "set to 0 after the softmax", 6),
    "heads: NaN": (MaskWithInfinity, "multi_head_attention", "gets NaN", 6),
    "heads: ones are hidden": (
        TutorialOfOnes,
        "multi_head_attention",
        "mask is inverted",
        6,
    ),
    "heads: always dropout": (DroppingAlways, "multi_head_attention", "Two calls", 10),
    "heads: leak by one": (LeakByOne, "multi_head_attention", "leaks by one", 6),
    "heads: not itself": (NotItself, "multi_head_attention", "does not see itself", 6),
    "no activation": (LinearFeedForward, "feed_forward", "no activation", 8),
    "activation twice": (TwiceActive, "feed_forward", "behind the second layer", 8),
    "tokens mixed": (WideConvolution, "feed_forward", "depends on other positions", 8),
    "block over the batch": (EncoderOverBatch, "encoder_block", "over the batch", 8),
    "block over the length": (EncoderOverLength, "encoder_block", "over the positions", 8),
    "block with batch normalization": (
        EncoderWithBatchNormalization,
        "encoder_block",
        "batch normalization",
        8,
    ),
    "no residual": (EncoderWithoutResiduals, "encoder_block", "no residual connection:", 8),
    "no second residual": (
        EncoderWithoutSecondResidual,
        "encoder_block",
        "around the feed-forward network",
        8,
    ),
    "no first residual": (
        EncoderWithoutFirstResidual,
        "encoder_block",
        "around the attention",
        8,
    ),
    "one norm": (EncoderWithOneNorm, "encoder_block", "Only the last sublayer", 8),
    "block over a sentence": (EncoderOverSentence, "encoder_block", "all tokens of a sentence", 8),
    "block of neighbors": (
        EncoderOfNeighbors,
        "encoder_block",
        "depends on the other sentences",
        8,
    ),
    "no norm": (EncoderWithoutNorm, "encoder_block", "no layer normalization", 8),
    "padding seen": (EncoderForgetsMask, "encoder_block", "mask has no effect", 6),
    "block inverts the mask": (EncoderInvertsMask, "encoder_block", "mask is inverted", 6),
    "linear block": (LinearEncoder, "encoder_block", "no activation", 8),
    "unscaled block": (UnscaledEncoder, "encoder_block", "not scaled", 3),
    "leak of the future": (LeakingDecoder, "decoder_block", "The future leaks: nothing", 6),
    "leak of another scale": (
        LeakingDecoderOfAnotherScale,
        "decoder_block",
        "moves when a later token",
        6,
    ),
    "decoder leaks by one": (DecoderLeaksByOne, "decoder_block", "leaks by one", 6),
    "no memory": (DecoderWithoutMemory, "decoder_block", "reads the target", 7),
    "cross-attention first": (DecoderCrossesFirst, "decoder_block", "before the self-attention", 9),
    "decoder sees padding": (DecoderSeesPadding, "decoder_block", "mask has no effect", 6),
}

REMARKED = {  # what is right but cannot be saved, its kind, words of the remark
    "no keywords": (WithoutKeywords, "multi_head_attention", "must take **kwargs"),
    "configuration": (Forgetful, "multi_head_attention", "argument is missing in get_config"),
}

TWICE_WRONG = [  # what is checked, its kind, words of both sentences
    (
        softmax_attention(scale=lambda s, d: s / d, axis=-2),
        "attention",
        ("instead of its square root", "over the queries"),
    ),
    (MixedAndUnscaled, "multi_head_attention", ("not scaled", "when they are split")),
    (
        LinearEncoderWithoutResiduals,
        "encoder_block",
        ("no residual connection:", "no activation"),
    ),
]
