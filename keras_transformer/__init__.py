"""The Transformer of "Attention Is All You Need" in Keras 3, on TensorFlow, JAX and PyTorch."""

from . import data, evaluation, plots, training
from .attention import MultiHeadAttention, attention_scores, scaled_dot_product_attention
from .blocks import AddNorm, Decoder, DecoderBlock, Encoder, EncoderBlock, FeedForward
from .cache import Cache
from .check import check_layer
from .configuration import PRESETS, GenerationConfig, SamplingConfig, TransformerConfig
from .data import (
    TextBatches,
    TranslationBatches,
    WordBatches,
    chunks,
    mask_words,
    word_dropout,
)
from .generation import Decoding
from .ids import END, PADDING, START, UNKNOWN
from .losses import TokenCrossEntropy
from .masks import look_ahead_mask, padding_mask
from .metrics import Perplexity, TokenAccuracy
from .models import (
    ClassificationModel,
    LanguageModel,
    Pooling,
    TaggingModel,
    TokenEmbedding,
    Transformer,
    WordEmbedding,
)
from .positions import (
    LearnedPositionalEncoding,
    PositionalEncoding,
    apply_rotary_embedding,
    sinusoids,
)
from .saved_files import check_file, load
from .tasks import (
    AttentionMaps,
    Classifier,
    Hypothesis,
    MaskFiller,
    Prediction,
    Tagger,
    TextGenerator,
    TextScore,
    Translator,
)
from .tokenizers import SentencePieceTokenizer, train_tokenizer
from .training import WarmupSchedule, paper_optimizer
from .vocabulary import WordVocabulary, split_words

__version__ = "0.1.0"

__all__ = [
    "END",
    "PADDING",
    "PRESETS",
    "START",
    "UNKNOWN",
    "AddNorm",
    "AttentionMaps",
    "Cache",
    "ClassificationModel",
    "Classifier",
    "Decoder",
    "DecoderBlock",
    "Decoding",
    "Encoder",
    "EncoderBlock",
    "FeedForward",
    "GenerationConfig",
    "Hypothesis",
    "LanguageModel",
    "LearnedPositionalEncoding",
    "MaskFiller",
    "MultiHeadAttention",
    "Perplexity",
    "Pooling",
    "PositionalEncoding",
    "Prediction",
    "SamplingConfig",
    "SentencePieceTokenizer",
    "Tagger",
    "TaggingModel",
    "TextBatches",
    "TextGenerator",
    "TextScore",
    "TokenAccuracy",
    "TokenCrossEntropy",
    "TokenEmbedding",
    "Transformer",
    "TransformerConfig",
    "TranslationBatches",
    "Translator",
    "WarmupSchedule",
    "WordBatches",
    "WordEmbedding",
    "WordVocabulary",
    "apply_rotary_embedding",
    "attention_scores",
    "check_file",
    "check_layer",
    "chunks",
    "data",
    "evaluation",
    "load",
    "look_ahead_mask",
    "mask_words",
    "padding_mask",
    "paper_optimizer",
    "plots",
    "scaled_dot_product_attention",
    "sinusoids",
    "split_words",
    "train_tokenizer",
    "training",
    "word_dropout",
]
