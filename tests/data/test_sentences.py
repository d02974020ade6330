import random
import re

import pytest

from keras_transformer.data.placeholders import KINDS, placeholder_pattern
from keras_transformer.data.sentences import cut_at_clauses, join_sentences, split_sentences

pytestmark = pytest.mark.once

SENTENCES = {
    "German": [
        "Am 3. Oktober 1990 war es so weit.",
        "Im 19. und 20. Jahrhundert gab es z. B. Äpfel, d. h. Obst.",
        "„Wirklich?“, fragte Dr. Müller.",
        "Das kostet 3.14 € bzw. Ihre Zeit.",
        "Er wohnt in der Hauptstr. 5, Tel. 030 12.",
        "»Geh nach Hause!«",
        "(Das war vorgestern.)",
        "Ich weiß nicht…",
        "„Er rief: ‚Komm!‘“",
        "Freitag, 13. März, bis 1. Mai: Äpfel, Birnen usw. (siehe S. 12.).",
        "Es waren 5 Mio. Menschen.",
        "Das war am 12.11.2026.",
        "Nein!",
    ],
    "English": [
        "Dr. Smith paid $3.50, e.g. for No. 5.",
        "J. R. R. Tolkien and Mrs. Lee met at 5 p.m.",
        '"Come here!" he cried.',
        "She is 20.",
        "So am I.",
        "(It is over.)",
        "“Is it?”",
        "What?!",
        "It was Yahoo! that the U.S. Army bought...",
        "“Go!” Mr. J. R. R. Tolkien shouted.",
        "They use v2.1.0.",
        "I am 20.",
        "See https://a.b/c.",
        "She asked: “He cried ‘No!’”",
        "No.",
    ],
    "Chinese": [
        "他昨天买了一本书。",
        "你好吗？",
        "“走吧！”他说。",
        "她低声问：“走吗？”",
        "“不。”他喊道，“我不走！”",
        "圆周率是3.14。",
        "真的吗？！",
        "「好。」",
        "（完。）",
    ],
}
languages = pytest.mark.parametrize("language", SENTENCES)


def texts_of(language, number, seed=0):
    """Texts of 1 to 5 sentences with all kinds of gaps, each with its sentences and gaps."""
    generator = random.Random(seed)
    gaps = [
        " ",
        "  ",
        "\n",
        "\r\n",
        "\n\n",
        "\n  ",
        "\n- ",
        " \n\t* ",
        "\n\n  3) ",
        "\u2028",
        "\n---\n",
    ]
    if language == "Chinese":
        gaps += [""] * 5
    for _ in range(number):
        sentences = generator.choices(SENTENCES[language], k=generator.choice([1, 2, 3, 5]))
        inner = [generator.choice(gaps) for _ in sentences[1:]]
        yield (
            [generator.choice(["", "\n", "  ", "- "]), *inner, generator.choice(["", "\n"])],
            sentences,
        )


@languages
def test_joined_sentences_are_found_again_with_all_that_was_between_them(language):
    for gaps, sentences in texts_of(language, 1000):
        text = gaps[0] + "".join(s + g for s, g in zip(sentences, gaps[1:], strict=True))
        parts = split_sentences(text)
        assert (parts[1::2], parts[::2]) == (sentences, gaps)


@languages
def test_translations_are_in_the_places_of_their_sentences(language):
    for gaps, sentences in texts_of(language, 200, seed=1):
        parts = [gaps[0]]
        for sentence, gap in zip(sentences, gaps[1:], strict=True):
            parts += [sentence, gap]
        assert join_sentences(parts, sentences) == "".join(parts)
        numbers = [f"T{n}." for n in range(len(sentences))]
        joined = join_sentences(parts, numbers)
        assert re.findall(r"T\d\.", joined) == numbers
        ends = r"[\n\r\u2028]+[\t ]*"
        assert re.findall(ends, joined) == re.findall(ends, "".join(parts))


