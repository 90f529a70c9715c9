"""The route table without a wire."""

import pytest
from msgspec.structs import replace

from rocketlet.common.metadata import DataVersion
from rocketlet.namesrv.routes import BrokerRegistration, Identity, NameServerRoutes, QueueShape, Registered

EXPIRY_MS = 120_000
MASTER = Identity("c", "broker-a", 0, "10.0.0.1:10911")
SLAVE = Identity("c", "broker-a", 1, "10.0.0.2:10911")
OTHER = Identity("c", "broker-b", 0, "10.0.0.3:10911")
LINK = object()
TOPICS = {"T": QueueShape(4, 4, 6), "TBW102": QueueShape(8, 8, 7)}


def registration(
    identity: Identity = MASTER, topics: dict[str, QueueShape] | None = None, version: DataVersion | None = None
) -> BrokerRegistration:
    """Return what a broker says at its start."""
    return BrokerRegistration(
        identity,
        identity.address + "1",
        version or DataVersion(state_version=0, counter=1, timestamp=1),
        TOPICS if topics is None else topics,
        EXPIRY_MS,
    )


@pytest.fixture
def routes() -> NameServerRoutes:
    """Return a table that one master has registered at."""
    table = NameServerRoutes()
    table.register(registration(), LINK, 0)
    return table


def test_route_of_registered_topic_names_queues_and_addresses(routes: NameServerRoutes) -> None:
    """A route holds the queues as created and the address under broker id 0."""
    route = routes.route("T")
    assert route is not None
    assert route.queues == {"broker-a": QueueShape(4, 4, 6)}
    assert [group.addresses for group in route.groups] == [{0: MASTER.address}]


def test_route_of_unknown_topic_is_none(routes: NameServerRoutes) -> None:
    """A topic that nobody registered has no route."""
    assert routes.route("U") is None


def test_two_brokers_share_a_topic(routes: NameServerRoutes) -> None:
    """A topic on two brokers has the queues and addresses of both."""
    routes.register(registration(OTHER), LINK, 0)
    route = routes.route("T")
    assert route is not None
    assert sorted(route.queues) == ["broker-a", "broker-b"]
    assert sorted(group.broker_name for group in route.groups) == ["broker-a", "broker-b"]


def test_first_registration_with_one_topic_is_refused_without_a_trace() -> None:
    """An incremental registration at a fresh name server leaves nothing behind, no broker without addresses either."""
    table = NameServerRoutes()
    assert table.register(registration(topics={"T": QueueShape(4, 4, 6)}), LINK, 0) == Registered(is_accepted=False)
    assert (table.topics(), table.groups(), table.clusters()) == ([], [], {})


def test_incremental_registration_adds_one_topic(routes: NameServerRoutes) -> None:
    """A known broker may register a single topic; its other topics stay."""
    assert routes.register(
        registration(topics={"U": QueueShape(1, 1, 6)}, version=DataVersion(state_version=0, counter=2, timestamp=2)),
        LINK,
        0,
    )[0]
    assert sorted(routes.topics()) == ["T", "TBW102", "U"]


def test_registration_with_same_version_changes_no_queues(routes: NameServerRoutes) -> None:
    """Queue data are overwritten only when the data version differs, but a missing entry is always added."""
    routes.register(registration(topics={"T": QueueShape(9, 9, 6), "U": QueueShape(1, 1, 6)}), LINK, 0)
    route, added = routes.route("T"), routes.route("U")
    assert route is not None
    assert added is not None
    assert route.queues["broker-a"].read_queue_nums == 4


def test_registration_with_new_version_overwrites_queues(routes: NameServerRoutes) -> None:
    """A changed version brings changed queues."""
    routes.register(
        registration(topics={"T": QueueShape(9, 9, 6)}, version=DataVersion(state_version=0, counter=2, timestamp=2)),
        LINK,
        0,
    )
    route = routes.route("T")
    assert route is not None
    assert route.queues["broker-a"].read_queue_nums == 9


def test_slave_brings_no_topics_and_learns_its_master(routes: NameServerRoutes) -> None:
    """A slave's registration changes no queue data and is answered with the master's addresses."""
    answer = routes.register(registration(SLAVE, {"T": QueueShape(1, 1, 6), "V": QueueShape(1, 1, 6)}), LINK, 0)
    assert answer == Registered(True, MASTER.address, MASTER.address + "1")
    assert routes.route("V") is None
    group = routes.group("broker-a")
    assert group is not None
    assert group.addresses == {0: MASTER.address, 1: SLAVE.address}


def test_slave_that_becomes_master_keeps_one_id(routes: NameServerRoutes) -> None:
    """An address that registers again under another id leaves its old id."""
    routes.unregister(MASTER)
    routes.register(registration(SLAVE), LINK, 0)
    routes.register(registration(SLAVE._replace(broker_id=0)), LINK, 0)
    group = routes.group("broker-a")
    assert group is not None
    assert group.addresses == {0: SLAVE.address}


def test_slave_that_becomes_master_may_be_written_to(routes: NameServerRoutes) -> None:
    """One that stood in for its master is read from only; promoted, it can be written to with the same topics."""
    routes.unregister(MASTER)
    for broker_id, perm in ((1, 4), (0, 6)):
        said = registration(SLAVE._replace(broker_id=broker_id))
        routes.register(replace(said, acts_as_master=True), LINK, 0)
        route = routes.route("T")
        assert route is not None
        assert route.queues["broker-a"].perm == perm


