"""``rocketlet dlq``: dead letters, the messages that a group has not consumed after all retries.

    list      how many each group has
    show      those of a group, the newest last, with the topic they came from
    resend    copies, to the group's retry topic: only this group gets them again; or to a topic, for all groups

A dead letter stays where it is after a resend, until the log expires.
"""

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from ...common.names import DLQ_PREFIX, dlq_topic
from ...common.properties import DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, ORIGIN_MESSAGE_ID, RETRY_TOPIC
from .arguments import format_instant
from .connecting import GROUP, ClusterFlags, CommandFailed, cluster_options, complete_topics, run
from .message import SENT_COLUMNS, sent_row
from .output import message_row, short_body, show_rows

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...common.message import ReceivedMessage

_SHOWN: Final = ("message_id", "origin_topic", "origin_message_id", "stored_at", "tags", "keys", "text")
_MOST: Final = 64


class ShowFlags(ClusterFlags):
    """The arguments of ``dlq show``."""

    group: str
    limit: int


class ResendFlags(ClusterFlags):
    """The arguments of ``dlq resend``."""

    group: str
    message_ids: tuple[str, ...]
    takes_all: bool
    target: str | None


@click.group
def dlq() -> None:
    """Show dead letters, and have them consumed again."""


@dlq.command("list")
@cluster_options
def list_groups(**flags: Unpack[ClusterFlags]) -> None:
    """List the groups that have dead letters."""
    run(flags, partial(_list, flags))


async def _list(flags: ClusterFlags, admin: "Admin") -> None:
    rows: list[dict[str, object]] = []
    for topic in [name for name in await admin.topics() if name.startswith(DLQ_PREFIX)]:
        extents = (await admin.extents(topic)).values()
        count = sum(each.end_offset - each.first_offset for each in extents)
        if count:
            last = format_instant(max(each.last_at_ms for each in extents)) or None
            rows.append({"group": topic.removeprefix(DLQ_PREFIX), "messages": count, "last_stored": last})
    show_rows(("group", "messages", "last_stored"), rows, as_json=flags["as_json"])


@dlq.command()
@GROUP
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, 100_000), default=_MOST, help=f"The newest ones.  [default: {_MOST}]"
)
@cluster_options
def show(**flags: Unpack[ShowFlags]) -> None:
    """List the dead letters of a group, the newest last; none is exit code 1."""
    run(flags, partial(_show, flags))


async def _show(flags: ShowFlags, admin: "Admin") -> None:
    newest: deque[ReceivedMessage] = deque(maxlen=flags["limit"])
    for message in await _dead_letters(admin, flags["group"]):
        newest.append(message)
    rows = [{**message_row(message), **_origin_row(message)} for message in newest]
    if not flags["as_json"]:
        rows = [{**row, "text": short_body(message.body)} for row, message in zip(rows, newest, strict=True)]
    show_rows(_SHOWN, rows, as_json=flags["as_json"])


async def _dead_letters(admin: "Admin", group: str) -> "list[ReceivedMessage]":
    """Return them in order of time.

    Raises:
        CommandFailed: there are none.
    """
    from ...common.errors import RouteNotFoundError

    try:
        found = [message async for message in admin.messages(dlq_topic(group))]
    except RouteNotFoundError:
        found = []
    if not found:
        raise CommandFailed(f"group {group} has no dead letters")
    return sorted(found, key=lambda each: (each.stored_at_ms, each.queue, each.queue_offset))


def _origin_row(message: "ReceivedMessage") -> dict[str, object]:
    properties = message.properties
    return {
        "origin_topic": properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC) or "",
        "origin_message_id": properties.get(DLQ_ORIGIN_MESSAGE_ID) or properties.get(ORIGIN_MESSAGE_ID) or "",
    }


@dlq.command()
@GROUP
@click.argument("message_ids", metavar="[ID]...", nargs=-1)
@click.option("--all", "takes_all", is_flag=True, help="All that the group has.")
@click.option("--to", "target", metavar="TOPIC", shell_complete=complete_topics, help="To a topic, for all its groups.")
@cluster_options
def resend(**flags: Unpack[ResendFlags]) -> None:
    """Send copies of dead letters to the group that did not consume them: those with an ID, or all.

    ID is that of the dead letter or of the first message. The dead letters stay.
    """
    if bool(flags["message_ids"]) == flags["takes_all"]:
        raise click.UsageError("either ID or --all is needed")
    run(flags, partial(_resend, flags))


async def _resend(flags: ResendFlags, admin: "Admin") -> None:
    group = flags["group"]
    found = await _dead_letters(admin, group)
    wanted = found if flags["takes_all"] else [_pick(found, group, each) for each in flags["message_ids"]]
    place = {"group": group} if flags["target"] is None else {"topic": flags["target"]}
    rows = [sent_row(await admin.resend(each, **place)) for each in wanted]
    show_rows(SENT_COLUMNS, rows, as_json=flags["as_json"])


def _pick(found: "list[ReceivedMessage]", group: str, message_id: str) -> "ReceivedMessage":
    for message in found:
        if message_id in {message.message_id, message.offset_message_id, _origin_row(message)["origin_message_id"]}:
            return message
    raise CommandFailed(f"group {group} has no dead letter {message_id}; nothing was sent")
