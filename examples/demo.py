"""`make demo`: the main job once, from `rocketlet up` to a Parquet file with a proof that nothing is missing.

    1. start   `rocketlet up` on free ports
    2. send    100,000 messages with keys, tags and properties to a topic of 8 queues
    3. consume by two members of one group, which share the queues
    4. export  the commit log with Spark to Parquet
    5. prove   records in the log = rows + records left out, each queue offset once, all checksums right

Progress bars on a terminal, plain lines elsewhere. Whatever was started is stopped, whatever was written is removed,
unless `--keep DIR` names a directory for it.
"""

import asyncio
import pathlib
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial

import click
import uvloop
from progress import Progress
from spark_session import spark_session

from rocketlet.client import (
    Admin,
    ConsumeFrom,
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    PushConsumerSettings,
    ReceivedMessage,
    TopicSettings,
)
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.log_reader import count_stores

TOPIC = "demo-orders"
GROUP = "demo-billing"
QUEUES = 8
IN_FLIGHT = 64
TAGS = ("created", "paid", "shipped")
SAMPLE = """
    SELECT queueId, queueOffset, tags, keys, properties['region'] AS region, decode(body, 'UTF-8') AS body
    FROM messages ORDER BY logOffset LIMIT 5
"""
COUNTS = """
    SELECT topic, queueId, count(*) AS rows, count(DISTINCT queueOffset) AS offsets, min(queueOffset) AS first,
           max(queueOffset) AS last, count_if(crc32(body) & 2147483647 != bodyCrc) AS wrong
    FROM messages GROUP BY topic, queueId ORDER BY topic, queueId
"""
ROCKETLET = pathlib.Path(sys.executable).parent / "rocketlet"


@click.command
@click.option("--messages", type=click.IntRange(1), default=100_000, show_default=True, help="How many to send.")
@click.option("--keep", type=click.Path(path_type=pathlib.Path), help="Keep store and Parquet files in this directory.")
def demo(messages: int, keep: pathlib.Path | None) -> None:
    """Send, consume and export messages, and prove that nothing is missing."""
    started = time.monotonic()
    with folder_for_files(keep) as folder:
        uvloop.run(send_and_consume(folder / "store", messages))
        export_and_prove(folder / "store", folder / "parquet")
    print(f"\ndone in {time.monotonic() - started:.0f} s; {f'files are in {keep}' if keep else 'files are removed'}")


@contextmanager
def folder_for_files(keep: pathlib.Path | None) -> Generator[pathlib.Path]:
    """Hand out a directory: the one to keep, or a temporary one."""
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="rocketlet-demo-") as name:
        yield pathlib.Path(name)


