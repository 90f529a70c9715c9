"""Which queues a member owns."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Mapping, Sequence

import pytest
from inbox import Inbox
from official_broker import OfficialBroker

from rocketlet.client import (
    ClientSettings,
    ConsumeFrom,
    Message,
    Producer,
    PushConsumer,
    PushConsumerSettings,
    Session,
)
from rocketlet.client.group.rebalance import (
    ClientIdConflicts,
    MemberIdentity,
    Rebalance,
    ShareChange,
    compare_share,
    repeat_delay_ms,
)
from rocketlet.common.allocation import AllocateMessageQueueAveragely
from rocketlet.common.errors import RequestTimeoutError, ResponseError, RouteNotFoundError
from rocketlet.common.message import MessageQueue
from rocketlet.testing import ManualClock

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(8)]
OTHER = MessageQueue("U", "broker-a", 0)


class Source:
    """Routes and members as the test sets them."""

    def __init__(self) -> None:
        self.queues: Mapping[str, Sequence[MessageQueue]] = {"T": QUEUES}
        self.members: Sequence[str] = ["me"]
        self.failure: Exception | None = None
        self.addresses: Sequence[str] = ()
        self.asked = 0

    async def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic."""
        if topic not in self.queues:
            raise RouteNotFoundError(topic)
        return self.queues[topic]

    async def members_of(self, _group: str, _topic: str) -> Sequence[str]:
        """Return the members."""
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        return self.members

    async def addresses_of(self, _group: str, _topic: str, _client_id: str) -> Sequence[str]:
        """Return where the members are."""
        return self.addresses


class Owner:
    """Owns what it is told to, unless it cannot."""

    def __init__(self) -> None:
        self.subscribed = ["T"]
        self.owned: set[MessageQueue] = set()
        self.cannot_take: set[MessageQueue] = set()
        self.changes: list[ShareChange] = []

    def topics(self) -> Sequence[str]:
        """Return the topics."""
        return self.subscribed

    def owned_queues(self) -> Sequence[MessageQueue]:
        """Return what is owned."""
        return sorted(self.owned)

    async def change_share(self, _topic: str, change: ShareChange) -> bool:
        """Do as told."""
        self.changes.append(change)
        self.owned -= set(change.given_up)
        self.owned |= set(change.taken) - self.cannot_take
        return self.cannot_take.isdisjoint(change.taken)


class Bench:
    """A rebalance with everything around it."""

    def __init__(self) -> None:
        self.source = Source()
        self.owner = Owner()
        self.clock = ManualClock()
        membership = MemberIdentity("g", "me", AllocateMessageQueueAveragely())
        self.rebalance = Rebalance(membership, self.source, self.owner, self.clock, 20_000)


@pytest.fixture
def bench() -> Bench:
    """Return a rebalance whose group has one member and one topic of eight queues."""
    return Bench()


def test_share_is_compared_as_sets() -> None:
    """What stays is neither given up nor taken, whatever the order."""
    change = compare_share([QUEUES[2], QUEUES[0]], [QUEUES[1], QUEUES[2]])

    assert change == ((QUEUES[0],), (QUEUES[1],))


def test_changes_of_a_share_are_in_the_order_of_queues() -> None:
    """So that a log reads the same, and each start does the same."""
    queues = [MessageQueue("T", f"broker-{name}", queue_id) for name in "ab" for queue_id in range(20)]

    assert compare_share([], reversed(queues)) == ((), tuple(queues))
    assert compare_share(reversed(queues), []) == (tuple(queues), ())


@pytest.mark.parametrize(
    ("incomplete_runs", "delay_ms"),
    [(0, 20_000), (1, 1000), (2, 2000), (3, 4000), (5, 16_000), (6, 20_000), (99, 20_000)],
)
def test_run_that_lacked_something_is_repeated_sooner(incomplete_runs: int, delay_ms: int) -> None:
    """After 1 s, then after twice as long each time, never later than the usual run."""
    assert repeat_delay_ms(incomplete_runs, 20_000) == delay_ms


@pytest.mark.feature("B1")
async def test_share_follows_the_members(bench: Bench) -> None:
    """A member that joins takes half the queues, one that leaves gives them back."""
    await bench.rebalance.run()
    assert bench.owner.owned == set(QUEUES)

    bench.source.members = ["me", "you"]
    await bench.rebalance.run()
    assert bench.owner.owned == set(QUEUES[:4])

    bench.source.members = ["me"]
    await bench.rebalance.run()
    assert bench.owner.owned == set(QUEUES)


