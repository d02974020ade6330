"""Subword regularization: BPE-dropout, and sampling from a unigram language model.

SentencePiece draws them faster, but from 0.2.2 on its seed means something else in every process,
so that no run could be repeated or resumed. Here a seed means the same everywhere.

Pieces do not cross spaces, so each word is segmented alone, and what a word and its draws lead to
is remembered. Without Keras, as `processor`.
"""

import bisect
import collections
import functools
import heapq
import itertools
import math
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import check
from ..ids import UNKNOWN

SPACE_MARK = "\u2581"  # SentencePiece writes a space as this character
SAMPLED_TOGETHER = 2**16  # texts after which a new seed is set, so that parts can be sampled alone
MOST_NODES = 2**20  # remembered at a time
LONG = 24  # characters: such a word, or sentence without spaces, hardly comes twice with its draws
UNKNOWN_PENALTY = 10.0  # of SentencePiece: an unknown character is less likely than any piece


def sample(
    processor: Any, texts: list[str], alpha: float, seed: int | Sequence[int]
) -> list[list[int]]:
    """The ids of a random segmentation of each text; see `SentencePieceTokenizer.encode`.

    Every SAMPLED_TOGETHER texts have a seed of their own.

    Raises:
        ValueError: alpha is out of range, or the vocabulary is of characters.
    """
    check(0 <= alpha <= 1, "alpha must be in [0, 1]", alpha=alpha)
    starts = range(0, len(texts), SAMPLED_TOGETHER)
    parts = (
        sample_part(processor, texts[start : start + SAMPLED_TOGETHER], alpha, seed, number)
        for number, start in enumerate(starts)
    )
    return list(itertools.chain.from_iterable(parts))


def sample_part(
    processor: Any, texts: list[str], alpha: float, seed: int | Sequence[int], number: int
) -> list[list[int]]:
    """The part of the result of `sample` with this number, from 0."""
    seeds = [seed] if isinstance(seed, (int, np.integer)) else [*seed]
    (state,) = np.random.SeedSequence([*seeds, number] if number else seeds).generate_state(1)
    sampler, generator = make_sampler(processor), random.Random(int(state))
    return [sampler.sample(text, alpha, generator) for text in texts]


@functools.lru_cache(maxsize=8)
def make_sampler(processor: Any) -> "Sampler":
    """The sampler of a vocabulary, with all that it remembers.

    Args:
        processor: `sentencepiece.SentencePieceProcessor`.

    Raises:
        ValueError: The vocabulary is of characters, with one segmentation per text only.
    """
    try:
        processor.encode("a", enable_sampling=True, alpha=1.0, nbest_size=-1)
    except RuntimeError:
        raise ValueError(
            "A vocabulary of characters has one segmentation per text only; learn one of "
            "model_type bpe or unigram."
        ) from None
    # The score of a piece is minus the rank of its merge, or the logarithm of its probability.
    scores = [processor.get_score(id) for id in range(processor.vocab_size())]
    is_bpe = all(score == round(score) for score in scores)
    return (BPEDropout if is_bpe else UnigramSampler)(processor, scores)


class Sampler:
    """Base class of the samplers: words, ids, unknown characters.

    Args:
        processor: `sentencepiece.SentencePieceProcessor`.
        scores: list of float, one per id.
    """

    def __init__(self, processor: Any, scores: list[float]):
        self._processor = processor
        self._ids: dict[str, tuple[int, float]] = {}
        self._unused: set[str] = set()
        reserved = []
        for id, score in enumerate(scores):
            piece = processor.id_to_piece(id)
            if processor.is_unused(id):
                self._unused.add(piece)
            elif processor.is_control(id) or processor.is_unknown(id) or processor.is_byte(id):
                continue
            elif score == 0 and math.copysign(1, score) > 0:  # -0.0 is that of the first merge
                reserved.append(re.escape(piece))
            self._ids[piece] = id, score
        longest_first = "|".join(sorted(reserved, key=len, reverse=True))
        self._reserved = re.compile(f"({longest_first})") if reserved else None
        self._known: dict[float, dict] = collections.defaultdict(dict)
        self._num_nodes = 0

    def sample(self, text: str, alpha: float, generator: random.Random) -> list[int]:
        """The ids of a random segmentation of a text.

        Args:
            text: str.
            alpha: float in [0, 1]; see `SentencePieceTokenizer.encode`.
            generator: source of the draws.
        """
        known = self._known[alpha]
        if self._num_nodes > MOST_NODES:
            known.clear()
            self._num_nodes = 0
        ids: list[int] = []
        text = self._processor.normalize(text)  # with marks for spaces
        parts = self._reserved.split(text) if self._reserved else [text]
        for number, part in enumerate(parts):
            if number % 2:
                ids.append(self._ids[part][0])
                continue
            for word in re.findall(f"{SPACE_MARK}[^{SPACE_MARK}]*|^[^{SPACE_MARK}]+", part):
                self._extend(ids, word, alpha, known, generator)
        if UNKNOWN not in ids:
            return ids
        # SentencePiece joins unknown characters that follow each other.
        runs = itertools.groupby(ids)
        return [id for first, run in runs for id in ([first] if first == UNKNOWN else run)]

    def _extend(self, ids, word, alpha, known, generator):
        """Adds the ids of a word."""
        raise NotImplementedError

    def _ids_of(self, piece):
        if piece in self._ids:
            return [self._ids[piece][0]]
        values = [self._processor.piece_to_id(f"<0x{byte:02X}>") for byte in piece.encode()]
        return [UNKNOWN] if UNKNOWN in values else values