@asynccontextmanager
async def running_broker(store: pathlib.Path) -> AsyncGenerator[str]:
    """Run `rocketlet up` and hand out the address of its name server."""
    arguments = ("up", "--namesrv-port", "0", "--broker-port", "0", "--store", str(store))
    process = await asyncio.create_subprocess_exec(ROCKETLET, *arguments, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None, "it was asked for"
        ready = (await process.stdout.readline()).decode()
        print(f"$ rocketlet {' '.join(arguments)}\n{ready}", end="")
        if not ready:
            sys.exit("rocketlet did not start")
        yield ready.split("namesrv=")[1].split()[0]
    finally:
        with suppress(ProcessLookupError):  # Ctrl-C on a terminal has reached it as well
            process.terminate()
        await process.wait()


async def send_and_consume(store: pathlib.Path, messages: int) -> None:
    """Run the broker, let two members of a group share the queues, and send."""
    async with running_broker(store) as nameserver, Producer("demo-shop", nameserver=nameserver) as producer:
        async with Admin(nameserver) as admin:
            await admin.create_topic(TOPIC, TopicSettings(read_queues=QUEUES, write_queues=QUEUES))
        with Progress(messages, "sent", "consumed") as progress:
            inbox = Inbox(messages, progress)
            async with inbox.member("first member", nameserver), inbox.member("second member", nameserver):
                await inbox.wait_until_shared()
                await send(producer, range(messages), progress)
                await inbox.complete.wait()
        inbox.print_counts()


async def send(producer: Producer, numbers: range, progress: Progress) -> None:
    """Send with so many in flight; the broker acknowledges each."""
    left = iter(numbers)

    async def send_some() -> None:
        for number in left:
            await producer.send(order(number))
            progress.count("sent")

    async with asyncio.TaskGroup() as senders:
        for _ in range(IN_FLIGHT):
            senders.create_task(send_some())


def order(number: int) -> Message:
    """Return one message: body, tag, two keys and a property."""
    return Message(
        TOPIC,
        b'{"order": %d, "amount": %d}' % (number, number * 7 % 1000),
        tags=TAGS[number % len(TAGS)],
        keys=(f"order-{number}", f"customer-{number % 997}"),
        properties={"region": "north" if number % 2 else "south"},
    )


class Inbox:
    """What the members of the group have got."""

    def __init__(self, messages: int, progress: Progress) -> None:
        self._messages = messages
        self._progress = progress
        self._seen: dict[str, set[bytes]] = {}
        self._queues: dict[str, list[int]] = {}
        self._shared = asyncio.Event()
        self.complete = asyncio.Event()

    @asynccontextmanager
    async def member(self, name: str, nameserver: str) -> AsyncGenerator[None]:
        """Be a member of the group."""
        self._seen[name] = set()
        settings = PushConsumerSettings(consume_from=ConsumeFrom.FIRST, batch_messages=32)
        consumer = PushConsumer(GROUP, nameserver=nameserver, settings=settings)
        consumer.subscribe(TOPIC, "*", partial(self._take, name))
        consumer.on_queues_changed(partial(self._note_queues, name))
        async with consumer:
            yield

    async def wait_until_shared(self) -> None:
        """Wait until each member has its half of the queues, and print who owns which."""
        await self._shared.wait()
        for name, queues in self._queues.items():
            print(f"{name} owns queues {', '.join(map(str, queues))}")

    def print_counts(self) -> None:
        """Print how the members have shared the messages."""
        first, second = self._seen.values()
        counts = " and ".join(f"{name} got {len(seen):,}" for name, seen in self._seen.items())
        print(f"{counts} of {self._messages:,} messages")
        print(f"nobody got {self._messages - len(first | second)}, both got {len(first & second)}")

    def _note_queues(self, name: str, queues: tuple[MessageQueue, ...]) -> None:
        self._queues[name] = [queue.queue_id for queue in queues]
        if [len(owned) for owned in self._queues.values()] == [QUEUES // 2] * 2:
            self._shared.set()

    async def _take(self, name: str, messages: list[ReceivedMessage]) -> None:
        new = {message.body for message in messages}.difference(*self._seen.values())
        self._seen[name].update(message.body for message in messages)
        self._progress.count("consumed", len(new))
        if self._progress.done("consumed") == self._messages:
            self.complete.set()


def export_and_prove(store: pathlib.Path, target: pathlib.Path) -> None:
    """Write the log to Parquet with Spark, and hold the rows against the log."""
    started = time.monotonic()
    with spark_session() as spark:
        spark.read.format("rocketmq").load(str(store)).write.parquet(str(target))
        print(f"\nexported by Spark in {time.monotonic() - started:.1f} s; the first rows of {target}:")
        spark.read.parquet(str(target)).createOrReplaceTempView("messages")
        spark.sql(SAMPLE).show(truncate=False)
        counts = spark.sql(COUNTS).collect()
    print(f"{'topic':<12} queue {'rows':>8}  queue offsets")
    for row in counts:
        print(f"{row.topic:<12} {row.queueId:>5} {row.rows:>8}  {row.offsets} from {row.first} to {row.last}")
    prove(store, {(row.topic, row.queueId): row.rows for row in counts}, sum(row.wrong for row in counts))


def prove(store: pathlib.Path, per_queue: dict[tuple[str, int], int], wrong_bodies: int) -> None:
    """Print the counts of the log beside those of the table, and end with an error when they differ."""
    report = count_stores([str(store)], Selection())
    tally = report.of_store(str(store))
    left_out = ", ".join(f"{count} {reason.label}" for reason, count in tally.left_out.items()) or "none"
    rows = sum(per_queue.values())
    print(f"\nrecords in the log: {tally.records}; rows in Parquet: {rows}; left out by reason: {left_out}")
    print(f"rows whose body does not have the checksum of its record: {wrong_bodies}")
    faults = [*report.faults(), *(["a body has another checksum"] if wrong_bodies else [])]
    if per_queue != {key: queue.rows for key, queue in tally.queues.items() if queue.rows}:
        faults.append("log and table differ in the rows of a queue")
    if tally.messages != rows + sum(tally.left_out.values()):
        faults.append("records are not rows and records left out")
    if faults:
        sys.exit(f"proof fails: {'; '.join(faults)}")
    print("proof holds: records = rows + left out, every queue offset is there once, all body checksums are right")


if __name__ == "__main__":
    demo()
