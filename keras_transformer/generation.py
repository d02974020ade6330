"""Decoding: one step over a cache of keys and values, and the loops around it.

Every loop here asks `Decoding.step` for the logits of the next token and decides what to do with them; the
loop is compiled once for each shape of its input.
"""

import keras
import numpy as np
from keras import ops

from .tokenizers import END, PADDING, START

NEVER = (PADDING, START)  # these ids are never a label, so they are never an answer


class Decoding:
    """A compiled decoder for one `Transformer`.

    The encoder runs once; its keys and values are projected once; every step feeds one token
    a sentence through the decoder. The loop ends when all sentences have ended. It is one XLA
    program on TensorFlow and JAX, and eager under inference mode on PyTorch.

    Args:
        transformer: a `Transformer`. Its weights may go on training: they are read at each call.

    Source: Vaswani et al. 2017, section 3.1 ("auto-regressive").
    """

    def __init__(self, transformer):
        self.transformer = transformer
        self._greedy = _compiled(self._greedy_loop, transformer)

    def greedy(self, source_ids, max_length):
        """The most probable next token, again and again.

        Args:
            source_ids: int, (batch, source length), padded with 0. A row of padding only is
                there to fill the batch; it ends at once.
            max_length: int, the most tokens of an answer, END included.

        Returns:
            NumPy int32, (batch, max_length): the answers, END included if they came to it,
            padded with 0.
        """
        source_ids = ops.convert_to_tensor(np.asarray(source_ids, "int32"))
        return ops.convert_to_numpy(self._greedy(source_ids, int(max_length)))

    def start(self, source_ids, max_length):
        """What `step` needs: an empty past, and everything that stays the same from step to step."""
        memory, mask = self.transformer.encode(source_ids)
        past, projected = self.transformer.decoder.cache(memory, max_length)
        positions = ops.cast(self.transformer.target_positions.table(max_length), memory.dtype)
        return past, (positions, projected, mask)

    def step(self, ids, position, past, context):
        """Logits of the token that follows `ids`.

        Args:
            ids: int, (batch,), the tokens at `position`.
            position: int scalar.
            past, context: from `start`, or past from the step before.

        Returns:
            logits: float32, (batch, vocabulary size); ids in `NEVER` at -1e9.
            past: keys and values up to and including `position`.
        """
        positions, projected, mask = context
        embed = self.transformer.embed_target
        x = ops.add(embed(ops.expand_dims(ids, 1)), ops.slice(positions, (position, 0), (1, positions.shape[1])))
        x, past = self.transformer.decoder.step(x, position, past, projected, mask)
        logits = ops.squeeze(embed(x, reverse=True), axis=1)
        never = np.zeros(logits.shape[-1], "float32")
        never[list(NEVER)] = -1e9
        return ops.add(logits, never), past

    def _greedy_loop(self, source_ids, max_length):
        past, context = self.start(source_ids, max_length)
        ended = ops.all(ops.equal(source_ids, PADDING), axis=1)
        ids = ops.full_like(source_ids[:, 0], START)
        answers = ops.zeros((source_ids.shape[0], max_length), "int32")

        def unfinished(position, ids, ended, answers, past):
            return ops.logical_and(position < max_length, ops.logical_not(ops.all(ended)))

        def body(position, ids, ended, answers, past):
            logits, past = self.step(ids, position, past, context)
            ids = ops.where(ended, PADDING, ops.cast(ops.argmax(logits, axis=-1), "int32"))
            answers = ops.slice_update(answers, (0, position), ops.expand_dims(ids, 1))
            ended = ops.logical_or(ended, ops.equal(ids, END))
            return position + 1, ids, ended, answers, past

        position = ops.convert_to_tensor(0, "int32")
        return ops.while_loop(unfinished, body, (position, ids, ended, answers, past))[3]


def _compiled(function, model):
    """`function(tensor, int)` as one program a shape, reading the weights of `model` anew each call."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=True)
    if backend == "jax":
        import jax

        def stateless(values, tensor, length):
            with keras.StatelessScope(state_mapping=zip(model.variables, values)):
                return function(tensor, length)

        program = jax.jit(stateless, static_argnums=2)
        return lambda tensor, length: program([v.value for v in model.variables], tensor, length)

    import torch

    return torch.inference_mode()(function)
