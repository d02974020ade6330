"""Decoding: greedy, sampling and beam search around a model that is called with a cache."""

from .beam_search import Hypotheses, length_penalty
from .decoding import Decoding
