"""The keys and values that decoding keeps, so that nothing is computed twice."""

from collections.abc import Iterable
from typing import Any

from keras import ops

from ..backend import Tensor, slot_indices, write_slots

Entries = dict[str, tuple[Tensor, Tensor]]  # keys and values, by the path of their attention layer


class Cache:
    """Keys and values for the attention layers of a decoder, while it decodes token by token.

    A decoder that is called with a cache reads only the next tokens. Each self-attention writes
    their keys and values into the cache and attends to all that are in it; each cross-attention
    finds those of the memory, which never change.

    The hypotheses of a beam search share the cache of their sentence: they are queries that stand
    side by side at one position, and the attention mask says which slots each of them attends to.

    Args:
        decoded: dict from the path of a self-attention layer to its keys, (batch, num_heads,
            key_dim, slots), and values, (batch, num_heads, slots, key_dim): see `empty`.
        memory: dict from the path of a cross-attention layer to the same: see `of_memory`.
        slot: int scalar, the first slot that the next tokens are written to.
        positions: int, (length,) or (batch, length), where the next tokens stand.

    Raises:
        ValueError: The cache has no such slots, where the value of `slot` is known.
    """

    def __init__(self, decoded: Entries, memory: Entries, slot: Tensor, positions: Tensor):
        self.decoded = dict(decoded)
        self.memory = memory
        self.positions = positions
        sizes = (values.shape[2] for _, values in self.decoded.values())  # None in some graphs
        num_slots = min((size for size in sizes if size is not None), default=None)
        self._slots = slot_indices(slot, positions.shape[-1], num_slots)

    def keys_and_values(self, attention: Any, value: Tensor) -> tuple[Tensor, Tensor]:
        """All that an attention layer attends to.

        Args:
            attention: `MultiHeadAttention`.
            value: float, (batch, length, d_value), the next tokens; for a cross-attention the
                memory, which is not needed any more.

        Returns:
            keys: float, (batch, num_heads, slots, key_dim).
            values: float, (batch, num_heads, slots, key_dim).
        """
        if attention.path in self.memory:
            keys, values = self.memory[attention.path]
        else:
            keys, values = self.decoded[attention.path]
            new_keys, new_values = attention.keys_and_values(value, positions=self.positions)
            new_keys = ops.swapaxes(new_keys, -1, -2)
            keys = write_slots(keys, new_keys, self._slots, axis=3)
            values = write_slots(values, new_values, self._slots, axis=2)
            self.decoded[attention.path] = keys, values
        return ops.swapaxes(keys, -1, -2), values

    @staticmethod
    def empty(attentions: Iterable, batch_size: Any, num_slots: int) -> Entries:
        """The `decoded` that a cache begins with: zeros.

        Args:
            attentions: the self-attention layers.
            batch_size: int.
            num_slots: int, the tokens that fit.
        """

        def zeros(attention):
            heads, width = attention.num_heads, attention.head_width
            keys = ops.zeros((batch_size, heads, width, num_slots), attention.compute_dtype)
            values = ops.zeros((batch_size, heads, num_slots, width), attention.compute_dtype)
            return keys, values

        return {attention.path: zeros(attention) for attention in attentions}

    @staticmethod
    def of_memory(attentions: Iterable, memory: Tensor) -> Entries:
        """The `memory` of a cache.

        Args:
            attentions: the cross-attention layers.
            memory: float, (batch, source length, width), the output of the encoder.
        """

        def projected(attention):
            keys, values = attention.keys_and_values(memory)
            return ops.swapaxes(keys, -1, -2), values

        return {attention.path: projected(attention) for attention in attentions}

    @staticmethod
    def grow(decoded: Entries, empty: Entries) -> Entries:
        """A `decoded` of more slots: `empty`, with what `decoded` holds in its first ones."""

        def copy(new, old):
            return ops.slice_update(new, [0] * len(old.shape), old)

        return {path: tuple(map(copy, empty[path], decoded[path])) for path in decoded}
