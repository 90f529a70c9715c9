"""A broker over a disk that is written down: what it was asked, what it has answered, and when.

Everything goes through the door that clients use, over connections in memory. An answer counts from the moment in which
the broker hands it to the connection: a ``Mark`` in the trace, between the operations of the disk. So the judge of a
power loss needs no word of the store.

To add a kind of request: write a step that takes the ``BrokerWorld`` and calls ``send``, and put it into ``STEPS``.
What it promises beyond "what was answered is there" is a new fact here and a check in ``broker_verify``.
"""

import asyncio
import itertools
import os
import pathlib
import random
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec
import pytest
from crash.recorder import Item, Mark, Recorder
from memory_connection import MemoryTransport, connect_in_memory
from msgspec.structs import replace
from raw_calls import send_header
from served import Observed, observe
from stores import TINY

import rocketlet.broker.server as broker_server
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import parse_offset_id
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import FrameParser, encode_command, encode_oneway
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import EndTransactionHeader
from rocketlet.store.files.files import Files
from rocketlet.store.files.store_config import BATCH_UNIT_BYTES, TimerConfig
from rocketlet.testing.manual_clock import ManualClock

COMMIT, ROLLBACK = 8, 12
DELAY_MS = 5_000  # level 2
GROUP = "producers"
_TIMERS = TimerConfig(file_bytes=400, wheel_slots=3_000)


class Asked(NamedTuple):
    """A message was handed to the broker; ``kind`` is plain, delayed or half."""

    key: str
    topic: str
    queue_id: int
    body: bytes
    kind: str = "plain"


class Answered(NamedTuple):
    """Its sender has been told that it is stored, and where."""

    key: str
    queue_id: int
    queue_offset: int
    log_offset: int


class EndAsked(NamedTuple):
    """The broker was told how a transaction ends."""

    key: str
    outcome: int


@dataclass
class Promises:
    """What a broker was asked and has answered up to a moment."""

    asked: dict[str, Asked] = field(default_factory=dict[str, Asked])
    answered: dict[str, Answered] = field(default_factory=dict[str, Answered])
    ends: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, fact: object) -> None:
        """Take the next fact."""
        match fact:
            case Asked():
                self.asked[fact.key] = fact
            case Answered():
                self.answered[fact.key] = fact
            case EndAsked():
                self.ends[fact.key] = fact.outcome
            case _:
                raise TypeError(f"{fact!r} is no promise of a broker")

    @classmethod
    def of(cls, trace: Sequence[Item]) -> "Promises":
        """Return what the facts of a trace say."""
        promises = cls()
        for item in trace:
            if isinstance(item, Mark):
                promises.add(item.fact)
        return promises


