"""Files that have expired, with the official tools, and a log in several directories with the official broker."""

import os
import pathlib
import time
from collections.abc import Callable

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer
from interop.driver import Driver, DriverError
from interop.servers import Server

StartServer = Callable[..., Server]
FILE_BYTES = 65_536
SETTINGS = {
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "400",
    "fileReservedTime": "1",
    "deleteWhen": "",
    "diskMaxUsedSpaceRatio": "95",
}
COUNT = 600
LIMIT_S = 30.0


def age_files(*directories: pathlib.Path) -> None:
    """Let every file of the log look two hours old."""
    for directory in directories:
        for path in directory.iterdir():
            at_s = time.time() - 7200
            os.utime(path, (at_s, at_s))


def files_in(*directories: pathlib.Path) -> list[int]:
    """Return the numbers of the log's files."""
    return sorted(int(path.name) // FILE_BYTES for directory in directories for path in directory.iterdir())


def wait_until(is_so: Callable[[], bool]) -> None:
    """Ask again until something is so."""
    limit_s = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < limit_s, "it did not become so in time"


def orders(count: int, first: int = 0) -> list[Outgoing]:
    """Return messages of half a kilobyte with keys."""
    return [Outgoing(b"%0500d" % number, keys=[f"key-{number}"]) for number in range(first, first + count)]


def mqadmin(java: Driver, server: Server, command: str) -> str:
    """Run a command of mqadmin against the broker and return what it prints."""
    return java.call("mqadmin", args=[command, "-n", server.namesrv, "-b", server.broker])["output"]


def delete_expired(java: Driver, server: Server, log: pathlib.Path) -> None:
    """Let all files look old, and ask until they are gone but for the last, and one that may be prepared behind it.

    Those that are not flushed yet go with a later request.
    """
    age_files(log)
    wait_until(lambda: "success" in mqadmin(java, server, "deleteExpiredCommitLog") and len(files_in(log)) <= 2)


@pytest.mark.feature("H8", "D16")
def test_expired_files_go_by_mqadmin(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """Min offsets move; old offsets are told where to go on, keys and ids of what is gone are not found."""
    server = rocketlet_up(tmp_path / "store", **SETTINGS)
    log = tmp_path / "store" / "commitlog"
    with Producer(java, namesrv=server.namesrv) as producer, PullConsumer(java, namesrv=server.namesrv) as reader:
        with Admin(java, namesrv=server.namesrv) as admin:
            admin.create_topic(server.broker, "orders", 1)
        sent = producer.send_all("orders", *orders(COUNT))
        (queue,) = reader.queues("orders")
        messages = reader.read_all("orders")
        assert reader.offsets(queue).min == 0
        delete_expired(java, server, log)
        wait_until(lambda: reader.offsets(queue).min > 0)
        offsets = reader.offsets(queue)
        assert offsets.max == COUNT
        moved = reader.pull(queue, 0)
        assert (moved.status, moved.next_offset) == ("OFFSET_ILLEGAL", offsets.min)
        assert [message.body for message in reader.read_all("orders")] == [
            message.body for message in messages[offsets.min :]
        ]
        with pytest.raises(DriverError, match="no message"):
            reader.query("orders", "key-0")
        assert len(reader.query("orders", f"key-{COUNT - 1}")) == 1
        with pytest.raises(DriverError, match="no message"):
            reader.view("orders", sent[0].offset_msg_id)
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
        producer.send_all("orders", *orders(COUNT))
        assert "success" in mqadmin(java, server, "cleanUnusedTopic")
        assert "success" in mqadmin(java, server, "cleanExpiredCQ")
        assert sorted(path.name for path in queues.iterdir()) == ["first", "orders"]
        delete_expired(java, server, log)
        wait_until(lambda: "success" in mqadmin(java, server, "cleanExpiredCQ") and not (queues / "first").exists())
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
            more = orders(COUNT // 3, len(written))
            producer.send_all("orders", *more)
            written += [one.body for one in more]
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
        producer.send_all("orders", *orders(COUNT))
        delete_expired(java, server, log)
        queues = [*reader.queues("first"), *reader.queues("orders")]
        wait_until(lambda: all(reader.offsets(queue).min for queue in queues if reader.offsets(queue).max))
        offsets = {queue: reader.offsets(queue) for queue in queues}
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
        producer.send_all("orders", *orders(COUNT))
        delete_expired(java, server, tmp_path / "store" / "commitlog")
        last = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
        about = {"namesrv": server.namesrv, "group": "late", "subscriptions": {"orders": "*"}, "settings": last}
        with PushConsumer(java, **about) as consumer:
            assert len(consumer.queues("orders", 1)) == 1
            producer.send_all("orders", Outgoing(b"after"))
            assert [message.body for message in consumer.received(1)] == [b"after"]
