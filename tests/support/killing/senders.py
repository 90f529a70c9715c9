"""Load on a broker until it is killed: from our client, and from the official Java client in a driver."""

import asyncio
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, Self

import msgspec
from interop.driver import Driver
from killing.ledger import Identity, Ledger, Place

from rocketlet.client import Message, MessageQueue, Producer, ProducerSettings, SendResult, SendStatus
from rocketlet.common.errors import RemotingError, ResponseError, RouteNotFoundError

IN_FLIGHT = 32
LIMIT_MS = 20_000
TOPICS = ("Orders", "Letters")
QUEUES = 4
_runs = itertools.count(1)
_NO_ANSWER = (RemotingError, ResponseError, RouteNotFoundError)


class Load(Protocol):
    """Sends until the broker is gone."""

    def run(self, namesrv: str, ledger: Ledger, count: int, kill: Callable[[], None]) -> None:
        """Send without a pause; after ``count`` answers call ``kill``, and note every answer in the ledger."""
        ...


class Moment(NamedTuple):
    """What is done when there were so many answers."""

    answers: int
    act: Callable[[], object]


class OurLoad:
    """Our client: single messages and batches, many in flight."""

    def __init__(self, choose: random.Random) -> None:
        self._choose = choose

    def run(self, namesrv: str, ledger: Ledger, count: int, kill: Callable[[], None]) -> None:
        """Send without a pause; after ``count`` answers call ``kill``, and note every answer in the ledger."""
        self.run_past(namesrv, ledger, [Moment(count, kill)])

    def run_past(self, namesrv: str, ledger: Ledger, moments: Sequence[Moment]) -> None:
        """Send without a pause until the broker is gone; some moment kills it."""
        asyncio.run(_OurRun(self._choose, ledger, moments, ends_by_kill=True).send_all(namesrv))

    def send_past(self, namesrv: str, ledger: Ledger, moments: Sequence[Moment]) -> None:
        """Send without a pause up to the last of the moments; a send that is not answered is a fault."""
        asyncio.run(_OurRun(self._choose, ledger, moments, ends_by_kill=False).send_all(namesrv))


class _OurRun:
    """One run: a producer whose workers send one request after the other."""

    def __init__(self, choose: random.Random, ledger: Ledger, moments: Sequence[Moment], *, ends_by_kill: bool) -> None:
        self._choose = choose
        self._ledger = ledger
        self._moments = deque(moments)
        self._ends_by_kill = ends_by_kill
        self._answered = 0
        self._sender = f"ours{next(_runs)}"
        self._next = 0

    async def send_all(self, namesrv: str) -> None:
        settings = ProducerSettings(retries=0, send_timeout_ms=LIMIT_MS)
        async with Producer("storm", nameserver=namesrv, settings=settings) as producer, asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(self._work(producer))

    async def _work(self, producer: Producer) -> None:
        while self._ends_by_kill or self._moments:
            count = self._choose.randrange(2, 9) if self._choose.random() < 0.1 else 1
            first, self._next = self._next, self._next + count
            topic = self._choose.choice(TOPICS)
            try:
                result = await self._send(producer, topic, range(first, self._next))
            except _NO_ANSWER as error:
                if not self._ends_by_kill:
                    self._ledger.faults.append(f"{Identity(self._sender, first)} was not answered: {error}")
                return
            self._note(result, first, count)

    async def _send(self, producer: Producer, topic: str, numbers: Sequence[int]) -> SendResult:
        identities = [Identity(self._sender, number) for number in numbers]
        messages = [Message(topic, one.body, tags=one.tag, keys=[one.key]) for one in identities]
        queue = MessageQueue(topic, "broker-a", self._choose.randrange(QUEUES))
        if len(messages) == 1:
            return await producer.send(messages[0], queue=queue)
        return await producer.send_batch(messages, queue=queue)

    def _note(self, result: SendResult, first: int, count: int) -> None:
        if result.status is SendStatus.SEND_OK:
            place = Place(result.queue.topic, result.queue.queue_id, result.queue_offset)
            self._ledger.acknowledge(self._sender, first, place, count)
        else:
            self._ledger.unsure[result.status.name] += count
        self._answered += count
        while self._moments and self._answered >= self._moments[0].answers:
            self._moments.popleft().act()


class _Stored(msgspec.Struct, rename="camel"):
    number: int
    count: int
    topic: str
    queue_id: int
    queue_offset: int


class _StormAnswer(msgspec.Struct):
    stored: list[_Stored]
    failure: str


class JavaStorm:
    """A Java producer that lives through many kills; a context manager that ends it."""

    def __init__(self, driver: Driver, namesrv: str) -> None:
        self.name = f"java{next(_runs)}"
        self._driver = driver
        self._run = 0
        driver.call("storm.start", name=self.name, namesrv=namesrv)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._driver.call("storm.stop", name=self.name)

    def begin(self) -> int:
        """Begin to send, until a send fails."""
        queues = [
            {"topic": topic, "brokerName": "broker-a", "queueId": number}
            for number in range(QUEUES)
            for topic in TOPICS
        ]
        self._run += 1
        return self._driver.begin("storm.run", name=self.name, run=self._run, queues=queues, inFlight=IN_FLIGHT)

    def finish(self, begun: int, ledger: Ledger) -> None:
        """Wait for the end, and note the answers that came."""
        answer = self._driver.finish(begun, "storm.run", _StormAnswer)
        for one in answer.stored:
            ledger.acknowledge(self.name, one.number, Place(one.topic, one.queue_id, one.queue_offset), one.count)

    def wait_answers(self, count: int) -> None:
        """Return when the run has had so many answers, or has ended."""
        self._driver.call("storm.await", name=self.name, run=self._run, count=count, timeoutMs=LIMIT_MS)


class JavaLoad:
    """The Java client alone."""

    def __init__(self, storm: JavaStorm) -> None:
        self._storm = storm

    def run(self, namesrv: str, ledger: Ledger, count: int, kill: Callable[[], None]) -> None:
        """Send without a pause; after ``count`` answers call ``kill``, and note every answer in the ledger."""
        begun = self._storm.begin()
        self._storm.wait_answers(count)
        kill()
        self._storm.finish(begun, ledger)


class MixedLoad:
    """Both clients side by side; the answers to ours are counted."""

    def __init__(self, storm: JavaStorm, ours: OurLoad) -> None:
        self._storm = storm
        self._ours = ours

    def run(self, namesrv: str, ledger: Ledger, count: int, kill: Callable[[], None]) -> None:
        """Send without a pause; after ``count`` answers call ``kill``, and note every answer in the ledger."""
        begun = self._storm.begin()
        self._storm.wait_answers(1)
        self._ours.run(namesrv, ledger, count, kill)
        self._storm.finish(begun, ledger)
