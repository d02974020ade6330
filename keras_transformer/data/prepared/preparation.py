"""A corpus of any size as shards of ids: read, cleaned and tokenized as a stream."""

import contextlib
import hashlib
import itertools
import json
import logging
import os
import pathlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...atomic import LOCK, OwnedFiles, atomic_write, write_text
from ...checks import check, check_at_least, check_optional, unexpected
from ...tokenizers.base import checked_texts
from ...tokenizers.sampling import SAMPLED_TOGETHER
from ...tokenizers.sentencepiece import SentencePieceTokenizer, train_tokenizer
from ..cleaning import Cleaner
from . import DEFAULT_SAMPLE
from .corpus import (
    CORPUS_FILE,
    FORMAT_VERSION,
    SIDES,
    Corpus,
    digest_of,
    digest_of_corpus,
    read_description,
    read_vocabularies,
)
from .shards import Shard
from .workers import ShardWriters

PREPARATION_FILE = "preparation.json"
VOCABULARY = "vocabulary.spm"  # shared by the sides, or one per side
FILES = OwnedFiles(
    "corpus",
    (PREPARATION_FILE, CORPUS_FILE),
    ("format_version", "kind", "shard_size"),
    (
        VOCABULARY,
        *(f"{side}.spm" for sides in SIDES.values() for side in sides),
        "shard-[0-9]*.array_record",
    ),
    CORPUS_FILE,
)


def prepare_corpus(
    folder: str | os.PathLike,
    read: Callable[[], Iterable[tuple[str, ...]]],
    kind: str = "pairs",
    *,
    origin: Any = None,
    files: Iterable[str | os.PathLike] = (),
    read_once: bool = False,
    tokenizers: Sequence[SentencePieceTokenizer] | None = None,
    vocabulary_size: int | None = None,
    model_type: str = "bpe",
    reserve: Sequence[str] = (),
    separate_vocabularies: bool = False,
    sample: int = DEFAULT_SAMPLE,
    cleaning: Mapping[str, Any] | None = None,
    shard_size: int = SAMPLED_TOGETHER,
    num_processes: int | None = None,
    overwrite: bool = False,
) -> Corpus:
    """Writes a corpus that need not fit into memory as shards of ids, for `PreparedBatches`.

    Repeated after an interruption, without `overwrite`, it continues: complete shards are kept, and
    so is the vocabulary.

    Args:
        folder: path of the folder to write.
        read: function without arguments that returns the examples, (source, target) or (text,);
            those with a blank side are dropped. Called again, it returns them once more.
        kind: "pairs" or "texts".
        origin: value that JSON can represent, where the examples come from; an interrupted
            preparation continues with the same one alone.
        files: paths that `read` reads; an interrupted preparation continues only if none of the
            regular files among them has changed.
        read_once: bool, whether `read` can be called only once, as for the standard input. The
            sample is then the first examples instead of random ones.
        tokenizers: one per side; None: a vocabulary is learned from a sample.
        vocabulary_size, model_type, reserve: see `train_tokenizer`.
        separate_vocabularies: bool, whether each side has a vocabulary of its own.
        sample: int from 1, maximum number of examples that a vocabulary is learned from; they are
            held in memory.
        cleaning: arguments of `clean`; None: the texts stay unchanged.
        shard_size: int from 1, examples per shard. With the default, random segmentations equal
            those of `SentencePieceTokenizer.encode` for the whole corpus.
        num_processes: int from 1, processes that tokenize and write; None: one per core.
        overwrite: bool, whether a corpus in the folder may be replaced; it is kept in a folder
            .replaced-N in it until the new one is complete. Shards of an interrupted preparation
            are then written again.

    Returns:
        `Corpus`.

    Raises:
        FileExistsError: The folder holds a complete corpus, or one of other settings, or a file
            of another program, with a name that a corpus uses.
        BlockingIOError: Another process prepares the corpus.
        ValueError: An argument is out of range, a tokenizer is not one of SentencePiece, or
            no example is left.
        OSError: A shard cannot be written.
    """
    check(kind in SIDES, f"kind must be one of {', '.join(SIDES)}", kind=kind)
    check_at_least(1, sample=sample, shard_size=shard_size)
    check_optional(1, num_processes=num_processes)
    compares = dict(cleaning or {}).get("plausible")
    check(kind == "pairs" or not compares, "plausible compares the sides of pairs", kind=kind)
    Cleaner(**(cleaning or {}))  # checks them while an earlier corpus is still in its place
    vocabulary: list[Any] = [vocabulary_size, model_type, separate_vocabularies, sample, *reserve]
    if tokenizers is not None:
        _check_vocabularies(tokenizers, SIDES[kind])
        vocabulary = [digest_of(each.proto) for each in tokenizers]
    settings = {
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "origin": origin,
        "cleaning": dict(cleaning) if cleaning is not None else None,
        "vocabulary": vocabulary,
        "shard_size": shard_size,
        "files": {os.fspath(path): _digest_of_file(path) for path in files if os.path.isfile(path)},
    }
    settings = json.loads(json.dumps(settings))  # lists for tuples, as they are read again
    folder = FILES.check(folder)
    is_new = not folder.exists()
    with FILES.lock(folder), _nothing_left_of_a_refusal(folder, kind, is_new):
        _begin(folder, settings, overwrite)
        examples = _Examples(read, SIDES[kind], settings["cleaning"])
        stream = examples.iterate()
        tokenizers = tokenizers or _saved_tokenizers(folder, kind)
        if not tokenizers:
            rows, stream = examples.sample(stream, sample, read_once)
            learned = vocabulary_size, model_type, reserve
            tokenizers = _learned(rows, learned, separate_vocabularies)
            del rows
        names = _save_vocabularies(folder, tokenizers, kind)
        headers = _write_shards(folder, stream, tokenizers, settings, num_processes)
        if not headers:
            raise examples.nothing_left()
        examples.log_report()
        shards = {_shard_name(header["number"]): header["texts"] for header in headers}
        protos = [each.proto for each in tokenizers]
        content = {
            **settings,
            "examples": sum(header["examples"] for header in headers),
            "vocabularies": names,
            "digest": digest_of_corpus(settings["cleaning"], protos, shards),
            "shards": shards,
        }
        write_text(folder / CORPUS_FILE, json.dumps(content, indent=2) + "\n")
        FILES.remove_replaced(folder)
    return Corpus(folder)


