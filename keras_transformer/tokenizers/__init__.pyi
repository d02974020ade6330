from .base import Tokenizer
from .byte_level import ByteLevelTokenizer
from .byte_pairs import BytePairs
from .sentencepiece import SentencePieceTokenizer, train_tokenizer
from .words import WordVocabulary, split_words

__all__ = [
    "ByteLevelTokenizer",
    "BytePairs",
    "SentencePieceTokenizer",
    "Tokenizer",
    "WordVocabulary",
    "split_words",
    "train_tokenizer",
]
