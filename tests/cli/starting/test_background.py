"""`rocketlet up --background`: it returns when clients can connect, or with the error of the start."""

import os
import pathlib
import re
import signal
import socket
import subprocess
from collections.abc import Iterator

import msgspec
import pytest
from command_line import COMMAND, CommandLine

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def show_status(command: CommandLine, *arguments: str) -> list[dict[str, object]]:
    """Return what runs."""
    shown = command("status", "--json", *arguments)
    assert shown.returncode == 0, shown.stderr
    return msgspec.json.decode(shown.stdout, type=list[dict[str, object]])


@pytest.mark.parametrize("options", [("--store", "store"), ("--store", "store", "--brokers", "2"), ("--ephemeral",)])
def test_it_returns_when_it_is_ready(command: CommandLine, tmp_path: pathlib.Path, options: tuple[str, ...]) -> None:
    """The ready line is on stdout, first lines on stderr; it has a session of its own, and logs into the store."""
    started = command("up", "--background", *options, *FREE_PORTS)
    assert started.returncode == 0, started.stderr
    assert re.fullmatch(r"ready namesrv=127\.0\.0\.1:\d+ broker=\S+ grpc=\S+\n", started.stdout)
    [shown] = show_status(command, *(options[:2] if "--store" in options else ()))
    pid, log = shown["pid"], shown["log"]
    assert isinstance(pid, int)
    assert isinstance(log, str)
    assert os.getsid(pid) == pid
    assert pathlib.Path(log).read_text() == started.stderr
    assert f"logs go to {log}" in started.stderr
    assert command("down", *(options[:2] if "--store" in options else ())).returncode == 0
    assert pathlib.Path(log).exists() == ("--store" in options)
    assert not list(tmp_path.rglob("abort")), "all have stopped cleanly"
    assert not list((tmp_path / "tmp").iterdir())


def test_start_that_fails_is_told_with_its_code(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """One line and exit code 2, as in the foreground; what an earlier start has logged is not repeated."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "rocketlet.log").write_text("rocketlet: from another day\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = command("up", "--background", "--store", "store", "--namesrv-port", port, "--broker-port", "0")
        lost = command("up", "--background", "--ephemeral", "--namesrv-port", port, "--broker-port", "0")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith(f"rocketlet: cannot listen on 127.0.0.1:{port}: the address is in use")
    assert ended.stderr.count("\n") == 1
    assert (lost.returncode, lost.stderr) == (2, ended.stderr)
    assert not list((tmp_path / "tmp").iterdir())


def test_log_without_a_place(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """A directory that cannot be made ends the start with a line that names the file."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "rocketlet.log").mkdir()
    ended = command("up", "--background", "--store", "store", *FREE_PORTS)
    expected = f"rocketlet: {tmp_path / 'store' / 'rocketlet.log'} cannot be written: Is a directory\n"
    assert (ended.returncode, ended.stderr) == (2, expected)


def _interrupt(command: list[str], table: pathlib.Path) -> tuple[int, str, str]:
    """Return how a start ended that was interrupted while it opened its table."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=table.parent, stdout=pipe, stderr=pipe, text=True) as parent:
        with table.open("wb"):
            parent.send_signal(signal.SIGINT)
        out, said = parent.communicate()
    return parent.returncode, out, said


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let what is started be interrupted, also where the tests were started in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_interruption_stops_the_start(tmp_path: pathlib.Path) -> None:
    """^C in the terminal before the start is complete ends that too, with the code of an interruption."""
    table = tmp_path / "table"
    os.mkfifo(table)  # the name server opens its table there, and waits for us; then it finds that it cannot read it
    options = ("--store", "store", "--set", f"kvConfigPath={table}")
    command = [*COMMAND, "up", "--background", *options, *FREE_PORTS]
    code, out, said = _interrupt(command, table)
    for _ in range(20):
        if "Illegal seek" not in said:  # else it had found that before the signal came
            break
        code, out, said = _interrupt(command, table)
    assert (code, out) == (130, ""), said
    assert not list(tmp_path.rglob("abort"))
