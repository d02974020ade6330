import copy
import io
import json
import pickle
import random
import re
import sys
import zipfile

import keras
import numpy as np
import pytest

from keras_transformer.ids import END, PADDING, START, UNKNOWN, check_ids
from keras_transformer.tokenizers import (
    SentencePieceTokenizer,
    train_tokenizer,
)
from keras_transformer.tokenizers.processor import has_unused

MODEL_TYPES = ["bpe", "unigram", "char"]
TEXTS = [
    "the cat sat on the mat",
    "double  space, triple   space",
    "  leading and trailing  ",
    " ",
    "",
    "我爱苹果。那天雨很大。",
    "family 👨‍👩‍👧 and flag 🇩🇪",
    "combining e\u0301 and precomposed é are two things",
    "ﬁ ligature, ﬀ, ½, Ⅳ: nothing is normalized",
    "tab\there, newline\nthere, \r\n",
    "line\u2028separator\u0085next, soft\u00adhyphen, \ufeffmark",
    "<s> </s> <pad> <unk> are only text",
    "-- quotes \" ' , back\\slash =",
]


@pytest.fixture(scope="module", params=MODEL_TYPES)
def tokenizer(request):
    return train_tokenizer(TEXTS, model_type=request.param)


@pytest.fixture(scope="module")
def letters():
    return train_tokenizer(["aabc b"], model_type="char")


# Learning


def test_special_ids_are_padding_0_unknown_1_start_2_end_3(tokenizer):
    assert (PADDING, UNKNOWN, START, END) == (0, 1, 2, 3)
    assert tokenizer.tokens([0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_training_text_comes_back_exactly(tokenizer):
    assert tokenizer.decode(tokenizer.encode(TEXTS)) == TEXTS


def test_training_text_has_no_special_ids_even_if_it_spells_them(tokenizer):
    ids = set().union(*tokenizer.encode(TEXTS))
    assert not ids & {PADDING, UNKNOWN, START, END}


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_four_exceptions_are_as_documented(model_type):
    texts = ["low\u2581bar", "block\u2585", "nul\0", "unit\x1f"]
    tokenizer = train_tokenizer(texts, model_type=model_type)
    unit = "unit\x1f" if model_type == "byte" else "unit\u2047"
    expected = ["low bar", "block\u2047", "nul\u2047", unit]
    assert tokenizer.decode(tokenizer.encode(texts)) == expected


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_learning_twice_gives_the_same_vocabulary(model_type):
    one, other = (train_tokenizer(TEXTS * 20, model_type=model_type) for _ in range(2))
    assert one.proto == other.proto


def test_a_character_vocabulary_is_every_character_and_four():
    letters = train_tokenizer(["aaaaa bbbbccc"], model_type="char")
    ids = range(letters.vocabulary_size())
    assert letters.tokens(ids) == "<pad> <unk> <s> </s> a b c \u2581".split()


def test_a_character_vocabulary_has_one_id_per_character(letters):
    (ids,) = letters.encode([" ca b"])
    assert letters.tokens(ids) == ["\u2581", "c", "a", "\u2581", "b"]


def test_a_sentence_with_a_reserved_character_is_learned_from():
    pieces = train_tokenizer(["zzz", "xyz xyz \u2585"] * 9)  # SentencePiece would skip the second
    assert pieces.tokens(*pieces.encode(["xyz"])) == ["\u2581xyz"]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_word_is_the_same_piece_at_the_start_and_inside(model_type):
    tokenizer = train_tokenizer(["the cat", "cat the"] * 50, 12, model_type)
    (first, last) = tokenizer.encode(["cat the", "the cat"])
    assert sorted(first) == sorted(last)
    assert first != last


def test_a_small_character_vocabulary_drops_the_rare_ones():
    tokenizer = train_tokenizer(["aaaa bbb c"], vocabulary_size=7, model_type="char")
    assert tokenizer.decode(tokenizer.encode(["a b c"])) == ["a b \u2047"]


def test_frequent_words_become_one_piece():
    pieces = train_tokenizer(["the cat", "the mat", "the hat"] * 10, 20, "bpe")
    (ids,) = pieces.encode(["the the"])
    assert pieces.tokens(ids) == ["\u2581the", "\u2581the"]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_the_vocabulary_has_the_size_asked_for(model_type):
    texts = [f"{n} times {n} is {n * n}" for n in range(300)]
    assert train_tokenizer(texts, 100, model_type).vocabulary_size() == 100


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_vocabulary_too_large_for_the_texts_is_lowered_and_logged(model_type, caplog):
    size = train_tokenizer(["abc abd"], 5000, model_type).vocabulary_size()
    assert 9 <= size < 50  # four special ids, the space, abcd at least
    assert f"vocabulary of {size} ids, not of vocabulary_size=5000" in caplog.text


def test_the_default_size_is_lowered_silently(caplog):
    train_tokenizer(["abc abd"])
    assert not caplog.records


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_very_long_sentence_is_learned_from(model_type):
    long = "xyz " * 5000  # 20,000 bytes; SentencePiece's own limit is 4,192
    tokenizer = train_tokenizer(["abc", long], model_type=model_type)
    assert tokenizer.decode(tokenizer.encode([long])) == [long]
    if model_type == "bpe":
        assert tokenizer.tokens(tokenizer.encode(["xyz"])[0]) == ["\u2581xyz"]


def test_more_than_8000_characters_fit_the_default_size():
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 9000)))
    tokenizer = train_tokenizer([text])
    assert tokenizer.vocabulary_size() == 9000 + 5
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


