"""Which brokers are passed over because they were slow or failed."""

import pytest

from rocketlet.client.producer.queue_selection import LatencyAwareRoundRobin, SlowBrokers
from rocketlet.client.session.results import SendResult, SendStatus
from rocketlet.common.errors import ConnectFailedError, RequestTimeoutError, ResponseError
from rocketlet.common.message import MessageQueue
from rocketlet.testing import ManualClock

QUEUES = [MessageQueue("T", f"broker-{name}", queue_id) for name in "abc" for queue_id in (0, 1)]
RESULT = SendResult(SendStatus.SEND_OK, "ID", "OFFSET-ID", QUEUES[0], 7)


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
    wary = LatencyAwareRoundRobin(QUEUES, slow, start=0)
    slow.note("broker-a", 700)

    assert [wary.next_queue().broker_name for _ in range(4)] == ["broker-b", "broker-b", "broker-c", "broker-c"]
    clock.advance(2_000)
    assert wary.next_queue() == QUEUES[0]


@pytest.mark.feature("K10")
def test_retry_avoids_the_failed_broker_besides(slow: SlowBrokers) -> None:
    """With A slow and B just failed, C is left."""
    slow.note("broker-a", 700)
    wary = LatencyAwareRoundRobin(QUEUES, slow, start=0)
    assert {wary.next_queue("broker-b").broker_name for _ in range(4)} == {"broker-c"}


@pytest.mark.feature("K10")
def test_round_prefers_the_reachable_when_all_are_slow(slow: SlowBrokers) -> None:
    """When all are passed over, one that answered with an error comes after one that was slow."""
    for name in ("broker-a", "broker-b", "broker-c"):
        slow.note(name, 700, is_reachable=name == "broker-b")
    wary = LatencyAwareRoundRobin(QUEUES, slow, start=0)
    assert {wary.next_queue().broker_name for _ in range(4)} == {"broker-b"}


@pytest.mark.feature("K10")
def test_round_takes_any_when_none_will_do(slow: SlowBrokers) -> None:
    """When none is reachable messages still go somewhere, in order."""
    for name in ("broker-a", "broker-b", "broker-c"):
        slow.note(name, 10_000, is_reachable=False)
    wary = LatencyAwareRoundRobin(QUEUES, slow, start=0)
    assert [wary.next_queue() for _ in range(6)] == QUEUES
