"""Header blocks decompressed, held equal to the library's decoder."""

from collections.abc import Callable

import pytest
from hpack import Decoder, Encoder, NeverIndexedHeaderTuple
from hpack.exceptions import HPACKError, OversizedHeaderListError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rocketlet.proxy.http2 import decompression
from rocketlet.proxy.http2.decompression import TABLE_BYTES, HeaderDecoder
from rocketlet.proxy.http2.headers import HeaderReader, trailers_fault

LIMIT = 1 << 16
NAME = st.one_of(
    st.sampled_from([b":path", b":method", b"te", b"cookie", b"x-long-name"]), st.binary(min_size=1, max_size=9)
)
VALUE = st.one_of(st.sampled_from([b"", b"POST", b"trailers", b"a" * 300, b"b" * 3_000]), st.binary(max_size=20))
FIELD = st.tuples(NAME, VALUE)
BLOCK = st.tuples(st.lists(FIELD, max_size=12), st.booleans(), st.one_of(st.none(), st.integers(0, TABLE_BYTES)))


@pytest.fixture(params=["compiled", "in Python"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have blocks decompressed by the compiled twin, or without it."""
    if request.param == "in Python":
        monkeypatch.setattr(decompression, "codecs", None)
    elif decompression.codecs is None:
        pytest.skip("the compiled codecs are not built: they need a C compiler")


def make_decoder() -> HeaderDecoder:
    """Return a decoder whose fields nobody looks at."""
    return HeaderDecoder(LIMIT, lambda _name, _value: None)


def outcome(decode: Callable[[bytes], object], block: bytes) -> object:
    """Return what comes of a block: fields, or that it is damaged or too long."""
    try:
        return decode(block)
    except OversizedHeaderListError:
        return "too long"
    except HPACKError:
        return "damaged"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(BLOCK, max_size=6))
def test_blocks_of_the_library(blocks: list[tuple[list[tuple[bytes, bytes]], bool, int | None]]) -> None:
    """Whatever an encoder makes comes out as it went in, over blocks that share a table whose size changes."""
    encoder, decoder = Encoder(), make_decoder()
    for fields, is_huffman, size in blocks:
        if size is not None:
            encoder.header_table_size = size
        sent = [NeverIndexedHeaderTuple(*field) if field[0] == b"cookie" else field for field in fields]
        assert decoder.decode(encoder.encode(sent, huffman=is_huffman)) == fields


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(st.binary(max_size=30), st.integers(0, 255).map(lambda one: bytes([one])))))
def test_any_bytes(blocks: list[bytes]) -> None:
    """They are the same fields as with the library, or damaged for both."""
    library, decoder = Decoder(LIMIT), make_decoder()
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
    assert outcome(make_decoder().decode, block) == "damaged"
    assert outcome(lambda one: Decoder(LIMIT).decode(one, raw=True), block) == "damaged"


def test_block_that_is_a_bomb() -> None:
    """A byte that stands for thousands of them is read no further than the limit."""
    decoder = make_decoder()
    block = Encoder().encode([(b"x", bytes(4_000))], huffman=False)
    assert decoder.decode(block) == [(b"x", bytes(4_000))]
    assert outcome(decoder.decode, b"\xbe" * 1_000_000) == "too long"


def test_fields_are_looked_at_when_they_come_as_texts() -> None:
    """One that is named by its place in the table has been seen before; the size is that of all fields."""
    seen: list[tuple[bytes, bytes]] = []
    encoder, decoder = Encoder(), HeaderDecoder(LIMIT, lambda name, value: seen.append((name, value)))
    fields = [(b":method", b"POST"), (b"x_id", b"1"), (b"te", b"trailers")]
    decoder.decode(encoder.encode(fields, huffman=False))
    decoder.decode(encoder.encode([*fields, (b"x_id", b"2")], huffman=False))
    assert seen == [(b"x_id", b"1"), (b"te", b"trailers"), (b"x_id", b"2")]
    assert decoder.list_bytes == 11 + 5 + 10 + 5 + 4 * 32


WORD = st.text("abkptux-_.:A1 ", max_size=6).map(str.encode)
ODD_NAME = st.one_of(
    WORD,
    st.binary(max_size=3),
    st.sampled_from([b"te", b"connection", b"keep-alive", b"proxy-connection", b"upgrade"]),
    st.sampled_from([b":path", b":status", b":authority", b"user-agent", b"content-type", b"x-mq-client-id"]),
)
ODD_VALUE = st.one_of(WORD, st.sampled_from([b"trailers", b"a\nb", b"a\rb", b"a\0b", b"\xe4"]))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ODD_NAME, ODD_VALUE)
def test_faults_of_fields_are_seen(name: bytes, value: bytes) -> None:
    """A field with a fault is noticed, and no other, whichever way it is decompressed."""
    reader = HeaderReader(LIMIT, 16)
    reader.read(Encoder().encode([(name, value)], huffman=False))
    pseudo = name in {b":path", b":authority"}
    fault = trailers_fault([(b"x" if pseudo else name, value)])
    assert reader.is_faultless == (fault is None)


def test_entries_leave_a_full_table() -> None:
    """A peer whose fields change with each request names those that are left, and none that are gone."""
    encoder, decoder, library = Encoder(), make_decoder(), Decoder(LIMIT)
    for number in range(400):
        fields = [(b"x-request-id", b"%d" % number), (b"x-client", b"same"), (b"x-longer", b"v" * (number % 90))]
        block = encoder.encode(fields, huffman=False)
        assert decoder.decode(block) == fields
        library.decode(block, raw=True)
    for index in range(0xBE, 0xFF):
        assert (outcome(decoder.decode, bytes([index])) == "damaged") == (
            outcome(lambda one: library.decode(one, raw=True), bytes([index])) == "damaged"
        )
