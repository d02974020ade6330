"""The engine that decodes for a task: Keras, or CTranslate2, which is faster on a CPU."""

import collections
import itertools
import pathlib
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .. import backend
from ..checks import check, first_line, imported
from ..generation import BeamSearch, Decoding, Hypotheses, Request, Sampling, length_penalty
from ..generation.configuration import UNCHANGED
from ..generation.constraints import NEVER_WRITTEN
from ..ids import END, PADDING, START
from ..tasks import Task, TextGenerator, Translator
from .ctranslate2 import MAX_LENGTH
from .formats import ENGINES, export

PATIENCE = 3  # finished hypotheses per beam that end a search; fewer miss some best ones
SAME_SLOPE = 1.25  # its penalty, length^(alpha / 1.25), rises like ours at 20 tokens


def set_engine(task: Task, engine: str) -> str:
    """Selects the engine that decodes for a task; texts and batches stay the task's.

        translator = keras_transformer.load("zh-en")
        keras_transformer.interchange.set_engine(translator, "ctranslate2")
        translator.translate(texts, beams=5)

    CTranslate2 gets a copy of the weights: select it again after they have changed. It decodes
    greedily and by beam search; streams, scores of given texts and attention maps stay Keras's.

    Args:
        task: a `Translator` or a `TextGenerator`; for "keras" and "auto" any task.
        engine: "keras"; "ctranslate2"; "ctranslate2-int8", with products in 8 bits, which changes
            some answers; or "auto": CTranslate2 on a CPU where it is installed, for the searches
            that it does as Keras does, and Keras for all else; if that is all, stderr says why.

    Returns:
        str, "keras", "ctranslate2" or "ctranslate2-int8".

    Raises:
        ImportError: CTranslate2 is not installed.
        ValueError: There is no such engine, or CTranslate2 cannot hold the task.
    """
    check(engine in ENGINES, f"engine must be one of {', '.join(ENGINES)}", engine=engine)
    decoding, chosen = None, engine
    try:
        if engine == "auto":
            device = "an accelerator" if backend.on_accelerator() else "a CPU"
            check(device == "a CPU", "CTranslate2 computes on a CPU here", backend=device)
            policy, chosen = task.model.dtype_policy.name, "ctranslate2"
            check(policy == "float32", "CTranslate2 computes in float32", dtype=policy)
        if chosen != "keras":
            products = "int8" if chosen == "ctranslate2-int8" else "float32"
            decoding = CTranslate2Decoding(task, products, strict=engine != "auto")
    except (ImportError, ValueError) as error:
        if engine != "auto":
            raise
        print(f"Keras decodes: {first_line(error)}.", file=sys.stderr)
        chosen = "keras"
    task.decode_with(decoding)
    return chosen


