"""`rocketlet status` and `rocketlet down`: what runs, whether it can be used, and its end."""

import contextlib
import os
import pathlib
import re
import signal
import socket
from collections.abc import Generator

import msgspec
import pytest
from command_line import CommandLine, Start

from rocketlet.cli.instances import FILE_NAME, Instance, process_start

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


@contextlib.contextmanager
def serving(store: pathlib.Path, namesrv: str, *, start: str | None = None, masters: int = 1) -> Generator[None]:
    """Let this process be the one that serves a store, by what it tells."""
    store.mkdir()
    descriptor = Instance(
        pid=os.getpid(),
        process_start=process_start(os.getpid()) if start is None else start,
        store=str(store),
        is_ephemeral=False,
        addresses={"namesrv": namesrv},
        namesrv=namesrv,
        brokers=[],
        master_count=masters,
        began_at_ms=0,
        version="0",
    ).register()
    assert descriptor is not None
    try:
        yield
    finally:
        os.close(descriptor)


def test_nothing_runs(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """Both say so with exit code 1, also of a directory that is not there."""
    usual = tmp_path / "data" / "rocketlet" / "store"
    for verb in ("status", "down"):
        ended = command(verb)
        nothing = f"rocketlet: no rocketlet runs with the store {usual}"
        expected = f"{nothing}, and none with a temporary one; --store names another\n"
        assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", expected)
        ended = command(verb, "--store", "nowhere")
        assert (ended.returncode, ended.stderr) == (
            1,
            f"rocketlet: no rocketlet runs with the store {tmp_path / 'nowhere'}\n",
        )


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_what_runs_is_shown_and_stopped(
    command: CommandLine, start: Start, tmp_path: pathlib.Path, brokers: str
) -> None:
    """A start in a terminal too: process, addresses, store, since when, version; `down` waits for its end."""
    running = start("up", "--brokers", brokers, *FREE_PORTS)
    shown = command("status")
    assert shown.returncode == 0, shown.stderr
    lines = dict(re.split(r"  +", line, maxsplit=1) for line in shown.stdout.splitlines())
    assert lines.pop("since").endswith("Z")
    assert lines == {
        "state": "ready",
        "pid": str(running.process.pid),
        **running.addresses,
        "store": str(tmp_path / "data" / "rocketlet" / "store"),
        "version": "0.1.0",
    }
    stopped = command("down")
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert stopped.stdout == f"stopped process {running.process.pid}, which served {lines['store']}\n"
    assert running.process.wait() == 0
    assert not list(tmp_path.rglob("abort"))
    assert command("status").returncode == 1


def test_stores_side_by_side(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """Each is told apart by its store; without one the usual and the ephemeral ones count, and `down` wants a name."""
    for options in (("--store", "one"), ("--store", "two"), (), ("--ephemeral",)):
        assert command("up", "--background", *options, *FREE_PORTS).returncode == 0
    shown = command("status", "--json")
    rows = msgspec.json.decode(shown.stdout, type=list[dict[str, object]])
    usual, ephemeral = (str(row["store"]) for row in rows)
    assert usual == str(tmp_path / "data" / "rocketlet" / "store")
    assert re.fullmatch(r".*/tmp/rocketlet-\S+ \(removed at exit\)", ephemeral)
    refused = command("down")
    assert refused.returncode == 2
    assert refused.stderr.startswith("rocketlet: 2 are running, --store names the one to stop: ")
    assert command("down", "--store", "two").returncode == 0
    assert command("status", "--store", "one").returncode == 0
    assert command("down", "--store", usual).returncode == 0
    assert command("down").returncode == 0, "one is left"
    assert command("down", "--store", "one").returncode == 0


def test_killed_process_does_not_run(command: CommandLine, start: Start, tmp_path: pathlib.Path) -> None:
    """The file that it has left says nothing, whoever has its number now; the store is started again."""
    running = start("up", "--store", "store", *FREE_PORTS)
    running.stop(signal.SIGKILL)
    left = tmp_path / "store" / FILE_NAME
    reused = msgspec.json.decode(left.read_bytes()) | {"pid": os.getpid()}
    left.write_bytes(msgspec.json.encode(reused))
    for verb in ("status", "down"):
        assert command(verb, "--store", "store").returncode == 1
    assert command("up", "--background", "--store", "store", *FREE_PORTS).returncode == 0
    assert command("status", "--store", "store").returncode == 0


def test_process_of_another_container_is_not_stopped(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """Where the number means another process, that is left alone, and the user is told."""
    with serving(tmp_path / "store", "127.0.0.1:1", start="7"):
        ended = command("down", "--store", "store")
    assert ended.returncode == 1
    assert "runs in a container or on a machine of its own" in ended.stderr


def test_server_that_does_not_answer(command: CommandLine, start: Start, tmp_path: pathlib.Path) -> None:
    """Exit code 3, and why: nobody listens there, or the name server knows no broker."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = f"127.0.0.1:{free.getsockname()[1]}"
    with serving(tmp_path / "closed", closed):
        ended = command("status", "--store", "closed")
    assert ended.returncode == 3
    assert re.search(rf"^state +unusable: .*{closed}", ended.stdout, re.MULTILINE)
    alone = start("namesrv", "--namesrv-port", "0").addresses["namesrv"]
    with serving(tmp_path / "alone", alone, masters=2):
        ended = command("status", "--json", "--store", "alone")
    assert ended.returncode == 3
    assert '"state": "unusable: the name server knows 0 of 2 brokers"' in ended.stdout


def test_file_of_another_version(command: CommandLine, tmp_path: pathlib.Path) -> None:
    """It is named; nothing is said to run or not to."""
    with serving(tmp_path / "store", "127.0.0.1:1"):
        (tmp_path / "store" / FILE_NAME).write_text("[]")
        ended = command("status", "--store", "store")
    assert ended.returncode == 1
    assert f"{tmp_path / 'store' / FILE_NAME} cannot be read" in ended.stderr


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_start_over_the_same_store(command: CommandLine, tmp_path: pathlib.Path, brokers: str) -> None:
    """Who starts a broker twice is told how to stop the first, at its ports and at others."""
    several = ("--store", "store", "--brokers", brokers)
    started = command("up", "--background", *several, *FREE_PORTS)
    port = re.findall(r"namesrv=127\.0\.0\.1:(\d+)", started.stdout)[0]
    for others in (FREE_PORTS, (*FREE_PORTS, "--reset"), ("--namesrv-port", port, "--broker-port", "0")):
        again = command("up", *several, *others)
        assert again.returncode == 2
        assert f"; rocketlet down --store {tmp_path / 'store'} stops it" in again.stderr


def test_manager_is_told(command: CommandLine, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket that NOTIFY_SOCKET names gets a datagram when clients can connect, and one when the stop begins."""
    monkeypatch.chdir(tmp_path)  # the names of sockets are short
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("notify")
        options = ("--store", "store", "--brokers", "2", *FREE_PORTS)
        assert command("up", "--background", *options, NOTIFY_SOCKET="notify").returncode == 0
        assert manager.recv(100) == b"READY=1"
        assert command("down", "--store", "store").returncode == 0
        assert manager.recv(100) == b"STOPPING=1"
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):
            manager.recv(100)
