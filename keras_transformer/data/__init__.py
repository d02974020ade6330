"""Data: generated dates, text files, tensorflow-datasets, cleaning, and batches for `fit`."""

from .augmentation import mask_words, word_dropout
from .batches import TextBatches, TranslationBatches, WordBatches, chunks
from .cleaning import clean, normalized
from .datasets import read_labeled_splits, read_splits, read_tagged_splits, read_text_splits
from .dates import DATE_FORMS, dates, write_date
from .examples import Examples, LabeledTexts, Splits, TaggedSentences, mix, train_valid_split
from .files import (
    read_conllu,
    read_files,
    read_json_lines,
    read_labeled,
    read_lines,
    read_pairs,
    read_tagged_lines,
    read_text,
)

__all__ = [
    "DATE_FORMS",
    "Examples",
    "LabeledTexts",
    "Splits",
    "TaggedSentences",
    "TextBatches",
    "TranslationBatches",
    "WordBatches",
    "chunks",
    "clean",
    "dates",
    "mask_words",
    "mix",
    "normalized",
    "read_conllu",
    "read_files",
    "read_json_lines",
    "read_labeled",
    "read_labeled_splits",
    "read_lines",
    "read_pairs",
    "read_splits",
    "read_tagged_lines",
    "read_tagged_splits",
    "read_text",
    "read_text_splits",
    "train_valid_split",
    "word_dropout",
    "write_date",
]
