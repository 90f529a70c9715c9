"""``rocketlet offset``: how far groups are, how much is left, and where they begin again."""

from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from ...common.names import RETRY_PREFIX
from . import arguments
from .arguments import PositionText, QueueName, find_queue, format_instant
from .connecting import (
    FAILED,
    GROUP,
    TOPIC,
    YES,
    ClusterFlags,
    CommandFailed,
    ask,
    check_can_ask,
    cluster_options,
    complete_groups,
    complete_topics,
    run,
)
from .output import show_json, show_rows

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...common.message import MessageQueue

_SHOWN: Final = ("topic", "broker", "queue", "committed", "first", "end", "lag", "in_flight", "last_stored")
_LAGS: Final = ("group", "topic", "queues", "lag", "in_flight")


class ShowFlags(ClusterFlags):
    """The arguments of ``offset show``."""

    group: str
    topic: str | None


class LagFlags(ClusterFlags):
    """The arguments of ``offset lag``."""

    group: str | None
    most: int | None


class ResetFlags(ClusterFlags):
    """The arguments of ``offset reset``."""

    group: str
    topic: str
    to: PositionText
    queue: QueueName | None
    yes: bool


class CopyFlags(ClusterFlags):
    """The arguments of ``offset copy``."""

    source: str
    target: str
    topic: str
    yes: bool


@click.group
def offset() -> None:
    """Show how far groups are, and move them."""


@offset.command()
@GROUP
@click.argument("topic", required=False, shell_complete=complete_topics)
@cluster_options
def show(**flags: Unpack[ShowFlags]) -> None:
    """Show the offsets and the lag of a group, queue by queue, in one TOPIC or in all that it has offsets of."""
    run(flags, partial(_show, flags))


async def _show(flags: ShowFlags, admin: "Admin") -> None:
    group, topic = flags["group"], flags["topic"]
    rows = await _all_rows(admin, group) if topic is None else await _topic_rows(admin, group, topic)
    if not rows:
        await _check_group(admin, group)
    total = sum(int(str(row["lag"])) for row in rows)
    if flags["as_json"]:
        show_json({"group": group, "queues": rows, "lag": total})
        return
    show_rows([name for name in _SHOWN if any(name in row for row in rows)] or _SHOWN, rows, as_json=False)
    click.echo(f"\nlag of {group}: {total}")


async def _topic_rows(admin: "Admin", group: str, topic: str) -> list[dict[str, object]]:
    progress = await admin.progress(group, topic)
    if all(each.committed is None for each in progress.queues):
        await _check_group(admin, group)
    return [
        {
            **_queue_row(each.queue),
            "committed": each.committed,
            "first": each.first_offset,
            "end": each.end_offset,
            "lag": each.lag,
        }
        for each in progress.queues
    ]


async def _all_rows(admin: "Admin", group: str) -> list[dict[str, object]]:
    return [
        {
            **_queue_row(each.queue),
            "committed": each.committed,
            "end": each.end_offset,
            "lag": each.lag,
            "in_flight": each.in_flight,
            "last_stored": format_instant(each.last_at_ms) or None,
        }
        for each in await admin.all_progress(group)
    ]


def _queue_row(queue: "MessageQueue") -> dict[str, object]:
    return {"topic": queue.topic, "broker": queue.broker_name, "queue": queue.queue_id}


async def _check_group(admin: "Admin", group: str) -> None:
    if not await admin.group(group):
        raise CommandFailed(f"no broker knows the group {group}")


@offset.command()
@click.argument("group", required=False, shell_complete=complete_groups)
@click.option("--most", metavar="N", type=click.IntRange(min=0), help="Exit with 1 when a total is above N.")
@cluster_options
@click.pass_context
def lag(ctx: click.Context, /, **flags: Unpack[LagFlags]) -> None:
    """Show how much GROUP, or each group, has not finished, topic by topic."""
    totals: dict[str, int] = {}
    run(flags, partial(_lag, flags, totals))
    most = flags["most"]
    if most is not None and any(total > most for total in totals.values()):
        ctx.exit(FAILED)


