"""How a broker is doing, as ``mqadmin brokerStatus`` prints it, and how the Java client takes a disk that stalls."""

import re
from collections.abc import Callable, Iterator

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer
from interop.driver import Driver, DriverError
from interop.parts import mqadmin
from interop.servers import Server
from polling import ask_until
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
        producer.send_all("status", Outgoing(b"now"), Outgoing(b"late", delay_level=1))
        ask_until(lambda: len(reader.read_all("status")) == 2)
    told = status(java, counted)
    assert told.keys() >= FORMATS.keys() - NEVER_OF_5_4
    assert misfits(told) == {}
    reached, end = told["scheduleMessageOffset_1"].split(",")
    assert int(reached) == int(end) > 0
    assert told[f"commitLogDiskRatio_{counted.store}/commitlog"] == told["commitLogDiskRatio"]


NAMES = {
    "TOPIC_PUT_NUMS": ("{topic}", 30),
    "GROUP_GET_NUMS": ("{topic}@{group}", 30),
    "BROKER_PUT_NUMS": ("DefaultCluster", 30),
    "BROKER_GET_NUMS": ("DefaultCluster", 30),
    "TOPIC_PUT_SIZE": ("{topic}", 30 * 100),
    "GROUP_GET_SIZE": ("{topic}@{group}", 30 * 100),
}
"""What exporters and dashboards ask for, its key, and what there is of it at least."""


def row_of(printed: str, topic: str) -> list[str]:
    """Return the words of the one line that begins with a topic's name, which mqadmin cuts at 64 characters."""
    (row,) = (line.split() for line in printed.splitlines() if line.startswith(topic[:64]))
    return row


@pytest.mark.feature("D12", "D13", "D22")
def test_statistics_are_what_was_sent_and_consumed(
    java: Driver, fresh_server: StartServer, new_name: Callable[[], str]
) -> None:
    """Once they are sampled, statsAll and the calls of exporters tell the numbers of a load, and its rates."""
    server, topic = fresh_server(), new_name()
    group = f"{topic}-group"
    with Admin(java, namesrv=server.namesrv) as admin:
        admin.create_topic(server.broker, topic, 4)  # else the consumer would hear of it half a minute later
    with (
        Admin(java, namesrv=server.namesrv) as admin,
        Producer(java, namesrv=server.namesrv) as producer,
        PushConsumer(java, namesrv=server.namesrv, group=group, subscriptions={topic: "*"}) as consumer,
    ):
        with pytest.raises(DriverError, match=re.escape(f"The stats <TOPIC_PUT_NUMS> <{topic}> not exist")):
            admin.call("viewBrokerStatsData", server.broker, "TOPIC_PUT_NUMS", topic)
        producer.send_all(topic, *[Outgoing(b"%d" % number) for number in range(30)])
        assert len(consumer.received(30)) == 30
        ask_until(  # it is sampled each ten seconds
            lambda: admin.call("viewBrokerStatsData", server.broker, "GROUP_GET_NUMS", f"{topic}@{group}"),
            lambda answer: answer["statsMinute"]["sum"] >= 30,
        )
        told = {
            name: admin.call("viewBrokerStatsData", server.broker, name, key.format(topic=topic, group=group))
            for name, (key, _) in NAMES.items()
        }
        row = ask_until(  # clients commit each five seconds
            lambda: row_of(mqadmin(java, "statsAll", "-n", server.namesrv, "-t", topic), topic),
            lambda row: row[2] == "0",
        )
    for name, (_, least) in NAMES.items():
        minute = told[name]["statsMinute"]
        assert minute["sum"] >= least
        assert 9 <= minute["sum"] / minute["tps"] <= 61
    assert [told[name]["statsMinute"]["sum"] for name in ("TOPIC_PUT_NUMS", "GROUP_GET_NUMS")] == [30, 30]
    assert told["TOPIC_PUT_NUMS"]["statsMinute"]["avgpt"] == 1.0
    assert (row[1], *row[5:]) == (group, "30", "30")
    assert 0 < float(row[3]) <= 3.5
    assert 0 < float(row[4]) <= 3.5


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
