"""Peers that make us work, or keep, more than they do: each is ended by a limit, and told so."""

from collections.abc import Callable

import pytest
from hpack.table import HeaderTable
from http2_peer import (
    EMPTY_SETTINGS,
    REQUEST,
    Http2Peer,
    code_of,
    data,
    is_acknowledgement,
    ping,
    reset_code,
    setting,
    uint,
)

from rocketlet.proxy.http2.connection import TOO_LARGE
from rocketlet.proxy.http2.events import ConnectionEnded, RequestReset, RequestStarted
from rocketlet.proxy.http2.frames import (
    END_HEADERS,
    END_STREAM,
    PREFACE,
    FrameType,
    Http2Code,
    encode_frame,
    encode_reset,
    encode_window_update,
)
from rocketlet.proxy.http2.headers import encode_headers, request_fault
from rocketlet.proxy.http2.limits import DEFAULT_WINDOW, FloodLimit, Http2Limits
from rocketlet.proxy.http2.settings import Setting
from rocketlet.proxy.http2.streams import STREAM_BYTES

OK = encode_headers(((b":status", b"200"),))
END = encode_headers(((b"echo-status", b"0"),))
FEW = FloodLimit(burst=5, per_second=1)
STRICT = Http2Limits(resets=FEW, pings=FEW, settings=FEW, empty_data=FEW)


def _rapid_reset(peer: Http2Peer, number: int) -> bytes:
    return peer.headers(2 * number + 1) + encode_reset(2 * number + 1, Http2Code.CANCEL)


def _broken_request(peer: Http2Peer, number: int) -> bytes:
    return peer.headers(2 * number + 1, [(b"Upper", b"1")])


def _body_of_the_dead(peer: Http2Peer, number: int) -> bytes:
    if number == 0:
        return peer.headers(1, flags=0) + encode_reset(1, Http2Code.CANCEL)
    return data(1, b"x")


def _empty_body(peer: Http2Peer, number: int) -> bytes:
    return data(1, b"") if number else peer.headers(1, flags=0)


FLOODS: dict[str, Callable[[Http2Peer, int], bytes]] = {
    "rapid reset": _rapid_reset,
    "broken requests": _broken_request,
    "bodies of streams that are over": _body_of_the_dead,
    "ping": lambda _peer, number: ping(number),
    "settings": lambda _peer, _number: EMPTY_SETTINGS,
    "acknowledged settings": lambda _peer, _number: encode_frame(FrameType.SETTINGS, 1, 0),
    "goaway": lambda _peer, _number: encode_frame(FrameType.GOAWAY, 0, 0, bytes(8)),
    "empty data": _empty_body,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_flood_ends_its_connection(flood: Callable[[Http2Peer, int], bytes]) -> None:
    """A burst is served, what goes on behind it is not, and the peer is told to be calm."""
    peer = Http2Peer(STRICT)
    for number in range(4):
        assert code_of(peer.send(flood(peer, number))) is None
    events = peer.send(*(flood(peer, number) for number in range(4, 12)))
    assert code_of(events) is Http2Code.ENHANCE_YOUR_CALM
    assert peer.frames()[-1].kind == FrameType.GOAWAY
    assert peer.send(ping(1)) == []
    assert peer.frames() == []


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS.keys())
def test_what_comes_slowly_is_no_flood(flood: Callable[[Http2Peer, int], bytes]) -> None:
    """The same goes on for ever at the rate that is allowed."""
    peer = Http2Peer(STRICT)
    for number in range(40):
        peer.now_ms += 1000
        assert code_of(peer.send(flood(peer, number))) is None


def test_pings_behind_answers_are_no_flood() -> None:
    """A client that measures the path sends a ping for each answer, as fast as answers come."""
    peer = Http2Peer(STRICT)
    for number in range(1, 100, 2):
        peer.send(peer.headers(number))
        peer.connection.send_headers(number, OK, ends=True)
        assert code_of(peer.send(ping(number))) is None


def test_continuation_flood_in_frames() -> None:
    """Headers that go on in many small frames end the connection, empty ones too."""
    peer = Http2Peer(Http2Limits(max_header_frames=8))
    start = encode_frame(FrameType.HEADERS, 0, 1, b"")
    events = peer.send(start, *(encode_frame(FrameType.CONTINUATION, 0, 1) for _ in range(8)))
    assert code_of(events) is Http2Code.ENHANCE_YOUR_CALM


def test_continuation_flood_in_bytes() -> None:
    """Headers that never end are kept up to the limit, however few their frames are."""
    peer = Http2Peer(Http2Limits(max_header_block_bytes=1 << 15))
    piece = bytes(1 << 14)
    assert peer.send(encode_frame(FrameType.HEADERS, 0, 1, piece)) == []
    assert peer.send(encode_frame(FrameType.CONTINUATION, 0, 1, piece)) == []
    assert peer.connection.held_bytes == 1 << 15
    assert code_of(peer.send(encode_frame(FrameType.CONTINUATION, 0, 1, b"x"))) is Http2Code.ENHANCE_YOUR_CALM


