"""Extended queue entries that a Java broker wrote (``enableConsumeQueueExt``): read, never written.

    consumequeue_ext/<topic>/<queueId>/<20 digits>
    unit: size 2 | tags code 8 | store time 8 | bits 2 | bitmap        a size of -1 ends a file

Rules (``ConsumeQueueExt``; store.md §3.7):

- A tags code of -2147483649 and below is an address: -2^63 plus the position of a unit in all files. A hash is never
  that small.
- What cannot be read means that the message may be wanted: the client compares tags anyway.
- Queues that are written here have plain tags codes; both kinds may stand in one queue.
"""

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from ..files.descriptors import Descriptors
from ..files.files import Files
from ..files.segments import segment_path

LAST_ADDRESS: Final = -2_147_483_649
_LEAST: Final = -(2**63)
_UNIT: Final = struct.Struct(">hqqh")


class ExtUnit(NamedTuple):
    """What stands at an address."""

    tags_code: int
    stored_at_ms: int
    bitmap: bytes


class ExtQueues:
    """The extended entries of a store."""

    def __init__(self, files: Files, root: str, descriptors: Descriptors) -> None:
        self._files = files
        self._root = root
        self._descriptors = descriptors
        self._file_bytes: dict[tuple[str, int], int] = {}

    def unit(self, topic: str, queue_id: int, address: int) -> ExtUnit | None:
        """Return the unit at an address, ``None`` when it cannot be read."""
        file_bytes = self._size_of_files(topic, queue_id)
        if address > LAST_ADDRESS or file_bytes == 0:
            return None
        offset = address - _LEAST
        position = offset % file_bytes
        path = segment_path(f"{self._root}/{topic}/{queue_id}", offset - position)
        try:
            descriptor = self._descriptors.get(path)
            head = self._files.pread(descriptor, _UNIT.size, position)
            size, tags_code, stored_at_ms, bits = _UNIT.unpack(head)
            bitmap = self._files.pread(descriptor, bits, position + _UNIT.size) if bits > 0 else b""
        except (OSError, struct.error):
            return None
        is_whole = size == _UNIT.size + len(bitmap) and len(bitmap) == max(bits, 0)
        return ExtUnit(tags_code, stored_at_ms, bitmap) if is_whole else None

    def resolve(self, topic: str, queue_id: int, code: int) -> int | None:
        """Return the tags code that an entry stands for, ``None`` when it cannot be known."""
        if code > LAST_ADDRESS:
            return code
        unit = self.unit(topic, queue_id, code)
        return None if unit is None else unit.tags_code

    def accepting(self, topic: str, queue_id: int, accepts: Callable[[int], bool]) -> Callable[[int], bool]:
        """Return the filter for entries whose codes may be addresses."""

        def accepts_entry(code: int) -> bool:
            found = self.resolve(topic, queue_id, code)
            return found is None or accepts(found)

        return accepts_entry

    def remove_topic(self, topic: str) -> None:
        """Remove the files of a topic."""
        root = f"{self._root}/{topic}"
        for queue in self._files.list(root):
            for file in self._files.list(f"{root}/{queue.name}"):
                self._descriptors.drop(f"{root}/{queue.name}/{file.name}")
                self._files.unlink(f"{root}/{queue.name}/{file.name}")
            self._files.remove_directory(f"{root}/{queue.name}")
        if self._files.exists(root):
            self._files.remove_directory(root)

    def _size_of_files(self, topic: str, queue_id: int) -> int:
        """Return the length of a queue's files, which all have the same; 0 without any."""
        key = topic, queue_id
        if key not in self._file_bytes:
            found = self._files.list(f"{self._root}/{topic}/{queue_id}")
            self._file_bytes[key] = max((entry.size for entry in found if not entry.is_directory), default=0)
        return self._file_bytes[key]


def is_same_entry(known: bytes, wanted: bytes) -> bool:
    """Tell whether two entries name the same record; an address stands for whatever code the record has."""
    if known == wanted:
        return True
    return known[:12] == wanted[:12] and int.from_bytes(known[12:20], "big", signed=True) <= LAST_ADDRESS
