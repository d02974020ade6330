"""The examination of what computes: the role of each matrix of a layer is found by trying."""

import contextlib
import dataclasses
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np

from ...backend import layers_of
from . import formulas
from .comparison import close, explanation, fitting, unexplained
from .faults import KINDS, OTHERS, REMARKS, Fault, wrong_forms
from .formulas import Formula
from .matrices import ways
from .subjects import SIZES, call, is_functional, make, parameters, role_of, roles_in

BATCH, TARGET, SOURCE = 3, 4, 5  # all different, and none the number of heads
PADDED = (np.arange(SOURCE) < np.array([[5], [3], [4]]))[:, None]  # (batch, 1, source length)


def _triangle(length):
    return np.broadcast_to(formulas.look_ahead(length), (BATCH, length, length))


def _forms(mask, length):
    """The forms of a mask that learners expect: with or without axes, of bool or numbers."""
    whole = np.broadcast_to(mask, (len(mask), length, mask.shape[-1]))
    row = mask[:, 0] if mask.shape[1] == 1 else mask
    forms = [whole, mask, mask[:, None], row]
    return forms + [form.astype("float32") for form in forms]


class Subject:
    """A learner's function or layer, built, with random matrices.

    Args:
        thing: function, layer, class of one, or function that makes one.
        kind: str, a key of kinds.toml.
    """

    def __init__(self, thing: Any, kind: str):
        is_function = inspect.isfunction(thing) and kind in ("attention", "layer_norm")
        self.thing, self.kind, self.form = thing if is_function else make(thing), kind, 0
        self.kernels: list[Any] = []
        self.is_decoder = kind == "decoder_block"
        self.roles = roles_in(self.thing, KINDS[kind]["roles"], self.is_decoder)
        needed = parameters(self.thing)
        self.needed = {role for name, role in self.roles.items() if needed[name]}
        self.is_self = not {"key", "value", "memory"} & set(self.roles.values())
        self.width = SIZES["d_model"]
        if is_functional(self.thing):
            self.width = self.thing.inputs[0].shape[-1]
        elif not inspect.isclass(thing):
            self.width = next(self._sizes("d_model", [self.thing]), self.width)
        rng = np.random.default_rng(0)
        x, memory, value = (
            rng.normal(size=(BATCH, length, self.width)).astype("float32")
            for length in (SOURCE if self.is_self else TARGET, SOURCE, SOURCE)
        )
        ones = np.ones(self.width, "float32")
        memory = x if self.is_self else memory
        value = value if kind == "attention" else memory
        self.given: dict[str, Any] = {"query": x, "key": memory, "value": value, "memory": memory}
        self.given |= {"gain": ones, "bias": 0 * ones}
        self.triangle = _triangle(x.shape[1])
        self.padding = "mask"
        if self.is_decoder:
            self.given |= {"look_ahead": self.triangle, "flag": True}
            self.padding = "memory_mask" if "memory_mask" in self.roles.values() else "either"
        self.tries = self._build()
        self.weights = self._draw_weights() if isinstance(self.thing, keras.layers.Layer) else None
        found = [
            (num_heads, way)
            for num_heads in self._numbers_of_heads(thing)
            for way in ways(kind, self.kernels, self.width, num_heads)
        ]
        self.ways = [each for each in found if not each[1]["fault"]]
        self.faulty = [each for each in found if each[1]["fault"]]

    def _build(self):
        """The masks to call it with, and the padding that they hide: none if it need not be."""
        tries: list[tuple[dict, Any]] = [({}, None)]
        if "either" in self.roles.values():
            tries.append(({"either": self.triangle}, None))
        if self.padding in self.needed:
            tries.append(({self.padding: PADDED}, PADDED))
        for i, (masks, _) in enumerate(tries):
            with contextlib.suppress(Exception):
                next(self.outputs(masks))
                self.given |= masks
                return [each for each in tries[i:] if each is tries[i] or each[1] is None]
        return [({}, self())]  # which says why

    def _draw_weights(self):
        """Makes matrices random, gains 1 and biases 0, and returns what the weights were."""
        before = self.thing.get_weights()
        rng, weights = np.random.default_rng(1), []
        for value in before:
            is_gain = value.size == self.width and (value == 1).all()  # of whatever shape
            if value.ndim > 1 and not is_gain and (value.any() or value.size > 2 * self.width):
                value = 0.4 * rng.normal(size=value.shape)
            elif value.ndim and not (value == 1).all():
                value = np.zeros_like(value)
            weights.append(value)
        self.thing.set_weights(weights)
        self.kernels = [np.float64(each) for each in weights if each.ndim > 1 and each.any()]
        return before

    def _sizes(self, role, things):
        """The integers among the attributes of layers whose names have a role."""
        for thing in things:
            for name, value in vars(thing).items():
                if role_of(name, (role,)) and isinstance(value, int):
                    yield value

    def _numbers_of_heads(self, thing):
        """The number of heads, or all that are possible if nothing tells it."""
        if not self.kernels:
            return [1]
        for num_heads in self._sizes("num_heads", layers_of(self.thing)):
            return [num_heads]
        if inspect.isclass(thing) and any(role_of(n, ("num_heads",)) for n in parameters(thing)):
            return [SIZES["num_heads"]]
        return [n for n in range(2, self.width + 1) if self.width % n == 0]

    def __call__(self, masks: dict | None = None, thing: Any = None, **values: Any) -> Any:
        given = {**self.given, **(masks or {}), **values}
        length = given["query"].shape[1]
        for role, mask in given.items():
            if isinstance(mask, np.ndarray) and mask.dtype == bool:
                given[role] = _forms(mask, length)[self.form]
        found = call(thing or self.thing, self.roles, given)
        found, *self.others = found if isinstance(found, tuple) else (found,)
        return found

    def outputs(self, masks: dict, **values: Any) -> Iterator[Any]:
        """Yields the output for each form of the masks that the layer takes.

        Args:
            masks: dict from a role to a bool array of three axes, True for "flag".
            **values: arrays of other roles, if they are not the usual ones.

        Raises:
            Exception: that of the first form, if the layer takes none.
        """
        is_taken, roles = False, {"mask", "memory_mask", "either", "look_ahead"}
        has_mask = roles & {*self.roles.values()} & {*self.given, *masks}
        for form in range(8 if has_mask else 1):
            self.form = form
            with contextlib.suppress(Exception):
                found = self(masks, **values)
                is_taken = True
                yield found
        if not is_taken:
            self.form = 0
            self(masks, **values)  # which says why

    def predict(self, mask: Any = None, **values: Any) -> Callable[..., Iterator[Any]]:
        """A function of a `Formula` that yields the outputs it may give, one for each way.

        Args:
            mask: bool, (batch, 1 or length, source length), for what is read; or None.
            **values: arrays of other roles, if they are not the usual ones.
        """
        given = {role: np.asarray(x, "float64") for role, x in {**self.given, **values}.items()}
        given["mask"] = mask

        def predict(formula, ways=None):
            for num_heads, way in ways or self.ways:
                try:
                    yield formulas.layer(self.kind, given, way, num_heads, formula)
                except ValueError:  # the shapes of this way do not fit this form
                    continue

        return predict

    def fault_of(
        self, hidden: tuple, rights: list, plain: list, fields: list[str], **values: Any
    ) -> tuple[Formula | None, Fault | None]:
        """The right formula that gives the output, and the fault.

        Args:
            hidden: dict from a role to a bool array of three axes, True for "flag"; and the mask
                that they are, bool, (batch, 1 or length, source length), or None.
            rights: list of `Formula`, the likely ones first.
            plain: list of `Formula`, those of which faults are changes.
            fields: list of str, the choices that may be wrong.
            **values: arrays of other roles, if they are not the usual ones.

        Returns:
            `Formula` or None; `Fault` or None. Both are None where no formula explains the output.
        """
        masks, predict = hidden[0], self.predict(hidden[1], **values)
        right, found = fitting(self.outputs(masks, **values), predict, rights)
        if right:
            return right, None
        for each, formula, output in itertools.product(self.faulty, plain, found):
            if any(close(output, expected) for expected in predict(formula, [each])):
                return None, OTHERS[each[1]["fault"]]
        return None, explanation(found, predict, plain, wrong_forms(*fields))


