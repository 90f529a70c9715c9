"""``rocketlet up``: a name server with a broker in one process, or with several in processes of their own.

One broker is called broker-a and has the store's directory to itself. Of several, broker-a, broker-b and so on, each
has a directory of that name below it, and the ports are 10 apart. Slaves have the names of their masters and, behind
it, their ids in the names of their directories; their ports follow those of the masters, slave by slave. The name
server keeps its key-value table below the store's directory, too.

What a start says first is for who sees it for the first time: where what is kept, where servers are reached, and the
commands that send, read and stop, as they work with the ports of this start.
"""

import os
import re
import shutil
import string
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Unpack, cast

import click

from ..common.clock import Clock
from ..common.errors import ConfigError, StoreInUseError
from ..common.ids import format_address
from . import settings
from .broker import BrokerFlags, describe_store_place, enter_broker, gather_broker_settings, list_broker_settings
from .console import CONSOLE_OPTIONS, ConsoleFlags, StartConsole, plan_console
from .grpc import NO_GRPC, NO_PORT, choose_grpc_port, enter_grpc, grpc_port
from .grpc import PORT_KEY as GRPC_PORT_KEY
from .instances import LOG_NAME, Instance, InstanceTls, process_start, stop_hint
from .main import VERSION
from .metrics import METRICS_PORT, PORT_KEY, check_metrics, enter_metrics
from .namesrv import DEFAULT_PORT, KV_FILE, KV_KEY, load_nameserver_config
from .starting.protection import check_own_tls, describe_protection, tls_options

if TYPE_CHECKING:
    from ..client import ClientSettings
    from ..namesrv.config import NameServerConfig
    from ..namesrv.server import NameServer
    from ..remoting.tls.tls_settings import TlsConfig
    from ..remoting.transport.addresses import Advertised
    from .control import StartControl
    from .processes import ProcessPlan


BROKER_NAMES: Final = tuple(f"broker-{letter}" for letter in string.ascii_lowercase)
PORT_STEP: Final = 10
_BROKERS_OWN: Final = ("brokerName", "storePathCommitLog", "readOnlyCommitLogStorePaths", "haListenPort")
_GROUPS_OWN: Final = ("brokerRole", "brokerId", "haMasterAddress")
_OTHER_PLACES: Final = ("storePathCommitLog", "readOnlyCommitLogStorePaths")
_MOST_SLAVES: Final = 9
_FIRST_TOPIC: Final = "hello"
_PLAIN_WORD: Final = re.compile(r"[\w@%+=:,./-]+", re.ASCII)


class UpFlags(BrokerFlags, ConsoleFlags):
    """The options of ``up``."""

    namesrv_port: int | None
    brokers: int
    slaves: int
    sync_replication: bool
    console: bool
    no_grpc: bool
    control_port: int | None
    topics: dict[str, int | None]
    reset: bool
    background: bool


class ClusterMember(NamedTuple):
    """One of the brokers: how it is called, and its options and settings."""

    title: str
    flags: BrokerFlags
    given: dict[str, str]
    is_slave: bool = False


class UpPlan(NamedTuple):
    """What is to be started, over which directory, and what is to be said of it; empty is a directory still to be made.

    ``log`` is the file that a start in the background logs to; ``asks_grpc`` says that the gRPC port must be had.
    """

    flags: UpFlags
    nameserver: "NameServerConfig"
    members: list[ClusterMember]
    console: StartConsole | None
    control: "StartControl | None"
    notes: list[str]
    store: str
    asks_grpc: bool
    log: str | None = None


def _parse_topics(_ctx: click.Context, _param: click.Parameter, texts: Sequence[str]) -> dict[str, int | None]:
    if not texts:
        return {}
    from .starting.first_topics import parse_topics

    return parse_topics(texts)


