"""One sentence about a learner's function or layer."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from .faults import Fault
from .functions import (
    mark_attention,
    mark_layer_norm,
    mark_look_ahead_mask,
    mark_padding_mask,
    mark_positional_encoding,
)
from .layers import mark_block, mark_feed_forward, mark_multi_head_attention
from .subjects import CannotCheck, reason_of


class Kind(NamedTuple):
    """A kind of function or layer.

    Args:
        mark: function that examines it.
        chapter: int, the chapter that explains it.
        words: tuple of str, parts of the names that it has.
    """

    mark: Callable
    chapter: int
    words: tuple[str, ...]


KINDS = {  # the first one of whose words a name has
    "decoder_block": Kind(functools.partial(mark_block, is_decoder=True), 9, ("decoder",)),
    "encoder_block": Kind(mark_block, 8, ("encoder", "transformerblock")),
    "padding_mask": Kind(mark_padding_mask, 6, ("padmask", "paddingmask", "maskpad", "maskofpad")),
    "look_ahead_mask": Kind(mark_look_ahead_mask, 6, ("mask", "lookahead", "causal")),
    "positional_encoding": Kind(mark_positional_encoding, 5, ("position", "sinus")),
    "feed_forward": Kind(mark_feed_forward, 8, ("feedforward", "ffn", "mlp")),
    "layer_norm": Kind(mark_layer_norm, 8, ("norm",)),
    "multi_head_attention": Kind(mark_multi_head_attention, 4, ("multihead", "mha", "heads")),
    "attention": Kind(mark_attention, 3, ("attention", "attend")),
}


@dataclasses.dataclass(frozen=True)
class Report:
    """The parts examined, and the first fault, if any: printed, one sentence.

    Args:
        name: str, the name of what was checked.
        kind: str, one of `KINDS`.
        checked: tuple of str, what was examined, in this order; the last one is what failed.
        fault: `Fault`, or None.
    """

    name: str
    kind: str
    checked: tuple[str, ...]
    fault: Fault | None = None

    @property
    def passed(self) -> bool:
        """Whether everything that was examined is right."""
        return self.fault is None

    def __str__(self) -> str:
        if self.fault:
            return f"{self.name}: {self.fault}"
        return f"{self.name} is right: {', '.join(self.checked)}."

    __repr__ = __str__  # a notebook shows the sentence


def check_layer(layer: Any, kind: str | None = None) -> Report:
    """Marks a learner's own attention, mask, positional encoding, or block.

        check_layer(MyAttention)
        check_layer(my_mask, kind="look_ahead_mask")

    The code is called with small inputs, and its output compared with the paper's formula in
    float64 NumPy. If the two differ, it is compared with the wrong forms of the formula that are
    known. Of a layer, all matrices are drawn at random, and each of them is tried in each part
    (W^Q, W^K, ...), so that their names and their order do not matter. A mask is boolean, True =
    may be attended to.

    Args:
        layer: function, subclass of keras.layers.Layer, function without arguments that makes a
            layer, or unbuilt layer of width 12. Arguments are recognized by their names:
            d_model, num_heads, d_ff; query, value, key, mask, memory; ids, length.
        kind: one of "attention", "multi_head_attention", "look_ahead_mask", "padding_mask",
            "positional_encoding", "layer_norm", "feed_forward", "encoder_block",
            "decoder_block"; None: guessed from the name, such as MyMultiHeadAttention.

    Returns:
        `Report`: `passed`, and one sentence with its chapter about what is wrong.

    Raises:
        ValueError: the kind is unknown or cannot be guessed, or an argument has a name whose
            meaning is not clear.
    """
    name = _name_of(layer)
    kind = kind or guess_kind(layer)
    if kind not in KINDS:
        raise CannotCheck(f"kind must be one of {', '.join(KINDS)}; received {kind!r} for {name}.")
    checked: list[str] = []
    try:
        fault = KINDS[kind].mark(layer, checked)
    except CannotCheck:
        raise
    except Exception as error:  # the learner's code, whatever it does
        sentence = f"It fails with {type(error).__name__}: {reason_of(error)}."
        fault = Fault(sentence, KINDS[kind].chapter)
    return Report(name, kind, tuple(checked), fault)


def _name_of(layer):
    if isinstance(layer, keras.layers.Layer):
        return type(layer).__name__
    return getattr(layer, "__name__", type(layer).__name__)


def guess_kind(layer: Any) -> str | None:
    """The kind of a function or layer, from the words in its name.

    Args:
        layer: as for `check_layer`.

    Returns:
        str, one of `KINDS`, or None.
    """
    name = _name_of(layer).lower().replace("_", "")
    is_layer = isinstance(layer, keras.layers.Layer) or inspect.isclass(layer)
    for kind, (_, _, words) in KINDS.items():
        if any(word in name for word in words):
            return "multi_head_attention" if kind == "attention" and is_layer else kind
    return None
