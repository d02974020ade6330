"""Weights of every task by name, read with the library `safetensors` alone."""

import json

import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from keras_transformer import interchange

safetensors = pytest.importorskip("safetensors.numpy", reason="the format is optional")


def read(task, folder):
    """config.json and the weights of an exported task."""
    interchange.export(task, folder, "safetensors")
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return config, safetensors.load_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", ["generator", "tagger", "classifier", "filler"])
def test_the_weights_of_a_task_are_there_by_their_paths(small_tasks, name, tmp_path):
    task = small_tasks[name]
    config, weights = read(task, tmp_path / name)
    assert (config["task"], config["model"]) == (type(task).__name__, type(task.model).__name__)
    assert weights.keys() == {weight.path for weight in task.model.weights}
    for weight in task.model.weights:
        np.testing.assert_array_equal(weights[weight.path], ops.convert_to_numpy(weight))
    rebuilt = type(task.model).from_config(config["arguments"])
    assert rebuilt.config == task.model.config
    assert {weight.path: tuple(weight.shape) for weight in rebuilt.weights} == {
        path: array.shape for path, array in weights.items()
    }


def test_a_translation_model_has_readable_names_and_its_vocabulary(dates_translator, tmp_path):
    import sentencepiece

    config, weights = read(dates_translator, tmp_path / "dates")
    kernel = weights["encoder/block_1/self_attention/query/kernel"]
    ours = dates_translator.transformer.encoder.blocks[0].self_attention.query.kernel
    np.testing.assert_array_equal(kernel, ops.convert_to_numpy(ours))
    assert config["special_ids"] == {"padding": 0, "unknown": 1, "start": 2, "end": 3}
    search = dates_translator.config.to_dict()
    assert config["settings"] == {"normalization": "NFC", "lowercase": False, **search}
    many = kt.Translator(
        dates_translator.transformer, dates_translator.source_tokenizer, trained_length=9
    )
    assert read(many, tmp_path / "many")[0]["settings"]["trained_length"] == 9
    files = set(config["vocabularies"].values())
    assert files == {"source_tokenizer.vocabulary.spm"}  # one for both sides
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "dates" / files.pop())
    )
    texts = ["April 22, 2019"]
    assert processor.encode(texts) == dates_translator.source_tokenizer.encode(texts)


def test_two_vocabularies_are_two_files(tmp_path):
    source, target = (kt.train_tokenizer([text], model_type="char") for text in ("ab", "cde"))
    sizes = source.vocabulary_size(), target.vocabulary_size()
    model = kt.Transformer(*sizes, num_layers=1, d_model=8, num_heads=2, d_ff=4)
    config, _ = read(kt.Translator(model, source, target), tmp_path / "model")
    folder = tmp_path / "model"
    for side, tokenizer in (("source", source), ("target", target)):
        file = folder / config["vocabularies"][f"{side}_tokenizer"]
        assert file.read_bytes() == tokenizer.proto


def test_words_and_labels_are_plain_json(small_tasks, tmp_path):
    tagger = small_tasks["tagger"]
    config, _ = read(tagger, tmp_path / "tagger")
    words = json.loads((tmp_path / "tagger" / "vocabulary.json").read_text("utf-8"))
    assert words["words"] == tagger.vocabulary.words
    assert config["settings"]["labels"] == tagger.labels == ["NOUN", "VERB", "OTHER"]
    assert config["special_ids"] == {"padding": 0, "unknown": 1, "mask": 2}


def test_a_weight_keeps_its_dtype(tmp_path):
    tokenizer = kt.train_tokenizer(["ab"], model_type="char")
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=4)
    model = kt.LanguageModel(tokenizer.vocabulary_size(), **sizes, dtype="bfloat16")
    _, weights = read(kt.TextGenerator(model, tokenizer), tmp_path / "model")
    assert {array.dtype.name for array in weights.values()} == {"bfloat16"}
    embedding = ops.convert_to_numpy(ops.cast(model.embedding.embeddings, "float32"))
    np.testing.assert_array_equal(weights["embedding/embeddings"].astype("float32"), embedding)
