"""Options that the server commands share, and the settings that come out of them.

    strongest   a flag (``--host``, ``--broker-port``, ``--store`` …)
                ``--set key=value``
                ``-c FILE``, in Java's properties format
                the environment variable NAMESRV_ADDR (``rocketlet broker`` only)
    weakest     the default

All of them end as one mapping of Java's keys, which the parts parse themselves. Paths are texts here: pathlib would
cost the start some milliseconds.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypedDict, TypeVar

import click

from ..common.errors import ConfigError, DecodeError
from ..common.settings import decode_java_properties, parse_java_properties

Command = TypeVar("Command", bound=Callable[..., None])
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")
STORE_KEY = "storePathRootDir"
EPHEMERAL_PREFIX = "rocketlet-"
"""How the names of temporary stores begin."""
DEFAULT_HOST = "127.0.0.1"
TLS_FILE_KEY = "tls.config.file"


class LogFlags(TypedDict):
    """The options about what a server logs."""

    log_level: str
    log_format: str
    verbose: bool


class Address(NamedTuple):
    """What ``--advertise`` names; port 0 is the port that is listened at."""

    host: str
    port: int = 0


def parse_address(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Address | None:
    """Read an option that names a host, perhaps with a port."""
    if text is None:
        return None
    host, port = _split_address(text)
    if not host or not (port == "" or (port.isascii() and port.isdigit() and 0 < int(port) < 65_536)):
        raise click.BadParameter(f"{text!r} is not HOST or HOST:PORT")
    return Address(host, int(port or 0))


def _split_address(text: str) -> tuple[str, str]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        return (host, rest.removeprefix(":")) if bracket and rest[:1] in {"", ":"} else ("", "")
    if text.count(":") > 1:
        return text, ""  # a bare IPv6 address
    host, colon, port = text.partition(":")
    return host, port if port or not colon else "missing"


def _split_pair(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in values:
        key, equals, value = text.partition("=")
        key, value = key.strip(), value.strip()
        if not key or not equals:
            raise click.BadParameter(f"{text!r} is not key=value")
        if pairs.setdefault(key, value) != value:
            raise click.BadParameter(f"{key} is both {pairs[key]!r} and {value!r}")
    return pairs


def _refuse_blank(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise click.BadParameter("it is empty")  # as an unset variable of a shell is
    return text


HOST = click.option(
    "--host", help="Address to listen at.  [default: 127.0.0.1; with --advertise or brokerIP1 all addresses]"
)
PORT = click.IntRange(0, 65_535)
NAMESRV_PORT = click.option(
    "--namesrv-port", type=PORT, help="Port of the name server; 0 takes a free one.  [default: 9876]"
)
BROKER_PORT = click.option("--broker-port", type=PORT, help="Port of the broker; 0 takes a free one.  [default: 10911]")
STORE = click.option(
    "--store",
    type=click.Path(file_okay=False),
    callback=_refuse_blank,
    help="Directory of the store.  [default: the user's data directory]",
)
EPHEMERAL = click.option("--ephemeral", is_flag=True, help="Keep the store in a temporary directory, removed at exit.")
ADVERTISE = click.option(
    "--advertise",
    metavar="HOST[:PORT]",
    callback=parse_address,
    help="Address that clients shall use.  [default: the one each client reached the server by]",
)
CONFIG = click.option(
    "-c",
    "--config",
    "config_file",
    type=click.Path(),
    help="Settings in Java's properties format, with Java's keys.",
)
SET = click.option(
    "--set", "pairs", multiple=True, metavar="KEY=VALUE", callback=_split_pair, help="One setting; repeatable."
)
REPAIR = click.option("--repair", is_flag=True, help="Cut a damaged log and go on without what lies behind.")
PRINT_CONFIG = click.option("--print-config", is_flag=True, help="List keys, values, defaults and meaning, and exit.")
LOG_OPTIONS = (
    click.option(
        "--log-level",
        type=click.Choice(LOG_LEVELS),
        default="warning",
        show_default=True,
        help="Least level of what is logged to stderr.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(LOG_FORMATS),
        default="text",
        show_default=True,
        help="Log text, in colours on a terminal, or a JSON object a line.",
    ),
    click.option("-v", "--verbose", is_flag=True, help="Log all that rocketlet itself has to tell, for debugging."),
)
STORE_OPTIONS = (STORE, EPHEMERAL, REPAIR)
SHARED_OPTIONS = (ADVERTISE, CONFIG, SET, PRINT_CONFIG, *LOG_OPTIONS)
"""Of every command that starts a server."""


def with_options(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Give a command several options, listed by its help in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def gather_settings(flags: Mapping[str, object], pairs: Mapping[str, str], config_file: str | None) -> dict[str, str]:
    """Merge flags (``None`` is not given) over ``--set`` over the file.

    Raises:
        ConfigError: the file cannot be read.
    """
    given = {key: str(value) for key, value in flags.items() if value is not None}
    merged = {**(read_settings(config_file) if config_file else {}), **pairs, **given}
    path = merged.get(TLS_FILE_KEY, "").strip()
    if not path:
        merged.pop(TLS_FILE_KEY, None)
        return merged
    from ..remoting.tls.tls_settings import merge_tls_file

    return merge_tls_file(merged, path, read_settings(path, TLS_FILE_KEY))


def set_host(given: dict[str, str], advertised_host: str) -> list[str]:
    """Choose where to listen when only the address is given that clients shall use; return what to say of it."""
    from ..common.ids import ANY_HOSTS
    from ..remoting.transport.addresses import host_to_listen_at

    if "bindAddress" in given:
        return []
    given["bindAddress"] = host_to_listen_at(advertised_host.strip(), DEFAULT_HOST)
    if given["bindAddress"] not in ANY_HOSTS:
        return []
    return [f"listening at all addresses, since clients are told {advertised_host}; --host names one"]


def read_settings(path: str, option: str = "-c") -> dict[str, str]:
    """Read a file in Java's properties format; UTF-8, or Latin-1 as Java writes it.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return parse_java_properties(decode_java_properties(file.read())[0])
    except OSError as error:
        raise ConfigError(f"{option} {path} cannot be read: {error.strerror}", key=option) from error
    except DecodeError as error:
        raise ConfigError(f"{option} {path} cannot be read: {error}", key=option) from error


