"""Functional assemblies of the blocks. Text never enters here: ids in, logits out."""

from .language_model import LanguageModel
from .transformer import Memory, Transformer
from .word_models import ClassificationModel, TaggingModel
