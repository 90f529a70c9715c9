"""Who is connected: members of consumer groups with what they subscribe to, and producers, found by group or client id.

Rules (``ConsumerManager``, ``ProducerManager``; spec behaviour.md B.10)
    1. A member is a connection; two connections with one client id are two members, and both stand in the list.
    2. All members of a consumer group share one set of subscriptions, consume type, message model and start: the last
       heartbeat wins.
    3. A group changes when a member joins or leaves and when a topic joins or leaves its subscriptions. Whoever
       changed it is told so, and decides whether the members hear of it.
    4. A group without members is forgotten; its offsets are not (``groups.py``).
    5. A heartbeat of version 2 carries a fingerprint of its subscriptions, and leaves them out while the broker says
       that it knows them. The fingerprint of a group is that of the heartbeat which brought its subscriptions; unlike
       Java's broker, a group that has none, after a restart perhaps, asks for them (remoting.md 4.7).
    6. A producer may come on several connections for a while, when it has connected anew and the old connection has
       not ended yet: the one that came last counts, and the one before it again should that end first. A connection
       counts as long as it is in one group at least. (Java forgets the client id with the first group that is left or
       the first connection that ends.)

Pure: time is an argument; connections are only compared and handed back.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from ...common.subscriptions.subscription import Subscription
from ..outcomes.queue_counts import QueueCounts, count_by_queue
from .filters import is_unfiltered

LinkT = TypeVar("LinkT")


class ProducerLinks(Generic[LinkT]):
    """Finds producers by client id."""

    def __init__(self) -> None:
        self._links: dict[str, dict[LinkT, int]] = {}  # in the order in which they came, with how many groups each has

    def __repr__(self) -> str:
        return f"<ProducerLinks to {len(self._links)} clients>"

    def find(self, client_id: str) -> LinkT | None:
        """Return the connection of a client."""
        links = self._links.get(client_id)
        return next(reversed(links)) if links else None

    def join(self, client_id: str, link: LinkT) -> None:
        """Note that a connection of the client is in one group more."""
        links = self._links.setdefault(client_id, {})
        links[link] = links.get(link, 0) + 1

    def leave(self, client_id: str, link: LinkT) -> None:
        """Note that a connection of the client, one that has joined, is in one group less."""
        links = self._links[client_id]
        links[link] -= 1
        if not links[link]:
            del links[link]
            if not links:
                del self._links[client_id]


CLUSTERING = "CLUSTERING"
BROADCASTING = "BROADCASTING"


class Client(NamedTuple):
    """Who a heartbeat says it is from."""

    client_id: str
    language: str
    version: int


class Presence(NamedTuple):
    """The groups that a connection is a member of."""

    client_id: str
    consumer_groups: tuple[str, ...]
    producer_groups: tuple[str, ...]


class ConsumerSpec(NamedTuple):
    """What a heartbeat says about one consumer of a client."""

    group: str
    consume_type: str
    message_model: str
    from_where: str
    subscriptions: Mapping[str, Subscription]
    fingerprint: int


class Member(Struct):
    """One connection of a group."""

    client: Client
    heard_at_ms: int


class ConsumerGroup(Struct, Generic[LinkT]):
    """The members of one consumer group and what they share; ``came_at``: where the log ended when the first came."""

    name: str
    came_at: int
    consume_type: str = ""
    message_model: str = CLUSTERING
    from_where: str = ""
    members: dict[LinkT, Member] = field(default_factory=dict[LinkT, Member])
    subscriptions: dict[str, Subscription] = field(default_factory=dict[str, Subscription])
    fingerprint: int | None = None
    unfiltered: frozenset[str] = frozenset()
    """The topics of which it takes every message."""

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets every message."""
        return self.message_model == BROADCASTING


