"""What is to stay flat (`make bench-long`): the CPU time of an operation in the broker, at growing sizes of one thing.

    stored messages   a send, a pull and a lookup by unique key, anywhere in the log
    queues            a send to the next of all queues, in topics of 8
    connections       a send over the next of all connections, one after the other
    members           of one consumer group, each with a pull that waits: a send beside them, a message to the next of
                      them, a heartbeat, and a member that comes and goes, for each question of another about that

There is a `rocketlet up` with default settings for each size; all run at the same time, and rounds go over them in
turn. Load are frames of the Java client (`clientframes.py`) from this process, so no Java is needed. An operation is
flat if its cost has a ratio of about 1 to that at the size before, which is a tenth or a hundredth.

    python bench/sizes.py                  all of it
    python bench/sizes.py --only members   the rows that have this in their names
"""

import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import count as count_up
from itertools import cycle
from pathlib import Path
from typing import Final, NamedTuple

import click
import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from clientframes import FIRST_NUMBER, batch_body, batches, pull_fields, sends_to, unique_key
from interop.servers import RocketletServer
from manytopics import QUEUES, fill
from members import gather
from processes import cpu_us
from rounds import take_turns
from tables import Growth, Table
from window import Run, drive, refuse_errors

from rocketlet.client import Admin, TopicSettings
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode

SIZES: Final = Table(
    "sizes",
    (
        "rocketlet",
        "from, to",
        "CPU at the first",
        "at the last",
        "ratio to the one before",
        "rate at the first",
        "last",
    ),
    (52, 22, 18, 14, 26, 20, 12),
)
_TOPIC: Final = "Bench"
_GROUP_TOPIC: Final = "Members"
_FIRST_STORED: Final = 2 * FIRST_NUMBER
"""The numbers of what is stored first, far from those of what is sent later."""
_BODY: Final = bytes(128)
_STORED_BODY: Final = bytes(16)
_STORED_BATCH: Final = 250
_STORED_QUEUES: Final = 4
_IN_FLIGHT: Final = 64
_PULLED: Final = 32
_STRIDE: Final = 7_368_787  # a prime, far above most sizes


Operation = Callable[[int], Awaitable[int]]
"""Does something about so many times, and returns how many times it was."""


class Stage(NamedTuple):
    """A broker that has so much of something, and what can be done there, by name."""

    size: int
    pid: int
    operations: Mapping[str, Operation]


class Round(NamedTuple):
    """What one round has told: the CPU time of an operation in the broker, and how many were done in a second."""

    cost_us: float
    rate: float


class Dimension(NamedTuple):
    """What there is ever more of: ``counts`` tells of each operation how often a round does it."""

    sizes: tuple[int, ...]
    counts: Mapping[str, int]
    stage: Callable[[int, float, Path, asyncio.Runner], AbstractContextManager[Stage]]


def measure_sizes(is_wanted: Callable[[str], bool], rounds: int, scale: float, place: Path) -> Iterator[Growth]:
    """Measure all dimensions of which something is wanted."""
    for what, dimension in DIMENSIONS.items():
        counts = {f"{what}: {name}": (name, max(1, int(count * scale))) for name, count in dimension.counts.items()}
        wanted = {title: each for title, each in counts.items() if is_wanted(title)}
        if not wanted:
            continue
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop, ExitStack() as stack:
            stages = [
                stack.enter_context(dimension.stage(size, scale, place / f"{what}-{size}", loop))
                for size in dimension.sizes
            ]
            for title, (name, count) in wanted.items():
                found = take_turns(rounds, [partial(_measure, stage, name, count, loop) for stage in stages])
                costs, rates = ([[getattr(one, key) for one in each] for each in found] for key in Round._fields)
                yield Growth(title, [stage.size for stage in stages], costs, rates)


def _measure(stage: Stage, name: str, count: int, loop: asyncio.Runner, _number: int) -> Round:
    cpu, begun = cpu_us(stage.pid), time.perf_counter()
    done = loop.run(_await(stage.operations[name](count)))
    return Round((cpu_us(stage.pid) - cpu) / done, done / (time.perf_counter() - begun))


async def _await(work: Awaitable[int]) -> int:
    return await work


async def _drive(address: str, frames: Iterator[bytes], in_flight: int, count: int) -> int:
    """Send frames over a connection of its own; the first answer is looked at."""
    host, port = address.rsplit(":", 1)
    await drive(host, int(port), Run(frames, 1, 1, refuse_errors))
    await drive(host, int(port), Run(frames, count, in_flight))
    return count + 1


def _sending(address: str, queues: Sequence[tuple[str, int]]) -> Operation:
    """Return sends to queues in turn, 64 in flight."""
    return partial(_drive, address, sends_to(queues, _BODY), _IN_FLIGHT)


