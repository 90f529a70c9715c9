"""`rocketlet up --brokers N`: several brokers and a name server in one process."""

import pathlib
import re
import subprocess
import sys

import pytest
from command_line import Refuse, Start

from rocketlet.client import ConsumeFrom, Message, Producer, PullConsumer, PullConsumerSettings
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.route import TopicRouteData
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.event_loop import LoopClock

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")


def make_store(path: pathlib.Path) -> str:
    """Make what a broker's store begins with."""
    (path / "commitlog").mkdir(parents=True)
    return str(path)


async def template_brokers(nameserver: str) -> dict[str, str]:
    """Return name and address of each broker that a name server knows."""
    async with ConnectionPool(LoopClock()) as pool:
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        reply = await pool.request(nameserver, request, 5_000)
    return {data.broker_name: data.broker_addrs[0] for data in decode_body(TopicRouteData, reply.body).broker_datas}


async def test_ready_line_names_all_brokers(start: Start, tmp_path: pathlib.Path) -> None:
    """One line names them in the order of their names, routes know them, each has its directory, all stop cleanly."""
    running = start("up", "--brokers", "3", "--store", "store", *FREE_PORTS)
    assert re.fullmatch(
        r"ready namesrv=127\.0\.0\.1:\d+( (broker|grpc)=(127\.0\.0\.1:\d+,?\b){3}){2}\n",
        running.ready,
    )
    names = ["broker-a", "broker-b", "broker-c"]
    addresses = running.addresses["broker"].split(",")
    assert await template_brokers(running.addresses["namesrv"]) == dict(zip(names, addresses, strict=True))
    assert all((tmp_path / "store" / name / "abort").exists() for name in names)
    code, out, said = running.stop()
    assert (code, out) == (0, "")
    kept = f"rocketlet: messages are kept in {tmp_path / 'store'}, in a directory for each broker: "
    assert said.splitlines()[0] == kept + ", ".join(names)
    assert not any((tmp_path / "store" / name / "abort").exists() for name in names)


async def test_messages_of_all_brokers_are_kept(start: Start) -> None:
    """A topic that lies on both brokers is read whole after a restart."""
    bodies = {b"%d" % number for number in range(10)}
    running = start("up", "--brokers", "2", "--store", "store", *FREE_PORTS)
    async with Producer("cli", nameserver=running.addresses["namesrv"]) as producer:
        results = [await producer.send(Message("spread", body)) for body in bodies]
    assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
    assert running.stop()[0] == 0
    running = start("up", "--brokers", "2", "--store", "store", *FREE_PORTS)
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)
    found: set[bytes] = set()
    async with PullConsumer("cli", nameserver=running.addresses["namesrv"], settings=settings) as consumer:
        consumer.subscribe("spread")
        async for message in consumer:
            found.add(message.body)
            if len(found) == len(bodies):
                break
    assert found == bodies


def test_ephemeral_brokers_leave_nothing(start: Start, tmp_path: pathlib.Path) -> None:
    """Temporary stores are separate, and gone when the process has ended."""
    running = start("up", "--brokers", "2", "--ephemeral", *FREE_PORTS, TMPDIR=str(tmp_path))
    assert len(list(tmp_path.glob("rocketlet-*/*/abort"))) == 2
    assert running.stop()[0] == 0
    assert list(tmp_path.glob("rocketlet-*")) == []


def printed_values(cwd: pathlib.Path, key: str, *options: str) -> list[str]:
    """Return the values that `up --print-config` lists for a key, part by part."""
    command = [sys.executable, "-m", "rocketlet", "up", "--print-config", *options]
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    return re.findall(rf"^{key} +(\S+)", ended.stdout, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ([], ["9876", "10911", "10921", "10931"]),
        (["--broker-port", "5000"], ["9876", "5000", "5010", "5020"]),
        (["--set", "listenPort=5000", "--namesrv-port", "7"], ["7", "5000", "5010", "5020"]),
        (["--broker-port", "0"], ["9876", "0", "0", "0"]),
    ],
)
def test_ports_are_ten_apart(tmp_path: pathlib.Path, options: list[str], ports: list[str]) -> None:
    """Ports count from the first broker's in tens; port 0 is a free one for each."""
    assert printed_values(tmp_path, "listenPort", "--brokers", "3", *options) == ports


def test_stores_are_below_the_directory(tmp_path: pathlib.Path) -> None:
    """Each broker has the directory of its name below the one that is named, by option or setting."""
    expected = [str(tmp_path / "s" / name) for name in ("broker-a", "broker-b")]
    for options in (("--store", "s"), ("--set", "storePathRootDir=s")):
        assert printed_values(tmp_path, "storePathRootDir", "--brokers", "2", *options) == expected


def test_advertised_ports_are_ten_apart(start: Start) -> None:
    """With `--advertise HOST:PORT` the brokers are told to be at that port and those ten further on."""
    running = start("up", "--brokers", "2", "--ephemeral", "--advertise", "localhost:7000", *FREE_PORTS)
    assert running.addresses["broker"] == "localhost:7000,localhost:7010"


@pytest.mark.parametrize(
    "setting",
    ["brokerName=x", "storePathCommitLog=log", "readOnlyCommitLogStorePaths=log", "haListenPort=7"],
)
def test_settings_of_one_broker_are_refused(refuse: Refuse, setting: str) -> None:
    """What brokers cannot have in common contradicts their number."""
    line = refuse("up", "--brokers", "2", "--ephemeral", "--set", setting, *FREE_PORTS)
    assert line.startswith(f"rocketlet: {setting.partition('=')[0]} and --brokers 2 contradict each other")


def test_store_of_another_number_of_brokers_is_refused(refuse: Refuse, tmp_path: pathlib.Path) -> None:
    """One broker does not begin anew beside the stores of several, nor several beside the store of one."""
    make_store(tmp_path / "one")
    make_store(tmp_path / "several" / "broker-a")
    line = refuse("up", "--brokers", "2", "--store", "one", *FREE_PORTS)
    assert line == "rocketlet: one is the store of one broker, --brokers 2 needs another\n"
    line = refuse("up", "--store", "several", *FREE_PORTS)
    assert line == "rocketlet: several holds the stores of several brokers, start them with --brokers\n"