def mark_layer(thing: Any, report: Any) -> Fault | None:
    """Examines attention, layer normalization, a feed-forward network, or a block.

    Args:
        thing: function, layer, class of one, or function that makes one. The block of a decoder
            has its look-ahead mask as an argument, or it is built in.
        report: `Report`, to which what was examined is added.

    Returns:
        `Fault`, or None.
    """
    subject = Subject(thing, report.kind)
    try:
        return _examine(subject, report)
    finally:
        if subject.weights:
            subject.thing.set_weights(subject.weights)


def _examine(subject, report):
    kind = KINDS[report.kind]
    layers = layers_of(subject.thing) if isinstance(subject.thing, keras.layers.Layer) else []
    if any(isinstance(each, keras.layers.BatchNormalization) for each in layers):
        return OTHERS["batch normalization"]
    if not np.allclose(subject(), subject(), atol=1e-6, equal_nan=True):
        return OTHERS["random"]
    if not subject.ways and not subject.faulty:
        shapes = [kernel.shape for kernel in subject.kernels]
        sentence = f"Its matrices have the shapes {shapes}: those of {kind['what']} are expected."
        return Fault(sentence, kind["chapter"])
    right, fault = _compare_values(subject, kind)
    if fault is None and report.kind == "layer_norm":
        ones = np.ones_like(subject.given["query"])
        fault = None if np.isfinite(subject(query=ones)).all() else OTHERS["equal features"]
    elif fault is None and report.kind != "feed_forward":
        fault = _returned_weights(subject) or _masks(subject, kind, right, report)
    if fault is None:
        report.remarks += _remarks(subject, right, layers)
    return fault


