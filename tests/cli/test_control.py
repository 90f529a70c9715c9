"""`rocketlet up --control-port` as a process."""

import json
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
from urllib.parse import urlsplit

import httpx
import pytest
from command_line import CommandLine, Refuse, Start

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")
GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "testing.md"
CONTROLLED = ("up", "--ephemeral", *FREE_PORTS, "--control-port", "0")


def ask(method: str, url: str, **asked: object) -> httpx.Response:
    """Ask a control port."""
    return httpx.request(method, url, json=asked if method == "POST" else None, trust_env=False, timeout=60)


def test_ready_line_and_first_words(start: Start) -> None:
    """The address stands behind the others; options of the broker count; SIGTERM ends it with code 0."""
    running = start(*CONTROLLED, "--topic", "orders:3", "--topic", "bills", "--set", "brokerName=shop")
    assert re.fullmatch(
        r"ready namesrv=\S+ broker=\S+ control=http://127\.0\.0\.1:\d+ grpc=127\.0\.0\.1:\d+\n", running.ready
    )
    url, named = running.addresses["control"], running.addresses
    told = {"name": "shop", "nameserver": named["namesrv"], "broker": named["broker"], "grpc": named["grpc"]}
    assert ask("GET", url).json() == {**told, "version": "0.1.0"}
    sent = [{"topic": "orders", "body": "x"} for _ in range(8)]
    places = httpx.post(f"{url}/messages", json=sent, trust_env=False, timeout=60).json()
    assert {place["queue_id"] for place in places} == {0, 1, 2}
    assert ask("GET", f"{url}/messages?topic=bills").json() == []
    code, _, said = running.stop()
    assert (code, url in said) == (0, True)
    [directory] = re.findall(r"messages are kept in (\S+), which is removed at exit", said)
    assert not pathlib.Path(directory).exists()


def test_fixed_ports(start: Start) -> None:
    """They are those that are told, also after a restart."""
    first = start(*CONTROLLED)
    ports = {name: urlsplit(f"//{address}").port for name, address in first.addresses.items() if name != "control"}
    assert first.stop()[0] == 0
    options = [part for name, port in ports.items() for part in (f"--{name}-port", str(port))]
    running = start("up", "--ephemeral", *options, "--control-port", "0")
    assert running.addresses | {"control": ""} == first.addresses | {"control": ""}
    for path in ("broker/kill", "nameserver/stop", "nameserver/start", "broker/restart"):
        assert ask("POST", f"{running.addresses['control']}/{path}").status_code == 204
    assert ask("POST", f"{running.addresses['control']}/topics").status_code == 200


def test_all_addresses(start: Start) -> None:
    """Who reaches the servers by another name may do so here as well; what clients shall use is told."""
    everywhere = "0.0.0.0"  # noqa: S104 # the case: others can reach it
    running = start(*CONTROLLED, "--host", everywhere, "--advertise", "localhost:20911")
    assert running.addresses["broker"] == "localhost:20911"
    port = urlsplit(running.addresses["control"]).port
    answer = httpx.get(f"http://127.0.0.1:{port}/", headers={"Host": "broker.test"}, trust_env=False)
    assert (answer.status_code, answer.json()["broker"]) == (200, "localhost:20911")
    assert ask("POST", f"http://127.0.0.1:{port}/topics").status_code == 200


def test_background(command: CommandLine) -> None:
    """`status` tells the address, `down` stops it."""
    begun = command(*CONTROLLED, "--background")
    assert begun.returncode == 0, begun.stderr
    [row] = json.loads(command("status", "--json").stdout)
    assert f" control={row['control']} " in begun.stdout
    assert ask("POST", f"{row['control']}/broker/reset").status_code == 204
    assert command("status").returncode == 0
    assert command("down").returncode == 0
    assert command("status").returncode == 1


def test_end_while_a_client_waits(start: Start) -> None:
    """It does not wait for what is waited for."""
    running = start(*CONTROLLED)
    where = urlsplit(running.addresses["control"])
    body = b'{"topic":"t","timeout":600}'
    head = "POST /wait/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 27"
    with socket.create_connection((where.hostname or "", where.port or 0)) as client:
        client.sendall(head.encode() + b"\r\n\r\n" + body)
        assert ask("GET", running.addresses["control"]).status_code == 200
        assert running.stop(signal.SIGINT)[0] == 0
        assert client.recv(65_536)[:12] in {b"", b"HTTP/1.1 503"}


def test_test_that_was_not_ended(start: Start) -> None:
    """What was wrong with it is logged at the end of the process, which is no failure of that."""
    running = start(*CONTROLLED)
    ask("POST", f"{running.addresses['control']}/faults", on="send", answer="DROP")
    code, _, said = running.stop()
    assert code == 0
    assert "left by a test that was not ended: no request has met the fault: send: dropped" in said


def test_guide(start: Start) -> None:
    """What the guide asks is answered as it says."""
    running = start(*CONTROLLED)
    lines = re.findall(r"^\$ curl (.*)$", GUIDE.read_text(), re.MULTILINE)
    for line in lines:
        *options, address = shlex.split(line.replace("$CONTROL", running.addresses["control"]))
        named = dict(zip(options[::2], options[1::2], strict=True))
        headers = dict([named["-H"].split(": ")] if "-H" in named else [])
        method = named.get("-X", "POST" if "-d" in named else "GET")
        answer = httpx.request(method, address, headers=headers, content=named.get("-d"), trust_env=False, timeout=60)
        assert answer.status_code in {200, 204}, (line, answer.text)
    assert len(lines) == 6


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "--control-port needs --ephemeral: who uses it may empty the store"),
        (("--ephemeral", "--brokers", "2"), "--control-port and --brokers contradict each other"),
        (("--ephemeral", "--slaves", "1"), "--control-port and --slaves contradict each other"),
        (("--ephemeral", "--console"), "--control-port and --console contradict each other"),
        (("--ephemeral", "--console-port", "0"), "--control-port and --console-port contradict each other"),
        (("--ephemeral", "--metrics-port", "0"), "--control-port and --metrics-port contradict each other"),
        (("--ephemeral", "--repair"), "--control-port and --repair contradict each other"),
        (("--ephemeral", "--reset"), "--ephemeral and --reset contradict each other"),
        (("--ephemeral", "--set", "namesrvAddr=a:1"), "--control-port and namesrvAddr contradict each other"),
        (
            ("--ephemeral", "--set", "metricsExporterType=PROM"),
            "--control-port and metricsExporterType contradict each other",
        ),
        (("--ephemeral", "--set", "flushDiskType=NEVER"), "flushDiskType"),
    ],
)
def test_options_that_contradict(refuse: Refuse, options: tuple[str, ...], told: str) -> None:
    """One line says which, and why."""
    assert told in refuse("up", *FREE_PORTS, "--control-port", "0", *options)


@pytest.mark.parametrize("option", ["--namesrv-port", "--broker-port", "--control-port"])
def test_port_that_is_taken(refuse: Refuse, option: str) -> None:
    """It is named with who has it, and with its option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        said = refuse(*CONTROLLED, option, port)
    assert re.search(
        rf"127\.0\.0\.1:{port}: the address is in use by process \d+ \(\S+\); {option} takes another", said
    )


def test_without_the_extra(tmp_path: pathlib.Path) -> None:
    """One line says how to get what is missing."""
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('no', name='uvicorn')\n")
    ended = subprocess.run(
        [sys.executable, "-m", "rocketlet", *CONTROLLED],
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr == "rocketlet: the control port needs uvicorn: pip install 'rocketlet[control]'\n"