class Mortal(Files):
    """Files of a process that can be killed: from then on nothing that it does reaches the disk."""

    is_dead = False

    def create(self, path: str, size: int, mode: int = 0o644) -> int:
        """Open a file, of a dead process one that nobody sees."""
        return os.memfd_create("dead") if self.is_dead else super().create(path, size, mode)

    def pwrite(self, descriptor: int, data: bytes | bytearray | memoryview, position: int) -> int:
        """Write while alive."""
        return len(data) if self.is_dead else super().pwrite(descriptor, data, position)

    def pwritev(self, descriptor: int, buffers: Sequence[bytes | memoryview], position: int) -> int:
        """Write while alive."""
        return sum(map(len, buffers)) if self.is_dead else super().pwritev(descriptor, buffers, position)

    def truncate(self, descriptor: int, size: int) -> None:
        """Set the length while alive."""
        if not self.is_dead:
            super().truncate(descriptor, size)

    def sync(self, descriptor: int) -> None:
        """Flush while alive."""
        if not self.is_dead:
            super().sync(descriptor)

    def sync_directory(self, path: str) -> None:
        """Flush while alive."""
        if not self.is_dead:
            super().sync_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Rename while alive."""
        if not self.is_dead:
            super().rename(source, target)

    def unlink(self, path: str) -> None:
        """Remove while alive."""
        if not self.is_dead:
            super().unlink(path)

    def make_directories(self, path: str) -> None:
        """Make directories while alive."""
        if not self.is_dead:
            super().make_directories(path)

    def remove_directory(self, path: str) -> None:
        """Remove while alive."""
        if not self.is_dead:
            super().remove_directory(path)


class MortalRecorder(Mortal, Recorder):
    """Records what a process does to the disk until it is killed."""


class Wire(MemoryTransport):
    """A connection in memory to a broker, and who waits for which answer."""

    def __init__(self, served: Observed, clock: ManualClock) -> None:
        super().__init__()
        self._parser = FrameParser()
        self._waiting: dict[int, tuple[asyncio.Future[Command], Callable[[Command], object]]] = {}
        self._opaques = itertools.count(1)
        self._connection, _ = connect_in_memory(served.handlers, clock, self)

    def ask(
        self,
        code: int,
        header: msgspec.Struct | dict[str, str] | None = None,
        body: bytes = b"",
        on_answer: Callable[[Command], object] = lambda _: None,
    ) -> asyncio.Future[Command]:
        """Hand over a request; ``on_answer`` is called in the moment in which the broker answers."""
        return self.ask_together([(Command.request(code, header, body), on_answer)])[0]

    def ask_together(
        self, requests: Sequence[tuple[Command, Callable[[Command], object]]]
    ) -> list[asyncio.Future[Command]]:
        """Hand over requests that arrive with one read."""
        data, futures = b"", list[asyncio.Future[Command]]()
        for command, on_answer in requests:
            command.opaque = next(self._opaques)
            future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
            self._waiting[command.opaque] = future, on_answer
            futures.append(future)
            data += encode_command(command)
        self._connection.data_received(data)
        return futures

    def tell(self, command: Command) -> None:
        """Hand over a request that is not answered."""
        self._connection.data_received(encode_oneway(command))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take answers."""
        for answer in self._parser.feed(bytes(data)):
            future, on_answer = self._waiting.pop(answer.opaque)
            on_answer(answer)
            if not future.done():
                future.set_result(answer)

    def close(self) -> None:
        """Go away."""
        for future, _ in self._waiting.values():
            future.cancel()
        self._connection.connection_lost(None)


class RunningBroker:
    """A broker on a directory, and connections in memory to it."""

    def __init__(self, root: pathlib.Path, files: Files, clock: ManualClock, *, is_sync: bool) -> None:
        config = BrokerConfig.from_java({"listenPort": "0", "brokerName": "broker-a", "recallMessageEnable": "true"})
        store = replace(
            config.store,
            root=str(root),
            log_directories=(f"{root}/commitlog",),
            is_sync_flush=is_sync,
            timers=_TIMERS,
            batch_file_bytes=5 * BATCH_UNIT_BYTES,
            **TINY,
        )
        self.clock = clock
        self.broker = broker_server.Broker(replace(config, store=store), clock, files)
        self._patch = pytest.MonkeyPatch()
        self.wires: list[Wire] = []

    async def start(self) -> None:
        """Start, with two clients."""
        with self._patch.context() as patch:
            found = observe(patch, broker_server)
            await self.broker.__aenter__()
        self.wires = [Wire(found[0], self.clock) for _ in range(2)]

    async def stop(self) -> None:
        """Stop; the clients are gone before."""
        for wire in self.wires:
            wire.close()
        await self.broker.__aexit__(None, None, None)


