"""Polls a cluster for a stream: which queues there are, on which brokers, and what they hold.

Rules:

- Which queues there are is asked now and then (``discovery_ms``, 0: at each poll), what they hold at every poll.
- A strict poll raises for a topic that is not there and for a server that does not answer. Another one leaves a topic
  out that is gone, and a broker that does not answer at once, with one warning until it answers again. While no name
  server answers it goes on with the queues that are known, which their brokers serve all the same.
- Spark asks every 10 ms while there is nothing new; a poll that found nothing is followed by a pause, which is the
  longer the longer polls take, so that an idle stream takes a small part of a core however many queues it has.
- A slave whose master is gone may not have all that was read: a queue that ends too early there is waited for, as one
  of a broker that does not answer.
- The first offset of a queue is asked for once, and again when the queue has become shorter. That messages were deleted
  in the meantime is found by those who read them.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ...common.errors import RemotingError, ResponseError
from ...common.message import MessageQueue
from ...remoting.transport.event_loop import LoopClock
from ..cluster.cluster import Addresses, Cluster
from ..cluster.cluster_options import QueueChoice, find_present, find_queues
from ..cluster.queue_ranges import QueueExtent, describe_queue

_log = logging.getLogger(__name__)
_PAUSE_MS: Final = 100
_LONGEST_PAUSE_MS: Final = 10_000
_PAUSE_PER_POLL: Final = 10


class ClusterSnapshot(NamedTuple):
    """An address for each queue, what each queue of a broker that answered holds, and when that was."""

    addresses: Addresses
    extents: dict[MessageQueue, QueueExtent]
    at_ms: int


def snapshot_now(addresses: Addresses, extents: dict[MessageQueue, QueueExtent]) -> ClusterSnapshot:
    """Return a snapshot of this instant."""
    return ClusterSnapshot(addresses, extents, time.time_ns() // 1_000_000)


class ClusterPoller:
    """Asks about the chosen queues of a cluster again and again."""

    def __init__(self, cluster: Cluster, choice: QueueChoice, discovery_ms: int) -> None:
        self._cluster = cluster
        self._without_retries = Cluster(replace(cluster.access, retries=0))
        self._choice = choice
        self._discovery_ms = discovery_ms
        self._addresses: Addresses = {}
        self._discovered_at: float | None = None
        self._polled_at = 0.0
        self._poll_ms = self._discovery_took_ms = 0.0
        self._held: dict[MessageQueue, QueueExtent] = {}
        self._silent: set[str] = set()
        self._behind: set[MessageQueue] = set()
        self._is_lost = False

    def __repr__(self) -> str:
        return f"<ClusterPoller {len(self._addresses)} queues, silent {sorted(self._silent)}>"

    def snapshot_strictly(self) -> ClusterSnapshot:
        """Return what there is.

        Raises:
            ConfigError: A topic is not there.
            RemotingError, ResponseError: A server does not answer, or with an error.
        """
        self._keep(find_queues(self._cluster, self._choice, needs_any=False))
        self._held = self._cluster.extents(self._addresses)
        return snapshot_now(self._addresses, dict(self._held))

    def snapshot(self) -> ClusterSnapshot:
        """Return what there is of it; raises ``RemotingError`` when none of its queues was ever known."""
        interval_ms = max(self._discovery_ms, _PAUSE_PER_POLL * self._discovery_took_ms)
        if self._discovered_at is None or _ms_since(self._discovered_at) >= interval_ms:
            began_at = time.monotonic()
            self._discover_again()
            self._discovery_took_ms = _ms_since(began_at) if self._discovery_ms else 0.0
        self._polled_at = time.monotonic()
        extents = self._ask_all_brokers()
        self._poll_ms = _ms_since(self._polled_at)
        return snapshot_now(self._addresses, extents)

    def _ask_all_brokers(self) -> dict[MessageQueue, QueueExtent]:
        if not self._silent:
            try:
                return self._ask(self._addresses)
            except (RemotingError, ResponseError) as error:
                _log.info("fetching offsets failed, asking each broker separately: %s", error)
        return self._ask_each_broker()

    def _ask(self, addresses: Addresses) -> dict[MessageQueue, QueueExtent]:
        """Return what queues hold; raises ``RemotingError`` and ``ResponseError``."""
        known = {queue: address for queue, address in addresses.items() if queue in self._held}
        for queue, end in self._without_retries.ends(known).items() if known else ():
            if end >= self._held[queue].end:
                self._held[queue] = self._held[queue]._replace(end=end)
            else:
                del self._held[queue]
        if others := {queue: address for queue, address in addresses.items() if queue not in self._held}:
            self._held |= self._without_retries.extents(others)
        return {queue: self._held[queue] for queue in addresses}

    def discover(self) -> Addresses:
        """Find the queues that there are now; raises ``RemotingError`` when no name server answers."""
        self._keep(find_present(self._cluster, self._choice))
        return self._addresses

    def find(self, queues: Iterable[MessageQueue]) -> Addresses:
        """Return the addresses of queues as far as there are some; raises ``RemotingError`` as ``discover``."""
        wanted = set(queues)
        known = self._addresses if wanted <= self._addresses.keys() else self.discover()
        return {queue: known[queue] for queue in wanted & known.keys()}

    def pause(self) -> None:
        """Let some time pass since the last poll, which found nothing new."""
        left_ms = pause_after(self._poll_ms) - _ms_since(self._polled_at)
        if left_ms > 0:
            asyncio.run(LoopClock().sleep(round(left_ms)))

    def leave_out_copies_behind(self, snapshot: ClusterSnapshot, ends: Mapping[MessageQueue, int]) -> ClusterSnapshot:
        """Leave out queues that end before these offsets at a slave: its master had more, and is gone.

        Raises:
            RemotingError, ResponseError: No name server tells.
        """
        short = _short_of(snapshot, ends)
        masterless = self._cluster.masterless() if short else frozenset[str]()
        behind = {queue for queue in short if queue.broker_name in masterless}
        for queue in sorted(behind - self._behind):
            end = snapshot.extents[queue].end
            text = "%s ends at offset %d at a slave, before %d: waiting for its master"
            _log.warning(text, describe_queue(queue), end, ends[queue])
        self._behind = behind
        if not behind:
            return snapshot
        left = {queue: extent for queue, extent in snapshot.extents.items() if queue not in behind}
        return snapshot._replace(extents=left)

    def find_cut(
        self, snapshot: ClusterSnapshot, ends: Mapping[MessageQueue, int], seen_at_ms: int | None
    ) -> set[MessageQueue]:
        """Return the queues that end before these offsets and still hold messages of before an instant.

        Raises:
            RemotingError, ResponseError: A broker cannot be asked.
        """
        extents = snapshot.extents
        short = _short_of(snapshot, ends)
        if not short or seen_at_ms is None:
            return set()
        asked = {queue: snapshot.addresses[queue] for queue in short}
        newer = self._cluster.offsets_at(asked, dict.fromkeys(asked, seen_at_ms))
        return {queue for queue in short if newer[queue] > extents[queue].first}

    def _discover_again(self) -> None:
        """Find the queues, or go on with those that are known; raises ``RemotingError`` when there are none."""
        if not self._addresses:
            self.discover()
            return
        try:
            self._keep(find_present(self._without_retries, self._choice))
            self._is_lost = False
        except (RemotingError, ResponseError) as error:
            self._discovered_at = time.monotonic()
            if not self._is_lost:
                _log.warning(
                    "no name server answers, going on with the %d known queues: %s", len(self._addresses), error
                )
            self._is_lost = True

    def _keep(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._discovered_at = time.monotonic()

    def _ask_each_broker(self) -> dict[MessageQueue, QueueExtent]:
        found: dict[MessageQueue, QueueExtent] = {}
        for broker in {queue.broker_name for queue in self._addresses}:
            own = {queue: address for queue, address in self._addresses.items() if queue.broker_name == broker}
            try:
                found |= self._ask(own)
                self._silent.discard(broker)
            except (RemotingError, ResponseError) as error:
                if broker not in self._silent:
                    _log.warning("broker %s does not answer, skipping its queues until it does: %s", broker, error)
                self._silent.add(broker)
        return found


def _short_of(snapshot: ClusterSnapshot, ends: Mapping[MessageQueue, int]) -> set[MessageQueue]:
    extents = snapshot.extents
    return {queue for queue, end in ends.items() if queue in extents and extents[queue].end < end}


def pause_after(poll_ms: float) -> float:
    """Return how much time lies between the beginnings of two polls that find nothing, of which one takes so long."""
    return min(max(_PAUSE_MS, _PAUSE_PER_POLL * poll_ms), _LONGEST_PAUSE_MS)


def _ms_since(at: float) -> float:
    return (time.monotonic() - at) * 1000
