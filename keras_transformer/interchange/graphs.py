"""Graphs of a task for other engines: ids in, ids or probabilities out.

A graph is a function of tensors for any batch and any length. It is the same code that the task
itself runs; an engine traces it within `backend.portable()`.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from .. import backend
from ..generation import BeamSearch, Decoding, GreedySearch
from ..generation.constraints import Constraints
from ..ids import END, PADDING
from ..layers.cache import Cache
from ..layers.masks import padding_mask
from ..models.transformer import Memory
from ..tasks import Task, TextGenerator, Translator
from ..tasks.word_tasks import label_probabilities

MORE_BEAMS = 4  # of the second search, if the task's own is greedy


class Graph(NamedTuple):
    """A function to be traced.

    Args:
        function: takes tensors by the names of `inputs`, and returns a dict of tensors.
        inputs: dict from a name to (shape, dtype); None in a shape: any number.
    """

    function: Callable[..., dict[str, Any]]
    inputs: dict[str, tuple[tuple, str]]


def graphs_of(task: Task) -> dict[str, Graph]:
    """The graphs that make a task, by the names of their files.

    Args:
        task: any task.

    Returns:
        A `Translator` has "greedy" and "beam4" (or the beams of its own config), from source_ids
        to ids; a `TextGenerator` "generate", from prompt_ids and max_tokens to ids; the others
        "probabilities", from word_ids and character_ids.
    """
    if isinstance(task, Translator):
        names = {"greedy": 1, f"beam{beams_of(task)}": beams_of(task)}
        inputs = {"source_ids": ((None, None), "int32")}
        return {name: Graph(translation(task, beams), inputs) for name, beams in names.items()}
    if isinstance(task, TextGenerator):
        inputs = {"prompt_ids": ((None, None), "int32"), "max_tokens": ((), "int32")}
        return {"generate": Graph(continuation(task), inputs)}
    characters = task.vocabulary.max_characters
    inputs = {
        "word_ids": ((None, None), "int32"),
        "character_ids": ((None, None, characters), "int32"),
    }
    return {"probabilities": Graph(probabilities(task), inputs)}


def in_float32(task: Task) -> Task:
    """The task, or a copy of it if its model computes in another type; engines lack bfloat16."""
    old, first = task.model, task.parts[0]
    policy = old.dtype_policy
    if {policy.compute_dtype, policy.variable_dtype} == {"float32"}:
        return task
    return backend.twin(task, **{first: old.copy(dtype="float32")})


def beams_of(translator: Translator) -> int:
    """The width of the beam search that is exported with the greedy one."""
    return translator.config.beams if translator.config.beams > 1 else MORE_BEAMS


def translation(translator: Translator, beams: int) -> Callable:
    """A search with the limits of `translator.config`; an empty source has an empty translation.

    Args:
        translator: `Translator`.
        beams: int, 1: greedy decoding.

    Returns:
        Function of source_ids, int32, (batch, source length), END included, padded with 0. Its
        "ids" are int32, (batch, length): the best translations, END included, padded with 0.
    """
    # A table, so that floats are rounded by NumPy alone. Rows of no tokens, or END alone: 0.
    most = translator.longest_input
    shortest, longest = translator.config.length_limits(np.arange(most + 1), most)
    longest[:2] = 0
    decoding = Decoding(translator.transformer)
    logits = translator.logits_config()

    def function(source_ids):
        lengths = _count(source_ids)
        limits = ops.take(longest, lengths), ops.take(shortest, lengths)
        constraints = Constraints(*limits, repetition_penalty=logits.penalties())
        if beams == 1:
            return {"ids": decoding.graph(GreedySearch(logits=logits), source_ids, constraints)}
        search = BeamSearch(beams, translator.config.length_penalty, logits=logits)
        return {"ids": decoding.graph(search, source_ids, constraints).ids[:, 0]}

    return function


def encoder_and_step(translator: Translator) -> dict[str, Graph]:
    """The two parts of a search, for engines that bring a loop of their own.

    Returns:
        "encoder", from source_ids to the mask of the source and the keys and values of the memory;
        "step", from these, the caches, the ids and their position to logits and "longer_" caches.
        Caches start with a length of 0.
    """
    model = translator.transformer
    blocks = model.decoder.blocks
    config = model.config
    width = config.d_model // config.num_heads
    keys = (None, config.num_heads, width, None)
    values = (None, config.num_heads, None, width)

    def shapes(kind):
        names = _entry_names(kind, len(blocks))
        return {name: (keys if "_keys_" in name else values, "float32") for name in names}

    def encoder(source_ids):
        memory = model.encode(source_ids)
        entries = _named("memory", model.cache_memory(memory).values())
        return {"source_mask": memory.mask, **entries}

    def step(ids, position, source_mask, **entries):
        paths = [block.cross_attention.path for block in blocks]
        of_memory = _unnamed("memory", paths, entries)
        decoded = _unnamed("cache", [block.self_attention.path for block in blocks], entries)
        cache = Cache(decoded, of_memory, position, ops.expand_dims(position, 0))
        # The cross-attention finds keys and values by its path: the states are not read again.
        memory = Memory(ops.zeros((1, 1, config.d_model)), source_mask)
        logits = model.decode(ids, memory, cache=cache)
        return {"logits": logits[:, 0], **_named("longer_cache", cache.decoded.values())}

    inputs = {
        "ids": ((None, 1), "int32"),
        "position": ((), "int32"),
        "source_mask": ((None, 1, None), "bool"),
        **shapes("memory"),
        **shapes("cache"),
    }
    source = {"source_ids": ((None, None), "int32")}
    return {"encoder": Graph(encoder, source), "step": Graph(step, inputs)}


def continuation(generator: TextGenerator) -> Callable:
    """Greedy decoding, window by window, as `TextGenerator.generate` continues prompts.

    Args:
        generator: `TextGenerator`.

    Returns:
        Function of prompt_ids, int32, (batch, length), padded with 0, and max_tokens, int32
        scalar. Its "ids" are int32, (batch, length + max_tokens): prompts with their
        continuations, padded with 0.
    """
    longest = generator.longest_input
    decoding = Decoding(generator.model)

    def function(prompt_ids, max_tokens):
        batch = ops.shape(prompt_ids)[0]
        goals = _count(prompt_ids) + max_tokens
        ids = ops.concatenate([prompt_ids, ops.zeros((batch, max_tokens), "int32")], axis=1)
        columns = ops.arange(ops.shape(ids)[1], dtype="int32")

        def done(ids):
            return ops.logical_or(_count(ids) >= goals, ops.any(ops.equal(ids, END), axis=1))

        def next_window(ids):
            lengths = _count(ids)
            first = ops.where(lengths < longest, 0, lengths - longest // 2)  # of the window
            known = lengths - first
            sizes = ops.minimum(known + goals - lengths, longest)
            sizes = ops.where(done(ids), 0, sizes)
            own = ops.arange(ops.max(sizes), dtype="int32")
            there = ops.minimum(ops.expand_dims(first, 1) + own, columns[-1])
            is_known = own < ops.expand_dims(ops.minimum(known, sizes), 1)
            prefix = ops.where(is_known, ops.take_along_axis(ids, there, axis=1), PADDING)
            shortest = None if generator.append_end else sizes  # END is never written
            constraints = Constraints(sizes, shortest, prefix)
            answers = decoding.graph(GreedySearch(), None, constraints)

            own = columns - ops.expand_dims(first, 1)
            is_new = ops.logical_and(
                own >= ops.expand_dims(known, 1), own < ops.expand_dims(sizes, 1)
            )
            own = ops.clip(own, 0, ops.shape(answers)[1] - 1)
            return ops.where(is_new, ops.take_along_axis(answers, own, axis=1), ids)

        (ids,) = ops.while_loop(
            lambda ids: ops.logical_not(ops.all(done(ids))), lambda ids: (next_window(ids),), (ids,)
        )
        return {"ids": ids}

    return function


def probabilities(task: Any) -> Callable:
    """The probability of each label.

    Args:
        task: `Tagger`, `Classifier` or `MaskFiller`.

    Returns:
        Function of word_ids, int32, (batch, length), and character_ids, int32, (batch, length,
        characters). Its "probabilities" are float32, (batch, length, labels), or (batch, labels)
        for a `Classifier`.
    """

    def function(word_ids, character_ids):
        inputs = {"word_ids": word_ids, "character_ids": character_ids}
        return {"probabilities": label_probabilities(task.model, inputs)}

    return function


def attentions_of(task: Task) -> list[Any]:
    """The attention layers of a task's model, those of the encoder first."""
    stacks = [getattr(task.model, name, None) for name in ("encoder", "decoder")]
    blocks = [block for stack in stacks if stack is not None for block in stack.blocks]
    names = ("self_attention", "cross_attention")
    layers = [getattr(block, name, None) for block in blocks for name in names]
    return [layer for layer in layers if layer is not None]


