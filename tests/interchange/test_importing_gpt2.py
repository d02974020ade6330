"""Imported GPT-2 models give the logits and continuations of the library that they come from."""

import copy
import json
import pathlib
import shutil
import sys

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
import reference_gpt2 as reference
from keras_transformer import interchange
from keras_transformer.interchange.gpt2.vocabulary import read_vocabulary
from programs import on_backend

torch, transformers = reference.torch, reference.transformers

pytestmark = pytest.mark.slow  # transformers takes long to import

ROOT = pathlib.Path(__file__).parents[2]
PROMPTS = ["", "abc", "🙂 草地", " a\n\n b", reference.SEPARATOR, "ab cd ef gh ab cd"]


class Gpt2:
    """A model of theirs, and the same imported."""

    def __init__(self, folder, model, tokenizer):
        self.folder, self.model, self.tokenizer = folder, model, tokenizer
        self.generator = interchange.from_gpt2(folder)
        self.rows = np.array(read_vocabulary(folder, tokenizer.eos_token_id).rows)

    def log_p(self, number, length):
        """Log-probabilities of ours and of theirs after random ids, in the order of our ids."""
        ids = np.random.default_rng(0).integers(4, len(self.rows), (number, length))
        ids[:, 0] = kt.START
        ours = ops.convert_to_numpy(self.generator.model({"token_ids": ids}))
        theirs = reference.their_logits(self.model, self.rows[ids])
        return log_softmax(ours), log_softmax(theirs)[..., self.rows]


def log_softmax(logits):
    logits = logits.astype("float64")
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt2")
    return Gpt2(folder, *reference.write_gpt2(folder))


# The vocabulary


def test_texts_have_the_ids_that_they_have_there(gpt2):
    texts = [*reference.texts(300), *reference.ODD, "", " "]
    ours = gpt2.generator.tokenizer.encode(texts)
    theirs = [reference.encode(gpt2.tokenizer, text) for text in texts]
    assert [gpt2.rows[ids].tolist() for ids in ours] == theirs
    assert len({i for ids in ours for i in ids}) > 120
    assert gpt2.generator.tokenizer.decode(ours) == texts
    assert not {i for ids in ours for i in ids} & set(range(4))


def test_ids_that_are_not_text_are_decoded_as_gpt2_decodes_them(gpt2):
    ids = np.random.default_rng(0).integers(4, len(gpt2.rows), (200, 9))
    theirs = gpt2.tokenizer.batch_decode(gpt2.rows[ids], clean_up_tokenization_spaces=False)
    ours = gpt2.generator.tokenizer.decode(ids)
    assert ours == theirs
    assert sum("\ufffd" in text for text in ours) > 50


def test_the_special_ids_are_ours(gpt2):
    tokenizer, separator = gpt2.generator.tokenizer, gpt2.tokenizer.eos_token_id
    assert tokenizer.tokens(range(4)) == ["<pad>", "\u2047", "<s>", "</s>"]
    assert gpt2.rows[:4].tolist() == [separator] * 4 and separator not in gpt2.rows[4:]
    theirs = gpt2.tokenizer.convert_ids_to_tokens(gpt2.rows[4:].tolist())
    assert tokenizer.tokens(range(4, len(gpt2.rows))) == theirs


# The model


def test_logits_are_those_of_transformers(gpt2):
    ids = np.random.default_rng(1).integers(4, len(gpt2.rows), (20, 40))
    ids[:, 0] = kt.START
    ours = ops.convert_to_numpy(gpt2.generator.model({"token_ids": ids}))[..., kt.END :]
    theirs = reference.their_logits(gpt2.model, gpt2.rows[ids])[..., gpt2.rows[kt.END :]]
    assert theirs.std() > 1
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("shift", [-200, 200])
def test_ids_that_gpt2_lacks_have_no_probability_however_far_from_0_its_logits_are(
    gpt2, variant, shift
):
    model = copy.deepcopy(gpt2.model)
    reference.shift(model, shift)
    model.save_pretrained(variant)
    shutil.copy(gpt2.folder / "tokenizer.json", variant)
    shifted = Gpt2(variant, model, gpt2.tokenizer)
    ours, theirs = shifted.log_p(5, 20)
    assert (ours[..., : kt.END] < -90).all()
    np.testing.assert_allclose(ours[..., kt.END :], theirs[..., kt.END :], atol=3e-4)


def test_greedy_continuations_are_those_of_transformers(gpt2):
    prompts = reference.texts(94, seed=5) + PROMPTS
    ours = gpt2.generator.generate(prompts, max_tokens=16, temperature=0)
    theirs, ended = reference.their_continuations(gpt2.model, gpt2.tokenizer, prompts, 16)
    assert ours == theirs
    assert len(set(ours)) == len(set(prompts)) and ended > 2
    written = [text[len(prompt) :] for text, prompt in zip(ours, prompts, strict=True)]
    assert len(set(written)) > 60


