"""``rocketlet namesrv``: a name server, and what ``up`` shares with it."""

import dataclasses
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from ..common.clock import Clock
from . import settings

if TYPE_CHECKING:
    from ..namesrv.config import NameServerConfig

DEFAULT_PORT = 9876


class NameServerFlags(TypedDict):
    """The options of ``namesrv``."""

    host: str | None
    namesrv_port: int | None
    advertise: settings.Address | None
    config_file: str | None
    pairs: dict[str, str]
    print_config: bool
    log_level: str


@click.command
@settings.with_options(
    settings.HOST,
    settings.NAMESRV_PORT,
    settings.ADVERTISE,
    settings.CONFIG,
    settings.SET,
    settings.PRINT_CONFIG,
    settings.LOG_LEVEL,
)
def namesrv(**flags: Unpack[NameServerFlags]) -> None:
    """Start a name server."""
    own = {"bindAddress": flags["host"], "listenPort": flags["namesrv_port"]}
    given = settings.gather_settings(own, flags["pairs"], flags["config_file"])
    config = load_nameserver_config(given, flags["advertise"])
    if flags["print_config"]:
        click.echo(settings.format_settings(config.describe()))
        return
    from ..broker.keyrules import warn_unused
    from ..common.settings import setting_keys
    from ..namesrv.config import NameServerConfig
    from ..namesrv.server import NameServer
    from .serve import serve

    async def start(servers: AsyncExitStack, clock: Clock) -> str:
        warn_unused(flags["pairs"], used=setting_keys(NameServerConfig))
        started = await servers.enter_async_context(NameServer(config, clock))
        return f"ready namesrv={started.address}"

    serve(start, log_level=flags["log_level"])


def load_nameserver_config(given: Mapping[str, str], advertised: settings.Address | None) -> "NameServerConfig":
    """Parse the settings of a name server.

    Raises:
        ConfigError: a key or value that cannot be used.
    """
    from ..broker.keyrules import refuse_dangerous
    from ..namesrv.config import NameServerConfig

    # other keys that are dangerous are so for a broker, whose file this may be
    refuse_dangerous({key: value for key, value in given.items() if "tls" in key.lower()})
    config = NameServerConfig.from_java(given)
    if advertised is None:
        return config
    return dataclasses.replace(config, advertised_host=advertised.host, advertised_port=advertised.port)
