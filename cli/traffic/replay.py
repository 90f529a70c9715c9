"""``rocketlet replay``: sends the messages of a recording, at the times at which they were stored, faster, or at once.

The file is read twice: first as a whole, so that nothing is sent of one that is damaged, then piece by piece. What a
recording that is still written gets meanwhile is left out.

    queue of the recording       queue that its messages are sent to
    broker                       the one of the same name, else the first stays first, the second second …, all over
                                 again where the topic has fewer brokers
    number                       the same, where that broker has it; else what remains of it by their number

Example: orders has 4 queues at broker-a and 4 at broker-b, the topic it goes to 2 at broker-x. Queues 0 and 2 of both
brokers become queue 0, queues 1 and 3 become queue 1. All messages of one queue stay in their order.

    copied       topic (or its new name), body, flag, tags, keys, properties of the application, sharding key
    new          unique key, times, offset: a copy is a message of its own
    not copied   what servers and clients write for themselves (``common.message.NOT_CARRIED``): a message that was due
                 later was recorded when it was delivered, so it is due at once
"""

import asyncio
import json
import sys
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from ...common.clock import Clock
from ...common.errors import DecodeError, SendRefusedError
from ...common.message import Message, MessageQueue, carried
from ...common.names import client_topic_remark, is_sendable_topic
from ...common.properties import UNIQ_KEY
from ..verbs import arguments
from ..verbs.arguments import format_instant
from ..verbs.connecting import ClusterFlags, CommandFailed, cluster_options, forget_stdout, run
from ..verbs.message import make_producer
from ..verbs.output import body_row, harmless, say, short_body
from ..verbs.progress import show_progress
from .recording import Recorded, RecordedMessage, RecordingReader

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.producer.bulk_sender import BulkSender, OutboundMessage
    from ...client.producer.producer import Producer

GROUP: Final = "rocketlet-replay"
_NAMED_REFUSALS: Final = 5
_NAMED_MOVES: Final = 8


class ReplayFlags(ClusterFlags):
    """The arguments of ``replay``."""

    path: str
    topics: tuple[str, ...]
    renamed: Mapping[str, str]
    speed: float | None
    is_at_once: bool
    is_dry_run: bool