def test_header_bomb() -> None:
    """A few bytes that stand for a megabyte of headers, by the table, end the connection before they are made."""
    peer = Http2Peer()
    large = (b"a", b"x" * 3_900)
    peer.send(peer.headers(1, [large]))
    events = peer.send(encode_frame(FrameType.HEADERS, END_HEADERS | END_STREAM, 3, b"\xbe" * 1_000))
    assert code_of(events) is Http2Code.ENHANCE_YOUR_CALM


def test_many_headers_are_refused_with_a_status() -> None:
    """A request with more headers than is told is answered 431, and the connection goes on."""
    peer = Http2Peer(Http2Limits(max_header_list_bytes=1_000))
    assert peer.send(peer.headers(1, [(b"a", b"x" * 1_000)])) == []
    answer = peer.frames()[0]
    assert [*map(tuple, peer.decoder.decode(answer.payload, raw=True))] == [*TOO_LARGE]
    assert answer.flags & END_STREAM
    assert isinstance(peer.send(peer.headers(3))[0], RequestStarted)


def test_too_many_streams_are_refused() -> None:
    """A stream above the limit is refused, those that are open go on, and one that ends makes room."""
    peer = Http2Peer(Http2Limits(max_streams=2))
    events = peer.send(peer.headers(1), peer.headers(3), peer.headers(5))
    assert [type(event) for event in events] == [RequestStarted, RequestStarted]
    assert reset_code(peer.frames(), 5) == Http2Code.REFUSED_STREAM
    peer.connection.send_headers(1, OK, ends=True)
    assert [event.stream_id for event in peer.send(peer.headers(7)) if isinstance(event, RequestStarted)] == [7]


def test_bodies_that_are_not_released() -> None:
    """A stream's window stays closed while much of it is held, and opens with what is released."""
    peer = Http2Peer(Http2Limits(stream_window_bytes=1 << 16, max_stream_held_bytes=1 << 14))
    peer.send(peer.headers(1, flags=0), *(data(1, bytes(1 << 14)) for _ in range(3)))
    assert peer.connection.held_body_bytes == 3 << 14
    assert [frame for frame in peer.frames() if frame.stream_id == 1] == []
    peer.connection.release(1, 2 << 14)
    assert [frame.payload for frame in peer.frames() if frame.stream_id == 1] == [uint(3 << 14)]


def test_bodies_of_all_streams_are_bounded() -> None:
    """A stream whose body would exceed what the connection may hold is reset, with what was held for it."""
    peer = Http2Peer(Http2Limits(max_held_bytes=1 << 15))
    peer.send(*(peer.headers(number, flags=0) for number in (1, 3, 5)))
    assert len(peer.send(data(1, bytes(1 << 14)), data(3, bytes(1 << 14)))) == 2
    assert peer.send(data(5, b"x")) == [RequestReset(5, Http2Code.ENHANCE_YOUR_CALM, by_peer=False)]
    peer.connection.reset(1)
    assert peer.connection.held_body_bytes == 1 << 14


def test_window_that_is_exceeded() -> None:
    """Who sends more than the window of a stream allows loses the stream."""
    limits = Http2Limits(stream_window_bytes=1 << 16, max_stream_held_bytes=0)
    peer = Http2Peer(limits)
    peer.send(peer.headers(1, flags=0), *(data(1, bytes(1 << 14)) for _ in range(4)))
    assert peer.send(data(1, b"x")) == [RequestReset(1, Http2Code.FLOW_CONTROL_ERROR, by_peer=False)]


