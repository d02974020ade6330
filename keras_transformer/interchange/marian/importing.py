"""Marian: the translation models of Opus-MT, as Hugging Face distributes them."""

import os
from typing import Any

import numpy as np
from keras import ops

from ...generation.configuration import GenerationConfig
from ...ids import PADDING
from ...layers.positions import sinusoids
from ...models import Transformer
from ...models.configuration import TransformerConfig
from ...tasks import Translator
from .. import files
from .vocabulary import read_joint_vocabulary
from .weights import (
    FIXED,
    LENGTH_PENALTY_RATIO,
    POSITIONS,
    SIZES,
    STACKS,
    THEIR_BIAS,
    THEIR_EMBEDDINGS,
    alternating,
    in_halves,
    marian_weights,
)

LAYER_NORM_EPSILON = 1e-5  # of PyTorch; Hugging Face's Marian has no other


def from_marian(folder: str | os.PathLike, dtype: Any = None) -> Translator:
    """A `Translator` from the folder of a MarianMT or Opus-MT model.

        translator = interchange.from_marian("opus-mt-en-de")
        translator.save("en-de.keras")

    The folder holds config.json, source.spm, target.spm, vocab.json, the weights in
    model.safetensors (or its shards) or pytorch_model.bin, and perhaps generation_config.json.
    Nothing of it is run. The logits are those of `transformers.MarianMTModel` to about 1e-5, and so
    are the translations by greedy decoding, and by beam search without a length penalty. A model of
    several target languages takes its token before the text: ">>fra<< Hello".

    Args:
        folder: path of the folder.
        dtype: name or keras.DTypePolicy of all layers; None: the global policy.

    Returns:
        `Translator`. Beam width and length penalty are those of the folder.

    Raises:
        FileNotFoundError: The folder or one of its files does not exist.
        ImportError: A package that reads one of them is not installed.
        ValueError: A file is damaged, or the model is one that a `Transformer` cannot express.

    Source: Junczys-Dowmunt et al. 2018 (Marian); Tiedemann and Thottingal 2020 (Opus-MT).
    Departs: transformers divides a log-probability by length^a, this package by
        ((5 + length) / 6)^b (Wu et al. 2016); b = 1.25 a has the same slope at 20 tokens. Its
        search may stop before the best hypothesis is certain (early_stopping). Its limit for the
        length is a number of tokens, at which it forces an end; here it is `max_length_ratio`.
        Here no translation is empty, and padding is never written, with bad_words_ids or without.
    """
    folder = files.check_folder(folder)
    settings = files.Settings(folder / files.CONFIG)
    config = _model_config(settings)
    padding = settings.integer("pad_token_id", 0)
    settings.is_one_of("decoder_start_token_id", padding)
    vocabulary = read_joint_vocabulary(folder, settings.integer("eos_token_id", 0), padding)
    settings.is_one_of("vocab_size", max(vocabulary.rows) + 1)
    search = folder / files.GENERATION_CONFIG
    generation_config = _generation_config(
        files.Settings(search) if search.exists() else settings, padding
    )
    values = _read_weights(files.open_weights(folder), settings, config, vocabulary)
    transformer = Transformer(len(vocabulary.rows), config=config, dtype=dtype)
    for variable in transformer.weights:
        variable.assign(values.pop(variable.path))
    return Translator(
        transformer,
        vocabulary.source_tokenizer,
        vocabulary.target_tokenizer,
        config=generation_config,
    )


def _model_config(settings):
    """The `TransformerConfig` that config.json describes."""
    settings.is_one_of("model_type", "marian")
    settings.are(FIXED)
    settings.is_one_of("scale_embedding", True)
    settings.is_one_of("activation_dropout", 0, 0.0, default=0.0)
    settings.is_one_of("decoder_vocab_size", None, settings.integer("vocab_size"))
    encoder, decoder = (settings.integer(f"{stack}_layers") for stack in STACKS)
    options: dict[str, Any] = {"num_layers": encoder}
    options["decoder_layers"] = decoder if decoder != encoder else None
    for key, name in SIZES.items():
        options[name] = settings.integer(f"encoder_{key}")
        settings.is_one_of(f"decoder_{key}", options[name])  # ours has one size for both
    activation = settings.is_one_of("activation_function", *files.ACTIVATIONS)
    options |= dict(
        d_model=settings.integer("d_model"),
        dropout=settings.number("dropout", 0.1),
        attention_dropout=settings.number("attention_dropout", 0.0),
        activation=files.ACTIVATIONS[activation],
        layer_norm_epsilon=LAYER_NORM_EPSILON,
        logits_bias=True,
    )
    with files.naming(settings.path):
        return TransformerConfig(**options)


def _generation_config(settings, padding):
    """The `GenerationConfig` that comes closest to theirs."""
    beams = settings.integer("num_beams", default=1)
    penalty = settings.number("length_penalty", 1.0)
    settings.is_one_of("bad_words_ids", None, [[padding]])
    return GenerationConfig(
        beams=beams,
        length_penalty=LENGTH_PENALTY_RATIO * penalty,
        no_repeat_ngram_size=settings.integer("no_repeat_ngram_size", 0, default=0),
        repetition_penalty=settings.number("repetition_penalty", 1.0),
    )


def _read_weights(weights, settings, config, vocabulary):
    """The values of our variables by their paths; nothing may be left over.

    They are read before a model is made, so that no size is believed that the file does not have.
    """
    shape = settings.integer("vocab_size"), config.d_model
    embedding = alternating(weights.take_shared(THEIR_EMBEDDINGS, shape), 1)[vocabulary.rows]
    bias = weights.take(THEIR_BIAS, (1, shape[0]))[0][vocabulary.rows]
    bias[vocabulary.unwritten] = files.UNWRITTEN
    embedding[PADDING] = 0.0
    values = {files.EMBEDDINGS: embedding, files.LOGITS_BIAS: bias}
    for each in marian_weights(config):
        values[each.ours] = each.to_ours(weights.take(each.theirs, each.shape))
    for name in POSITIONS:  # in old files
        if name in weights:
            length = settings.integer("max_position_embeddings")
            table = weights.take(name, (length, config.d_model))
            expected = in_halves(ops.convert_to_numpy(sinusoids(length, config.d_model)), 1)
            if not np.allclose(table, expected, atol=1e-2):
                raise ValueError(f"{weights.path}: expected {name} to be sinusoids; it differs.")
    weights.check_all_taken("MarianMTModel")
    return values
