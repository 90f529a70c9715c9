r"""A recording: messages as they were stored, as one stream of msgpack values.

    "rocketlet-recording-1"        what the file is, and the version of its format: 22 bytes
    [crc32, head]                  when it was begun, and which topics it is of
    [crc32, message]               one for each message, in the order of their store times
    …

    head    = {"begunTimestamp": ms, "topics": [name, …]}
    message = {"topic": …, "brokerName": …, "queueId": …, "queueOffset": …, "tags": … or nil, "keys": […],
               "properties": {name: value}, "body": bytes, "flag": …, "bornTimestamp": ms, "storeTimestamp": ms}

    [crc32, …] = 0x92, 0xCE, four bytes of the CRC-32 of what follows, a map

Rules:

- Any msgpack library reads the stream; the checksums are for readers that want to know that nothing has changed.
- Each value is written with one call, so that a file that was cut by a kill ends in the middle of its last value:
  everything before that is read, and the reader tells where it ends.
- Any other value that cannot be read is damage. A map may get further names without a new version.
- A value takes 64 MiB at most, and a reader holds no more than one of them besides a piece of 256 KiB.
"""

import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self, TypeVar

import msgpack
import msgspec

from ...common.errors import ConfigError, DecodeError, StoreError
from ...common.message import ReceivedMessage
from ...common.properties import KEYS, MAX_OFFSET, MIN_OFFSET, TAGS
from ...export.write.input_file import InputFile

VERSION: Final = 1
_NAME: Final = b"\xb5rocketlet-recording-"
MAGIC: Final = _NAME + b"%d" % VERSION
_DUMP: Final = b"\xb0rocketlet-dump-"
_START: Final = b"\x92\xce"
_START_BYTES: Final = len(_START) + 4
_PIECE_BYTES: Final = 256 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024
_LEFT_OUT: Final = frozenset({TAGS, KEYS, MIN_OFFSET, MAX_OFFSET})
"""Properties with a field of their own, and what is of the pull and not of the message."""

T = TypeVar("T", bound=msgspec.Struct)


class RecordingHead(msgspec.Struct, frozen=True, rename="camel"):
    """When a recording was begun, in epoch milliseconds, and which topics it is of."""

    begun_timestamp: int
    topics: tuple[str, ...]


