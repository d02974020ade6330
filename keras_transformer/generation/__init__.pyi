from .beam_search import BeamSearch, Hypotheses, length_penalty
from .decoding import Decoding
from .requests import Request
from .sampling import GreedySearch, Sampling

__all__ = [
    "BeamSearch",
    "Decoding",
    "GreedySearch",
    "Hypotheses",
    "Request",
    "Sampling",
    "length_penalty",
]
