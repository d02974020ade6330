"""The Transformer of the paper in float64 NumPy: slow, plain, and right.

Written from Vaswani et al. (2017), "Attention Is All You Need", sections 3.1 to 3.5, 5.3 and
5.4 alone; it imports no line of `keras_transformer`. Tests compare the library with it on every
backend. There is no dropout: this is the model at inference.

Arrays
    x, memory       (batch, length, d_model) float
    ids, labels     (batch, length) int; 0 is padding, on the right
    masks           bool, True = may be attended to; broadcastable to (batch, T, S), for T
                    queries and S keys: padding (batch, 1, S), look-ahead (T, T)

Weights are nested dicts of arrays
    dense           {"kernel": (d_in, d_out), "bias": (d_out,)}
    norm            {"gamma": (d_model,), "beta": (d_model,)}
    attention       {"query", "key", "value", "output": dense}; head h owns the h-th of
                    num_heads equal slices of the columns of the first three, and the h-th
                    slice of the rows of "output"
    feed_forward    {"inner": dense, "outer": dense}
    encoder block   {"self_attention": attention, "self_attention_norm": norm,
                     "feed_forward": feed_forward, "feed_forward_norm": norm}
    decoder block   the same, and {"cross_attention": attention, "cross_attention_norm": norm}
    encoder         {"blocks": [encoder block, ...], "norm": norm}; "norm" only for pre-norm
    decoder         {"blocks": [decoder block, ...], "norm": norm}; "norm" only for pre-norm
    transformer     {"source_embedding": (V_source, d_model),
                     "target_embedding": (V_target, d_model),
                     "encoder": encoder, "decoder": decoder}; a shared vocabulary is the same
                    array twice
    language model  {"embedding": (V, d_model), "decoder": encoder}
    Both may have "logits_bias": (V,).
"""

import numpy as np

PADDING, START, END = 0, 2, 3


# Section 3.5: positional encoding


def positional_encoding(length, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)); PE(pos, 2i+1) = cos of the same angle."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for dimension in range(d_model):
            two_i = dimension - dimension % 2
            angle = position / 10000.0 ** (two_i / d_model)
            table[position, dimension] = np.cos(angle) if dimension % 2 else np.sin(angle)
    return table


def apply_rotary_embedding(x, positions=None):
    """(x_2i + j x_2i+1) exp(j pos / 10000^(2i/d)); x is (..., length, d). Su et al. 2021."""
    d = x.shape[-1]
    positions = np.arange(x.shape[-2]) if positions is None else np.asarray(positions)
    theta = 10000.0 ** (-2 * np.arange(d // 2) / d)
    pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * np.outer(positions, theta))
    return np.stack([pairs.real, pairs.imag], axis=-1).reshape(x.shape)


# Section 3.2: attention


def padding_mask(ids):
    return (np.asarray(ids) != PADDING)[:, np.newaxis, :]  # (batch, 1, length)


def look_ahead_mask(length):
    return np.tril(np.ones((length, length), dtype=bool))


def softmax(scores):
    """Over the last axis. A row in which all is -inf has no distribution: it becomes zeros."""
    scores = np.asarray(scores, dtype="float64")
    highest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - np.where(np.isneginf(highest), 0.0, highest))
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(total == 0.0, 1.0, total)


def attention(query, key, value, mask=None):
    """Equation 1, softmax(Q K^T / sqrt(d_k)) V; returns the output and the weights."""
    d_k = query.shape[-1]
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(d_k)  # (..., T, S)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = softmax(scores)
    return weights @ value, weights


def dense(x, weights):
    return x @ weights["kernel"] + weights["bias"]


def multi_head_attention(x_q, x_kv, weights, num_heads, mask=None, rotary=False):
    """Section 3.2.2, Concat(head_1, ..., head_h) W^O; returns (batch, T, d_model)."""
    queries = np.split(dense(x_q, weights["query"]), num_heads, axis=-1)
    keys = np.split(dense(x_kv, weights["key"]), num_heads, axis=-1)
    if rotary:
        queries = [apply_rotary_embedding(query) for query in queries]
        keys = [apply_rotary_embedding(key) for key in keys]
    values = np.split(dense(x_kv, weights["value"]), num_heads, axis=-1)
    heads = [attention(q, k, v, mask)[0] for q, k, v in zip(queries, keys, values, strict=True)]
    return dense(np.concatenate(heads, axis=-1), weights["output"])


# Sections 3.1 and 3.3: the other parts of a block


def layer_norm(x, gamma, beta, epsilon=1e-6):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


def feed_forward(x, weights):
    """Equation 2, max(0, x W1 + b1) W2 + b2."""
    return dense(np.maximum(0.0, dense(x, weights["inner"])), weights["outer"])


def residual(x, sublayer, norm, epsilon=1e-6, pre_norm=False):
    """LayerNorm(x + Sublayer(x)), as in the paper; pre-norm is x + Sublayer(LayerNorm(x))."""
    if pre_norm:
        return x + sublayer(layer_norm(x, norm["gamma"], norm["beta"], epsilon))
    return layer_norm(x + sublayer(x), norm["gamma"], norm["beta"], epsilon)


# Section 3.1: the stacks


def encoder_block(x, weights, num_heads, mask=None, epsilon=1e-6, pre_norm=False, rotary=False):
    def attend_to_source(x):
        return multi_head_attention(x, x, weights["self_attention"], num_heads, mask, rotary)

    def transform(x):
        return feed_forward(x, weights["feed_forward"])

    x = residual(x, attend_to_source, weights["self_attention_norm"], epsilon, pre_norm)
    return residual(x, transform, weights["feed_forward_norm"], epsilon, pre_norm)


