"""Rounds of work on a thread: what waits is done together."""

import threading

from rocketlet.common.errors import StoreNotWritableError
from rocketlet.store.files.file_sync import CoalescingWorker


class Numbers:
    """Work that adds up."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def merge(self, later: "Numbers") -> None:
        """Take over the numbers."""
        self.numbers += later.numbers


class Server:
    """Does the work, one round at a time, while it may."""

    def __init__(self) -> None:
        self.served: list[list[int]] = []
        self.is_busy = threading.Event()
        self.may_go_on = threading.Event()
        self.failure: StoreNotWritableError | None = None

    def serve(self, work: Numbers) -> StoreNotWritableError | None:
        """Wait, then do it."""
        self.is_busy.set()
        assert self.may_go_on.wait(30)
        self.served.append(work.numbers)
        return self.failure


def test_what_waits_is_one_round() -> None:
    """All requests during a round are the next one, in order; who waits is told once for a round."""
    server, told = Server(), list[object]()
    rounds = CoalescingWorker[Numbers]("rounds", server.serve)
    rounds.request(Numbers(1), told.append)
    assert server.is_busy.wait(30)
    for number in (2, 3, 4):
        rounds.request(Numbers(number), told.append)
    rounds.request(Numbers(5))
    server.may_go_on.set()
    rounds.close()
    assert (server.served, told) == ([[1], [2, 3, 4, 5]], [None, None])


def test_round_on_the_callers_thread_takes_what_was_asked_for_before() -> None:
    """It waits for the round that runs, and does all that waits before its own work."""
    server, told = Server(), list[object]()
    rounds = CoalescingWorker[Numbers]("rounds", server.serve)
    rounds.request(Numbers(1))
    assert server.is_busy.wait(30)
    rounds.request(Numbers(2), told.append)
    server.failure = StoreNotWritableError("broken")
    server.may_go_on.set()
    assert rounds.run_now(Numbers(3)) is server.failure
    rounds.close()
    assert [number for numbers in server.served for number in numbers] == [1, 2, 3]
    assert told == [server.failure]


def test_close_without_requests_ends() -> None:
    """A thread that nobody needed is never started."""
    rounds = CoalescingWorker[Numbers]("rounds", Server().serve)
    rounds.close()
    assert all(thread.name != "rounds" for thread in threading.enumerate())
