"""What a broker tells of itself to whoever watches it."""

from typing import cast

import pytest
from raw_calls import Caller

from rocketlet.broker.admin.topic_figures import GroupProgress, StoredTimes
from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.metadata import TopicConfig
from rocketlet.remoting.codec.request_codes import RequestCode as Code
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
