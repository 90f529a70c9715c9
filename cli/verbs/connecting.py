"""What the verbs have in common: how they reach a cluster, how they fail, whom they ask.

    @topic.command()
    @cluster_options
    def show(**flags: Unpack[ShowFlags]) -> None:
        run(flags, partial(_show, flags))

    exit code   when
    0           done; ``message tail`` also when it is interrupted or nobody reads it any more
    1           a server refused it, or there is no such topic, group, message …; one line on stderr says which
    2           an option or argument that cannot be used
    3           no server answered
    130         interrupted, or a question answered with no

The client is imported when a verb runs, so that the help stays quick.
"""

import logging
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, cast

import click

from ...common.errors import (
    ClientError,
    ConfigError,
    ConnectFailedError,
    ConnectionClosedError,
    RemotingError,
    ResponseError,
    RocketletError,
)
from ...common.names import DLQ_PREFIX, RETRY_PREFIX

if TYPE_CHECKING:
    from ...client.admin.admin import Admin
    from ...client.session.settings import ClientSettings, Credentials, Tls

Command = TypeVar("Command", bound=Callable[..., None])
Work = Callable[["Admin"], Awaitable[None]]
DEFAULT_NAMESRV: Final = "127.0.0.1:9876"
NAMESRV_VARIABLE: Final = "NAMESRV_ADDR"
COMPLETION_MS: Final = 1_000
KEY_HINTS: Final = {
    "username cannot be null": "signed requests are wanted: give --access-key and --secret-key",
    "no accesskey is configured": "signed requests are wanted: give --access-key and --secret-key",
    "check signature failed": "the secret key is not that of the access key",
}
"""What helps, by what brokers of 5.x and 4.x say of a request that nobody or somebody else has signed."""
FAILED: Final = 1
NO_SERVER: Final = 3


class TlsFlags(TypedDict):
    """The options of TLS."""

    uses_tls: bool
    trust_path: str | None
    certificate_path: str | None
    key_path: str | None
    trusts_all: bool


class KeyFlags(TypedDict):
    """The options of who signs."""

    access_key: str | None
    secret_key: str | None
    security_token: str | None


class ClusterFlags(TlsFlags, KeyFlags):
    """The options that every verb has."""

    namesrv: str
    namespace: str
    timeout_s: float
    as_json: bool


