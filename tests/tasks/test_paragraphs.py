import random
import re

import pytest

import keras_transformer as kt
from keras_transformer.checks import TextError
from keras_transformer.data.placeholders import KINDS, MASKS, placeholder_pattern
from keras_transformer.interchange.vocabularies import settings_of
from keras_transformer.tasks.paragraphs import Reading, translate_paragraphs

EMPTY = [kt.Hypothesis("", 0.0, True)] * 2
ALL = placeholder_pattern(KINDS)
SENTENCES = {
    "German": ["Am 3. Oktober kam Dr. Müller.", "Das kostet z. B. 3.14 €.", "„Nein!“", "Wirklich?"],
    "English": ["Dr. Lee paid 3.50.", 'He cried: "Go!"', "(It is over.)", "Is it? No. 5 is."],
    "Chinese": ["他昨天买了一本书。", "圆周率是3.14。", "你好吗？"],
}


class StandIn:
    """Upper-cases sentences, or writes their words backwards; remembers what it was asked."""

    def __init__(self, change=str.upper):
        self.change, self.asked, self.places = change, [], []

    def __call__(self, texts, places):
        self.asked.append(list(texts))
        self.places.append(list(places))
        return [self.hypotheses(text) for text in texts]

    def hypotheses(self, text):
        changed = self.change(text) if text.strip() else ""
        score = -float(len(text))
        return [
            kt.Hypothesis(changed, score, True),
            kt.Hypothesis(changed + " bis", 2 * score, True),
        ]


def backwards(sentence):
    return " ".join(reversed(sentence.split(" ")))


def lengths(texts):
    return list(map(len, texts))


def translated(texts, translate, longest=1000, **options):
    reading = Reading(lengths, longest, "always", **options)
    return translate_paragraphs(texts, translate, EMPTY, reading)


@pytest.mark.once
@pytest.mark.parametrize("language", SENTENCES)
@pytest.mark.parametrize("change", [str.upper, backwards])
def test_a_paragraph_is_the_translations_of_its_sentences_in_their_places(language, change):
    generator = random.Random(0)
    gaps = ["\n", "\n\n", "\r\n  - ", " \n\t"] + ([""] if language == "Chinese" else [" ", "  "])
    texts, expected, number = [], [], 0
    for length in [1, 2, 3, 5] * 25:
        sentences = generator.choices(SENTENCES[language], k=length)
        between = generator.choices(gaps, k=length)
        texts.append("".join(map("".join, zip(between, sentences, strict=True))) + "\n")
        singles = [translated([each], StandIn(change))[0][0] for each in sentences]
        rows = zip(between, singles, strict=True)
        expected.append("".join(gap + single.text for gap, single in rows) + "\n")
        number += length
    stand_in = StandIn(change)
    found = translated(texts, stand_in)
    assert [each[0].text for each in found] == expected
    assert len(stand_in.asked) == 1 and len(stand_in.asked[0]) >= number


@pytest.mark.once
def test_the_nth_translations_are_joined_and_their_scores_added():
    (found,) = translated(["Ab. Cde."], StandIn())
    assert found == [
        kt.Hypothesis("AB. CDE.", -7.0, True),
        kt.Hypothesis("AB. bis CDE. bis", -14.0, True),
    ]
    cut_off = StandIn()
    cut_off.hypotheses = lambda text: [kt.Hypothesis(text, None, text != "Ab.")] * 2
    assert translated(["Ab. Cd.", "Cd."], cut_off) == [
        [kt.Hypothesis("Ab. Cd.", None, False)] * 2,
        [kt.Hypothesis("Cd.", None, True)] * 2,
    ]


@pytest.mark.once
def test_a_text_without_words_is_kept():
    assert [each[0].text for each in translated(["", " \n\n", "---\n"], StandIn())] == [
        "", " \n\n", "---\n",
    ]  # fmt: skip


@pytest.mark.once
def test_a_sentence_that_does_not_fit_is_cut_and_not_finished():
    stand_in = StandIn()
    found = translated(["One two, three. Four."], stand_in, longest=9)
    assert stand_in.asked == [["One two,", "three.", "Four."]]
    assert found[0][0] == kt.Hypothesis("ONE TWO, THREE. FOUR.", -19.0, False)


@pytest.mark.once
def test_a_text_that_cannot_be_read_is_named_by_its_place_among_the_texts():
    def refuse(sentences, places):
        raise TextError(sentences.index("Bad."), "must be shorter")

    with pytest.raises(TextError, match="Text 1 must be shorter"):
        translated(["A1. B1. C1.", "D1. Bad."], refuse)
    stand_in, texts = StandIn(lambda text: "" if "{" in text else text), ["A.", "{x} Bad. {y}"]

    def refuse_pieces(sentences, places):
        return refuse(sentences, places) if stand_in.asked else stand_in(sentences, places)

    with pytest.raises(TextError, match="Text 1 must be shorter"):
        translate_paragraphs(
            texts, refuse_pieces, EMPTY, Reading(lengths, 99, "never", pattern=ALL)
        )


