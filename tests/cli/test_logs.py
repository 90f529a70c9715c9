"""How log lines look: plain, in colours on a terminal, as JSON."""

import logging
import os
import pathlib
import pty
import re
import sys
from datetime import datetime

import click
import msgspec
import pytest
from command_line import COMMAND, Refuse, Running, Start

from rocketlet.cli.logs import JsonFormatter, TerminalFormatter, say_json

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")
UNUSED = ("--set", "useEpollNativeSelector=true")
"""A setting that each broker warns about."""
WARNING = "setting useEpollNativeSelector has no effect"


def make_record(message: str, *, with_error: bool = False) -> logging.LogRecord:
    """Return a record of a module of ours."""
    error = None
    if with_error:
        try:
            raise ValueError("why")
        except ValueError:
            error = sys.exc_info()
    return logging.LogRecord("rocketlet.store.log", logging.WARNING, "file", 1, "%s: disk full", (message,), error)


def test_json_line() -> None:
    """Time in UTC, level, logger and message stand in one line, whatever the message is."""
    record = make_record('two\nlines, "quoted", \udcff')
    line = JsonFormatter(None).format(record)
    assert "\n" not in line
    told = msgspec.json.decode(line, type=dict[str, str])
    at = datetime.fromisoformat(told.pop("time"))
    assert at.timestamp() == pytest.approx(record.created, abs=0.001)
    assert told == {
        "level": "WARNING",
        "logger": "rocketlet.store.log",
        "message": 'two\nlines, "quoted", \\udcff: disk full',
    }


def test_json_line_of_an_exception() -> None:
    """The traceback is a text of the object; the broker has its name there."""
    told = msgspec.json.decode(JsonFormatter("broker-a").format(make_record("x", with_error=True)), type=dict[str, str])
    assert told["broker"] == "broker-a"
    assert told["exception"].startswith("Traceback (most recent call last):\n")
    assert told["exception"].endswith("ValueError: why")


def test_note_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """What is no log line has the same shape."""
    say_json("messages are kept in /there")
    told = msgspec.json.decode(capsys.readouterr().err, type=dict[str, str])
    assert (told["level"], told["logger"], told["message"]) == ("INFO", "rocketlet", "messages are kept in /there")


def test_line_on_a_terminal() -> None:
    """It is short: the time of day, the level in its colour, and the module without the package."""
    line = TerminalFormatter().format(make_record("x", with_error=True))
    assert "\x1b[33mWARNING\x1b[0m" in line
    first, *rest = click.unstyle(line).splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} WARNING store\.log: x: disk full", first)
    assert rest[-1] == "ValueError: why"


def objects_of(said: str) -> list[dict[str, str]]:
    """Return the lines of a log, each of which is an object."""
    return [msgspec.json.decode(line, type=dict[str, str]) for line in said.splitlines()]


def test_every_line_is_an_object(start: Start) -> None:
    """Notes and logs of the process and of its brokers, which are named."""
    running = start("up", "--ephemeral", "--brokers", "2", "--log-format", "json", *UNUSED, *FREE_PORTS)
    lines = objects_of(running.stop()[2])
    assert {line.get("broker") for line in lines if WARNING in line["message"]} == {"broker-a", "broker-b"}
    assert [line for line in lines if line["message"].startswith("to send a message: ")]


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_error_of_a_start_is_an_object(tmp_path: pathlib.Path, refuse: Refuse, brokers: str) -> None:
    """It is the last line, and the exit code is as ever."""
    place = tmp_path / "store" if brokers == "1" else tmp_path / "store" / "broker-b"
    place.mkdir(parents=True)
    (place / "commitlog").write_text("no directory")
    options = ("--store", "store", "--brokers", brokers, "--log-format", "json")
    told = msgspec.json.decode(refuse("up", *options, *FREE_PORTS), type=dict[str, str])
    assert (told["level"], told["logger"]) == ("CRITICAL", "rocketlet")
    assert "commitlog" in told["message"]
    assert told["message"].startswith("broker-b: ") == (brokers == "2")


def warning_of(running: Running) -> str:
    """Return the line about the setting, after a stop."""
    (line,) = [line for line in running.stop()[2].splitlines() if WARNING in line]
    return line


PLAIN = rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d{{3}} WARNING rocketlet\.\S+: {WARNING}.*"


def test_line_in_a_pipe(start: Start) -> None:
    """It is plain, with the date."""
    assert re.fullmatch(PLAIN, warning_of(start("up", "--ephemeral", *UNUSED, *FREE_PORTS)))


def test_colours_are_forced_and_forbidden(start: Start) -> None:
    """FORCE_COLOR brings them into a pipe, NO_COLOR is stronger."""
    up = ("up", "--ephemeral", *UNUSED, *FREE_PORTS)
    assert "\x1b[33mWARNING" in warning_of(start(*up, FORCE_COLOR="1", NO_COLOR=""))
    assert re.fullmatch(PLAIN, warning_of(start(*up, FORCE_COLOR="1", NO_COLOR="1")))


def test_colours_of_several_brokers(start: Start) -> None:
    """Brokers log as the process does that watches over them, with their names."""
    running = start("up", "--ephemeral", "--brokers", "2", *UNUSED, *FREE_PORTS, FORCE_COLOR="1", NO_COLOR="")
    lines = [line for line in running.stop()[2].splitlines() if WARNING in line]
    assert {line.partition(" | ")[0] for line in lines} == {"\x1b[36mbroker-a\x1b[0m", "\x1b[36mbroker-b\x1b[0m"}
    assert all("\x1b[33mWARNING" in line for line in lines)


@pytest.mark.parametrize(("term", "is_coloured"), [("xterm", True), ("dumb", False)])
def test_line_on_a_terminal_of_its_own(tmp_path: pathlib.Path, term: str, is_coloured: bool) -> None:
    """A terminal gets colours unless it cannot show them."""
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        os.environ.update(TERM=term, NO_COLOR="", FORCE_COLOR="")
        os.execv(COMMAND[0], [*COMMAND, "up", "--ephemeral", *UNUSED, *FREE_PORTS])  # noqa: S606 # no shell is wanted
    said = ""
    while "ready namesrv=" not in said:
        said += os.read(terminal, 65_536).decode()
    os.write(terminal, b"\x03")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)
    assert ("\x1b[33mWARNING" in said) == is_coloured


def test_verbose_is_about_our_own_loggers(start: Start) -> None:
    """`-v` has our loggers tell all; the level of others stays."""
    running = start("up", "--ephemeral", "-v", "--log-format", "json", *FREE_PORTS)
    lines = objects_of(running.stop()[2])
    own = [line for line in lines if line["level"] in {"DEBUG", "INFO"} and line["logger"].startswith("rocketlet.")]
    assert own
    assert not [line for line in lines if line["level"] == "DEBUG" and not line["logger"].startswith("rocketlet")]
