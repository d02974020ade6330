"""Text that goes on: a language model with its tokenizer."""

import math
from typing import NamedTuple

import keras
import numpy as np

from .. import tokenizers
from ..arguments import check, check_at_least
from ..generation import Decoding
from ..tokenizers import END, PADDING, START
from .shapes import by_length, next_size, padded
from .task import Task


class TextScore(NamedTuple):
    """How probable a text is.

    Args:
        nats: float, - log P(text).
        tokens: int, those predicted, END included where the texts of the model end.
        characters: int, of the text.
    """

    nats: float
    tokens: int
    characters: int

    @property
    def perplexity(self):
        """exp(nats a token)."""
        return math.exp(self.nats / self.tokens)

    @property
    def bits_per_character(self):
        """What an ideal compressor would need, whatever the tokens are."""
        return self.nats / self.characters / math.log(2)


@keras.saving.register_keras_serializable(package="keras_transformer")
class TextGenerator(Task):
    """A `LanguageModel` with its tokenizer: `generate` takes a prompt and goes on.

        generator.generate(["ROMEO:"], max_tokens=200, temperature=0.8)

    Args:
        model: a `LanguageModel`.
        tokenizer: keras_hub SentencePieceTokenizer, see `learn_tokenizer`.
        window: int from 2, the most tokens the model reads at once: the length it was trained on;
            None: its learned positions, or no limit.
        ends: bool, whether the texts it was trained on end with END; False: windows of longer ones.
        batch_size: int, the most texts read or written together.

    Call arguments: those of `LanguageModel`: ids in, logits out.

    Raises:
        ValueError: The tokenizer has another number of ids, or the window is too long or short.
    """

    parts = ("model", "tokenizer")
    settings = ("window", "ends", "batch_size")

    def __init__(self, model, tokenizer, window=None, ends=True, batch_size=64, **kwargs):
        super().__init__(**kwargs)
        window = model.max_length if window is None else window
        check_at_least(2, window=window)
        check_at_least(1, batch_size=batch_size)
        check(
            window is None or model.max_length is None or window <= model.max_length,
            f"window must be at most the {model.max_length} learned positions",
            window=window,
        )
        self._check_tokenizer(tokenizer, model.target_vocabulary_size)
        self.model, self.tokenizer = model, tokenizer
        self.window, self.ends, self.batch_size = window, ends, batch_size
        self._decoding = Decoding(model)

    def generate(self, prompts, max_tokens=100, temperature=1.0, top_k=None, top_p=1.0, seed=0):
        """The prompts with what the model writes after them.

        Beyond its window it goes on from the last half of what it has read or written.

        Args:
            prompts: list of str; "" begins from nothing.
            max_tokens: int from 1, the most to write after each prompt.
            temperature: float from 0; 0: the most probable token, again and again.
            top_k, top_p: see `Decoding.sample`.
            seed: int from 0. Prompt n draws from (seed, n) alone, whatever is beside it.

        Returns:
            list of str, one a prompt, in the same order.

        Raises:
            ValueError: A prompt is not text, or a number is out of range.
        """
        check_at_least(1, max_tokens=max_tokens)
        check(temperature >= 0, "temperature must be at least 0", temperature=temperature)
        check_at_least(0, seed=seed)
        read = tokenizers.encode(self.tokenizer, prompts)
        written = [list(ids) for ids in read]
        goal = [len(ids) + max_tokens for ids in written]
        for start in range(0, len(written), self.batch_size):
            numbers = range(start, min(start + self.batch_size, len(written)))
            draw = dict(temperature=temperature, top_k=top_k, top_p=top_p) if temperature else None
            self._go_on(written, goal, numbers, draw, seed)
        # What the vocabulary lacks in a prompt would read as unknown.
        spelled = tokenizers.decode(self.tokenizer, read)
        said = tokenizers.decode(self.tokenizer, written)
        return [prompt + text[len(same) :] for prompt, same, text in zip(prompts, spelled, said)]

    def _go_on(self, written, goal, numbers, draw, seed):
        """Writes to the ids of some texts until each has ended or reached its goal."""
        rows, part = next_size(len(numbers), self.batch_size), 0
        while True:
            going = [n for n in numbers if len(written[n]) < goal[n] and END not in written[n]]
            if not going:
                return
            room = self.window or max(goal)
            shown = [self._shown(written[n], room) if n in going else [] for n in numbers]
            longest = [
                min(room, len(ids) + goal[n] - len(written[n])) if n in going else 1
                for n, ids in zip(numbers, shown)
            ]
            spare = rows - len(numbers)
            longest = np.array(longest + [1] * spare, "int32")
            there = [START if n in going else PADDING for n in numbers] + [PADDING] * spare
            given = dict(
                source_ids=np.array(there, "int32")[:, None],  # rows without any end at once
                max_length=longest,
                min_length=None if self.ends else longest,
                prefix=padded(shown, rows, max(1, *map(len, shown))),
            )
            if draw is None:
                answers = self._decoding.greedy(**given)
            else:
                seeds = [(seed, n, part) for n in numbers] + [(seed, 0)] * spare
                answers = self._decoding.sample(**given, seeds=seeds, **draw)
            for n, ids, before in zip(numbers, answers, shown):
                if n in going:
                    written[n].extend(int(i) for i in ids[len(before) :] if i != PADDING)
            part += 1

    @staticmethod
    def _shown(ids, room):
        """What is read before more is written: all, or of more than there is room for, the end."""
        return ids if len(ids) < room else ids[-(room // 2) :]

    def score(self, texts, overlap=0.5):
        """How probable whole texts are, by a deterministic pass over every token.

        A text longer than the window is read in windows that overlap: a token counts once, where
        the most of what comes before it is seen.

        Args:
            texts: list of str, none empty.
            overlap: float in [0, 1), the share of a window that was counted before; 0: windows
                side by side, as in training.

        Returns:
            list of `TextScore`.

        Raises:
            ValueError: An item is not text, or empty.
        """
        check(0 <= overlap < 1, "overlap must be in [0, 1)", overlap=overlap)
        rows, owners, news = [], [], []
        tokens = []
        for n, ids in enumerate(tokenizers.encode(self.tokenizer, texts)):
            check(ids, f"Text {n} must have a character to be scored", text=texts[n])
            ids = [*ids, END] if self.ends else ids
            tokens.append(len(ids))
            for first, last, new in self._spans(len(ids), overlap):
                rows.append(ids[first:last])
                owners.append(n)
                news.append(new - first)
        nats = [0.0] * len(tokens)
        lengths = [len(row) for row in rows]
        sizes = self.batch_size, self.window or np.inf
        for numbers, size, length in by_length(range(len(rows)), lengths, *sizes):
            target = padded([rows[i] for i in numbers], size, length)
            source = np.full((size, 1), START, "int32")
            for i, log_p in zip(numbers, self._decoding.score(source, target)):
                nats[owners[i]] -= float(log_p[news[i] :].sum(dtype="float64"))
        return [TextScore(*each) for each in zip(nats, tokens, map(len, texts))]

    def _spans(self, length, overlap):
        """(first, last, first new) of the windows over so many tokens."""
        window = self.window or length
        step = max(1, window - int(overlap * window))
        spans = [(0, min(window, length), 0)]
        while spans[-1][1] < length:
            new = spans[-1][1]
            last = min(new + step, length)
            spans.append((last - window, last, new))
        return spans
