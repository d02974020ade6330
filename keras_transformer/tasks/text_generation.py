"""Text generation with a language model and its tokenizer."""

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from ..checks import TextError, check, check_at_least, check_from_0, check_optional, check_rates
from ..data.lengths import LONGEST, next_power_of_two, pad
from ..evaluation import perplexity
from ..generation import GreedySearch, Request, Sampling
from ..generation.configuration import SamplingConfig
from ..ids import END, PADDING
from ..models import LanguageModel
from ..tokenizers.base import Tokenizer
from ..tokenizers.normal_forms import check_form
from .task import WritingTask, whole_characters

CODE_POINTS = 0x110000 - 2048  # characters that Unicode can have: without the surrogates


class TextScore(NamedTuple):
    """The probability of a text.

    Args:
        nats: float, -log P(tokens of the text).
        tokens: int, number of predicted tokens, END included where the model's texts have one. A
            run of unknown characters may be one.
        characters: int, length of the text.
        unknown: int, how many of them the vocabulary lacks.
    """

    nats: float
    tokens: int
    characters: int
    unknown: int = 0

    @property
    def perplexity(self) -> float:
        """exp(nats per token); that a character is unknown is known then, but not which it is."""
        return perplexity(self.nats, self.tokens)

    @property
    def bits_per_character(self) -> float:
        """The rate of an ideal compressor, comparable between vocabularies.

        An unknown character costs the bits of its code point in addition, 20.1.
        """
        nats = self.nats + self.unknown * math.log(CODE_POINTS)
        return nats / self.characters / math.log(2)


class Continuation(NamedTuple):
    """A prompt with its continuation.

    Args:
        text: str.
        tokens: int, number of new ones, END not included.
        finished: bool, whether the model wrote END; False: cut off at `max_tokens`.
    """

    text: str
    tokens: int
    finished: bool


