"""CTranslate2 as the engine of a task: its answers are the task's own."""

import sys

import numpy as np
import pytest

import keras_transformer as kt
from engines import PROMPTS, require, restless_translator
from keras_transformer import backend, cli
from keras_transformer.generation import length_penalty
from keras_transformer.interchange import engines, set_engine
from keras_transformer.serving.models import load_models

BLANK = ["", "  "]


@pytest.fixture(autouse=True)
def installed():
    require("ctranslate2")


@pytest.fixture
def translator(restless):
    """A new one per test: lower case, and answers of many lengths."""
    texts = ["ein hund bellt", "eine katze sieht den hund", "der hund"]
    return restless_translator(kt.train_tokenizer(texts, 40), restless, lowercase=True)


@pytest.fixture
def of_dates(dates_translator):
    """The model that comes with the package, which has Keras's programs again after the test."""
    yield dates_translator
    set_engine(dates_translator, "keras")


@pytest.fixture
def biased(restless):
    """A function from the bias of END to a translator, whose other special ids are impossible."""
    tokenizer = kt.train_tokenizer(["ein hund bellt", "eine katze sieht den hund"], 40)
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=16, logits_bias=True)

    def biased(of_end):
        model = restless(kt.Transformer(tokenizer.vocabulary_size(), **sizes))
        bias = np.zeros(tokenizer.vocabulary_size(), "float32")
        bias[[kt.PADDING, kt.START, kt.END]] = -1e3, -1e3, of_end
        model.logits_bias.bias.assign(bias)
        return kt.Translator(model, tokenizer)

    return biased


@pytest.mark.parametrize(
    "options",
    [{}, {"beams": 4}, pytest.param({"beams": 3, "length_penalty": 0.0}, marks=pytest.mark.slow)],
    ids=str,
)
def test_translations_are_those_of_keras(of_dates, dates, options):
    texts = [*dates.test.source[:40], *BLANK, "May 3, 2021"]
    expected = of_dates.translate(texts, **options)
    assert set_engine(of_dates, "ctranslate2") == "ctranslate2"
    assert of_dates.translate(texts, **options) == expected
    assert expected[-3:] == ["", "", "2021-05-03"]


@pytest.mark.parametrize(
    "alpha, beams, n_best",
    [
        *((0.0, 1, 1), (0.9, 4, 3)),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in ((0.9, 1, 1), (0.0, 4, 1), (0.9, 4, 1), (0.0, 4, 3))
        ),
    ],
)
def test_scores_are_those_that_keras_gives_the_same_answers(biased, alpha, beams, n_best):
    translator, source_ids = biased(9.0), np.array([[5, 8, kt.END], [6, kt.END, 0]])
    decoding = engines.CTranslate2Decoding(translator)
    limits = {"max_length": np.array([30, 30]), "min_length": np.array([1, 1])}
    search = {"beams": beams, "length_penalty": alpha, "n_best": n_best}
    found = decoding.beam_search(source_ids, **limits, **search)
    # The first token is not END, a condition under which CTranslate2 scores.
    p = 1 - np.exp(decoding.score(source_ids, np.full((2, 1), kt.END)))[:, 0]
    for rank in range(n_best):
        ids = found.ids[:, rank]
        length = (ids != kt.PADDING).sum(axis=1)
        np.testing.assert_array_equal(found.finished[:, rank], ids[[0, 1], length - 1] == kt.END)
        log_p = decoding.score(source_ids, ids).sum(axis=1) - np.log(p)
        expected = log_p / length_penalty(length, alpha)
        np.testing.assert_allclose(found.scores[:, rank], expected, atol=1e-3)
    assert len({ids.tobytes() for ids in found.ids[0]}) == n_best


def test_finished_translations_come_first_and_the_best_before_others(of_dates, dates):
    texts, beams = dates.test.source[:10], 4
    set_engine(of_dates, "ctranslate2")
    options = {"beams": beams, "n_best": beams, "length_penalty": 0.9}
    for text, found in zip(
        texts, of_dates.translate(texts, return_scores=True, **options), strict=True
    ):
        translations = [each.text for each in found]
        expected = of_dates.score([text] * beams, translations, length_penalty=0.9)
        # CTranslate2 leaves out the probability of padding: 11 times 0.003, from label smoothing.
        np.testing.assert_allclose([each.score for each in found], expected, atol=0.05)
        assert [each.score for each in found] == sorted((x.score for x in found), reverse=True)
        assert len(set(translations)) == beams and all(each.finished for each in found)


