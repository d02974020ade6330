"""Arguments that cannot be: one sentence at once, the same on every backend."""

import numpy as np
import pytest

import keras_transformer as kt

S = dict(num_layers=1, d_model=8, num_heads=2, d_ff=8)
IDS, X = np.array([[4, 5]], "int32"), np.ones((1, 3, 8), "float32")
VALUE, KEY = np.ones((1, 5, 8), "float32"), np.ones((1, 7, 8), "float32")


@pytest.fixture(scope="module")
def given():
    """A tokenizer, a vocabulary, models and a translator, by name."""
    tokenizer = kt.train_tokenizer(["abc def"], model_type="char")
    size = tokenizer.vocabulary_size()
    words = kt.WordVocabulary.learn([["a", "b"]])
    sizes = words.num_words, words.num_characters, 3, words.max_characters
    transformer = kt.Transformer(size, **S)
    return {
        "tokenizer": tokenizer,
        "words": words,
        "language_model": kt.LanguageModel(size, **S),
        "tagging_model": kt.TaggingModel(*sizes, **S),
        "transformer": transformer,
        "decoding": kt.Decoding(transformer),
        "translator": kt.Translator(transformer, tokenizer),
    }


MISSPELT = {
    "transformer": lambda g: kt.Transformer(20, num_layer=1),
    "language_model": lambda g: kt.LanguageModel(20, dropuot=0.1),
    "tagging_model": lambda g: kt.TaggingModel(9, 9, 3, num_head=2),
    "attention": lambda g: kt.MultiHeadAttention(2, keydim=3),
    "block": lambda g: kt.EncoderBlock(2, 8, drop=0.1),
    "translator": lambda g: kt.Translator(g["transformer"], g["tokenizer"], beam=3),
    "generator": lambda g: kt.TextGenerator(g["language_model"], g["tokenizer"], windw=3),
    "tagger": lambda g: kt.Tagger(g["tagging_model"], g["words"], ["a", "b"], batchsize=3),
    "r_drop": lambda g: kt.training.RDrop(g["transformer"], alfa=1),
    "simcut": lambda g: kt.training.SimCut(g["transformer"], alfa=1),
}


@pytest.mark.parametrize("name", MISSPELT)
def test_a_misspelt_keyword_is_refused(given, name):
    message = "num_layer'|dropuot|num_head'|keydim|'drop'|'beam'|windw|batchsize|alfa"
    with pytest.raises(ValueError, match=message):
        MISSPELT[name](given)


