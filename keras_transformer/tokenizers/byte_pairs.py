"""The tokens and merges of byte-level BPE, as files of GPT-2's family have them.

The merges are applied by Hugging Face's library `tokenizers`. The content of a file is checked
first: this module builds the library's object from tokens and merges alone. It needs no Keras.
"""

import contextlib
import json
from typing import Any, NamedTuple

from ..checks import check, imported
from ..ids import END, PADDING, START, UNKNOWN

SPECIAL_TOKENS = {PADDING: "<pad>", UNKNOWN: "\u2047", START: "<s>", END: "</s>"}
OPTIONS: dict[str, dict[str, tuple]] = {  # of GPT-2: the default of each, and what is allowed
    "model": {
        "type": ("BPE", ["BPE"]),
        "dropout": (None, [None, 0]),
        "continuing_subword_prefix": (None, [None, ""]),
        "end_of_word_suffix": (None, [None, ""]),
        "byte_fallback": (None, [None, False]),
        "ignore_merges": (None, [None, False]),
    },
    "pre_tokenizer": {
        "type": (None, ["ByteLevel"]),
        "add_prefix_space": (True, [False]),
        "use_regex": (True, [True]),
    },
    "decoder": {"type": (None, ["ByteLevel"])},
}


class BytePairs(NamedTuple):
    """The tokens and merges of byte-level BPE.

    Args:
        tokens: list of str, in the order of their ids; a character stands for each byte, such as
            U+0120 for the space.
        merges: list of pairs of str, tokens that become one, the first merges first.
    """

    tokens: list[str]
    merges: list[tuple[str, str]]


def read_library(serialized: bytes) -> Any:
    """The `tokenizers.Tokenizer` of a serialized vocabulary.

    Args:
        serialized: bytes, a tokenizer.json as the library writes it.

    Raises:
        ImportError: tokenizers is not installed.
        ValueError: It is not a byte-level BPE, or has other special ids.
    """
    description: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        description = json.loads(serialized)
    check(isinstance(description, dict), "Expected a JSON object", start=serialized[:20])
    tokens, merges = byte_pairs_of(description)
    special = list(SPECIAL_TOKENS.values())
    check(
        tokens[: len(special)] == special,
        f"The ids 0 to 3 must be {', '.join(special)}",
        tokens=tokens[: len(special)],
    )
    return library_of(BytePairs(tokens[len(special) :], merges))


def byte_pairs_of(description: dict[str, Any]) -> BytePairs:
    """The tokens, special ones included, and merges in the description of a tokenizer.

    Args:
        description: dict, the content of a tokenizer.json.

    Raises:
        ValueError: It describes anything but byte-level BPE as GPT-2 has it.
    """
    for part, options in OPTIONS.items():
        for name, (default, allowed) in options.items():
            value = _object(description, part).get(name, default)
            expected = f"Expected {name} of the {part} to be {json.dumps(allowed[0])}"
            check(value in allowed, expected, **{name: value})
    normalizer = description.get("normalizer")
    check(normalizer is None, "Expected no normalizer", normalizer=normalizer)
    model = description["model"]
    ids = {**_object(model, "vocab"), **added_tokens_of(description)}
    return BytePairs(tokens_in_order(ids), pairs_in(model.get("merges")))


def added_tokens_of(description: dict[str, Any]) -> dict[str, Any]:
    """The ids of the tokens that the library recognizes in a text before its BPE.

    Args:
        description: dict, the content of a tokenizer.json.

    Raises:
        ValueError: It is not a list of tokens.
    """
    added = description.get("added_tokens") or []
    plain = isinstance(added, list) and all(isinstance(each, dict) for each in added)
    plain = plain and all(isinstance(each.get("content"), str) for each in added)
    check(plain, "Expected a list of added_tokens", type=type(added).__name__)
    return {each["content"]: each.get("id") for each in added}


def tokens_in_order(ids: dict[str, Any]) -> list[str]:
    """The tokens by their ids.

    Args:
        ids: dict, the id of each token.

    Raises:
        ValueError: The ids are not 0, 1, 2, ...
    """
    plain = all(type(id) is int for id in ids.values())
    check(
        plain and sorted(ids.values()) == list(range(len(ids))),
        "Every token must have an id of its own, 0, 1, 2, ...",
        tokens=len(ids),
    )
    return sorted(ids, key=ids.__getitem__)


def pairs_in(merges: Any) -> list[tuple[str, str]]:
    """Merges as pairs of str.

    Args:
        merges: list of str, each two tokens with a space between them, or of lists of two str.

    Raises:
        ValueError: It is anything else.
    """
    check(isinstance(merges, list), "Expected a list of merges", type=type(merges).__name__)
    pairs = []
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        two = isinstance(pair, list) and len(pair) == 2
        two = two and all(isinstance(token, str) for token in pair)
        check(two, "A merge must be of two tokens", merge=str(merge)[:50])
        pairs.append(tuple(pair))
    return pairs


def _object(value, name):
    found = value.get(name)
    check(isinstance(found, dict), f"Expected an object {name}", type=type(found).__name__)
    return found


def library_of(pairs: BytePairs) -> Any:
    """The `tokenizers.Tokenizer` of tokens and merges.

    Checks come first, without which the library may panic or drop characters.

    Args:
        pairs: `BytePairs`, without special tokens.

    Raises:
        ImportError: tokenizers is not installed.
        ValueError: A byte has no token, a token is duplicated, is not of byte-level BPE or has no
            merge, or a merge is not of tokens.
    """
    tokenizers = imported("tokenizers", "Byte-level BPE")
    alphabet = set(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    missing = sorted(alphabet.difference(pairs.tokens))
    check(not missing, "Every byte must have a token", bytes_without_one=len(missing))
    for token in pairs.tokens:
        check(
            token and alphabet.issuperset(token) and token not in SPECIAL_TOKENS.values(),
            "A token must be one of bytes, and other than the special ones",
            token=token[:50],
        )
    tokens = [*SPECIAL_TOKENS.values(), *pairs.tokens]
    ids = {token: id for id, token in enumerate(tokens)}
    check(len(ids) == len(tokens), "Every token must be there once", tokens=len(tokens))
    for one, other in pairs.merges:
        check(
            one in ids and other in ids and one + other in ids,
            "A merge must be of tokens, and its result must be one",
            merge=(one[:50], other[:50]),
        )
    made = alphabet.union(one + other for one, other in pairs.merges)
    unmade = [token for token in pairs.tokens if token not in made]
    check(
        not unmade,
        "Every token must be one byte, or the result of a merge; some merges are missing",
        tokens_without_a_merge=len(unmade),
    )
    library = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=ids, merges=pairs.merges))
    library.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = tokenizers.decoders.ByteLevel()
    return library
