"""The master's end of the copy: sends each slave the log from where it stands (``DefaultHAService``; replication.md §3).

Rules

    1. The first report of a slave says where to begin; later ones only acknowledge. A slave without a log begins at the
       oldest file, with ``syncFromLastFile`` at the newest one as under an official master.
    2. What is written is sent, flushed or not, in frames of one file and ``haTransferBatchSize`` at most. Frames are
       slices of the mapped log. Who cannot take more is not sent more until it can.
    3. While a send may wait for slaves, each commit is sent at once; else what has come within ``GATHER_MS``, or a
       whole frame, goes out together.
    4. A slave whose end is not in the log gets heartbeats only: what lies between is not there, or it has records of
       its own. That is an error in the log, and it never counts as in sync. One that was ahead is dropped when the log
       has grown to where it stands, before a byte is sent: official masters mix the two logs there.
    5. Silence: after ``haSendHeartbeatInterval`` a heartbeat, which is an empty frame; after
       ``haHousekeepingInterval`` without a report the connection is closed.
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
_MOST_UNSENT_BYTES: Final = 1 << 20
_SECOND_MS: Final = 1_000
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
        """Return what is written in one file from a position on; nothing at the end and outside the log."""
        ...


class SlaveState(NamedTuple):
    """A slave as its master sees it; ``acknowledged`` is -1 before the first report, ``next_offset`` too."""

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
        self._gather_timer: TimerHandle | None = None
        self._begun_at = -1  # what the slave reported first
        self._window = (0, 0)  # the second that bytes are counted in, and how many were sent in it
        self._bytes_in_second = 0
        self._is_foreign = False
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
        host, port = transport.get_extra_info("peername")[:2]
        self.peer = format_address(host, port)
        self._server.add(self)

    def data_received(self, data: bytes) -> None:
        """Take reports; the first one begins the copy."""
        self.read_at_ms = self._clock.monotonic_ms()
        reports = self._reports.feed(data)
        if not reports:
            return
        if self.next_offset < 0:
            self._begin(reports[0])
        self.acknowledged = reports[-1]
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
        if self._gather_timer is not None:
            self._gather_timer.cancel()
        self._transport = None
        reason = f": {exc}" if exc is not None else ""
        _log.info("slave %s has left at log offset %d%s", self.peer, self.acknowledged, reason)
        self._server.remove(self)

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    # --- the copy

    def state(self) -> SlaveState:
        """Return how far the slave has come."""
        behind = self._log.log_max_offset - max(self.acknowledged, 0)
        is_in_sync = not self._is_foreign and behind < self._server.config.most_gap_bytes
        now_ms = self._clock.monotonic_ms()
        is_recent = now_ms - self._window[0] < 2 * _SECOND_MS
        sent = self._bytes_in_second if is_recent else 0
        return SlaveState(self.peer, self.acknowledged, self.next_offset, behind, is_in_sync, sent)

    @property
    def counts(self) -> bool:
        """Whether what the slave acknowledges is a copy of this log."""
        return not self._is_foreign and self.acknowledged >= 0

    def end_moved(self, *, is_awaited: bool) -> None:
        """Send what has been written, at once or a little later."""
        if self.next_offset < 0 or self._is_paused:
            return
        if is_awaited or self._log.log_max_offset - self.next_offset >= self._server.config.batch_bytes:
            self.send()
        elif self._gather_timer is None:
            self._gather_timer = self._clock.call_at(self._clock.monotonic_ms() + GATHER_MS, self._end_gathering)

    def look(self, now_ms: int) -> None:
        """Send a heartbeat, or hang up, after a silence."""
        config = self._server.config
        if now_ms - self.read_at_ms > config.housekeeping_ms:
            _log.warning("closing the connection of slave %s: no report for %d ms", self.peer, now_ms - self.read_at_ms)
            self.close()
        elif self.next_offset >= 0 and now_ms - self.written_at_ms > config.heartbeat_ms and not self._is_paused:
            self._write(memoryview(b""))

    def send(self) -> None:
        """Send what there is, as far as the slave and the limits take it."""
        if self.next_offset < 0 or self._transport is None:
            return
        if self._is_foreign:
            self._look_at_foreign()
            return
        while not self._is_paused and self.next_offset < self._log.log_max_offset:
            body = self._log.log_bytes(self.next_offset, self._allowed_bytes())
            if not body:
                if self.next_offset < self._log.log_min_offset:
                    self._refuse(f"needs log offset {self.next_offset}, which was deleted; the log begins at "
                                 f"{self._log.log_min_offset}")
                return
            self._write(body)

    def _begin(self, reported: int) -> None:
        log = self._log
        self._begun_at = reported
        self.next_offset = reported
        if reported == 0:
            self.next_offset = log.newest_file() if self._server.config.starts_at_newest_file else log.log_min_offset
        elif reported > log.log_max_offset:
            self._refuse(f"ends at {reported}, ahead of this master's log, which ends at {log.log_max_offset}")
            return
        elif reported < log.log_min_offset:
            self._refuse(f"ends at {reported}, before this master's log, which begins at {log.log_min_offset}")
            return
        text = "slave %s has reported log offset %d: sending from %d, the log ends at %d"
        _log.info(text, self.peer, reported, self.next_offset, log.log_max_offset)

    def _refuse(self, why: str) -> None:
        self._is_foreign = True
        _log.error("slave %s %s: it gets nothing, empty its store and start it again", self.peer, why)

    def _look_at_foreign(self) -> None:
        """Drop a slave that was ahead when the log has come to where it stands: its bytes are others."""
        if self.next_offset >= self._log.log_min_offset and self._log.log_max_offset >= self.next_offset:
            text = "closing the connection of slave %s: it was at log offset %d before this log was"
            _log.error(text, self.peer, self.next_offset)
            self.close()

    def _end_gathering(self) -> None:
        self._gather_timer = None
        self.send()

    def _allowed_bytes(self) -> int:
        config = self._server.config
        if not config.is_flow_controlled:
            return config.batch_bytes
        now_ms = self._clock.monotonic_ms()
        since_ms, sent = self._window
        left = config.most_bytes_in_second - (sent if now_ms - since_ms < _SECOND_MS else 0)
        if left <= 0 and self._gather_timer is None:
            self._gather_timer = self._clock.call_at(since_ms + _SECOND_MS, self._end_gathering)
        return max(0, min(left, config.batch_bytes))

    def _write(self, body: memoryview) -> None:
        assert self._transport is not None, "whoever sends has looked"
        now_ms = self.written_at_ms = self._clock.monotonic_ms()
        self._transport.writelines((HEAD.pack(self.next_offset, len(body)), body))
        self.next_offset += len(body)
        since_ms, sent = self._window
        if now_ms - since_ms >= _SECOND_MS:
            self._bytes_in_second = sent if now_ms - since_ms < 2 * _SECOND_MS else 0
            since_ms, sent = now_ms, 0
        self._window = since_ms, sent + len(body)


class HaServer:
    """Listens for slaves; ``on_acknowledged`` is told how far they have come, the farthest first."""

    def __init__(
        self,
        address: tuple[str, int],
        log: CopiedLog,
        settings: LiveSettings,
        clock: Clock,
        on_acknowledged: Callable[[Sequence[int]], object],
    ) -> None:
        self._host, self._port = address
        self._log = log
        self._settings = settings
        self._clock = clock
        self._on_acknowledged = on_acknowledged
        self._links: list[SlaveLink] = []
        self._server: asyncio.Server | None = None
        self._timer: TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<HaServer {format_address(self._host, self._port)}, {len(self._links)} slaves>"

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._port

    @property
    def config(self) -> ReplicationConfig:
        """The settings that count now."""
        return self._settings.config.replication

    async def __aenter__(self) -> Self:
        """Listen.

        Raises:
            ConfigError: The address cannot be bound.
        """
        loop, where = asyncio.get_running_loop(), format_address(self._host, self._port)
        try:
            self._server = await loop.create_server(self._connect, self._host, self._port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise AddressInUseError(f"cannot listen for slaves on {where}: it is in use", port=self._port) from error
            raise ConfigError(f"cannot listen for slaves on {where}: {error.strerror}", key="haListenPort") from error
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Hang up and listen no more."""
        server, self._server = self._server, None
        if self._timer is not None:
            self._timer.cancel()
        for link in tuple(self._links):
            link.close()
        if server is not None:
            server.close()
            await server.wait_closed()

    def states(self) -> list[SlaveState]:
        """Return how far each slave has come."""
        return [link.state() for link in self._links]

    def end_moved(self, *, is_awaited: bool) -> None:
        """Send what has been written; ``is_awaited`` says that somebody waits for slaves to have it."""
        for link in self._links:
            link.end_moved(is_awaited=is_awaited)

    # --- for the connections

    def add(self, link: SlaveLink) -> None:
        """Take note of a slave that has come."""
        if len(self._links) >= MOST_LINKS:
            _log.warning("closing the connection of %s to the HA port: there are %d already", link.peer, MOST_LINKS)
            link.close()
            return
        self._links.append(link)
        self._plan_look()

    def remove(self, link: SlaveLink) -> None:
        """Take note that a slave has gone."""
        if link in self._links:
            self._links.remove(link)

    def note_acknowledged(self) -> None:
        """Tell how far the slaves have come."""
        self._on_acknowledged(sorted([link.acknowledged for link in self._links if link.counts], reverse=True))

    def _connect(self) -> SlaveLink:
        return SlaveLink(self, self._log, self._clock)

    def _plan_look(self) -> None:
        if self._timer is None and self._links and self._server is not None:
            pause_ms = min(_SECOND_MS, self.config.heartbeat_ms, self.config.housekeeping_ms)
            self._timer = self._clock.call_at(self._clock.monotonic_ms() + pause_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for link in tuple(self._links):
            link.look(now_ms)
        self._plan_look()
