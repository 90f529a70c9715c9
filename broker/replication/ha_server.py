"""The master's end of the copy: sends slaves the log from where they stand (``DefaultHAService``; replication.md §3).

Rules

    1. The first report of a slave says where to begin; later ones only acknowledge. A slave without a log begins at the
       oldest file, with ``syncFromLastFile`` at the newest one as under an official master.
    2. What is written is sent, flushed or not, in frames of one file and ``haTransferBatchSize`` at most. Frames are
       slices of the mapped log. Who cannot take more is not sent more until it can.
    3. While a send may wait for slaves, each commit is sent at once; else what has come within ``GATHER_MS``, or a
       whole frame, goes out together.
    4. A slave whose end is not in the log gets heartbeats only, and never counts as in sync: what lies between is not
       there any more, or it has records of its own. The same goes for each slave that comes back with an end at which
       one was ahead: to send it what this log holds by then would mix the two, as official masters do.
    5. What no slave can say ends the connection: an end below 0, or one behind what it was sent.
    6. Silence: after ``haSendHeartbeatInterval`` a heartbeat, which is an empty frame; after
       ``haHousekeepingInterval`` without a report the connection is closed.
    7. A stop sends what is written before it hangs up, as far as the slaves take it at once.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol, Self, cast

from ...common.clock import Clock, TimerHandle
from ...common.errors import AddressInUseError, ConfigError
from ...common.ids import format_address
from ..settings.live import LiveSettings
from ..settings.replication import ReplicationConfig
from .frames import HEAD, ReportParser

GATHER_MS: Final = 5
MOST_LINKS: Final = 200
_MOST_AHEAD: Final = 10_000
_MOST_UNSENT_BYTES: Final = 1 << 20
_SECOND_MS: Final = 1_000
_NOTHING: Final = memoryview(b"")
_log = logging.getLogger(__name__)


class CopiedLog(Protocol):
    """The log of a store, as far as a master needs it."""

    @property
    def log_min_offset(self) -> int:
        """The first position."""
        ...

    @property
    def log_max_offset(self) -> int:
        """The end of what is written."""
        ...

    def newest_file(self) -> int:
        """Return where the file begins that is written to."""
        ...

    def log_bytes(self, log_offset: int, most: int) -> memoryview:
        """Return what is written in one file from a position on; nothing at the end and outside the log.

        Raises:
            OSError: The file cannot be read.
        """
        ...


class SlaveState(NamedTuple):
    """A slave as its master sees it; ``acknowledged`` and ``next_offset`` are -1 before the first report."""

    peer: str
    acknowledged: int
    next_offset: int
    behind_bytes: int
    is_in_sync: bool
    bytes_in_second: int


class SlaveLink(asyncio.Protocol):
    """One slave's connection."""

    def __init__(self, server: "HaServer", log: CopiedLog, clock: Clock) -> None:
        self._server = server
        self._log = log
        self._clock = clock
        self._reports = ReportParser()
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_foreign = False  # gets heartbeats only
        self._timer: TimerHandle | None = None  # of what is sent a little later
        self._window = (0, 0)  # since when bytes are counted, and how many were sent since then
        self._bytes_in_second = 0
        self.peer = ""
        self.acknowledged = -1
        self.next_offset = -1
        self.read_at_ms = self.written_at_ms = clock.monotonic_ms()

    def __repr__(self) -> str:
        return f"<SlaveLink {self.peer} at {self.acknowledged}>"

    # --- the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the slave."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_MOST_UNSENT_BYTES)
        peer = transport.get_extra_info("peername")
        self.peer = format_address(*peer[:2]) if peer else "somebody who has gone"
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        """Take reports; the first one begins the copy."""
        self.read_at_ms = self._clock.monotonic_ms()
        for reported in self._reports.feed(data):
            if not self._take(reported):
                return
        self._server.note_acknowledged()
        self.send()

    def pause_writing(self) -> None:
        """Send nothing more for now."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._is_paused = False
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the slave."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        if self.acknowledged >= 0:
            reason = f": {exc}" if exc is not None else ""
            _log.info("slave %s has left at log offset %d%s", self.peer, self.acknowledged, reason)
        self._server.remove(self)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def finish(self) -> None:
        """Hang up when all that was written is sent; what cannot be sent at once is dropped by ``close``."""
        self.send()
        if self._transport is not None:
            self._transport.close()

    # --- the copy

    @property
    def counts(self) -> bool:
        """Whether what the slave acknowledges is a copy of this log."""
        return self.acknowledged >= 0 and not self._is_foreign

    def state(self) -> SlaveState:
        """Return how far the slave has come."""
        behind = self._log.log_max_offset - self.acknowledged
        is_in_sync = not self._is_foreign and behind < self._server.config.most_gap_bytes
        is_recent = self._clock.monotonic_ms() - self._window[0] < 2 * _SECOND_MS
        sent = self._bytes_in_second if is_recent else 0
        return SlaveState(self.peer, self.acknowledged, self.next_offset, behind, is_in_sync, sent)

    def end_moved(self) -> None:
        """Send what has been written, at once or a little later."""
        if self.next_offset < 0 or self._is_paused or self._is_foreign:
            return
        config = self._server.config
        if config.needed_acks or self._log.log_max_offset - self.next_offset >= config.batch_bytes:
            self.send()
        elif self._timer is None:
            self._send_at(self._clock.monotonic_ms() + GATHER_MS)

    def look(self, now_ms: int) -> None:
        """Send a heartbeat, or hang up, after a silence."""
        config = self._server.config
        if now_ms - self.read_at_ms > config.housekeeping_ms:
            _log.warning("closing the connection of slave %s: no report for %d ms", self.peer, now_ms - self.read_at_ms)
            self.close()
        elif self.next_offset >= 0 and now_ms - self.written_at_ms > config.heartbeat_ms and not self._is_paused:
            self._write(_NOTHING)

    def send(self) -> None:
        """Send what there is, as far as the slave and the limits take it."""
        if self.next_offset < 0 or self._is_foreign:
            return
        while not self._is_paused and self.next_offset < self._log.log_max_offset:
            if self.next_offset < self._log.log_min_offset:
                self._refuse(f"is to get log offset {self.next_offset}, the log begins at {self._log.log_min_offset}")
                return
            try:
                body = self._log.log_bytes(self.next_offset, self._allowed_bytes())
            except OSError as error:
                _log.error("closing the connection of slave %s: cannot read the log: %s", self.peer, error)
                self.close()
                return
            if not body or self._transport is None:
                return
            self._write(body)

    def _take(self, reported: int) -> bool:
        """Take a report; tell if a slave can say that."""
        if reported < 0 or (reported > self.next_offset >= 0 and not self._is_foreign):
            text = (
                "closing the connection of %s to the HA port: it reports log offset %d, it was sent what is before %d"
            )
            _log.error(text, self.peer, reported, self.next_offset)
            self.close()
            return False
        if self.next_offset < 0:
            self._begin(reported)
        self.acknowledged = reported
        return True

    def _begin(self, reported: int) -> None:
        log, known = self._log, self._server.ends_ahead
        self.next_offset = reported
        if reported == 0:
            self.next_offset = log.newest_file() if self._server.config.starts_at_newest_file else log.log_min_offset
        elif reported in known:
            self._refuse(f"ends at {reported}, where a slave was ahead of this log when it ended at {known[reported]}")
            return
        elif reported > log.log_max_offset:
            self._server.note_ahead(reported)
            self._refuse(f"ends at {reported}, ahead of this log, which ends at {log.log_max_offset}")
            return
        elif reported < log.log_min_offset:
            self._refuse(f"ends at {reported}, before this log, which begins at {log.log_min_offset}")
            return
        text = "slave %s has reported log offset %d: sending from %d, the log ends at %d"
        _log.info(text, self.peer, reported, self.next_offset, log.log_max_offset)

    def _refuse(self, why: str) -> None:
        self._is_foreign = True
        _log.error("slave %s %s: it gets nothing; empty its store and start it again", self.peer, why)

    def _send_at(self, at_ms: int) -> None:
        self._timer = self._clock.call_at(at_ms, self._send_late)

    def _send_late(self) -> None:
        self._timer = None
        self.send()

    def _allowed_bytes(self) -> int:
        """Return how long the next frame may be; with none, sending goes on in the next second."""
        config = self._server.config
        if not config.is_flow_controlled:
            return config.batch_bytes
        since_ms, sent = self._window
        left = config.most_bytes_in_second
        if self._clock.monotonic_ms() - since_ms < _SECOND_MS:
            left -= sent
        if left <= 0 and self._timer is None:
            self._send_at(since_ms + _SECOND_MS)
        return max(0, min(left, config.batch_bytes))

    def _write(self, body: memoryview) -> None:
        if self._transport is None:
            return
        now_ms = self.written_at_ms = self._clock.monotonic_ms()
        since_ms, sent = self._window
        if now_ms - since_ms >= _SECOND_MS:
            self._bytes_in_second = sent if now_ms - since_ms < 2 * _SECOND_MS else 0
            since_ms, sent = now_ms, 0
        self._window = since_ms, sent + len(body)
        head = HEAD.pack(self.next_offset, len(body))
        self.next_offset += len(body)
        if body:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head)


class HaServer:
    """Listens for slaves, once told where; ``on_acknowledged`` is told how far they have come, the farthest first."""

    def __init__(
        self,
        log: CopiedLog,
        settings: LiveSettings,
        clock: Clock,
        on_acknowledged: Callable[[Sequence[int]], object],
    ) -> None:
        self._log = log
        self._settings = settings
        self._clock = clock
        self._on_acknowledged = on_acknowledged
        self._server: asyncio.Server | None = None
        self._timer: TimerHandle | None = None
        self._all_gone = asyncio.Event()
        self._is_closed = False
        self.ends_ahead: dict[int, int] = {}
        """Where slaves ended that were ahead, and where this log ended then."""
        self.links: list[SlaveLink] = []
        """The slaves that are connected."""

    def __repr__(self) -> str:
        return f"<HaServer at port {self.port}, {len(self.links)} slaves>"

    @property
    def port(self) -> int:
        """The port that is bound, 0 while there is none."""
        return self._server.sockets[0].getsockname()[1] if self._server is not None else 0

    @property
    def config(self) -> ReplicationConfig:
        """The settings that count now."""
        return self._settings.config.replication

    async def __aenter__(self) -> Self:
        """Allow to listen."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up and listen no more."""
        self._is_closed = True
        server, self._server = self._server, None
        if self._timer is not None:
            self._timer.cancel()
        if server is not None:
            server.close()
        for link in tuple(self.links):
            link.finish()
        await asyncio.sleep(0)  # one turn of the loop to send what was written last
        for link in tuple(self.links):
            link.close()
        while self.links:
            self._all_gone.clear()
            await self._all_gone.wait()
        if server is not None:
            await server.wait_closed()

    async def listen(self, host: str, port: int) -> None:
        """Listen there.

        Raises:
            ConfigError: The address cannot be bound.
        """
        where = format_address(host, port)
        try:
            self._server = await asyncio.get_running_loop().create_server(self._connect, host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUseError(f"cannot listen on {where} for slaves: it is in use", port=port) from error
            raise ConfigError(f"cannot listen on {where} for slaves: {error.strerror}", key="haListenPort") from error

    def states(self) -> list[SlaveState]:
        """Return how far each slave has come."""
        return [link.state() for link in self.links]

    # --- for the connections

    def add(self, link: SlaveLink) -> None:
        """Take note of a slave that has come."""
        self.links.append(link)
        if self._is_closed:
            link.close()
        elif len(self.links) > MOST_LINKS:
            _log.warning("closing the connection of %s to the HA port: there are %d already", link.peer, MOST_LINKS)
            link.close()
        else:
            self._plan_look()

    def remove(self, link: SlaveLink) -> None:
        """Take note that a slave has gone."""
        self.links.remove(link)
        if not self.links:
            self._all_gone.set()

    def note_ahead(self, log_offset: int) -> None:
        """Remember that a slave ended there, ahead of the log."""
        self.ends_ahead[log_offset] = self._log.log_max_offset
        if len(self.ends_ahead) > _MOST_AHEAD:
            del self.ends_ahead[next(iter(self.ends_ahead))]

    def note_acknowledged(self) -> None:
        """Tell how far the slaves have come."""
        self._on_acknowledged(sorted([link.acknowledged for link in self.links if link.counts], reverse=True))

    def _connect(self) -> SlaveLink:
        return SlaveLink(self, self._log, self._clock)

    def _plan_look(self) -> None:
        if self._timer is None and self.links and not self._is_closed:
            pause_ms = min(_SECOND_MS, self.config.heartbeat_ms, self.config.housekeeping_ms)
            self._timer = self._clock.call_at(self._clock.monotonic_ms() + pause_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for link in tuple(self.links):
            link.look(now_ms)
        self._plan_look()
