"""Data: generated dates, text files, tensorflow-datasets, cleaning, and batches for `fit`."""

from .augmentation import mask_words, word_dropout
from .batches import TextBatches, TranslationBatches, WordBatches, chunks
from .cleaning import clean, normalized
from .corpus import Corpus
from .datasets import (
    iterate_split,
    iterate_text_split,
    read_labeled_splits,
    read_splits,
    read_tagged_splits,
    read_text_splits,
)
from .dates import DATE_FORMS, dates, write_date
from .examples import Examples, LabeledTexts, Splits, TaggedSentences, mix, train_valid_split
from .files import (
    expand_files,
    iterate_conllu,
    iterate_files,
    iterate_json_lines,
    iterate_lines,
    iterate_pairs,
    read_conllu,
    read_files,
    read_json_lines,
    read_labeled,
    read_lines,
    read_pairs,
    read_tagged_lines,
    read_text,
)
from .preparation import prepare_corpus
from .prepared_batches import PreparedBatches

__all__ = [
    "DATE_FORMS",
    "Corpus",
    "Examples",
    "LabeledTexts",
    "PreparedBatches",
    "Splits",
    "TaggedSentences",
    "TextBatches",
    "TranslationBatches",
    "WordBatches",
    "chunks",
    "clean",
    "dates",
    "expand_files",
    "iterate_conllu",
    "iterate_files",
    "iterate_json_lines",
    "iterate_lines",
    "iterate_pairs",
    "iterate_split",
    "iterate_text_split",
    "mask_words",
    "mix",
    "normalized",
    "prepare_corpus",
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
