"""A prepared corpus: a folder of shards of ids with the vocabulary that made them."""

import bisect
import hashlib
import json
import os
import pathlib
from typing import Any

import numpy as np

from ...checks import unexpected
from ...tokenizers.sentencepiece import SentencePieceTokenizer
from .shards import Shard

FORMAT_VERSION = 1
CORPUS_FILE = "corpus.json"
SIDES = {"pairs": ("source", "target"), "texts": ("text",)}
_FIELDS: dict[str, Any] = {
    "kind": str,
    "cleaning": dict | None,
    "examples": int,
    "vocabularies": list,
    "digest": str,
    "shards": dict,
}


class Corpus:
    """A corpus that `prepare_corpus` wrote, read in any order without being held in memory.

        corpus = Corpus("corpora/en-de")
        len(corpus), corpus[0]  # the plain ids of the first source and its target

    Only the lengths are in memory, 4 bytes per side. It is also a data source of Grain:
    `grain.MapDataset.source(corpus)`.

    Args:
        folder: path of the folder.

    Attributes:
        kind: "pairs" or "texts".
        lengths: int32 array (examples, sides), number of plain ids.
        cleaning: dict, the arguments of `clean` that the texts were cleaned with.
        vocabularies: list of bytes, the SentencePiece model of each side.
        digest: str, a hash of all texts, the vocabularies and the cleaning.

    Raises:
        FileNotFoundError: The folder holds no complete corpus, or a shard is missing.
        ValueError: A file is damaged or of another corpus (it is named), or of another version.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = pathlib.Path(folder)
        content = read_description(self.folder)
        self.kind, self.cleaning = content["kind"], content["cleaning"]
        self.digest, self._names = content["digest"], content["vocabularies"]
        self.vocabularies = read_vocabularies(self.folder, content)
        self._shards = [Shard(self.folder / name) for name in content["shards"]]
        lengths = [shard.lengths() for shard in self._shards]
        texts_of_shards = content["shards"].values()
        for shard, texts, rows in zip(self._shards, texts_of_shards, lengths, strict=True):
            if shard.header.get("texts") != texts or rows.shape[1] != len(self.sides):
                raise ValueError(
                    f"{shard.path} is a shard of another corpus. Copy the right one, or remove it "
                    "and prepare the corpus again: only this shard is then written."
                )
        self.lengths = np.concatenate(lengths)
        if len(self.lengths) != content["examples"]:
            examples = f"examples={content['examples']}"
            received = f"{examples}, of which the shards have {len(self.lengths)}"
            raise _damaged(self.folder / CORPUS_FILE, received)
        self._starts = np.cumsum([0, *map(len, lengths)]).tolist()

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of what an example consists of: ("source", "target") or ("text",)."""
        return SIDES[self.kind]

    @property
    def vocabulary_paths(self) -> list[pathlib.Path]:
        """The files of the vocabularies, one per side; a shared one comes twice."""
        return [self.folder / name for name in self._names]

    @property
    def shard_paths(self) -> list[pathlib.Path]:
        """The files of the shards, in order."""
        return [shard.path for shard in self._shards]

    def tokenizers(self) -> list[SentencePieceTokenizer]:
        """The tokenizer of each side; one for both if they share a vocabulary."""
        protos = dict(zip(self._names, self.vocabularies, strict=True))
        of_name = {name: SentencePieceTokenizer(proto) for name, proto in protos.items()}
        return [of_name[name] for name in self._names]

    def record(self, number: int) -> tuple[bytes, np.dtype]:
        """The stored ids of an example, all sides together, and their dtype."""
        shard = bisect.bisect_right(self._starts, number) - 1
        one = self._shards[shard]
        return one.read(number - self._starts[shard]), one.dtype

    def close(self) -> None:
        """Closes the files."""
        for shard in self._shards:
            shard.close()

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, number: int) -> tuple[np.ndarray, ...]:
        number = range(len(self))[number]  # IndexError; negative ones count from the end
        values, dtype = self.record(number)
        ids = np.frombuffer(values, dtype).astype("int32")
        return tuple(np.split(ids, self.lengths[number].cumsum()[:-1]))

    def __repr__(self) -> str:
        return f"Corpus({str(self.folder)!r})"  # Grain keeps it with the state of an iterator

    def __getstate__(self) -> Any:
        return self.folder  # processes open the files themselves

    def __setstate__(self, folder: Any) -> None:
        self.__init__(folder)  # type: ignore[misc]


def read_description(folder: pathlib.Path) -> dict[str, Any]:
    """The content of corpus.json.

    Args:
        folder: Path of the corpus.

    Raises:
        FileNotFoundError: The folder holds no complete corpus.
        ValueError: The file is damaged, or of a newer version.
    """
    path = folder / CORPUS_FILE
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{folder} holds no complete corpus: {CORPUS_FILE} is missing. Prepare it with "
            "keras-transformer prepare; if that was interrupted, repeat the command."
        ) from None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise _damaged(path, "not a JSON object")
    version = content.get("format_version")
    if type(version) is not int or version < 1:
        raise _damaged(path, f"format_version={version!r:.60}")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{folder} was prepared by a newer version of this package (format {version}; this one "
            f"reads {FORMAT_VERSION}). Update it."
        )
    for name, kind in _FIELDS.items():
        if name not in content or not isinstance(content[name], kind):
            raise _damaged(path, f"{name}={content.get(name)!r:.60}")
    sides, shards = SIDES.get(content["kind"]), content["shards"]
    if sides is None or len(content["vocabularies"]) != len(sides) or not shards:
        raise _damaged(path, f"{len(shards)} shards of {content['kind']!r:.60}")
    for name in (*content["vocabularies"], *shards):
        if not isinstance(name, str) or pathlib.PurePath(name).name != name:
            raise _damaged(path, f"the file name {name!r:.60}")
    return content


def read_vocabularies(folder: pathlib.Path, content: dict[str, Any]) -> list[bytes]:
    """The vocabulary of each side, compared with the digest in corpus.json.

    Args:
        folder: Path of the corpus.
        content: that of `read_description`.

    Raises:
        FileNotFoundError: A vocabulary is missing.
        ValueError: The vocabularies, the cleaning and the shards are not those of the digest.
    """
    names = content["vocabularies"]
    cure = "or prepare the corpus again, in another folder or with overwrite."
    try:
        vocabularies = [(folder / name).read_bytes() for name in names]
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error.filename}: this vocabulary of the corpus is missing. Copy it, {cure}"
        ) from None
    if content["digest"] != digest_of_corpus(content["cleaning"], vocabularies, content["shards"]):
        files = " and ".join([*dict.fromkeys(names), CORPUS_FILE])
        raise ValueError(
            f"{folder}: expected the vocabulary, cleaning and list of shards that the corpus was "
            f"prepared with, received {files} that do not belong together. Copy them again, {cure}"
        )
    return vocabularies


def digest_of(data: Any) -> str:
    """A hash of bytes, 32 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def digest_of_corpus(cleaning: Any, vocabularies: list[Any], shards: dict[str, str]) -> str:
    """The hash of a corpus; that of each shard covers its texts."""
    protos = [digest_of(proto) for proto in vocabularies]
    return digest_of(json.dumps([cleaning, protos, shards]).encode())


def _damaged(path, received):
    cure = "Copy it again, or remove it and prepare the corpus again: complete shards are kept."
    expected = "the description of a prepared corpus"
    return unexpected(path, expected, f"a damaged one ({received})", cure)
