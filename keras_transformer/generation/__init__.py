"""Decoding: one step over a cache of keys and values, and the searches around it."""

from .beam import Hypotheses, length_penalty
from .decoding import Decoding

__all__ = ["Decoding", "Hypotheses", "length_penalty"]
