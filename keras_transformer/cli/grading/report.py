"""One sentence about a learner's function or layer."""

import dataclasses
import inspect
import re
from typing import Any

import keras

from . import functions
from .faults import KINDS, Fault
from .layers import mark_layer
from .subjects import CannotCheck, parameters, reason_of


@dataclasses.dataclass
class Report:
    """The parts examined, and the first fault, if any: printed, one sentence.

    Args:
        name: str, the name of what was checked.
        kind: str, one of `KINDS`.
        checked: list of str, what was examined, in this order; the last one is what failed.
        skipped: list of str, what was not examined, and why.
        remarks: list of `Fault`, what may be improved although it is right.
        fault: `Fault`, or None.
    """

    name: str
    kind: str
    checked: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    remarks: list[Fault] = dataclasses.field(default_factory=list)
    fault: Fault | None = None

    @property
    def passed(self) -> bool:
        """Whether everything that was examined is right."""
        return self.fault is None

    def __str__(self) -> str:
        if self.fault:
            return f"{self.name}: {self.fault}"
        skipped = [f"Not examined: {'; '.join(self.skipped)}."] if self.skipped else []
        first = f"{self.name} is right: {', '.join(self.checked)}."
        return " ".join([first, *map(str, self.remarks), *skipped])

    __repr__ = __str__  # a notebook shows the sentence


def check_layer(layer: Any, kind: str | None = None) -> Report:
    """Marks a learner's own attention, mask, positional encoding, or block.

        check_layer(MyAttention)
        check_layer(my_mask, kind="look_ahead_mask")

    The code is called with small inputs, and its output compared with the paper's formula in
    float64 NumPy. If the two differ, it is compared with the wrong forms of the formula that are
    known. Of a layer, all matrices are drawn at random, and each of them is tried in each part
    (W^Q, W^K, ...), so that their names and their order do not matter; after that the layer has
    its own weights again. Right values pass, whatever the style; an activation or an epsilon of
    another kind and what is missing for saving are remarks. A mask is boolean, True = may be
    attended to.

    Args:
        layer: function, subclass of keras.layers.Layer, function without arguments that makes a
            layer, layer, or functional keras.Model. A layer that does not know its width is called
            with 12. Arguments are recognized by their names: d_model, num_heads, d_ff; query,
            value, key, mask, memory; ids, length.
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
    kind = kind or guess_kind(layer) or "None"
    if kind not in KINDS:
        raise CannotCheck(f"kind must be one of {', '.join(KINDS)}; received {kind} for {name}.")
    report = Report(name, kind, [*KINDS[kind]["examined"]])
    try:
        mark = getattr(functions, f"mark_{kind}", None)
        report.fault = mark(layer) if mark else mark_layer(layer, report)
    except CannotCheck:
        raise
    except Exception as error:  # the learner's code, whatever it does
        sentence = f"It fails with {type(error).__name__}: {reason_of(error)}."
        report.fault = Fault(sentence, KINDS[kind]["chapter"])
    return report


def _name_of(layer):
    if isinstance(layer, keras.layers.Layer):
        return layer.name if isinstance(layer, keras.Model) else type(layer).__name__
    return getattr(layer, "__name__", type(layer).__name__)


def guess_kind(layer: Any) -> str | None:
    """The kind of a function or layer, from the words in its name.

    Args:
        layer: function, layer, or class of one.

    Returns:
        str, one of `KINDS`, or None.
    """
    name = _name_of(layer).lower().replace("_", "")
    is_layer = isinstance(layer, keras.layers.Layer) or inspect.isclass(layer)
    for kind, table in KINDS.items():
        if re.search(table["words"], name):
            if "mask" in kind and (is_layer or sum(parameters(layer).values()) > 1):
                continue  # an attention that has a mask
            return "multi_head_attention" if kind == "attention" and is_layer else kind
    return None
