import json
import os
import pathlib
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest

import keras_transformer as kt

BACKENDS = ("tensorflow", "jax", "torch")

# Run in a new process: loads a file of each task, asks it, and measures the logits of one batch.
LOAD = """
import json, pathlib, sys
import keras, numpy as np
import keras_transformer
folder, answers = pathlib.Path(sys.argv[1]), {}
for name, asked in json.load(open(folder / "asked.json")).items():
    task = keras.saving.load_model(folder / f"{name}.keras")
    inputs = {side: np.array(ids, "int32") for side, ids in asked["inputs"].items()}
    np.save(folder / f"{name}.npy", keras.ops.convert_to_numpy(task(inputs)))
    answers[name] = getattr(task, asked["method"])(asked["texts"], **asked["options"])
print(json.dumps([keras.backend.backend(), answers]))
"""


@pytest.fixture(scope="module")
def translator(dates_translator):
    return dates_translator


@pytest.fixture(scope="module")
def saved(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "dates.keras"
    translator.save(path)
    return path


def test_line_n_of_the_answer_translates_line_n_of_the_question(translator, dates):
    texts = dates.test.source[:40]
    together = translator.translate(texts)
    assert together == [translator.translate([text])[0] for text in texts]
    assert translator.translate(texts[::-1]) == together[::-1]
    assert len(set(together)) > 5


def test_each_tokenizer_must_have_the_ids_of_its_side(translator):
    tokenizer = translator.source_tokenizer
    size, small = tokenizer.vocabulary_size(), dict(num_layers=1, d_model=8, num_heads=1, d_ff=8)
    for sides in ((size + 1, size), (size, size - 1), (size - 1, None)):
        transformer = kt.Transformer(*sides, **small)
        wrong = next(n for n in sides if n != size)
        message = f"have the {wrong} ids of the model; received vocabulary_size={size}"
        with pytest.raises(ValueError, match=message):
            kt.Translator(transformer, tokenizer)
    kt.Translator(kt.Transformer(size, size, **small), tokenizer)


def test_an_answer_without_end_stops_at_a_length_set_by_its_own_text_alone(translator, dates):
    size = translator.source_tokenizer.vocabulary_size()
    endless = kt.Transformer(size, num_layers=1, d_model=8, num_heads=1, d_ff=8)
    never_end = np.ones((size, 8), "float32")
    never_end[5], never_end[kt.END] = 2, -1
    endless.embed_target.set_weights([never_end])
    endless.decoder.blocks[-1].feed_forward_add_norm.norm.beta.assign(np.ones(8) * 100)
    endless = kt.Translator(endless, translator.source_tokenizer)
    short, long = "May 5, 2019", "May 5, 2019, " * 10
    alone, beside_a_long_one = endless.translate([short]), endless.translate([short, long])
    tokens = len(kt.encode(translator.source_tokenizer, [short])[0]) + 1
    assert len(kt.encode(translator.source_tokenizer, alone)[0]) <= 2 * tokens + 16
    assert beside_a_long_one[0] == alone[0] and len(beside_a_long_one[1]) > len(alone[0])


def test_batches_smaller_than_the_question_change_nothing(translator, dates):
    texts = dates.test.source[:30]
    of_seven = kt.Translator(translator.transformer, translator.source_tokenizer, batch_size=7)
    assert of_seven.translate(texts) == translator.translate(texts)


def test_an_empty_or_blank_text_translates_to_the_empty_text(translator, dates):
    text = dates.test.source[0]
    (answer,) = translator.translate([text])
    assert answer != ""
    assert translator.translate(["", text, "  ", "\t"]) == ["", answer, "", ""]


def test_no_texts_give_no_translations(translator):
    assert translator.translate([]) == []


def test_a_text_of_a_thousand_characters_is_translated(translator):
    (answer,) = translator.translate(["May 5, 2019 " * 84])
    assert isinstance(answer, str)


def test_characters_that_were_never_seen_are_read_as_unknown(translator):
    answers = translator.translate(["我爱苹果", "\N{GRINNING FACE}", "May 5, 2019é"])
    assert all(isinstance(answer, str) for answer in answers)


@pytest.mark.parametrize("wrong", ["May 5, 2019", ["May 5, 2019", 7], [None], b"May 5, 2019"])
def test_what_is_not_a_list_of_strings_is_refused(translator, wrong):
    with pytest.raises(ValueError, match="text"):
        translator.translate(wrong)


def test_a_text_longer_than_the_learned_positions_is_named(translator):
    tokenizer = translator.source_tokenizer
    short = kt.Transformer(
        tokenizer.vocabulary_size(), num_layers=1, d_model=8, num_heads=1, d_ff=8, max_length=12
    )
    limited = kt.Translator(short, tokenizer)
    assert len(limited.translate(["May 5"])) == 1
    with pytest.raises(
        ValueError, match="Text 2 has 15 tokens, but the model learned 12 positions"
    ):
        limited.translate(["May 5", "April 22, 2019"])


def test_attention_weights_stand_for_the_translation_itself(translator, dates):
    text = dates.test.source[3]
    (translation,) = translator.translate([text])
    weights, source_tokens, target_tokens = translator.attention(text)
    transformer = translator.transformer
    assert weights.shape == (1, 2, len(target_tokens), len(source_tokens))
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert "".join(source_tokens) == text.replace(" ", "▁") + "</s>"
    assert "".join(target_tokens) == translation.replace(" ", "▁") + "</s>"
    # The same weights as the whole model's, teacher-forced on its own answer.
    source, target = kt.encode(translator.source_tokenizer, [text, translation])
    memory, mask = transformer.encode(np.array([[*source, kt.END]]))
    y = transformer.target_positions(transformer.embed_target(np.array([[kt.START, *target]])))
    expected = transformer.decoder(
        y, memory, cross_attention_mask=mask, return_attention_scores=True
    )
    np.testing.assert_allclose(weights, keras.ops.convert_to_numpy(expected[2][0]), atol=1e-6)
    assert weights.std() > 0.01  # not all alike


def test_one_file_holds_model_and_vocabulary_and_no_optimizer(translator, saved):
    with zipfile.ZipFile(saved) as archive:
        names = archive.namelist()
    assert any("vocabulary" in name for name in names)
    weights = translator.transformer.count_params() * 4
    assert weights < saved.stat().st_size < 1.5 * weights + 200_000
    assert translator.transformer.optimizer is not None  # training can go on


def test_a_file_that_cannot_be_written_leaves_the_old_one_whole(
    translator, saved, monkeypatch, tmp_path
):
    path = tmp_path / "kept.keras"
    path.write_bytes(saved.read_bytes())

    def fails_half_way(self, filepath, **kwargs):
        pathlib.Path(filepath).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(keras.Model, "save", fails_half_way)
    with pytest.raises(OSError, match="disk full"):
        translator.save(path)
    assert path.read_bytes() == saved.read_bytes()
    assert [p.name for p in tmp_path.iterdir()] == ["kept.keras"]


def test_saving_over_a_file_can_be_refused(translator, saved):
    with pytest.raises(ValueError, match="exists"):
        translator.save(saved, overwrite=False)


def test_two_vocabularies_are_saved_and_loaded_apart(dates, tmp_path):
    tokenizers = [kt.learn_tokenizer(side, model_type="char") for side in dates.train]
    sizes = [tokenizer.vocabulary_size() for tokenizer in tokenizers]
    assert sizes[0] != sizes[1]
    model = kt.Transformer(*sizes, num_layers=1, d_model=8, num_heads=1, d_ff=8)
    translator = kt.Translator(model, *tokenizers, batch_size=5)
    translator.save(tmp_path / "two.keras")
    loaded = keras.saving.load_model(tmp_path / "two.keras")
    assert [
        t.vocabulary_size() for t in (loaded.source_tokenizer, loaded.target_tokenizer)
    ] == sizes
    assert loaded.batch_size == 5
    texts = dates.test.source[:5]
    assert loaded.translate(texts) == translator.translate(texts)


@pytest.mark.parametrize("backend", sorted({*BACKENDS} - {keras.backend.backend()}))
def test_every_saved_task_says_the_same_on_the_other_backends(
    translator, small_tasks, dates, backend, tmp_path
):
    """The gate runs the suite on three backends: six pairs of saving and loading."""
    ids = [kt.encode(translator.source_tokenizer, side[:8]) for side in dates.test]
    pairs, _ = kt.TranslationBatches(*ids, shuffle=False, num_buckets=1)[0]
    tokens = {"token_ids": np.array([[2, 5, 6, 7], [2, 8, 0, 0]], "int32")}
    texts = ["The dog barks.", "a Zebra sees me", "", "dogs"]
    sentences = [kt.split_words(text) for text in texts]
    words, _ = kt.WordBatches(
        *small_tasks["tagger"].vocabulary.encode(sentences), [1] * 4, shuffle=False, num_buckets=1
    )[0]
    questions = {  # task: inputs, method, texts, options
        "translator": (pairs, "translate", dates.test.source, {}),
        "generator": (tokens, "generate", ["the", "a small cat sees"], dict(temperature=0)),
        "tagger": (words, "tag", texts, {}),
        "classifier": (words, "classify", texts, {}),
        "filler": (words, "fill", ["The [MASK] barks."], {}),
    }
    tasks, asked = {"translator": translator, **small_tasks}, {}
    for name, (inputs, *question) in questions.items():
        tasks[name].save(tmp_path / f"{name}.keras")
        asked[name] = dict(zip(("method", "texts", "options"), question))
        asked[name]["inputs"] = {side: array.tolist() for side, array in inputs.items()}
    (tmp_path / "asked.json").write_text(json.dumps(asked))
    environment = {**os.environ, "KERAS_BACKEND": backend}
    if backend == "tensorflow":  # the gate hides it from the others
        environment.pop("PYTHONPATH", None)
    answer = subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path],
        env=environment,
        cwd=pathlib.Path(kt.__file__).parents[1],
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, answer.stderr
    there, answers = json.loads(answer.stdout.splitlines()[-1])
    assert there == backend and set(answers) == set(tasks)
    for name, (inputs, method, texts, options) in questions.items():
        expected = keras.ops.convert_to_numpy(tasks[name](inputs))
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), expected, atol=1e-4)
        here = getattr(tasks[name], method)(texts, **options)
        assert without_digits(answers[name]) == without_digits(here)


