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
import oracle
from keras_transformer import backend
from keras_transformer.generation import Request, decoding
from keras_transformer.losses import token_cross_entropy

BACKENDS = ("tensorflow", "jax", "torch")

# Run in a new process: loads a file of each task, asks it, and measures the logits of one batch.
LOAD = """
import json, pathlib, sys
import keras, numpy as np
import keras_transformer
folder, answers = pathlib.Path(sys.argv[1]), {}
for name, question in json.load(open(folder / "questions.json")).items():
    task = keras.saving.load_model(folder / f"{name}.keras")
    inputs = {side: np.array(ids, "int32") for side, ids in question["inputs"].items()}
    np.save(folder / f"{name}.npy", keras.ops.convert_to_numpy(task(inputs)))
    answers[name] = getattr(task, question["method"])(question["texts"], **question["options"])
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
    assert together == translator.translate(text for text in texts)
    assert translator.translate(texts[::-1]) == together[::-1]
    assert len(set(together)) > 5


@pytest.fixture
def asked(monkeypatch):
    """The numbers of tokens that the tasks have called few, or not."""
    tokens = []

    def are_few(number):
        tokens.append(number)
        return number <= 15

    monkeypatch.setattr(backend, "are_few", are_few)
    return tokens


def test_the_texts_of_a_call_are_few_or_many_by_their_tokens_times_the_beams(
    translator, small_tasks, asked
):
    texts = ["May 3, 2021", "", "June 6"]  # END included, 12, 1 and 7 tokens
    translator.translate(texts, beams=1)
    translator.translate(texts, beams=3)
    translator.sample(texts)
    list(translator.stream("June 6"))
    translator.beam_tree("June 6", beams=3)
    translator.score(["June 6"], ["2021-05-03"])  # the longer of the two sides
    assert asked == [20, 60, 20, 7, 7, 11]
    del asked[:]
    small_tasks["generator"].generate(["The", "a"], max_tokens=5)
    list(small_tasks["generator"].stream("The", max_tokens=4))
    small_tasks["generator"].score(["cat"])
    small_tasks["tagger"].tag(["The dog barks.", "a cat"])
    small_tasks["classifier"].classify(["The dog barks."])
    small_tasks["filler"].fill(["a [MASK]"])
    assert asked == [10, 4, 3, 6, 4, 2]


def test_few_texts_have_programs_of_their_own_until_many_are_expected(dates, asked, monkeypatch):
    translator, requests = kt.load("dates"), []
    checked = decoding.checked_batch
    monkeypatch.setattr(
        decoding, "checked_batch", lambda *given: requests.append(given[0]) or checked(*given)
    )
    score = decoding.Decoding.score
    monkeypatch.setattr(
        decoding.Decoding, "score", lambda *given: requests.append(given[3]) or score(*given)
    )
    texts = dates.test.source[:100]

    def few_of(texts):
        del requests[:]
        translations = translator.translate(texts, beams=1)
        list(translator.stream(texts[0]))
        translator.score(texts[:1], translations[:1])
        requests[-1] = Request(None, None, None, few=requests[-1])
        return translations, [request.few for request in requests]

    few, are_few = few_of(texts[:1])
    assert are_few == [True] * 3
    many, are_few = few_of(texts)
    assert are_few == [*[False] * (len(are_few) - 2), True, True] and many[0] == few[0]
    rounds = [request.at_a_time for request in requests[:-2]]
    translator.expect_many()
    assert few_of(texts[:1]) == (few, [False] * 3)
    assert few_of(texts)[0] == many
    assert rounds == [request.at_a_time for request in requests[:-2]]


def test_each_program_is_told_whether_the_texts_are_few(small_tasks, monkeypatch):
    translator, tagger, told = kt.load("dates"), small_tasks["tagger"], []
    compiled = backend.jit

    def jit(*given):
        program = compiled(*given)

        def run(*args, few=False, **options):
            told.append(few)
            return program(*args, few=few, **options)

        return run

    monkeypatch.setattr(backend, "jit", jit)
    monkeypatch.setattr(decoding, "FIRST_LENGTH", 4)  # so that a larger cache is needed
    monkeypatch.setattr(tagger, "_made_of_model", None, raising=False)
    for few in (True, False):
        monkeypatch.setattr(backend, "are_few", lambda tokens, few=few: few)
        for ask, programs in (
            (lambda: translator.translate(["June 6, 1944"]), 3),  # 4, 8 and 16 tokens
            (lambda: list(translator.stream("June 6, 1944")), 11),  # one call per token
            (lambda: translator.score(["June"], ["1944"]), 1),
            (lambda: tagger.tag(["a cat"]), 1),
        ):
            del told[:]
            ask()
            assert told == [few] * programs


def test_few_and_many_texts_have_the_same_answers(dates, monkeypatch):
    translator, answers, texts = kt.load("dates"), {}, dates.test.source[:100]
    for few in (True, False):
        monkeypatch.setattr(backend, "are_few", lambda tokens, few=few: few)
        answers[few] = translator.translate(texts, beams=1)
        scores = translator.score(texts[:3], answers[few][:3])
        answers[few] += [pytest.approx(score, rel=1e-4) for score in scores]
    assert answers[True] == answers[False] and len(set(answers[True][:100])) > 50


def test_a_blank_text_has_the_score_that_its_translation_has(translator):
    texts = ["", "  ", "\n", "May 3, 2021"]
    found = translator.translate(texts, return_scores=True, beams=1, sentences="never")
    scores = translator.score(texts, [each.text for each in found])
    assert scores == pytest.approx([each.score for each in found], abs=1e-4)
    assert scores[:3] == [0.0] * 3 > translator.score([""] * 3, ["2021"] * 3)


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


@pytest.mark.slow
def test_an_answer_without_end_stops_at_a_length_set_by_its_own_text_alone(translator, dates):
    size = translator.source_tokenizer.vocabulary_size()
    endless = kt.Transformer(size, num_layers=1, d_model=8, num_heads=1, d_ff=8)
    never_end = np.ones((size, 8), "float32")
    never_end[5], never_end[kt.END] = 2, -1
    endless.target_embedding.set_weights([never_end])
    endless.decoder.blocks[-1].feed_forward_add_norm.norm.beta.assign(np.ones(8) * 100)
    endless = kt.Translator(endless, translator.source_tokenizer)
    short, long = "May 5, 2019", "May 5, 2019, " * 10
    alone, beside_a_long_one = endless.translate([short]), endless.translate([short, long])
    tokens = len(translator.source_tokenizer.encode([short])[0]) + 1
    assert len(translator.source_tokenizer.encode(alone)[0]) <= 2 * tokens + 16
    assert beside_a_long_one[0] == alone[0] and len(beside_a_long_one[1]) > len(alone[0])


@pytest.mark.slow
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
    text = "May 5, 2019 " * 84
    (answer,) = translator.translate([text])
    (length,) = translator.num_tokens([text])
    assert 0 < len(answer) <= 2 * length + 16


def test_characters_that_were_never_seen_are_read_as_unknown(translator):
    texts = ["我爱苹果", "\N{GRINNING FACE}", "May 5, 2019é"]
    assert all(kt.UNKNOWN in ids for ids in translator.source_tokenizer.encode(texts))
    *_, one, other = translator.translate([*texts, "May 5, 2019ж"])
    assert one == other


NO_TEXTS = [
    "May 5, 2019",
    ["May 5, 2019", 7],
    [None],
    b"May 5, 2019",
    None,
    7,
    "\ud800",
    ["\ud800"],
]


@pytest.mark.parametrize("wrong", NO_TEXTS, ids=repr)
@pytest.mark.parametrize(
    "ask",
    [
        lambda t, wrong: t.translate(wrong),
        lambda t, wrong: t.translate(["a"], prefixes=wrong or 0),
        lambda t, wrong: t.sample(wrong),
        lambda t, wrong: t.sample(["a"], prefixes=wrong or 0),
        lambda t, wrong: t.score(wrong, ["a"]),
        lambda t, wrong: t.score(["a"], wrong),
    ],
    ids=["translate", "prefixes", "sample", "sample prefixes", "score", "score translations"],
)
def test_what_is_not_a_list_of_strings_is_refused(translator, ask, wrong):
    with pytest.raises(ValueError, match="list of texts|Every text must be"):
        ask(translator, wrong)


@pytest.mark.parametrize(
    "ask",
    [
        lambda t: t.stream(["a"]),
        lambda t: t.stream(None),
        lambda t: t.stream("a", prefix=7),
        lambda t: t.attention(7),
        lambda t: t.attention("a", 7),
    ],
)
def test_what_is_not_one_text_is_refused(translator, ask):
    with pytest.raises(ValueError, match="Every text must be a str; item 0 is of type"):
        ask(translator)


@pytest.mark.slow
def test_a_generator_of_texts_is_read_once_as_a_list(translator, dates):
    texts, targets = dates.test.source[:4], dates.test.target[:4]

    def each(texts):
        yield from texts

    prefixes = ["77", "", "1", "2"]
    expected = translator.translate(texts, prefixes=prefixes)
    assert translator.translate(each(texts), prefixes=each(prefixes)) == expected
    assert translator.sample(each(texts), seed=1) == translator.sample(texts, seed=1)
    assert translator.score(each(texts), each(targets)) == translator.score(texts, targets)


def test_a_text_longer_than_the_learned_positions_is_named(translator):
    limited = with_learned_positions(translator, 12)
    assert len(limited.translate(["May 5"])) == 1
    with pytest.raises(ValueError, match="Text 1 must have at most 12 tokens, .*; received 15"):
        limited.translate(["May 5", "April 22, 2019"])
    with pytest.raises(ValueError, match="Prefix 1 must have at most 12 tokens, .*; received 13"):
        limited.translate(["May 5"] * 2, prefixes=["", "2" * 13])


def with_learned_positions(translator, max_length):
    """A translator whose translations never end."""
    tokenizer, sizes = translator.source_tokenizer, dict(d_model=8, num_heads=1, d_ff=8)
    size = tokenizer.vocabulary_size()
    model = kt.Transformer(size, num_layers=1, max_length=max_length, **sizes)
    embeddings = np.random.default_rng(0).normal(size=(size, 8))
    embeddings[:, 0], embeddings[kt.END, 0] = 1, -9
    model.target_embedding.set_weights([embeddings])
    model.decoder.blocks[-1].feed_forward_add_norm.norm.beta.assign([9.0] + [0.0] * 7)
    return kt.Translator(model, tokenizer)


@pytest.mark.slow
def test_a_translation_cut_at_the_learned_positions_has_attention_maps_but_no_score(translator):
    limited = with_learned_positions(translator, 12)
    ((text, score, finished),) = limited.translate(["May 5"], return_scores=True)
    assert len(text) == 12 and not finished and score < 0
    weights, source_tokens, target_tokens = limited.attention("May 5", text)
    (ids,) = limited.target_tokenizer.encode([text])
    assert target_tokens == limited.target_tokenizer.tokens(ids)
    assert weights.shape == (1, 1, 12, len(source_tokens))
    assert np.isfinite(limited.score(["May 5"], [text[:11]]))
    message = "Translation 1 must have at most 12 tokens, .*; received 13. Split it"
    with pytest.raises(ValueError, match=message):
        limited.score(["May 5"] * 2, ["", text])


def test_attention_weights_are_those_of_writing_the_translation(translator, dates):
    text = dates.test.source[3]
    (translation,) = translator.translate([text])
    maps = translator.attention(text)
    weights, source_tokens, target_tokens = maps
    assert isinstance(maps, kt.AttentionMaps)
    config = translator.transformer.config
    size = config.num_layers, config.num_heads, len(target_tokens), len(source_tokens)
    assert weights.shape == size
    np.testing.assert_allclose(weights.sum(axis=-1), 1, atol=1e-5)
    assert "".join(source_tokens) == text.replace(" ", "▁") + "</s>"
    assert "".join(target_tokens) == translation.replace(" ", "▁") + "</s>"
    np.testing.assert_allclose(translator.attention(text, translation).weights, weights, atol=1e-5)


def test_attention_weights_are_those_of_equation_1(translator, dates, randomize, weights_of):
    tokenizer = translator.source_tokenizer
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=16)
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **sizes))
    pair = dates.test.source[3], dates.test.target[3]
    weights = kt.Translator(model, tokenizer).attention(*pair).weights
    source, target = tokenizer.encode(pair)
    expected = cross_attention(weights_of(model), [*source, kt.END], [kt.START, *target])
    np.testing.assert_allclose(weights[0], expected, atol=1e-5)
    assert weights.std() > 0.01  # not all equal


def cross_attention(model, source_ids, target_ids):
    """The weights of a model of one layer with two heads, by equation 1."""

    def embedded(embedding, ids):
        x = embedding[ids][np.newaxis] * np.sqrt(embedding.shape[1])
        return x + oracle.positional_encoding(len(ids), embedding.shape[1])

    memory = oracle.encoder(embedded(model["source_embedding"], source_ids), model["encoder"], 2)
    (block,) = model["decoder"]["blocks"]
    y, mask = (
        embedded(model["target_embedding"], target_ids),
        oracle.look_ahead_mask(len(target_ids)),
    )
    y = oracle.residual(
        y,
        lambda y: oracle.multi_head_attention(y, y, block["self_attention"], 2, mask),
        block["self_attention_norm"],
    )
    weights = block["cross_attention"]
    queries = np.split(oracle.dense(y, weights["query"])[0], 2, axis=-1)
    keys = np.split(oracle.dense(memory, weights["key"])[0], 2, axis=-1)
    return [oracle.attention(q, k, k)[1] for q, k in zip(queries, keys, strict=True)]


def test_one_file_holds_model_and_vocabulary_and_no_optimizer(translator, tmp_path):
    model = translator.transformer.copy()
    model.compile("adam", kt.TokenCrossEntropy())
    model.optimizer.build(model.trainable_variables)
    path = tmp_path / "compiled.keras"
    kt.Translator(model, translator.source_tokenizer).save(path)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert any("vocabulary" in name for name in names)
    weights = model.count_params() * 4
    assert weights < path.stat().st_size < 1.5 * weights + 200_000
    assert model.optimizer is not None  # it can be trained further


def test_a_model_keeps_its_optimizer_while_it_is_saved(translator, tmp_path, monkeypatch):
    model = translator.transformer.copy()
    model.compile("adam", kt.TokenCrossEntropy())
    seen, save = [], keras.Model.save

    def saving(*args, **kwargs):
        seen.append(model.optimizer)
        save(*args, **kwargs)
        raise OSError("disk full")

    monkeypatch.setattr(keras.Model, "save", saving)
    with pytest.raises(OSError, match="disk full"):
        kt.Translator(model, translator.source_tokenizer).save(tmp_path / "compiled.keras")
    assert seen == [model.optimizer] and model.optimizer is not None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("model.keras", {"zipped": False}, "A task is one file"),
        ("model", {"zipped": False}, "must end in .keras"),
        ("model.h5", {}, "must end in .keras"),
        ("", {}, "must have a name"),
    ],
)
def test_a_task_is_saved_as_one_file(translator, tmp_path, monkeypatch, name, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        translator.save(name, **options)
    assert not list(tmp_path.iterdir())


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


@pytest.mark.slow
def test_two_vocabularies_are_saved_and_loaded_apart(dates, tmp_path):
    tokenizers = [kt.train_tokenizer(side, model_type="char") for side in dates.train]
    sizes = [tokenizer.vocabulary_size() for tokenizer in tokenizers]
    assert sizes[0] != sizes[1]
    model = kt.Transformer(*sizes, num_layers=1, d_model=8, num_heads=1, d_ff=8)
    translator = kt.Translator(model, *tokenizers, batch_size=5)
    translator.save(tmp_path / "two.keras")
    loaded = keras.saving.load_model(tmp_path / "two.keras")
    assert [
        t.vocabulary_size() for t in (loaded.source_tokenizer, loaded.target_tokenizer)
    ] == sizes
    assert loaded.config.batch_size == 5
    texts = dates.test.source[:5]
    assert loaded.translate(texts) == translator.translate(texts)


@pytest.mark.slow
@pytest.mark.parametrize("backend", sorted({*BACKENDS} - {keras.backend.backend()}))
def test_every_saved_task_answers_the_same_on_the_other_backends(
    translator, small_tasks, dates, backend, tmp_path
):
    """The gate runs the suite on three backends: six pairs of saving and loading."""
    ids = [translator.source_tokenizer.encode(side[:8]) for side in dates.test]
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
    tasks, as_json = {"translator": translator, **small_tasks}, {}
    for name, (inputs, *question) in questions.items():
        tasks[name].save(tmp_path / f"{name}.keras")
        as_json[name] = dict(zip(("method", "texts", "options"), question, strict=True))
        as_json[name]["inputs"] = {side: array.tolist() for side, array in inputs.items()}
    (tmp_path / "questions.json").write_text(json.dumps(as_json))
    environment = {**os.environ, "KERAS_BACKEND": backend}
    if backend == "tensorflow":  # the gate hides it from the others
        environment.pop("PYTHONPATH", None)
    answer = subprocess.run(
        [sys.executable, "-c", LOAD, tmp_path],
        env=environment,
        cwd=pathlib.Path(kt.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=300,
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
    """Answers as JSON has them, without their probabilities, which differ in the last digit."""
    if isinstance(answers, float):
        return None
    return answers if isinstance(answers, str) else [without_digits(each) for each in answers]


# Beam search, sampling, streaming and scores, in text.


@pytest.mark.slow
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
    for text, found in zip(texts[:-1], hypotheses[:-1], strict=True):
        assert len({each.text for each in found}) == 3
        scores = [each.score for each in found]
        assert scores == sorted(scores, reverse=True) and all(each.finished for each in found)
        expected = translator.score([text] * 3, [each.text for each in found])
        np.testing.assert_allclose(scores, expected, atol=1e-4)


@pytest.mark.slow
def test_one_beam_finds_what_greedy_decoding_finds(translator, dates):
    texts = dates.test.source[:20]
    scored = translator.translate(texts, beams=1, return_scores=True)
    assert [each.text for each in scored] == translator.translate(texts)


def test_a_score_without_length_penalty_is_the_log_probability(translator, dates):
    texts, targets = dates.test.source[:9], dates.test.target[:9]
    scores = translator.score(texts, targets, length_penalty=0.0)
    ids = [translator.source_tokenizer.encode(side) for side in (texts, targets)]
    inputs, labels = kt.TranslationBatches(*ids, shuffle=False, num_buckets=1, batch_size=9)[0]
    nats = token_cross_entropy(labels, translator(inputs))
    expected = -(keras.ops.convert_to_numpy(nats) * (labels > 0)).sum(axis=1)
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    per_length = [len(target) + 1 for target in targets]  # characters and END
    np.testing.assert_allclose(
        translator.score(texts, targets, length_penalty=1.0),
        expected / ((5 + np.array(per_length)) / 6),
        rtol=1e-4,
    )


@pytest.mark.slow
def test_decoding_defaults_are_saved_in_the_file(translator, dates, tmp_path):
    tokenizer = translator.source_tokenizer
    changes = dict(beams=3, length_penalty=1.5, max_length_ratio=3.0, tokens_per_batch=500)
    kt.Translator(translator.transformer, tokenizer, **changes).save(tmp_path / "b.keras")
    loaded = keras.saving.load_model(tmp_path / "b.keras")
    assert loaded.config == kt.GenerationConfig(**changes)
    texts = dates.test.source[:6]
    expected = translator.translate(texts, **changes, return_scores=True)
    found = loaded.translate(texts, return_scores=True)
    assert [each.text for each in found] == [each.text for each in expected]
    np.testing.assert_allclose([h.score for h in found], [h.score for h in expected], atol=1e-5)


def test_options_against_loops_are_in_the_file_only_if_they_are_used(translator):
    parts = translator.transformer, translator.source_tokenizer
    names = ["no_repeat_ngram_size", "repetition_penalty", "suppress"]
    assert not set(names) & set(kt.Translator(*parts).get_config())
    changes = dict(zip(names, (3, 1.2, ["2019", 7]), strict=True))
    config = kt.Translator(*parts, **changes).get_config()
    assert {name: config[name] for name in names} == changes
    loaded = kt.Translator.from_config(config)
    assert loaded.config == kt.GenerationConfig(**changes)


def test_a_suppressed_text_is_never_written(translator, dates):
    texts = dates.test.source[:8]
    (ids,) = translator.target_tokenizer.encode(["2"])
    for options in (dict(beams=1), dict(beams=3)):
        before = translator.translate(texts, **options)
        assert any("2" in text for text in before)
        found = translator.translate(texts, suppress=["2"], **options)
        assert found == translator.translate(texts, suppress=ids, **options) != before
    assert "2" not in "".join(translator.sample(texts, suppress=["2"]))
    with pytest.raises(ValueError, match="suppress must have texts or ids, none empty"):
        translator.translate(texts, suppress=[""])
    for wrong in ("2", 7, [b"2"]):
        with pytest.raises(ValueError, match="suppress must be a list of texts or ids"):
            translator.sample(texts, suppress=wrong)
    with pytest.raises(ValueError, match="suppress: Every text must be valid Unicode; item 1"):
        translator.translate(texts[:1], suppress=["a", "\ud800"])
    with pytest.raises(ValueError, match="prefixes: Every text must be valid Unicode; item 1"):
        translator.translate(texts[:1], prefixes=["a", "\ud800"])
    with pytest.raises(ValueError, match="Leave out what has no effect here; .*='suppress'"):
        translator.score(texts, texts, suppress=["2"])


def test_an_answer_without_end_is_not_finished(translator, dates):
    texts = ["", *dates.test.source[:4]]
    for ask in (translator.translate, translator.sample):
        whole = ask(texts, return_finished=True)
        assert [each.text for each in whole] == ask(texts)
        assert all(each.finished and each.score is None for each in whole)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.generation.configuration.MORE_TOKENS", 0)
        cut = translator.translate(texts, max_length_ratio=0.3, return_finished=True)
    assert [each.finished for each in cut] == [True, *[False] * 4]


def test_options_change_the_configuration_of_a_translator(translator):
    parts = translator.transformer, translator.source_tokenizer
    config = kt.GenerationConfig(beams=5, length_penalty=1.0)
    assert kt.Translator(*parts).config == kt.GenerationConfig()
    assert kt.Translator(*parts, config=config).config == config
    changed = kt.Translator(*parts, config=config, beams=2)
    assert changed.config == kt.GenerationConfig(beams=2, length_penalty=1.0)
    with pytest.raises(ValueError, match="Options are beams, .*; received unknown='beam'"):
        kt.Translator(*parts, beam=3)
    for method in (changed.translate, changed.sample):
        with pytest.raises(ValueError, match="Options are beams, .*; received unknown='beam'"):
            method(["May 5, 2019"], beam=3)
    with pytest.raises(TypeError, match="positional"):
        changed.translate(["May 5, 2019"], 3)


@pytest.mark.slow
def test_the_pieces_of_a_stream_join_to_the_translation(translator, dates):
    for text in dates.test.source[:4]:
        pieces = list(translator.stream(text))
        assert "".join(pieces) == translator.translate([text])[0]
        assert len(pieces) > 3
    sampled = "".join(translator.stream(text, seed=5, temperature=1.5))
    assert sampled == translator.sample([text], seed=5, temperature=1.5)[0]
    assert list(translator.stream("  ")) == []


@pytest.mark.slow
def test_a_stream_of_bytes_joins_to_the_translation_even_if_a_character_is_cut(randomize):
    tokenizer = kt.train_tokenizer(["a"], model_type="byte")
    size = tokenizer.vocabulary_size()
    model = randomize(kt.Transformer(size, num_layers=1, d_model=8, num_heads=1, d_ff=8))
    translator = kt.Translator(model, tokenizer)
    cut = []
    for seed in range(8):
        (sampled,) = translator.sample(["我爱"], seed=seed)
        assert "".join(translator.stream("我爱", seed=seed)) == sampled
        cut.append(sampled.endswith("\N{REPLACEMENT CHARACTER}"))
    assert any(cut)  # at the length limit, after the first bytes of a character


@pytest.mark.slow
def test_samples_depend_on_seed_and_number_alone(translator, dates):
    texts = dates.test.source[:10]
    first = translator.sample(texts, seed=1, temperature=1.5)
    assert translator.sample(texts, seed=1, temperature=1.5, batch_size=3) == first
    assert translator.sample(texts, seed=2, temperature=1.5) != first
    assert translator.sample(texts, seed=2, top_k=1) == translator.translate(texts)


def test_a_prefix_begins_the_translation(translator, dates):
    texts = dates.test.source[:3]
    for beams in (1, 3):
        translations = translator.translate(texts, prefixes=["77", "", "1"], beams=beams)
        assert translations[0].startswith("77") and translations[2].startswith("1")
    assert (
        translator.translate(texts, prefixes=["77", "", "1"])[1] == translator.translate(texts)[1]
    )


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 3])
def test_a_prefix_of_any_length_is_kept_whole(translator, beams):
    prefix = "2" * 60  # a translation of "1/2" has at most 2 * 4 + 16 tokens
    short, long = translator.translate(["1/2"] * 2, prefixes=["", prefix], beams=beams)
    assert long.startswith(prefix) and len(short) <= 24


def test_a_prefix_may_take_all_learned_positions(translator):
    limited = with_learned_positions(translator, 12)
    assert limited.translate(["May 5"], prefixes=["2" * 12]) == ["2" * 12]


@pytest.mark.slow
def test_lengths_relative_to_the_source_are_kept(translator, dates):
    texts = dates.test.source[:5]
    tokens = [len(text) for text in texts]
    for beams in (1, 3):
        longer = translator.translate(texts, beams=beams, min_length_ratio=1.5)
        pairs = zip(longer, tokens, strict=True)
        assert all(len(translation) >= int(1.5 * n) for translation, n in pairs)


def test_an_answer_may_end_whatever_the_ratios_of_its_length(translator):
    limited = with_learned_positions(translator, 12)
    for least, most in ((0, 0.1), (2, 2), (0.5, 3), (9, 9), (1e30, 1e30)):
        config = kt.GenerationConfig(min_length_ratio=least, max_length_ratio=most)
        for task in (translator, limited):
            shortest, longest = config.length_limits(range(1, 13), task.longest_input)
            assert (shortest >= 1).all() and (shortest < longest).all()
            assert (longest <= task.longest_input).all()


def test_the_batch_size_changes_no_translation(translator, dates):
    texts = ["May 5, 2019 " * 12, *dates.test.source[:20]]
    expected = translator.translate(texts)
    for budget in (dict(tokens_per_batch=40), dict(batch_size=3), dict(tokens_per_batch=1)):
        assert translator.translate(texts, **budget) == expected


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(beams=0), "beams must be an integer of at least 1; received beams=0"),
        (dict(beams=2, n_best=3), "n_best must be from 1 to beams; received n_best=3, beams=2"),
        (dict(beams=1.0), "beams must be an integer of at least 1; received beams=1.0"),
        (dict(beams="2"), "beams must be an integer of at least 1; received beams='2'"),
        (dict(n_best=1.5), "n_best must be an integer of at least 1; received n_best=1.5"),
        (dict(n_best=0), "n_best must be an integer of at least 1; received n_best=0"),
        (dict(beams=2, length_penalty=-0.1), "length_penalty must be at least 0"),
        (dict(length_penalty="1"), "length_penalty must be a finite number; rec.*_penalty='1'"),
        (dict(length_penalty=np.nan), "length_penalty must be at least 0; rec.*_penalty=nan"),
        (dict(batch_size=0), "batch_size must be an integer of at least 1"),
        (dict(tokens_per_batch=0), "tokens_per_batch must be an integer of at least 1"),
        (dict(max_length_ratio=0), "max_length_ratio"),
        (dict(max_length_ratio=np.inf), "max_length_ratio must be a finite number; rec.*ratio=inf"),
        (dict(min_length_ratio=-1), "min_length_ratio"),
        (dict(min_length_ratio=3.0), "0 <= min_length_ratio <= max_length_ratio"),
        (dict(min_length_ratio=None, max_length_ratio="2"), "max_length_ratio must be a finite"),
        (dict(prefixes=["a", "b"]), "one prefix per text; received texts=1, prefixes=2"),
    ],
    ids=str,
)
def test_a_search_option_out_of_range_is_named(translator, options, message):
    with pytest.raises(ValueError, match=message):
        translator.translate(["May 5, 2019"], **options)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(temperature=0), "temperature must be above 0; received temperature=0"),
        (dict(temperature="1"), "temperature must be a finite number; received temperature='1'"),
        (dict(temperature=np.inf), "temperature must be a finite number; received temperature=inf"),
        (dict(top_k=1.5), "top_k must be an integer of at least 1; received top_k=1.5"),
        (dict(top_p=1.1), "top_p must be above 0 and at most 1; received top_p=1.1"),
        (dict(top_p=np.nan), "top_p must be above 0 and at most 1; received top_p=nan"),
        (dict(seed=-1), "seed must be an integer of at least 0; received seed=-1"),
        (dict(max_length_ratio=0), "max_length_ratio"),
    ],
    ids=str,
)
def test_an_option_of_sampling_out_of_range_is_named(translator, options, message):
    with pytest.raises(ValueError, match=message):
        translator.sample(["May 5, 2019"], **options)
    with pytest.raises(ValueError, match=message):
        translator.stream("May 5, 2019", **{"seed": 0, **options})


@pytest.mark.parametrize("default", [dict(beams=0), dict(length_penalty=-1), dict(batch_size=0)])
def test_a_default_of_the_search_out_of_range_is_named(translator, default):
    (name,) = default
    with pytest.raises(ValueError, match=f"{name} must be .*at least [01]; received"):
        kt.Translator(translator.transformer, translator.source_tokenizer, **default)


@pytest.mark.parametrize(
    "ask, option",
    [
        (lambda t, **option: t.sample(["a"], **option), dict(beams=2)),
        (lambda t, **option: t.stream("a", **option), dict(length_penalty=1.0)),
        (lambda t, **option: t.score(["a"], ["b"], **option), dict(max_length_ratio=3)),
    ],
    ids=["sample", "stream", "score"],
)
def test_an_option_that_would_have_no_effect_is_refused(translator, ask, option):
    (name,) = option
    with pytest.raises(ValueError, match=f"no effect here; received options='?{name}"):
        ask(translator, **option)
    with pytest.raises(ValueError, match="received unknown='?beam'?"):
        ask(translator, beam=2)
    ask(translator, **{name: None})


def test_a_score_needs_one_translation_per_text(translator):
    message = "one translation per text; received texts=2, translations=1"
    with pytest.raises(ValueError, match=message):
        translator.score(["May 5, 2019", "May 6, 2019"], ["2019-05-05"])


@pytest.mark.slow
def test_a_thousand_lengths_need_few_shapes_and_a_long_text_makes_no_short_one_longer(translator):
    shapes = set()
    options = None, translator.config, translator.source_tokenizer.encode
    for length in range(1, 1001):
        texts = ["x" * length, *["y" * 5] * 63][: 1 + length % 64]
        requests = translator._requests(lambda *batch: None, texts, *options)
        for _, request in requests:
            source_ids, longest = request.source_ids, request.max_length.max()
            shapes.add((*source_ids.shape, int(longest - 1).bit_length()))
            longest = (source_ids > 0).sum(axis=1).max()
            assert source_ids.shape[1] <= max(16, 1.5 * longest)
    assert len(shapes) < 60


def test_rows_that_only_fill_a_batch_have_no_tokens_to_write(translator):
    texts = ["May 5, 2019"] * 5
    options = ["2"] * 5, translator.config, translator.source_tokenizer.encode
    ((numbers, request),) = translator._requests(lambda *batch: batch, texts, *options)
    assert numbers == [0, 1, 2, 3, 4] and request.search == (numbers, 8)
    assert {len(rows) for rows in request[1:5]} == {8} and request.at_a_time == 8
    assert (request.max_length[5:] == 0).all() and (request.max_length[:5] == 40).all()
    assert not request.source_ids[5:].any() and not request.prefix[5:].any()


@pytest.mark.slow
def test_every_text_is_normalized_as_the_training_texts_were(dates, translator, tmp_path):
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


def test_targets_are_normalized_as_the_training_texts_were(translator):
    form = dict(normalization="NFKC", lowercase=True)
    lower = kt.Translator(translator.transformer, translator.source_tokenizer, **form)
    wide = "\uff12\uff10\uff11\uff19-04-22"  # full-width digits
    assert lower.normalized([wide, "MAY"]) == ["2019-04-22", "may"]
    assert lower.score(["may 3, 2019"], [wide]) == lower.score(["may 3, 2019"], ["2019-04-22"])
    (answer,) = lower.translate(["may 3, 2019"], prefixes=[wide[:4]])
    assert answer.startswith("2019")
