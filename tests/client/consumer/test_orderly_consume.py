"""Orderly consumption against a scripted broker: order, rests, dead letters, commits and locks."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncGenerator, Callable

import pytest
from inbox import HeldListener, Inbox, give_up
from push_bench import COMMIT, PULL, Bench, Feed, Stored, pulled, records
from scripted_cluster import ScriptedCluster, offset_of, refused, silent

from rocketlet.client import ConsumeResult, MessageQueue, PushConsumer, ReceivedMessage, Retry
from rocketlet.client.consumer.orderly_consume import OrderlyConsumer
from rocketlet.common.codes import ResponseCode
from rocketlet.common.outcome import Outcome
from rocketlet.common.properties import MAX_RECONSUME_TIMES, RECONSUME_TIME, RETRY_TOPIC, parse_properties
from rocketlet.remoting.bodies.body import decode_body, encode_body
from rocketlet.remoting.bodies.client import LockBatchBody, LockedQueues
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.offset import CommitOffsetHeader
from rocketlet.remoting.headers.send import decode_send_header

LOCK = RequestCode.LOCK_BATCH_MQ
UNLOCK = RequestCode.UNLOCK_BATCH_MQ
SEND = RequestCode.SEND_MESSAGE_V2
Result = ConsumeResult | Retry | None


class Script:
    """A listener that answers from a list, then with None, and keeps which offsets it got in each call."""

    def __init__(self, *answers: Result | type[Exception]) -> None:
        self.calls: list[list[int]] = []
        self.tries: list[int] = []
        self._answers = iter(answers)
        self._called = asyncio.Event()

    async def __call__(self, messages: list[ReceivedMessage]) -> Result:
        """Answer the next call."""
        self.calls.append([message.queue_offset for message in messages])
        self.tries.append(messages[0].reconsume_times)
        self._called.set()
        answer = next(self._answers, None)
        if isinstance(answer, type):
            raise answer
        return answer

    async def wait_calls(self, count: int) -> None:
        """Return when it has been called so often."""
        while len(self.calls) < count:
            self._called.clear()
            await self._called.wait()


class Locks:
    """Answers lock requests: grants everything while it is generous."""

    def __init__(self) -> None:
        self.is_generous = True

    def __call__(self, command: Command) -> Command:
        """Answer a request."""
        queues = decode_body(LockBatchBody, command.body).mq_set if self.is_generous else []
        return Command.response(ResponseCode.SUCCESS, body=encode_body(LockedQueues(queues=queues)))


@pytest.fixture
def locks() -> Locks:
    """Return the answers to lock requests."""
    return Locks()


@pytest.fixture
async def bench(cluster: ScriptedCluster, locks: Locks) -> Bench:
    """Return a bench whose broker locks queues."""
    cluster.routes["T"] = cluster.routes["%RETRY%cg"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a", {LOCK: locks})
    return Bench(cluster, broker)


def orderly(bench: Bench, listener: Callable[..., object], **settings: object) -> PushConsumer:
    """Return an orderly consumer of T."""
    consumer = bench.consumer(is_orderly=True, **settings)
    consumer.subscribe("T", "*", listener)  # pyright: ignore[reportArgumentType] # any listener
    return consumer


async def test_messages_come_one_after_the_other(bench: Bench) -> None:
    """The next call begins when the one before has ended, whatever the concurrency; the queue is locked first."""
    bench.broker.answers[PULL] = Feed(pulled(5, records(0, 5)))
    running, order = itertools.count(), Inbox()

    async def slow(messages: list[ReceivedMessage]) -> None:
        assert next(running) == len(order.messages)
        for _ in range(10):
            await asyncio.sleep(0)
        await order(messages)

    async with orderly(bench, slow):
        await order.wait_for(5)
    assert [message.queue_offset for message in order.messages] == [0, 1, 2, 3, 4]
    assert bench.commits()[-1] == 5
    codes = [request.code for request in bench.broker.requests]
    assert codes.index(LOCK) < codes.index(PULL)
    assert codes.index(UNLOCK) > max(index for index, code in enumerate(codes) if code == COMMIT)


@pytest.mark.parametrize(
    ("failure", "settings", "rest_ms"),
    [
        (ConsumeResult.RETRY, {}, 1000),
        (RuntimeError, {"pause_ms": 3000}, 3000),
        (Retry(pause_ms=5000), {}, 5000),
        (Retry(pause_ms=99_000), {}, 30_000),
    ],
)
async def test_failed_message_comes_again_after_a_rest(
    bench: Bench, failure: Result, settings: dict[str, object], rest_ms: int
) -> None:
    """It comes before those behind it, with one failure more, and is not committed before it succeeds."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    listener = Script(failure, failure)
    async with orderly(bench, listener, **settings):
        for calls in (1, 2):
            await listener.wait_calls(calls)
            assert rest_ms <= await bench.elapse_until(lambda calls=calls: len(listener.calls) > calls) <= rest_ms + 100
        await listener.wait_calls(4)
    assert listener.calls == [[0], [0], [0], [1]]
    assert listener.tries == [0, 1, 2, 0]
    assert bench.commits()[-1] == 2


