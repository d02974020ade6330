import io

import keras
import numpy as np
import pytest

from keras_transformer.tokenizers import (
    END,
    PADDING,
    START,
    UNKNOWN,
    decode,
    encode,
    encode_at_random,
    learn_tokenizer,
    token_strings,
)

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
    "ﬁ ligature, ﬀ, ½, Ⅳ: nothing is normalised",
    "tab\there, newline\nthere, \r\n",
    "line\u2028separator\u0085next, soft\u00adhyphen, \ufeffmark",
    "<s> </s> <pad> <unk> are only text",
    "-- quotes \" ' , back\\slash =",
]


@pytest.fixture(scope="module", params=MODEL_TYPES)
def tokenizer(request):
    return learn_tokenizer(TEXTS, model_type=request.param)


@pytest.fixture(scope="module")
def letters():
    return learn_tokenizer(["aabc b"], model_type="char")


# Learning


def test_special_ids_are_padding_0_unknown_1_start_2_end_3(tokenizer):
    assert (PADDING, UNKNOWN, START, END) == (0, 1, 2, 3)
    assert token_strings(tokenizer, [0, 1, 2, 3]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_training_text_comes_back_exactly(tokenizer):
    assert decode(tokenizer, encode(tokenizer, TEXTS)) == TEXTS


def test_training_text_has_no_special_ids_even_if_it_spells_them(tokenizer):
    ids = set(sum(encode(tokenizer, TEXTS), []))
    assert not ids & {PADDING, UNKNOWN, START, END}


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_three_exceptions_are_as_documented(model_type):
    texts = ["low\u2581bar", "block\u2585", "nul\0"]
    tokenizer = learn_tokenizer(texts, model_type=model_type)
    assert decode(tokenizer, encode(tokenizer, texts)) == ["low bar", "block\u2047", "nul\u2047"]


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_learning_twice_gives_the_same_vocabulary(model_type):
    one, other = (learn_tokenizer(TEXTS * 20, model_type=model_type) for _ in range(2))
    assert one.proto == other.proto


def test_a_character_vocabulary_is_every_character_and_four():
    letters = learn_tokenizer(["aaaaa bbbbccc"], model_type="char")
    assert letters.get_vocabulary() == "<pad> <unk> <s> </s> a b c \u2581".split()


def test_characters_encode_one_id_each(letters):
    (ids,) = encode(letters, [" ca b"])
    assert token_strings(letters, ids) == ["\u2581", "c", "a", "\u2581", "b"]


def test_a_sentence_with_a_reserved_character_is_learnt_from():
    pieces = learn_tokenizer(["zzz", "xyz xyz \u2585"] * 9)  # SentencePiece would skip the second
    assert token_strings(pieces, *encode(pieces, ["xyz"])) == ["\u2581xyz"]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_word_is_the_same_piece_at_the_start_and_inside(model_type):
    tokenizer = learn_tokenizer(["the cat", "cat the"] * 50, 12, model_type)
    (first, last) = encode(tokenizer, ["cat the", "the cat"])
    assert sorted(first) == sorted(last) and first != last


def test_a_small_character_vocabulary_drops_the_rare_ones():
    tokenizer = learn_tokenizer(["aaaa bbb c"], vocabulary_size=7, model_type="char")
    assert decode(tokenizer, encode(tokenizer, ["a b c"])) == ["a b \u2047"]


def test_frequent_words_become_one_piece():
    pieces = learn_tokenizer(["the cat", "the mat", "the hat"] * 10, 20, "bpe")
    (ids,) = encode(pieces, ["the the"])
    assert token_strings(pieces, ids) == ["\u2581the", "\u2581the"]


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_the_vocabulary_has_the_size_asked_for(model_type):
    texts = [f"{n} times {n} is {n * n}" for n in range(300)]
    assert learn_tokenizer(texts, 100, model_type).vocabulary_size() == 100


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_vocabulary_too_large_for_the_texts_is_lowered_and_logged(model_type, caplog):
    size = learn_tokenizer(["abc abd"], 5000, model_type).vocabulary_size()
    assert 9 <= size < 50  # four special ids, the space, abcd at least
    assert f"vocabulary of {size} ids, not of vocabulary_size=5000" in caplog.text


def test_the_default_size_is_lowered_without_a_word(caplog):
    learn_tokenizer(["abc abd"])
    assert not caplog.records


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_very_long_sentence_is_learnt_from(model_type):
    long = "xyz " * 5000  # 20,000 bytes; SentencePiece's own limit is 4,192
    tokenizer = learn_tokenizer(["abc", long], model_type=model_type)
    assert decode(tokenizer, encode(tokenizer, [long])) == [long]
    if model_type == "bpe":
        assert token_strings(tokenizer, encode(tokenizer, ["xyz"])[0]) == ["\u2581xyz"]


def test_more_than_8000_characters_fit_the_default_size():
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 9000)))
    tokenizer = learn_tokenizer([text])
    assert tokenizer.vocabulary_size() == 9000 + 5
    assert decode(tokenizer, encode(tokenizer, [text])) == [text]