@contextmanager
def _stored_messages(size: int, scale: float, place: Path, loop: asyncio.Runner) -> Generator[Stage]:
    """Have messages in four queues of a topic."""
    count = max(2 * _STORED_QUEUES, int(size * scale) // _STORED_BATCH) * _STORED_BATCH
    with RocketletServer(place, {}) as server:
        stored = batches(_TOPIC, _STORED_QUEUES, batch_body(_STORED_BATCH, _STORED_BODY), _FIRST_STORED)
        loop.run(_drive(server.broker, stored, 4, count // _STORED_BATCH - 1))
        ends = count // _STORED_BATCH // _STORED_QUEUES * _STORED_BATCH - _PULLED
        pulls = (
            Command.request(RequestCode.PULL_MESSAGE, pull_fields(_TOPIC, number % _STORED_QUEUES, offset, _PULLED))
            for number, offset in enumerate(_spread(ends))
        )
        keys = (unique_key(_FIRST_STORED + at // _STORED_BATCH, at % _STORED_BATCH) for at in _spread(count))
        lookups = (Command.request(RequestCode.QUERY_MESSAGE, _lookup_fields(key)) for key in keys)
        operations = {
            "a send, 64 in flight": _sending(server.broker, [(_TOPIC, queue) for queue in range(_STORED_QUEUES)]),
            "a pull of 32": partial(_drive, server.broker, map(encode_command, pulls), _IN_FLIGHT),
            "a lookup by unique key": partial(_drive, server.broker, map(encode_command, lookups), _IN_FLIGHT),
        }
        yield Stage(count, server.pid, operations)


def _spread(end: int) -> Iterator[int]:
    """Yield endless numbers below an end that lie all over the place, the same in each run."""
    for number in count_up():
        yield number * _STRIDE % end


def _lookup_fields(key: str) -> dict[str, str]:
    always = {"maxNum": "32", "beginTimestamp": "0", "endTimestamp": str((1 << 63) - 1), "_UNIQUE_KEY_QUERY": "true"}
    return {"topic": _TOPIC, "key": key, **always}


@contextmanager
def _queues(size: int, _scale: float, place: Path, loop: asyncio.Runner) -> Generator[Stage]:
    """Have queues in topics of 8, each with a message."""
    topics = -(-size // QUEUES)
    fill(place, topics, 0)
    with RocketletServer(place, {}) as server:
        queues = [(f"Topic{topic}", queue) for topic in range(topics) for queue in range(QUEUES)][:size]
        send = _sending(server.broker, queues)
        loop.run(_await(send(size)))
        yield Stage(size, server.pid, {"a send to the next, 64 in flight": send})


@contextmanager
def _connections(size: int, _scale: float, place: Path, loop: asyncio.Runner) -> Generator[Stage]:
    """Have connections, each of which has sent."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 2 * size:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with RocketletServer(place, {}) as server:
        links = [loop.run(_connect(server.broker)) for _ in range(size)]
        send = partial(_send_in_turn, cycle(links), sends_to([(_TOPIC, 0)], _BODY))
        loop.run(send(size))
        yield Stage(size, server.pid, {"a send over the next, alone": send})
        for link in links:
            link.writer.close()


class Link(NamedTuple):
    """A connection that has one request on its way at most."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, frame: bytes) -> None:
        """Send a request and wait for its answer."""
        self.writer.write(frame)
        head = await self.reader.readexactly(4)
        refuse_errors(head + await self.reader.readexactly(int.from_bytes(head)))


async def _connect(address: str) -> Link:
    host, port = address.rsplit(":", 1)
    return Link(*await asyncio.open_connection(host, int(port)))


async def _send_in_turn(links: Iterator[Link], frames: Iterator[bytes], count: int) -> int:
    for _ in range(count):
        await next(links).ask(next(frames))
    return count


@contextmanager
def _members(size: int, _scale: float, place: Path, loop: asyncio.Runner) -> Generator[Stage]:
    """Have members of a group, each with a queue that it pulls from."""
    with RocketletServer(place, {}) as server:
        loop.run(_create_topic(server.namesrv, _GROUP_TOPIC, size))
        crowd = loop.run(gather(server.broker, _GROUP_TOPIC, size))
        link = loop.run(_connect(server.broker))
        frames = sends_to([(_GROUP_TOPIC, queue) for queue in range(size)], _BODY)

        async def join_and_leave(count: int) -> int:
            done = 0
            while done < count:
                done += await crowd.join_and_leave()
            return done

        async def deliver(count: int) -> int:
            for _ in range(count):
                await crowd.pass_on(link.ask(next(frames)))
            return count

        operations = {
            "a send beside them, 64 in flight": _sending(server.broker, [(_TOPIC, queue) for queue in range(4)]),
            "a message to the next": deliver,
            "a heartbeat of the next": crowd.beat,
            "one joins and leaves, for each question": join_and_leave,
        }
        try:
            yield Stage(size, server.pid, operations)
        finally:  # else an error ends here as that of a member whose broker has gone
            crowd.leave()
            link.writer.close()


async def _create_topic(namesrv: str, topic: str, queues: int) -> None:
    async with Admin(namesrv) as admin:
        await admin.create_topic(topic, TopicSettings(read_queues=queues, write_queues=queues))


DIMENSIONS: Final[dict[str, Dimension]] = {
    "stored messages": Dimension(
        (10_000, 100_000, 1_000_000, 10_000_000),
        {"a send, 64 in flight": 60_000, "a pull of 32": 6_000, "a lookup by unique key": 10_000},
        _stored_messages,
    ),
    "queues": Dimension((1, 100, 10_000), {"a send to the next, 64 in flight": 60_000}, _queues),
    "connections": Dimension((1, 100, 1_000), {"a send over the next, alone": 15_000}, _connections),
    "members": Dimension(
        (1, 50, 500),
        {
            "a send beside them, 64 in flight": 60_000,
            "a message to the next": 6_000,
            "a heartbeat of the next": 10_000,
            "one joins and leaves, for each question": 6_000,
        },
        _members,
    ),
}


@click.command()
@click.option("--only", default="", help="Only rows that have this in their names.")
@click.option("--rounds", default=3, show_default=True, help="Counted rounds of each row.")
@click.option("--scale", default=1.0, show_default=True, help="How much is stored and done, as a factor.")
def main(only: str, rounds: int, scale: float) -> None:
    """Print a line for each operation."""
    SIZES.print_title()
    with tempfile.TemporaryDirectory() as directory:
        for line in measure_sizes(lambda name: only in name, rounds, scale, Path(directory)):
            SIZES.print_line(line)


if __name__ == "__main__":
    main()
