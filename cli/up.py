"""``rocketlet up``: a name server with a broker in one process, or with several in processes of their own.

One broker is called broker-a and has the store's directory to itself. Of several, broker-a, broker-b and so on, each
has a directory of that name below it, and the ports are 10 apart. Slaves have the names of their masters and, behind
it, their ids in the names of their directories; their ports follow those of the masters, slave by slave. The name
server keeps its key-value table below the store's directory, too.
"""

import os
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack, cast

import click

from ..common.clock import Clock
from ..common.errors import ConfigError
from ..common.ids import format_address
from . import settings
from .broker import BrokerFlags, describe_store_place, enter_broker, gather_broker_settings, list_broker_settings
from .console import CONSOLE_OPTIONS, ConsoleFlags, plan_console
from .metrics import METRICS_PORT, PORT_KEY, check_metrics, enter_metrics
from .namesrv import DEFAULT_PORT, KV_FILE, KV_KEY, load_nameserver_config

if TYPE_CHECKING:
    from ..namesrv.config import NameServerConfig
    from ..namesrv.server import NameServer
    from ..remoting.transport.addresses import Advertised
    from .processes import ProcessPlan


BROKER_NAMES: Final = tuple(f"broker-{letter}" for letter in string.ascii_lowercase)
PORT_STEP: Final = 10
_BROKERS_OWN: Final = ("brokerName", "storePathCommitLog", "readOnlyCommitLogStorePaths", "haListenPort")
_GROUPS_OWN: Final = ("brokerRole", "brokerId", "haMasterAddress")
_MOST_SLAVES: Final = 9


class UpFlags(BrokerFlags, ConsoleFlags):
    """The options of ``up``."""

    namesrv_port: int | None
    brokers: int
    slaves: int
    sync_replication: bool
    console: bool


class ClusterMember(NamedTuple):
    """One of the brokers: how it is called, and its options and settings."""

    title: str
    flags: BrokerFlags
    given: dict[str, str]
    is_slave: bool = False


@click.command
@settings.with_options(
    settings.HOST,
    settings.NAMESRV_PORT,
    settings.BROKER_PORT,
    METRICS_PORT,
    click.option(
        "--brokers", type=click.IntRange(1, len(BROKER_NAMES)), default=1, show_default=True, help="Number of brokers."
    ),
    click.option(
        "--slaves",
        type=click.IntRange(0, _MOST_SLAVES),
        default=0,
        show_default=True,
        help="Number of slaves that each broker has, which copy it.",
    ),
    click.option(
        "--sync-replication", is_flag=True, help="Answer a send when a slave has the message as well (SYNC_MASTER)."
    ),
    click.option("--console", is_flag=True, help="Serve a web page over the cluster as well."),
    *CONSOLE_OPTIONS,
    *settings.STORE_OPTIONS,
    *settings.SHARED_OPTIONS,
)
def up(**flags: Unpack[UpFlags]) -> None:
    """Start a name server and a broker, or several, each a process of its own then."""
    given = gather_broker_settings(flags)
    notes = settings.set_host(given, given.get("brokerIP1", ""))
    nameserver = _load_nameserver_config(flags, given)
    members = _make_members(flags, given)
    if flags["print_config"]:
        listed = f"name server\n{settings.format_settings(nameserver.describe())}"
        click.echo("\n\n".join([listed, *[_list_broker(member, len(members)) for member in members]]))
        return
    check_metrics(given)
    console = (
        plan_console(flags, given["bindAddress"]) if flags["console"] or flags["console_port"] is not None else None
    )
    from .serve import describe_advertised, serve

    async def start(servers: AsyncExitStack, clock: Clock) -> str:
        first = await _start_nameserver(servers, clock, nameserver, members)
        if len(members) > 1:
            ready = await _start_processes(servers, clock, members, log_level=flags["log_level"])
        else:
            ready = [await _start_broker(servers, clock, members[0])]
        advertised = [_advertised(*each) for each in zip(members, ready, strict=True)]
        notes.extend(await describe_advertised([first.advertised, *advertised], clock))
        notes.extend(describe_store_place(member.flags, member.given) for member in members)
        named = [f"namesrv={first.address}", *_name_addresses(members, ready)]
        if console is not None:
            named.append(f"console={await console(servers, first.address)}")
        return f"ready {' '.join(named)}"

    serve(start, notes, log_level=flags["log_level"])


