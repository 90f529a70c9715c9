"""``rocketlet broker``: a broker that registers at name servers, and what ``up`` shares with it.

Its commands ``list`` and ``status`` ask a running cluster (docs/decisions/first-word.md).
"""

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, Unpack

import click

from ..common.clock import Clock
from ..common.ids import format_address
from ..common.settings import parse_java_properties
from . import settings
from .grpc import PORT_KEY as GRPC_PORT_KEY
from .grpc import enter_grpc, grpc_port
from .lazy_group import FirstWordGroup
from .metrics import METRICS_PORT, check_metrics, enter_metrics, metrics_settings
from .starting.protection import describe_protection

if TYPE_CHECKING:
    from ..broker.server import Broker
    from ..broker.settings.config import BrokerConfig


_ROLES: Final = {"async-master": "ASYNC_MASTER", "sync-master": "SYNC_MASTER", "slave": "SLAVE"}


class BrokerFlags(settings.LogFlags):
    """The options that ``broker`` and ``up`` share."""

    host: str | None
    broker_port: int | None
    metrics_port: int | None
    grpc_port: int | None
    store: str | None
    ephemeral: bool
    repair: bool
    advertise: settings.Address | None
    config_file: str | None
    pairs: dict[str, str]
    print_config: bool


class AloneFlags(BrokerFlags):
    """The options of ``broker``."""

    namesrv: str | None
    role: str | None
    id: int | None
    master: settings.Address | None
    watched: str | None
    secrets: int | None
    grpc_if_free: bool


@click.group(
    cls=FirstWordGroup,
    places={"list": ".verbs.cluster:list_brokers", "status": ".verbs.cluster:broker_status"},
    short_help="Start a broker; list, status of running ones.",
)
@settings.with_options(
    settings.HOST,
    settings.BROKER_PORT,
    METRICS_PORT,
    grpc_port("off"),
    click.option("--namesrv", metavar="A;B", help="Name servers to register at.  [default: NAMESRV_ADDR]"),
    click.option(
        "--role",
        type=click.Choice([*_ROLES]),
        help="What it is to others of its name; a sync-master waits for slaves.  [default: async-master]",
    ),
    click.option("--id", type=click.IntRange(1), help="Number of a slave among those of its master.  [default: 1]"),
    click.option(
        "--master",
        metavar="HOST:PORT",
        callback=settings.parse_address,
        help="Broker that a slave copies.  [default: the one of its name that the name servers know]",
    ),
    click.option("--secrets", type=int, hidden=True),  # the descriptor from which settings come that nobody shall see
    click.option("--watched", hidden=True),  # by ``up``, under that name: see ``processes.py``
    click.option("--grpc-if-free", is_flag=True, hidden=True),  # nobody has asked ``up`` for its port
    *settings.STORE_OPTIONS,
    *settings.SHARED_OPTIONS,
)
def broker(**flags: Unpack[AloneFlags]) -> None:
    """Start a broker.

    "rocketlet broker list" lists the brokers of a cluster, "rocketlet broker status BROKER" shows how one is doing.
    """
    if flags["secrets"] is not None:
        with open(flags["secrets"], encoding="utf-8") as secrets:
            flags["pairs"].update(parse_java_properties(secrets.read()))
    given = gather_broker_settings(flags, flags["namesrv"])
    given.update(_role_settings(flags, given))
    given.setdefault("namesrvAddr", os.environ.get("NAMESRV_ADDR", ""))
    notes = settings.set_host(given, given.get("brokerIP1", ""))
    if not given["namesrvAddr"].strip():
        notes.append("no client finds this broker: no name server is named by --namesrv, namesrvAddr or NAMESRV_ADDR")
    if flags["print_config"]:
        click.echo(list_broker_settings(flags, given))
        return
    notes.extend(_describe_protection(given))
    check_metrics(given)
    from .serve import describe_advertised, make_ephemeral_store, serve

    async def start(servers: AsyncExitStack, clock: Clock) -> str:
        if flags["ephemeral"]:
            given[settings.STORE_KEY] = await make_ephemeral_store(servers)
        started = await enter_broker(servers, clock, flags, given)
        notes.extend([*await describe_advertised([started.advertised], clock), describe_store_place(flags, given)])
        metrics = await enter_metrics(servers, clock, started)
        grpc = await enter_grpc(servers, clock, started, is_asked=not flags["grpc_if_free"])
        named = {"broker": started.address, "metrics": metrics, "grpc": grpc}
        ready = " ".join(["ready", *(f"{name}={address}" for name, address in named.items() if address)])
        return ready if flags["watched"] is None else f"{ready} port={started.advertised.bound[1]}"

    serve(start, notes, flags, watched=flags["watched"])