class BrokerWorld:
    """A broker under a recorder, and a client that notes what it asks and what it is told."""

    def __init__(self, folder: pathlib.Path, seed: str, *, is_sync: bool) -> None:
        self.chance = random.Random(seed)
        self.recorder = MortalRecorder(folder)
        self.root = folder / "store"
        self.is_sync = is_sync
        self.clock = ManualClock()
        self.number = 0
        self.halves: list[Answered] = []
        self._running: RunningBroker | None = None

    @property
    def wire(self) -> Wire:
        """One of the connections."""
        return self.chance.choice(self.broker.wires)

    @property
    def broker(self) -> RunningBroker:
        """The broker that runs."""
        assert self._running is not None, "it runs between start and stop"
        return self._running

    async def start(self) -> None:
        """Start a broker on what the last one has left."""
        self._running = RunningBroker(self.root, self.recorder, self.clock, is_sync=self.is_sync)
        await self._running.start()

    async def stop(self) -> None:
        """Stop it cleanly."""
        self.recorder.during_sync = None
        await self.broker.stop()

    async def kill(self) -> None:
        """End it as a killed process ends: nothing more is written, the system keeps what was."""
        self.recorder.during_sync = None
        self.recorder.is_dead = True
        await self.broker.stop()
        self.recorder.is_dead = False

    def make(self, topic: str, queue_id: int = 0, size: int = 60, **fields: str) -> "Request":
        """Return a send of a message with a key and a body of its own."""
        self.number += 1
        key = f"K{self.number:06d}"
        body = key.encode() + b" " + self.chance.randbytes(size)
        kind = "delayed" if "DELAY" in fields else "half" if "TRAN_MSG" in fields else "plain"
        properties = encode_properties({"UNIQ_KEY": key, "KEYS": key, "TAGS": "t", **fields}).decode()
        header = send_header(topic, queue_id, properties, born_at_ms=self.clock.now_ms())
        asked = Asked(key, topic, queue_id, body, kind)
        return Request(self, [asked], Command.request(RequestCode.SEND_MESSAGE_V2, header, body))

    def make_batch(self, topic: str, count: int) -> "Request":
        """Return a send of several messages of one queue."""
        parts = [self.make(topic, 0, 40).asked[0] for _ in range(count)]
        properties = [encode_properties({"UNIQ_KEY": part.key, "KEYS": part.key, "TAGS": "t"}) for part in parts]
        body = encode_batch([BatchPart(0, part.body, text) for part, text in zip(parts, properties, strict=True)])
        header = send_header(topic, 0, "", batch=True)
        return Request(self, parts, Command.request(RequestCode.SEND_BATCH_MESSAGE, header, body))

    async def send(self, *requests: "Request") -> None:
        """Hand sends over with one read, and wait for the answers."""
        self.clock.advance(self.chance.choice((0, 1, 7, 40)))
        self._keep_busy()
        pairs = [request.hand_over() for request in requests]
        for answer in self.wire.ask_together(pairs):
            await answer

    async def end(self, half: Answered, outcome: int) -> None:
        """Commit or roll back."""
        self.recorder.mark(EndAsked(half.key, outcome))
        await self.wire.ask(RequestCode.END_TRANSACTION, end_header(half, outcome))

    def _keep_busy(self) -> None:
        """Have a message come while the disk is busy: it waits for the next flush, which follows at once.

        Meanwhile the loop has its turns: who is answered too early is answered then.
        """
        recorder, loop, owner = self.recorder, asyncio.get_running_loop(), threading.get_ident()
        request = self.make("Busy", 0, 30) if self.is_sync and self.chance.random() < 0.5 else None

        async def go_on(late: Request | None) -> None:
            if late is not None:
                self.broker.wires[0].ask_together([late.hand_over()])
            for _ in range(4):
                await asyncio.sleep(0)

        def wait(late: Request | None = None) -> None:
            recorder.during_sync = wait
            if threading.get_ident() != owner:
                asyncio.run_coroutine_threadsafe(go_on(late), loop).result()

        recorder.during_sync = partial(wait, request)


@dataclass
class Request:
    """A send, and what it promises once it is answered."""

    world: BrokerWorld
    asked: list[Asked]
    command: Command

    def hand_over(self) -> tuple[Command, Callable[[Command], object]]:
        """Note what is asked; return the request and who hears the answer."""
        for one in self.asked:
            self.world.recorder.mark(one)
        return self.command, self._hear

    def _hear(self, answer: Command) -> None:
        if answer.code != ResponseCode.SUCCESS:
            return
        first, queue_id = int(answer.ext["queueOffset"]), int(answer.ext["queueId"])
        ids = str(answer.ext["msgId"]).split(",")
        for number, (one, message_id) in enumerate(zip(self.asked, ids, strict=True)):
            answered = Answered(one.key, queue_id, first + number, parse_offset_id(message_id)[1])
            self.world.recorder.mark(answered)
            if one.kind == "half":
                self.world.halves.append(answered)