def test_learning_prints_nothing(capfd):
    train_tokenizer(["abc"] * 100)
    output, errors = capfd.readouterr()
    assert output == ""
    assert "trainer" not in errors


@pytest.mark.parametrize("model_type, smallest", [("bpe", 9), ("unigram", 9), ("char", 6)])
def test_too_small_a_vocabulary_names_the_smallest(model_type, smallest):
    message = f"at least {smallest} .*or None; received vocabulary_size={smallest - 1}"
    with pytest.raises(ValueError, match=message):
        train_tokenizer(["abc abd"], smallest - 1, model_type)
    learned = train_tokenizer(["abc abd"], smallest, model_type)
    assert learned.vocabulary_size() == smallest


@pytest.mark.parametrize("size", [100.0, "100"])
def test_a_vocabulary_size_that_is_not_an_integer_is_an_error(size):
    with pytest.raises(ValueError, match=f"must be an integer .*received vocabulary_size={size!r}"):
        train_tokenizer(["abc"], size)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
@pytest.mark.parametrize("texts", [["\n"], ["\n\n", "\n"], ["\r\n"]])
def test_nothing_but_line_ends_is_an_error(texts, model_type):
    with pytest.raises(ValueError, match=f"nothing to learn from in {len(texts)} texts: .* Check"):
        train_tokenizer(texts, model_type=model_type)


@pytest.mark.parametrize("text", ["\0", "\0\n", "<s>", "<unk>", "</s>"])
def test_no_character_but_nul_and_special_ids_is_an_error(text):
    with pytest.raises(ValueError, match="nothing to learn from in 1 texts: .* such as <s> alone"):
        train_tokenizer([text], model_type="char")


@pytest.mark.parametrize("texts, number", [([], 0), (["", ""], 2)])
def test_no_text_is_an_error(texts, number):
    with pytest.raises(ValueError, match=f"one text that is not empty; received {number} texts"):
        train_tokenizer(texts)


def test_an_unknown_model_type_is_an_error():
    with pytest.raises(ValueError, match="unigram, char, byte; received model_type='word'"):
        train_tokenizer(["abc"], model_type="word")


# Reserved pieces

RESERVE = ["<de>", "<term>", "term", "é"]
TAGGED = ["<de> the <term>cat<term> terminates", "determ<de>ed<term>in", "a<d e> < café", "a-b d-e"]


def count_of_reserved(text):
    """How often a text has each reserved piece, a longer one first."""
    found = re.findall("<de>|<term>|term|é", text)
    return [found.count(piece) for piece in RESERVE]


