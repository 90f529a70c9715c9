"""The reference of the command line is whole."""

import pathlib
import re

import click
import pytest

from rocketlet.cli.main import COMMANDS, rocketlet


def options(command: click.Command) -> set[str]:
    """Return the long options of a command that its help shows; ``--help`` is explained once for all."""
    shown = [each for each in command.params if not (isinstance(each, click.Option) and each.hidden)]
    names = {name for parameter in shown for name in parameter.opts if name.startswith("--")}
    return names - {"--help"}


@pytest.fixture(scope="module")
def sections(checkout: pathlib.Path) -> dict[str, str]:
    """Return the text of each section of the page by its heading."""
    page = (checkout / "docs" / "reference" / "cli.md").read_text()
    parts = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def find_commands() -> dict[str, click.Command]:
    """Return every command by the words that call it."""
    context = click.Context(rocketlet)
    found = {name: rocketlet.get_command(context, name) for name in COMMANDS}
    nested = [(name, group) for name, group in found.items() if isinstance(group, click.Group)]
    parts = {
        f"{name} {part}": group.get_command(context, part)
        for name, group in nested
        for part in group.list_commands(context)
    }
    return {name: command for name, command in {**found, **parts}.items() if command is not None}


@pytest.mark.parametrize(("name", "command"), find_commands().items())
def test_each_option_is_in_the_reference(name: str, command: click.Command, sections: dict[str, str]):
    """The page lists the options of a command, all of them and no others."""
    rows = [line.split("|")[1] for line in sections[f"rocketlet {name}"].splitlines() if line.startswith("| ")]
    assert set(re.findall(r"--[a-z-]+", " ".join(rows))) == options(command)


def test_options_of_the_group_are_in_the_reference(sections: dict[str, str]):
    """The page lists the options of `rocketlet` itself."""
    assert set(re.findall(r"`(--[a-z]+)`", sections["rocketlet"])) == {"--version", "--help"} | options(rocketlet)
