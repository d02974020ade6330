"""Options of the training scripts: groups of fields, and the tasks that are composed of them.

An option is a field of a dataclass: `batch_size: int | None` of `TrainingOptions` is
`--batch-size`. Its help is its entry in the docstring, under Rare if --help leaves it to
--help-all. Its default comes from a recipe, in recipes.py. EXCLUSIVE and `Options.unused` hold the
rules for combinations of options.
"""

import collections
import dataclasses
import functools
import pathlib
import typing
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from keras_transformer import GenerationConfig, data, evaluation
from keras_transformer.checks import check, check_above_0, check_at_least, check_from_0, check_rates
from keras_transformer.data.cleaning import PRESET
from keras_transformer.data.files import check_one_stdin
from keras_transformer.data.lengths import LONGEST
from keras_transformer.data.lines import RECORDS, TREEBANK
from keras_transformer.interchange import ENGINES
from keras_transformer.models.configuration import DEPTHS, TransformerConfig
from keras_transformer.tasks.saved_files import FileSummary

# The type of an option, and the word for its value in --help or the check of its range.
Files = Annotated[tuple[str, ...] | None, "FILE"]
Folder = Annotated[str | None, "FOLDER"]
Feature = Annotated[str, "FEATURE"]
From0 = Annotated[int, functools.partial(check_at_least, 0)]
From1 = Annotated[int, functools.partial(check_at_least, 1)]
From2 = Annotated[int, functools.partial(check_at_least, 2)]
OptionalFrom1 = Annotated[int | None, functools.partial(check_at_least, 1)]
NormalForm = Literal["NFC", "NFKC", "none"]


def flags(names: Iterable[str]) -> str:
    """The options with these names, as on the command line."""
    return ", ".join("--" + name.replace("_", "-") for name in names)


