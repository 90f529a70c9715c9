"""Requests of one connection that wait for their answers."""

import asyncio

import pytest

from rocketlet.common.errors import RequestTimeoutError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.transport.pending_requests import Answer, PendingRequests
from rocketlet.testing import ManualClock

CODE = 105


@pytest.fixture
def clock() -> ManualClock:
    """Give a clock that the test moves."""
    return ManualClock()


@pytest.fixture
def requests(clock: ManualClock) -> PendingRequests:
    """Give the requests of a connection, none so far."""
    return PendingRequests(clock, 10_000)


def _ended(answers: dict[int, Answer]) -> list[int]:
    """Return those whose time is over; their errors are taken."""
    return sorted(
        key for key, one in answers.items() if one.done() and isinstance(one.exception(), RequestTimeoutError)
    )


async def test_waits_end_at_their_own_time(clock: ManualClock, requests: PendingRequests):
    """Each ends in its millisecond, neither earlier nor later, whatever the order in which they were started."""
    answers = {key: requests.start(key, limit_ms, CODE) for key, limit_ms in ((3, 1001), (1, 1000), (2, 1000))}

    clock.advance(999)
    assert _ended(answers) == []
    clock.advance(1)
    assert _ended(answers) == [1, 2]
    clock.advance(1)
    assert _ended(answers) == [1, 2, 3]
    assert clock.next_at_ms is None


async def test_answer_that_came_leaves_one_look_of_the_timer(clock: ManualClock, requests: PendingRequests):
    """The timer of a wait that is over looks once, for the earliest of them, and is not armed again without a wait."""
    answers = {key: requests.start(key, limit_ms, CODE) for key, limit_ms in ((1, 1000), (2, 5000))}
    for key in answers:
        requests.settle(Command(opaque=key))
        requests.settle(Command(opaque=key))  # the second answer finds nobody

    assert repr(requests) == "<PendingRequests 0, a timer>"
    clock.advance(1000)
    assert clock.next_at_ms is None
    assert repr(requests) == "<PendingRequests 0>"
    assert [one.result().opaque for one in answers.values()] == [1, 2]


async def test_timer_of_a_finished_wait_moves_on_to_the_next(clock: ManualClock, requests: PendingRequests):
    """The timer was armed for a wait that is over: it ends nobody, and the next wait ends in its time."""
    answers = {key: requests.start(key, limit_ms, CODE) for key, limit_ms in ((1, 1000), (2, 3000))}
    requests.forget(1)

    clock.advance(2999)
    assert _ended(answers) == []
    clock.advance(1)
    assert _ended(answers) == [2]
    assert clock.next_at_ms is None


async def test_end_of_the_connection_leaves_no_timer(clock: ManualClock, requests: PendingRequests):
    """Who waits is told, and nothing is planned any more."""
    answer = requests.start(1, 1000, CODE)
    requests.fail_all("gone")

    assert str(answer.exception()) == "gone"
    assert clock.next_at_ms is None


async def test_wait_without_time_ends_at_once(clock: ManualClock, requests: PendingRequests):
    """A limit of 0 ms is over when the clock is looked at next."""
    answers = {7: requests.start(7, 0, CODE)}
    clock.advance(1)
    assert _ended(answers) == [7]


async def test_many_waits_are_looked_at_seldom(clock: ManualClock, requests: PendingRequests):
    """With 4000 waits that end one each millisecond the timer looks each fourth, and fewer are looked at more often."""
    answers = {key: requests.start(key, key, CODE) for key in range(1, 4001)}
    over_after_ms: list[int] = []
    for _ in range(8):
        clock.advance(1)
        over_after_ms.append(len(_ended(answers)))
    assert over_after_ms == [1, 1, 1, 4, 4, 4, 7, 7]

    clock.advance(3992)
    assert len(_ended(answers)) == 4000
    assert clock.next_at_ms is None


async def test_cancelled_wait_is_not_told(clock: ManualClock, requests: PendingRequests):
    """An answer that nobody waits for any more is ignored, and so is its time limit."""
    answer = requests.start(1, 1000, CODE)
    answer.cancel()
    clock.advance(1000)
    assert len(requests) == 0
    with pytest.raises(asyncio.CancelledError):
        answer.exception()
