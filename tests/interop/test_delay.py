"""Delayed messages of the official clients; level n waits for n seconds here."""

import pathlib
from collections.abc import Callable

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer, Sent
from interop.driver import Driver
from interop.servers import Server

StartServer = Callable[..., Server]
LEVELS = {"messageDelayLevel": "1s 2s 3s 4s"}
TOPIC = "delayed"


@pytest.fixture(scope="module")
def delays(fresh_server: StartServer) -> Server:
    """Start a server with four short levels."""
    return fresh_server(**LEVELS)


@pytest.mark.feature("L1")
@pytest.mark.parametrize("client", ["java", "go"])
def test_each_level_has_its_delay(driver: Driver, java: Driver, delays: Server, new_name: Callable[[], str]) -> None:
    """Messages of levels 3, 1 and 2 come in order of their delays, none before its time, once and unchanged."""
    topic = new_name()
    about = {"namesrv": delays.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "late"}}
    with Producer(java, namesrv=delays.namesrv) as maker:
        maker.send_all(topic, Outgoing(b"now", tags="late"))
    with PushConsumer(driver, **about) as consumer, Producer(driver, namesrv=delays.namesrv) as producer:
        assert len(consumer.received(1)) == 1
        sent: dict[int, Sent] = {}
        for level in (3, 1, 2):
            message = Outgoing(b"level %d" % level, tags="late", keys=["k"], delay_level=level)
            (sent[level],) = producer.send_all(topic, message)
        got = consumer.received(4)[1:]
    assert [message.body for message in got] == [b"level 1", b"level 2", b"level 3"]
    for level, message in enumerate(got, 1):
        assert message.store_timestamp >= message.born_timestamp + 1000 * level
        assert (message.msg_id, message.queue_id) == (sent[level].msg_id, sent[level].queue_id)
        assert (message.topic, message.tags, message.keys, message.reconsume_times) == (topic, "late", "k", 0)
        assert message.properties["DELAY"] == str(level)


@pytest.mark.feature("L2")
def test_levels_outside_the_table(java: Driver, delays: Server, new_name: Callable[[], str]) -> None:
    """Levels 0 and -1 come at once; 99 is the highest level, and says so."""
    topic = new_name()
    about = {"namesrv": delays.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with Producer(java, namesrv=delays.namesrv) as producer:
        producer.send_all(topic, Outgoing(b"highest", delay_level=99), Outgoing(b"0"), Outgoing(b"-1", delay_level=-1))
        with PushConsumer(java, **about) as consumer:
            *at_once, highest = consumer.received(3)
    assert ({one.body for one in at_once}, highest.body) == ({b"0", b"-1"}, b"highest")
    assert highest.properties["DELAY"] == "4"
    assert highest.store_timestamp >= highest.born_timestamp + 4000


@pytest.mark.feature("L3")
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_delayed_messages_survive_a_restart(
    ending: str, rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path
) -> None:
    """What waits when the broker stops, or is killed, comes after the start; after a stop once, else twice at most."""
    server = rocketlet_up(tmp_path / "store", **LEVELS)
    with Producer(java, namesrv=server.namesrv) as producer:
        for level in (1, 2, 3, 4) * 5:
            producer.send_all(TOPIC, Outgoing(b"level %d" % level, delay_level=level), mode="sync")
        with PushConsumer(java, namesrv=server.namesrv, group="g", subscriptions={TOPIC: "*"}) as consumer:
            assert len(consumer.received(5)) >= 5
    getattr(server, ending)()
    server = rocketlet_up(tmp_path / "store", **LEVELS)
    with (
        PushConsumer(java, namesrv=server.namesrv, group="all", subscriptions={TOPIC: "*"}) as consumer,
        Producer(java, namesrv=server.namesrv) as producer,
    ):
        bodies = consumer.wait_bodies(b"level %d" % level for level in (1, 2, 3, 4))
        producer.send_all(TOPIC, Outgoing(b"end", delay_level=4))
        assert consumer.wait_bodies([b"end"]) == bodies | {b"end"}
        counts = [len([one for one in consumer.received() if one.body == b"level %d" % level]) for level in range(1, 5)]
    assert all(5 <= count <= 10 for count in counts)
    assert ending == "kill" or counts == [5] * 4


@pytest.mark.feature("L4")
def test_parked_messages_are_found_in_the_schedule_topic(
    java: Driver, delays: Server, new_name: Callable[[], str]
) -> None:
    """The message id of a delayed send names the parked record, with the place that it is bound for."""
    topic = new_name()
    with Producer(java, namesrv=delays.namesrv) as producer, PullConsumer(java, namesrv=delays.namesrv) as reader:
        (sent,) = producer.send_all(topic, Outgoing(b"parked", delay_level=2))
        parked = reader.view(topic, sent.offset_msg_id)
    told = {name: parked.properties[name] for name in ("DELAY", "REAL_TOPIC", "REAL_QID")}
    assert (parked.topic, parked.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)
    assert told == {"DELAY": "2", "REAL_TOPIC": topic, "REAL_QID": str(sent.queue_id)}
