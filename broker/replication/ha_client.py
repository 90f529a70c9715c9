"""The slave's end of the copy: appends to the log what its master sends (``DefaultHAClient``; spec replication.md §4).

Rules

    1. The first report is the end of the own log (``copy_start``), and each frame that was appended is reported; so is
       the end, after ``haSendHeartbeatInterval`` without a report.
    2. Bytes are appended where they stand in the master's log, which must be the end of the own one. What stands
       elsewhere, heartbeats too, ends the connection: nothing is mixed.
    3. What is appended is readable as far as it makes whole records; under SYNC_FLUSH when it is on disk. A report does
       not wait for the disk.
    4. A connection that is lost is made again after ``RETRY_MS``, one over which nothing came for
       ``haHousekeepingInterval`` at once, and one whose bytes could not be taken after ``REFUSED_MS``. What is in the
       way is said once, not with each attempt.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol, cast

from ...common.clock import Clock, TimerHandle
from ...common.errors import DecodeError, FrameError, RemotingError, RocketletError, StoreError
from ...remoting.transport.client import parse_address
from ..settings.live import LiveSettings
from .copy_start import ComparedLog, Connect, CopyStart
from .frames import REPORT, FrameParser
from .known_master import KnownMaster

RETRY_MS: Final = 1_000
REFUSED_MS: Final = 5_000
CONNECT_MS: Final = 3_000
_LOOK_MS: Final = 1_000
_log = logging.getLogger(__name__)


class LogCopy(ComparedLog, Protocol):
    """The log of a store, as far as a slave needs it."""

    def append_copy(self, log_offset: int, data: memoryview) -> None:
        """Write bytes where they stand in the master's log.

        Raises:
            ValueError: They do not stand at the end of the log, or overrun its file.
            StoreError: The store takes nothing.
        """
        ...


class MasterLink(asyncio.Protocol):
    """One connection to the master; ``closed`` is set when it has ended.

    ``accepts_start`` tells whether an empty log may begin where the master begins.
    """

    def __init__(
        self,
        log: LogCopy,
        settings: LiveSettings,
        clock: Clock,
        accepts_start: Callable[[int], bool],
        on_appended: Callable[[], object],
    ) -> None:
        self._log = log
        self._accepts_start = accepts_start
        self._settings = settings
        self._clock = clock
        self._on_appended = on_appended
        self._frames = FrameParser(self._check)
        self._transport: asyncio.Transport | None = None
        self._timer: TimerHandle | None = None
        self._window = (0, 0)
        self._bytes_in_second = 0
        self.was_silent = False
        """Whether it has ended since the master said nothing for too long."""
        self.is_restart = False
        """Whether it has ended to begin at an earlier file."""
        self.failure = ""
        """Why what the master has sent was not taken."""
        self.reported = -1
        self.read_at_ms = self.written_at_ms = clock.monotonic_ms()
        self.closed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<MasterLink reported {self.reported}>"

    @property
    def bytes_in_second(self) -> int:
        """How much came in the last whole second."""
        return self._bytes_in_second if self._clock.monotonic_ms() // _LOOK_MS <= self._window[0] + 1 else 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the master; it is told nothing yet."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(0)  # a report goes out before queues are written
        self._plan_look()

    def begin(self, log_offset: int) -> None:
        """Report where to begin."""
        self._write(log_offset)

    def data_received(self, data: bytes) -> None:
        """Append what has come."""
        self.read_at_ms = self._clock.monotonic_ms()
        reports = b""
        try:
            for frame in self._frames.feed(data):
                if frame.body:
                    self._log.append_copy(frame.log_offset, frame.body)
                    reports += REPORT.pack(self._log.log_max_offset)
                    self._count(len(frame.body))
        except (DecodeError, StoreError, ValueError, OSError) as error:
            self.failure = str(error)
            self.close()
        if reports:
            self._send(reports)
            self._on_appended()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None
        self.closed.set()

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def _check(self, log_offset: int) -> None:
        end = self._log.log_max_offset
        if end and log_offset != end:
            raise FrameError(f"the master sends log offset {log_offset}, this log ends at {end}")
        if not (end or self._accepts_start(log_offset)):
            self.is_restart = True
            raise FrameError(f"the master begins at {log_offset}, its newest file; asking for an older one")

    def _write(self, log_offset: int) -> None:
        self.reported = log_offset
        self._send(REPORT.pack(log_offset))

    def _send(self, reports: bytes) -> None:
        if self._transport is not None:
            self.reported = max(self.reported, self._log.log_max_offset)
            self.written_at_ms = self._clock.monotonic_ms()
            self._transport.write(reports)

    def _count(self, size: int) -> None:
        second, count = self._window
        now = self.read_at_ms // _LOOK_MS
        if now != second:
            self._bytes_in_second = count if now == second + 1 else 0
            second, count = now, 0
        self._window = second, count + size

    def _plan_look(self) -> None:
        config = self._settings.config.replication
        pause_ms = min(_LOOK_MS, config.heartbeat_ms, config.housekeeping_ms)
        self._timer = self._clock.call_at(self._clock.monotonic_ms() + pause_ms, self._look)

    def _look(self) -> None:
        config, now_ms = self._settings.config.replication, self._clock.monotonic_ms()
        if now_ms - self.read_at_ms > config.housekeeping_ms:
            _log.warning("connecting to the master again: it has said nothing for %d ms", now_ms - self.read_at_ms)
            self.was_silent = True
            self.close()
            return
        if self.reported >= 0 and now_ms - self.written_at_ms > config.heartbeat_ms:
            self._write(self.reported)
        self._plan_look()


class HaClient:
    """Copies the log of the master as long as the broker is a slave; ``run`` is a job for ``repeat``."""

    def __init__(
        self,
        log: LogCopy,
        master: KnownMaster,
        settings: LiveSettings,
        clock: Clock,
        on_appended: Callable[[], object],
    ) -> None:
        self._log = log
        self._master = master
        self._settings = settings
        self._clock = clock
        self._on_appended = on_appended
        self._start = CopyStart(log, master, settings.config.replication, settings.config.store.segment_bytes)
        self._said = ""
        self.link: MasterLink | None = None
        """The connection, while there is one."""
        self.has_begun = asyncio.Event()
        """Set while the log is copied, or is level."""

    def __repr__(self) -> str:
        return f"<HaClient of {self._master!r}, {self.link!r}>"

    async def run(self, connect: Connect) -> int:
        """Copy until the connection ends; return the pause before the next. ``connect`` makes who asks the master."""
        address = await self._master.wait_ha_address()
        try:
            host, port = parse_address(address)
            async with self._clock.timeout(CONNECT_MS):
                _, link = await asyncio.get_running_loop().create_connection(self._make_link, host, port)
        except (OSError, TimeoutError, RemotingError) as error:
            self._say(f"cannot connect to the master's HA port {address}: {str(error) or 'no answer'}")
            return RETRY_MS
        self.link = link
        try:
            link.begin(await self._start.find(connect))
            self.has_begun.set()
            _log.info("copying the log of the master at %s from log offset %d", address, link.reported)
            await link.closed.wait()
        except RocketletError as error:
            link.failure = str(error)
        finally:
            self.link = None
            self.has_begun.clear()
            link.close()
            await link.closed.wait()
        if link.failure:
            self._say(f"not copying the log of the master at {address}: {link.failure}")
        elif not link.was_silent:
            self._say(f"lost the connection to the master at {address}, this log ends at {self._log.log_max_offset}")
        if link.was_silent or link.is_restart:
            return 0
        return REFUSED_MS if link.failure else RETRY_MS

    def _make_link(self) -> MasterLink:
        return MasterLink(self._log, self._settings, self._clock, self._start.accepts, self._on_appended)

    def _say(self, text: str) -> None:
        _log.log(logging.DEBUG if text == self._said else logging.WARNING, "%s; trying again", text)
        self._said = text
