"""``rocketlet topic``: list, show, create, update and delete topics."""

from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from ...common.names import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from .arguments import format_instant, split_pairs
from .connecting import TOPIC, YES, ClusterFlags, CommandFailed, ask, check_can_ask, cluster_options, run, with_options
from .output import say, show_json, show_rows

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.admin.admin_values import TopicSettings

_PERMISSIONS: Final = {"rw": (True, True), "r": (True, False), "w": (False, True), "none": (False, False)}
_MOST_QUEUES: Final = 65_535


class ListFlags(ClusterFlags):
    """The arguments of ``topic list``."""

    cluster: str | None
    shows_all: bool


class TopicFlags(ClusterFlags):
    """A topic."""

    topic: str


class SettingFlags(TopicFlags):
    """The arguments of ``topic create`` and ``update``."""

    queues: int | None
    read_queues: int | None
    write_queues: int | None
    permission: str | None
    attributes: dict[str, str]


class CreateFlags(SettingFlags):
    """The arguments of ``topic create``."""

    cluster: str | None
    brokers: tuple[str, ...]


class UpdateFlags(SettingFlags):
    """The arguments of ``topic update``."""

    dropped: tuple[str, ...]


class DeleteFlags(TopicFlags):
    """The arguments of ``topic delete``."""

    yes: bool


_QUEUES: Final = click.IntRange(1, _MOST_QUEUES)
_SETTINGS: Final = (
    click.option("--queues", metavar="N", type=_QUEUES, help="Queues on each broker, to read and to write."),
    click.option("--read-queues", metavar="N", type=_QUEUES, help="Queues to read, if not --queues."),
    click.option("--write-queues", metavar="N", type=_QUEUES, help="Queues to write, if not --queues."),
    click.option("--permission", type=click.Choice(list(_PERMISSIONS)), help="What clients may do."),
    click.option(
        "--attribute",
        "attributes",
        metavar="NAME=VALUE",
        multiple=True,
        callback=split_pairs,
        help="Such as message.type=FIFO; repeatable.",
    ),
)


@click.group
def topic() -> None:
    """List, show, create, change and delete topics."""


@topic.command("list")
@click.option("--cluster", metavar="NAME", help="Only topics of this cluster.")
@click.option("--all", "shows_all", is_flag=True, help="System, retry and dead-letter topics too.")
@cluster_options
def list_topics(**flags: Unpack[ListFlags]) -> None:
    """List the topics."""
    run(flags, partial(_list, flags))


async def _list(flags: ListFlags, admin: "Admin") -> None:
    names = await admin.topics(flags["cluster"])
    clusters = {each for node in await admin.brokers() for each in (node.cluster, node.name)}
    shown = [name for name in names if flags["shows_all"] or not (_is_derived(name) or name in clusters)]
    show_rows(("topic",), [{"topic": name} for name in shown], as_json=flags["as_json"])


def _is_derived(name: str) -> bool:
    return is_system_topic(name) or name.startswith((RETRY_PREFIX, DLQ_PREFIX)) or name.endswith("_REPLY_TOPIC")


@topic.command()
@TOPIC
@cluster_options
def show(**flags: Unpack[TopicFlags]) -> None:
    """Show the settings, queues and groups of a topic."""
    run(flags, partial(_show, flags))


async def _show(flags: TopicFlags, admin: "Admin") -> None:
    name = flags["topic"]
    brokers = [_settings_row(broker, each) for broker, each in (await admin.topic(name)).items()]
    queues = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "first": extent.first_offset,
            "end": extent.end_offset,
            "messages": extent.end_offset - extent.first_offset,
            "last_stored": format_instant(extent.last_at_ms) or None,
        }
        for queue, extent in (await admin.extents(name)).items()
    ]
    groups = await admin.groups_of(name)
    if flags["as_json"]:
        show_json({"topic": name, "brokers": brokers, "queues": queues, "groups": groups})
        return
    show_rows(tuple(brokers[0]) if brokers else ("broker",), brokers, as_json=False)
    click.echo()
    show_rows(("broker", "queue", "first", "end", "messages", "last_stored"), queues, as_json=False)
    click.echo(f"\ngroups: {', '.join(groups) or 'none'}")


