from .beam_search import BeamSearch, Hypotheses, length_penalty
from .decoding import Decoding
from .ensemble import Ensemble
from .requests import Request
from .sampling import GreedySearch, Sampling

__all__ = [
    "BeamSearch",
    "Decoding",
    "Ensemble",
    "GreedySearch",
    "Hypotheses",
    "Request",
    "Sampling",
    "length_penalty",
]