def test_newcomer_with_older_state_is_ignored() -> None:
    """An address does not take over a broker id from one with a greater state version."""
    table = NameServerRoutes()
    table.register(registration(version=DataVersion(state_version=2, counter=1, timestamp=1)), LINK, 0)
    newcomer = MASTER._replace(address="10.0.0.9:10911")
    table.register(registration(newcomer._replace(broker_id=1)), LINK, 0)
    assert table.register(
        registration(newcomer, version=DataVersion(state_version=1, counter=5, timestamp=5)), LINK, 0
    ) == Registered(True)
    group = table.group("broker-a")
    assert group is not None
    assert group.addresses == {0: MASTER.address, 1: newcomer.address}
    assert table.version_of("c", newcomer.address) is None


def test_broker_that_is_back_at_another_address_is_found_there(routes: NameServerRoutes) -> None:
    """Its old connection, which ends later, and its old address, which unregisters, take nothing away any more."""
    moved = MASTER._replace(address="10.0.0.9:10911")
    routes.register(registration(SLAVE), object(), 0)
    assert routes.register(registration(moved), object(), 10) == Registered(True)
    answer = routes.register(registration(SLAVE), object(), 10)
    assert answer == Registered(True, moved.address, moved.address + "1")
    for _ in range(2):
        route = routes.route("T")
        assert route is not None
        assert route.queues == {"broker-a": QueueShape(4, 4, 6)}
        assert [group.addresses for group in route.groups] == [{0: moved.address, 1: SLAVE.address}]
        assert routes.drop_link(LINK) in ([MASTER], [])
        routes.unregister(MASTER)


def test_unregister_of_last_address_removes_group_and_topics(routes: NameServerRoutes) -> None:
    """Nothing is left of a broker group without an address."""
    routes.unregister(MASTER)
    assert (routes.topics(), routes.groups(), routes.clusters()) == ([], [], {})
    assert routes.version_of("c", MASTER.address) is None
    assert routes.expire(EXPIRY_MS + 1) == []


def test_members_that_name_other_clusters_get_answers(routes: NameServerRoutes) -> None:
    """A slave whose configuration names another cluster than its master's registers, and routes are still told."""
    assert routes.register(registration(SLAVE._replace(cluster="d")), LINK, 0) == Registered(is_accepted=True)
    assert routes.follows_clients("d", MASTER.address) is False
    route = routes.route("T")
    assert route is not None
    assert [group.addresses for group in route.groups] == [{0: MASTER.address, 1: SLAVE.address}]


def test_unregister_of_master_keeps_route_to_slave(routes: NameServerRoutes) -> None:
    """With its slave left, the route stays and has no key 0."""
    routes.register(registration(SLAVE), LINK, 0)
    routes.unregister(MASTER)
    route = routes.route("T")
    assert route is not None
    assert [group.addresses for group in route.groups] == [{1: SLAVE.address}]


def test_silent_broker_expires_after_its_time(routes: NameServerRoutes) -> None:
    """A broker that is silent for longer than it promised is removed; its link is handed back for closing."""
    assert routes.expire(EXPIRY_MS) == []
    assert routes.expire(EXPIRY_MS + 1) == [LINK]
    assert routes.route("T") is None


def test_refresh_postpones_expiry(routes: NameServerRoutes) -> None:
    """A sign of life counts like a registration."""
    routes.refresh("c", MASTER.address, 60_000)
    routes.refresh("c", "unknown:1", 60_000)
    assert routes.expire(EXPIRY_MS + 1) == []


def test_lost_link_removes_its_brokers_only(routes: NameServerRoutes) -> None:
    """The end of a connection unregisters what registered on it, at once."""
    routes.register(registration(OTHER), object(), 0)
    assert routes.drop_link(LINK) == [MASTER]
    assert [group.broker_name for group in routes.groups()] == ["broker-b"]


def test_old_link_of_reconnected_broker_removes_nothing(routes: NameServerRoutes) -> None:
    """A broker belongs to the link of its last registration."""
    routes.register(registration(), object(), 0)
    assert routes.drop_link(LINK) == []
    assert routes.route("T") is not None


def test_write_permission_is_wiped_and_added(routes: NameServerRoutes) -> None:
    """Wiping takes the write bit from each topic of the broker, adding sets permission 6; both count the topics."""
    assert routes.set_writable("broker-a", is_writable=False) == 2
    route = routes.route("TBW102")
    assert route is not None
    assert route.queues["broker-a"].perm == 5
    assert routes.set_writable("broker-a", is_writable=True) == 2
    route = routes.route("TBW102")
    assert route is not None
    assert route.queues["broker-a"].perm == 6
    assert routes.set_writable("nobody", is_writable=True) == 0


def test_topics_of_cluster(routes: NameServerRoutes) -> None:
    """A cluster lists the topics of its brokers only."""
    routes.register(registration(Identity("d", "x", 0, "h:1"), {"A": TOPICS["T"], "B": TOPICS["T"]}), LINK, 0)
    assert sorted(routes.topics_of("d")) == ["A", "B"]
    assert routes.clusters() == {"c": ["broker-a"], "d": ["x"]}


def test_lowest_id_brings_topics_while_slaves_act(routes: NameServerRoutes) -> None:
    """Without a master the slave with the lowest id stands in for it; others only name their addresses."""
    routes.unregister(MASTER)

    def act(broker_id: int, topic: str) -> None:
        who = Identity("c", "broker-a", broker_id, f"10.0.0.{broker_id}:10911")
        said = registration(who, {topic: QueueShape(1, 1, 6), "T": QueueShape(4, 4, 6)})
        routes.register(replace(said, acts_as_master=True), LINK, 0)

    act(3, "of 3")
    act(2, "of 2")
    act(3, "of 3 behind 2")
    assert sorted(routes.topics()) == ["T", "of 2", "of 3"]