class _Examples:
    """The cleaned examples, read again in each pass."""

    def __init__(self, read, sides, cleaning):
        self._read, self._sides, self._cleaning = read, sides, cleaning

    def iterate(self):
        self._total = self._blank = 0
        options = {"normalization": None} if self._cleaning is None else self._cleaning
        self._cleaner = Cleaner(**options, on_disk=True)
        return self._cleaner.iterate(self._complete())

    def sample(self, stream, number, read_once):
        """At most `number` examples of a stream, and the stream of all."""
        if read_once:
            chosen = list(itertools.islice(stream, number))
            stream = itertools.chain(chosen, stream)
        else:
            chosen = _reservoir(stream, number)
        if not chosen:
            raise self.nothing_left()
        return chosen, stream if read_once else self.iterate()

    def log_report(self):
        """Logs how many examples the last pass has dropped."""
        if self._blank:
            logging.getLogger(__name__).warning(
                "Dropped %d of %d examples with a blank side.", self._blank, self._total
            )
        return self._cleaner.log_report()

    def nothing_left(self):
        report = self.log_report()
        if self._cleaner.total:
            return self._cleaner.nothing_left(report)
        return ValueError(
            f"Expected at least one complete example, received {self._total}, all with a blank "
            "side. Check that these are the right files and columns."
        )

    def _complete(self):
        for row in self._read():
            self._total += 1
            is_tuple = isinstance(row, (tuple, list)) and len(row) == len(self._sides)
            if not (is_tuple and all(isinstance(text, str) for text in row)):
                raise ValueError(
                    f"Every example must be a tuple of {len(self._sides)} str "
                    f"({', '.join(self._sides)}); received {row!r:.80} as number {self._total}."
                )
            if all(text.strip() for text in row):
                yield row
            else:
                self._blank += 1


def _check_vocabularies(tokenizers, sides):
    names = [type(each).__name__ for each in tokenizers]
    expected = f"Expected a tokenizer per side ({', '.join(sides)})"
    check(len(tokenizers) == len(sides), expected, tokenizers=names)
    read = all(isinstance(each, SentencePieceTokenizer) for each in tokenizers)
    expected = "The processes that write a corpus read SentencePiece vocabularies alone"
    check(read, f"{expected}; learn one, or take that of another model", tokenizers=names)


@contextlib.contextmanager
def _nothing_left_of_a_refusal(folder, kind, is_new):
    """After a ValueError, removes a new folder in which no shard of a corpus has been written."""
    try:
        yield
    except ValueError:
        vocabularies = [VOCABULARY, *(f"{side}.spm" for side in SIDES[kind])]
        # The lock last: until then the folder is ours alone.
        names = [*vocabularies, PREPARATION_FILE, LOCK]
        if is_new and {*os.listdir(folder)} <= {*names}:
            with contextlib.suppress(OSError):
                for name in names:
                    (folder / name).unlink(missing_ok=True)
                folder.rmdir()
        raise


