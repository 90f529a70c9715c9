"""The gRPC port of ``rocketlet broker`` and ``rocketlet up``: the options, and its start beside a broker.

It is bound at the start and costs nothing before a client knocks: then what serves it is imported, on a thread.
"""

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import click

from ..common.clock import Clock
from ..common.errors import AddressInUseError, ConfigError
from ..common.ids import format_address
from . import settings

if TYPE_CHECKING:
    from ..broker.server import Broker
    from ..remoting.transport.acceptor import Admission
    from ..remoting.transport.server import MakeServer

OPTION: Final = "--grpc-port"
PORT_KEY: Final = "grpcServerPort"
NO_PORT: Final = "-1"
_PORT: Final = "8081"
_BROKER_PORT_KEY: Final = "listenPort"
NO_GRPC: Final = click.option("--no-grpc", is_flag=True, help="Serve no clients of RocketMQ 5.")
_log = logging.getLogger(__name__)


def grpc_port(default: str) -> Callable[[settings.Command], settings.Command]:
    """Return the option; ``default`` says what happens without it."""
    text = f"Port for clients of RocketMQ 5, by gRPC; 0 takes a free one.  [default: {default}]"
    return click.option(OPTION, type=settings.PORT, help=text)


def choose_grpc_port(given: dict[str, str], *, is_refused: bool, is_test: bool) -> bool:
    """Set the port of ``up`` where nobody has; tell whether somebody has, so that it must not be in use.

    A broker that takes a free port, or serves tests, is one of several, perhaps: its gRPC port is a free one.

    Raises:
        UsageError: it was asked for, and refused.
    """
    is_asked = PORT_KEY in given
    if is_refused and is_asked and given[PORT_KEY].strip() != NO_PORT:
        raise click.UsageError(f"--no-grpc and {OPTION} ({PORT_KEY}) contradict each other")
    if is_refused:
        given[PORT_KEY] = NO_PORT
    elif not is_asked:
        given[PORT_KEY] = "0" if is_test or given.get(_BROKER_PORT_KEY, "").strip() == "0" else _PORT
    return is_asked


async def enter_grpc(servers: AsyncExitStack, clock: Clock, broker: "Broker", *, is_asked: bool) -> str | None:
    """Bind the gRPC port of a started broker if it shall have one; return its address.

    Raises:
        ConfigError: the port was asked for and cannot be had, another one is left out with a warning; or its TLS
            cannot be served.
    """
    config = broker.config
    if str(config.grpc.port) == NO_PORT:
        return None
    from ..broker.ports import admit_grpc
    from ..remoting.transport.server import OnDemandPort, open_listener
    from .serve import naming_holder

    admission = await admit_grpc(config, clock)
    try:
        with naming_holder(OPTION):
            listener = open_listener(config.host, config.grpc.port, key=PORT_KEY)
    except ConfigError as error:
        if is_asked or not isinstance(error.__cause__, AddressInUseError):
            raise
        _log.warning("clients of RocketMQ 5 are not served: %s", error)
        return None
    port = await servers.enter_async_context(OnDemandPort(listener, partial(_load, broker, clock, admission)))
    address = format_address(broker.advertised.told[0], port.address[1])
    await broker.announce_grpc(address)
    return address


def _load(broker: "Broker", clock: Clock, admission: "Admission") -> "MakeServer":
    from ..proxy.server import serving

    return serving(broker, clock, admission)
