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
    "d_ff": (lambda g: kt.FeedForward(0), "d_ff must be an integer of at least 1"),
    "layers": (lambda g: kt.Encoder(0, num_heads=2, d_ff=8), "num_layers must be an integer"),
    "smoothing": (lambda g: kt.TokenCrossEntropy(float("nan")), "label_smoothing must be in"),
    "schedule": (lambda g: kt.WarmupSchedule(0), "d_model must be an integer of at least 1"),
    "key": (lambda g: kt.MultiHeadAttention(2)(X, VALUE, key=KEY), "key and value must have the"),
    "beams": (lambda g: g["translator"].translate(["a"], beams=1.5), "received beams=1.5"),
    "n_best": (lambda g: g["translator"].translate(["a"], n_best=1.5), "received n_best=1.5"),
    "penalty": (lambda g: g["translator"].translate(["a"], length_penalty="1"), "a finite number"),
    "ratio": (lambda g: g["translator"].translate(["a"], max_length_ratio=1e400), "finite number"),
    "prefixes": (lambda g: g["translator"].translate(["a"], prefixes=["a", "b"]), "one prefix per"),
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


def test_batches_read_a_generator_once():
    rows = [[4, 5], [6], [7, 8]]
    batches = kt.TranslationBatches(iter(rows), iter(rows))
    assert batches.num_examples == 3 and batches.num_source_tokens == 5 + 3
