import itertools
import pickle
import random
from collections import Counter

import keras
import numpy as np
import pytest

from keras_transformer import backend
from keras_transformer.checks import TextError
from keras_transformer.data import TextBatches, TranslationBatches, WordBatches, chunks
from keras_transformer.data.lengths import (
    assign_buckets,
    bucket_length,
    group_by_length,
    next_power_of_two,
    pad,
)
from keras_transformer.ids import END, PADDING, START

pytestmark = pytest.mark.usefixtures("usual_number_of_shapes")

# Every sentence begins with an id of its own, so that a row identifies its example.
GENERATOR = np.random.default_rng(0)
SOURCE = [[100 + n, *GENERATOR.integers(4, 99, n % 23).tolist()] for n in range(300)]
TARGET = [
    [100 + n, *GENERATOR.integers(4, 99, max(0, n % 23 + GENERATOR.integers(-5, 6))).tolist()]
    for n in range(300)
]


def rows(batches):
    """The rows with a real token in an epoch as (source_ids, target_ids, labels), unpadded."""
    for inputs, labels in batches:
        for row in zip(inputs["source_ids"], inputs["target_ids"], labels, strict=True):
            if row[2].any():
                yield tuple(tuple(ids[ids != PADDING].tolist()) for ids in row)


def orders(batches, num_epochs=1):
    """The first source id of each row of each batch, epoch by epoch, driven as `fit` does."""
    seen = []
    for _ in range(num_epochs):
        batches.on_epoch_begin()
        seen.append([inputs["source_ids"][:, 0].tolist() for inputs, _ in batches])
        batches.on_epoch_end()
    return seen


def example_counts(batches):
    return Counter(n for batch in orders(batches)[0] for n in batch if n != PADDING)


# What a batch is


def test_one_batch_written_out():
    batches = TranslationBatches(
        [[11, 12, 13], [21]], [[14, 15], [24, 25, 26]], multiple=5, shuffle=False
    )
    assert len(batches) == 1
    inputs, labels = batches[0]
    np.testing.assert_array_equal(inputs["source_ids"], [[11, 12, 13, 3, 0], [21, 3, 0, 0, 0]])
    np.testing.assert_array_equal(inputs["target_ids"], [[2, 14, 15, 0, 0], [2, 24, 25, 26, 0]])
    np.testing.assert_array_equal(labels, [[14, 15, 3, 0, 0], [24, 25, 26, 3, 0]])
    assert {array.dtype for array in (*inputs.values(), labels)} == {np.dtype("int32")}
    assert set(inputs) == {"source_ids", "target_ids"}


def test_a_bucket_ends_in_rows_of_padding():
    batches = TranslationBatches(
        [[11], [12], [13]], [[14], [15], [16]], batch_size=2, multiple=2, shuffle=False
    )
    (first, first_labels), (last, last_labels) = batches
    np.testing.assert_array_equal(first["source_ids"], [[11, 3], [12, 3]])
    np.testing.assert_array_equal(first["target_ids"], [[2, 14], [2, 15]])
    np.testing.assert_array_equal(first_labels, [[14, 3], [15, 3]])
    np.testing.assert_array_equal(last["source_ids"], [[13, 3], [0, 0]])
    np.testing.assert_array_equal(last["target_ids"], [[2, 16], [0, 0]])
    np.testing.assert_array_equal(last_labels, [[16, 3], [0, 0]])


def test_an_empty_sentence_is_its_end_alone():
    batches = TranslationBatches([[], [11]], [[12], []], multiple=2, shuffle=False)
    inputs, labels = batches[0]
    np.testing.assert_array_equal(inputs["source_ids"], [[3, 0], [11, 3]])
    np.testing.assert_array_equal(inputs["target_ids"], [[2, 12], [2, 0]])
    np.testing.assert_array_equal(labels, [[12, 3], [3, 0]])


def test_labels_are_the_decoder_input_one_token_ahead():
    for inputs, labels in TranslationBatches(SOURCE, TARGET, batch_size=16):
        following = inputs["target_ids"][:, 1:]
        real = following != PADDING
        np.testing.assert_array_equal(labels[:, :-1][real], following[real])
        assert not np.array_equal(labels, inputs["target_ids"])  # the shift is there
        # As many real labels as real decoder inputs, none of them START, one END.
        np.testing.assert_array_equal((labels != 0).sum(1), (inputs["target_ids"] != 0).sum(1))
        assert not (labels == START).any()
        assert not (inputs["target_ids"] == END).any()
        assert ((labels == END).sum(1) == labels.any(1)).all()


@pytest.mark.parametrize("budget", [{}, {"batch_size": 7}, {"tokens_per_batch": 128}])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_example_comes_once_per_epoch_with_its_translation(budget, shuffle):
    batches = TranslationBatches(SOURCE, TARGET, shuffle=shuffle, **budget)
    pairs = zip(SOURCE, TARGET, strict=True)
    expected = sorted(((*s, END), (START, *t), (*t, END)) for s, t in pairs)
    for epoch in 0, 1:
        batches.epoch = epoch
        assert sorted(rows(batches)) == expected


