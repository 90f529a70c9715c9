"""Which queues of a topic a member of a group reads, as a broker says (``QueryAssignmentProcessor``; pop.md §11).

Rules

    1. Who broadcasts gets all queues of all brokers.
    2. Nothing is said, and so members keep what they have, of a topic without a route, a group without members, or a
       way to share queues that brokers do not know; there are AVG and AVG_BY_CIRCLE. Clients without a name hear as
       little.
    3. Groups that pull share the queues of the cluster among them. A client that is no member gets none.
    4. Groups that pop: each client gets queue -1, all of them, of each broker, when the group's share is 0, or so great
       that each would be among all. Else it gets its own queues and those of the next ``share`` members; with more
       members than queues, one queue.
    5. Retry topics are always pulled.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from ...common.allocation import AllocateMessageQueueAveragely, AllocateMessageQueueAveragelyByCircle
from ...common.message import MessageQueue

Mode = Literal["PULL", "POP"]
PULL: Final = "PULL"
POP: Final = "POP"
_ALL_QUEUES: Final = -1
_STRATEGIES: Final = {
    strategy.name: strategy for strategy in (AllocateMessageQueueAveragely(), AllocateMessageQueueAveragelyByCircle())
}


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """A group, as far as sharing goes, and who of it asks."""

    group: str
    client_ids: Sequence[str]
    client_id: str


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """How the members of a group get the messages of a topic; ``share`` is for those that pop."""

    mode: Mode = PULL
    share: int = -1
    strategy: str = "AVG"


def assign(queues: Sequence[MessageQueue], members: Asking, sharing: Sharing) -> list[MessageQueue] | None:
    """Return the queues of a client, of all that the route has; None when nothing is to be said."""
    strategy = _STRATEGIES.get(sharing.strategy)
    client_ids = sorted(members.client_ids)
    if not queues or not client_ids or strategy is None:
        return None
    ordered = sorted(queues)
    gets_all = sharing.mode == POP and (sharing.share <= 0 or sharing.share >= len(client_ids) - 1)
    if not (gets_all or members.client_id.strip()):
        return None
    if sharing.mode == PULL:
        return strategy.allocate(members.group, members.client_id, ordered, client_ids)
    if gets_all:
        first = {queue.broker_name: queue.topic for queue in ordered}
        return [MessageQueue(topic, broker, _ALL_QUEUES) for broker, topic in first.items()]
    if members.client_id not in client_ids:
        return []
    index = client_ids.index(members.client_id)
    if len(client_ids) > len(ordered):
        return [ordered[index % len(ordered)]]
    count = len(client_ids)
    readers = [client_ids[(index + step) % count] for step in range(sharing.share + 1)]
    return [queue for reader in readers for queue in strategy.allocate(members.group, reader, ordered, client_ids)]
