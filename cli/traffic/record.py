"""``rocketlet record``: writes the messages of topics to a file as they come, or from an earlier place on.

    stage     messages                                              order
    history   from the place where each queue is begun, up to       by store time over all queues: of each queue the
              where it ended when the recording began               next message is known, the earliest is taken
    live      what has come since                                   as they arrive

A recording from now on has no history, one until the end of the topics nothing else. In both stages the messages of one
queue come in their order, none twice, and none is left out; queues that a topic gets meanwhile are recorded, too.
"""

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from ...common.errors import RocketletError
from ..verbs import arguments
from ..verbs.arguments import PositionText
from ..verbs.connecting import ClusterFlags, cluster_options, complete_topics, forget_stdout, run
from ..verbs.following import telling_troubles, until_stopped
from ..verbs.output import say

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.topic_tail import Position, TopicTail
    from ...common.message import MessageQueue, ReceivedMessage
    from .recording import RecordingWriter


class RecordFlags(ClusterFlags):
    """The arguments of ``record``."""

    topics: tuple[str, ...]
    to: str
    overwrites: bool
    starting: PositionText
    ending: PositionText | None
    count: int | None


def _parse_place(ctx: click.Context, param: click.Parameter, text: str | None) -> PositionText | None:
    place = arguments.position(ctx, param, text)
    if place is not None and place.kind == "offset":
        raise click.BadParameter("an offset says nothing of several queues: begin, end or a time", param=param)
    if place is not None and place.kind == "begin" and param.name == "ending":
        raise click.BadParameter("nothing comes until the beginning", param=param)
    return place


@click.command(short_help="Write the messages of topics to a file as they come.")
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--to", metavar="FILE", required=True, help="File to write.")
@click.option("--overwrite", "overwrites", is_flag=True, help="Replace the file if it exists.")
@click.option(
    "--from",
    "starting",
    metavar="POSITION",
    callback=_parse_place,
    default="end",
    help="begin, end (from now on), or a time.  [default: end]",
)
@click.option("--until", "ending", metavar="POSITION", callback=_parse_place, help="Where to end: end, or a time.")
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="End after so many messages.")
@cluster_options
def record(**flags: Unpack[RecordFlags]) -> None:
    """Write the messages of topics to a file, with the times at which they were stored.

    It ends at --until or --count, or with Ctrl-C. No group is used and nothing is committed. "rocketlet replay" plays
    the file back; one that was cut short by a kill holds all messages but the last.
    """
    if (flags["starting"].kind, flags["ending"] and flags["ending"].kind) == ("end", "end"):
        raise click.UsageError("--until end needs --from begin or a time: nothing comes between the end and the end")
    recording = Recording(flags)
    try:
        with telling_troubles():
            run(flags, partial(_record, recording))
    finally:
        recording.end(as_json=flags["as_json"])


async def _record(recording: "Recording", admin: "Admin") -> None:
    with until_stopped(watches_output=False):
        await recording.run(admin)


