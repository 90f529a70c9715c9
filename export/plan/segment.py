"""A segment of a commit log over one read-only map of its own, and parts of its records as Arrow arrays.

Rules:

- The map lives as long as something refers to it; nothing is closed by hand, since slices may be in use anywhere.
  It shows the file as it is when it is mapped (``store.maps``): reading it takes no room of a tmpfs.
- Arrays are copies, never slices of the map.
"""

import mmap
import os
from typing import cast

import numpy as np
import pyarrow as pa

from ...common.errors import StoreError
from ...store.commitlog.record_blocks import Block, Longs, SegmentBytes
from ...store.files.files import OS_FILES, check_map, damaged_by_cut


class Segment(SegmentBytes):
    """The first ``size`` bytes of a commit log file, read by somebody who does not own the store."""

    def __init__(self, path: str, base_offset: int, size: int) -> None:
        view = OS_FILES.map_written(path, size)
        cast("mmap.mmap", view.obj).madvise(mmap.MADV_SEQUENTIAL)
        super().__init__(path, base_offset, view)

    def window(self, position: int, least: int = 0) -> SegmentBytes:
        """Return all bytes, for a map is not fetched in parts (``logfile.LogFile``)."""
        check_map(self.view)
        return self

    def next_data(self, position: int) -> int | None:
        """Return where data follow a hole of the file, or the position (``logfile.LogFile``)."""
        try:
            descriptor = OS_FILES.open(self.path)
        except OSError:
            return position
        try:
            return OS_FILES.next_data(descriptor, position)
        finally:
            os.close(descriptor)


def map_file(path: str, base_offset: int, size: int) -> Segment:
    """Map the first bytes of a file.

    Raises:
        StoreDamagedError: It has become shorter.
        StoreError: It is gone, or cannot be read.
    """
    try:
        if (found := OS_FILES.size(path)) < size:
            raise damaged_by_cut(path, found, size)
        return Segment(path, base_offset, size)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def texts(segment: SegmentBytes, at: Longs, sizes: Longs) -> pa.Array:
    """Return the bytes at each position as a binary array.

    One array over the map is laid out in which pieces and the gaps between them alternate, and every second
    element of it is taken.
    """
    count = len(at)
    if not count:
        return pa.array([], pa.binary())
    first = int(at[0])
    offsets = np.empty(2 * count, np.int32)
    np.subtract(at, first, out=offsets[0::2], casting="unsafe")
    np.add(offsets[0::2], sizes, out=offsets[1::2], casting="unsafe")
    pieces = pa.py_buffer(segment.view).slice(first, int(offsets[-1]))
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), pieces])
    return both.take(pa.array(np.arange(0, 2 * count, 2)))


def bodies(block: Block) -> pa.Array:
    """Return the bodies as stored."""
    return texts(block.segment, block.body_at, block.body_bytes)


def topics(block: Block) -> tuple[Longs, list[str]]:
    """Return the number of each row's topic, and the topics by number."""
    coded = texts(block.segment, block.topic_at, block.topic_bytes).dictionary_encode()
    names = [str(name, "utf-8", "replace") for name in coded.dictionary.to_pylist()]
    return np.asarray(coded.indices, np.int64), names
