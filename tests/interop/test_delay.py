"""Delayed messages of the official clients; level n waits for n seconds here."""

import pathlib
import struct
from collections.abc import Callable

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer, Sent
from interop.driver import Driver
from interop.servers import Server
from interop.versions import every_client
from polling import ask_until

StartServer = Callable[..., Server]
LEVELS = {"messageDelayLevel": "1s 2s 3s 4s"}
TOPIC = "delayed"
MINUTE_MS = 60_000
MINUTES = (*range(1, 11), 20, 30, 60, 120)
DEFAULT_LEVELS_MS = [1_000, 5_000, 10_000, 30_000, *(MINUTE_MS * count for count in MINUTES)]
ENTRY = struct.Struct(">qiq")  # place and size of the record, and the time at which it is due
STORE_TIMESTAMP = slice(56, 64)  # of a record


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
        # a millisecond less: the broker's clock runs on from a reading of its own, and both are cut to milliseconds
        assert message.store_timestamp >= message.born_timestamp + 1000 * level - 1
        assert (message.msg_id, message.queue_id) == (sent[level].msg_id, sent[level].queue_id)
        assert (message.topic, message.tags, message.keys, message.reconsume_times) == (topic, "late", "k", 0)
        assert message.properties["DELAY"] == str(level)


def read_entries(store: pathlib.Path, level: int, last_place: int) -> list[tuple[int, int, int]]:
    """Return the entries of a level's queue, once there is one for the record at this place in the log."""
    path = store / "consumequeue" / "SCHEDULE_TOPIC_XXXX" / f"{level - 1}" / f"{0:020}"

    def read() -> list[tuple[int, int, int]]:
        data = path.read_bytes() if path.exists() else b""
        return [entry for entry in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]) if entry[1]]

    return ask_until(read, lambda entries: any(place == last_place for place, _, _ in entries))


@pytest.mark.feature("L1")
@every_client
def test_due_times_of_all_levels_are_in_the_files(
    driver: Driver, java: Driver, either: Server, new_name: Callable[[], str]
) -> None:
    """Each of the 18 queues says when its message is due: 1 s to 2 h after the time in the record, to the millisecond.

    The official broker writes the same.
    """
    topic = new_name()
    with Producer(driver, namesrv=either.namesrv) as producer:
        messages = [Outgoing(b"level %d" % level, delay_level=level) for level in range(1, 19)]
        sent = producer.send_all(topic, *messages)
    log = (either.store / "commitlog" / f"{0:020}").open("rb")
    with log:
        for level, (delay_ms, result) in enumerate(zip(DEFAULT_LEVELS_MS, sent, strict=True), 1):
            place = int(result.offset_msg_id[16:], 16)
            (due_ms,) = (due for at, _, due in read_entries(either.store, level, place) if at == place)
            log.seek(place)
            (stored_ms,) = struct.unpack(">q", log.read(64)[STORE_TIMESTAMP])
            assert due_ms - stored_ms == delay_ms


@pytest.mark.feature("L1")
@every_client
def test_first_levels_are_one_five_ten_and_thirty_seconds(
    driver: Driver, java: Driver, server: Server, new_name: Callable[[], str]
) -> None:
    """A client's own clock sees levels 1 to 4 of one moment come in their order, none before its time."""
    topic = new_name()
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, Outgoing(b"now"))
    with PushConsumer(driver, **about) as consumer, Producer(driver, namesrv=server.namesrv) as producer:
        assert len(consumer.received(1)) == 1
        producer.send_all(topic, *(Outgoing(b"level %d" % level, delay_level=level) for level in (4, 3, 2, 1)))
        got = consumer.received(5, timeout_ms=90_000)[1:]
    assert [message.body for message in got] == [b"level %d" % level for level in (1, 2, 3, 4)]
    for delay_ms, message in zip(DEFAULT_LEVELS_MS, got, strict=False):
        assert message.received_at - message.born_timestamp >= delay_ms
    # Each came while the next was still waiting, so none is late by as much as a level.
    due = [message.born_timestamp + delay_ms for delay_ms, message in zip(DEFAULT_LEVELS_MS, got, strict=False)]
    assert [message.received_at < next_due for message, next_due in zip(got, due[1:], strict=False)] == [True] * 3


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