@pytest.mark.parametrize("beams", [1, 3])
def test_every_text_of_a_batch_has_its_own_limit(biased, beams):
    endless = biased(-1e3)
    limits = np.array([5, 9, 0, 7])
    decoding = engines.CTranslate2Decoding(endless)
    source_ids = np.array([[5, kt.END, 0], [6, 7, kt.END], [0, 0, 0], [7, kt.END, 0]])
    found = decoding.beam_search(source_ids, limits, beams, min_length=np.array([1, 1, 0, 1]))
    assert (found.ids[:, 0] > 0).sum(axis=1).tolist() == limits.tolist()
    assert found.ids.shape == (4, 1, 9) and not found.finished.any()
    assert np.isfinite(found.scores[:, 0]).tolist() == [True, True, False, True]
    greedy = decoding.greedy(source_ids, limits, min_length=np.array([1, 1, 0, 1]))
    assert (greedy > 0).sum(axis=1).tolist() == limits.tolist()


def test_a_search_of_keras_cut_off_at_the_same_limits_has_the_same_shape(biased):
    endless = biased(-1e3)
    source_ids, limits = np.array([[5, kt.END], [6, kt.END]]), np.array([4, 6])
    own = kt.generation.Decoding(endless.model)
    for search in ("greedy", "beam_search"):
        mine, keras = (
            getattr(each, search)(source_ids, limits, min_length=np.array([1, 1]))
            for each in (engines.CTranslate2Decoding(endless), own)
        )
        mine, keras = (x if isinstance(x, tuple) else (x,) for x in (mine, keras))
        assert [(x.shape, x.dtype) for x in mine] == [(x.shape, x.dtype) for x in keras]


def test_continuations_are_those_of_keras_beyond_the_window(small_tasks):
    generator = small_tasks["generator"]
    expected = generator.generate(PROMPTS, max_tokens=15, temperature=0)
    try:
        set_engine(generator, "ctranslate2")
        assert generator.generate(PROMPTS, max_tokens=15, temperature=0) == expected
    finally:
        set_engine(generator, "keras")
    assert generator.window == 8 and len(set(expected)) == len(PROMPTS)


def test_what_it_does_otherwise_is_refused_in_one_sentence(translator, small_tasks):
    set_engine(translator, "ctranslate2")
    cure = "Leave that out, or choose the engine keras or auto"
    with pytest.raises(ValueError, match=f"draws other random numbers .*. {cure}"):
        translator.sample(["hund"])
    with pytest.raises(ValueError, match="does not score the prefix of an answer"):
        translator.translate(["hund"], prefixes=["der"])
    with pytest.raises(ValueError, match="has no min_length_ratio"):
        translator.translate(["eine katze sieht den hund"], min_length_ratio=1.5)
    for option in (dict(suppress=["hund"]), dict(repetition_penalty=1.2)):
        with pytest.raises(ValueError, match="has other scores with no_repeat_ngram_size"):
            translator.translate(["eine katze sieht den hund"], **option)
    with pytest.raises(ValueError, match="has 1024 positions, fewer than a text"):
        translator.translate(["hund"], max_length_ratio=510)
    generator = small_tasks["generator"]
    with pytest.raises(ValueError, match="must be one of keras, .*; received engine='onnx'"):
        set_engine(generator, "onnx")
    with pytest.raises(ValueError, match=r"can hold a Translator or TextGenerator; .*'Tagger'"):
        set_engine(small_tasks["tagger"], "ctranslate2")


def test_auto_leaves_to_keras_what_would_be_refused(translator, capsys):
    options = {"seed": 3, "temperature": 1.5}
    sampled = translator.sample(["hund", "der hund"], **options)
    assert set_engine(translator, "auto") == "ctranslate2"
    assert translator.sample(["hund", "der hund"], **options) == sampled
    assert capsys.readouterr().err == ""


