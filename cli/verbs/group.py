"""``rocketlet group``: list, show, create, update and delete consumer groups, and who is in them."""

from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from ...common.names import RESERVED_GROUPS, is_system_group
from .connecting import GROUP, YES, ClusterFlags, CommandFailed, ask, check_can_ask, cluster_options, run, with_options
from .output import say, show_json, show_rows

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.admin_values import GroupConnection, GroupSettings

MEMBER_COLUMNS: Final = ("client_id", "address", "language", "version")
_SWITCH: Final = click.Choice(("on", "off"))


class ListFlags(ClusterFlags):
    """The arguments of ``group list``."""

    cluster: str | None
    shows_all: bool


class GroupFlags(ClusterFlags):
    """A group."""

    group: str
    cluster: str | None


class SettingFlags(GroupFlags):
    """The arguments of ``group create`` and ``update``."""

    retries: int | None
    retry_queues: int | None
    consume: str | None
    broadcast: str | None
    notify: str | None


class DeleteFlags(GroupFlags):
    """The arguments of ``group delete``."""

    with_offsets: bool
    yes: bool


_CLUSTER: Final = click.option("--cluster", metavar="NAME", help="Only on brokers of this cluster.")
_COUNT: Final = click.IntRange(0, 65_535)
_SETTINGS: Final = (
    click.option("--retries", metavar="N", type=_COUNT, help="Deliveries before a message is a dead letter."),
    click.option("--retry-queues", metavar="N", type=_COUNT, help="Queues of the retry topic."),
    click.option("--consume", type=_SWITCH, help="Whether the group may consume."),
    click.option("--broadcast", type=_SWITCH, help="Whether it may consume as a broadcast."),
    click.option("--notify", type=_SWITCH, help="Whether members are told at once who comes and goes."),
)


@click.group
def group() -> None:
    """List, show, create, change and delete consumer groups."""


@group.command("list")
@_CLUSTER
@click.option("--all", "shows_all", is_flag=True, help="The groups of RocketMQ itself, too.")
@cluster_options
def list_groups(**flags: Unpack[ListFlags]) -> None:
    """List the groups that brokers know."""
    run(flags, partial(_list, flags))


async def _list(flags: ListFlags, admin: "Admin") -> None:
    names = await admin.groups(flags["cluster"])
    shown = [name for name in names if flags["shows_all"] or not (name in RESERVED_GROUPS or is_system_group(name))]
    show_rows(("group",), [{"group": name} for name in shown], as_json=flags["as_json"])


@group.command()
@GROUP
@_CLUSTER
@cluster_options
def show(**flags: Unpack[GroupFlags]) -> None:
    """Show the settings of a group, its members and what they have subscribed to."""
    run(flags, partial(_show, flags))


async def _show(flags: GroupFlags, admin: "Admin") -> None:
    name = flags["group"]
    settings = await _settings_of(flags, admin)
    online = await admin.consumer_group(name, flags["cluster"])
    brokers = [_settings_row(broker, each) for broker, each in settings.items()]
    members = [member_row(each) for each in online.members]
    subscriptions = [{"topic": topic, "expression": each} for topic, each in online.subscriptions.items()]
    if flags["as_json"]:
        consumes = {"consume_type": online.consume_type, "message_model": online.message_model}
        show_json({"group": name, "brokers": brokers, **consumes, "members": members, "subscriptions": subscriptions})
        return
    show_rows(tuple(brokers[0]), brokers, as_json=False)
    if not members:
        click.echo("\nno member is online")
        return
    click.echo(f"\n{len(members)} online, {online.message_model}, {online.consume_type}")
    show_rows(MEMBER_COLUMNS, members, as_json=False)
    click.echo()
    show_rows(("topic", "expression"), subscriptions, as_json=False)


async def _settings_of(flags: GroupFlags, admin: "Admin") -> "dict[str, GroupSettings]":
    settings = await admin.group(flags["group"], flags["cluster"])
    if not settings:
        raise CommandFailed(f"no broker knows the group {flags['group']}")
    return settings


def member_row(member: "GroupConnection") -> dict[str, object]:
    """Return a member of a group."""
    return {
        "client_id": member.client_id,
        "address": member.address,
        "language": member.language,
        "version": member.version,
    }


