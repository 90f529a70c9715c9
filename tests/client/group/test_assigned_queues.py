"""Queues that are taken and given up: what happens in which order, and what becomes of failures."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Collection, Iterable, Sequence

import pytest
from scripted_cluster import ScriptedCluster, ScriptedServer

from rocketlet.client import MessageQueue, ReceivedMessage, Session
from rocketlet.client.group.assigned_queues import AssignedQueues, Handover
from rocketlet.client.group.broker_requests import BrokerRequests
from rocketlet.client.group.offsets import GroupOffsets, start_rule
from rocketlet.client.group.process_queue import QueueOffsets
from rocketlet.client.group.queue_fetcher import FetchContext, PullPlan
from rocketlet.client.group.rebalance import ShareChange
from rocketlet.client.group.subscriptions import SubscriptionTable
from rocketlet.client.session.callbacks import QueueCallbacks
from rocketlet.client.session.settings import ConsumeFrom
from rocketlet.common.errors import RequestTimeoutError
from rocketlet.remoting.codec.command import decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.pull import PullHeader
from rocketlet.testing import ManualClock

BEAT, PULL = RequestCode.HEART_BEAT, RequestCode.PULL_MESSAGE
FIRST, SECOND, THIRD = (MessageQueue("T", "broker-a", queue_id) for queue_id in range(3))


class Diary(list[str]):
    """What happened, in order."""

    def note(self, what: str, *queues: MessageQueue) -> None:
        """Write down what happened to which queues."""
        self.append(f"{what} {' '.join(str(queue.queue_id) for queue in queues)}".rstrip())


class Sink:
    """Where the messages of a queue would go."""

    def __init__(self, queue: MessageQueue, diary: Diary) -> None:
        self.queue = queue
        self._diary = diary

    async def wait_for_room(self) -> int:
        """Have room, and nothing to store."""
        return 0

    def accept(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Take nothing: no message comes."""

    def drop(self) -> None:
        """Note the end."""
        self._diary.note("drop", self.queue)


class Offsets(GroupOffsets):
    """Finds a queue's offset to be ten times its number, or not at all."""

    def __init__(self, session: Session, diary: Diary) -> None:
        super().__init__("g", BrokerRequests(session), start_rule(ConsumeFrom.LAST, None, 0))
        self.lost: set[MessageQueue] = set()
        self._diary = diary

    async def find_start(self, queue: MessageQueue) -> int:
        """Return where to begin."""
        self._diary.note("find", queue)
        if queue in self.lost:
            raise RequestTimeoutError("no answer")
        return 10 * queue.queue_id

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        """Note what would be stored."""
        self._diary.note("store", *queues)

    async def persist_now(self, queues: Iterable[MessageQueue]) -> None:
        """Note what would be stored at once."""
        self._diary.note("store now", *queues)


