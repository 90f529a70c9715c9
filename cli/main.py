"""The ``rocketlet`` command.

exit code   when
0           done, or stopped by SIGINT, SIGTERM or SIGHUP
1           the command ran and found something wrong; a server refused it, or what it names is not there
2           an option, setting, port or store that cannot be used; one line on stderr says which
3           no name server or broker answered
130         interrupted before the start was complete
135         SIGBUS: a file was cut short, or its disk failed, in the moment that its map was read; stderr says where
"""

import faulthandler
import gc
import sys
from collections.abc import Sequence
from typing import Final, NoReturn

import click

from ..common.errors import RocketletError
from .lazy_group import LazyGroup

COMMANDS: Final = {
    "up": ".up:up",
    "status": ".status:status",
    "down": ".status:down",
    "namesrv": ".namesrv:namesrv",
    "broker": ".broker:broker",
    "console": ".console:console",
    "export": ".export:export",
    "dump": ".export:dump",
    "load": ".load:load",
    "record": ".traffic.record:record",
    "replay": ".traffic.replay:replay",
    "store": ".store:store",
    "topic": ".verbs.topic:topic",
    "group": ".verbs.group:group",
    "offset": ".verbs.offset:offset",
    "message": ".verbs.message:message",
    "dlq": ".verbs.dlq:dlq",
    "client": ".verbs.client:client",
    "cluster": ".verbs.cluster:cluster",
    "config": ".verbs.config:config",
    "user": ".verbs.user:user",
    "acl": ".verbs.acl:acl",
}

VERSION: Final = "0.1.0"
"""That of the package, which a running server tells; its metadata would take the start too long to read."""
FIRST_GC_THRESHOLD: Final = 50_000
"""Allocations between collections of the young generation; Python's own is 700 or 2,000."""


class Commands(LazyGroup):
    """The commands by their names."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when there is none of this name."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            nearest = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else f"; there are {', '.join(COMMANDS)}"
            ctx.fail(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)


def _print_version(ctx: click.Context, _param: click.Parameter, is_asked: bool) -> None:  # noqa: FBT001 # click's order
    if is_asked:
        click.echo(f"rocketlet {VERSION}")
        ctx.exit()


@click.group(
    cls=Commands,
    places=COMMANDS,
    invoke_without_command=True,
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
@click.pass_context
def rocketlet(ctx: click.Context) -> None:
    """A RocketMQ-compatible message broker: name server, broker and tools over its files."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit."""
    if sys.stderr is not None and not faulthandler.is_enabled():
        faulthandler.enable()  # a map of a file that was cut, or of a disk that fails, ends in a signal: say where
    gc.set_threshold(FIRST_GC_THRESHOLD, *gc.get_threshold()[1:])  # what imports make stays: no garbage
    try:
        code = rocketlet.main(arguments, prog_name="rocketlet", standalone_mode=False)
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except RocketletError as error:
        _fail(str(error), 2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"rocketlet: {' '.join(message.split())}", err=True)
    sys.exit(code)
