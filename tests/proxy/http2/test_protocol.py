"""Connections on the event loop: what goes out together, who is sent away, and what who serves is told."""

import asyncio
import logging

import pytest
from http2_echo import Echo
from http2_peer import EMPTY_SETTINGS, Http2Peer, data, ping, reset_code, setting, uint
from memory_connection import MemoryTransport

from rocketlet.proxy.http2.events import BodyReceived, ConnectionEnded, Http2Event, RequestStarted
from rocketlet.proxy.http2.frames import END_STREAM, PREFACE, Frame, FrameType, Http2Code, Http2FrameParser
from rocketlet.proxy.http2.limits import Http2Limits
from rocketlet.proxy.http2.links import Http2Links
from rocketlet.proxy.http2.protocol import LATE_MS, LINGER_MS, Http2Link, Http2Service
from rocketlet.proxy.http2.settings import Setting
from rocketlet.testing.manual_clock import ManualClock

LIMITS = Http2Limits(first_bytes_ms=1_000, idle_ms=10_000, max_unsent_bytes=1 << 16)
SILENT = Http2Service(lambda _event, _link: None)
HELLO_US = PREFACE + EMPTY_SETTINGS


class Transport(MemoryTransport):
    """Keeps every write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_aborted = False
        self.has_eof = False

    def can_write_eof(self) -> bool:
        """Tell that a plain socket can."""
        return True

    def write_eof(self) -> None:
        """Note it."""
        self.has_eof = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the bytes."""
        super().write(data)
        self.writes.append(bytes(data))

    def close(self) -> None:
        """Note it."""
        self.is_over = True

    def abort(self) -> None:
        """Note it."""
        self.is_over = self.is_aborted = True


class Ground:
    """A link, its transport, its clock and who serves it."""

    def __init__(self, service: Http2Service | None = None) -> None:
        self.clock = ManualClock()
        self.echo = Echo()
        self.home = Http2Links(self.clock)
        self.peer = Http2Peer()
        self.transport = Transport()
        self.link = Http2Link(service or Http2Service(self.echo.serve), self.clock, LIMITS, self.home)
        self.link.connection_made(self.transport)

    def frames(self) -> list[Frame]:
        """Return what was written since, but the settings."""
        parser = Http2FrameParser(1 << 20)
        parser.has_preface = True
        written, self.transport.writes = b"".join(self.transport.writes), []
        return [frame for frame in parser.feed(written) if frame.kind != FrameType.SETTINGS]


async def test_answers_of_a_read_are_one_write() -> None:
    """Several requests in one read are answered by one write, with what ``after_batch`` adds."""
    batches: list[int] = []
    echo = Echo()
    ground = Ground(Http2Service(echo.serve, lambda: batches.append(1)))
    peer = ground.peer
    ground.link.data_received(HELLO_US + b"".join(peer.headers(number) for number in (1, 3, 5)))
    assert (len(ground.transport.writes), batches) == (1, [1])
    assert [frame.stream_id for frame in ground.frames() if frame.kind == FrameType.DATA] == [1, 3, 5]


def test_bodies_go_to_their_requests() -> None:
    """One that comes in a frame of the same read is with them, in any order; others are told apart."""
    peer = Http2Peer()
    events = peer.send(
        peer.headers(1, flags=0),
        peer.headers(3, flags=0),
        peer.headers(5, flags=0),
        peer.headers(7, flags=0),
        data(5, b"five", END_STREAM),
        data(3, b"thr"),
        data(3, b"ee", END_STREAM),
        data(1, b"one", END_STREAM),
    )
    assert [
        (type(event), getattr(event, "stream_id", 0), getattr(event, "body", b""), getattr(event, "ends", False))
        for event in events
    ] == [
        (RequestStarted, 1, b"one", True),
        (RequestStarted, 3, b"", False),
        (RequestStarted, 5, b"five", True),
        (RequestStarted, 7, b"", False),
        (BodyReceived, 3, b"", False),
        (BodyReceived, 3, b"", True),
    ]
    assert peer.send(data(7, b"seven", END_STREAM)) == [BodyReceived(7, b"seven", True)]


