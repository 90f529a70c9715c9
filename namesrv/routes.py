"""The route table: which broker group holds which topic, and at which addresses.

Rules (RocketMQ 5.4 ``RouteInfoManager``; spec behaviour.md A.1, A.3, A.4, A.5)
    1. A broker group (one broker name) exists while it has an address; its topics disappear with its last address.
    2. Only a master (broker id 0) brings topics, or without a master the slave with the least id, if its release knows
       of acting masters; topics that a registration leaves out stay, unless told otherwise.
    3. A broker id that is not known yet and brings exactly one topic is refused: a restarted name server must not
       take an incremental registration for the whole truth. Nothing of a refused registration is kept.
    4. A broker is found by cluster and address, and lives until it unregisters, falls silent for longer than it
       promised, or loses the link on which it registered.
    5. A group that agreed to an acting master loses its write permission with its master.

Pure: time and links are arguments; a link is compared by identity and handed back, never used.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import NamedTuple

from msgspec import Struct, field

from ..common.metadata import DataVersion
from ..common.names import PERM_READ, PERM_WRITE
from ..remoting.bodies.route import MASTER_ID


class QueueShape(NamedTuple):
    """The queues of one topic on one broker group (``QueueData``)."""

    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class Identity(NamedTuple):
    """Who registers."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str


class BrokerRegistration(Struct, frozen=True):
    """What a broker tells about itself."""

    identity: Identity
    ha_address: str
    version: DataVersion
    topics: Mapping[str, QueueShape]
    expiry_ms: int
    follows_clients: bool = False
    zone: str | None = None
    acts_as_master: bool | None = None
    """Whether a slave may stand in for its master; None before 5.0."""


class Registered(NamedTuple):
    """The outcome of a registration; a slave learns the addresses of its master."""

    is_accepted: bool
    master_address: str | None = None
    master_ha_address: str | None = None


class BrokerGroup(Struct):
    """The addresses of one broker name by broker id (``BrokerData``)."""

    cluster: str
    broker_name: str
    addresses: dict[int, str] = field(default_factory=dict[int, str])
    zone: str | None = None
    acts_as_master: bool = False


class LiveBroker(Struct):
    """A broker that is heard of (``BrokerLiveInfo``); ``said`` is its last registration."""

    said: BrokerRegistration
    heard_at_ms: int
    link: object


class FoundRoute(NamedTuple):
    """Where a topic lives: its queues by broker name, and those groups."""

    queues: dict[str, QueueShape]
    groups: list[BrokerGroup]


class FirstChange(NamedTuple):
    """A group whose broker with the least number is another one; ``told`` are the addresses whom it concerns.

    ``offline_address`` is that of the one before if it has gone, ``ha_address`` where the new one gives its log.
    """

    first_id: int
    first_address: str
    offline_address: str | None
    ha_address: str | None
    told: tuple[str, ...]


class _LiveKey(NamedTuple):
    cluster: str
    address: str


