"""Files that have expired, with the official tools, and a log in several directories with the official broker."""

import os
import pathlib
import time
from collections.abc import Callable

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Sent
from interop.driver import Driver, DriverError
from interop.servers import Server
from interop.versions import every_java

StartServer = Callable[..., Server]
FILE_BYTES = 65_536
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",  # a file goes only when it is on the disk
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "400",
    "fileReservedTime": "1",
    "deleteWhen": "",
    "diskMaxUsedSpaceRatio": "95",
}
COUNT = 600


def age_files(*directories: pathlib.Path) -> None:
    """Let every file of the log look two hours old."""
    for directory in directories:
        for path in directory.iterdir():
            at_s = time.time() - 7200
            os.utime(path, (at_s, at_s))


def files_in(*directories: pathlib.Path) -> list[int]:
    """Return the numbers of the log's files."""
    return sorted(int(path.name) // FILE_BYTES for directory in directories for path in directory.iterdir())


def orders(count: int, first: int = 0) -> list[Outgoing]:
    """Return messages of half a kilobyte with keys."""
    return [Outgoing(b"%0500d" % number, keys=[f"key-{number}"]) for number in range(first, first + count)]


def send_orders(producer: Producer, count: int, first: int = 0) -> list[Sent]:
    """Send such messages in order, as batches of which two go into a file: fewer waits for the disk."""
    messages = orders(count, first)
    slices = [messages[start : start + 40] for start in range(0, count, 40)]
    return [producer.send_all("orders", *part, mode="batch")[0] for part in slices]


def mqadmin(java: Driver, server: Server, command: str) -> str:
    """Run a command of mqadmin against the broker and return what it prints."""
    return java.call("mqadmin", args=[command, "-n", server.namesrv, "-b", server.broker])["output"]


def delete_expired(java: Driver, server: Server, log: pathlib.Path) -> None:
    """Let all files look old, and have them deleted but for the last, and one that may be prepared behind it.

    The command is answered before anything is done; the next request for cleaning has to wait for what it began.
    """
    age_files(log)
    assert "success" in mqadmin(java, server, "deleteExpiredCommitLog")
    with Admin(java, namesrv=server.namesrv) as admin:
        asked = {"method": "cleanUnusedTopicByAddr", "args": [server.broker]}
        assert java.call_as(bool, "admin.call", name=admin.name, **asked)
    assert len(files_in(log)) <= 2


@pytest.mark.feature("P3")
@every_java
def test_pull_below_the_first_offset(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """It is told to go on with the first message that is left, which the next pull brings."""
    server = rocketlet_up(tmp_path / "store", **SETTINGS)
    with Producer(java, namesrv=server.namesrv) as producer, PullConsumer(java, namesrv=server.namesrv) as reader:
        with Admin(java, namesrv=server.namesrv) as admin:
            admin.create_topic(server.broker, "orders", 1)
        send_orders(producer, COUNT)
        (queue,) = reader.queues("orders")
        delete_expired(java, server, tmp_path / "store" / "commitlog")
        first = reader.offsets(queue).min
        assert 0 < first < COUNT
        for offset in (0, first - 1):
            below = reader.pull(queue, offset)
            assert (below.status, below.next_offset, below.messages) == ("OFFSET_ILLEGAL", first, [])
        pulled = reader.pull(queue, first, count=1)
        assert [message.body for message in pulled.messages] == [orders(1, first)[0].body]


@pytest.mark.feature("H8", "D16")
def test_expired_files_go_by_mqadmin(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """Min offsets move; old offsets are told where to go on, keys and ids of what is gone are not found."""
    server = rocketlet_up(tmp_path / "store", **SETTINGS)
    log = tmp_path / "store" / "commitlog"
    with Producer(java, namesrv=server.namesrv) as producer, PullConsumer(java, namesrv=server.namesrv) as reader:
        with Admin(java, namesrv=server.namesrv) as admin:
            admin.create_topic(server.broker, "orders", 1)
        sent = send_orders(producer, COUNT)
        (queue,) = reader.queues("orders")
        messages = reader.read_all("orders")
        assert reader.offsets(queue).min == 0
        delete_expired(java, server, log)
        offsets = reader.offsets(queue)
        assert 0 < offsets.min < offsets.max == COUNT
        moved = reader.pull(queue, 0)
        assert (moved.status, moved.next_offset) == ("OFFSET_ILLEGAL", offsets.min)
        assert [message.body for message in reader.read_all("orders")] == [
            message.body for message in messages[offsets.min :]
        ]
        with pytest.raises(DriverError, match="no message"):
            reader.query("orders", "key-0")
        assert len(reader.query("orders", f"key-{COUNT - 1}")) == 1
        with pytest.raises(DriverError, match="no message"):
            reader.view("orders", sent[0].offset_msg_id.split(",")[0])
        assert reader.search(queue, messages[0].store_timestamp) == offsets.min
        with PushConsumer(
            java,
            namesrv=server.namesrv,
            group="late",
            subscriptions={"orders": "*"},
            settings={"consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"},
        ) as consumer:
            assert len(consumer.received(COUNT - offsets.min)) == COUNT - offsets.min


@pytest.mark.feature("D16")
def test_queues_are_removed_by_mqadmin(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """``cleanExpiredCQ`` removes queues whose messages are gone, ``cleanUnusedTopic`` those without a topic."""
    server = rocketlet_up(tmp_path / "store", **SETTINGS)
    log, queues = tmp_path / "store" / "commitlog", tmp_path / "store" / "consumequeue"
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all("first", *orders(1))
        send_orders(producer, COUNT)
        assert "success" in mqadmin(java, server, "cleanUnusedTopic")
        assert "success" in mqadmin(java, server, "cleanExpiredCQ")
        assert sorted(path.name for path in queues.iterdir()) == ["first", "orders"]
        delete_expired(java, server, log)
        assert "success" in mqadmin(java, server, "cleanExpiredCQ")
        assert [path.name for path in queues.iterdir()] == ["orders"]
        (again,) = producer.send_all("first", *orders(1))
        assert again.queue_offset == 0


@pytest.mark.feature("H9")
def test_log_in_several_directories_goes_between_the_brokers(
    rocketlet_up: StartServer, java_broker: StartServer, java: Driver, tmp_path: pathlib.Path
) -> None:
    """Ours writes, the official broker reads and writes on, ours reads all: with the same three directories."""
    disks = [tmp_path / name for name in ("a", "b", "c")]
    settings = {**SETTINGS, "storePathCommitLog": ",".join(map(str, disks))}
    written: list[bytes] = []
    for start in (rocketlet_up, java_broker, rocketlet_up):
        server = start(tmp_path / "store", **settings)
        with Producer(java, namesrv=server.namesrv) as producer:
            send_orders(producer, COUNT // 3, len(written))
        written += [one.body for one in orders(COUNT // 3, len(written))]
        with PullConsumer(java, namesrv=server.namesrv) as reader:
            assert sorted(message.body for message in reader.read_all("orders")) == sorted(written)
        server.stop()
        assert files_in(*disks) == list(range(len(files_in(*disks))))
        assert all(number % 3 == at for at, disk in enumerate(disks) for number in files_in(disk))
    assert len(files_in(*disks)) > 4


@pytest.mark.feature("H8", "S26")
def test_official_broker_opens_a_store_after_cleaning(
    rocketlet_up: StartServer, java_broker: StartServer, java: Driver, tmp_path: pathlib.Path
) -> None:
    """Offsets, messages and keys that are left are the same there, also of a queue that has lost all messages."""
    server = rocketlet_up(tmp_path / "store", **SETTINGS)
    log = tmp_path / "store" / "commitlog"
    with Producer(java, namesrv=server.namesrv) as producer, PullConsumer(java, namesrv=server.namesrv) as reader:
        producer.send_all("first", *orders(9))
        send_orders(producer, COUNT)
        delete_expired(java, server, log)
        queues = [*reader.queues("first"), *reader.queues("orders")]
        offsets = {queue: reader.offsets(queue) for queue in queues}
        assert all(one.min > 0 for one in offsets.values() if one.max)
        left = reader.read_all("orders")
    server.stop()
    server = java_broker(tmp_path / "store", **SETTINGS)
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        assert {queue: reader.offsets(queue) for queue in queues} == offsets
        assert reader.read_all("orders") == left
        assert len(reader.query("orders", f"key-{COUNT - 1}")) == 1
        with Producer(java, namesrv=server.namesrv) as producer:
            queue = next(queue for queue in queues if queue.topic == "first" and offsets[queue].max)
            (sent,) = producer.send_all("first", *orders(1), queue=queue)
            assert sent.queue_offset == offsets[queue].max


@pytest.mark.feature("P29")
def test_new_group_on_a_topic_whose_start_is_gone(
    rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path
) -> None:
    """A new group that asks to start at the end gets only what comes later, once the first file is gone."""
    server = rocketlet_up(tmp_path / "store", **SETTINGS)
    with Producer(java, namesrv=server.namesrv) as producer:
        with Admin(java, namesrv=server.namesrv) as admin:
            admin.create_topic(server.broker, "orders", 1)
        send_orders(producer, COUNT)
        delete_expired(java, server, tmp_path / "store" / "commitlog")
        last = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
        about = {"namesrv": server.namesrv, "group": "late", "subscriptions": {"orders": "*"}, "settings": last}
        with PushConsumer(java, **about) as consumer:
            assert len(consumer.queues("orders", 1)) == 1
            producer.send_all("orders", Outgoing(b"after"))
            assert [message.body for message in consumer.received(1)] == [b"after"]