def _settings_row(broker: str, settings: "GroupSettings") -> dict[str, object]:
    return {
        "broker": broker,
        "consume": settings.can_consume,
        "broadcast": settings.can_broadcast,
        "retries": settings.retries,
        "retry_queues": settings.retry_queues,
        "notify": settings.tells_members,
    }


@group.command()
@GROUP
@with_options(*_SETTINGS)
@_CLUSTER
@cluster_options
def create(**flags: Unpack[SettingFlags]) -> None:
    """Create a group; one that exists is refused."""
    run(flags, partial(_create, flags))


async def _create(flags: SettingFlags, admin: "Admin") -> None:
    from ...client.admin.admin_values import GroupSettings

    name = flags["group"]
    if await admin.group(name, flags["cluster"]):
        raise CommandFailed(f"group {name} exists; rocketlet group update changes it")
    settings = GroupSettings(
        can_consume=flags["consume"] != "off",
        can_broadcast=flags["broadcast"] != "off",
        retries=16 if flags["retries"] is None else flags["retries"],
        retry_queues=1 if flags["retry_queues"] is None else flags["retry_queues"],
        tells_members=flags["notify"] != "off",
    )
    await admin.create_group(name, settings, cluster=flags["cluster"])
    brokers = sorted(await admin.group(name, flags["cluster"]))
    say(f"created group {name} on {', '.join(brokers)}", as_json=flags["as_json"], created=name, brokers=brokers)


@group.command()
@GROUP
@with_options(*_SETTINGS)
@_CLUSTER
@cluster_options
def update(**flags: Unpack[SettingFlags]) -> None:
    """Change settings of a group on all brokers that have it; what is not named stays."""
    if all(flags[name] is None for name in ("retries", "retry_queues", "consume", "broadcast", "notify")):
        raise click.UsageError("nothing is to be changed")
    run(flags, partial(_update, flags))


async def _update(flags: SettingFlags, admin: "Admin") -> None:
    from ...client.admin.changes import GroupChange

    change = GroupChange(
        can_consume=_is_on(flags["consume"]),
        can_broadcast=_is_on(flags["broadcast"]),
        retries=flags["retries"],
        retry_queues=flags["retry_queues"],
        tells_members=_is_on(flags["notify"]),
    )
    changed = await admin.change_group(flags["group"], change, cluster=flags["cluster"])
    if not changed:
        raise CommandFailed(f"no broker knows the group {flags['group']}")
    rows = [_settings_row(broker, each) for broker, each in changed.items()]
    show_rows(tuple(rows[0]), rows, as_json=flags["as_json"])


def _is_on(text: str | None) -> bool | None:
    return None if text is None else text == "on"


@group.command()
@GROUP
@click.option("--with-offsets", is_flag=True, help="Its offsets, too.")
@YES
@_CLUSTER
@cluster_options
def delete(**flags: Unpack[DeleteFlags]) -> None:
    """Delete a group; its retry and dead-letter topics stay."""
    check_can_ask(yes=flags["yes"])
    run(flags, partial(_delete, flags))


async def _delete(flags: DeleteFlags, admin: "Admin") -> None:
    name = flags["group"]
    brokers = sorted(await _settings_of(flags, admin))
    what = f"group {name} and its offsets" if flags["with_offsets"] else f"group {name}"
    members = len(await admin.members(name, flags["cluster"]))
    online = f" while {members} members are online" if members else ""
    ask(f"Delete {what} on {', '.join(brokers)}{online}?", yes=flags["yes"])
    await admin.delete_group(name, with_offsets=flags["with_offsets"], cluster=flags["cluster"])
    say(f"deleted {what} on {', '.join(brokers)}", as_json=flags["as_json"], deleted=name, brokers=brokers)


@group.command()
@GROUP
@_CLUSTER
@cluster_options
def members(**flags: Unpack[GroupFlags]) -> None:
    """List who consumes in a group now; nobody is exit code 0."""
    run(flags, partial(_members, flags))


async def _members(flags: GroupFlags, admin: "Admin") -> None:
    found = await admin.members(flags["group"], flags["cluster"])
    if not found:
        await _settings_of(flags, admin)
    show_rows(MEMBER_COLUMNS, [member_row(each) for each in found], as_json=flags["as_json"])