class NameServerRoutes:
    """All routes that brokers have registered."""

    def __init__(self) -> None:
        self._queues: dict[str, dict[str, QueueShape]] = {}
        self._groups: dict[str, BrokerGroup] = {}
        self._live: dict[_LiveKey, LiveBroker] = {}
        self._on_first_changed: Callable[[FirstChange], object] | None = None

    def __repr__(self) -> str:
        return f"<NameServerRoutes topics={len(self._queues)} groups={len(self._groups)} live={len(self._live)}>"

    def subscribe(self, first_changed: Callable[[FirstChange], object]) -> None:
        """Have somebody told whenever another broker of a group is the first; it must not fail."""
        self._on_first_changed = first_changed

    def register(
        self, registration: BrokerRegistration, link: object, now_ms: int, *, deletes_absent: bool = False
    ) -> Registered:
        """Take a broker's word about itself (A.3)."""
        who = registration.identity
        known = self._groups.get(who.broker_name)
        holder = known.addresses.get(who.broker_id) if known else None
        if holder is not None and holder != who.address and self._is_newer(who.cluster, holder, registration):
            self._live.pop(_LiveKey(who.cluster, who.address), None)
            return Registered(is_accepted=True)
        if holder is None and len(registration.topics) == 1:
            return Registered(is_accepted=False)
        group = self._groups.setdefault(who.broker_name, BrokerGroup(who.cluster, who.broker_name))
        is_first = bool(group.addresses) and who.broker_id < min(group.addresses)
        _move_address(group, who)
        group.zone, group.acts_as_master = registration.zone, registration.acts_as_master is True
        if who.broker_id == MASTER_ID or (
            registration.acts_as_master is not None and who.broker_id == min(group.addresses)
        ):
            if deletes_absent:
                self._forget_topics(
                    {who.broker_name}, [topic for topic in self._queues if topic not in registration.topics]
                )
            self._take_topics(registration, is_first=holder is None)
        self._live[_LiveKey(who.cluster, who.address)] = LiveBroker(registration, now_ms, link)
        if is_first:
            self._tell_first(group, None, registration.ha_address)
        return self._registered(group, who)

    def unregister(self, *whose: Identity) -> None:
        """Forget addresses, and with its last address each group and its topics, in one walk over them (A.4)."""
        gone: set[str] = set()
        for who in whose:
            self._live.pop(_LiveKey(who.cluster, who.address), None)
            group = self._groups.get(who.broker_name)
            if group is None:
                continue
            was_first = bool(group.addresses) and who.broker_id == min(group.addresses)
            _drop_address(group, who.address)
            if not group.addresses:
                del self._groups[who.broker_name]
                gone.add(who.broker_name)
            elif group.acts_as_master and MASTER_ID not in group.addresses:
                self.set_writable(who.broker_name, is_writable=False)
            if was_first and group.addresses and group.acts_as_master:
                self._tell_first(group, who.address, None)
        if gone:
            self._forget_topics(gone, self.topics())

    def drop_link(self, link: object) -> list[Identity]:
        """Unregister every broker that registered on a link; return them."""
        lost = [live.said.identity for live in self._live.values() if live.link is link]
        self.unregister(*lost)
        return lost

    def expire(self, now_ms: int) -> list[object]:
        """Unregister the brokers that were silent for too long; return their links, which shall be closed."""
        silent = [live for live in self._live.values() if live.heard_at_ms + live.said.expiry_ms < now_ms]
        self.unregister(*[live.said.identity for live in silent])
        return [live.link for live in silent]

    def refresh(self, cluster: str, address: str, now_ms: int) -> None:
        """Note a sign of life; without effect for an unknown broker."""
        live = self._live.get(_LiveKey(cluster, address))
        if live is not None:
            live.heard_at_ms = now_ms

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """Return the version of the topic table that a live broker registered last."""
        live = self._live.get(_LiveKey(cluster, address))
        return live.said.version if live else None

    def follows_clients(self, cluster: str, address: str) -> bool:
        """Tell whether clients shall use a broker's port at the host under which they reached the name server."""
        live = self._live.get(_LiveKey(cluster, address))
        return live is not None and live.said.follows_clients

    def rival_of(self, who: Identity) -> str | None:
        """Return the other address at which a live broker has the same name and id."""
        group = self._groups.get(who.broker_name)
        holder = group.addresses.get(who.broker_id) if group is not None else None
        if holder is None or holder == who.address or _LiveKey(who.cluster, holder) not in self._live:
            return None
        return holder

    def route(self, topic: str) -> FoundRoute | None:
        """Return where a topic lives, None when no group with an address holds it (A.5)."""
        queues = self._queues.get(topic)
        return FoundRoute(queues, [self._groups[name] for name in queues]) if queues is not None else None

    def register_topic(self, topic: str, shapes: Mapping[str, QueueShape]) -> None:
        """Set the queues of one topic by broker name, up to the first unknown name; a new topic only if none is."""
        if topic not in self._queues and not shapes.keys() <= self._groups.keys():
            return
        for broker_name in takewhile(self._groups.__contains__, shapes):
            self._queues.setdefault(topic, {})[broker_name] = shapes[broker_name]

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic everywhere, or at the brokers of one cluster."""
        if topic in self._queues:
            queues = self._queues[topic]
            self._forget_topics(set(queues) if cluster is None else self._names_in(cluster), [topic])

    def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._queues)

    def topics_of(self, cluster: str) -> list[str]:
        """Return the topics that at least one group of a cluster holds."""
        names = self._names_in(cluster)
        return [topic for topic, queues in self._queues.items() if not names.isdisjoint(queues)]

    def topics_flagged(self, accepts: Callable[[int], bool]) -> list[str]:
        """Return the topics whose system flag, as one of their brokers told it, is accepted."""
        return [topic for topic, queues in self._queues.items() if accepts(next(iter(queues.values())).topic_sys_flag)]

    def groups(self) -> list[BrokerGroup]:
        """Return all broker groups."""
        return list(self._groups.values())

    def clusters(self) -> dict[str, list[str]]:
        """Return the broker names of each cluster."""
        clusters: dict[str, list[str]] = {}
        for group in self._groups.values():
            clusters.setdefault(group.cluster, []).append(group.broker_name)
        return clusters

    def group(self, broker_name: str) -> BrokerGroup | None:
        """Return one broker group."""
        return self._groups.get(broker_name)

    def set_writable(self, broker_name: str, *, is_writable: bool) -> int:
        """Wipe or add the write permission of every topic of a group; return how many topics (A.7)."""
        count = 0
        for queues in self._queues.values():
            shape = queues.get(broker_name)
            if shape is not None:
                perm = PERM_READ | PERM_WRITE if is_writable else shape.perm & ~PERM_WRITE
                queues[broker_name] = shape._replace(perm=perm)
                count += 1
        return count

    def _tell_first(self, group: BrokerGroup, offline_address: str | None, ha_address: str | None) -> None:
        """Tell all of a group that is left by its first, or the others that somebody comes before them."""
        if self._on_first_changed is None:
            return
        first = min(group.addresses)
        is_alone = offline_address is not None or len(group.addresses) == 1
        told = [address for number, address in group.addresses.items() if is_alone or number != first]
        change = FirstChange(first, group.addresses[first], offline_address, ha_address, tuple(told))
        self._on_first_changed(change)

    def _names_in(self, cluster: str) -> set[str]:
        return {group.broker_name for group in self._groups.values() if group.cluster == cluster}

    def _is_newer(self, cluster: str, holder: str, newcomer: BrokerRegistration) -> bool:
        version = self.version_of(cluster, holder)
        return version is not None and version.state_version > newcomer.version.state_version

    def _take_topics(self, registration: BrokerRegistration, *, is_first: bool) -> None:
        who = registration.identity
        is_changed = is_first or self.version_of(who.cluster, who.address) != registration.version
        for topic, shape in registration.topics.items():
            queues = self._queues.setdefault(topic, {})
            if is_changed or who.broker_name not in queues:
                queues[who.broker_name] = _shape_of(registration, shape)

    def _registered(self, group: BrokerGroup, who: Identity) -> Registered:
        master = group.addresses.get(MASTER_ID, "")
        live = self._live.get(_LiveKey(who.cluster, master))
        if who.broker_id == MASTER_ID or live is None:
            return Registered(is_accepted=True)
        return Registered(True, master, live.said.ha_address)

    def _forget_topics(self, broker_names: set[str], topics: Iterable[str]) -> None:
        for topic in topics:
            queues = self._queues[topic]
            for name in broker_names & queues.keys():
                del queues[name]
            if not queues:
                del self._queues[topic]


def _move_address(group: BrokerGroup, who: Identity) -> None:
    """Give an address one broker id: a slave that became master registers again under id 0."""
    _drop_address(group, who.address)
    group.cluster = who.cluster
    group.addresses[who.broker_id] = who.address


def _drop_address(group: BrokerGroup, dropped: str) -> None:
    for broker_id in [known for known, address in group.addresses.items() if address == dropped]:
        del group.addresses[broker_id]


def _shape_of(registration: BrokerRegistration, shape: QueueShape) -> QueueShape:
    """A slave that stands in for its master is read from only."""
    is_read_only = registration.acts_as_master is True and registration.identity.broker_id != MASTER_ID
    return shape._replace(perm=shape.perm & ~PERM_WRITE) if is_read_only else shape