def test_texts_have_the_probability_that_they_have_there(gpt2):
    texts = [text for text in reference.texts(20, seed=7) if text]
    separator = gpt2.tokenizer.eos_token_id
    for text, score in zip(texts, gpt2.generator.score(texts), strict=True):
        ids = torch.tensor([[separator, *reference.encode(gpt2.tokenizer, text), separator]])
        with torch.no_grad():
            loss = gpt2.model(ids, labels=ids).loss.item()
        assert score.tokens == ids.shape[1] - 1
        assert score.nats / score.tokens == pytest.approx(loss, abs=1e-4)


@pytest.mark.once
def test_a_model_of_the_true_sizes_is_imported(tmp_path):
    sizes = dict(sizes=reference.TRUE, vocabulary_size=reference.TRUE_VOCABULARY)
    gpt2 = Gpt2(tmp_path, *reference.write_gpt2(tmp_path, **sizes))
    assert gpt2.generator.model.config == kt.TransformerConfig(
        num_layers=12,
        d_model=768,
        num_heads=12,
        d_ff=3072,
        attention_dropout=0.1,
        activation="gelu_tanh",
        norm_first=True,
        max_length=1024,
        layer_norm_epsilon=1e-5,
        logits_bias=True,
    )
    ours, theirs = gpt2.log_p(2, 16)
    assert theirs.std() > 1
    np.testing.assert_allclose(ours[..., kt.END :], theirs[..., kt.END :], atol=1e-4)


# How folders differ


@pytest.fixture
def variant(gpt2, tmp_path):
    """Another folder of the same model; without its weights and its vocabulary."""
    folder = tmp_path / "variant"
    folder.mkdir()
    shutil.copy(gpt2.folder / "config.json", folder)
    return folder


def assert_same_model(generator, expected):
    assert generator.tokenizer.serialized == expected.tokenizer.serialized
    for one, other in zip(generator.model.weights, expected.model.weights, strict=True):
        np.testing.assert_array_equal(ops.convert_to_numpy(one), ops.convert_to_numpy(other))


def test_a_folder_of_before_2023_has_the_masks_of_attention_and_other_names(gpt2, variant):
    from safetensors.torch import save_file

    for name in ("vocab.json", "merges.txt"):
        shutil.copy(gpt2.folder / name, variant)
    weights = {n.removeprefix("transformer."): w for n, w in gpt2.model.state_dict().items()}
    del weights["lm_head.weight"]
    for n in range(2):
        weights[f"h.{n}.attn.bias"] = torch.ones(1, 1, 96, 96, dtype=torch.bool).tril()
        weights[f"h.{n}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file({n: w.contiguous() for n, w in weights.items()}, variant / "model.safetensors")
    assert_same_model(interchange.from_gpt2(variant), gpt2.generator)
    (variant / "model.safetensors").unlink()
    torch.save(weights, variant / "pytorch_model.bin")
    assert_same_model(interchange.from_gpt2(variant), gpt2.generator)


def test_a_tokenizer_may_write_merges_as_strings_and_a_model_may_be_in_shards(gpt2, variant):
    description = json.loads((gpt2.folder / "tokenizer.json").read_text("utf-8"))
    merges = description["model"]["merges"]
    description["model"]["merges"] = [" ".join(pair) for pair in merges]
    del description["model"]["type"], description["pre_tokenizer"]["use_regex"]
    (variant / "tokenizer.json").write_text(json.dumps(description), "utf-8")
    gpt2.model.save_pretrained(variant, max_shard_size="40KB")
    assert len(list(variant.glob("*.safetensors"))) > 1
    assert_same_model(interchange.from_gpt2(variant), gpt2.generator)


@pytest.mark.parametrize(
    "changes, expected",
    [
        (dict(n_inner=64), dict(d_ff=64)),
        (dict(activation_function="relu"), dict(activation="relu")),
        (dict(activation_function="gelu", layer_norm_epsilon=0.1), dict(activation="gelu")),
    ],
    ids=str,
)
def test_options_of_the_model_are_read(variant, changes, expected):
    size, separator = reference.write_vocabulary(variant)
    ids = dict(vocab_size=size, bos_token_id=separator, eos_token_id=separator)
    model = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**reference.SMALL, **ids, **changes, initializer_range=0.5)
    )
    model.eval().save_pretrained(variant)
    imported = interchange.from_gpt2(variant).model
    assert {name: getattr(imported.config, name) for name in expected} == expected
    rows = np.array(read_vocabulary(variant, separator).rows)
    ids = np.array([[kt.START, 7, 300, 9, 30]])
    ours = ops.convert_to_numpy(imported({"token_ids": ids}))[..., kt.END :]
    theirs = reference.their_logits(model, rows[ids])[..., rows[kt.END :]]
    assert theirs.std() > 1
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


# What becomes of an imported model


