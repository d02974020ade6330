import numpy as np
import pytest

import oracle

T, F = True, False


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def random_weights(d_model=8, d_ff=16, num_layers=2, vocabulary=(11, 13), seed=0):
    rng = np.random.default_rng(seed)

    def dense(d_in, d_out):
        kernel = rng.normal(size=(d_in, d_out)) / np.sqrt(d_in)
        return {"kernel": kernel, "bias": rng.normal(size=d_out)}

    def norm():
        return {"gamma": rng.normal(size=d_model), "beta": rng.normal(size=d_model)}

    def attention():
        return {k: dense(d_model, d_model) for k in ("query", "key", "value", "output")}

    def block(*attentions):
        block = {"feed_forward": {"inner": dense(d_model, d_ff), "outer": dense(d_ff, d_model)}}
        block["feed_forward_norm"] = norm()
        for name in attentions:
            block |= {name: attention(), f"{name}_norm": norm()}
        return block

    def stack(*attentions):
        return {"blocks": [block(*attentions) for _ in range(num_layers)], "norm": norm()}

    return {
        "source_embedding": rng.normal(size=(vocabulary[0], d_model)),
        "target_embedding": rng.normal(size=(vocabulary[1], d_model)),
        "encoder": stack("self_attention"),
        "decoder": stack("self_attention", "cross_attention"),
    }


# Positions


def test_positional_encoding_by_hand():
    # d_model 4: the first pair turns by 1 radian per position, the second by 1/10000^(2/4).
    expected = [
        [0, 1, 0, 1],
        [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)],
        [np.sin(2), np.cos(2), np.sin(0.02), np.cos(0.02)],
    ]
    np.testing.assert_allclose(oracle.positional_encoding(3, 4), expected, rtol=1e-15)


def test_a_shift_of_positions_is_a_rotation_of_each_pair():
    # Section 3.5: PE(pos + k) is a linear function of PE(pos).
    table, k, d_model = oracle.positional_encoding(50, 6), 7, 6
    for i in range(d_model // 2):
        angle = k / 10000 ** (2 * i / d_model)
        turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
        pair = table[:, 2 * i : 2 * i + 2]
        np.testing.assert_allclose(pair[:-k] @ turn, pair[k:], atol=1e-12)


# Attention


def test_softmax_of_the_logarithms_gives_the_shares_back():
    np.testing.assert_allclose(oracle.softmax(np.log([1, 2, 5])), [1 / 8, 2 / 8, 5 / 8])


def test_softmax_of_large_scores_does_not_overflow():
    np.testing.assert_array_equal(oracle.softmax([[1e5, 1e5], [0, 1e5]]), [[0.5, 0.5], [0, 1]])


def test_two_by_two_attention_by_hand():
    # d_k = 4, so the scores are halved: [log 3, 0] and [0, 0], that is weights 3:1 and 1:1.
    query = np.array([[2 * np.log(3), 0, 0, 0], [0, 0, 0, 0]])
    key = np.array([[1.0, 0, 0, 0], [0, 1, 0, 0]])
    value = np.array([[8.0, 0, 4], [0, 8, 4]])
    output, weights = oracle.attention(query, key, value)
    np.testing.assert_allclose(weights, [[3 / 4, 1 / 4], [1 / 2, 1 / 2]])
    np.testing.assert_allclose(output, [[6, 2, 4], [4, 4, 4]])


def test_a_masked_key_gets_exactly_no_weight_and_the_rest_share_it():
    query, key, value = np.zeros((2, 4)), normal(3, 4), np.array([[6.0], [100.0], [2.0]])
    output, weights = oracle.attention(query, key, value, np.array([[T, F, T], [F, F, T]]))
    np.testing.assert_array_equal(weights, [[0.5, 0, 0.5], [0, 0, 1]])
    np.testing.assert_array_equal(output, [[4], [2]])


def test_a_row_that_may_attend_to_nothing_gives_exact_zeros():
    mask = np.array([[F, F, F], [T, T, F]])
    with np.errstate(all="raise"):
        output, weights = oracle.attention(normal(2, 4), normal(3, 4), normal(3, 5), mask)
    np.testing.assert_array_equal(weights[0], np.zeros(3))
    np.testing.assert_array_equal(output[0], np.zeros(5))
    assert np.all(output[1] != 0)


def test_masks_written_out():
    np.testing.assert_array_equal(oracle.look_ahead_mask(3), [[T, F, F], [T, T, F], [T, T, T]])
    np.testing.assert_array_equal(
        oracle.padding_mask([[5, 3, 0], [4, 5, 3]]), [[[T, T, F]], [[T, T, T]]]
    )


def test_each_head_attends_with_its_own_slice():
    # The first head looks for equal first features, the second ignores its keys (weights 1:1).
    identity, zero = np.eye(2), np.zeros(2)
    weights = {
        "query": {"kernel": np.diag([np.log(3), 0]), "bias": zero},
        "key": {"kernel": identity, "bias": zero},
        "value": {"kernel": identity, "bias": zero},
        "output": {"kernel": np.array([[0.0, 1], [1, 0]]), "bias": np.array([10.0, 20])},
    }
    x_q, x_kv = np.array([[[1.0, 1]]]), np.array([[[1.0, 8], [0, 4]]])
    # Head 1: 3/4 * 1 + 1/4 * 0; head 2: (8 + 4) / 2; the output projection swaps them.
    np.testing.assert_allclose(
        oracle.multi_head_attention(x_q, x_kv, weights, num_heads=2), [[[16, 20.75]]]
    )


@pytest.mark.parametrize("masked", [False, True])
def test_attention_equals_that_of_pytorch(masked):
    torch = pytest.importorskip("torch", reason="PyTorch is one of three optional backends")
    query, key, value = normal(2, 3, 4, seed=1), normal(2, 5, 4, seed=2), normal(2, 5, 6, seed=3)
    mask = normal(2, 3, 5, seed=4) > -0.5 if masked else None
    assert mask is None or (mask.any(axis=-1).all() and not mask.all())
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(torch.from_numpy(x) for x in (query, key, value)),
        attn_mask=None if mask is None else torch.from_numpy(mask),
    )
    output, _ = oracle.attention(query, key, value, mask)
    np.testing.assert_allclose(output, expected.numpy(), atol=1e-12)


