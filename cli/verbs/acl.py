"""``rocketlet acl``: list, show, create, update and delete what users may do.

A right is about one resource: ``Topic:orders``, ``Topic:ord*``, ``Topic:*``, likewise with ``Group:`` and ``Cluster:``,
or ``*`` for everything.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from .connecting import YES, CommandFailed, ask, check_can_ask, cluster_options, run, with_options
from .output import say, show_rows
from .user import USER, PlaceFlags, UserFlags, access_of, place_options

if TYPE_CHECKING:
    from ...client.admin.access import Right, UserAccess
    from ...client.admin.admin import Admin

_COLUMNS: Final = ("user", "policy", "resource", "actions", "decision", "source_ips")
_ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")


class ListFlags(PlaceFlags):
    """The arguments of ``acl list``."""

    user_part: str
    resource_part: str


class WriteFlags(UserFlags):
    """The arguments of ``acl create`` and ``update``."""

    resources: tuple[str, ...]
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    denies: bool
    is_default: bool


class DeleteFlags(UserFlags):
    """The arguments of ``acl delete``."""

    resources: tuple[str, ...]
    is_default: bool
    yes: bool


_DEFAULT: Final = click.option("--default", "is_default", is_flag=True, help="A right that counts where no other fits.")
_RIGHTS: Final = (
    click.option(
        "--resource",
        "resources",
        metavar="TYPE:NAME",
        multiple=True,
        required=True,
        help="Such as Topic:orders, Group:bill*, Cluster:*; repeatable.",
    ),
    click.option(
        "--action",
        "actions",
        type=click.Choice(_ACTIONS, case_sensitive=False),
        multiple=True,
        required=True,
        help="What may be done; repeatable.",
    ),
    click.option(
        "--source-ip",
        "source_ips",
        metavar="ADDRESS",
        multiple=True,
        help="Only from there, or 10.0.0.0/8; repeatable.",
    ),
    click.option("--deny", "denies", is_flag=True, help="Forbid it."),
    _DEFAULT,
)


@click.group
def acl() -> None:
    """List, show, create, change and delete what users may do."""


@acl.command("list")
@click.option("--user", "user_part", metavar="TEXT", default="", help="Only users in whose name the text stands.")
@click.option("--resource", "resource_part", metavar="TEXT", default="", help="Only resources with this text.")
@place_options
@cluster_options
def list_rights(**flags: Unpack[ListFlags]) -> None:
    """List what users may do, as the first broker has it."""
    run(flags, partial(_list, flags))


async def _list(flags: ListFlags, admin: "Admin") -> None:
    found = await access_of(flags, admin).rights(flags["user_part"], flags["resource_part"])
    _show_rights(found, as_json=flags["as_json"])


@acl.command()
@USER
@place_options
@cluster_options
def show(**flags: Unpack[UserFlags]) -> None:
    """Show what a user may do."""
    run(flags, partial(_show, flags))


async def _show(flags: UserFlags, admin: "Admin") -> None:
    name = flags["user"]
    _show_rights({name: await access_of(flags, admin).rights_of(name)}, as_json=flags["as_json"])


def _show_rights(found: "Mapping[str, Sequence[Right]]", *, as_json: bool) -> None:
    rows = [
        {
            "user": name,
            "policy": "Default" if right.is_default else "Custom",
            "resource": right.resource,
            "actions": list(right.actions),
            "decision": "Allow" if right.is_allowed else "Deny",
            "source_ips": list(right.source_ips),
        }
        for name, rights in found.items()
        for right in rights
    ]
    if not as_json:
        rows = [{**row, **{key: ",".join(row[key]) for key in ("actions", "source_ips")}} for row in rows]
    show_rows(_COLUMNS, rows, as_json=as_json)


@acl.command()
@USER
@with_options(*_RIGHTS)
@place_options
@cluster_options
def create(**flags: Unpack[WriteFlags]) -> None:
    """Give a user rights; one for a resource that has one already is refused."""
    run(flags, partial(_write, flags, "create"))


@acl.command()
@USER
@with_options(*_RIGHTS)
@place_options
@cluster_options
def update(**flags: Unpack[WriteFlags]) -> None:
    """Replace rights of a user, for resources that have one; all others stay."""
    run(flags, partial(_write, flags, "update"))


async def _write(flags: WriteFlags, verb: str, admin: "Admin") -> None:
    from ...client.admin.access import Right

    name, resources, access = flags["user"], flags["resources"], access_of(flags, admin)
    present = await _present(flags, access)
    for resource in resources:
        if (resource in present) != (verb == "update"):
            there = "has no right" if verb == "update" else "has a right"
            other = "create" if verb == "update" else "update"
            raise CommandFailed(f"user {name} {there} for {resource}; rocketlet acl {other} is for that")
    rights = [
        Right(
            resource=resource,
            actions=flags["actions"],
            is_allowed=not flags["denies"],
            source_ips=flags["source_ips"],
            is_default=flags["is_default"],
        )
        for resource in resources
    ]
    await access.grant(name, rights)
    done = "created" if verb == "create" else "changed"
    say(f"{done} rights of user {name} for {', '.join(resources)}", as_json=flags["as_json"], **{done: list(resources)})


async def _present(flags: WriteFlags | DeleteFlags, access: "UserAccess") -> set[str]:
    """Return for which resources a user has rights, of the kind that is meant."""
    rights = await access.rights_of(flags["user"])
    return {right.resource for right in rights if right.is_default == flags["is_default"]}


@acl.command()
@USER
@click.option("--resource", "resources", metavar="TYPE:NAME", multiple=True, help="Of this resource only; repeatable.")
@_DEFAULT
@YES
@place_options
@cluster_options
def delete(**flags: Unpack[DeleteFlags]) -> None:
    """Take rights from a user: those for resources that are named, or all."""
    if flags["is_default"] and not flags["resources"]:
        raise click.UsageError("--default is about the resources that --resource names")
    check_can_ask(yes=flags["yes"])
    run(flags, partial(_delete, flags))


async def _delete(flags: DeleteFlags, admin: "Admin") -> None:
    name, resources, access = flags["user"], flags["resources"], access_of(flags, admin)
    present = await _present(flags, access)
    for resource in resources:
        if resource not in present:
            raise CommandFailed(f"user {name} has no right for {resource}")
    what = ", ".join(resources) or "all resources"
    ask(f"Take from user {name} the rights for {what}?", yes=flags["yes"])
    for resource in resources or (None,):
        await access.revoke(name, resource, is_default=flags["is_default"])
    say(f"deleted rights of user {name} for {what}", as_json=flags["as_json"], deleted=list(resources))