def pass_with_heads(
    model: keras.Model,
    inputs: Mapping[str, backend.Tensor],
    factors: Mapping[str, backend.Tensor],
    look_ahead: Any,
) -> tuple[backend.Tensor, dict[str, backend.Tensor]]:
    """One pass of a model, with the output of each head times a factor, with or without mask.

    Args:
        model: the model of a task.
        inputs: dict of int tensors, those of the model.
        factors: (num_heads,) by the path of each attention; 0 switches a head off.
        look_ahead: bool, scalar, False: a decoder attends to all tokens, the following ones
            included; of no effect without a decoder.

    Returns:
        float32, the logits.
        dict of float32, (batch, num_heads, target length, source length), the weights of the heads.
    """
    weights = {}

    def observe(path, outputs, of_heads):
        weights[path] = ops.cast(of_heads, "float32")
        return outputs * ops.cast(ops.reshape(factors[path], (1, -1, 1, 1)), outputs.dtype)

    decoded, revealed = inputs.get("target_ids", inputs.get("token_ids")), None
    if decoded is not None:  # padding stays hidden
        shown = ops.logical_and(padding_mask(decoded), ops.logical_not(look_ahead))
        revealed = ops.expand_dims(shown, 1)
    with backend.observed_heads(observe, revealed):
        logits = model(inputs, training=False)
    return ops.cast(logits, "float32"), weights


