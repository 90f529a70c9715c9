"""Header blocks decompressed, held equal to the library's decoder."""

from collections.abc import Callable

import pytest
from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hpack.exceptions import HPACKError, OversizedHeaderListError
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.proxy.http2.decompression import TABLE_BYTES, HeaderDecoder

LIMIT = 1 << 16
NAME = st.one_of(
    st.sampled_from([b":path", b":method", b"te", b"cookie", b"x-long-name"]), st.binary(min_size=1, max_size=9)
)
VALUE = st.one_of(st.sampled_from([b"", b"POST", b"trailers", b"a" * 300, b"b" * 3_000]), st.binary(max_size=20))
FIELD = st.tuples(NAME, VALUE)
BLOCK = st.tuples(st.lists(FIELD, max_size=12), st.booleans(), st.one_of(st.none(), st.integers(0, TABLE_BYTES)))


def outcome(decode: Callable[[bytes], object], block: bytes) -> object:
    """Return what comes of a block: fields, or that it is damaged or too long."""
    try:
        return decode(block)
    except OversizedHeaderListError:
        return "too long"
    except HPACKError:
        return "damaged"


@given(st.lists(BLOCK, max_size=6))
def test_blocks_of_the_library(blocks: list[tuple[list[tuple[bytes, bytes]], bool, int | None]]) -> None:
    """Whatever an encoder makes comes out as it went in, over blocks that share a table whose size changes."""
    encoder, decoder = Encoder(), HeaderDecoder(LIMIT)
    for fields, is_huffman, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        sent = [NeverIndexedHeaderTuple(*field) if field[0] == b"cookie" else field for field in fields]
        assert decoder.decode(encoder.encode(sent, huffman=is_huffman)) == fields


@given(st.lists(st.one_of(st.binary(max_size=30), st.integers(0, 255).map(lambda one: bytes([one])))))
def test_any_bytes(blocks: list[bytes]) -> None:
    """They are the same fields as with the library, or damaged for both."""
    library, decoder = Decoder(LIMIT), HeaderDecoder(LIMIT)
    for block in blocks:
        of_library = outcome(lambda one: [(bytes(n), bytes(v)) for n, v in library.decode(one, raw=True)], block)
        assert outcome(decoder.decode, block) == of_library
        if of_library == "damaged":
            return


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",
        b"\xbe",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\xff",
        b"\x7e\x01a",
        b"\x40\x05ab",
        b"\x40\x01a\x05ab",
        b"\x00",
        b"\x82\x20",
        b"\x3f\xe2\x1f",
        b"\x40\x81\xff\x01a",
    ],
)
def test_damaged_blocks(block: bytes) -> None:
    """Index 0, one behind the table, numbers and texts without end, a late or large size, Huffman that is none."""
    assert outcome(HeaderDecoder(LIMIT).decode, block) == "damaged"
    assert outcome(lambda one: Decoder(LIMIT).decode(one, raw=True), block) == "damaged"


def test_block_that_is_a_bomb() -> None:
    """A byte that stands for thousands of them is read no further than the limit."""
    decoder = HeaderDecoder(LIMIT)
    block = Encoder().encode([(b"x", bytes(4_000))], huffman=False)
    assert decoder.decode(block) == [(b"x", bytes(4_000))]
    assert outcome(decoder.decode, b"\xbe" * 1_000_000) == "too long"
