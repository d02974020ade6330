"""Inspection of models: attention, beams, distributions, and answers without some of the heads."""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import keras
import numpy as np
from fastapi import APIRouter, HTTPException
from keras import ops
from pydantic import BaseModel, Field

from .. import backend
from ..checks import check
from ..data.lengths import next_power_of_two, pad
from ..generation.constraints import NEVER_WRITTEN
from ..ids import END, START
from ..tasks import Classifier, MaskFiller, Task, TextGenerator, Translator
from ..tasks.word_tasks import WordTask, split_around_masks
from ..tokenizers.words import FIRST, MASKED

MOST_TOKENS = 64  # of an inspected text: a map has their square
SHORTEST = 16  # inputs are padded to it, then to powers of two: few shapes are compiled
LABELS = 8  # the most labels or words that are returned for a position


class Question(BaseModel):
    """A text for a model."""

    model: str | None = Field(None, description="Name of a model; null: the only one.")
    text: str = Field(max_length=4096)


class HeadsQuestion(Question):
    """A text for a model, some of whose heads are switched off."""

    off: dict[str, list[int]] = Field(
        {},
        max_length=256,
        description="Heads to switch off, from 0, by the name of their attention.",
        examples=[{"decoder/block_1/cross_attention": [0]}],
    )


class AttentionQuestion(HeadsQuestion):
    """A text and its answer, whose attention weights are asked for."""

    answer: str | None = Field(
        None, max_length=4096, description="A translation; null: the one of greedy decoding."
    )


class BeamsQuestion(Question):
    """A text to translate by beam search."""

    beams: int = Field(4, ge=1, le=8)
    length_penalty: float = Field(0.6, ge=0, le=5)


class NextQuestion(HeadsQuestion):
    """A text whose next token is asked for."""

    temperature: float = Field(1.0, ge=0, le=10, description="0: all on the most probable token.")
    number: int = Field(12, ge=1, le=50, description="Number of tokens to return.")


class Pass(NamedTuple):
    """One pass of a model: float32 logits of the first row, and the weights by attention."""

    logits: np.ndarray
    weights: dict[str, np.ndarray]