class Recording:
    """One run: follows the topics and writes what comes."""

    def __init__(self, flags: RecordFlags) -> None:
        self._path = flags["to"]
        self._overwrites = flags["overwrites"]
        self._topics = tuple(dict.fromkeys(flags["topics"]))
        self._start = flags["starting"]
        self._until = flags["ending"]
        self._count = flags["count"]
        self._writer: RecordingWriter | None = None
        self._counts: Counter[str] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether there are as many messages as were asked for."""
        return self._writer is not None and self._writer.messages == self._count

    async def run(self, admin: "Admin") -> None:
        """Record until the end.

        Raises:
            RouteNotFoundError: there is no such topic.
            ResponseError: a broker refused to be read.
            ConfigError, StoreError: as ``RecordingWriter``.
        """
        if self._start.kind == "end":
            await self._record_live(admin, {topic: self._start.position() for topic in self._topics})
            return
        ends = {topic: await _find_ends(admin, topic) for topic in self._topics}
        await self._record_history(admin, ends)
        if not self.is_full and (self._until is None or self._until.kind == "time"):
            await self._record_live(admin, ends)

    def end(self, *, as_json: bool) -> None:
        """Bring what was recorded to disk, and print what it is; nothing if the file was not begun."""
        if self._writer is None:
            return
        self._writer.close()
        messages, size = self._writer.messages, self._writer.size_bytes
        topics = "1 topic" if len(self._topics) == 1 else f"{len(self._topics)} topics"
        text = f"{self._path}: {messages} messages of {topics}, {size} bytes"
        by_topic = {topic: self._counts[topic] for topic in self._topics}
        try:
            say(text, as_json=as_json, file=self._path, messages=messages, bytes=size, topics=by_topic)
        except BrokenPipeError:
            forget_stdout()

    def _begin(self) -> None:
        """Make the file, once it is known that there is something to follow; say that nothing is missed from now on."""
        if self._writer is None:
            from ...remoting.transport.event_loop import LoopClock
            from .recording import RecordingHead, RecordingWriter

            head = RecordingHead(LoopClock().now_ms(), self._topics)
            self._writer = RecordingWriter(self._path, head, overwrites=self._overwrites)
            end = "" if self._until is not None or self._count is not None else ", Ctrl-C ends"
            click.echo(f"rocketlet: recording {', '.join(self._topics)} to {self._path}{end}", err=True)

    def _add(self, message: "ReceivedMessage") -> None:
        assert self._writer is not None, "it was begun"
        self._writer.add(message)
        self._counts[message.queue.topic] += 1

    async def _record_history(self, admin: "Admin", ends: "Mapping[str, Mapping[MessageQueue, int]]") -> None:
        from ...client.admin.topic_tail import Position

        until_ms = self._until.value if self._until is not None and self._until.kind == "time" else None
        async with AsyncExitStack() as stack:
            tails: list[TopicTail] = []
            for topic, queue_ends in ends.items():
                for queue, end in queue_ends.items():
                    tail = admin.follow(topic, start=self._start.position(), until=Position.offset(end), queues=[queue])
                    tails.append(await stack.enter_async_context(tail))
            self._begin()
            async with aclosing(merge(tails, until_ms)) as merged:
                async for message in merged:
                    self._add(message)
                    if self.is_full:
                        return

    async def _record_live(self, admin: "Admin", starts: "Mapping[str, Position | Mapping[MessageQueue, int]]") -> None:
        from ...remoting.transport.event_loop import TaskScope

        async with AsyncExitStack() as stack:
            until = self._until and self._until.position()
            tails = [
                await stack.enter_async_context(admin.follow(topic, start=start, until=until))
                for topic, start in starts.items()
            ]
            self._begin()
            tasks = await stack.enter_async_context(TaskScope())
            running = Running(len(tails), asyncio.get_running_loop().create_future())
            for tail in tails:
                tasks.start(self._take(tail, running), name="record")
            await running.ended

    async def _take(self, tail: "TopicTail", running: "Running") -> None:
        try:
            async for message in tail:
                if self.is_full:
                    break
                self._add(message)
                if self.is_full:
                    running.end()
        except RocketletError as error:
            running.end(error)
        else:
            running.left -= 1
            if not running.left:
                running.end()


class Running:
    """The topics that are still followed; ``ended`` once none is left, there is enough, or one has failed."""

    def __init__(self, left: int, ended: asyncio.Future[None]) -> None:
        self.left = left
        self.ended = ended

    def __repr__(self) -> str:
        return f"<Running {self.left} topics>"

    def end(self, error: RocketletError | None = None) -> None:
        """Have nobody wait any longer."""
        if not self.ended.done():
            if error is None:
                self.ended.set_result(None)
            else:
                self.ended.set_exception(error)


async def _find_ends(admin: "Admin", topic: str) -> "dict[MessageQueue, int]":
    return {queue: end for queue, (_, end) in (await admin.offsets(topic)).items()}


async def merge(tails: "Sequence[TopicTail]", until_ms: int | None = None) -> "AsyncGenerator[ReceivedMessage]":
    """Yield the messages of tails that have an end, each in its order, by store time; a tail ends at ``until_ms``.

    Example: a queue with messages of 1 s and 5 s and one with 2 s and 3 s are read as 1, 2, 3, 5.
    """
    waiting: list[tuple[int, int, ReceivedMessage]] = []

    async def advance(number: int) -> None:
        message = await anext(tails[number], None)
        if message is not None and (until_ms is None or message.stored_at_ms < until_ms):
            heapq.heappush(waiting, (message.stored_at_ms, number, message))

    for number in range(len(tails)):
        await advance(number)
    while waiting:
        _, number, message = heapq.heappop(waiting)
        yield message
        await advance(number)