@pytest.mark.feature("B1")
async def test_every_member_sorts_queues_and_members_itself(bench: Bench) -> None:
    """Brokers and name servers list them in any order: two members that sort differently would share some queues."""
    queues = [MessageQueue("T", broker, queue_id) for broker in ("broker-b", "broker-a") for queue_id in (10, 2, 9)]
    for queues_found in (queues, queues[::-1]):
        for members in (["you", "me", "it"], ["it", "me", "you"], ["me", "you", "it"]):
            bench.source.queues, bench.source.members = {"T": queues_found}, members
            await bench.rebalance.run()
            assert bench.owner.owned == {MessageQueue("T", "broker-a", 10), MessageQueue("T", "broker-b", 2)}


@pytest.mark.feature("B12")
async def test_surplus_member_is_idle(bench: Bench) -> None:
    """With more members than queues the last ones own nothing."""
    bench.source.members = [*(f"a{number}" for number in range(8)), "me"]
    await bench.rebalance.run()

    assert bench.owner.owned == set()


async def test_member_that_the_broker_does_not_list_owns_nothing(bench: Bench) -> None:
    """Until the heartbeat has arrived the others share the queues; the run is repeated soon."""
    bench.owner.owned = set(QUEUES)
    bench.source.members = ["you"]
    await bench.rebalance.run()

    assert bench.owner.owned == set()


@pytest.mark.parametrize("failure", [RequestTimeoutError("no answer"), ValueError("the strategy refused")])
async def test_share_is_kept_when_it_cannot_be_worked_out(bench: Bench, failure: Exception) -> None:
    """Without the list of members, or without a result of the strategy, nothing changes."""
    bench.owner.owned = set(QUEUES[:4])
    bench.source.failure = failure
    await bench.rebalance.run()

    assert bench.owner.owned == set(QUEUES[:4])
    assert bench.owner.changes == []


async def test_queues_of_an_ended_subscription_are_given_up(bench: Bench) -> None:
    """A topic that is no longer subscribed to keeps no queues."""
    bench.owner.owned = {*QUEUES, OTHER}
    await bench.rebalance.run()

    assert bench.owner.owned == set(QUEUES)


async def test_topic_without_a_route_does_not_stop_the_others(bench: Bench) -> None:
    """Each topic is worked out by itself."""
    bench.owner.subscribed = ["missing", "T"]
    await bench.rebalance.run()

    assert bench.owner.owned == set(QUEUES)


async def test_unknown_topic_is_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A consumer of a topic that nobody has warns of it, and again only when it was there in between."""
    for queues, told in ({}, 1), ({}, 1), ({"T": QUEUES}, 1), ({}, 2):
        bench.source.queues = queues
        await bench.rebalance.run()
        warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == told
        assert all(": topic T not found, consuming nothing of it until it is created" in text for text in warnings)


@pytest.mark.feature("B1")
async def test_runs_come_every_20_s_and_when_woken(bench: Bench) -> None:
    """The timer runs 20 s; a wake-up runs at once; wake-ups during one wait make one run."""
    async with asyncio.TaskGroup() as group:
        job = group.create_task(keep_stepping(bench.rebalance))
        await bench.clock.settle()
        assert bench.source.asked == 1

        await bench.clock.elapse(19_999)
        assert bench.source.asked == 1
        await bench.clock.elapse(1)
        assert bench.source.asked == 2

        bench.rebalance.wake()
        bench.rebalance.wake()
        await bench.clock.settle()
        assert bench.source.asked == 3
        job.cancel()


async def test_incomplete_run_is_repeated_after_a_second(bench: Bench) -> None:
    """A queue whose offset could not be found is tried again soon, not after 20 s."""
    bench.owner.cannot_take = {QUEUES[3]}
    async with asyncio.TaskGroup() as group:
        job = group.create_task(keep_stepping(bench.rebalance))
        await bench.clock.settle()
        bench.owner.cannot_take = set()
        await bench.clock.elapse(1000)
        assert bench.owner.owned == set(QUEUES)
        job.cancel()


async def test_wait_for_the_first_run_is_bounded(bench: Bench) -> None:
    """A start goes on after its limit even if no server answers."""
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(bench.rebalance.wait_first_run(3000))
        await bench.clock.elapse(2999)
        assert not waiting.done()
        await bench.clock.elapse(1)
        assert waiting.done()


async def keep_stepping(rebalance: Rebalance) -> None:
    """Run the job without pauses of its own."""
    while True:
        assert await rebalance.step() == 0


@pytest.mark.feature("B13")
async def test_duplicate_id_is_told(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Two members with our id take the first half both, and the log says so with their places."""
    bench.source.members = ["me", "me"]
    bench.source.addresses = ["10.0.0.1:1", "10.0.0.2:1"]
    await bench.rebalance.run()
    assert bench.owner.owned == set(QUEUES[:4])
    assert "2 members have the client id me" in caplog.text
    assert "They are at 10.0.0.1:1, 10.0.0.2:1" in caplog.text