async def test_rest_of_a_batch_comes_again(bench: Bench) -> None:
    """What the listener names as done is finished, the rest comes first in the next call."""
    bench.broker.answers[PULL] = Feed(pulled(5, records(0, 5)))
    listener = Script(Retry(from_index=2))
    async with orderly(bench, listener, batch_messages=3):
        await listener.wait_calls(1)
        await bench.elapse_until(lambda: len(listener.calls) > 1)
        await listener.wait_calls(2)
    assert listener.calls == [[0, 1, 2], [2, 3, 4]]
    assert bench.commits()[-1] == 5


async def test_message_that_fails_too_often_goes_to_the_dead_letters(bench: Bench) -> None:
    """It is sent to the retry topic with a count above the limit, as Java's, and the queue goes on."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    listener = Script(ConsumeResult.RETRY, ConsumeResult.RETRY)
    async with orderly(bench, listener, max_retries=1):
        await listener.wait_calls(1)
        await bench.elapse_until(lambda: len(listener.calls) > 2)
    assert listener.calls == [[0], [0], [1]]
    [sent] = bench.broker.asked(SEND)
    header = decode_send_header(sent)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == ("%RETRY%cg", 2, 1)
    properties = parse_properties(header.properties or "")
    assert (properties[RETRY_TOPIC], properties[RECONSUME_TIME], properties[MAX_RECONSUME_TIMES]) == ("T", "2", "1")
    assert sent.body == b"x"
    assert bench.commits()[-1] == 2


async def test_message_without_a_way_to_the_dead_letters_keeps_its_queue(bench: Bench) -> None:
    """While no broker takes it, it comes again, so that the order holds."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    bench.broker.answers[SEND] = refused(ResponseCode.SYSTEM_BUSY)
    listener = Script(*[ConsumeResult.RETRY] * 4)
    async with orderly(bench, listener, max_retries=0):
        await listener.wait_calls(1)
        await bench.elapse_until(lambda: len(listener.calls) > 2)
        bench.broker.answers[SEND] = lambda _: Command.response(ResponseCode.SUCCESS)
        await bench.elapse_until(lambda: [1] in listener.calls)
    assert listener.calls == [[0], [0], [0], [0], [1]]


async def test_nothing_is_committed_until_the_listener_says_so(bench: Bench) -> None:
    """A success alone leaves the offset; COMMIT moves it behind all that were taken."""
    bench.broker.answers[PULL] = Feed(pulled(4, records(0, 4)))
    listener = Script(None, ConsumeResult.SUCCESS, ConsumeResult.COMMIT, None)
    async with orderly(bench, listener, commits_itself=False):
        await listener.wait_calls(4)
    assert bench.commits()[-1] == 3


async def test_rollback_brings_all_uncommitted_messages_again(bench: Bench) -> None:
    """After ROLLBACK the queue begins behind the last COMMIT; a RETRY brings its own messages alone."""
    bench.broker.answers[PULL] = Feed(pulled(3, records(0, 3)))
    listener = Script(
        ConsumeResult.COMMIT, None, ConsumeResult.ROLLBACK, None, ConsumeResult.RETRY, ConsumeResult.COMMIT
    )
    async with orderly(bench, listener, commits_itself=False):
        await listener.wait_calls(3)
        await bench.elapse_until(lambda: len(listener.calls) > 3)
        await listener.wait_calls(5)
        await bench.elapse_until(lambda: len(listener.calls) > 5)
    assert listener.calls == [[0], [1], [2], [1], [2], [2]]
    assert bench.commits()[-1] == 3


