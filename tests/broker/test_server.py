"""Starting and stopping a broker, and what a stop leaves behind."""

import asyncio
import pathlib
import threading
from collections.abc import Iterator, Mapping

import pytest
from halfcalls import DISCARD_TOPIC, next_round, pulled, send_half
from msgspec.structs import replace
from raw_calls import open_caller, until

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError, StoreInUseError
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.record import decode_record
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.cleaner import Cleaner
from rocketlet.store.files.config_files import save_config_texts
from rocketlet.store.files.file_sync import SlowStep
from rocketlet.store.files.files import Files
from rocketlet.testing.manual_clock import ManualClock

COMMIT = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "1"}


@pytest.mark.feature("C8", "H6")
async def test_restart_keeps_messages_topics_groups_and_offsets(settings: dict[str, str], clock: ManualClock) -> None:
    """After a clean stop everything is there again, and the file ``abort`` is not."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await caller.send(body=b"kept", queue_id=0)
        await caller.heartbeat("one", "g", {"T": "*"})
        await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT)
        assert (pathlib.Path(config.store.root) / "abort").exists()
    assert not (pathlib.Path(config.store.root) / "abort").exists()
    settings["autoCreateTopicEnable"] = settings["autoCreateSubscriptionGroup"] = "false"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        pulled = await caller.pull(consumer_group="g")
        assert bytes(decode_record(pulled.body).body) == b"kept"
        found = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, COMMIT)
        assert found.ext["offset"] == "1"


@pytest.mark.parametrize(("was_killed", "offset"), [(True, "1"), (False, "5")])
async def test_offset_of_messages_that_are_lost_is_pulled_back(
    settings: dict[str, str], clock: ManualClock, *, was_killed: bool, offset: str
) -> None:
    """A kill may leave offsets of messages that were not on disk; after a clean stop an offset is what a client set."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await caller.send(body=b"kept", queue_id=0)
        await caller.heartbeat("one", "g", {"T": "*"})
        await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**COMMIT, "commitOffset": "5"})
    if was_killed:
        (pathlib.Path(config.store.root) / "abort").touch()
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        found = await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, COMMIT)
        assert found.ext["offset"] == offset
        saved = (pathlib.Path(config.store.root) / "config" / "consumerOffset.json").read_text()
        assert f'"T@g":{{"0":{offset}}}' in "".join(saved.split())


async def test_new_topic_is_on_disk_when_it_is_answered(settings: dict[str, str], clock: ManualClock) -> None:
    """A kill after the answer does not lose the topic."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await caller.send("Fresh")
        assert '"Fresh"' in (pathlib.Path(config.store.root) / "config" / "topics.json").read_text()


async def test_no_send_is_answered_before_its_new_topic_is_on_disk(
    settings: dict[str, str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the send that made the topic nor one that came meanwhile: a kill would lose the topic of both."""
    may_save = threading.Event()

    def save(texts: Mapping[str, str], journal: str, files: Files) -> Mapping[str, OSError]:
        assert may_save.wait(30)
        return save_config_texts(texts, journal, files)

    monkeypatch.setattr("rocketlet.broker.topic.config_table.save_config_texts", save)
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        async with asyncio.TaskGroup() as tasks:
            sends = [tasks.create_task(caller.send("Fresh", b"%d" % number)) for number in range(2)]
            await until(lambda: sum(broker.store.max_offset("Fresh", queue_id) for queue_id in range(4)) == 2)
            other = await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "Fresh", "queueId": "0"})
            assert other.code == ResponseCode.SUCCESS
            assert [send.done() for send in sends] == [False, False]
            may_save.set()
        assert [send.result().code for send in sends] == [ResponseCode.SUCCESS] * 2


async def test_offsets_are_saved_every_five_seconds(settings: dict[str, str], clock: ManualClock) -> None:
    """Committed offsets reach the disk without a stop."""
    config = BrokerConfig.from_java(settings)
    file = pathlib.Path(config.store.root) / "config" / "consumerOffset.json"
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await caller.send()
        await caller.heartbeat("one", "g", {"T": "*"})
        await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT)
        assert not file.exists()
        await clock.elapse(5000)
        await until(file.exists)
        assert '"T@g"' in file.read_text()


