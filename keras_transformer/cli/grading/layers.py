"""The examination of layers with matrices: the role of each is found by trying."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np

from ...backend import layers_of
from . import faults, formulas
from .assignments import attention_kernels, block_kernels, feed_forward_kernels
from .comparison import close, explanation, fits, fitting, unexplained
from .faults import Fault
from .formulas import PAPER, Formula
from .functions import BATCH, PADDED, SOURCE, TARGET, normal
from .subjects import SIZES, arguments_for, call, kernels_of, make, mask_role, parameters, role_of

D_MODEL = SIZES["d_model"]
FORMS = [  # of a mask: learners expect an axis for the heads, a whole matrix, or numbers
    lambda mask, length: mask,
    lambda mask, length: np.broadcast_to(mask, (len(mask), length, mask.shape[-1])),
    lambda mask, length: mask[:, None],
    lambda mask, length: mask.astype("float32"),
    lambda mask, length: mask[:, None].astype("float32"),
]
HEADS_IN_ORDER = [Formula(heads=heads) for heads in ("slices", "interleaved")]


class Subject:
    """A learner's layer, built, with random matrices.

    Args:
        thing: layer, class of one, or function that makes one.
        values: dict from a role to the array with which it is called.
        is_decoder: bool, True: a plain mask is that of the target.
    """

    def __init__(self, thing: Any, values: dict, is_decoder: bool = False):
        self.layer = make(thing)
        self.is_decoder = is_decoder
        self.values = values
        heads = [name for name in vars(self.layer) if role_of(name, ("num_heads",))]
        heads = [getattr(self.layer, name) for name in heads]
        self.num_heads = next((n for n in heads if isinstance(n, int)), SIZES["num_heads"])
        self.form = FORMS[0]
        self.masks = {mask_role(name, is_decoder) for name in parameters(self.layer.call)}
        self()
        self._draw_weights()
        self.kernels = kernels_of(self.layer)

    def __call__(self, masks: dict | None = None, layer: Any = None, **values: Any) -> Any:
        layer = layer or self.layer
        values = {**self.values, **values}
        length = values["query"].shape[1]
        masks = {
            role: self.form(mask, length) if isinstance(mask, np.ndarray) else mask
            for role, mask in (masks or {}).items()
        }
        arguments = arguments_for(layer.call, values, masks, self.is_decoder)
        found = call(layer, arguments)
        return found[0] if isinstance(found, tuple) else found

    def _draw_weights(self):
        """Matrices become random; of vectors, gains are 1 and biases 0."""
        rng, weights = np.random.default_rng(1), []
        for value in self.layer.get_weights():
            if value.ndim > 1 and (value.any() or value.size > 2 * D_MODEL):
                value = normal(rng, *value.shape, scale=0.4)
            elif value.ndim and not (value == 1).all():
                value = np.zeros_like(value)
            weights.append(value)
        self.layer.set_weights(weights)

    def each_form(self, masks: dict) -> Iterator[Any]:
        """Yields the output for each form of the masks that the layer takes.

        Args:
            masks: dict from a role to a bool array of three axes.

        Raises:
            Exception: that of the first form, if the layer takes none.
        """
        first_error, is_taken = None, False
        for form in FORMS:
            self.form = form
            try:
                found = self(masks)
            except Exception as error:
                first_error = first_error or error
                continue
            is_taken = True
            yield found
        self.form = FORMS[0]
        if first_error and not is_taken:
            raise first_error

    def before_values(self) -> Fault | None:
        """Faults independent of the values."""
        batch_normalization = keras.layers.BatchNormalization
        if any(isinstance(each, batch_normalization) for each in layers_of(self.layer)):
            return faults.BATCH_NORMALIZATION
        return None if np.allclose(self(), self(), atol=1e-6, equal_nan=True) else faults.RANDOM

    def after_values(self, checked: list[str]) -> Fault | None:
        """Faults of get_config: a copy that is made from it must give the same output.

        Args:
            checked: list to which "serialization" is added.

        Returns:
            `Fault`, or None.
        """
        checked.append("serialization")
        kind = type(self.layer).__name__
        try:
            config = json.loads(json.dumps(self.layer.get_config()))
            copy = type(self.layer).from_config(config)
            self(layer=copy)
        except Exception:
            sentence = (
                f"A {kind} cannot be made from its get_config(): __init__ must take **kwargs and "
                "pass them to super().__init__, and get_config return all its other arguments."
            )
            return Fault(sentence, 10)
        weights = self.layer.get_weights()
        same = [each.shape for each in copy.get_weights()] == [each.shape for each in weights]
        if same:
            copy.set_weights(weights)
        if same and close(self(layer=copy), self()):
            return None
        sentence = f"A {kind} made from its get_config() differs: an argument is missing in it."
        return Fault(sentence, 10)


def mark_multi_head_attention(thing: Any, checked: list[str]) -> Fault | None:
    """Examines a layer of multi-head attention, of query, value and key, or of one input.

    Args:
        thing: layer, class of one, or function that makes one.
        checked: list to which the names of what was examined are added.

    Returns:
        `Fault`, or None.
    """
    rng, layer = np.random.default_rng(0), make(thing)
    query, memory = normal(rng, BATCH, TARGET, D_MODEL), normal(rng, BATCH, SOURCE, D_MODEL)
    named = [name for name in parameters(layer.call) if not mask_role(name)]
    roles = [role_of(name, ("query", "key", "value", "memory")) for name in named]
    is_self = not {"key", "value", "memory"} & set(roles) and len(roles) == 1
    query = memory if is_self else query
    values = {"query": query, "key": memory, "value": memory, "memory": memory}
    values = {role: values[role] for role in roles if role} or {"query": query}
    subject = Subject(layer, values)
    checked += ["shape", "values", "scale", "heads"]
    fault = subject.before_values()
    if fault:
        return fault
    ways = list(attention_kernels(subject.kernels, D_MODEL, subject.num_heads))
    if not ways:
        return _other_matrices(subject)
    if ways[0]["output"] is None:
        return faults.NO_OUTPUT_PROJECTION
    wide = query.astype("float64"), memory.astype("float64")

    def explained(outputs, mask, wrongs):
        def predict(formula):
            for way in ways:
                yield formulas.multi_head_attention(*wide, way, subject.num_heads, mask, formula)

        right, found = fitting(outputs, predict, HEADS_IN_ORDER)
        if right:
            return None
        expected = None if found[0].shape == query.shape else query
        fault = explanation(found, predict, [PAPER], wrongs)
        return fault or unexplained(found[0], expected, 4, "multi-head attention")

    fault = explained([subject()], None, faults.SCALE + faults.HEADS + faults.SOFTMAX)
    if not fault and "padding" in subject.masks:
        checked += ["mask", "polarity of the mask", "a query without keys"]
        mask = np.broadcast_to(PADDED, (BATCH, query.shape[1], SOURCE))
        fault = explained(subject.each_form({"padding": mask}), mask, faults.MASK)
        if not fault and is_self:
            triangle = np.broadcast_to(formulas.look_ahead(SOURCE), (BATCH, SOURCE, SOURCE))
            fault = explained([subject({"padding": triangle})], triangle, faults.MASK)
        nothing = mask & (np.arange(BATCH) > 0)[:, None, None]
        if not fault and not np.isfinite(subject({"padding": nothing})).all():
            fault = faults.NAN_ROW
    if not fault and is_self and "flag" in subject.masks:
        checked.append("leak of the future")
        found = subject({"flag": True})
        for fault in (None, *faults.LOOK_AHEAD):
            form = PAPER if fault is None else Formula(**fault.changes)
            if explained([found], formulas.look_ahead(SOURCE, form), []) is None:
                break
        else:
            fault = faults.FUTURE
    if fault:
        return fault
    checked.append("large scores")
    large = {role: 300 * value for role, value in values.items()}
    if not np.isfinite(subject(**large)).all():
        return faults.OVERFLOW
    return subject.after_values(checked)


def _other_matrices(subject):
    shapes = [kernel.shape for _, kernel in subject.kernels]
    wide = subject.num_heads * D_MODEL
    if any(shape[0] == D_MODEL and np.prod(shape[1:]) == wide for shape in shapes):
        return faults.WIDE_HEADS
    return Fault(
        f"Its weight matrices have the shapes {shapes}: those of W^Q, W^K, W^V and W^O are "
        "expected.",
        4,
    )


def mark_feed_forward(thing: Any, checked: list[str]) -> Fault | None:
    """Examines a layer max(0, x W_1 + b_1) W_2 + b_2.

    Args:
        thing: layer, class of one, or function that makes one.
        checked: list to which the names of what was examined are added.

    Returns:
        `Fault`, or None.
    """
    x = normal(np.random.default_rng(0), BATCH, SOURCE, D_MODEL)
    subject = Subject(thing, {"query": x})
    checked += ["shape", "values", "activation", "each position alone"]
    fault = subject.before_values()
    if fault:
        return fault
    inner, outer, _ = feed_forward_kernels(subject.kernels, D_MODEL)
    if inner is None:
        shapes = [kernel.shape for _, kernel in subject.kernels]
        return Fault(f"Its matrices have the shapes {shapes}: W_1 and W_2 are expected.", 8)
    found = subject()

    def predict(formula):
        yield formulas.feed_forward(x.astype("float64"), inner, outer, formula)

    if fits(found, predict, PAPER):
        return subject.after_values(checked)
    fault = explanation([found], predict, [PAPER], faults.FEED_FORWARD)
    if fault:
        return fault
    changed = x.copy()
    changed[:, 0] += 1
    if np.abs(subject(query=changed) - found)[:, 1:].max() > 1e-3:
        return faults.TOKENS_MIXED
    return unexplained(found, next(iter(predict(PAPER))), 8, "max(0, x W_1 + b_1) W_2 + b_2")


def mark_block(thing: Any, checked: list[str], is_decoder: bool = False) -> Fault | None:
    """Examines a block, post-norm or pre-norm.

    Args:
        thing: layer, class of one, or function that makes one.
        checked: list to which the names of what was examined are added.
        is_decoder: bool, True: a block of the decoder, whose look-ahead mask may be an argument or
            built in.

    Returns:
        `Fault`, or None.
    """
    rng = np.random.default_rng(0)
    x = normal(rng, BATCH, TARGET if is_decoder else SOURCE, D_MODEL)
    memory = normal(rng, BATCH, SOURCE, D_MODEL)
    length = x.shape[1]
    subject = Subject(
        thing, {"query": x, "memory": memory} if is_decoder else {"query": x}, is_decoder
    )
    triangle = np.broadcast_to(formulas.look_ahead(length), (BATCH, length, length))
    given = {"look_ahead": triangle, "flag": True} if is_decoder else {}
    checked += ["shape", "values", "scale", "heads", "residual connections", "normalization"]
    wrongs = faults.SCALE + faults.HEADS + faults.RESIDUAL + faults.SUBLAYERS + faults.NORM
    wrongs = wrongs + faults.FEED_FORWARD + faults.SOFTMAX
    if is_decoder:
        checked += ["leak of the future", "memory"]
        wrongs = faults.LOOK_AHEAD + faults.MEMORY + wrongs + faults.MASK[:1]
    fault = subject.before_values()
    if fault:
        return fault
    ways = list(block_kernels(subject.kernels, D_MODEL, subject.num_heads, is_decoder))
    wide = x.astype("float64"), memory.astype("float64") if is_decoder else None

    def predictions(mask):
        def predict(formula):
            own = formulas.look_ahead(length, formula) if is_decoder else mask
            for way in ways:
                yield formulas.block(wide[0], way, subject.num_heads, own, wide[1], mask, formula)

        return predict

    predict = predictions(None)
    choices = itertools.product((1e-6, 1e-3), ("after", "before"), ("slices", "interleaved"))
    rights = [Formula(epsilon=e, norm=norm, heads=heads) for e, norm, heads in choices]
    has_forms = is_decoder and "look_ahead" in subject.masks
    outputs = subject.each_form(given) if has_forms else [subject(given)]
    right, found = fitting(outputs, predict, rights)
    if right is None:
        posts = [Formula(norm=norm) for norm in ("after", "before")]
        fault = explanation(found, predict, posts, wrongs)
        return fault or _by_behavior(subject, given, found[0])
    role = "memory" if is_decoder else "padding"
    if role in subject.masks:
        checked += ["padding", "polarity of the mask"]
        predict, outputs = predictions(PADDED), subject.each_form({**given, role: PADDED})
        fitted, found = fitting(outputs, predict, [right])
        if not fitted:
            wrongs = faults.MEMORY_MASK if is_decoder else faults.MASK
            fault = explanation(found, predict, [right], wrongs)
            return fault or unexplained(found[0], None, 6, "a block under a padding mask")
    return subject.after_values(checked)


def _by_behavior(subject, given, found):
    """The fault of a block that no formula explains."""
    x = subject.values["query"]
    if found.shape != x.shape or not np.isfinite(found).all():
        return unexplained(found, x, 8, "a block")

    def moved(row, column):
        changed = x.copy()
        changed[row, column] += 1
        return np.abs(subject(given, query=changed) - found)

    if moved(1, slice(None))[0].max() > 1e-3:
        return faults.NEIGHBORS
    if subject.is_decoder and moved(slice(None), -1)[:, :-1].max() > 1e-3:
        return faults.FUTURE
    return unexplained(found, None, 9, "a block of Figure 1")
