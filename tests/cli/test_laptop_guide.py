"""The commands of the page about laptops work as they are written, and what goes wrong looks as it says."""

import pathlib
import re
import shlex
import signal
import socket
from collections.abc import Iterator

import pytest
from command_line import CommandLine, Start

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "laptop.md"
PAGE = GUIDE.read_text()
LINES = re.findall(r"^\$ rocketlet (.*)$", PAGE, re.MULTILINE)
FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def with_free_ports(words: list[str]) -> list[str]:
    """Return the words of a start with free ports, and a name that resolves, instead of those that it names."""
    named = re.sub(r"--(namesrv|broker)-port \d+", "", shlex.join(words)).replace("laptop.example", "localhost")
    return [*shlex.split(named), *FREE_PORTS]


def test_commands_in_the_background_work(command: CommandLine) -> None:
    """One after the other, with exit code 0; what is sent is read."""
    nameservers: list[str] = []
    printed: dict[str, str] = {}
    for line in LINES:
        words = shlex.split(line)
        is_start = words[0] == "up"
        if is_start and "--background" not in words:
            continue
        at = {} if is_start else {"NAMESRV_ADDR": nameservers[-1]}
        ended = command(*(with_free_ports(words) if is_start else words), **at)
        assert ended.returncode == 0, (line, ended.stderr)
        nameservers += re.findall(r"namesrv=(\S+)", ended.stdout) if is_start else []
        printed[line] = ended.stdout
    assert '{"order": 1}' in printed["message tail orders --from begin --count 1"]
    assert command("status").returncode == 1, "all are stopped"
    shown = [line.split()[0] for line in text_block("In the background").splitlines()]
    assert [line.split()[0] for line in printed["status"].splitlines()] == shown


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("up") and "--background" not in line])
def test_starts_in_a_terminal_work(start: Start, line: str) -> None:
    """They get ready and stop cleanly."""
    running = start(*with_free_ports(shlex.split(line)))
    assert running.stop()[:2] == (0, "")


def text_block(heading: str) -> str:
    """Return the first block of plain text below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^```text\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0]


def without_numbers(text: str) -> str:
    """Return a text without what differs from run to run: ports, processes, places."""
    return re.sub(r"\d+", "N", re.sub(r"\((?!NAMESRV)[^)]*\)|/\S*/store|\S+ -m rocketlet", "*", text)).replace("*", "")


@pytest.fixture
def taken() -> Iterator[str]:
    """Listen at a port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield str(listening.getsockname()[1])


def test_first_lines_are_those_of_the_page(start: Start) -> None:
    """But for the ports, which are free ones, and the name servers that commands name therefore."""
    running = start("up", *FREE_PORTS)
    said = re.sub(r" --namesrv \S+", "", running.stop(signal.SIGINT)[2]) + running.ready
    assert without_numbers(said) == without_numbers(
        text_block("The first minute").replace("rocketlet message", " message").replace("rocketlet down", " down")
    )


def test_port_that_is_taken_looks_so(command: CommandLine, taken: str) -> None:
    """The page has the sentence."""
    ended = command("up", "--ephemeral", "--namesrv-port", taken, "--broker-port", "0")
    assert without_numbers(ended.stderr) == without_numbers(text_block("A port is taken"))


def test_address_of_another_machine_looks_so(start: Start) -> None:
    """The page has the sentence."""
    running = start("up", "--ephemeral", "--advertise", "192.0.2.7", *FREE_PORTS)
    said = [without_numbers(line) for line in running.stop()[2].splitlines(keepends=True)]
    assert without_numbers(text_block("What clients are told")) in said


def test_name_that_does_not_resolve_looks_so(command: CommandLine) -> None:
    """The page has the sentence; what the system says of the name is its own affair."""
    ended = command("up", "--ephemeral", "--advertise", "laptop.invalid", *FREE_PORTS)
    said = text_block("Several networks").replace("laptop.example", "laptop.invalid")
    assert ended.stderr.partition("[")[0] == said.partition("[")[0]