class RecordedMessage(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A message as its queue had it; times are epoch milliseconds."""

    topic: str
    broker_name: str
    queue_id: int
    queue_offset: int
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    body: bytes
    flag: int
    born_timestamp: int
    store_timestamp: int

    @classmethod
    def of(cls, message: ReceivedMessage) -> Self:
        """Return a message as it is recorded: under the topic where it was stored, also when that is a retry topic."""
        queue, properties = message.queue, message.properties
        return cls(
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            message.queue_offset,
            message.tags,
            message.keys,
            {name: value for name, value in properties.items() if name not in _LEFT_OUT},
            message.body,
            message.flag,
            message.born_at_ms,
            message.stored_at_ms,
        )


class Recorded(NamedTuple):
    """A message of a recording, its number, and the byte at which the next one begins."""

    number: int
    end: int
    message: RecordedMessage


class RecordingWriter:
    """Writes a recording; ``close`` brings it to disk.

    Raises:
        ConfigError: the file exists and is not to be replaced, or cannot be written.
        StoreError: the disk takes no more of it.
    """

    def __init__(self, path: str, head: RecordingHead, *, overwrites: bool = False) -> None:
        self.path = path
        self.messages = 0
        try:
            self._file = open(path, "wb" if overwrites else "xb", buffering=0)  # noqa: SIM115 # closed by close
        except FileExistsError as error:
            raise ConfigError(f"{path} exists; --overwrite replaces it", key="--to") from error
        except OSError as error:
            raise ConfigError(f"{path} cannot be written: {error.strerror}", key="--to") from error
        self.size_bytes = 0
        try:
            self._write(MAGIC + _encode(head))
        except StoreError:
            self._file.close()
            raise

    def add(self, message: ReceivedMessage) -> None:
        """Add a message; it is in the file when this returns."""
        self._write(_encode(RecordedMessage.of(message)))
        self.messages += 1

    def close(self) -> None:
        """Bring everything to disk and close the file."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error
        finally:
            self._file.close()

    def _write(self, data: bytes) -> None:
        try:
            written = self._file.write(data)
            while written < len(data):  # a disk that gets full takes a part, and says why with the next call
                written += self._file.write(memoryview(data)[written:])
        except OSError as error:
            raise StoreError(f"{self.path} cannot be written: {error.strerror}") from error
        self.size_bytes += len(data)


class RecordingReader:
    """Reads a recording; a context manager, which raises when the file is none.

    ``end`` is the byte behind the last value that was read; once ``pieces`` is through, ``cut_bytes`` says how many
    follow it that are no whole value.

    Raises:
        ConfigError: the file cannot be read, or is no recording.
        DecodeError: it is damaged; the text names file and position.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.end = 0
        self.cut_bytes = 0
        self._unpacker = msgpack.Unpacker(max_buffer_size=_MOST_BYTES + _PIECE_BYTES)
        self._base = 0  # where in the file the unpacker began
        self._held = bytearray()  # what was read behind ``end``
        self._file = InputFile(path)
        self.size_bytes = self._file.size_bytes

    def __enter__(self) -> Self:
        """Read what it is a recording of."""
        try:
            self._check_magic(self._file.read(len(MAGIC)))
            self.end = self._base = len(MAGIC)
            head = self._next(RecordingHead)
            if head is None:
                raise self._ends_in_head()
            self.head = head
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._file.close()

    def pieces(self, until: int | None = None) -> Iterator[Sequence[Recorded]]:
        """Yield the messages in their order, a piece of the file at a time, up to a byte or the end."""
        number = 0
        piece: list[Recorded] = []
        piece_at = self.end
        while until is None or self.end < until:
            message = self._next(RecordedMessage)
            if message is None:
                break
            piece.append(Recorded(number, self.end, message))
            number += 1
            if self.end - piece_at >= _PIECE_BYTES:
                yield piece
                piece, piece_at = [], self.end
        if piece:
            yield piece

    def _check_magic(self, start: bytes) -> None:
        if start == MAGIC:
            return
        if start and MAGIC.startswith(start):
            raise self._ends_in_head()
        if start.startswith(_NAME):
            text = f"{self.path} is a recording of version {start[len(_NAME) :].decode(errors='replace')}"
            raise ConfigError(f"{text}; this rocketlet reads version {VERSION}")
        if start.startswith(_DUMP):
            raise ConfigError(f"{self.path} is no recording but a dump: rocketlet load sends it")
        text = f"at byte 0 is {start[:16]!r}" if start else "it is empty"
        raise ConfigError(f"{self.path} is no recording of rocketlet: {text}")

    def _next(self, kind: type[T]) -> T | None:
        """Return the next value; None at the end, be it whole or cut."""
        while True:
            try:
                value: object = self._unpacker.unpack()
            except msgpack.OutOfData:
                if not self._read_more():
                    self._check_cut()
                    return None
            except (ValueError, TypeError) as error:
                raise self._damaged(f"it is not msgpack: {error}") from error
            else:
                return self._checked(value, kind)

    def _read_more(self) -> bool:
        if len(self._held) > _MOST_BYTES:
            raise self._damaged(f"a value has more than {_MOST_BYTES} bytes")
        data = self._file.read(_PIECE_BYTES)
        self._unpacker.feed(data)
        self._held += data
        return bool(data)

    def _check_cut(self) -> None:
        """See that what is left is the beginning of one value: a wrong length would swallow all that follow it."""
        self.cut_bytes = len(self._held)
        at = self._held.find(_START, 1)
        while at >= 0:
            if _begins_with_value(bytes(self._held[at : at + _PIECE_BYTES])):
                raise self._damaged(f"it does not end before byte {self.end + at}, where another one begins")
            at = self._held.find(_START, at + 1)

    def _checked(self, value: object, kind: type[T]) -> T:
        size = self._base + self._unpacker.tell() - self.end
        data = bytes(self._held[:size])
        if not (isinstance(value, list) and data.startswith(_START)):
            raise self._damaged("there is no [checksum, map]")
        if not _is_sound(data):
            raise self._damaged(f"the checksum of its {size} bytes is wrong")
        try:
            found = msgspec.convert(value[1], kind, builtin_types=(bytes,))
        except msgspec.ValidationError as error:
            raise self._damaged(f"it is no {'message' if kind is RecordedMessage else 'head'}: {error}") from error
        del self._held[:size]
        self.end += size
        return found

    def _ends_in_head(self) -> ConfigError:
        return ConfigError(f"{self.path} is no whole recording: it ends at byte {self.size_bytes}, in its head")

    def _damaged(self, reason: str) -> DecodeError:
        return DecodeError(f"{self.path} is damaged at byte {self.end}: {reason}")


def _is_sound(data: bytes) -> bool:
    return zlib.crc32(memoryview(data)[_START_BYTES:]) == int.from_bytes(data[len(_START) : _START_BYTES], "big")


def _begins_with_value(data: bytes) -> bool:
    unpacker = msgpack.Unpacker()
    unpacker.feed(data)
    try:
        unpacker.skip()
    except (msgpack.OutOfData, ValueError, TypeError):
        return False
    return _is_sound(data[: unpacker.tell()])


def _encode(value: msgspec.Struct) -> bytes:
    content: bytes = msgpack.packb(msgspec.to_builtins(value, builtin_types=(bytes,)))
    return _START + zlib.crc32(content).to_bytes(4, "big") + content