def test_learning_does_not_chatter(capfd):
    learn_tokenizer(["abc"] * 100)
    output, errors = capfd.readouterr()
    assert output == "" and "trainer" not in errors


@pytest.mark.parametrize("model_type, smallest", [("bpe", 9), ("unigram", 9), ("char", 6)])
def test_too_small_a_vocabulary_names_the_smallest(model_type, smallest):
    message = f"at least {smallest} .*received vocabulary_size={smallest - 1}. Raise it"
    with pytest.raises(ValueError, match=message):
        learn_tokenizer(["abc abd"], smallest - 1, model_type)
    learned = learn_tokenizer(["abc abd"], smallest, model_type)
    assert learned.vocabulary_size() == smallest


@pytest.mark.parametrize("size", [100.0, "100"])
def test_a_vocabulary_size_that_is_no_integer_is_an_error(size):
    with pytest.raises(ValueError, match=f"must be an integer .*received vocabulary_size={size!r}"):
        learn_tokenizer(["abc"], size)


@pytest.mark.parametrize("texts, number", [([], 0), (["", ""], 2)])
def test_no_text_is_an_error(texts, number):
    with pytest.raises(ValueError, match=f"one text that is not empty; received {number} texts"):
        learn_tokenizer(texts)


def test_an_unknown_model_type_is_an_error():
    with pytest.raises(ValueError, match="unigram, char, byte; received model_type='word'"):
        learn_tokenizer(["abc"], model_type="word")


# Encoding and decoding


def test_ids_and_texts_are_plain_lists(tokenizer):
    sequences = encode(tokenizer, iter(["the cat", ""]))
    assert sequences[1] == []
    assert type(sequences) is list and type(sequences[0]) is list and type(sequences[0][0]) is int
    texts = decode(tokenizer, sequences)
    assert type(texts) is list and texts == ["the cat", ""]
    assert encode(tokenizer, []) == [] and decode(tokenizer, []) == []


def test_ids_are_those_of_kerashub(tokenizer):
    ids = tokenizer.tokenize("the cat sat")
    assert encode(tokenizer, ["the cat sat"]) == [np.array(ids).tolist()]


def test_an_unseen_character_is_unknown(letters):
    (ids,) = encode(letters, ["aXb"])
    assert ids.count(UNKNOWN) == 1
    assert decode(letters, [ids]) == ["a\u2047b"]


# Subword regularisation

WORDS = ["the national nation of nations", "a rational ration", "nationality of a relation"] * 20


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def words(request):
    return learn_tokenizer(WORDS, vocabulary_size=40, model_type=request.param)


def test_random_splits_are_of_the_same_text_and_longer_than_the_plain_ones(words):
    plain, drawn = encode(words, WORDS), encode_at_random(words, WORDS, alpha=0.1)
    assert decode(words, drawn) == WORDS
    assert sum(map(len, drawn)) > sum(map(len, plain))
    assert len({tuple(ids) for ids in drawn[::3]}) > 3, "one text, split in several ways"


def test_random_splits_are_set_by_their_seed_whatever_was_drawn_before(words):
    one = encode_at_random(words, WORDS, alpha=0.1, seed=(1, 2))
    other = encode_at_random(words, WORDS, alpha=0.1, seed=(1, 3))
    assert encode_at_random(words, WORDS, alpha=0.1, seed=(1, 2)) == one != other


