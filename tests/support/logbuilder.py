"""Writes commit logs of any content, in files of any size, as a broker would."""

import pathlib
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rocketlet.common.ids import encode_host
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import MAGIC_BLANK, NewRecord, encode_record
from rocketlet.export.write.dump_file import DumpedMessage, DumpWriter

HOST = encode_host("192.0.2.1", 10911)
FIRST_MS = 1_700_000_000_000


def make_place(path: pathlib.Path, made: str) -> None:
    """Make what is no store: nothing, a directory, a file, or an empty log."""
    if made == "file":
        path.touch()
    elif made != "nothing":
        (path / "commitlog" if made == "empty log" else path).mkdir(parents=True)


class LogBuilder:
    """A log in memory; ``save`` writes it as a store directory."""

    def __init__(self, folder: pathlib.Path, segment_bytes: int = 4096, first_file: int = 0) -> None:
        self.root = folder
        self.segment_bytes = segment_bytes
        self.offsets: list[int] = []
        self.next_ms = FIRST_MS
        self._base = first_file * segment_bytes
        self._segments = [bytearray()]
        self._next_queue_offset: dict[tuple[str, int], int] = defaultdict(int)

    @property
    def end(self) -> int:
        """The log offset behind the last record."""
        return self._base + (len(self._segments) - 1) * self.segment_bytes + len(self._segments[-1])

    def add(
        self,
        body: bytes = b"body",
        *,
        topic: str = "Topic",
        queue_id: int = 0,
        properties: Mapping[str, str] | bytes = b"",
        queue_offset: int | None = None,
        store_host: bytes = HOST,
        **fields: Any,
    ) -> int:
        """Append a record and return its log offset; ``fields`` are those of ``NewRecord``."""
        text = properties if isinstance(properties, bytes) else encode_properties(properties)
        defaults: dict[str, Any] = {"flag": 0, "sys_flag": 0, "born_at_ms": self.next_ms - 1, "born_host": HOST}
        new = NewRecord(topic, queue_id, body, text, {}, **(defaults | fields))
        if queue_offset is None:
            queue_offset = self._next_queue_offset[topic, queue_id]
            self._next_queue_offset[topic, queue_id] = queue_offset + 1
        places: dict[str, Any] = {"queue_offset": queue_offset, "stored_at_ms": self.next_ms, "store_host": store_host}
        if len(self._segments[-1]) + len(encode_record(new, log_offset=0, **places)) + 8 > self.segment_bytes:
            self.roll()
        log_offset = self.end
        self._segments[-1] += encode_record(new, log_offset=log_offset, **places)
        self.offsets.append(log_offset)
        self.next_ms += 1
        return log_offset

    def roll(self) -> None:
        """End the file with a blank, where there is room for one."""
        room = self.segment_bytes - len(self._segments[-1])
        if room:
            self._segments[-1] += struct.pack(">iI", room, MAGIC_BLANK) + bytes(room - 8)
        self._segments.append(bytearray())

    def save(self) -> pathlib.Path:
        """Write all files at full size and return the store directory."""
        folder = self.root / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(self._segments):
            if data or number == 0:
                path = folder / f"{self._base + number * self.segment_bytes:020d}"
                path.write_bytes(data + bytes(self.segment_bytes - len(data)))
        return self.root

    def files(self) -> list[pathlib.Path]:
        """Return the files of the saved log."""
        return sorted((self.root / "commitlog").iterdir())


def write_dump(path: pathlib.Path, messages: Iterable[DumpedMessage]) -> pathlib.Path:
    """Write a dump of messages and return its path."""
    writer = DumpWriter(str(path))
    writer.add(list(messages))
    writer.close()
    return path
