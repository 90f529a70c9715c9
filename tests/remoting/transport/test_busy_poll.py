"""Looking for the next request of a peer that asks for one after another, by a clock that a test moves."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from memory_connection import connect_in_memory

from rocketlet.common.outcome import Outcome
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.transport import busy_poll
from rocketlet.remoting.transport.busy_poll import BusyPoll, make_busy_poll
from rocketlet.remoting.transport.connection import RequestHandlers
from rocketlet.testing.manual_clock import ManualClock

MEAN_US = 300
ROW = 8
PEER, OTHER = "peer", "other peer"


class Ground:
    """A poll, and its time in microseconds."""

    def __init__(self) -> None:
        self.us = 1_000_000
        self.others_us = 0
        """How long a thread runs that waits for the core, when it gets it."""
        self.poll = BusyPoll(MEAN_US, lambda: 1000 * self.us, self._let_others_run)

    def _let_others_run(self) -> None:
        self.us += self.others_us

    def serve(self, peer: str, *, reads: int = 1, each_us: int = 100) -> None:
        """Have reads of a peer served, so long after each other."""
        for _ in range(reads):
            self.us += each_us
            self.poll.after_read(peer)

    async def look(self, us: int, step_us: int = 50) -> None:
        """Let so much time pass, in turns of the loop."""
        for _ in range(us // step_us):
            self.us += step_us
            await asyncio.sleep(0)

    async def start(self) -> None:
        """Have the poll look."""
        self.serve(PEER, reads=ROW)
        assert self.poll.is_looking

    async def rest_us(self) -> int:
        """Return how long a poll that has just stopped does not begin again, within 100 us."""
        rested_us = 0
        while not self.poll.is_looking:
            rested_us += 100
            self.serve(PEER)
        return rested_us


async def test_peer_that_asks_one_by_one_is_looked_for() -> None:
    """It takes some requests in a row, each soon after the last."""
    ground = Ground()
    ground.serve(PEER, reads=ROW - 1)
    assert not ground.poll.is_looking
    ground.serve(PEER)
    assert ground.poll.is_looking


async def test_slow_peer_is_not_looked_for() -> None:
    """Who asks more slowly than a whole credit lasts is waited for asleep."""
    ground = Ground()
    ground.serve(PEER, reads=100, each_us=4 * MEAN_US + 1)
    assert not ground.poll.is_looking


async def test_peers_in_turn_are_not_looked_for() -> None:
    """The next read of any of several peers is not known to come soon."""
    ground = Ground()
    for _ in range(100):
        ground.serve(PEER)
        ground.serve(OTHER)
    assert not ground.poll.is_looking


async def test_looks_while_the_peer_asks_fast_enough() -> None:
    """Reads bring as much credit as looking for them takes."""
    ground = Ground()
    await ground.start()
    for _ in range(100):
        await ground.look(250)
        ground.serve(PEER, each_us=0)
    assert ground.poll.is_looking


async def test_time_to_serve_takes_no_credit() -> None:
    """A request that takes long to serve is not one that is long in coming."""
    ground = Ground()
    await ground.start()
    for _ in range(100):
        await ground.look(250)
        ground.serve(PEER, each_us=1_500)
    assert ground.poll.is_looking


async def test_sleeps_when_the_credit_is_used_up() -> None:
    """A peer that has ended is looked for as long as four reads were worth."""
    ground = Ground()
    await ground.start()
    await ground.look(4 * MEAN_US - 50)
    assert ground.poll.is_looking
    await ground.look(50)
    assert not ground.poll.is_looking


async def test_sleeps_when_reads_come_too_slowly() -> None:
    """Reads that bring less than they take use the credit up."""
    ground = Ground()
    await ground.start()
    for _ in range(8):
        await ground.look(400)
        ground.serve(PEER, each_us=0)
        assert ground.poll.is_looking
    await ground.look(400)
    assert not ground.poll.is_looking


async def test_other_peer_takes_all_credit() -> None:
    """Somebody else asks: the loop sleeps after this turn."""
    ground = Ground()
    await ground.start()
    ground.serve(OTHER)
    await ground.look(50)
    assert not ground.poll.is_looking


async def test_rests_longer_each_time() -> None:
    """What was looked for in vain is looked for more rarely, until a quarter of a second lies between."""
    ground = Ground()
    await ground.start()
    rests: list[int] = []
    for _ in range(10):
        await ground.look(4 * MEAN_US)
        rests.append(await ground.rest_us())
    assert rests == [1000 * ms for ms in (1, 2, 4, 8, 16, 32, 64, 128, 256, 256)]


async def test_rests_shortly_again_after_a_success() -> None:
    """A peer that fills the credit up has its pauses forgiven."""
    ground = Ground()
    await ground.start()
    for _ in range(3):
        await ground.look(4 * MEAN_US)
        await ground.rest_us()
    ground.serve(PEER, each_us=0)
    await ground.look(4 * MEAN_US)
    assert await ground.rest_us() == 1_000


async def test_rests_longest_when_a_turn_took_long() -> None:
    """Two milliseconds in which the loop did not get on: the core is wanted by others."""
    ground = Ground()
    await ground.start()
    ground.us += 2_000
    await asyncio.sleep(0)
    assert not ground.poll.is_looking
    assert await ground.rest_us() == 256_000


async def test_others_go_first() -> None:
    """Who waits for the core gets it while the poll looks, which counts as looking."""
    ground = Ground()
    await ground.start()
    ground.others_us = 2 * MEAN_US
    await ground.look(2, step_us=1)
    assert not ground.poll.is_looking
    assert await ground.rest_us() == 1_000


async def test_ended_connection_is_not_kept() -> None:
    """A poll knows a peer by its identity alone."""
    ground = Ground()
    await ground.start()
    assert PEER not in vars(ground.poll).values()
    assert "looking" in repr(ground.poll)


def _cores(count: int) -> Callable[[int], set[int]]:
    def own(_pid: int) -> set[int]:
        return set(range(count))

    return own


def test_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """0 turns it off; so does a process that may use one core, by its own mask or by the quota of its control group."""
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(busy_poll, "_QUOTA_FILE", quota)
    monkeypatch.setattr(os, "sched_getaffinity", _cores(2), raising=False)
    assert make_busy_poll(MEAN_US) is not None
    assert make_busy_poll(0) is None
    for text, is_there in (("max 100000", True), ("200000 100000", True), ("100000 100000", False), ("", True)):
        quota.write_text(text)
        assert (make_busy_poll(MEAN_US) is not None) == is_there, text
    quota.unlink()
    monkeypatch.setattr(os, "sched_getaffinity", _cores(1), raising=False)
    assert make_busy_poll(MEAN_US) is None


async def test_connection_tells_of_each_read() -> None:
    """It tells when the answers are written, and how many requests the read has brought."""
    written: list[tuple[bytes, int]] = []
    clock = ManualClock()
    handlers = RequestHandlers(
        {7: lambda _command, _connection: Command.response(0, "done"), 8: lambda _command, _connection: Outcome()},
        after_read=lambda peer, count: written.append((transport.last_write, count)) if peer is connection else None,
    )
    connection, transport = connect_in_memory(handlers, clock)
    one, owed = encode_command(Command.request(7)), encode_command(Command.request(8))
    connection.data_received(one + one)
    connection.data_received(one)
    connection.data_received(owed)
    assert [(b"done" in data, count) for data, count in written] == [(True, 2), (True, 1), (True, 1)]