# Shapes


@pytest.mark.parametrize("num_buckets", [1, 2, 5, 8, 50])
def test_there_are_no_more_shapes_than_buckets_asked_for(num_buckets):
    batches = TranslationBatches(SOURCE, TARGET, num_buckets=num_buckets, multiple=1)
    seen = {(*inputs["source_ids"].shape, labels.shape[1]) for inputs, labels in batches}
    assert sorted(seen) == batches.shapes
    assert 1 <= len(seen) <= num_buckets
    if num_buckets > 1:
        assert len(seen) > 1  # a bucketing that makes one of all would pass the line above


def test_no_example_is_longer_or_padded_further_than_the_model_reads():
    texts = [[4] * n for n in (2, 9, 5, 3)]
    batches = TextBatches(texts, max_length=10, multiple=4)
    assert {shape[1] for shape in batches.shapes} == {4, 8, 10}  # not 12
    for kind, examples, message in [
        (TextBatches, [texts], "Example 1 must have at most 9 text tokens, .*received 10"),
        (TranslationBatches, [texts, texts], "Example 1 must have at most 9 source tokens"),
        (TranslationBatches, [texts, texts[::-1]], "Example 1 must have at most 9 source tokens"),
        (TranslationBatches, [texts[:1], texts[1:2]], "Example 0 must have at most 9 target"),
    ]:
        with pytest.raises(TextError, match=message) as caught:
            kind(*examples, max_length=9)
        assert caught.value.number == int(len(examples[0]) > 1)
    words, spelled = [np.full(n, 3) for n in (2, 10)], [np.full((n, 4), 3) for n in (2, 10)]
    with pytest.raises(TextError, match="Example 1 must have at most 9 words; received 10"):
        WordBatches(words, spelled, [1, 2], max_length=9)
    assert WordBatches(words, spelled, [1, 2], max_length=10).shapes[-1] == (1, 10)


def test_other_ids_of_an_epoch_that_are_too_long_are_not_read():
    texts = [[4] * 5, [4] * 7]

    def resample(epoch):
        return [[[5] * 5, [5] * (7 + 4 * (epoch % 2))]]

    batches = TextBatches(texts, max_length=9, multiple=1, resample=resample, shuffle=False)
    for batches.epoch in range(4):
        longest = max((batches[n][1] for n in range(len(batches))), key=lambda ids: ids.shape[1])
        assert longest.shape[1] <= 9
        assert longest[0, 0] == (4 if batches.epoch % 2 else 5)


@pytest.mark.parametrize("multiple", [1, 3, 8])
def test_lengths_are_rounded_up_to_a_multiple_and_no_further(multiple):
    batches = TranslationBatches(SOURCE, TARGET, multiple=multiple)
    longest = {}
    for inputs, labels in batches:
        for ids in inputs["source_ids"], labels:
            assert ids.shape[1] % multiple == 0
        key = inputs["source_ids"].shape[1], labels.shape[1]
        need = [(ids != PADDING).sum(1).max() for ids in (inputs["source_ids"], labels)]
        longest[key] = np.maximum(longest.get(key, 0), need)
    for shape, need in longest.items():
        assert (np.array(shape) - need < multiple).all()


def test_a_token_budget_holds_for_every_batch_and_is_used():
    batches = TranslationBatches(SOURCE, TARGET, tokens_per_batch=200, multiple=1)
    sizes = [labels.size for _, labels in batches]
    assert max(sizes) <= 200
    assert np.mean(sizes) > 150


def test_a_sentence_longer_than_the_budget_is_a_batch_of_its_own():
    batches = TranslationBatches(
        [[11] * 4, [12], [13]], [[21] * 40, [22], [23]], tokens_per_batch=16, multiple=8
    )
    shapes = Counter(labels.shape for _, labels in batches)
    assert shapes == {(1, 48): 1, (2, 8): 1}


def test_the_batches_of_a_bucket_are_evened_out():
    sentences = [[n] for n in range(10, 75)]  # 65: 64 and 1 would be a batch of noise
    batches = TranslationBatches(sentences, sentences, batch_size=64)
    assert [int((labels[:, 0] != 0).sum()) for _, labels in batches] == [33, 32]


def test_source_and_target_lengths_are_bucketed_apart():
    short, long = [10] * 7, [10] * 31
    source = [short] * 8 + [long] * 8 + [short] * 8 + [long] * 8
    target = [short] * 8 + [short] * 8 + [long] * 8 + [long] * 8
    batches = TranslationBatches(source, target, batch_size=8)
    assert batches.shapes == [(8, 8, 8), (8, 8, 32), (8, 32, 8), (8, 32, 32)]
    assert batches.padding_share == 0


