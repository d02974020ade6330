"""Models of several target languages: the tag of one before each text, in every way to ask."""

import json
import zipfile

import pytest

import keras_transformer as kt
from keras_transformer import cli
from keras_transformer.interchange.vocabularies import settings_of

ASKED = {
    "translate": lambda task, texts, **to: task.translate(texts, **to),
    "n_best": lambda task, texts, **to: task.translate(texts, beams=2, n_best=2, **to),
    "sample": lambda task, texts, **to: task.sample(texts, **to),
    "stream": lambda task, texts, **to: [list(task.stream(text, **to)) for text in texts],
    "score": lambda task, texts, **to: task.score(texts, ["ab"] * len(texts), **to),
    "attention": lambda task, texts, **to: [
        task.attention(text, **to).source_tokens for text in texts
    ],
    "beam_tree": lambda task, texts, **to: [task.beam_tree(text, **to) for text in texts],
}


@pytest.fixture(scope="module")
def translator(randomize):
    """English into German and French, with random weights."""
    reserve = ["<2de>", "<2fr>"]
    tokenizer = kt.train_tokenizer(["abcdef gh"], model_type="char", reserve=reserve)
    sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=16)
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **sizes))
    return kt.Translator(model, tokenizer, directions=["en-de", "en-fr", "fr-de"])


@pytest.fixture(scope="module")
def saved(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "many.keras"
    translator.save(path)
    return path


def test_the_target_language_is_one_id_before_the_source(translator):
    assert translator.targets == ["de", "fr"]
    (german,), (french,), (plain,) = (
        translator.source_tokenizer.encode(texts)
        for texts in (*(translator.tagged(["abc"], to) for to in ("de", "fr")), [" abc"])
    )
    assert german == [4, *plain] and french == [5, *plain]


def test_each_text_is_asked_for_in_the_language_of_its_request(translator):
    texts = ["abc", "", "h g", " "]
    for to, tag in (("de", "<2de>"), ("fr", "<2fr>")):
        assert translator.tagged(texts, to) == [f"{tag} abc", "", f"{tag} h g", " "]
        by_hand = translator.translate([f"{tag} abc", "", f"{tag} h g", " "], beams=2, n_best=2)
        assert translator.translate(texts, to=to, beams=2, n_best=2) == by_hand
        assert translator.translate(texts, to=to)[1::2] == ["", ""]


@pytest.mark.parametrize("ask", ASKED)
def test_a_text_without_a_target_language_is_told_which_there_are(translator, ask):
    expected = r"^Text 0 has no target language: .* into de, fr\. Choose one .*such as <2de>\.$"
    with pytest.raises(ValueError, match=expected):
        ASKED[ask](translator, ["abc"])
    for to in ("de", "fr"):
        by_hand = ASKED[ask](translator, translator.tagged(["abc"], to))
        assert ASKED[ask](translator, ["abc"], to=to) == by_hand


def test_checking_texts_names_the_one_without_a_target_language(translator):
    with pytest.raises(ValueError, match="^Text 1 has no target language"):
        translator.check_texts(["<2de> abc", "abc"])


@pytest.mark.parametrize("ask", ASKED)
def test_another_language_is_refused(translator, dates_translator, ask):
    with pytest.raises(ValueError, match="must be one of de, fr; received to='es'"):
        ASKED[ask](translator, ["abc"], to="es")
    with pytest.raises(ValueError, match="must be left out: it has no tags; received to='de'"):
        ASKED[ask](dates_translator, ["May 1"], to="de")


def test_a_file_keeps_the_directions_and_one_without_tags_says_nothing_of_them(
    translator, saved, dates_translator, tmp_path
):
    loaded = kt.load(saved)
    assert loaded.directions == translator.directions
    assert kt.check_file(saved).settings["directions"] == ["en-de", "en-fr", "fr-de"]
    assert loaded.source_tokenizer.tokens([4, 5]) == ["<2de>", "<2fr>"]
    assert settings_of(loaded)["directions"] == ["en-de", "en-fr", "fr-de"]  # of exports
    assert "directions" not in settings_of(dates_translator)
    dates_translator.save(tmp_path / "dates.keras")
    with zipfile.ZipFile(tmp_path / "dates.keras") as archive:
        assert "directions" not in json.loads(archive.read("config.json"))["config"]


def test_tags_are_lowercased_with_their_texts():
    tokenizer = kt.train_tokenizer(["abc"], model_type="char", reserve=["<2pt_br>"])
    sizes = dict(num_layers=1, d_model=8, num_heads=1, d_ff=8)
    model = kt.Transformer(tokenizer.vocabulary_size(), **sizes)
    translator = kt.Translator(model, tokenizer, lowercase=True, directions=["en-pt_BR"])
    assert translator.tagged(["ABC"], "pt_BR") == ["<2pt_br> abc"]
    translator.check_texts(["<2PT_BR> ABC"])


def test_the_console_translates_and_evaluates_into_a_language(
    translator, saved, run_main, tmp_path
):
    def command(*words):
        words = list(map(str, words))
        return run_main(lambda: cli.main(words), words)

    for to in ("de", "fr"):
        found = command("translate", saved, "--to", to, "abc", "h g", "--scores", "--beams", "2")
        assert [line.split("\t")[1] for line in found.stdout.splitlines()] == [
            cli.lines.one_line(text)
            for text in translator.translate(["abc", "h g"], to=to, beams=2)
        ]
    refused = command("translate", saved, "abc", "h g")
    assert refused.returncode == 1
    assert "TEXT 1 has no target language: this model translates into de, fr" in refused.stderr
    (tmp_path / "source").write_text("abc\n\nh g\n")
    (tmp_path / "reference").write_text("abc\nh\nh g\n")
    files = ["--source", tmp_path / "source", "--reference", tmp_path / "reference"]
    assert command("evaluate", saved, *files, "--to", "fr").returncode == 0
    refused = command("evaluate", saved, *files)
    assert "source, line 1: has no target language" in refused.stderr
