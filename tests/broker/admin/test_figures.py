"""What a broker tells of itself to whoever watches it."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest
from raw_calls import Caller

from rocketlet.broker.admin import topic_figures
from rocketlet.broker.admin.topic_figures import GroupProgress, StoredTimes
from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.metadata import TopicConfig
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.store.consumequeue.consume_queue import ConsumeQueue
from rocketlet.store.message_store import MessageStore
from rocketlet.testing.manual_clock import ManualClock


class Store:
    """Tells when messages were stored, and notes who asks."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.has_messages = True

    def stored_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return a time of the message."""
        self.asked.append((topic, queue_id, queue_offset))
        return 1000 + queue_offset if self.has_messages else -1


@pytest.fixture
def store() -> Store:
    """Return a store."""
    return Store()


@pytest.fixture
def times(store: Store) -> StoredTimes:
    """Return the times of its messages."""
    return StoredTimes(cast("MessageStore", store))


def test_time_of_a_message_is_read_once(store: Store, times: StoredTimes) -> None:
    """In the same look, and in the next one; what a look does not ask for is forgotten."""
    topic = TopicConfig(topic_name="T")
    for _ in range(3):
        times.begin_look()
        assert [times.of(topic, 0, 5), times.of(topic, 0, 5), times.of(topic, 1, 6)] == [1005, 1005, 1006]
    assert store.asked == [("T", 0, 5), ("T", 1, 6)]
    times.begin_look()
    times.begin_look()
    assert times.of(topic, 0, 5) == 1005
    assert store.asked[2:] == [("T", 0, 5)]


def test_topic_that_is_made_anew_is_read_again(store: Store, times: StoredTimes) -> None:
    """Its offsets begin again, so the same one is another message."""
    for _ in range(2):
        times.begin_look()
        times.of(TopicConfig(topic_name="T"), 0, 0)
    assert store.asked == [("T", 0, 0)] * 2


def test_message_that_is_not_there_is_asked_for_again(store: Store, times: StoredTimes) -> None:
    """It may come."""
    topic, store.has_messages = TopicConfig(topic_name="T"), False
    times.begin_look()
    assert times.of(topic, 0, 0) < 0
    store.has_messages = True
    times.begin_look()
    assert times.of(topic, 0, 0) == 1000


async def test_progress_of_a_group(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """What it is behind, and when the first message was stored that it has not committed, or was not handed out."""

    async def measure() -> GroupProgress:
        runs = (await broker.figures.measure()).runs
        (found,) = [one.progress for run in runs for one in run.reads if one.topic == "T"]
        assert found is not None
        return found

    begun_ms = clock.now_ms()
    for _ in range(5):
        await caller.send("T")
        clock.advance(1000)
    await caller.heartbeat("c1", "g", {"T": "*"})
    await commit(caller, 1)
    assert await measure() == GroupProgress(1, 4, 4, 0, 4, begun_ms + 1000, begun_ms + 1000)
    clock.advance(500)
    await caller.pull("T", 1, consumer_group="g", max_messages=2)
    assert await measure() == GroupProgress(1, 4, 4, 2, 2, begun_ms + 1000, begun_ms + 3000)
    await commit(caller, 5)
    assert await measure() == GroupProgress(5, 0, 0, 0, 0, 0, 0)


async def commit(caller: Caller, queue_offset: int) -> None:
    """Commit an offset of queue 0."""
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": str(queue_offset)}
    assert (await caller.ask(Code.UPDATE_CONSUMER_OFFSET, fields)).code == ResponseCode.SUCCESS


async def test_first_message_that_goes_is_followed_by_the_next(
    broker: Broker, caller: Caller, clock: ManualClock
) -> None:
    """A group waits for the first message that is still there; a look that changes nothing else notices it."""
    for _ in range(3):
        await caller.send("T")
        clock.advance(1000)
    await caller.heartbeat("c1", "g", {"T": "*"})
    await commit(caller, 0)
    assert await waits_since(broker, "T") == clock.now_ms() - 3000
    (queue, *_) = broker.store.spans("T", 1)
    cast("ConsumeQueue", queue).min_offset = 2
    assert await waits_since(broker, "T") == clock.now_ms() - 1000


async def test_time_that_cannot_be_read_is_asked_for_by_each_look(
    broker: Broker, caller: Caller, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept of a group that waits for a message which is not there."""
    await caller.send("T")
    await caller.heartbeat("c1", "g", {"T": "*"})
    await commit(caller, 0)

    def find_none(*_: object) -> int:
        return -1

    with monkeypatch.context() as patch:
        patch.setattr(StoredTimes, "of", find_none)
        assert await waits_since(broker, "T") == 0
        assert await waits_since(broker, "T") == 0
    assert await waits_since(broker, "T") == clock.now_ms()


async def waits_since(broker: Broker, topic: str) -> int:
    """Return since when the only group of a topic waits for its first message."""
    runs = (await broker.figures.measure()).runs
    (found,) = [one.progress for run in runs for one in run.reads if one.topic == topic]
    assert found is not None
    return found.behind_since_ms


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let others have their turn before each topic."""
    monkeypatch.setattr(topic_figures, "_WORK_IN_STEP", 1)


async def look_while(broker: Broker, change: Callable[[], object]) -> dict[str, GroupProgress | None]:
    """Look at all topics, and change something when others have their turn; return the progress in topic T."""

    async def have_turn() -> None:
        change()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(have_turn())
        runs = [run async for run in broker.figures.looks.look()]
    return {one.group: one.progress for run in runs for one in run.reads if one.topic == "T"}


@pytest.mark.usefixtures("interrupted")
async def test_what_was_so_in_between_is_not_kept(broker: Broker, caller: Caller) -> None:
    """An offset that is another one while topics are looked at, and then the one of before, is told as it is."""
    offsets = broker.figures.tables.offsets
    await caller.send("T")
    broker.figures.tables.groups.find("g")
    offsets.commit("g", "T", 0, 0)
    told: list[int] = []
    for queue_offset in (1, 0):
        progress = (await look_while(broker, partial(offsets.commit, "g", "T", 0, queue_offset)))["g"]
        assert progress is not None
        told.append(progress.committed)
        offsets.commit("g", "T", 0, 0)
    assert told == [1, 0]


@pytest.mark.usefixtures("interrupted")
async def test_group_that_is_deleted_meanwhile_is_left_out(broker: Broker, caller: Caller) -> None:
    """A look that has begun before tells nothing of it."""
    groups = broker.figures.tables.groups
    await caller.send("T")
    groups.find("g")
    broker.figures.tables.offsets.commit("g", "T", 0, 0)
    assert (await look_while(broker, lambda: None)).keys() == {"g"}
    assert await look_while(broker, partial(groups.delete, "g")) == {}