@pytest.mark.once
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "change", [str.upper, backwards, lambda text: f"{text} {text}", lambda _: ""]
)
def test_each_placeholder_is_in_the_translation_exactly_once(masked, change, caplog):
    parts = ["https://a.b/C?d=e", "{x}", "<b>", "</b>", "%s", "~/a/b.py", "a.b@c.de", "`a. B`"]
    generator, texts, expected = random.Random(0), [], []
    for _ in range(100):
        chosen = generator.sample(parts, generator.randint(1, 4))
        texts.append(" ".join(f"word {part}" for part in chosen) + " word. More words.")
        expected.append(sorted(chosen))
    found = translated(texts, StandIn(change), pattern=ALL, masked=masked)
    for text, (first, second), chosen in zip(texts, found, expected, strict=True):
        for each in (first.text, second.text):
            assert sorted(match[0] for match in ALL.finditer(each)) == chosen, text
    kept = masked and change in (str.upper, backwards)
    assert ("in pieces" in caplog.text) == (not kept)


@pytest.mark.once
def test_a_model_that_knows_masks_reads_them_and_others_read_the_text():
    for masked, asked in ((True, "See ⟦0⟧ now."), (False, "See {x} now.")):
        stand_in = StandIn(str.lower)
        found = translated(["See {x} now."], stand_in, pattern=ALL, masked=masked)
        assert stand_in.asked[0] == [asked] and found[0][0].text == "see {x} now."


@pytest.mark.once
def test_a_sentence_that_loses_a_placeholder_is_translated_around_it(caplog):
    stand_in = StandIn(lambda text: text.replace("{x}", "").upper())
    found = translated(["See {x} now. Stop.", "{x}"], stand_in, pattern=ALL)
    assert stand_in.asked == [["See {x} now.", "Stop.", ""], ["See", "now."]]
    assert stand_in.places == [[(0,), (0, 1), (1,)], [(0, 0, 1), (0, 0, 2)]]
    assert [each[0].text for each in found] == ["SEE {x} NOW. STOP.", "{x}"]
    assert "Of 3 sentences 1 were translated in pieces" in caplog.text


@pytest.mark.once
@pytest.mark.parametrize("masked", [False, True])
def test_texts_without_words_stay_as_they_are_with_placeholders(masked):
    texts = ["???", "\N{GRINNING FACE}", "-- {x} !", "A dog. !!! {x}?", ""]
    found = translated(texts, StandIn(), pattern=ALL, masked=masked)
    expected = [*texts[:3], "A DOG. !!! {x}?", ""]
    assert [each.text for each, _ in found] == expected
    assert all(each.finished for each, _ in found)


def test_a_stream_writes_what_is_translated_also_without_words(dates_translator):
    for text in ("???", "May 3, 2021", "May 3, 2021. ?!", " ", ""):
        for when in ("always", "never"):
            options = dict(placeholders=["url"], sentences=when)
            (whole,) = dates_translator.translate([text], beams=1, **options)
            assert "".join(dates_translator.stream(text, **options)) == whole


def test_texts_longer_than_the_training_data_are_split_and_others_are_not(dates_translator, dates):
    first, second = sorted(dates.test.source, key=len)[:2]
    single = dates_translator.translate([first, second])
    together, lines = f"{first}.  {second}!", f"{first}\n{second}"
    joined = [f"{single[0]}  {single[1]}", "\n".join(single)]
    options = {"sentences": "always"}
    assert dates_translator.translate([f"{first}\n{second}"], **options) == joined[1:]
    whole = dates_translator.translate([together, lines], sentences="never")
    assert dates_translator.translate([together, lines]) == whole  # not known: as one sentence
    (alone,) = dates_translator.translate([first])
    (length,) = dates_translator.num_tokens([together])
    always = dates_translator.translate([together, lines], **options)
    for trained, expected in ((length - 1, always), (length, [whole[0], always[1]])):
        dates_translator.trained_length = trained
        try:
            assert dates_translator.translate([together, lines]) == expected
            assert dates_translator.translate([f" {first}\n"]) == [f" {alone}\n"]
            assert dates_translator.translate(["  ", "\t", ""]) == ["", "", ""]
            assert dates_translator.translate([together, lines], sentences="never") == whole
        finally:
            dates_translator.trained_length = None


def test_the_trained_length_and_placeholders_are_in_the_file(dates_translator, tmp_path):
    config = dates_translator.get_config()
    assert "trained_length" not in config and "placeholders" not in config
    other = kt.Translator(
        dates_translator.transformer,
        dates_translator.source_tokenizer,
        trained_length=30,
        placeholders=["url"],
    )
    other.save(tmp_path / "model.keras")
    loaded = kt.load(tmp_path / "model.keras")
    assert (loaded.trained_length, loaded.placeholders) == (30, ("url",))
    exported = settings_of(loaded)
    assert (exported["trained_length"], exported["placeholders"]) == (30, ["url"])
    assert not {"trained_length", "placeholders"} & settings_of(dates_translator).keys()


