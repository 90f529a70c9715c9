"""``rocketlet config``: settings of running brokers and name servers, by Java's keys."""

from functools import partial
from typing import TYPE_CHECKING, Final, Unpack

import click

from .arguments import split_pairs
from .connecting import ClusterFlags, CommandFailed, cluster_options, complete_brokers, run
from .output import say, show_pairs, show_rows

if TYPE_CHECKING:
    from ...client.admin.admin import Admin


class ConfigFlags(ClusterFlags):
    """Whose settings."""

    broker: str | None
    of_nameservers: bool


class GetFlags(ConfigFlags):
    """The arguments of ``config get``."""

    keys: tuple[str, ...]


class SetFlags(ConfigFlags):
    """The arguments of ``config set``."""

    changes: dict[str, str]


_BROKER: Final = click.option("--broker", metavar="NAME", shell_complete=complete_brokers, help="Of this broker.")
_NAMESERVERS: Final = click.option("--nameservers", "of_nameservers", is_flag=True, help="Of the name servers.")


def _check(flags: ConfigFlags) -> None:
    if (flags["broker"] is None) != flags["of_nameservers"]:
        raise click.UsageError("one of --broker NAME and --nameservers is needed")


@click.group
def config() -> None:
    """Read and change settings of running brokers and name servers."""


@config.command("get")
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@_BROKER
@_NAMESERVERS
@cluster_options
def get_settings(**flags: Unpack[GetFlags]) -> None:
    """Show all settings, or those of some keys; one that is not there is exit code 1."""
    _check(flags)
    run(flags, partial(_get, flags))


async def _get(flags: GetFlags, admin: "Admin") -> None:
    if flags["broker"] is not None:
        settings = _pick(await admin.broker_settings(flags["broker"]), flags["keys"], f"broker {flags['broker']}")
        show_pairs(settings, as_json=flags["as_json"])
        return
    rows = [
        {"name_server": address, "name": name, "value": value}
        for address, settings in (await admin.nameserver_settings()).items()
        for name, value in _pick(settings, flags["keys"], f"name server {address}").items()
    ]
    show_rows(("name_server", "name", "value"), rows, as_json=flags["as_json"])


def _pick(settings: dict[str, str], keys: tuple[str, ...], whose: str) -> dict[str, str]:
    missing = [key for key in keys if key not in settings]
    if missing:
        raise CommandFailed(f"{whose} has no setting {missing[0]}")
    return {key: settings[key] for key in keys or sorted(settings)}


@config.command("set")
@click.argument("changes", metavar="KEY=VALUE...", nargs=-1, required=True, callback=split_pairs)
@_BROKER
@_NAMESERVERS
@cluster_options
def set_settings(**flags: Unpack[SetFlags]) -> None:
    """Change settings while the server runs, all of them or none.

    A name that it does not tell itself is refused: servers would take it without a word and without an effect.
    """
    _check(flags)
    run(flags, partial(_set, flags))


async def _set(flags: SetFlags, admin: "Admin") -> None:
    broker, changes = flags["broker"], flags["changes"]
    if broker is not None:
        _pick(await admin.broker_settings(broker), tuple(changes), f"broker {broker}")
        await admin.change_broker_settings(broker, changes)
    else:
        for address, settings in (await admin.nameserver_settings()).items():
            _pick(settings, tuple(changes), f"name server {address}")
        await admin.change_nameserver_settings(changes)
    whose = "the name servers" if broker is None else f"broker {broker}"
    names = ", ".join(changes)
    say(f"changed {names} of {whose}", as_json=flags["as_json"], changed=dict(changes), broker=broker)