@pytest.mark.parametrize("answer", [ConsumeResult.COMMIT, ConsumeResult.ROLLBACK])
async def test_commit_and_rollback_are_successes_of_a_consumer_that_commits_itself(
    bench: Bench, answer: ConsumeResult
) -> None:
    """As in Java, with a line in the log."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    listener = Script(answer, answer)
    async with orderly(bench, listener):
        await listener.wait_calls(2)
    assert listener.calls == [[0], [1]]
    assert bench.commits()[-1] == 2


@pytest.mark.feature("B22")
async def test_lost_lock_pauses_the_queue(bench: Bench, locks: Locks) -> None:
    """When another member holds the lock nothing of the queue runs or is pulled; with the lock it goes on."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    listener = Script(Retry(pause_ms=30_000))
    async with orderly(bench, listener):
        await listener.wait_calls(1)
        locks.is_generous = False
        asked = len(bench.broker.asked(LOCK))
        await bench.elapse_until(lambda: len(bench.broker.asked(LOCK)) > asked)
        for _ in range(500):
            await bench.clock.elapse(100)
        assert listener.calls == [[0]]
        assert len(bench.pulls()) == 2
        locks.is_generous = True
        await bench.elapse_until(lambda: len(listener.calls) == 3 and len(bench.pulls()) == 3)
    assert listener.calls == [[0], [0], [1]]


@pytest.mark.feature("B22")
async def test_lost_lock_is_asked_for_after_javas_pauses(bench: Bench, locks: Locks) -> None:
    """100 ms after a message found the queue without its lock, and 3 s after each refusal."""
    bench.broker.answers[PULL] = Feed(pulled(1, records(0, 1)))
    listener = Script(Retry(pause_ms=30_000))
    async with orderly(bench, listener):
        await listener.wait_calls(1)
        locks.is_generous = False
        asked = len(bench.broker.asked(LOCK))
        await bench.elapse_until(lambda: len(bench.broker.asked(LOCK)) > asked)  # the confirmation is refused
        asked_at_ms: list[int] = []
        while len(asked_at_ms) < 4:
            asked = len(bench.broker.asked(LOCK))
            await bench.elapse_until(lambda asked=asked: len(bench.broker.asked(LOCK)) > asked)
            asked_at_ms.append(bench.clock.monotonic_ms())
    pauses = [after - before for before, after in itertools.pairwise(asked_at_ms)]
    assert all(3_000 <= pause <= 3_300 for pause in pauses), pauses


@pytest.mark.feature("B22")
async def test_lock_that_is_not_confirmed_ends_after_30_s(bench: Bench) -> None:
    """A broker that is silent may have given the lock to another member."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    listener = Script(Retry(pause_ms=20_000), Retry(pause_ms=20_000))
    async with orderly(bench, listener):
        await listener.wait_calls(1)
        bench.broker.answers[LOCK] = silent
        for _ in range(900):
            await bench.clock.elapse(100)
        assert listener.calls == [[0], [0]]


async def test_queue_locked_by_another_member_is_not_taken(bench: Bench, locks: Locks) -> None:
    """It is asked for again, after longer and longer pauses, and taken when the lock is free."""
    locks.is_generous = False
    listener = Script()
    consumer = orderly(bench, listener)
    async with consumer:
        assert consumer.queues == ()
        asked = len(bench.broker.asked(LOCK))
        assert await bench.elapse_until(lambda: len(bench.broker.asked(LOCK)) > asked) >= 1000
        locks.is_generous = True
        await bench.elapse_until(lambda: len(consumer.queues) == 1)


async def live(consumer: PushConsumer, entered: asyncio.Event, done: asyncio.Event) -> None:
    """Enter a consumer, say so, and leave it when the test is done with it."""
    async with consumer:
        entered.set()
        await done.wait()


@contextlib.asynccontextmanager
async def given_up_while_held(bench: Bench) -> AsyncGenerator[HeldListener]:
    """Give a listener that is at the first of two messages, when its consumer has given the queue up."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    held = HeldListener()
    async with orderly(bench, held) as consumer:
        await held.begun.wait()
        await give_up(consumer)
        yield held