def _name_addresses(members: Sequence[ClusterMember], ready: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """Yield the words of the ready line: who is reached where."""
    pairs = list(zip(members, ready, strict=True))
    masters = [each["broker"] for member, each in pairs if not member.is_slave]
    slaves = [each["broker"] for member, each in pairs if member.is_slave]
    metrics = [each["metrics"] for each in ready if "metrics" in each]
    for name, addresses in {"broker": masters, "metrics": metrics, "slave": slaves}.items():
        if addresses:
            yield f"{name}={','.join(addresses)}"


def _advertised(member: ClusterMember, ready: Mapping[str, str]) -> "Advertised":
    from ..remoting.transport.addresses import Advertised

    given, told = member.given, member.flags["advertise"]
    bound = given["bindAddress"], int(ready["port"])
    return Advertised(given.get("brokerIP1", "").strip(), told.port if told is not None else 0, bound)


def _list_broker(member: ClusterMember, count: int) -> str:
    name = f"broker {member.title}" if count > 1 else "broker"
    return f"{name}\n{list_broker_settings(member.flags, member.given)}"


def _load_nameserver_config(flags: UpFlags, given: dict[str, str]) -> "NameServerConfig":
    """Let the name server read the broker's settings too, but for the port; ``--advertise`` names the broker's."""
    port = DEFAULT_PORT if flags["namesrv_port"] is None else flags["namesrv_port"]
    advertised = flags["advertise"] and flags["advertise"]._replace(port=0)
    store = os.path.abspath(os.path.expanduser(given[settings.STORE_KEY]))
    kept = {} if flags["ephemeral"] else {KV_KEY: os.path.join(store, "namesrv", KV_FILE)}
    return load_nameserver_config({**kept, **given, "listenPort": str(port)}, advertised)


def _make_members(flags: UpFlags, given: dict[str, str]) -> list[ClusterMember]:
    """Return the brokers, masters first, each with what it has for itself.

    Raises:
        ConfigError: a setting that they cannot have in common, or a store of another number of brokers.
    """
    count, slaves = flags["brokers"], flags["slaves"]
    if flags["sync_replication"] and not slaves:
        raise ConfigError("--sync-replication needs --slaves 1 or more: there is nobody to wait for", key="--slaves")
    if not flags["ephemeral"]:
        _check_layout(os.path.expanduser(given[settings.STORE_KEY]), count)
    if count > 1 or slaves:
        _refuse_own(given, _BROKERS_OWN, f"--brokers {count}" if count > 1 else f"--slaves {slaves}")
    if slaves:
        _refuse_own(given, _GROUPS_OWN, f"--slaves {slaves}")
    if flags["sync_replication"]:
        given = {"inSyncReplicas": "2", **given, "brokerRole": "SYNC_MASTER"}
    masters = [_make_master(flags, given, number) for number in range(count)]
    return masters + [
        _make_slave(flags, given, master, slave, count + number * slaves + slave)
        for number, master in enumerate(masters)
        for slave in range(slaves)
    ]


def _refuse_own(given: Mapping[str, str], keys: Iterable[str], option: str) -> None:
    for key in keys:
        if key in given:
            raise ConfigError(f"{key} and {option} contradict each other: each broker has its own", key=key)


def _check_layout(store: str, count: int) -> None:
    """Refuse to begin an empty store beside the messages of another layout."""
    if count > 1 and os.path.isdir(os.path.join(store, "commitlog")):
        raise ConfigError(f"{store} is the store of one broker, --brokers {count} needs another", key="--brokers")
    if count == 1 and os.path.isdir(os.path.join(store, BROKER_NAMES[0], "commitlog")):
        raise ConfigError(f"{store} holds the stores of several brokers, start them with --brokers", key="--brokers")


def _make_master(flags: UpFlags, given: dict[str, str], number: int) -> ClusterMember:
    if flags["brokers"] == 1:
        name = given.get("brokerName", BROKER_NAMES[0]).strip()
        return ClusterMember(name, flags, _broker_settings({"brokerName": name, **given}))
    name = BROKER_NAMES[number]
    own = {"brokerName": name, settings.STORE_KEY: os.path.join(given[settings.STORE_KEY], name)}
    return _make_member(flags, {**given, **own}, name, number)


def _make_slave(flags: UpFlags, given: dict[str, str], master: ClusterMember, slave: int, number: int) -> ClusterMember:
    name, broker_id = master.given["brokerName"], slave + 1
    title = f"{name}-{broker_id}"
    own = {
        "brokerName": name,
        "brokerId": str(broker_id),
        "brokerRole": "SLAVE",
        settings.STORE_KEY: os.path.join(given[settings.STORE_KEY], title),
    }
    return _make_member(flags, {**given, **own}, title, number)._replace(is_slave=True)


def _make_member(flags: UpFlags, given: dict[str, str], title: str, number: int) -> ClusterMember:
    """Return the broker of a number, from which its ports follow."""
    from ..broker.settings.config import DEFAULT_METRICS_PORT
    from ..broker.settings.config import DEFAULT_PORT as BROKER_PORT

    advertised = flags["advertise"]
    ports = {
        "listenPort": _shift_port(given.get("listenPort", str(BROKER_PORT)), number),
        PORT_KEY: _shift_port(given.get(PORT_KEY, str(DEFAULT_METRICS_PORT)), number),
    }
    if advertised is not None:
        advertised = advertised._replace(port=_port_of(advertised.port, number))
    own_flags = cast("BrokerFlags", {**flags, "advertise": advertised})
    return ClusterMember(title, own_flags, _broker_settings({**given, **ports}))


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


async def _start_nameserver(
    servers: AsyncExitStack, clock: Clock, config: "NameServerConfig", members: Sequence[ClusterMember]
) -> "NameServer":
    """Start the name server, and have the brokers register there."""
    from ..namesrv.server import NameServer
    from .serve import naming_holder

    with naming_holder("--namesrv-port"):
        started = await servers.enter_async_context(NameServer(config, clock))
    for member in members:
        foreign = member.given.get("namesrvAddr", "")
        member.given["namesrvAddr"] = ";".join(filter(None, [started.local_address, foreign]))
    return started


async def _start_broker(servers: AsyncExitStack, clock: Clock, member: ClusterMember) -> dict[str, str]:
    """Start the only broker in this process; return what its ready line would say."""
    broker = await enter_broker(servers, clock, member.flags, member.given)
    metrics = await enter_metrics(servers, clock, broker)
    ready = {"broker": broker.address, "port": str(broker.advertised.bound[1])}
    return ready if metrics is None else {**ready, "metrics": metrics}


async def _start_processes(
    servers: AsyncExitStack, clock: Clock, members: Sequence[ClusterMember], *, log_level: str
) -> list[dict[str, str]]:
    """Start each broker in a process of its own, slaves when the masters are there; return what their lines say."""
    from .processes import BrokerProcesses
    from .serve import make_ephemeral_store

    if members[0].flags["ephemeral"]:
        place = await make_ephemeral_store(servers)
        for member in members:
            member.given[settings.STORE_KEY] = os.path.join(place, member.title)
    processes = await servers.enter_async_context(BrokerProcesses(clock))
    plans = [_plan_process(member, log_level) for member in members]
    masters = sum(not member.is_slave for member in members)
    return [*await processes.start(plans[:masters]), *await processes.start(plans[masters:])]


def _plan_process(member: ClusterMember, log_level: str) -> "ProcessPlan":
    from .processes import ProcessPlan

    flags, options = member.flags, ["--log-level", log_level]
    if flags["repair"]:
        options.append("--repair")
    if (advertised := flags["advertise"]) is not None and advertised.port:
        options += ["--advertise", format_address(*advertised)]
    return ProcessPlan(member.title, options, member.given)
