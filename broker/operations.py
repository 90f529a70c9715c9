"""What a broker does for clients, whatever protocol brings their requests: the one door for an adapter beside remoting.

An adapter checks what its clients send, calls an operation, and writes what its ``Outcome`` comes to. At the end of
each turn in which it has called one it calls ``scheduler.commit_turn``, so that what was stored meanwhile shares one
commit, and ``scheduler.make_readable`` behind the answers.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..common.clock import Clock
from ..store.message_store import MessageStore
from .group.filters import FilterSelection
from .group.groups import GroupTable, OffsetTable
from .group.members import Members
from .outcomes.scheduler import Scheduler
from .send.recall import RecallOperation
from .send.send import SendOperations
from .send.send_back import SendBackOperation
from .settings.live import LiveSettings
from .topic.topics import TopicTable
from .transaction.end_transaction import EndTransaction

if TYPE_CHECKING:
    from .admin.guests import GuestLink
    from .pop.parts import Pop
    from .security.access import Access


class OtherBroker(NamedTuple):
    """What another broker has of a topic, and the address at which it serves gRPC."""

    name: str
    address: str
    read_queues: int
    write_queues: int
    perm: int


class BrokerOperations(NamedTuple):
    """The operations, and the tables that they work on.

    ``pop`` returns what the broker has of POP, which is built at the first call. ``make_known`` has topics saved and
    told to the name servers, and calls back when that is done. ``guests`` are the clients of other protocols, which
    administrators see beside those of remoting.
    """

    clock: Clock
    settings: LiveSettings
    store: MessageStore
    scheduler: Scheduler
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    make_known: Callable[[Sequence[str], Callable[[], object]], object]
    guests: "Members[GuestLink]"
    filters: FilterSelection
    sends: SendOperations
    send_backs: SendBackOperation
    recalls: RecallOperation
    transaction_ends: EndTransaction
    pop: "Callable[[], Pop]"
    access: "Access | None"
    """Tells who may do what; ``None`` where everybody is served."""
    find_other_brokers: Callable[[str, Callable[[Sequence[OtherBroker]], object]], object]
    """Calls with the other brokers that have a topic, as far as they serve gRPC."""
