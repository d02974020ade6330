"""A trained model for other engines."""

import os
import pathlib
import shutil

import numpy as np
from keras import ops

from .blocks import EPSILON
from .tokenizers import END, START, UNKNOWN, token_strings

MAX_LENGTH = 1024  # positions written for CTranslate2, which has no formula for ours


def to_ctranslate2(translator, folder, overwrite=False):
    """Writes a `Translator` as a CTranslate2 model, for `ctranslate2.Translator(folder)`.

    CTranslate2 reads tokens, not text: give it `tokenizers.token_strings` of the ids, without END,
    which it adds.

    Args:
        translator: `Translator`.
        folder: where the model goes.
        overwrite: bool, whether to replace what is there.

    Raises:
        ImportError: ctranslate2 is not installed.
        ValueError: the folder exists, the activation is none that CTranslate2 has, or positions
            are rotary.
    """
    folder = pathlib.Path(folder)
    if folder.exists() and not overwrite:
        raise ValueError(f"{folder} exists; choose another folder, or pass overwrite=True.")
    vocabularies = [
        token_strings(tokenizer, range(tokenizer.vocabulary_size()))
        for tokenizer in (translator.source_tokenizer, translator.target_tokenizer)
    ]
    spec = ctranslate2_spec(translator.transformer, *vocabularies)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        beside.mkdir(parents=True)
        spec.save(str(beside))
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def ctranslate2_spec(transformer, source_tokens, target_tokens):
    """The weights of a `Transformer` as CTranslate2 lays them out.

    Args:
        transformer: `Transformer`.
        source_tokens, target_tokens: lists of str, what each id is called.

    Returns:
        ctranslate2.specs.TransformerSpec, ready to be saved.

    Raises: as `to_ctranslate2`.

    Source: CTranslate2 4 (OpenNMT), specs/transformer_spec.py.
    """
    try:
        from ctranslate2 import specs
    except ImportError:
        raise ImportError("Exporting to CTranslate2 needs it: pip install ctranslate2.") from None
    config = transformer.get_config()
    activation = str(config["activation"]).upper()
    if activation not in specs.Activation.__members__:
        received = config["activation"]
        raise ValueError(f"CTranslate2 has no activation {received!r}; train with relu.")
    if config["rotary"]:
        raise ValueError(
            "CTranslate2's encoder-decoder adds positions; received rotary=True. Train with "
            "sinusoids or learned positions."
        )
    spec = specs.TransformerSpec.from_config(
        config["num_layers"],
        config["num_heads"],
        pre_norm=config["norm_first"],
        activation=specs.Activation[activation],
    )
    encoder, decoder = spec.encoder, spec.decoder
    encoder.embeddings[0].weight = _array(transformer.embed_source.embeddings)
    _stack(encoder, transformer.encoder, transformer.source_positions)
    decoder.embeddings.weight = _array(transformer.embed_target.embeddings)
    decoder.projection.weight = decoder.embeddings.weight
    _stack(decoder, transformer.decoder, transformer.target_positions)
    spec.register_source_vocabulary(source_tokens)
    spec.register_target_vocabulary(target_tokens)
    spec.config.unk_token, spec.config.eos_token = target_tokens[UNKNOWN], target_tokens[END]
    spec.config.bos_token = spec.config.decoder_start_token = target_tokens[START]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = EPSILON
    spec.validate()
    spec.optimize()
    return spec


def _stack(spec, stack, positions):
    spec.scale_embeddings = True  # by sqrt(d_model)
    length = getattr(positions, "max_length", MAX_LENGTH)
    spec.position_encodings.encodings = _array(positions.table(length))
    if stack.norm_first:
        _norm(spec.layer_norm, stack.norm)
    for layer, block in zip(spec.layer, stack.blocks):
        attention = block.self_attention
        _linear(layer.self_attention.linear[0], attention.query, attention.key, attention.value)
        _linear(layer.self_attention.linear[1], attention.output_projection)
        _norm(layer.self_attention.layer_norm, block.self_attention_add_norm.norm)
        if hasattr(layer, "attention"):
            attention = block.cross_attention
            _linear(layer.attention.linear[0], attention.query)
            _linear(layer.attention.linear[1], attention.key, attention.value)
            _linear(layer.attention.linear[2], attention.output_projection)
            _norm(layer.attention.layer_norm, block.cross_attention_add_norm.norm)
        _linear(layer.ffn.linear_0, block.feed_forward.inner)
        _linear(layer.ffn.linear_1, block.feed_forward.outer)
        _norm(layer.ffn.layer_norm, block.feed_forward_add_norm.norm)


def _linear(spec, *denses):
    """One product for several layers; CTranslate2 keeps a row for each output."""
    spec.weight = np.concatenate([_array(dense.kernel).T for dense in denses])
    spec.bias = np.concatenate([_array(dense.bias) for dense in denses])


def _norm(spec, norm):
    spec.gamma, spec.beta = _array(norm.gamma), _array(norm.beta)


def _array(x):
    return np.ascontiguousarray(ops.convert_to_numpy(ops.cast(x, "float32")))