def test_merging_takes_the_cheapest_union():
    # Lengths 4, 5, 9 (END included), as many of each: 4 joins 5, not 9.
    source = [[10] * (length - 1) for length in (4, 5, 9) for _ in range(6)]
    batches = TranslationBatches(source, source, batch_size=6, multiple=1, num_buckets=2)
    assert batches.shapes == [(6, 5, 5), (6, 9, 9)]
    real, padded = 6 * 2 * (4 + 5 + 9), 6 * 2 * (5 + 5 + 9)
    assert batches.padding_share == pytest.approx(1 - real / padded, abs=1e-12)


def test_buckets_are_merged_where_rows_of_padding_cost_more_than_longer_rows():
    # Apart, 3 examples in rows of 2 take 4 rows each: 4 * 16 + 4 * 24 tokens. Together 6 * 24.
    source, target = [[10] * 7] * 6, [[10] * 7] * 3 + [[10] * 15] * 3
    assert TranslationBatches(source, target, batch_size=2).shapes == [(2, 8, 16)]
    assert TranslationBatches(source, target, batch_size=3).shapes == [(3, 8, 8), (3, 8, 16)]


def test_many_different_lengths_are_bucketed_too():
    lengths = [(n % 61, n * 7 % 67) for n in range(3000)]  # 3,000 pairs of lengths
    source, target = ([[10] * pair[side] for pair in lengths] for side in (0, 1))
    batches = TranslationBatches(source, target, multiple=1)
    assert len(batches.shapes) <= 8
    assert sum(1 for _ in rows(batches)) == 3000


def test_more_buckets_mean_less_padding():
    shares = [
        TranslationBatches(SOURCE, TARGET, num_buckets=n, multiple=1).padding_share
        for n in (1, 2, 4, 8, 16)
    ]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < shares[0] / 2


def test_padding_and_tokens_are_counted_as_they_are_served():
    batches = TranslationBatches(SOURCE, TARGET, tokens_per_batch=100)
    arrays = [array for inputs, labels in batches for array in (inputs["source_ids"], labels)]
    real = sum(int((array != PADDING).sum()) for array in arrays)
    assert batches.padding_share == pytest.approx(1 - real / sum(a.size for a in arrays))
    assert batches.num_tokens == sum(map(len, TARGET)) + len(TARGET)
    assert real == sum(map(len, SOURCE)) + len(SOURCE) + batches.num_tokens


def test_the_summary_written_out():
    source = [[10] * 7] * 8 + [[10] * 31] * 3
    summary = TranslationBatches(source, source, batch_size=4, num_buckets=2).summary()
    real, padded = 2 * (8 * 8 + 3 * 32), 2 * (8 * 8 + 3 * 32)
    assert real == padded
    assert summary.split("\n") == [
        "11 examples in 3 batches of at most 4 examples: 2 shapes (XLA compiles each), 0.0% "
        "padding",
        "  rows x source x target  examples  batches",
        "     4 x      8 x      8         8        2",
        "     3 x     32 x     32         3        1",
    ]


def test_no_batch_is_padding_alone():
    # Of even size: 5 examples in batches of at most 4 are 3 and 2, not 4 and 1.
    for batch_size, rows_of_batch in ((1, [1] * 5), (2, [2, 2, 1]), (3, [3, 2]), (4, [3, 2])):
        batches = TranslationBatches([[9]] * 5, [[9]] * 5, batch_size=batch_size, shuffle=False)
        assert [int(labels.any(1).sum()) for _, labels in batches] == rows_of_batch
        assert len(batches) == len(rows_of_batch)


# Order


def test_the_order_is_a_function_of_seed_and_epoch():
    one, again, other = (
        TranslationBatches(SOURCE, TARGET, batch_size=8, seed=seed) for seed in (1, 1, 2)
    )
    random.seed(0)
    first = orders(one, 3)
    random.seed(1)
    np.random.seed(1)
    assert orders(again, 3) == first
    assert orders(other, 3) != first


def test_epochs_differ_in_their_batches_and_in_the_order_of_them():
    first, second = orders(TranslationBatches(SOURCE, TARGET, batch_size=8), 2)
    assert {frozenset(b) for b in first} != {frozenset(b) for b in second}
    assert [len(b) for b in first] != [len(b) for b in second]


def test_a_resumed_run_sees_what_an_uninterrupted_one_sees():
    uninterrupted = orders(TranslationBatches(SOURCE, TARGET, batch_size=8), 4)
    resumed = TranslationBatches(SOURCE, TARGET, batch_size=8)
    resumed.epoch = 2
    assert orders(resumed, 2) == uninterrupted[2:]
    assert resumed.epoch == 4


