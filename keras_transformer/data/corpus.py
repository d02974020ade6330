"""A prepared corpus: a folder of shards of ids with the vocabulary that made them."""

import bisect
import json
import os
import pathlib
from typing import Any

import numpy as np

from ..shards.files import Shard
from ..tokenizers import SentencePieceTokenizer

FORMAT_VERSION = 1
CORPUS_FILE = "corpus.json"
SIDES = {"pairs": ("source", "target"), "texts": ("text",)}


class Corpus:
    """A corpus that `prepare_corpus` wrote, read in any order without being held in memory.

        corpus = Corpus("corpora/en-de")
        len(corpus), corpus[0]  # the plain ids of the first source and its target

    Only the lengths are in memory, 4 bytes per side. It is a data source of Grain, too:
    `grain.MapDataset.source(corpus)`.

    Args:
        folder: path of the folder.

    Attributes:
        kind: "pairs" or "texts".
        lengths: int32 array (examples, sides), number of plain ids.
        cleaning: dict, the arguments of `clean` that the texts were cleaned with.
        digest: str, a hash of all texts, the vocabularies and the cleaning.

    Raises:
        FileNotFoundError: The folder holds no complete corpus, or a shard is missing.
        ValueError: A shard is damaged (it is named), or of another version.
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = pathlib.Path(folder)
        try:
            content = json.loads((self.folder / CORPUS_FILE).read_text("utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{folder} holds no complete corpus: {CORPUS_FILE} is missing. Prepare it with "
                "keras-transformer prepare; if that was interrupted, repeat the command."
            ) from None
        if content["format_version"] > FORMAT_VERSION:
            raise ValueError(
                f"{folder} was prepared by a newer version of this package (format "
                f"{content['format_version']}; this one reads {FORMAT_VERSION}). Update it."
            )
        self.kind, self.cleaning = content["kind"], content["cleaning"]
        self.digest, self._vocabularies = content["digest"], content["vocabularies"]
        self._shards = [Shard(self.folder / name) for name in content["shards"]]
        for shard, texts in zip(self._shards, content["shards"].values(), strict=True):
            if shard.header["texts"] != texts:
                raise ValueError(
                    f"{shard.path} is a shard of another corpus. Copy the right one, or remove it "
                    "and prepare the corpus again: only this shard is then written."
                )
        self.lengths = np.concatenate([shard.lengths() for shard in self._shards])
        self._starts = np.cumsum([0, *(shard.num_examples for shard in self._shards)]).tolist()

    @property
    def sides(self) -> tuple[str, ...]:
        """The names of what an example consists of: ("source", "target") or ("text",)."""
        return SIDES[self.kind]

    @property
    def vocabularies(self) -> list[bytes]:
        """The SentencePiece model of each side."""
        return [(self.folder / name).read_bytes() for name in self._vocabularies]

    @property
    def shard_paths(self) -> list[pathlib.Path]:
        """The files of the shards, in order."""
        return [shard.path for shard in self._shards]

    def tokenizers(self) -> list[SentencePieceTokenizer]:
        """The tokenizer of each side; one for both if they share a vocabulary."""
        of_name = {
            name: SentencePieceTokenizer(proto)
            for name, proto in zip(self._vocabularies, self.vocabularies, strict=True)
        }
        return [of_name[name] for name in self._vocabularies]

    def record(self, number: int) -> tuple[bytes, np.dtype]:
        """The ids of an example as they are on disk, all sides together, and their dtype."""
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
