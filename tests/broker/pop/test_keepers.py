"""Leases that stay with a consumer while it lives, what handles are worth, and messages that are given up."""

import pytest
from pops import GROUP, MINUTE_MS, PoppedMessage, acknowledge, change, pop
from raw_calls import Caller, until

from rocketlet.broker.pop.acks import HandleState
from rocketlet.broker.pop.handing_out import Popped
from rocketlet.broker.pop.parts import Pop
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.refusal import Refusal
from rocketlet.common.codes import ResponseCode
from rocketlet.common.metadata import SubscriptionGroupConfig
from rocketlet.common.pop_texts import PopHandle, read_topic
from rocketlet.common.record import iter_records
from rocketlet.remoting.headers.pop import AckHeader, PopHeader
from rocketlet.testing.manual_clock import ManualClock

CONSUMER = ("127.0.0.1", 1)


class Keeper:
    """Keeps what a consumer has for a minute at a time, while it lives."""

    def __init__(self) -> None:
        self.is_alive = True

    def extend_ms(self, popped_at_ms: int) -> int:
        """Return how much longer it stays."""
        assert popped_at_ms
        return MINUTE_MS if self.is_alive else 0


@pytest.fixture(autouse=True)
async def topic(caller: Caller) -> None:
    """Make the topic, with one queue and three messages."""
    for body in (b"0", b"1", b"2"):
        answer = await caller.send("T", body, queue_id=0, default_topic_queue_nums=1)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@pytest.fixture(name="parts")
def parts_(broker: Broker) -> Pop:
    """What the broker has of POP."""
    return broker.parts.pop.pop


def pop_kept(parts: Pop, keeper: Keeper, *, is_ordered: bool = False) -> list[PoppedMessage]:
    """Return what is handed out and kept."""
    request = PopHeader(
        consumer_group=GROUP,
        topic="T",
        queue_id=-1,
        max_messages=32,
        invisible_ms=MINUTE_MS,
        poll_ms=0,
        born_at_ms=0,
        init_mode=0,
        is_ordered=is_ordered,
    )
    popped = parts.pops.pop(request, CONSUMER, keeper).answer
    assert isinstance(popped, Popped)
    records = [record for data in popped.records for record in iter_records(data)]
    return [
        PoppedMessage(
            record,
            PopHandle(
                queue.start_offset,
                popped.popped_at_ms,
                popped.invisible_ms,
                popped.revive_queue_id,
                queue.retry,
                "broker-a",
                queue.queue_id,
                record.queue_offset,
            ),
        )
        for queue in popped.queues
        for record in records
    ]


def ack_of(message: PoppedMessage, group: str = GROUP) -> AckHeader:
    """Return what names a message."""
    handle = message.handle
    return AckHeader(
        consumer_group=group,
        topic=read_topic("T", group, handle.retry),
        queue_id=handle.queue_id,
        handle=handle.text(),
        queue_offset=handle.queue_offset,
    )


async def test_kept_messages_stay_while_their_consumer_lives(
    caller: Caller, parts: Pop, clock: ManualClock, broker: Broker
) -> None:
    """Its handles stay valid, also of the third of a batch; the log's check point comes and changes nothing."""
    keeper = Keeper()
    first, second, third = pop_kept(parts, keeper)
    for _ in range(5):
        await clock.elapse(40_000)
        assert await pop(caller) == []
    assert [parts.acks.state(ack_of(message)) for message in (first, third)] == [HandleState.RUNNING] * 2
    await acknowledge(caller, first, third)
    assert parts.acks.state(ack_of(third)) == HandleState.DONE
    keeper.is_alive = False
    await clock.elapse(MINUTE_MS)
    [again] = await pop(caller)
    assert (again.body, again.record.reconsume_times) == (second.body, 1)
    assert parts.acks.state(ack_of(second)) == HandleState.OVER
    await acknowledge(caller, again)
    await clock.elapse(MINUTE_MS + 30_000)
    assert await pop(caller) == []
    assert broker.parts.state.offsets.committed(GROUP, "T", 0) == 3


@pytest.mark.parametrize("age_ms", [100, 20_000], ids=["in memory", "in the log"])
async def test_what_a_consumer_has_comes_again_when_it_goes(
    caller: Caller, parts: Pop, broker: Broker, clock: ManualClock, age_ms: int
) -> None:
    """A second later, once, also after a kill: the log's check point is done with. What another one keeps stays."""
    keeper, other = Keeper(), Keeper()
    pop_kept(parts, keeper)
    await caller.send("T", b"of the other", queue_id=0)
    pop_kept(parts, other)
    await clock.elapse(age_ms)
    timers = broker.store.max_offset("rmq_sys_wheel_timer", 0)
    parts.release(keeper, 1_000)
    await clock.elapse(999)
    assert await pop(caller) == []
    await clock.elapse(1)
    assert broker.store.max_offset("rmq_sys_wheel_timer", 0) - timers == (3 if timers else 0)
    again = await pop(caller)
    assert [message.body for message in again] == [b"0", b"1", b"2"]
    await acknowledge(caller, *again)
    await clock.elapse(MINUTE_MS + 30_000)
    assert await pop(caller) == []