@click.command
@settings.with_options(
    settings.HOST,
    settings.NAMESRV_PORT,
    settings.BROKER_PORT,
    METRICS_PORT,
    grpc_port("8081, with --broker-port 0 a free one"),
    NO_GRPC,
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
    click.option(
        "--control-port",
        type=settings.PORT,
        help="Let tests in any language drive the broker by HTTP at this port; 0 takes a free one; needs --ephemeral.",
    ),
    click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="NAME[:QUEUES]",
        callback=_parse_topics,
        help="Create a topic on each broker, with 8 queues unless told otherwise; repeatable.",
    ),
    *settings.STORE_OPTIONS,
    click.option("--reset", is_flag=True, help="Remove what the store holds before the start."),
    click.option(
        "--background", is_flag=True, help='Return when it is ready, and let it run; "rocketlet down" stops it.'
    ),
    *settings.SHARED_OPTIONS,
)
def up(**flags: Unpack[UpFlags]) -> None:
    """Start a name server and a broker, or several, each a process of its own then."""
    if flags["ephemeral"] and flags["reset"]:
        raise click.UsageError("--ephemeral and --reset contradict each other: there is nothing to remove")
    given = gather_broker_settings(flags)
    if flags["control_port"] is not None:
        from .control import check_options

        check_options(flags, given)
    asks_grpc = choose_grpc_port(given, is_refused=flags["no_grpc"], is_test=flags["control_port"] is not None)
    notes = settings.set_host(given, given.get("brokerIP1", ""))
    nameserver = _load_nameserver_config(flags, given)
    check_own_tls(nameserver.tls)
    notes.extend(describe_protection(given, nameserver.tls))
    members = _make_members(flags, given)
    if flags["print_config"]:
        listed = f"name server\n{settings.format_settings(nameserver.describe())}"
        click.echo("\n\n".join([listed, *[_list_broker(member, len(members)) for member in members]]))
        return
    check_metrics(given)
    console = (
        plan_console(flags, given["bindAddress"]) if flags["console"] or flags["console_port"] is not None else None
    )
    store = "" if flags["ephemeral"] else os.path.abspath(os.path.expanduser(given[settings.STORE_KEY]))
    control = None if flags["control_port"] is None else _plan_control(flags, nameserver, members[0])
    plan = UpPlan(flags, nameserver, members, console, control, notes, store, asks_grpc)
    if flags["reset"]:
        _reset(plan, given)
    if flags["background"]:
        plan = _go_to_background(plan)
    from .serve import serve

    serve(partial(_start, plan), notes, flags)


def _plan_control(flags: UpFlags, nameserver: "NameServerConfig", member: ClusterMember) -> "StartControl":
    """Return what starts the servers as those of a test."""
    from .control import ControlPlan, plan_control

    advertised = flags["advertise"]
    told = 0 if advertised is None else advertised.port
    return plan_control(ControlPlan(flags["control_port"] or 0, nameserver, member.given, told, flags["topics"]))


def _reset(plan: UpPlan, given: Mapping[str, str]) -> None:
    """Empty the store.

    Raises:
        ConfigError: it is none, or has files elsewhere.
        StoreInUseError: a broker has it open.
    """
    from .serve import say
    from .starting.reset import StoreReset

    for key in _OTHER_PLACES:
        if given.get(key, "").strip():
            text = f"--reset and {key} contradict each other: files outside of {plan.store} are not removed"
            raise ConfigError(text, key="--reset")
    reset = StoreReset(plan.store)
    try:
        has_removed = reset.run()
    except StoreInUseError as error:
        raise StoreInUseError(f"{error}{stop_hint(plan.store)}") from error
    if has_removed:
        say(str(reset), is_json=plan.flags["log_format"] == "json")


def _go_to_background(plan: UpPlan) -> UpPlan:
    """Return in a process of its own.

    Raises:
        ConfigError: there is no place for its log.
    """
    from .starting.background import go_to_background

    store = plan.store or tempfile.mkdtemp(prefix=settings.EPHEMERAL_PREFIX)
    log = os.path.join(store, LOG_NAME)
    go_to_background(log)
    return plan._replace(store=store, log=log)


def _reach_own(plan: UpPlan) -> "ClientSettings":
    """Return how the console reaches the servers beside it: at brokers that ask who that is, as a super user."""
    from ..client import ClientSettings, Credentials
    from ..remoting.tls.contexts import client_context
    from .starting.first_topics import find_login

    login = find_login(plan.members[0].given)
    credentials = Credentials(login.name, login.password) if login is not None else None
    return ClientSettings(credentials=credentials, tls=client_context(plan.nameserver.tls))


