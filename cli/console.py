"""``rocketlet console``, a web page over any cluster, Apache RocketMQ's too; and that of ``rocketlet up``."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from ..common.clock import Clock
from ..common.errors import ConfigError
from . import settings

if TYPE_CHECKING:
    import ssl

    from ..client.session.settings import Tls

_PORT: Final = 8088
_PORT_OPTION: Final = "--console-port"
CONSOLE_OPTIONS: Final = (
    click.option(
        _PORT_OPTION, type=settings.PORT, help=f"Port of the web page; 0 takes a free one.  [default: {_PORT}]"
    ),
    click.option(
        "--console-token",
        metavar="TEXT",
        help="What a browser must know where others can reach the web page.  [default: one that is printed]",
    ),
)
_PATH: Final = click.Path(dir_okay=False)
_TLS_OPTIONS: Final = (  # those of the verbs, which a start does not import
    click.option("--tls", "uses_tls", is_flag=True, help="Connect to the cluster under TLS."),
    click.option("--tls-trust", "trust_path", metavar="PATH", type=_PATH, help="Certificates to trust (PEM)."),
    click.option("--tls-cert", "certificate_path", metavar="PATH", type=_PATH, help="Certificate to show (PEM)."),
    click.option("--tls-key", "key_path", metavar="PATH", type=_PATH, help="Its key (PEM)."),
    click.option("--tls-trust-all", "trusts_all", is_flag=True, help="Take any server for the right one."),
)
StartConsole = Callable[[AsyncExitStack, str | None, "Tls | ssl.SSLContext | None"], Awaitable[str]]
"""Enters the console of these name servers into a stack, which speaks TLS like that; returns its address."""


class ConsoleFlags(TypedDict):
    """The options of a console."""

    console_port: int | None
    console_token: str | None


class _OwnFlags(ConsoleFlags, settings.LogFlags):
    namesrv: str | None
    host: str
    uses_tls: bool
    trust_path: str | None
    certificate_path: str | None
    key_path: str | None
    trusts_all: bool


@click.command
@click.option("--namesrv", metavar="HOST:PORT[;…]", help="Name servers of the cluster.  [default: NAMESRV_ADDR]")
@click.option("--host", default=settings.DEFAULT_HOST, show_default=True, help="Address to listen at.")
@settings.with_options(*_TLS_OPTIONS, *CONSOLE_OPTIONS, *settings.LOG_OPTIONS)
def console(**flags: Unpack[_OwnFlags]) -> None:
    """Serve a web page over a cluster: topics, groups, messages, dead letters, brokers."""
    start_console = plan_console(flags, flags["host"])
    from .serve import serve
    from .verbs.connecting import tls_of

    async def start(servers: AsyncExitStack, _clock: Clock) -> str:
        return f"ready console={await start_console(servers, flags['namesrv'], tls_of(flags))}"

    serve(start, (), flags)


def plan_console(flags: ConsoleFlags, host: str) -> StartConsole:
    """Return what starts a console at an address.

    Raises:
        ConfigError: what the extra ``console`` brings is not installed.
    """
    try:
        from ..console.server import ConsoleConfig, ConsoleServer
    except ModuleNotFoundError as error:
        message = f"the console needs {error.name}: pip install 'rocketlet[console]'"
        raise ConfigError(message, key="console") from error
    port = _PORT if flags["console_port"] is None else flags["console_port"]
    config = ConsoleConfig(host=host, port=port, token=flags["console_token"])

    async def start(servers: AsyncExitStack, nameserver: str | None, tls: "Tls | ssl.SSLContext | None") -> str:
        from ..client import ClientSettings
        from .serve import naming_holder

        with naming_holder(_PORT_OPTION):
            console = ConsoleServer(nameserver, config, ClientSettings(tls=tls))
            return (await servers.enter_async_context(console)).url

    return start
