"""One shard of a prepared corpus: an ArrayRecord file of ids that can be read in any order.

Record n holds the ids of example n, all sides of it one after the other, as little-endian uint16,
or uint32 for a larger vocabulary. Two more records follow: the lengths of all examples, int32
(examples, sides), and a header in JSON.

ArrayRecord (the format that Grain reads) keeps a checksum of each record and needs no TensorFlow.
"""

import json
import os
import pathlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...atomic import atomic_write

# One record per chunk, or a random read would decompress all of a chunk. Ids hardly compress.
WRITER_OPTIONS = "group_size:1,uncompressed"
# In the calling thread: a record is read in less time than another thread would need to start.
READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


def write_shard(
    path: str | os.PathLike, sides: Sequence[Sequence[Sequence[int]]], header: dict[str, Any]
) -> None:
    """Writes a shard, which appears complete or not at all.

    Args:
        path: Path of the file.
        sides: of each side, e.g. source and target, the plain ids of all examples.
        header: values that JSON can represent; "dtype", "<u2" or "<u4", is that of the ids.

    Raises:
        OSError: The file cannot be written.
    """
    dtype = np.dtype(header["dtype"])
    lengths = np.array([[len(ids) for ids in side] for side in sides], "<i4").T
    flat = [np.fromiter((i for ids in side for i in ids), dtype).tobytes() for side in sides]
    ends = lengths.cumsum(axis=0, dtype="int64") * dtype.itemsize
    starts = ends - lengths * dtype.itemsize
    with atomic_write(path) as temporary:
        try:
            writer = _record_module().ArrayRecordWriter(os.fspath(temporary), WRITER_OPTIONS)
            for row in zip(starts.tolist(), ends.tolist(), strict=True):
                parts = zip(flat, *row, strict=True)
                writer.write(b"".join(values[start:end] for values, start, end in parts))
            writer.write(np.ascontiguousarray(lengths).tobytes())
            writer.write(json.dumps(header).encode())
            writer.close()
        except RuntimeError as error:  # of ArrayRecord, such as for a full disk
            reason = str(error).partition(";")[0]
            raise OSError(
                f"{path}: the shard cannot be written ({reason}). Those before it are complete; "
                "make room, then continue."
            ) from error


class Shard:
    """A shard, open for reading in any order.

    Args:
        path: Path of the file.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: The file is damaged, or not a shard; also in `read`.
    """

    def __init__(self, path: str | os.PathLike):
        self.path = pathlib.Path(path)
        self._one_at_a_time = threading.Lock()
        if not self.path.is_file():
            raise FileNotFoundError(
                f"{self.path}: this shard of the corpus is missing. Copy it, or prepare the corpus "
                "again: only this shard is then written."
            )
        module = _record_module()
        with open(self.path, "rb"):  # too many open files, or no permission, is not damage
            pass
        try:
            self._reader = module.ArrayRecordReader(str(self.path), READER_OPTIONS)
            self.num_examples = self._reader.num_records() - 2
            self.header = json.loads(self.read(self.num_examples + 1))
            self.dtype = np.dtype(self.header["dtype"])
        except Exception as error:
            raise self._damaged(error) from error

    def lengths(self) -> np.ndarray:
        """int32, (examples, sides): the number of ids of each."""
        values = np.frombuffer(self.read(self.num_examples), "<i4")
        return values.reshape(self.num_examples, -1)

    def read(self, number: int) -> bytes:
        """The record of the example with this number, from 0."""
        try:
            with self._one_at_a_time:  # or another thread, as Grain's, seeks in between
                self._reader.seek(number)
                return self._reader.read()
        except Exception as error:  # the reader's are RuntimeError, ValueError, IndexError
            raise self._damaged(error) from error

    def close(self) -> None:
        """Closes the file."""
        self._reader.close()

    def _damaged(self, error):
        return ValueError(
            f"{self.path}: expected a complete shard, received a damaged one "
            f"({str(error).splitlines()[0]:.80}). Copy it again, or remove it and prepare the "
            "corpus again: only this shard is then written."
        )


def _record_module():
    """The module `array_record.python.array_record_module`."""
    try:
        from array_record.python import array_record_module
    except ImportError:
        raise ImportError(
            "A prepared corpus needs the package array_record: pip install array_record."
        ) from None
    return array_record_module
