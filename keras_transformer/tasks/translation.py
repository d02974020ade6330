"""Translation: the Transformer with its tokenizers and the defaults of its search."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from .. import backend
from ..checks import check, check_at_least, check_optional
from ..data.lengths import group_by_length, pad
from ..generation import BeamSearch, Decoding, GreedySearch, Request, Sampling
from ..generation import length_penalty as penalty_of
from ..generation.configuration import GenerationConfig, SamplingConfig
from ..ids import END, START
from ..layers.attention import attention_scores
from ..models import Transformer
from ..tokenizers.normal_forms import check_form, normalized
from ..tokenizers.sentencepiece import Tokenizer, checked_texts
from .task import Task

MORE_TOKENS = 16  # that a translation may have beyond its ratio to the source
HALF_A_CHARACTER = "\N{REPLACEMENT CHARACTER}"  # what the first bytes of a character decode to


class AttentionMaps(NamedTuple):
    """The cross-attention weights of one translation, as `plots.plot_attention` draws them.

    Args:
        weights: float32, (layers, heads, target length, source length).
        source_tokens: list of str, the keys; ends in </s>.
        target_tokens: list of str, the tokens written; ends in </s>, unless the translation has as
            many tokens as the model has learned positions.
    """

    weights: np.ndarray
    source_tokens: list[str]
    target_tokens: list[str]


class Hypothesis(NamedTuple):
    """One translation with its score.

    Args:
        text: str.
        score: float, log-probability / length penalty, nats; see `generation.length_penalty`.
        finished: bool; False: cut off at the length limit.
    """

    text: str
    score: float
    finished: bool


@keras.saving.register_keras_serializable(package="keras_transformer")
class Translator(Task):
    """A `Transformer` with its tokenizers: `translate` takes strings and returns strings.

        translator = keras_transformer.load("dates.keras")
        translator.translate(["April 22, 2019"])  # ["2019-04-22"]

    Args:
        transformer: `Transformer`.
        source_tokenizer: `Tokenizer`, such as `train_tokenizer` returns.
        target_tokenizer: `Tokenizer`; None: that of the source.
        normalization: str, the form of the training data, which every text of either side is
            brought into, see `data.normalized`; None: texts are not changed.
        lowercase: bool, whether every text is lowercased, as the training data was.
        config: `GenerationConfig`, the defaults of `translate`.
        name: str, name of the `keras.Model`.
        **changes: fields of `GenerationConfig` that replace those of `config`.

    Call arguments: those of `Transformer`: ids in, logits out.

    Raises:
        ValueError: A tokenizer has another number of ids than its side of the transformer, or an
            option does not exist or is out of range.
    """

    parts = ("transformer", "source_tokenizer", "target_tokenizer")
    settings = ("normalization", "lowercase")

    def __init__(
        self,
        transformer: Transformer,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer | None = None,
        *,
        normalization: str | None = None,
        lowercase: bool = False,
        config: GenerationConfig | None = None,
        name: str | None = None,
        **changes: Any,
    ):
        super().__init__(name=name)
        self.transformer = transformer
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer or source_tokenizer
        self._check_tokenizers()
        check_form(normalization)
        self.normalization = normalization
        self.lowercase = lowercase
        self.config = (config or GenerationConfig()).replace(**changes)

    @property
    def _decoding(self):
        return self._of_model(Decoding)

    @property
    def model(self) -> Transformer:
        """The transformer."""
        return self.transformer

    def translate(
        self,
        texts: Iterable[str],
        *,
        beams: int | None = None,
        length_penalty: float | None = None,
        n_best: int | None = None,
        return_scores: bool = False,
        prefixes: Iterable[str] | None = None,
        min_length_ratio: float | None = None,
        max_length_ratio: float | None = None,
        batch_size: int | None = None,
        tokens_per_batch: int | None = None,
    ) -> list:
        """Translates by greedy decoding, or with several beams by beam search.

        Sentences of similar lengths are decoded together; the order is restored.

        Args:
            texts: list of str. An empty or blank text translates to "". Characters that the
                vocabulary lacks are read as one unknown token.
            n_best: int from 1 to `beams`, number of translations per text; None: one, not in a
                list of its own.
            return_scores: bool, whether to return `Hypothesis` instead of str.
            prefixes: list of str, the beginning of each translation, in whole tokens; None: no
                beginnings.
            beams, length_penalty, min_length_ratio, max_length_ratio, batch_size,
                tokens_per_batch: see `GenerationConfig`; None: that of `config`.

        Returns:
            list, one item per text, in the same order: str, or with `return_scores` `Hypothesis`;
            with `n_best` a list of those, best first.

        Raises:
            ValueError: An item is not text, a text or prefix has more tokens than the transformer
                has learned positions, or an option is out of range.
        """
        config = self._config_with(
            beams=beams,
            length_penalty=length_penalty,
            min_length_ratio=min_length_ratio,
            max_length_ratio=max_length_ratio,
            batch_size=batch_size,
            tokens_per_batch=tokens_per_batch,
        )
        check_optional(1, n_best=n_best)
        texts = checked_texts(texts)
        if config.beams == 1 and n_best is None and not return_scores:
            return self._translate_greedily(texts, prefixes, config)
        results = self._search(texts, prefixes, config, n_best or 1)
        if not return_scores:
            results = [[hypothesis.text for hypothesis in found] for found in results]
        return [found[0] for found in results] if n_best is None else results

    def _translate_greedily(self, texts, prefixes, config):
        translations = [""] * len(texts)

        def search(numbers, rows):
            return GreedySearch()

        for numbers, ids in self._decoded(search, texts, prefixes, config):
            self._write(translations, numbers, ids)
        return translations

    def _search(self, texts, prefixes, config, n_best):
        """The n_best hypotheses of each text, by beam search."""
        results = [[Hypothesis("", 0.0, True)] * n_best for _ in texts]

        def search(numbers, rows):
            return BeamSearch(config.beams, config.length_penalty, n_best)

        for numbers, found in self._decoded(search, texts, prefixes, config):
            for number, ids, scores, finished in zip(numbers, *found, strict=False):
                written = self.target_tokenizer.decode(ids)
                columns = zip(written, scores.tolist(), finished.tolist(), strict=True)
                results[number] = [Hypothesis(*each) for each in columns]
        return results

    def sample(
        self,
        texts: Iterable[str],
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        prefixes: Iterable[str] | None = None,
        min_length_ratio: float | None = None,
        max_length_ratio: float | None = None,
        batch_size: int | None = None,
        tokens_per_batch: int | None = None,
    ) -> list[str]:
        """Samples translations from the model's distribution.

        Args:
            temperature, top_k, top_p: see `SamplingConfig`.
            seed: int from 0. The translation of text n depends on the text and (seed, n) alone,
                not on the rest of its batch.
            texts, prefixes, min_length_ratio, max_length_ratio, batch_size, tokens_per_batch: as
                in `translate`.

        Returns:
            list of str, one per text, in the same order.

        Raises: as `translate`.
        """
        check_at_least(0, seed=seed)
        config = self._config_with(
            min_length_ratio=min_length_ratio,
            max_length_ratio=max_length_ratio,
            batch_size=batch_size,
            tokens_per_batch=tokens_per_batch,
        )
        SamplingConfig(temperature, top_k, top_p)  # checks them
        texts = checked_texts(texts)
        translations = [""] * len(texts)

        def search(numbers, rows):
            seeds = [(seed, number) for number in numbers] + [(seed, 0)] * (rows - len(numbers))
            return Sampling(seeds, temperature, top_k, top_p)

        for numbers, ids in self._decoded(search, texts, prefixes, config):
            self._write(translations, numbers, ids)
        return translations

    def stream(
        self,
        text: str,
        *,
        seed: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        prefix: str | None = None,
        min_length_ratio: float | None = None,
        max_length_ratio: float | None = None,
    ) -> Iterator[str]:
        """Translates one text while the caller reads: greedily, or with a seed by sampling.

        Args:
            text: str.
            seed: int from 0, as in `sample`; None: greedy decoding.
            prefix: str, the beginning of the translation, in whole tokens; None: no beginning.
            temperature, top_k, top_p, min_length_ratio, max_length_ratio: as in `sample`.

        Returns:
            Iterator of str, whole characters; joined they are the text that `translate` with
            `beams=1` or `sample` returns, also of a model saved with more beams.

        Raises: as `translate`.
        """
        check_optional(0, seed=seed)
        config = self._config_with(
            min_length_ratio=min_length_ratio, max_length_ratio=max_length_ratio
        )
        search = Sampling([(seed or 0, 0)], temperature, top_k, top_p)
        if seed is None:
            search = GreedySearch()
        prefixes = None if prefix is None else [prefix]
        batches = self._batches(checked_texts([text]), prefixes, config)  # none if it is blank
        streams = [self._decoding.stream(**batch, search=search) for _, batch in batches]
        return itertools.chain.from_iterable(map(self._characters, streams))

    def _characters(self, stream):
        """The text of one answer, whole characters at a time."""
        ids, written = [], ""
        for next_ids in stream:
            ids.append(int(next_ids[0]))
            (now,) = self.target_tokenizer.decode([ids])
            if not now.endswith(HALF_A_CHARACTER):
                yield now[len(written) :]
                written = now
        yield now[len(written) :]

    def score(
        self,
        texts: Iterable[str],
        translations: Iterable[str],
        *,
        length_penalty: float | None = None,
    ) -> list[float]:
        """Scores given translations as `translate(..., return_scores=True)` scores its own.

        Args:
            texts: list of str.
            translations: list of str, one per text.
            length_penalty: float from 0; 0: the log-probability itself; None: that of `config`.

        Returns:
            list of float, nats, one per text.

        Raises:
            ValueError: An item is not text, the lists differ in length, or a text or a translation
                has more tokens than the transformer has learned positions, END included.

        Source: Wu et al. 2016, equation 14.
        """
        config = self._config_with(length_penalty=length_penalty)
        sources = self._encode(texts)
        targets = [[*ids, END] for ids in self._target_ids(translations)]
        check(
            len(sources) == len(targets),
            "Expected one translation per text",
            texts=len(sources),
            translations=len(targets),
        )
        self._check_lengths(targets, "Translation")
        scores = [0.0] * len(targets)
        lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
        sizes = config.batch_size, self.longest_input, config.tokens_per_batch

        def decode(batch):
            numbers, rows, length = batch
            source_ids = pad([sources[n] for n in numbers], rows, length)
            target_ids = pad([targets[n] for n in numbers], rows, length)
            return numbers, self._decoding.score(source_ids, target_ids)

        batches = group_by_length(range(len(targets)), lengths, *sizes)
        for numbers, log_p in backend.map_batches(decode, batches):
            for number, log_probability in zip(numbers, log_p.sum(axis=1), strict=False):
                penalty = penalty_of(len(targets[number]), config.length_penalty)
                scores[number] = float(log_probability / penalty)
        return scores

    def attention(self, text: str, translation: str | None = None) -> AttentionMaps:
        """The cross-attention weights of every layer and head while a translation is written.

        Args:
            text: str, the source.
            translation: str; None: that of `translate`.

        Returns:
            `AttentionMaps`.

        Raises:
            ValueError: An argument is not text, or has more tokens than the transformer has
                learned positions.
        """
        if translation is None:
            (translation,) = self.translate([text])
        (source,) = self._encode([text])
        (target,) = self._encode_targets([translation])
        target = [*target, END][: self.transformer.max_length]
        inputs = {"source_ids": np.array([source]), "target_ids": np.array([[START, *target[:-1]]])}
        scores = attention_scores(self.transformer, inputs)
        weights = []
        for block in self.transformer.decoder.blocks:
            of_block = ops.cast(scores[block.cross_attention.path], "float32")
            weights.append(ops.convert_to_numpy(of_block))
        return AttentionMaps(
            np.concatenate(weights),
            self.source_tokenizer.tokens(source),
            self.target_tokenizer.tokens(target),
        )

    def normalized(self, texts: Iterable[str]) -> list[str]:
        """Texts of either side in the form of the training data, as its tokenizers expect them.

        `translate` and the other methods do this themselves.

        Args:
            texts: list of str.

        Returns:
            list of str: in the form `normalization`, in lower case if `lowercase`.

        Raises:
            ValueError: An item is not text.
        """
        form = self.normalization, self.lowercase
        return [normalized(text, *form) for text in checked_texts(texts)]

    def length_limits(
        self, lengths: Any, prefixes: Any = None, config: GenerationConfig | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The fewest and the most tokens of each translation, END included.

        Args:
            lengths: int, (texts,), tokens of each source text, END included.
            prefixes: ids of the beginning of each translation; None: no beginnings.
            config: `GenerationConfig`; None: the task's own.

        Returns:
            int32, (texts,), the fewest tokens before END.
            int32, (texts,), the most tokens.
        """
        config = config or self.config
        lengths = np.array(lengths)
        longest = config.max_length_ratio * lengths + MORE_TOKENS
        if prefixes is not None:
            longest = np.maximum(longest, [len(prefix) + MORE_TOKENS for prefix in prefixes])
        longest = np.minimum(longest, self.longest_input)
        shortest = np.maximum(config.min_length_ratio * (lengths - 1), 1)  # not empty
        shortest = np.minimum(shortest, longest - 1)
        return shortest.astype("int32"), longest.astype("int32")

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), **dataclasses.asdict(self.config)}
        if self.target_tokenizer is self.source_tokenizer:
            config["target_tokenizer"] = None
        return config

    def _config_with(self, **changes):
        """The config with the options that are not None."""
        given = {name: value for name, value in changes.items() if value is not None}
        return self.config.replace(**given)

    def _write(self, translations, numbers, ids):
        """Puts the texts of the first rows of ids where they belong."""
        texts = self.target_tokenizer.decode(ids[: len(numbers)])
        for number, text in zip(numbers, texts, strict=True):
            translations[number] = text

    def _decoded(self, search, texts, prefixes, config):
        """Yields which texts are in a batch, and the answers of a search: a function of these."""
        batches, ahead = itertools.tee(self._batches(texts, prefixes, config))
        requests = (
            Request(search(numbers, len(batch["source_ids"])), **batch) for numbers, batch in ahead
        )
        for (numbers, _), answers in zip(batches, self._decoding.decode(requests), strict=True):
            yield numbers, answers

    def _batches(self, texts, prefixes, config):
        """Texts of similar lengths: a long one makes no short one longer.

        Blank texts are in no batch. Rows that only fill a batch have max_length 0.

        Yields:
            numbers: list of int, which texts.
            batch: dict, arguments of `Request`.
        """
        texts = self.normalized(texts)
        ids = self._source_ids(texts)
        if prefixes is not None:
            prefixes = self._encode_targets(prefixes, "Prefix")
            check(
                len(prefixes) == len(texts),
                "Expected one prefix per text",
                texts=len(texts),
                prefixes=len(prefixes),
            )
        lengths = [len(sequence) for sequence in ids]
        min_length, max_length = self.length_limits(lengths, prefixes, config)
        not_blank = [number for number, text in enumerate(texts) if text.strip()]
        sizes = config.batch_size, self.longest_input, config.tokens_per_batch
        for numbers, rows, length in group_by_length(not_blank, lengths, *sizes):
            spare = (0, rows - len(numbers))
            batch = dict(
                source_ids=pad([ids[n] for n in numbers], rows, length),
                max_length=np.pad(max_length[numbers], spare),
                min_length=np.pad(min_length[numbers], spare),
            )
            if prefixes is not None:
                batch["prefix"] = pad([prefixes[n] for n in numbers], rows)
            yield numbers, batch

    def _encode(self, texts):
        """The ids of each source text, END included."""
        return self._source_ids(self.normalized(texts))

    def _source_ids(self, texts):
        """The same for texts that are normalized."""
        self._check_tokenizers()
        sequences = [[*ids, END] for ids in self.source_tokenizer.encode(texts)]
        self._check_lengths(sequences)
        return sequences

    def _encode_targets(self, texts, name="Translation"):
        """The ids of each target text, without END."""
        sequences = self._target_ids(texts)
        self._check_lengths(sequences, name)
        return sequences

    def _target_ids(self, texts):
        return self.target_tokenizer.encode(self.normalized(texts))

    def _check_tokenizers(self):
        model = self.transformer
        self._check_tokenizer(self.source_tokenizer, model.source_vocabulary_size)
        self._check_tokenizer(self.target_tokenizer, model.target_vocabulary_size)
