"""Texts of many scripts, in several normal forms, through every task and what it is exported to."""

import functools
import itertools
import json
import unicodedata

import keras
import numpy as np
import pytest
import regex

import keras_transformer as kt
from engines import assert_same, restless_translator
from keras_transformer import data
from keras_transformer.tokenizers.normal_forms import FORMS, normalized
from keras_transformer.tokenizers.words import (
    SEGMENTATIONS,
    WordVocabulary,
    split_words,
)

# The code points of a script's letters and of what is written above, below and around them.
WITH_BLANKS = {
    "Latin": (0x00C0, 0x024F),
    "Latin for Vietnamese": (0x1EA0, 0x1EF9),
    "Greek": (0x0386, 0x03CE),
    "Greek with accents": (0x1F00, 0x1FBC),
    "Cyrillic": (0x0400, 0x0487),
    "Armenian": (0x0531, 0x0587),
    "Hebrew": (0x05B0, 0x05EA),
    "Arabic": (0x0620, 0x065F),
    "Syriac": (0x0710, 0x074A),
    "Thaana": (0x0780, 0x07B1),
    "N'Ko": (0x07CA, 0x07F3),
    "Samaritan": (0x0800, 0x082D),
    "Mandaic": (0x0840, 0x085B),
    "Devanagari": (0x0900, 0x0963),
    "Bengali": (0x0980, 0x09E3),
    "Gurmukhi": (0x0A01, 0x0A75),
    "Gujarati": (0x0A81, 0x0AE3),
    "Odia": (0x0B01, 0x0B63),
    "Tamil": (0x0B82, 0x0BD7),
    "Telugu": (0x0C00, 0x0C63),
    "Kannada": (0x0C81, 0x0CE3),
    "Malayalam": (0x0D00, 0x0D63),
    "Sinhala": (0x0D81, 0x0DF3),
    "Tibetan": (0x0F40, 0x0FBC),
    "Georgian": (0x10A0, 0x10FA),
    "Hangul": (0xAC00, 0xD7A3),
    "Ethiopic": (0x1200, 0x135F),
    "Cherokee": (0x13A0, 0x13F5),
    "Canadian syllabics": (0x1401, 0x166C),
    "Runic": (0x16A0, 0x16EA),
    "Tagalog": (0x1700, 0x1714),
    "Mongolian": (0x1820, 0x1842),
    "Limbu": (0x1900, 0x193B),
    "Lepcha": (0x1C00, 0x1C37),
    "Glagolitic": (0x2C00, 0x2C5F),
    "Coptic": (0x2C80, 0x2CE4),
    "Tifinagh": (0x2D30, 0x2D67),
    "Vai": (0xA500, 0xA60B),
    "Meetei Mayek": (0xABC0, 0xABED),
    "Gothic": (0x10330, 0x1034A),
    "Deseret": (0x10400, 0x1044F),
    "Adlam": (0x1E900, 0x1E94A),
}
WITHOUT_BLANKS = {
    "Thai": (0x0E01, 0x0E4E),
    "Lao": (0x0E81, 0x0EC8),
    "Burmese": (0x1000, 0x103E),
    "Khmer": (0x1780, 0x17D2),
    "Balinese": (0x1B05, 0x1B44),
    "Hiragana": (0x3041, 0x3096),
    "Katakana": (0x30A1, 0x30FC),
    "Chinese": (0x4E00, 0x9FA5),
    "Chinese in compatibility forms": (0xF900, 0xFA6A),
    "Yi": (0xA000, 0xA48C),
    "Javanese": (0xA984, 0xA9C0),
}
UNSEEN = "\u00ad\u200b\u200e\u2066\ufeff"


@functools.cache
def letters_and_marks(script):
    """Two lists; the second also has zero-width joiners where letters are joined."""
    first, last = (WITH_BLANKS | WITHOUT_BLANKS)[script]
    characters = [chr(point) for point in range(first, last + 1)]
    letters = [one for one in characters if unicodedata.category(one)[0] == "L"]
    marks = [one for one in characters if unicodedata.category(one)[0] == "M"]
    return letters, marks + ["\u200c", "\u200d"] * (0x0600 <= first < 0x0E00)


def a_word(rng, script):
    """A letter, and letters and marks of its script."""
    letters, marks = letters_and_marks(script)
    word = [letters[rng.integers(len(letters))]]
    for _ in range(rng.integers(1, 6)):
        kind = marks if marks and rng.random() < 0.4 else letters
        word.append(kind[rng.integers(len(kind))])
    return "".join(word)


