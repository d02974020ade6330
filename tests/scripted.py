"""A model whose logits a test writes."""


class Scripted:
    """A model for `Decoding`: its logits are a function of position and token alone.

    Args:
        next_logits: function of (position, ids (batch, beams)) to logits (batch, beams, size).
    """

    variables = ()
    max_length = source_vocabulary_size = target_vocabulary_size = None

    def __init__(self, next_logits):
        self.next_logits = next_logits
        self.calls = []  # one for each call of `decode`: traced once, run often

    def encode(self, source_ids):
        return source_ids

    def cache_memory(self, memory):
        return {}

    def empty_cache(self, batch_size, num_slots):
        return {}

    def decode(self, ids, memory, attention_mask, cache):
        self.calls.append(cache.positions)
        return self.next_logits(cache.positions[0], ids)
