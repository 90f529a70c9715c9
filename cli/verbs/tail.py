"""``rocketlet message tail``: follows a topic and writes what comes, until it is told to end.

It ends with exit code 0 at ``--until`` or ``--count``, with SIGINT or SIGTERM, and when nobody reads its output any
more: a pipe whose reader has gone is noticed at once, not with the next message.
"""

import sys
from functools import partial
from typing import TYPE_CHECKING, Unpack

import click

from . import arguments
from .arguments import PositionText, QueueName, find_queue
from .connecting import TOPIC, ClusterFlags, cluster_options, run
from .following import telling_troubles, until_stopped

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
    with telling_troubles():
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
    from ...common.subscriptions.subscription import ALL

    if flags["sql"] is None:
        return " || ".join(flags["tags"]) or ALL
    try:
        return Sql(flags["sql"])
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--sql") from error


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
    with until_stopped(watches_output=True):
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
