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
MOST_PENALTY = 10  # exponent: the penalty of 8,192 tokens is then 2e31, within float32


@dataclasses.dataclass(frozen=True)
class GenerationConfig(Configuration):
    """How answers are decoded: what a task uses unless a call says otherwise.

    Args:
        beams: Width of the beam search; 1: greedy decoding.
        length_penalty: Exponent of the length penalty, from 0 to 10; larger favors longer answers.
        min_length_ratio: Fewest tokens of an answer per source token, END counted in neither.
        max_length_ratio: Most tokens of an answer per source token, plus 16.
        batch_size: Most texts per batch. On a CPU, TensorFlow and JAX decode two batches at a time.
        tokens_per_batch: Most source tokens per batch, padding included; None: no limit.

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