class Members(Generic[LinkT]):
    """All consumer and producer groups that somebody is connected for; ``log_end`` tells where the log ends now."""

    def __init__(self, log_end: Callable[[], int]) -> None:
        self._log_end = log_end
        self._consumers: dict[str, ConsumerGroup[LinkT]] = {}
        self.consumer_group = self._consumers.get
        """Return a group that has members, None when it has none; the pull path looks groups up here."""
        self._producers: dict[str, dict[LinkT, Member]] = {}
        self._producer_links = ProducerLinks[LinkT]()

    def __repr__(self) -> str:
        return f"<Members consumers={len(self._consumers)} producers={len(self._producers)}>"

    def producer_group(self, name: str) -> Mapping[LinkT, Member]:
        """Return the members of a producer group."""
        return self._producers.get(name, {})

    def producer_link(self, client_id: str) -> LinkT | None:
        """Return the connection of the client with this id, if it has joined a producer group."""
        return self._producer_links.find(client_id)

    def client_ids(self, group: str) -> list[str]:
        """Return the client id of each member of a consumer group."""
        consumers = self._consumers.get(group)
        return [member.client.client_id for member in consumers.members.values()] if consumers else []

    def consumer(self, group: str, client_id: str) -> tuple[LinkT, Client] | None:
        """Return the connection of the member of a group that has this client id: the one that came first."""
        consumers = self._consumers.get(group)
        members = consumers.members.items() if consumers else ()
        return next(((link, member.client) for link, member in members if member.client.client_id == client_id), None)

    def producer_groups(self) -> Mapping[str, Mapping[LinkT, Member]]:
        """Return the members of all producer groups."""
        return self._producers

    def consumer_group_names(self) -> list[str]:
        """Return the consumer groups that have members."""
        return list(self._consumers)

    def groups_subscribed_to(self, topic: str) -> list[str]:
        """Return the consumer groups whose members subscribe to a topic."""
        return [name for name, group in self._consumers.items() if topic in group.subscriptions]

    def join_consumer(self, spec: ConsumerSpec, client: Client, link: LinkT, now_ms: int) -> bool:
        """Take in what a heartbeat says about a consumer; tell whether the group changed."""
        is_new = self.refresh_consumer(spec, client, link, now_ms)
        group = self._consumers[spec.group]
        group.fingerprint = spec.fingerprint
        is_changed = group.subscriptions.keys() != spec.subscriptions.keys()
        kept = {
            topic: known
            for topic, known in group.subscriptions.items()
            if topic in spec.subscriptions and known.version >= spec.subscriptions[topic].version
        }
        group.subscriptions = {**spec.subscriptions, **kept}
        group.unfiltered = frozenset(topic for topic, one in group.subscriptions.items() if is_unfiltered(one))
        return is_new or is_changed

    def refresh_consumer(self, spec: ConsumerSpec, client: Client, link: LinkT, now_ms: int) -> bool:
        """Take in a heartbeat that leaves its subscriptions out; tell whether the group changed."""
        group = self._consumers.get(spec.group)
        if group is None:
            group = self._consumers[spec.group] = ConsumerGroup(spec.group, self._log_end())
        group.consume_type, group.message_model, group.from_where = spec[1:4]
        return _join(group.members, client, link, now_ms)

    def wants_subscriptions(self, group: str, fingerprint: int, *, is_short: bool) -> bool:
        """Tell, before a heartbeat is taken in, whether the next one of its client shall carry the subscriptions."""
        consumers = self._consumers.get(group)
        known = consumers.fingerprint if consumers else None
        return known != fingerprint if known is not None else is_short

    def join_producer(self, group: str, client: Client, link: LinkT, now_ms: int) -> None:
        """Take in what a heartbeat says about a producer."""
        known = self._producers.get(group, {}).get(link)
        if known is not None and known.client.client_id != client.client_id:
            self.leave_producer(group, link)
        if _join(self._producers.setdefault(group, {}), client, link, now_ms):
            self._producer_links.join(client.client_id, link)

    def leave_consumer(self, group: str, link: LinkT) -> ConsumerGroup[LinkT] | None:
        """Remove a member; return its group if it was one, without members perhaps."""
        consumers = self._consumers.get(group)
        if consumers is None or consumers.members.pop(link, None) is None:
            return None
        if not consumers.members:
            del self._consumers[group]
        return consumers

    def leave_producer(self, group: str, link: LinkT) -> None:
        """Remove a member of a producer group."""
        members = self._producers.get(group, {})
        member = members.pop(link, None)
        if member is not None:
            self._producer_links.leave(member.client.client_id, link)
            if not members:
                del self._producers[group]

    def leave_all(self, link: LinkT) -> list[ConsumerGroup[LinkT]]:
        """Remove a connection from every group; return the consumer groups that it was in."""
        for group in [name for name, members in self._producers.items() if link in members]:
            self.leave_producer(group, link)
        names = [group.name for group in self._consumers.values() if link in group.members]
        return [group for name in names if (group := self.leave_consumer(name, link)) is not None]

    def presences(self) -> dict[LinkT, Presence]:
        """Return every connection that is a member, with its groups."""
        consumers = {name: group.members for name, group in self._consumers.items()}
        client_ids = {
            link: member.client.client_id for members in self._all_members() for link, member in members.items()
        }
        return {
            link: Presence(client_id, _groups_with(link, consumers), _groups_with(link, self._producers))
            for link, client_id in client_ids.items()
        }

    def silent_links(self, now_ms: int, expiry_ms: int) -> list[LinkT]:
        """Return the connections that have not sent a heartbeat for so long; they shall be closed."""
        heard_at_ms: dict[LinkT, int] = {}
        for members in self._all_members():
            for link, member in members.items():
                heard_at_ms[link] = max(member.heard_at_ms, heard_at_ms.get(link, 0))
        return [link for link, at_ms in heard_at_ms.items() if now_ms - at_ms > expiry_ms]

    def _all_members(self) -> Iterator[dict[LinkT, Member]]:
        yield from (group.members for group in self._consumers.values())
        yield from self._producers.values()


