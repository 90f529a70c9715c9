r"""The dump: messages with all that the log knows of them, as one stream of msgpack values.

    "rocketlet-dump-1"                    what the file is: 17 bytes
    mark, {"id": …, "made": …}            which dump it is
    mark, message, message, …             a block: so many messages, so many bytes
    mark, message, …
    mark                                  of no messages and no bytes: the end

    mark = [crc32 of the bytes, bytes, messages, messages before]     25 bytes, see ``_MARK``

    message = {"topic": …, "queueId": …, "queueOffset": …, "logOffset": …, "msgId": …, "offsetMsgId": …,
               "properties": {name: value}, "body": bytes or nil, "flag": …, "sysFlag": …,
               "bornTimestamp": ms, "storeTimestamp": ms, "bornHost": …, "storeHost": …, "reconsumeTimes": …,
               "preparedTransactionOffset": …, "bodyCrc": …}

Rules:

- Any msgpack library reads the stream: values that are maps with a topic are messages. Marks are for readers that want
  to know that all is there, or to begin in the middle.
- Names and meanings are those of ``export.schema``; tags and keys are among the properties, as TAGS and KEYS. A body
  that could not be inflated is nil.
- A block holds up to 1,000 messages and about 1 MiB, and a reader takes none above 1 GiB.
"""

import os
import struct
import uuid
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

import msgspec
import pyarrow as pa

from ...common.errors import ConfigError, DecodeError
from ..columns.schema import pick_columns
from .input_file import InputFile

MAGIC: Final = b"\xb0rocketlet-dump-1"
_MARK: Final = struct.Struct(">BBIBIBIBQ")
_ARRAY_OF_4, _UINT32, _UINT64, _ARRAY_32 = 0x94, 0xCE, 0xCF, b"\xdd"
_BLOCK_MESSAGES: Final = 1_000
_BLOCK_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 1024 * 1024 * 1024


