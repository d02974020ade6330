"""CTranslate2: a fast engine for CPU and GPU in C++."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from keras import ops

from ..generation.constraints import IMPOSSIBLE
from ..ids import END, PADDING, START, UNKNOWN
from ..models import Transformer
from ..positions import sinusoids
from ..tasks import Translator

MAX_LENGTH = 1024  # rows of the sinusoid table, since CTranslate2 stores a table, not a formula


def write(translator: Translator, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes a `Translator` as a CTranslate2 model, for `ctranslate2.Translator(folder)`.

    CTranslate2 reads tokens, not text: pass it `source_tokenizer.tokens(ids)` without END, which
    it adds. The weights are written in float32, whatever the dtype policy of the model.

    Args, raises: see `keras_transformer.exporting.export`.
    """
    spec = ctranslate2_spec(
        translator.transformer,
        _all_tokens(translator.source_tokenizer),
        _all_tokens(translator.target_tokenizer),
    )
    spec.save(str(folder))


def ctranslate2_spec(
    transformer: Transformer, source_tokens: Sequence[str], target_tokens: Sequence[str]
) -> Any:
    """The weights of a `Transformer` in the layout of CTranslate2.

    Args:
        transformer: `Transformer`.
        source_tokens: list of str, the token of each id of the source vocabulary.
        target_tokens: list of str, the same for the target vocabulary.

    Returns:
        ctranslate2.specs.TransformerSpec, ready to be saved.

    Raises:
        ImportError: ctranslate2 is not installed.
        ValueError: CTranslate2 lacks the activation, or positions are rotary.

    Source: CTranslate2 4 (OpenNMT), specs/transformer_spec.py.
    """
    try:
        from ctranslate2 import specs
    except ImportError:
        raise ImportError(
            "The export to CTranslate2 needs the package ctranslate2; install it with "
            "pip install ctranslate2."
        ) from None
    config = transformer.config
    activation = {"silu": "SWISH"}.get(config.activation, str(config.activation).upper())
    if activation not in specs.Activation.__members__:
        known = ", ".join(specs.Activation.__members__).lower()
        raise ValueError(
            f"The export to CTranslate2 needs one of its activations ({known}); received "
            f"activation={config.activation!r}. Train with relu."
        )
    if config.rotary:
        raise ValueError(
            "The export to CTranslate2 needs positions that are added to the embeddings; received "
            "rotary=True. Train with sinusoids or learned positions."
        )
    spec = specs.TransformerSpec.from_config(
        config.num_layers,
        config.num_heads,
        pre_norm=config.norm_first,
        activation=specs.Activation[activation],
    )
    encoder, decoder = spec.encoder, spec.decoder
    encoder.embeddings[0].weight = _array(transformer.source_embedding.embeddings)
    encoder.position_encodings.encodings = _position_table(transformer.source_positions, config)
    _copy_stack(transformer.encoder, encoder)
    decoder.embeddings.weight = _array(transformer.target_embedding.embeddings)
    decoder.position_encodings.encodings = _position_table(transformer.target_positions, config)
    decoder.projection.weight = decoder.embeddings.weight
    if transformer.logits_bias:
        decoder.projection.bias = _bias(transformer.logits_bias)
    _copy_stack(transformer.decoder, decoder)
    spec.register_source_vocabulary(list(source_tokens))
    spec.register_target_vocabulary(list(target_tokens))
    spec.config.unk_token = target_tokens[UNKNOWN]
    spec.config.bos_token = target_tokens[START]
    spec.config.eos_token = target_tokens[END]
    spec.config.decoder_start_token = target_tokens[START]
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.validate()
    spec.optimize()
    return spec


def _all_tokens(tokenizer):
    return tokenizer.tokens(range(tokenizer.vocabulary_size()))


def _bias(layer):
    """The bias of the logits, such that the engine never writes PADDING or START either."""
    bias = _array(layer.bias)
    bias[[PADDING, START]] = IMPOSSIBLE
    return bias


def _position_table(positions, config):
    if config.max_length is None:
        return _array(sinusoids(MAX_LENGTH, config.d_model))
    return _array(positions.positions)


def _copy_stack(stack, spec):
    spec.scale_embeddings = True  # by sqrt(d_model)
    if stack.norm_first:
        _copy_norm(stack.norm, spec.layer_norm)
    for block, layer in zip(stack.blocks, spec.layer, strict=True):
        _copy_self_attention(block.self_attention, layer.self_attention)
        _copy_norm(block.self_attention_add_norm.norm, layer.self_attention.layer_norm)
        if hasattr(layer, "attention"):
            _copy_cross_attention(block.cross_attention, layer.attention)
            _copy_norm(block.cross_attention_add_norm.norm, layer.attention.layer_norm)
        _copy_dense([block.feed_forward.inner], layer.ffn.linear_0)
        _copy_dense([block.feed_forward.outer], layer.ffn.linear_1)
        _copy_norm(block.feed_forward_add_norm.norm, layer.ffn.layer_norm)


def _copy_self_attention(attention, spec):
    _copy_dense([attention.query, attention.key, attention.value], spec.linear[0])
    _copy_dense([attention.output_projection], spec.linear[1])


def _copy_cross_attention(attention, spec):
    _copy_dense([attention.query], spec.linear[0])
    _copy_dense([attention.key, attention.value], spec.linear[1])
    _copy_dense([attention.output_projection], spec.linear[2])


def _copy_dense(layers, spec):
    """One product in place of several; CTranslate2 stores one row per output."""
    spec.weight = np.concatenate([_array(layer.kernel).T for layer in layers])
    spec.bias = np.concatenate([_array(layer.bias) for layer in layers])


def _copy_norm(norm, spec):
    spec.gamma = _array(norm.gamma)
    spec.beta = _array(norm.beta)


def _array(x):
    return np.ascontiguousarray(ops.convert_to_numpy(ops.cast(x, "float32")))
