"""Saved tasks: the content of a .keras file, checked before any of it is loaded.

`Task.save` adds checksums: a member of the archive lists the SHA-256 of all others. They find
damage and accidental edits. They prove no origin, since whoever edits a file on purpose can add
them again, so nothing that a file names is imported or run before it is known to be harmless.

The check needs no Keras, which takes seconds to start: classes are compared by their names.
"""

import collections
import contextlib
import dataclasses
import errno
import hashlib
import io
import json
import os
import pathlib
import posixpath
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from .. import __version__, backend
from ..atomic import NO_ROOM
from ..checks import check, check_at_least, first_line
from ..data.lines import one_line
from ..models.configuration import DEPTHS, TransformerConfig
from ..tokenizers.byte_pairs import read_library
from ..tokenizers.processor import make_processor
from . import addresses, pretrained
from .addresses import IntactFileError

FORMAT_VERSION = 3  # of saved tasks; this package reads it and all before it
FIRST_VERSION_WITH_CHECKSUMS = 3

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
CHECKSUMS = "seal.json"
VOCABULARY_SIZES: dict[str, Callable[[bytes], int]] = {  # by the name of its file
    "vocabulary.spm": lambda content: make_processor(content).vocab_size(),
    "tokenizer.json": lambda content: read_library(content).get_vocab_size(),
}

# A file may name these classes of the package, and dtype policies of Keras.
TASKS = ("Classifier", "MaskFiller", "Tagger", "TextGenerator", "Translator")
MODELS = ("ClassificationModel", "LanguageModel", "TaggingModel", "Transformer")
VOCABULARIES = ("ByteLevelTokenizer", "SentencePieceTokenizer", "WordVocabulary")
PARTS = ("model", "transformer", "vocabulary", "tokenizer", "source_tokenizer", "target_tokenizer")
ADDED_OPTIONS = ("layer_norm_epsilon", "logits_bias", *DEPTHS)  # which older files lack

MAX_MEMBERS = 100
MAX_BYTES = {CONFIG: 2**28, METADATA: 2**20, CHECKSUMS: 2**20, WEIGHTS: 2**38}
MAX_BYTES |= dict.fromkeys(VOCABULARY_SIZES, 2**28)
MAX_EXPANSION = 1000  # bytes of a member per byte that it takes in the archive


@dataclasses.dataclass(frozen=True)
class FileSummary:
    """The content of a file, as `check_file` found it.

    Args:
        task: Class of the task, such as "Translator".
        model: Class of its model, such as "Transformer".
        config: The sizes and options of the model.
        vocabulary: Number of ids (and of labels), by the name of the model's argument.
        tokenizers: Class of each tokenizer or vocabulary, by the name of the task's argument.
        parameters: Number of weights.
        quantization: The modes of its quantized layers, such as ["int8"].
        settings: The plain values of the task's configuration, such as beams or labels.
        format_version: Version of the file format.
        versions: Versions of keras and keras_transformer that wrote the file, where known.
        sealed: Whether the file has checksums of its members; files of version 0.1.0 have none.
    """

    task: str
    model: str
    config: TransformerConfig
    vocabulary: dict[str, int]
    tokenizers: dict[str, str]
    parameters: int
    quantization: list[str]
    settings: dict[str, Any]
    format_version: int
    versions: dict[str, str]
    sealed: bool

    def lines(self) -> dict[str, str]:
        """Its values as text, by their names."""
        values = dataclasses.asdict(self)
        return {name.replace("_", " "): _text(value) for name, value in values.items()}


def _text(value):
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(one_line, map(str, value))) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return "none" if value is None else one_line(str(value))


def check_file(path: str | os.PathLike) -> FileSummary:
    """Checks the .keras file of a task without loading it: nothing that it names is run.

    Args:
        path: the file, its address (see `keras_transformer.tasks.addresses`), or the name of a
            model in `keras_transformer.tasks.pretrained`.

    Returns:
        `FileSummary`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is damaged, was altered after it was saved, is of a newer format, or holds
            anything but a task of this package whose values, weights and vocabulary fit together.
        OSError: It cannot be fetched.
    """
    with _one_sentence(path) as file:
        return _checked(file)


