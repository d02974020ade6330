"""Marian: a folder for `transformers.MarianMTModel`, the inverse of `from_marian`."""

import pathlib

import numpy as np

from ...checks import check
from ...ids import END, START, UNKNOWN
from ...tasks import Translator
from ..files import ACTIVATIONS, CONFIG, GENERATION_CONFIG, float32_array
from ..safetensors import save_weights
from ..vocabularies import SETTINGS, sentencepiece_model, text_form, write_json
from .vocabulary import END_TOKEN, PADDING_TOKEN, SOURCE, TARGET, UNKNOWN_TOKEN, VOCABULARY
from .weights import EMBEDDINGS, LENGTH_PENALTY_RATIO, LOGITS_BIAS, in_halves, marian_weights

MAX_LENGTH = 1024  # rows of the sinusoid table that their model makes
FIRST_TOKEN = END + 1  # our id of the first token that is not special


def write(translator: Translator, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes a `Translator` as the folder of a MarianMT model.

    Both models have the same logits, up to rounding, if `layer_norm_epsilon` is 1e-5, as in an
    imported model; Hugging Face's Marian has no other. A model trained here has 1e-6, which
    changes its logits by about 1e-4. Their padding is our START; our padding, which is never
    written, has no counterpart. The weights are written in float32. MarianTokenizer normalizes no
    text: settings.json says how to.

    Args:
        translator: the task.
        folder: pathlib.Path, an existing empty folder.
        quantization: str, number type of the weights; None: float32.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The format cannot hold the task.
    """
    _check_expressible(translator)
    source, target = translator.source_tokenizer, translator.target_tokenizer
    (folder / SOURCE).write_bytes(sentencepiece_model(source, "Marian"))
    (folder / TARGET).write_bytes(sentencepiece_model(target, "Marian"))
    size = target.vocabulary_size()
    # Their ids: END, unknown, all that are not special, and START as padding.
    rows = [END, UNKNOWN, *range(FIRST_TOKEN, size), START]
    tokens = [END_TOKEN, UNKNOWN_TOKEN, *target.tokens(range(FIRST_TOKEN, size)), PADDING_TOKEN]
    write_json(folder / VOCABULARY, {token: id for id, token in enumerate(tokens)})
    write_json(folder / CONFIG, _config(translator.transformer, len(rows)))
    write_json(folder / GENERATION_CONFIG, _generation_config(translator.config, len(rows)))
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "eos_token": END_TOKEN,
            "unk_token": UNKNOWN_TOKEN,
            "pad_token": PADDING_TOKEN,
            "model_max_length": MAX_LENGTH,
            "separate_vocabs": False,
        },
    )
    write_json(folder / SETTINGS, text_form(translator))
    save_weights(folder, _weights(translator.transformer, rows))


def _check_expressible(translator):
    """Refuses a model that a MarianMTModel cannot express."""
    transformer, config = translator.transformer, translator.transformer.config
    shared = transformer.source_embedding is transformer.target_embedding
    check(
        shared,
        "Marian needs one vocabulary for both languages; train without a second one",
        source_vocabulary_size=transformer.source_vocabulary_size,
        target_vocabulary_size=transformer.target_vocabulary_size,
    )
    check(
        not config.norm_first,
        "Marian normalizes after each sublayer; train without norm_first",
        norm_first=config.norm_first,
    )
    check(
        config.max_length is None and not config.rotary,
        "Marian has sinusoids for positions; train without max_length and rotary",
        max_length=config.max_length,
        rotary=config.rotary,
    )
    check(
        config.activation in ACTIVATIONS.values(),
        f"Marian needs one of the activations {', '.join(sorted(set(ACTIVATIONS.values())))}",
        activation=config.activation,
    )
    check(
        not translator.lowercase,
        "MarianTokenizer cannot lowercase; do it yourself, and set translator.lowercase to False",
        lowercase=translator.lowercase,
    )


def _config(transformer, size):
    """Their config.json."""
    config = transformer.config
    (activation, *_) = (theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    of_both = {
        "layers": config.num_layers,
        "attention_heads": config.num_heads,
        "ffn_dim": config.d_ff,
        "layerdrop": 0.0,
    }
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "is_encoder_decoder": True,
        "d_model": config.d_model,
        **{f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in of_both.items()},
        "activation_function": activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "vocab_size": size,
        "decoder_vocab_size": size,
        "max_position_embeddings": MAX_LENGTH,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        **_ids(size),
    }


def _generation_config(config, size):
    """Their generation_config.json."""
    return {
        "num_beams": config.beams,
        "length_penalty": config.length_penalty / LENGTH_PENALTY_RATIO,
        "max_length": MAX_LENGTH // 2,
        "bad_words_ids": [[size - 1]],
        **_ids(size),
    }


def _ids(size):
    padding = size - 1
    return {
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "pad_token_id": padding,
        "decoder_start_token_id": padding,
    }


def _weights(transformer, rows):
    """The weights by their names."""
    size, layer = transformer.target_vocabulary_size, transformer.logits_bias
    bias = float32_array(layer.bias) if layer else np.zeros(size, "float32")
    embedding = float32_array(transformer.source_embedding.embeddings)
    return {
        EMBEDDINGS[0]: in_halves(embedding[rows], 1),
        LOGITS_BIAS: bias[np.newaxis, rows],
        **{
            each.theirs: each.to_theirs(float32_array(each.variable(transformer)))
            for each in marian_weights(transformer.config)
        },
    }
