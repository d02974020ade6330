"""English made from a seed, by grammars: tags, labels and plain text, for tasks that need no data.

A grammar is a table from a symbol to its alternatives, all equally probable (one that stands
there twice is twice as probable). What is not in the table is a word.
"""

import functools
import math
import random

from ..arguments import check_at_least
from .examples import LabelledTexts, Splits, TaggedSentences

# Tagged sentences. Most words have more than one tag; which, only the others tell.

_EITHER = "duck walk play dream plant paint visit call watch fish".split()  # nouns and verbs
_NOUNS = [*_EITHER, *"dog cat tree river letter doctor saw can will".split()]
_HEADS = "pond shop house park".split()  # what a noun before a noun may belong to; never verbs
_VERBS = [*_EITHER, "open", "follow", "see"]
_TRANSITIVE = ["like", "can"]
_ONSETS = "b bl br d dr f fl g gl gr k kl l m n p pl pr r sk sl sm sn sp st t tr v z".split()
_CODAS = "ck ft lk lp mp nd ng nk nt rk rt st".split()
_VOWELS = "aeiou"


def _with_s(word):
    return word + ("es" if word.endswith(("ch", "sh")) else "s")


def _with_ed(word):
    irregular = {"can": "canned", "see": "saw"}
    return irregular.get(word, word + ("d" if word.endswith("e") else "ed"))


# The tag of a class of words, the words, and how an invented stem ends where it joins them.
WORD_CLASSES = {
    "N": ("NOUN", _NOUNS, ""),
    "Ns": ("NOUN", [_with_s(noun) for noun in _NOUNS], "s"),
    "Head": ("NOUN", _HEADS, None),
    "Heads": ("NOUN", [_with_s(noun) for noun in _HEADS], None),
    "Name": ("PROPN", [], None),  # each made of syllables
    "V": ("VERB", _VERBS, ""),
    "Vs": ("VERB", [_with_s(verb) for verb in _VERBS], "s"),
    "Ved": ("VERB", [_with_ed(verb) for verb in _VERBS], "ed"),
    "T": ("VERB", _TRANSITIVE, None),
    "Ts": ("VERB", [_with_s(verb) for verb in _TRANSITIVE], None),
    "Ted": ("VERB", [_with_ed(verb) for verb in _TRANSITIVE], None),
    "Want": ("VERB", ["wants", "wanted", "hopes", "hoped"], None),
    "Know": ("VERB", ["knows", "knew", "says", "said"], None),
    "Can": ("AUX", ["can", "will", "must", "should"], None),
    "Adj": ("ADJ", "fast early small old red happy".split(), "ish"),
    "Adv": ("ADV", "fast early quickly slowly".split(), "ly"),
    "Ly": ("ADV", ["quickly", "slowly"], "ly"),
    "A": ("DET", ["a", "the", "this", "that", "every"], None),
    "Some": ("DET", ["the", "these", "those", "some"], None),
    "Num": ("NUM", ["two", "three", "ten"], None),
    "My": ("PRON", ["my", "his", "her"], None),
    "He": ("PRON", ["he", "she", "it"], None),
    "They": ("PRON", ["they", "we", "you", "I"], None),
    "Him": ("PRON", ["him", "her", "it", "you", "that"], None),
    "Prep": ("ADP", ["to", "like", "before", "under", "with"], None),
    "to": ("PART", ["to"], None),
    "not": ("PART", ["not"], None),
    "that": ("SCONJ", ["that"], None),
    "before": ("SCONJ", ["before", "because"], None),
    "and": ("CCONJ", ["and", "but"], None),
    "is": ("AUX", ["is", "was"], None),
    "are": ("AUX", ["are", "were"], None),
    ",": ("PUNCT", [","], None),
    ".": ("PUNCT", ["."], None),
}
TAGGED = {
    "Sentence": ["Clause .", "Clause .", "Clause , and Clause .", "Clause before Clause ."],
    "Clause": ["Fact", "Fact", "Fact", "One Know that Fact"],
    "Fact": [
        "One Does",
        "Many Do",
        "Anyone Did",
        "Anyone Ly Did",
        "Anyone Can Do",
        "Anyone Can not Do",
        "One Want to Do",
        "One is Adj",
        "Things are Adj",
    ],
    "Do": ["V Where", "V Object Where", "T Object Where"],
    "Does": ["Vs Where", "Vs Object Where", "Ts Object Where"],
    "Did": ["Ved Where", "Ved Object Where", "Ted Object Where"],
    "Where": ["", "", "Adv", "Prep Object", "Prep Object Adv"],
    "Object": ["Thing", "Thing", "Things", "Name", "Him"],
    "Anyone": ["One", "Many"],
    "One": ["Thing", "Thing", "Name", "He"],
    "Many": ["Things", "They"],
    "Thing": ["A N", "A N", "A Adj N", "My N", "My Adj N", "A N Head"],
    "Things": ["Some Ns", "Some Adj Ns", "My Ns", "Num Ns", "Some N Heads"],
}
_KNOWN = {word.lower() for _, words, _ in WORD_CLASSES.values() for word in words}