def without_digits(answers):
    """What JSON makes of answers, without their probabilities, which differ in the last digit."""
    if isinstance(answers, float):
        return None
    return answers if isinstance(answers, str) else [without_digits(each) for each in answers]


# Beam search, sampling, streaming and scores, in text.


def test_beams_and_scores_of_text(translator, dates):
    texts = [*dates.test.source[:12], ""]
    best = translator.translate(texts, beams=4)
    hypotheses = translator.translate(texts, beams=4, n_best=3, return_scores=True)
    assert [each[0].text for each in hypotheses] == best
    assert translator.translate(texts, beams=4, n_best=3) == [
        [h.text for h in each] for each in hypotheses
    ]
    assert translator.translate(texts, beams=4, return_scores=True) == [
        each[0] for each in hypotheses
    ]
    assert hypotheses[-1] == [("", 0.0, True)] * 3
    for text, found in zip(texts[:-1], hypotheses):
        assert len({each.text for each in found}) == 3
        scores = [each.score for each in found]
        assert scores == sorted(scores, reverse=True) and all(each.finished for each in found)
        expected = translator.score([text] * 3, [each.text for each in found])
        np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_one_beam_with_its_score_says_what_greedy_says(translator, dates):
    texts = dates.test.source[:20]
    scored = translator.translate(texts, beams=1, return_scores=True)
    assert [each.text for each in scored] == translator.translate(texts)


