"""How the queues of a topic are shared among the members of a group, by Java's names and with Java's results.

Every strategy is a pure function of the sorted queues and the sorted client ids: all members compute it on their own
and must agree. Two rules hold for all but ``AllocateMessageQueueByConfig``: empty arguments are a ``ValueError``; a
client that is not among the members gets nothing, with a line in the log (``AbstractAllocateMessageQueueStrategy``).

Seven queues, consumers a, b, c:

    AllocateMessageQueueAveragely           a {0 1 2}  b {3 4}    c {5 6}
    AllocateMessageQueueAveragelyByCircle   a {0 3 6}  b {1 4}    c {2 5}
    AllocateMessageQueueByMachineRoom       a {0 1 6}  b {2 3}    c {4 5}     of the queues of the configured rooms

MetaQ 1.x, which RocketMQ comes from, shares queues in two ways of its own. It knows a queue as a text,
``<broker>-<number>``, and sorts texts: ``a-10`` comes before ``a-2``.

    MetaqDefaultLoadBalanceStrategy   one contiguous block each, as AVG; with more than ten queues of a broker the
                                      blocks hold others than AVG's, since the order is another one
    MetaqConsisHashStrategy           a ring of 160 places for each member, by Ketama's hash: four places from each MD5
                                      of ``<client id>-<0 … 39>``; a queue belongs to the next place at or behind its
                                      own hash, the first four bytes of the MD5 of its text, lowest byte first

Where RocketMQ's strategies raise for empty arguments, these return nothing and say so
(``com.taobao.metamorphosis.client.consumer``).
"""

import hashlib
import logging
import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from .message import MessageQueue

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
Queues = Sequence[MessageQueue]


