"""Both ends of the copy of a broker's log, and what they have to do with its store and its sends.

master   tells its slaves of each commit; under SYNC_MASTER senders wait for them
slave    appends to its store, which takes no records of its own, and makes that readable; its end moves with it, so
         that a slave may have slaves
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...common.clock import Clock
from ..outcomes.scheduler import Scheduler
from ..settings.live import LiveSettings
from ..settings.replication import SYNC_MASTER
from .ha_server import HaServer
from .known_master import KnownMaster

if TYPE_CHECKING:
    from ..outcomes.replica_acks import ReplicaAcks
    from .ha_client import HaClient


class LogReplication:
    """The copy of one log: ``server`` gives it to slaves, ``client`` takes it from the master if this is a slave."""

    def __init__(self, scheduler: Scheduler, settings: LiveSettings, clock: Clock) -> None:
        config, store = settings.config.replication, scheduler.store
        acks = self._build_acks(scheduler, settings, clock) if config.role == SYNC_MASTER else None
        self._scheduler = scheduler
        self._store = store
        self.first_end = store.log_max_offset
        """Where the log ended at the start."""
        self.master = KnownMaster(config)
        self.server = HaServer(store, settings, clock, _pass_over if acks is None else acks.acknowledged)
        scheduler.replicate(self.server.links, acks)
        self.client = self._build_client(settings, clock) if config.is_slave else None

    def __repr__(self) -> str:
        return f"<LogReplication {self.server!r}, {self.client!r}>"

    def _build_acks(self, scheduler: Scheduler, settings: LiveSettings, clock: Clock) -> "ReplicaAcks":
        from ..outcomes.replica_acks import ReplicaAcks  # not for those whose senders do not wait

        return ReplicaAcks(settings, clock, scheduler.settle)

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
