"""Functional assemblies of the blocks. Text never enters here: ids in, logits out."""

from .embeddings import TokenEmbedding, WordEmbedding
from .language import LanguageModel
from .presets import PRESETS, Preset, count_parameters
from .transformer import Transformer
from .words import ClassificationModel, Pooling, TaggingModel

__all__ = [
    "PRESETS",
    "ClassificationModel",
    "LanguageModel",
    "Pooling",
    "Preset",
    "TaggingModel",
    "TokenEmbedding",
    "Transformer",
    "WordEmbedding",
    "count_parameters",
]