@pytest.mark.parametrize("model_type", [*MODEL_TYPES, "byte"])
def test_a_reserved_piece_is_one_id_wherever_it_stands(model_type):
    tokenizer = train_tokenizer([*TEXTS, *TAGGED] * 5, model_type=model_type, reserve=RESERVE)
    assert tokenizer.tokens([4, 5, 6, 7]) == RESERVE
    rows = tokenizer.encode(TAGGED)
    assert [[ids.count(id) for id in (4, 5, 6, 7)] for ids in rows] == [
        count_of_reserved(text) for text in TAGGED
    ]
    assert tokenizer.decode(rows) == TAGGED
    assert not any(UNKNOWN in ids for ids in rows)


@pytest.mark.parametrize("model_type", [*MODEL_TYPES, "byte"])
def test_a_reserved_piece_that_no_text_has_has_its_id(model_type):
    tokenizer = train_tokenizer(["abc abd"], 300, model_type, reserve=["<2fr>", "~"])
    (ids,) = tokenizer.encode(["<2fr> ab~"])
    assert ids.count(4) == ids.count(5) == 1 and UNKNOWN not in ids
    assert tokenizer.decode([ids]) == ["<2fr> ab~"]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_random_splits_keep_reserved_pieces_whole(model_type):
    tokenizer = train_tokenizer([*WORDS, *TAGGED], 80, model_type, reserve=RESERVE)
    drawn = tokenizer.encode(TAGGED * 50, sample=True, alpha=0.5)
    assert [[ids.count(id) for id in (4, 5, 6, 7)] for ids in drawn] == [
        count_of_reserved(text) for text in TAGGED * 50
    ]
    assert tokenizer.decode(drawn) == TAGGED * 50
    assert len(set(map(tuple, drawn))) > len(TAGGED)


@pytest.mark.once
@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_no_probable_piece_around_a_reserved_one_splits_it(model_type):
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdermt<>/", k=draw.randint(2, 8))) for _ in range(300)]
    texts = [" ".join(draw.choices(words, k=8)) for _ in range(400)]
    tokenizer = train_tokenizer(texts, 200, model_type, ["term", "ab"])
    pieces = [draw.choice(words)[:4] + draw.choice(["term", "ab", " "]) for _ in range(30_000)]
    texts = ["".join(pieces[n : n + 5]).strip() for n in range(0, 30_000, 5)]
    rows = tokenizer.encode(texts)
    assert tokenizer.decode(rows) == texts
    assert [ids.count(4) + ids.count(5) for ids in rows] == [
        len(re.findall("term|ab", text)) for text in texts
    ]


@pytest.mark.parametrize(
    "reserve", [["a b"], [""], ["<a>", "<a>"], ["</s>"], ["<0x0A>"], ["\u2581a"], ["a\u2585"]]
)
def test_a_piece_that_cannot_be_reserved_is_named(reserve):
    expected = f"reserved piece must be given once, .*received piece={reserve[0]!r}"
    with pytest.raises(ValueError, match=expected):
        train_tokenizer(["abc"], reserve=reserve)


def test_reserved_pieces_are_a_list():
    with pytest.raises(ValueError, match="list of texts; received one str"):
        train_tokenizer(["abc"], reserve="<a>")


@pytest.mark.parametrize("model_type, smallest", [("bpe", 11), ("unigram", 11), ("char", 8)])
def test_reserved_pieces_are_among_the_ids(model_type, smallest):
    with pytest.raises(ValueError, match=f"at least {smallest} .* reserved pieces"):
        train_tokenizer(["abc abd"], smallest - 1, model_type, ["<a>", "<b>"])
    learned = train_tokenizer(["abc abd"], smallest, model_type, ["<a>", "<b>"])
    assert learned.vocabulary_size() == smallest


# Encoding and decoding


def test_ids_and_texts_are_plain_lists(tokenizer):
    sequences = tokenizer.encode(iter(["the cat", ""]))
    assert sequences[1] == []
    assert type(sequences) is list
    assert type(sequences[0]) is list
    assert type(sequences[0][0]) is int
    texts = tokenizer.decode(sequences)
    assert type(texts) is list
    assert texts == ["the cat", ""]
    assert tokenizer.encode([]) == []
    assert tokenizer.decode([]) == []


