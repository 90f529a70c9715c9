"""A command that does something itself, and has commands beside it which only its first word calls."""

from typing import Any

import click


class FirstWordGroup(click.Group):
    """``broker --host …`` itself, and ``broker list``: what is not the name of a command belongs to the group."""

    allow_extra_args = False
    allow_interspersed_args = True

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command that the first word names, or of the group."""
        command = self.commands.get(args[0]) if args else None
        if command is None:
            return super().make_context(info_name, args, parent, **extra)
        return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)

    parse_args = click.Command.parse_args
    invoke = click.Command.invoke
    collect_usage_pieces = click.Command.collect_usage_pieces