@click.command(short_help="Send the messages of a recording, with its timing or at once.")
@click.argument("path", metavar="FILE", type=click.Path())
@click.option("--topic", "topics", metavar="TOPIC", multiple=True, help="Only this topic of the file; repeatable.")
@click.option(
    "--topic-map",
    "renamed",
    metavar="OLD=NEW",
    multiple=True,
    callback=arguments.topic_map,
    help="Send to another topic.",
)
@click.option(
    "--speed",
    metavar="X",
    type=click.FloatRange(min=0, min_open=True),
    help="10 is ten times as fast as it was, 0.5 half.  [default: 1]",
)
@click.option("--at-once", "is_at_once", is_flag=True, help="Do not wait between messages.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="List what would be sent, and when; needs no cluster.")
@cluster_options
def replay(**flags: Unpack[ReplayFlags]) -> None:
    """Send the messages of a recording again, with the pauses that were between them.

    Each queue keeps its order and, where the topic has as many queues, its number. The messages are new ones: bodies,
    tags, keys and properties of the application are copied; unique keys, delays, transactions and retries are not.
    Nothing is sent of a file that is damaged. Exit code 1 means that, or that a message was refused.
    """
    if flags["is_at_once"] and flags["speed"] is not None:
        raise click.UsageError("--at-once and --speed cannot be used together")
    surveyed = survey(flags["path"])
    targets = choose_topics(flags, surveyed)
    if surveyed.cut_bytes:
        text = f"{flags['path']} is cut in the middle of a message: its last {surveyed.cut_bytes} bytes, from byte "
        click.echo(f"rocketlet: {text}{surveyed.end} on, are left out", err=True)
    if flags["is_dry_run"]:
        _list(flags, surveyed, targets)
        return
    with RecordingReader(flags["path"]) as reader:
        replaying = Replaying(reader, surveyed, targets)
        try:
            run(flags, partial(_replay, flags, replaying))
        finally:
            replaying.tell(as_json=flags["as_json"])
    if replaying.refused:
        raise CommandFailed(f"{replaying.refused} messages were refused")


@dataclass(slots=True)
class Survey:
    """What a recording holds: how many messages of which queues, and where the last whole one ends."""

    messages: int = 0
    end: int = 0
    cut_bytes: int = 0
    queues: dict[str, Counter[MessageQueue]] = field(default_factory=lambda: defaultdict(Counter[MessageQueue]))


def survey(path: str) -> Survey:
    """Read a recording as a whole.

    Raises:
        ConfigError: it cannot be read, or is no recording.
        CommandFailed: it is damaged; the text names the byte.
    """
    found = Survey()
    try:
        with RecordingReader(path) as reader:
            for piece in reader.pieces():
                found.messages += len(piece)
                for recorded in piece:
                    found.queues[recorded.message.topic][queue_of(recorded.message)] += 1
            found.end, found.cut_bytes = reader.end, reader.cut_bytes
    except DecodeError as error:
        raise CommandFailed(f"{error}; nothing was sent, and {found.messages} messages before it are whole") from error
    return found


def queue_of(message: RecordedMessage) -> MessageQueue:
    """Return the queue that a message was recorded from."""
    return MessageQueue(message.topic, message.broker_name, message.queue_id)


def choose_topics(flags: ReplayFlags, surveyed: Survey) -> dict[str, str]:
    """Return which topics of a recording are sent, and under which names.

    Raises:
        UsageError: a topic is named that the recording does not have, or that nobody may send to.
    """
    named = {"--topic": flags["topics"], "--topic-map": tuple(flags["renamed"])}
    for option, topics in named.items():
        for topic in topics:
            if topic not in surveyed.queues:
                known = ", ".join(sorted(surveyed.queues)) or "no message"
                raise click.UsageError(f"{option} {topic}: the recording has {known}")
    chosen = flags["topics"] or tuple(surveyed.queues)
    targets = {topic: flags["renamed"].get(topic, topic) for topic in chosen}
    for topic, target in targets.items():
        if remark := client_topic_remark(target):
            raise click.UsageError(f"--topic-map {topic}={target}: {remark}")
        if not is_sendable_topic(target):
            raise click.UsageError(
                f"topic {target} takes no messages of clients; --topic-map {topic}=NEW sends to another"
            )
    return targets


class Pacing:
    """When each message is due: after the first one as long as it was stored after it, divided by the speed."""

    def __init__(self, speed: float | None, clock: Clock) -> None:
        self._speed = speed
        self._clock = clock
        self._first_ms: int | None = None
        self._begun_ms = 0

    def __repr__(self) -> str:
        return f"<Pacing {'at once' if self._speed is None else f'speed {self._speed:g}'}>"

    def after_ms(self, stored_at_ms: int) -> int:
        """Return how long after the first message one is due; the first one that is asked for is that."""
        if self._first_ms is None:
            self._first_ms, self._begun_ms = stored_at_ms, self._clock.monotonic_ms()
        return 0 if self._speed is None else max(0, round((stored_at_ms - self._first_ms) / self._speed))

    def left_ms(self, stored_at_ms: int) -> int:
        """Return how long a message is to wait still, 0 if it is due or late."""
        after_ms = self.after_ms(stored_at_ms)
        return max(0, self._begun_ms + after_ms - self._clock.monotonic_ms())

    async def due(self, pieces: AsyncGenerator[Sequence[Recorded]]) -> AsyncGenerator[list[Recorded]]:
        """Yield messages as they get due, those of one moment together."""
        async for piece in pieces:
            ready: list[Recorded] = []
            for recorded in piece:
                left_ms = self.left_ms(recorded.message.store_timestamp)
                if left_ms:
                    if ready:
                        yield ready
                        ready = []
                    await self._clock.sleep(left_ms)
                ready.append(recorded)
            if ready:
                yield ready


def _pacing(flags: ReplayFlags) -> Pacing:
    from ...remoting.transport.event_loop import LoopClock

    return Pacing(None if flags["is_at_once"] else flags["speed"] or 1, LoopClock())


def copy_of(message: RecordedMessage, topic: str) -> Message:
    """Return a message to send that is like one that was recorded."""
    properties = carried(message.properties)
    properties.pop(UNIQ_KEY, None)
    return Message(topic, message.body, tags=message.tags, keys=message.keys, properties=properties, flag=message.flag)


def match_queues(sources: Iterable[MessageQueue], targets: Sequence[MessageQueue]) -> dict[MessageQueue, MessageQueue]:
    """Return where the messages of each queue of a topic go."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for queue in sorted(targets):
        numbers[queue.broker_name].append(queue.queue_id)
    brokers, ordered = list(numbers), sorted(sources)
    recorded = sorted({queue.broker_name for queue in ordered})
    matched: dict[MessageQueue, MessageQueue] = {}
    for queue in ordered:
        name = queue.broker_name
        broker = name if name in numbers else brokers[recorded.index(name) % len(brokers)]
        known = numbers[broker]
        number = queue.queue_id if queue.queue_id in known else known[queue.queue_id % len(known)]
        matched[queue] = MessageQueue(targets[0].topic, broker, number)
    return matched


def describe_moves(matched: Mapping[MessageQueue, MessageQueue]) -> str:
    """Return which numbers change, nothing if none does."""
    moved = sorted({(old.queue_id, new.queue_id) for old, new in matched.items() if old.queue_id != new.queue_id})
    if not moved:
        return ""
    named = ", ".join(f"{old} becomes {new}" for old, new in moved[:_NAMED_MOVES])
    return f"{named}{', …' if len(moved) > _NAMED_MOVES else ''}"


async def _replay(flags: ReplayFlags, replaying: "Replaying", _admin: "Admin") -> None:
    from ...client.producer.bulk_sender import BulkSender

    async with make_producer(flags, GROUP) as producer:
        await replaying.plan(producer)
        async with BulkSender(producer, on_refused=replaying.refuse) as sender:
            await replaying.run(sender, _pacing(flags))


class Replaying:
    """One run: sends what is due, each message to the queue that was planned for it."""

    def __init__(self, reader: RecordingReader, surveyed: Survey, targets: Mapping[str, str]) -> None:
        self.refused = 0
        self._reader = reader
        self._survey = surveyed
        self._targets = targets
        self._queues: dict[MessageQueue, MessageQueue] = {}
        self._sender: BulkSender | None = None

    async def plan(self, producer: "Producer") -> None:
        """Find where the messages of each queue go, and say which cannot keep their number.

        Raises:
            RouteNotFoundError: no broker takes a topic.
        """
        for topic, target in self._targets.items():
            found = await producer.fetch_queues(target)
            matched = match_queues(self._survey.queues[topic], found)
            self._queues |= matched
            if moves := describe_moves(matched):
                brokers = {queue.broker_name for queue in found}
                has = f"topic {target} has {len(found)} queues at {', '.join(sorted(brokers))}"
                click.echo(f"rocketlet: {has}: of the recording's {topic}, queue {moves}", err=True)

    async def run(self, sender: "BulkSender", pacing: Pacing) -> None:
        """Send everything and wait until it is stored (raises what ``BulkSender.put`` does)."""
        self._sender = sender
        with show_progress(self._survey.end, "replaying", "replayed") as advance:
            position = 0
            async with aclosing(self._pieces()) as pieces, aclosing(pacing.due(pieces)) as moments:
                async for due in moments:
                    await sender.put([self._outbound_of(recorded) for recorded in due])
                    advance(due[-1].end - position)
                    position = due[-1].end
            await sender.drain()
            advance(self._survey.end - position)

    def refuse(self, refusal: SendRefusedError) -> None:
        """Name a message that was refused, if it is one of the first."""
        self.refused += 1
        if self.refused <= _NAMED_REFUSALS:
            click.echo(f"rocketlet: {refusal}", err=True)

    def tell(self, *, as_json: bool) -> None:
        """Print how many messages were sent; nothing if none could be."""
        if self._sender is None:
            return
        sent = self._sender.stored
        chosen = sum(self._survey.queues[topic].total() for topic in self._targets)
        path = self._reader.path
        text = f"{path}: {sent} of {chosen} messages sent"
        try:
            say(text, as_json=as_json, file=path, messages=chosen, sent=sent, refused=self.refused)
        except BrokenPipeError:
            forget_stdout()

    async def _pieces(self) -> AsyncGenerator[Sequence[Recorded]]:
        """Yield what is to be sent of each piece of the file, which is read in a thread."""
        pieces = self._reader.pieces(self._survey.end)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield [recorded for recorded in piece if recorded.message.topic in self._targets]

    def _outbound_of(self, recorded: Recorded) -> "OutboundMessage":
        from ...client.producer.bulk_sender import OutboundMessage

        message, number = recorded.message, recorded.number
        copy = copy_of(message, self._targets[message.topic])
        return OutboundMessage(copy, number, queue=self._queues[queue_of(message)])


def _list(flags: ReplayFlags, surveyed: Survey, targets: Mapping[str, str]) -> None:
    """Print each message, and when it would be sent."""
    pacing, write = _pacing(flags), _write_json if flags["as_json"] else _write_line
    try:
        with RecordingReader(flags["path"]) as reader:
            for piece in reader.pieces(surveyed.end):
                for recorded in piece:
                    message = recorded.message
                    if message.topic in targets:
                        after_ms = pacing.after_ms(message.store_timestamp)
                        write(message, targets[message.topic], after_ms)
        sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()


def _write_line(message: RecordedMessage, target: str, after_ms: int) -> None:
    place = f"{message.broker_name}:{message.queue_id}@{message.queue_offset}"
    words = [f"+{after_ms / 1000:.3f}s", target, place, *([f"[{message.tags}]"] if message.tags else ()), *message.keys]
    click.echo(" ".join([*(harmless(word, keeps="") for word in words), short_body(message.body)]))


def _write_json(message: RecordedMessage, target: str, after_ms: int) -> None:
    row: dict[str, object] = {
        "after_ms": after_ms,
        "target": target,
        "topic": message.topic,
        "broker": message.broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": message.properties,
        "born_at": format_instant(message.born_timestamp),
        "stored_at": format_instant(message.store_timestamp),
        "flag": message.flag,
        **body_row(message.body),
    }
    click.echo(json.dumps(row, ensure_ascii=False))
