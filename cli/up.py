"""``rocketlet up``: a name server and a broker in one process."""

import dataclasses
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Unpack

import click

from ..common.clock import Clock
from . import settings
from .broker import BrokerFlags, enter_broker, gather_broker_settings, load_broker_config
from .namesrv import DEFAULT_PORT, load_nameserver_config

if TYPE_CHECKING:
    from ..namesrv.config import NameServerConfig


BROKER_NAME = "broker-a"


class UpFlags(BrokerFlags):
    """The options of ``up``."""

    namesrv_port: int | None
    brokers: int


@click.command
@settings.with_options(
    settings.HOST,
    settings.NAMESRV_PORT,
    settings.BROKER_PORT,
    settings.STORE,
    settings.EPHEMERAL,
    settings.REPAIR,
    settings.ADVERTISE,
    settings.CONFIG,
    settings.SET,
    click.option("--brokers", type=click.IntRange(1), default=1, show_default=True, help="Number of brokers."),
    settings.PRINT_CONFIG,
    settings.LOG_LEVEL,
)
def up(**flags: Unpack[UpFlags]) -> None:
    """Start a name server and a broker."""
    if flags["brokers"] > 1:
        raise click.UsageError(f"--brokers {flags['brokers']}: more than one broker is not built yet")
    given = {"brokerName": BROKER_NAME, **gather_broker_settings(flags)}
    nameserver = _load_nameserver_config(flags, given)
    if flags["print_config"]:
        broker = load_broker_config(flags, given)
        click.echo(f"name server\n{settings.format_settings(nameserver.describe())}\n")
        click.echo(f"broker\n{settings.format_settings(broker.describe())}")
        return
    from .serve import serve

    async def start(servers: AsyncExitStack, clock: Clock) -> str:
        return await _start(servers, clock, nameserver, flags, given)

    serve(start, log_level=flags["log_level"])


def _load_nameserver_config(flags: UpFlags, given: dict[str, str]) -> "NameServerConfig":
    """Let the name server read the broker's settings too, but for the port; ``--advertise`` names the broker's."""
    port = DEFAULT_PORT if flags["namesrv_port"] is None else flags["namesrv_port"]
    advertised = flags["advertise"] and dataclasses.replace(flags["advertise"], port=0)
    return load_nameserver_config({**given, "listenPort": str(port)}, advertised)


async def _start(
    servers: AsyncExitStack, clock: Clock, nameserver: "NameServerConfig", flags: UpFlags, given: dict[str, str]
) -> str:
    from ..namesrv.server import NameServer

    started_nameserver = await servers.enter_async_context(NameServer(nameserver, clock))
    foreign = given.get("namesrvAddr", "")
    given["namesrvAddr"] = ";".join(filter(None, [started_nameserver.local_address, foreign]))
    started_broker = await enter_broker(servers, clock, flags, given)
    return f"ready namesrv={started_nameserver.address} broker={started_broker.address}"