def test_without_shuffling_every_epoch_is_the_same():
    batches = TranslationBatches(SOURCE, TARGET, batch_size=8, shuffle=False)
    first, second = orders(batches, 2)
    assert first == second
    kept = TranslationBatches([[n] for n in range(10, 30)], [[10]] * 20, shuffle=False)
    assert orders(kept) == [[list(range(10, 30))]]


def test_only_a_whole_pass_counts_as_an_epoch():
    batches = TranslationBatches(SOURCE, TARGET, batch_size=8)
    batches.on_epoch_end()  # as fit begins
    batches.on_epoch_begin()
    batches[0]  # to build the model
    batches.on_epoch_end()
    list(batches)  # by hand, outside of fit
    batches.on_epoch_end()
    assert batches.epoch == 0
    orders(batches)
    assert batches.epoch == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_first_two_batches_share_no_length_that_varies(seed, shuffle):
    # What Keras on TensorFlow takes for fixed is read off these two.
    lengths = [(7, 7)] * 50 + [(7, 15)] * 2 + [(15, 7)] * 2
    source, target = ([[10] * pair[side] for pair in lengths] for side in (0, 1))
    batches = TranslationBatches(source, target, batch_size=2, seed=seed, shuffle=shuffle)
    assert len(batches.shapes) == 3
    (one, one_labels), (other, other_labels) = batches[0], batches[1]
    assert one["source_ids"].shape[1] != other["source_ids"].shape[1]
    assert one_labels.shape[1] != other_labels.shape[1]
    assert sum(1 for _ in rows(batches)) == 54


# With fit


class Recorder(TranslationBatches):
    """Keeps what Keras was served, epoch by epoch."""

    def __init__(self, *args, **kwargs):
        self.recorded = []
        super().__init__(*args, **kwargs)

    def on_epoch_begin(self):
        super().on_epoch_begin()
        self.recorded.append([])

    def __getitem__(self, index):
        batch = super().__getitem__(index)
        if self.recorded:
            self.recorded[-1].append(batch[0]["source_ids"][:, 0].tolist())
        return batch

    def whole_epochs(self):
        return [epoch for epoch in self.recorded if len(epoch) == len(self)]


@pytest.fixture
def model():
    names = "source_ids", "target_ids"
    inputs = {name: keras.Input((None,), dtype="int32", name=name) for name in names}
    source, target = (keras.layers.Embedding(400, 2)(ids) for ids in inputs.values())
    source = keras.layers.GlobalAveragePooling1D(keepdims=True)(source)
    model = keras.Model(inputs, keras.layers.Dense(400)(target + source))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=PADDING)
    model.compile(  # a few steps: on TensorFlow tracing them would take longer
        "sgd",
        loss,
        metrics=["sparse_categorical_accuracy"],
        run_eagerly=not backend.prefers_jit(),
    )
    return model


def few(**kwargs):
    arguments = {"batch_size": 16, "num_buckets": 2} | kwargs
    return Recorder(SOURCE[:100], TARGET[:100], **arguments)


@pytest.mark.slow
def test_fit_serves_each_epoch_in_its_own_order_without_a_warning(model, caplog):
    batches = few()
    model.fit(batches, epochs=2, shuffle=False, verbose=0, validation_data=few(shuffle=False))
    assert batches.whole_epochs() == orders(few(), 2)
    assert batches.epoch == 2
    assert "shuffle" not in caplog.text


def test_fit_resumed_at_an_epoch_serves_that_epochs_order(model):
    batches = few()
    batches.epoch = 3
    model.fit(batches, initial_epoch=3, epochs=5, shuffle=False, verbose=0)
    assert batches.whole_epochs() == orders(few(), 5)[3:]


def test_fit_that_shuffles_again_still_serves_everything_and_warns_once(model, caplog):
    batches = few()
    model.fit(batches, epochs=2, verbose=0)
    expected = orders(few(), 2)
    for served, order in zip(batches.whole_epochs(), expected, strict=True):
        assert sorted(served) == sorted(order)
    assert caplog.text.count("Pass fit(..., shuffle=False)") == 1


# Errors


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"batch_size": 4, "tokens_per_batch": 9}, "not both; received tokens_per_batch=9, b"),
        ({"batch_size": 0}, "batch_size must be an integer of at least 1; received batch_size=0"),
        ({"batch_size": 4.0}, "batch_size must be an integer .*; received batch_size=4.0"),
        ({"tokens_per_batch": 0}, "tokens_per_batch must be .* received tokens_per_batch=0"),
        ({"num_buckets": 0}, "num_buckets must be .* received num_buckets=0"),
        ({"multiple": 0}, "multiple must be .* received multiple=0"),
        ({"seed": -1}, "seed must be .* at least 0; received seed=-1"),
    ],
)
def test_arguments_out_of_range_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        TranslationBatches(SOURCE, TARGET, **arguments)


