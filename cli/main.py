"""The ``rocketlet`` command.

Subcommands are imported when they are called, so that each starts with what it needs and no more.

    exit code   when
    0           done, or stopped by SIGINT, SIGTERM or SIGHUP
    1           the command ran and found something wrong; a server refused it, or what it names is not there
    2           an option, setting, port or store that cannot be used; one line on stderr says which
    3           no name server or broker answered
    130         interrupted before the start was complete
    135         SIGBUS: a file was cut short, or its disk failed, in the moment that its map was read; stderr says where
"""

import faulthandler
import importlib
import sys
from collections.abc import Sequence
from typing import Final, NoReturn, cast

import click

from ..common.errors import RocketletError

COMMANDS: Final = {
    "up": ".up",
    "namesrv": ".namesrv",
    "broker": ".broker",
    "console": ".console",
    "export": ".export",
    "dump": ".export",
    "load": ".load",
    "store": ".store",
    "topic": ".verbs.topic",
    "group": ".verbs.group",
    "offset": ".verbs.offset",
    "message": ".verbs.message",
    "dlq": ".verbs.dlq",
    "client": ".verbs.client",
    "cluster": ".verbs.cluster",
    "config": ".verbs.config",
}


class LazyGroup(click.Group):
    """A group whose commands stand in ``COMMANDS`` and are imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command; the command has its name."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name], __package__)
        return cast("click.Command", getattr(module, cmd_name))

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
        from importlib.metadata import version

        click.echo(f"rocketlet {version('rocketlet')}")
        ctx.exit()


@click.group(
    cls=LazyGroup,
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
