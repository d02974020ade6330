"""The translations of a trained model that a corpus is extended by."""

import types

import pytest

from keras_transformer.training import diversification


@pytest.mark.parametrize("number", [3, 4])
def test_a_teacher_expects_many_texts_where_one_call_does_not_translate_them_all(
    tmp_path, monkeypatch, number
):
    monkeypatch.setattr(diversification, "CHUNK", 3)
    called = []

    def translate(texts):
        called.append(len(texts))
        return [text.upper() for text in texts]

    teacher = types.SimpleNamespace(
        translate=translate, model=None, expect_many=lambda: called.append("many")
    )
    texts, path = list("abcd")[:number], tmp_path / "teachers" / "translations.json"
    for _ in range(2):  # the second time they are read
        found = diversification.saved_translations(path, texts, lambda: teacher)
        assert found == list("ABCD")[:number]
    assert called == ([3] if number == 3 else ["many", 3, 1])