@pytest.mark.parametrize(
    "text, sentences",
    [
        ("यह ठीक है। मैं हूँ।", ["यह ठीक है।", "मैं हूँ।"]),
        ("كيف حالك؟ أنا بخير.", ["كيف حالك؟", "أنا بخير."]),
        ("« Ça va ? » Oui.", ["« Ça va ? »", "Oui."]),
        ("¿Cómo estás? ¡Bien!", ["¿Cómo estás?", "¡Bien!"]),
        ("»Komm.« »Ja.«", ["»Komm.«", "»Ja.«"]),
        ("hello. how are you?", ["hello.", "how are you?"]),
        ("He left. then", ["He left. then"]),
        ("1. Apples.\n2. Pears. Good.", ["Apples.", "Pears.", "Good."]),
        ("3. Oktober. Regen.", ["3. Oktober.", "Regen."]),
        ("[...] Und er ... Ging. Er", ["[...] Und er ... Ging.", "Er"]),
        ("See example.com/a?b. It works.", ["See example.com/a?b.", "It works."]),
        ("买。买!走吧.走……走", ["买。", "买!", "走吧.", "走……走"]),
        ('"No!" He cried: "So?" Lee asked.', ['"No!"', 'He cried: "So?"', "Lee asked."]),
        ("「走。」我不走。", ["「走。」", "我不走。"]),
        ("他说：「走。」她说：「不。」", ["他说：「走。」", "她说：「不。」"]),
        ("Plan B. Then we left ... The end", ["Plan B.", "Then we left ...", "The end"]),
        ("He is in the U.S. The end", ["He is in the U.S.", "The end"]),
        ("Um ... Menschen. Es gibt u. a. Die", ["Um ... Menschen.", "Es gibt u. a. Die"]),
        ("Es sind 3 Mio. Die Stadt", ["Es sind 3 Mio.", "Die Stadt"]),
        ("A.\u200b \ufeffB? \u200b\nIt is.", ["A.\u200b \ufeffB?", "It is."]),
        ("It is.\u200b\ufeffHe is.\u200b\r\n\f.\r\n", ["It is.", "He is."]),
        ("1.\tOne\t-\tTwo.\tDr.\tThree", ["One", "Two.", "Dr.", "Three"]),
        ("Am 10. 11. 2026. Und", ["Am 10. 11. 2026.", "Und"]),
        ("Mein 2. Buch. Der 100. Tag", ["Mein 2. Buch.", "Der 100. Tag"]),
        ("> > 1) One. Two.\n•Three", ["One.", "Two.", "Three"]),
        ("1. One\n1.1. Two\n", ["One", "Two"]),
        ("1.1. Two", ["1.1. Two"]),
        ("「走。」他说。", ["「走。」他说。"]),
        (" \n---\n___\n.\n", []),
        ("One. — Two. —", ["One.", "— Two."]),
        ("", []),
    ],
)
def test_each_script_has_its_rules(text, sentences):
    parts = split_sentences(text)
    assert parts[1::2] == sentences and "".join(parts) == text


def test_what_is_whole_is_not_split():
    text = "Run `a. B`. Then stop."
    assert split_sentences(text)[1::2] == ["Run `a.", "B`.", "Then stop."]
    assert split_sentences(text, re.compile("`.+?`"))[1::2] == ["Run `a. B`.", "Then stop."]
    pattern = placeholder_pattern(KINDS)
    text = "It is {x}. {y} is 5. `a` is on %s. See https://a.b/c?d. E. on 3. Mai."
    assert split_sentences(text, pattern)[1::2] == [
        "It is {x}.", "{y} is 5.", "`a` is on %s.", "See https://a.b/c?d.", "E. on 3. Mai.",
    ]  # fmt: skip
    pieces = cut_at_clauses("a `b, c` d", lambda text: len(text) < 8, pattern)
    assert pieces == ["a", " ", "`b, c`", " ", "d"]


def test_nothing_of_any_text_is_lost():
    generator = random.Random(0)
    characters = "aB1 .!?…。！」\"')\n\r\t-*“”«»,;ä我।"
    for _ in range(3000):
        text = "".join(generator.choices(characters, k=generator.randint(0, 40)))
        parts = split_sentences(text)
        assert "".join(parts) == text
        assert all(each and each == each.strip() for each in parts[1::2])
        pieces = cut_at_clauses(text, lambda piece: len(piece) <= 5)
        assert "".join(pieces) == text and max(map(len, pieces[::2])) <= 5


@pytest.mark.parametrize(
    "sentence, pieces",
    [
        ("one, two; three, four", ["one, two;", " ", "three, four"]),
        ("one two, three four", ["one two,", " ", "three four"]),
        ("one 1,000 four", ["one 1,000", " ", "four"]),
        ("一二三四五，六七八九十一二", ["一二三四五，", "", "六七八九十一二"]),
        ("abcdefghijklmnop", ["abcdefgh", "", "ijklmnop"]),
        ("short", ["short"]),
    ],
)
def test_a_long_sentence_is_cut_at_its_strongest_mark(sentence, pieces):
    assert cut_at_clauses(sentence, lambda piece: len(piece) <= 11) == pieces


def test_translations_from_chinese_have_the_spaces_that_their_script_needs():
    parts = split_sentences("你好。我很好！\n 好。")
    assert join_sentences(parts, ["Hello.", "I am!", "Good."]) == "Hello. I am!\n Good."
    assert join_sentences(split_sentences("好。“好。”"), ["Good.", '"Good."']) == 'Good. "Good."'
    assert join_sentences(split_sentences("Hi. Yes."), ["你好。", "好。"]) == "你好。 好。"