@keras.saving.register_keras_serializable(package="keras_transformer")
class TextGenerator(WritingTask):
    """A `LanguageModel` with its tokenizer: `generate` continues a prompt.

        generator.generate(["ROMEO:"], max_tokens=200, temperature=0.8)

    Args:
        model: `LanguageModel`.
        tokenizer: `Tokenizer`, such as `train_tokenizer` returns.
        window: int from 2, maximum number of tokens that the model reads at once: the length it
            was trained on. None: its learned positions, or 8,192.
        append_end: bool, whether its training texts end with END; False: they were chunks of
            longer texts.
        batch_size: int, maximum number of texts per batch.
        normalization: str, the form of the training data, which every text is brought into, see
            `data.normalized`; None: texts are not changed, as for an imported GPT-2.
        **kwargs: name of `keras.Model`.

    Call arguments: the arguments of `LanguageModel`: ids in, logits out.

    Raises:
        ValueError: The tokenizer has another number of ids than the model, `window` is below 2 or
            above the learned positions, or `batch_size` is below 1.
    """

    parts = ("model", "tokenizer")
    settings = ("window", "append_end", "batch_size", "normalization")

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: Tokenizer,
        window: int | None = None,
        append_end: bool = True,
        batch_size: int = 64,
        normalization: str | None = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        check_form(normalization)
        learned = model.max_length
        window = learned if window is None else window
        check_optional(2, window=window)
        check_at_least(1, batch_size=batch_size)
        fits = window is None or learned is None or window <= learned
        check(fits, f"window must be at most the {learned} learned positions", window=window)
        self._check_tokenizer(tokenizer, model.target_vocabulary_size)
        self.model = model
        self.tokenizer = tokenizer
        self.window = window
        self.append_end = append_end
        self.batch_size = batch_size
        self.normalization = normalization

    @property
    def longest_input(self) -> int:
        """int, the maximum number of tokens that the model reads at once: its window."""
        return self.window or LONGEST

    def generate(
        self,
        prompts: Iterable[str],
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int | Sequence[int] = 0,
        first: int | Sequence[int] = 0,
        return_ends: bool = False,
        **changes: Any,
    ) -> list[Any]:
        """Continues each prompt.

        When its window is full, the model continues from the last half of it.

        Args:
            prompts: list of str; "" is also a prompt.
            max_tokens: int from 1, maximum number of new tokens per prompt.
            temperature: float from 0, divisor of the logits; 0: greedy decoding.
            top_k: int from 1, number of most probable tokens to sample from; None: all.
            top_p: float in (0, 1], nucleus sampling: the fewest tokens that together reach it.
            seed: int from 0, or one per prompt. The continuation of prompt n depends on the prompt
                and (seed, n) alone, not on the rest of its batch.
            first: int from 0, the n of the first prompt, for a list that is given in parts; or the
                n of each prompt.
            return_ends: bool, whether to return a `Continuation` per prompt instead of its text.
            **changes: fields of `LogitsConfig`, such as `no_repeat_ngram_size`, which depend on the
                tokens in the window; `suppress` may also have texts.

        Returns:
            list of str, each prompt with its continuation, in the same order and in the normal form
            of the training data.

        Raises:
            ValueError: A prompt is not text, or an option is out of range.
        """
        check_at_least(1, max_tokens=max_tokens)
        search = self._search(temperature, top_k, top_p, changes)
        prompts = self.normalized(prompts)
        prompt_ids = self._encode(prompts)
        number = len(prompts)
        pairs = zip(
            _of_each("seed", seed, number), _of_each("first", first, number, step=1), strict=True
        )
        continuations = [
            _Prompt(pair, ids, max_tokens) for pair, ids in zip(pairs, prompt_ids, strict=True)
        ]
        self._continue(continuations, search)
        # The prompt is not taken from its ids: they lack the characters that have none.
        before = self.tokenizer.decode(prompt_ids)
        after = self.tokenizer.decode([continuation.ids for continuation in continuations])
        rows = zip(prompts, before, after, continuations, strict=True)
        found = [
            each.continuation(prompt + text[len(start) :]) for prompt, start, text, each in rows
        ]
        return found if return_ends else [each.text for each in found]

    def stream(
        self,
        prompt: str,
        max_tokens: int = 100,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        return_ends: bool = False,
        **changes: Any,
    ) -> Iterator[Any]:
        """Continues one prompt while the caller reads.

        Args:
            prompt: str; "" is also a prompt.
            max_tokens: int from 1, maximum number of new tokens.
            temperature: float from 0, divisor of the logits; 0: greedy decoding.
            top_k: int from 1, number of most probable tokens to sample from; None: all.
            top_p: float in (0, 1], nucleus sampling: the fewest tokens that together reach it.
            seed: int from 0.
            return_ends: bool, whether a `Continuation` follows the text.
            **changes: fields of `LogitsConfig`; see `generate`.

        Returns:
            Iterator of str, whole characters; joined they are what `generate` writes after the
            prompt.

        Raises:
            ValueError: The prompt is not text, or an option is out of range.
        """
        check_at_least(1, max_tokens=max_tokens)
        check_at_least(0, seed=seed)
        search = self._search(temperature, top_k, top_p, changes)
        (prompt,) = self.normalized([prompt])
        (ids,) = self._encode([prompt])
        growing = _Prompt((seed, 0), ids, max_tokens)
        pieces = whole_characters(self._stream_ids(growing, search), self.tokenizer, ids)

        def with_end():
            text = prompt
            for piece in pieces:
                text += piece
                yield piece
            yield growing.continuation(text)

        return with_end() if return_ends else pieces

    def _stream_ids(self, continuation, search):
        """The ids that extend a continuation, one after the other."""
        few = self._are_few(continuation.missing)
        for window in itertools.count():
            if continuation.done:
                return
            known = len(continuation.context(self.longest_input))
            request = self._request([continuation], 1, search, window, few)
            stream = self._decoding.stream(**request.stepwise())
            for ids in itertools.islice(stream, known, None):
                continuation.ids.append(int(ids[0]))
                yield continuation.ids[-1]

    def _continue(self, continuations, search):
        """Extends the continuations, window by window, until all are done."""
        few = self._are_few(sum(each.missing for each in continuations))
        rows = next_power_of_two(max(1, len(continuations)), self.batch_size)
        for window in itertools.count():
            unfinished = [each for each in continuations if not each.done]
            if not unfinished:
                return
            starts = range(0, len(unfinished), rows)
            batches = [unfinished[start : start + rows] for start in starts]
            requests = (self._request(batch, rows, search, window, few) for batch in batches)
            for batch, answers in self._answers(zip(batches, requests, strict=True)):
                for each, ids in zip(batch, answers, strict=False):
                    new = ids[len(each.context(self.longest_input)) :]
                    each.ids.extend(int(i) for i in new if i != PADDING)

    def _search(self, temperature, top_k, top_p, changes):
        """A function of the seeds of a batch to its search; temperature 0: greedy decoding."""
        check_from_0(temperature=temperature)
        logits = self._logits(self.tokenizer, **changes)
        if not temperature:
            return lambda seeds: GreedySearch(logits=logits)
        SamplingConfig(temperature, top_k, top_p)  # checks them, also without prompts
        return lambda seeds: Sampling(seeds, temperature, top_k, top_p, logits=logits)

    def _request(self, continuations, rows, search, window, few):
        """A `Request` for the next window of a batch of continuations."""
        prefixes = [each.context(self.longest_input) for each in continuations]
        lengths = [
            min(len(prefix) + each.missing, self.longest_input)
            for prefix, each in zip(prefixes, continuations, strict=True)
        ]
        spare = rows - len(continuations)
        max_length = np.array(lengths + [0] * spare, "int32")
        seeds = [(*each.seed, window) for each in continuations] + [(0, 0, 0)] * spare
        min_length = None if self.append_end else max_length  # END is never written
        prefix = pad(prefixes, rows, max(1, *map(len, prefixes)))
        return Request(search(seeds), None, max_length, min_length, prefix, few=few)

    def num_tokens(self, texts: Iterable[str]) -> list[int]:
        """The tokens of each text, END included."""
        return [len(ids) + 1 for ids in self.tokenizer.encode(self.normalized(texts))]

    def score(self, texts: Iterable[str], overlap: float = 0.5) -> list[TextScore]:
        """Scores whole texts, by a deterministic pass over every token.

        A text longer than the window is read in overlapping windows; each token counts once, in
        the window that shows the most of the text before it.

        Args:
            texts: list of str, none empty.
            overlap: float in [0, 1), the fraction of a window that was counted before; 0: windows
                side by side, as in training.

        Returns:
            list of `TextScore`, one per text.

        Raises:
            ValueError: An item is not text, or empty; or `overlap` is out of range.
        """
        check_rates(overlap=overlap)
        texts = self.normalized(texts)
        sequences = self._encode(texts)
        self._check_scored(sequences)
        if self.append_end:
            sequences = [[*ids, END] for ids in sequences]
        windows = [
            _Window(number, ids[first:last], new - first)
            for number, ids in enumerate(sequences)
            for first, last, new in self._spans(len(ids), overlap)
        ]
        nats = [0.0] * len(texts)
        ids = [window.ids for window in windows]
        for number, log_p in self._log_probabilities(ids, None, self.batch_size):
            window = windows[number]
            nats[window.number] -= float(log_p[window.counted :].sum(dtype="float64"))
        tokens = map(len, sequences)
        characters = map(len, texts)
        unknown = self.tokenizer.unknown_characters(texts)
        return [TextScore(*each) for each in zip(nats, tokens, characters, unknown, strict=True)]

    def _spans(self, length, overlap):
        """The windows over a text of `length` tokens: (first, last, first to be counted)."""
        window = min(self.longest_input, length)
        step = max(1, window - int(overlap * window))
        spans = [(0, window, 0)]
        while spans[-1][1] < length:
            new = spans[-1][1]
            last = min(new + step, length)
            spans.append((last - window, last, new))
        return spans

    def check_texts(self, texts: Iterable[str]) -> None:
        """Refuses texts that could not be scored, without scoring any; none may be empty.

        Args:
            texts: list of str.

        Raises:
            ValueError: An item is not text, or empty.
        """
        texts = self.normalized(texts)
        self._check_scored(self._encode(texts))

    def _check_scored(self, sequences):
        for number, ids in enumerate(sequences):
            if not ids:
                raise TextError(number, "must have a character to be scored; received text=''.")

    def _encode(self, texts):
        self._check_tokenizer(self.tokenizer, self.model.target_vocabulary_size)
        return self.tokenizer.encode(texts)


