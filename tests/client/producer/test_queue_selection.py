"""Which queue a message goes to."""

from typing import Any

import pytest

from rocketlet.client.producer.queue_selection import (
    LatencyAwareRoundRobin,
    QueueRoundRobin,
    SelectByMachineRoom,
    SlowBrokers,
    choose_queue,
    select_at_random,
    select_by_hash,
    select_by_key,
)
from rocketlet.client.session.results import SendResult, SendStatus
from rocketlet.common.errors import ConnectFailedError, RequestTimeoutError, ResponseError
from rocketlet.common.message import Message, MessageQueue
from rocketlet.testing import ManualClock

QUEUES = [MessageQueue("T", f"Broker_{name}", queue_id) for name in "ABC" for queue_id in (0, 1)]
MESSAGE = Message("T", b"x")


@pytest.mark.feature("K4")
def test_round_takes_every_queue_once() -> None:
    """From any start each queue comes once before one comes again."""
    queue_round = QueueRoundRobin(QUEUES)

    assert sorted(queue_round.next_queue() for _ in QUEUES) == QUEUES
    assert sorted(queue_round.next_queue() for _ in QUEUES) == QUEUES


@pytest.mark.feature("K4")
def test_round_starts_anywhere() -> None:
    """Producers do not all begin with the same queue."""
    starts = {QueueRoundRobin(QUEUES).next_queue() for _ in range(500)}

    assert len(starts) == len(QUEUES)


@pytest.mark.feature("K5")
def test_round_passes_over_the_failed_broker() -> None:
    """After a failure of the first queue of broker A its second is skipped and broker B comes next."""
    queue_round = QueueRoundRobin(QUEUES, start=0)
    failed = queue_round.next_queue()

    assert failed == ("T", "Broker_A", 0)
    assert queue_round.next_queue(failed.broker_name) == ("T", "Broker_B", 0)


@pytest.mark.feature("K5")
def test_round_stays_when_there_is_no_other_broker() -> None:
    """With a single broker the retry goes to its next queue."""
    queue_round = QueueRoundRobin(QUEUES[:2], start=0)
    queue_round.next_queue()

    assert queue_round.next_queue("Broker_A").broker_name == "Broker_A"


@pytest.mark.feature("K14")
@pytest.mark.parametrize(
    ("arg", "index"),
    [(7, 7 % 6), (-7, 7 % 6), ("order-1", 2), ("", 0), (1 << 32, 1), (-1 << 40, 256 % 6)],
)
def test_hash_selector_selects_as_java_does(arg: object, index: int) -> None:
    """Texts, ints and longs hash as ``String``, ``Integer`` and ``Long`` do in Java."""
    assert select_by_hash(QUEUES, MESSAGE, arg) == QUEUES[index]


def test_hash_selector_refuses_what_has_no_java_hash() -> None:
    """An argument of another type is a mistake of the caller."""
    with pytest.raises(TypeError, match="not float"):
        select_by_hash(QUEUES, MESSAGE, 1.5)


def test_random_selector_selects_one_of_the_queues() -> None:
    """Every queue has its chance."""
    assert {select_at_random(QUEUES, MESSAGE, None) for _ in range(500)} == set(QUEUES)


@pytest.mark.feature("K14")
@pytest.mark.parametrize("keys", ["order-1", ["order-1", "other"]])
def test_key_selector_goes_by_the_first_key(keys: Any) -> None:
    """Messages with one key go to the queue that the hash of that key selects."""
    assert select_by_key(QUEUES, Message("T", b"x", keys=keys), None) == select_by_hash(QUEUES, MESSAGE, "order-1")


def test_key_selector_needs_a_key() -> None:
    """A message without a key has no order."""
    with pytest.raises(ValueError, match="needs a message with a key"):
        select_by_key(QUEUES, MESSAGE, None)


def test_machine_room_selector_stays_near_while_it_can() -> None:
    """Queues of brokers in the room are selected; only when there is none the others."""
    queues = [MessageQueue("T", f"{room}@broker", 0) for room in ("north", "south", "west")]
    near = SelectByMachineRoom(frozenset({"north", "west"}))
    far = SelectByMachineRoom(frozenset({"east"}))

    assert {near(queues, MESSAGE, None).broker_name for _ in range(500)} == {"north@broker", "west@broker"}
    assert {far(queues, MESSAGE, None) for _ in range(500)} == set(queues)


def returning(value: object) -> Any:
    """Return a selector that returns a value."""

    def select(_queues: object, _message: object, _arg: object) -> object:
        return value

    return select


@pytest.mark.parametrize(
    ("chosen", "error", "text"),
    [
        ({"queue": 3}, TypeError, "queue is int, it must be a MessageQueue"),
        ({"queue": ("T", "Broker_A", 0)}, TypeError, "queue is tuple, it must be a MessageQueue"),
        ({"queue": MessageQueue("U", "Broker_A", 0)}, ValueError, "the message is of topic T, the queue of U"),
        ({"queue": QUEUES[0], "selector": select_at_random}, ValueError, "give queue or selector, not both"),
        ({"selector": "hash"}, TypeError, "selector is str, it must be a function of queues, message and arg"),
        ({"selector": returning(None)}, TypeError, "the selector returned NoneType, it must return one of its queues"),
        ({"selector": returning(0)}, TypeError, "the selector returned int, it must return one of its queues"),
        ({"selector": returning(MessageQueue("U", "b", 0))}, ValueError, "returned a queue of U, the message is of T"),
    ],
)
def test_choice_that_nobody_can_follow_is_refused(chosen: Any, error: type[Exception], text: str) -> None:
    """The error says what is wrong with the queue, the selector or what it returned."""
    choice = {"queue": None, "selector": None, **chosen}
    with pytest.raises(error, match=text):
        follow(choice["queue"], choice["selector"])


