"""Imported models give the logits and the translations of the library that they come from."""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
import reference_marian as reference
from keras_transformer import interchange
from keras_transformer.interchange.marian.vocabulary import read_joint_vocabulary
from programs import on_backend

torch, transformers = reference.torch, reference.transformers

pytestmark = pytest.mark.slow  # transformers takes long to import
ROOT = pathlib.Path(__file__).parents[2]
EXACT = dict(length_penalty=0.0, early_stopping="never")  # as the search here


class Marian:
    """A model of theirs, and the same imported."""

    def __init__(self, folder, model, tokenizer, variety=0.3):
        self.folder, self.model, self.tokenizer = folder, model, tokenizer
        self.translator = interchange.from_marian(folder)
        self.variety = variety  # different translations per text
        config = self.model.config
        self.vocabulary = read_joint_vocabulary(folder, config.eos_token_id, config.pad_token_id)

    def greatest_difference(self, number):
        """Of our logits and theirs, for random sentences."""
        ours, theirs = reference.ids_for_logits(self.vocabulary, self.tokenizer, number)
        inputs = dict(zip(("source_ids", "target_ids"), ours, strict=True))
        logits = ops.convert_to_numpy(self.translator.transformer(inputs))
        expected = reference.their_logits(self.model, *theirs)
        rows = np.array(self.vocabulary.rows)
        kept = np.setdiff1d(np.arange(len(rows)), self.vocabulary.unwritten)
        assert expected.std() > 0.5
        assert (logits[..., self.vocabulary.unwritten] < -50).all()
        return np.abs(logits[..., kept] - expected[..., rows[kept]]).max()

    def differing(self, number, beams, theirs, **ours):
        """Texts with our translation and theirs, where the two differ.

        Their beam search counts a hypothesis that the limit cuts off as finished. Ours prefers one
        that has an end; such texts are left out.
        """
        texts = reference.texts(number)
        found = self.translator.translate(texts, beams=beams, return_scores=True, **ours)
        search = dict(num_beams=beams, **theirs)
        expected, cut_off = reference.their_translations(
            self.model, self.tokenizer, texts, **search
        )
        assert len(set(expected)) > self.variety * number
        other_ends = [
            beams > 1 and cut and our.finished for cut, our in zip(cut_off, found, strict=True)
        ]
        assert sum(other_ends) <= 0.25 * number
        return [
            (text, our, their)
            for text, our, their, other_end in zip(texts, found, expected, other_ends, strict=True)
            # Their decoder removes spaces at both ends.
            if our.text.strip() != their and not other_end
        ]


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian")
    return Marian(folder, *reference.write_marian(folder))


@pytest.fixture(scope="module")
def opus(tmp_path_factory):
    """A model of the sizes of Opus-MT's."""
    options = dict(sizes=reference.OPUS, vocabulary_size=58_101, shuffle=False, updates=0)
    folder = tmp_path_factory.mktemp("opus")
    return Marian(folder, *reference.write_marian(folder, **options), variety=0.1)


# The vocabulary


@pytest.mark.parametrize("side", ["source", "target"])
def test_texts_have_the_ids_that_they_have_there(marian, side):
    texts = [*reference.texts(200), *reference.TARGET.sentences(100), "", " ", "1/2 ½ ﬁ"]
    ours = marian.vocabulary.source_tokenizer.encode(texts)
    theirs = marian.tokenizer(texts).input_ids
    if side == "target":
        texts = [text for text in texts if ">>" not in text]
        pieces = marian.vocabulary.target_tokenizer
        ours, theirs = pieces.encode(texts), marian.tokenizer(text_target=texts).input_ids
        lacking = missing_pieces(marian, "target.spm")
        segmented = segmentation(marian, "target.spm", texts)
        kept = [n for n, row in enumerate(segmented) if not lacking & set(row)]
        assert 200 < len(kept) < len(texts)
        ours, theirs = [ours[n] for n in kept], [theirs[n] for n in kept]
    end = marian.tokenizer.eos_token_id
    assert [[*(marian.vocabulary.rows[i] for i in ids), end] for ids in ours] == theirs
    assert marian.tokenizer.unk_token_id in {i for ids in theirs for i in ids}


