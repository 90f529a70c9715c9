"""The two ways in which MetaQ 1.x shares queues; RocketMQ comes from it.

MetaQ knows a queue as a text, ``<broker>-<number>``, and sorts texts: ``a-10`` comes before ``a-2``.

    MetaqDefaultLoadBalanceStrategy   one contiguous block each, as AVG; with more than ten queues of a broker the
                                      blocks hold others than AVG's, since the order is another one
    MetaqConsisHashStrategy           a ring of 160 places for each member, by Ketama's hash: four places from each MD5
                                      of ``<client id>-<0 … 39>``; a queue belongs to the next place at or behind its
                                      own hash, the first four bytes of the MD5 of its text, lowest byte first

Where RocketMQ's strategies raise for empty arguments, these return nothing and say so. All members of a group must use
the same strategy.

Source: ``com.taobao.metamorphosis.client.consumer``, ``DefaultLoadBalanceStrategy`` and ``ConsisHashStrategy``.
"""

import hashlib
import logging
import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from .message import MessageQueue

_log = logging.getLogger(__name__)

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
        index = client_ids.index(client_id)
        share, extra = divmod(len(queues), len(client_ids))
        start = share * index + min(index, extra)
        count = share + (0 if index + 1 > extra else 1)
        return sorted(queues, key=partition_text)[start : start + count] or _nothing(group, client_id)


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
        return [queue for queue in queues if ring[_next_place(places, queue)] == client_id]


def partition_text(queue: MessageQueue) -> str:
    """Return the text by which MetaQ knows a queue."""
    return f"{queue.broker_name}-{queue.queue_id}"


def ketama_hash(key: str) -> int:
    """Return the first four bytes of the key's MD5, lowest byte first (``HashAlgorithm.KETAMA_HASH``)."""
    return _PLACES.unpack(_md5(key))[0]


def _places_of(client_id: str) -> list[int]:
    return [place for index in range(_DIGESTS_PER_MEMBER) for place in _PLACES.unpack(_md5(f"{client_id}-{index}"))]


def _next_place(places: list[int], queue: MessageQueue) -> int:
    index = bisect_left(places, ketama_hash(partition_text(queue)))
    return places[index] if index < len(places) else places[0]


def _md5(key: str) -> bytes:
    return hashlib.md5(key.encode(), usedforsecurity=False).digest()


def _nothing(group: str, client_id: str) -> list[MessageQueue]:
    _log.warning("group %s: no partitions for the consumer %s", group, client_id)
    return []
