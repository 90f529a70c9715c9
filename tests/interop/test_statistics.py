"""How a broker is doing, as ``mqadmin brokerStatus`` prints it, and how the Java client takes a disk that stalls."""

import re
from collections.abc import Callable, Iterator

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer
from interop.driver import Driver
from interop.parts import mqadmin
from interop.servers import Server
from runtime_keys import FORMATS, NEVER_OF_5_4, misfits
from slow_disk import SlowDisk

from rocketlet.testing.broker_thread import RocketmqBroker

StartServer = Callable[..., Server]
STALLING = {
    "flushDiskType": "SYNC_FLUSH",
    "syncFlushTimeout": "1000",
    "osPageCacheBusyTimeOutMills": "300",
    "waitTimeMillsInSendQueue": "100",
}


@pytest.fixture(scope="module")
def counted(fresh_server: StartServer) -> Server:
    """Start a server with a delay level of one second."""
    return fresh_server(messageDelayLevel="1s 2s")


def status(java: Driver, server: Server) -> dict[str, str]:
    """Return what ``mqadmin brokerStatus`` prints."""
    printed = mqadmin(java, "brokerStatus", "-n", server.namesrv, "-b", server.broker)
    return dict(re.findall(r"^(\S+) *: (.*)$", printed, re.MULTILINE))


def totals(java: Driver, server: Server) -> list[int]:
    """Return the messages put, with and without system topics, those handed out, and the bytes."""
    told = status(java, server)
    keys = ("putMessageTimesTotal", "msgPutTotalTodayNow", "msgGetTotalTodayNow", "putMessageSizeTotal")
    return [int(told[key]) for key in keys]


@pytest.mark.feature("L5")
def test_delayed_message_counts_twice(java: Driver, counted: Server, new_name: Callable[[], str]) -> None:
    """A plain message raises the put totals by one, a delayed one by two; a consumed one is handed out once."""
    topic = new_name()
    about = {"namesrv": counted.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with Producer(java, namesrv=counted.namesrv) as maker:
        maker.send_all(topic, Outgoing(b"first"))
    with Producer(java, namesrv=counted.namesrv) as producer, PushConsumer(java, **about) as consumer:
        consumer.wait_bodies([b"first"])
        before = totals(java, counted)
        producer.send_all(topic, Outgoing(b"one"), Outgoing(b"two"))
        consumer.wait_bodies([b"one", b"two"])
        plain = totals(java, counted)
        producer.send_all(topic, *(Outgoing(b"late %d" % number, delay_level=1) for number in range(3)))
        consumer.wait_bodies(b"late %d" % number for number in range(3))
        delayed = totals(java, counted)
    assert [after - earlier for earlier, after in zip(before, plain, strict=True)][:3] == [2, 2, 2]
    assert [after - earlier for earlier, after in zip(plain, delayed, strict=True)][:3] == [6, 3, 3]
    assert delayed[3] > plain[3] > before[3]


def test_broker_status(java: Driver, counted: Server) -> None:
    """Every key that a 5.4.0 broker has is printed, in forms that dashboards and exporters can read."""
    with Producer(java, namesrv=counted.namesrv) as producer, PullConsumer(java, namesrv=counted.namesrv) as reader:
        producer.send_all("status", Outgoing(b"now"), Outgoing(b"late", delay_level=2))
        assert len(reader.read_all("status")) >= 1
    told = status(java, counted)
    assert told.keys() >= FORMATS.keys() - NEVER_OF_5_4
    assert misfits(told) == {}
    assert told["scheduleMessageOffset_2"].endswith(",1")
    assert told[f"commitLogDiskRatio_{counted.store}/commitlog"] == told["commitLogDiskRatio"]


@pytest.fixture
def stalling(disk: SlowDisk) -> Iterator[RocketmqBroker]:
    """Run a broker in this process that waits a second for its disk, and takes it for stalled sooner."""
    with RocketmqBroker(STALLING, disk) as broker:
        yield broker
        disk.go_on()


@pytest.fixture
def disk() -> SlowDisk:
    """Give the disk of the stalling broker."""
    return SlowDisk()


@pytest.mark.feature("S22")
def test_stalled_disk_is_answered_busy(stalling: RocketmqBroker, disk: SlowDisk, java: Driver) -> None:
    """The client gets code 2 and may go elsewhere: that message is not stored. The one before it is, and is told so."""
    topic = stalling.topic("orders", queues=1)
    with Producer(java, namesrv=stalling.nameserver) as producer:
        disk.get_stuck()
        (early,) = producer.send(topic, Outgoing(b"early"))
        assert early.status == "FLUSH_DISK_TIMEOUT"  # a second has passed: the disk counts as stalled for long
        (refused,) = producer.send(topic, Outgoing(b"refused"), mode="async")
        disk.go_on()
        producer.send_all(topic, Outgoing(b"after"))
    assert refused.error is not None
    assert refused.error.code == 2
    assert "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while" in refused.error.message
    assert [message.body for message in stalling.messages(topic)] == [b"early", b"after"]
