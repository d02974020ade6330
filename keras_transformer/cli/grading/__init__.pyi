from .faults import CHAPTERS, KINDS, Fault
from .report import Report, check_layer, guess_kind
from .subjects import CannotCheck, reason_of

__all__ = [
    "CHAPTERS",
    "KINDS",
    "CannotCheck",
    "Fault",
    "Report",
    "check_layer",
    "guess_kind",
    "reason_of",
]
