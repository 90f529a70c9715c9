import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common import compression
from rocketlet.common.compression import CompressionKind, deflate, inflate
from rocketlet.common.errors import ConfigError, DecodeError

BODY = "compress me 😀 ".encode() * 20
KINDS = list(CompressionKind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", [b"", b"x", BODY, bytes(1_000_000)], ids=len)
def test_body_round_trip(kind: CompressionKind, body: bytes) -> None:
    """Each kind of compression gives the body back, from bytes and from a slice of a buffer."""
    small = deflate(body, kind)
    assert inflate(small, kind.sys_flag) == body
    assert inflate(memoryview(b"xx" + small)[2:], kind.sys_flag) == body


def test_flags_are_those_of_java() -> None:
    """The kind stands in bits 8 to 10, beside the bit for compressed."""
    assert [kind.sys_flag for kind in KINDS] == [0x101, 0x201, 0x301]


def test_kind_zero_is_zlib() -> None:
    """Old clients set the compressed bit only; their bodies are zlib."""
    assert inflate(deflate(BODY), 0x1) == BODY


def test_body_without_the_bit_is_left_alone() -> None:
    """Kind bits without the compressed bit mean nothing."""
    assert inflate(memoryview(BODY), 0x300) == BODY


@pytest.mark.parametrize("kind", KINDS)
def test_body_cut_at_every_length_is_refused(kind: CompressionKind) -> None:
    """A compressed body whose end is missing is a decode error and never a shorter body."""
    small = deflate(BODY, kind)
    for end in range(len(small)):
        with pytest.raises(DecodeError, match="does not inflate"):
            inflate(small[:end], kind.sys_flag)


@given(st.binary(), st.sampled_from([0x1, 0x101, 0x201, 0x301, 0x401, 0x501, 0x601, 0x701]))
def test_body_of_arbitrary_bytes(body: bytes, sys_flag: int) -> None:
    """Arbitrary bytes inflate or are a decode error."""
    with contextlib.suppress(DecodeError):
        inflate(body, sys_flag)


@given(st.sampled_from(KINDS), st.integers(0, 200), st.integers(0, 255))
def test_body_with_a_changed_byte(kind: CompressionKind, position: int, value: int) -> None:
    """A changed byte gives another body or a decode error."""
    small = bytearray(deflate(BODY, kind))
    small[position % len(small)] = value
    with contextlib.suppress(DecodeError):
        inflate(small, kind.sys_flag)


@pytest.mark.parametrize("kind", KINDS)
def test_body_that_inflates_without_end(kind: CompressionKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small body cannot take more memory than the limit; exactly the limit is fine."""
    monkeypatch.setattr(compression, "MAX_INFLATED_BYTES", 300_000)
    assert len(inflate(deflate(bytes(300_000), kind), kind.sys_flag)) == 300_000
    with pytest.raises(DecodeError, match="300000"):
        inflate(deflate(bytes(1_000_000), kind), kind.sys_flag)


def test_zstd_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where zstandard is missing, the error names the extra to install."""
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(ConfigError, match=r"rocketlet\[zstd\]"):
        deflate(BODY, CompressionKind.ZSTD)


def test_lz4_blocks_are_independent() -> None:
    """A frame says in its flags that its blocks stand alone, since Java's reader refuses linked ones."""
    frame = deflate(bytes(200_000), CompressionKind.LZ4)
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20
