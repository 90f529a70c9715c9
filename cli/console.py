"""``rocketlet console``, a web page over any cluster, Apache RocketMQ's too; and that of ``rocketlet up``."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import click

from ..common.clock import Clock
from ..common.errors import ConfigError
from . import settings

if TYPE_CHECKING:
    from ..client import ClientSettings

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
_CLUSTER_OPTIONS: Final = (  # those of the verbs, which a start does not import
    click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", help="User, on brokers with access control."),
    click.option("--secret-key", envvar="ROCKETMQ_SECRET_KEY", help="Better: the variable ROCKETMQ_SECRET_KEY."),
    click.option("--security-token", envvar="ROCKETMQ_SECURITY_TOKEN", help="Token of temporary keys."),
    click.option("--tls", "uses_tls", is_flag=True, help="Connect to the cluster under TLS."),
    click.option("--tls-trust", "trust_path", metavar="PATH", type=_PATH, help="Certificates to trust (PEM)."),
    click.option("--tls-cert", "certificate_path", metavar="PATH", type=_PATH, help="Certificate to show (PEM)."),
    click.option("--tls-key", "key_path", metavar="PATH", type=_PATH, help="Its key (PEM)."),
    click.option("--tls-trust-all", "trusts_all", is_flag=True, help="Take any server for the right one."),
)
StartConsole = Callable[[AsyncExitStack, str | None, "ClientSettings"], Awaitable[str]]
"""Enters the console of these name servers into a stack, which reaches them by these settings; returns its address."""


class ConsoleFlags(TypedDict):
    """The options of a console."""

    console_port: int | None
    console_token: str | None


class _OwnFlags(ConsoleFlags, settings.LogFlags):
    namesrv: str | None
    host: str
    access_key: str | None
    secret_key: str | None
    security_token: str | None
    uses_tls: bool
    trust_path: str | None
    certificate_path: str | None
    key_path: str | None
    trusts_all: bool


@click.command
@click.option("--namesrv", metavar="HOST:PORT[;…]", help="Name servers of the cluster.  [default: NAMESRV_ADDR]")
@click.option("--host", default=settings.DEFAULT_HOST, show_default=True, help="Address to listen at.")
@settings.with_options(*_CLUSTER_OPTIONS, *CONSOLE_OPTIONS, *settings.LOG_OPTIONS)
def console(**flags: Unpack[_OwnFlags]) -> None:
    """Serve a web page over a cluster: topics, groups, messages, dead letters, brokers."""
    start_console = plan_console(flags, flags["host"])
    from ..client import ClientSettings
    from .serve import serve
    from .verbs.connecting import credentials_of, tls_of

    reached = ClientSettings(credentials=credentials_of(flags), tls=tls_of(flags))

    async def start(servers: AsyncExitStack, _clock: Clock) -> str:
        return f"ready console={await start_console(servers, flags['namesrv'], reached)}"

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

    async def start(servers: AsyncExitStack, nameserver: str | None, reached: "ClientSettings") -> str:
        from .serve import naming_holder

        with naming_holder(_PORT_OPTION):
            console = ConsoleServer(nameserver, config, reached)
            return (await servers.enter_async_context(console)).url

    return start
