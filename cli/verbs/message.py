"""``rocketlet message``: find, show, send and follow messages."""

import pathlib
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from . import arguments
from .arguments import QueueName, find_queue, split_pairs
from .connecting import TOPIC, ClusterFlags, CommandFailed, client_settings, cluster_options, complete_topics, run
from .output import show_message, show_messages, show_rows
from .tail import tail

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.producer.producer import Producer
    from ...client.session.results import SendResult
    from ...common.message import Message, ReceivedMessage

GROUP: Final = "rocketlet-send"
_MOST: Final = 64
SENT_COLUMNS: Final = ("topic", "broker", "queue", "offset", "message_id", "status")


class PlaceFlags(ClusterFlags):
    """Which messages of a topic."""

    topic: str
    queue: QueueName | None
    offset: int | None


class ShowFlags(PlaceFlags):
    """The arguments of ``message show``."""

    message_id: str | None


class QueryFlags(PlaceFlags):
    """The arguments of ``message query``."""

    key: str | None
    message_id: str | None
    starting: int | None
    ending: int | None
    limit: int


class ContentFlags(TypedDict):
    """What each message that is sent has."""

    tag: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    delay_level: int | None
    delay_s: float | None
    due_at_ms: int | None


class SendFlags(ClusterFlags, ContentFlags):
    """The arguments of ``message send``."""

    topic: str
    body: str | None
    files: tuple[str, ...]
    queue: QueueName | None
    group: str


class ResendFlags(ClusterFlags):
    """The arguments of ``message resend``."""

    topic: str
    message_ids: tuple[str, ...]
    target: str | None


_QUEUE: Final = click.option("--queue", metavar="[BROKER:]N", callback=arguments.queue, help="Queue, with --offset.")
_OFFSET: Final = click.option("--offset", metavar="N", type=click.IntRange(min=0), help="Its offset in that queue.")


@click.group
def message() -> None:
    """Find, show, send and follow messages."""


message.add_command(tail)


def _check_place(flags: PlaceFlags) -> None:
    if (flags["queue"] is None) != (flags["offset"] is None):
        raise click.UsageError("--queue and --offset need each other")


async def _find_at(flags: PlaceFlags, admin: "Admin", offset: int) -> "ReceivedMessage | None":
    assert flags["queue"] is not None, "it was checked"
    return await admin.message_at(await find_queue(admin, flags["topic"], flags["queue"]), offset)


@message.command()
@TOPIC
@click.argument("message_id", metavar="[ID]", required=False)
@_QUEUE
@_OFFSET
@cluster_options
def show(**flags: Unpack[ShowFlags]) -> None:
    """Show a message with its properties and its body.

    ID is the unique key that the producer gave it, or the offset id that names its place in a broker's log.
    """
    _check_place(flags)
    if (flags["message_id"] is None) == (flags["queue"] is None):
        raise click.UsageError("either ID, or --queue and --offset are needed")
    run(flags, partial(_show, flags))


async def _show(flags: ShowFlags, admin: "Admin") -> None:
    topic, message_id, offset = flags["topic"], flags["message_id"], flags["offset"]
    if message_id is not None:
        found = await admin.message(topic, message_id)
        what = f"no message {message_id}"
    else:
        assert offset is not None, "it was checked"
        found = await _find_at(flags, admin, offset)
        what = f"no message at offset {offset}"
    if found is None:
        raise CommandFailed(f"topic {topic} has {what}")
    show_message(found, as_json=flags["as_json"])


@message.command()
@TOPIC
@click.option("--key", metavar="KEY", help="Messages that were sent with this key.")
@click.option("--id", "message_id", metavar="ID", help="The message with this unique key or offset id.")
@_QUEUE
@_OFFSET
@click.option("--from", "starting", metavar="TIME", callback=arguments.instant, help="Stored at this time or later.")
@click.option("--until", "ending", metavar="TIME", callback=arguments.instant, help="Stored before this time.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 100_000), default=_MOST, help=f"At most.  [default: {_MOST}]"
)
@cluster_options
def query(**flags: Unpack[QueryFlags]) -> None:
    """List messages by key, by id, by place, or by the time they were stored; none is exit code 1.

    With --queue and --offset, the messages of the queue from the offset on.
    """
    _check_place(flags)
    ways = [flags["key"], flags["message_id"], flags["queue"]]
    times = flags["starting"] is not None or flags["ending"] is not None
    given = sum(way is not None for way in ways)
    if given > 1 or (given == 0 and not times):
        raise click.UsageError("one of --key, --id, --queue with --offset, and --from or --until is needed")
    if times and given and flags["key"] is None:
        raise click.UsageError("--from and --until go alone or with --key")
    run(flags, partial(_query, flags))


async def _query(flags: QueryFlags, admin: "Admin") -> None:
    found = await _find(flags, admin)
    if not found:
        raise CommandFailed(f"topic {flags['topic']} has no such message")
    show_messages(found, as_json=flags["as_json"])


async def _find(flags: QueryFlags, admin: "Admin") -> "list[ReceivedMessage]":
    from ...client.admin.stored_messages import MAX_MS

    topic, limit, key, offset = flags["topic"], flags["limit"], flags["key"], flags["offset"]
    begin_ms, end_ms = flags["starting"] or 0, MAX_MS if flags["ending"] is None else flags["ending"]
    if flags["message_id"] is not None:
        one = await admin.message(topic, flags["message_id"])
        return [] if one is None else [one]
    if key is not None:
        return await admin.messages_by_key(topic, key, max_messages=limit, begin_ms=begin_ms, end_ms=end_ms)
    found: list[ReceivedMessage] = []
    if offset is not None:
        while len(found) < limit and (one := await _find_at(flags, admin, offset + len(found))) is not None:
            found.append(one)
        return found
    async for each in admin.messages(topic, begin_ms=begin_ms, end_ms=end_ms):
        found.append(each)
        if len(found) >= limit:
            break
    return sorted(found, key=lambda each: (each.stored_at_ms, each.queue, each.queue_offset))