def test_a_score_without_length_penalty_is_the_log_probability(translator, dates):
    texts, targets = dates.test.source[:9], dates.test.target[:9]
    scores = translator.score(texts, targets, length_penalty=0.0)
    ids = [kt.encode(translator.source_tokenizer, side) for side in (texts, targets)]
    inputs, labels = kt.TranslationBatches(*ids, shuffle=False, num_buckets=1, batch_size=9)[0]
    nats = kt.training.nats_per_token(labels, translator(inputs))
    expected = -(keras.ops.convert_to_numpy(nats) * (labels > 0)).sum(axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    per_length = [len(target) + 1 for target in targets]  # characters and END
    np.testing.assert_allclose(
        translator.score(texts, targets, length_penalty=1.0),
        expected / ((5 + np.array(per_length)) / 6),
        rtol=1e-4,
    )


def test_decoding_defaults_are_saved_in_the_file(translator, dates, tmp_path):
    tokenizer = translator.source_tokenizer
    kt.Translator(translator.transformer, tokenizer, beams=3, length_penalty=1.5).save(
        tmp_path / "b.keras"
    )
    loaded = keras.saving.load_model(tmp_path / "b.keras")
    texts = dates.test.source[:6]
    expected = translator.translate(texts, beams=3, length_penalty=1.5, return_scores=True)
    found = loaded.translate(texts, return_scores=True)
    assert [each.text for each in found] == [each.text for each in expected]
    np.testing.assert_allclose([h.score for h in found], [h.score for h in expected], atol=1e-5)


def test_the_pieces_of_a_stream_join_to_the_translation(translator, dates):
    for text in dates.test.source[:4]:
        pieces = list(translator.stream(text))
        assert "".join(pieces) == translator.translate([text])[0]
        assert len(pieces) > 3
    drawn = "".join(translator.stream(text, seed=5, temperature=1.5))
    assert drawn == translator.sample([text], seed=5, temperature=1.5)[0]
    assert list(translator.stream("  ")) == []


def test_samples_are_set_by_seed_and_number_alone(translator, dates):
    texts = dates.test.source[:10]
    first = translator.sample(texts, seed=1, temperature=1.5)
    assert translator.sample(texts, seed=1, temperature=1.5, batch_size=3) == first
    assert translator.sample(texts, seed=2, temperature=1.5) != first
    assert translator.sample(texts, seed=2, top_k=1) == translator.translate(texts)


def test_a_prefix_begins_the_translation(translator, dates):
    texts = dates.test.source[:3]
    for said in (
        translator.translate(texts, prefixes=["77", "", "1"]),
        translator.translate(texts, prefixes=["77", "", "1"], beams=3),
    ):
        assert said[0].startswith("77") and said[2].startswith("1")
    assert (
        translator.translate(texts, prefixes=["77", "", "1"])[1] == translator.translate(texts)[1]
    )


def test_lengths_relative_to_the_source_are_kept(translator, dates):
    texts = dates.test.source[:5]
    tokens = [len(text) for text in texts]
    for beams in (1, 3):
        longer = translator.translate(texts, beams=beams, min_length_ratio=1.5)
        assert all(len(said) >= int(1.5 * n) for said, n in zip(longer, tokens))


def test_any_budget_says_the_same(translator, dates):
    texts = ["May 5, 2019 " * 12, *dates.test.source[:20]]
    expected = translator.translate(texts)
    for budget in (dict(tokens_per_batch=40), dict(batch_size=3), dict(tokens_per_batch=1)):
        assert translator.translate(texts, **budget) == expected


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(beams=0), "beams must be an integer of at least 1; received beams=0"),
        (dict(beams=2, n_best=3), "n_best must be from 1 to beams; received n_best=3, beams=2"),
        (dict(beams=2, length_penalty=-0.1), "length_penalty must be at least 0"),
        (dict(batch_size=0), "batch_size must be an integer of at least 1"),
        (dict(tokens_per_batch=0), "tokens_per_batch must be an integer of at least 1"),
        (dict(max_length_ratio=0), "max_length_ratio"),
        (dict(min_length_ratio=-1), "min_length_ratio"),
        (dict(prefixes=["a", "b"]), "one prefix for each text; received 2 for 1"),
    ],
    ids=str,
)
def test_a_search_option_out_of_range_is_named(translator, options, message):
    with pytest.raises(ValueError, match=message):
        translator.translate(["May 5, 2019"], **options)


