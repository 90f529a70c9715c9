"""Filters by properties with the official clients, and a filter that a Java broker saved."""

import json
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Received
from interop.driver import Driver, DriverError
from interop.servers import Server
from interop.versions import every_client, every_java
from javastores import unpack_store

Drivers = Callable[[str], Driver]
StartServer = Callable[..., Server]
FILTERING = {"enablePropertyFilter": "true"}
TAGS_A_OR_B = "(TAGS is not null and TAGS in ('TagA', 'TagB'))"


@pytest.fixture(scope="module")
def filtering(fresh_server: StartServer) -> Server:
    """Return a server with property filters switched on."""
    return fresh_server(**FILTERING)


@pytest.fixture
def topic(java: Driver, filtering: Server, new_name: Callable[[], str]) -> str:
    """Return a new topic with two queues on the filtering server."""
    name = new_name()
    with Admin(java, namesrv=filtering.namesrv) as admin:
        admin.create_topic(filtering.broker, name, 2)
    return name


def priced(*prices: int, tags: str | None = None) -> list[Outgoing]:
    """Return a message for each price, its price as body and as property."""
    return [Outgoing(b"%d" % price, tags=tags, properties={"price": str(price)}) for price in prices]


def numbers(messages: Iterable[Received]) -> list[int]:
    """Return the sorted prices."""
    return sorted(int(message.body) for message in messages)


def send(java: Driver, server: Server, topic: str, *messages: Outgoing) -> None:
    """Send the messages."""
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *messages)


def sql(topic: str, expression: str) -> dict[str, Any]:
    """Return a subscription by properties."""
    return {topic: {"sql": expression}}


@pytest.mark.feature("P23")
@every_client
def test_tags_by_sql(driver: Driver, java: Driver, filtering: Server, topic: str) -> None:
    """`TAGS in ('TagA', 'TagB')` brings 32 of 48 messages."""
    messages = [Outgoing(tag.encode(), tags=tag) for tag in ("TagA", "TagB", "TagC")] * 16
    send(java, filtering, topic, *messages)
    about = {"namesrv": filtering.namesrv, "group": f"{topic}-group", "subscriptions": sql(topic, TAGS_A_OR_B)}
    with PushConsumer(driver, **about) as consumer:
        assert sorted(message.body for message in consumer.received(32)) == [b"TagA"] * 16 + [b"TagB"] * 16
        send(java, filtering, topic, Outgoing(b"TagC", tags="TagC"), Outgoing(b"last", tags="TagA"))
        assert consumer.received(33)[-1].body == b"last"


@pytest.mark.feature("P23")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [("price > 20", [21, 40]), ("price between 10 and 21", [20, 21]), ("NOT (price <> 40) OR price = 5", [5, 40])],
)
@every_java
def test_properties_by_sql(expression: str, expected: list[int], java: Driver, filtering: Server, topic: str) -> None:
    """Comparison, range and combination bring the messages whose property fits, also those that come later."""
    group = f"{topic}-group"
    send(java, filtering, topic, *priced(5, 20, 21, 40))
    with PushConsumer(java, namesrv=filtering.namesrv, group=group, subscriptions=sql(topic, expression)) as consumer:
        assert numbers(consumer.received(2)) == expected
        send(java, filtering, topic, *priced(5, 20, 21, 40))
        assert numbers(consumer.received(4)) == sorted(expected * 2)


@pytest.mark.feature("P24")
@every_java
def test_unknown_property(java: Driver, filtering: Server, topic: str) -> None:
    """An expression over a property that no message has brings none; the group's offset moves past them all."""
    group = f"{topic}-group"
    send(java, filtering, topic, *priced(5, 20))
    with PushConsumer(java, namesrv=filtering.namesrv, group=group, subscriptions=sql(topic, "size > 1")) as consumer:
        send(java, filtering, topic, *[Outgoing(b"7", properties={"size": "7"})] * 4)  # behind the others of each queue
        assert numbers(consumer.received(4)) == [7] * 4
    with PullConsumer(java, namesrv=filtering.namesrv, group=group) as reader:
        assert sum(reader.committed(queue) for queue in reader.queues(topic)) == 6