# Blocks


def test_layer_norm_by_hand():
    # Mean 2, variance (4 + 4 + 0 + 0) / 4 = 2; epsilon 2 makes the divisor sqrt(4).
    x = np.array([[0.0, 4, 2, 2]])
    np.testing.assert_allclose(oracle.layer_norm(x, 1.0, 0.0, epsilon=2.0), [[-1, 1, 0, 0]])
    gamma, beta = np.array([1.0, 3, 5, 7]), np.array([0.0, 0, 0, 9])
    np.testing.assert_allclose(oracle.layer_norm(x, gamma, beta, epsilon=2.0), [[-1, 3, 0, 9]])


def test_feed_forward_by_hand():
    weights = {
        "inner": {"kernel": np.array([[1.0, -1]]), "bias": np.array([1.0, 1])},
        "outer": {"kernel": np.array([[2.0], [3]]), "bias": np.array([5.0])},
    }
    # x = 2: inner (3, -1), ReLU (3, 0), 2 * 3 + 5; x = -4: inner (-3, 5), 3 * 5 + 5.
    x = np.array([[2.0], [-4]])
    np.testing.assert_array_equal(oracle.feed_forward(x, weights), [[11], [20]])


def test_post_norm_normalizes_the_sum_and_pre_norm_the_input():
    x, norm = np.array([[1.0, 3]]), {"gamma": 1.0, "beta": 0.0}

    def add_nine_to_the_first(x):
        return np.array([[9.0, 0]])

    # Two features normalize to -1 and 1, the larger of them to 1.
    post = oracle.residual(x, add_nine_to_the_first, norm, epsilon=0.0)
    np.testing.assert_array_equal(post, [[1, -1]])
    pre = oracle.residual(x, lambda x: 10 * x, norm, epsilon=0.0, pre_norm=True)
    np.testing.assert_array_equal(pre, [[1 - 10, 3 + 10]])


# The model

SOURCE = np.array([[5, 6, 7, 3, 0], [8, 3, 0, 0, 0]])
TARGET = np.array([[2, 4, 9], [2, 5, 0]])


@pytest.fixture(params=[False, True], ids=["post_norm", "pre_norm"])
def model(request):
    def model(source_ids, target_ids):
        return oracle.transformer(
            source_ids, target_ids, random_weights(), num_heads=2, pre_norm=request.param
        )

    return model


def test_a_future_target_token_changes_its_own_output_and_no_earlier_one(model):
    changed = TARGET.copy()
    changed[0, 1] = 10
    before, after = model(SOURCE, TARGET), model(SOURCE, changed)
    np.testing.assert_array_equal(after[0, 0], before[0, 0])
    assert np.all(np.abs(after[0, 1:] - before[0, 1:]).max(axis=-1) > 1e-3)


