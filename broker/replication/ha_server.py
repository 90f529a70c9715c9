"""Listens for slaves, and keeps their connections (``DefaultHAService``; spec replication.md §3).

Rules

    1. Each connection is that of a slave (``slave_link.py``, which is imported with the first one).
    2. So many are kept. When there are more, the oldest goes that is no slave so far: one reports where it is at once.
    3. Where ``haAllowFrom`` names peers, others are closed before they have said or heard a word. The port has neither
       TLS nor signatures: those of Apache RocketMQ know nothing of the sort.
    4. What is wrong with them is logged, ten lines in ten seconds at most, and so is who comes and goes.
    5. A stop sends what is written before it hangs up, as far as the slaves take it at once.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Self, cast

from ...common.clock import Clock, TimerHandle
from ...common.errors import AddressInUseError, ConfigError
from ...common.ids import format_address, is_among
from ...remoting.transport.addresses import address_of
from ...remoting.transport.limits import LogRateLimiter
from ..settings.live import LiveSettings
from ..settings.replication import ReplicationConfig

if TYPE_CHECKING:
    from .slave_link import CopiedLog, SlaveLink, SlaveState

HA_BIND_KEY: Final = "haBindAddress"
MOST_LINKS: Final = 200
MOST_LINES: Final = 10
_MOST_AHEAD: Final = 10_000
_LOOK_MS: Final = 1_000
_log = logging.getLogger(__name__)


class _Doorkeeper(asyncio.Protocol):
    """A connection of which nobody has asked yet whose it is."""

    def __init__(self, server: "HaServer") -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._server.meet_allowed(cast("asyncio.Transport", transport))


class HaServer:
    """Listens for slaves, once told where; ``on_acknowledged`` is told how far they have come, the farthest first."""

    def __init__(
        self,
        log: "CopiedLog",
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
        self._allowed = self.config.allowed_peers
        self.ends_ahead: dict[int, int] = {}
        """Where slaves ended that were ahead, and where this log ended then."""
        self.comings = LogRateLimiter(clock, "slaves have come and gone", MOST_LINES)
        self.refusals = LogRateLimiter(clock, "connections to the HA port refused", MOST_LINES)
        self.links: list[SlaveLink] = []
        """The slaves that are connected."""
        self.has_reports = asyncio.Event()
        """Set when a slave has said how far it has come; whoever waits for it clears it."""

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
            self._server = await asyncio.get_running_loop().create_server(self._meet, host, port)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                text = f"cannot listen on {where} for slaves: the address is in use"
                raise AddressInUseError(text, port=port, key="haListenPort") from error
            key = HA_BIND_KEY if self.config.ha_bind_host else "haListenPort"
            raise ConfigError(f"cannot listen on {where} for slaves: {error.strerror}", key=key) from error

    def count_copies(self) -> int:
        """Return how many slaves copy this log."""
        return sum(link.counts for link in self.links)

    def count_in_sync(self) -> int:
        """Return how many slaves are in sync."""
        return sum(link.is_in_sync for link in self.links)

    def states(self) -> "list[SlaveState]":
        """Return how far each slave has come."""
        return [link.state() for link in self.links]

    # --- for the connections

    def add(self, link: "SlaveLink") -> None:
        """Take note of a slave that has come."""
        self.links.append(link)
        if self._is_closed:
            link.close()
            return
        if len(self.links) > MOST_LINKS:
            spare = next(one for one in self.links if one.is_spare)  # the new one at the latest
            if self.refusals.may_log():
                text = "closing the connection of %s to the HA port: there are %d others"
                _log.warning(text, spare.peer, MOST_LINKS)
            spare.close()
        self._plan_look()

    def remove(self, link: "SlaveLink") -> None:
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
        self.has_reports.set()
        self._on_acknowledged(sorted([link.acknowledged for link in self.links if link.counts], reverse=True))

    def _meet(self) -> asyncio.Protocol:
        return _Doorkeeper(self) if self._allowed else self._connect()

    def meet_allowed(self, transport: asyncio.Transport) -> None:
        """Serve who has come if the settings let them."""
        host, port = address_of(transport.get_extra_info("peername"))
        if is_among(host, self._allowed):
            link = self._connect()
            transport.set_protocol(link)
            link.connection_made(transport)
            return
        if self.refusals.may_log():
            peer = format_address(host, port) if host else "somebody who has gone"
            _log.warning("closing the connection of %s to the HA port: haAllowFrom does not name it", peer)
        transport.abort()

    def _connect(self) -> "SlaveLink":
        from .slave_link import SlaveLink  # most brokers have no slaves

        return SlaveLink(self, self._log, self._clock)

    def _plan_look(self) -> None:
        if self._timer is None and self.links and not self._is_closed:
            pause_ms = min(_LOOK_MS, self.config.heartbeat_ms, self.config.housekeeping_ms)
            self._timer = self._clock.call_at(self._clock.monotonic_ms() + pause_ms, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for link in tuple(self.links):
            link.look(now_ms)
        self._plan_look()