class Group:
    """Base of a group of options, whose ranges are checked."""

    def __post_init__(self):
        for name, hint in typing.get_type_hints(type(self), include_extras=True).items():
            value = getattr(self, name)
            if hint == Files and isinstance(value, str):  # in the settings of an older run
                object.__setattr__(self, name, (value,))
            for range_check in getattr(hint, "__metadata__", ()):
                if callable(range_check) and value is not None:
                    range_check(**{name: value})
            if typing.get_origin(hint) is Literal:  # settings.json may hold anything
                choices = typing.get_args(hint)
                expected = f"{name} must be one of {', '.join(map(str, choices))}"
                check(value in choices, expected, **{name: value})


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(Group):
    """The run as a whole.

    Args:
        recipe: Recipe that provides the defaults.
        output: Run folder.
        resume: Resume the run in --output with its original settings; only --epochs may change, and
            only with --schedule paper or constant.
        overwrite: Replace a run that --output already contains.
        seed: Random seed (data, weights, shuffling, dropout).
        deterministic: Bit-exact reproducibility on a GPU, where it is slower; a CPU has it.
        precision: Compute dtype; weights stay float32.
        threads: Intra-op threads on TensorFlow and PyTorch; none: all cores.

    Rare:
        devices: Number of devices, over all processes, that share each batch (docs/devices.md).
        model_parallel: Number of devices over which the weights are split, a divisor of --devices
            (JAX only).
        compilation_cache: Folder that keeps compiled programs for later runs (JAX only).
        tensorboard: Write TensorBoard logs; needs TensorFlow and TensorBoard.
        callback: Callbacks of your own, such as package.module:Class: classes or functions that
            return a `keras.callbacks.Callback` (Weights & Biases, MLflow; docs/training.md).
    """

    recipe: str | None = None
    output: Folder = None
    resume: bool = False
    overwrite: bool = False
    seed: From0 = 0
    deterministic: bool = False
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    threads: OptionalFrom1 = None
    devices: From1 = 1
    model_parallel: From1 = 1
    compilation_cache: Folder = None
    tensorboard: bool = False
    callback: Annotated[tuple[str, ...], "MODULE:CLASS"] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingOptions(Group):
    """Batches, updates and when to stop.

    Args:
        epochs: Passes over the training data.
        learning_rate: Peak learning rate.
        warmup_steps: Linear warm-up, in updates.
        schedule: Decay after the warm-up: paper (as 1/sqrt(step)), cosine (to 0), wsd (a line to 0,
            at the end only) or constant (none).
        batch_size: Examples per batch (alternative: --tokens-per-batch).
        tokens_per_batch: Maximum (target) tokens per batch, padding included.
        accumulate: Gradient accumulation, in batches per update.
        label_smoothing: Share of the probability spread over the vocabulary.
        clip_norm: Maximum global gradient norm.
        average: Checkpoint averaging: number of last epochs whose mean is saved; 0: none.
        r_drop: R-Drop: weight of the divergence between two dropout passes (paper: 5).
        patience: Early stopping: epochs without improvement of the validation perplexity (of
            labels: accuracy; of translations, on request: BLEU). The best epoch is saved, or with
            --average the mean of the last ones (with a recipe that averages, add --average 0 to
            keep the best epoch).

    Rare:
        optimizer: Update rule: adam (the paper's), adamw, muon, or lion (at a smaller rate).
        weight_decay: Share of each kernel that an update subtracts, times the learning rate;
            biases, norms, embeddings and positions do not decay.
        decay_share: Share of the updates in which --schedule wsd decays.
        simcut: SimCut: weight of the divergence from a pass with tokens cut off (paper: 3).
        cutoff: Probability that --simcut cuts off a token, that is, sets its embedding to zero.
        num_buckets: Length buckets, that is shapes of batches. More buckets mean less padding, but
            JAX compiles each shape.
        ema: Momentum of an exponential moving average of the weights, which is saved.
        checkpoint_every: Updates after which a checkpoint is also saved within an epoch.
    """

    epochs: From1
    learning_rate: Annotated[float, check_above_0]
    warmup_steps: From1
    schedule: Literal["paper", "cosine", "wsd", "constant"] = "paper"
    decay_share: Annotated[float, check_above_0, check_rates] = 0.2
    optimizer: Literal["adam", "adamw", "lion", "muon"] = "adam"
    weight_decay: Annotated[float, check_from_0] = 0.01
    batch_size: OptionalFrom1 = None
    tokens_per_batch: OptionalFrom1 = None
    num_buckets: From1 = 8
    accumulate: From1 = 1
    label_smoothing: Annotated[float, check_rates] = 0.1
    clip_norm: Annotated[float | None, check_above_0] = None
    ema: Annotated[float | None, check_rates] = None
    average: From0 = 0
    r_drop: Annotated[float | None, check_from_0] = None
    simcut: Annotated[float | None, check_from_0] = None
    cutoff: Annotated[float, check_rates] = 0.05
    patience: OptionalFrom1 = None
    checkpoint_every: OptionalFrom1 = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningOptions(Group):
    """Fine-tuning: training a saved model further on other data.

    Args:
        init_from: Saved model, or the name of one that comes with the package, that provides
            vocabulary, sizes and initial weights. Without --recipe a model of the same task uses
            the recipe fine-tune.

    Rare:
        freeze: Layers that keep their weights: embedding (with two vocabularies source_embedding,
            target_embedding), encoder, decoder/block_1, ...
        lora_rank: LoRA: rank of the updates to the kernels of attention and feed-forward network;
            all other weights are kept.
        mix_share: Share of the training data that is drawn from the data to mix in, against
            forgetting.
    """

    init_from: Annotated[str | None, "MODEL"] = None
    freeze: Annotated[tuple[str, ...], "LAYER"] = ()
    lora_rank: OptionalFrom1 = None
    mix_share: Annotated[float, check_rates] = 0.25


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileOptions(Group):
    """Data from files, or from tensorflow-datasets; several files, patterns or - (standard input).

    Args:
        train: Training data, plain or compressed.
        valid: Validation data; none: 2 % of the training data, at most about 1,000.
        test: Test data for the final scores; none: the validation data.
        dataset: Dataset of tensorflow-datasets (tfds:NAME) or of Hugging Face (hf:NAME,
            hf:NAME:CONFIGURATION, hf:FOLDER), instead of files.

    Rare:
        mix_in: Data like --train, of which a share is mixed in; see --mix-share.
        download: Download the dataset if necessary.
    """

    train: Files = None
    valid: Files = None
    test: Files = None
    mix_in: Files = None
    dataset: str | None = None
    download: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class PairOptions(Group):
    """Sentence pairs (default: generated dates); several files, patterns or - (standard input).

    Args:
        source: Sentences to translate from, one per line, plain or compressed.
        target: Their translations, line by line.
        pairs: Alternative to --source and --target: one pair per line, separated by TAB; or .jsonl,
            .parquet.
        valid_source: Validation data; none: 2 % of the training data, at most about 1,000 pairs.
        valid_target: Their translations.
        test_source: Test data for the final scores; none: the validation data.
        test_target: Their translations.
        sides: Columns of --pairs, by number from 1 or by name (none: 1 2); fields of .jsonl and
            .parquet (none: source target); languages of --dataset.
        dataset: Dataset of tensorflow-datasets (tfds:NAME), or folder for its TranslateFolder; or
            of Hugging Face (hf:NAME, hf:NAME:CONFIGURATION, hf:FOLDER).

    Rare:
        language_tags: One model for the directions in the names of --pairs, such as en-de.tsv
            en-fr.tsv: the tag of the target language is put before each source.
        directions: Directions of --language-tags, such as en-de en-fr, one for each file of
            --pairs, of --valid-pairs and of --test-pairs; none: those in their names.
        both_directions: With --language-tags, train every direction also backwards.
        corpus_temperature: With --language-tags, T: directions of n pairs get shares proportional
            to n^(1/T), the smaller ones by repetition (paper: 5).
        placeholders: Kinds of text that both sides of a pair have verbatim, masked with reserved
            pieces, as later in all texts: url, email, path, code, tag, number (docs/training.md).
        quoted: --pairs by the rules of CSV: a field in quotation marks may contain TABs; in a .csv
            file, commas separate.
        valid_pairs: Alternative to --valid-source and --valid-target.
        test_pairs: Alternative to --test-source and --test-target.
        mix_source: Additional data, of which a share is mixed in; see --mix-share.
        mix_target: Their translations.
        mix_pairs: Alternative to --mix-source and --mix-target.
        download: Download the dataset if necessary.
    """

    source: Files = None
    target: Files = None
    pairs: Files = None
    valid_source: Files = None
    valid_target: Files = None
    valid_pairs: Files = None
    test_source: Files = None
    test_target: Files = None
    test_pairs: Files = None
    mix_source: Files = None
    mix_target: Files = None
    mix_pairs: Files = None
    sides: Annotated[tuple[str, str] | None, "FROM TO"] = None
    quoted: bool = False
    dataset: str | None = None
    download: bool = False
    placeholders: Annotated[tuple[str, ...], "KIND"] = ()
    language_tags: bool = False
    directions: Annotated[tuple[str, ...], "FROM-TO"] = ()
    both_directions: bool = False
    corpus_temperature: Annotated[float, check_above_0] = 1.0

    def __post_init__(self):
        super().__post_init__()
        for each in self.directions:
            check(each.count("-") == 1, "A direction must be like en-de", directions=each)

    def directed(self, name: str) -> list[tuple[str, str]]:
        """The direction and the path of each file of an option, such as "valid_pairs"."""
        paths = data.expand_files(getattr(self, name) or ())
        directions = self.directions or [data.direction_of(path) for path in paths]
        expected = f"--directions must be as many as the {len(paths)} files of {flags([name])}"
        check(len(directions) == len(paths) or not paths, expected, directions=directions)
        return list(zip(directions, paths, strict=False))

    def all_directions(self) -> list[str]:
        """The directions of a model with language tags; none for others."""
        files = self.directed("pairs") if self.language_tags else []
        found = [direction for direction, _ in files]
        backwards = ["-".join(reversed(each.split("-"))) for each in found]
        return list(dict.fromkeys(found + backwards * self.both_directions))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreparedOptions(Group):
    """Training data larger than memory (docs/scale.md); validation data comes from files.

    Rare:
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

    Rare:
        reserve: Pieces of the vocabulary that are never split, such as <term>.
        logits_in_pieces: Less memory with a large vocabulary: pieces in which the logits of a batch
            are computed (docs/memory.md).
    """

    vocabulary: Literal["bpe", "unigram", "char", "byte"] = "bpe"
    vocabulary_size: int | None = None
    reserve: Annotated[tuple[str, ...], "PIECE"] = ()
    logits_in_pieces: OptionalFrom1 = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordOptions(Group):
    """Words and their spelling.

    Args:
        min_count: Minimum occurrences of a word; rarer ones are read by their characters alone.

    Rare:
        max_characters: Characters read per word: the first and last ones of a longer word.
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
        word_dropout: A word that occurs c times becomes the unknown word with probability
            A / (A + c); 0: never.
    """

    word_dropout: Annotated[float, "A", check_from_0] = 1.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class CleaningOptions(Group):
    """Normalization and filters.

    Rare:
        normalization: Unicode normal form; NFKC also unifies full-width letters and the like.
        lowercase: Lowercase both sides, and later all text to translate.
        max_characters: Maximum length of a side, in characters; the test data has no limit.
        max_ratio: Maximum ratio of the lengths of the two sides of a training pair.
        unique: Drop repeated training pairs.
        clean: Drop training pairs that are hardly translations, counted by reason: copies, other
            digits, other scripts; with --unique, and --max-ratio 9 unless given (docs/training.md).
    """

    normalization: NormalForm = "NFC"
    lowercase: bool = False
    max_characters: From1 = 1000
    max_ratio: Annotated[float | None, check_from_0] = None
    unique: bool = False
    clean: bool = False

    @property
    def filters(self) -> dict[str, Any]:
        """The arguments of `data.clean` for training pairs alone."""
        given = {"max_ratio": self.max_ratio, "unique": self.unique}
        return PRESET | {n: v for n, v in given.items() if v} if self.clean else given

    def __post_init__(self):
        super().__post_init__()
        ratio = self.max_ratio
        check(ratio is None or ratio >= 1, "max_ratio must be at least 1", max_ratio=ratio)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoringOptions(Group):
    """The search, and the score of its translations.

    Args:
        beams: Width of the beam search, saved with the model; 1: greedy decoding.
        tokenize: sacreBLEU's tokenizer, for the BLEU score only: 13a, zh, none, ...; the vocabulary
            is --vocabulary.

    Rare:
        length_penalty: Exponent of the length penalty, saved with the model; larger favors
            longer translations.
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


# The rules for combinations of options.

SIDES = ("source", "target", "pairs")
FILES = ("train", "valid", "test", *(x + side for x in ("", "valid_", "test_") for side in SIDES))
DATA = ("dataset", "prepared", *FILES)
MIX = ("mix_in", *(f"mix_{side}" for side in SIDES))
TEACHERS = ("diversify", "distill_from", "monolingual")  # whose translations are learned from
UNTAGGED = ("dataset", "prepared", *TEACHERS, *MIX)
UNTAGGED += tuple(f"{x}{side}" for x in ("", "valid_", "test_") for side in SIDES[:2])
# Of each pair, the one on the command line replaces the other one of the recipe.
ALTERNATIVES = (
    {"batch_size": None, "tokens_per_batch": None},
    {"ema": None, "average": 0},
    {"r_drop": None, "simcut": None},
)
# Options that exclude each other, and why.
EXCLUSIVE = (
    ("batch_size", "tokens_per_batch", "each limits a batch"),
    ("ema", "average", "each replaces the weights"),
    ("logits_in_pieces", "r_drop", "each has a training step of its own"),
    ("logits_in_pieces", "simcut", "each has a training step of its own"),
    ("r_drop", "simcut", "each has a training step of its own"),
    ("diversify", "init_from", "the teachers are trained from scratch"),
    *((name, "language_tags", "each file of pairs has a direction") for name in UNTAGGED),
    ("placeholders", "language_tags", "a tag is not masked"),
    *((name, "prepared", "a corpus is all of the data") for name in ("dataset", *TEACHERS, *MIX)),
)
WITH_LOGITS_BIAS = ("Translator", "TextGenerator")
LEARNED = ("vocabulary", "reserve", "separate_vocabularies", "placeholders")
TO_LEARN = "a vocabulary to learn, without --init-from and --prepared"
OF_CORPORA = dict(normalization="NFC", lowercase=False, max_ratio=None, unique=False, clean=False)
OF_TAGS = ("directions", "both_directions", "corpus_temperature")
DROPOUT = ("dropout", "attention_dropout")  # options of the training, not of an initial model


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(Group):
    """Base of the options of a task: groups that all tasks share. A task adds others."""

    run: RunOptions
    model: TransformerConfig
    training: TrainingOptions
    fine_tuning: FineTuningOptions

    TASK = ""  # what the script trains
    RELATED = ()  # other tasks that it can be initialized from

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Options from values by name; others have the defaults of their groups."""
        own = {}
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(field.type):
                names = [each.name for each in dataclasses.fields(field.type)]
                own[field.name] = field.type(**{n: values.pop(n) for n in names if n in values})
        return cls(**own, **values)

    def flat(self) -> dict[str, Any]:
        """All options by name, as settings.json contains them."""
        flat = {}
        for name, value in vars(self).items():
            flat |= vars(value) if dataclasses.is_dataclass(value) else {name: value}
        return flat

    def replace(self, **changes: Any) -> Self:
        """A copy with some options changed, by name."""
        return self.of(**self.flat() | changes)

    def __post_init__(self):
        super().__post_init__()
        given = self.flat()
        for one, other, why in EXCLUSIVE:
            if given.get(one) and given.get(other):
                raise ValueError(f"Give {flags([one])} or {flags([other])}, not both: {why}.")
        model, output = self.fine_tuning.init_from, self.run.output
        names = (*FILES, *MIX, "monolingual")
        check_one_stdin(path for name in names for path in given.get(name) or ())
        if model and output:
            inside = pathlib.Path(output).resolve() in pathlib.Path(model).resolve().parents
            check(not inside, "--init-from must not be within --output", init_from=model)

    @property
    def has_data(self) -> bool:
        """Whether the command line names any data."""
        return any(map(self.flat().get, DATA))

    def unused(self, initial: FileSummary | None) -> dict[str, str]:
        """The options that this combination does not use, by name, each with what uses it.

        Args:
            initial: summary of the file of --init-from; None without.
        """
        given = collections.defaultdict(lambda: None, self.flat())
        dataset, prepared = given["dataset"], given["prepared"]
        pairs = [value for name, value in given.items() if name.endswith("pairs") and value]
        files = [path for name in (*FILES, *MIX) for path in given[name] or ()]
        formats = {data.format_of(path) for path in files}
        scored = self.has_data or given["bleu_sentences"]
        has_words = initial and "max_characters" in initial.vocabulary
        needs = (
            (MIX, "training data", self.has_data),
            (["mix_share"], "data to mix in", any(map(given.get, MIX))),
            (FILES, "files, without --dataset", not dataset),
            (["download", "tokens", "tags"], "--dataset", dataset),
            (["feature"], "--dataset, .jsonl or .parquet", dataset or formats & {*RECORDS}),
            (["quoted"], "--pairs or --train", pairs or given["train"]),
            (["sides"], "--pairs or --dataset", pairs or dataset),
            (["language_tags"], "--pairs", given["pairs"]),
            (OF_TAGS, "--language-tags", given["language_tags"]),
            (["columns"], "--train or --dataset", self.has_data),
            (["column"], "a treebank (.conllu, .conll)", TREEBANK in formats),
            (["tokenize"], "a BLEU score; of dates, exact matches count", scored),
            (["weight_decay"], "--optimizer adamw, lion or muon", given["optimizer"] != "adam"),
            (["decay_share"], "--schedule wsd", given["schedule"] == "wsd"),
            (["cutoff"], "--simcut", given["simcut"]),
            (["freeze", "lora_rank"], "--init-from", initial),
            (["recipe"], "--init-from", initial or given["recipe"] != "fine-tune"),
            (["logits_bias"], "a translation or a language model", self.TASK in WITH_LOGITS_BIAS),
            (DEPTHS, "a translation; others have --num-layers", self.TASK == "Translator"),
            (["window"], "a text without --lines", not (given["lines"] or prepared)),
            (LEARNED, TO_LEARN, not (initial or prepared)),
            (OF_CORPORA, "data without --prepared, which is cleaned already", not prepared),
            # With --init-from it is refused as other sizes are.
            (["vocabulary_size"], TO_LEARN, not prepared),
            (["min_count"], "a vocabulary to learn; --init-from has one", not has_words),
            (["back_translator", "back_tag"], "--monolingual", given["monolingual"]),
            (["engine"], " or ".join(map(flags, zip(TEACHERS))), any(map(given.get, TEACHERS))),
        )
        return {name: use for names, use, exists in needs if not exists for name in names}

    def provided_by(self, summary: FileSummary) -> dict[str, Any]:
        """The options that a model file provides."""
        given, vocabulary = self.flat(), summary.vocabulary
        settings = collections.defaultdict(lambda: None, summary.settings)
        encoder = summary.config.of_encoder()  # which is what a related task takes
        sizes = [vocabulary[name] for name in vocabulary if name.endswith("vocabulary_size")]
        provided = {
            **dataclasses.asdict(summary.config if summary.task == self.TASK else encoder),
            **vocabulary,  # max_characters
            "vocabulary_size": max(sizes, default=None),
            "separate_vocabularies": len(sizes) > 1,
            "normalization": settings["normalization"] or "none",
            "lowercase": settings["lowercase"],
            "placeholders": tuple(settings["placeholders"] or ()),
            "beams": settings["beams"],
            "length_penalty": settings["length_penalty"],
            "lines": settings.get("append_end", settings["ends"]),  # ends: of version 0.1.0
            "window": settings["window"] or given.get("window"),
        }
        return {n: v for n, v in provided.items() if n in given and n not in DROPOUT}

    @property
    def rates(self) -> dict[str, float]:
        """The dropout rates, for a copy of an initial model."""
        return {name: getattr(self.model, name) for name in DROPOUT}

    @property
    def normal_form(self) -> str | None:
        """The normal form of every text, here and later in the task."""
        form = self.flat()["normalization"]
        return None if form == "none" else form

    @property
    def vocabulary_settings(self) -> tuple[int | None, str, list[str]]:
        """The size, type and reserved pieces of a vocabulary to learn, for `train_tokenizer`."""
        flat = self.flat()
        form = self.normal_form, flat.get("lowercase", False)
        reserved = [data.normalized(piece, *form) for piece in flat["reserve"]]
        return flat["vocabulary_size"], flat["vocabulary"], reserved

    @property
    def budget(self) -> dict[str, int | None]:
        """The sizes of batches, and the longest text that the finished task reads."""
        names = ("batch_size", "tokens_per_batch", "num_buckets")
        sizes = {name: getattr(self.training, name) for name in names}
        return sizes | {"max_length": self.model.max_length or LONGEST}