def made_up(number, seed=0, scripts=(*WITH_BLANKS, *WITHOUT_BLANKS)):
    """Texts of some words each, all of one script; in the words' order the scripts take turns."""
    rng = np.random.default_rng(seed)
    chosen = itertools.islice(itertools.cycle(scripts), number)
    return [" ".join(a_word(rng, script) for _ in range(rng.integers(2, 6))) for script in chosen]


def as_typed(text, rng):
    """Each word in another normal form, with invisible characters between its letters."""
    words = [
        unicodedata.normalize(str(rng.choice(["NFC", "NFD"])), word) for word in text.split(" ")
    ]
    with_unseen = (one + str(rng.choice(["", "", *UNSEEN])) for one in " ".join(words))
    return str(rng.choice(["", "\ufeff"])) + "".join(with_unseen)


def forms_of(texts):
    rng = np.random.default_rng(1)
    return {
        "NFC": [unicodedata.normalize("NFC", text) for text in texts],
        "NFD": [unicodedata.normalize("NFD", text) for text in texts],
        "as typed": [as_typed(text, rng) for text in texts],
    }


# Words


@pytest.mark.once
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_between_blanks_is_a_word_in_every_script_that_has_them(form):
    for text in made_up(500, scripts=WITH_BLANKS):
        text = unicodedata.normalize(form, text)
        assert split_words(text) == text.split(" ")


@pytest.mark.once
def test_a_word_is_a_character_with_its_marks_where_there_are_no_blanks():
    for text in made_up(500, scripts=WITHOUT_BLANKS):
        words = split_words(text)
        assert "".join(words) == text.replace(" ", "")
        for word in words:
            if not regex.search(r"\p{InCB=Linker}", word):  # which joins two of them
                letters = [one for one in word if unicodedata.category(one)[0] == "L"]
                assert len(letters) == 1 or letters[1:] in (["\u0e33"], ["\u0eb3"])


