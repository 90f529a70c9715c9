"""Snapshots: a broker's store in one small file, and brokers that start from it."""

import io
import os
import pathlib
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from command_line import CommandLine
from hypothesis import given
from hypothesis import strategies as st
from javastores import STORES, load_truth, unpack_store

from rocketlet.client import Message, Producer
from rocketlet.common.errors import ConfigError, DecodeError, StoreInUseError
from rocketlet.testing import RocketmqBroker
from rocketlet.testing.snapshots import pack, unpack

COUNT = 40
SIZES = (
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "mapperFileSizeBatchConsumeQueue",
    "mappedFileSizeTimerLog",
    "maxHashSlotNum",
    "maxIndexNum",
    "enabledAppendPropCRC",
)


def fill(broker: RocketmqBroker) -> None:
    """Send forty orders with keys, one that comes in an hour and one in ten minutes, and ship ten of them."""
    broker.topic("orders")
    broker.group("shipping")
    broker.send_all(Message("orders", b"%d" % number, keys=[f"order-{number}"]) for number in range(COUNT))
    broker.send("orders", "in an hour", delay_level=17)
    broker.send("orders", "in ten minutes", delay_ms=600_000)
    broker.receive("orders", 10, group="shipping")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the snapshot of a shop with orders."""
    path = tmp_path_factory.mktemp("snapshots") / "shop.tar"
    with RocketmqBroker() as broker:
        fill(broker)
        broker.snapshot(path)
        assert len(broker.messages("orders")) == COUNT
    return path


def bodies(broker: RocketmqBroker, topic: str = "orders") -> set[bytes]:
    """Return what is stored in a topic."""
    return {message.body for message in broker.messages(topic)}


ORDERS = {b"%d" % number for number in range(COUNT)}


def test_broker_starts_from_a_snapshot(shop: pathlib.Path) -> None:
    """Messages, keys, topics, groups, offsets and what is delayed are there, and what is sent then follows."""
    with RocketmqBroker(snapshot=shop) as broker:
        assert bodies(broker) == ORDERS
        assert broker.lag("shipping").total == COUNT - 10
        [found] = broker.messages("orders", key="order-7")
        assert found.body == b"7"
        sent = broker.send("orders", "new")
        assert sent.queue_offset == COUNT // 4
        broker.clock.advance(minutes=11)
        assert bodies(broker) == ORDERS | {b"new", b"in ten minutes"}
        broker.clock.advance(minutes=50)
        assert bodies(broker) == ORDERS | {b"new", b"in ten minutes", b"in an hour"}
        assert len(broker.receive("orders", COUNT - 10 + 3, group="shipping")) == COUNT - 10 + 3


def test_snapshot_is_small_and_has_no_holes(shop: pathlib.Path) -> None:
    """Files of more than a gigabyte become some kilobytes, and the names of what a store has stand in it."""
    with tarfile.open(shop) as archive:
        members = archive.getmembers()
    assert sum(member.size for member in members) > 1_500_000_000
    assert shop.stat().st_size < 250_000
    assert {member.name.split("/")[0] for member in members} == {
        *("checkpoint", "commitlog", "config", "consumequeue", "index", "timerlog", "timerwheel"),
    }
    assert {(member.mtime, member.uid, member.uname, member.isreg()) for member in members} == {(0, 0, "", True)}


def test_same_store_gives_the_same_bytes(shop: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What is unpacked and packed again is the same, whatever became a hole on which disk, and whenever."""
    with shop.open("rb") as file:
        unpack(file, tmp_path / "store")
    for path in (tmp_path / "store").rglob("*"):
        if path.is_file() and path.stat().st_size < 10_000_000:
            path.write_bytes(path.read_bytes())  # no holes any more
            os.utime(path, (1, 1))
    again = io.BytesIO()
    pack(tmp_path / "store", again)
    assert again.getvalue() == shop.read_bytes()


async def test_restore_takes_a_running_broker_back(
    isolated_rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path
) -> None:
    """What has come since is gone, what is gone has come back, and clients that were connected work on."""
    broker, path = isolated_rocketmq_broker, tmp_path / "now.tar"
    topic, address = broker.topic("orders"), broker.address
    async with Producer("shop", broker.nameserver) as producer:
        await producer.send(Message(topic, b"1"))
        broker.snapshot(path)
        await producer.send(Message(topic, b"2"))
        assert bodies(broker) == {b"1", b"2"}
        before = broker.clock.now()
        broker.clock.advance(days=1)
        broker.restore(path)
        assert bodies(broker) == {b"1"}
        assert broker.address == address
        assert broker.clock.now() - before < timedelta(hours=1)
        broker.reset()
        broker.restore(path)
        await producer.send(Message(topic, b"3"))
        assert bodies(broker) == {b"1", b"3"}