def tagged_sentences(num_train=10_000, num_valid=1_000, num_test=1_000, seed=0):
    """English sentences with Universal parts of speech: "I saw a saw ." -> PRON VERB DET NOUN PUNCT

    Many words have several tags, as in "They can can the can" and "Her duck ducks"; names, and
    some stems (blomp, blomped, blomply), are invented, so that no split knows all words of
    another. Yet each sentence has one tagging only.

    Args:
        num_train: int, sentences to learn from.
        num_valid: int, sentences to choose settings on.
        num_test: int, sentences to judge by. No sentence occurs twice.
        seed: int; the same seed gives the same sentences.

    Returns:
        Splits of TaggedSentences.

    Raises:
        ValueError: If a number is negative.
    """

    def draw(generator):
        classes = _draw(TAGGED, "Sentence", generator)
        words = [_word(name, generator) for name in classes]
        words[0] = words[0][0].upper() + words[0][1:]
        return tuple(words), tuple(WORD_CLASSES[name][0] for name in classes)

    splits = _distinct(draw, (num_train, num_valid, num_test), seed)
    return Splits(
        *(
            TaggedSentences([list(words) for words, _ in split], [list(tags) for _, tags in split])
            for split in splits
        )
    )


def _word(name, generator):
    _, words, suffix = WORD_CLASSES[name]
    if name == "Name":
        return _invented(lambda: _syllables(generator).capitalize())
    if suffix is not None and generator.random() < 0.15:
        return _invented(lambda: _stem(generator)) + suffix
    return generator.choice(words)


def _invented(draw):
    """The first drawn that is no word already."""
    return next(word for word in iter(draw, None) if word.lower() not in _KNOWN)


def _stem(generator):
    return "".join(generator.choice(letters) for letters in (_ONSETS, _VOWELS, _CODAS))


def _syllables(generator):
    return "".join(
        generator.choice("bdfklmnprstvz") + generator.choice(_VOWELS)
        for _ in range(generator.choice((2, 3, 3)))
    )


# Reviews. Good words are praise, unless they are denied or another clause outweighs theirs.

