"""Byte-level BPE as a tokenizer: every text, and what is refused."""

import json
import sys

import numpy as np
import pytest

import keras_transformer as kt
from keras_transformer.tokenizers.byte_level import ByteLevelTokenizer, BytePairs

tokenizers = pytest.importorskip("tokenizers", reason="this tokenizer is optional")

BYTES = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("<", "s"), ("<s", ">")]
TOKENS = [*BYTES, "th", "the", "Ġthe", "<s", "<s>"]
PAIRS = BytePairs(TOKENS[:-2], MERGES[:-2])
TEXTS = ["the the", "", " ", "🙂", "草地\n\t", "<s></s><pad>\u2047", "\x00\x7f\u2028", "e\u0301é"]


@pytest.fixture(scope="module")
def tokenizer():
    return ByteLevelTokenizer.of_pairs(PAIRS)


def description_of(tokenizer):
    return json.loads(tokenizer.serialized)


def test_merges_apply_in_their_order_within_words(tokenizer):
    ids = tokenizer.encode(["the the th"])
    assert [tokenizer.tokens(row) for row in ids] == [["the", "Ġthe", "Ġ", "th"]]
    assert ids == [[4 + PAIRS.tokens.index(token) for token in ("the", "Ġthe", "Ġ", "th")]]
    assert tokenizer.vocabulary_size() == 4 + len(PAIRS.tokens) == 263


def test_every_text_comes_back_and_none_contains_a_special_id(tokenizer):
    ids = tokenizer.encode(TEXTS)
    assert tokenizer.decode(ids) == TEXTS and ids[1] == []
    assert min(i for row in ids for i in row) >= 4
    assert tokenizer.unknown_share(TEXTS) == 0.0


def test_decoding_ends_at_the_end_and_leaves_out_padding_and_start(tokenizer):
    (the,) = tokenizer.encode(["the"])
    rows = [[kt.START, *the, kt.END, *the], [*the, kt.PADDING, *the], [kt.UNKNOWN, *the]]
    assert tokenizer.decode(rows) == ["the", "thethe", "\u2047the"]
    assert tokenizer.decode(np.array([[2, *the, 3, 0]])) == ["the"]


def test_half_a_character_is_replaced(tokenizer):
    (ids,) = tokenizer.encode(["🙂"])
    assert len(ids) == 4 and tokenizer.decode([ids[:3]]) == ["\ufffd"]


@pytest.mark.parametrize("read", ["decode", "tokens"])
def test_an_id_outside_the_vocabulary_is_named(tokenizer, read):
    for wrong in (-1, 263):
        ids = [5, wrong]
        with pytest.raises(ValueError, match=f"from 0 to 262; received {wrong} in row 0, posit"):
            getattr(tokenizer, read)([ids] if read == "decode" else ids)


def test_what_is_not_text_is_refused(tokenizer):
    with pytest.raises(ValueError, match=r"Put the text in a list: \[text\]"):
        tokenizer.encode("the")
    with pytest.raises(ValueError, match="item 1 is of type int"):
        tokenizer.encode(["the", 3])
    with pytest.raises(ValueError, match="half a surrogate pair"):
        tokenizer.encode(["\ud800"])


def test_a_segmentation_cannot_be_drawn(tokenizer):
    message = "needs a SentencePieceTokenizer; received sample=True"
    with pytest.raises(ValueError, match=message):
        tokenizer.encode(["the"], sample=True, alpha=0.1, seed=0)


def test_without_a_vocabulary_it_says_so():
    with pytest.raises(ValueError, match="no vocabulary yet"):
        ByteLevelTokenizer().encode(["the"])


def test_the_library_reads_the_file_and_gives_the_same_ids(tokenizer, tmp_path):
    tokenizer.save_assets(tmp_path)
    library = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert [library.encode(text).ids for text in TEXTS] == tokenizer.encode(TEXTS)
    other = ByteLevelTokenizer(name="bytes")
    other.load_assets(tmp_path)
    assert other.serialized == tokenizer.serialized
    again = ByteLevelTokenizer.from_config(other.get_config())
    assert again.name == "bytes" and again.serialized is None


def test_a_token_may_not_have_the_name_of_a_special_one():
    with pytest.raises(ValueError, match="other than the special ones; received token='<s>'"):
        ByteLevelTokenizer.of_pairs(BytePairs(TOKENS, MERGES))


@pytest.mark.parametrize(
    "tokens, merges, message",
    [
        (BYTES[1:], [], "Every byte must have a token; received bytes_without_one=1"),
        ([*BYTES, "草"], [], "A token must be one of bytes"),
        ([*BYTES, ""], [], "A token must be one of bytes"),
        ([*BYTES, "th", "th"], [], "Every token must be there once"),
        (BYTES, [("t", "h")], "A merge must be of tokens, and its result must be one"),
        ([*BYTES, "the"], [("th", "e")], "A merge must be of tokens"),
        ([*BYTES, "th", "the"], [("t", "h")], "merges are missing; .*tokens_without_a_merge=1"),
    ],
)
def test_pairs_that_do_not_fit_together_are_refused(tokens, merges, message):
    with pytest.raises(ValueError, match=message):
        ByteLevelTokenizer.of_pairs(BytePairs(tokens, merges))