@pytest.mark.feature("P25")
@every_java
def test_filters_are_off_unless_asked_for(java: Driver, server: Server, new_topic: Callable[[], str]) -> None:
    """Without enablePropertyFilter a consumer with an SQL filter does not start, and says why."""
    topic = new_topic()
    with pytest.raises(DriverError, match="does not support consumer to filter message by SQL92") as failed:
        PushConsumer(java, namesrv=server.namesrv, group=f"{topic}-group", subscriptions=sql(topic, "price > 20"))
    assert failed.value.failure.code == 1


@pytest.mark.feature("P27")
@pytest.mark.parametrize("expression", ["price >", "price in (1, 2)", "a is is 3"])
@every_java
def test_bad_expression(expression: str, java: Driver, filtering: Server, topic: str) -> None:
    """A consumer whose expression does not compile fails at its start with code 23."""
    with pytest.raises(DriverError) as failed:
        PushConsumer(java, namesrv=filtering.namesrv, group=f"{topic}-group", subscriptions=sql(topic, expression))
    assert failed.value.failure.code == 23


@pytest.mark.feature("P22", "P23")
@every_java
def test_groups_with_filters_of_their_own(java: Driver, filtering: Server, topic: str) -> None:
    """Groups by expression, by tag and without a filter get their own messages of one topic."""
    send(java, filtering, topic, *priced(5, 30, tags="A"), *priced(40, tags="B"))
    wanted: dict[str, tuple[dict[str, Any], list[int]]] = {
        "sql": (sql(topic, "price > 20"), [30, 40]),
        "tag": ({topic: "A"}, [5, 30]),
        "all": ({topic: "*"}, [5, 30, 40]),
    }
    for name, (subscriptions, expected) in wanted.items():
        group = f"{topic}-{name}"
        with PushConsumer(java, namesrv=filtering.namesrv, group=group, subscriptions=subscriptions) as consumer:
            assert numbers(consumer.received(len(expected))) == expected


def test_subscription_changes_while_running(java: Driver, filtering: Server, topic: str) -> None:
    """A consumer that subscribes anew gets what the new expression matches, without a restart."""
    about = {"namesrv": filtering.namesrv, "group": f"{topic}-group", "subscriptions": sql(topic, "price > 20")}
    with PushConsumer(java, **about) as consumer:
        assert len(consumer.queues(topic, 2)) == 2
        send(java, filtering, topic, *priced(5, 30))
        assert numbers(consumer.received(1)) == [30]
        java.call("consumer.subscribe", name=consumer.name, subscriptions=sql(topic, "price < 20"))
        wanted = b"6"
        while wanted not in {message.body for message in consumer.received()}:
            send(java, filtering, topic, *priced(6))
        send(java, filtering, topic, *priced(31, 31, 7, 7))  # one of each in either queue, in this order
        later = numbers(consumer.received())
        while later.count(7) < 2:
            known = len(later)
            later = numbers(consumer.received(known + 1))
            assert len(later) > known, later
        assert 31 not in later


def saved_filters(server: Server) -> dict[str, Any]:
    """Return what is in ``consumerFilter.json``, by topic."""
    return json.loads((server.store / "config" / "consumerFilter.json").read_text())["filterDataByTopic"]


@pytest.mark.feature("P28")
def test_we_keep_the_filters_of_java(
    rocketlet_up: StartServer, java: Driver, vectors: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A filter that the official broker saved is there after our start and stop, field by field."""
    store = unpack_store(vectors, "delay-retry", tmp_path)
    before = json.loads((store / "config" / "consumerFilter.json").read_text())["filterDataByTopic"]
    sizes = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "2000", "maxHashSlotNum": "500"}
    century_ms = str(100 * 365 * 24 * 3_600_000)
    sizes |= {"maxIndexNum": "400", "mappedFileSizeTimerLog": "102400"}
    settings = {**sizes, "brokerName": "golden-a", "filterDataCleanTimeSpan": century_ms}
    ours = rocketlet_up(store, **settings, **FILTERING)
    with PushConsumer(java, namesrv=ours.namesrv, group="other", subscriptions=sql("DelayTopic", "a > 1")) as consumer:
        assert len(consumer.queues("DelayTopic", 2)) == 2
    ours.stop()
    after = saved_filters(ours)
    assert after["DelayTopic"]["groupFilterData"]["other"]["expression"] == "a > 1"
    assert after["DelayTopic"]["groupFilterData"]["CID_sql"] == before["DelayTopic"]["groupFilterData"]["CID_sql"]