def decoder_block(
    x,
    memory,
    weights,
    num_heads,
    source_mask=None,
    target_mask=None,
    epsilon=1e-6,
    pre_norm=False,
    rotary=False,
):
    """Self-attention never looks ahead, whatever `target_mask` allows."""
    mask = look_ahead_mask(x.shape[1])
    if target_mask is not None:
        mask = mask & target_mask

    def attend_to_target(x):
        return multi_head_attention(x, x, weights["self_attention"], num_heads, mask, rotary)

    def attend_to_memory(x):
        return multi_head_attention(x, memory, weights["cross_attention"], num_heads, source_mask)

    def transform(x):
        return feed_forward(x, weights["feed_forward"])

    x = residual(x, attend_to_target, weights["self_attention_norm"], epsilon, pre_norm)
    x = residual(x, attend_to_memory, weights["cross_attention_norm"], epsilon, pre_norm)
    return residual(x, transform, weights["feed_forward_norm"], epsilon, pre_norm)


def encoder(x, weights, num_heads, mask=None, epsilon=1e-6, pre_norm=False, rotary=False):
    for block in weights["blocks"]:
        x = encoder_block(x, block, num_heads, mask, epsilon, pre_norm, rotary)
    return _final_norm(x, weights, epsilon, pre_norm)


def decoder(
    x,
    memory,
    weights,
    num_heads,
    source_mask=None,
    target_mask=None,
    epsilon=1e-6,
    pre_norm=False,
    rotary=False,
):
    for block in weights["blocks"]:
        x = decoder_block(
            x, memory, block, num_heads, source_mask, target_mask, epsilon, pre_norm, rotary
        )
    return _final_norm(x, weights, epsilon, pre_norm)


def _final_norm(x, weights, epsilon, pre_norm):
    if not pre_norm:
        return x
    return layer_norm(x, weights["norm"]["gamma"], weights["norm"]["beta"], epsilon)


# Section 3.4: embeddings and softmax


def embed(ids, embedding, rotary=False):
    """Embeddings multiplied by sqrt(d_model), plus the positional encoding, unless rotary."""
    ids = np.asarray(ids)
    embedding = np.asarray(embedding, dtype="float64")
    d_model = embedding.shape[1]
    x = embedding[ids] * np.sqrt(d_model)
    return x if rotary else x + positional_encoding(ids.shape[1], d_model)


def transformer(
    source_ids, target_ids, weights, num_heads, epsilon=1e-6, pre_norm=False, rotary=False
):
    """Logits (batch, T, V_target); row t is the forecast of the token after target_ids[:, t].

    Compare rows of real tokens only: those of padding have no meaning.
    """
    source_mask, target_mask = padding_mask(source_ids), padding_mask(target_ids)
    memory = encoder(
        embed(source_ids, weights["source_embedding"], rotary),
        weights["encoder"],
        num_heads,
        source_mask,
        epsilon,
        pre_norm,
        rotary,
    )
    h = decoder(
        embed(target_ids, weights["target_embedding"], rotary),
        memory,
        weights["decoder"],
        num_heads,
        source_mask,
        target_mask,
        epsilon,
        pre_norm,
        rotary,
    )
    return logits(h, weights["target_embedding"], weights)


def language_model(ids, weights, num_heads, epsilon=1e-6, pre_norm=False, rotary=False):
    """Logits (batch, T, V): the decoder without cross-attention, which is then an encoder block
    that never looks ahead. Radford et al. 2018."""
    mask = look_ahead_mask(np.shape(ids)[1])
    h = embed(ids, weights["embedding"], rotary)
    h = encoder(h, weights["decoder"], num_heads, mask, epsilon, pre_norm, rotary)
    return logits(h, weights["embedding"], weights)


def logits(h, embedding, weights):
    """h E^T, and a bias where there is one."""
    return h @ np.asarray(embedding, dtype="float64").T + weights.get("logits_bias", 0.0)


def greedy_decode(source_ids, weights, num_heads, max_length, epsilon=1e-6, pre_norm=False):
    """One list of ids per sentence, END left out, at most `max_length`; no cache, no batch."""
    return [
        _greedy_decode_one(row, weights, num_heads, max_length, epsilon, pre_norm)
        for row in np.asarray(source_ids)
    ]


def _greedy_decode_one(source_ids, weights, num_heads, max_length, epsilon, pre_norm):
    ids = []
    for _ in range(max_length):
        logits = transformer([source_ids], [[START, *ids]], weights, num_heads, epsilon, pre_norm)
        next_id = int(np.argmax(logits[0, -1]))
        if next_id == END:
            break
        ids.append(next_id)
    return ids


# Sections 5.3 and 5.4: training


def label_smoothed_cross_entropy(logits, labels, smoothing=0.0):
    """Nats per real token, against q = (1 - smoothing) onehot + smoothing / V, written out."""
    logits, labels = np.asarray(logits, dtype="float64"), np.asarray(labels)
    num_classes = logits.shape[-1]
    q = (1.0 - smoothing) * np.eye(num_classes)[labels] + smoothing / num_classes
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    nats = -(q * log_p).sum(axis=-1)  # (batch, length)
    return nats[labels != PADDING].mean()


def numerical_gradient(function, x, step=1e-5):
    """d function / d x by central differences, of a function of one array to a number."""
    gradient = np.zeros(x.shape)
    for at in np.ndindex(x.shape):
        change = np.zeros(x.shape)
        change[at] = step
        gradient[at] = (function(x + change) - function(x - change)) / (2 * step)
    return gradient


def learning_rate(step, d_model, warmup):
    """Equation 3, d_model^-0.5 min(step^-0.5, step warmup^-1.5); steps count from 1."""
    step = np.asarray(step, dtype="float64")
    return d_model**-0.5 * np.minimum(step**-0.5, step * warmup**-1.5)
