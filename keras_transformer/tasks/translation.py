"""A sentence for a sentence: the Transformer with its tokenizers and decoding defaults."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from .. import tokenizers
from ..arguments import check, check_at_least
from ..corpora import normalized
from ..generation import Decoding
from ..generation import length_penalty as penalty_of
from ..tokenizers import END, START
from .shapes import by_length, next_length, next_size, padded
from .task import Task

MORE_TOKENS = 16  # that a translation may have beyond its share of the source's
HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"  # what decoding shows for its first bytes


class Attention(NamedTuple):
    """Who looked where in one translation: what `plots.plot_attention` draws.

    Args:
        weights: NumPy float32, (layers, heads, target length, source length), cross-attention.
        source_tokens: list of str, what was attended to; ends in </s>.
        target_tokens: list of str, what was being written; ends in </s>.
    """

    weights: np.ndarray
    source_tokens: list
    target_tokens: list


class Hypothesis(NamedTuple):
    """One translation with what the search knows of it.

    Args:
        text: str.
        score: float, log-probability / length penalty, nats; see `generation.length_penalty`.
        finished: bool, False: cut off at the length limit.
    """

    text: str
    score: float
    finished: bool


@keras.saving.register_keras_serializable(package="keras_transformer")
class Translator(Task):
    """A `Transformer` with its tokenizers: `translate` takes strings and returns strings.

        translator = keras.saving.load_model("dates.keras")
        translator.translate(["April 22, 2019"])  # ["2019-04-22"]

    Args:
        transformer: a `Transformer`.
        source_tokenizer: keras_hub SentencePieceTokenizer, see `learn_tokenizer`.
        target_tokenizer: the same; None: one tokenizer for both sides.
        batch_size: int, the most sentences decoded together.
        beams: int, what `translate` uses when not told; 1: greedy decoding.
        length_penalty: float from 0, the same.
        normalization: str or None, lowercase: bool; what `corpora.clean` did to the sources that
            the transformer was trained on, and is done here to each text.

    Call arguments: those of `Transformer`: ids in, logits out.

    Raises:
        ValueError: a tokenizer has another number of ids than its side of the transformer, or a
            number is out of range.
    """

    parts = ("transformer", "source_tokenizer", "target_tokenizer")
    settings = ("batch_size", "beams", "length_penalty", "normalization", "lowercase")

    def __init__(
        self,
        transformer,
        source_tokenizer,
        target_tokenizer=None,
        batch_size=64,
        beams=1,
        length_penalty=0.6,
        normalization=None,
        lowercase=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.transformer = transformer
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer or source_tokenizer
        self._check_tokenizer(self.source_tokenizer, transformer.source_vocabulary_size)
        self._check_tokenizer(self.target_tokenizer, transformer.target_vocabulary_size)
        check_at_least(1, batch_size=batch_size, beams=beams)
        check(
            length_penalty >= 0, "length_penalty must be at least 0", length_penalty=length_penalty
        )
        self.batch_size = batch_size
        self.beams = beams
        self.length_penalty = length_penalty
        self.normalization = normalization
        self.lowercase = lowercase
        self._decoding = Decoding(transformer)

    def translate(
        self,
        texts,
        beams=None,
        length_penalty=None,
        n_best=None,
        return_scores=False,
        **options,
    ):
        """Translates by greedy decoding, or with several beams by beam search.

        Sentences of similar lengths are decoded together; the order is restored.

        Args:
            texts: list of str. An empty or blank text translates to "". Characters that the
                vocabulary lacks are read as one unknown token.
            beams: int from 1, live hypotheses of the search; None: the translator's default.
            length_penalty: float from 0, alpha of `generation.length_penalty`; None: the default.
            n_best: int, at most `beams`: a list of so many translations for each text.
            return_scores: bool, `Hypothesis` instead of str.
            prefixes: list of str, what each translation begins with, in whole tokens; or None.
            min_length_ratio: float from 0; a translation has at least so many tokens for each
                token of its source (END counts in neither), and at least one.
            max_length_ratio: float above 0; a translation is cut off after so many tokens for
                each token of its source, and 16 more.
            batch_size: int, the most sentences decoded together; None: the translator's default.
            tokens_per_batch: int, the most source tokens decoded together, padding included.

        Returns:
            list, one item a text, in the same order: str, or `Hypothesis` with `return_scores`,
            or with `n_best` a list of those, best first.

        Raises:
            ValueError: `texts` is not a list of strings, a text has more tokens than the
                transformer has learned positions, or a number is out of range.
        """
        beams = self.beams if beams is None else beams
        alpha = self.length_penalty if length_penalty is None else length_penalty
        if beams == 1 and n_best is None and not return_scores:
            greedy = self._decoding.greedy
            rows = self._decoded(texts, lambda numbers, **given: greedy(**given), **options)
            return self._said(rows)

        def search(numbers, **given):
            number = 1 if n_best is None else n_best
            given |= dict(beams=beams, alpha=alpha, n_best=number)
            return zip(*self._decoding.beam_search(**given))

        results = []
        for row in self._decoded(texts, search, **options):
            if row is None:  # a blank text
                results.append([Hypothesis("", 0.0, True)] * (n_best or 1))
                continue
            ids, scores, finished = row
            found = zip(self._said(ids), scores.tolist(), finished.tolist())
            results.append([Hypothesis(*each) for each in found])
        if not return_scores:
            results = [[each.text for each in result] for result in results]
        return [result[0] for result in results] if n_best is None else results

    def sample(self, texts, temperature=1.0, top_k=None, top_p=1.0, seed=0, **options):
        """Translations drawn at random from the model's distribution.

        Args:
            texts: list of str.
            temperature, top_k, top_p: see `Decoding.sample`.
            seed: int from 0. Text n draws from (seed, n) alone, whatever is translated beside it.
            **options: those of `translate` from `prefixes` on.

        Returns:
            list of str, one a text, in the same order.
        """

        def draw(numbers, **given):
            spare = len(given["source_ids"]) - len(numbers)
            seeds = [(seed, number) for number in [*numbers, *[0] * spare]]
            return self._decoding.sample(
                **given, seeds=seeds, temperature=temperature, top_k=top_k, top_p=top_p
            )

        return self._said(self._decoded(texts, draw, **options))

    def stream(self, text, seed=None, temperature=1.0, top_k=None, top_p=1.0, **options):
        """The greedy translation of one text, or with a seed a sampled one, as it is written.

        Yields:
            str, whole characters; joined they are what `translate` or `sample` returns.
        """
        said, ids = "", []
        for numbers, given in self._batches([text], **options):
            draw = dict(temperature=temperature, top_k=top_k, top_p=top_p)
            draw["seeds"] = None if seed is None else [(seed, number) for number in numbers]
            for next_id, *_ in self._decoding.stream(**given, **draw):
                ids.append(int(next_id))
                (now,) = tokenizers.decode(self.target_tokenizer, [ids])
                if not now.endswith(HALF_A_CHARACTER):
                    yield now[len(said) :]
                    said = now

    def score(self, texts, translations, length_penalty=None):
        """How probable given translations are, on the scale of `translate(return_scores=True)`.

        Args:
            texts: list of str.
            translations: list of str, as many.
            length_penalty: float from 0; 0: the log-probability itself; None: the default.

        Returns:
            list of float, nats.

        Source: Wu et al. 2016, equation 14.
        """
        if len(texts) != len(translations):
            raise ValueError(
                f"Expected one translation for each text; received {len(translations)} "
                f"for {len(texts)}."
            )
        alpha = self.length_penalty if length_penalty is None else length_penalty
        targets = [[*ids, END] for ids in tokenizers.encode(self.target_tokenizer, translations)]
        scores = [0.0] * len(targets)
        sources = self._encode(texts)
        by_length = sorted(range(len(targets)), key=lambda i: (len(sources[i]), len(targets[i])))
        for start in range(0, len(by_length), self.batch_size):
            numbers = by_length[start : start + self.batch_size]
            rows = next_size(len(numbers), self.batch_size)
            sides = (
                padded(batch, rows, next_length(max(map(len, batch)), self._limit))
                for batch in ([side[i] for i in numbers] for side in (sources, targets))
            )
            for number, log_p in zip(numbers, self._decoding.score(*sides)):
                scores[number] = float(log_p.sum() / penalty_of(len(targets[number]), alpha))
        return scores

    def _said(self, rows):
        """The text of each row of ids; of None, "" (a blank text)."""
        rows = [() if row is None else row for row in rows]
        return tokenizers.decode(self.target_tokenizer, rows)

    def _decoded(self, texts, decode, **options):
        """One result of `decode` for each text, None for a blank one."""
        results = [None] * len(texts)
        for numbers, given in self._batches(texts, **options):
            for number, result in zip(numbers, decode(numbers, **given)):
                results[number] = result
        return results

    def _batches(
        self,
        texts,
        prefixes=None,
        min_length_ratio=0.0,
        max_length_ratio=2.0,
        batch_size=None,
        tokens_per_batch=None,
    ):
        """Texts of one padded length at a time: a long one makes no short one longer.

        Yields:
            numbers: list of int, which texts.
            arguments of `Decoding.greedy` for them, and for rows of padding that make their
                number a power of two or `batch_size`. Each has limits of its own.
        """
        batch_size = self.batch_size if batch_size is None else batch_size
        check_at_least(1, batch_size=batch_size, tokens_per_batch=tokens_per_batch)
        if not 0 <= min_length_ratio <= max_length_ratio or max_length_ratio == 0:
            raise ValueError(
                "Expected 0 <= min_length_ratio <= max_length_ratio, the latter above 0; received "
                f"min_length_ratio={min_length_ratio}, max_length_ratio={max_length_ratio}."
            )
        ids = self._encode(texts)
        if prefixes is not None:
            if len(prefixes) != len(texts):
                raise ValueError(
                    f"Expected one prefix for each text; received {len(prefixes)} for {len(texts)}."
                )
            prefixes = tokenizers.encode(self.target_tokenizer, prefixes)
        lengths = np.array([len(sequence) for sequence in ids])
        longest = np.minimum(max_length_ratio * lengths + MORE_TOKENS, self._limit).astype("int32")
        shortest = np.maximum(min_length_ratio * (lengths - 1), 1)  # a text says something
        shortest = np.minimum(shortest, longest - 1).astype("int32")
        written = [number for number, text in enumerate(texts) if text.strip()]
        sizes = batch_size, self._limit, tokens_per_batch
        for numbers, rows, length in by_length(written, lengths, *sizes):
            every = [*numbers, *numbers[:1] * (rows - len(numbers))]  # spare rows end at once
            given = dict(
                source_ids=padded([ids[i] for i in numbers], rows, length),
                max_length=longest[every],
                min_length=shortest[every],
            )
            if prefixes is not None:
                given["prefix"] = padded([prefixes[i] for i in every], rows)
            yield numbers, given

    def attention(self, text, translation=None):
        """The cross-attention weights of every layer and head while writing a translation.

        Args:
            text: str, the source.
            translation: str; None: what `translate` says.

        Returns:
            `Attention`.
        """
        if translation is None:
            (translation,) = self.translate([text])
        (source,) = self._encode([text])
        (target,) = tokenizers.encode(self.target_tokenizer, [translation])
        memory, mask = self.transformer.encode(np.array([source]))
        y = self.transformer.embed_target(np.array([[START, *target]]))
        y = self.transformer.target_positions(y)
        _, _, weights = self.transformer.decoder(
            y, memory, cross_attention_mask=mask, return_attention_scores=True
        )
        return Attention(
            np.concatenate([ops.convert_to_numpy(ops.cast(w, "float32")) for w in weights]),
            tokenizers.token_strings(self.source_tokenizer, source),
            tokenizers.token_strings(self.target_tokenizer, [*target, END]),
        )

    def _encode(self, texts):
        texts = tokenizers.checked_texts(texts)
        texts = [normalized(text, self.normalization, self.lowercase) for text in texts]
        sequences = [[*ids, END] for ids in tokenizers.encode(self.source_tokenizer, texts)]
        self._check_lengths(sequences)
        return sequences

    @property
    def model(self):
        return self.transformer

    def get_config(self):
        config = super().get_config()
        if self.target_tokenizer is self.source_tokenizer:
            config["target_tokenizer"] = None
        return config
