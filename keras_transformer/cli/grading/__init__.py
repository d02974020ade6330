"""Marks a layer, mask or function that a learner has written against the paper's formulas.

    python -m keras_transformer.cli.grading my_layer.py

It runs the file. (`keras-transformer check MODEL.keras` and `check_file`, by contrast, look into a
saved model without running anything of it.)
"""

from .faults import CHAPTERS, Fault
from .report import KINDS, Report, check_layer, guess_kind
from .subjects import CannotCheck

__all__ = ["CHAPTERS", "KINDS", "CannotCheck", "Fault", "Report", "check_layer", "guess_kind"]
