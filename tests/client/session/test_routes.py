"""Routes as values."""

import pytest

from rocketlet.client.session.routes import (
    QueueShare,
    TopicRoute,
    TopicRoutes,
    choose_address,
    limit_queues,
    publish_queues,
    route_from,
    subscribe_queues,
)
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.route import TopicRouteData

TWO_BROKERS = TopicRoute(
    (QueueShare("broker-a", 6, 2, 1), QueueShare("broker-b", 6, 1, 2)),
    {"broker-a": {0: "a:1", 1: "a:2"}, "broker-b": {0: "b:1"}},
)


def names(queues: tuple[tuple[str, str, int], ...]) -> list[str]:
    """Return queues as ``broker:id``."""
    return [f"{broker}:{queue_id}" for _, broker, queue_id in queues]


@pytest.mark.feature("K3")
def test_publish_list_of_the_template_topic_has_all_queues_by_broker() -> None:
    """TBW102 with 8 write queues on each of two brokers gives 16 queues, broker-a's first."""
    text = (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"b:1"},"brokerName":"broker-b"},'
        b'{"brokerAddrs":{"0":"a:1"},"brokerName":"broker-a"}],"queueDatas":['
        b'{"brokerName":"broker-b","perm":7,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8},'
        b'{"brokerName":"broker-a","perm":7,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )
    route = route_from(decode_body(TopicRouteData, text))

    expected = [f"broker-{name}:{queue_id}" for name in "ab" for queue_id in range(8)]
    assert names(publish_queues("TBW102", route)) == expected


@pytest.mark.feature("K3")
def test_publish_list_needs_write_permission_and_a_master() -> None:
    """A broker that is read-only, unknown or without its master gets no messages, but is still consumed from."""
    route = TopicRoute(
        (QueueShare("gone", 6, 1, 1), QueueShare("readonly", 4, 1, 1), QueueShare("slave", 6, 1, 1)),
        {"readonly": {0: "r:1"}, "slave": {1: "s:1"}},
    )

    assert publish_queues("T", route) == ()
    assert names(subscribe_queues("T", route)) == ["gone:0", "readonly:0", "slave:0"]


def test_lists_use_their_own_queue_numbers() -> None:
    """Write queues count for producers, read queues for consumers."""
    assert names(publish_queues("T", TWO_BROKERS)) == ["broker-a:0", "broker-b:0", "broker-b:1"]
    assert names(subscribe_queues("T", TWO_BROKERS)) == ["broker-a:0", "broker-a:1", "broker-b:0"]


def test_order_configuration_alone_makes_the_publish_list() -> None:
    """With an order configuration the brokers that are alive do not matter."""
    route = TWO_BROKERS._replace(order_configuration="broker-z:2;nonsense;broker-a:1")

    assert names(publish_queues("T", route)) == ["broker-z:0", "broker-z:1", "broker-a:0"]


def test_template_is_cut_to_the_queues_of_a_new_topic() -> None:
    """Both numbers become the template's read number, at most the number for new topics."""
    route = TopicRoute((QueueShare("broker-a", 7, 8, 16), QueueShare("broker-b", 7, 2, 8)), {})

    assert [share[2:] for share in limit_queues(route, 4).shares] == [(4, 4), (2, 2)]


@pytest.mark.parametrize(
    ("wanted", "address", "is_slave"),
    [(0, "m:1", False), (1, "s:2", True), (2, "s:2", True)],
    ids=["master", "the next slave id", "that slave"],
)
def test_address_is_chosen_by_broker_id(wanted: int, address: str, is_slave: bool) -> None:
    """The wanted id is taken, for a slave also the next one."""
    chosen = choose_address({0: "m:1", 2: "s:2"}, wanted)

    assert chosen == (address, is_slave)


def test_address_is_any_when_the_wanted_broker_is_gone() -> None:
    """Without its master a group is read from a slave; without any broker there is no address."""
    assert choose_address({3: "s:3"}, 0) == ("s:3", True)
    assert choose_address({}, 0) is None


def test_table_forgets_brokers_that_left_every_route() -> None:
    """Addresses follow the routes that are in use."""
    table = TopicRoutes()
    assert table.put("T", TWO_BROKERS)
    assert not table.put("T", TWO_BROKERS._replace(brokers=dict(TWO_BROKERS.brokers)))
    assert sorted(table.addresses(with_slaves=True)) == ["a:1", "a:2", "b:1"]
    assert sorted(table.addresses(with_slaves=False)) == ["a:1", "b:1"]

    assert table.put("T", TWO_BROKERS._replace(brokers={"broker-a": {0: "a:9"}}))
    assert table.master_of("broker-a") == "a:9"
    assert table.master_of("broker-b") is None
