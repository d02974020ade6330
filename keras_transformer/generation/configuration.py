"""How answers are decoded, and how tokens are sampled."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import (
    SMALLEST,
    Configuration,
    check,
    check_above_0,
    check_at_least,
    check_finite,
    check_from_0,
    check_optional,
)

MORE_TOKENS = 16  # that an answer may have beyond its ratio to the source
OF_LOGITS = ("no_repeat_ngram_size", "repetition_penalty", "suppress")  # see `LogitsConfig`
MOST_PENALTY = 10  # exponent: the penalty of 8,192 tokens is then 2e31, within float32


@dataclasses.dataclass(frozen=True)
class GenerationConfig(Configuration):
    """How answers are decoded: what a task uses unless a call says otherwise.

    Args:
        beams: Width of the beam search; 1: greedy decoding.
        length_penalty: Exponent of the length penalty, from 0 to 10; larger favors longer answers.
        min_length_ratio: Fewest tokens of an answer per source token, END counted in neither.
        max_length_ratio: Most tokens of an answer per source token, plus 16.
        batch_size: Most texts that are decoded together. On a CPU, TensorFlow and JAX decode two
            batches at a time, and a translation that has ended makes room for the next.
        tokens_per_batch: Most source tokens per batch, padding included; None: no limit.
        no_repeat_ngram_size: Size of the n-grams of tokens that no answer repeats; 0: none.
        repetition_penalty: Penalty of tokens that an answer has already; 1: none.
        suppress: Texts, or ids of tokens, that are never written.

    Raises:
        ValueError: A value is out of range.

    Source: Wu et al. 2016, equation 14 (length penalty).
    """

    beams: int = 1
    length_penalty: float = 0.6
    min_length_ratio: float = 0.0
    max_length_ratio: float = 2.0
    batch_size: int = 64
    tokens_per_batch: int | None = None
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    suppress: Sequence[str | int] = ()

    def __post_init__(self):
        check_at_least(1, beams=self.beams, batch_size=self.batch_size)
        check_optional(1, tokens_per_batch=self.tokens_per_batch)
        ratios = {name: getattr(self, name) for name in ("min_length_ratio", "max_length_ratio")}
        check_finite(**ratios)
        check_from_0(length_penalty=self.length_penalty)
        expected = f"length_penalty must be at most {MOST_PENALTY}, for float32 to hold it"
        within = self.length_penalty <= MOST_PENALTY
        check(within, expected, length_penalty=self.length_penalty)
        expected = "Expected 0 <= min_length_ratio <= max_length_ratio, the latter above 0"
        ordered = 0 <= self.min_length_ratio <= self.max_length_ratio
        check(ordered and self.max_length_ratio > 0, expected, **ratios)
        LogitsConfig(self.no_repeat_ngram_size, self.repetition_penalty)  # checks them
        check_list("suppress", "texts or ids", self.suppress, (str, int))
        object.__setattr__(self, "suppress", tuple(self.suppress))

    def to_dict(self) -> dict[str, Any]:
        """The fields for a file; those of `OF_LOGITS`, unknown to older versions, if used."""
        used = {name: getattr(self, name) for name in OF_LOGITS}
        used = {name: value for name, value in used.items() if value != getattr(type(self), name)}
        if "suppress" in used:
            used["suppress"] = list(self.suppress)  # JSON has no tuples
        others = dataclasses.asdict(self).items()
        return {name: value for name, value in others if name not in OF_LOGITS} | used

    def length_limits(
        self, lengths: Any, most: int, prefixes: Sequence | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The fewest and the most tokens of each answer, END included.

        Args:
            lengths: int, (texts,), tokens of each source text, END included.
            most: int, the most tokens of any answer.
            prefixes: ids of the beginning of each answer; None: no beginnings.

        Returns:
            int32, (texts,), the fewest tokens before END.
            int32, (texts,), the most tokens.
        """
        lengths = np.array(lengths)
        longest = self.max_length_ratio * lengths + MORE_TOKENS
        if prefixes is not None:
            longest = np.maximum(longest, [len(prefix) + MORE_TOKENS for prefix in prefixes])
        longest = np.minimum(longest, most)
        shortest = np.maximum(self.min_length_ratio * (lengths - 1), 1)  # not empty
        shortest = np.minimum(shortest, longest - 1)
        return shortest.astype("int32"), longest.astype("int32")


@dataclasses.dataclass(frozen=True)
class SamplingConfig(Configuration):
    """How tokens are drawn from a model's distribution.

    Args:
        temperature: Divisor of the logits, above 0: below 1 sharpens the distribution.
        top_k: Number of most probable tokens to sample from; None: all.
        top_p: Nucleus sampling threshold: the fewest tokens that together reach it, in (0, 1].

    Raises:
        ValueError: A value is out of range.

    Source: Fan et al. 2018 (top-k); Holtzman et al. 2020 (nucleus sampling).
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0

    def __post_init__(self):
        check_above_0(temperature=self.temperature)
        check_optional(1, top_k=self.top_k)
        check_finite(top_p=self.top_p)
        in_range = SMALLEST <= self.top_p <= 1
        check(in_range, "top_p must be above 0 and at most 1", top_p=self.top_p)


@dataclasses.dataclass(frozen=True)
class LogitsConfig(Configuration):
    """How the logits of a token depend on those written before, its prefix or prompt included.

    Where no token would be left, all are allowed. A prefix is written in any case.

    Args:
        no_repeat_ngram_size: Size of the n-grams of tokens that no answer repeats; 0: none.
        repetition_penalty: Divisor of the positive logits and factor of the negative ones of all
            tokens that were written, from 0.01 to 100; 1: none.
        suppress: Ids of tokens, and sequences of ids, that are never written.

    Raises:
        ValueError: A value is out of range.

    Source: Paulus et al. 2017, section 2.5 (n-grams); Keskar et al. 2019, equation 2 (penalty, of
        negative logits as in Hugging Face's RepetitionPenaltyLogitsProcessor); CTranslate2's
        suppress_sequences.
    Departs: Hugging Face's beam search applies the penalty to log-probabilities; here every search
        applies it to logits, so that one beam is greedy decoding.
    """

    no_repeat_ngram_size: int = 0
    repetition_penalty: float = dataclasses.field(default=1.0, compare=False)  # see `sampling`
    suppress: Sequence[int | Sequence[int]] = ()

    def __post_init__(self):
        check_at_least(0, no_repeat_ngram_size=self.no_repeat_ngram_size)
        check_finite(repetition_penalty=self.repetition_penalty)
        within = 0.01 <= self.repetition_penalty <= 100
        expected = "repetition_penalty must be from 0.01 to 100"
        check(within, expected, repetition_penalty=self.repetition_penalty)
        check_list("suppress", "ids or lists of ids", self.suppress, (int, Sequence))
        ids = [(each,) if isinstance(each, int) else tuple(each) for each in self.suppress]
        check(all(ids), "suppress must have texts or ids, none empty", suppress=self.suppress)
        object.__setattr__(self, "suppress", tuple(ids))

    def penalties(self, *shape: int) -> np.ndarray | None:
        """float32 of a shape: the repetition penalty; None if it is 1, which is not computed."""
        penalty = self.repetition_penalty
        return None if penalty == 1 else np.full(shape, penalty, "float32")


def check_list(name, kinds, values, types):
    """Raises a `ValueError` for what is not a list of some types, such as a str."""
    is_list = isinstance(values, Sequence) and not isinstance(values, str)
    holds = is_list and all(isinstance(value, types) for value in values)
    check(holds, f"{name} must be a list of {kinds}", **{name: values})


UNCHANGED = LogitsConfig()
