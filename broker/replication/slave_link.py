"""A slave's connection: it is sent the log from where it stands (``DefaultHAConnection``; spec replication.md §3).

Rules

    1. The first report of a slave says where to begin; later ones only acknowledge. A slave without a log begins at the
       oldest file, with ``syncFromLastFile`` at the newest one as under an official master.
    2. What is written is sent, flushed or not, in frames of one file and ``haTransferBatchSize`` at most. Frames are
       slices of the mapped log. Who cannot take more is not sent more until it can.
    3. While a send may wait for slaves, each commit is sent at once; else what has come within ``GATHER_MS``, or a
       whole frame, goes out together: a report does not hurry it, or there would be a frame for each.
    4. A slave whose end is not in the log gets heartbeats only, and never counts as in sync: what lies between is not
       there any more, or it has records of its own. The same goes for each slave that comes back with an end at which
       one was ahead: to send it what this log holds by then would mix the two, as official masters do.
    5. What no slave can say ends the connection: an end below 0, or one behind what it was sent.
    6. Silence: after ``haSendHeartbeatInterval`` a heartbeat, which is an empty frame; after
       ``haHousekeepingInterval`` without a report the connection is closed.
"""

import asyncio
import logging
from typing import Final, NamedTuple, Protocol, cast

from ...common.clock import Clock, TimerHandle
from ...common.ids import format_address
from ...remoting.transport.limits import LogRateLimiter
from ..settings.replication import ReplicationConfig
from .frames import HEAD, ReportParser

GATHER_MS: Final = 2
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


class LinkHome(Protocol):
    """Who keeps the connections of slaves, and what they know in common; ``HaServer`` is the real one.

    ``ends_ahead`` says where slaves ended that were ahead, and where this log ended then.
    """

    ends_ahead: dict[int, int]
    comings: LogRateLimiter
    refusals: LogRateLimiter

    @property
    def config(self) -> ReplicationConfig:
        """The settings that count now."""
        ...

    def add(self, link: "SlaveLink") -> None:
        """Take note of a slave that has come."""
        ...

    def remove(self, link: "SlaveLink") -> None:
        """Take note that a slave has gone."""
        ...

    def note_ahead(self, log_offset: int) -> None:
        """Remember that a slave ended there, ahead of the log."""
        ...

    def note_acknowledged(self) -> None:
        """Tell how far the slaves have come."""
        ...


class SlaveLink(asyncio.Protocol):
    """One slave's connection."""

    def __init__(self, home: LinkHome, log: CopiedLog, clock: Clock) -> None:
        self._home = home
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
        self._transport.set_write_buffer_limits(0)  # what is written goes out at once, not when the turn is over
        peer = transport.get_extra_info("peername")
        self.peer = format_address(*peer[:2]) if peer else "somebody who has gone"
        self._home.add(self)

    def data_received(self, data: bytes) -> None:
        """Take reports; the first one begins the copy."""
        self.read_at_ms = self._clock.monotonic_ms()
        is_first = self.acknowledged < 0
        for reported in self._reports.feed(data):
            if not self._take(reported):
                return
        self._home.note_acknowledged()
        if is_first:
            self.send()
        else:
            self.end_moved()

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
            self._tell("slave %s has left at log offset %d%s", self.peer, self.acknowledged, reason)
        self._home.remove(self)

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

    @property
    def is_spare(self) -> bool:
        """Whether nothing is lost with the connection, which has not ended."""
        return not self.counts and self._transport is not None and not self._transport.is_closing()

    @property
    def is_in_sync(self) -> bool:
        """Whether the slave is not far behind; one that has reported nothing yet is as far as the log is long."""
        behind = self._log.log_max_offset - self.acknowledged
        return not self._is_foreign and behind < self._home.config.most_gap_bytes

    def state(self) -> SlaveState:
        """Return how far the slave has come."""
        behind = self._log.log_max_offset - self.acknowledged
        is_recent = self._clock.monotonic_ms() - self._window[0] < 2 * _SECOND_MS
        sent = self._bytes_in_second if is_recent else 0
        return SlaveState(self.peer, self.acknowledged, self.next_offset, behind, self.is_in_sync, sent)

    def end_moved(self) -> None:
        """Send what has been written, at once or a little later."""
        if self.next_offset < 0 or self._is_paused or self._is_foreign:
            return
        config = self._home.config
        if config.needed_acks or self._log.log_max_offset - self.next_offset >= config.batch_bytes:
            self.send()
        elif self._timer is None:
            self._send_at(self._clock.monotonic_ms() + GATHER_MS)

    def look(self, now_ms: int) -> None:
        """Send a heartbeat, or hang up, after a silence."""
        config = self._home.config
        if now_ms - self.read_at_ms > config.housekeeping_ms:
            text = "closing the connection of slave %s: no report for %d ms"
            self._complain(logging.WARNING, text, self.peer, now_ms - self.read_at_ms)
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
            text = "closing the connection of %s to the HA port: it reports log offset %d, was sent what is before %d"
            self._complain(logging.ERROR, text, self.peer, reported, self.next_offset)
            self.close()
            return False
        if self.next_offset < 0:
            self._begin(reported)
        self.acknowledged = reported
        return True

    def _begin(self, reported: int) -> None:
        log, known = self._log, self._home.ends_ahead
        self.next_offset = reported
        if reported == 0:
            self.next_offset = log.newest_file() if self._home.config.starts_at_newest_file else log.log_min_offset
        elif reported in known:
            self._refuse(f"ends at {reported}, where a slave was ahead of this log when it ended at {known[reported]}")
            return
        elif reported > log.log_max_offset:
            self._home.note_ahead(reported)
            self._refuse(f"ends at {reported}, ahead of this log, which ends at {log.log_max_offset}")
            return
        elif reported < log.log_min_offset:
            self._refuse(f"ends at {reported}, before this log, which begins at {log.log_min_offset}")
            return
        text = "slave %s has reported log offset %d: sending from %d, the log ends at %d"
        self._tell(text, self.peer, reported, self.next_offset, log.log_max_offset)

    def _refuse(self, why: str) -> None:
        self._is_foreign = True
        text = "slave %s %s: it gets nothing; empty its store and start it again"
        self._complain(logging.ERROR, text, self.peer, why)

    def _tell(self, text: str, *values: object) -> None:
        if self._home.comings.may_log():
            _log.info(text, *values)

    def _complain(self, level: int, text: str, *values: object) -> None:
        if self._home.refusals.may_log():
            _log.log(level, text, *values)

    def _send_at(self, at_ms: int) -> None:
        self._timer = self._clock.call_at(at_ms, self._send_late)

    def _send_late(self) -> None:
        self._timer = None
        self.send()

    def _allowed_bytes(self) -> int:
        """Return how long the next frame may be; with none, sending goes on in the next second."""
        config = self._home.config
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