async def test_kept_batch_blocks_its_queue(caller: Caller, parts: Pop, clock: ManualClock) -> None:
    """While its consumer lives; who waits for it is woken when it goes."""
    keeper = Keeper()
    messages = pop_kept(parts, keeper, is_ordered=True)
    for _ in range(5):
        await clock.elapse(MINUTE_MS)
        assert await pop(caller, order=True) == []
    assert parts.acks.state(ack_of(messages[0])) == HandleState.RUNNING
    parts.release(keeper, 1_000)
    await clock.elapse(999)
    assert await pop(caller, order=True) == []
    await clock.elapse(1)
    assert parts.acks.state(ack_of(messages[0])) == HandleState.OVER
    assert [message.body for message in await pop(caller, order=True)] == [b"0", b"1", b"2"]
    assert parts.acks.state(ack_of(messages[0])) == HandleState.OVER


async def test_what_handles_are_worth(caller: Caller, parts: Pop, clock: ManualClock) -> None:
    """Of another group, of no message, done, over, and from a life before."""
    first, second, third = await pop(caller)
    assert parts.acks.state(ack_of(first)) == HandleState.RUNNING
    assert parts.acks.state(ack_of(first, "other")) == HandleState.DONE  # or forgotten: nobody can tell
    beyond = first._replace(handle=first.handle._replace(queue_offset=9))
    assert parts.acks.state(ack_of(beyond)) == HandleState.NOTHING
    misplaced = ack_of(first)
    misplaced.queue_offset = 2
    assert parts.acks.state(misplaced) == HandleState.NOTHING
    unlisted = second._replace(handle=second.handle._replace(start_offset=1))
    assert parts.acks.state(ack_of(unlisted)) == HandleState.DONE
    earlier = first._replace(handle=first.handle._replace(popped_at_ms=first.handle.popped_at_ms - 30_000))
    assert parts.acks.state(ack_of(earlier)) == HandleState.RUNNING
    await acknowledge(caller, first)
    assert parts.acks.state(ack_of(first)) == HandleState.DONE
    longer = await change(caller, third, 2 * MINUTE_MS)
    assert parts.acks.state(ack_of(third)) == HandleState.DONE
    await clock.elapse(MINUTE_MS)
    assert [parts.acks.state(ack_of(message)) for message in (second, longer)] == [
        HandleState.OVER,
        HandleState.RUNNING,
    ]


async def test_change_of_a_foreign_handle_has_no_effect(
    caller: Caller, parts: Pop, broker: Broker, clock: ManualClock
) -> None:
    """It makes no lease for a group that was handed nothing, nor for a message that is acknowledged."""
    messages = await pop(caller)
    foreign = parts.acks.change(ack_of(messages[0], "other"), 1_000, CONSUMER).answer
    await acknowledge(caller, *messages)
    done = parts.acks.change(ack_of(messages[0]), 1_000, CONSUMER).answer
    for changed in (foreign, done):
        assert not isinstance(changed, (type(None), Refusal))
        assert not changed.has_effect
    await clock.elapse(MINUTE_MS)
    assert await pop(caller) == []
    assert broker.parts.state.topics.get("%RETRY%other_T") is None


async def test_giving_up_copies_the_message_of_the_handle(
    caller: Caller, parts: Pop, broker: Broker, clock: ManualClock
) -> None:
    """Also one that came again and was changed then; the group is done with it."""
    broker.parts.state.groups.put(SubscriptionGroupConfig(group_name=GROUP))
    first, *others = await pop(caller, invisibleTime=20_000)
    await acknowledge(caller, *others)
    await clock.elapse(20_000)
    [again] = await pop(caller)
    again = await change(caller, again, MINUTE_MS)
    outcome = parts.giving_up.give_up(ack_of(again), CONSUMER)
    broker.parts.scheduler.end_turn()
    await until(lambda: outcome.is_settled)
    assert (outcome.answer, outcome.failure) == (None, None)
    [dead] = await pop(caller, f"%DLQ%{GROUP}", consumerGroup="mourners")
    properties = dead.record.properties
    assert (dead.body, dead.record.reconsume_times) == (first.body, 2)
    assert (properties["RETRY_TOPIC"], properties["DLQ_ORIGIN_TOPIC"]) == ("T", "T")
    assert "POP_CK" not in properties
    await clock.elapse(MINUTE_MS + 30_000)
    assert await pop(caller) == []
