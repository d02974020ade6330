from . import (
    backend,
    data,
    evaluation,
    generation,
    ids,
    interchange,
    layers,
    losses,
    metrics,
    models,
    optimizers,
    plots,
    tasks,
    tokenizers,
    training,
)
from .cli.grading import check_layer
from .data import TextBatches, TranslationBatches, WordBatches, chunks, mask_words, word_dropout
from .generation import Decoding
from .generation.configuration import GenerationConfig, SamplingConfig
from .ids import END, PADDING, START, UNKNOWN
from .layers.attention import MultiHeadAttention, attention_scores, scaled_dot_product_attention
from .layers.blocks import Decoder, DecoderBlock, Encoder, EncoderBlock
from .layers.cache import Cache
from .layers.embeddings import Pooling, TokenEmbedding, WordEmbedding
from .layers.feed_forward import AddNorm, FeedForward
from .layers.masks import look_ahead_mask, padding_mask
from .layers.positions import (
    LearnedPositionalEncoding,
    PositionalEncoding,
    apply_rotary_embedding,
    sinusoids,
)
from .losses import TokenCrossEntropy
from .metrics import Perplexity, TokenAccuracy
from .models import ClassificationModel, LanguageModel, TaggingModel, Transformer
from .models.configuration import PRESETS, TransformerConfig
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
from .tasks.saved_files import check_file, load
from .tokenizers import SentencePieceTokenizer, WordVocabulary, split_words, train_tokenizer
from .training import WarmupSchedule, paper_optimizer

__version__: str

def _register() -> None: ...

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
    "backend",
    "check_file",
    "check_layer",
    "chunks",
    "data",
    "evaluation",
    "generation",
    "ids",
    "interchange",
    "layers",
    "load",
    "look_ahead_mask",
    "losses",
    "mask_words",
    "metrics",
    "models",
    "optimizers",
    "padding_mask",
    "paper_optimizer",
    "plots",
    "scaled_dot_product_attention",
    "sinusoids",
    "split_words",
    "tasks",
    "tokenizers",
    "train_tokenizer",
    "training",
    "word_dropout",
]
