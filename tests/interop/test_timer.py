"""Timer messages of the official Java client, and of the official broker on the same directory."""

import pathlib
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer, Sent
from interop.driver import Driver
from interop.servers import Server

from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.files.store_config import StoreConfig

StartServer = Callable[..., Server]
SETTINGS = {"recallMessageEnable": "true", "mappedFileSizeTimerLog": "10480"}
TOPIC = "Timed"
DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def timers(fresh_server: StartServer) -> Server:
    """Start a server that lets producers recall."""
    return fresh_server(**SETTINGS)


@contextmanager
def _clients(java: Driver, server: Server, group: str, topic: str = TOPIC) -> Generator[tuple[Producer, PushConsumer]]:
    about = {"namesrv": server.namesrv, "group": group, "subscriptions": {topic: "*"}}
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, Outgoing(b"now"))
        with PushConsumer(java, **about) as consumer:
            yield producer, consumer


def _send(producer: Producer, body: bytes, topic: str = TOPIC, **timing: int) -> Sent:
    (sent,) = producer.send_all(topic, Outgoing(body, tags="t", keys=["k"], timing=timing))
    return sent


@pytest.mark.feature("L6", "L8")
def test_timers_of_the_java_client(java: Driver, timers: Server) -> None:
    """Messages come when they were asked for, none before; one that was recalled does not come."""
    with _clients(java, timers, "timed") as (producer, consumer):
        recalled = _send(producer, b"recalled", delayTimeMs=1_500)
        assert recalled.recall_handle
        sent = [
            _send(producer, b"seconds", delayTimeSec=3),
            _send(producer, b"milliseconds", delayTimeMs=1_500),
            _send(producer, b"past", deliverTimeMs=1),
        ]
        assert producer.recall(TOPIC, recalled.recall_handle).msg_id == recalled.msg_id
        consumer.wait_bodies([b"seconds", b"milliseconds", b"past"])
        got = {message.body: message for message in consumer.received() if message.body != b"now"}
    assert set(got) == {b"seconds", b"milliseconds", b"past"}
    assert got[b"seconds"].store_timestamp >= got[b"seconds"].born_timestamp + 3_000
    assert got[b"milliseconds"].store_timestamp >= got[b"milliseconds"].born_timestamp + 1_500
    assert [got[body].msg_id for body in (b"seconds", b"milliseconds", b"past")] == [one.msg_id for one in sent]
    assert {(message.tags, message.keys, message.topic) for message in got.values()} == {("t", "k", TOPIC)}
    assert sent[2].recall_handle is None


@pytest.mark.feature("L6")
def test_three_seconds_are_between_two_and_four(java: Driver, timers: Server) -> None:
    """Of timers of 2, 3 and 4 s, sent longest first, that of 3 s is delivered between the others, none too early.

    On a busy machine they may be sent in different seconds, and be due in the same one.
    """
    with _clients(java, timers, "ordered", "Ordered") as (producer, consumer):
        for seconds in (4, 3, 2):
            _send(producer, b"%d s" % seconds, "Ordered", delayTimeSec=seconds)
        consumer.wait_bodies(b"%d s" % seconds for seconds in (4, 3, 2))
        got = {message.body: message for message in consumer.received() if message.body != b"now"}
    delivered = sorted(got.values(), key=lambda message: message.log_offset)
    due_at_ms = [int(message.properties["TIMER_OUT_MS"]) for message in delivered]
    assert due_at_ms == sorted(due_at_ms)
    for seconds in (4, 3, 2):
        message = got[b"%d s" % seconds]
        assert message.received_at - message.born_timestamp >= 1_000 * seconds


@pytest.mark.feature("L6")
def test_time_that_is_too_far(java: Driver, timers: Server) -> None:
    """Four days are answered 13; three days are taken."""
    with Producer(java, namesrv=timers.namesrv) as producer:
        far, near = producer.send(
            "Far", *(Outgoing(b"far", timing={"delayTimeMs": days * DAY_MS}) for days in (4, 3)), mode="sync"
        )
    assert far.error is not None
    assert far.error.code == 13
    assert (near.error, near.status) == (None, "SEND_OK")


@pytest.mark.feature("L8")
def test_recall_is_off(java: Driver, rocketlet_up: StartServer, tmp_path: pathlib.Path) -> None:
    """Unless recallMessageEnable says so, a recall is answered 16."""
    server = rocketlet_up(tmp_path / "store")
    with Producer(java, namesrv=server.namesrv) as producer:
        (sent,) = producer.send_all(TOPIC, Outgoing(b"x", timing={"delayTimeMs": 5_000}))
        assert sent.recall_handle is not None
        refused = producer.recall(TOPIC, sent.recall_handle)
    assert refused.error is not None
    assert refused.error.code == 16


@pytest.mark.feature("L6", "L8", "S26")
@pytest.mark.timeout(300, func_only=True)  # it starts the official broker twice
def test_directory_goes_to_and_fro(
    java: Driver, rocketlet_up: StartServer, java_broker: StartServer, tmp_path: pathlib.Path
) -> None:
    """What waits when Java's broker is killed comes from ours, and what waits when ours stops from Java's."""
    store = tmp_path / "store"
    waiting: set[bytes] = set()
    for turn, (start, end) in enumerate(((java_broker, "kill"), (rocketlet_up, "stop"))):
        server = start(store, **SETTINGS)
        with _clients(java, server, f"g{turn}") as (producer, consumer):
            assert waiting <= consumer.wait_bodies(waiting)
            waiting = _send_some(producer, turn, ahead_ms=4_000 if start is java_broker else 8_000)
        getattr(server, end)()
    assert StoreAudit(StoreConfig.from_java({"storePathRootDir": str(store), **SETTINGS})).run().is_sound
    server = java_broker(store, **SETTINGS)
    with _clients(java, server, "last") as (_, consumer):
        assert waiting <= consumer.wait_bodies(waiting)
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        came = Counter(message.body for message in reader.read_all(TOPIC) if message.body != b"now")
    server.stop()
    assert set(came) == {b"%d-%d" % (turn, number) for turn in range(2) for number in range(3)}
    assert all(count == 1 for body, count in came.items() if body[:1] == b"1"), came
    assert max(came.values()) <= 2


def _send_some(producer: Producer, turn: int, *, ahead_ms: int) -> set[bytes]:
    """Send messages that are due while nobody is there, or when somebody is again, and one that is recalled."""
    bodies = [b"%d-%d" % (turn, number) for number in range(3)]
    recalled = _send(producer, b"%d-recalled" % turn, delayTimeMs=ahead_ms)
    for body, delay_ms in zip(bodies, (1_200, ahead_ms, ahead_ms), strict=True):
        _send(producer, body, delayTimeMs=delay_ms)
    assert recalled.recall_handle is not None
    assert producer.recall(TOPIC, recalled.recall_handle).error is None
    return set(bodies)