async def _start(plan: UpPlan, servers: AsyncExitStack, clock: Clock) -> str:
    """Start everything; return the ready line."""
    from .serve import describe_advertised

    if plan.flags["ephemeral"]:
        plan = await _make_ephemeral(plan, servers)
    members, notes = plan.members, plan.notes
    first, ready = await (plan.control(servers, plan.store) if plan.control else _start_servers(servers, clock, plan))
    advertised = [server for each in zip(members, ready, strict=True) for server in _advertised(*each)]
    named = dict([("namesrv", first.address), *_name_addresses(members, ready)])
    brokers = [_local_address(*each) for each in zip(members, ready, strict=True)]
    masters = [address for member, address in zip(members, brokers, strict=True) if not member.is_slave]
    if plan.flags["topics"] and plan.control is None:
        from ..remoting.tls.contexts import client_context
        from .starting.first_topics import create_topics, find_login

        login = find_login(members[0].given)
        await create_topics(plan.flags["topics"], masters, clock, client_context(plan.nameserver.tls), login)
    if plan.console is not None:
        named["console"] = await plan.console(servers, first.address, _reach_own(plan))
    instance = Instance(
        pid=os.getpid(),
        process_start=process_start(os.getpid()),
        store=plan.store,
        is_ephemeral=plan.flags["ephemeral"],
        addresses=named,
        namesrv=first.local_address,
        brokers=brokers,
        master_count=len(masters),
        began_at_ms=clock.now_ms(),
        version=VERSION,
        log=plan.log,
        tls=_own_tls(plan.nameserver.tls),
    )
    await _register(instance, servers)
    notes.extend([*await describe_advertised([first.advertised, *advertised], clock), *_first_steps(plan, instance)])
    return f"ready {' '.join(f'{name}={address}' for name, address in named.items())}"


def _own_tls(config: "TlsConfig") -> InstanceTls | None:
    """Return how this machine reaches the servers, where that is by TLS alone."""
    if not config.is_client_on:
        return None
    pair = config.client_pair
    return InstanceTls(*pair.paths) if pair is not None else InstanceTls()


async def _start_servers(
    servers: AsyncExitStack, clock: Clock, plan: UpPlan
) -> "tuple[NameServer, list[dict[str, str]]]":
    """Start the name server and the brokers; return it, and what the ready lines of the brokers say."""
    first = await _start_nameserver(servers, clock, plan)
    if len(plan.members) > 1:
        return first, await _start_processes(servers, clock, plan)
    return first, [await _start_broker(servers, clock, plan)]


async def _make_ephemeral(plan: UpPlan, servers: AsyncExitStack) -> UpPlan:
    """Give the brokers a directory that is removed at the end."""
    from .serve import make_ephemeral_store

    store = await make_ephemeral_store(servers, plan.store)
    for member in plan.members:
        place = store if len(plan.members) == 1 else os.path.join(store, member.title)
        member.given[settings.STORE_KEY] = place
    return plan._replace(store=store)


async def _register(instance: Instance, servers: AsyncExitStack) -> None:
    """Let ``rocketlet status`` and ``down`` know of this process until it stops."""
    import asyncio  # not for the help

    await asyncio.to_thread(instance.register)
    servers.push_async_callback(asyncio.to_thread, instance.unregister)


def _first_steps(plan: UpPlan, instance: Instance) -> Iterator[str]:
    """Say where everything is, and how the first message is sent and read."""
    member, named = plan.members[0], instance.addresses
    directory = describe_store_place(member.flags, {settings.STORE_KEY: plan.store})
    several = len(plan.members) > 1
    names = ", ".join(each.title for each in plan.members)
    yield f"{directory}, in a directory for each broker: {names}" if several else directory
    found = f"clients find the broker{'s' if several else ''} by the name server {named['namesrv']} (NAMESRV_ADDR)"
    yield found + (f", those of RocketMQ 5 at {named['grpc'].replace(',', ' or ')}" if "grpc" in named else "")
    program = _program()
    where = nameserver_option(instance.namesrv) + tls_options(plan.nameserver.tls)
    topic = next(iter(plan.flags["topics"]), _FIRST_TOPIC)
    if topic == _FIRST_TOPIC and member.given.get("autoCreateTopicEnable", "").strip().lower() == "false":
        yield f"to create a topic: {program} topic create {topic}{where}"
    if "control" in named:
        yield f"tests drive the broker by {named['control']}, which /openapi.json there describes"
    yield f"to send a message: {program} message send {topic} 'Hello, world'{where}"
    yield f"to read messages: {program} message tail {topic} --from begin{where}"
    is_default = plan.store == settings.data_path("store")
    stop = f"{program} down" if is_default else f"{program} down --store {_quote(plan.store)}"
    yield f"to stop: {stop}; logs go to {plan.log}" if plan.log else f"to stop: Ctrl-C, or {stop}"


def nameserver_option(address: str) -> str:
    """Return what the verbs need to find a name server; nothing where they look for it first."""
    usual = f"127.0.0.1:{DEFAULT_PORT}"
    return "" if address == os.environ.get("NAMESRV_ADDR", usual) == usual else f" --namesrv {address}"


def _program() -> str:
    """Return how a shell calls this program."""
    path = sys.argv[0]
    name = os.path.basename(path)
    if name == "__main__.py":
        return f"{_quote(sys.executable)} -m rocketlet"
    found = shutil.which(name)
    return name if found and os.path.realpath(found) == os.path.realpath(path) else _quote(os.path.abspath(path))


