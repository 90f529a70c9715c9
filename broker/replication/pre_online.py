"""What a broker of a group with several members does before clients find it (``BrokerPreOnlineService``).

Rules (``enableSlaveActingMaster`` with ``totalReplicas`` above 1; spec replication.md §12.1)

    1. A master tells each slave that name servers know where it is (906), waits until that copies its log, and takes
       back how far consumers and delay levels have come there. So what was committed while a slave acted as master is
       not consumed again. Only then it is registered, and delivers.
    2. A slave waits until it copies the log of a master that name servers know.
    3. Where nobody else is known there is nobody to wait for. Where no name server answers all wait. Who is there is
       asked each time, so that a member that has gone is not waited for.
    4. Progress that is older than the own by its version is left, and none is set back. That of transactions is left,
       too: official slaves pass over those that they cannot settle. So is that of timers: a slave delivers none.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, Protocol

from ...common.clock import Clock
from ...common.errors import RocketletError
from ...remoting.transport.event_loop import wait_at_most
from ...store.message_store import MessageStore
from ..delay.delay_delivery import DelayedDelivery
from ..delay.delay_progress import DelayFile, DelayProgress
from ..group.groups import OffsetFile, OffsetTable
from ..pull.fetch import MASTER_ID
from ..topic.topics import TopicTable
from .group_watch import GroupWatch
from .log_replication import LogReplication, MasterPlace

WAIT_MS: Final = 1_000
_log = logging.getLogger(__name__)


class Peer(Protocol):
    """Another member of the group; each question may raise ``RocketletError``."""

    async def introduce(self, place: MasterPlace) -> None:
        """Tell a slave where its master is."""
        ...

    async def offsets(self) -> OffsetFile:
        """Return the offsets of all groups."""
        ...

    async def delays(self) -> DelayFile:
        """Return how far the delay levels have been delivered."""
        ...


class MasterProgress(NamedTuple):
    """How far consumers and delay levels of a master have come, and who saves that."""

    store: MessageStore
    topics: TopicTable
    offsets: OffsetTable
    delays: DelayProgress
    delivery: DelayedDelivery
    save: Callable[[], Awaitable[object]]

    async def take_back(self, peer: Peer) -> int:
        """Go on where a slave has come further; return for how many queues of groups that is so."""
        offsets, delays = await peer.offsets(), await peer.delays()
        count = self.offsets.take_back(offsets, lambda topic: self.topics.get(topic) is not None)
        self.offsets.pull_back(self.store.max_offset)
        if not delays.data_version.is_older(self.delays.content().data_version):
            self.delivery.pass_until(delays.offset_table)
        await self.save()
        return count


class PreOnline:
    """Makes a broker level with the others of its group; ``run`` is a job for ``repeat``, and ends when it is."""

    def __init__(
        self,
        watch: GroupWatch,
        replication: LogReplication,
        progress: MasterProgress,
        connect: Callable[[str], Peer],
        clock: Clock,
    ) -> None:
        self._watch = watch
        self._replication = replication
        self._progress = progress
        self._connect = connect
        self._clock = clock
        self._taken: set[str] = set()
        self._said = ""

    def __repr__(self) -> str:
        return f"<PreOnline {self._said or 'begins'}>"

    async def run(self) -> int | None:
        """Do what can be done by now; return the pause before the next time."""
        others = await self._watch.look()
        if others is None:
            missing = "no name server says who is there"
        elif self._replication.client is None:
            missing = await self._prepare_master(others)
        else:
            missing = await self._prepare_slave(others)
        if not missing:
            names = ", ".join(others.values()) if others else "there are none"
            _log.info("level with the others of the group: %s", names)
            return None
        if missing != self._said:
            _log.warning("not online yet: %s", missing)
        self._said = missing
        return WAIT_MS

    async def _prepare_master(self, others: Mapping[int, str]) -> str:
        """Return what is missing, nothing when all slaves copy the log and their progress was taken back."""
        for count, (number, address) in enumerate(sorted(others.items()), 1):
            peer = self._connect(address)
            try:
                await peer.introduce(self._replication.place)
                if not await self._has_copies(count):
                    return f"slave {number} at {address} does not copy the log of this broker"
                if address not in self._taken:
                    moved = await self._progress.take_back(peer)
                    _log.info("slave %d at %s was further in %d queues of consumers", number, address, moved)
                    self._taken.add(address)
            except RocketletError as error:
                return f"slave {number} at {address}: {error}"
        return ""

    async def _has_copies(self, count: int) -> bool:
        server = self._replication.server
        if server.count_copies() < count:
            server.has_reports.clear()
            await wait_at_most(server.has_reports, WAIT_MS, self._clock)
        return server.count_copies() >= count

    async def _prepare_slave(self, others: Mapping[int, str]) -> str:
        """Return what is missing, nothing when the log of the master is copied, or there is none."""
        client, master = self._replication.client, self._replication.master
        assert client is not None, "a slave has it"
        if MASTER_ID not in others:
            return ""
        if not master.ha_address:
            return f"the master at {others[MASTER_ID]} does not say where its log is copied from"
        await wait_at_most(client.has_begun, WAIT_MS, self._clock)
        return "" if client.has_begun.is_set() else f"the log of the master at {others[MASTER_ID]} is not copied yet"
