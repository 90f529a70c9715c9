"""A connection of HTTP/2 on the event loop: reads are served, answers written, silent peers sent away.

Rules
    1. Everything that a read brought is served in one go, and all that it makes us send is written at once; what is
       sent between reads goes out together at the end of the turn of the loop. Acknowledgements of pings that measure
       the path go out ``LATE_MS`` later.
    2. What ``serve`` raises ends the connection: who serves turns the failure of a request into its answer.
    3. A peer that does not read is not read from; one that lets too much pile up, in the socket or behind windows that
       it keeps closed, is cut off. What is held for all peers of a server together has a limit as well
       (``MemoryBudget``).
    4. A peer that is silent before it has said what it speaks, or without a stream, is sent away.
    5. A peer that was told to leave closes the connection after us, within ``LINGER_MS``, and is read until then: what
       it has just begun is not served, as it was told, and a socket closed under it would be an error to it.
    6. The last event of a connection is ``ConnectionEnded``, and it comes once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from msgspec import Struct

from ...common.clock import Clock, TimerHandle
from ...common.ids import Address
from ...remoting.transport.addresses import address_of
from ...remoting.transport.limits import COUNTED_BYTES, LogRateLimiter, MemoryBudget
from .connection import Http2Connection
from .events import ConnectionEnded, Http2Event, RequestStarted
from .frames import Http2Code
from .headers import encode_headers
from .limits import Http2Limits

_log = logging.getLogger(__name__)
LINGER_MS = 500
LATE_MS = 20


class Http2Registry(Protocol):
    """Keeps the connections of a server; ``Http2Links`` is the real one."""

    held: MemoryBudget
    complaints: LogRateLimiter

    def add(self, link: Http2Link) -> None:
        """Take a connection that has just opened."""
        ...

    def discard(self, link: Http2Link) -> None:
        """Forget a connection that has ended."""
        ...


class Http2Service(Struct, frozen=True):
    """Who serves requests: ``serve`` each event, ``after_batch`` when all those of a read were served.

    What ``after_batch`` sends goes out with the answers of the read. ``after_read`` is called when they are written,
    with the connection and how many events the read brought.
    """

    serve: Callable[[Http2Event, Http2Link], None]
    after_batch: Callable[[], None] | None = None
    after_read: Callable[[object, int], None] | None = None


class Http2Link(asyncio.Protocol):
    """One connection, hashable by identity."""

    def __init__(self, service: Http2Service, clock: Clock, limits: Http2Limits, home: Http2Registry) -> None:
        self.remote_address: Address = ("", 0)
        self.local_address: Address = ("", 0)
        self._serve = service.serve
        self._after_batch = service.after_batch
        self._after_read = service.after_read
        self._clock = clock
        self._limits = limits
        self._home = home
        self._connection = Http2Connection(limits)
        self.release = self._connection.release
        self._transport: asyncio.Transport | None = None
        self._timer: TimerHandle | None = None
        self._read_at_ms = 0
        self._is_collecting = False
        self._is_flushing = False  # at the end of this turn
        self._is_late = False  # with something that is sent ``LATE_MS`` later
        self._is_counted = False  # among those that hold much
        self._is_lingering = False  # until the peer closes
        self._has_written_eof = False
        self._is_over = False

    def __repr__(self) -> str:
        host, port = self.remote_address
        return f"<Http2Link {'over' if self._is_over else 'open'} to {host}:{port}, {self._connection!r}>"

    # for who serves

    def send_headers(self, stream_id: int, headers: tuple[tuple[bytes, bytes], ...], *, ends: bool = False) -> None:
        """Send the headers of an answer, or those behind its body; nothing happens if the stream is over."""
        self._connection.send_headers(stream_id, encode_headers(headers), ends=ends)
        self._plan_flush()

    def send_body(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        """Send a piece of an answer's body; nothing happens if the stream is over."""
        self._connection.send_body(stream_id, data, ends=ends)
        self._plan_flush()

    def send_answer(self, stream_id: int, head: bytes, body: bytes, tail: bytes) -> None:
        """Send a whole answer: blocks of ``encode_headers`` around its body; nothing if the stream is over."""
        self._connection.send_answer(stream_id, head, body, tail)
        if not self._is_collecting:
            self._plan_flush()

    def reset(self, stream_id: int, code: Http2Code = Http2Code.CANCEL) -> None:
        """End a stream, whatever has been sent or received of it."""
        self._connection.reset(stream_id, code)
        self._plan_flush()

    def shut_down(self) -> None:
        """Serve the requests that are open and no more, then have the peer close."""
        self._connection.shut_down()
        self._plan_flush()

    def cut_off(self, reason: str) -> None:
        """Close at once, and say why."""
        self._complain(reason)
        self.abort()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def unsent_bytes(self) -> int:
        """How much waits for the peer to read, or to open its windows."""
        in_socket = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._connection.unsent_bytes + in_socket

    @property
    def held_bytes(self) -> int:
        """How much is kept for the peer."""
        in_socket = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._connection.held_bytes + in_socket

    @property
    def read_at_ms(self) -> int:
        """When the peer was read from last."""
        return self._read_at_ms

    @property
    def descriptor(self) -> int:
        """The number of the socket, -1 when it is closed."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        return -1 if sock is None else sock.fileno()

    @property
    def peer(self) -> str:
        """The ``host:port`` of the other end."""
        return f"{self.remote_address[0]}:{self.remote_address[1]}"

    # for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(self._limits.high_water_bytes, self._limits.low_water_bytes)
        self.remote_address = address_of(transport.get_extra_info("peername"))
        self.local_address = address_of(transport.get_extra_info("sockname"))
        self._read_at_ms = self._clock.monotonic_ms()
        self._timer = self._clock.call_at(self._read_at_ms + self._limits.first_bytes_ms, self._check_first_bytes)
        self._home.add(self)
        self._plan_flush()

    def data_received(self, data: bytes) -> None:
        """Serve what a read brought."""
        if self._is_over:
            return
        self._read_at_ms = now_ms = self._clock.monotonic_ms()
        self._is_collecting = True
        try:
            events = self._connection.receive(data, now_ms)
            for event in events:
                if type(event) is RequestStarted:
                    self._serve(event, self)
                else:
                    self._hand_on(event)
            if self._after_batch is not None:
                self._after_batch()
        except Exception:  # the fault boundary of a connection
            _log.exception("closing the connection to %s: serving it failed", self.peer)
            if self._transport is not None:
                self._transport.abort()
            return
        finally:
            self._is_collecting = False
        self._flush()
        if self._connection.has_late and not self._is_late:
            self._is_late = True
            self._clock.call_at(self._read_at_ms + LATE_MS, self._send_late)
        if self._after_read is not None:
            self._after_read(self, len(events))

    def pause_writing(self) -> None:
        """Read nothing more: the peer does not take its answers."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who serves that the connection has ended."""
        _log.debug("connection to %s ended: %s", self.peer, exc)
        if self._timer is not None:
            self._timer.cancel()
        self._home.discard(self)
        self._home.held.forget(self)
        if not self._is_over:
            try:
                self._hand_on(ConnectionEnded(Http2Code.NO_ERROR, "the peer has gone"))
            except Exception:  # the fault boundary of a connection
                _log.exception("serving the end of the connection to %s failed", self.peer)
        self._connection.drop()

    def _hand_on(self, event: Http2Event) -> None:
        if isinstance(event, ConnectionEnded):
            self._is_over = True
            if event.code != Http2Code.NO_ERROR:
                self._complain(event.text)
        self._serve(event, self)

    def _complain(self, reason: str) -> None:
        if self._home.complaints.may_log():
            _log.warning("closing the connection to %s: %s", self.peer, reason)

    def _plan_flush(self) -> None:
        if not self._is_collecting and not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        transport, connection = self._transport, self._connection
        if transport is None or transport.is_closing():
            return
        out = connection.take_output()
        if out and not self._has_written_eof:
            transport.write(out[0] if len(out) == 1 else b"".join(out))
        if not self._is_counted and connection.is_quiet(COUNTED_BYTES - transport.get_write_buffer_size()):
            return  # as nearly always
        if connection.is_failed:
            transport.close()
        elif connection.is_done:
            self._linger()
        elif self._is_counted or self.held_bytes > COUNTED_BYTES:
            self._count()

    def _send_late(self) -> None:
        self._is_late = False
        self._connection.send_late()
        self._flush()

    def _linger(self) -> None:
        if not self._is_lingering:
            self._is_lingering = True
            if self._transport is not None and self._transport.can_write_eof():  # TLS cannot
                self._has_written_eof = True
                self._transport.write_eof()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._clock.call_at(self._clock.monotonic_ms() + LINGER_MS, self._end_linger)

    def _end_linger(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._timer = self._clock.call_at(self._clock.monotonic_ms() + self._limits.idle_ms, self._check_idle)

    def _count(self) -> None:
        """Have what is held counted while it is much; cut off a peer that lets too much pile up."""
        unsent_bytes, limit = self.unsent_bytes, self._limits.max_unsent_bytes
        if unsent_bytes > limit:
            self.cut_off(f"{unsent_bytes} bytes are unread, limit is {limit}")
            return
        self._is_counted = self.held_bytes > COUNTED_BYTES
        if self._is_counted:
            self._home.held.note(self)
        else:
            self._home.held.forget(self)

    def _check_first_bytes(self) -> None:
        if self._connection.has_begun:
            self._check_idle()
        else:
            self.cut_off(f"no request of HTTP/2 within {self._limits.first_bytes_ms} ms")

    def _check_idle(self) -> None:
        """Send the peer away if it was silent without a stream, else look again when it may have been."""
        now_ms, transport = self._clock.monotonic_ms(), self._transport
        over_at_ms = self._read_at_ms + self._limits.idle_ms
        if self._connection.stream_count:
            over_at_ms = now_ms + self._limits.idle_ms
        if now_ms >= over_at_ms:
            if transport is not None and transport.is_closing():
                transport.abort()  # it does not even read why it was sent away
                return
            _log.debug("closing the connection to %s: silent for %d ms", self.peer, self._limits.idle_ms)
            self.shut_down()
            return
        self._timer = self._clock.call_at(over_at_ms, self._check_idle)
