"""`rocketlet up` with several brokers: each a process of its own, watched over."""

import asyncio
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys

import pytest
from command_line import COMMAND, Refuse, Running, Start
from local_spark import watch_children
from polling import ask_until, ask_until_async

from rocketlet.client import Admin, Message, Producer

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")
TWO = ("up", "--brokers", "2", "--store", "store", *FREE_PORTS)


def children(running: Running) -> dict[str, int]:
    """Return the processes of the brokers by the names that they have, slaves with their ids."""
    found: dict[str, int] = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = (path.parent / "cmdline").read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        pairs = dict(word.split("=", 1) for word in words if "=" in word)
        if parent == running.process.pid and "brokerName" in pairs:
            found["-".join(filter(None, [pairs["brokerName"], pairs.get("brokerId")]))] = int(path.parent.name)
    return found


def log_start(path: pathlib.Path) -> bytes:
    """Return the first bytes of a file of the log, which hold all that tests send."""
    with path.open("rb") as file:
        return file.read(1 << 16)


def run_verb(*arguments: str) -> str:
    """Return what a verb prints."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=True).stdout


async def routes(running: Running) -> dict[str, dict[int, str]]:
    """Return the addresses of each broker by ids, as the name server knows them."""
    async with Admin(running.addresses["namesrv"]) as admin:
        return {node.name: dict(node.addresses) for node in await admin.brokers()}


async def test_broker_that_is_killed_is_back_at_its_port(start: Start, tmp_path: pathlib.Path) -> None:
    """The other one serves meanwhile; the log says what has happened, with names; messages are still there."""
    running = start(*TWO, "--set", "useEpollNativeSelector=true")
    before = await routes(running)
    first = children(running)
    assert set(first) == {"broker-a", "broker-b"}
    async with Producer("cli", nameserver=running.addresses["namesrv"]) as producer:
        sent = [await producer.send(Message("spread", b"%d" % number)) for number in range(8)]
    assert {result.queue.broker_name for result in sent} == {"broker-a", "broker-b"}
    os.kill(first["broker-a"], signal.SIGKILL)
    await ask_until_async(lambda: routes(running), lambda known: "broker-a" not in known)
    assert await ask_until_async(lambda: routes(running), lambda known: len(known) == 2) == before
    assert children(running)["broker-b"] == first["broker-b"]
    async with Admin(running.addresses["namesrv"]) as admin:
        for result in sent:
            found = await admin.message("spread", result.message_id)
            assert found is not None
            assert (found.queue, found.queue_offset) == (result.queue, result.queue_offset)
    code, _, said = running.stop()
    assert code == 0
    lines = [line.partition(": ")[2] for line in said.splitlines() if "cli.processes" in line]
    assert lines == ["broker-a has ended, by signal SIGKILL: starting it again in 1000 ms", "broker-a is ready again"]
    assert re.search(r"^broker-b \| .* WARNING .*useEpollNativeSelector has no effect", said, re.MULTILINE)
    assert not list((tmp_path / "store").glob("*/abort")), "all have ended cleanly"


def test_brokers_end_with_the_one_who_watches(start: Start, tmp_path: pathlib.Path) -> None:
    """Also when that is killed: they stop cleanly by themselves."""
    running = start(*TWO)
    ends = watch_children(running.process.pid)
    assert len(ends) == 2
    running.process.kill()
    for end in ends:
        assert select.select([end], [], [], 60)[0]
        os.close(end)
    assert not list((tmp_path / "store").glob("*/abort"))


def test_broker_that_cannot_start_ends_all(refuse: Refuse, tmp_path: pathlib.Path) -> None:
    """Its own sentence is told, with its name, and nothing is left running or locked."""
    (tmp_path / "store" / "broker-b").mkdir(parents=True)
    (tmp_path / "store" / "broker-b" / "commitlog").write_text("no directory")
    line = refuse(*TWO)
    assert re.fullmatch(r"rocketlet: broker-b: .*commitlog.*\n", line)
    assert not (tmp_path / "store" / "broker-a" / "abort").exists()


async def test_slaves_have_their_masters(start: Start, tmp_path: pathlib.Path) -> None:
    """Two masters with a slave each: the ready line names all, and what is sent is in the stores of both."""
    options = ("--brokers", "2", "--slaves", "1", "--sync-replication", "--store", "store")
    running = start("up", *options, *FREE_PORTS)
    addresses = running.addresses
    masters, slaves = addresses["broker"].split(","), addresses["slave"].split(",")
    expected = {f"broker-{name}": {0: masters[place], 1: slaves[place]} for place, name in enumerate("ab")}
    assert await routes(running) == expected
    async with Producer("cli", nameserver=addresses["namesrv"]) as producer:
        for number in range(8):
            await producer.send(Message("spread", b"body %d" % number))
    shown = await asyncio.to_thread(run_verb, "cluster", "status", "--json", "--namesrv", addresses["namesrv"])
    rows = {(row["broker"], row["role"]): row for row in json.loads(shown)}
    assert len(rows) == 4
    for name in ("broker-a", "broker-b"):
        master, slave = rows[name, "master"], rows[name, "slave"]
        assert (master["in_sync_slaves"], slave["copy_behind_bytes"]) == (1, 0)
        assert master["log_end"] == slave["log_end"] > 0
    assert running.stop()[0] == 0
    for name in ("broker-a", "broker-b"):
        own, copied = (
            log_start(tmp_path / "store" / place / "commitlog" / f"{0:020}") for place in (name, f"{name}-1")
        )
        assert own == copied != bytes(len(own))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--sync-replication"], "--sync-replication needs --slaves 1 or more: there is nobody to wait for"),
        (["--slaves", "1", "--set", "brokerId=3"], "brokerId and --slaves 1 contradict each other"),
        (["--slaves", "1", "--set", "brokerRole=SLAVE"], "brokerRole and --slaves 1 contradict each other"),
        (["--slaves", "1", "--set", "haListenPort=7"], "haListenPort and --slaves 1 contradict each other"),
    ],
)
def test_contradictions_of_replication(refuse: Refuse, options: list[str], said: str) -> None:
    """What is for one broker, or asks for slaves that there are none of."""
    assert refuse("up", "--ephemeral", *options, *FREE_PORTS).startswith(f"rocketlet: {said}")


def test_places_of_slaves(tmp_path: pathlib.Path) -> None:
    """Their ports follow those of the masters, their stores have their ids; a lone master keeps the directory."""
    command = ["up", "--print-config", "--store", "s", "--brokers", "2", "--slaves", "2"]
    listed = subprocess.run([*COMMAND, *command], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    found = {key: re.findall(rf"^{key} +(\S+)", listed, flags=re.MULTILINE) for key in ("listenPort", "brokerId")}
    assert found["listenPort"] == ["9876", *[str(10911 + 10 * number) for number in range(6)]]
    assert found["brokerId"] == ["0", "0", "1", "2", "1", "2"]
    places = re.findall(r"^storePathRootDir +(\S+)", listed, flags=re.MULTILINE)
    names = ["broker-a", "broker-b", "broker-a-1", "broker-a-2", "broker-b-1", "broker-b-2"]
    assert places == [str(tmp_path / "s" / name) for name in names]


async def test_slave_on_its_own_is_told_its_master(start: Start, tmp_path: pathlib.Path) -> None:
    """Without a name server it copies the log and the topics of the broker that it is told of."""
    master = start("up", "--store", "one", *FREE_PORTS)
    async with Producer("cli", nameserver=master.addresses["namesrv"]) as producer:
        await producer.send(Message("told", b"body"))
    role = ("--role", "slave", "--master", master.addresses["broker"], "--set", "brokerName=broker-a")
    slave = start("broker", *role, "--broker-port", "0", "--store", "two", NAMESRV_ADDR="")
    own, copied = (tmp_path / place / "commitlog" / f"{0:020}" for place in ("one", "two"))
    ask_until(lambda: copied.exists() and log_start(copied) == log_start(own))
    topics = tmp_path / "two" / "config" / "topics.json"
    ask_until(lambda: topics.exists() and "told" in topics.read_text())
    assert slave.stop()[0] == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--id", "2"], "--id needs --role slave"),
        (["--role", "sync-master", "--master", "h:1"], "--master needs --role slave"),
        (["--role", "slave"], "--role slave needs the name of its master: --set brokerName=NAME"),
        (
            ["--role", "slave", "--set", "brokerName=a", "--master", "h"],
            "masterAddress is 'h:0', which is no host:port",
        ),
    ],
)
def test_contradictions_of_roles(refuse: Refuse, options: list[str], said: str) -> None:
    """What is for a slave alone, and what a slave needs."""
    assert said in refuse("broker", "--ephemeral", "--broker-port", "0", *options)


GIVE_UP = """
import asyncio, os, pathlib, sys, uvloop
from rocketlet.cli.processes import BrokerProcesses, ProcessPlan
from rocketlet.remoting.transport.event_loop import LoopClock

async def give_up(turns, store):
    logs = {"log_level": "info", "log_format": "text", "verbose": False}
    told = {"storePathRootDir": store, "listenPort": "0"}
    async with BrokerProcesses(LoopClock()) as processes, asyncio.TaskGroup() as group:
        starting = group.create_task(processes.start([ProcessPlan(f"broker-{name}", logs, [], told) for name in "abc"]))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
    print(pathlib.Path(f"/proc/self/task/{os.getpid()}/children").read_text(), end="")

for turns in range(12):
    uvloop.run(give_up(turns, sys.argv[1]))
"""


def test_start_that_is_given_up_leaves_no_process(tmp_path: pathlib.Path) -> None:
    """However far the brokers have come into being, they are stopped before the block is left."""
    store = tmp_path / "given up"
    command = [sys.executable, "-W", "error", "-c", GIVE_UP, str(store)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert not store.exists()
