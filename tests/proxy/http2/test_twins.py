"""What each call passes, compiled, held equal to the functions in Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.errors import GrpcMessageError
from rocketlet.proxy.http2 import connection as connection_module
from rocketlet.proxy.http2 import frames
from rocketlet.proxy.http2.compiled import codecs
from rocketlet.proxy.http2.connection import Http2Connection
from rocketlet.proxy.http2.events import Http2Event
from rocketlet.proxy.http2.frames import PREFACE, FrameType, encode_answer_frames, encode_frame
from rocketlet.proxy.http2.headers import body_length, encode_headers
from rocketlet.proxy.http2.limits import Http2Limits
from rocketlet.proxy.rpc import headers as rpc_headers
from rocketlet.proxy.rpc.headers import ENDLESS_MS, parse_timeout

pytestmark = pytest.mark.skipif(codecs is None, reason="the compiled codecs are not built: they need a C compiler")
COMMON = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h"), (b"te", b"trailers")]
ODD = [(b":path", b""), (b":status", b"200"), (b"content-length", b"3"), (b"transfer-encoding", b""), (b"", b"")]
HELLO = PREFACE + encode_frame(FrameType.SETTINGS, 0, 0)
BLOCK = encode_headers(tuple(COMMON))
DATA_OF_1, DATA_OF_5 = encode_frame(FrameType.DATA, 1, 1, b"one"), encode_frame(FrameType.DATA, 1, 5, b"five")


def head(stream_id: int, flags: int) -> bytes:
    """Return headers, whose priority names stream 15."""
    return encode_frame(FrameType.HEADERS, flags, stream_id, bytes((0, 0, 0, 15, 7)) * (flags >> 5 & 1) + BLOCK)


STREAMS = st.sampled_from([1, 3, 5, 7, 15])
ANY_FRAME = st.one_of(
    st.builds(head, STREAMS, st.sampled_from([0x4, 0x5, 0x24, 0x25])),
    st.builds(encode_frame, st.just(FrameType.DATA), st.sampled_from([0, 1, 1, 1, 8]), STREAMS, st.binary(max_size=9)),
    st.builds(encode_frame, st.integers(0, 9), st.integers(0, 255), st.integers(0, 7), st.binary(max_size=9)),
    st.binary(max_size=4),
)
READS = st.lists(ANY_FRAME, max_size=12).map(b"".join)
FIELDS = st.lists(st.sampled_from([*COMMON, *ODD]), max_size=8)


def test_common_request_is_common() -> None:
    """A call as clients make it has its fields from the compiled twin, with an authority and without."""
    assert codecs is not None
    for headers in (COMMON, [field for field in COMMON if field[0] != b":authority"]):
        assert codecs.common_fields(headers) == dict(headers)


@given(st.one_of(FIELDS, st.permutations(COMMON), FIELDS.map(lambda odd: COMMON[:4] + odd)))
def test_request_with_a_fault_is_not_common(headers: list[tuple[bytes, bytes]]) -> None:
    """The twin takes no request that the function in Python finds a fault with, or a length."""
    assert codecs is not None
    fields = codecs.common_fields(headers)
    if fields is not None:
        assert fields == dict(headers)
        assert body_length(headers, fields, checks_fields=False) is None


@given(st.integers(1, (1 << 31) - 1), st.binary(max_size=70), st.binary(max_size=300), st.binary(max_size=20))
def test_answers_are_the_same_frames(stream_id: int, head: bytes, body: bytes, tail: bytes) -> None:
    """Whatever their sizes, and the stream."""
    compiled = encode_answer_frames(stream_id, head, body, tail)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "codecs", None)
        assert encode_answer_frames(stream_id, head, body, tail) == compiled


def test_large_answer_is_the_same_frames() -> None:
    """A size of three bytes, and a stream of four."""
    body = bytes(range(256)) * 300
    compiled = encode_answer_frames(0x7654_3211, b"h", body, b"t")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "codecs", None)
        assert encode_answer_frames(0x7654_3211, b"h", body, b"t") == compiled


def timeout_of(text: bytes) -> int | str | None:
    """Return how long a caller waits, or what is wrong with that."""
    try:
        return parse_timeout(text)
    except GrpcMessageError as error:
        return str(error)


@given(st.from_regex(rb"\A[0-9]{0,9}[HMSmunx]?\Z"))
def test_timeouts_are_the_same(text: bytes) -> None:
    """Those of all units, and those that are none."""
    compiled = timeout_of(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rpc_headers, "codecs", None)
        assert timeout_of(text) == compiled
    assert compiled is None or isinstance(compiled, str) or compiled < ENDLESS_MS


def seen_of(reads: list[bytes]) -> tuple[list[Http2Event], bytes]:
    """Return what a connection has found in some reads, and what it sends for them."""
    connection, events = Http2Connection(Http2Limits(max_streams=3)), list[Http2Event]()
    for read in [HELLO, *reads]:
        events += connection.receive(read, 0)
    return events, b"".join(connection.take_output())


@given(st.lists(READS, max_size=5))
def test_frames_of_calls_are_the_same(reads: list[bytes]) -> None:
    """Headers with a priority and without, bodies in any order, and whatever else comes between or is cut short."""
    compiled = seen_of(reads)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection_module, "codecs", None)
        assert seen_of(reads) == compiled


def test_usual_read_is_cut_whole() -> None:
    """Calls as the Java client sends them: headers with a priority, then the bodies, the last first."""
    assert codecs is not None
    read = b"".join((head(1, 0x24), head(3, 0x25), head(5, 0x4), DATA_OF_5, DATA_OF_1))
    cut = [(1, 4, BLOCK), (3, 5, BLOCK), (5, 4, BLOCK), (5, 1, b"five"), (1, 1, b"one")]
    assert codecs.cut_call_frames(read, 1 << 14) == (cut, len(read))
    assert codecs.cut_call_frames(read[:-1], 1 << 14) == (cut[:-1], len(read) - len(DATA_OF_1))


@pytest.mark.parametrize(
    "other", [encode_frame(6, 0, 0, bytes(8)), head(2, 4), head(1, 0x20), head(1, 0xC), head(15, 0x24)]
)
def test_other_frames_end_the_cut(other: bytes) -> None:
    """A ping, headers of a stream of ours, in pieces, padded, or that depend on themselves; and what is too large."""
    assert codecs is not None
    assert codecs.cut_call_frames(DATA_OF_5 + other + DATA_OF_1, 1 << 14) == ([(5, 1, b"five")], len(DATA_OF_5))
    assert codecs.cut_call_frames(DATA_OF_5, 3) == ([], 0)
