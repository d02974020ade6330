import keras
import numpy as np
from keras import ops

from keras_transformer.layers.masks import add_look_ahead, look_ahead_mask, padding_mask, per_head

T, F = True, False


def test_the_padding_mask_is_true_at_real_tokens_for_every_query(numpy):
    mask = numpy(padding_mask(np.array([[5, 3, 0, 0], [4, 1, 2, 3]])))
    np.testing.assert_array_equal(mask, [[[T, T, F, F]], [[T, T, T, T]]])
    assert mask.dtype == bool


def test_padding_is_seen_wherever_it_stands(numpy):
    mask = numpy(padding_mask(np.array([[0, 5, 0, 3], [0, 0, 0, 0]])))
    np.testing.assert_array_equal(mask, [[[F, T, F, T]], [[F, F, F, F]]])


def test_the_look_ahead_mask_allows_the_past_and_the_present(numpy):
    mask = numpy(look_ahead_mask(4))
    np.testing.assert_array_equal(mask, [[T, F, F, F], [T, T, F, F], [T, T, T, F], [T, T, T, T]])
    assert mask.dtype == bool


def test_the_look_ahead_mask_over_keys_of_another_length_starts_at_the_first(numpy):
    np.testing.assert_array_equal(numpy(look_ahead_mask(2, 3)), [[T, F, F], [T, T, F]])
    np.testing.assert_array_equal(numpy(look_ahead_mask(3, 2)), [[T, F], [T, T], [T, T]])


def test_a_single_token_sees_itself(numpy):
    np.testing.assert_array_equal(numpy(look_ahead_mask(1)), [[T]])


def test_both_masks_together_written_out(numpy):
    ids = np.array([[7, 3, 0]])
    both = ops.logical_and(padding_mask(ids), look_ahead_mask(3))
    np.testing.assert_array_equal(numpy(both), [[[T, F, F], [T, T, F], [T, T, F]]])


def test_adding_the_look_ahead_mask_keeps_what_both_allow(numpy):
    padding = np.array([[[T, T, F]], [[F, T, T]]])
    expected = [[[T, F, F], [T, T, F], [T, T, F]], [[F, F, F], [F, T, F], [F, T, T]]]
    np.testing.assert_array_equal(numpy(add_look_ahead(padding, 3, 3)), expected)
    np.testing.assert_array_equal(numpy(add_look_ahead(padding[0], 2, 3)), [[T, F, F], [T, T, F]])
    np.testing.assert_array_equal(numpy(add_look_ahead(None, 2, 3)), [[T, F, F], [T, T, F]])


def test_every_head_has_the_mask_of_its_sentence(numpy):
    per_sentence = np.array([[[T, F]], [[F, T]]])
    np.testing.assert_array_equal(numpy(per_head(per_sentence)), [[[[T, F]]], [[[F, T]]]])
    assert tuple(per_head(per_sentence[0]).shape) == (1, 1, *per_sentence.shape[1:])
    for already in (per_sentence[:, np.newaxis], None):
        assert per_head(already) is already


def test_the_padding_mask_works_in_a_functional_model_of_unknown_length(numpy):
    ids = keras.Input((None,), dtype="int32")
    mask = padding_mask(ids)
    assert mask.shape == (None, 1, None) and mask.dtype == "bool"
    model = keras.Model(ids, mask)
    np.testing.assert_array_equal(numpy(model(np.array([[5, 0]]))), [[[T, F]]])
    np.testing.assert_array_equal(numpy(model(np.array([[0, 5, 3]]))), [[[F, T, T]]])
