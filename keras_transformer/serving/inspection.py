"""Inspection of models: attention, beams, distributions, and answers without some of the heads."""

import asyncio
import functools
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
from fastapi import APIRouter
from keras import ops
from scipy.special import softmax

from .. import backend
from ..checks import check
from ..data.lengths import bucket_length, pad
from ..generation.constraints import NEVER_WRITTEN
from ..ids import END, START
from ..interchange.graphs import attentions_of, pass_with_heads
from ..tasks import Classifier, MaskFiller, Task, TextGenerator, Translator
from ..tasks.translation import is_blank
from ..tokenizers.words import FIRST, MASKED
from .limits import for_client
from .models import Models
from .schemas import Attention, Beams, Labels, Next

MOST_TOKENS = 64  # of an inspected text: a map has their square
ALMOST_0 = 1e-9  # a temperature that leaves all to the most probable token
LABELS = 8  # the most labels or words that are returned for a position


class Inspector:
    """Passes of one task's model, compiled once per shape whatever heads are switched off.

    Args:
        task: `Task`.
    """

    def __init__(self, task: Task):
        self.task = task
        self._programs = backend.Programs(task.model)
        self._last: tuple = (None, None)  # question and answer: other temperatures need no pass
        self.heads = {layer.path: layer.num_heads for layer in attentions_of(task)}

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

    def run(
        self, inputs: dict[str, list], off: Mapping[str, list[int]], look_ahead: bool = True
    ) -> tuple[np.ndarray, dict]:
        """One pass of the model over one text.

        Args:
            inputs: by their names, ids of one text, or for "character_ids" ids of each word.
            off: numbers of heads by the path of their attention.
            look_ahead: bool, False: without the look-ahead mask.

        Returns:
            float32, (length, vocabulary or labels), the logits; (labels,) of a classifier.
            dict of float32, (heads, length, length), the weights by the path of their attention.
        """
        model = self.task.model

        def scores(ids, factors, look_ahead):
            return pass_with_heads(model, ids, factors, look_ahead)

        program = self._programs.get("inspection", lambda: backend.jit(scores, self._programs))
        longest = self.task.longest_input
        ids = {name: pad([x], 1, bucket_length(len(x), longest)) for name, x in inputs.items()}
        given = backend.to_arguments((ids, self.factors(off), np.array(look_ahead)))
        found = program(*given, few=True)
        logits, weights = keras.tree.map_structure(ops.convert_to_numpy, found)
        return logits[0], {path: x[0] for path, x in weights.items()}

    def attention(
        self, text: str, answer: str | None, off: Mapping, look_ahead: bool
    ) -> dict[str, Any]:
        """The weights of every layer and head while a text is read and its answer written.

        Args:
            text: str.
            answer: str, a translation; None: by greedy decoding.
            off: numbers of heads by the path of their attention.
            look_ahead: bool, False: without the look-ahead mask.

        Returns:
            Dict of the answer (None where a task writes none), tokens and maps.
        """
        task, target = self.task, []
        if isinstance(task, Translator):
            source, target, answer, _ = self._translation(text, answer, off, look_ahead)
            inputs = {"source_ids": source, "target_ids": [START, *target[:-1]]}
            read = task.source_tokenizer.tokens(source)
        elif isinstance(task, TextGenerator):
            inputs = {"token_ids": self._prompt(text)}
            read = task.tokenizer.tokens(inputs["token_ids"])
        else:
            inputs, read = self._words(text)
        maps = []
        _, found = self.run(inputs, off, look_ahead)
        for path in self.heads:  # (JAX sorts the keys of dictionaries)
            stack, block, attention = path.split("/")
            is_cross = attention == "cross_attention"
            rows = len(target) if target and stack == "decoder" else len(read)
            columns = len(read) if is_cross else rows
            kind, layer = "cross" if is_cross else stack, int(block.removeprefix("block_"))
            weights = np.round(found[path][:, :rows, :columns].astype("float64"), 3).tolist()
            maps.append({"name": path, "kind": kind, "layer": layer, "weights": weights})
        tokens = {"source": read}
        if target:  # the decoder reads START and its own tokens, to write the token after each
            tokens["target"] = task.target_tokenizer.tokens(target)
            tokens["before"] = task.target_tokenizer.tokens(inputs["target_ids"])
        return {"answer": answer if target else None, "tokens": tokens, "maps": maps}

    def _translation(self, text, answer, off, look_ahead):
        """The ids of a text and of its translation, END included, the translation, its logits."""
        task: Any = self.task
        source = self._source_ids(text)
        if answer is not None:
            return source, self._ids(task.target_tokenizer, answer, "Answer"), answer, []
        (fewest,), (most,) = task.config.length_limits([len(source)], task.longest_input)
        target, steps = [], []
        while len(target) < min(most, MOST_TOKENS) and END not in target:
            # A pass of the whole length each time: one program serves every position.
            padded = [START, *target, *[0] * (min(most, MOST_TOKENS) - 1 - len(target))]
            inputs = {"source_ids": source, "target_ids": padded}
            logits = self.run(inputs, off, look_ahead)[0][len(target)]
            logits[[*NEVER_WRITTEN, *([END] if len(target) < fewest else [])]] = -np.inf
            steps.append(logits)
            target.append(int(logits.argmax()))
        (answer,) = task.target_tokenizer.decode([target])
        return source, target, answer, steps

    def _source_ids(self, text):
        """The ids of a text to translate, END included."""
        ids = self._ids(self.task.source_tokenizer, text)
        check(not is_blank(text, ids), "Expected a text with a word", text=text[:40])
        return ids

    def _ids(self, tokenizer, text, name="Text"):
        """The ids of a text, END included."""
        (ids,) = tokenizer.encode(self.task.normalized([text]))
        self._check_length([*ids, END], name)
        return [*ids, END]

    def _prompt(self, text):
        """The ids that a generator reads: START, and the last tokens of a text."""
        (ids,) = self.task.tokenizer.encode(self.task.normalized([text]))
        return [START, *ids[-(min(MOST_TOKENS, self.task.longest_input) - 1) :]]

    def _words(self, text):
        """The inputs of a word task for a text, and its words."""
        words = self.task.split(text)
        check(words, "Expected a text with a word", text=text[:40])
        self._check_length(words)
        (word_ids,), (character_ids,) = self.task.vocabulary.encode([words])
        return {"word_ids": word_ids, "character_ids": character_ids}, words

    def _check_length(self, ids, name="Text"):
        most = min(MOST_TOKENS, self.task.longest_input)
        expected = f"{name} must have at most {most} tokens to be shown"
        check(len(ids) <= most, expected, tokens=len(ids))

    def _steps(self, text, off, look_ahead):
        """The ids of a translation with the logits of each; of a prompt, those of what follows."""
        task: Any = self.task
        if isinstance(task, Translator):
            _, target, _, steps = self._translation(text, None, off, look_ahead)
            return target, steps
        ids = self._prompt(text)
        logits = self.run({"token_ids": ids}, off, look_ahead)[0][len(ids) - 1]
        logits[list(NEVER_WRITTEN if task.append_end else (*NEVER_WRITTEN, END))] = -np.inf
        return ids[1:], [logits]

    def next(
        self, text: str, temperature: float, number: int, position: int, **changes: Any
    ) -> dict[str, Any]:
        """The distribution of the token after a text, or of a token of its translation.

        Args:
            text: str.
            temperature: float from 0.
            number: int from 1, number of tokens to return.
            position: int from 0, number of a token of the translation by greedy decoding.
            **changes: off and look_ahead, as of `run`.

        Returns:
            Dict of the tokens of the translation (None of a generator), the entropy in bits, and
            the most probable tokens, each with the text that it makes of what precedes it (None
            for END).

        Raises:
            ValueError: The answer has no token of this number.
        """
        task: Any = self.task
        translates = isinstance(task, Translator)
        tokenizer = task.target_tokenizer if translates else task.tokenizer
        question = text, json.dumps(changes)
        if question != self._last[0]:
            self._last = question, self._steps(text, **changes)
        ids, steps = self._last[1]
        check(position < len(steps), f"Expected a position below {len(steps)}", position=position)
        logits, known = steps[position].astype("float64"), ids[:position] if translates else ids
        p = softmax(logits / max(temperature, ALMOST_0))
        best = np.argsort(-logits, kind="stable")[: min(number, int((logits > -np.inf).sum()))]
        before, *after = tokenizer.decode([known, *([*known, n] for n in best.tolist())])
        given = before if translates else task.normalized([text])[0]
        texts = [given + longer[len(before) :] for longer in after]
        columns = best.tolist(), tokenizer.tokens(best), p[best].tolist(), texts
        return {
            "answer": tokenizer.tokens(ids) if translates else None,
            "entropy": float(-(p[p > 0] * np.log2(p[p > 0])).sum()),
            "tokens": [
                dict(token=token, probability=of_token, text=None if n == END else longer)
                for n, token, of_token, longer in zip(*columns, strict=True)
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
        inputs, words = self._words(text)
        p = softmax(self.run(inputs, off)[0][..., 1:].astype("float64"), axis=-1)  # 0 is padding
        of_words = zip(words, p, strict=False)  # padding also has labels
        names, rows = task.labels, [(None, p)] if isinstance(task, Classifier) else list(of_words)
        if isinstance(task, MaskFiller):
            names = task.vocabulary.words  # neither unknown nor masked is an answer
            rows = [(word, of_word[FIRST - 1 :]) for word, of_word in rows if word == MASKED]
            check(rows, f"Expected a text with {MASKED}", text=text[:40])

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
        self._source_ids(text)  # which refuses a long one
        options: dict[str, Any] = dict(n_best=beams, beams=beams, length_penalty=length_penalty)
        tree = task.beam_tree(text, **options)
        steps, ids = [], [[]]
        for branches, longer in zip(tree, [*tree[1:], []], strict=True):
            parents = {branch.parent for branch in longer}
            ids = [[*ids[branch.parent], branch.token] for branch in branches]
            tokens = task.target_tokenizer.tokens([branch.token for branch in branches])
            texts = task.target_tokenizer.decode(ids)
            steps.append([])
            for n, (x, token, shown) in enumerate(zip(branches, tokens, texts, strict=True)):
                state = "finished" if x.finished else "alive" if n in parents else "dead"
                branch = dict(token=token, parent=x.parent, score=x.score, state=state, text=shown)
                steps[-1].append(branch)
        as_tree = dict(sentences="never", placeholders=())  # which reads the whole text
        (answers,) = task.translate([text], return_scores=True, **as_tree, **options)
        possible = [x._asdict() for x in answers if np.isfinite(x.score)]
        return {"steps": steps, "answers": possible}


def router_of(models: Models) -> APIRouter:
    """The routes of inspections.

    Args:
        models: `Models`.

    Returns:
        APIRouter with POST routes /api/attention, /api/beams, /api/next and /api/labels.
    """
    router = APIRouter(prefix="/api", tags=["inspection"])
    inspector_of = functools.cache(Inspector)
    thread = ThreadPoolExecutor(1, "inspections")  # one at a time: they are for one reader

    async def found(method, question, *kinds):
        inspector = inspector_of(models.find(question.model, *kinds).task)
        ask = functools.partial(method, inspector, **question.model_dump(exclude={"model"}))
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, ask)
        except ValueError as error:
            raise for_client(error) from None

    @router.post("/attention")
    async def attention(question: Attention) -> dict[str, Any]:
        """The attention weights of every layer and head, for a text and its answer."""
        return await found(Inspector.attention, question)

    @router.post("/beams")
    async def beams(question: Beams) -> dict[str, Any]:
        """A beam search as a tree, and its translations with scores."""
        return await found(Inspector.beams, question, "Translator")

    @router.post("/next")
    async def next_token(question: Next) -> dict[str, Any]:
        """The distribution of a token of a translation, or of the next one, at a temperature."""
        return await found(Inspector.next, question, "TextGenerator", "Translator")

    @router.post("/labels")
    async def labels(question: Labels) -> list[dict[str, Any]]:
        """The labels of a text, of its words, or of its masks, with their probabilities."""
        return await found(Inspector.labels, question, "Tagger", "Classifier", "MaskFiller")

    return router
