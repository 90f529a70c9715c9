"""``rocketlet up``: a name server and brokers in one process.

One broker is called broker-a and has the store's directory to itself. Of several, broker-a, broker-b and so on, each
has a directory of that name below it, and the ports are 10 apart. The name server keeps its key-value table below the
store's directory, too.
"""

import os
import string
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack, cast

import click

from ..common.clock import Clock
from ..common.errors import ConfigError
from . import settings
from .broker import BrokerFlags, describe_store_place, enter_broker, gather_broker_settings, list_broker_settings
from .console import CONSOLE_OPTIONS, ConsoleFlags, plan_console
from .metrics import METRICS_PORT, PORT_KEY, check_metrics, enter_metrics
from .namesrv import DEFAULT_PORT, KV_FILE, KV_KEY, load_nameserver_config

if TYPE_CHECKING:
    from ..broker.server import Broker
    from ..namesrv.config import NameServerConfig
    from ..namesrv.server import NameServer


BROKER_NAMES: Final = tuple(f"broker-{letter}" for letter in string.ascii_lowercase)
PORT_STEP: Final = 10
_BROKERS_OWN: Final = ("brokerName", "storePathCommitLog", "readOnlyCommitLogStorePaths", "haListenPort")


class UpFlags(BrokerFlags, ConsoleFlags):
    """The options of ``up``."""

    namesrv_port: int | None
    brokers: int
    console: bool


class ClusterMember(NamedTuple):
    """One of the brokers: its options and settings, and of how many."""

    flags: BrokerFlags
    given: dict[str, str]
    brokers: int


@click.command
@settings.with_options(
    settings.HOST,
    settings.NAMESRV_PORT,
    settings.BROKER_PORT,
    METRICS_PORT,
    click.option(
        "--brokers", type=click.IntRange(1, len(BROKER_NAMES)), default=1, show_default=True, help="Number of brokers."
    ),
    click.option("--console", is_flag=True, help="Serve a web page over the cluster as well."),
    *CONSOLE_OPTIONS,
    *settings.STORE_OPTIONS,
    *settings.SHARED_OPTIONS,
)
def up(**flags: Unpack[UpFlags]) -> None:
    """Start a name server and a broker, or several."""
    given = gather_broker_settings(flags)
    notes = settings.set_host(given, given.get("brokerIP1", ""))
    nameserver = _load_nameserver_config(flags, given)
    members = _make_members(flags, given)
    if flags["print_config"]:
        listed = f"name server\n{settings.format_settings(nameserver.describe())}"
        click.echo("\n\n".join([listed, *map(_list_broker, members)]))
        return
    check_metrics(given)
    console = (
        plan_console(flags, given["bindAddress"]) if flags["console"] or flags["console_port"] is not None else None
    )
    from .serve import describe_advertised, serve

    async def start(servers: AsyncExitStack, clock: Clock) -> str:
        first, brokers = await _start(servers, clock, nameserver, members)
        notes.extend(await describe_advertised([first, *brokers], clock))
        notes.extend(describe_store_place(member.flags, member.given) for member in members)
        urls = [url for broker in brokers if (url := await enter_metrics(servers, clock, broker)) is not None]
        metrics = f" metrics={','.join(urls)}" if urls else ""
        ready = f"ready namesrv={first.address} broker={','.join(broker.address for broker in brokers)}{metrics}"
        return ready if console is None else f"{ready} console={await console(servers, first.address)}"

    serve(start, notes, log_level=flags["log_level"])


def _list_broker(member: ClusterMember) -> str:
    name = f"broker {member.given['brokerName'].strip()}" if member.brokers > 1 else "broker"
    return f"{name}\n{list_broker_settings(member.flags, member.given)}"


def _load_nameserver_config(flags: UpFlags, given: dict[str, str]) -> "NameServerConfig":
    """Let the name server read the broker's settings too, but for the port; ``--advertise`` names the broker's."""
    port = DEFAULT_PORT if flags["namesrv_port"] is None else flags["namesrv_port"]
    advertised = flags["advertise"] and flags["advertise"]._replace(port=0)
    store = os.path.abspath(os.path.expanduser(given[settings.STORE_KEY]))
    kept = {} if flags["ephemeral"] else {KV_KEY: os.path.join(store, "namesrv", KV_FILE)}
    return load_nameserver_config({**kept, **given, "listenPort": str(port)}, advertised)