def test_more_padding_changes_no_real_output_and_a_real_token_does(model):
    before = model(SOURCE, TARGET)
    after = model(np.pad(SOURCE, [(0, 0), (0, 3)]), np.pad(TARGET, [(0, 0), (0, 2)]))[:, :3]
    np.testing.assert_allclose(after[TARGET != 0], before[TARGET != 0], atol=1e-12)
    longer = np.where(SOURCE == 0, 9, SOURCE)
    assert np.abs(model(longer, TARGET) - before).max(axis=-1)[TARGET != 0].min() > 1e-3


def test_a_sentence_alone_equals_the_sentence_in_a_batch(model):
    batch = model(SOURCE, TARGET)
    np.testing.assert_allclose(model(SOURCE[1:, :2], TARGET[1:, :2]), batch[1:, :2], atol=1e-12)


def test_permuting_the_input_of_the_encoder_permutes_its_output():
    x, order = normal(1, 4, 8), [2, 0, 3, 1]
    weights = random_weights()["encoder"]
    np.testing.assert_allclose(
        oracle.encoder(x[:, order], weights, num_heads=2),
        oracle.encoder(x, weights, num_heads=2)[:, order],
        atol=1e-12,
    )


def test_embeddings_are_scaled_before_the_positions_are_added():
    # d_model 4: the embedding counts twice.
    embedded = oracle.embed([[0, 1]], np.array([[1.0, 2, 3, 4], [5, 6, 7, 8]]))
    np.testing.assert_allclose(embedded[0, 0], [2, 4 + 1, 6, 8 + 1])
    position_1 = [np.sin(1), np.cos(1), np.sin(0.01), np.cos(0.01)]
    np.testing.assert_allclose(embedded[0, 1], np.add([10, 12, 14, 16], position_1))


def test_logits_are_dot_products_with_the_target_embeddings():
    # Token 12 is not in the input: twice its embedding is twice its logit, and no other change.
    weights = random_weights()
    before = oracle.transformer(SOURCE, TARGET, weights, num_heads=2)
    weights["target_embedding"][12] *= 2
    after = oracle.transformer(SOURCE, TARGET, weights, num_heads=2)
    np.testing.assert_allclose(after[..., 12], 2 * before[..., 12])
    np.testing.assert_array_equal(after[..., :12], before[..., :12])


def test_greedy_decoding_follows_the_likeliest_token_until_the_end(monkeypatch):
    likeliest = {oracle.START: 5, 5: 7, 7: oracle.END}

    def scripted(source_ids, target_ids, *args):
        return np.eye(9)[[[likeliest[i] for i in row] for row in target_ids]]

    monkeypatch.setattr(oracle, "transformer", scripted)
    assert oracle.greedy_decode([[4, 3]], None, num_heads=1, max_length=9) == [[5, 7]]
    assert oracle.greedy_decode([[4, 3]], None, num_heads=1, max_length=1) == [[5]]


def test_teacher_forcing_forecasts_what_greedy_decoding_wrote():
    weights = random_weights(seed=3)
    sentences = oracle.greedy_decode(SOURCE, weights, num_heads=2, max_length=6)
    assert any(sentences)
    for source_ids, ids in zip(SOURCE, sentences, strict=True):
        logits = oracle.transformer([source_ids], [[oracle.START, *ids]], weights, num_heads=2)
        forecast = logits[0].argmax(axis=-1).tolist()
        assert forecast[: len(ids)] == ids
        assert len(ids) == 6 or forecast[len(ids)] == oracle.END


# Training


def test_smoothed_cross_entropy_by_hand():
    # p = (1/2, 1/4, 1/4), label 1, smoothing 0.3: q = (0.1, 0.8, 0.1).
    logits = np.log([[[2.0, 1, 1]]])
    expected = 0.1 * np.log(2) + 0.8 * np.log(4) + 0.1 * np.log(4)
    assert oracle.label_smoothed_cross_entropy(logits, [[1]], 0.3) == pytest.approx(expected)
    assert oracle.label_smoothed_cross_entropy(logits, [[1]]) == pytest.approx(np.log(4))


def test_loss_is_the_mean_over_real_tokens_not_over_sentences_or_padding():
    # Two tokens of chance 1/4, one of chance 1/2, one padded position that counts for nothing.
    logits = np.log([[[2.0, 1, 1], [2, 1, 1]], [[1, 2, 1], [9, 1, 1]]])
    loss = oracle.label_smoothed_cross_entropy(logits, [[1, 2], [1, 0]])
    assert loss == pytest.approx((np.log(4) + np.log(4) + np.log(2)) / 3)


def test_learning_rate_climbs_in_a_line_to_warmup_and_falls_as_the_root():
    steps = [1, 50, 100, 400]
    peak = 64**-0.5 * 100**-0.5
    np.testing.assert_allclose(
        oracle.learning_rate(steps, d_model=64, warmup=100),
        [peak / 100, peak / 2, peak, peak / 2],
    )
