"""Decoding: greedy, sampling and beam search around a model that is called with a cache."""

from .beam_search import BeamSearch, Hypotheses, length_penalty
from .decoding import Decoding
from .requests import Request
from .sampling import GreedySearch, Sampling
