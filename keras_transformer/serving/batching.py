"""Dynamic batching: texts of several requests that wait for a model are answered together."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .. import backend, tasks
from ..checks import TextError
from ..data.lengths import bucket_length, check_lengths, next_power_of_two
from .configuration import LOG, Limits
from .limits import Refused, busy, for_client
from .metrics import Metrics

FEW = 8  # texts that wait; they share a batch whatever their lengths
MOST_CHARACTERS = 64  # of a text, per token that it may have: unknown ones are few tokens
METHODS = {  # of a task, by the name of its class
    "Translator": "translate",
    "Tagger": "tag",
    "Classifier": "classify",
    "MaskFiller": "fill",
    "TextGenerator": "generate",
}


@dataclasses.dataclass(eq=False)
class Item:
    """A text that waits for its answer.

    Args:
        options: dict, of the task's method; texts with equal options may share a batch.
        text: str.
        number: int from 0, its place in the request.
        length: int, its tokens.
        seed: int, of the random numbers of the request; None: nothing is drawn.
        answer: asyncio.Future, of the answer, or of the exception that takes its place.
    """

    options: dict[str, Any]
    text: str
    number: int
    length: int
    seed: int | None
    answer: asyncio.Future = dataclasses.field(default_factory=asyncio.Future)


class Batcher:
    """A task, with the texts that wait for it.

    A batch takes the text that has waited longest, and those with the same options whose lengths
    are nearest, at most half of those that wait: few of them wait for a longer one to be decoded.
    Nothing waits for a batch to become full: texts gather while others are computed, on a CPU two
    batches at a time.

    Args:
        name: str, of the model.
        task: `Task`.
        limits: `Limits`.
        metrics: `Metrics`.
    """

    def __init__(self, name: str, task: "tasks.Task", limits: Limits, metrics: Metrics):
        self.name, self.limits, self.metrics = name, limits, metrics
        self.task: Any = task
        task.expect_many()
        self.kind = type(task).__name__
        self._method = getattr(task, METHODS[self.kind])
        self.ready = self._closed = False
        self._waiting: list[Item] = []
        self._arrived = asyncio.Event()
        self._at_a_time = 1 if backend.on_accelerator() else min(2, backend.num_cores())
        self._threads = ThreadPoolExecutor(self._at_a_time, f"batches of {name}")
        self._streams = ThreadPoolExecutor(limits.max_streams, f"streams of {name}")
        self._num_streams = 0
        metrics.waiting.labels(name).set_function(lambda: len(self._waiting))
        metrics.streams.labels(name).set_function(lambda: self._num_streams)

    async def ask(
        self, texts: Sequence[str], options: dict[str, Any], seed: int | None = None
    ) -> list:
        """The answers to texts, each computed in a batch with others.

        Args:
            texts: list of str.
            options: dict, of the task's method.
            seed: int, of a text generator: text n is continued with (seed, n).

        Returns:
            list, what the method returns for each text.

        Raises:
            Refused: There are too many texts, the model is not ready, the queue is full, or a text
                has no answer.
        """
        self.check_number(len(texts))
        lengths = await self.check(texts, options.get("sentences"))
        LOG.debug("%s reads %r", self.name, texts)
        if len(self._waiting) + len(texts) > self.limits.max_queue:
            raise busy(f"{self.limits.max_queue} texts may wait for {self.name}. Try again soon.")
        items = [
            Item(options, text, number, length, seed)
            for number, (text, length) in enumerate(zip(texts, lengths, strict=True))
        ]
        self._waiting.extend(items)
        self._arrived.set()
        try:
            answers = await asyncio.gather(*(item.answer for item in items))
        except asyncio.CancelledError:  # the client has left, and its texts, now cancelled, as well
            self._waiting = [item for item in self._waiting if not item.answer.done()]
            raise
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def check_number(self, number: int) -> None:
        """Refuses more texts than a request, or the queue, may have."""
        most = min(self.limits.max_texts, self.limits.max_queue)
        if number > most:
            limit = f"A request may have {most} texts; received {number}."
            raise Refused(422, f"{limit} Send them in several requests.")

    async def check(self, texts: Sequence[str], sentences: str | None = None) -> list[int]:
        """The tokens of each text; refuses long texts, and all while programs are compiled.

        Args:
            texts: list of str.
            sentences: str, when a translator splits them, see `Translator.translate`.
        """
        if not self.ready:
            raise busy(f"The programs of {self.name} are being compiled. Try again soon.", 503)
        most = self.limits.max_tokens
        reads_any = self.kind == "TextGenerator"  # the last of a long prompt
        if self.kind == "Translator":
            trained = self.task.trained_length is not None and sentences != "never"
            reads_any = trained or sentences == "always"
        if not reads_any:
            most = min(most, self.task.longest_input)
        try:
            characters = MOST_CHARACTERS * self.limits.max_tokens
            check_lengths(list(map(len, texts)), characters, "Text", "characters", "Split it.")
            lengths = await asyncio.to_thread(self.task.num_tokens, texts)
            check_lengths(lengths, most, "Text", "tokens", "Split it.")
        except ValueError as error:
            raise for_client(error) from None
        self.metrics.tokens.labels(self.name).inc(sum(lengths))
        return lengths

    async def stream(self, text: str, options: dict[str, Any]) -> AsyncIterator[Any]:
        """The pieces of one answer, while they are written, and its end on request.

        Args:
            text: str.
            options: of the task's method `stream`.

        Raises:
            Refused: Too many are streamed already, or the text has no answer.
        """
        await self.check([text])
        LOG.debug("%s streams %r", self.name, text)
        if self._num_streams >= self.limits.max_streams:
            raise busy(f"{self.name} streams {self._num_streams} answers. Try again soon.")

        def write():
            try:
                yield from self.task.stream(text, **options)
            except Exception as error:
                yield for_client(error)

        read: Any = asyncio.get_running_loop().run_in_executor
        written = self._streams, next, write(), None
        self._num_streams += 1
        try:
            ahead = read(*written)
            while (piece := await ahead) is not None:
                if isinstance(piece, Exception):
                    raise piece
                ahead = read(*written)  # the next piece is written while this one is sent
                yield piece
        finally:
            self._num_streams -= 1

    async def run(self) -> None:
        """Compiles the programs, then answers what arrives, until it is cancelled."""
        loop = asyncio.get_running_loop()
        try:
            try:
                await loop.run_in_executor(self._threads, self.compile)
            except Exception as error:  # of the largest shapes, which may never be asked for
                LOG.error("%s: not all programs were compiled (%s).", self.name, error)
            self.ready = True
            await asyncio.gather(*(self._answer_all() for _ in range(self._at_a_time)))
        finally:
            self.ready, self._closed = False, True
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._streams.shutdown(wait=False, cancel_futures=True)

    async def _answer_all(self):
        """Answers one batch after the other."""
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            batch = self._take()
            if not batch:
                self._arrived.clear()
                continue
            try:
                answers = await loop.run_in_executor(self._threads, self._answer, batch)
            except Exception as error:  # whatever it is, the next batch is answered
                answers = [error] * len(batch)
            for item, answer in zip(batch, answers, strict=True):
                if not item.answer.done():  # cancelled
                    item.answer.set_result(answer)

    def compile(self) -> None:
        """Answers texts of the shapes that requests have, so that few of them wait for XLA."""
        texts, most_rows = self._texts_of_each_length(), self.limits.max_batch
        if backend.name() == "torch":  # which compiles nothing
            texts, most_rows = texts[:1], 1
        for text in texts:
            rows = 1
            while rows <= most_rows and not self._closed:
                self._method([text] * rows)
                rows *= 2

    def _texts_of_each_length(self):
        """A text for each length of batches."""
        word = "[MASK]" if self.kind == "MaskFiller" else "1"
        if self.kind == "Translator" and self.task.targets:
            (word,) = self.task.tagged([word], self.task.targets[0])
        texts, text = {}, word
        most = min(self.limits.max_compiled, self.task.longest_input)
        for _ in range(most):  # to a vocabulary that lacks both, "1 1 1" may be one token
            length = self.task.num_tokens([text])[0]
            if length > most:
                break
            texts[bucket_length(length, self.task.longest_input)] = text
            text += " 1"
        return list(texts.values())

    def _take(self):
        """The next batch."""
        waiting = self._waiting
        first = waiting[:1]
        others = [item for item in waiting[1:] if item.options == first[0].options]
        others.sort(key=lambda item: abs(item.length - first[0].length))
        half = next_power_of_two(len(waiting) // 4 + 1, self.limits.max_batch)  # rows of a program
        most = min(self.limits.max_batch, max(FEW, half))
        batch = first + others[: most - 1]
        taken = set(batch)
        self._waiting = [item for item in waiting if item not in taken]
        return batch

    def _answer(self, batch):
        """The answer, or the exception, of each item."""
        start, answers, left = time.perf_counter(), {}, list(batch)
        while left:
            of_each = {}
            if left[0].seed is not None:
                of_each = dict(seed=[x.seed for x in left], first=[x.number for x in left])
            try:
                texts = [item.text for item in left]
                found = self._method(texts, **left[0].options, **of_each)
                answers |= dict(zip(left, found, strict=True))
                break
            except TextError as error:  # the others are answered
                item = left.pop(error.number)
                answers[item] = Refused(422, f"{error.name} {item.number} {error.problem}")
            except Exception as error:
                answers |= dict.fromkeys(left, for_client(error))
                break
        self.metrics.batches.labels(self.name).observe(len(batch))
        self.metrics.computing.labels(self.name).observe(time.perf_counter() - start)
        return [answers[item] for item in batch]