REVIEWS = {
    "positive": [
        "Praise .",
        "Neutral , and Praise .",
        "Neutral , and Praise .",
        "Blame , but Praise .",
        "Praise , although Blame .",
        "although Blame , Praise .",
    ],
    "negative": [
        "Blame .",
        "Neutral , and Blame .",
        "Neutral , and Blame .",
        "Praise , but Blame .",
        "Blame , although Praise .",
        "although Praise , Blame .",
    ],
    "Praise": ["Plain_praise", "Plain_praise", "Denied_blame"],
    "Blame": ["Plain_blame", "Plain_blame", "Denied_praise"],
    "Plain_praise": [
        "the Part is Much Good",
        "it is a Much Good Film",
        "I Liked the Part of this Film",
    ],
    "Plain_blame": [
        "the Part is Much Bad",
        "it is a Much Bad Film",
        "I Disliked the Part of this Film",
    ],
    "Denied_praise": [
        "the Part is No Much Good",
        "it is No a Much Good Film",
        "I did not Like the Part of this Film",
    ],
    "Denied_blame": [
        "the Part is No Much Bad",
        "it is No a Much Bad Film",
        "I did not Dislike the Part of this Film",
    ],
    "Good": (
        "good great wonderful fine brilliant lovely charming moving funny clever fresh superb "
        "tender witty gripping elegant"
    ).split(),
    "Bad": (
        "bad dull terrible poor boring weak tiresome silly clumsy awful flat ugly stupid sloppy "
        "shallow dreary"
    ).split(),
    "Liked": "liked loved enjoyed admired".split(),
    "Like": "like love enjoy admire".split(),
    "Disliked": "disliked hated resented regretted".split(),
    "Dislike": "dislike hate resent regret".split(),
    "No": ["not", "never", "hardly", "anything but"],
    "Much": ["", "very", "really", "truly"],
    "Part": (
        "acting story plot music dialogue script ending cast pace photography opening humour "
        "suspense scenery singing dancing editing lighting romance action"
    ).split(),
    "Film": "film movie picture comedy thriller drama western musical sequel remake".split(),
    "Neutral": ["We saw it Where When", "We watched it When", "We went to see it Where"],
    "We": ["I", "we", "my friends", "my sister and I", "both of us", "the whole class"],
    "Where": ["at home", "in town", "in Paris", "on a plane", "at the Roxy", "on television"],
    "When": "yesterday today twice again recently".split() + ["on Friday", "in May", "last week"],
}


def reviews(num_train=10_000, num_valid=1_000, num_test=1_000, seed=0):
    """Short reviews, "positive" or "negative", whose words alone do not tell which.

    "The plot is not bad." is praise; of "The acting is dull, but the story is great." the clause
    after "but" decides, and of one with "although" the other clause.

    Args:
        num_train: int, reviews to learn from.
        num_valid: int, reviews to choose settings on.
        num_test: int, reviews to judge by. No review occurs twice.
        seed: int; the same seed gives the same reviews.

    Returns:
        Splits of LabelledTexts.

    Raises:
        ValueError: If a number is negative.
    """

    def draw(generator):
        label = generator.choice(("positive", "negative"))
        text = " ".join(_draw(REVIEWS, label, generator))
        text = text.replace(" ,", ",").replace(" .", ".")
        return text[0].upper() + text[1:], label

    splits = _distinct(draw, (num_train, num_valid, num_test), seed)
    return Splits(
        *(
            LabelledTexts([text for text, _ in split], [label for _, label in split])
            for split in splits
        )
    )


# Plain text of known entropy. Subject and verb agree, across what stands between them.

TEXT = {
    "Sentence": ["One Does", "Many Do", "One Did", "Many Did"],
    "One": ["Each Noun", "Each Adj Noun", "Each Noun Near"],
    "Many": ["Some Nouns", "Some Adj Nouns", "Some Nouns Near"],
    "Each": ["the", "the", "a", "this"],
    "Some": ["the", "the", "two", "all"],
    "Near": ["in the Place", "by the Place"],
    "Does": ["Sees Object", "Goes", "Goes How"],
    "Do": ["See Object", "Go", "Go How"],
    "Did": ["Saw Object", "Went", "Went How"],
    "Object": ["it", "me", "us", "my Noun", "my Nouns"],
    "Noun": "dog cat boy girl cow hen".split(),
    "Nouns": "dogs cats boys girls cows hens".split(),
    "Adj": "old big red shy".split(),
    "Place": "park barn lake".split(),
    "Sees": "sees likes fears".split(),
    "See": "see like fear".split(),
    "Saw": "saw liked feared".split(),
    "Goes": "sings runs sleeps".split(),
    "Go": "sing run sleep".split(),
    "Went": "sang ran slept".split(),
    "How": "well here now".split(),
}


