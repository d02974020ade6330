"""The vocabulary of a GPT-2 model as a tokenizer of ours, whose ids have our order."""

import pathlib
from typing import NamedTuple

from ...checks import check
from ...tokenizers.byte_level import ByteLevelTokenizer
from ...tokenizers.byte_pairs import (
    BytePairs,
    added_tokens_of,
    byte_pairs_of,
    pairs_in,
    tokens_in_order,
)
from ..files import naming, read_bytes, read_json

TOKENIZER, VOCABULARY, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
VERSION = "#version"  # begins a header line


class Vocabulary(NamedTuple):
    """A tokenizer and where its ids come from.

    Args:
        tokenizer: `ByteLevelTokenizer`.
        rows: list of int, for each of our ids the id there whose weights it gets. Each special id
            gets those of the token that separates texts, which is the start and the end there.
    """

    tokenizer: ByteLevelTokenizer
    rows: list[int]


def read_vocabulary(folder: pathlib.Path, separator: int) -> Vocabulary:
    """The vocabulary in a folder: tokenizer.json, or vocab.json and merges.txt.

    The token that separates texts, <|endoftext|>, becomes the special ids; all others follow in
    their order.

    Args:
        folder: pathlib.Path.
        separator: int, the id of that token according to config.json.

    Raises:
        FileNotFoundError: A file is missing.
        ImportError: tokenizers is not installed.
        ValueError: A file is damaged, or is not the byte-level BPE of GPT-2.
    """
    path = folder / TOKENIZER
    if path.exists():
        description = read_json(path)
        with naming(path):
            pairs, added = byte_pairs_of(description), added_tokens_of(description)
    else:
        path, added = folder / VOCABULARY, {}
        pairs = _read_two_files(path, folder / MERGES)
    with naming(path):
        check(
            separator < len(pairs.tokens),
            "eos_token_id of config.json must be the id of a token",
            eos_token_id=separator,
            tokens=len(pairs.tokens),
        )
        others = [token for token in added if added[token] != separator]
        check(
            not others,
            "Expected no added tokens but the one that separates texts",
            added_tokens=", ".join(others)[:100],
        )
        tokens = [token for id, token in enumerate(pairs.tokens) if id != separator]
        tokenizer = ByteLevelTokenizer.of_pairs(BytePairs(tokens, pairs.merges))
    ids = range(len(pairs.tokens))
    return Vocabulary(tokenizer, [separator] * 4 + [id for id in ids if id != separator])


def _read_two_files(vocabulary, merges):
    ids, content = read_json(vocabulary), read_bytes(merges)
    with naming(vocabulary):
        tokens = tokens_in_order(ids)
    try:
        lines = content.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{merges} must be in UTF-8; it is not. Download it again.") from None
    if lines[0].startswith(VERSION):
        lines = lines[1:]
    with naming(merges):
        return BytePairs(tokens, pairs_in([line.removesuffix("\r") for line in lines]))
