"""``rocketlet up --control-port``: the test fixture in place of plain servers, and the port by which tests drive it."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ..common.errors import AddressInUseError, ConfigError
from . import settings
from .main import VERSION

if TYPE_CHECKING:
    from ..namesrv.config import NameServerConfig
    from ..remoting.transport.addresses import Advertised

OPTION: Final = "--control-port"
_REFUSED_KEYS: Final = {
    "namesrvAddr": "its broker has the name server of this start alone",
    "metricsExporterType": "metrics are not served beside it",
}


class ControlPlan(NamedTuple):
    """What is started: the port, how the servers are set, and the topics that they begin with."""

    port: int
    nameserver: "NameServerConfig"
    given: dict[str, str]
    advertised_port: int
    topics: Mapping[str, int | None]


class StartedNameServer(NamedTuple):
    """Where a name server is found, by clients and on this machine."""

    address: str
    local_address: str
    advertised: "Advertised"


StartControl = Callable[[AsyncExitStack, str], Awaitable[tuple[StartedNameServer, list[dict[str, str]]]]]
"""Starts all in a stack, over a directory for temporary ones; returns what ready lines of brokers would say as well."""


def check_options(flags: Mapping[str, object], given: Mapping[str, str]) -> None:
    """Refuse what cannot be had together with a control port.

    Raises:
        ConfigError: a setting that contradicts it.
        UsageError: an option does.
    """
    if not flags["ephemeral"]:
        raise click.UsageError(f"{OPTION} needs --ephemeral: who uses it may empty the store")
    for option in _refused_options(flags):
        raise click.UsageError(f"{OPTION} and {option} contradict each other: it controls one broker, and nothing else")
    for key, reason in _REFUSED_KEYS.items():
        if given.get(key, "").strip():
            raise ConfigError(f"{OPTION} and {key} contradict each other: {reason}", key=key)


def _refused_options(flags: Mapping[str, object]) -> Iterator[str]:
    if flags["brokers"] != 1:
        yield "--brokers"
    for name in ("slaves", "console", "repair"):
        if flags[name]:
            yield f"--{name}"
    for name in ("console_port", "metrics_port"):
        if flags[name] is not None:
            yield f"--{name.replace('_', '-')}"


def plan_control(plan: ControlPlan) -> StartControl:
    """Return what starts the servers and their control port.

    Raises:
        ConfigError: what the extra ``control`` brings is not installed.
    """
    try:
        from .control_port.server import ControlledBroker, ControlServer
    except ModuleNotFoundError as error:
        message = f"the control port needs {error.name}: pip install 'rocketlet[control]'"
        raise ConfigError(message, key=OPTION) from error
    from ..testing.servers import Deployment
    from .serve import naming_holder
    from .starting.first_topics import DEFAULT_QUEUES

    async def start(servers: AsyncExitStack, directory: str) -> tuple[StartedNameServer, list[dict[str, str]]]:
        deployment = Deployment(plan.nameserver, plan.advertised_port, directory)
        own = {key: value for key, value in plan.given.items() if key != settings.STORE_KEY}
        own.setdefault("listenPort", _default_port())
        try:
            broker = await servers.enter_async_context(ControlledBroker(own, deployment))
        except AddressInUseError as error:
            with naming_holder("--namesrv-port" if error.port == plan.nameserver.port else "--broker-port"):
                raise
        for name, queues in plan.topics.items():
            await broker.create_topic(name, queues or DEFAULT_QUEUES)
        with naming_holder(OPTION):
            control = await servers.enter_async_context(
                ControlServer(broker, plan.given["bindAddress"], plan.port, VERSION)
            )
        started = broker.servers
        ready = {"broker": broker.address, "port": str(started.address[1]), "control": control.url}
        if broker.grpc_address:
            ready["grpc"] = broker.grpc_address
        nameserver = StartedNameServer(broker.nameserver, started.nameserver, started.nameserver_advertised)
        return nameserver, [ready]

    return start


def _default_port() -> str:
    from ..broker.settings.config import DEFAULT_PORT

    return str(DEFAULT_PORT)