@pytest.mark.once
@pytest.mark.parametrize(
    "text, words",
    [
        ("हिन्दी विश्व की भाषा है।", ["हिन्दी", "विश्व", "की", "भाषा", "है", "।"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("مُحَمَّدٌ كِتَابٌ؟", ["مُحَمَّدٌ", "كِتَابٌ", "؟"]),
        ("می\u200cخواهم", ["می\u200cخواهم"]),
        ("צה״ל שָׁלוֹם", ["צה״ל", "שָׁלוֹם"]),
        ("nai\u0308ve d’e\u0301te\u0301", ["nai\u0308ve", "d’e\u0301te\u0301"]),
        ("我用Python3写代码。", ["我", "用", "Python3", "写", "代", "码", "。"]),
        ("コーヒー 3.5杯", ["コ", "ー", "ヒ", "ー", "3.5", "杯"]),
        ("น้ำ ๒๕๖๗", ["น้ำ", "๒๕๖๗"]),
        ("ខ្មែរ", ["ខ្មែ", "រ"]),
        ("한국어는 쉽다", ["한국어는", "쉽다"]),
        ("👨\u200d👩\u200d👧 🇩🇪🇫🇷 ❤️ 👍🏽", ["👨\u200d👩\u200d👧", "🇩🇪", "🇫🇷", "❤️", "👍🏽"]),
        ("\ufeffco\u00adop\u3000x\u200b.", ["co\u00adop", "x\u200b", "."]),
    ],
)
def test_words_of_many_scripts_by_hand(text, words):
    assert split_words(text) == words


@pytest.mark.once
def test_texts_of_unaccented_letters_have_the_words_that_they_always_had():
    characters = [*map(chr, range(128)), *"äöüßéèçñ’“”«»–…€"]
    for row in np.random.default_rng(0).choice(characters, (2000, 30)):
        text = "".join(row)
        assert split_words(text) == split_words(text, "latin")
    assert split_words("हिन्दी", "latin") != ["हिन्दी"]


@pytest.mark.once
def test_a_text_may_be_normalized_before_it_is_split_or_after():
    vocabulary = WordVocabulary([], [])
    for text in made_up(200, seed=3):
        for given in (text, unicodedata.normalize("NFD", text)):
            words = [vocabulary.normalized(word) for word in split_words(given)]
            assert words == vocabulary.split(text)


@pytest.mark.once
@pytest.mark.parametrize("segmentation", SEGMENTATIONS)
def test_a_pattern_for_other_engines_finds_the_same_words(segmentation):
    import re

    pattern = re.compile(SEGMENTATIONS[segmentation].portable)
    rng = np.random.default_rng(4)
    points = rng.integers(0x20, 0x3100, (300, 30)), rng.integers(0x3100, 0x1FFFF, (300, 30))
    for text in ["".join(map(chr, row)) for rows in points for row in rows]:
        assert pattern.findall(text) == SEGMENTATIONS[segmentation].pattern.findall(text)


@pytest.mark.once
def test_what_nobody_sees_is_removed_and_what_shapes_letters_stays():
    assert normalized(f"{UNSEEN}e\u0301{UNSEEN}") == "\u00e9"
    assert normalized("می\u200cخواهم क्\u200dष") == "می\u200cخواهم क्\u200dष"
    assert normalized(f"a{UNSEEN}b", None) == f"a{UNSEEN}b"
    pairs = data.Examples([f"e\u0301{UNSEEN}"], ["a\ufeff"])
    assert data.clean(pairs) == (["\u00e9"], ["a"])


@pytest.mark.once
@pytest.mark.parametrize("form", [*FORMS, None])
@pytest.mark.parametrize("lowercase", [False, True])
def test_a_normalized_text_is_not_changed_again(form, lowercase):
    texts = [chr(n) for n in (*range(0x3400), *range(0xF900, 0x20000))]  # few of them ideographs
    once = [normalized(text, form, lowercase) for text in texts]
    assert [normalized(text, form, lowercase) for text in once] == once
    assert not lowercase or [text.lower() for text in once] == once
    assert normalized("™ Ώ​", "NFKC", lowercase=True) == "tm ώ"


@pytest.mark.once
def test_a_vocabulary_without_a_segmentation_reads_as_the_code_that_wrote_it():
    config = {"words": ["é"], "characters": ["é"], "max_characters": 4}
    old, new = WordVocabulary.from_config(config), WordVocabulary(**config)
    assert old.split("हि人人") == split_words("हि人人", "latin") == ["ह", "ि", "人人"]
    assert [vocabulary.unknown_share([["e\u0301"]]) for vocabulary in (old, new)] == [1.0, 0.0]
    assert WordVocabulary.from_config(old.get_config()).segmentation == "latin"
    with pytest.raises(ValueError, match="segmentation must be one of unicode, latin"):
        WordVocabulary([], [], segmentation="words")
    with pytest.raises(ValueError, match="normalization must be one of NFC"):
        WordVocabulary([], [], normalization="nfc")


@pytest.mark.once
@pytest.mark.parametrize("script", WITHOUT_BLANKS)
def test_every_character_of_a_long_text_without_blanks_is_read(script):
    letters, _ = letters_and_marks(script)
    text = "".join(np.random.default_rng(5).choice(letters[:30], 40))
    vocabulary = WordVocabulary.learn([split_words(text), letters[:31]])
    (given,), _ = vocabulary.encode([vocabulary.split(text)])
    for place in range(40):
        other = text[:place] + letters[30] + text[place + 1 :]
        (changed,), _ = vocabulary.encode([vocabulary.split(other)])
        assert (changed[: place + 1] != given[: place + 1]).any() or len(changed) != len(given)


# Tasks


@pytest.mark.slow
def test_a_classifier_of_chinese_learns_what_is_in_the_middle_of_a_clause():
    rng = np.random.default_rng(0)
    characters = [*"天地人你我他上下左右中大小多少开关来去出入前后里外山水火土木日月星云雨风花草"]

    def clauses(number):
        labels = rng.integers(2, size=number)
        ends = ("".join(row) for row in rng.choice(characters, (2 * number, 12)))
        middles = (("很难看", "很好看")[label] for label in labels)
        rows = zip(ends, middles, ends, strict=False)
        return ["".join(row) for row in rows], [f"{label}" for label in labels]

    texts, labels = clauses(1000)
    words = [split_words(text) for text in texts]
    vocabulary = WordVocabulary.learn(words)
    sizes = dict(num_layers=1, d_model=32, num_heads=2, d_ff=64, dropout=0.0)
    ids = vocabulary.num_words, vocabulary.num_characters
    model = kt.ClassificationModel(*ids, 3, **sizes)
    model.compile(optimizer=keras.optimizers.Adam(3e-3), loss=kt.TokenCrossEntropy())
    label_ids = [1 + int(label) for label in labels]
    model.fit(kt.WordBatches(*vocabulary.encode(words), label_ids, batch_size=32), epochs=6)
    classifier = kt.Classifier(model, vocabulary, ["0", "1"])
    texts, labels = clauses(200)
    found = [each.label for each in classifier.classify(texts)]
    assert np.mean(np.array(found) == labels) > 0.95


@pytest.fixture(scope="module")
def world_tasks(randomize, restless):
    """Tiny tasks with random weights, whose vocabulary knows half of the texts."""
    texts = [normalized(text) for text in made_up(250)]
    vocabulary = WordVocabulary.learn([split_words(text) for text in texts])
    tokenizer = kt.train_tokenizer([*texts, "[MASK]"], model_type="char")
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
    ids = vocabulary.num_words, vocabulary.num_characters
    language = restless(kt.LanguageModel(tokenizer.vocabulary_size(), **sizes, rotary=True))
    return {
        "tag": kt.Tagger(
            randomize(kt.TaggingModel(*ids, 5, **sizes)), vocabulary, ["A", "B", "C", "D"]
        ),
        "classify": kt.Classifier(
            randomize(kt.ClassificationModel(*ids, 4, **sizes)), vocabulary, ["x", "y", "z"]
        ),
        "fill": kt.MaskFiller(randomize(kt.TaggingModel(*ids, ids[0], **sizes)), vocabulary),
        "generate": kt.TextGenerator(
            language, tokenizer, window=64, append_end=False, normalization="NFC"
        ),
        "translate": restless_translator(
            tokenizer, restless, normalization="NFC", max_length_ratio=0.2
        ),
    }


def ask(kind, task, texts):
    match kind:
        case "fill":
            answers = task.fill([f"[MASK] {text}" for text in texts])
        case "generate":
            answers = task.generate(texts, 5, temperature=0)
        case _:
            answers = getattr(task, kind)(texts)
    return json.loads(json.dumps(answers))


KINDS = ["tag", "classify", "fill", "generate", "translate"]


@pytest.mark.parametrize(
    "kind, number",
    [
        *((kind, 60) for kind in KINDS[:3]),  # the others: by their scores
        *(pytest.param(kind, 500, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_a_text_is_the_same_in_every_normal_form(world_tasks, kind, number, tmp_path):
    task = world_tasks[kind]
    answers = {form: ask(kind, task, texts) for form, texts in forms_of(made_up(number)).items()}
    assert answers["NFD"] == answers["as typed"] == answers["NFC"]
    assert len({str(answer) for answer in answers["NFC"]}) > number / 6
    task.save(tmp_path / "model.keras")
    loaded = kt.load(tmp_path / "model.keras")  # the form is in the file
    typed = forms_of(made_up(20))["as typed"]
    assert ask(kind, loaded, typed) == ask(kind, task, typed)


def test_marks_decide(world_tasks):
    texts = [normalized(text) for text in made_up(60)]
    without = ["".join(one for one in text if not unicodedata.combining(one)) for text in texts]
    differ = [one != other for one, other in zip(texts, without, strict=True)]
    answers = [ask("classify", world_tasks["classify"], each) for each in (texts, without)]
    assert [one != other for one, other in zip(*answers, strict=True)] == differ
    assert sum(differ) > 10


def test_scores_are_those_of_every_normal_form(world_tasks):
    forms = forms_of(made_up(30)).values()
    of_texts, of_pairs = world_tasks["generate"].score, world_tasks["translate"].score
    assert [of_texts(texts) for texts in forms] == 3 * [of_texts(next(iter(forms)))]
    assert [of_pairs(texts, texts) for texts in forms] == 3 * [of_pairs(*2 * [next(iter(forms))])]


def test_a_text_of_invisible_characters_is_blank(world_tasks):
    assert world_tasks["translate"].translate([UNSEEN, "", " "]) == ["", "", ""]
    assert world_tasks["tag"].tag([UNSEEN, ""]) == [[], []]


# Exports


@pytest.mark.parametrize(
    "kind, format, number",
    [
        ("tag", "saved_model", 60),
        *(
            pytest.param(kind, format, 500, marks=pytest.mark.slow)
            for kind in KINDS
            for format in ("saved_model", "onnx")
        ),
        *(
            pytest.param(kind, format, 100, marks=pytest.mark.slow)
            for kind, format in [("translate", "ctranslate2"), ("tag", "litert")]
        ),
    ],
)
def test_engines_read_words_and_normal_forms_as_the_task_does(
    world_tasks, run_here, one_thread, kind, format, number
):
    task = world_tasks[kind]
    for texts in forms_of(made_up(number)).values():
        given = [f"[MASK] {text}" for text in texts] if kind == "fill" else texts
        assert_same(run_here(task, format, given, max_tokens=5), ask(kind, task, texts))


@pytest.mark.slow
def test_a_marian_folder_says_how_texts_are_normalized(world_tasks, randomize, run_here):
    tokenizer = world_tasks["translate"].source_tokenizer
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16)
    model = randomize(kt.Transformer(tokenizer.vocabulary_size(), **sizes))
    translator = kt.Translator(model, tokenizer, normalization="NFC")
    forms = forms_of(made_up(20))
    answers = [run_here(translator, "marian", texts) for texts in forms.values()]
    assert answers == 3 * answers[:1]
    assert len(set(answers[0])) > 5