def test_broker_that_was_started_from_a_snapshot_goes_back_to_it(shop: pathlib.Path) -> None:
    """So do a reset, and the end of a test that has moved time."""
    with RocketmqBroker(snapshot=shop) as broker:
        broker.send("orders", "new")
        broker.reset()
        assert bodies(broker) == ORDERS
        broker.clock.advance(hours=2)
        assert b"in an hour" in bodies(broker)
        broker.end_test()
        assert bodies(broker) == ORDERS


@pytest.mark.parametrize("end", [RocketmqBroker.stop, RocketmqBroker.kill])
def test_snapshot_of_a_broker_that_does_not_run(
    end: Callable[[RocketmqBroker], None], isolated_rocketmq_broker: RocketmqBroker, tmp_path: pathlib.Path
) -> None:
    """It stays as it is; the store of one that was killed is recovered where it is used."""
    broker = isolated_rocketmq_broker
    broker.send(broker.topic("orders"), "1")
    end(broker)
    broker.snapshot(tmp_path / "now.tar")
    with pytest.raises(RuntimeError, match="broker-a does not run"):
        broker.messages("orders")
    broker.restore(tmp_path / "now.tar")
    assert bodies(broker) == {b"1"}


def test_overdue_messages_of_an_old_snapshot_arrive_at_once(vectors: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What was delayed until a time that is over when the broker starts is delivered then."""
    truth = load_truth(vectors, "delay-retry")
    path = pack_java_store(vectors, "delay-retry", tmp_path)
    stored = sum(len(queue["messages"]) for topic in truth["topics"] for queue in topic["queues"]
                 if topic["topic"] == "DelayTopic")  # fmt: skip
    with RocketmqBroker(sizes_of(truth), snapshot=path) as broker:
        assert len(broker.wait_for("DelayTopic", stored + 1)) > stored


def test_files_of_an_old_snapshot_are_as_new_as_their_broker(tmp_path: pathlib.Path) -> None:
    """No clean-up takes messages for expired because the snapshot is old; three days later it does."""
    settings = {"mappedFileSizeCommitLog": "4096"}
    with RocketmqBroker(settings) as broker:
        broker.topic("orders", queues=1)
        broker.send_all(Message("orders", bytes(1_000)) for _ in range(20))
        broker.stop()
        for path in (broker.store / "commitlog").iterdir():
            os.utime(path, (1_600_000_000, 1_600_000_000))
        broker.snapshot(tmp_path / "old.tar")
    with RocketmqBroker(settings, snapshot=tmp_path / "old.tar") as broker:
        broker.clock.advance(hours=48)
        assert len(broker.messages("orders")) == 20
        broker.clock.advance(hours=48)
        assert len(broker.messages("orders")) < 20


# what is no snapshot


def sizes_of(truth: dict[str, dict[str, object]]) -> dict[str, str]:
    """Return the settings with which a store was made."""
    return {key: str(value).lower() for key, value in truth["settings"].items() if key in SIZES}


def pack_java_store(vectors: pathlib.Path, name: str, folder: pathlib.Path) -> pathlib.Path:
    """Return the snapshot of a store that the official broker made."""
    path = folder / f"{name}.tar"
    with path.open("wb") as file:
        pack(unpack_store(vectors, name, folder), file)
    return path


@pytest.mark.parametrize("name", STORES)
def test_store_of_the_official_broker_becomes_a_snapshot(
    name: str, vectors: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A broker starts from it and has all messages, also when Java's was killed; by-products of Java's are left out."""
    truth = load_truth(vectors, name)
    path = pack_java_store(vectors, name, tmp_path)
    with tarfile.open(path) as archive:
        assert not [found for found in archive.getnames() if found.startswith(("rocksdbstore", "lock", "compaction"))]
    with RocketmqBroker(sizes_of(truth), snapshot=path) as broker:
        for topic in truth["topics"]:
            if not topic["topic"].startswith(("%", "RMQ_SYS", "rmq_sys", "SCHEDULE", "TRANS_CHECK")):
                stored = {message["msgId"] for queue in topic["queues"] for message in queue["messages"]}
                found = {message.message_id for message in broker.messages(topic["topic"])}
                assert found >= stored or topic["topic"] == "InnerBatch"  # there the ids of a batch are one text
                assert len(found) >= len(stored)


def test_snapshot_that_was_unpacked_by_tar_is_a_store(
    shop: pathlib.Path, tmp_path: pathlib.Path, command: CommandLine
) -> None:
    """GNU tar makes the same files, holes too, which the commands for stores read."""
    store = tmp_path / "store"
    store.mkdir()
    told = subprocess.run(["tar", "-xf", shop, "-C", store], capture_output=True, text=True, check=True)
    assert told.stderr == ""
    again = io.BytesIO()
    pack(store, again)
    assert again.getvalue() == shop.read_bytes()
    assert sum(path.stat().st_blocks for path in store.rglob("*")) * 512 < 4_000_000
    checked = command("store", "check", str(store))
    assert checked.returncode == 0, checked.stdout + checked.stderr


OTHER_SIZES = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "200",
    "mappedFileSizeTimerLog": "104000",
}