def test_an_epoch_below_zero_is_an_error():
    batches = few()
    batches.epoch = -1
    with pytest.raises(ValueError, match="epoch must be .* at least 0; received epoch=-1"):
        batches[0]


@pytest.mark.parametrize("source, target", [([], []), ([[10]], []), ([[10]], [[11], [12]])])
def test_no_examples_or_unequal_sides_are_errors(source, target):
    with pytest.raises(ValueError, match=f"received {len(source)} and {len(target)}. Read the two"):
        TranslationBatches(source, target)


@pytest.mark.parametrize("wrong", [20, -1, PADDING, START, END])
@pytest.mark.parametrize("side", ["source", "target"])
def test_an_id_that_is_not_a_plain_id_is_named_with_its_sentence(wrong, side):
    good, bad = [[4, 5], [], [19, 7], [8]], [[4, 5], [], [wrong, 7], [8]]
    source, target = (bad, good) if side == "source" else (good, bad)
    sizes = {"source_vocabulary_size": 20, "target_vocabulary_size": 20}
    message = f"id of {side} must be from 0 to 19 .* received {wrong} in row 2, position 0"
    with pytest.raises(ValueError, match=message):
        TranslationBatches(source, target, **sizes)
    TranslationBatches(good, good, **sizes)


@pytest.mark.parametrize("sentence", ["text", ["a", "b"], [1.5, 4.0], 7, [[4, 5]]])
def test_a_sentence_that_is_not_ids_is_named(sentence):
    with pytest.raises(ValueError, match="row of target must be .*; row 1 is .* a tokenizer first"):
        TranslationBatches([[4], [5]], [[4], sentence])


@pytest.mark.parametrize("index", [-1, 10**6])
def test_a_batch_that_is_not_there_is_an_error(index):
    with pytest.raises(IndexError, match=f"received index {index}"):
        few()[index]


# Other ids every epoch


def resample(epoch):
    """Each sentence with up to four ids more, set by the epoch; in epoch 7 with fifty more."""
    generator = np.random.default_rng(epoch)
    most = 51 if epoch == 7 else 5
    return [
        [ids + [200 + epoch] * generator.integers(0, most) for ids in side]
        for side in (SOURCE, TARGET)
    ]


def test_every_epoch_has_the_ids_drawn_for_it_in_the_same_shapes():
    batches = TranslationBatches(SOURCE, TARGET, resample=resample, seed=3)
    shapes, length = batches.shapes, len(batches)
    for epoch in (5, 0, 5, 6):
        batches.epoch = epoch
        found = sorted(rows(batches))
        drawn = resample(epoch)
        exactly = sorted(
            ((*source, END), (START, *target), (*target, END))
            for source, target in zip(*drawn, strict=True)
        )
        assert len(found) == len(exactly)
        assert batches.shapes == shapes
        assert len(batches) == length
        # Few outgrow the lengths of the first four epochs; those keep their original ids.
        assert len(set(found) & set(exactly)) > 0.9 * len(exactly)
        plain = {((*s, END), (START, *t), (*t, END)) for s, t in zip(SOURCE, TARGET, strict=True)}
        assert set(found) <= plain | set(exactly)
        assert batches.num_tokens == sum(len(row[2]) for row in found)
        real = sum(len(row[0]) + len(row[2]) for row in found)
        computed = sum(bucket.num_tokens for bucket in batches._buckets)
        assert batches.padding_share == pytest.approx(1 - real / computed)


def test_a_pair_that_outgrows_its_bucket_keeps_its_plain_ids():
    batches = TranslationBatches(SOURCE, TARGET, resample=resample)
    batches.epoch = 7
    plain = {((*s, END), (START, *t), (*t, END)) for s, t in zip(SOURCE, TARGET, strict=True)}
    drawn = {((*s, END), (START, *t), (*t, END)) for s, t in zip(*resample(7), strict=True)}
    found = set(rows(batches))
    assert len(found - drawn) > 100
    assert found <= plain | drawn
    assert found - plain


def test_a_resampled_epoch_is_a_function_of_its_number_alone():
    one = TranslationBatches(SOURCE, TARGET, resample=resample, seed=3)
    other = TranslationBatches(SOURCE, TARGET, resample=resample, seed=3)
    list(rows(one))
    one.epoch = other.epoch = 4
    assert list(rows(one)) == list(rows(other))


# Texts


TEXTS = [[100 + n, *GENERATOR.integers(4, 99, n % 17).tolist()] for n in range(100)]


def pairs(batches):
    """The inputs and outputs of each row with a real label, unpadded."""
    for inputs, labels in batches:
        for read, written in zip(inputs["token_ids"], labels, strict=True):
            if written.any():
                yield tuple(tuple(ids[ids != PADDING].tolist()) for ids in (read, written))