def load(path: str | os.PathLike) -> Any:
    """Loads the task of a .keras file, after `check_file`.

        translator = keras_transformer.load("runs/en-de/model.keras")
        translator = keras_transformer.load("dates")  # comes with the package
        translator = keras_transformer.load("hf://USER/MODEL")  # see `tasks.addresses`

    Args:
        path: the file, its address (see `keras_transformer.tasks.addresses`), or the name of a
            model in `keras_transformer.tasks.pretrained`.

    Returns:
        `Translator`, `TextGenerator`, `Tagger`, `Classifier` or `MaskFiller`.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: See `check_file`.
        OSError: It cannot be fetched, or there is no room to unpack it.
    """
    import keras

    from .. import _register

    _register()
    with _one_sentence(path) as file, backend.safe_mode(), backend.without_random_weights():
        summary = _checked(file)
        try:
            return keras.saving.load_model(file, compile=False)
        except Exception as error:
            if isinstance(error, (ImportError, OSError)) or not summary.sealed:
                raise
            raise IntactFileError(f"{first_line(error)}.") from error  # no memory, perhaps


def add_checksums(path: str | os.PathLike) -> None:
    """Adds the checksums of all members to a .keras file."""
    with zipfile.ZipFile(path, "a") as archive:
        checksums = {"versions": {"keras_transformer": __version__}, "sha256": _digests(archive)}
        archive.writestr(CHECKSUMS, json.dumps(checksums))


@contextlib.contextmanager
def _one_sentence(path) -> Iterator[pathlib.Path]:
    """Yields the file; any exception that a damaged one raises becomes a sentence that names it."""
    expected = "Expected a .keras file"
    with addresses.found(path) as file:
        if file.is_dir():
            raise ValueError(f"{expected}; received the folder {path}. Try {file / 'model.keras'}.")
        if not file.exists():
            names = ", ".join(pretrained.NAMES)
            raise FileNotFoundError(f"There is no model at {path}; {names} come with the package.")
        if not file.is_file():
            raise ValueError(
                f"{expected}; received {path}, a pipe or a device. Name a regular file."
            )
        if file.suffix == ".h5":
            raise ValueError(
                f"{expected}; received {path}, which holds weights without their model. Use the "
                "model.keras of its run."
            )
        try:
            yield file
        except (IntactFileError, ImportError) as error:
            raise IntactFileError(f"{path} cannot be loaded: {error}") from error
        except UnsupportedFileError as error:
            raise ValueError(f"{path} cannot be loaded: {error}") from error
        except Exception as error:  # zipfile, JSON, h5py and Keras have one for each kind of damage
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                raise OSError(
                    f"There is no room to load {path}: Keras unpacks it into "
                    f"{tempfile.gettempdir()} ({os.strerror(error.errno)}). Make room, or set "
                    "TMPDIR."
                ) from error
            # Damage may lead to a place before the file, which is EINVAL.
            of_system = isinstance(error, OSError) and error.errno not in (None, errno.EINVAL)
            if of_system or isinstance(error, MemoryError):
                problem = f"{path} cannot be read: {first_line(error)}."
                raise IntactFileError(problem) from error
            raise ValueError(
                f"{expected} of this package; {path} cannot be loaded: {first_line(error)}. "
                "Restore it from a copy, or save the model again."
            ) from error


