"""Text in: dates made here, files, tensorflow-datasets, as pairs of a source and its target."""

from .calendar import DATE_FORMS, dates, write_date
from .cleaning import clean, normalized
from .datasets import read_dataset, read_splits
from .examples import Examples, Splits
from .files import read_files, read_json_lines, read_pairs

__all__ = [
    "DATE_FORMS",
    "Examples",
    "Splits",
    "clean",
    "dates",
    "normalized",
    "read_dataset",
    "read_files",
    "read_json_lines",
    "read_pairs",
    "read_splits",
    "write_date",
]