def _settings_row(broker: str, settings: "TopicSettings") -> dict[str, object]:
    may = (settings.can_read, settings.can_write)
    return {
        "broker": broker,
        "read_queues": settings.read_queues,
        "write_queues": settings.write_queues,
        "permission": next(name for name, rights in _PERMISSIONS.items() if rights == may),
        "attributes": dict(settings.attributes),
    }


@topic.command()
@TOPIC
@with_options(*_SETTINGS)
@click.option("--cluster", metavar="NAME", help="On the brokers of this cluster.  [default: all]")
@click.option("--broker", "brokers", metavar="NAME", multiple=True, help="On this broker only; repeatable.")
@cluster_options
def create(**flags: Unpack[CreateFlags]) -> None:
    """Create a topic; one that exists is refused.

    Without options it has 8 queues on each broker, which may be read and written.
    """
    _check_queues(flags)
    run(flags, partial(_create, flags))


async def _create(flags: CreateFlags, admin: "Admin") -> None:
    from ...client.admin.admin_values import TopicSettings

    name = flags["topic"]
    if name in await admin.topics():
        raise CommandFailed(f"topic {name} exists; rocketlet topic update changes it")
    can_read, can_write = _PERMISSIONS[flags["permission"] or "rw"]
    settings = TopicSettings(
        read_queues=flags["read_queues"] or flags["queues"] or 8,
        write_queues=flags["write_queues"] or flags["queues"] or 8,
        can_read=can_read,
        can_write=can_write,
        attributes=flags["attributes"],
    )
    await admin.create_topic(name, settings, cluster=flags["cluster"], brokers=flags["brokers"] or None)
    brokers = sorted(await admin.topic(name))
    say(f"created topic {name} on {', '.join(brokers)}", as_json=flags["as_json"], created=name, brokers=brokers)


@topic.command()
@TOPIC
@with_options(*_SETTINGS)
@click.option("--drop-attribute", "dropped", metavar="NAME", multiple=True, help="Attribute that goes; repeatable.")
@cluster_options
def update(**flags: Unpack[UpdateFlags]) -> None:
    """Change settings of a topic on all brokers that have it; what is not named stays."""
    _check_queues(flags)
    names = ("queues", "read_queues", "write_queues", "permission", "attributes", "dropped")
    if not any(flags[name] for name in names):
        raise click.UsageError("nothing is to be changed")
    run(flags, partial(_update, flags))


async def _update(flags: UpdateFlags, admin: "Admin") -> None:
    from ...client.admin.changes import TopicChange

    permission = flags["permission"]
    can_read, can_write = (None, None) if permission is None else _PERMISSIONS[permission]
    change = TopicChange(
        read_queues=flags["read_queues"] or flags["queues"],
        write_queues=flags["write_queues"] or flags["queues"],
        can_read=can_read,
        can_write=can_write,
        attributes=flags["attributes"],
        dropped=flags["dropped"],
    )
    changed = await admin.change_topic(flags["topic"], change)
    rows = [_settings_row(broker, each) for broker, each in changed.items()]
    show_rows(tuple(rows[0]), rows, as_json=flags["as_json"])


def _check_queues(flags: SettingFlags) -> None:
    if flags["queues"] and (flags["read_queues"] or flags["write_queues"]):
        raise click.UsageError("--queues stands for both --read-queues and --write-queues")


@topic.command()
@TOPIC
@YES
@cluster_options
def delete(**flags: Unpack[DeleteFlags]) -> None:
    """Delete a topic, with its messages, everywhere."""
    check_can_ask(yes=flags["yes"])
    if flags["topic"] == AUTO_CREATE_TOPIC or is_system_topic(flags["topic"]):
        raise CommandFailed(f"{flags['topic']} is a system topic, which is not deleted")
    run(flags, partial(_delete, flags))


async def _delete(flags: DeleteFlags, admin: "Admin") -> None:
    name = flags["topic"]
    brokers = sorted({queue.broker_name for queue in await admin.queues(name)})
    count = sum(extent.end_offset - extent.first_offset for extent in (await admin.extents(name)).values())
    ask(f"Delete topic {name} with {count} messages on {', '.join(brokers)}?", yes=flags["yes"])
    await admin.delete_topic(name)
    say(f"deleted topic {name} on {', '.join(brokers)}", as_json=flags["as_json"], deleted=name, brokers=brokers)
