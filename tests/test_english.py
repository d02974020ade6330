"""Words that the project's English avoids, each with the one that it uses."""

import pathlib
import re

import pytest

pytestmark = pytest.mark.once

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = (
    "keras_transformer/**/*.py",
    "keras_transformer/**/*.toml",
    "scripts/**/*.py",
    "chapters/*.py",
    "tests/**/*.py",
)
FILES = [
    *(path for folder in FOLDERS for path in sorted(ROOT.glob(folder))),
    *sorted(ROOT.glob("*.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    ROOT / "chapters" / "README.md",
    ROOT / "chapters" / "sayings.md",
]
FILES.remove(ROOT / "tests" / "test_english.py")
FILES = [path for path in FILES if not path.name.endswith(".zh-CN.md")]

QUANTITIES = (
    "batches|bits|bytes|characters|cores?|examples|hours|ids|labels|lines|milliseconds|minutes|MB|"
    "ms|nats|pairs|rows|s|sentences|seconds|steps|texts|threads|times|tokens|updates|words"
)
UNITS = (
    "batch|beam|call|cell|character|core|day|epoch|head|hour|input|label|layer|line|pair|pixel|"
    "prompt|row|run|second(?! (?:time|one))|sentence|shape|side|step|text|token|update|word"
)

HABITS = [  # a pattern, the better words, a text in which the pattern is found
    (rf"(?:{QUANTITIES}) an? (?:{UNITS})", "per", "2,048 target tokens a batch"),
    (rf"an? (?:{UNITS}|thread) each", "one per ...", "they read a token each"),
    ("(?:go|goes|went) on|goes before", "continue, resume, override", "text that goes on"),
    ("so many", "the number itself", "so many translations of each line"),
    ("from nothing", "from scratch", "trained from nothing"),
    ("said", "the prediction, the translation", "what is said"),
    ("held[- ]out", "validation data, test data", "2,000 held-out dates"),
    ("to watch|watch(?:es|ed)", "validation data, monitors", "one pair to watch"),
    ("turned(?! o(?:n|ff))", "rotated, became", "pairs of values are turned"),
    ("again and again|once and again", "repeatedly", "reads it again and again"),
    ("whose turn|by turns", "in turn", "the contender whose turn it is"),
    (r"rooms|(?:this|each|every|another|one) room|\| room \|", "module", "| room | contents |"),
    ("its peers?", "other libraries", "faster than its peers"),
    ("the day's|of the day", "at that date", "the day's numbers"),
    ("put it back", "restore it", "the file has changed; put it back"),
    ("begun|anew", "started, again", "the run was begun"),
    ("told from", "distinguished from", "cannot be told from a word"),
    ("learnt", "learned", "what it has learnt"),
    ("one code(?! point)", "one codebase", "one code for three backends"),
    (r'"""What', "a noun or a verb", '"""What a file holds."""'),
    ("(?:is|are|was|were) none", "is not one, is missing", "the last one is none"),
    (
        r"(?<!here\s)(?:is|are|was|were) no (?!longer|better|faster|larger|less|more|worse)[a-z]+",
        "is not a ...",
        "a folder is no file",
    ),
    ("passed over", "skipped, ignored", "a damaged one is passed over"),
    ("all the same", "nevertheless", "it is read all the same"),
    ("(?:take|takes|taking|took) the place of", "replaces", "it takes the place of the mask"),
    ("of low rank", "low-rank", "updates of low rank"),
    (r"of old(?!\x20[a-z])", "old", "in files of old"),
    ("alike", "the same, similar", "all of them answer alike"),
    (
        r", too(?! (?:early|few|high|late|little|long|low|many|much|short|small|unequal))",
        "also",
        "checks its CRC, too",
    ),
    (r"[Aa]s (?:it is|they are)(?!\x20[a-z])", "unchanged", "it stays as it is"),
    ("(?:[Gg]oing|gone) on", "continuing", "Going on from it"),
    ("[Bb]eside", "compared with, next to, with", "measured beside it"),
    (
        "(?:Args|arguments|Returns|[Rr]aises): (?:as|those of)",
        "each of them",
        "Raises: as `greedy`.",
    ),
]
TRUE_USES = {
    ("scripts/generated_english.py", "said"),  # words of the grammar
    ("scripts/generated_english.py", "watched"),
    ("keras_transformer/training/run.py", "begun"),  # a key of settings.json
    ("tests/tokenizers/test_words.py", "said"),  # a word to split
    ("keras_transformer/data/sentences.py", "said"),  # after a quotation
    ("chapters/05_positions.py", "alike"),  # in code
    ("chapters/14_bert_gpt_vit.py", "alike"),
}
PLACES = {"beside", "Beside"}  # of words and vectors, in the code of chapters and tests
A_GAP = r"(?:\s|\n *#)+"  # phrases continue on the next line, also of a comment


def habits_in(text):
    """Yields (line, words, better words) for each place of a text that has one of the habits."""
    text = re.sub("(?<=def )test_.*", lambda name: name[0].replace("_", " "), text)
    for pattern, better, _ in HABITS:
        pattern = rf"(?<!\w)(?:{pattern})(?!\w)".replace(" ", A_GAP)
        if pattern.startswith(r"(?<!\w)(?:,"):  # follows a word
            pattern = pattern.removeprefix(r"(?<!\w)")
        for found in re.finditer(pattern, text):
            yield text.count("\n", 0, found.start()) + 1, found[0], better


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_text_has_no_words_for_which_the_field_has_better_ones(path):
    name = str(path.relative_to(ROOT))
    has_places = name.startswith(("chapters/", "tests/")) and path.suffix == ".py"
    places = [
        f"{name}:{line}: {words!r}; better: {better}"
        for line, words, better in habits_in(path.read_text("utf-8"))
        if (name, words) not in TRUE_USES and not (has_places and words in PLACES)
    ]
    assert not places, "\n".join(places)


@pytest.mark.parametrize("example", [example for _, _, example in HABITS])
def test_each_habit_is_found(example):
    assert [line for line, _, _ in habits_in(example)] == [1]


def test_a_habit_is_found_in_the_name_of_a_test():
    assert list(habits_in("def test_a_search_goes_on():")) == [
        (1, "goes on", "continue, resume, override")
    ]


def test_a_habit_is_found_across_lines():
    assert list(habits_in("# text that goes\n    # on")) == [
        (1, "goes\n    # on", "continue, resume, override")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "fills a batch",
        "returned",
        "it is turned off",
        "the state has room for 8 tokens",
        "shuffles the batches a second time",
        "not so much",
        "one code point",
        "there is no file",
        "it is no longer read",
        "two passes over the data",
        "texts, too many for it",
        "counted as it is read",
    ],
)
def test_other_uses_are_not_habits(text):
    assert not list(habits_in(text))