def test_an_imported_model_is_one_file_that_any_check_accepts(gpt2, tmp_path):
    path = tmp_path / "model.keras"
    gpt2.generator.save(path)
    summary = kt.check_file(path)
    assert summary.vocabulary == {"vocabulary_size": len(gpt2.rows)}
    assert summary.config == gpt2.generator.model.config
    loaded = kt.load(path)
    assert_same_model(loaded, gpt2.generator)
    given = dict(max_tokens=10, temperature=0)
    assert loaded.generate(PROMPTS, **given) == gpt2.generator.generate(PROMPTS, **given)


def test_the_file_gives_the_same_texts_on_another_backend(gpt2, tmp_path):
    gpt2.generator.save(tmp_path / "model.keras")
    code = (
        "import json, sys, keras_transformer as kt; "
        "generator = kt.load('model.keras'); "
        "print(json.dumps(generator.generate(json.load(sys.stdin), 10, 0)))"
    )
    other = "torch" if keras.backend.backend() == "jax" else "jax"
    expected = gpt2.generator.generate(PROMPTS, 10, 0)
    assert on_backend(other, code, PROMPTS, tmp_path) == expected


def test_fine_tuning_changes_every_weight_and_is_saved(gpt2, tmp_path):
    generator = interchange.from_gpt2(gpt2.folder)
    model = generator.model
    before = [ops.convert_to_numpy(weight) for weight in model.weights]
    texts = reference.texts(40, seed=9)
    batches = kt.TextBatches(generator.tokenizer.encode(texts), batch_size=20, num_buckets=1)
    model.compile(keras.optimizers.Adam(3e-3), kt.TokenCrossEntropy(0.1))
    losses = model.fit(batches, epochs=4, shuffle=False, verbose=0).history["loss"]
    assert losses[-1] < losses[0] < 30  # the bias of -100 costs label smoothing next to nothing
    for weight, old in zip(model.weights, before, strict=True):
        changed = np.abs(ops.convert_to_numpy(weight) - old).max()
        # A bias of the keys adds the same to all scores of a query, so its gradient is 0.
        assert changed > 1e-4 or weight.path.endswith("key/bias"), weight.path
    generator.save(tmp_path / "tuned.keras")
    tuned = kt.load(tmp_path / "tuned.keras").generate(PROMPTS, 10, 0)
    assert tuned == generator.generate(PROMPTS, 10, 0) != gpt2.generator.generate(PROMPTS, 10, 0)


def test_a_training_script_begins_with_it(gpt2, inside, tmp_path):
    gpt2.generator.save(tmp_path / "model.keras")
    lines = [
        text.translate(dict.fromkeys((0, 10, 13), " "))
        for text in reference.texts(60)
        if text.strip()
    ]
    (tmp_path / "train.txt").write_text("\n".join(lines), "utf-8")
    command = [sys.executable, ROOT / "scripts" / "train_language_model.py", "--lines"]
    command += ["--train", tmp_path / "train.txt", "--init-from", tmp_path / "model.keras"]
    result = inside([*command, "--epochs", "1", "--output", tmp_path / "run"])
    assert result.returncode == 0, result.stderr
    tuned = kt.load(tmp_path / "run" / "model.keras")
    assert tuned.tokenizer.serialized == gpt2.generator.tokenizer.serialized
    rates = dict(dropout=0.1, attention_dropout=0.1)
    assert tuned.model.config.replace(**rates) == gpt2.generator.model.config
    embeddings = [each.model.embedding.embeddings for each in (tuned, gpt2.generator)]
    one, other = map(ops.convert_to_numpy, embeddings)
    assert 0 < np.abs(one - other).max() < 0.1


def test_bare_weights_come_with_the_vocabulary(gpt2, tmp_path):
    interchange.export(gpt2.generator, tmp_path / "bare", "safetensors")
    config = json.loads((tmp_path / "bare" / "config.json").read_text("utf-8"))
    path = tmp_path / "bare" / config["vocabularies"]["tokenizer"]
    library = reference.tokenizers.Tokenizer.from_file(str(path))
    texts = reference.texts(20)
    ids = gpt2.generator.tokenizer.encode(texts)
    assert [library.encode(text).ids for text in texts] == ids
    assert [library.decode(row, skip_special_tokens=False) for row in ids] == texts


def test_ctranslate2_writes_the_same(gpt2, tmp_path, monkeypatch):
    pytest.importorskip("ctranslate2", reason="the engine is optional")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import argparse

    import run_exported

    interchange.export(gpt2.generator, tmp_path / "engine", "ctranslate2")
    options = argparse.Namespace(threads=1, max_tokens=10)
    answer = run_exported.ctranslate2(tmp_path / "engine", options)
    prompts = PROMPTS + reference.texts(20, seed=3)
    assert answer(prompts) == gpt2.generator.generate(prompts, 10, temperature=0)
