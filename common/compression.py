"""Compression of bodies: zlib, LZ4 frames and zstd (``CompressionType``; remoting.md §6.5).

A body says by its sysFlag whether and how it is compressed; kind 0 means zlib, as old clients write it. What
inflates to more than ``MAX_INFLATED_BYTES`` is refused. LZ4 and zstd are imported at first use; zstd is an extra.
"""

import zlib
from enum import IntEnum
from types import ModuleType
from typing import Final

from .errors import ConfigError, DecodeError
from .message import COMPRESSED, COMPRESSION_MASK, COMPRESSION_SHIFT

MAX_INFLATED_BYTES: Final = 256 * 1024 * 1024
DEFAULT_LEVEL: Final = 5
_ZLIB_OR_GZIP: Final = 32 + zlib.MAX_WBITS
_ZSTD_STEP_BYTES: Final = 4096  # a step's output is bounded only by zstd's 128 KiB per block of a few bytes


class CompressionKind(IntEnum):
    """How a body is compressed; the number stands in sysFlag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits that say that a body is compressed this way."""
        return COMPRESSED | self << COMPRESSION_SHIFT


def inflate(body: bytes | bytearray | memoryview, sys_flag: int) -> bytes:
    """Return the body as the producer gave it.

    Raises:
        DecodeError: It is not compressed as sysFlag says.
        ConfigError: It is compressed with zstd and ``zstandard`` is not installed.
    """
    if not sys_flag & COMPRESSED:
        return bytes(body)
    kind = (sys_flag & COMPRESSION_MASK) >> COMPRESSION_SHIFT or CompressionKind.ZLIB
    if kind == CompressionKind.ZLIB:
        return inflate_zlib(bytes(body), MAX_INFLATED_BYTES)
    if kind == CompressionKind.LZ4:
        return _inflate_lz4(bytes(body))
    if kind == CompressionKind.ZSTD:
        return _inflate_zstd(bytes(body))
    raise DecodeError(f"compression kind is {kind}, known are 0 to 3")


def deflate(body: bytes, kind: CompressionKind = CompressionKind.ZLIB, level: int = DEFAULT_LEVEL) -> bytes:
    """Return the compressed body; its message needs ``kind.sys_flag``. LZ4 has no levels here, as in Java.

    Raises:
        ConfigError: zstd is asked for and ``zstandard`` is not installed.
    """
    if kind is CompressionKind.ZLIB:
        return zlib.compress(body, level)
    if kind is CompressionKind.LZ4:
        import lz4.frame

        # Java's reader (lz4-java) refuses frames of linked blocks.
        return lz4.frame.compress(body, block_linked=False)
    return _import_zstandard().ZstdCompressor(level=level).compress(body)


def check_available(kind: CompressionKind) -> None:
    """Refuse a kind whose package is missing, before the first body needs it.

    Raises:
        ConfigError: it is zstd and ``zstandard`` is not installed.
    """
    if kind is CompressionKind.ZSTD:
        _import_zstandard()


def inflate_zlib(body: bytes, limit: int, *, is_gzip: bool = False) -> bytes:
    """Return what a zlib stream holds, or one that may be gzip's (raises ``DecodeError``)."""
    inflater = zlib.decompressobj(_ZLIB_OR_GZIP if is_gzip else zlib.MAX_WBITS)
    try:
        result = inflater.decompress(body, limit)
    except zlib.error as error:
        raise DecodeError(f"body of {len(body)} bytes does not inflate: {error}") from error
    return _whole(result, len(body), limit, at_end=inflater.eof)


def _inflate_lz4(body: bytes) -> bytes:
    import lz4.frame

    inflater = lz4.frame.LZ4FrameDecompressor()
    try:
        result = inflater.decompress(body, MAX_INFLATED_BYTES)
    except RuntimeError as error:
        raise DecodeError(f"body of {len(body)} bytes does not inflate: {error}") from error
    return _whole(result, len(body), MAX_INFLATED_BYTES, at_end=inflater.eof)


def _inflate_zstd(body: bytes) -> bytes:
    zstandard = _import_zstandard()
    inflater = zstandard.ZstdDecompressor().decompressobj()
    pieces: list[bytes] = []
    size = 0
    try:
        for start in range(0, len(body), _ZSTD_STEP_BYTES):
            pieces.append(inflater.decompress(body[start : start + _ZSTD_STEP_BYTES]))
            size += len(pieces[-1])
            if inflater.eof or size > MAX_INFLATED_BYTES:
                break
    except zstandard.ZstdError as error:
        raise DecodeError(f"body of {len(body)} bytes does not inflate: {error}") from error
    return _whole(b"".join(pieces), len(body), MAX_INFLATED_BYTES, at_end=inflater.eof)


def _whole(result: bytes, compressed_bytes: int, limit: int, *, at_end: bool) -> bytes:
    size = len(result)
    if size > limit or (size == limit and not at_end):
        raise DecodeError(f"body of {compressed_bytes} bytes inflates to more than {limit} bytes")
    if not at_end:
        raise DecodeError(f"body of {compressed_bytes} bytes does not inflate: its end is missing")
    return result


def _import_zstandard() -> ModuleType:
    try:
        import zstandard
    except ModuleNotFoundError as error:
        raise ConfigError("zstd needs the package zstandard: pip install 'rocketlet[zstd]'", key="zstd") from error
    return zstandard
