"""``rocketlet client``: who is connected, to send or to consume, and what each consumer says of itself."""

from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from ...common.errors import RocketletError
from .arguments import format_instant
from .connecting import ClusterFlags, CommandFailed, cluster_options, run
from .group import MEMBER_COLUMNS, member_row
from .output import harmless, show_json, show_pairs, show_rows

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.member_inspection import MemberInfo

CONSUMER: Final = "consumer"
PRODUCER: Final = "producer"
_COLUMNS: Final = (*MEMBER_COLUMNS, "role", "group")
_QUEUES: Final = (
    "topic",
    "broker",
    "queue",
    "committed",
    "buffered",
    "buffered_mib",
    "locked",
    "pulled_at",
    "consumed_at",
)


class ListFlags(ClusterFlags):
    """The arguments of ``client list``."""

    role: str | None


class ShowFlags(ClusterFlags):
    """The arguments of ``client show``."""

    client_id: str
    with_stacks: bool


@click.group
def client() -> None:
    """List who is connected, and what each client does."""


@client.command("list")
@click.option("--role", type=click.Choice((CONSUMER, PRODUCER)), help="Only consumers, or only producers.")
@cluster_options
def list_clients(**flags: Unpack[ListFlags]) -> None:
    """List the consumers and producers that are connected, a row for each group."""
    run(flags, partial(_list, flags))


async def _list(flags: ListFlags, admin: "Admin") -> None:
    rows = [row for row in await _rows(admin) if flags["role"] in (None, row["role"])]
    show_rows(_COLUMNS, rows, as_json=flags["as_json"])


async def _rows(admin: "Admin") -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for group in await admin.groups():
        told = await admin.consumer_group(group)
        common = {
            "role": CONSUMER,
            "group": group,
            "message_model": told.message_model,
            "subscriptions": dict(told.subscriptions),
        }
        rows += [{**member_row(member), **common} for member in told.members]
    for group, members in (await admin.all_producers()).items():
        rows += [{**member_row(member), "role": PRODUCER, "group": group} for member in members]
    return sorted(rows, key=lambda row: (str(row["client_id"]), str(row["role"]), str(row["group"])))


@client.command("show")
@click.argument("client_id")
@click.option(
    "--stacks", "with_stacks", is_flag=True, help="Where its threads are, and its tasks if it is one of ours."
)
@cluster_options
def show_client(**flags: Unpack[ShowFlags]) -> None:
    """Show the groups of a client that is connected, and what it says of each in which it consumes.

    That are its settings and its queues, with what it has committed and what it holds. A client has ten seconds to
    answer; one that does not is exit code 1.
    """
    silent: list[str] = []
    run(flags, partial(_show, flags, silent))
    if silent:
        raise CommandFailed("; ".join(silent))


async def _show(flags: ShowFlags, silent: list[str], admin: "Admin") -> None:
    rows = [row for row in await _rows(admin) if row["client_id"] == flags["client_id"]]
    if not rows:
        raise CommandFailed(f"no client {flags['client_id']} is online")
    told: dict[str, MemberInfo] = {}
    for group in [str(row["group"]) for row in rows if row["role"] == CONSUMER]:
        try:
            told[group] = await admin.running_info(group, flags["client_id"], with_stacks=flags["with_stacks"])
        except RocketletError as error:
            silent.append(f"the client does not answer for group {group}: {error}")
    if flags["as_json"]:
        consumers = {group: _info_json(info) for group, info in told.items()}
        show_json(
            [{**row, "running": consumers.get(str(row["group"]))} if "subscriptions" in row else row for row in rows]
        )
        return
    show_rows((*_COLUMNS, "message_model", "subscriptions"), rows, as_json=False)
    for group, info in told.items():
        _print_info(group, info)


def _info_json(info: "MemberInfo") -> dict[str, object]:
    properties = dict(sorted(info.properties.items()))
    return {"properties": properties, "queues": _queue_rows(info), "stacks": info.stacks or None}


def _print_info(group: str, info: "MemberInfo") -> None:
    click.echo(f"\ngroup {group}")
    show_pairs(dict(sorted(info.properties.items())), as_json=False)
    click.echo()
    show_rows(_QUEUES, _queue_rows(info), as_json=False)
    if info.stacks:
        click.echo(f"\n{harmless(info.stacks)}")


def _queue_rows(info: "MemberInfo") -> list[dict[str, object]]:
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "committed": each.committed,
            "buffered": each.buffered_messages,
            "buffered_mib": each.buffered_mib,
            "locked": each.is_locked,
            "pulled_at": format_instant(each.pulled_at_ms) or None,
            "consumed_at": format_instant(each.consumed_at_ms) or None,
        }
        for queue, each in sorted(info.queues.items())
    ]