def end_header(half: Answered, outcome: int) -> EndTransactionHeader:
    """Return what ends a transaction."""
    return EndTransactionHeader(
        producer_group=GROUP,
        half_offset=half.queue_offset,
        log_offset=half.log_offset,
        outcome=outcome,
        message_id=half.key,
        transaction_id=half.key,
    )


async def send_plain(world: BrokerWorld) -> None:
    """A message."""
    await world.send(world.make("Plain", world.chance.randrange(3)))


async def send_long(world: BrokerWorld) -> None:
    """A message that takes most of a file."""
    await world.send(world.make("Long", 0, world.chance.randrange(1_200, 3_000)))


async def fill_files(world: BrokerWorld) -> None:
    """Queues are flushed; then a message, and the log goes on in new files, with messages of other queues alone.

    All of the log is flushed and the checkpoint is saved before the next flush of the queues: one that speaks for them
    too early lets the message be forgotten.
    """
    await pass_long(world)
    await send_plain(world)
    for _ in range(4):
        await send_long(world)
        await world.clock.elapse(4_000)


async def send_together(world: BrokerWorld) -> None:
    """Messages of several queues that arrive with one read."""
    await world.send(*(world.make("Many", number % 3, world.chance.randrange(700)) for number in range(6)))


async def send_batch(world: BrokerWorld) -> None:
    """A batch."""
    await world.send(world.make_batch("Batch", world.chance.randrange(2, 6)))


async def send_one_way(world: BrokerWorld) -> None:
    """A message whose sender does not want to know."""
    command, _ = world.make("OneWay", 0, 400).hand_over()
    world.wire.tell(command)


async def send_delayed(world: BrokerWorld) -> None:
    """A message that comes five seconds later."""
    await world.send(world.make("Later", 0, DELAY="2"))


async def send_half(world: BrokerWorld) -> None:
    """A message of a transaction."""
    await world.send(world.make("Paid", 0, TRAN_MSG="true", PGROUP=GROUP))


async def end_half(world: BrokerWorld) -> None:
    """A transaction ends."""
    if world.halves:
        half = world.halves.pop(0)
        await world.end(half, world.chance.choice((COMMIT, COMMIT, ROLLBACK)))


async def pass_time(world: BrokerWorld) -> None:
    """Two seconds in which the broker's own jobs have their turn: flushes, tables, deliveries, the index."""
    await world.clock.elapse(2_000)


async def pass_long(world: BrokerWorld) -> None:
    """So much time that queues and index are flushed as well."""
    await world.clock.elapse(61_000)


async def restart(world: BrokerWorld) -> None:
    """A clean stop and a start."""
    await world.stop()
    await world.start()


async def kill(world: BrokerWorld) -> None:
    """A kill and a start; the system stays up."""
    await world.kill()
    await world.start()


Step = Callable[[BrokerWorld], Awaitable[None]]
STEPS: dict[Step, int] = {
    send_plain: 6,
    send_long: 3,
    fill_files: 1,
    send_together: 3,
    send_batch: 2,
    send_one_way: 2,
    send_delayed: 2,
    send_half: 2,
    end_half: 2,
    pass_time: 3,
    pass_long: 1,
    restart: 1,
    kill: 1,
}


async def run_broker(folder: pathlib.Path, seed: str, steps: int, *, is_sync: bool) -> BrokerWorld:
    """Run every step once in a random order, and then so many by their weights; the end is a kill."""
    world = BrokerWorld(folder, seed, is_sync=is_sync)
    first = list(STEPS)
    world.chance.shuffle(first)
    await world.start()
    for step in (*first, *world.chance.choices(list(STEPS), list(STEPS.values()), k=steps)):
        await step(world)
    await world.kill()
    return world