async def test_queue_that_is_given_up_keeps_its_lock_until_its_listener_ends(bench: Bench) -> None:
    """What the listener finishes then still counts: the offset is stored before the lock is given back."""
    async with given_up_while_held(bench) as held:
        assert all(decode_body(LockBatchBody, each.body).mq_set[0].topic != "T" for each in bench.broker.asked(UNLOCK))
        held.may_end.set()
        await bench.broker.wait_asked(UNLOCK)
        [unlocked] = decode_body(LockBatchBody, bench.broker.asked(UNLOCK)[0].body).mq_set
        assert unlocked.topic == "T"
        before = bench.broker.requests[: bench.broker.requests.index(bench.broker.asked(UNLOCK)[0])]
        stored = [decode_header(CommitOffsetHeader, each) for each in before if each.code == COMMIT]
        assert [each.commit_offset for each in stored if each.topic == "T"][-1] == 1


@pytest.mark.feature("B22")
async def test_queue_is_not_taken_again_before_its_offset_is_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the old listener runs, and until what it finished is stored, a rebalance that gives it back must wait."""
    bench.broker.answers[PULL] = Stored(0, 2)
    bench.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = lambda _: offset_of((bench.commits() or [0])[-1])
    begun, may_end, may_leave, again = asyncio.Event(), asyncio.Event(), asyncio.Event(), Script()

    async def slow(_: list[ReceivedMessage]) -> None:
        begun.set()
        await may_end.wait()

    wait_unused = OrderlyConsumer.wait_unused

    async def wait_longer(self: OrderlyConsumer, queue: MessageQueue) -> None:
        await wait_unused(self, queue)
        await may_leave.wait()

    monkeypatch.setattr(OrderlyConsumer, "wait_unused", wait_longer)
    consumer = orderly(bench, slow)
    async with consumer:
        await begun.wait()
        consumer.unsubscribe("T")
        await bench.elapse_until(lambda: not consumer.queues)
        consumer.subscribe("T", "*", again)
        for event in (may_end, may_leave):
            for _ in range(50):  # several rebalances: they come soon while a queue cannot be taken
                await bench.clock.elapse(100)
            assert "T" not in {queue.topic for queue in consumer.queues}
            assert len(bench.pulls()) <= 2
            event.set()
        await bench.elapse_until(lambda: bool(again.calls))
    assert again.calls == [[1]]
    assert bench.commits()[-1] == 2


@pytest.mark.feature("B22")
async def test_closing_stores_what_was_finished_of_a_queue_that_is_still_in_use(bench: Bench) -> None:
    """A listener that never ends keeps its queue, given up or not; the message before is not consumed again."""
    bench.broker.answers[PULL] = Feed(pulled(2, records(0, 2)))
    begun, given_up = asyncio.Event(), asyncio.Event()

    async def stuck(messages: list[ReceivedMessage]) -> None:
        if messages[0].queue_offset == 1:
            begun.set()
            await asyncio.Event().wait()

    consumer = orderly(bench, stuck)
    consumer.on_queues_changed(lambda queues: None if queues else given_up.set())

    async def live() -> None:
        async with consumer:
            await begun.wait()
            consumer.unsubscribe("T")
            await given_up.wait()

    async with asyncio.TaskGroup() as group:
        living = group.create_task(live())
        await given_up.wait()
        commits = len(bench.commits())
        await bench.elapse_until(living.done)
    assert bench.commits()[commits:] == [1]


@pytest.mark.feature("B22")
async def test_lock_that_was_asked_for_is_given_back_at_the_end(bench: Bench) -> None:
    """A consumer that closes while the answer is on its way would keep the next owner waiting for a minute."""
    bench.broker.answers[LOCK] = silent
    consumer = orderly(bench, Script())
    async with asyncio.TaskGroup() as group:
        entered, done = asyncio.Event(), asyncio.Event()
        group.create_task(live(consumer, entered, done))
        await bench.elapse_until(entered.is_set)
        done.set()
        [*_, last] = await bench.broker.wait_asked(UNLOCK)
    assert consumer.queues == ()
    assert "T" in {queue.topic for queue in decode_body(LockBatchBody, last.body).mq_set}
    assert [request.code for request in bench.broker.requests if request.code in {LOCK, UNLOCK}][-1] == UNLOCK


@pytest.mark.feature("B22")
async def test_lock_confirmed_after_it_was_given_back_is_not_kept(bench: Bench, locks: Locks) -> None:
    """A confirmation that was under way when the queue was given up does not have it locked again and again."""
    bench.broker.answers[PULL] = Feed(pulled(1, records(0, 1)))
    listener, confirmation = Script(), Outcome[Command]()
    consumer = orderly(bench, listener)
    async with consumer:
        await listener.wait_calls(1)
        asked = len(bench.broker.asked(LOCK))
        bench.broker.answers[LOCK] = lambda _: confirmation
        await bench.elapse_until(lambda: len(bench.broker.asked(LOCK)) > asked)
        consumer.unsubscribe("T")
        await bench.broker.wait_asked(UNLOCK)
        confirmation.answer_with(locks(bench.broker.asked(LOCK)[-1]))
        bench.broker.answers[LOCK] = locks
        asked = len(bench.broker.asked(LOCK))
        await bench.elapse_until(lambda: len(bench.broker.asked(LOCK)) > asked)
        asked_for = decode_body(LockBatchBody, bench.broker.asked(LOCK)[-1].body).mq_set
    assert "T" not in {queue.topic for queue in asked_for}


def topics_of(requests: list[Command]) -> list[set[str]]:
    """Return of which topics each request names queues."""
    return [{queue.topic for queue in decode_body(LockBatchBody, each.body).mq_set} for each in requests]


@pytest.mark.feature("B22")
async def test_queue_that_is_given_up_is_confirmed_until_its_listener_ends(bench: Bench) -> None:
    """Else another member might run the queue's messages beside it, after 60 s."""
    async with given_up_while_held(bench) as held:
        asked = len(bench.broker.asked(LOCK))
        await bench.elapse_until(lambda: len(bench.broker.asked(LOCK)) > asked)
        held.may_end.set()
        assert "T" in topics_of(bench.broker.asked(LOCK))[-1]