def _quote(word: str) -> str:
    if _PLAIN_WORD.fullmatch(word):
        return word
    import shlex

    return shlex.quote(word)


def _name_addresses(members: Sequence[ClusterMember], ready: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the words of the ready line: who is reached where."""
    pairs = list(zip(members, ready, strict=True))
    masters = [each["broker"] for member, each in pairs if not member.is_slave]
    slaves = [each["broker"] for member, each in pairs if member.is_slave]
    metrics = [each["metrics"] for each in ready if "metrics" in each]
    control = [each["control"] for each in ready if "control" in each]
    grpc = [each["grpc"] for each in ready if "grpc" in each]
    words = {"broker": masters, "metrics": metrics, "slave": slaves, "control": control, "grpc": grpc}
    for name, addresses in words.items():
        if addresses:
            yield name, ",".join(addresses)


def _local_address(member: ClusterMember, ready: Mapping[str, str]) -> str:
    """Return where this machine reaches a broker, whatever clients are told."""
    from ..remoting.transport.addresses import local_host

    return format_address(local_host(member.given["bindAddress"]), int(ready["port"]))


def _advertised(member: ClusterMember, ready: Mapping[str, str]) -> "Iterator[Advertised]":
    """Yield where clients find a broker, and those of RocketMQ 5."""
    from ..remoting.transport.addresses import Advertised

    given, told = member.given, member.flags["advertise"]
    host, bound_host = given.get("brokerIP1", "").strip(), given["bindAddress"]
    yield Advertised(host, told.port if told is not None else 0, (bound_host, int(ready["port"])))
    if "grpc" in ready:
        yield Advertised(host, 0, (bound_host, int(ready["grpc"].rpartition(":")[2])))


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
    if not (flags["ephemeral"] or flags["reset"]):
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
        GRPC_PORT_KEY: NO_PORT,  # its master's messages are its master's to hand out
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
        GRPC_PORT_KEY: _shift_port(given[GRPC_PORT_KEY], number),
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


async def _start_nameserver(servers: AsyncExitStack, clock: Clock, plan: UpPlan) -> "NameServer":
    """Start the name server, and have the brokers register there."""
    from ..namesrv.server import NameServer
    from .serve import naming_holder

    with naming_holder("--namesrv-port", plan.store):
        started = await servers.enter_async_context(NameServer(plan.nameserver, clock))
    for member in plan.members:
        foreign = member.given.get("namesrvAddr", "")
        member.given["namesrvAddr"] = ";".join(filter(None, [started.local_address, foreign]))
    return started


async def _start_broker(servers: AsyncExitStack, clock: Clock, plan: UpPlan) -> dict[str, str]:
    """Start the only broker in this process; return what its ready line would say."""
    member = plan.members[0]
    try:
        broker = await enter_broker(servers, clock, member.flags, member.given)
    except StoreInUseError as error:
        raise StoreInUseError(f"{error}{stop_hint(plan.store)}") from error
    metrics = await enter_metrics(servers, clock, broker)
    grpc = await enter_grpc(servers, clock, broker, is_asked=plan.asks_grpc)
    ready = {"broker": broker.address, "port": str(broker.advertised.bound[1])}
    return {**ready, **{name: address for name, address in (("metrics", metrics), ("grpc", grpc)) if address}}


async def _start_processes(servers: AsyncExitStack, clock: Clock, plan: UpPlan) -> list[dict[str, str]]:
    """Start each broker in a process of its own, slaves when the masters are there; return what their lines say."""
    from .processes import BrokerProcesses

    processes = await servers.enter_async_context(BrokerProcesses(clock))
    plans = [_plan_process(member, asks_grpc=plan.asks_grpc) for member in plan.members]
    masters = sum(not member.is_slave for member in plan.members)
    try:
        return [*await processes.start(plans[:masters]), *await processes.start(plans[masters:])]
    except ConfigError as error:
        raise ConfigError(f"{error}{stop_hint(plan.store)}", key=error.key) from error


def _plan_process(member: ClusterMember, *, asks_grpc: bool) -> "ProcessPlan":
    from .processes import ProcessPlan

    flags, options = member.flags, ["--repair"] if member.flags["repair"] else []
    if not asks_grpc:
        options += ["--grpc-if-free"]
    if (advertised := flags["advertise"]) is not None and advertised.port:
        options += ["--advertise", format_address(*advertised)]
    return ProcessPlan(member.title, flags, options, member.given)
