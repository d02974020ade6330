from .language_model import LanguageModel
from .transformer import Memory, Transformer
from .word_models import ClassificationModel, TaggingModel

__all__ = [
    "ClassificationModel",
    "LanguageModel",
    "Memory",
    "TaggingModel",
    "Transformer",
]
