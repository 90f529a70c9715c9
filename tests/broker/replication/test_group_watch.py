"""Who is there of a group, by what several name servers say."""

import asyncio
import logging
import pathlib
from collections.abc import Callable, Iterator, Mapping

import pytest
from replicas import small_store

from rocketlet.broker.outcomes.scheduler import Scheduler
from rocketlet.broker.replication.group_watch import GroupWatch
from rocketlet.broker.replication.log_replication import LogReplication
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.common.errors import RemotingError
from rocketlet.testing.manual_clock import ManualClock

MASTER, FIRST, SECOND = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
ALL = {0: MASTER, 1: FIRST, 2: SECOND}


class StatedMembers:
    """A name server that says this, or nothing."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.known: Mapping[int, str] | None = {}
        self.asked = asyncio.Event()
        self.waits_for: asyncio.Event | None = None

    async def members(self) -> Mapping[int, str]:
        """Return who is there."""
        self.asked.set()
        if self.waits_for is not None:
            await self.waits_for.wait()
        if self.known is None:
            raise RemotingError("no answer")
        return self.known


class Watched:
    """A broker of the group with a number, and two name servers."""

    def __init__(self, replication: LogReplication, config: BrokerConfig, clock: ManualClock) -> None:
        self.servers = StatedMembers("a"), StatedMembers("b")
        self.replication = replication
        self.asked: list[str] = []
        self.is_mute = False
        self.watch = GroupWatch(self.servers, config, replication, self._ask, clock)

    async def _ask(self, address: str) -> str:
        self.asked.append(address)
        if self.is_mute:
            raise RemotingError("no answer")
        return address.replace("10911", "10912")

    async def say(self, *known: Mapping[int, str] | None) -> str:
        """Have the name servers say who is there; return where the master is by then."""
        for server, members in zip(self.servers, known, strict=True):
            server.known = members
        await self.watch.look()
        return self.replication.master.address


@pytest.fixture
def watched(tmp_path: pathlib.Path, clock: ManualClock) -> Iterator[Callable[[int], Watched]]:
    """Return a call that makes a broker with a number."""
    directory = small_store(tmp_path)
    store = directory.open()

    def make(number: int) -> Watched:
        role = {"brokerRole": "SLAVE", "brokerId": str(number)} if number else {}
        config = BrokerConfig.from_java({"brokerName": "b", "totalReplicas": "5", **role})
        scheduler = Scheduler(store, clock, lambda _topics, done: done())
        replication = LogReplication(scheduler, LiveSettings(config, "127.0.0.1"), clock, lambda: FIRST)
        return Watched(replication, config, clock)

    yield make
    directory.close_all()


@pytest.mark.feature("R22")
async def test_master_is_gone_when_nobody_knows_it(
    watched: Callable[[int], Watched], caplog: pytest.LogCaptureFixture
) -> None:
    """The first slave acts as master then; who does not answer, or knows nobody, does not count."""
    caplog.set_level(logging.INFO, "rocketlet.broker.replication.group_watch")
    slave = watched(1)
    assert await slave.say(ALL, ALL) == MASTER
    assert slave.replication.master.ha_address == "10.0.0.1:10912"
    without = {1: FIRST, 2: SECOND}
    for one, other in ((without, ALL), (None, ALL), (None, None), ({}, {}), (None, {})):
        assert (await slave.say(one, other), slave.watch.is_acting) == (MASTER, False)
    for one, other in ((without, without), (None, without), (without, {}), (None, None)):
        assert (await slave.say(one, other), slave.watch.is_acting) == ("", True)
    assert slave.replication.master.is_gone
    assert repr(slave.watch) == "<GroupWatch of b-1, acting as master>"
    assert await slave.say(without, ALL) == MASTER
    assert slave.asked == [MASTER, MASTER]
    assert repr(slave.watch) == "<GroupWatch of b-1>"
    said = [record.getMessage() for record in caplog.records if record.name.endswith("group_watch")]
    assert said == [
        "broker b-1 acts as master, to be read from",
        "broker b-1 acts as master no more: number 0 is there",
    ]


@pytest.mark.feature("R22")
async def test_only_the_first_slave_acts(watched: Callable[[int], Watched]) -> None:
    """The second one acts when the first one is gone, too."""
    slave = watched(2)
    assert await slave.say({1: FIRST, 2: SECOND}, {}) == ""
    assert not slave.watch.is_acting
    await slave.say({2: SECOND}, {})
    assert slave.watch.is_acting


async def test_master_counts_who_is_alive(watched: Callable[[int], Watched]) -> None:
    """It is one of them, also where name servers do not know it; before they have answered all are there."""
    master = watched(0)
    counts = [master.replication.alive_members]
    for one, other in ((ALL, {}), ({1: FIRST}, {2: SECOND}), (None, {}), ({0: MASTER}, None)):
        await master.say(one, other)
        counts.append(master.replication.alive_members)
    assert counts == [5, 3, 3, 3, 1]
    assert not master.asked


async def test_master_that_does_not_say_where_its_log_is(
    watched: Callable[[int], Watched], caplog: pytest.LogCaptureFixture
) -> None:
    """It is the master all the same; a registration tells the rest."""
    slave = watched(1)
    slave.is_mute = True
    assert await slave.say(ALL, ALL) == MASTER
    assert slave.replication.master.ha_address == ""
    assert f"the master at {MASTER} does not say where its log is copied from: no answer" in caplog.messages


async def test_hint_has_name_servers_asked_at_once(watched: Callable[[int], Watched], clock: ManualClock) -> None:
    """Else a second passes between two questions."""
    slave = watched(1)
    slave.servers[0].known = ALL
    hint = slave.replication.asks_members.set
    for go_on in (hint, lambda: clock.advance(1_000)):
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(slave.watch.run())
            await clock.settle()
            assert (slave.replication.master.address, running.done()) == (MASTER, False)
            go_on()
        assert running.result() == 0


async def test_silent_name_server_does_not_hold_up_others(watched: Callable[[int], Watched]) -> None:
    """All are asked side by side: with one after the other, each that is silent would cost its own time limit."""
    slave = watched(1)
    first, second = slave.servers
    first.waits_for = second.asked
    assert await slave.say(ALL, ALL) == MASTER
