"""What `model.fit` needs: loss, metrics, schedule, R-Drop, and runs that survive a kill."""

from .callbacks import EarlyStopping, Progress, Samples, ValidationScore, spread
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
from .run import Run, check_tensorboard

__all__ = [
    "Checkpoint",
    "EarlyStopping",
    "Perplexity",
    "Progress",
    "RDrop",
    "Run",
    "Samples",
    "TokenAccuracy",
    "TokenCrossEntropy",
    "TrainingLog",
    "ValidationScore",
    "WarmupSchedule",
    "average_checkpoints",
    "check_tensorboard",
    "checkpoint_paths",
    "make_deterministic",
    "nats_per_token",
    "paper_optimizer",
    "pays_to_compile",
    "spread",
    "symmetric_divergence",
    "use_threads",
]