SAME_NAME = ClientSettings(instance_name="worker")
SETTINGS = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)


class AddressSource:
    """A broker that knows where clients are, or does not."""

    def __init__(self, *addresses: str) -> None:
        self.addresses: Sequence[str] | None = addresses

    async def addresses_of(self, _group: str, _topic: str, _client_id: str) -> Sequence[str]:
        """Return the addresses."""
        if self.addresses is None:
            raise ResponseError(3, "request type 203 not supported")
        return self.addresses


@pytest.mark.feature("B13")
async def test_duplicate_is_told_once_until_it_moves(caplog: pytest.LogCaptureFixture) -> None:
    """One line for each pair of addresses, one when it is over, and a new one when it comes back."""
    caplog.set_level(logging.INFO)
    source = AddressSource("10.0.0.2:7", "10.0.0.1:7 (this one)")
    watch = ClientIdConflicts("cg", "x", source)
    await watch.look("T", ["x", "y"])
    assert not caplog.messages
    await watch.look("T", ["x", "x", "y"])
    await watch.look("T", ["x", "x", "y"])
    assert len(caplog.messages) == 1
    assert "group cg: 2 members have the client id x" in caplog.text
    assert "They are at 10.0.0.1:7 (this one), 10.0.0.2:7" in caplog.text
    source.addresses = ("10.0.0.3:7", "10.0.0.1:7 (this one)")
    await watch.look("T", ["x", "x"])
    await watch.look("T", ["x"])
    await watch.look("T", ["x"])
    await watch.look("T", ["x", "x"])
    assert [message.split(";")[0][:30] for message in caplog.messages[2:]] == [
        "group cg: client id x is uniqu",
        "group cg: 2 members have the c",
    ]


@pytest.mark.feature("B13")
async def test_duplicate_is_told_without_a_place(caplog: pytest.LogCaptureFixture) -> None:
    """A broker that does not say where clients are leaves that part out."""
    source = AddressSource()
    source.addresses = None
    await ClientIdConflicts("cg", "x", source).look("T", ["x", "x"])
    assert caplog.messages[0].endswith("give each member its own instance name")


class Member:
    """A consumer, and a wait for how many queues it owns."""

    def __init__(self, session: Session, inbox: Inbox) -> None:
        self.consumer = PushConsumer("cg", session=session, settings=SETTINGS)
        self.consumer.subscribe("T", "*", inbox)
        self.consumer.on_queues_changed(lambda _: self._changed.set())
        self._changed = asyncio.Event()

    async def wait_owned(self, count: int) -> None:
        """Return when it owns so many queues."""
        while len(self.consumer.queues) != count:
            self._changed.clear()
            await self._changed.wait()


@pytest.mark.feature("B13")
async def test_duplicate_id_leaves_queues_unread(
    address: str, official: OfficialBroker | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Both members own the first two of four queues: their messages come twice, those of the others not at all.

    When one of them has come back with an id of its own, the others are read as well.
    """
    inbox = Inbox()
    async with contextlib.AsyncExitStack() as stack:
        producer = await stack.enter_async_context(Producer("pg", address))
        await producer.send(Message("T", b"makes the topic"))
        session = await stack.enter_async_context(Session(address, settings=SAME_NAME))
        first = Member(session, inbox)
        await stack.enter_async_context(first.consumer)
        await first.wait_owned(4)
        queues = first.consumer.queues
        async with Session(address, settings=SAME_NAME) as copy:
            assert copy.client_id == session.client_id
            second = Member(copy, inbox)
            async with second.consumer:
                await first.wait_owned(2)
                await second.wait_owned(2)
                assert first.consumer.queues == second.consumer.queues == queues[:2]
                assert f"2 members have the client id {session.client_id}" in caplog.text
                if official is not None:  # ours does not say yet where clients are
                    assert re.search(r"They are at .*\(this one\)", caplog.text)
                for queue in queues:
                    await producer.send(Message("T", str(queue.queue_id).encode()), queue=queue)
                while not inbox.bodies[b"0"] == inbox.bodies[b"1"] == 2:
                    await inbox.wait_for(len(inbox.messages) + 1)
                assert not inbox.bodies.keys() & {b"2", b"3"}
        async with Session(address) as own:
            third = Member(own, inbox)
            async with third.consumer:
                await first.wait_owned(2)
                await third.wait_owned(2)
                assert set(first.consumer.queues) | set(third.consumer.queues) == set(queues)
                while not inbox.bodies.keys() >= {b"2", b"3"}:
                    await inbox.wait_for(len(inbox.messages) + 1)