def _checked(path):
    """The `FileSummary` of a file."""
    with zipfile.ZipFile(path) as archive:
        sizes = _check_members(archive)
        config, metadata = _read_json(archive, CONFIG), _read_json(archive, METADATA)
        version = check_version(config["config"])
        checksums = _check_checksums(archive) if CHECKSUMS in sizes else {}
        _require(
            checksums or version < FIRST_VERSION_WITH_CHECKSUMS,
            f"it lacks {CHECKSUMS}, the checksums of its members",
        )
        task = _check_task(config, version)
        parts = {name: part for name, part in config["config"].items() if name in PARTS and part}
        (model,) = filter(_is_model, parts.values())
        model_config = _check_model(model["config"])
        num_values, parameters = _count_values(archive)
        _check_sizes(model_config, model["config"], num_values)
        vocabulary = _check_vocabulary(archive, config["config"], model["config"])
        return FileSummary(
            task=task,
            model=model["class_name"],
            config=model_config,
            vocabulary=vocabulary,
            tokenizers={
                name: part["class_name"] for name, part in parts.items() if part is not model
            },
            parameters=parameters,
            quantization=sorted(set(model["config"].get("quantized", {}).values())),
            settings={
                name: value
                for name, value in config["config"].items()
                if name not in (*PARTS, "name", "format_version")
            },
            format_version=version,
            versions={"keras": metadata["keras_version"], **checksums.get("versions", {})},
            sealed=bool(checksums),
        )


def _require(holds, problem):
    if not holds:
        raise ValueError(problem)


def _check_members(archive):
    """The sizes of all members by name, each within its limit and in its place."""
    members = archive.infolist()
    sizes = {member.filename: member.file_size for member in members}
    _require(len(members) <= MAX_MEMBERS, f"its {len(members)} members are too many for a task")
    for member in members:
        name = member.filename
        _require(
            name in (CONFIG, METADATA, WEIGHTS, CHECKSUMS)
            or (name.startswith("assets/") and posixpath.normpath(name) == name.rstrip("/")),
            f"its member {name!r:.100} has no place in a task",
        )
        limit = MAX_BYTES.get(posixpath.basename(name), 0)
        _require(
            member.file_size <= min(limit, MAX_EXPANSION * max(1, member.compress_size)),
            f"its member {name!r:.100} is too large: {member.file_size} bytes",
        )
    _require(len(sizes) == len(members), "a member is there twice")
    for name in (CONFIG, METADATA, WEIGHTS):
        _require(name in sizes, f"its member {name} is missing")
    return sizes


def _read_json(archive, name):
    content = archive.read(name)
    try:
        content = json.loads(content)
    except (ValueError, RecursionError):
        content = None
    _require(isinstance(content, dict), f"its member {name} is not a JSON object")
    return content


def _digests(archive):
    """SHA-256 of each member but the checksums; reading one fully also checks its CRC."""
    digests = {}
    for name in archive.namelist():
        if name != CHECKSUMS:
            with archive.open(name) as member:
                digests[name] = hashlib.file_digest(member, "sha256").hexdigest()
    return digests


def _check_checksums(archive):
    """The member with the checksums, once they fit the others."""
    checksums = _read_json(archive, CHECKSUMS)
    altered = dict(_digests(archive).items() ^ checksums["sha256"].items())
    name = min(altered, default="")
    _require(not altered, f"its member {name!r:.100} was altered or removed after it was saved")
    return checksums


class UnsupportedFileError(ValueError):
    """A file is intact, but holds no task."""


def check_version(config: dict[str, Any]) -> int:
    """The format version of a task's configuration.

    Raises:
        IntactFileError: It is above `FORMAT_VERSION`.
    """
    version = config.get("format_version", 1)
    check_at_least(1, format_version=version)
    if version > FORMAT_VERSION:
        raise IntactFileError(
            f"expected format version {FORMAT_VERSION} or below; received {version}, "
            "written by a newer keras_transformer. Upgrade the package."
        )
    return version


# The configuration


def _check_task(config, version):
    """The name of the task's class, once every object within it is of an allowed class."""
    task = config.get("class_name")
    if task not in TASKS:
        raise UnsupportedFileError(
            f"it holds {_name_of(config)}; expected a task, such as a Translator."
        )
    for each in _objects(config | {"compile_config": None}):  # which `load` ignores
        if not _is_allowed(each, version):
            raise UnsupportedFileError(
                f"it names {_name_of(each)}; expected classes of this package and dtype policies."
            )
    return task


def _objects(value):
    """All serialized objects within a configuration, the outermost first."""
    if isinstance(value, dict):
        if "class_name" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _objects(each)


