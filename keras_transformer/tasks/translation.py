"""Translation: the Transformer with its tokenizers and the defaults of its search."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from ..backend import twin
from ..checks import TextError, check, check_at_least, check_optional
from ..data.languages import language_tag, tagged, targets_of
from ..data.lengths import MOST_ROWS, group_by_length, pad
from ..data.placeholders import (
    KINDS,
    find_placeholders,
    placeholder_pattern,
    split_placeholders,
)
from ..data.sentences import WHEN_TO_SPLIT, join_pieces
from ..generation import BeamSearch, Ensemble, GreedySearch, Request, Sampling, length_penalty
from ..generation.configuration import OF_LOGITS, GenerationConfig, LogitsConfig, SamplingConfig
from ..ids import END
from ..models import Transformer
from ..tokenizers.base import Tokenizer, checked_texts
from ..tokenizers.normal_forms import check_form
from .attention_maps import AttentionMaps, cross_attention_weights
from .beam_tree import Branch, beam_tree
from .paragraphs import Reading, translate_paragraphs
from .task import WritingTask, whole_characters

OF_BEAMS = ("beams", "length_penalty")  # fields of `GenerationConfig`
OF_TEXTS = ("normalization", "lowercase", "directions", "placeholders")
OF_SEARCH = ("beams", "min_length_ratio", "max_length_ratio", *OF_LOGITS)


class Hypothesis(NamedTuple):
    """One translation with its score.

    Args:
        text: str.
        score: float, log-probability / length penalty, nats; see `generation.length_penalty`;
            None unless `return_scores` is True.
        finished: bool; False: cut off at the length limit.
    """

    text: str
    score: float | None
    finished: bool


@keras.saving.register_keras_serializable(package="keras_transformer")
class Translator(WritingTask):
    """A `Transformer` with its tokenizers: `translate` takes strings and returns strings.

        translator = keras_transformer.load("dates.keras")
        translator.translate(["April 22, 2019"])  # ["2019-04-22"]

    Args:
        transformer: `Transformer`.
        source_tokenizer: `Tokenizer`, such as `train_tokenizer` returns.
        target_tokenizer: `Tokenizer`; None: `source_tokenizer`.
        normalization: str, the form of the training data, which every text of either side is
            brought into, see `data.normalized`; None: texts are not changed.
        lowercase: bool, whether every text is lowercased, as the training data was.
        directions: list of str, such as "en-de", of a model with several target languages, which
            reads the tag of one before each text: see `tagged`. Empty: the model has no tags.
        trained_length: int, tokens of the training sources, END included, of which 1 % are longer:
            longer texts are split into sentences. None: not known, so no text is split by default.
        placeholders: list of str, the kinds that were masked in the training data, see
            `data.placeholders`; the vocabulary must have the masks as pieces.
        config: `GenerationConfig`, the defaults of `translate`.
        name: str, name of the `keras.Model`.
        **changes: fields of `GenerationConfig` that replace the ones of `config`.

    Call arguments: the arguments of `Transformer`: ids in, logits out.

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
        directions: Sequence[str] = (),
        trained_length: int | None = None,
        placeholders: Sequence[str] = (),
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
        self.directions = tuple(directions)
        check_optional(1, trained_length=trained_length)
        unknown = sorted({*placeholders} - {*KINDS})
        check(not unknown, f"placeholders must be some of {', '.join(KINDS)}", unknown=unknown)
        self.trained_length = trained_length
        self.placeholders = tuple(placeholders)
        self.config = (config or GenerationConfig()).replace(**changes)

    @staticmethod
    def ensemble(translators: Iterable["Translator"]) -> "Translator":
        """A translator that decodes with several models at once; see `generation.Ensemble`.

            translator = Translator.ensemble(map(keras_transformer.load, files))

        Args:
            translators: list of at least two `Translator` that read and write the same ids. The
                defaults of the search are those of the first one.

        Returns:
            `Translator`, which is not saved.

        Raises:
            ValueError: There is one translator, or another object; or they differ in a tokenizer,
                the form of texts, the directions or the placeholders.
        """
        every = list(translators)
        for number, each in enumerate(every, 1):
            expected = f"Number {number} of an ensemble must be a Translator"
            check(isinstance(each, Translator), expected, type=type(each).__name__)
            for name in ("source_tokenizer", "target_tokenizer", *OF_TEXTS):
                first, own = (_compared(getattr(x, name)) for x in (every[0], each))
                expected = f"Translator {number} of an ensemble must have the {name} of the first"
                check(own == first, expected, **{name: getattr(each, name)})
        return twin(every[0], transformer=Ensemble(each.transformer for each in every))

    @property
    def model(self) -> Transformer:
        """The transformer."""
        return self.transformer

    @property
    def targets(self) -> list[str]:
        """The languages into which a model with language tags translates; others have none."""
        return targets_of(self.directions)

    def tagged(self, texts: Iterable[str], to: str | None) -> list[str]:
        """Normalized texts after the tag of the language to translate into.

        Args:
            texts: list of str.
            to: str, one of `targets`; None: no tag is added.

        Returns:
            list of str.

        Raises:
            ValueError: An item is not text, or the model has no such language.
        """
        texts = self.normalized(texts)
        if to is None:
            return texts
        known = f"one of {', '.join(self.targets)}" if self.targets else "left out: it has no tags"
        check(to in self.targets, f"The target language of this model must be {known}", to=to)
        return tagged(texts, to)

    def translate(
        self,
        texts: Iterable[str],
        *,
        to: str | None = None,
        n_best: int | None = None,
        return_scores: bool = False,
        return_finished: bool = False,
        prefixes: Iterable[str] | None = None,
        sentences: str | None = None,
        placeholders: Iterable[str] | None = None,
        **changes: Any,
    ) -> list:
        """Translates by greedy decoding, or with several beams by beam search.

        Sentences of similar lengths are decoded together; the order is restored.

        Args:
            texts: list of str. An empty or blank text translates to "". Characters that the
                vocabulary lacks are read as one unknown token.
            to: str, the target language, of a model with language tags; None: the texts have tags,
                or the model has none.
            n_best: int from 1 to `beams`, number of translations per text; None: one, not in a
                list of its own.
            return_scores: bool, whether to return `Hypothesis` instead of str.
            return_finished: bool, whether to return `Hypothesis`, without scores unless
                `return_scores` is True.
            prefixes: list of str, the beginning of each translation, in whole tokens; None: no
                beginnings.
            sentences: str, whether texts are split into sentences, and their translations put in
                the same places, line ends and other white space kept: "always", "never", or "auto"
                (None): texts with line ends, white space around them or more tokens than
                `trained_length`, if it is known. A sentence that is longer than the model reads is
                cut, so that it is not `finished`.
            placeholders: list of str, what is not translated: "url", "email", "path", "code",
                "tag", "number" or regular expressions. A sentence that does not keep each is
                translated in the pieces around them. None: those of the training data.
            **changes: fields of `GenerationConfig`, such as `beams` or `length_penalty`; one that
                is None has its value in `config`.

        Returns:
            list, one item per text, in the same order: str, or `Hypothesis`;
            with `n_best` a list of those, best first, which is shorter where there are no others.

        Raises:
            ValueError: An item is not text, a text or prefix has more tokens than the transformer
                has learned positions, or an option does not exist or is out of range.
        """
        config = self._config_with(changes)
        check_optional(1, n_best=n_best)
        scored = return_scores or n_best is not None
        reading, encode = self._reading(to, sentences, placeholders, prefixes is not None)

        def translate(texts, places):
            texts = self.tagged(texts, to)
            return self._hypotheses(texts, n_best or 1, prefixes, config, scored, encode)

        empty = [Hypothesis("", 0.0, True)] * (n_best or 1)
        results = translate_paragraphs(checked_texts(texts), translate, empty, reading)
        if n_best is not None:
            results = [[x for x in found if x.score > -np.inf] or found[:1] for found in results]
        if not return_scores:
            results = [[each._replace(score=None) for each in found] for found in results]
        if not (return_scores or return_finished):
            results = [[each.text for each in found] for found in results]
        return [found[0] for found in results] if n_best is None else results

    def _reading(self, to, sentences, placeholders, has_prefixes):
        """How texts are read, and a function that encodes normalized ones, each only once."""
        known: dict[str, list[int]] = {}

        def encode(texts):
            new = [text for text in dict.fromkeys(texts) if text not in known]
            known.update(zip(new, self.source_tokenizer.encode(new), strict=True))
            return [known[text] for text in texts]

        when = sentences or "auto"
        expected = f"sentences must be one of {', '.join(WHEN_TO_SPLIT)}"
        check(when in WHEN_TO_SPLIT, expected, sentences=when)
        whole = has_prefixes or (bool(self.directions) and to is None)  # tags are within the texts
        expected = "Texts with prefixes or tags are not split; pass `to`"
        check(not (whole and when == "always"), expected, sentences=when)
        if placeholders is None:
            placeholders = () if whole else self.placeholders
        pattern = placeholder_pattern(placeholders)
        expected = "Texts with prefixes or tags have no placeholders; pass `to`"
        check(not (whole and pattern), expected, placeholders=placeholders)
        reading = Reading(
            lambda texts: [len(ids) + 1 for ids in encode(self.tagged(texts, to))],
            self.longest_input,
            "never" if whole else when,
            self.trained_length,
            pattern,
            bool(self.placeholders),
        )
        return reading, encode

    def num_tokens(self, texts: Iterable[str]) -> list[int]:
        """The tokens of each source text, END included."""
        return [len(ids) + 1 for ids in self.source_tokenizer.encode(self.normalized(texts))]

    def _hypotheses(self, texts, n_best, prefixes, config, scored, encode):
        """A list of `n_best` hypotheses per text, each normalized text read as one sentence."""
        if config.beams == 1 and not scored:
            greedy = GreedySearch(logits=self.logits_config(config))
            found = self._write(lambda numbers, rows: greedy, texts, prefixes, config, encode)
            return [[hypothesis] for hypothesis in found]

        logits = self.logits_config(config)
        search = BeamSearch(config.beams, config.length_penalty, n_best, logits)
        results = [[Hypothesis("", 0.0, True)] * n_best for _ in texts]
        given = texts, prefixes, config, encode, config.beams
        requests = self._requests(lambda numbers, rows: search, *given)
        for numbers, (ids, scores, finished) in self._answers(requests):
            rows = len(numbers)  # others only fill the batch
            written = iter(self.target_tokenizer.decode(ids[:rows].reshape(-1, ids.shape[-1])))
            columns = zip(numbers, scores.tolist(), finished.tolist(), strict=False)
            for number, *of_text in columns:
                results[number] = list(map(Hypothesis, itertools.islice(written, n_best), *of_text))
        return results

    def sample(
        self,
        texts: Iterable[str],
        *,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        seed: int = 0,
        to: str | None = None,
        return_finished: bool = False,
        prefixes: Iterable[str] | None = None,
        sentences: str | None = None,
        placeholders: Iterable[str] | None = None,
        **changes: Any,
    ) -> list:
        """Samples translations from the model's distribution.

        Args:
            texts: list of str. An empty or blank text translates to "".
            temperature: float above 0, divisor of the logits: below 1 sharpens the distribution.
            top_k: int from 1, number of most probable tokens to sample from; None: all.
            top_p: float in (0, 1], nucleus sampling: the fewest tokens that together reach it.
            seed: int from 0. The translation of text n depends on the text and (seed, n) alone,
                not on the rest of its batch.
            to: str, the target language, of a model with language tags; None: the texts have tags,
                or the model has none.
            return_finished: bool, whether to return `Hypothesis` instead of str.
            prefixes: list of str, the beginning of each translation, in whole tokens; None: no
                beginnings.
            sentences: str, whether texts are split into sentences: "always", "never", or "auto"
                (None): if longer than the training data, or with line ends, see `translate`.
            placeholders: list of str, what is not translated: "url", "email", "path", "code",
                "tag", "number" or regular expressions. None: those of the training data.
            **changes: fields of `GenerationConfig`, except `beams` and `length_penalty`.

        Returns:
            list, one item per text, in the same order: str, or `Hypothesis`.

        Raises:
            ValueError: An item is not text, a text or prefix has more tokens than the transformer
                has learned positions, or an option does not exist or is out of range.
        """
        check_at_least(0, seed=seed)
        config = self._config_with(changes, unused=OF_BEAMS)
        SamplingConfig(temperature, top_k, top_p)  # checks them, also without texts
        logits = self.logits_config(config)
        reading, encode = self._reading(to, sentences, placeholders, prefixes is not None)

        def translate(texts, places):
            def search(numbers, rows):
                seeds = [(seed, *places[n]) for n in numbers] + [(seed, 0)] * (rows - len(numbers))
                return Sampling(seeds, temperature, top_k, top_p, logits=logits)

            texts = self.tagged(texts, to)
            return [[each] for each in self._write(search, texts, prefixes, config, encode)]

        empty = [Hypothesis("", None, True)]
        results = translate_paragraphs(checked_texts(texts), translate, empty, reading)
        return [each._replace(score=None) if return_finished else each.text for (each,) in results]

    def stream(
        self,
        text: str,
        *,
        seed: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float = 1.0,
        to: str | None = None,
        prefix: str | None = None,
        sentences: str | None = None,
        placeholders: Iterable[str] | None = None,
        **changes: Any,
    ) -> Iterator[str]:
        """Translates one text while the caller reads: greedily, or with a seed by sampling.

        Args:
            text: str. With placeholders, its translation comes in one piece.
            seed: int from 0, the seed of `sample`; None: greedy decoding.
            temperature: float above 0, divisor of the logits: below 1 sharpens the distribution.
            top_k: int from 1, number of most probable tokens to sample from; None: all.
            top_p: float in (0, 1], nucleus sampling: the fewest tokens that together reach it.
            to: str, the target language, of a model with language tags; None: the text has a tag,
                or the model has none.
            prefix: str, the beginning of the translation, in whole tokens; None: no beginning.
            sentences: str, whether the text is split into sentences: "always", "never", or "auto"
                (None): if longer than the training data, or with line ends, see `translate`.
            placeholders: list of str, what is not translated: "url", "email", "path", "code",
                "tag", "number" or regular expressions. None: those of the training data.
            **changes: fields of `GenerationConfig`, except `beams` and `length_penalty`.

        Returns:
            Iterator of str, whole characters; joined they are the text that `translate` with
            `beams=1` or `sample` returns, also of a model saved with more beams.

        Raises:
            ValueError: `text` is not text, it or the prefix has more tokens than the transformer
                has learned positions, or an option does not exist or is out of range.
        """
        check_optional(0, seed=seed)
        config = self._config_with(changes, unused=OF_BEAMS)
        sampling: Any = dict(temperature=temperature, top_k=top_k, top_p=top_p)
        SamplingConfig(**sampling)  # checks them
        logits = self.logits_config(config)
        reading, encode = self._reading(to, sentences, placeholders, prefix is not None)
        texts = checked_texts([text])
        if reading.pattern and find_placeholders(text, reading.pattern):
            options = dict(to=to, sentences=sentences, placeholders=placeholders, **changes)
            if seed is None:
                return iter(self.translate(texts, beams=1, **options))
            return iter(self.sample(texts, seed=seed, **sampling, **options))

        def write(place, sentence):
            pattern = reading.pattern
            if pattern and sentence.strip() and not split_placeholders(sentence, pattern)[1:]:
                return iter([sentence])  # without words nothing is translated
            search = GreedySearch(logits=logits)
            if seed is not None:
                search = Sampling([(seed, *place)], **sampling, logits=logits)
            texts, prefixes = self.tagged([sentence], to), None if prefix is None else [prefix]
            requests = self._requests(lambda numbers, rows: search, texts, prefixes, config, encode)
            streams = [self._decoding.stream(**request.stepwise()) for _, request in requests]
            written = ((int(ids[0]) for ids in stream) for stream in streams)
            pieces = (whole_characters(ids, self.target_tokenizer) for ids in written)
            return itertools.chain.from_iterable(pieces)

        (parts,), _ = reading.layouts(texts)
        places = ((0, n) if n else (0,) for n in itertools.count())
        return join_pieces(parts, list(map(write, places, parts[1::2])))

    def score(
        self,
        texts: Iterable[str],
        translations: Iterable[str],
        *,
        to: str | None = None,
        **changes: Any,
    ) -> list[float]:
        """Scores given translations as `translate(..., return_scores=True)` scores its own.

        A text is scored as a whole, and without the options that only a search has, such as
        `repetition_penalty`.

        Args:
            texts: list of str.
            translations: list of str, one per text.
            to: str, the target language, of a model with language tags; None: the texts have tags,
                or the model has none.
            **changes: fields of `GenerationConfig`: `length_penalty`, where 0 gives the
                log-probability itself, `batch_size` or `tokens_per_batch`.

        Returns:
            list of float, nats, one per text.

        Raises:
            ValueError: An item is not text, the lists differ in length, or a text or a translation
                has more tokens than the transformer has learned positions, END included.

        Source: Wu et al. 2016, equation 14.
        """
        config = self._config_with(changes, unused=OF_SEARCH)
        texts = checked_texts(texts)
        sources = self._encode(texts, to)
        targets = [[*ids, END] for ids in self._target_ids(translations)]
        given = dict(texts=len(sources), translations=len(targets))
        check(len(sources) == len(targets), "Expected one translation per text", **given)
        self._check_lengths(targets, "Translation")
        scores = [0.0] * len(targets)
        sizes = config.batch_size, config.tokens_per_batch
        for number, log_p in self._log_probabilities(targets, sources, *sizes):
            if is_blank(texts[number], sources[number]) and len(targets[number]) == 1:
                continue  # which `translate` gives without the model
            penalty = length_penalty(len(targets[number]), config.length_penalty)
            scores[number] = float(log_p.sum() / penalty)
        return scores

    def attention(
        self, text: str, translation: str | None = None, *, to: str | None = None
    ) -> AttentionMaps:
        """The cross-attention weights of every layer and head while a translation is written.

        Args:
            text: str, the source.
            translation: str; None: what `translate` returns.
            to: str, the target language, of a model with language tags; None: the text has a tag,
                or the model has none.

        Returns:
            `AttentionMaps`.

        Raises:
            ValueError: An argument is not text, or has more tokens than the transformer has
                learned positions.
        """
        one = not isinstance(self.transformer, Ensemble)
        check(one, "Attention maps show one model", model=type(self.transformer).__name__)
        if translation is None:
            (translation,) = self.translate([text], to=to)
        (source,) = self._encode([text], to)
        (target,) = targets = self._target_ids([translation])
        self._check_lengths(targets, "Translation")
        target = [*target, END][: self.transformer.max_length]
        return AttentionMaps(
            cross_attention_weights(self.transformer, source, target),
            self.source_tokenizer.tokens(source),
            self.target_tokenizer.tokens(target),
        )

    def beam_tree(
        self, text: str, *, n_best: int = 1, to: str | None = None, **changes: Any
    ) -> list[list[Branch]]:
        """The beam search for translations, as a tree.

        Args:
            text: str.
            n_best: int from 1 to `beams`; the search ends when no others can be among the n best.
            to: str, the target language, of a model with language tags; None: the text has a tag,
                or the model has none.
            **changes: fields of `GenerationConfig`, such as `beams` or `length_penalty`.

        Returns:
            list of lists of `Branch`, per position: live hypotheses, best first, then those that
            have just finished. A blank text has none.

        Raises:
            ValueError: `text` is not text, it has more tokens than the transformer has learned
                positions, or an option does not exist or is out of range.
        """
        config = self._config_with(changes)
        logits = self.logits_config(config)
        search = BeamSearch(config.beams, config.length_penalty, n_best, logits)
        texts = self.tagged([text], to)
        encode = self.source_tokenizer.encode
        requests = self._requests(lambda numbers, rows: search, texts, None, config, encode)
        states = (self._decoding.beam_states(**request.stepwise()) for _, request in requests)
        return beam_tree(itertools.chain.from_iterable(states))

    def logits_config(self, config: GenerationConfig | None = None) -> LogitsConfig:
        """The `LogitsConfig` of a `GenerationConfig`, in which texts become their ids.

        Args:
            config: `GenerationConfig`; None: that of the translator.
        """
        options = {name: getattr(config or self.config, name) for name in OF_LOGITS}
        return self._logits(self.target_tokenizer, **options)

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), **self.config.to_dict()}
        if self.target_tokenizer is self.source_tokenizer:
            config["target_tokenizer"] = None
        if self.directions:
            config["directions"] = list(self.directions)
        if self.trained_length is not None:
            config["trained_length"] = self.trained_length
        if self.placeholders:
            config["placeholders"] = list(self.placeholders)
        return config

    def _config_with(self, changes, unused=()):
        """The config with the changes that are not None."""
        given = {name: value for name, value in changes.items() if value is not None}
        wrong = [name for name in given if name in unused]
        check(not wrong, "Leave out what has no effect here", options=", ".join(wrong))
        return self.config.replace(**given)

    def _write(self, search_of, texts, prefixes, config, encode):
        """One `Hypothesis` per text, by a search that computes no scores."""
        translations = [Hypothesis("", 0.0, True)] * len(texts)
        requests = self._requests(search_of, texts, prefixes, config, encode)
        for numbers, ids in self._answers(requests):
            written = self.target_tokenizer.decode(ids[: len(numbers)])
            finished = (ids == END).any(axis=1).tolist()
            for number, text, ended in zip(numbers, written, finished, strict=False):
                translations[number] = Hypothesis(text, 0.0, ended)
        return translations

    def _requests(self, search_of, texts, prefixes, config, encode, beams=1):
        """Batches of normalized texts of similar lengths: a long one makes no short one longer.

        Blank texts are in no batch. Rows that only fill a batch have max_length 0.

        Args:
            search_of: function of the numbers of texts and the rows of a batch to its search.
            texts: list of str, normalized.
            prefixes: list of str; None: no beginnings.
            config: `GenerationConfig`.
            encode: function of texts to their ids, without END.
            beams: int, hypotheses per text.

        Yields:
            list of int, which texts.
            `Request`.
        """
        ids = self._source_ids(texts, encode)
        if prefixes is not None:
            try:
                prefixes = self._target_ids(prefixes)
            except TextError as error:  # perhaps there are more than texts
                raise ValueError(f"prefixes: {error}") from None
            given = dict(texts=len(texts), prefixes=len(prefixes))
            check(len(prefixes) == len(texts), "Expected one prefix per text", **given)
            self._check_lengths(prefixes, "Prefix")
        lengths = [len(sequence) for sequence in ids]
        min_length, max_length = config.length_limits(lengths, self.longest_input, prefixes)
        not_blank = [n for n, text in enumerate(texts) if not is_blank(text, ids[n])]
        few = self._are_few(beams * sum(lengths))
        continuous = self._decoding.continuous and not few
        batch_size = min(config.batch_size, MOST_ROWS) if continuous else config.batch_size
        sizes = batch_size, self.longest_input, config.tokens_per_batch
        batches = group_by_length(not_blank, lengths, *sizes, continuous)
        for numbers, rows, length, at_a_time in batches:
            spare = (0, rows - len(numbers))
            yield (
                numbers,
                Request(
                    search_of(numbers, rows),
                    pad([ids[n] for n in numbers], rows, length),
                    np.pad(max_length[numbers], spare),
                    np.pad(min_length[numbers], spare),
                    None if prefixes is None else pad([prefixes[n] for n in numbers], rows),
                    at_a_time=at_a_time,
                    few=few,
                ),
            )

    def _encode(self, texts, to=None):
        """The ids of each source text, END included."""
        return self._source_ids(self.tagged(texts, to), self.source_tokenizer.encode)

    def _source_ids(self, texts, encode):
        """The same for texts that are normalized, by a function that encodes them."""
        self._check_tokenizers()
        self._check_tags(texts)
        sequences = [[*ids, END] for ids in encode(texts)]
        self._check_lengths(sequences)
        return sequences

    def _check_tags(self, texts):
        """Refuses a text without the tag that a model with language tags needs."""
        tags, known = tuple(map(language_tag, self.targets)), ", ".join(self.targets)
        for number, text in enumerate(texts if tags else ()):
            if text.strip() and not text.startswith(tags):
                raise TextError(
                    number,
                    f"has no target language: this model translates into {known}. Choose one with "
                    f"to (--to), or begin the text with its tag, such as {tags[0]}.",
                )

    def _target_ids(self, texts):
        """The ids of each target text, without END."""
        return self.target_tokenizer.encode(self.normalized(texts))

    def _check_tokenizers(self):
        model = self.transformer
        self._check_tokenizer(self.source_tokenizer, model.source_vocabulary_size)
        self._check_tokenizer(self.target_tokenizer, model.target_vocabulary_size)


def _compared(value):
    """A tokenizer as its class and tokens; any other value itself."""
    if isinstance(value, Tokenizer):
        return type(value), value.get_vocabulary()
    return value


def is_blank(text: str, ids: Sequence[int]) -> bool:
    """Whether a text is translated to "" without the model: it has no characters, or no tokens.

    An imported vocabulary may drop all that a text has.

    Args:
        text: str.
        ids: its ids, END included.
    """
    return not text.strip() or len(ids) == 1
