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
from functools import lru_cache

from hpack import Encoder
from hpack.exceptions import HPACKError, OversizedHeaderListError

from ...common.errors import Http2Error
from .decompression import HeaderDecoder
from .events import Headers
from .frames import Http2Code

TABLE_OF_NOTHING = b"\x20"
"""Stands before the first block of a connection that uses no table."""
_FIELD_BYTES = 32  # counted for each header beside its name and value
_REQUEST_NAMES = frozenset({b":method", b":scheme", b":path", b":authority"})
_NEEDED_NAMES = frozenset({b":method", b":scheme", b":path"})
_CONNECTION_NAMES = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
_is_name = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_bad_value = re.compile(rb"[\0\r\n]").search


class HeaderReader:
    """Reads the header blocks of a connection."""

    __slots__ = ("_decoder", "_frames", "_max_block_bytes", "_max_frames", "_pieces", "_size")

    def __init__(self, max_block_bytes: int, max_frames: int) -> None:
        self._decoder = HeaderDecoder(max_block_bytes)
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
        try:
            return self._decoder.decode(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        except OversizedHeaderListError as error:
            text = f"headers are more than {self._max_block_bytes} bytes"
            raise Http2Error(text, Http2Code.ENHANCE_YOUR_CALM) from error
        except HPACKError as error:
            raise Http2Error(f"headers cannot be decompressed: {error}", Http2Code.COMPRESSION_ERROR) from error


def header_list_bytes(headers: Headers) -> int:
    """Return the size of headers as limits count it."""
    return sum(len(name) + len(value) for name, value in headers) + _FIELD_BYTES * len(headers)


@lru_cache(maxsize=1024)
def _name_fault(name: bytes) -> str | None:
    if not _is_name(name):
        return f"a header has the name {name[:40]!r}"
    return f"{name.decode()} belongs to a connection of HTTP/1" if name in _CONNECTION_NAMES else None


def _field_fault(name: bytes, value: bytes) -> str | None:
    if fault := _name_fault(name):
        return fault
    if _bad_value(value):
        return f"{name.decode()} has a line break or a zero in it"
    return f"te is {value[:40]!r}" if name == b"te" and value != b"trailers" else None


def request_fault(headers: Headers) -> str | None:
    """Return what is wrong with the headers of a request, if anything is."""
    found: set[bytes] = set()
    is_over = False  # with the pseudo headers
    for name, value in headers:
        if name[:1] != b":":
            is_over = True
            if fault := _field_fault(name, value):
                return fault
        elif is_over or name in found or name not in _REQUEST_NAMES or _bad_value(value):
            return f"pseudo header {name[:40]!r} is unknown, doubled, damaged or not before the others"
        else:
            found.add(name)
            if name == b":path" and not value:
                return ":path is empty"
    missing = _NEEDED_NAMES - found
    return f"{b' '.join(sorted(missing)).decode()} is missing" if missing else None


def trailers_fault(headers: Headers) -> str | None:
    """Return what is wrong with the headers behind a body, if anything is."""
    return next((fault for name, value in headers if (fault := _field_fault(name, value))), None)


def content_length(headers: Headers) -> int | None:
    """Return how long a body is said to be, None where it is not said.

    Raises:
        ValueError: it is no number, or there are two.
    """
    found = {value for name, value in headers if name == b"content-length"}
    if not found:
        return None
    (text,) = found
    if not text.isdigit() or len(text) > 19:
        raise ValueError(f"content-length is {text[:40]!r}")
    return int(text)


@lru_cache(maxsize=256)
def encode_headers(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return a block that means the same on every connection whose first block began with ``TABLE_OF_NOTHING``."""
    encoder = Encoder()
    encoder.header_table_size = 0
    return encoder.encode(headers, huffman=False).removeprefix(TABLE_OF_NOTHING)