def test_bpe_that_leaves_out_no_merge_is_the_plain_one():
    tokenizer = learn_tokenizer(WORDS, vocabulary_size=40, model_type="bpe")
    assert encode_at_random(tokenizer, WORDS, alpha=0.0) == encode(tokenizer, WORDS)
    letters = {
        len(token_strings(tokenizer, ids)) for ids in encode_at_random(tokenizer, WORDS, 1.0)
    }
    assert letters == {1 + len(text) for text in WORDS}, "without a merge: the mark and letters"


def test_random_splits_that_cannot_be_are_an_error(letters, words):
    with pytest.raises(ValueError, match="vocabulary of characters splits a text in one way only"):
        encode_at_random(letters, ["a"])
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\]; received alpha=1.5"):
        encode_at_random(words, ["a"], alpha=1.5)


def test_decoding_stops_at_the_first_end_and_skips_padding_and_start(letters):
    a, b, c = (letters.token_to_id(letter) for letter in "abc")
    sequences = [[START, a, PADDING, b, END, c, 99], [END, a], [a, c]]
    assert decode(letters, sequences) == ["ab", "", "ac"]


def test_arrays_and_tensors_decode_like_lists(letters):
    ids = encode(letters, ["abc", "cab"])
    padded = np.array([row + [END, PADDING] for row in ids])
    assert decode(letters, padded) == ["abc", "cab"]
    assert decode(letters, keras.ops.convert_to_tensor(padded)) == ["abc", "cab"]
    assert token_strings(letters, padded[0]) == ["a", "b", "c", "</s>", "<pad>"]


@pytest.mark.parametrize("text, kind", [(None, "NoneType"), (7, "int"), (b"a", "bytes")])
def test_what_is_not_text_is_named_by_position_and_type(letters, text, kind):
    with pytest.raises(ValueError, match=f"must be a str; item 1 is of type {kind}"):
        encode(letters, ["a", text])
    with pytest.raises(ValueError, match=f"must be a str; item 1 is of type {kind}"):
        learn_tokenizer(["a", text])


def test_one_string_in_place_of_a_list_is_an_error(letters):
    with pytest.raises(ValueError, match=r"received one str. Put it in a list: \[text\]"):
        encode(letters, "abc")


def test_half_a_surrogate_pair_is_an_error(letters):
    with pytest.raises(ValueError, match="item 0 has half a surrogate pair at character 2"):
        encode(letters, ["ab\ud83d"])


@pytest.mark.parametrize("wrong", [8, -1])
def test_an_id_outside_the_vocabulary_is_named(letters, wrong):
    message = f"from 0 to 7; received {wrong} at position 2 of sequence 1"
    with pytest.raises(ValueError, match=message):
        decode(letters, [[4], [4, 4, wrong, END]])
    with pytest.raises(ValueError, match=f"received {wrong} at position 0"):
        token_strings(letters, [wrong])


def test_a_tokenizer_given_new_assets_is_read_anew(tmp_path, letters):
    digits = learn_tokenizer(["0123"], model_type="char")
    assert UNKNOWN in encode(digits, ["abc"])[0]
    letters.save_assets(str(tmp_path))
    digits.load_assets(str(tmp_path))
    assert encode(digits, ["abc"]) == encode(letters, ["abc"])


def test_a_tokenizer_without_vocabulary_is_an_error():
    import keras_hub

    with pytest.raises(ValueError, match="no vocabulary yet"):
        encode(keras_hub.tokenizers.SentencePieceTokenizer(), ["abc"])


def test_a_vocabulary_with_other_special_ids_is_an_error():
    import keras_hub
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["abc abd"]), model_writer=model, vocab_size=9, minloglevel=2
    )
    other = keras_hub.tokenizers.SentencePieceTokenizer(proto=model.getvalue())
    with pytest.raises(ValueError, match=r"\(0, 1, 2, 3\); received \(-1, 0, 1, 2\)"):
        encode(other, ["abc"])


def test_bytes_know_every_text_and_decode_to_it():
    tokenizer = learn_tokenizer(["abc"], model_type="byte")
    texts = ["Hé a\nb", "日本 語", "\0 🙂"]
    ids = encode(tokenizer, texts)
    assert decode(tokenizer, ids) == texts
    assert tokenizer.vocabulary_size() == 4 + 256 + 1 and UNKNOWN not in sum(ids, [])
    # One id a byte, in the order of the bytes; a space has its own.
    assert ids[0] == [260 if byte == ord(" ") else 4 + byte for byte in texts[0].encode()]