class MemberLink(Protocol):
    """What administrators see of a member's connection."""

    @property
    def peer(self) -> str:
        """Where it comes from."""
        ...


class EveryMember:
    """Members of remoting and of other protocols together, as administrators see them; both may be in one group."""

    def __init__(self, *tables: Members[Any]) -> None:
        self._tables = tables

    def __repr__(self) -> str:
        return f"<EveryMember of {self._tables}>"

    def consumer_group(self, name: str) -> ConsumerGroup[MemberLink] | None:
        """Return a group that has members; what they share is what the first protocol says."""
        groups: list[ConsumerGroup[MemberLink]] = [
            group for table in self._tables if (group := table.consumer_group(name)) is not None
        ]
        if len(groups) < 2:
            return groups[0] if groups else None
        members = {link: member for group in groups for link, member in group.members.items()}
        subscriptions = {topic: one for group in reversed(groups) for topic, one in group.subscriptions.items()}
        return replace(groups[0], members=members, subscriptions=subscriptions)

    def producer_group(self, name: str) -> Mapping[MemberLink, Member]:
        """Return the members of a producer group."""
        return {link: member for table in self._tables for link, member in table.producer_group(name).items()}

    def producer_groups(self) -> Mapping[str, Mapping[MemberLink, Member]]:
        """Return the members of all producer groups."""
        return {name: self.producer_group(name) for table in self._tables for name in table.producer_groups()}

    def groups_subscribed_to(self, topic: str) -> list[str]:
        """Return the consumer groups whose members subscribe to a topic."""
        return [name for table in self._tables for name in table.groups_subscribed_to(topic)]

    def consumer_group_names(self) -> list[str]:
        """Return the consumer groups that have members."""
        return list({name: None for table in self._tables for name in table.consumer_group_names()})


def _groups_with(link: LinkT, groups: Mapping[str, Mapping[LinkT, Member]]) -> tuple[str, ...]:
    return tuple(sorted(name for name, members in groups.items() if link in members))


def _join(members: dict[LinkT, Member], client: Client, link: LinkT, now_ms: int) -> bool:
    member = members.get(link)
    if member is None:
        members[link] = Member(client, now_ms)
        return True
    member.client, member.heard_at_ms = client, now_ms
    return False


class RegisterCounts:
    """How often members have registered, and how long that took: by role, in queue 0 (``incConsumerRegisterTime``)."""

    CONSUMER, PRODUCER = "CONSUMER", "PRODUCER"
    MILLISECONDS, TIMES = range(2)

    def __init__(self) -> None:
        self.queues: QueueCounts[str] = count_by_queue(2)

    def note(self, role: str, took_ms: int) -> None:
        """Count one."""
        row = self.queues[role][0]
        row[self.MILLISECONDS] += took_ms
        row[self.TIMES] += 1
