"""Headers: blocks put together, decompressed and checked; our own written without a table.

``HeaderReader`` reads those of requests, ``encode_headers`` writes those of answers:

Rule 1: A block is decompressed even when its stream is not wanted, since the table of the connection changes with it.
Rule 2: A block that is too long ends the connection, before it is decompressed or while it is; the table of a peer that
        does so is lost.
Rule 3: Answers use no table of the connection: the first says that it has size 0. Equal headers are equal bytes then,
        made once, for all connections.

Source: RFC 7541; RFC 9113, sections 8.1 to 8.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from hpack import Encoder
from hpack.exceptions import HPACKError, OversizedHeaderListError

from ...common.errors import Http2Error
from .decompression import HeaderDecoder
from .events import Headers
from .frames import Http2Code

TABLE_OF_NOTHING = b"\x20"
"""Stands before the first block of a connection that uses no table."""
_REQUEST_NAMES = frozenset({b":method", b":scheme", b":path", b":authority"})
_NEEDED_NAMES = frozenset({b":method", b":scheme", b":path"})
_OPTIONAL_NAME = b":authority"
_WRONG_FIXED_NAMES = frozenset(
    {b":status", b"transfer-encoding"}
)  # they come without a text, by the table that all peers have
_CONNECTION_NAMES = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
_is_name = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_bad_value = re.compile(rb"[\0\r\n]").search


class HeaderReader:
    """Reads the header blocks of a connection."""

    __slots__ = ("_decoder", "_frames", "_max_block_bytes", "_max_frames", "_pieces", "_size", "is_faultless")

    def __init__(self, max_block_bytes: int, max_frames: int) -> None:
        self._decoder = HeaderDecoder(max_block_bytes, self._check)
        self.is_faultless = True
        """Whether no field of this connection had a fault: a field is looked at when it comes as a text, not each time
        that it is named by its place in the table."""
        self._max_block_bytes = max_block_bytes
        self._max_frames = max_frames
        self._pieces: list[bytes] = []
        self._size = 0
        self._frames = 0

    def __repr__(self) -> str:
        return f"<HeaderReader {self._size} bytes of a block>"

    @property
    def pending_bytes(self) -> int:
        """How much of a block that is not complete is kept."""
        return self._size

    @property
    def list_bytes(self) -> int:
        """The size of the last headers, as limits count it."""
        return self._decoder.list_bytes

    def _check(self, name: bytes, value: bytes) -> None:
        if self.is_faultless and _field_fault(name, value) is not None:
            self.is_faultless = False

    def add(self, piece: bytes) -> None:
        """Keep a piece of a block.

        Raises:
            Http2Error: the block is too long.
        """
        self._pieces.append(piece)
        self._size += len(piece)
        self._frames += 1
        if self._size > self._max_block_bytes:
            text = f"headers are {self._size} bytes, limit is {self._max_block_bytes}"
            raise Http2Error(text, Http2Code.ENHANCE_YOUR_CALM)
        if self._frames > self._max_frames:
            text = f"headers came in {self._frames} frames, limit is {self._max_frames}"
            raise Http2Error(text, Http2Code.ENHANCE_YOUR_CALM)

    def finish(self) -> Headers:
        """Return the headers of the block that is complete.

        Raises:
            Http2Error: it cannot be decompressed, or is too long then.
        """
        pieces, self._pieces, self._size, self._frames = self._pieces, [], 0, 0
        return self._decode(b"".join(pieces))

    def read(self, block: bytes) -> Headers:
        """Return the headers of a block that has come whole.

        Raises:
            Http2Error: it is too long, before or when it is decompressed, or cannot be.
        """
        if self._frames or len(block) > self._max_block_bytes:
            self.add(block)
            return self.finish()
        return self._decode(block)

    def _decode(self, block: bytes) -> Headers:
        try:
            return self._decoder.decode(block)
        except OversizedHeaderListError as error:
            text = f"headers are more than {self._max_block_bytes} bytes"
            raise Http2Error(text, Http2Code.ENHANCE_YOUR_CALM) from error
        except HPACKError as error:
            raise Http2Error(f"headers cannot be decompressed: {error}", Http2Code.COMPRESSION_ERROR) from error


def request_fault(headers: Headers, fields: Mapping[bytes, bytes], *, checks_fields: bool) -> str | None:
    """Return what is wrong with the headers of a request, if anything is; ``fields`` are the same by their names."""
    if not fields.keys() >= _NEEDED_NAMES:
        missing = _NEEDED_NAMES - fields.keys()
        return f"{b' '.join(sorted(missing)).decode()} is missing"
    if not fields[b":path"]:
        return ":path is empty"
    if not _WRONG_FIXED_NAMES.isdisjoint(fields):
        name = min(_WRONG_FIXED_NAMES & fields.keys())
        return f"{name.decode()} belongs to answers, or to connections of HTTP/1"
    pseudo = len(_NEEDED_NAMES) + (_OPTIONAL_NAME in fields)
    for name, _ in headers[:pseudo]:
        if name not in _REQUEST_NAMES:
            return f"pseudo header {name[:40]!r} is unknown, doubled or not before the others"
    if len(fields) != len(headers) and any(name in _REQUEST_NAMES for name, _ in headers[pseudo:]):
        return "a pseudo header is doubled"
    return _fields_fault(headers) if checks_fields else None


def trailers_fault(headers: Headers) -> str | None:
    """Return what is wrong with the headers behind a body, if anything is."""
    pseudo = next((name for name, _ in headers if name[:1] == b":"), None)
    return _fields_fault(headers) if pseudo is None else f"pseudo header {pseudo[:40]!r} stands behind a body"


def _fields_fault(headers: Headers) -> str | None:
    return next((fault for name, value in headers if (fault := _field_fault(name, value))), None)


def _field_fault(name: bytes, value: bytes) -> str | None:
    if not _is_name(name) and name not in _REQUEST_NAMES:
        return f"a header has the name {name[:40]!r}"
    if name in _CONNECTION_NAMES:
        return f"{name.decode()} belongs to a connection of HTTP/1"
    if _bad_value(value):
        return f"{name.decode()} has a line break or a zero in it"
    return f"te is {value[:40]!r}" if name == b"te" and value != b"trailers" else None


def body_length(headers: Headers, fields: Mapping[bytes, bytes], *, checks_fields: bool) -> int | None:
    """Return how long the body of a request is said to be, None where it is not said, -1 for headers with a fault."""
    if request_fault(headers, fields, checks_fields=checks_fields) is not None:
        return -1
    text = fields.get(b"content-length")
    if text is None:
        return None
    is_said_twice = any(name == b"content-length" and value != text for name, value in headers)
    return int(text) if text.isdigit() and len(text) <= 19 and not is_said_twice else -1


@lru_cache(maxsize=256)
def encode_headers(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return a block that means the same on every connection whose first block began with ``TABLE_OF_NOTHING``."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder.encode(headers, huffman=False).removeprefix(TABLE_OF_NOTHING)
