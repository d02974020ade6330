"""What `model.fit` needs: loss, metrics, schedule, R-Drop, and checkpoints that survive a kill."""

from .callbacks import EarlyStopping, Progress, SampleTranslations, ValidationScore
from .checkpoints import Checkpoint, TrainingLog, average_checkpoints, checkpoint_paths
from .loss import TokenCrossEntropy, nats_per_token
from .metrics import Perplexity, TokenAccuracy
from .optimization import (
    WarmupSchedule,
    make_deterministic,
    paper_optimizer,
    pays_to_compile,
    use_threads,
)
from .r_drop import RDrop, symmetric_divergence

__all__ = [
    "Checkpoint",
    "EarlyStopping",
    "Perplexity",
    "Progress",
    "RDrop",
    "SampleTranslations",
    "TokenAccuracy",
    "TokenCrossEntropy",
    "TrainingLog",
    "ValidationScore",
    "WarmupSchedule",
    "average_checkpoints",
    "checkpoint_paths",
    "make_deterministic",
    "nats_per_token",
    "paper_optimizer",
    "pays_to_compile",
    "symmetric_divergence",
    "use_threads",
]