def _begin(folder, settings, overwrite):
    """Continues the corpus in the folder, or makes room for a new one."""
    path, complete = folder / PREPARATION_FILE, folder / CORPUS_FILE
    made = {*FILES.names_in(folder)} - {PREPARATION_FILE}
    if made and (path.exists() or complete.exists()) and not overwrite:
        _check_same(folder, settings)
        if complete.exists():
            content = read_description(folder)
            read_vocabularies(folder, content)
            if all((folder / name).exists() for name in content["shards"]):
                FILES.remove_replaced(folder)  # after a kill
                raise FileExistsError(
                    f"{folder} already holds this corpus, complete; use it, or overwrite it."
                )
        return
    FILES.set_aside(folder)
    write_text(path, json.dumps(settings, indent=2) + "\n")


def _check_same(folder, settings):
    """Refuses to continue a preparation of other settings, or of files that have changed."""
    path = folder / PREPARATION_FILE
    try:
        before = json.loads(path.read_text("utf-8")) if path.exists() else {}
        files = before.pop("files", settings["files"])  # older corpora lack it
        changed = [
            name for name, digest in settings["files"].items() if files.get(name, digest) != digest
        ]
    except (ValueError, AttributeError, TypeError, RecursionError):
        expected, cure = "the settings of a preparation", "Choose another folder, or overwrite it."
        raise unexpected(path, expected, "a damaged file", cure) from None
    keys = sorted({*before, *settings} - {"files"})
    differ = [key for key in keys if before.get(key) != settings.get(key)]
    if differ or changed:
        received = f"other examples or settings (not the same {', '.join(differ)})"
        if not differ:
            received = f"these files from before a change of {', '.join(changed)}"
        raise FileExistsError(
            f"{folder} holds a corpus of {received}; choose another folder, or overwrite it."
        )


def _digest_of_file(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, hashlib.blake2b).hexdigest()[:32]


def _saved_tokenizers(folder, kind):
    """The vocabularies of an interrupted preparation, one per side; None without any."""
    for names in ([VOCABULARY] * len(SIDES[kind]), [f"{side}.spm" for side in SIDES[kind]]):
        if all((folder / name).exists() for name in names):
            of_name = {name: read_tokenizer(folder / name) for name in dict.fromkeys(names)}
            return [of_name[name] for name in names]
    return None


def read_tokenizer(path: str | os.PathLike) -> SentencePieceTokenizer:
    """The tokenizer of a SentencePiece model; an error names the file."""
    proto = pathlib.Path(path).read_bytes()
    try:
        return SentencePieceTokenizer(proto)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _save_vocabularies(folder, tokenizers, kind):
    """Writes the vocabularies, and returns the name of the file of each side."""
    one = len({each.proto for each in tokenizers}) == 1
    names = [VOCABULARY] * len(tokenizers) if one else [f"{s}.spm" for s in SIDES[kind]]
    for name, tokenizer in zip(names, tokenizers, strict=True):
        if not (folder / name).exists():
            with atomic_write(folder / name) as temporary:
                temporary.write_bytes(tokenizer.proto)
    return names


def _reservoir(rows, number):
    """A random sample of a stream, in its order; all of a short one. Vitter 1985, algorithm R."""
    generator, chosen = random.Random(0), []
    for n, row in enumerate(rows):
        if n < number:
            chosen.append((n, row))
        elif (place := generator.randrange(n + 1)) < number:
            chosen[place] = n, row
    return [row for _, row in sorted(chosen)]


def _learned(rows, settings, separate):
    """The tokenizer of each side, learned from rows."""
    sides = [list(side) for side in zip(*rows, strict=True)]
    if separate:
        return [train_tokenizer(side, *settings) for side in sides]
    texts = itertools.chain.from_iterable(sides)
    return [train_tokenizer(texts, *settings)] * len(sides)


def _write_shards(folder, stream, tokenizers, settings, num_processes):
    """Writes the shards that are missing; returns the headers of all."""
    largest = max(each.vocabulary_size() for each in tokenizers)
    dtype = "<u2" if largest <= 2**16 else "<u4"
    vocabularies = [each.proto for each in tokenizers]
    names = [digest_of(proto) for proto in vocabularies]
    headers: list[dict[str, Any]] = []

    def missing():
        for number in itertools.count():
            rows = list(itertools.islice(stream, settings["shard_size"]))
            if not rows:
                return
            texts = [checked_texts(side) for side in zip(*rows, strict=True)]
            header = {
                "dtype": dtype,
                "number": number,
                "examples": len(rows),
                "texts": digest_of(repr((number, names, texts)).encode()),
            }
            headers.append(header)
            path = folder / _shard_name(number)
            if not path.exists() or _header_of(path) != header:
                part = {"texts": texts, "vocabularies": vocabularies, "header": header}
                yield {"path": str(path), **part}

    with ShardWriters(num_processes) as writers:
        writers.run("write_texts", missing())
    return headers


def _header_of(path):
    """The header of a shard; None if it is damaged."""
    try:
        shard = Shard(path)
    except ValueError:
        return None
    shard.close()
    return shard.header


def _shard_name(number):
    return f"shard-{number:05d}.array_record"
