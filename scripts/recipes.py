"""The options of each task, and recipes: values that suit a task and an amount of data.

`keras-transformer train translation --recipe NAME` takes its defaults from one of TRANSLATION, the
other tasks from one of theirs; options on the command line override them. Every value has its
rationale.
"""

import dataclasses
import random
from typing import Annotated, Any, Literal, Self

from keras_transformer import GenerationConfig, data, evaluation
from keras_transformer.checks import (
    check,
    check_above_0,
    check_at_least,
    check_from_0,
)
from keras_transformer.data.files import TREEBANK
from keras_transformer.data.records import collect_complete
from keras_transformer.models.configuration import PRESETS
from options import File, From1, Group, OptionalFrom1, Options

Feature = Annotated[str, "FEATURE"]

# Groups of options that tasks share.


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileOptions(Group):
    """Data from one file per split, or from tensorflow-datasets.

    Args:
        train: Training data, plain or compressed.
        valid: Validation data; none: 2 % of the training data, at most about 1,000.
        test: Test data for the final scores; none: the validation data.
        mix_in: Data like --train, of which a share is mixed in; see --mix-share.
        dataset: Dataset of tensorflow-datasets (tfds:NAME), instead of files.
        download: Download the dataset if necessary.
    """

    train: File = None
    valid: File = None
    test: File = None
    mix_in: File = None
    dataset: str | None = None
    download: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairOptions(Group):
    """Sentence pairs (default: generated dates).

    Args:
        source: Sentences to translate from, one per line, plain or compressed.
        target: Their translations, line by line.
        pairs: Alternative to --source and --target: one pair per line, separated by TAB; or .jsonl.
        valid_source: Validation data; none: 2 % of the training data, at most about 1,000 pairs.
        valid_target: Their translations.
        valid_pairs: Alternative to --valid-source and --valid-target.
        test_source: Test data for the final scores; none: the validation data.
        test_target: Their translations.
        test_pairs: Alternative to --test-source and --test-target.
        mix_source: Additional data, of which a share is mixed in; see --mix-share.
        mix_target: Their translations.
        mix_pairs: Alternative to --mix-source and --mix-target.
        sides: Columns of --pairs, by number from 1 or by name (none: 1 2); fields of .jsonl (none:
            source target); languages of --dataset.
        dataset: Dataset of tensorflow-datasets (tfds:NAME), or folder for its TranslateFolder.
        download: Download the dataset if necessary.
    """

    source: File = None
    target: File = None
    pairs: File = None
    valid_source: File = None
    valid_target: File = None
    valid_pairs: File = None
    test_source: File = None
    test_target: File = None
    test_pairs: File = None
    mix_source: File = None
    mix_target: File = None
    mix_pairs: File = None
    sides: Annotated[tuple[str, str] | None, "FROM TO"] = None
    dataset: str | None = None
    download: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedOptions(Group):
    """Training data larger than memory (docs/scale.md); validation data comes from files.

    Args:
        prepared: Folders that keras-transformer prepare wrote, instead of training data.
        weights: Relative shares of the folders in an epoch, such as 3 1; none: all of each.
    """

    prepared: Annotated[tuple[str, ...], "FOLDER"] = ()
    weights: tuple[float, ...] = ()

    def __post_init__(self):
        check(
            not self.weights or len(self.weights) == len(self.prepared),
            "--weights must be as many as the folders of --prepared",
            weights=self.weights,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenizerOptions(Group):
    """The vocabulary.

    Args:
        vocabulary: Tokenizer type.
        vocabulary_size: Maximum number of ids; none: all characters, or 8,000 subwords.
        logits_in_pieces: Less memory with a large vocabulary: pieces in which the logits of a batch
            are computed (docs/memory.md).
    """

    vocabulary: Literal["bpe", "unigram", "char", "byte"] = "bpe"
    vocabulary_size: int | None = None
    logits_in_pieces: OptionalFrom1 = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordOptions(Group):
    """Words and their spelling.

    Args:
        max_characters: Characters read per word: the first and last ones of a longer word.
        min_count: Minimum occurrences of a word; rarer ones are read by their characters alone.
        word_stddev: Standard deviation of the initial word vectors; a small one lets the spelling
            of rare words decide.
    """

    max_characters: From1 = 16
    min_count: From1 = 1
    word_stddev: Annotated[float, check_above_0] = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelOptions(Group):
    """Regularization for few labels.

    Args:
        forget: Word dropout, A: a word seen c times becomes the unknown word with probability
            A / (A + c); 0: never.
    """

    forget: Annotated[float, check_from_0] = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleaningOptions(Group):
    """Normalization and filters.

    Args:
        normalization: Unicode normal form; NFKC also unifies full-width letters and the like.
        lowercase: Lowercase both sides, and later all text to translate.
        max_characters: Maximum length of a side, in characters; the test data has no limit.
        max_ratio: Maximum ratio of the lengths of the two sides of a training pair.
        unique: Drop repeated training pairs.
    """

    normalization: Literal["NFC", "NFKC", "none"] = "NFC"
    lowercase: bool = False
    max_characters: From1 = 1000
    max_ratio: Annotated[float | None, check_from_0] = None
    unique: bool = False

    def __post_init__(self):
        super().__post_init__()
        ratio = self.max_ratio
        check(ratio is None or ratio >= 1, "max_ratio must be at least 1", max_ratio=ratio)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringOptions(Group):
    """The search, and the score of its translations.

    Args:
        beams: Width of the beam search, saved with the model; 1: greedy decoding.
        length_penalty: Exponent of the length penalty, saved with the model; larger favors
            longer translations.
        tokenize: sacreBLEU's tokenizer, for the BLEU score only: 13a, zh, none, ...; the vocabulary
            is --vocabulary.
        bleu_sentences: Validation sentences whose BLEU is computed after every epoch; --patience
            then monitors it.
    """

    beams: int = 1
    length_penalty: float = 0.6
    tokenize: str = "13a"
    bleu_sentences: OptionalFrom1 = None

    def __post_init__(self):
        super().__post_init__()
        GenerationConfig(beams=self.beams, length_penalty=self.length_penalty)  # checks them
        try:
            evaluation.check_bleu_tokenizer(self.tokenize)
        except RuntimeError as error:  # its package or download is missing
            raise ValueError(f"{error}") from None


# What tasks with the same groups do with them.

PREPARE_OPTION = "--{option} is an option of keras-transformer prepare; leave it out."


class FromFiles(Options):
    """Tasks whose data is one file per split: `files` are `FileOptions`."""

    FILES = ("train", "valid", "test", "dataset")
    MIX = ("mix_in",)
    OF_DATASET = ("download",)  # options that are used with --dataset alone

    def unused(self, initial):
        files = ("train", "valid", "test") if self.files.dataset else ()
        of_dataset = () if self.files.dataset else self.OF_DATASET
        unused = super().unused(initial) | dict.fromkeys(of_dataset, "--dataset")
        return unused | dict.fromkeys(files, "files, without --dataset")

    def read(self) -> data.Splits:
        """The data that the command line names."""
        if self.files.dataset:
            return self.read_dataset(self.files.dataset.removeprefix("tfds:"), self.files.download)
        if not self.files.train:
            raise ValueError("No training data: give --train or --dataset.")
        paths = (self.files.train, self.files.valid, self.files.test)
        return data.Splits(*(path and self.read_file(path) for path in paths))

    def read_mix(self) -> Any:
        """The data of --mix-in; None without."""
        return self.files.mix_in and self.read_file(self.files.mix_in)


class OfWords(Options):
    """Tasks that read words: `words` are `WordOptions`."""

    def unused(self, initial):
        unused = super().unused(initial)
        if initial and "max_characters" in initial.vocabulary:
            unused["min_count"] = "a vocabulary to learn; --init-from has one"
        return unused

    def provided_by(self, summary):
        names = {"max_characters"} & summary.vocabulary.keys()
        return super().provided_by(summary) | {name: summary.vocabulary[name] for name in names}


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfLabels(OfWords, FromFiles):
    """Tasks that learn labels of words or texts."""

    files: FileOptions
    words: WordOptions
    labels: LabelOptions

    RELATED = ("MaskFiller", "Tagger", "Classifier", "Translator", "TextGenerator")


class OfTokens(Options):
    """Tasks with a tokenizer, whose data may be prepared: they have `corpora` and `tokenizer`."""

    CORPUS = ""  # what a corpus must hold
    OF_TRAINING_DATA = ()  # options that exclude --prepared

    def __post_init__(self):
        super().__post_init__()
        if self.tokenizer.logits_in_pieces and self.training.r_drop:
            raise ValueError("Give --logits-in-pieces or --r-drop, not both.")
        given = [name for name in self.OF_TRAINING_DATA if self.flat()[name]]
        if self.corpora.prepared and given:
            option = given[0].replace("_", "-")
            raise ValueError(f"--{option} does not go with --prepared; leave one of them out.")

    def unused(self, initial):
        # A vocabulary_size that --init-from contradicts is refused with the other sizes.
        prepared = self.corpora.prepared
        learned = {"vocabulary": initial or prepared, "vocabulary_size": prepared}
        reason = "a vocabulary to learn, without --init-from and --prepared"
        return super().unused(initial) | {name: reason for name, given in learned.items() if given}

    def check_prepared(self, train: Any, valid: Any, option: str) -> None:
        """Raises a ValueError unless --prepared is all of the training data."""
        if train is not None:
            raise ValueError("Give training data once, as files or as --prepared.")
        if valid is None:
            raise ValueError(f"--prepared needs validation data: give {option}.")

    def open_corpora(self) -> list[data.Corpus]:
        """The corpora of --prepared.

        Raises:
            ValueError: One of them holds something else.
        """
        corpora = [data.Corpus(folder) for folder in self.corpora.prepared]
        for corpus in corpora:
            expected = f"--prepared must name corpora of {self.CORPUS}"
            check(corpus.kind == self.CORPUS, expected, corpus=f"{corpus.folder}, {corpus.kind}")
        return corpora

    def of_corpora(self, corpora: list[data.Corpus]) -> Self:
        """The options with what the corpora provide."""
        sizes = [each.vocabulary_size() for each in corpora[0].tokenizers()] if corpora else []
        return self.replace(vocabulary_size=max(sizes)) if corpora else self

    def prepared_batches(
        self, corpora: list[data.Corpus], subword_alpha: float | None = None
    ) -> data.PreparedBatches:
        """The training batches of corpora."""
        settings = {"subword_alpha": subword_alpha, "seed": self.run.seed, **self.budget}
        return data.PreparedBatches(corpora, self.corpora.weights or None, **settings)


# Translation.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation(OfTokens):
    """Translation.

    Args:
        separate_vocabularies: One vocabulary per side instead of a shared one.
        subword_alpha: Subword regularization: sampling parameter (papers: 0.1).
        diversify: Data diversification: number of teachers per direction.
    """

    files: PairOptions
    corpora: PreparedOptions
    cleaning: CleaningOptions
    tokenizer: TokenizerOptions
    scoring: ScoringOptions
    separate_vocabularies: bool = False
    subword_alpha: float | None = None
    diversify: int = 0

    TASK = "Translator"
    CORPUS = "pairs"
    OF_TRAINING_DATA = ("dataset", "mix_source", "mix_target", "mix_pairs", "diversify")
    TEXTS = (
        *("source", "target", "pairs", "valid_source", "valid_target", "valid_pairs"),
        *("test_source", "test_target", "test_pairs"),
    )
    FILES = ("dataset", "prepared", *TEXTS)
    MIX = ("mix_source", "mix_target", "mix_pairs")

    def __post_init__(self):
        super().__post_init__()
        check(
            not (self.diversify and self.fine_tuning.init_from),
            "The teachers of --diversify are trained from scratch; leave out --init-from or it",
            diversify=self.diversify,
        )
        check_at_least(0, diversify=self.diversify)
        alpha = self.subword_alpha
        check(alpha is None or 0 <= alpha <= 1, "subword_alpha must be in [0, 1]", alpha=alpha)

    def unused(self, initial):
        unused, given = super().unused(initial), self.files
        if "vocabulary" in unused:
            unused["separate_vocabularies"] = unused["vocabulary"]
        if not (self.has_data or self.scoring.bleu_sentences):
            unused["tokenize"] = "a BLEU score; of dates, exact matches count"
        if given.dataset:
            return unused | dict.fromkeys(self.TEXTS, "files, without --dataset")
        unused["download"] = "--dataset"
        if not (given.pairs or given.valid_pairs or given.test_pairs or given.mix_pairs):
            unused["sides"] = "--pairs or --dataset"
        return unused

    def provided_by(self, summary):
        names = ("lowercase", "beams", "length_penalty")
        sizes = sorted(summary.vocabulary.values())
        return super().provided_by(summary) | {
            **{name: summary.settings[name] for name in names},
            "normalization": summary.settings["normalization"] or "none",
            "vocabulary_size": sizes[-1],
            "separate_vocabularies": len(sizes) > 1,
        }

    def read(self) -> data.Splits:
        """The sentence pairs that the command line names, before cleaning."""
        files = self.files
        if files.dataset:
            name = files.dataset.removeprefix("tfds:")
            source, target = files.sides or (None, None)
            return data.read_splits(name, source, target, download=files.download)
        train = self._read_split("")
        if train is None and not self.corpora.prepared:
            raise ValueError("No training data: give --source and --target, --pairs, or --dataset.")
        valid, test = self._read_split("valid_"), self._read_split("test_")
        if self.corpora.prepared:
            self.check_prepared(train, valid, "--valid-source and --valid-target")
        return data.Splits(train, valid, test)

    def read_mix(self) -> data.Examples | None:
        """The pairs to mix in, cleaned as the training pairs are; None without."""
        pairs = self._read_split("mix_")
        return pairs and self.clean(data.Splits(pairs, None, None)).train

    def _read_split(self, prefix):
        names = [prefix + name for name in ("source", "target", "pairs")]
        source, target, pairs = (getattr(self.files, name) for name in names)
        one, other, either = ("--" + name.replace("_", "-") for name in names)
        if pairs and (source or target):
            raise ValueError(f"Give {one} and {other}, or {either}; not all of them.")
        if bool(source) != bool(target):
            raise ValueError(f"{one} and {other} go together; one of them is missing.")
        if not (pairs or source):
            return None
        if pairs:
            rows, name = data.iterate_pair_file(pairs, self.files.sides or ()), pairs
        else:
            rows, name = data.iterate_files(source, target), f"{source} and {target}"
        # The lines of test data are scored as any other program would score them: all.
        return collect_complete(data.Examples, rows, name, drop=prefix != "test_")

    @property
    def form(self) -> dict[str, Any]:
        """The normalization of every text, here and later by the translator."""
        form = self.cleaning.normalization
        normalization = None if form == "none" else form
        return {"normalization": normalization, "lowercase": self.cleaning.lowercase}

    def of_corpora(self, corpora: list[data.Corpus]) -> Self:
        """The options with what the corpora provide: vocabulary, normal form, lower case."""
        options = super().of_corpora(corpora)
        if not corpora:
            return options
        cleaning = corpora[0].cleaning or {}
        provided = {
            "normalization": cleaning.get("normalization") or "none",
            "lowercase": cleaning.get("lowercase", False),
            "max_ratio": None,
            "unique": False,
        }
        for name, value in provided.items():
            if getattr(self.cleaning, name) not in (getattr(CleaningOptions, name), value):
                option = name.replace("_", "-")
                raise ValueError(PREPARE_OPTION.format(option=option))
        separate = len(set(corpora[0].vocabularies)) > 1
        return options.replace(**provided, separate_vocabularies=separate)

    def clean(self, splits: data.Splits) -> data.Splits:
        """Normalized splits; the test data stays complete, so that its scores are comparable."""
        limits = self.form | {"max_characters": self.cleaning.max_characters}
        filters = {"max_ratio": self.cleaning.max_ratio, "unique": self.cleaning.unique}
        return data.Splits(
            splits.train and data.clean(splits.train, **limits, **filters),
            splits.valid and data.clean(splits.valid, **limits),
            splits.test and data.clean(splits.test, **self.form, keep_blank=True),
        )


def named(task: type[Options], recipes: dict[str, dict], **shared: Any) -> dict[str, Any]:
    """Options of a task by the names of recipes, each with the values that all of them share."""
    return {name: task.of(**shared | values) for name, values in recipes.items()}


def fine_tuned(recipe: dict, epochs: int) -> dict:
    """A recipe for a trained model and other data (--init-from): few updates, and small ones."""
    rate = recipe["learning_rate"] / 4
    return recipe | dict(epochs=epochs, learning_rate=rate, warmup_steps=50, average=0)


TINY = vars(PRESETS["tiny"])
SMALL = dict(num_layers=2, d_model=128, num_heads=4, d_ff=256)
# A thin model and many epochs, for few sentence pairs. The sizes, the dropout and the beams are
# those of Wu et al. 2021 ("Transformer-Tiny" on Multi30k, 29,000 pairs).
THIN = dict(
    num_layers=4,  # thin and deep rather than wide: fewer parameters to overfit with
    d_model=128,
    num_heads=4,
    d_ff=256,
    dropout=0.3,  # dozens of epochs show nothing but the same pairs
    norm_first=True,  # aligns source and target in 3 epochs; post-norm had not after 5
    vocabulary_size=10000,  # 4,000 gave 0.6 BLEU less on Multi30k's val, and took as long
    tokens_per_batch=4096,  # 127 updates per epoch on 29,000 pairs
    epochs=40,  # 1.7 BLEU more than 30 on Multi30k's val
    learning_rate=4e-3,  # 2e-3 learns more slowly from the start
    warmup_steps=300,  # two epochs
    schedule="cosine",  # to 0: the effect of averaging many checkpoints at a constant rate
    average=4,  # smooths the last epochs; not compared with none
    beams=5,
    length_penalty=1.2,  # translations were too short: 0.1 to 0.6 BLEU on Multi30k's val
)
TRANSLATION = named(
    Translation,
    {
        # 30,000 generated dates: a regular language of short strings, learned in minutes on two
        # cores. 2 + 2 layers, d_model 64: twelve characters need no more.
        "dates": TINY
        | dict(
            output="runs/dates",
            # There is no noise to fit; after three epochs it cost ten times the errors
            # (docs/experiments.md).
            dropout=0.0,
            vocabulary="char",  # digits are copied one by one; some 60 ids
            batch_size=128,  # strings of similar length, so examples are counted and not tokens
            epochs=8,  # 237 updates each; validation accuracy is 100.0 % after the seventh
            learning_rate=4e-3,  # small models tolerate, and need, large rates
            warmup_steps=300,  # a little over an epoch
            threads=1,  # its operations are too small to split: 40 % more steps per second
            schedule="cosine",  # to 0: the last epoch settles, no averaging is needed
        ),
        "quick": THIN,  # some 30,000 sentence pairs in half an hour on two cores
        # Up to some 100,000 pairs, and hours: two more pairs per pair, from a teacher per
        # direction. With 4,000 subwords they added 1.7 BLEU on Multi30k's validation set.
        "small": THIN | dict(diversify=1),
        # Some 100,000 to a million pairs (TED talks): the sizes of papers on IWSLT.
        "medium": dict(
            num_layers=6,
            d_model=512,
            num_heads=4,  # of width 128
            d_ff=1024,  # half of base's: so little data would not use more
            dropout=0.3,
            vocabulary_size=10000,
            tokens_per_batch=4096,
            epochs=40,
            learning_rate=5e-4,  # wider models tolerate smaller rates
            warmup_steps=4000,
            clip_norm=1.0,  # one bad batch in a million cannot derail the run
            average=5,
            beams=5,
        ),
        # A trained translator and some thousand pairs of another kind of text (--init-from).
        "fine-tune": fine_tuned(THIN, epochs=6),
        # Millions of pairs: the paper's base model (section 5), on a GPU.
        "large": vars(PRESETS["base"])
        | dict(
            vocabulary_size=37000,
            tokens_per_batch=8192,  # three of these per update are the paper's 25,000
            accumulate=3,
            epochs=18,  # 100,000 updates on the 4.5 million pairs of WMT 2014
            learning_rate=7e-4,  # 512 ** -0.5 * 4000 ** -0.5, the peak of equation 3
            warmup_steps=4000,
            clip_norm=1.0,
            average=5,
            beams=4,
        ),
    },
    output="runs/text",
)


# Tagging.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagging(OfLabels):
    """Tagging.

    Args:
        train: Treebank in CoNLL-U (.conllu, .conll), or lines of word TAB tag; plain or compressed.
        column: Column of CoNLL-U: UPOS, XPOS, ...
        tokens: Feature of --dataset that contains the words.
        tags: Feature of --dataset that contains their tags.
    """

    column: str = "UPOS"
    tokens: Feature = "tokens"
    tags: Feature = "upos"

    TASK = "Tagger"
    OF_DATASET = ("download", "tokens", "tags")

    def unused(self, initial):
        unused, files = super().unused(initial), self.files
        paths = filter(None, (files.train, files.valid, files.test, files.mix_in))
        if TREEBANK not in map(data.format_of, paths):
            unused["column"] = "a treebank (.conllu, .conll)"
        return unused

    def read_dataset(self, name, download):
        return data.read_tagged_splits(name, self.tokens, self.tags, download=download)

    def read_file(self, path):
        return data.read_tagged(path, self.column)


TREEBANKS = dict(
    num_layers=3,
    d_model=128,
    num_heads=4,
    d_ff=256,
    dropout=0.4,
    r_drop=1.0,  # two draws of strong dropout should agree
    word_stddev=0.1,  # a word seen once hardly leaves its initial vector: spelling decides
    epochs=14,
    learning_rate=2e-3,
    warmup_steps=500,
    ema=0.998,
    clip_norm=1.0,
)
TAGGING = named(
    Tagging,
    {
        # 10,000 generated sentences: shows in two minutes that it learns.
        "grammar": TINY  # some hundred words and a few rules
        | dict(
            epochs=4,
            learning_rate=4e-3,  # small models tolerate, and need, large rates
            warmup_steps=200,
            threads=1,  # its operations are too small to split
            label_smoothing=0.0,  # what a rule decides is certain
            rotary=True,
        ),
        "treebank": TREEBANKS,  # some 10,000 sentences: strong dropout against overfitting
        # A trained tagger and other sentences.
        "fine-tune": fine_tuned(TREEBANKS, epochs=4),
    },
    output="runs/tags",
    rotary=True,  # a tag depends on the neighbors of a word, not on its position
    batch_size=32,
    schedule="cosine",
)


# Classification.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(OfLabels):
    """Classification.

    Args:
        train: Table, one text per line, columns separated by TAB; plain or compressed.
        columns: Columns of text and label, by number from 1 or by name (none: 1 2); features of
            --dataset.
    """

    columns: Annotated[tuple[str, str] | None, "TEXT LABEL"] = None

    TASK = "Classifier"

    def unused(self, initial):
        of_data = {} if self.has_data else {"columns": "--train or --dataset"}
        return super().unused(initial) | of_data

    def read_dataset(self, name, download):
        text, label = self.columns or (None, "label")
        return data.read_labeled_splits(name, text, label, download=download)

    def read_file(self, path):
        return data.read_labeled(path, *(self.columns or ()))


# Some thousand labeled texts and more.
TEXTS = SMALL | dict(
    dropout=0.4,
    r_drop=1.0,  # two draws of strong dropout should agree
    epochs=6,
    learning_rate=1e-3,
    warmup_steps=500,
    clip_norm=1.0,
)
CLASSIFICATION = named(
    Classification,
    {
        # 10,000 generated reviews in which the order of the words decides.
        "reviews": TINY
        | dict(
            epochs=6,
            learning_rate=3e-3,
            warmup_steps=200,
            threads=1,
            label_smoothing=0.0,
            rotary=True,
        ),
        "texts": TEXTS,
        # Their phrases as well, each with a label (SST-2): the same words many times.
        "phrases": TEXTS
        | dict(
            dropout=0.5,
            forget=5.0,  # otherwise it memorizes the rare words of each sentence
            epochs=3,  # ten times the texts, and each word in many of them
            ema=0.998,
        ),
        # A trained classifier and other texts.
        "fine-tune": fine_tuned(TEXTS, epochs=3),
    },
    output="runs/labels",
    rotary=True,
    batch_size=64,
    schedule="cosine",
)


# Language modelling.


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelling(OfTokens, FromFiles):
    """Language modelling.

    Args:
        train: Text, or a treebank (.conllu, .conll); plain or compressed.
        valid: Validation data; none: the last tenth of the text, or 2 % of the lines, at most
            about 1,000.
        lines: Treat each line as a text that begins and ends.
        feature: Feature of --dataset that contains the text; none: the only one.
        prompt: Text that samples begin with.
        window: Context length of a text without --lines, in tokens.
        normalization: Unicode normal form; NFKC also unifies full-width letters and the like.
    """

    files: FileOptions
    corpora: PreparedOptions
    tokenizer: TokenizerOptions
    normalization: Literal["NFC", "NFKC", "none"] = "NFC"
    lines: bool = False
    feature: str | None = None
    prompt: str = ""
    window: int = 64

    TASK = "TextGenerator"
    CORPUS = "texts"
    OF_TRAINING_DATA = ("dataset", "mix_in")
    FILES = ("prepared", *FromFiles.FILES)
    OF_DATASET = ("download", "feature")

    def __post_init__(self):
        super().__post_init__()
        check_at_least(2, window=self.window)

    def unused(self, initial):
        of_lines = (
            {"window": "a text without --lines"} if self.lines or self.corpora.prepared else {}
        )
        return super().unused(initial) | of_lines

    def provided_by(self, summary):
        (size,) = summary.vocabulary.values()
        lines, window = summary.settings["append_end"], summary.settings["window"]
        return super().provided_by(summary) | {
            "vocabulary_size": size,
            "normalization": summary.settings.get("normalization") or "none",
            "lines": lines,
            "window": window or self.window,
        }

    def read(self):
        if not self.corpora.prepared:
            return super().read()
        files = self.files
        self.check_prepared(files.train, files.valid, "--valid")
        valid, test = (path and self.read_file(path) for path in (files.valid, files.test))
        return data.Splits(None, valid, test)

    def of_corpora(self, corpora):
        options = super().of_corpora(corpora)
        if not corpora:
            return options
        form = (corpora[0].cleaning or {}).get("normalization") or "none"
        if not self.fine_tuning.init_from and self.normalization not in ("NFC", form):
            raise ValueError(PREPARE_OPTION.format(option="normalization"))
        return options.replace(lines=True, normalization=form)

    @property
    def form(self) -> str | None:
        """The normal form of every text, here and later in the generator."""
        return None if self.normalization == "none" else self.normalization

    def mix(self, train):
        if self.lines or len(train) > 1 or not self.files.mix_in:
            return super().mix(train)
        (text,), (other,) = train, self.read_mix()
        share = self.fine_tuning.mix_share
        number = round(len(text) * share / (1 - share))
        start = random.Random(self.run.seed).randint(0, max(0, len(other) - number))
        return [f"{text}\n{other[start : start + number]}"]

    def read_dataset(self, name, download):
        splits = data.read_text_splits(name, self.feature, download=download)
        return data.Splits(*(side and self._normalized(side) for side in splits))

    def read_file(self, path):
        if self.lines:
            texts = data.read_texts(path)
        elif data.format_of(path) is None:
            texts = [data.read_text(path)]
        else:
            texts = ["\n".join(data.read_texts(path))]
        return self._normalized(texts)

    def _normalized(self, texts):
        return [data.normalized(text, self.form) for text in texts]


CHARACTERS = dict(
    num_layers=4,
    d_model=128,
    num_heads=4,
    d_ff=512,
    dropout=0.0,  # a few epochs only
    window=64,
    batch_size=32,
    epochs=6,
    learning_rate=3e-3,
    warmup_steps=200,
    clip_norm=1.0,
)
LANGUAGE_MODELLING = named(
    LanguageModelling,
    {
        # Generated sentences whose true entropy is known.
        "grammar": TINY
        | dict(
            dropout=0.0,  # more sentences than it can memorize
            lines=True,
            batch_size=64,
            epochs=4,
            learning_rate=4e-3,
            warmup_steps=200,
            threads=1,
            norm_first=True,
            rotary=True,
        ),
        # A million characters in ten minutes on two cores: nanoGPT's sizes for a CPU.
        "characters": CHARACTERS,
        # The same text with nanoGPT's sizes for a GPU, 10.65 million parameters: two hours on two
        # cores, with --precision bfloat16 --batch-size 8 --accumulate 4, which are the same
        # batches.
        "gpu": dict(
            num_layers=6,
            d_model=384,
            num_heads=6,
            d_ff=1536,
            dropout=0.2,
            attention_dropout=0.2,  # ten parameters per character: it would memorize the text
            window=256,
            batch_size=32,  # nanoGPT's 64, 22 epochs: 1.513 nats per character; 32, 32: 1.457
            epochs=32,  # nanoGPT is best after 28 (its issue 493), then overfits
            average=4,  # smooths the last epochs; not compared with none
            learning_rate=1e-3,
            warmup_steps=100,
            clip_norm=1.0,
        ),
        # A trained generator and other text.
        "fine-tune": fine_tuned(CHARACTERS, epochs=3),
    },
    output="runs/language",
    norm_first=True,  # as GPT-2: tolerates the large rates
    rotary=True,
    vocabulary="char",
    schedule="cosine",
    label_smoothing=0.0,  # it would cost perplexity, which is what counts
)


# Pretraining.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(OfWords):
    """Pretraining.

    Args:
        train: Text, one or more sentences per line; or a treebank (.conllu, .conll); plain or
            compressed.
        valid: Validation data; none: 2 % of the training data, at most about 1,000.
        mask_rate: Share of the words to predict.
        mix_in: Data like --train, of which a share is mixed in; see --mix-share.
    """

    words: WordOptions
    train: File = None
    valid: File = None
    mix_in: File = None
    mask_rate: float = 0.15

    TASK = "MaskFiller"
    FILES = ("train", "valid")
    MIX = ("mix_in",)

    def __post_init__(self):
        super().__post_init__()
        rate = self.mask_rate
        check(0 < rate < 1, "mask_rate must be between 0 and 1", mask_rate=rate)

    def read(self) -> list[list[str | list[str]] | None]:
        """Lines, or sentences as lists of words, for training and validation; None without."""
        if not self.train:
            raise ValueError("No training data: give --train.")
        return [path and self.read_file(path) for path in (self.train, self.valid)]

    def read_mix(self) -> list[str | list[str]] | None:
        """The lines or sentences of --mix-in; None without."""
        return self.mix_in and self.read_file(self.mix_in)

    def read_file(self, path):
        if data.format_of(path) == TREEBANK:
            return data.read_conllu(path, "FORM").words
        return data.read_texts(path)


# The text that a tagger or a classifier will be trained on, and as much other text as there is.
WORDS = dict(epochs=20, learning_rate=2e-3, warmup_steps=500)
PRETRAINING = named(
    Pretraining,
    {
        "words": WORDS,
        # Trained words and other text.
        "fine-tune": fine_tuned(WORDS, epochs=5),
    },
    output="runs/words",
    **SMALL,
    dropout=0.1,  # each epoch has other masks: the data does not repeat itself
    rotary=True,
    batch_size=32,
    schedule="cosine",
    clip_norm=1.0,
    label_smoothing=0.0,
    min_count=2,  # a word seen once cannot be learned as an answer
)