class Keeper:
    """Holds all queues but some."""

    def __init__(self, diary: Diary) -> None:
        self.refuses: set[MessageQueue] = set()
        self.is_unused = asyncio.Event()
        self._diary = diary

    async def hold(self, queues: Sequence[MessageQueue]) -> Collection[MessageQueue]:
        """Hold what may be held."""
        self._diary.note("hold", *queues)
        return [queue for queue in queues if queue not in self.refuses]

    async def wait_unused(self, queue: MessageQueue) -> None:
        """Wait until the test says so."""
        await self.is_unused.wait()

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Note what is released."""
        self._diary.note("release", *queues)

    async def release_all(self) -> None:
        """Do nothing: nobody asks for it here."""


class Bench:
    """Assigned queues with everything around them."""

    def __init__(self, session: Session, clock: ManualClock, broker: ScriptedServer, *, has_keeper: bool) -> None:
        self.diary = Diary()
        self.clock = clock
        self.broker = broker
        self.keeper = Keeper(self.diary)
        self.offsets = Offsets(session, self.diary)
        self.subscriptions = SubscriptionTable(clock)
        self.subscriptions.put("T", "*")
        callbacks = QueueCallbacks()
        callbacks.on_changed(lambda queues: self.diary.note("changed to", *queues))
        callbacks.on_revoked(lambda queues: self.diary.note("revoked", *queues))
        callbacks.on_assigned(lambda queues: self.diary.note("assigned", *queues))
        context = FetchContext(session, self.subscriptions, PullPlan("g", 32, 1, 1), self._refuse, None, session.tasks)
        handover = Handover(callbacks, self.keeper if has_keeper else None)
        self.assigned = AssignedQueues(context, self.offsets, self._make_sink, handover)

    def told(self) -> list[str]:
        """Return what has happened since this was asked last."""
        found = list(self.diary)
        self.diary.clear()
        return found

    async def change(self, given_up: Sequence[MessageQueue], taken: Sequence[MessageQueue]) -> int:
        """Change the share; return how many failures there were."""
        return len(await self.assigned.change("T", ShareChange(tuple(given_up), tuple(taken))))

    def pulled_from(self) -> list[tuple[int, int]]:
        """Return the queue and the offset of each pull."""
        headers = [decode_header(PullHeader, each) for each in self.broker.asked(PULL)]
        return sorted((header.queue_id, header.queue_offset) for header in headers)

    def _make_sink(self, queue: MessageQueue, _offsets: QueueOffsets) -> Sink:
        return Sink(queue, self.diary)

    async def _refuse(self, _queue: MessageQueue, _next_offset: int) -> bool:
        return False


@contextlib.asynccontextmanager
async def assigning(cluster: ScriptedCluster, *, has_keeper: bool = False) -> AsyncGenerator[Bench]:
    """Give a bench whose broker is connected and holds all pulls."""
    cluster.routes["T"] = {"broker-a": 3}
    broker, clock = await cluster.add_broker("broker-a"), ManualClock()
    async with Session(cluster.nameserver.address, clock) as session:
        await session.route("T")
        await session.heartbeat()
        yield Bench(session, clock, broker, has_keeper=has_keeper)


async def test_queues_are_given_up_before_others_are_taken(cluster: ScriptedCluster) -> None:
    """The application is told before the one and after the other; brokers get a new version before the first pull."""
    async with assigning(cluster) as bench:
        version = bench.subscriptions.by_topic["T"].version
        assert await bench.change([], [FIRST, SECOND]) == 0
        assert bench.told() == ["find 0", "find 1", "assigned 0 1", "changed to 0 1"]
        assert bench.subscriptions.by_topic["T"].version > version
        await bench.broker.wait_asked(PULL, 2)
        assert [each.code for each in bench.broker.requests if each.code in {BEAT, PULL}][-3:] == [BEAT, PULL, PULL]
        assert (bench.pulled_from(), bench.offsets.table.get(SECOND)) == ([(0, 0), (1, 10)], 10)

        assert await bench.change([FIRST], [THIRD]) == 0
        assert bench.told() == ["revoked 0", "drop 0", "store 0", "find 2", "assigned 2", "changed to 1 2"]
        assert (bench.assigned.queues, bench.assigned.unstored) == ((SECOND, THIRD), (SECOND, THIRD))
        assert bench.offsets.table.get(FIRST) is None
        await bench.broker.wait_asked(PULL, 3)
        beats = len(bench.broker.asked(BEAT))
        assert await bench.change([], []) == 0
        assert (bench.told(), len(bench.broker.asked(BEAT))) == ([], beats)
        assert await bench.change([SECOND, THIRD], []) == 0
        assert bench.told()[0] == "revoked 1 2"
        assert (bench.assigned.queues, len(bench.broker.asked(BEAT))) == ((), beats + 1)


@pytest.mark.parametrize("has_keeper", [False, True])
async def test_queue_whose_offset_is_not_known_is_not_taken(cluster: ScriptedCluster, *, has_keeper: bool) -> None:
    """The others are; what was held of it is released, and the failure is for the next rebalance."""
    async with assigning(cluster, has_keeper=has_keeper) as bench:
        bench.offsets.lost = {FIRST}
        assert await bench.change([], [FIRST, SECOND]) == 1
        told = ["find 0", "find 1", "assigned 1", "changed to 1"]
        kept = ["hold 0 1", "find 0", "release 0", "find 1", "assigned 1", "changed to 1"]
        assert bench.told() == (kept if has_keeper else told)
        beats = len(bench.broker.asked(BEAT))
        assert await bench.change([], [FIRST]) == 1
        assert bench.told() == (["hold 0", "find 0", "release 0"] if has_keeper else ["find 0"])
        assert len(bench.broker.asked(BEAT)) == beats
        assert bench.assigned.queues == (SECOND,)


async def test_queue_that_is_not_held_is_not_taken(cluster: ScriptedCluster) -> None:
    """It is neither looked up nor released: another member has it."""
    async with assigning(cluster, has_keeper=True) as bench:
        bench.keeper.refuses = {FIRST}
        assert await bench.change([], [FIRST, SECOND]) == 1
        assert bench.told() == ["hold 0 1", "find 1", "assigned 1", "changed to 1"]
        assert [sink.queue for sink in bench.assigned.sinks] == [SECOND]
        assert (bench.assigned.sink_of(FIRST), bench.assigned.sink_of(SECOND) is None) == (None, False)


async def test_queue_that_is_held_is_released_when_it_is_unused(cluster: ScriptedCluster) -> None:
    """Its offset is stored before; until then it counts among those to store at the end, and is not taken again."""
    async with assigning(cluster, has_keeper=True) as bench:
        await bench.change([], [FIRST])
        bench.told()
        assert await bench.change([FIRST], [FIRST, SECOND]) == 1
        assert (bench.assigned.queues, bench.assigned.unstored) == ((SECOND,), (SECOND, FIRST))
        assert bench.told() == ["revoked 0", "drop 0", "hold 1", "find 1", "assigned 1", "changed to 1"]
        assert bench.offsets.table.get(FIRST) == 0
        bench.keeper.is_unused.set()
        await bench.clock.settle()
        assert bench.assigned.unstored == (SECOND,)
        assert bench.told() == ["store 0", "release 0"]
        assert bench.offsets.table.get(FIRST) is None
        await bench.assigned.give_up(THIRD)  # one that is not owned
        assert bench.told() == []


async def test_queue_whose_offset_was_refused_is_stored_at_once(cluster: ScriptedCluster) -> None:
    """At the offset that the broker named, which what was pulled before does not move."""
    async with assigning(cluster) as bench:
        await bench.change([], [SECOND])
        await bench.broker.wait_asked(PULL)
        bench.told()
        bench.assigned.stop_pulling([SECOND])
        await bench.assigned.retake(SECOND, 77)
        assert bench.told() == ["drop 1", "store now 1"]
        bench.offsets.table.advance(SECOND, 99)
        assert (bench.offsets.table.get(SECOND), bench.assigned.queues) == (77, ())
        await bench.assigned.retake(SECOND, 88)
        assert (bench.told(), bench.offsets.table.get(SECOND)) == ([], 77)


async def test_suspended_queues_pull_on_from_where_they_were(cluster: ScriptedCluster) -> None:
    """Nothing is pulled meanwhile, also of queues that are taken then; afterwards each is pulled once."""
    async with assigning(cluster) as bench:
        await bench.change([], [FIRST])
        await bench.broker.wait_asked(PULL)
        bench.assigned.suspend()
        await bench.change([], [SECOND])
        await bench.clock.elapse(1_000)
        assert bench.pulled_from() == [(0, 0)]
        bench.assigned.resume()
        await bench.broker.wait_asked(PULL, 3)
        bench.assigned.resume()
        await bench.clock.elapse(1_000)
        assert (bench.pulled_from(), bench.assigned.is_suspended) == ([(0, 0), (0, 0), (1, 10)], False)


async def test_queue_given_up_while_suspended_is_not_pulled_again(cluster: ScriptedCluster) -> None:
    """Another member has it when the others go on."""
    async with assigning(cluster) as bench:
        await bench.change([], [FIRST, SECOND])
        await bench.broker.wait_asked(PULL, 2)
        bench.assigned.suspend()
        await bench.change([FIRST], [])
        bench.assigned.resume()
        await bench.broker.wait_asked(PULL, 3)
        await bench.clock.elapse(1_000)
        assert bench.pulled_from() == [(0, 0), (1, 10), (1, 10)]
