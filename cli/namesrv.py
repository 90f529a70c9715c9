"""``rocketlet namesrv``: a name server, and what ``up`` shares with it.

Its key-value table is kept in the user's data directory, by port; a name server at a free port, which nobody could find
again, keeps it in memory. Java's name servers keep theirs in ``~/namesrv/kvConfig.json``, all in the same file.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Unpack

import click

from ..common.clock import Clock
from . import settings
from .starting.protection import AUTHENTICATION_KEY, describe_protection

if TYPE_CHECKING:
    from ..namesrv.config import NameServerConfig

DEFAULT_PORT = 9876
KV_KEY = "kvConfigPath"
KV_FILE = "kvConfig.json"


class NameServerFlags(settings.LogFlags):
    """The options of ``namesrv``."""

    host: str | None
    namesrv_port: int | None
    advertise: settings.Address | None
    config_file: str | None
    pairs: dict[str, str]
    print_config: bool


@click.command
@settings.with_options(
    settings.HOST,
    settings.NAMESRV_PORT,
    *settings.SHARED_OPTIONS,
)
def namesrv(**flags: Unpack[NameServerFlags]) -> None:
    """Start a name server."""
    own = {"bindAddress": flags["host"], "listenPort": flags["namesrv_port"]}
    given = settings.gather_settings(own, flags["pairs"], flags["config_file"])
    given.setdefault(KV_KEY, _default_kv_path(given.get("listenPort", str(DEFAULT_PORT)).strip()))
    notes = settings.set_host(given, flags["advertise"].host if flags["advertise"] else "")
    config = load_nameserver_config(given, flags["advertise"])
    if flags["print_config"]:
        click.echo(settings.format_settings(config.describe()))
        return
    notes.extend(describe_protection({**given, AUTHENTICATION_KEY: "true"}, config.tls))  # nobody is asked here
    from ..broker.settings.java_keys import warn_unused
    from ..common.settings import setting_keys
    from ..namesrv.config import NameServerConfig
    from ..namesrv.server import NameServer
    from ..remoting.tls.tls_settings import TLS_KEYS
    from .serve import describe_advertised, naming_holder, serve

    async def start(servers: AsyncExitStack, clock: Clock) -> str:
        warn_unused(flags["pairs"], used=setting_keys(NameServerConfig) | TLS_KEYS)
        with naming_holder("--namesrv-port"):
            started = await servers.enter_async_context(NameServer(config, clock))
        notes.extend(await describe_advertised([started.advertised], clock))
        return f"ready namesrv={started.address}"

    serve(start, notes, flags)


def _default_kv_path(port: str) -> str:
    return settings.data_path("namesrv", port, KV_FILE) if port.isdecimal() and int(port) else ""


def load_nameserver_config(given: Mapping[str, str], advertised: settings.Address | None) -> "NameServerConfig":
    """Parse the settings of a name server.

    Raises:
        ConfigError: a key or value that cannot be used.
    """
    from msgspec.structs import replace

    from ..namesrv.config import NameServerConfig

    config = NameServerConfig.from_java(given)
    if advertised is None:
        return config
    return replace(config, advertised_host=advertised.host, advertised_port=advertised.port)
