"""Learning rate schedules, optimizers, callbacks and resumable runs."""

from ..optimizers import WarmupSchedule, WSDSchedule, create_optimizer, paper_optimizer
from .callbacks import (
    PrintSamples,
    Progress,
    ResumableCSVLogger,
    ResumableEarlyStopping,
    TerminateOnNonFinite,
    ValidationScore,
    evenly_spaced,
)
from .checkpoints import EpochCheckpoint, average_checkpoints, checkpoint_paths
from .chunked_logits import ChunkedLogits
from .diversification import add_pairs, add_translations, diversify, saved_translations
from .estimates import forecast
from .fine_tuning import enable_lora, freeze
from .interruptions import SaveOnInterrupt
from .r_drop import RDrop, symmetric_kl_divergence
from .run import Run
from .simcut import SimCut, kl_divergence