def observed_pass(task: Task) -> Graph:
    """One pass of the model, in which heads and the look-ahead mask may be switched off.

    Args:
        task: any task.

    Returns:
        `Graph` from the inputs of the model, "heads", float32, (attentions, num_heads), 1 or 0
        for off, in the order of `attentions_of`, and of a model with a decoder "look_ahead", bool,
        (), to "logits", float32, and "weights_0", ...,
        float32, (batch, num_heads, target length, source length).
    """
    layers = attentions_of(task)
    paths = [layer.path for layer in layers]

    def function(heads, look_ahead=True, **ids):
        factors = {path: heads[number] for number, path in enumerate(paths)}
        logits, weights = pass_with_heads(task.model, ids, factors, look_ahead)
        numbered = {f"weights_{number}": weights[path] for number, path in enumerate(paths)}
        return {"logits": logits, **numbered}

    inputs = {name: (x.shape, "int32") for name, x in task.model.input.items()}
    inputs["heads"] = ((len(layers), layers[0].num_heads), "float32")
    if hasattr(task.model, "decoder"):
        inputs["look_ahead"] = ((), "bool")
    return Graph(function, inputs)


def _count(ids):
    """int32, (batch,): the ids of each row that are not padding."""
    return ops.sum(ops.cast(ops.not_equal(ids, PADDING), "int32"), axis=1)


def _entry_names(kind, number):
    return [f"{kind}_{part}_{n}" for n in range(1, number + 1) for part in ("keys", "values")]


def _named(kind, entries):
    """The keys and values of each layer as one dict."""
    names, arrays = _entry_names(kind, len(entries)), itertools.chain.from_iterable(entries)
    return dict(zip(names, arrays, strict=True))


def _unnamed(kind, paths, named):
    """The inverse of `_named`: `Entries` of a cache."""
    arrays = [named[name] for name in _entry_names(kind, len(paths))]
    return dict(zip(paths, zip(arrays[::2], arrays[1::2], strict=True), strict=True))