def test_a_piece_of_the_other_language_is_not_unknown(marian):
    tokenizer = marian.vocabulary.target_tokenizer
    texts = [*reference.texts(200), *reference.TARGET.sentences(100)]
    rows = zip(texts, tokenizer.encode(texts), strict=True)
    known = [text for text, ids in rows if kt.UNKNOWN not in ids]
    alone = [kt.UNKNOWN in ids for ids in tokenizer._processor.encode(known)]
    assert any(alone) and tokenizer.unknown_share(known) == 0 < tokenizer.unknown_share(texts)


def processor_of(marian, name):
    import sentencepiece

    return sentencepiece.SentencePieceProcessor(model_file=str(marian.folder / name))


def segmentation(marian, name, texts):
    return processor_of(marian, name).encode(texts, out_type=str)


def missing_pieces(marian, name):
    """The pieces of a model that vocab.json lacks."""
    processor = processor_of(marian, name)
    pieces = {processor.id_to_piece(i) for i in range(3, processor.vocab_size())}
    return pieces - json.loads((marian.folder / "vocab.json").read_text("utf-8")).keys()


def test_a_piece_that_the_vocabulary_lacks_is_unknown_in_the_source_and_left_out_in_the_target(
    marian,
):
    source, target = (missing_pieces(marian, f"{side}.spm") for side in ("source", "target"))
    assert source and target
    tokenizers = marian.vocabulary.source_tokenizer, marian.vocabulary.target_tokenizer
    size = len(marian.vocabulary.rows)
    assert {tokenizer.vocabulary_size() for tokenizer in tokenizers} == {size}
    tokens = tokenizers[0].tokens(range(size))
    assert set(tokens[-len(source) :]) == source
    assert set(marian.vocabulary.rows[-len(source) :]) == {marian.tokenizer.unk_token_id}
    texts = reference.TARGET.sentences(300)
    ids = {i for row in tokenizers[1].encode(texts) for i in row}
    assert not ids & set(marian.vocabulary.unwritten)


def test_the_special_ids_are_ours(marian):
    for tokenizer in (marian.translator.source_tokenizer, marian.translator.target_tokenizer):
        assert tokenizer.tokens(range(4)) == ["<pad>", "<unk>", "<s>", "</s>"]
    their = marian.tokenizer
    expected = [their.pad_token_id, their.unk_token_id, their.pad_token_id, their.eos_token_id]
    assert marian.vocabulary.rows[:4] == expected


def test_a_text_is_decoded_as_marian_decodes_it(marian):
    rng = np.random.default_rng(0)
    written = np.setdiff1d(np.arange(4, len(marian.vocabulary.rows)), marian.vocabulary.unwritten)
    written = np.append(written, [1] * 30)  # with unknown ones
    rows = rng.choice(written, (50, 8))
    theirs = marian.tokenizer.batch_decode(
        np.array(marian.vocabulary.rows)[rows], skip_special_tokens=True
    )
    ours = marian.translator.target_tokenizer.decode(rows)
    assert [text.strip() for text in ours] == theirs


# The model


def test_the_logits_are_theirs(marian):
    assert marian.greatest_difference(20) < 1e-4


def test_the_logits_are_theirs_where_epsilon_counts(copy):
    model = transformers.MarianMTModel.from_pretrained(copy)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            last = "decoder.layers.1.final_layer_norm" in name
            if ("norm" in name or "out_proj" in name or "fc2" in name) and not last:
                weight *= 3e-3  # variances of about 1e-5, the epsilon
    model.save_pretrained(copy)
    small = Marian(copy, model.eval(), transformers.MarianTokenizer.from_pretrained(copy))
    assert small.greatest_difference(20) < 1e-4


def test_the_logits_of_a_model_of_true_size_are_theirs(opus):
    assert len(opus.vocabulary.rows) == 58_102  # theirs, and padding apart from start
    assert opus.greatest_difference(4) < 1e-4


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("number", [25, pytest.param(200, marks=pytest.mark.once)])
def test_the_translations_are_theirs(marian, beams, number):
    search = EXACT if beams > 1 else {}
    ours = {"length_penalty": 0.0} if beams > 1 else {}
    assert not marian.differing(number, beams, search, **ours)