class AllocateMessageQueueStrategy(Protocol):
    """A way to share queues; all members of a group must use the same."""

    @property
    def name(self) -> str:
        """Java's name of the strategy."""
        ...

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client."""
        ...


class _AmongMembers(ABC):
    """Shares queues among the members only; a subclass says how."""

    __slots__ = ()

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues of one client."""
        return self._share(client_id, queues, client_ids) if _is_member(group, client_id, queues, client_ids) else []

    @abstractmethod
    def _share(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        """Return the queues of one of the members."""


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragely(_AmongMembers):
    """One contiguous block each; the first members get the surplus."""

    name = "AVG"

    def _share(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        return _block_of(client_id, client_ids, queues)


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueAveragelyByCircle(_AmongMembers):
    """Queue k belongs to member k modulo their number."""

    name = "AVG_BY_CIRCLE"

    def _share(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByConfig:
    """The configured queues, whatever there is; the other members must complement them."""

    queues: tuple[MessageQueue, ...] = ()
    name = "CONFIG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the configured queues."""
        del group, client_id, queues, client_ids
        return list(self.queues)


@dataclass(frozen=True, slots=True)
class AllocateMessageQueuePinnedToIp(_AmongMembers):
    """Blocks as ``AllocateMessageQueueAveragely``, for the members at one address only; the others get nothing.

    Pins a group to a test machine: while no member runs there, nobody consumes.
    """

    ip: str
    name = "IP_PINNED"

    def __post_init__(self) -> None:
        if not self.ip.strip():
            raise ValueError("the ip that queues are pinned to is empty")

    def _share(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        if not self._is_pinned(client_id):
            return []
        pinned = [each for each in client_ids if self._is_pinned(each)]
        return _block_of(client_id, pinned, queues)

    def _is_pinned(self, client_id: str) -> bool:
        return client_id.partition("@")[0] == self.ip


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueByMachineRoom(_AmongMembers):
    """Blocks of the queues whose broker name is ``room@name`` with a configured room; the surplus goes round."""

    rooms: frozenset[str] = frozenset()
    name = "MACHINE_ROOM"

    def _share(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        kept = [queue for queue in queues if self._is_near(queue)]
        index = client_ids.index(client_id)
        share, surplus = divmod(len(kept), len(client_ids))
        block = kept[index * share : (index + 1) * share]
        return block + kept[share * len(client_ids) + index :][:1] if index < surplus else block

    def _is_near(self, queue: MessageQueue) -> bool:
        room, *names = queue.broker_name.split("@")
        return len(names) == 1 and room in self.rooms


@dataclass(frozen=True, slots=True)
class AllocateMachineRoomNearby:
    """The inner strategy within each room; rooms without a consumer are shared among all.

    The resolvers name the room of a queue's broker and of a client; an empty name is a ``ValueError``.
    """

    inner: AllocateMessageQueueStrategy
    room_of_queue: Callable[[MessageQueue], str]
    room_of_client: Callable[[str], str]

    @property
    def name(self) -> str:
        """Java's name, made of the inner one's."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the client's part of its own room's queues, then of each room that has no consumer."""
        if not _is_member(group, client_id, queues, client_ids):
            return []
        queues_by_room = _by_room(queues, self.room_of_queue)
        clients_by_room = _by_room(client_ids, self.room_of_client)
        own_room = self.room_of_client(client_id)
        result: list[MessageQueue] = []
        near = queues_by_room.pop(own_room, None)
        if near:
            result += self.inner.allocate(group, client_id, near, clients_by_room[own_room])
        for room, others in sorted(queues_by_room.items()):
            if room not in clients_by_room:
                result += self.inner.allocate(group, client_id, others, client_ids)
        return result


def md5_hash(key: str) -> int:
    """Return the first four bytes of the key's MD5, unsigned (``ConsistentHashRouter.MD5Hash``)."""
    return int.from_bytes(_md5(key)[:4], "big")


@dataclass(frozen=True, slots=True)
class AllocateMessageQueueConsistentHash(_AmongMembers):
    """A hash ring of virtual nodes: a change of the members moves only the queues of those that came or went."""

    virtual_nodes: int = 10
    hash_key: Callable[[str], int] = md5_hash
    name = "CONSISTENT_HASH"

    def __post_init__(self) -> None:
        if self.virtual_nodes < 0:
            raise ValueError(f"virtual_nodes is {self.virtual_nodes}, must not be negative")

    def _share(self, client_id: str, queues: Queues, client_ids: Sequence[str]) -> list[MessageQueue]:
        ring = self._ring(client_ids)
        if not ring:
            return []
        places = sorted(ring)
        return [queue for queue in queues if ring[_next_place(places, self._place(queue))] == client_id]

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        # An id that appears twice gets further nodes, as Java's replica count does.
        ring: dict[int, str] = {}
        counts: dict[str, int] = {}
        for client_id in client_ids:
            first = counts.get(client_id, 0)
            counts[client_id] = first + self.virtual_nodes
            for index in range(first, first + self.virtual_nodes):
                ring[self.hash_key(f"{client_id}-{index}")] = client_id
        return ring

    def _place(self, queue: MessageQueue) -> int:
        topic, broker_name, queue_id = queue
        return self.hash_key(f"MessageQueue [topic={topic}, brokerName={broker_name}, queueId={queue_id}]")


def _block_of(client_id: str, client_ids: Sequence[str], queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    """Return the contiguous block of a member; the first members get the surplus."""
    index = client_ids.index(client_id)
    share, surplus = divmod(len(queues), len(client_ids))
    start = index * share + min(index, surplus)
    return list(queues[start : start + share + (index < surplus)])


def _next_place(places: list[int], place: int) -> int:
    index = bisect_left(places, place)
    return places[index] if index < len(places) else places[0]


def _by_room(items: Sequence[_T], room_of: Callable[[_T], str]) -> dict[str, list[_T]]:
    rooms: dict[str, list[_T]] = {}
    for item in items:
        room = room_of(item)
        if not room.strip():
            raise ValueError(f"{item} is in no machine room")
        rooms.setdefault(room, []).append(item)
    return rooms


def _is_member(group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    if not client_id.strip():
        raise ValueError("client id is empty")
    if not queues:
        raise ValueError("there are no queues")
    if not client_ids:
        raise ValueError("there are no client ids")
    if client_id in client_ids:
        return True
    _log.warning("[BUG] ConsumerGroup: %s The consumerId: %s not in cidAll: %s", group, client_id, list(client_ids))
    return False


_PLACES = struct.Struct("<4I")
_DIGESTS_PER_MEMBER = 40


@dataclass(frozen=True, slots=True)
class MetaqDefaultLoadBalanceStrategy:
    """Blocks whose sizes differ by one at most; the first members get the surplus."""

    name = "METAQ_DEFAULT"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the block of the client."""
        if client_id not in client_ids:
            return _nothing(group, client_id)
        return _block_of(client_id, client_ids, sorted(queues, key=partition_text)) or _nothing(group, client_id)


@dataclass(frozen=True, slots=True)
class MetaqConsisHashStrategy:
    """A hash ring: a change of the members moves only the queues of those that came or went."""

    name = "METAQ_CONSIS_HASH"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return the queues whose next place on the ring is the client's."""
        if client_id not in client_ids:
            return _nothing(group, client_id)
        ring = {place: member for member in client_ids for place in _places_of(member)}
        places = sorted(ring)
        return [queue for queue in queues if ring[_next_place(places, ketama_hash(partition_text(queue)))] == client_id]


def partition_text(queue: MessageQueue) -> str:
    """Return the text by which MetaQ knows a queue."""
    return f"{queue.broker_name}-{queue.queue_id}"


def ketama_hash(key: str) -> int:
    """Return the first four bytes of the key's MD5, lowest byte first (``HashAlgorithm.KETAMA_HASH``)."""
    return _PLACES.unpack(_md5(key))[0]


def _places_of(client_id: str) -> list[int]:
    return [place for index in range(_DIGESTS_PER_MEMBER) for place in _PLACES.unpack(_md5(f"{client_id}-{index}"))]


def _md5(key: str) -> bytes:
    return hashlib.md5(key.encode(), usedforsecurity=False).digest()


def _nothing(group: str, client_id: str) -> list[MessageQueue]:
    _log.warning("group %s: no partitions for the consumer %s", group, client_id)
    return []
