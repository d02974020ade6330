"""Text in: made here, from files, from tensorflow-datasets; with its translation, tags or label."""

from .annotated import read_conllu, read_labelled, read_tagged_lines
from .calendar import DATE_FORMS, dates, write_date
from .cleaning import clean, normalized
from .datasets import (
    read_dataset,
    read_labelled_splits,
    read_splits,
    read_tagged_splits,
    read_text_splits,
)
from .examples import Examples, LabelledTexts, Splits, TaggedSentences
from .files import read_files, read_json_lines, read_lines, read_pairs, read_text
from .grammar import grammar_entropy, grammar_nats, grammar_text, reviews, tagged_sentences

__all__ = [
    "DATE_FORMS",
    "Examples",
    "LabelledTexts",
    "Splits",
    "TaggedSentences",
    "clean",
    "dates",
    "grammar_entropy",
    "grammar_nats",
    "grammar_text",
    "normalized",
    "read_conllu",
    "read_dataset",
    "read_files",
    "read_json_lines",
    "read_labelled",
    "read_labelled_splits",
    "read_lines",
    "read_pairs",
    "read_splits",
    "read_tagged_lines",
    "read_tagged_splits",
    "read_text",
    "read_text_splits",
    "reviews",
    "tagged_sentences",
    "write_date",
]