def _compare_values(subject, kind):
    """The right formula, or the fault."""
    used = set(subject.roles.values())
    name = getattr(subject.thing, "__name__", type(subject.thing).__name__).lower()
    is_causal = subject.is_decoder or ("causal" in name and not {"mask", "flag"} & used)
    looks = ["right"] if is_causal else ["none"]
    if subject.is_self and not is_causal and "flag" not in used:
        looks.append("right")
    choices = {**kind["right"], "look_ahead": looks}
    every = itertools.product(*choices.values())
    rights = [Formula(**dict(zip(choices, each, strict=True))) for each in every]
    plain = [Formula(look_ahead=looks[0], norm=norm) for norm in choices.get("norm", ["after"])]
    fault = None
    for hidden in subject.tries:
        fields = kind["wrong"] if hidden[1] is None else ["mask", *kind["wrong"]]
        right, found = subject.fault_of(hidden, rights, plain, fields)
        if right:
            subject.given |= hidden[0]
            return right, None
        fault = fault or found
    return None, fault or _by_behavior(subject, kind, is_causal)


def _by_behavior(subject, kind, is_causal):
    """The fault of values that no formula explains: their shape, or what they depend on."""
    x, found = subject.given["query"], subject()
    expected = next(subject.predict(subject.tries[0][1])(Formula(look_ahead="none")), x)
    if not subject.kernels or found.shape != x.shape or not np.isfinite(found).all():
        return unexplained(found, expected, kind["chapter"], kind["what"])

    def moved(row, column):
        changed = x.copy()
        changed[row, column] += 1
        return np.abs(subject(query=changed) - found)

    if moved(1, slice(None))[0].max() > 1e-3:
        return OTHERS["neighbors"]
    if subject.kind == "feed_forward" and moved(slice(None), 0)[:, 1:].max() > 1e-3:
        return OTHERS["tokens mixed"]
    if is_causal and moved(slice(None), -1)[:, :-1].max() > 1e-3:
        return OTHERS["future"]
    return unexplained(found, None, kind["chapter"], kind["what"])


def _returned_weights(subject):
    """The fault of an attention that returns weights other than its own."""
    subject()
    if subject.kind == "attention" and subject.others:
        query, key, value = (subject.given[role] for role in KINDS["attention"]["roles"])
        right = formulas.attention(query, key, value, subject.tries[0][1])[1]
        if subject.others[0].shape == right.shape and not close(subject.others[0], right):
            return OTHERS["returned weights"]
    return None


def _masks(subject, kind, right, report):
    """The fault of what is hidden, and of large scores."""

    def compare(hidden, right, field, **values):
        found, fault = subject.fault_of(hidden, [right], [right], [field], **values)
        what = f"{kind['what']} under a mask"
        return None if found else fault or unexplained(subject(hidden[0], **values), None, 6, what)

    fault, used = None, set(subject.roles.values())
    if subject.is_self and "flag" in used:
        report.checked.append("leak of the future")
        causal = dataclasses.replace(right, look_ahead="right")
        fault = compare(({"flag": True}, subject.tries[0][1]), causal, "look_ahead")
    if subject.padding not in used or (subject.is_decoder and subject.padding in subject.given):
        report.skipped.append("a padding mask, because it takes none")
    elif fault is None:
        report.checked += ["mask", "polarity of the mask", "a query without keys"]
        fault = compare(({subject.padding: PADDED}, PADDED), right, "mask")
        nothing = {subject.padding: PADDED & (np.arange(BATCH) > 0)[:, None, None]}
        if fault is None and not np.isfinite(subject(nothing)).all():
            fault = OTHERS["NaN row"]
        if fault is None and not subject.is_decoder:
            triangle, form = _triangle(SOURCE), subject.form
            report.skipped.append("a mask with a row per query, because it takes none")
            with contextlib.suppress(Exception):
                if form % 4 < 3:  # not (batch, length), of which it might make other axes
                    hidden = {"mask": triangle}, triangle
                    fault = compare(hidden, right, "mask", query=subject.given["key"])
                    report.skipped.pop()
            subject.form = form
    report.checked.append("large scores")
    large = {role: 300 * subject.given[role] for role in KINDS["multi_head_attention"]["roles"]}
    if fault is None and not np.isfinite(subject(**large)).all():
        fault = OTHERS["overflow"]
    return fault


def _remarks(subject, right, layers):
    """Yields remarks on what passes: on its choices, and on whether it can be saved."""
    if right.epsilon != Formula().epsilon:
        yield REMARKS["epsilon"]
    if right.activation in REMARKS:
        yield REMARKS[right.activation]
    if subject.is_self and right.look_ahead == "right":
        yield REMARKS["causal"]
    if not layers or is_functional(subject.thing):
        return
    layer, classes = subject.thing, {type(each).__name__: type(each) for each in layers}
    try:
        with keras.saving.custom_object_scope(classes):
            copy = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
        subject(thing=copy)
        copy.set_weights(layer.get_weights())
    except Exception:
        yield REMARKS["no config"]
    else:
        if not close(subject(thing=copy), subject()):
            yield REMARKS["other config"]
