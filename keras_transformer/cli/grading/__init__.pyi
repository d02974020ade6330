from .faults import CHAPTERS, Fault
from .report import KINDS, Report, check_layer, guess_kind
from .subjects import CannotCheck

__all__ = ["CHAPTERS", "KINDS", "CannotCheck", "Fault", "Report", "check_layer", "guess_kind"]