@message.command()
@TOPIC
@click.argument("body", required=False)
@click.option("--file", "files", metavar="PATH", multiple=True, help="Send this file as a message; repeatable.")
@click.option("--tag", metavar="TAG", help="Tag.")
@click.option("--key", "keys", metavar="KEY", multiple=True, help="Key to find it by; repeatable.")
@click.option(
    "--property",
    "properties",
    metavar="NAME=VALUE",
    multiple=True,
    callback=split_pairs,
    help="Property of the application; repeatable.",
)
@click.option("--delay-level", metavar="N", type=click.IntRange(1, 18), help="Deliver it after this level's time.")
@click.option("--delay", "delay_s", metavar="S", type=click.FloatRange(min=0), help="Deliver it after seconds (5.x).")
@click.option("--at", "due_at_ms", metavar="TIME", callback=arguments.instant, help="Deliver it at this time (5.x).")
@click.option(
    "--queue", metavar="[BROKER:]N", callback=arguments.queue, help="Send it to this queue.  [default: one by one]"
)
@click.option("--group", metavar="NAME", default=GROUP, help=f"Producer group.  [default: {GROUP}]")
@cluster_options
def send(**flags: Unpack[SendFlags]) -> None:
    """Send BODY, files, or each line of standard input as a message.

    They are sent one after the other; what was sent when one is refused stays sent, and the error says which it was.
    """
    if flags["body"] is not None and flags["files"]:
        raise click.UsageError("BODY and --file cannot be used together")
    late = [flags["delay_level"], flags["delay_s"], flags["due_at_ms"]]
    if sum(each is not None for each in late) > 1:
        raise click.UsageError("one of --delay-level, --delay and --at")
    for path in flags["files"]:
        if not pathlib.Path(path).is_file():
            raise click.BadParameter(f"{path} is no file", param_hint="--file")
    run(flags, partial(_send, flags))


async def _send(flags: SendFlags, admin: "Admin") -> None:
    from ...common.errors import RocketletError

    topic = flags["topic"]
    queue = None if flags["queue"] is None else await find_queue(admin, topic, flags["queue"])
    results: list[SendResult] = []
    async with make_producer(flags, flags["group"]) as producer:
        async for name, body in _bodies(flags):
            try:
                results.append(await producer.send(_message(flags, body), queue=queue))
            except (RocketletError, TypeError, ValueError) as error:
                error.args = (f"{name}, after {len(results)} were sent: {error}",)
                raise
    show_rows(SENT_COLUMNS, [sent_row(result) for result in results], as_json=flags["as_json"])


async def _bodies(flags: SendFlags) -> AsyncIterator[tuple[str, bytes]]:
    """Yield each body, and what it is called in an error."""
    import asyncio

    from .lines import read_lines

    if flags["body"] is not None:
        yield "the message", flags["body"].encode(errors="surrogateescape")
        return
    if flags["files"]:
        for path in flags["files"]:
            yield f"file {path}", await asyncio.to_thread(pathlib.Path(path).read_bytes)
        return
    number = 0
    async for line in read_lines(sys.stdin.fileno()):
        number += 1
        yield f"line {number}", line


def _message(flags: SendFlags, body: bytes) -> "Message":
    from ...common.message import Message

    return Message(
        flags["topic"],
        body,
        tags=flags["tag"],
        keys=flags["keys"],
        properties=flags["properties"],
        delay_level=flags["delay_level"] or 0,
        delay_ms=None if flags["delay_s"] is None else int(1000 * flags["delay_s"]),
        deliver_at_ms=flags["due_at_ms"],
    )


def make_producer(flags: ClusterFlags, group: str) -> "Producer":
    """Return a producer at the same cluster."""
    from ...client.producer.producer import Producer
    from ...client.session.settings import ProducerSettings

    shared = client_settings(flags)
    settings = ProducerSettings(
        credentials=shared.credentials,
        tls=shared.tls,
        namespace=shared.namespace,
        send_timeout_ms=max(1, int(1000 * flags["timeout_s"])),
    )
    return Producer(group, flags["namesrv"], settings=settings)


def sent_row(result: "SendResult") -> dict[str, object]:
    """Return where a message was stored."""
    return {
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
        "status": result.status.name,
    }


@message.command()
@TOPIC
@click.argument("message_ids", metavar="ID...", nargs=-1, required=True)
@click.option("--to", "target", metavar="TOPIC", shell_complete=complete_topics, help="Another topic.")
@cluster_options
def resend(**flags: Unpack[ResendFlags]) -> None:
    """Send copies of messages, by their ids, to their topic or to another.

    A copy has body, tag, keys, properties and unique key of the message. All are looked up before the first is sent.
    """
    run(flags, partial(_resend, flags))


async def _resend(flags: ResendFlags, admin: "Admin") -> None:
    from ...common.message import replayed

    topic = flags["topic"]
    found: list[ReceivedMessage] = []
    for message_id in flags["message_ids"]:
        one = await admin.message(topic, message_id)
        if one is None:
            raise CommandFailed(f"topic {topic} has no message {message_id}; nothing was sent")
        found.append(one)
    async with make_producer(flags, GROUP) as producer:
        copies = [replayed(flags["target"] or topic, each.body, each.properties, each.flag) for each in found]
        rows = [sent_row(await producer.send(copy)) for copy in copies]
    show_rows(SENT_COLUMNS, rows, as_json=flags["as_json"])