@pytest.mark.once
@pytest.mark.parametrize("beams", [1, 4])
def test_the_translations_of_a_model_of_true_size_are_theirs(opus, beams):
    search = EXACT if beams > 1 else {}
    ours = {"length_penalty": 0.0} if beams > 1 else {}
    assert not opus.differing(6, beams, search, **ours)


@pytest.mark.parametrize("penalty", [0.5, 1.0])
def test_with_a_length_penalty_each_search_finds_the_better_one_by_its_own_score(marian, penalty):
    # Theirs is log-probability / length^a, ours log-probability / ((5 + length) / 6)^(1.25 a).
    theirs = dict(length_penalty=penalty, early_stopping=False)
    ours = 1.25 * penalty
    differing = marian.differing(200, 4, theirs, length_penalty=ours)
    assert len(differing) < 0.6 * 200
    texts, found, expected = zip(*differing, strict=True)
    scores = marian.translator.score(texts, expected, length_penalty=ours)
    better = [our.score > score - 1e-4 for our, score in zip(found, scores, strict=True)]
    assert np.mean(better) > 0.9


def test_the_defaults_of_the_search_come_from_the_folder(marian):
    assert marian.translator.config.beams == 6
    assert marian.translator.config.length_penalty == 1.25
    assert marian.translator.transformer.config == kt.TransformerConfig(
        num_layers=2,
        d_model=32,
        num_heads=4,
        d_ff=64,
        activation="silu",
        layer_norm_epsilon=1e-5,
        logits_bias=True,
    )


# Files


@pytest.fixture
def copy(marian, tmp_path):
    """A copy of the folder, to be changed."""
    shutil.copytree(marian.folder, tmp_path / "copy")
    return tmp_path / "copy"


def assert_same_weights(one, other):
    for weight, copy in zip(one.model.weights, other.model.weights, strict=True):
        arrays = (ops.convert_to_numpy(each) for each in (weight, copy))
        np.testing.assert_array_equal(*arrays, err_msg=weight.path)


@pytest.mark.parametrize("legacy", [False, True], ids=["archive", "before_1_6"])
def test_a_pickle_of_tensors_alone_is_read_and_so_are_its_tables_of_positions(marian, copy, legacy):
    (copy / "model.safetensors").unlink()
    weights = marian.model.state_dict()
    assert "model.encoder.embed_positions.weight" in weights
    path = copy / "pytorch_model.bin"
    torch.save(weights, path, _use_new_zipfile_serialization=not legacy)
    assert_same_weights(interchange.from_marian(copy), marian.translator)


def test_shards_are_read(marian, copy):
    (copy / "model.safetensors").unlink()
    marian.model.save_pretrained(copy, max_shard_size="40KB")
    assert len(list(copy.glob("model-*.safetensors"))) > 2
    assert_same_weights(interchange.from_marian(copy), marian.translator)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("file", ["safetensors", "bin"])
def test_weights_of_half_precision_are_read_as_float32(marian, copy, dtype, file):
    weights = {n: w.to(getattr(torch, dtype)) for n, w in marian.model.state_dict().items()}
    weights = {n: w for n, w in weights.items() if "embed_" not in n and n != "lm_head.weight"}
    (copy / "model.safetensors").unlink()
    if file == "bin":
        torch.save(weights, copy / "pytorch_model.bin")
    else:
        from safetensors.torch import save_file

        save_file(weights, copy / "model.safetensors")
    kernel = interchange.from_marian(copy).transformer.decoder.blocks[1].feed_forward.inner.bias
    expected = weights["model.decoder.layers.1.fc1.bias"].float().numpy()
    np.testing.assert_array_equal(ops.convert_to_numpy(kernel), expected)
    assert kernel.dtype == "float32"