def check_store_options(*, store: str | None, is_ephemeral: bool, pairs: Mapping[str, str]) -> None:
    """Refuse a store that shall both stay and go.

    Raises:
        UsageError: the options contradict each other.
    """
    if is_ephemeral and store is not None:
        raise click.UsageError("--ephemeral and --store contradict each other")
    if is_ephemeral and STORE_KEY in pairs:
        raise click.UsageError(f"--ephemeral and --set {STORE_KEY} contradict each other")


def check_store_place(store: str) -> None:
    """Refuse a store in, or instead of, a file, before anything below it is asked for.

    Raises:
        ConfigError: there is no room for a directory.
    """
    above = os.path.expanduser(store)
    while above and not os.path.lexists(above):
        above = os.path.dirname(above)
    if above and os.path.exists(above) and not os.path.isdir(above):
        raise ConfigError(f"the store cannot be {store}: {above} is a file", key=STORE_KEY)


def data_path(*names: str) -> str:
    """Return a path in the user's data directory."""
    if sys.platform == "darwin":
        return os.path.join(os.path.expanduser("~/Library/Application Support"), "rocketlet", *names)
    data = os.environ.get("XDG_DATA_HOME", "")  # to be ignored unless absolute, says the XDG specification
    return os.path.join(data if os.path.isabs(data) else os.path.expanduser("~/.local/share"), "rocketlet", *names)


def format_settings(rows: Sequence[tuple[str, str, str, str]]) -> str:
    """Lay out key, value, default and meaning in columns."""
    table = [("key", "value", "default", "meaning"), *rows]
    widths = [max(len(row[column]) for row in table) for column in range(3)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[3]]) for row in table
    )