_PATH: Final = click.Path(dir_okay=False)
_TLS_OPTIONS: Final = (
    click.option("--tls", "uses_tls", is_flag=True, help="Connect under TLS."),
    click.option("--tls-trust", "trust_path", metavar="PATH", type=_PATH, help="Certificates to trust (PEM)."),
    click.option("--tls-cert", "certificate_path", metavar="PATH", type=_PATH, help="Certificate to show (PEM)."),
    click.option("--tls-key", "key_path", metavar="PATH", type=_PATH, help="Its key (PEM)."),
    click.option("--tls-trust-all", "trusts_all", is_flag=True, help="Take any server for the right one."),
)
_OPTIONS: Final = (
    click.option(
        "--namesrv",
        metavar="A;B",
        envvar=NAMESRV_VARIABLE,
        default=DEFAULT_NAMESRV,
        help=f"Name servers.  [default: {NAMESRV_VARIABLE}, {DEFAULT_NAMESRV}]",
    ),
    click.option("--namespace", default="", help="Namespace of topics and groups."),
    click.option("--access-key", envvar="ROCKETMQ_ACCESS_KEY", help="User, on brokers with access control."),
    click.option("--secret-key", envvar="ROCKETMQ_SECRET_KEY", help="Better: the variable ROCKETMQ_SECRET_KEY."),
    click.option("--security-token", envvar="ROCKETMQ_SECURITY_TOKEN", help="Token of temporary keys."),
    *_TLS_OPTIONS,
    click.option(
        "--timeout",
        "timeout_s",
        metavar="S",
        type=click.FloatRange(min=0.001, max=86_400),
        default=5.0,
        help="Seconds to wait for an answer of a server.  [default: 5]",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


class CommandFailed(click.ClickException):
    """What a server refused, or is not there."""

    exit_code = FAILED


class NoServerError(click.ClickException):
    """No server has answered."""

    exit_code = NO_SERVER


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Give a verb several options, listed by its help in this order; ``cli/settings.py`` does it for servers."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def cluster_options(command: Command) -> Command:
    """Give a verb the options of ``ClusterFlags``."""
    return with_options(*_OPTIONS)(command)


YES: Final = click.option("--yes", is_flag=True, help="Do not ask.")


def run(flags: ClusterFlags, work: Work) -> None:
    """Do something with an ``Admin``; end with one line and an exit code when it fails.

    Raises:
        CommandFailed: a server refused it, or nothing was found.
        NoServerError: none answered.
        ConfigError: an option that cannot be used.
    """
    import asyncio

    logging.getLogger(__name__.partition(".")[0]).addHandler(logging.NullHandler())
    settings = client_settings(flags)
    try:
        asyncio.run(_work(flags, settings, work))
        sys.stdout.flush()
    except BrokenPipeError:
        forget_stdout()
    except ConfigError:
        raise
    except RemotingError as error:
        raise NoServerError(f"no server answers: {explain(error)}{_tls_hint(error, flags)}") from error
    except (ClientError, RocketletError, ValueError) as error:
        raise CommandFailed(explain(error)) from error


def explain(error: Exception) -> str:
    """Return what an error says, and what helps against missing and wrong keys."""
    said = str(error)
    remark = (error.remark or "").lower() if isinstance(error, ResponseError) else ""
    hint = next((hint for words, hint in KEY_HINTS.items() if words in remark), None)
    return f"{said.rstrip('.')}; {hint}" if hint else said


def _tls_hint(error: RemotingError, flags: ClusterFlags) -> str:
    """Return what helps where a server ends connections: it may want TLS, or none."""
    said = str(error)
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return "; --tls-trust names the certificates to trust, --tls-trust-all takes any"
    if isinstance(error, ConnectionClosedError) and not flags["uses_tls"]:
        return "; if it takes connections under TLS alone: --tls"
    if isinstance(error, ConnectionClosedError) and flags["certificate_path"] is None:
        return "; if it asks who connects: --tls-cert and --tls-key"
    is_ended = any(words in said for words in ("the peer closed", "reset by peer", "[SSL"))
    if isinstance(error, ConnectFailedError) and flags["uses_tls"] and is_ended:
        return "; it may take no TLS"
    return ""


async def _work(flags: ClusterFlags, settings: "ClientSettings", work: Work) -> None:
    from ...client.admin.admin import Admin

    async with Admin(flags["namesrv"], settings=settings, timeout_ms=int(1000 * flags["timeout_s"])) as admin:
        await work(admin)


def forget_stdout() -> None:
    """Let what is still buffered go nowhere: the reader has ended, as ``head`` does."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def client_settings(flags: ClusterFlags) -> "ClientSettings":
    """Return how the cluster is reached.

    Raises:
        ConfigError: options contradict each other, or a file cannot be used.
    """
    from ...client.session.settings import ClientSettings

    return ClientSettings(credentials=credentials_of(flags), tls=tls_of(flags), namespace=flags["namespace"])


def credentials_of(flags: KeyFlags) -> "Credentials | None":
    """Return who signs the requests.

    Raises:
        ConfigError: half of it is missing.
    """
    from ...client.session.settings import Credentials

    access_key, secret_key = flags["access_key"], flags["secret_key"]
    if (access_key is None) != (secret_key is None):
        raise ConfigError("--access-key and --secret-key need each other", key="--access-key")
    return Credentials(access_key, secret_key, flags["security_token"]) if access_key and secret_key else None


def tls_of(flags: TlsFlags) -> "Tls | None":
    """Return how connections are encrypted.

    Raises:
        ConfigError: there is an option of TLS without ``--tls``.
    """
    from ...client.session.settings import Tls

    paths = {
        "--tls-trust": flags["trust_path"],
        "--tls-cert": flags["certificate_path"],
        "--tls-key": flags["key_path"],
    }
    given = [name for name, path in paths.items() if path is not None]
    if not flags["uses_tls"]:
        if given or flags["trusts_all"]:
            name = given[0] if given else "--tls-trust-all"
            raise ConfigError(f"{name} is given, but --tls is not", key=name)
        return None
    return Tls(
        trust_file=flags["trust_path"],
        certificate_file=flags["certificate_path"],
        key_file=flags["key_path"],
        verifies=not flags["trusts_all"],
    )


def check_can_ask(*, yes: bool) -> None:
    """Refuse to destroy something where nobody can be asked.

    Raises:
        UsageError: there is no terminal and no ``--yes``.
    """
    if not (yes or sys.stdin.isatty()):
        raise click.UsageError("--yes is needed where nobody can be asked")


def ask(question: str, *, yes: bool) -> None:
    """Ask whether it shall be done, unless that was said before (raises ``Abort`` when it shall not)."""
    if not yes:
        click.confirm(question, abort=True, err=True)


# completion of a shell: what cannot be asked in a second is not offered


def complete_topics(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics that begin so; retry and dead-letter topics only when a % was typed."""
    return _complete(ctx, incomplete, lambda admin: admin.topics())


def complete_groups(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups that begin so."""
    return _complete(ctx, incomplete, lambda admin: admin.groups())


def complete_brokers(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return the brokers that begin so."""

    async def names(admin: "Admin") -> list[str]:
        return sorted({node.name for node in await admin.brokers()})

    return _complete(ctx, incomplete, names)


def _complete(ctx: click.Context, incomplete: str, find: "Callable[[Admin], Awaitable[list[str]]]") -> list[str]:
    given = cast("Mapping[str, Any]", ctx.params)
    flags = ClusterFlags(
        namesrv=given.get("namesrv") or os.environ.get(NAMESRV_VARIABLE) or DEFAULT_NAMESRV,
        namespace=given.get("namespace") or "",
        access_key=given.get("access_key") or os.environ.get("ROCKETMQ_ACCESS_KEY"),
        secret_key=given.get("secret_key") or os.environ.get("ROCKETMQ_SECRET_KEY"),
        security_token=given.get("security_token"),
        uses_tls=bool(given.get("uses_tls")),
        trust_path=given.get("trust_path"),
        certificate_path=given.get("certificate_path"),
        key_path=given.get("key_path"),
        trusts_all=bool(given.get("trusts_all")),
        timeout_s=COMPLETION_MS / 1000,
        as_json=False,
    )
    found: list[str] = []

    async def work(admin: "Admin") -> None:
        found.extend(await find(admin))

    try:
        run(flags, work)
    except (click.ClickException, RocketletError):
        return []
    hidden = () if incomplete.startswith("%") else (RETRY_PREFIX, DLQ_PREFIX)
    return [name for name in found if name.startswith(incomplete) and not name.startswith(hidden)]


TOPIC: Final = click.argument("topic", shell_complete=complete_topics)
GROUP: Final = click.argument("group", shell_complete=complete_groups)
BROKER: Final = click.argument("broker", shell_complete=complete_brokers)