def _describe_protection(given: Mapping[str, str]) -> list[str]:
    from ..remoting.tls.tls_settings import TlsConfig

    return [*describe_protection(given, TlsConfig.from_java(given))]


def _role_settings(flags: AloneFlags, given: Mapping[str, str]) -> dict[str, str]:
    """Return what the options say about the role.

    Raises:
        UsageError: they contradict each other.
    """
    role = flags["role"]
    if role != "slave":
        for name in ("id", "master"):
            if flags[name] is not None:
                raise click.UsageError(f"--{name} needs --role slave")
        return {} if role is None else {"brokerRole": _ROLES[role]}
    if "brokerName" not in given:
        raise click.UsageError("--role slave needs the name of its master: --set brokerName=NAME")
    master = flags["master"] and {"masterAddress": format_address(*flags["master"])}
    return {"brokerRole": _ROLES[role], "brokerId": str(flags["id"] or 1), **(master or {})}


def gather_broker_settings(flags: BrokerFlags, nameservers: str | None = None) -> dict[str, str]:
    """Merge the options of a broker into Java's keys.

    Raises:
        ConfigError: the file cannot be read, or a file lies where the store shall be.
        UsageError: the options contradict each other.
    """
    settings.check_store_options(store=flags["store"], is_ephemeral=flags["ephemeral"], pairs=flags["pairs"])
    own = {
        "bindAddress": flags["host"],
        "listenPort": flags["broker_port"],
        "brokerIP1": flags["advertise"] and flags["advertise"].host,
        "namesrvAddr": nameservers,
        settings.STORE_KEY: flags["store"],
        **metrics_settings(flags["metrics_port"]),
        GRPC_PORT_KEY: flags["grpc_port"],
    }
    merged = settings.gather_settings(own, flags["pairs"], flags["config_file"])
    merged.setdefault(settings.STORE_KEY, settings.data_path("store"))
    if not flags["ephemeral"]:
        settings.check_store_place(merged[settings.STORE_KEY])
    return merged


def describe_store_place(flags: BrokerFlags, given: Mapping[str, str]) -> str:
    """Say where the messages are."""
    place = os.path.abspath(os.path.expanduser(given[settings.STORE_KEY]))
    return f"messages are kept in {place}" + (", which is removed at exit" if flags["ephemeral"] else "")


def load_broker_config(flags: BrokerFlags, given: dict[str, str]) -> "BrokerConfig":
    """Parse the settings of a broker.

    Raises:
        ConfigError: a key or value that cannot be used.
    """
    from msgspec.structs import replace

    from ..broker.settings.config import BrokerConfig

    config = BrokerConfig.from_java(given)
    return replace(
        config,
        advertised_port=flags["advertise"].port if flags["advertise"] else 0,
        repairs=flags["repair"],
        settings_file=os.path.abspath(flags["config_file"]) if flags["config_file"] else "",
    )


def list_broker_settings(flags: BrokerFlags, given: dict[str, str]) -> str:
    """Lay out what a broker would start with, also what administrators have changed before.

    Raises:
        ConfigError: a key or value that cannot be used.
    """
    from ..broker.settings.saved import lay_under

    config = load_broker_config(flags, given)
    return settings.format_settings((config if flags["ephemeral"] else lay_under(config)).describe())


async def enter_broker(servers: AsyncExitStack, clock: Clock, flags: BrokerFlags, given: dict[str, str]) -> "Broker":
    """Start a broker that stops with the stack.

    Raises:
        ConfigError: a setting, port or store that cannot be used.
    """
    from ..broker.server import Broker
    from ..remoting.transport.busy_poll import make_busy_poll
    from .serve import naming_holder

    config = load_broker_config(flags, given)
    broker = Broker(config, clock, busy_poll=make_busy_poll(config.busy_poll_us))
    with naming_holder("--broker-port"):
        return await servers.enter_async_context(broker)