def test_texts_that_end_and_texts_that_do_not_written_out():
    texts = [[11, 12, 13], [21]]
    ((inputs, labels),) = TextBatches(texts, multiple=5, shuffle=False)
    assert set(inputs) == {"token_ids"}
    np.testing.assert_array_equal(inputs["token_ids"], [[2, 11, 12, 13, 0], [2, 21, 0, 0, 0]])
    np.testing.assert_array_equal(labels, [[11, 12, 13, 3, 0], [21, 3, 0, 0, 0]])
    batches = TextBatches(texts, append_end=False, multiple=4, shuffle=False)
    ((inputs, labels),) = batches
    np.testing.assert_array_equal(inputs["token_ids"], [[2, 11, 12, 0], [2, 0, 0, 0]])
    np.testing.assert_array_equal(labels, [[11, 12, 13, 0], [21, 0, 0, 0]])
    assert {inputs["token_ids"].dtype, labels.dtype} == {np.dtype("int32")}
    assert batches.num_tokens == 4
    assert TextBatches(texts).num_tokens == 6


@pytest.mark.parametrize("ends", [True, False])
def test_every_text_comes_once_per_epoch(ends):
    batches = TextBatches(TEXTS, append_end=ends, tokens_per_batch=64, num_buckets=3)
    for epoch in 0, 1:
        batches.epoch = epoch
        if ends:
            expected = [((START, *text), (*text, END)) for text in TEXTS]
        else:
            expected = [((START, *text[:-1]), tuple(text)) for text in TEXTS]
        assert sorted(pairs(batches)) == sorted(expected)
    assert 1 < len(batches.shapes) <= 3
    assert max(labels.size for _, labels in batches) <= 64


def test_chunks_follow_each_other_from_wherever_the_epoch_begins():
    ids = np.arange(10, 29)  # 19: three chunks of 4 from any start
    np.testing.assert_array_equal(chunks(ids, 4), np.arange(10, 22).reshape(3, 4))
    np.testing.assert_array_equal(chunks(ids, 4, 3), np.arange(13, 25).reshape(3, 4))
    np.testing.assert_array_equal(chunks(ids, 4, 7), chunks(ids, 4, 3))
    batches = TextBatches(
        chunks(ids, 4),
        append_end=False,
        batch_size=2,
        resample=lambda epoch: [chunks(ids, 4, epoch)],
    )
    for epoch in (0, 1, 6):
        batches.epoch = epoch
        expected = {tuple(row) for row in chunks(ids, 4, epoch).tolist()}
        found = list(pairs(batches))
        assert {written for _, written in found} == expected
        assert len(found) == 3
        assert all(read == (START, *written[:-1]) for read, written in found)
    assert batches.shapes == [(2, 4)]
    assert batches.padding_share == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: TextBatches([]), "Expected at least one text"),
        (
            lambda: TextBatches([[5], []], append_end=False),
            "Without END, a text needs at least one token",
        ),
        (lambda: TextBatches([[5], [END]]), "id of texts .* received 3 in row 1"),
        (lambda: TextBatches([[5], [9]], vocabulary_size=9), "received 9 in row 1"),
        (lambda: TextBatches([[5], "a"]), "row 1 is 'a'"),
        (lambda: chunks(np.arange(7), 4), "at least two chunks of 4 tokens; received 7"),
        (lambda: chunks(np.arange(7), 0), "length must be an integer of at least 1"),
    ],
)
def test_texts_or_chunks_that_are_invalid_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()


# Words


def spelled(words):
    """Three characters per word, a function of its id."""
    return [np.stack([row % 7 + 3, row % 5 + 3, 0 * row], axis=1) for row in words]


WORDS = [np.array([100 + n, *GENERATOR.integers(3, 99, n % 9)]) for n in range(60)]


def words_of(batches):
    """Words, characters and labels of each row that is not padding."""
    for inputs, labels in batches:
        assert set(inputs) == {"word_ids", "character_ids"}
        assert inputs["character_ids"].shape == (*inputs["word_ids"].shape, 3)
        for ids, characters, label in zip(*inputs.values(), labels, strict=True):
            real = ids != PADDING
            assert not characters[~real].any()
            if real.any():
                label = label.tolist() if label.ndim == 0 else tuple(label[real].tolist())
                yield tuple(ids[real].tolist()), tuple(characters[real].ravel().tolist()), label


def rows_of_words(words, labels):
    for ids, characters, label in zip(words, spelled(words), labels, strict=True):
        label = label if np.ndim(label) == 0 else tuple(np.asarray(label).tolist())
        yield tuple(ids.tolist()), tuple(characters.ravel().tolist()), label


PER_WORD = [row % 4 + 1 for row in WORDS]
PER_TEXT = [n % 3 + 1 for n in range(60)]