async def test_failing_save_does_not_stop_the_broker(
    settings: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Offsets that the disk refuses are logged and tried again; the broker goes on."""
    config = BrokerConfig.from_java(settings)
    folder = pathlib.Path(config.store.root) / "config"
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await caller.send()
        await caller.heartbeat("one", "g", {"T": "*"})
        folder.rename(folder.with_name("elsewhere"))
        folder.write_text("in the way")
        await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, COMMIT)
        await clock.elapse(5000)
        await until(lambda: any("saving config/consumerOffset.json failed" in message for message in caplog.messages))
        assert (await caller.send()).code == ResponseCode.SUCCESS
        folder.unlink()
        folder.with_name("elsewhere").rename(folder)
        await clock.elapse(1000)
        await until((folder / "consumerOffset.json").exists)


async def test_start_and_stop_many_times_leaves_nothing(settings: dict[str, str], clock: ManualClock) -> None:
    """Ten starts and stops leave no task, thread or timer, and each serves."""
    tasks, threads, planned = len(asyncio.all_tasks()), threading.active_count(), clock.next_at_ms
    for number in range(10):
        async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
            assert (await caller.send(queue_id=0)).ext["queueOffset"] == str(number)
    assert (len(asyncio.all_tasks()), threading.active_count()) == (tasks, threads)
    await until(lambda: clock.next_at_ms == planned)  # the name server's end of the last connection closes by itself


async def test_parked_pull_is_answered_by_the_stop(settings: dict[str, str], clock: ManualClock) -> None:
    """A stopping broker answers who waits instead of only closing the connection."""
    async with asyncio.TaskGroup() as group, Broker(BrokerConfig.from_java(settings), clock) as broker:
        opening = open_caller(broker.address)
        caller = await opening.__aenter__()
        await caller.send()
        flags = PULL_SUBSCRIPTION | PULL_SUSPEND
        pull = group.create_task(caller.pull(queue_offset=1, sys_flag=flags))
        await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    assert pull.result().code == ResponseCode.PULL_NOT_FOUND
    await opening.__aexit__(None, None, None)


async def test_busy_port_is_one_sentence(settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path) -> None:
    """A port that somebody listens at stops the start, and the store is free again."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker:
        settings["listenPort"] = broker.address.rpartition(":")[2]
        settings["storePathRootDir"] = str(tmp_path / "second")
        with pytest.raises(ConfigError, match="the address is in use"):
            await Broker(BrokerConfig.from_java(settings), clock).__aenter__()
    async with Broker(BrokerConfig.from_java(settings), clock):
        pass


async def test_store_in_use_stops_the_start(settings: dict[str, str], clock: ManualClock) -> None:
    """Two brokers of one process cannot open one store."""
    async with Broker(BrokerConfig.from_java(settings), clock):
        with pytest.raises(StoreInUseError):
            await Broker(BrokerConfig.from_java(settings), clock).__aenter__()


async def test_wrong_segment_size_stops_the_start(settings: dict[str, str], clock: ManualClock) -> None:
    """A store is not opened with other sizes than it was written with."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await caller.send()
    settings["mappedFileSizeCommitLog"] = "8388608"
    with pytest.raises(ConfigError, match="mappedFileSizeCommitLog"):
        await Broker(BrokerConfig.from_java(settings), clock).__aenter__()


async def test_cancelled_start_frees_the_store(settings: dict[str, str], clock: ManualClock) -> None:
    """A start that is given up while the store is being opened leaves the store to the next."""
    config = BrokerConfig.from_java(settings)
    for _ in range(5):
        async with asyncio.TaskGroup() as group:
            start = group.create_task(Broker(config, clock).__aenter__())
            await asyncio.sleep(0)
            start.cancel()
    async with Broker(config, clock):
        pass


async def test_host_that_is_no_name_stops_the_start(settings: dict[str, str], clock: ManualClock) -> None:
    """An address that cannot be resolved is named."""
    settings["brokerIP1"] = "no-such-host.invalid"
    with pytest.raises(ConfigError, match="brokerIP1"):
        await Broker(BrokerConfig.from_java(settings), clock).__aenter__()


@pytest.mark.parametrize(
    ("port", "advertised_port", "is_refused"), [(10911, 0, True), (10911, 10911, True), (0, 1, False), (0, 7, False)]
)
async def test_told_address_of_this_machine_is_one_that_the_broker_listens_at(
    port: int, advertised_port: int, is_refused: bool, settings: dict[str, str], clock: ManualClock
) -> None:
    """Unless clients are told another port: somebody may forward that."""
    config = BrokerConfig.from_java({**settings, "listenPort": str(port), "brokerIP1": "127.0.0.2"})
    broker = Broker(replace(config, advertised_port=advertised_port), clock)
    if is_refused:
        with pytest.raises(ConfigError, match=r"told 127\.0\.0\.2 .* where nobody listens"):
            await broker.__aenter__()
        return
    async with broker:
        assert broker.address == f"127.0.0.2:{advertised_port}"


async def test_cleaning_begins_a_minute_after_the_start(
    settings: dict[str, str], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round of the store's cleaner is due then."""
    rounds: list[int] = []

    def begin(_cleaner: Cleaner) -> Iterator[SlowStep]:
        rounds.append(clock.monotonic_ms())
        return iter(())

    monkeypatch.setattr(Cleaner, "round", begin)
    async with Broker(BrokerConfig.from_java(settings), clock):
        started_at_ms = clock.monotonic_ms()
        await clock.elapse(60_000)
        await until(lambda: bool(rounds))
    assert rounds == [started_at_ms + 60_000]


async def test_transaction_that_nobody_ends_is_kept_apart(settings: dict[str, str], clock: ManualClock) -> None:
    """A broker that was told no other policy puts its copy where Java's does."""
    config = BrokerConfig.from_java({**settings, "transactionCheckMax": "0"})
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await send_half(caller)
        await next_round(clock, 2)
        (kept,) = await pulled(caller, DISCARD_TOPIC)
        assert bytes(kept.body) == b"half"


async def test_broker_without_name_servers_serves(settings: dict[str, str], clock: ManualClock) -> None:
    """Nobody to register at is no error."""
    settings["namesrvAddr"] = ""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        assert (await caller.send("Fresh")).code == ResponseCode.SUCCESS