DEFECTS = {
    "no object": (lambda d: [], "Expected a JSON object"),
    "no model": (lambda d: {**d, "model": 3}, "Expected an object model"),
    "other model": (
        lambda d: d["model"].update(type="Unigram"),
        'Expected type of the model to be "BPE"; rec',
    ),
    "dropout": (
        lambda d: d["model"].update(dropout=0.1),
        "dropout of the model to be null",
    ),
    "prefix": (lambda d: d["model"].update(continuing_subword_prefix="#"), "continuing_subword"),
    "suffix": (lambda d: d["model"].update(end_of_word_suffix="</w>"), "Expected end_of_word"),
    "fallback": (lambda d: d["model"].update(byte_fallback=True), "Expected byte_fallback"),
    "whole words": (lambda d: d["model"].update(ignore_merges=True), "Expected ignore_merges"),
    "normalizer": (lambda d: d.update(normalizer={"type": "NFC"}), "Expected no normalizer"),
    "no words": (lambda d: d.update(pre_tokenizer=None), "Expected an object pre_tokenizer"),
    "other words": (
        lambda d: d.update(pre_tokenizer={"type": "Whitespace"}),
        "type of the pre_tokenizer to be \"ByteLevel\"; received type='Whitespace'",
    ),
    "space before": (
        lambda d: d["pre_tokenizer"].update(add_prefix_space=True),
        "Expected add_prefix_space of the pre_tokenizer to be false; received",
    ),
    "no regex": (lambda d: d["pre_tokenizer"].update(use_regex=False), "Expected use_regex"),
    "decoder": (lambda d: d.update(decoder={"type": "WordPiece"}), "Expected type of the decoder"),
    "ids": (lambda d: d["model"]["vocab"].update(th=7), "must have an id of its own"),
    "no ids": (lambda d: d["model"]["vocab"].update(th="7"), "must have an id of its own"),
    "special": (
        lambda d: d["model"]["vocab"].update({"</s>": 2, "<s>": 3}),
        "The ids 0 to 3 must be <pad>, \u2047, <s>, </s>",
    ),
    "added": (lambda d: d.update(added_tokens=[3]), "Expected a list of added_tokens"),
    "no merges": (lambda d: d["model"].update(merges=None), "Expected a list of merges"),
    "three": (lambda d: d["model"].update(merges=["t h e"]), "A merge must be of two tokens"),
    "number": (lambda d: d["model"].update(merges=[3]), "A merge must be of two tokens"),
}


@pytest.mark.parametrize("change, message", DEFECTS.values(), ids=DEFECTS)
def test_a_description_of_anything_else_is_refused(tokenizer, change, message):
    description = description_of(tokenizer)
    changed = change(description)
    content = json.dumps(description if changed is None else changed).encode()
    with pytest.raises(ValueError, match=message):
        ByteLevelTokenizer(content)


def test_what_is_not_json_is_refused():
    for content in (b"", b"\xff", b"[" * 100_000, b"{"):
        with pytest.raises(ValueError, match="Expected a JSON object"):
            ByteLevelTokenizer(content)


# In a task


@pytest.fixture(scope="module")
def generator(tokenizer, restless):
    sizes = dict(num_layers=1, d_model=8, num_heads=2, d_ff=16, max_length=40)
    model = kt.LanguageModel(tokenizer.vocabulary_size(), **sizes, activation="gelu_tanh")
    return kt.TextGenerator(restless(model), tokenizer)


def test_a_task_is_saved_with_it_and_checked(generator, tmp_path):
    path = tmp_path / "model.keras"
    generator.save(path)
    assert kt.check_file(path).vocabulary == {"vocabulary_size": 263}
    loaded = kt.load(path)
    assert type(loaded.tokenizer) is ByteLevelTokenizer
    assert loaded.tokenizer.serialized == generator.tokenizer.serialized
    assert loaded.get_config() == generator.get_config()


def test_without_the_library_one_sentence_says_what_to_install(generator, tmp_path, monkeypatch):
    path = tmp_path / "model.keras"
    generator.save(path)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    message = r"needs the package tokenizers \(.*\); install it with pip install tokenizers.$"
    for door in (kt.check_file, kt.load):
        with pytest.raises(ValueError, match=f"model.keras cannot be loaded: .*{message}"):
            door(path)
    with pytest.raises(ImportError, match=message):
        ByteLevelTokenizer.of_pairs(PAIRS)


def test_a_tokenizer_of_another_size_is_refused(generator):
    other = ByteLevelTokenizer.of_pairs(BytePairs(BYTES, []))
    with pytest.raises(ValueError, match="must have the 263 ids of the model"):
        kt.TextGenerator(generator.model, other)