REFUSED = {
    "vocabulary of 0": (lambda g: kt.Transformer(0, **S), "vocabulary_size must be an integer of"),
    "vocabulary of 1.5": (lambda g: kt.LanguageModel(1.5, **S), "received vocabulary_size=1.5"),
    "target of 0": (lambda g: kt.Transformer(5, 0, **S), "received vocabulary_size=0"),
    "no words": (lambda g: kt.TaggingModel(0, 3, 3, **S), "num_words must be an integer of at lea"),
    "no characters": (lambda g: kt.TaggingModel(3, 3, 3, 0, **S), "max_characters must be an int"),
    "width as text": (lambda g: kt.TransformerConfig(d_model="8"), "received d_model='8'"),
    "true layers": (lambda g: kt.TransformerConfig(num_layers=True), "received num_layers=True"),
    "rate as text": (lambda g: kt.TransformerConfig(dropout="x"), "received dropout='x'"),
    "heads": (lambda g: kt.TransformerConfig(num_heads=7), "num_heads must divide d_model"),
    "key_dim": (lambda g: kt.MultiHeadAttention(2, key_dim=-2), "received key_dim=-2"),
    "smoothing": (lambda g: kt.TokenCrossEntropy(float("nan")), "label_smoothing must be in"),
    "schedule": (lambda g: kt.WarmupSchedule(0), "d_model must be an integer of at least 1"),
    "key": (lambda g: kt.MultiHeadAttention(2)(X, VALUE, key=KEY), "key and value must have the"),
    "beams": (lambda g: g["translator"].translate(["a"], beams=1.5), "received beams=1.5"),
    "n_best": (lambda g: g["translator"].translate(["a"], n_best=1.5), "received n_best=1.5"),
    "penalty": (lambda g: g["translator"].translate(["a"], length_penalty="1"), "a finite number"),
    "ratio": (lambda g: g["translator"].translate(["a"], max_length_ratio=1e400), "finite number"),
    "prefixes": (lambda g: g["translator"].translate(["a"], prefixes=["a", "b"]), "one prefix per"),
    "file name": (lambda g: kt.SentencePieceTokenizer("a.spm"), "must be bytes, the content of"),
    "seed": (lambda g: g["translator"].sample(["a"], seed=-1), "seed must be an integer of at"),
    "temperature": (lambda g: g["translator"].sample(["a"], temperature=0), "must be above 0"),
    "ids": (lambda g: g["decoding"].greedy(IDS * 9, 3), "received 36 in row 0, position 0"),
    "scored ids": (lambda g: g["decoding"].score(IDS, IDS * 9), "Every id of target_ids must be"),
    "ids to learn": (lambda g: kt.TranslationBatches([[-1]], [[5]]), "Every id of source must be"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_named_with_what_was_expected(given, name):
    call, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        call(given)


SIZES = {  # the name of a size, and a call that takes it
    "attention": ("num_heads", lambda size: kt.MultiHeadAttention(size)),
    "key_dim": ("key_dim", lambda size: kt.MultiHeadAttention(2, key_dim=size)),
    "feed_forward": ("d_ff", lambda size: kt.FeedForward(size)),
    "encoder_block_heads": ("num_heads", lambda size: kt.EncoderBlock(size, 8)),
    "encoder_block_d_ff": ("d_ff", lambda size: kt.EncoderBlock(2, size)),
    "decoder_block_heads": ("num_heads", lambda size: kt.DecoderBlock(size, 8)),
    "decoder_block_d_ff": ("d_ff", lambda size: kt.DecoderBlock(2, size)),
    "encoder_layers": ("num_layers", lambda size: kt.Encoder(size, num_heads=2, d_ff=8)),
    "encoder_heads": ("num_heads", lambda size: kt.Encoder(2, num_heads=size, d_ff=8)),
    "encoder_d_ff": ("d_ff", lambda size: kt.Encoder(2, num_heads=2, d_ff=size)),
    "decoder_layers": ("num_layers", lambda size: kt.Decoder(size, num_heads=2, d_ff=8)),
    "decoder_heads": ("num_heads", lambda size: kt.Decoder(2, num_heads=size, d_ff=8)),
    "decoder_d_ff": ("d_ff", lambda size: kt.Decoder(2, num_heads=2, d_ff=size)),
    "vocabulary": ("vocabulary_size", lambda size: kt.TokenEmbedding(size, 8)),
    "d_model": ("d_model", lambda size: kt.TokenEmbedding(10, size)),
    "words": ("num_words", lambda size: kt.WordEmbedding(size, 9, 8)),
    "characters": ("character_width", lambda s: kt.WordEmbedding(9, 9, 8, character_width=s)),
    "model_layers": ("num_layers", lambda s: kt.Transformer(9, **{**S, "num_layers": s})),
    "labels": ("num_labels", lambda size: kt.TaggingModel(9, 9, size, **S)),
    "warmup": ("warmup_steps", lambda size: kt.WarmupSchedule(8, size)),
    "beams": ("beams", lambda size: kt.GenerationConfig(beams=size)),
    "buckets": ("num_buckets", lambda s: kt.TranslationBatches([[4]], [[5]], num_buckets=s)),
}


@pytest.mark.parametrize("name", SIZES)
def test_a_size_is_an_integer_and_none_is_not_a_size(name):
    argument, make = SIZES[name]
    for size in (None, True, 2.0, 1.5, "2", 0, -2):
        if size is None and argument == "key_dim":
            continue  # its default
        expected = f"{argument} must be an integer of at least .; received {argument}={size!r}"
        with pytest.raises(ValueError, match=expected):
            make(size)


IDS_OF = {
    "greedy": lambda g, ids: g["decoding"].greedy(ids, 3),
    "sample": lambda g, ids: g["decoding"].sample(ids, 3, [0]),
    "beam_search": lambda g, ids: g["decoding"].beam_search(ids, 3),
    "stream": lambda g, ids: next(g["decoding"].stream(ids, 3)),
    "score": lambda g, ids: g["decoding"].score(ids, IDS),
    "scored": lambda g, ids: g["decoding"].score(IDS, ids),
    "prefix": lambda g, ids: g["decoding"].greedy(IDS, 3, prefix=ids),
    "max_length": lambda g, ids: g["decoding"].greedy(IDS, ids[:, 0]),
    "min_length": lambda g, ids: g["decoding"].greedy(IDS, 9, min_length=ids[:, 0]),
    "pairs": lambda g, ids: kt.TranslationBatches(ids, ids),
    "texts": lambda g, ids: kt.TextBatches(ids),
    "words": lambda g, ids: kt.WordBatches(ids, np.ones((*ids.shape, 4), int), [1]),
    "characters": lambda g, ids: kt.WordBatches([[3, 3, 3]], ids[:, None].repeat(3, 1), [1]),
    "labels": lambda g, ids: kt.WordBatches([[3, 3]], np.ones((1, 2, 4), int), ids),
    "label": lambda g, ids: kt.WordBatches([[3, 3]], np.ones((1, 2, 4), int), ids[:, 0]),
    "chunks": lambda g, ids: kt.chunks(ids[0], 1),
    "decode": lambda g, ids: g["tokenizer"].decode(ids),
    "decoded lists": lambda g, ids: g["tokenizer"].decode(ids.tolist()),
    "tokens": lambda g, ids: g["tokenizer"].tokens(ids[0]),
}


@pytest.mark.parametrize("name", IDS_OF)
def test_no_id_is_cast_before_it_is_checked(given, name):
    for wrong in ([[2**32 + 5, 6]], [[4.7, 6.0]], [["4", "6"]], [[True, True]], [[2**70, 6]]):
        with pytest.raises(ValueError, match="[Ee]very (id|row)|must be|must have one|longer than"):
            IDS_OF[name](given, np.array(wrong))
    for right in ("int8", "uint16", "int64"):
        if name not in ("max_length", "min_length"):
            IDS_OF[name](given, np.array([[5, 6]], right))


NESTED = [[[4], [4, 5]]]  # neither a matrix nor rows of ids
RAGGED = {
    "greedy": lambda g: g["decoding"].greedy(NESTED, 3),
    "scored": lambda g: g["decoding"].score(IDS, [[4, 5], [4]]),
    "pairs": lambda g: kt.TranslationBatches(NESTED, [[5]]),
    "texts": lambda g: kt.TextBatches(NESTED),
    "decode": lambda g: g["tokenizer"].decode(NESTED),
    "tokens": lambda g: g["tokenizer"].tokens([[4], [4, 5]]),
}


@pytest.mark.parametrize("name", RAGGED)
def test_lists_of_several_lengths_are_not_ids(given, name):
    with pytest.raises(ValueError, match="Every row of|must be .batch, length., of int ids"):
        RAGGED[name](given)


def test_a_prefix_holds_tokens_that_an_answer_can_have(given):
    for prefix in ([[2, 5]], [[5, 0, 6]]):
        with pytest.raises(ValueError, match="A prefix must be"):
            given["decoding"].greedy(IDS, 4, prefix=prefix)
    ended = given["decoding"].greedy(IDS, 6, min_length=4, prefix=[[5, 3]])
    np.testing.assert_array_equal(ended, [[5, 3, 0, 0, 0, 0]])  # the prefix decides, not min_length


EXTREME = {
    "length_penalty": (lambda x: kt.GenerationConfig(length_penalty=x), [0, 10], [10.1, 100, -1]),
    "temperature": (lambda x: kt.SamplingConfig(temperature=x), [1e-30, 1e30], [1e-46, 1e39, 0]),
    "top_p": (lambda x: kt.SamplingConfig(top_p=x), [1e-30, 1], [1e-46, 0, 1.1]),
    "epsilon": (lambda x: kt.TransformerConfig(layer_norm_epsilon=x), [1e-30], [1e-46, 0, None]),
    "dropout": (lambda x: kt.TransformerConfig(dropout=x), [0, 0.999], [1.0, None]),
    "stddev": (lambda x: kt.WordEmbedding(9, 9, 8, stddev=x), [1e-30], [0, 1e39, None]),
    "alpha": (lambda x: kt.training.RDrop(MODEL, x), [0, 5], [1e39, float("nan"), None]),
}
MODEL = kt.LanguageModel(9, **S)


@pytest.mark.once
@pytest.mark.parametrize("name", EXTREME)
def test_a_number_that_float32_cannot_hold_is_refused(name):
    make, accepted, refused = EXTREME[name]
    for value in accepted:
        make(value)
    for value in refused:
        with pytest.raises(ValueError, match="must be"):
            make(value)


def test_scores_are_finite_with_every_accepted_option(given):
    decoding = given["decoding"]
    for penalty in (0, 0.6, 10):
        found = decoding.beam_search(IDS, 6, beams=3, length_penalty=penalty, n_best=3)
        assert np.isfinite(found.scores).all() and (found.scores < 0).all()
        assert (np.diff(found.scores[found.finished]) <= 0).all()


def test_no_temperature_makes_what_is_forbidden_possible(given):
    for temperature in (1e-30, 1.0, 1e9, 1e30):
        answers = given["decoding"].sample(IDS.repeat(20, 0), 4, range(20), temperature)
        assert not np.isin(answers, (kt.PADDING, kt.START))[:, 0].any()
        assert not (answers == kt.START).any()


@pytest.mark.parametrize("slot", [3, np.int64(3), np.array(3)])
def test_a_cache_is_not_written_past_its_end(given, slot):
    model = given["language_model"]
    kt.Cache(model.empty_cache(1, 5), {}, slot, np.array([3, 4]))
    for wrong in (slot, -1):
        with pytest.raises(ValueError, match="A cache of 4 slots must fit the tokens"):
            kt.Cache(model.empty_cache(1, 4), {}, wrong, np.array([3, 4]))


def test_batches_read_a_generator_once():
    rows = [[4, 5], [6], [7, 8]]
    batches = kt.TranslationBatches(iter(rows), iter(rows))
    assert batches.num_examples == 3 and batches.num_tokens == 5 + 3