def test_a_folder_of_old_has_the_options_of_its_search_in_config_json(copy):
    (copy / "generation_config.json").unlink()
    config = json.loads((copy / "config.json").read_text("utf-8"))
    config |= dict(num_beams=3, length_penalty=0.4, add_bias_logits=False, normalize_before=False)
    (copy / "config.json").write_text(json.dumps(config), "utf-8")
    config = interchange.from_marian(copy).config
    assert (config.beams, config.length_penalty) == (3, 0.5)


# What becomes of an imported model


def test_an_imported_model_is_one_file_that_any_check_accepts(marian, tmp_path):
    path = tmp_path / "model.keras"
    marian.translator.save(path)
    summary = kt.check_file(path)
    assert summary.vocabulary == {"source_vocabulary_size": len(marian.vocabulary.rows)}
    assert summary.config == marian.translator.transformer.config
    loaded = kt.load(path)
    texts = reference.texts(10)
    assert loaded.translate(texts, beams=2) == marian.translator.translate(texts, beams=2)
    assert loaded.source_tokenizer.proto == marian.translator.source_tokenizer.proto
    assert loaded.target_tokenizer.proto == marian.translator.target_tokenizer.proto


@pytest.mark.once
@pytest.mark.parametrize("other", ["jax", "torch"])
def test_the_file_gives_the_same_translations_on_another_backend(marian, tmp_path, other):
    marian.translator.save(tmp_path / "model.keras")
    texts = reference.texts(30)
    code = (
        "import json, sys, keras_transformer as kt; "
        "texts = json.load(sys.stdin); "
        "translator = kt.load('model.keras'); "
        "print(json.dumps([translator.translate(texts, beams=n) for n in (1, 4)]))"
    )
    expected = [marian.translator.translate(texts, beams=beams) for beams in (1, 4)]
    assert on_backend(other, code, texts, tmp_path) == expected


def test_fine_tuning_changes_every_weight_and_is_saved(marian, tmp_path):
    translator = interchange.from_marian(marian.folder)
    before = [ops.convert_to_numpy(weight) for weight in translator.transformer.weights]
    pairs = reference.SOURCE.sentences(40), reference.TARGET.sentences(40)
    ids = [
        tokenizer.encode(side)
        for tokenizer, side in zip(
            (translator.source_tokenizer, translator.target_tokenizer), pairs, strict=True
        )
    ]
    batches = kt.TranslationBatches(*ids, batch_size=20, num_buckets=1)
    model = translator.transformer
    model.compile(keras.optimizers.Adam(1e-2), kt.TokenCrossEntropy(0.1))
    losses = model.fit(batches, epochs=4, shuffle=False, verbose=0).history["loss"]
    assert losses[0] < 30  # the logits of -100 cost label smoothing next to nothing
    assert losses[-1] < losses[0]
    for weight, old in zip(model.weights, before, strict=True):
        changed = np.abs(ops.convert_to_numpy(weight) - old).max()
        # A bias of the keys adds the same to all scores of a query, so its gradient is 0.
        assert changed > 1e-4 or weight.path.endswith("key/bias"), weight.path
    texts = reference.texts(5)
    translator.save(tmp_path / "tuned.keras")
    tuned = kt.load(tmp_path / "tuned.keras").translate(texts)
    assert tuned == translator.translate(texts) != marian.translator.translate(texts)


def test_an_imported_model_says_the_same_in_ctranslate2(marian, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the engine is optional")
    interchange.export(marian.translator, tmp_path / "engine", "ctranslate2")
    engine = ctranslate2.Translator(str(tmp_path / "engine"), compute_type="float32")
    texts = reference.texts(20)
    source = marian.translator.source_tokenizer
    target = marian.translator.target_tokenizer
    numbers = {token: n for n, token in enumerate(target.get_vocabulary())}
    found = []
    for ids in source.encode(texts):
        search = dict(beam_size=1, min_decoding_length=1, max_decoding_length=2 * len(ids) + 18)
        (answer,) = engine.translate_batch([source.tokens(ids)], **search)
        found.append([numbers[token] for token in answer.hypotheses[0]])
    assert target.decode(found) == marian.translator.translate(texts, beams=1)