class BPEDropout(Sampler):
    """Byte-pair encoding in which each merge is left out with probability alpha.

    Source: Provilkov et al. 2020, algorithm 1, as SentencePiece has it: a merge that is left out
    at one place is not tried there again unless a neighbor has changed.
    """

    def _extend(self, ids, word, alpha, known, generator):
        draw = generator.random
        if len(word) > LONG:
            ids += self._merged(word, lambda: draw() < alpha)
            return
        draws: list[bool] = []  # whether to leave each merge out
        node = known.get(word)
        if node is None:
            node = known[word] = self._node(word, draws)
        while node[2] is None:
            left_out = draw() < alpha
            draws.append(left_out)
            if node[left_out] is None:
                node[left_out] = self._node(word, draws)
            node = node[left_out]
        ids += node[2]

    def _node(self, word, draws):
        """A word after some draws: the nodes after a merge that is kept or left out, and its ids.

        None: not met yet, or one more draw is needed.
        """
        self._num_nodes += 1
        return [None, None, self._merged(word, functools.partial(next, iter(draws), None))]

    def _merged(self, word, draw):
        """The ids of a word where `draw` says whether to leave a merge out; None where it does."""
        # A symbol that was merged into its left one is "". No piece has a surrogate, as both ends.
        symbols, parts = ["\ud800", *word, "\ud800"], {}
        following, preceding = [*range(1, len(symbols))], [*range(-1, len(word) + 1)]
        agenda: list[tuple[float, int, int, str]] = []

        def propose(left, right):
            piece = symbols[left] + symbols[right]
            if piece in self._ids:
                if piece in self._unused:
                    parts[piece] = symbols[left], symbols[right]
                heapq.heappush(agenda, (-self._ids[piece][1], left, right, piece))

        for left in range(1, len(word)):
            propose(left, left + 1)
        while agenda:
            _, left, right, piece = heapq.heappop(agenda)
            if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != piece:
                continue
            left_out = draw()
            if left_out is None:
                return None
            if left_out:
                continue
            symbols[left], symbols[right] = piece, ""
            following[left] = following[right]
            preceding[following[right]] = left
            propose(preceding[left], left)
            propose(left, following[left])

        def ids_of(piece):
            if piece in parts:
                return [id for part in parts[piece] for id in ids_of(part)]
            return self._ids_of(piece)

        return [id for symbol in symbols[1:-1] if symbol for id in ids_of(symbol)]


class UnigramSampler(Sampler):
    """A segmentation with a probability in proportion to its own to the power of alpha.

    Source: Kudo 2018, section 3.4 (forward filtering, backward sampling).
    """

    def __init__(self, processor: Any, scores: list[float]):
        super().__init__(processor, scores)
        self._ids = {p: found for p, found in self._ids.items() if p not in self._unused}
        self._longest = max(map(len, self._ids))
        self._of_unknown = min(score for _, score in self._ids.values()) - UNKNOWN_PENALTY

    def _extend(self, ids, word, alpha, known, generator):
        ends = known.get(word) or self._ends(word, alpha)
        if len(word) <= LONG and word not in known:
            known[word] = ends
            self._num_nodes += len(word)
        found, end = [], len(word)
        while end:
            shares, pieces = ends[end]
            # An unknown character has one piece: a longer run draws no more.
            chosen = bisect.bisect(shares, generator.random()) if len(pieces) > 1 else 0
            end, piece_ids = pieces[min(chosen, len(pieces) - 1)]  # shares add up to 1 - 1e-16
            found.append(piece_ids)
        ids += itertools.chain.from_iterable(reversed(found))

    def _ends(self, word, alpha):
        """Per end, the pieces that may stand there: cumulative probabilities, (start, ids)."""
        totals = [0.0]  # the logarithm of the sum over all segmentations up to an end
        ends: list[tuple[list[float], list[tuple[int, list[int]]]]] = [([], [])]
        for end in range(1, len(word) + 1):
            found = []
            for start in range(max(0, end - self._longest), end):
                piece = word[start:end]
                if piece in self._ids or start == end - 1:
                    _, score = self._ids.get(piece, (UNKNOWN, self._of_unknown))
                    found.append((totals[start] + alpha * score, start, piece))
            most = max(score for score, *_ in found)
            total = most + math.log(sum(math.exp(score - most) for score, *_ in found))
            shares = itertools.accumulate(math.exp(score - total) for score, *_ in found)
            ends.append((list(shares), [(start, self._ids_of(piece)) for _, start, piece in found]))
            totals.append(total)
        return ends