def test_batches_know_the_length_that_one_percent_of_the_sources_exceed():
    source = [[5] * 10] * 197 + [[5] * 20, [5] * 30, [5] * 40]
    batches = kt.data.TranslationBatches(source, [[5]] * 200)
    assert batches.trained_length == 21


def test_sampling_and_streams_read_paragraphs_as_translations_do(dates_translator, dates):
    lines = sorted(dates.test.source, key=len)[:3]
    text, options = "- " + "\n\n".join(lines), {"sentences": "always", "batch_size": 1}
    (expected,) = dates_translator.translate([text], **options)
    pieces = list(dates_translator.stream(text, **options))
    assert "".join(pieces) == expected and len(pieces) > len(lines)
    options |= dict(temperature=5.0)
    first, _ = dates_translator.sample([text, lines[0]], seed=3, **options)
    singles = dates_translator.sample(lines[:1], seed=3, **options)
    assert first.startswith(f"- {singles[0]}\n\n") and first.count("\n\n") == 2
    assert "".join(dates_translator.stream(text, seed=3, **options)) == first
    (repeated,) = dates_translator.sample(["\n".join(lines[:1] * 3)], seed=3, **options)
    assert len(set(repeated.split("\n"))) == 3  # each sentence has a seed of its own
    kept = dict(placeholders=[r"X\d"], sentences="never")
    for seed in (None, 3):
        streamed = list(dates_translator.stream("X1", seed=seed, **kept))
        assert streamed == ["X1"]


def test_a_text_is_tokenized_once(dates_translator, dates, monkeypatch):
    texts, encoded = sorted(dates.test.source, key=len)[:3], []
    tokenizer = dates_translator.source_tokenizer
    encode = tokenizer.encode

    def counting(texts, **options):
        encoded.extend(texts)
        return encode(texts, **options)

    monkeypatch.setattr(tokenizer, "encode", counting)
    monkeypatch.setattr(dates_translator, "trained_length", 50)
    dates_translator.translate([*texts, "\n".join(texts)])
    assert sorted(encoded) == sorted([*texts, "\n".join(texts)])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sentences": "yes"}, "sentences must be one of auto, always, never; received"),
        ({"sentences": "always", "prefixes": ["2"]}, "Texts with prefixes or tags are not split"),
        ({"placeholders": ["urls"]}, "A placeholder must be one of url"),
        ({"placeholders": ["url"], "prefixes": ["2"]}, "with prefixes or tags have no placeh"),
    ],
)
def test_an_option_that_cannot_be_is_refused(dates_translator, options, message):
    with pytest.raises(ValueError, match=message):
        dates_translator.translate(["May 5, 2019"], **options)


def test_scores_of_a_paragraph_are_sums(dates_translator, dates):
    lines = sorted(dates.test.source, key=len)[:3]
    singles = dates_translator.translate(lines, beams=3, n_best=2, return_scores=True)
    options = dict(beams=3, n_best=2, return_scores=True, sentences="always")
    (found,) = dates_translator.translate(["\n".join(lines)], **options)
    for rank, each in enumerate(found):
        assert each.text == "\n".join(single[rank].text for single in singles)
        assert each.score == pytest.approx(sum(single[rank].score for single in singles), abs=1e-4)


@pytest.mark.slow
@pytest.mark.once
def test_a_shipped_model_translates_joined_sentences_as_single_ones():
    translator = kt.load("zh-en")
    singles = ["他昨天买了一本书。", "你好吗？", "我不知道。", "今天天气很好。", "他们在哪里？"]
    known = dict(zip(singles, translator.translate(singles), strict=True))
    together = " ".join(map(known.get, singles))
    assert translator.translate(["".join(singles)]) == [together]  # longer than its training data
    generator, texts, expected = random.Random(0), [], []
    for length in [1, 2, 3, 5] * 10:
        chosen = generator.choices(singles, k=length)
        ends = generator.choices(["\n", "\n\n", "\n  ", " "], k=length)
        texts.append("".join(map("".join, zip(chosen, ends, strict=True))))
        rows = zip(chosen, ends, strict=True)
        expected.append("".join(known[each] + end for each, end in rows))
    found = translator.translate(texts, sentences="always")
    equal = sum(a == b for a, b in zip(found, expected, strict=True))
    assert equal >= 0.995 * len(texts)
    for text, translation in zip(texts, found, strict=True):
        assert re.findall(r"\n *", text) == re.findall(r"\n *", translation)
    urls = [f"请看https://a.b/c{number}?d=e。" for number in range(20)]
    for text, translation in zip(
        urls, translator.translate(urls, placeholders=["url"]), strict=True
    ):
        assert translation.count(text[2:-1]) == 1 and not any(mask in translation for mask in MASKS)