def test_words_with_one_label_per_word_or_per_text_written_out():
    words = [np.array([11, 12]), np.array([21])]
    characters = [np.array([[5, 6], [7, 0]]), np.array([[8, 9]])]
    ((inputs, labels),) = WordBatches(words, characters, [[3, 1], [2]], multiple=3, shuffle=False)
    np.testing.assert_array_equal(inputs["word_ids"], [[11, 12, 0], [21, 0, 0]])
    expected = [[[5, 6], [7, 0], [0, 0]], [[8, 9], [0, 0], [0, 0]]]
    np.testing.assert_array_equal(inputs["character_ids"], expected)
    np.testing.assert_array_equal(labels, [[3, 1, 0], [2, 0, 0]])
    first, last = WordBatches(
        [*words, words[0]], [*characters, characters[0]], [4, 5, 6], batch_size=2, shuffle=False
    )
    np.testing.assert_array_equal([first[1], last[1]], [[4, 5], [6, 0]])
    assert {array.dtype for array in (*first[0].values(), first[1])} == {np.dtype("int32")}


@pytest.mark.parametrize("labels", [PER_WORD, PER_TEXT], ids=["per_word", "per_text"])
def test_every_sentence_comes_once_per_epoch_with_its_characters_and_labels(labels):
    batches = WordBatches(WORDS, spelled(WORDS), labels, batch_size=8, num_buckets=3)
    for epoch in 0, 1:
        batches.epoch = epoch
        assert sorted(words_of(batches)) == sorted(rows_of_words(WORDS, labels))
    assert batches.num_tokens == sum(map(len, WORDS))


@pytest.mark.parametrize("labels", [PER_WORD, PER_TEXT], ids=["per_word", "per_text"])
def test_words_are_resampled_in_every_epoch_with_their_labels(labels):
    def drawn(epoch):
        words = [np.where(row % 5 == epoch % 5, 1, row) for row in WORDS]
        if epoch == 7:
            words[0] = np.full(50, 9)  # outgrows its bucket
        own = labels if labels is PER_TEXT else [row % 4 + 1 for row in words]
        return words, spelled(words), own

    batches = WordBatches(WORDS, spelled(WORDS), labels, batch_size=8, resample=drawn)
    for epoch in (3, 7):
        batches.epoch = epoch
        words, _, own = drawn(epoch)
        if epoch == 7:
            words[0], own = WORDS[0], [labels[0], *own[1:]]
        assert sorted(words_of(batches)) == sorted(rows_of_words(words, own))


@pytest.mark.parametrize(
    "words, characters, labels, message",
    [
        ([], [], [], "at least one; received 0, 0 and 0"),
        ([[5]], [[[5]]], [1, 2], "at least one; received 1, 1 and 2"),
        (
            [[5], [6, 7]],
            [[[5]], [[6]]],
            [1, 1],
            "received 2 words, the characters of 1 .* sentence 1",
        ),
        ([[5], [6, 7]], [[[5]], [[6], [7]]], [[1], [2]], r"the labels \[2\] in sentence 1"),
        ([[5], [6]], [[[5]], [[6]]], [[1], 2], "the labels 2 in sentence 1"),
        ([[5], [6]], [[[5]], [[6]]], [1, [2]], r"the labels \[2\] in sentence 1"),
    ],
)
def test_words_that_do_not_fit_their_characters_or_labels_are_named(
    words, characters, labels, message
):
    with pytest.raises(ValueError, match=message):
        WordBatches(words, characters, labels)