@pytest.mark.parametrize("default", [dict(beams=0), dict(length_penalty=-1), dict(batch_size=0)])
def test_a_default_of_the_search_out_of_range_is_named(translator, default):
    with pytest.raises(ValueError, match=f"{[*default][0]} must be .*at least [01]; received"):
        kt.Translator(translator.transformer, translator.source_tokenizer, **default)


def test_a_score_needs_one_translation_for_each_text(translator):
    with pytest.raises(ValueError, match="one translation for each text; received 1 for 2"):
        translator.score(["May 5, 2019", "May 6, 2019"], ["2019-05-05"])


def test_a_thousand_lengths_need_few_shapes_and_a_long_text_makes_no_short_one_longer(translator):
    shapes = set()
    for length in range(1, 1001):
        for _, given in translator._batches(["x" * length, *["y" * 5] * 63][: 1 + length % 64]):
            source_ids, room = given["source_ids"], given["max_length"].max()
            shapes.add((*source_ids.shape, int(room - 1).bit_length()))
            longest = (source_ids > 0).sum(axis=1).max()
            assert source_ids.shape[1] <= max(16, 1.5 * longest)
    assert len(shapes) < 60


def test_what_was_done_to_the_training_text_is_done_to_each_text(dates, translator, tmp_path):
    lower = kt.Translator(
        translator.transformer,
        translator.source_tokenizer,
        normalization="NFKC",
        lowercase=True,
    )
    wide = "APRIL \uff12\uff12, 2019"  # full-width digits
    assert lower.translate([wide]) == translator.translate(["april 22, 2019"])
    assert lower.translate([wide]) != translator.translate([wide])
    lower.save(tmp_path / "lower.keras")
    again = keras.saving.load_model(tmp_path / "lower.keras")
    assert (again.normalization, again.lowercase) == ("NFKC", True)
    assert again.translate([wide]) == lower.translate([wide])
    (score,) = lower.score([wide], ["2019-04-22"])
    assert score == pytest.approx(translator.score(["april 22, 2019"], ["2019-04-22"])[0], abs=1e-4)