def _is_allowed(serialized, version):
    """Whether an object is a part of a task, or a dtype policy."""
    name, module, registered = map(serialized.get, ("class_name", "module", "registered_name"))
    if name == "SentencePieceTokenizer" and version == 1:  # `Task.from_config` converts KerasHub's
        return registered in ("keras_transformer>" + name, "keras_hub>" + name)
    if name in (*TASKS, *MODELS, *VOCABULARIES):
        return registered == f"keras_transformer>{name}"
    of_keras = module in ("keras", "keras.dtype_policies") and registered in (None, name)
    return of_keras and f"{name}".endswith(("DTypePolicy", "DTypePolicyMap"))


def _name_of(serialized):
    return f"{serialized.get('module')}.{serialized.get('class_name')}"[:100]


def _is_model(part):
    return isinstance(part, dict) and "num_layers" in part.get("config", {})


def _check_model(config):
    """The `TransformerConfig` within the configuration of a model."""
    names = [field.name for field in dataclasses.fields(TransformerConfig)]
    names = [name for name in names if name in config or name not in ADDED_OPTIONS]
    sizes = {name: config[name] for name in _SIZES if config.get(name) is not None}
    check_at_least(1, **sizes)
    return TransformerConfig(**{name: config[name] for name in names})


_SIZES = (
    "source_vocabulary_size", "target_vocabulary_size", "vocabulary_size",
    "num_words", "num_characters", "num_labels", "max_characters",
)  # fmt: skip


# Weights


def _count_values(archive):
    """Numbers in the file of the weights, and those among them that are parameters."""
    import h5py

    sizes, links = {}, []
    with h5py.File(io.BytesIO(archive.read(WEIGHTS)), "r") as file:
        file.visititems_links(lambda *path_and_link: links.append(path_and_link))
        for path, link in links:  # soft and external ones could lead to other files
            _require(isinstance(link, h5py.HardLink), f"its weights at {path:.100} are a link")
            if isinstance(found := file[path], h5py.Dataset):
                outside = found.external or found.is_virtual
                _require(not outside, f"its weights at {path:.100} are stored elsewhere")
                sizes[path] = found.size
    seeds = sum(size for path, size in sizes.items() if "seed_generator" in path)
    return sum(sizes.values()), sum(sizes.values()) - seeds


def _check_sizes(config, arguments, num_values):
    """Refuses sizes that the weights cannot have, before a model of these sizes is made."""
    width, layers = config.d_model, max(map(config.depth, ("encoder", "decoder")))
    least = layers * width * (width + 2 * config.d_ff) + width * max(
        config.max_length or 0, *(arguments.get(name) or 0 for name in _SIZES[:4])
    )
    # int4 packs two numbers into one
    _require(least <= 2 * num_values, "its weights are fewer than its configuration needs")


# Vocabulary


def _check_vocabulary(archive, task, model):
    """The sizes of the vocabulary, which are those of the model."""
    if "vocabulary" in task:
        return _check_words(task, model)
    sizes = {name: model[name] for name in _SIZES if model.get(name) is not None}
    expected = list(sizes.values())
    if task.get("target_tokenizer") and len(expected) == 1:  # two over one embedding
        expected *= 2
    if not task.get("target_tokenizer"):  # one over two embeddings
        expected = list(set(expected))
    paths = {path: posixpath.basename(path) for path in archive.namelist()}
    found = [
        VOCABULARY_SIZES[name](archive.read(path))
        for path, name in paths.items()
        if name in VOCABULARY_SIZES
    ]
    _require(
        collections.Counter(found) == collections.Counter(expected),
        f"expected vocabularies of {expected} ids, as its model has; received {found}",
    )
    return sizes


def _check_words(task, model):
    from ..tokenizers.words import WordVocabulary

    vocabulary = WordVocabulary.from_config(task["vocabulary"]["config"])
    labels = task.get("labels", vocabulary.masked_labels)
    sizes = {**vocabulary.sizes, "num_labels": len(labels) + 1}
    for name, size in sizes.items():
        expected = f"expected {name}={size}, as its vocabulary has"
        check(model[name] == size, expected, **{name: model[name]})
    return sizes
