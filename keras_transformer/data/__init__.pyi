from .augmentation import mask_words, word_dropout
from .batches import TextBatches, TranslationBatches, WordBatches, chunks
from .cleaning import clean, normalized
from .datasets import (
    iterate_split,
    iterate_text_split,
    read_labeled_splits,
    read_splits,
    read_tagged_splits,
    read_text_splits,
)
from .dates import DATE_FORMS, dates, write_date
from .files import (
    expand_files,
    find_line,
    iterate_files,
    iterate_texts,
    parallel_files,
    read_files,
    read_texts,
)
from .languages import (
    direction_of,
    language_tag,
    oversampled,
    tagged,
    targets_of,
    without_validation,
)
from .lines import format_of, iterate_lines, read_lines, read_text
from .placeholders import MASKS, mask_pairs, placeholder_pattern
from .prepared.batches import PreparedBatches
from .prepared.corpus import Corpus
from .prepared.preparation import prepare_corpus
from .records import (
    Examples,
    LabeledTexts,
    Splits,
    TaggedSentences,
    concatenate,
    mix,
    num_shared,
    text_key,
    text_keys,
    train_valid_split,
)
from .tables import iterate_pairs, read_labeled, read_pairs
from .treebanks import iterate_conllu, read_conllu, read_tagged, read_tagged_lines

__all__ = [
    "DATE_FORMS",
    "MASKS",
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
    "concatenate",
    "dates",
    "direction_of",
    "expand_files",
    "find_line",
    "format_of",
    "iterate_conllu",
    "iterate_files",
    "iterate_lines",
    "iterate_pairs",
    "iterate_split",
    "iterate_text_split",
    "iterate_texts",
    "language_tag",
    "mask_pairs",
    "mask_words",
    "mix",
    "normalized",
    "num_shared",
    "oversampled",
    "parallel_files",
    "placeholder_pattern",
    "prepare_corpus",
    "read_conllu",
    "read_files",
    "read_labeled",
    "read_labeled_splits",
    "read_lines",
    "read_pairs",
    "read_splits",
    "read_tagged",
    "read_tagged_lines",
    "read_tagged_splits",
    "read_text",
    "read_text_splits",
    "read_texts",
    "tagged",
    "targets_of",
    "text_key",
    "text_keys",
    "train_valid_split",
    "without_validation",
    "word_dropout",
    "write_date",
]