class DumpedMessage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A message as the log had it; times are epoch milliseconds."""

    topic: str
    queue_id: int
    queue_offset: int
    log_offset: int
    msg_id: str
    offset_msg_id: str
    properties: dict[str, str]
    body: bytes | None
    flag: int
    sys_flag: int
    born_timestamp: int | None
    store_timestamp: int | None
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int


class DumpInfo(msgspec.Struct, frozen=True):
    """Which dump it is: a random id, and when it was made (ISO 8601)."""

    id: str
    made: str


class DumpBlock(NamedTuple):
    """Messages that follow one another, the number of the first, and where in the file the block begins and ends."""

    number: int
    position: int
    end: int
    messages: list[DumpedMessage]


COLUMNS: Final = pick_columns(msgspec.structs.fields(DumpedMessage)[number].encode_name for number in range(17))
_TIMES: Final = frozenset({"bornTimestamp", "storeTimestamp"})
_encoder: Final = msgspec.msgpack.Encoder()
_decode_messages: Final = msgspec.msgpack.Decoder(list[DumpedMessage]).decode
_decode_info: Final = msgspec.msgpack.Decoder(DumpInfo).decode


def messages_of(batch: pa.RecordBatch) -> list[DumpedMessage]:
    """Return the messages of a record batch with ``COLUMNS``."""
    columns = [_values(name, batch.column(place)) for place, name in enumerate(COLUMNS.names)]
    return [DumpedMessage(*values) for values in zip(*columns, strict=True)]


class DumpWriter:
    """Writes a dump; a ``Writer`` of ``export.write``."""

    def __init__(self, path: str, _schema: pa.Schema = COLUMNS) -> None:
        self._file = open(path, "wb")  # noqa: SIM115 # closed by close
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self.messages = 0
        self._file.write(MAGIC)
        info = _encoder.encode(DumpInfo(uuid.uuid4().hex, datetime.now(UTC).isoformat(timespec="seconds")))
        self._file.write(_encode_mark(info, 0, 0) + info)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the messages of a batch with ``COLUMNS``."""
        self.add(messages_of(batch))

    def add(self, messages: Sequence[DumpedMessage]) -> None:
        """Add messages."""
        for message in messages:
            encoded = _encoder.encode(message)
            self._waiting.append(encoded)
            self._waiting_bytes += len(encoded)
            if len(self._waiting) == _BLOCK_MESSAGES or self._waiting_bytes >= _BLOCK_BYTES:
                self._write_block()

    def close(self) -> None:
        """Write the end, and bring the file to disk."""
        if self._waiting:
            self._write_block()
        self._file.write(_encode_mark(b"", 0, self.messages))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def release(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _write_block(self) -> None:
        content = b"".join(self._waiting)
        self._file.write(_encode_mark(content, len(self._waiting), self.messages))
        self._file.write(content)
        self.messages += len(self._waiting)
        self._waiting.clear()
        self._waiting_bytes = 0


class DumpReader:
    """Reads a dump; a context manager, which raises when the file is none.

    Once the last block was read, ``messages`` is the number of all.

    Raises:
        ConfigError: The file cannot be read, or is no dump.
        DecodeError: It is damaged, or not complete; the text names file and position.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.messages: int | None = None
        self._file = InputFile(path)
        self.size_bytes = self._file.size_bytes

    def __enter__(self) -> Self:
        """Read which dump it is."""
        try:
            self.info = self._read_head()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def blocks(self, first: int = 0) -> Iterator[DumpBlock]:
        """Yield the blocks in order, from the one that holds message ``first``; what comes before is passed over."""
        number = 0
        while True:
            position = self._file.tell()
            mark = self._read_mark(position)
            if mark.before != number:
                raise self._damaged(position, f"the block says that {mark.before} messages precede it, not {number}")
            if not mark.messages:
                self._check_end(mark, position)
                self.messages = number
                return
            number += mark.messages
            if number <= first:
                self._pass_over(mark, position)
                continue
            messages = self._read_messages(mark, position)
            yield DumpBlock(mark.before, position, self._file.tell(), messages)

    def _read_head(self) -> DumpInfo:
        start = self._file.read(len(MAGIC))
        if start != MAGIC:
            text = "it is empty" if not start else f"it begins with {start[:16]!r}"
            raise ConfigError(f"{self.path} is no dump of rocketlet: {text}")
        position = self._file.tell()
        mark = self._read_mark(position)
        content = self._read_content(mark, position)
        if mark.messages or mark.before:
            raise self._damaged(position, "the head is missing")
        try:
            return _decode_info(content)
        except msgspec.DecodeError as error:
            raise self._damaged(position, f"the head cannot be read: {error}") from error

    def _read_mark(self, position: int) -> "_Mark":
        data = self._file.read(_MARK.size)
        if len(data) < _MARK.size:
            raise self._cut(position)
        kind, *numbers = _MARK.unpack(data)
        if kind != _ARRAY_OF_4 or numbers[0::2] != [_UINT32, _UINT32, _UINT32, _UINT64]:
            raise self._damaged(position, "there is no mark")
        mark = _Mark(*numbers[1::2])
        if mark.size > _MOST_BYTES or mark.messages > mark.size:
            raise self._damaged(position, f"the mark tells of {mark.messages} messages in {mark.size} bytes")
        return mark

    def _read_content(self, mark: "_Mark", position: int) -> bytes:
        content = self._file.read(mark.size)
        if len(content) < mark.size:
            raise self._cut(position)
        if zlib.crc32(content) != mark.crc:
            raise self._damaged(position, f"the checksum of its {mark.size} bytes is wrong")
        return content

    def _read_messages(self, mark: "_Mark", position: int) -> list[DumpedMessage]:
        content = self._read_content(mark, position)
        try:
            return _decode_messages(_ARRAY_32 + mark.messages.to_bytes(4, "big") + content)
        except msgspec.DecodeError as error:
            raise self._damaged(position, f"a message of it cannot be read: {error}") from error

    def _pass_over(self, mark: "_Mark", position: int) -> None:
        if self._file.skip(mark.size) > self.size_bytes:
            raise self._cut(position)

    def _check_end(self, mark: "_Mark", position: int) -> None:
        if mark.size or mark.crc or self._file.read(1):
            raise self._damaged(position, "it is no end, or something follows it")

    def _damaged(self, position: int, reason: str) -> DecodeError:
        return DecodeError(f"{self.path} is damaged in the block at byte {position}: {reason}")

    def _cut(self, position: int) -> DecodeError:
        return DecodeError(
            f"{self.path} is not complete: it ends at byte {self.size_bytes}, in the block at byte {position}"
        )


class _Mark(NamedTuple):
    """What precedes a block."""

    crc: int
    size: int
    messages: int
    before: int


def _encode_mark(content: bytes, messages: int, before: int) -> bytes:
    numbers = zlib.crc32(content), _UINT32, len(content), _UINT32, messages, _UINT64, before
    return _MARK.pack(_ARRAY_OF_4, _UINT32, *numbers)


def _values(name: str, column: pa.Array) -> Sequence[Any]:
    if name in _TIMES:
        return [None if at is None else at // 1000 for at in column.cast(pa.int64()).to_pylist()]
    if name == "properties":
        return [dict(pairs) for pairs in column.to_pylist()]
    return column.to_pylist()
