"""``rocketlet message tail``: follows a topic and writes what comes, until it is told to end.

It ends with exit code 0 at ``--until`` or ``--count``, with SIGINT or SIGTERM, and when nobody reads its output any
more: a pipe whose reader has gone is noticed at once, not with the next message.
"""

import logging
import os
import signal
import stat
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import click

from . import arguments
from .arguments import PositionText, QueueName, find_queue
from .connecting import TOPIC, ClusterFlags, cluster_options, run

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.topic_tail import TopicTail
    from ...client.group.subscriptions import Sql
    from .message_format import Writer


class TailFlags(ClusterFlags):
    """The arguments of ``message tail``."""

    topic: str
    starting: PositionText
    ending: PositionText | None
    count: int | None
    queues: tuple[QueueName, ...]
    tags: tuple[str, ...]
    sql: str | None
    template: str | None


def _parse_ending(ctx: click.Context, param: click.Parameter, text: str | None) -> PositionText | None:
    ending = arguments.position(ctx, param, text)
    if ending is not None and ending.kind == "begin":
        raise click.BadParameter("nothing comes until the beginning", param=param)
    return ending


@click.command()
@TOPIC
@click.option(
    "--from",
    "starting",
    metavar="POSITION",
    callback=arguments.position,
    default="end",
    help="begin, end, an offset, or a time.  [default: end]",
)
@click.option("--until", "ending", metavar="POSITION", callback=_parse_ending, help="Where to end.")
@click.option("--count", metavar="N", type=click.IntRange(min=1), help="End after so many messages.")
@click.option(
    "--queue",
    "queues",
    metavar="[BROKER:]N",
    multiple=True,
    callback=arguments.queues,
    help="Only this one; repeatable.",
)
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only messages with this tag; repeatable.")
@click.option("--sql", metavar="CONDITION", help="Only messages whose properties fulfil it.")
@click.option("--format", "template", metavar="TEXT", help=r"Such as '{offset} {keys} {body}\n'.")
@cluster_options
def tail(**flags: Unpack[TailFlags]) -> None:
    """Follow a topic: print what it has from a position on, then what comes.

    Messages of one queue come in their order. No group is used and nothing is committed.
    """
    if flags["tags"] and flags["sql"]:
        raise click.UsageError("--tag and --sql cannot be used together")
    if flags["template"] is not None and flags["as_json"]:
        raise click.UsageError("--format and --json cannot be used together")
    writer, expression = _writer(flags), _expression(flags)
    with _telling_troubles():
        run(flags, partial(_tail, flags, writer, expression))


def _writer(flags: TailFlags) -> "Writer":
    from .message_format import parse_format, write_json, write_readable

    if flags["template"] is None:
        return write_json if flags["as_json"] else write_readable
    try:
        return parse_format(flags["template"])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error


def _expression(flags: TailFlags) -> "str | Sql":
    from ...client.group.subscriptions import Sql
    from ...common.subscription import ALL

    if flags["sql"] is None:
        return " || ".join(flags["tags"]) or ALL
    try:
        return Sql(flags["sql"])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--sql") from error


@contextmanager
def _telling_troubles() -> Generator[None]:
    """Have what the following meets and goes on after printed to stderr."""
    from ...client.admin import topic_tail

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("rocketlet: %(message)s"))
    log = logging.getLogger(topic_tail.__name__)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


async def _tail(flags: TailFlags, writer: "Writer", expression: "str | Sql", admin: "Admin") -> None:
    topic, ending = flags["topic"], flags["ending"]
    queues = [await find_queue(admin, topic, name) for name in flags["queues"]]
    following = admin.follow(
        topic,
        start=flags["starting"].position(),
        until=ending and ending.position(),
        expression=expression,
        queues=queues or None,
    )
    with _until_stopped():
        async with following as messages:
            await _write_all(messages, writer, flags["count"])


async def _write_all(messages: "TopicTail", writer: "Writer", count: int | None) -> None:
    written = 0
    out = sys.stdout.buffer
    async for message in messages:
        out.write(writer(message))
        out.flush()
        written += 1
        if written == count:
            return


@contextmanager
def _until_stopped() -> Generator[None]:
    """Let the block end quietly when the process shall stop, or nobody reads its output any more."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None, "this runs in one"
    was_told: list[bool] = []

    def stop(*_: Any) -> None:
        if not was_told:
            was_told.append(True)
            task.cancel()

    with _listening(stop):
        try:
            yield
        except asyncio.CancelledError:
            if not was_told or task.uncancel():
                raise


@contextmanager
def _listening(stop: Callable[[], None]) -> Generator[None]:
    import asyncio

    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)
    output = _pipe_of_stdout()
    with suppress(RuntimeError, ValueError):  # not in the main thread of its program
        for number in numbers:
            loop.add_signal_handler(number, stop)
    if output is not None:
        loop.add_reader(output, stop)  # a pipe that is written to gets readable when its reader has gone
    try:
        yield
    finally:
        if output is not None:
            loop.remove_reader(output)
        for number in numbers:
            loop.remove_signal_handler(number)


def _pipe_of_stdout() -> int | None:
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        return None
    return descriptor if stat.S_ISFIFO(mode) else None