class Inspector:
    """Passes of one task's model, compiled once per shape whatever heads are switched off.

    Args:
        task: `Task`.
    """

    def __init__(self, task: Task):
        self.task = task
        self._programs = backend.Programs(task.model)
        stacks = [getattr(task.model, name, None) for name in ("encoder", "decoder")]
        names = ("self_attention", "cross_attention")
        blocks = [block for stack in stacks if stack is not None for block in stack.blocks]
        layers = [getattr(block, name, None) for block in blocks for name in names]
        self.heads = {layer.path: layer.num_heads for layer in layers if layer is not None}

    def factors(self, off: Mapping[str, list[int]]) -> dict[str, np.ndarray]:
        """The factors of all heads: 1, or 0 for those that are off.

        Args:
            off: numbers of heads by the path of their attention.

        Raises:
            ValueError: There is no such attention or head.
        """
        factors = {path: np.ones(heads, "float32") for path, heads in self.heads.items()}
        for path, heads in off.items():
            check(path in factors, f"Expected one of {', '.join(factors)}", attention=path[:80])
            within = all(0 <= head < self.heads[path] for head in heads)
            check(within, f"{path} has heads 0 to {self.heads[path] - 1}", heads=heads[:20])
            factors[path][heads] = 0
        return factors

    def run(self, inputs: dict[str, list], off: Mapping[str, list[int]]) -> Pass:
        """One pass of the model.

        Args:
            inputs: by their names, ids of one text, or for "character_ids" ids of each word.
            off: numbers of heads by the path of their attention.
        """
        model = self.task.model

        def scores(ids, factors):
            weights = {}

            def observe(path, heads, of_heads):
                weights[path] = ops.cast(of_heads, "float32")
                return heads * ops.cast(ops.reshape(factors[path], (1, -1, 1, 1)), heads.dtype)

            with backend.observed_heads(observe):
                logits = model(ids, training=False)
            return ops.cast(logits, "float32"), weights

        program = self._programs.get("inspection", lambda: backend.jit(scores, model))
        longest = self.task.longest_input
        ids = {
            name: pad([x], 1, min(max(SHORTEST, next_power_of_two(len(x), longest)), longest))
            for name, x in inputs.items()
        }
        found = program(*backend.to_arguments((ids, self.factors(off))))
        logits, weights = keras.tree.map_structure(ops.convert_to_numpy, found)
        return Pass(logits[0], {path: x[0] for path, x in weights.items()})

    def attention(self, text: str, answer: str | None, off: Mapping) -> dict[str, Any]:
        """The weights of every layer and head while a text is read and its answer written.

        Args:
            text: str.
            answer: str, a translation; None: by greedy decoding.
            off: numbers of heads by the path of their attention.

        Returns:
            Dict of the answer (None where a task writes none), tokens and maps.
        """
        task, target = self.task, []
        if isinstance(task, Translator):
            source, target, answer = self._translation(task, text, answer, off)
            inputs = {"source_ids": source, "target_ids": [START, *target[:-1]]}
            read, written = task.source_tokenizer.tokens(source), _tokens(task, target)
        elif isinstance(task, TextGenerator):
            ids = self._prompt(text)
            inputs, answer = {"token_ids": ids}, None
            read = task.tokenizer.tokens(ids)
        else:
            inputs, read = self._words(text)
            answer = None
        maps = []
        found = self.run(inputs, off).weights
        for path in self.heads:  # (JAX sorts the keys of dictionaries)
            is_cross = path.endswith("cross_attention")
            of_target = bool(target) and path.startswith("decoder")
            rows = len(target) if of_target else len(read)
            columns = len(read) if is_cross or not of_target else rows
            kind = "cross" if is_cross else "decoder" if path.startswith("decoder") else "encoder"
            layer = int(path.split("block_")[-1].split("/")[0])
            weights = np.round(found[path][:, :rows, :columns].astype("float64"), 3).tolist()
            maps.append({"name": path, "kind": kind, "layer": layer, "weights": weights})
        tokens = {"source": read}
        if target:  # the decoder reads START and its own tokens, to write the token after each
            tokens |= {"target": written, "before": _tokens(task, [START, *target[:-1]])}
        return {"answer": answer, "tokens": tokens, "maps": maps}

    def _translation(self, task, text, answer, off):
        """The ids of a text and of its translation, END included, and the translation."""
        (source,) = task.source_tokenizer.encode(task.normalized([text]))
        source = [*source, END]
        self._check_length(source)
        if answer is not None:
            (target,) = task.target_tokenizer.encode(task.normalized([answer]))
            target = [*target, END]
            self._check_length(target, "Answer")
            return source, target, answer
        (fewest,), (most,) = task.config.length_limits([len(source)], task.longest_input)
        target = []
        while len(target) < min(most, MOST_TOKENS) and END not in target:
            # A pass of the whole length each time: one program serves every position.
            padded = [START, *target, *[0] * (min(most, MOST_TOKENS) - 1 - len(target))]
            logits = self.run({"source_ids": source, "target_ids": padded}, off).logits
            never = [*NEVER_WRITTEN, *([END] if len(target) < fewest else [])]
            logits[len(target), never] = -np.inf
            target.append(int(logits[len(target)].argmax()))
        (answer,) = task.target_tokenizer.decode([target])
        return source, target, answer

    def _prompt(self, text):
        """The ids that a generator reads: START, and the last tokens of a text."""
        (ids,) = self.task.tokenizer.encode(self.task.normalized([text]))
        return [START, *ids[-(min(MOST_TOKENS, self.task.longest_input) - 1) :]]

    def _words(self, text):
        """The inputs of a word task for a text, and its words."""
        split = self.task.vocabulary.split
        is_filler = isinstance(self.task, MaskFiller)
        words = split_around_masks(text, split) if is_filler else split(text)
        check(words, "Expected a text with a word", text=text[:40])
        self._check_length(words)
        (word_ids,), (character_ids,) = self.task.vocabulary.encode([words])
        return {"word_ids": word_ids, "character_ids": character_ids}, words

    def _check_length(self, ids, name="Text"):
        most = min(MOST_TOKENS, self.task.longest_input)
        expected = f"{name} must have at most {most} tokens to be shown"
        check(len(ids) <= most, expected, tokens=len(ids))

    def _check_task(self, kind, expected):
        found = isinstance(self.task, kind)
        check(found, f"Expected a {expected}", task=type(self.task).__name__)

    def next(self, text: str, temperature: float, number: int, off: Mapping) -> dict[str, Any]:
        """The distribution of the token after a text.

        Args:
            text: str.
            temperature: float from 0.
            number: int from 1, number of tokens to return.
            off: numbers of heads by the path of their attention.

        Returns:
            Dict of the entropy in bits, and the most probable tokens, each with the text that it
            makes of the prompt (None for END).
        """
        task = self.task
        self._check_task(TextGenerator, "text generator")
        ids = self._prompt(text)
        logits = self.run({"token_ids": ids}, off).logits[len(ids) - 1].astype("float64")
        logits[list(NEVER_WRITTEN if task.append_end else (*NEVER_WRITTEN, END))] = -np.inf
        p = _softmax(logits, temperature)
        best = np.argsort(-logits, kind="stable")[: min(number, int((logits > -np.inf).sum()))]
        before, *after = task.tokenizer.decode([ids[1:], *([*ids[1:], n] for n in best.tolist())])
        (text,) = task.normalized([text])
        tokens = zip(best.tolist(), task.tokenizer.tokens(best), after, strict=True)
        return {
            "entropy": float(-(p[p > 0] * np.log2(p[p > 0])).sum()),
            "tokens": [
                {
                    "token": token,
                    "probability": float(p[n]),
                    "text": None if n == END else text + longer[len(before) :],
                }
                for n, token, longer in tokens
            ],
        }

    def labels(self, text: str, off: Mapping) -> list[dict[str, Any]]:
        """The probabilities of the labels of a text, of each of its words, or of masked words.

        Args:
            text: str.
            off: numbers of heads by the path of their attention.

        Returns:
            list of dicts of a word, None for a whole text, and its most probable labels.
        """
        task = self.task
        self._check_task(WordTask, "model of words")
        inputs, words = self._words(text)
        logits = self.run(inputs, off).logits[..., 1:].astype("float64")  # 0 is padding
        names = task.labels
        if isinstance(task, MaskFiller):
            found = [(n, word) for n, word in enumerate(words) if word == MASKED]
            check(found, f"Expected a text with {MASKED}", text=text[:40])
            first = FIRST - 1  # neither unknown nor masked is an answer
            names = task.vocabulary.words
            rows = [(word, _softmax(logits[n])[first:]) for n, word in found]
        elif isinstance(task, Classifier):
            rows = [(None, _softmax(logits))]
        else:
            rows = [(word, _softmax(logits[n])) for n, word in enumerate(words)]

        def best(p):
            order = np.argsort(-p, kind="stable")[:LABELS].tolist()
            return [{"label": names[n], "probability": float(p[n])} for n in order]

        return [{"word": word, "labels": best(p)} for word, p in rows]

    def beams(self, text: str, beams: int, length_penalty: float) -> dict[str, Any]:
        """The beam search for a translation.

        Args:
            text: str.
            beams: int, hypotheses kept at a time.
            length_penalty: float from 0, exponent of the length penalty.

        Returns:
            Dict of steps, lists of branches: a token, the number of its parent in the step before,
            its score in nats, its state ("finished", "dead", or "alive" if others extend it), and
            the text up to it; and of answers, best first.
        """
        task = self.task
        self._check_task(Translator, "translator")
        (source,) = task.source_tokenizer.encode(task.normalized([text]))
        self._check_length([*source, END])
        options: dict[str, Any] = dict(n_best=beams, beams=beams, length_penalty=length_penalty)
        tree = task.beam_tree(text, **options)
        steps, ids = [], [[]]
        for number, branches in enumerate(tree):
            parents = {x.parent for x in tree[number + 1]} if number + 1 < len(tree) else set()
            ids = [[*ids[branch.parent], branch.token] for branch in branches]
            texts = task.target_tokenizer.decode(ids)
            states = [
                "finished" if branch.finished else "alive" if n in parents else "dead"
                for n, branch in enumerate(branches)
            ]
            columns = zip(_tokens(task, [x.token for x in branches]), texts, states, strict=True)
            steps.append(
                [
                    dict(token=token, parent=x.parent, score=x.score, state=state, text=written)
                    for x, (token, written, state) in zip(branches, columns, strict=True)
                ]
            )
        (answers,) = task.translate([text], return_scores=True, **options)
        possible = [x._asdict() for x in answers if np.isfinite(x.score)]
        return {"steps": steps, "answers": possible}