async def _lag(flags: LagFlags, totals: dict[str, int], admin: "Admin") -> None:
    groups = await admin.groups() if flags["group"] is None else [flags["group"]]
    rows: list[dict[str, object]] = []
    for group in groups:
        progress = await admin.all_progress(group)
        if not progress and flags["group"] is not None:
            await _check_group(admin, group)
        totals[group] = sum(each.lag for each in progress)
        for topic in sorted({each.queue.topic for each in progress}):
            queues = [each for each in progress if each.queue.topic == topic]
            if topic.startswith(RETRY_PREFIX) and not any(each.end_offset for each in queues):
                continue
            row = {"group": group, "topic": topic, "queues": len(queues), "lag": sum(each.lag for each in queues)}
            rows.append({**row, "in_flight": sum(each.in_flight for each in queues)})
    show_rows(_LAGS, rows, as_json=flags["as_json"])


@offset.command()
@GROUP
@TOPIC
@click.option(
    "--to", metavar="POSITION", callback=arguments.position, required=True, help="begin, end, a time, or an offset."
)
@click.option("--queue", metavar="[BROKER:]N", callback=arguments.queue, help="Only this queue.  [default: all]")
@YES
@cluster_options
def reset(**flags: Unpack[ResetFlags]) -> None:
    """Have a group begin again in a topic.

    A group that is online is moved, too, on brokers of 5.x: an offset, and a single queue, where they are set to move
    groups themselves (useServerSideResetOffset). On others no member may be online.
    """
    check_can_ask(yes=flags["yes"])
    run(flags, partial(_reset, flags))


async def _reset(flags: ResetFlags, admin: "Admin") -> None:
    group, topic = flags["group"], flags["topic"]
    queues = await admin.queues(topic)
    await _check_group(admin, group)
    if flags["queue"] is not None:
        queues = (await find_queue(admin, topic, flags["queue"]),)
    where = f"queue {queues[0].queue_id} at {queues[0].broker_name} of topic" if flags["queue"] else "topic"
    ask(f"Move group {group} in {where} {topic} to {flags['to']}?", yes=flags["yes"])
    moved = await _move(flags, admin, queues)
    rows = [{**_queue_row(queue), "offset": queue_offset} for queue, queue_offset in moved.items()]
    show_rows(("topic", "broker", "queue", "offset"), rows, as_json=flags["as_json"])


async def _move(flags: ResetFlags, admin: "Admin", queues: "tuple[MessageQueue, ...]") -> "dict[MessageQueue, int]":
    group, topic, to = flags["group"], flags["topic"], flags["to"]
    if flags["queue"] is None:
        match to.kind:
            case "begin":
                return await admin.reset_to_begin(group, topic)
            case "end":
                return await admin.reset_to_end(group, topic)
            case "time":
                return await admin.reset_to_time(group, topic, to.value)
            case _:
                pass
    offsets = await _offsets_for(to, admin, topic, queues)
    await admin.reset(group, offsets)
    return offsets


async def _offsets_for(
    to: PositionText, admin: "Admin", topic: str, queues: "tuple[MessageQueue, ...]"
) -> "dict[MessageQueue, int]":
    """Return the offsets of a position; one that a queue does not have is refused."""
    if to.kind == "time":
        found = await admin.offsets_at(topic, to.value)
        return {queue: found[queue] for queue in queues}
    extents = await admin.offsets(topic)
    if to.kind != "offset":
        return {queue: extents[queue][to.kind == "end"] for queue in queues}
    for queue in queues:
        first, end = extents[queue]
        if not first <= to.value <= end:
            raise CommandFailed(f"{queue} has offsets from {first} to {end}, not {to.value}")
    return dict.fromkeys(queues, to.value)


@offset.command("copy")
@click.argument("source", shell_complete=complete_groups)
@click.argument("target", shell_complete=complete_groups)
@TOPIC
@YES
@cluster_options
def copy_offsets(**flags: Unpack[CopyFlags]) -> None:
    """Have the group TARGET begin in TOPIC where the group SOURCE is.

    Members of TARGET may be online where an offset may be set.
    """
    check_can_ask(yes=flags["yes"])
    run(flags, partial(_copy, flags))


async def _copy(flags: CopyFlags, admin: "Admin") -> None:
    source, target, topic = flags["source"], flags["target"], flags["topic"]
    for group in (source, target):
        await _check_group(admin, group)
    ask(f"Move group {target} in topic {topic} to where {source} is?", yes=flags["yes"])
    copied = await admin.copy_offsets(source, target, topic)
    if not copied:
        raise CommandFailed(f"group {source} has no offsets in topic {topic}")
    rows = [{**_queue_row(queue), "offset": queue_offset} for queue, queue_offset in copied.items()]
    show_rows(("topic", "broker", "queue", "offset"), rows, as_json=flags["as_json"])