class CTranslate2Decoding(Decoding):
    """A `Decoding` whose greedy and beam searches are CTranslate2's.

    Both searches keep the same hypotheses, step by step, and rank them by `length_penalty`. They
    end at other steps: CTranslate2's when `PATIENCE` hypotheses per beam have finished, that of
    `Decoding.beam_search` when no live one can become the best.

    Args:
        task: a `Translator` or a `TextGenerator`.
        products: str, the number type of CTranslate2's products.
        strict: bool, whether to refuse what CTranslate2 does otherwise than Keras; False: Keras
            does it.

    Raises:
        ImportError: CTranslate2 is not installed.
        ValueError: CTranslate2 cannot hold the task.
    """

    continuous = False  # CTranslate2 drops the sentences of a batch that have ended

    def __init__(self, task: Any, products: str = "float32", strict: bool = True):
        super().__init__(task.model)
        package = '"keras3-transformer[fast]"'
        library: Any = imported("ctranslate2", "The engine ctranslate2", package)
        self._strict, self._cores = strict, backend.num_cores()
        kind = library.Generator if isinstance(task, TextGenerator) else library.Translator
        with tempfile.TemporaryDirectory() as parent:
            folder = pathlib.Path(parent, "model")
            export(task, folder, "ctranslate2")
            # A batch per core: its products are too small for several.
            threads = dict(inter_threads=self._cores, intra_threads=1)
            self._engine = kind(str(folder), compute_type=products, **threads)
        if isinstance(task, Translator):
            self._source_tokens = task.source_tokenizer.get_vocabulary()
        target = getattr(task, "target_tokenizer", None) or task.tokenizer
        self._tokens = target.get_vocabulary()
        self._ids = {token: number for number, token in enumerate(self._tokens)}

    def decode(self, requests: Iterable[Request]) -> Iterator[Any]:
        """Answers the requests of a task in their order, several at a time."""
        requests = map(_with_a_limit_per_row, requests)
        for problem, group in itertools.groupby(requests, self._problem):
            if problem and self._strict:
                cure = "Leave that out, or choose the engine keras or auto."
                raise ValueError(f"CTranslate2 {problem}. {cure}")
            decode = super().decode if problem else self._decode
            yield from decode(group)

    def _problem(self, request):
        """A clause about what CTranslate2 does otherwise than Keras; None: it does the same."""
        most, beams = request.max_length, isinstance(request.search, BeamSearch)
        if isinstance(request.search, Sampling):
            return "draws other random numbers than those of a seed (none with temperature 0)"
        logits = request.search.logits
        if logits != UNCHANGED or logits.repetition_penalty != 1:
            return "has other scores with no_repeat_ngram_size, repetition_penalty and suppress"
        if request.prefix is not None and (request.source_ids is not None or beams):
            return "does not score the prefix of an answer"
        lengths = [most.max()]
        if request.source_ids is not None:
            if (np.broadcast_to(request.min_length, len(most))[most > 0] != 1).any():
                return "has no min_length_ratio"
            lengths.append(np.count_nonzero(request.source_ids, axis=1).max())
        config = self.model.config
        if max(lengths) > MAX_LENGTH and config.max_length is None and not config.rotary:
            return f"has {MAX_LENGTH} positions, fewer than a text or an answer may have"
        return None

    def _decode(self, requests):
        waiting = collections.deque()
        for request in requests:
            if len(waiting) > self._cores:  # these are decoded, and one is ready
                yield self._answers(*waiting.popleft())
            waiting.append((request, self._submit(request, np.flatnonzero(request.max_length))))
        for each in waiting:
            yield self._answers(*each)

    def _submit(self, request, rows):
        """An asynchronous result per row; the longest of their limits is the limit of all."""
        if request.source_ids is None:
            return self._submit_prompts(request, rows)
        search, options = request.search, dict(beam_size=1, length_penalty=0)
        if isinstance(search, BeamSearch):
            options = dict(return_scores=True, beam_size=search.width, length_penalty=0)
            if exponent := _exponent(search):
                options |= dict(patience=PATIENCE, num_hypotheses=PATIENCE * search.width)
                options |= dict(length_penalty=exponent)
        ids = [_without_padding(request.source_ids[row])[:-1] for row in rows]  # it adds END
        results = self._engine.translate_batch(
            [[self._source_tokens[i] for i in each] for each in ids],
            max_decoding_length=int(request.max_length[rows].max()),
            max_input_length=0,
            suppress_sequences=[[self._tokens[i]] for i in NEVER_WRITTEN],
            return_end_token=True,
            asynchronous=True,
            **options,
        )
        return dict(zip(rows, results, strict=True))

    def _submit_prompts(self, request, rows):
        """The same for prompts; those of a batch must have one length."""
        results, by_length = {}, collections.defaultdict(list)
        for row in rows:
            by_length[len(self._prefix(request, row))].append(row)
        never = NEVER_WRITTEN if request.min_length is None else (*NEVER_WRITTEN, END)
        for length, group in by_length.items():
            ids = [[START, *self._prefix(request, row)] for row in group]
            found = self._engine.generate_batch(
                [[self._tokens[i] for i in each] for each in ids],
                max_length=int(request.max_length[group].max()) - length,
                include_prompt_in_result=False,
                suppress_sequences=[[self._tokens[i]] for i in never],
                return_end_token=True,
                asynchronous=True,
            )
            results |= zip(group, found, strict=True)
        return results

    def _answers(self, request, results):
        """An array or `Hypotheses`, as the search of a request has it."""
        search, rows, longest = request.search, len(request.max_length), max(request.max_length)
        n_best = getattr(search, "n_best", 1)
        ids = np.zeros((rows, n_best, longest), "int32")
        scores = np.full((rows, n_best), -np.inf, "float32")
        finished = np.zeros((rows, n_best), "bool")
        for row, result in results.items():
            for rank, found in enumerate(self._ranked(request, row, result)):
                ids[row, rank, : len(found.ids)] = found.ids
                scores[row, rank], finished[row, rank] = found.score, found.finished
        whole = Hypotheses(ids, scores, finished)
        return whole if isinstance(search, BeamSearch) else ids[:, 0]

    def _ranked(self, request, row, result):
        """The n best hypotheses of a row, finished ones first."""
        search, most = request.search, request.max_length[row]
        answer, prefix = result.result(), self._prefix(request, row)
        texts = answer.sequences if request.source_ids is None else answer.hypotheses
        written = [prefix + [self._ids[token] for token in tokens] for tokens in texts]
        if not isinstance(search, BeamSearch):
            return [_Hypothesis(written[0][:most], 0.0, True)]
        within = []
        for ids, score in zip(written, answer.scores, strict=True):
            if len(ids) <= most:
                score *= len(ids) ** _exponent(search)  # the log-probability
                score /= length_penalty(len(ids), search.length_penalty)
                within.append(_Hypothesis(ids, score, ids[-1] == END))
        num_finished = sum(each.finished for each in within)
        if num_finished < search.n_best and len(within) < len(written):  # its limit is a lower one
            return self._ranked(request, row, self._submit(request, [row])[row])
        within.sort(key=lambda each: (each.finished, each.score), reverse=True)
        return within[: search.n_best]

    def _prefix(self, request, row):
        return [] if request.prefix is None else _without_padding(request.prefix[row])


class _Hypothesis(NamedTuple):
    """An answer of CTranslate2."""

    ids: list[int]
    score: float
    finished: bool


def _with_a_limit_per_row(request):
    given = request.source_ids if request.prefix is None else request.prefix
    rows = np.size(request.max_length) if given is None else len(given)
    return request._replace(max_length=np.broadcast_to(request.max_length, rows))


def _exponent(search):
    """Of CTranslate2's length penalty; 0: a search ends when its best hypothesis has finished."""
    only_best = search.n_best == 1 and not search.length_penalty
    return 0 if search.width == 1 or only_best else max(search.length_penalty, 1e-6) / SAME_SLOPE


def _without_padding(ids):
    return ids[ids != PADDING].tolist()
