import keras
import numpy as np

import keras_transformer as kt


def test_pooling_by_hand_and_of_an_empty_text_zeros(numpy):
    x = np.array([[[1, -4], [3, -2], [100, 100]], [[5, 6], [7, 8], [9, 9]]], "float32")
    mask = np.array([[[True, True, False]], [[False, False, False]]])
    pooled = numpy(kt.Pooling()(x, attention_mask=mask))
    np.testing.assert_allclose(pooled, [[2, -3, 3, -2], [0, 0, 0, 0]])
    low = kt.Pooling(dtype="mixed_bfloat16")(x, attention_mask=mask)
    assert keras.backend.standardize_dtype(low.dtype) == "bfloat16"
    np.testing.assert_allclose(numpy(low), pooled)
