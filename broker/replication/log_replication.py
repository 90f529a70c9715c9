"""Both ends of the copy of a broker's log, and what they have to do with its store and its sends.

master   tells its slaves of each commit; under SYNC_MASTER senders wait for them
slave    appends to its store, which takes no records of its own, and makes that readable; its end moves with it, so
         that a slave may have slaves
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...common.clock import Clock
from ...common.ids import format_address
from ..outcomes.scheduler import Scheduler
from ..settings.live import LiveSettings
from ..settings.replication import SYNC_MASTER
from .ha_server import HaServer
from .known_master import KnownMaster

if TYPE_CHECKING:
    from ..outcomes.replica_acks import ReplicaAcks
    from .ha_client import HaClient


class MasterPlace(NamedTuple):
    """Where slaves find a master, and where its log ended at its start."""

    ha_address: str
    flushed_offset: int
    address: str


class LogReplication:
    """The copy of one log: ``server`` gives it to slaves, ``client`` takes it from the master if this is a slave.

    ``own_address`` tells where the broker takes requests.
    """

    def __init__(
        self, scheduler: Scheduler, settings: LiveSettings, clock: Clock, own_address: Callable[[], str]
    ) -> None:
        config, store = settings.config.replication, scheduler.store
        acks = self._build_acks(scheduler, settings, clock) if config.role == SYNC_MASTER else None
        self._scheduler = scheduler
        self._store = store
        self._own_address = own_address
        self._ha_host = config.told_ha_host
        self._first_end = store.log_max_offset
        self.alive_members = config.total_replicas
        """How many brokers of the group are alive, this one among them, as name servers say."""
        self.asks_members = asyncio.Event()
        """Set when the group may have changed: whoever follows that asks the name servers."""
        self.master = KnownMaster(config)
        self.server = HaServer(store, settings, clock, _pass_over if acks is None else acks.acknowledged)
        scheduler.replicate(self.server.links, acks)
        self.client = self._build_client(settings, clock) if config.is_slave else None

    def __repr__(self) -> str:
        return f"<LogReplication {self.server!r}, {self.client!r}>"

    def _build_acks(self, scheduler: Scheduler, settings: LiveSettings, clock: Clock) -> "ReplicaAcks":
        from ..outcomes.replica_acks import ReplicaAcks  # not for those whose senders do not wait

        count = self._count_in_sync if settings.config.replication.acts_as_master else None
        return ReplicaAcks(settings, clock, scheduler.settle, count)

    def _count_in_sync(self) -> int:
        return min(self.alive_members, 1 + self.server.count_in_sync())

    @property
    def place(self) -> MasterPlace:
        """Where slaves find this broker, if it is a master."""
        address = self._own_address()
        port = self.server.port
        ha_address = format_address(self._ha_host, port) if self._ha_host else f"{address.rpartition(':')[0]}:{port}"
        return MasterPlace(ha_address, self._first_end, address)

    def _build_client(self, settings: LiveSettings, clock: Clock) -> "HaClient":
        from .ha_client import HaClient  # not for masters, which most brokers are

        self._store.take_copies_only()
        return HaClient(self._store, self.master, settings, clock, self._publish)

    def _publish(self) -> None:
        """Make readable what has been copied, and pass it on."""
        if self._scheduler.flushes_first:
            self._store.request_flush(self._scheduler.tell_flushed)
        else:
            self._store.advance()
        self._scheduler.tell_followers()


def _pass_over(_log_ends: Sequence[int]) -> None:
    """Let nobody wait for slaves."""