def grammar_text(num_sentences=20_000, seed=0):
    """Short sentences, one a line: "the hens by the lake like my dog".

    Each is drawn independently from the grammar `TEXT`, so what a model of them can reach at
    best is known: `grammar_nats`.

    Args:
        num_sentences: int.
        seed: int; the same seed gives the same text, another seed one drawn independently.

    Returns:
        str; each sentence ends with a newline.

    Raises:
        ValueError: If the number is negative.
    """
    check_at_least(0, num_sentences=num_sentences)
    generator = random.Random(seed)
    lines = (" ".join(_draw(TEXT, "Sentence", generator)) for _ in range(num_sentences))
    return "".join(f"{line}\n" for line in lines)


def grammar_nats(text):
    """What the source of `grammar_text` itself needs to tell this text: -log p(text) / characters.

    No model can do better on average; the exponential is the perplexity to compare with.

    Args:
        text: str, whole sentences, each ended by a newline.

    Returns:
        Float, nats per character, newlines counted.

    Raises:
        ValueError: If the text is empty or holds a line that the grammar does not produce.
    """
    lines = text.removesuffix("\n").split("\n")
    total = 0.0
    for number, line in enumerate(lines, start=1):
        probability = _line_probability(line) if text.endswith("\n") else 0.0
        if not probability:
            raise ValueError(
                f"line {number}: expected a sentence of the grammar and a newline, received "
                f"{line!r:.60}. Pass whole lines of grammar_text."
            )
        total -= math.log(probability)
    return total / len(text)


def grammar_entropy():
    """Nats per character of `grammar_text` in the long run: what `grammar_nats` is on average.

    H(sentence) / E[characters of a sentence]. With H(symbol) = log n + mean of H(alternatives)
    for n different alternatives, as every sentence is derived in one way only.

    Returns:
        Float.
    """
    nats, characters = _expected("Sentence")
    return nats / characters  # the newline in place of the space that the last word lacks


@functools.cache
def _expected(symbol):
    """Mean nats and mean characters of what a symbol produces, with a space after each word."""
    if symbol not in TEXT:
        return 0.0, len(symbol) + 1
    alternatives = TEXT[symbol]
    nats = characters = 0.0
    for alternative in alternatives:
        parts = [_expected(part) for part in alternative.split()]
        share = alternatives.count(alternative) / len(alternatives)
        nats += (sum(part[0] for part in parts) - math.log(share)) / len(alternatives)
        characters += sum(part[1] for part in parts) / len(alternatives)
    return nats, characters


@functools.lru_cache(maxsize=100_000)
def _line_probability(line):
    words = tuple(line.split(" "))
    return _inside("Sentence", words).get(len(words), 0.0)


def _inside(symbol, words, start=0):
    """Where what a symbol produces from `start` on can end: a dict from end to probability."""
    if symbol not in TEXT:
        return {start + 1: 1.0} if words[start : start + 1] == (symbol,) else {}
    ends = {}
    for alternative in TEXT[symbol]:
        reached = {start: 1 / len(TEXT[symbol])}
        for part in alternative.split():
            following = {}
            for middle, before in reached.items():
                for end, probability in _inside(part, words, middle).items():
                    following[end] = following.get(end, 0.0) + before * probability
            reached = following
        for end, probability in reached.items():
            ends[end] = ends.get(end, 0.0) + probability
    return ends


# All grammars


def _draw(grammar, symbol, generator):
    """The words of one of the texts that a symbol stands for, drawn at random."""
    if symbol not in grammar:
        return [symbol]
    parts = generator.choice(grammar[symbol]).split()
    return [word for part in parts for word in _draw(grammar, part, generator)]


def _distinct(draw, sizes, seed):
    """Lists of what `draw` draws, as long as `sizes` say; nothing in it twice."""
    for name, size in zip(("num_train", "num_valid", "num_test"), sizes, strict=True):
        check_at_least(0, **{name: size})
    generator = random.Random(seed)
    drawn = {}  # a set that keeps its order
    while len(drawn) < sum(sizes):
        drawn[draw(generator)] = None
    drawn = iter(drawn)
    return [[next(drawn) for _ in range(size)] for size in sizes]
