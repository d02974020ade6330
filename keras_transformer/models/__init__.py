"""Functional assemblies of the blocks. Text never enters here: ids in, logits out."""

from .embeddings import LogitsBias, TokenEmbedding, WordEmbedding
from .encoders import ClassificationModel, Pooling, TaggingModel
from .language_model import LanguageModel
from .transformer import Memory, Transformer