@pytest.mark.feature("B22")
async def test_lock_of_a_queue_that_cannot_be_taken_is_given_back(bench: Bench) -> None:
    """Its offset is not known: another member may have it before this one asks again."""
    bench.broker.answers[RequestCode.QUERY_CONSUMER_OFFSET] = refused(ResponseCode.SYSTEM_ERROR)
    async with orderly(bench, Script()) as consumer:
        assert topics_of(await bench.broker.wait_asked(UNLOCK, 2)) == [{"%RETRY%cg"}, {"T"}]
        assert consumer.queues == ()


@pytest.mark.feature("B22")
async def test_locks_are_not_confirmed_after_they_were_given_back(bench: Bench) -> None:
    """While a broker takes its time to let the consumer go, the hour of the next confirmation comes and passes."""
    consumer, leave = orderly(bench, Script()), RequestCode.UNREGISTER_CLIENT
    begun_at_ms = bench.clock.monotonic_ms()
    async with asyncio.TaskGroup() as group:
        entered, done = asyncio.Event(), asyncio.Event()
        living = group.create_task(live(consumer, entered, done))
        await bench.elapse_until(entered.is_set)
        goodbye = Outcome[Command]()
        bench.broker.answers[leave] = lambda _: goodbye
        asked = len(bench.broker.asked(LOCK))
        await bench.elapse_until(lambda: bench.clock.monotonic_ms() - begun_at_ms >= 19_800)
        assert len(bench.broker.asked(LOCK)) == asked  # the confirmation comes a moment later
        done.set()
        await bench.broker.wait_asked(leave)
        for _ in range(20):
            await bench.clock.elapse(100)
        assert len(bench.broker.asked(LOCK)) == asked
        goodbye.answer_with(Command.response(ResponseCode.SUCCESS))
        await living


async def test_silent_broker_does_not_stop_the_others(bench: Bench) -> None:
    """Locks are asked of each broker; one that does not answer delays its own queues."""
    bench.cluster.routes["T"] = {"broker-a": 1, "broker-b": 1}
    other = await bench.cluster.add_broker("broker-b", {LOCK: silent})
    consumer = orderly(bench, Script())
    async with asyncio.TaskGroup() as group:
        entered, done = asyncio.Event(), asyncio.Event()
        group.create_task(live(consumer, entered, done))
        await bench.elapse_until(lambda: len(consumer.queues) == 1)
        assert [queue.broker_name for queue in consumer.queues] == ["broker-a"]
        other.answers[LOCK] = Locks()
        await bench.elapse_until(lambda: len(consumer.queues) == 2)
        done.set()