@pytest.mark.slow
def test_ids_and_texts_are_those_of_kerashub(tokenizer):
    pytest.importorskip("keras_hub")
    other = tokenizer.to_keras_hub()
    assert type(other).__module__.startswith("keras_hub")
    assert other.proto == tokenizer.proto
    for text, ids in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        assert np.array(other.tokenize(text)).tolist() == ids
    assert other.vocabulary_size() == tokenizer.vocabulary_size()


def test_kerashub_is_needed_for_nothing_else(tokenizer, monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    learned = train_tokenizer(["the cat"])
    assert learned.decode(learned.encode(["cat"])) == ["cat"]
    with pytest.raises(ImportError):
        tokenizer.to_keras_hub()


def test_an_unseen_character_is_unknown(letters):
    (ids,) = letters.encode(["aXb"])
    assert ids.count(UNKNOWN) == 1
    assert letters.decode([ids]) == ["a\u2047b"]


# Subword regularization


def words_sampled(texts):
    return train_tokenizer(WORDS, 40).encode(texts, sample=True, seed=3)


WORDS = ["the national nation of nations", "a rational ration", "nationality of a relation"] * 20


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def words(request):
    return train_tokenizer(WORDS, vocabulary_size=40, model_type=request.param)


def test_random_splits_are_of_the_same_text_and_longer_than_the_plain_ones(words):
    plain, drawn = words.encode(WORDS), words.encode(WORDS, sample=True, alpha=0.1)
    assert words.decode(drawn) == WORDS
    assert sum(map(len, drawn)) > sum(map(len, plain))
    assert len({tuple(ids) for ids in drawn[::3]}) > 3, "one text, split in several ways"


def test_random_splits_are_set_by_their_seed_whatever_was_drawn_before(words):
    one = words.encode(WORDS, sample=True, alpha=0.1, seed=(1, 2))
    other = words.encode(WORDS, sample=True, alpha=0.1, seed=(1, 3))
    assert words.encode(WORDS, sample=True, alpha=0.1, seed=(1, 2)) == one != other


def test_bpe_that_leaves_out_no_merge_is_the_plain_one():
    tokenizer = train_tokenizer(WORDS, vocabulary_size=40, model_type="bpe")
    assert tokenizer.encode(WORDS, sample=True, alpha=0.0) == tokenizer.encode(WORDS)
    lengths = {len(ids) for ids in tokenizer.encode(WORDS, sample=True, alpha=1.0)}
    assert lengths == {1 + len(text) for text in WORDS}, "without a merge: the mark and letters"


def test_a_vocabulary_or_an_alpha_that_cannot_be_sampled_with_is_an_error(letters, words):
    with pytest.raises(ValueError, match="of characters has one segmentation per text only; learn"):
        letters.encode(["a"], sample=True)
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]; received alpha=1.5"):
        words.encode(["a"], sample=True, alpha=1.5)


def test_decoding_stops_at_the_first_end_and_skips_padding_and_start(letters):
    a, b, c = letters.encode(["abc"])[0]
    sequences = [[START, a, PADDING, b, END, c, 99], [END, a], [a, c]]
    assert letters.decode(sequences) == ["ab", "", "ac"]


def test_arrays_and_tensors_decode_like_lists(letters):
    ids = letters.encode(["abc", "cab"])
    padded = np.array([[*row, END, PADDING] for row in ids])
    assert letters.decode(padded) == ["abc", "cab"]
    assert letters.decode(keras.ops.convert_to_tensor(padded)) == ["abc", "cab"]
    assert letters.tokens(padded[0]) == ["a", "b", "c", "</s>", "<pad>"]


@pytest.mark.parametrize("text, kind", [(None, "NoneType"), (7, "int"), (b"a", "bytes")])
def test_what_is_not_text_is_named_by_position_and_type(letters, text, kind):
    with pytest.raises(ValueError, match=f"must be a str; item 1 is of type {kind}"):
        letters.encode(["a", text])
    with pytest.raises(ValueError, match=f"must be a str; item 1 is of type {kind}"):
        train_tokenizer(["a", text])


