"""Ten thousand parked pulls: what they cost, counted in calls."""

import asyncio
from typing import Any

import pytest
from growth import count_calls
from raw_calls import Caller, open_caller

from rocketlet.broker.outcomes.scheduler import HeldFetch, LongPolling
from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.properties import java_hash
from rocketlet.common.record import iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.store.consumequeue.appended import Appended
from rocketlet.store.consumequeue.consume_queue import ConsumeQueue, QueueSpace
from rocketlet.store.files.files import OS_FILES, Descriptors
from rocketlet.testing.manual_clock import ManualClock

QUEUES = 2000
GROUPS = 5
PEER = ("10.0.0.9", 4711)
LIMIT_MS = 15_000


class Park:
    """Waiters of five groups, each with a tag of its own, at so many queues; notes who is woken and asked."""

    def __init__(self, queues: int) -> None:
        self.clock = ManualClock()
        self.waiters = LongPolling(self.clock)
        self.woken: list[tuple[int, int]] = []
        self.asked: list[tuple[int, int]] = []
        for queue_id in range(queues):
            for group in range(GROUPS):
                self._add(queue_id, group)

    def _add(self, queue_id: int, group: int) -> None:
        def accepts(record: Appended) -> bool:
            self.asked.append((queue_id, group))
            return record.tags_code == group

        waiter = HeldFetch({("T", queue_id): 0}, accepts, lambda _: self.woken.append((queue_id, group)), PEER)
        self.waiters.hold(waiter, LIMIT_MS)


def arrival(queue_id: int, tags_code: int) -> list[Appended]:
    """Return the notice of the first message of a queue."""
    queue = ConsumeQueue(QueueSpace(OS_FILES, "unused", 20_000, Descriptors(OS_FILES, 4)), "T", queue_id)
    return [Appended(0, 0, 100, "T", queue_id, 0, 0, b"", queue, tags_code)]


@pytest.mark.feature("P6")
def test_arrival_asks_the_waiters_of_its_queue_alone() -> None:
    """Of 10,000 waiters at 2,000 queues five are asked and the right one is woken, with as many calls as among ten."""
    large, small = Park(QUEUES), Park(2)
    assert len(large.waiters) == QUEUES * GROUPS
    notice, other_notice = arrival(1234, 3), arrival(1, 3)
    calls = count_calls(lambda: large.waiters.arrived(notice))
    assert large.woken == [(1234, 3)]
    assert large.asked == [(1234, group) for group in range(GROUPS)]
    assert calls == count_calls(lambda: small.waiters.arrived(other_notice))


@pytest.mark.feature("P7")
def test_idle_waiters_cost_nothing() -> None:
    """Until their limit no call is made for 10,000 waiters; an arrival elsewhere makes none for them either."""
    large, none = Park(QUEUES), Park(0)
    calls = count_calls(lambda: large.clock.advance(LIMIT_MS - 1))
    HeldFetch({("T", 0): 0}, None, lambda _: None, PEER)
    none.waiters.hold(HeldFetch({("T", 0): 0}, None, lambda _: None, PEER), LIMIT_MS)
    assert calls == count_calls(lambda: none.clock.advance(LIMIT_MS - 1))
    elsewhere = arrival(QUEUES, 0)
    calls = count_calls(lambda: large.waiters.arrived(elsewhere))
    assert calls == count_calls(lambda: none.waiters.arrived(elsewhere))
    assert (large.woken, large.asked) == ([], [])
    large.clock.advance(1)
    assert len(large.woken) == QUEUES * GROUPS
    assert len(large.waiters) == 0


@pytest.mark.feature("P7")
def test_waiters_that_leave_take_their_timers_along() -> None:
    """When their connections close, 10,000 waiters leave neither an entry nor a timer."""
    clock = ManualClock()
    waiters = LongPolling(clock)
    parked = [HeldFetch({("T", number % QUEUES): 0}, None, lambda _: None, PEER) for number in range(QUEUES * GROUPS)]
    for waiter in parked:
        waiters.hold(waiter, LIMIT_MS)
    for waiter in parked:
        waiter.outcome.drop()
    assert (len(waiters), clock.next_at_ms) == (0, None)


async def settled(caller: Caller) -> None:
    """Wait until the broker has handled all that was sent to it before."""
    await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})


@pytest.mark.feature("P6", "P7")
async def test_broker_with_ten_thousand_held_pulls(broker: Broker, clock: ManualClock) -> None:
    """One send is the answer of one of 10,000 held pulls; each of the others is answered once, at its limit."""
    create = {"topic": "T", "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}
    sizes = {"readQueueNums": str(QUEUES), "writeQueueNums": str(QUEUES)}
    answers: dict[tuple[int, int], Command] = {}
    async with open_caller(broker.address) as caller, open_caller(broker.address) as other:
        await other.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**create, **sizes})

        async def hold(queue_id: int, group: int) -> None:
            about: dict[str, Any] = {"consumer_group": f"group-{group}", "subscription": f"tag-{group}"}
            flags = PULL_SUBSCRIPTION | PULL_SUSPEND
            answers[queue_id, group] = await caller.pull(queue_id=queue_id, sys_flag=flags, **about)

        async with asyncio.TaskGroup() as group:
            for queue_id in range(QUEUES):
                for number in range(GROUPS):
                    group.create_task(hold(queue_id, number))
            await asyncio.sleep(0)  # each task has sent its request
            await settled(caller)
            assert answers == {}
            await other.send(queue_id=1234, properties="TAGS\x01tag-3\x02")
            await settled(caller)
            assert list(answers) == [(1234, 3)]
            clock.advance(LIMIT_MS)
    (record,) = iter_records(answers.pop((1234, 3)).body)
    assert (record.queue_id, java_hash(record.properties["TAGS"])) == (1234, java_hash("tag-3"))
    skipped = [answers.pop((1234, number)) for number in range(GROUPS) if number != 3]
    assert {answer.code for answer in skipped} == {ResponseCode.PULL_RETRY_IMMEDIATELY}
    assert {answer.code for answer in answers.values()} == {ResponseCode.PULL_NOT_FOUND}
    assert len(answers) == (QUEUES - 1) * GROUPS