async def test_answers_of_a_turn_are_one_write() -> None:
    """What is sent between reads goes out when the turn of the loop ends."""
    ground = Ground(SILENT)
    ground.link.data_received(HELLO_US + ground.peer.headers(1) + ground.peer.headers(3))
    ground.frames()
    ground.link.send_headers(1, ((b":status", b"200"),), ends=True)
    ground.link.send_headers(3, ((b":status", b"200"),), ends=True)
    assert ground.transport.writes == []
    await asyncio.sleep(0)
    assert (len(ground.transport.writes), [frame.stream_id for frame in ground.frames()]) == (1, [1, 3])


@pytest.mark.parametrize("first", [b"", PREFACE[:10]])
async def test_peer_that_is_silent_at_first(first: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """Who has not said what it speaks in time is cut off, and the log says so."""
    ground = Ground()
    if first:
        ground.link.data_received(first)
    ground.clock.advance(LIMITS.first_bytes_ms - 1)
    assert not ground.transport.is_aborted
    ground.clock.advance(1)
    assert ground.transport.is_aborted
    assert "no request of HTTP/2 within 1000 ms" in caplog.text


async def test_idle_peer_is_sent_away() -> None:
    """Who is silent without a stream gets GOAWAY after the limit; a ping or an open stream keeps the connection."""
    ground = Ground(SILENT)
    ground.link.data_received(HELLO_US)
    for _ in range(3):
        ground.clock.advance(LIMITS.idle_ms - 1)
        ground.link.data_received(ping(1))
    ground.link.data_received(ground.peer.headers(1))
    ground.clock.advance(5 * LIMITS.idle_ms)
    assert not ground.transport.is_over
    ground.link.send_headers(1, ((b":status", b"200"),), ends=True)
    ground.clock.advance(2 * LIMITS.idle_ms)
    await asyncio.sleep(0)
    assert ground.frames()[-1].kind == FrameType.GOAWAY
    ground.clock.advance(LINGER_MS)
    assert ground.transport.is_over


async def test_peer_that_does_not_read_the_end_is_cut_off() -> None:
    """A connection that is closed and whose last bytes nobody reads does not stay."""
    ground = Ground()
    ground.link.data_received(HELLO_US + data(1, b"x"))
    ground.clock.advance(LIMITS.first_bytes_ms + LIMITS.idle_ms)
    assert ground.transport.is_aborted


async def test_mistake_is_told_and_closes(caplog: pytest.LogCaptureFixture) -> None:
    """The peer reads why in GOAWAY, the operator in the log, who serves in the last event."""
    ground = Ground()
    with caplog.at_level(logging.WARNING):
        ground.link.data_received(HELLO_US + data(1, b"x"))
    assert ground.transport.is_over
    assert b"which has not begun" in ground.frames()[-1].payload
    assert "a body for stream 1, which has not begun" in caplog.text
    ground.link.connection_lost(None)
    assert len(ground.echo.events) == 1


async def test_end_of_the_connection_is_told_once() -> None:
    """Who serves learns that a peer has gone; what is sent then is dropped."""
    ground = Ground()
    ground.link.data_received(HELLO_US + ground.peer.headers(1, flags=0))
    ground.link.connection_lost(None)
    assert [type(event) for event in ground.echo.events] == [ConnectionEnded]
    ground.link.send_body(1, b"late")
    assert (len(ground.home), ground.link.held_bytes) == (0, 0)


async def test_peer_that_opens_no_window_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    """Answers that pile up behind closed windows end the connection above the limit."""
    ground = Ground()
    closed = PREFACE + setting(Setting.INITIAL_WINDOW_SIZE, 0)
    body = bytes(16_000)
    ground.link.data_received(closed + ground.peer.headers(1, flags=0) + data(1, body, 1))
    assert not ground.transport.is_aborted
    more = [ground.peer.headers(number, flags=0) + data(number, body, 1) for number in (3, 5, 7, 9)]
    ground.link.data_received(b"".join(more))
    assert ground.transport.is_aborted
    assert "bytes are unread, limit is 65536" in caplog.text


async def test_peer_that_does_not_read_is_not_read() -> None:
    """While the socket is full nothing is read, and reading goes on with the answers."""
    ground = Ground()
    ground.link.pause_writing()
    assert not ground.transport.is_read
    ground.link.resume_writing()
    assert ground.transport.is_read


async def test_failure_of_who_serves_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    """What is not turned into an answer ends its connection, with a traceback in the log."""

    def fail(event: Http2Event, link: Http2Link) -> None:
        raise ValueError(f"{event} of {link}")

    ground = Ground(Http2Service(fail))
    ground.link.data_received(HELLO_US + ground.peer.headers(1))
    assert ground.transport.is_aborted
    ground.link.connection_lost(None)
    assert "ValueError" in caplog.text


async def test_shut_down_closes_behind_the_last_answer() -> None:
    """A server that stops answers what is open, then closes, a moment after it has told the peer to."""
    ground = Ground(SILENT)
    ground.link.data_received(HELLO_US + ground.peer.headers(1))
    ground.link.shut_down()
    await asyncio.sleep(0)
    ground.clock.advance(LINGER_MS)
    assert not ground.transport.is_over
    ground.link.send_headers(1, ((b":status", b"200"),), ends=True)
    await asyncio.sleep(0)
    ground.clock.advance(LINGER_MS - 1)
    assert (ground.transport.has_eof, ground.transport.is_over) == (True, False)
    ground.clock.advance(1)
    assert ground.transport.is_over


async def test_streams_that_cross_the_end_are_not_served() -> None:
    """What a peer begins before it hears that it shall leave is refused, or above what it was told is served."""
    ground = Ground(SILENT)
    ground.link.data_received(HELLO_US + ground.peer.headers(1))
    ground.link.shut_down()
    await asyncio.sleep(0)
    leaving = ground.frames()[-1]
    assert (leaving.kind, leaving.payload[:4]) == (FrameType.GOAWAY, uint(1))
    ground.link.data_received(ground.peer.headers(3))
    assert reset_code(ground.frames(), 3) == Http2Code.REFUSED_STREAM
    ground.link.send_headers(1, ((b":status", b"200"),), ends=True)
    await asyncio.sleep(0)
    ground.frames()
    ground.link.data_received(ground.peer.headers(5))
    assert (ground.transport.has_eof, ground.transport.is_over, ground.frames()) == (True, False, [])


async def test_stream_that_ends_with_its_connection_is_not_reset() -> None:
    """An answer before the end of its request resets the stream, unless the peer is told to leave anyway."""
    for leaves, code in ((False, Http2Code.NO_ERROR), (True, None)):
        ground = Ground(SILENT)
        ground.link.data_received(HELLO_US + ground.peer.headers(1, flags=0))
        if leaves:
            ground.link.shut_down()
        ground.link.send_headers(1, ((b":status", b"200"),), ends=True)
        await asyncio.sleep(0)
        frames = ground.frames()
        assert frames[-1].stream_id == 1
        assert reset_code(frames, 1) == code


async def test_tells_of_each_read_once_it_is_answered() -> None:
    """Whoever wants to know is told when the answers are written, and how many events the read has brought."""
    written: list[tuple[int, int]] = []
    echo = Echo()
    service = Http2Service(
        echo.serve, after_read=lambda _link, count: written.append((len(ground.transport.writes), count))
    )
    ground = Ground(service)
    ground.link.data_received(HELLO_US + ground.peer.headers(1))
    ground.link.data_received(ground.peer.headers(3))
    ground.link.data_received(ground.peer.headers(5) + ground.peer.headers(7))
    assert written == [(1, 1), (2, 1), (3, 2)]


def acknowledged(ground: Ground) -> list[int]:
    """Return the numbers of the pings that were acknowledged since."""
    return [int.from_bytes(frame.payload, "big") for frame in ground.frames() if frame.kind == FrameType.PING]


async def test_ping_that_measures_an_answer_is_acknowledged_later() -> None:
    """One behind each part of an answer waits a moment, together with the next; any other is acknowledged at once."""
    ground = Ground()
    ground.link.data_received(HELLO_US + ping(1))
    assert acknowledged(ground) == [1]
    ground.link.data_received(ground.peer.headers(1))
    ground.link.data_received(ping(2) + ping(3))
    assert acknowledged(ground) == [3]
    ground.clock.advance(LATE_MS - 1)
    ground.link.data_received(ground.peer.headers(3))
    ground.link.data_received(ping(4))
    assert acknowledged(ground) == []
    ground.clock.advance(1)
    assert acknowledged(ground) == [2, 4]
    ground.link.data_received(ground.peer.headers(5))
    ground.link.data_received(ping(5))
    assert acknowledged(ground) == []
    ground.transport.close()
    ground.link.connection_lost(None)
    ground.clock.advance(LATE_MS)
    assert acknowledged(ground) == []
