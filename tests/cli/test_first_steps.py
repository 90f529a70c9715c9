"""What `rocketlet up` says first: where everything is, and commands that work as they are printed."""

import pathlib
import re
import shlex
import subprocess
import sys

import pytest
from command_line import CommandLine, Running, Start

from rocketlet.cli import up

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def said_by(running: Running) -> list[str]:
    """Return what a server said, after its stop."""
    code, out, said = running.stop()
    assert (code, out) == (0, "")
    return [line.removeprefix("rocketlet: ") for line in said.splitlines()]


def command_in(said: str, purpose: str) -> str:
    """Return the command that the first lines name for a purpose."""
    (found,) = re.findall(rf"^rocketlet: {purpose}: (.*)$", said, re.MULTILINE)
    return found


def test_commands_work_as_printed(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """A shell sends a message, reads it and stops the broker by them, with the ports of this start."""
    started = command("up", "--background", "--store", "a store", *FREE_PORTS)
    assert started.returncode == 0, started.stderr
    said = started.stderr
    assert said.count("\n") <= 6
    assert str(tmp_path / "a store") in said
    namesrv = re.findall(r"namesrv=(\S+)", started.stdout)[0]
    assert f"name server {namesrv} (NAMESRV_ADDR)" in said

    def run_shell(line: str) -> str:
        return subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True).stdout  # noqa: S602 # as its reader does

    run_shell(command_in(said, "to send a message"))
    read = command_in(said, "to read messages")
    assert "Hello, world" in run_shell(f"{read} --count 1")
    with subprocess.Popen(shlex.split(read), cwd=tmp_path, stdout=subprocess.PIPE, text=True) as follows:
        assert follows.stdout is not None
        assert "Hello, world" in follows.stdout.readline()
        follows.terminate()
    stopped = run_shell(command_in(said, "to stop").partition(";")[0])
    assert str(tmp_path / "a store") in stopped
    assert command("status", "--store", "a store").returncode == 1


def test_first_lines_of_a_lone_broker(start: Start, tmp_path: pathlib.Path) -> None:
    """They are five, in the order of their use; `down` needs no store where it is the usual one."""
    running = start("up", *FREE_PORTS)
    address = running.addresses["namesrv"]
    lines = said_by(running)
    assert lines[0] == f"messages are kept in {tmp_path / 'data' / 'rocketlet' / 'store'}"
    newer = f"those of RocketMQ 5 at {running.addresses['grpc']}"
    assert lines[1] == f"clients find the broker by the name server {address} (NAMESRV_ADDR), {newer}"
    assert re.fullmatch(
        rf"to send a message: \S+ -m rocketlet message send hello 'Hello, world' --namesrv {address}", lines[2]
    )
    assert re.fullmatch(
        rf"to read messages: \S+ -m rocketlet message tail hello --from begin --namesrv {address}", lines[3]
    )
    assert re.fullmatch(r"to stop: Ctrl-C, or \S+ -m rocketlet down", lines[4])
    assert len(lines) == 5


def test_first_lines_of_several_brokers(start: Start, tmp_path: pathlib.Path) -> None:
    """One line names all their directories."""
    lines = said_by(start("up", "--brokers", "2", "--store", "store", *FREE_PORTS))
    assert lines[0] == f"messages are kept in {tmp_path / 'store'}, in a directory for each broker: broker-a, broker-b"
    assert lines[1].startswith("clients find the brokers by the name server ")
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--topic", "orders:3"), ["message send orders", "message tail orders"]),
        (
            ("--set", "autoCreateTopicEnable=false"),
            ["topic create hello", "message send hello", "message tail hello"],
        ),
    ],
)
def test_commands_name_a_topic_that_is_there(start: Start, options: tuple[str, ...], named: list[str]) -> None:
    """The first topic of the start; where a send makes none, a command to make one comes before."""
    lines = said_by(start("up", "--ephemeral", *options, *FREE_PORTS))
    found = [re.findall(r"rocketlet ((?:topic|message) \w+ \w+)", line) for line in lines]
    assert [words for line in found for words in line] == named


def test_parts_alone_stay_terse(start: Start) -> None:
    """Who starts a name server or a broker alone knows what to do with them."""
    nameserver = start("namesrv", "--namesrv-port", "0")
    address = nameserver.addresses["namesrv"]
    broker = start("broker", "--ephemeral", "--broker-port", "0", "--namesrv", address)
    assert len(said_by(broker)) == 1
    assert said_by(nameserver) == []


@pytest.mark.parametrize(
    ("address", "variable", "option"),
    [
        ("127.0.0.1:9876", None, ""),
        ("127.0.0.1:9876", "127.0.0.1:9876", ""),
        ("127.0.0.1:9876", "elsewhere:9876", " --namesrv 127.0.0.1:9876"),
        ("127.0.0.1:9877", None, " --namesrv 127.0.0.1:9877"),
        ("127.0.0.1:9877", "127.0.0.1:9877", " --namesrv 127.0.0.1:9877"),
    ],
)
def test_usual_name_server_need_not_be_named(
    monkeypatch: pytest.MonkeyPatch, address: str, variable: str | None, option: str
) -> None:
    """Where the verbs look for one first; another terminal may not have the variable of this one."""
    if variable is None:
        monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    else:
        monkeypatch.setenv("NAMESRV_ADDR", variable)
    assert up.nameserver_option(address) == option


def test_program_is_called_as_its_reader_can(tmp_path: pathlib.Path) -> None:
    """By its name where the shell finds it, else by its path."""
    installed = pathlib.Path(sys.executable).parent / "rocketlet"
    for paths, called in ((f"{installed.parent}:/usr/bin:/bin", "rocketlet"), ("/usr/bin:/bin", str(installed))):
        options = ("up", "--ephemeral", *FREE_PORTS)
        with subprocess.Popen(
            [installed, *options],
            cwd=tmp_path,
            env={"PATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready ")
            process.terminate()
            said = process.communicate()[1]
        assert re.search(rf"^rocketlet: to stop: Ctrl-C, or {re.escape(called)} down --store \S+$", said, re.MULTILINE)
