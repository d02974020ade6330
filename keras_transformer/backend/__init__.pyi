from .adaptation import adapt, adaptations
from .compilation import (
    FunctionalModel,
    Programs,
    jit,
    keep_programs,
    prefers_jit,
    split_rows,
    to_arguments,
    to_tensors,
)
from .distribution import gather_tokens, global_mean
from .gradients import (
    RematerializedLayer,
    one_by_one,
)
from .kernels import (
    Linear,
    ReversibleEmbedding,
    cross_entropy,
    fused_attention,
    has_fused_attention,
    known_int,
    portable,
    prefers_blockwise_top_k,
    shape_of,
    slot_indices,
    write_slots,
)
from .observation import observed_heads, observer_of_heads
from .platform import (
    Tensor,
    name,
    on_accelerator,
)
from .private import as_constants, is_rematerialized, layers_of, safe_mode, twin
from .process import (
    dropout_state,
    keep_freed_memory,
    leave_pipelines_untuned,
    make_deterministic,
    map_batches,
    num_cores,
    seed_dropout,
    set_dropout_state,
    set_num_threads,
)
from .recording import (
    trace,
)

__all__ = [
    "FunctionalModel",
    "Linear",
    "Programs",
    "RematerializedLayer",
    "ReversibleEmbedding",
    "Tensor",
    "adapt",
    "adaptations",
    "as_constants",
    "cross_entropy",
    "dropout_state",
    "fused_attention",
    "gather_tokens",
    "global_mean",
    "has_fused_attention",
    "is_rematerialized",
    "jit",
    "keep_freed_memory",
    "keep_programs",
    "known_int",
    "layers_of",
    "leave_pipelines_untuned",
    "make_deterministic",
    "map_batches",
    "name",
    "num_cores",
    "observed_heads",
    "observer_of_heads",
    "on_accelerator",
    "one_by_one",
    "portable",
    "prefers_blockwise_top_k",
    "prefers_jit",
    "safe_mode",
    "seed_dropout",
    "set_dropout_state",
    "set_num_threads",
    "shape_of",
    "slot_indices",
    "split_rows",
    "to_arguments",
    "to_tensors",
    "trace",
    "twin",
    "write_slots",
]