def _of_each(name, values, number, step=0):
    """One int from 0 per prompt: the values given, or an int that rises by `step`."""
    several = isinstance(values, Sequence)
    for value in values if several else [values]:
        check_at_least(0, **{name: value})
    if not several:
        return [values + step * n for n in range(number)]
    check(len(values) == number, f"{name} must be an int, or one per prompt", **{name: values})
    return values


class _Window(NamedTuple):
    """A part of a text that is scored at once."""

    number: int  # of the text
    ids: list[int]
    counted: int  # ids at the beginning that another window has counted


class _Prompt:
    """A prompt and the tokens written after it."""

    def __init__(self, seed, prompt_ids, max_tokens):
        self.seed = seed  # with the number of the prompt
        self.ids = list(prompt_ids)
        self.given, self.goal = len(self.ids), len(self.ids) + max_tokens

    @property
    def missing(self):
        return self.goal - len(self.ids)

    @property
    def done(self):
        return self.missing <= 0 or END in self.ids

    def continuation(self, text):
        """The `Continuation` whose text this is."""
        finished = END in self.ids
        return Continuation(text, len(self.ids) - self.given - finished, finished)

    def context(self, window):
        """The ids to read before more are written: all, or as many as fit half a window."""
        return self.ids if len(self.ids) < window else self.ids[-(window // 2) :]