def follow(queue: Any, selector: Any) -> None:
    """Choose a queue for the message."""
    choice = choose_queue(MESSAGE, queue, selector, None)
    assert choice is not None
    choice(QUEUES)


SMALL_QUEUES = [MessageQueue("T", f"broker-{name}", queue_id) for name in "abc" for queue_id in (0, 1)]
RESULT = SendResult(SendStatus.SEND_OK, "ID", "OFFSET-ID", SMALL_QUEUES[0], 7)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that stands still."""
    return ManualClock()


@pytest.fixture
def slow(clock: ManualClock) -> SlowBrokers:
    """Return a table in which nothing is noted."""
    return SlowBrokers(clock.now_ms)


def passed_over_ms(slow: SlowBrokers, clock: ManualClock) -> int:
    """Return for how long broker-a is passed over, counted in steps of half a second."""
    begun_at_ms = clock.now_ms()
    while not slow.is_available("broker-a"):
        clock.advance(500)
    return clock.now_ms() - begun_at_ms


@pytest.mark.feature("K10")
@pytest.mark.parametrize(
    ("took_ms", "passed_over"),
    [
        *((0, 0), (49, 0), (50, 0), (100, 0), (549, 0)),
        *((550, 2_000), (1_799, 2_000), (1_800, 5_000), (2_999, 5_000), (3_000, 6_000), (4_999, 6_000)),
        *((5_000, 10_000), (14_999, 10_000), (15_000, 30_000), (1_000_000, 30_000)),
    ],
)
def test_broker_is_passed_over_for_the_tables_time(
    slow: SlowBrokers, clock: ManualClock, took_ms: int, passed_over: int
) -> None:
    """Java's table: from 550 ms on, the slower the longer."""
    slow.note("broker-a", took_ms)
    assert passed_over_ms(slow, clock) == passed_over


@pytest.mark.feature("K10")
def test_quick_answer_does_not_shorten_the_time(slow: SlowBrokers, clock: ManualClock) -> None:
    """The later of two instants holds, whichever was noted first."""
    slow.note("broker-a", 3_000)
    slow.note("broker-a", 5)
    slow.note("broker-a", 600)
    assert passed_over_ms(slow, clock) == 6_000


@pytest.mark.feature("K10")
@pytest.mark.parametrize(
    ("error", "is_reachable"),
    [
        (ConnectFailedError("no connection"), True),
        (RequestTimeoutError("no answer"), True),
        (ResponseError(2, "busy"), False),
    ],
    ids=repr,
)
async def test_failed_attempt_counts_as_ten_seconds(
    slow: SlowBrokers, clock: ManualClock, error: Exception, *, is_reachable: bool
) -> None:
    """No answer and an error as answer pass the broker over for 10 s; only the latter makes it unreachable."""

    async def fail() -> SendResult:
        raise error

    with pytest.raises(type(error)):
        await slow.watch("broker-a", fail())
    assert slow.is_reachable("broker-a") is is_reachable
    assert passed_over_ms(slow, clock) == 10_000


@pytest.mark.feature("K10")
async def test_attempt_is_timed(slow: SlowBrokers, clock: ManualClock) -> None:
    """The time until the answer counts; a stored message makes its broker reachable again."""
    slow.note("broker-a", 0, is_reachable=False)

    async def take_two_seconds() -> SendResult:
        clock.advance(2_000)
        return RESULT

    assert await slow.watch("broker-a", take_two_seconds()) is RESULT
    assert slow.is_reachable("broker-a")
    assert passed_over_ms(slow, clock) == 5_000


@pytest.mark.feature("K10")
def test_round_passes_over_slow_brokers(slow: SlowBrokers, clock: ManualClock) -> None:
    """While A is slow the round goes over B and C, and comes back to A when its time is over."""
    wary = LatencyAwareRoundRobin(SMALL_QUEUES, slow, start=0)
    slow.note("broker-a", 700)

    assert [wary.next_queue().broker_name for _ in range(4)] == ["broker-b", "broker-b", "broker-c", "broker-c"]
    clock.advance(2_000)
    assert wary.next_queue() == SMALL_QUEUES[0]


@pytest.mark.feature("K10")
def test_retry_avoids_the_failed_broker_besides(slow: SlowBrokers) -> None:
    """With A slow and B just failed, C is left."""
    slow.note("broker-a", 700)
    wary = LatencyAwareRoundRobin(SMALL_QUEUES, slow, start=0)
    assert {wary.next_queue("broker-b").broker_name for _ in range(4)} == {"broker-c"}


@pytest.mark.feature("K10")
def test_round_prefers_the_reachable_when_all_are_slow(slow: SlowBrokers) -> None:
    """When all are passed over, one that answered with an error comes after one that was slow."""
    for name in ("broker-a", "broker-b", "broker-c"):
        slow.note(name, 700, is_reachable=name == "broker-b")
    wary = LatencyAwareRoundRobin(SMALL_QUEUES, slow, start=0)
    assert {wary.next_queue().broker_name for _ in range(4)} == {"broker-b"}


@pytest.mark.feature("K10")
def test_round_takes_any_when_none_will_do(slow: SlowBrokers) -> None:
    """When none is reachable messages still go somewhere, in order."""
    for name in ("broker-a", "broker-b", "broker-c"):
        slow.note(name, 10_000, is_reachable=False)
    wary = LatencyAwareRoundRobin(SMALL_QUEUES, slow, start=0)
    assert [wary.next_queue() for _ in range(6)] == SMALL_QUEUES