def _tokens(task, ids):
    return task.target_tokenizer.tokens(ids)


def _softmax(logits, temperature=1.0):
    """Probabilities, float64; at temperature 0 all on the largest logit."""
    logits = logits - logits.max(axis=-1, keepdims=True)
    if temperature == 0:
        return np.eye(logits.shape[-1])[logits.argmax(axis=-1)]
    p = np.exp(logits / temperature)
    return p / p.sum(axis=-1, keepdims=True)


def router_of(models: Mapping[str, Task]) -> APIRouter:
    """The routes of inspections.

    Args:
        models: tasks by name.

    Returns:
        APIRouter with POST routes /api/attention, /api/beams, /api/next and /api/labels.
    """
    router = APIRouter(prefix="/api", tags=["inspection"])
    inspectors: dict[str, Inspector] = {}
    lock = threading.Lock()  # one inspection at a time: they are for one reader

    @contextlib.contextmanager
    def inspector(question: Question) -> Iterator[Inspector]:
        name = question.model or (next(iter(models)) if len(models) == 1 else "")
        if name not in models:
            known = f"model must be one of {', '.join(models)}; received {question.model!r:.80}"
            raise HTTPException(404, known)
        with lock:
            if name not in inspectors:
                inspectors[name] = Inspector(models[name])
            try:
                yield inspectors[name]
            except ValueError as error:
                raise HTTPException(422, str(error).removesuffix(".")) from None

    @router.post("/attention")
    def attention(question: AttentionQuestion) -> dict[str, Any]:
        """The attention weights of every layer and head, for a text and its answer."""
        with inspector(question) as found:
            return found.attention(question.text, question.answer, question.off)

    @router.post("/beams")
    def beams(question: BeamsQuestion) -> dict[str, Any]:
        """A beam search as a tree, and its translations with scores."""
        with inspector(question) as found:
            return found.beams(question.text, question.beams, question.length_penalty)

    @router.post("/next")
    def next_token(question: NextQuestion) -> dict[str, Any]:
        """The distribution of the next token of a text, at a temperature."""
        with inspector(question) as found:
            return found.next(question.text, question.temperature, question.number, question.off)

    @router.post("/labels")
    def labels(question: HeadsQuestion) -> list[dict[str, Any]]:
        """The labels of a text, of its words, or of its masks, with their probabilities."""
        with inspector(question) as found:
            return found.labels(question.text, question.off)

    return router