@pytest.mark.parametrize(
    "texts, kind", [("abc", "str"), (b"abc", "bytes"), (None, "NoneType"), (7, "int")]
)
def test_what_is_not_a_list_of_texts_is_an_error(letters, texts, kind):
    message = rf"received one {kind}. Put the text in a list: \[text\]"
    for take in (letters.encode, train_tokenizer):
        with pytest.raises(ValueError, match=message):
            take(texts)


def test_texts_may_come_from_a_generator(letters):
    assert train_tokenizer((text for text in TEXTS), 300).proto == train_tokenizer(TEXTS, 300).proto
    assert letters.encode(text for text in ["ab", "c"]) == letters.encode(["ab", "c"])
    assert words_sampled(iter(["a nation"])) == words_sampled(["a nation"])


def test_half_a_surrogate_pair_is_an_error(letters):
    with pytest.raises(ValueError, match="item 0 has half a surrogate pair at character 2"):
        letters.encode(["ab\ud83d"])


@pytest.mark.parametrize("wrong", [8, -1])
def test_an_id_outside_the_vocabulary_is_named(letters, wrong):
    message = f"sequences must be from 0 to 7; received {wrong} in row 1, position 2. Use"
    with pytest.raises(ValueError, match=message):
        letters.decode([[4], [4, 4, wrong, END]])
    with pytest.raises(ValueError, match=f"received {wrong} in row 0, position 0"):
        letters.tokens([wrong])


def test_a_tokenizer_given_new_assets_is_read_again(tmp_path, letters):
    digits = train_tokenizer(["0123"], model_type="char")
    assert UNKNOWN in digits.encode(["abc"])[0]
    letters.save_assets(str(tmp_path))
    digits.load_assets(str(tmp_path))
    assert digits.encode(["abc"]) == letters.encode(["abc"])


def test_a_tokenizer_without_vocabulary_is_an_error(tmp_path):
    empty = SentencePieceTokenizer()
    for use in (
        lambda: empty.encode(["abc"]),
        lambda: empty.decode([[4]]),
        lambda: empty.tokens([4]),
        lambda: empty.vocabulary_size(),
        lambda: empty.save_assets(str(tmp_path)),
        lambda: empty.to_keras_hub(),
    ):
        with pytest.raises(ValueError, match="no vocabulary yet: learn one with train_tokenizer"):
            use()


def test_a_vocabulary_with_other_special_ids_is_an_error(tmp_path):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abc abd"]), model_writer=model, vocab_size=9, minloglevel=2
    )
    (tmp_path / "vocabulary.spm").write_bytes(model.getvalue())
    message = r"\(0, 1, 2, 3\); received \(-1, 0, 1, 2\)"
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer(model.getvalue())
    with pytest.raises(ValueError, match=message):
        SentencePieceTokenizer().load_assets(str(tmp_path))


def test_bytes_know_every_text_and_decode_to_it():
    tokenizer = train_tokenizer(["abc"], model_type="byte")
    texts = ["Hé a\nb", "日本 語", "\0 🙂"]
    ids = tokenizer.encode(texts)
    assert tokenizer.decode(ids) == texts
    assert tokenizer.vocabulary_size() == 4 + 256 + 1
    assert UNKNOWN not in set().union(*ids)
    # One id per byte, in the order of the bytes; a space has its own.
    assert ids[0] == [260 if byte == ord(" ") else 4 + byte for byte in texts[0].encode()]


# Saving


@keras.saving.register_keras_serializable(package="test_tokenizers")
class Holder(keras.Model):
    """A model with a tokenizer, as the tasks are."""

    def __init__(self, tokenizer, **kwargs):
        super().__init__(**kwargs)
        self.tokenizer = tokenizer
        self.built = True

    def get_config(self):
        return {"tokenizer": keras.saving.serialize_keras_object(self.tokenizer)}

    @classmethod
    def from_config(cls, config):
        return cls(keras.saving.deserialize_keras_object(config["tokenizer"]))


