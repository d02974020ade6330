"""A beam search as a tree."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from ..generation.beam_search import BeamState
from ..generation.constraints import IMPOSSIBLE
from ..ids import END


class Branch(NamedTuple):
    """A hypothesis after one position of a beam search.

    Args:
        token: int, its last token.
        parent: int, the number of the branch at the position before that it extends; at the first
            position 0.
        score: float, nats: its log-probability, or if it is finished its log-probability / length
            penalty; see `generation.length_penalty`.
        finished: bool, whether it ends in END.
    """

    token: int
    parent: int
    score: float
    finished: bool


def beam_tree(states: Iterable[BeamState]) -> list[list[Branch]]:
    """The branches of a beam search for one sentence.

    A branch that is not finished and that no later branch extends was dropped, or was live when the
    search ended.

    Args:
        states: of `Decoding.beam_states`, for a batch of one sentence.

    Returns:
        list of lists of `Branch`, per position: live hypotheses, best first, then those that have
        just finished.
    """
    tree, finished = [], set()
    for state in states:
        beams, position = state.ids.shape[1], int(state.position[0]) - 1
        slots = slice(position * beams, (position + 1) * beams)  # of the tokens read last

        def parent(ancestors, slots=slots):
            return int(np.argmax(ancestors[slots]))

        branches = [
            Branch(int(token), parent(ancestors), float(score), False)
            for token, ancestors, score in zip(
                state.ids[0], state.ancestors[0], state.scores[0], strict=True
            )
            if score > IMPOSSIBLE / 2
        ]
        for ancestors, score in zip(
            state.finished_ancestors[0], state.finished_scores[0], strict=True
        ):
            key = ancestors.nonzero()[0].tobytes()
            if score > IMPOSSIBLE / 2 and ancestors[slots].any() and key not in finished:
                finished.add(key)
                branches.append(Branch(END, parent(ancestors), float(score), True))
        tree.append(branches)
    return tree
