"""What each call passes, compiled, held equal to the functions in Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.errors import GrpcMessageError
from rocketlet.proxy.http2 import frames
from rocketlet.proxy.http2.compiled import codecs
from rocketlet.proxy.http2.frames import encode_answer_frames
from rocketlet.proxy.http2.headers import body_length
from rocketlet.proxy.rpc import headers as rpc_headers
from rocketlet.proxy.rpc.headers import ENDLESS_MS, parse_timeout

pytestmark = pytest.mark.skipif(codecs is None, reason="the compiled codecs are not built: they need a C compiler")
COMMON = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":authority", b"h"), (b"te", b"trailers")]
ODD = [(b":path", b""), (b":status", b"200"), (b"content-length", b"3"), (b"transfer-encoding", b""), (b"", b"")]
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