@pytest.mark.parametrize("key", OTHER_SIZES)
def test_other_sizes_are_refused_and_the_broker_goes_on(key: str, shop: pathlib.Path) -> None:
    """A snapshot of a store with other file sizes names the setting; a running broker has store and time as before."""
    settings = {key: OTHER_SIZES[key]}
    with pytest.raises(ConfigError, match=key) as refused:
        RocketmqBroker(settings, snapshot=shop).__enter__()
    assert refused.value.__notes__ == [f"the store came from {shop}"]
    with RocketmqBroker(settings) as broker:
        broker.send(broker.topic("mine"), "1")
        broker.clock.advance(days=1)
        broker.clock.freeze()
        before_ms = broker.clock.now_ms()
        with pytest.raises(ConfigError, match=key):
            broker.restore(shop)
        assert bodies(broker, "mine") == {b"1"}
        assert abs(broker.clock.now_ms() - before_ms) < 60_000
        broker.stop()
        with pytest.raises(ConfigError, match=key) as refused:
            broker.restore(shop)
        assert ["put aside" in note for note in refused.value.__notes__] == [True]
        broker.restart()
        assert bodies(broker, "mine") == {b"1"}


@pytest.mark.parametrize("setting", ["timerPrecisionMs=100", "messageDelayLevel=1s 2h", "brokerName=other"])
def test_settings_that_files_do_not_depend_on_may_be_others(setting: str, shop: pathlib.Path) -> None:
    """The broker starts, and delivers what is delayed."""
    key, value = setting.split("=")
    with RocketmqBroker({key: value}, snapshot=shop) as broker:
        broker.clock.advance(hours=3)
        assert bodies(broker) == ORDERS | {b"in ten minutes", b"in an hour"}


