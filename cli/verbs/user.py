"""``rocketlet user``: list, show, create, update and delete users of brokers."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar, Unpack

import click

from .connecting import (
    YES,
    ClusterFlags,
    CommandFailed,
    ask,
    check_can_ask,
    cluster_options,
    complete_brokers,
    run,
    with_options,
)
from .output import say, show_pairs, show_rows

if TYPE_CHECKING:
    from ...client.admin.access import BrokerUser, UserAccess
    from ...client.admin.admin import Admin

Command = TypeVar("Command", bound=Callable[..., None])
_COLUMNS: Final = ("user", "type", "status", "password")


class PlaceFlags(ClusterFlags):
    """On which brokers."""

    cluster: str | None
    brokers: tuple[str, ...]


class ListFlags(PlaceFlags):
    """The arguments of ``user list``."""

    part: str


class UserFlags(PlaceFlags):
    """A user."""

    user: str


class WriteFlags(UserFlags):
    """The arguments of ``user create`` and ``update``."""

    password: str | None
    reads_password: bool
    is_super: bool | None
    is_enabled: bool | None


class DeleteFlags(UserFlags):
    """The arguments of ``user delete``."""

    yes: bool


USER: Final = click.argument("user")
_PLACES: Final = (
    click.option("--cluster", metavar="NAME", help="On the brokers of this cluster.  [default: all]"),
    click.option(
        "--broker",
        "brokers",
        metavar="NAME",
        multiple=True,
        shell_complete=complete_brokers,
        help="On this broker only; repeatable.",
    ),
)
_PASSWORDS: Final = (
    click.option("--password", metavar="TEXT", help="The password; others may see it in the list of processes."),
    click.option(
        "--password-stdin", "reads_password", is_flag=True, help="Take the password from the first line of stdin."
    ),
)


def place_options(command: Command) -> Command:
    """Give a verb the options of ``PlaceFlags``."""
    return with_options(*_PLACES)(command)


def access_of(flags: PlaceFlags, admin: "Admin") -> "UserAccess":
    """Return what asks and changes users on the brokers that are meant."""
    return admin.access(cluster=flags["cluster"], brokers=flags["brokers"] or None)


@click.group
def user() -> None:
    """List, show, create, change and delete users of brokers."""


@user.command("list")
@click.option("--filter", "part", metavar="TEXT", default="", help="Only those in whose name the text stands.")
@place_options
@cluster_options
def list_users(**flags: Unpack[ListFlags]) -> None:
    """List the users, as the first broker has them."""
    run(flags, partial(_list, flags))


async def _list(flags: ListFlags, admin: "Admin") -> None:
    found = await access_of(flags, admin).users(flags["part"])
    show_rows(_COLUMNS, [_row(each) for each in found], as_json=flags["as_json"])


@user.command()
@USER
@place_options
@cluster_options
def show(**flags: Unpack[UserFlags]) -> None:
    """Show a user."""
    run(flags, partial(_show, flags))


async def _show(flags: UserFlags, admin: "Admin") -> None:
    show_pairs(_row(await _find(flags, admin)), as_json=flags["as_json"])


async def _find(flags: UserFlags, admin: "Admin") -> "BrokerUser":
    found = await access_of(flags, admin).user(flags["user"])
    if found is None:
        raise CommandFailed(f"there is no user {flags['user']}")
    return found


def _row(found: "BrokerUser") -> dict[str, object]:
    return {
        "user": found.name,
        "type": "Super" if found.is_super else "Normal",
        "status": "enable" if found.is_enabled else "disable",
        "password": found.password,
    }


@user.command()
@USER
@with_options(*_PASSWORDS)
@click.option("--super/--normal", "is_super", default=False, help="Whether everything is allowed.  [default: normal]")
@click.option("--enable/--disable", "is_enabled", default=True, help="Whether anything is.  [default: enable]")
@place_options
@cluster_options
def create(**flags: Unpack[WriteFlags]) -> None:
    """Create a user; one that exists is refused. Without a password in the options it is asked for."""
    password = _read_password(flags)
    if password is None:
        if not sys.stdin.isatty():
            raise click.UsageError("--password or --password-stdin is needed where nobody can be asked")
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
    run(flags, partial(_create, flags, password))


async def _create(flags: WriteFlags, password: str, admin: "Admin") -> None:
    name, is_super = flags["user"], flags["is_super"]
    access = access_of(flags, admin)
    await access.create_user(name, password, is_super=bool(is_super), is_enabled=flags["is_enabled"] is not False)
    say(f"created {'super user' if is_super else 'user'} {name}", as_json=flags["as_json"], created=name)


@user.command()
@USER
@with_options(*_PASSWORDS)
@click.option("--super/--normal", "is_super", default=None, help="Whether everything is allowed.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Whether anything is.")
@place_options
@cluster_options
def update(**flags: Unpack[WriteFlags]) -> None:
    """Change a user; what is not named stays."""
    password = _read_password(flags)
    if password is None and flags["is_super"] is None and flags["is_enabled"] is None:
        raise click.UsageError("nothing is to be changed")
    run(flags, partial(_update, flags, password))


async def _update(flags: WriteFlags, password: str | None, admin: "Admin") -> None:
    await access_of(flags, admin).change_user(
        flags["user"], password=password, is_super=flags["is_super"], is_enabled=flags["is_enabled"]
    )
    say(f"changed user {flags['user']}", as_json=flags["as_json"], changed=flags["user"])


def _read_password(flags: WriteFlags) -> str | None:
    if not flags["reads_password"]:
        return flags["password"]
    if flags["password"] is not None:
        raise click.UsageError("--password and --password-stdin cannot be used together")
    return sys.stdin.readline().rstrip("\r\n")


@user.command()
@USER
@YES
@place_options
@cluster_options
def delete(**flags: Unpack[DeleteFlags]) -> None:
    """Delete a user, with all that the user may do."""
    check_can_ask(yes=flags["yes"])
    run(flags, partial(_delete, flags))


async def _delete(flags: DeleteFlags, admin: "Admin") -> None:
    name = (await _find(flags, admin)).name
    ask(f"Delete user {name}?", yes=flags["yes"])
    await access_of(flags, admin).delete_user(name)
    say(f"deleted user {name}", as_json=flags["as_json"], deleted=name)
