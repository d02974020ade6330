"""The Transformer of "Attention Is All You Need" in Keras 3, on TensorFlow, JAX and PyTorch."""

from .attention import MultiHeadAttention, scaled_dot_product_attention
from .batches import TextBatches, TranslationBatches, WordBatches, windows
from .blocks import AddNorm, Decoder, DecoderBlock, Encoder, EncoderBlock, FeedForward
from .generation import Decoding
from .masks import look_ahead_mask, padding_mask
from .models import (
    PRESETS,
    ClassificationModel,
    LanguageModel,
    Pooling,
    Preset,
    TaggingModel,
    TokenEmbedding,
    Transformer,
    WordEmbedding,
    count_parameters,
)
from .positions import (
    LearnedPositionalEncoding,
    NoPositionalEncoding,
    PositionalEncoding,
    rotated,
    sinusoids,
)
from .tasks import (
    Attention,
    Classifier,
    Hypothesis,
    Label,
    MaskFiller,
    Tagger,
    TextGenerator,
    TextScore,
    Translator,
)
from .tokenizers import (
    END,
    PADDING,
    START,
    UNKNOWN,
    decode,
    encode,
    encode_at_random,
    learn_tokenizer,
)
from .training import (
    Perplexity,
    TokenAccuracy,
    TokenCrossEntropy,
    WarmupSchedule,
    paper_optimizer,
)
from .words import WordVocabulary, forget_words, mask_words, split_words

__version__ = "0.1.0"