def test_peer_with_zero_windows_holds_what_waits() -> None:
    """Answers that no window lets out are counted, and leave when it opens, the headers behind them last."""
    peer = Http2Peer(first=PREFACE + setting(Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.headers(1), peer.headers(3))
    for stream_id in (1, 3):
        peer.connection.send_headers(stream_id, OK)
        peer.connection.send_body(stream_id, bytes(1_000))
        peer.connection.send_headers(stream_id, END, ends=True)
    assert [frame.kind for frame in peer.frames()] == [FrameType.HEADERS, FrameType.HEADERS]
    assert peer.connection.unsent_bytes > 2_000
    streams_bytes = peer.connection.held_bytes - peer.connection.unsent_bytes
    assert 2 * STREAM_BYTES < streams_bytes < 3 * STREAM_BYTES
    peer.send(encode_window_update(1, 400))
    assert [len(frame.payload) for frame in peer.frames()] == [400]
    peer.send(encode_window_update(1, 600))
    assert [frame.kind for frame in peer.frames()] == [FrameType.DATA, FrameType.HEADERS]
    peer.send(encode_reset(3, Http2Code.CANCEL))
    assert (peer.connection.unsent_bytes, peer.connection.stream_count) == (0, 0)


def test_window_opened_byte_by_byte() -> None:
    """An answer of megabytes leaves byte by byte without being copied for each."""
    peer = Http2Peer(first=PREFACE + setting(Setting.INITIAL_WINDOW_SIZE, 0))
    peer.send(peer.headers(1))
    peer.connection.send_body(1, bytes(4 << 20), ends=True)
    for _ in range(5_000):
        peer.send(encode_window_update(1, 1))
    assert sum(len(frame.payload) for frame in peer.frames() if frame.kind == FrameType.DATA) == 5_000


def test_streams_take_turns() -> None:
    """When the window of the connection opens, no stream waits for another to be complete."""
    peer = Http2Peer(first=PREFACE + setting(Setting.INITIAL_WINDOW_SIZE, 1 << 20))
    peer.send(peer.headers(1), peer.headers(3))
    for stream_id in (1, 3):
        peer.connection.send_body(stream_id, bytes(1 << 18), ends=True)
    peer.frames()
    peer.send(encode_window_update(0, DEFAULT_WINDOW))
    assert [frame.stream_id for frame in peer.frames()] == [1, 3, 1, 3]


def test_windows_that_become_negative() -> None:
    """Settings that make a window smaller than what is on its way close it until it is made up for."""
    peer = Http2Peer()
    peer.send(peer.headers(1))
    peer.connection.send_body(1, bytes(1_000))
    peer.frames()
    peer.send(setting(Setting.INITIAL_WINDOW_SIZE, 0))
    peer.connection.send_body(1, b"x", ends=True)
    peer.send(encode_window_update(1, 1_000))
    assert [is_acknowledgement(frame) for frame in peer.frames()] == [True]
    assert peer.connection.unsent_bytes == 1
    peer.send(encode_window_update(1, 1))
    assert [frame.payload for frame in peer.frames()] == [b"x"]


def test_leaving_with_streams_open() -> None:
    """After ``shut_down`` open streams go on, new ones are refused, and the last that ends is the end."""
    peer = Http2Peer()
    peer.send(peer.headers(1))
    peer.connection.shut_down()
    assert [frame.kind for frame in peer.frames()] == [FrameType.GOAWAY]
    assert peer.send(peer.headers(3)) == []
    assert reset_code(peer.frames(), 3) == Http2Code.REFUSED_STREAM
    assert not peer.connection.is_done
    peer.connection.send_headers(1, OK, ends=True)
    assert peer.connection.is_done


def test_peer_that_leaves_with_streams_open() -> None:
    """After GOAWAY of the peer its streams are answered as before."""
    peer = Http2Peer()
    peer.send(peer.headers(1), encode_frame(FrameType.GOAWAY, 0, 0, bytes(8)))
    peer.connection.send_headers(1, OK, ends=True)
    assert [frame.kind for frame in peer.frames()] == [FrameType.HEADERS]


def test_mistake_ends_the_connection_once() -> None:
    """Whoever speaks another protocol is told once, and nothing is kept of what comes then."""
    peer = Http2Peer(first=b"")
    events = peer.send(b"GET / HTTP/1.1\r\n")
    assert code_of(events) is Http2Code.PROTOCOL_ERROR
    assert [type(event) for event in events] == [ConnectionEnded]
    assert peer.send(bytes(1_000)) == []
    assert peer.connection.held_bytes == 0


@pytest.mark.parametrize(
    "bad",
    [
        (b"Upper", b"1"),
        (b"connection", b"close"),
        (b"x", b"a\r\nb"),
        (b"te", b"gzip"),
        (b":unknown", b"1"),
        (b"", b"1"),
    ],
)
def test_faulty_fields_are_refused_each_time(bad: tuple[bytes, bytes]) -> None:
    """Also those that are named by their place in a table; requests without them are served."""
    peer = Http2Peer()
    for stream_id in (1, 3, 5):
        assert not peer.send(peer.headers(stream_id, [bad]))
        assert reset_code(peer.frames(), stream_id) == Http2Code.PROTOCOL_ERROR
    assert isinstance(peer.send(peer.headers(7, [(b"x", b"good")]))[0], RequestStarted)


@pytest.mark.parametrize(
    "fields",
    [
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b":path", b"/a")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b"x", b"1"), (b":path", b"/a")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b"x", b"1"), (b":authority", b"h")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a"), (b"x", b"1"), (b":method", b"POST")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"")],
        [(b":method", b"POST"), (b":path", b"/a")],
        [(b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a\n")],
    ],
)
def test_pseudo_headers_stand_in_front_once(fields: list[tuple[bytes, bytes]]) -> None:
    """Doubled, late, missing, empty and damaged ones are refused."""
    peer = Http2Peer()
    for stream_id in (1, 3):
        block = peer.encoder.encode(fields)
        assert not peer.send(encode_frame(FrameType.HEADERS, END_HEADERS | END_STREAM, stream_id, block))
        assert reset_code(peer.frames(), stream_id) == Http2Code.PROTOCOL_ERROR


def test_names_of_the_fixed_table() -> None:
    """Those that no request may have are known: no other fixed field has a fault."""
    own = [(bytes(name), bytes(value)) for name, value in HeaderTable.STATIC_TABLE]
    for name, value in own:
        fields = [field for field in REQUEST if field[0] != name] + [(name, value or b"/a")]
        fields.sort(key=lambda field: field[0][:1] != b":")
        is_wrong = name in {b":status", b"transfer-encoding"}
        assert (request_fault(fields, dict(fields), checks_fields=True) is not None) == is_wrong
