"""Groups of commands that are imported when they are called, so that each starts with what it needs and no more."""

import importlib
from collections.abc import Mapping
from typing import Any, cast

import click


class LazyGroup(click.Group):
    """A group whose ``places`` name, for each command, its module within ``cli`` and its name there: ``.up:up``."""

    def __init__(self, *args: Any, places: Mapping[str, str], **extra: Any) -> None:
        super().__init__(*args, **extra)
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the help."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command."""
        if cmd_name not in self._places:
            return None
        module, _, name = self._places[cmd_name].partition(":")
        return cast("click.Command", getattr(importlib.import_module(module, __package__), name))


class FirstWordGroup(LazyGroup):
    """``broker --host …`` itself, and ``broker list``: what is not the name of a command belongs to the group."""

    allow_extra_args = False
    allow_interspersed_args = True

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command that the first word names, or of the group."""
        command = self.get_command(click.Context(self), args[0]) if args else None
        if command is None:
            return super().make_context(info_name, args, parent, **extra)
        return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    parse_args = click.Command.parse_args
    invoke = click.Command.invoke
    collect_usage_pieces = click.Command.collect_usage_pieces