def a_file(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    """Return a member."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def a_tar(*members: tarfile.TarInfo, comment: str = "rocketlet snapshot 1: 1 files") -> bytes:
    """Return a tar of empty members."""
    stream = io.BytesIO()
    headers = {"comment": comment}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        for member in members:
            archive.addfile(member)
    return stream.getvalue()


def with_places(*numbers: int, size: int = 4096) -> bytes:
    """Return a tar of one file with holes, whose data lies where the numbers say."""
    member = a_file("checkpoint")
    member.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": "checkpoint",
        "GNU.sparse.realsize": str(size),
    }
    text = b"".join(b"%d\n" % number for number in numbers).ljust(512, b"\0") + bytes(512)
    member.size = len(text)
    stream = io.BytesIO()
    headers = {"comment": "rocketlet snapshot 1: 1 files"}
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, pax_headers=headers) as archive:
        archive.addfile(member, io.BytesIO(text))
    return stream.getvalue()


NO_SNAPSHOTS = {
    "nothing": (b"", "empty file"),
    "text": (b"a list of orders\n" * 100, "is not a snapshot of a store, or is damaged: "),
    "other tar": (a_tar(a_file("checkpoint"), comment="orders"), "is a tar that does not say so"),
    "absolute path": (a_tar(a_file("/etc/cron.d/x")), "'/etc/cron.d/x' is not the name of a file that a store has"),
    "path outside": (a_tar(a_file("../checkpoint")), "'../checkpoint' is not the name"),
    "topic outside": (
        a_tar(a_file("consumequeue/../0/00000000000000000000")),
        "'consumequeue/../0/00000000000000000000' is not the name",
    ),
    "foreign name": (a_tar(a_file("config/.bashrc")), "'config/.bashrc' is not the name"),
    "lock": (a_tar(a_file("lock")), "'lock' is not the name"),
    "link": (a_tar(a_file("checkpoint", tarfile.SYMTYPE, "/etc/passwd")), "'checkpoint' is not a file"),
    "hard link": (a_tar(a_file("checkpoint", tarfile.LNKTYPE, "/etc/passwd")), "'checkpoint' is not a file"),
    "device": (a_tar(a_file("checkpoint", tarfile.BLKTYPE)), "'checkpoint' is not a file"),
    "pipe": (a_tar(a_file("checkpoint", tarfile.FIFOTYPE)), "'checkpoint' is not a file"),
    "directory": (a_tar(a_file("config", tarfile.DIRTYPE)), "'config' is not a file"),
    "twice": (a_tar(a_file("checkpoint"), a_file("checkpoint")), "'checkpoint' comes twice"),
    "too few": (a_tar(a_file("checkpoint"), comment="rocketlet snapshot 1: 2 files"), "it holds 1 of 2 files"),
    "too many": (a_tar(a_file("checkpoint"), a_file("abort")), "it holds 2 of 1 files"),
    "data before the file": (with_places(1, -512, 512), "'checkpoint' cannot be unpacked"),
    "data behind the file": (with_places(1, 4096, 512), "'checkpoint' cannot be unpacked"),
    "data that overlaps": (with_places(2, 0, 512, 256, 256), "'checkpoint' cannot be unpacked"),
    "file without end": (with_places(1, 0, 0, size=1 << 90), "'checkpoint' cannot be unpacked"),
}


SMALL = with_places(2, 0, 512, 4096, 0)


@pytest.fixture(scope="module")
def module_broker() -> Iterator[RocketmqBroker]:
    """Run a broker with a message."""
    with RocketmqBroker() as broker:
        broker.send(broker.topic("mine"), "1")
        yield broker


@pytest.mark.parametrize("name", NO_SNAPSHOTS)
def test_what_is_no_snapshot_is_refused(name: str, tmp_path: pathlib.Path, module_broker: RocketmqBroker) -> None:
    """The error names file and member; the broker that runs has not noticed, and nothing lies outside its store."""
    content, message = NO_SNAPSHOTS[name]
    path = tmp_path / "orders.tar"
    path.write_bytes(content)
    before = {entry.name for entry in module_broker.store.parent.glob("rocketlet-*")}
    with pytest.raises(DecodeError) as refused:
        module_broker.restore(path)
    assert str(refused.value).startswith(str(path))
    assert message in str(refused.value)
    assert bodies(module_broker, "mine") == {b"1"}
    assert {entry.name for entry in module_broker.store.parent.glob("rocketlet-*")} <= before
    with pytest.raises(DecodeError):
        RocketmqBroker(snapshot=path).__enter__()


def test_snapshot_that_is_cut_off_is_refused(shop: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Wherever it ends before its last file does: a tar that is cut between two files looks whole to other programs."""
    whole = shop.read_bytes()
    end = len(whole.rstrip(b"\0"))
    places = [*range(0, end, 512), end - 1]
    for number, size in enumerate(places[:: max(1, len(places) // 100)]):
        with pytest.raises(DecodeError):
            unpack(io.BytesIO(whole[:size]), tmp_path / str(number))


@given(at=st.integers(0, 20_000), value=st.integers(0, 255))
def test_damaged_snapshot_gives_one_kind_of_error(at: int, value: int) -> None:
    """Whatever byte is another one, it is unpacked or refused, and nothing else happens."""
    damaged = bytearray(SMALL)
    damaged[at % len(damaged)] = value
    with tempfile.TemporaryDirectory() as folder:
        with suppress(DecodeError):
            unpack(io.BytesIO(damaged), pathlib.Path(folder) / "store")
        assert os.listdir(folder) in (["store"], [])


def test_only_stores_that_nobody_has_open_are_packed(module_broker: RocketmqBroker, tmp_path: pathlib.Path) -> None:
    """A directory of something else is refused, and so is that of a broker that runs."""
    with pytest.raises(ValueError, match="is not the directory of a store: it has no commitlog"):
        pack(tmp_path, io.BytesIO())
    with pytest.raises(StoreInUseError):
        pack(module_broker.store, io.BytesIO())


def test_snapshot_that_cannot_be_written_leaves_no_file(module_broker: RocketmqBroker, tmp_path: pathlib.Path) -> None:
    """The broker runs on, and where the file was to be there is none, or the one that was there."""
    with pytest.raises(FileNotFoundError):
        module_broker.snapshot(tmp_path / "nowhere" / "now.tar")
    (tmp_path / "now.tar").mkdir()
    with pytest.raises(IsADirectoryError):
        module_broker.snapshot(tmp_path / "now.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["now.tar"]
    assert bodies(module_broker, "mine") == {b"1"}
