"""SYNC_FLUSH with the official client: what a send is told, by a disk that the test can hold back."""

import pathlib
from collections.abc import Callable, Iterator

import pytest
from interop.clients import Outgoing, Producer, PullConsumer
from interop.driver import Driver
from interop.servers import Server
from interop.versions import every_java
from slow_disk import SlowDisk

from rocketlet.testing.broker_thread import RocketmqBroker

StartServer = Callable[..., Server]
SYNC_FLUSH = {"flushDiskType": "SYNC_FLUSH"}
SHORT_TIMEOUT = {**SYNC_FLUSH, "syncFlushTimeout": "2000"}


@pytest.fixture
def disk() -> SlowDisk:
    """Give the disk of the slow broker."""
    return SlowDisk()


@pytest.fixture
def slow_broker(disk: SlowDisk) -> Iterator[RocketmqBroker]:
    """Run a broker in this process that waits two seconds for its disk."""
    with RocketmqBroker(SHORT_TIMEOUT, disk) as broker:
        yield broker
        disk.go_on()


@pytest.mark.feature("S19")
@every_java
def test_sync_flush_is_answered_send_ok(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """One by one, at once, one-way and as a batch: each message that is awaited is SEND_OK, and all are read back."""
    server = rocketlet_up(tmp_path / "store", **SYNC_FLUSH)
    with Producer(java, namesrv=server.namesrv) as producer, PullConsumer(java, namesrv=server.namesrv) as reader:
        for mode in ("sync", "async", "batch"):
            messages = [Outgoing(f"{mode} {number}".encode()) for number in range(20)]
            producer.send_all("orders", *messages, mode=mode)
            stored = {message.body for message in reader.read_all("orders")}
            assert {message.body for message in messages} <= stored


@pytest.mark.feature("S19")
@every_java
def test_slow_disk_is_flush_disk_timeout(slow_broker: RocketmqBroker, disk: SlowDisk, java: Driver) -> None:
    """A disk that takes longer than syncFlushTimeout: the result says so and where the message is, which is stored."""
    topic = slow_broker.topic("orders", queues=1)
    with Producer(java, namesrv=slow_broker.nameserver) as producer:
        producer.send_all(topic, Outgoing(b"before"))
        disk.get_stuck()
        (late,) = producer.send(topic, Outgoing(b"late"))
        assert (late.status, late.queue_id, late.queue_offset) == ("FLUSH_DISK_TIMEOUT", 0, 1)
        assert [message.body for message in slow_broker.messages(topic)] == [b"before"]
        disk.go_on()
        producer.send_all(topic, Outgoing(b"after"))
    stored = slow_broker.messages(topic)
    assert [message.body for message in stored] == [b"before", b"late", b"after"]
    assert stored[1].offset_message_id == late.offset_msg_id


@pytest.mark.feature("S21")
@every_java
def test_unawaited_store_is_answered_before_the_flush(
    slow_broker: RocketmqBroker, disk: SlowDisk, java: Driver
) -> None:
    """With waitStoreMsgOK=false the result is SEND_OK while the disk is stuck."""
    topic = slow_broker.topic("orders", queues=1)
    with Producer(java, namesrv=slow_broker.nameserver) as producer:
        producer.send_all(topic, Outgoing(b"before"))
        disk.get_stuck()
        producer.send_all(topic, Outgoing(b"unawaited", waits_for_store=False))
        assert [message.body for message in slow_broker.messages(topic)] == [b"before"]
        disk.go_on()
        producer.send_all(topic, Outgoing(b"after"))
    assert [message.body for message in slow_broker.messages(topic)] == [b"before", b"unawaited", b"after"]


@pytest.mark.feature("S26", "S19")
@every_java
def test_sync_flush_survives_a_kill_after_the_answer(
    rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path
) -> None:
    """SIGKILL right after the last SEND_OK: every message is read back from where its answer said."""
    server = rocketlet_up(tmp_path / "store", **SYNC_FLUSH)
    with Producer(java, namesrv=server.namesrv) as producer:
        messages = [Outgoing(f"{number}".encode()) for number in range(200)]
        results = producer.send_all("orders", *messages, mode="async")
        server.kill()
    assert (tmp_path / "store" / "abort").exists()
    server = rocketlet_up(tmp_path / "store", **SYNC_FLUSH)
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        stored = {message.offset_msg_id: message.body for message in reader.read_all("orders")}
    assert [stored[result.offset_msg_id] for result in results] == [message.body for message in messages]


@pytest.mark.feature("H6", "H9")
def test_clean_stop_leaves_javas_files(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """After SIGTERM `abort` is gone, nothing is lost, and files have the names and sizes of the default settings."""
    store = tmp_path / "store"
    server = rocketlet_up(store, **SYNC_FLUSH)
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all("orders", *(Outgoing(f"{number}".encode(), keys=["k"]) for number in range(20)))
    server.stop()
    sizes = {str(path.relative_to(store)): path.stat().st_size for path in store.rglob("*") if path.is_file()}
    assert "abort" not in sizes
    assert (sizes["commitlog/00000000000000000000"], sizes["checkpoint"]) == (1 << 30, 4096)
    queues = {name: size for name, size in sizes.items() if name.startswith("consumequeue/orders/")}
    assert queues == {f"consumequeue/orders/{number}/{0:020d}": 6_000_000 for number in range(4)}
    ((index, size),) = [(name, size) for name, size in sizes.items() if name.startswith("index/")]
    assert (len(index), size) == (len("index/") + 17, 420_000_040)
    server = rocketlet_up(store, **SYNC_FLUSH)
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        assert len(reader.read_all("orders")) == 20