def models_and_batches():
    from keras_transformer.models import ClassificationModel, LanguageModel

    sizes = {"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    yield LanguageModel(200, **sizes), TextBatches(TEXTS, num_buckets=2)
    model = ClassificationModel(200, 12, 5, max_characters=3, **sizes)
    yield model, WordBatches(WORDS, spelled(WORDS), PER_TEXT, num_buckets=2)


@pytest.mark.slow
def test_fit_takes_texts_and_words_too_and_the_loss_falls():
    from keras_transformer.backend import prefers_jit
    from keras_transformer.losses import TokenCrossEntropy
    from keras_transformer.metrics import TokenAccuracy

    for model, batches in models_and_batches():
        assert len(batches.shapes) == 2  # lengths that vary
        model.compile(
            keras.optimizers.Adam(0.01),
            TokenCrossEntropy(),
            metrics=[TokenAccuracy()],
            jit_compile=prefers_jit(),
        )
        history = model.fit(batches, epochs=2, shuffle=False, verbose=0).history
        assert history["loss"][-1] < history["loss"][0]
        assert 0 <= history["token_accuracy"][-1] <= 1


# Lengths


def test_lengths_at_inference_come_from_a_fixed_grid():
    lengths = [bucket_length(n) for n in range(1, 400)]
    assert sorted(set(lengths)) == [16, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    for n, length in enumerate(lengths, start=1):
        assert n <= length < max(n + 16, 1.5 * n + 1)
    assert bucket_length(0) == 16
    assert bucket_length(70, limit=80) == 80
    assert [next_power_of_two(n, 24) for n in (1, 2, 3, 4, 5, 16, 17, 24)] == [
        1, 2, 4, 4, 8, 16, 24, 24
    ]  # fmt: skip


def test_texts_of_similar_lengths_are_grouped_in_few_shapes_longest_first():
    lengths = [40] * 70 + [3] * 200 + [20]
    batches = list(group_by_length(range(271), lengths, 64))
    # 200 texts of length 16 stay apart; one of length 32 joins those of 48: 16 tokens of padding.
    assert [(len(numbers), rows, length) for numbers, rows, length, _ in batches] == [
        (64, 64, 48), (7, 64, 48), (64, 64, 16), (64, 64, 16), (64, 64, 16), (8, 64, 16)
    ]  # fmt: skip
    assert sorted(n for numbers, *_ in batches for n in numbers) == list(range(271))
    assert list(group_by_length([5, 2, 9], range(10), 64)) == [([2, 5, 9], 4, 16, 4)]


def test_many_texts_wait_for_the_rows_of_others_longest_first():
    lengths = [9 + n % 8 for n in range(2100)]
    parts = list(group_by_length(range(2100), lengths, 64, continuous=True))
    assert [(len(numbers), *shape) for numbers, *shape in parts] == [(525, 1024, 16, 64)] * 4
    assert sorted(n for numbers, *_ in parts for n in numbers) == list(range(2100))
    for numbers, *_ in parts:
        of_part = [lengths[n] for n in numbers]
        assert of_part == sorted(of_part, reverse=True) and len(set(of_part)) == 8
    few_tokens = group_by_length(range(2100), lengths, 64, tokens_per_batch=100, continuous=True)
    assert {tuple(shape) for _, *shape in few_tokens} == {(96, 16, 6)}

    few, long = [5] * 128, [500] * 200
    for lengths in (few, long):
        numbers = range(len(lengths))
        alone = list(group_by_length(numbers, lengths, 64))
        assert list(group_by_length(numbers, lengths, 64, continuous=True)) == alone


def test_a_budget_of_tokens_bounds_the_rows_at_inference():
    batches = list(group_by_length(range(9), [30] * 8 + [500], 64, limit=400, tokens_per_batch=96))
    assert [(len(n), rows, length) for n, rows, length, _ in batches] == [
        (1, 1, 400), (3, 3, 32), (3, 3, 32), (2, 3, 32)
    ]  # fmt: skip


def test_sequences_are_padded_on_the_right_and_rows_below():
    np.testing.assert_array_equal(pad([[5, 6], [], [7]], 4), [[5, 6], [0, 0], [7, 0], [0, 0]])
    padded = pad([np.ones((1, 2), int), np.ones((2, 2), int)], 2, 3)
    np.testing.assert_array_equal(padded.sum(axis=-1), [[2, 0, 0], [2, 2, 0]])
    assert padded.dtype == np.int32
    assert pad([[]], 2, 3).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize("num_buckets", [1, 2, 3, 9])
def test_no_other_cut_of_the_sorted_lengths_is_cheaper(num_buckets):
    lengths = np.random.default_rng(num_buckets).integers(1, 12, (9, 2))

    def cost(sizes, longest):
        return (sizes + 2) * longest.sum(axis=1)  # a bucket costs two rows more

    def total(buckets):
        parts = [lengths[buckets == n] for n in np.unique(buckets)]
        return sum(int(cost(len(part), part.max(axis=0)[None])[0]) for part in parts)

    ranked = sorted(range(9), key=lambda n: (lengths[n].max(), *lengths[n][::-1]))
    totals = []
    for number in range(min(num_buckets, 9)):
        for cuts in itertools.combinations(range(1, 9), number):
            buckets = np.empty(9, int)
            buckets[ranked] = np.searchsorted(cuts, range(9), side="right")
            totals.append(total(buckets))
    found = assign_buckets(lengths, num_buckets, cost)
    assert total(found) == min(totals)
    assert set(found) == set(range(len(set(found))))
    assert len(set(found)) <= num_buckets


def test_thousands_of_lengths_are_assigned_from_coarser_cells():
    lengths = np.random.default_rng(0).integers(1, 400, (9000, 2))
    buckets = assign_buckets(lengths, 4, lambda sizes, longest: sizes * longest.sum(axis=1))
    assert set(buckets) == {0, 1, 2, 3}
    longest = [lengths[buckets == n].max() for n in range(4)]
    assert longest == sorted(longest)


def one_more(epoch):
    return [[*ids, 4 + epoch] for ids in SOURCE], TARGET


def test_batches_go_through_pickle():
    batches = TranslationBatches(SOURCE, TARGET, num_buckets=2, resample=one_more)
    again = pickle.loads(pickle.dumps(batches))
    for each in (batches, again):
        each.epoch = 2
        each.on_epoch_begin()
    assert list(rows(again)) == list(rows(batches))