def test_auto_says_why_keras_does_all(small_tasks, monkeypatch, capsys):
    tagger = small_tasks["tagger"]
    assert set_engine(tagger, "auto") == "keras"
    expected = "Keras decodes: ctranslate2 can hold a Translator or TextGenerator; "
    assert capsys.readouterr().err == f"{expected}received task='Tagger'.\n"
    assert tagger.tag(["the dog"])
    monkeypatch.setattr(backend, "on_accelerator", lambda: True)
    assert set_engine(small_tasks["generator"], "auto") == "keras"
    assert "CTranslate2 computes on a CPU" in capsys.readouterr().err


def test_auto_keeps_the_answers_of_a_model_in_half_precision(translator, restless, capsys):
    tokenizer = translator.source_tokenizer
    half = restless_translator(tokenizer, restless, dtype="mixed_bfloat16")
    assert set_engine(half, "auto") == "keras"
    assert "computes in float32; received dtype='mixed_bfloat16'" in capsys.readouterr().err
    assert set_engine(half, "ctranslate2") == "ctranslate2"


def test_a_missing_package_is_one_sentence(translator, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    needs = r'needs the package ctranslate2 .*pip install "keras3-transformer\[fast\]"'
    with pytest.raises(ImportError, match=needs):
        set_engine(translator, "ctranslate2")
    assert set_engine(translator, "auto") == "keras"
    assert "Keras decodes: The engine ctranslate2 needs the package" in capsys.readouterr().err


def test_another_model_is_decoded_by_keras(translator, restless, monkeypatch):
    set_engine(translator, "ctranslate2")
    assert isinstance(translator._decoding, engines.CTranslate2Decoding)
    translator.transformer = backend.twin(translator.model)
    assert type(translator._decoding) is kt.generation.Decoding


def test_a_task_with_another_engine_saves_the_same_file(translator, tmp_path):
    translator.save(tmp_path / "before.keras")
    set_engine(translator, "ctranslate2")
    translator.save(tmp_path / "after.keras")
    before, after = (kt.load(tmp_path / f"{name}.keras") for name in ("before", "after"))
    assert before.get_config() == after.get_config()
    for one, other in zip(before.get_weights(), after.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert type(after._decoding) is kt.generation.Decoding


def test_nothing_of_the_export_stays_on_disk(translator, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    set_engine(translator, "ctranslate2")
    assert translator.translate(["hund"]) and not any(tmp_path.iterdir())


def test_many_batches_keep_their_order(of_dates, dates):
    texts = dates.test.source[:60]
    set_engine(of_dates, "ctranslate2")
    assert of_dates.translate(texts, batch_size=4) == of_dates.translate(texts)


@pytest.fixture
def command(run_main):
    return lambda *words: run_main(lambda: cli.main([str(word) for word in words]), words)


def test_commands_take_it(command, dates, tmp_path):
    texts = ["May 3, 2021", "22 April 2019"]
    result = command(
        "translate", "dates", *texts, "--engine", "ctranslate2", "--beams", 2, "--n-best", 2
    )
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["1", "1", "2", "2"]
    assert result.stdout.startswith("1\t2021-05-03\n") and "\n2\t2019-04-22\n" in result.stdout
    result = command("predict", "dates", "--engine", "ctranslate2-int8", *texts)
    assert result.stdout == "2021-05-03\n2019-04-22\n"
    for name, lines in (("source", dates.test.source), ("reference", dates.test.target)):
        (tmp_path / name).write_text("\n".join(lines[:20]) + "\n", encoding="utf-8")
    files = ["--source", tmp_path / "source", "--reference", tmp_path / "reference"]
    result = command("evaluate", "dates", "--engine", "ctranslate2", *files, "--beams", 2)
    assert result.stdout.startswith("BLEU 100.00"), result


def test_a_command_refuses_to_sample_with_it(command, small_tasks, tmp_path):
    small_tasks["generator"].save(tmp_path / "generator.keras")
    model = ["predict", tmp_path / "generator.keras", "the dog", "--engine", "ctranslate2"]
    result = command(*model)
    assert result.returncode == 1 and "draws other random numbers" in result.stderr
    result = command(*model, "--temperature", 0, "--max-tokens", 3)
    assert result.returncode == 0 and result.stdout.startswith("the dog")


def test_a_server_takes_it():
    dates = load_models(["dates"], "ctranslate2")["dates"]
    assert isinstance(dates._decoding, engines.CTranslate2Decoding)
    assert dates.translate(["May 1, 1999"]) == ["1999-05-01"]
