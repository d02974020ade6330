"""CTranslate2: a fast engine for CPU and GPU in C++."""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import imported
from ..ids import END, PADDING, START, UNKNOWN
from ..layers.positions import sinusoids
from ..models import LanguageModel, Transformer
from ..tasks import Task, Translator
from .files import float32_array
from .vocabularies import write_vocabularies

MAX_LENGTH = 1024  # rows of the sinusoid table, since CTranslate2 stores a table, not a formula

NEVER = -6e4  # a logit that float16 holds
ACTIVATIONS = {  # by their names in Keras; gelu_tanh is the package's
    **{"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"},
    **{"swish": "SWISH", "tanh": "Tanh", "sigmoid": "Sigmoid"},
}


def write(task: Task, folder: pathlib.Path, quantization: str | None = None) -> None:
    """Writes a `Translator` or a `TextGenerator` for ctranslate2.Translator or .Generator.

    CTranslate2 reads tokens, not text: encode with the vocabulary in the folder, without END, which
    a Translator adds; a Generator expects START before a prompt. It cannot hold taggers,
    classifiers and mask fillers, which read the characters of words by a convolution, for which it
    has no layer.

    Args:
        task: the task.
        folder: pathlib.Path, an existing empty folder.
        quantization: str, number type of the weights; None: float32.

    Raises:
        ImportError: A package that the format needs is not installed.
        ValueError: The format cannot hold the task.
    """
    if isinstance(task, Translator):
        spec = ctranslate2_spec(
            task.transformer,
            task.source_tokenizer.get_vocabulary(),
            task.target_tokenizer.get_vocabulary(),
            quantization,
        )
    else:
        spec = generator_spec(task.model, task.tokenizer.get_vocabulary(), quantization)
    spec.save(str(folder))
    write_vocabularies(task, folder)


def ctranslate2_spec(
    transformer: Transformer,
    source_tokens: Sequence[str],
    target_tokens: Sequence[str],
    quantization: str | None = None,
) -> Any:
    """The weights of a `Transformer` in the layout of CTranslate2.

    Args:
        transformer: `Transformer`.
        source_tokens: list of str, the token of each id of the source vocabulary.
        target_tokens: list of str, the same for the target vocabulary.
        quantization: str, number type of the matrices, such as "int8"; None: float32.

    Returns:
        ctranslate2.specs.TransformerSpec, ready to be saved.

    Raises:
        ImportError: ctranslate2 is not installed.
        ValueError: CTranslate2 lacks the activation.

    Source: CTranslate2 4 (OpenNMT), specs/transformer_spec.py.
    """
    specs, options = _specs_and_options(transformer.config)
    config = transformer.config
    encoder = specs.TransformerEncoderSpec(config.depth("encoder"), config.num_heads, **options)
    decoder = specs.TransformerDecoderSpec(config.depth("decoder"), config.num_heads, **options)
    _copy_embedding(transformer.source_embedding, encoder.embeddings[0])
    _copy_positions(transformer.source_positions, encoder, transformer.config)
    _copy_stack(transformer.encoder, encoder)
    _copy_decoder(transformer, transformer.target_embedding, transformer.target_positions, decoder)
    spec = specs.TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(list(source_tokens))
    spec.register_target_vocabulary(list(target_tokens))
    spec.config.decoder_start_token = target_tokens[START]
    spec.config.add_source_eos = True
    return _finished(spec, transformer.config, target_tokens, quantization)


def generator_spec(
    model: LanguageModel, tokens: Sequence[str], quantization: str | None = None
) -> Any:
    """The weights of a `LanguageModel` in the layout of CTranslate2.

    Args:
        model: `LanguageModel`.
        tokens: list of str, the token of each id.
        quantization: str, number type of the matrices, such as "int8"; None: float32.

    Returns:
        ctranslate2.specs.TransformerDecoderModelSpec, ready to be saved.

    Raises:
        ImportError: ctranslate2 is not installed.
        ValueError: CTranslate2 lacks the activation.
    """
    specs, options = _specs_and_options(model.config)
    sizes = model.config.num_layers, model.config.num_heads
    decoder = specs.TransformerDecoderSpec(*sizes, with_encoder_attention=False, **options)
    _copy_decoder(model, model.embedding, model.positions, decoder)
    spec = specs.TransformerDecoderModelSpec(decoder)
    spec.register_vocabulary(list(tokens))
    return _finished(spec, model.config, tokens, quantization)


def _specs_and_options(config):
    """CTranslate2's module of specifications, and the options of its stacks."""
    specs = imported("ctranslate2", "The export to CTranslate2").specs
    if config.activation not in ACTIVATIONS:
        raise ValueError(
            f"The export to CTranslate2 needs one of its activations ({', '.join(ACTIVATIONS)}); "
            f"received activation={config.activation!r}. Train with relu."
        )
    activation = specs.Activation[ACTIVATIONS[config.activation]]
    options = dict(pre_norm=config.norm_first, activation=activation)
    if config.rotary:
        options |= dict(rotary_dim=0, rotary_interleave=True)  # 0: the whole head
    return specs, options


def _finished(spec, config, tokens, quantization):
    spec.config.unk_token = tokens[UNKNOWN]
    spec.config.bos_token = tokens[START]
    spec.config.eos_token = tokens[END]
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.validate()
    spec.optimize(quantization=quantization)
    return spec


def _copy_decoder(model, embedding, positions, spec):
    _copy_embedding(embedding, spec.embeddings)
    _copy_positions(positions, spec, model.config)
    _copy_stack(model.decoder, spec)
    _copy_embedding(embedding, spec.projection)
    if model.logits_bias:
        spec.projection.bias = float32_array(model.logits_bias.bias)
        spec.projection.bias[[PADDING, START]] = NEVER  # the engine never writes them either


def _copy_embedding(embedding, spec):
    spec.weight = float32_array(embedding.embeddings)


def _copy_positions(positions, spec, config):
    if not config.rotary:
        learned = config.max_length is not None
        table = positions.positions if learned else sinusoids(MAX_LENGTH, config.d_model)
        spec.position_encodings.encodings = float32_array(table)


def _copy_stack(stack, spec):
    spec.scale_embeddings = True  # by sqrt(d_model)
    if stack.norm_first:
        _copy_norm(stack.norm, spec.layer_norm)
    for block, layer in zip(stack.blocks, spec.layer, strict=True):
        own = block.self_attention
        products = [[own.query, own.key, own.value], [own.output_projection]]
        _copy_sublayer(products, layer.self_attention.linear)
        _copy_norm(block.self_attention_add_norm.norm, layer.self_attention.layer_norm)
        if hasattr(layer, "attention"):
            cross = block.cross_attention
            products = [[cross.query], [cross.key, cross.value], [cross.output_projection]]
            _copy_sublayer(products, layer.attention.linear)
            _copy_norm(block.cross_attention_add_norm.norm, layer.attention.layer_norm)
        products = [[block.feed_forward.inner], [block.feed_forward.outer]]
        _copy_sublayer(products, [layer.ffn.linear_0, layer.ffn.linear_1])
        _copy_norm(block.feed_forward_add_norm.norm, layer.ffn.layer_norm)


def _copy_sublayer(products, specs):
    """Joins products of one input into one; CTranslate2 stores one row per output."""
    for layers, spec in zip(products, specs, strict=True):
        spec.weight = np.concatenate([float32_array(layer.kernel).T for layer in layers])
        spec.bias = np.concatenate([float32_array(layer.bias) for layer in layers])


def _copy_norm(norm, spec):
    spec.gamma, spec.beta = float32_array(norm.gamma), float32_array(norm.beta)