def _make_members(flags: UpFlags, given: dict[str, str]) -> list[ClusterMember]:
    """Return the brokers, each with what it has for itself.

    Raises:
        ConfigError: a setting that they cannot have in common, or a store of another number of brokers.
    """
    count = flags["brokers"]
    if not flags["ephemeral"]:
        _check_layout(os.path.expanduser(given[settings.STORE_KEY]), count)
    if count == 1:
        return [ClusterMember(flags, _broker_settings({"brokerName": BROKER_NAMES[0], **given}), count)]
    for key in _BROKERS_OWN:
        if key in given:
            raise ConfigError(f"{key} and --brokers {count} contradict each other: each broker has its own", key=key)
    return [_make_member(flags, given, number) for number in range(count)]


def _check_layout(store: str, count: int) -> None:
    """Refuse to begin an empty store beside the messages of another layout."""
    if count > 1 and os.path.isdir(os.path.join(store, "commitlog")):
        raise ConfigError(f"{store} is the store of one broker, --brokers {count} needs another", key="--brokers")
    if count == 1 and os.path.isdir(os.path.join(store, BROKER_NAMES[0], "commitlog")):
        raise ConfigError(f"{store} holds the stores of several brokers, start them with --brokers", key="--brokers")


def _make_member(flags: UpFlags, given: dict[str, str], number: int) -> ClusterMember:
    from ..broker.settings.config import DEFAULT_METRICS_PORT
    from ..broker.settings.config import DEFAULT_PORT as BROKER_PORT

    name, advertised = BROKER_NAMES[number], flags["advertise"]
    own = {
        "brokerName": name,
        "listenPort": _shift_port(given.get("listenPort", str(BROKER_PORT)), number),
        PORT_KEY: _shift_port(given.get(PORT_KEY, str(DEFAULT_METRICS_PORT)), number),
        settings.STORE_KEY: os.path.join(given[settings.STORE_KEY], name),
    }
    if advertised is not None:
        advertised = advertised._replace(port=_port_of(advertised.port, number))
    own_flags = cast("BrokerFlags", {**flags, "advertise": advertised})
    return ClusterMember(own_flags, _broker_settings({**given, **own}), flags["brokers"])


def _shift_port(first: str, number: int) -> str:
    """Return the port of a broker as a setting; what is no number is left for the broker to refuse."""
    port = first.strip()
    return str(_port_of(int(port), number)) if port.isdecimal() else port


def _port_of(first: int, number: int) -> int:
    """Return the port of a broker; 0 is a free one for each."""
    return first and first + PORT_STEP * number


def _broker_settings(given: dict[str, str]) -> dict[str, str]:
    """Leave out the keys that only the name server has; the broker would warn that they have no effect."""
    from ..broker.settings.config import BrokerConfig
    from ..common.settings import setting_keys
    from ..namesrv.config import NameServerConfig

    own = setting_keys(NameServerConfig) - setting_keys(BrokerConfig)
    return {key: value for key, value in given.items() if key not in own}


async def _start(
    servers: AsyncExitStack, clock: Clock, nameserver: "NameServerConfig", members: list[ClusterMember]
) -> "tuple[NameServer, list[Broker]]":
    from ..namesrv.server import NameServer
    from .serve import naming_holder

    with naming_holder("--namesrv-port"):
        started_nameserver = await servers.enter_async_context(NameServer(nameserver, clock))
    brokers: list[Broker] = []
    for member in members:
        foreign = member.given.get("namesrvAddr", "")
        member.given["namesrvAddr"] = ";".join(filter(None, [started_nameserver.local_address, foreign]))
        brokers.append(await enter_broker(servers, clock, member.flags, member.given, sharers=member.brokers))
    return started_nameserver, brokers
