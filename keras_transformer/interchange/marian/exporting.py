"""Marian: a folder for `transformers.MarianMTModel`, the inverse of `from_marian`."""

import pathlib

import numpy as np

from ...checks import check
from ...ids import END, START, UNKNOWN
from ...tasks import Translator
from ..files import (
    ACTIVATIONS,
    CONFIG,
    EMBEDDINGS,
    GENERATION_CONFIG,
    LOGITS_BIAS,
    float32_array,
)
from ..safetensors import save_weights
from ..vocabularies import (
    SETTINGS,
    sentencepiece_model,
    text_form,
    training_data_of,
    write_json,
)
from .vocabulary import END_TOKEN, PADDING_TOKEN, SOURCE, TARGET, UNKNOWN_TOKEN, VOCABULARY
from .weights import (
    FIXED,
    LENGTH_PENALTY_RATIO,
    SIZES,
    STACKS,
    THEIR_BIAS,
    THEIR_EMBEDDINGS,
    in_halves,
    marian_weights,
)

MAX_LENGTH = 1024  # rows of the sinusoid table that their model makes
FIRST_TOKEN = END + 1  # our id of the first token that is not special
INEXPRESSIBLE = {  # options of a model, and why they must be off
    "norm_first": "Marian normalizes after each sublayer",
    "max_length": "Marian has sinusoids for positions",
    "rotary": "Marian has sinusoids for positions",
}


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
    padding = len(rows) - 1
    special_ids = {
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
        "pad_token_id": padding,
        "decoder_start_token_id": padding,
    }
    config, search = translator.transformer.config, translator.config
    sizes = {
        f"{side}_{key}": getattr(config, name) for side in STACKS for key, name in SIZES.items()
    }
    sizes |= {f"{stack}_layers": config.depth(stack) for stack in STACKS}
    (activation, *_) = (theirs for theirs, ours in ACTIVATIONS.items() if ours == config.activation)
    settings = {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "d_model": config.d_model,
        **sizes,
        **FIXED,
        "activation_function": activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "vocab_size": len(rows),
        "decoder_vocab_size": len(rows),
        "max_position_embeddings": MAX_LENGTH,
        "scale_embedding": True,
        "torch_dtype": "float32",
        **special_ids,
    }
    write_json(folder / CONFIG, settings)
    settings = {
        "num_beams": search.beams,
        "length_penalty": search.length_penalty / LENGTH_PENALTY_RATIO,
        "no_repeat_ngram_size": search.no_repeat_ngram_size,
        "repetition_penalty": search.repetition_penalty,
        "max_length": MAX_LENGTH // 2,
        "bad_words_ids": [[padding]],
        **special_ids,
    }
    write_json(folder / GENERATION_CONFIG, settings)
    settings = {
        "tokenizer_class": "MarianTokenizer",
        "eos_token": END_TOKEN,
        "unk_token": UNKNOWN_TOKEN,
        "pad_token": PADDING_TOKEN,
        "model_max_length": MAX_LENGTH,
        "separate_vocabs": False,
    }
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / SETTINGS, text_form(translator) | training_data_of(translator))
    ours = {each.path: float32_array(each) for each in translator.transformer.weights}
    weights = {each.theirs: each.to_theirs(ours[each.ours]) for each in marian_weights(config)}
    weights[THEIR_EMBEDDINGS[0]] = in_halves(ours[EMBEDDINGS][rows], 1)
    weights[THEIR_BIAS] = ours.get(LOGITS_BIAS, np.zeros(size, "float32"))[np.newaxis, rows]
    save_weights(folder, weights)


def _check_expressible(translator):
    """Refuses a model that a MarianMTModel cannot express."""
    transformer, config = translator.transformer, translator.transformer.config
    check(
        transformer.source_embedding is transformer.target_embedding,
        "Marian needs one vocabulary for both languages; train without a second one",
        source_vocabulary_size=transformer.source_vocabulary_size,
        target_vocabulary_size=transformer.target_vocabulary_size,
    )
    for name, reason in INEXPRESSIBLE.items():
        value = getattr(config, name)
        check(not value, f"{reason}; train without {name}", **{name: value})
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
