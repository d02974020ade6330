"""Estimates before a training: the memory of a step, the time to compile."""

import math
from typing import Any

import keras

from .. import backend
from ..models.configuration import TransformerConfig
from .chunked_logits import ChunkedLogits
from .wrapped import TwoPasses

FLOAT = 4  # bytes
SECONDS_PER_SHAPE, PER_BLOCK = 4.0, 0.4  # to compile a step on JAX, on two cores: docs/memory.md
ON_A_GPU = 45.0  # seconds per shape, measured with the model of the dates: docs/results.md
OF_XLA = 1.5  # of the formula: XLA plans the whole step, and holds old and new weights (on a CPU)


def weights_in_bytes(
    parameters: int, accumulate: bool = False, ema: bool = False, frozen: int = 0
) -> int:
    """Weights, and of those that are trained gradients, Adam's moments and what two options add.

    Args:
        parameters: int, numbers that are trained.
        accumulate: bool, whether gradients are summed over several batches.
        ema: bool, whether there is a moving average of the weights.
        frozen: int, numbers that are not trained.

    Returns:
        int, bytes.
    """
    return FLOAT * (parameters * (4 + accumulate + ema) + frozen)


def activations_in_bytes(
    config: TransformerConfig,
    vocabulary_size: int,
    rows: int,
    source: int,
    target: int,
    rematerialized: bool = False,
    pieces: int = 1,
) -> int:
    """Activations kept for the backward pass; logits, probabilities and their gradient.

    Args:
        config: `TransformerConfig`.
        vocabulary_size: int, number of logits per target token.
        rows: int, examples in the batch.
        source: int, source tokens per row; 0 for a model without a source.
        target: int, target tokens per row.
        rematerialized: bool, whether blocks are computed again in the backward pass.
        pieces: int, pieces in which the logits are computed.

    Returns:
        int, bytes in float32.
    """
    d, d_ff, heads = config.d_model, config.d_ff, config.num_heads
    source_tokens, target_tokens = rows * source, rows * target
    # Queries, keys, values, joined heads; the weights; the sum and its norm; the mask of dropout.
    attention = 6.5 * d + heads * source
    self_attention = 6.5 * d + heads * target
    cross_attention = 4.5 * d + heads * source if source else 0
    feed_forward = 2.5 * d + d_ff
    encoder_block = source_tokens * (attention + feed_forward)
    decoder_block = target_tokens * (self_attention + cross_attention + feed_forward)
    decoder_block += source_tokens * 2 * d  # keys and values of the memory
    encoder_layers, decoder_layers = map(config.depth, ("encoder", "decoder"))
    if rematerialized:
        inputs = (encoder_layers - 1) * source_tokens + (decoder_layers - 1) * target_tokens
        kept = inputs * d + max(encoder_block, decoder_block)
    else:
        kept = encoder_layers * encoder_block + decoder_layers * decoder_block
    logits = target_tokens / pieces * vocabulary_size
    return int(FLOAT * (kept + 3 * logits))


def memory_of_step(model: keras.Model, shape: tuple[int, ...]) -> int:
    """The memory that a training step takes, by the formula of docs/memory.md.

    Args:
        model: compiled `Transformer` or `LanguageModel`, or a `WrappedModel` of one.
        shape: (rows, source length, target length), or (rows, length); of `batches.shapes`.

    Returns:
        int, bytes in float32; mixed precision takes less. On JAX half as much again as by the
            formula.
    """
    transformer = getattr(model, "transformer", model)
    rows, *lengths = shape
    source, target = lengths if len(lengths) == 2 else (0, *lengths)
    passes = 2 if isinstance(model, TwoPasses) else 1
    activations = activations_in_bytes(
        transformer.config,
        transformer.target_vocabulary_size,
        passes * rows,
        source,
        target,
        pieces=model.pieces if isinstance(model, ChunkedLogits) else 1,
        rematerialized=any(map(backend.is_rematerialized, backend.layers_of(transformer))),
    )
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # within loss scaling
    trained = sum(math.prod(variable.shape) for variable in model.trainable_variables)
    weights = weights_in_bytes(
        trained,
        bool(optimizer.gradient_accumulation_steps),
        optimizer.use_ema,
        model.count_params() - trained,
    )
    return int((weights + activations) * (OF_XLA if backend.name() == "jax" else 1))


def forecast(model: keras.Model, batches: Any) -> str:
    """A sentence about what training will take; `batches.summary` has the shapes.

    Args:
        model: compiled model; see `memory_of_step`.
        batches: training data with `shapes`, such as `TranslationBatches`.

    Returns:
        str, the memory of the largest step and, on JAX, the time to compile.
    """
    memory, largest = max((memory_of_step(model, shape), shape) for shape in batches.shapes)
    by = " x ".join(map(str, largest))
    sentence = f"A step of {by} takes about {memory / 1e6:,.0f} MB"
    if backend.name() == "jax":
        transformer = getattr(model, "transformer", model)
        stacks = ("decoder", "encoder")[: len(transformer.inputs)]
        blocks = sum(map(transformer.config.depth, stacks))
        of_shape = ON_A_GPU if backend.on_accelerator() else SECONDS_PER_SHAPE + PER_BLOCK * blocks
        seconds = of_shape * len(batches.shapes)
        sentence += f", and compiling {len(batches.shapes)} shapes about {seconds:.0f} seconds"
    return f"{sentence}."