def test_a_saved_model_contains_the_vocabulary_where_kerashub_put_it(tokenizer, tmp_path):
    path = tmp_path / "holder.keras"
    Holder(tokenizer).save(path)
    with zipfile.ZipFile(path) as archive:
        stored = archive.read("assets/layers/sentence_piece_tokenizer/vocabulary.spm")
    assert stored == tokenizer.proto
    loaded = keras.saving.load_model(path).tokenizer
    assert loaded.proto == tokenizer.proto
    assert loaded.name == tokenizer.name
    assert loaded.encode(TEXTS) == tokenizer.encode(TEXTS)


def test_kerashub_reads_the_file_that_is_written(tokenizer, tmp_path):
    keras_hub = pytest.importorskip("keras_hub")
    tokenizer.save_assets(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.spm"]
    other = keras_hub.tokenizers.SentencePieceTokenizer()
    other.load_assets(str(tmp_path))
    assert np.array(other.tokenize("the cat")).tolist() == tokenizer.encode(["the cat"])[0]


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda t: pickle.loads(pickle.dumps(t))])
def test_a_tokenizer_is_copied_and_pickled_with_its_vocabulary(tokenizer, twin):
    other = twin(tokenizer)
    assert type(other) is SentencePieceTokenizer
    assert other is not tokenizer
    assert other.proto == tokenizer.proto
    assert other.name == tokenizer.name
    assert other.encode(TEXTS) == tokenizer.encode(TEXTS)


@pytest.mark.parametrize("dtype", ["int32", keras.DTypePolicy("mixed_bfloat16")])
def test_a_tokenizer_is_restored_from_its_config_and_its_assets(tokenizer, tmp_path, dtype):
    named = SentencePieceTokenizer(tokenizer.proto, dtype=dtype, name="words", trainable=False)
    serialized = json.loads(json.dumps(keras.saving.serialize_keras_object(named)))
    assert serialized["registered_name"] == "keras_transformer>SentencePieceTokenizer"
    restored = keras.saving.deserialize_keras_object(serialized)
    named.save_assets(str(tmp_path))
    restored.load_assets(str(tmp_path))
    assert restored.get_config() == named.get_config()
    assert (restored.name, restored.trainable) == ("words", False)
    assert restored.dtype_policy == named.dtype_policy
    assert restored.encode(TEXTS) == tokenizer.encode(TEXTS)


# Ids


@pytest.mark.parametrize(
    "rows, size, plain, message",
    [
        (
            [[4, 5], [], [6, 9]],
            9,
            False,
            "ids must be from 0 to 8; received 9 in row 2, position 1.",
        ),
        (
            np.array([[4, 5], [6, -1]]),
            9,
            False,
            "0 to 8; received -1 in row 1, position 1. Use the",
        ),
        ([[], [2**31]], None, False, "0 to 2147483647; received 2147483648 in row 1, position 0."),
        (
            [[4], [5, END]],
            None,
            True,
            r"and none of 0, 2 and 3 .*; received 3 in row 1, position 1.",
        ),
        ([[START]], 9, True, "received 2 in row 0, position 0."),
        ([[4, PADDING]], 9, True, "received 0 in row 0, position 1."),
    ],
)
def test_the_first_id_out_of_range_is_named_with_its_place(rows, size, plain, message):
    with pytest.raises(ValueError, match=message):
        check_ids("ids", rows, size, plain)


def test_ids_of_the_vocabulary_are_accepted():
    for rows in ([], [[]], [[0, 8], []], np.zeros((2, 3), int)):
        check_ids("ids", rows, 9)
    check_ids("ids", [[UNKNOWN, 4]], 9, plain=True)


@pytest.mark.once
def test_the_unused_pieces_of_each_vocabulary_are_looked_for_once():
    class Vocabulary:
        calls = 0

        def vocab_size(self):
            return 3

        def is_unused(self, piece):
            self.calls += 1
            return False

    vocabularies = [Vocabulary() for _ in range(20)]
    for _ in range(2):
        assert not any(map(has_unused, vocabularies))
    assert {each.calls for each in vocabularies} == {3}
