"""What `model.fit` needs besides a loss: schedule, callbacks, and runs that can be resumed."""

from ..optimizers import WarmupSchedule, paper_optimizer
from .callbacks import (
    FiniteLoss,
    Progress,
    ResumableEarlyStopping,
    Samples,
    ValidationScore,
    evenly_spaced,
)
from .checkpoints import EpochCheckpoint, ResumableCSVLogger, average_checkpoints, checkpoint_paths
from .chunked_logits import LogitsInPieces
from .diversification import add_translations, diversify
from .estimates import forecast
from .fine_tuning import enable_lora, freeze
from .interruptions import SaveOnSignal
from .r_drop import RDrop, symmetric_kl_divergence
from .run import Run

__all__ = [
    "EpochCheckpoint",
    "FiniteLoss",
    "LogitsInPieces",
    "Progress",
    "RDrop",
    "ResumableCSVLogger",
    "ResumableEarlyStopping",
    "Run",
    "Samples",
    "SaveOnSignal",
    "ValidationScore",
    "WarmupSchedule",
    "add_translations",
    "average_checkpoints",
    "checkpoint_paths",
    "diversify",
    "enable_lora",
    "evenly_spaced",
    "forecast",
    "freeze",
    "paper_optimizer",
    "symmetric_kl_divergence",
]