# The tasks.


@dataclasses.dataclass(frozen=True, kw_only=True)
class Translation(Options):
    """Translation.

    Args:
        separate_vocabularies: One vocabulary per side instead of a shared one.

    Rare:
        subword_alpha: Subword regularization: sampling parameter (papers: 0.1).
        diversify: Data diversification: number of teachers per direction.
        distill_from: Sequence-level distillation: trained translators, an ensemble if there are
            several, whose translations of the training sources are added.
        monolingual: Back-translation: text of the target language, one sentence per line, whose
            sources --back-translator writes.
        back_translator: Trained translators from the target to the source language, an ensemble if
            there are several.
        back_tag: Tag before each source that --back-translator writes, such as <bt>; none: no tag.
        engine: What decodes all these translations: auto is ctranslate2 on a CPU where it is
            installed.
    """

    files: PairOptions
    corpora: PreparedOptions
    cleaning: CleaningOptions
    tokenizer: TokenizerOptions
    scoring: ScoringOptions
    separate_vocabularies: bool = False
    subword_alpha: Annotated[float | None, check_from_0] = None
    diversify: From0 = 0
    distill_from: Annotated[tuple[str, ...], "MODEL"] = ()
    monolingual: Files = None
    back_translator: Annotated[tuple[str, ...], "MODEL"] = ()
    back_tag: Annotated[str | None, "PIECE"] = None
    engine: Literal[ENGINES] = "keras"

    TASK = "Translator"

    def __post_init__(self):
        super().__post_init__()
        alpha = self.subword_alpha
        check(alpha is None or alpha <= 1, "subword_alpha must be in [0, 1]", alpha=alpha)
        missing = self.monolingual and not self.back_translator
        check(not missing, "--monolingual needs --back-translator", monolingual=self.monolingual)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfLabels(Options):
    """Tasks that learn labels of words or texts."""

    files: FileOptions
    words: WordOptions
    labels: LabelOptions

    RELATED = ("MaskFiller", "Tagger", "Classifier", "Translator", "TextGenerator")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tagging(OfLabels):
    """Tagging.

    Args:
        train: Treebank in CoNLL-U (.conllu, .conll), or lines of word TAB tag; plain or compressed.

    Rare:
        column: Column of CoNLL-U: UPOS, XPOS, ...
        tokens: Feature of --dataset that contains the words.
        tags: Feature of --dataset that contains their tags.
    """

    column: str = "UPOS"
    tokens: Feature = "tokens"
    tags: Feature = "upos"

    TASK = "Tagger"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classification(OfLabels):
    """Classification.

    Args:
        train: Table, one text per line, columns separated by TAB; or .jsonl, .parquet; plain or
            compressed.
        columns: Columns of text and label, by number from 1 or by name (none: 1 2); fields of
            .jsonl and .parquet (none: text label); features of --dataset.

    Rare:
        quoted: Tables by the rules of CSV: a field in quotation marks may contain TABs; in a .csv
            file, commas separate.
    """

    columns: Annotated[tuple[str, str] | None, "TEXT LABEL"] = None
    quoted: bool = False

    TASK = "Classifier"


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageModelling(Options):
    """Language modelling.

    Args:
        train: Text, or a treebank (.conllu, .conll), .jsonl, .parquet; plain or compressed.
        valid: Validation data; none: the last tenth of the text, or 2 % of the lines, at most
            about 1,000.
        lines: Treat each line as a text that begins and ends.
        prompt: Text that samples begin with.
        window: Context length of a text without --lines, in tokens.

    Rare:
        normalization: Unicode normal form; NFKC also unifies full-width letters and the like.
        feature: Feature of --dataset that contains the text (none: the only one); field of .jsonl
            and .parquet (none: text).
    """

    files: FileOptions
    corpora: PreparedOptions
    tokenizer: TokenizerOptions
    normalization: NormalForm = "NFC"
    lines: bool = False
    feature: str | None = None
    prompt: str = ""
    window: From2 = 64

    TASK = "TextGenerator"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(Options):
    """Pretraining.

    Args:
        train: Text, one or more sentences per line; or a treebank (.conllu, .conll); plain or
            compressed.
        valid: Validation data; none: 2 % of the training data, at most about 1,000.
        mask_rate: Share of the words to predict.

    Rare:
        mix_in: Data like --train, of which a share is mixed in; see --mix-share.
    """

    words: WordOptions
    train: Files = None
    valid: Files = None
    mix_in: Files = None
    mask_rate: Annotated[float, check_above_0, check_rates] = 0.15

    TASK = "MaskFiller"
