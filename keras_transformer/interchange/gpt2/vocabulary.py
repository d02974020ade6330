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
from ..files import check_is_file, naming, read_json

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
    path, added = folder / TOKENIZER, {}
    if path.exists():
        description = read_json(path)
        with naming(path):
            pairs, added = byte_pairs_of(description), added_tokens_of(description)
    else:
        path, merges = folder / VOCABULARY, folder / MERGES
        ids = read_json(path)
        with naming(merges):
            lines = check_is_file(merges).read_text("utf-8").splitlines()
            pairs_of_merges = pairs_in([line for line in lines if not line.startswith(VERSION)])
        with naming(path):
            pairs = BytePairs(tokens_in_order(ids), pairs_of_merges)
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
        rows = [id for id in range(len(pairs.tokens)) if id != separator]
        tokens = [pairs.tokens[id] for id in rows]
        tokenizer = ByteLevelTokenizer.of_pairs(BytePairs(tokens, pairs.merges))
    return Vocabulary(tokenizer, [separator] * 4 + rows)
