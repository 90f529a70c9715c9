"""Bytes and frames drawn by chance: what comes of them is events or one clean end, never an exception."""

from http2_peer import EMPTY_SETTINGS, Http2Peer
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.proxy.http2.connection import Http2Connection
from rocketlet.proxy.http2.events import BodyReceived, ConnectionEnded, Http2Event, RequestReset, RequestStarted
from rocketlet.proxy.http2.frames import PREFACE, FrameType, encode_frame
from rocketlet.proxy.http2.headers import encode_headers
from rocketlet.proxy.http2.limits import Http2Limits
from rocketlet.proxy.http2.streams import STREAM_BYTES

LIMITS = Http2Limits(max_streams=3, max_held_bytes=4_096, max_header_list_bytes=200, max_header_block_bytes=400)
OK = encode_headers(((b":status", b"200"),))
BODY = bytes(100)
REQUESTS = [Http2Peer().headers(stream_id, flags=flags) for stream_id in (1, 3, 5, 7) for flags in (0, 1)]
ANY_FRAME = st.builds(
    encode_frame,
    st.one_of(st.sampled_from([*FrameType]), st.integers(0, 255)),
    st.integers(0, 255),
    st.integers(0, 9),
    st.one_of(st.binary(max_size=40), st.integers(0, 1 << 32 - 1).map(lambda number: number.to_bytes(4, "big"))),
)
FRAMES = st.lists(st.one_of(ANY_FRAME, st.sampled_from(REQUESTS), st.binary(max_size=12)), max_size=30)


def _answer(connection: Http2Connection, events: list[Http2Event]) -> None:
    for event in events:
        if isinstance(event, RequestStarted):
            connection.release(event.stream_id, len(event.body))
            connection.send_headers(event.stream_id, OK)
            connection.send_body(event.stream_id, BODY, ends=event.ends)
        elif isinstance(event, BodyReceived):
            connection.release(event.stream_id, len(event.data))


def _serve(pieces: list[bytes]) -> tuple[list[Http2Event], bytes]:
    """Serve what comes in pieces; return what happened, and what was sent."""
    connection, seen, out = Http2Connection(LIMITS), list[Http2Event](), b""
    for piece in pieces:
        events = connection.receive(piece, 0)
        _answer(connection, events)
        seen += events
        out += b"".join(connection.take_output())
        streams_bytes = LIMITS.max_streams * (STREAM_BYTES + LIMITS.max_header_block_bytes)
        answers_bytes = 4 * len(BODY) * len(pieces)
        assert connection.held_bytes - streams_bytes <= LIMITS.max_held_bytes + LIMITS.max_frame_bytes + answers_bytes
    ends = [event for event in seen if isinstance(event, ConnectionEnded)]
    assert ends == (seen[-1:] if connection.is_failed else [])
    return seen, out


def _check_lives(events: list[Http2Event]) -> None:
    """Fail unless each stream begins once, before anything else of it, and nothing follows its end."""
    live, seen = dict[int, bool](), set[int]()
    for event in events:
        if isinstance(event, ConnectionEnded) or not hasattr(event, "stream_id"):
            continue
        if isinstance(event, RequestStarted):
            assert event.stream_id not in seen
            seen.add(event.stream_id)
            live[event.stream_id] = event.ends
        elif isinstance(event, RequestReset):
            del live[event.stream_id]
        elif isinstance(event, BodyReceived):
            assert live[event.stream_id] is False
            live[event.stream_id] = event.ends


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_any_bytes_from_the_start(pieces: list[bytes]) -> None:
    """Whatever the first bytes are."""
    _serve(pieces)


@given(FRAMES)
def test_any_frames(frames: list[bytes]) -> None:
    """Whatever follows the preface: valid frames, broken ones, and bytes between them."""
    events, _ = _serve([PREFACE + EMPTY_SETTINGS, *frames])
    _check_lives(events)


@given(FRAMES, st.integers(1, 7))
def test_cuts_make_no_difference(frames: list[bytes], step: int) -> None:
    """The same bytes are the same events, however reads cut them."""
    whole = b"".join([PREFACE, EMPTY_SETTINGS, *frames])
    cut, _ = _serve([whole[at : at + step] for at in range(0, len(whole), step)])
    _check_lives(cut)
    in_frames, _ = _serve([PREFACE + EMPTY_SETTINGS + frames[0], *frames[1:]] if frames else [whole])
    assert [type(event) for event in cut] == [type(event) for event in in_frames]
