"""Formats beside the ordinary ones, between the official broker, its client and ours.

Batches that stay together (``queue.type=BatchCQ``), records with the checksum property, extended queue entries, and
what must lie in a directory.
"""

import pathlib
from collections.abc import Callable

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Received
from interop.driver import Driver
from interop.servers import Server

from rocketlet.client import ConsumeFrom, PullConsumerSettings
from rocketlet.client import PullConsumer as OwnConsumer
from rocketlet.store.consumequeue.queue_reader import ReadLimits
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore

StartServer = Callable[..., Server]
TOPIC = "together"
SETTINGS = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "mapperFileSizeBatchConsumeQueue": "460",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "enabledAppendPropCRC": "true",
}
BATCHES = [[b"batch %d message %d" % (number, place) for place in range(1 + number % 5)] for number in range(30)]
BODIES = [body for batch in BATCHES for body in batch]


def make_batch_topic(java: Driver, server: Server) -> None:
    """Make the topic with one queue, by Java's own tool."""
    arguments = ["updateTopic", "-b", server.broker, "-t", TOPIC, "-r", "1", "-w", "1", "-a", "+queue.type=BatchCQ"]
    java.call("mqadmin", args=[*arguments, "-n", server.namesrv])
    with Admin(java, namesrv=server.namesrv) as admin:
        admin.await_route(TOPIC)


def send_batches(java: Driver, server: Server) -> list[int]:
    """Send all batches; return the queue offset of each."""
    with Producer(java, namesrv=server.namesrv) as producer:
        sent = [producer.send(TOPIC, *map(Outgoing, batch), mode="batch")[0] for batch in BATCHES]
    assert all("," not in one.msg_id and "," not in one.offset_msg_id for one in sent)
    return [one.queue_offset for one in sent]


def read_with_java(java: Driver, server: Server) -> list[Received]:
    """Return what Java's pull consumer reads."""
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        return reader.read_all(TOPIC)


def test_java_client_consumes_batches_from_ours(
    java: Driver, rocketlet_up: StartServer, tmp_path: pathlib.Path
) -> None:
    """Every message of every batch arrives once, in order, at its own offset; so it does after a restart."""
    with rocketlet_up(tmp_path / "store", **SETTINGS) as ours:
        make_batch_topic(java, ours)
        offsets = send_batches(java, ours)
        assert offsets == [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]
        assert [(one.queue_offset, one.body) for one in read_with_java(java, ours)] == list(enumerate(BODIES))
        subscriptions = {TOPIC: "*"}
        with PushConsumer(java, namesrv=ours.namesrv, group="together-push", subscriptions=subscriptions) as consumer:
            assert sorted(one.body for one in consumer.received(len(BODIES))) == sorted(BODIES)
        ours.stop()
        with rocketlet_up(tmp_path / "store", replaced=ours, **SETTINGS) as again:
            assert [one.body for one in read_with_java(java, again)] == BODIES


@pytest.mark.feature("S26")
@pytest.mark.parametrize("end", ["stop", "kill"])
def test_java_broker_goes_on_with_our_batches(
    end: str, java: Driver, rocketlet_up: StartServer, java_broker: StartServer, tmp_path: pathlib.Path
) -> None:
    """The official broker demands the checksums, serves all batches, adds one, and ours reads the result."""
    store = tmp_path / "store"
    ours = rocketlet_up(store, **SETTINGS)
    make_batch_topic(java, ours)
    send_batches(java, ours)
    written = read_with_java(java, ours)
    getattr(ours, end)()
    with java_broker(store, **SETTINGS, forceVerifyPropCRC="true") as official:
        assert read_with_java(java, official) == written
        with Producer(java, namesrv=official.namesrv) as producer:
            (sent,) = producer.send(TOPIC, Outgoing(b"one more"), Outgoing(b"and another"), mode="batch")
        assert sent.queue_offset == len(BODIES)
        official.stop()
    with rocketlet_up(store, **SETTINGS, forceVerifyPropCRC="true") as again:
        bodies = [one.body for one in read_with_java(java, again)]
    assert bodies == [*BODIES, b"one more", b"and another"]


async def test_our_client_takes_batches_apart(java: Driver, rocketlet_up: StartServer, tmp_path: pathlib.Path) -> None:
    """Our consumer gets single messages with their offsets."""
    with rocketlet_up(tmp_path / "store", **SETTINGS) as ours:
        make_batch_topic(java, ours)
        send_batches(java, ours)
        found: list[tuple[int, bytes]] = []
        settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)
        consumer = OwnConsumer("together-own", nameserver=ours.namesrv, settings=settings)
        consumer.subscribe(TOPIC)
        async with consumer:
            while len(found) < len(BODIES):
                found += [(message.queue_offset, message.body) for message in await consumer.poll()]
    assert found == list(enumerate(BODIES))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_extended_entries_of_the_java_broker(
    end: str, java: Driver, java_broker: StartServer, tmp_path: pathlib.Path
) -> None:
    """A store with ``consumequeue_ext`` opens, keeps its entries, and filters see the tags behind the addresses."""
    store = tmp_path / "store"
    settings = {**SETTINGS, "enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": "400"}
    with java_broker(store, **settings) as official:
        with Producer(java, namesrv=official.namesrv) as producer:
            producer.send_all("tagged", *(Outgoing(b"%d" % number, tags=f"t{number % 3}") for number in range(200)))
        getattr(official, end)()
    assert len(list((store / "consumequeue_ext").rglob("0*"))) > 8
    entries = {path: path.read_bytes() for path in (store / "consumequeue" / "tagged").rglob("0" * 19 + "*")}
    config = StoreConfig.from_java({**SETTINGS, "storePathRootDir": str(store)})
    with MessageStore.open(config, now_ms=lambda: 1 << 41, store_host=bytes(8)) as opened:
        codes = {code for data in entries.values() for code in _codes(data)}
        assert min(codes) <= -(2**63) + 400
        found = [bytes(one) for queue_id in range(8) for one in _read_tag(opened, queue_id, 3645)]
    assert {path: path.read_bytes() for path in entries} == entries
    assert sum(one.count(b"TAGS\x01t1\x02") for one in found) == 67
    assert not any(b"TAGS\x01t2" in one for one in found)


def _codes(data: bytes) -> list[int]:
    return [int.from_bytes(data[at + 12 : at + 20], "big", signed=True) for at in range(0, len(data), 20)]


def _read_tag(store: MessageStore, queue_id: int, code: int) -> list[memoryview]:
    offset, found = 0, list[memoryview]()
    while offset < store.max_offset("tagged", queue_id):
        result = store.read("tagged", queue_id, offset, ReadLimits(), accepts=lambda one: one == code)
        found += result.records
        offset = result.next_offset
    return found
