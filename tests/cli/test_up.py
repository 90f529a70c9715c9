"""`rocketlet up`, `namesrv` and `broker` as processes."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Generator

import pytest
from command_line import Refuse, Start

from rocketlet.client import ConsumeFrom, Message, Producer, PullConsumer, PullConsumerSettings
from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import NewRecord
from rocketlet.remoting.bodies.body import decode_body
from rocketlet.remoting.bodies.route import TopicRouteData
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.addresses import is_loopback, reachable_host
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore

FREE_PORTS = ("--namesrv-port", "0", "--broker-port", "0")
EXAMPLE = """\
namesrvAddr=127.0.0.1:1;127.0.0.1:2
brokerClusterName=itzhai-com-cluster
brokerIP1=127.0.0.1
listenPort=0
brokerName=broker-1
brokerId=0
deleteWhen=02
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=ASYNC_FLUSH
autoCreateTopicEnable=true
warmMapedFileEnable=false
storePathRootDir={store}
"""


async def find_route(nameserver: str, topic: str) -> TopicRouteData:
    """Ask a name server for a route."""
    async with ConnectionPool(LoopClock()) as pool:
        request = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        reply = await pool.request(nameserver, request, 5_000)
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return decode_body(TopicRouteData, reply.body)


@contextlib.contextmanager
def hangup(action: signal.Handlers) -> Generator[None]:
    """Let processes that start in the block begin with that action for SIGHUP; they inherit it."""
    before = signal.signal(signal.SIGHUP, action)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_stops_cleanly(start: Start, number: signal.Signals):
    """One ready line with both addresses, where the messages are, no more than the first lines, and 0 at a signal."""
    with hangup(signal.SIG_DFL):
        running = start("up", "--ephemeral", *FREE_PORTS)
    assert re.fullmatch(r"ready namesrv=127\.0\.0\.1:\d+( (broker|grpc)=127\.0\.0\.1:\d+){2}\n", running.ready)
    code, out, said = running.stop(number)
    assert (code, out) == (0, "")
    first, *others = said.splitlines()
    assert re.fullmatch(r"rocketlet: messages are kept in \S+/rocketlet-\S+, which is removed at exit", first)
    assert all(line.startswith("rocketlet: ") for line in others)


def test_nohup_keeps_it_running(start: Start):
    """Who ignores SIGHUP before the start means it: the signal is no stop then, and SIGTERM still is."""
    with hangup(signal.SIG_IGN):  # as nohup does
        running = start("up", "--ephemeral", *FREE_PORTS)
    running.process.send_signal(signal.SIGHUP)
    host, port = running.addresses["broker"].split(":")
    with socket.create_connection((host, int(port))):
        assert running.stop()[:2] == (0, "")


def test_bus_error_is_not_silent(start: Start):
    """What remains when a mapped file is cut in the moment that it is read: stderr says what it was and where."""
    code, out, err = start("up", "--store", "store", *FREE_PORTS).stop(signal.SIGBUS)  # nothing would remove another
    assert (code, out) == (-signal.SIGBUS, "")
    assert "\nFatal Python error: Bus error" in err


def test_ephemeral_store_is_removed(start: Start):
    """The temporary store is there while the broker runs and gone after it."""
    before = set(pathlib.Path(tempfile.gettempdir()).glob("rocketlet-*"))
    running = start("up", "--ephemeral", *FREE_PORTS)
    (store,) = set(pathlib.Path(tempfile.gettempdir()).glob("rocketlet-*")) - before
    assert (store / "abort").exists()
    running.stop()
    assert not store.exists()


async def test_clients_can_use_it_at_once(start: Start):
    """After the ready line the route of the template topic is known and names the broker of the line."""
    running = start("up", "--ephemeral", *FREE_PORTS)
    route = await find_route(running.addresses["namesrv"], "TBW102")
    assert [data.broker_addrs for data in route.broker_datas] == [{0: running.addresses["broker"]}]


@pytest.mark.feature("H6")
async def test_store_stays(start: Start, tmp_path: pathlib.Path):
    """A message is still there after a stop and another start on the same store, and `abort` is gone in between."""
    running = start("up", "--store", "store", *FREE_PORTS)
    async with Producer("cli", nameserver=running.addresses["namesrv"]) as producer:
        await producer.send(Message("kept", b"hello"))
    assert running.stop()[0] == 0
    assert not (tmp_path / "store" / "abort").exists()
    running = start("up", "--store", "store", *FREE_PORTS)
    settings = PullConsumerSettings(consume_from=ConsumeFrom.FIRST)
    async with PullConsumer("cli", nameserver=running.addresses["namesrv"], settings=settings) as consumer:
        consumer.subscribe("kept")
        async for message in consumer:
            assert message.body == b"hello"
            break


def test_default_store_is_the_users(start: Start, tmp_path: pathlib.Path):
    """Without an option the store is in the user's data directory, and the start says so."""
    running = start("up", *FREE_PORTS)
    store = tmp_path / "data" / "rocketlet" / "store"
    assert (store / "abort").exists()
    code, out, said = running.stop()
    assert (code, out) == (0, "")
    assert said.startswith(f"rocketlet: messages are kept in {store}\n")


@pytest.mark.feature("H7")
def test_config_file_of_a_java_broker_works(start: Start, tmp_path: pathlib.Path):
    """A usual broker.conf starts a broker; a key that has no effect is named in a warning, and no other."""
    (tmp_path / "broker.conf").write_text(EXAMPLE.format(store=tmp_path / "elsewhere"))
    running = start("up", "-c", "broker.conf", "--namesrv-port", "0")
    assert (tmp_path / "elsewhere" / "abort").exists()
    code, _, logged = running.stop()
    assert code == 0
    assert re.findall("setting (.*) has no effect", logged) == ["warmMapedFileEnable"]


async def test_advertised_address_is_told(start: Start):
    """With `--advertise` the ready line and the routes name that host and port."""
    running = start("up", "--ephemeral", "--advertise", "localhost:7000", *FREE_PORTS)
    assert running.addresses["namesrv"].startswith("localhost:")
    assert running.addresses["broker"] == "localhost:7000"
    route = await find_route(running.addresses["namesrv"], "TBW102")
    assert [data.broker_addrs for data in route.broker_datas] == [{0: "localhost:7000"}]


@pytest.mark.feature("N4")
async def test_broker_registers_at_each_name_server(start: Start):
    """A broker alone is known to every name server that it was given, when it is ready."""
    nameservers = [start("namesrv", "--namesrv-port", "0").addresses["namesrv"] for _ in range(2)]
    running = start("broker", "--ephemeral", "--broker-port", "0", "--namesrv", ";".join(nameservers))
    assert re.fullmatch(r"ready broker=127\.0\.0\.1:\d+\n", running.ready)
    for nameserver in nameservers:
        route = await find_route(nameserver, "TBW102")
        assert [data.broker_addrs for data in route.broker_datas] == [{0: running.addresses["broker"]}]


async def test_name_server_of_the_environment(start: Start):
    """Without an option a broker registers at NAMESRV_ADDR; the option wins over it."""
    nameserver = start("namesrv", "--namesrv-port", "0").addresses["namesrv"]
    broker = ("broker", "--ephemeral", "--broker-port", "0")
    by_environment = start(*broker, "--set", "brokerName=one", NAMESRV_ADDR=nameserver)
    by_option = start(*broker, "--set", "brokerName=two", "--namesrv", nameserver, NAMESRV_ADDR="127.0.0.1:1")
    route = await find_route(nameserver, "TBW102")
    assert {data.broker_name: data.broker_addrs[0] for data in route.broker_datas} == {
        "one": by_environment.addresses["broker"],
        "two": by_option.addresses["broker"],
    }


def own_address() -> str:
    """Return an address of this machine that other machines would use."""
    host = reachable_host("")
    if is_loopback(host):
        pytest.skip("platform: this machine has no address but the loopback one")
    return host


@pytest.mark.parametrize("by", ["file", "--set", "--advertise"])
async def test_told_address_is_listened_at(start: Start, tmp_path: pathlib.Path, by: str):
    """Clients that are told an address of the machine reach broker and name server there, with no other option."""
    host = own_address()
    (tmp_path / "broker.conf").write_text(f"brokerIP1={host}\n")
    options = {"file": ("-c", "broker.conf"), "--set": ("--set", f"brokerIP1={host}"), "--advertise": (by, host)}[by]
    running = start("up", "--ephemeral", *options, *FREE_PORTS)
    assert {part: address.rpartition(":")[0] for part, address in running.addresses.items()} == {
        "namesrv": host,
        "broker": host,
        "grpc": host,
    }
    route = await find_route(running.addresses["namesrv"], "TBW102")
    assert [data.broker_addrs for data in route.broker_datas] == [{0: running.addresses["broker"]}]
    async with ConnectionPool(LoopClock()) as pool:
        await pool.connect(running.addresses["broker"])
    said = running.stop()[2].splitlines()
    assert said[0] == f"rocketlet: listening at all addresses, since clients are told {host}; --host names one"
    assert said[1].startswith("rocketlet: whoever reaches this machine may read and change everything: authentication")
    assert said[2].startswith("rocketlet: messages are kept in ")
    assert not any("forwards" in line for line in said)


@pytest.mark.parametrize("command", ["up", "broker", "namesrv"])
def test_told_address_that_nobody_serves_is_refused(refuse: Refuse, command: str):
    """With a `--host` that leaves the told address out nothing starts."""
    host = own_address()
    ports = {"up": FREE_PORTS, "broker": FREE_PORTS[2:], "namesrv": FREE_PORTS[:2]}[command]
    line = refuse(command, "--host", "127.0.0.1", "--advertise", host, *ports)
    assert line.startswith(f"rocketlet: clients would be told {host} (--advertise, brokerIP1), where nobody listens")


def test_told_loopback_address_is_the_only_one(start: Start):
    """An address that never leaves the machine is listened at alone."""
    running = start("up", "--ephemeral", "--advertise", "127.0.0.2", *FREE_PORTS)
    for address in running.addresses.values():
        host, _, port = address.rpartition(":")
        assert host == "127.0.0.2"
        socket.create_connection((host, int(port))).close()
        with pytest.raises(ConnectionRefusedError):  # at 127.0.0.1 others may listen
            socket.create_connection(("127.0.0.3", int(port)))


@pytest.mark.parametrize("command", ["up", "broker", "namesrv"])
def test_told_address_of_another_machine_is_said(start: Start, command: str):
    """The ready line names it, as it may be forwarded; one line before says that it has to be."""
    options = {
        "up": ("--ephemeral", *FREE_PORTS),
        "broker": ("--ephemeral", *FREE_PORTS[2:]),
        "namesrv": FREE_PORTS[:2],
    }[command]
    running = start(command, "--advertise", "192.0.2.7", *options)
    told = list(running.addresses.values())
    assert {address.rpartition(":")[0] for address in told} == {"192.0.2.7"}
    [line] = [line for line in running.stop()[2].splitlines() if "clients are told" in line and "forwards" in line]
    assert line.startswith(f"rocketlet: clients are told {' and '.join(told)}, but 192.0.2.7 is no address of this")
    for address in told:
        assert f"{address} to 0.0.0.0:{address.rpartition(':')[2]}" in line


def test_told_port_that_nobody_listens_at_is_said(start: Start):
    """A port that is not the broker's is not refused, as it may be forwarded, but said."""
    running = start("up", "--ephemeral", "--advertise", "localhost:7000", *FREE_PORTS)
    said = running.stop()[2]
    assert "rocketlet: clients are told localhost:7000, but this process does not listen there" in said


def test_broker_without_name_server_says_so(start: Start):
    """A broker that no client can find starts, and says why none does."""
    running = start("broker", "--ephemeral", "--broker-port", "0")
    said = running.stop()[2]
    assert said.startswith("rocketlet: no client finds this broker: no name server is named by --namesrv, ")


def test_store_of_another_process_is_refused(start: Start, refuse: Refuse):
    """A store that another process has open ends the start with a sentence that names it."""
    start("up", "--store", "store", *FREE_PORTS)
    line = refuse("up", "--store", "store", *FREE_PORTS)
    assert "store" in line
    assert "in use" in line or "open" in line


def test_directory_that_is_a_file_is_refused(refuse: Refuse, tmp_path: pathlib.Path):
    """A path at which no directory can be made ends the start with a sentence that names it."""
    (tmp_path / "file").touch()
    expected = "rocketlet: the store cannot be file/deep/store: file is a file\n"
    assert refuse("up", "--set", "storePathRootDir=file/deep/store", *FREE_PORTS) == expected
    assert refuse("up", "--store", "file/deep/store", *FREE_PORTS) == expected
    assert refuse("broker", "--store", "file/deep/store") == expected


def without_rights() -> list[str]:
    """Return the command behind which root, too, may read only what its permissions allow."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("platform: root may read every directory, and there is no setpriv")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.parametrize("options", [("--store", "store"), ("--set", "storePathRootDir=store")])
def test_unreadable_directory_is_refused(refuse: Refuse, tmp_path: pathlib.Path, options: tuple[str, str]):
    """A directory without permissions ends the start with a sentence that names it."""
    (tmp_path / "store").mkdir(mode=0)
    assert "store" in refuse("up", *options, *FREE_PORTS, behind=without_rights())


def test_wrong_segment_size_is_refused(refuse: Refuse, tmp_path: pathlib.Path):
    """A store that was written with files of another size ends the start with a sentence that names the key."""
    config = StoreConfig(str(tmp_path / "store"), segment_bytes=1 << 20)
    with MessageStore.open(config, now_ms=lambda: 0, store_host=bytes(8)) as store:
        store.append(NewRecord("topic", 0, b"body", b"", {}, 0, 0, 0, bytes(8)))
        store.commit()
    line = refuse("up", "--store", "store", "--set", "mappedFileSizeCommitLog=2097152", *FREE_PORTS)
    assert "mappedFileSizeCommitLog" in line or "1048576" in line


def test_print_config_starts_nothing(tmp_path: pathlib.Path):
    """`--print-config` lists each key with value, default and meaning, and leaves no store behind."""
    command = [sys.executable, "-m", "rocketlet", "up", "--print-config", "--broker-port", "7", "--store", "store"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    rows = {tuple(line.split()[:3]) for line in ended.stdout.splitlines()}
    assert ("listenPort", "7", "10911") in rows
    assert ("listenPort", "9876", "9876") in rows
    assert not (tmp_path / "store").exists()


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="platform: no /proc to read the memory from")
def test_idle_memory_is_small(start: Start):
    """An idle name server and broker take at most 48 MB."""
    running = start("up", "--ephemeral", *FREE_PORTS)
    status = pathlib.Path(f"/proc/{running.process.pid}/status").read_text()
    (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB$", status, flags=re.MULTILINE)
    assert int(kilobytes) * 1024 <= 48_000_000


def test_store_option_is_not_empty(refuse: Refuse):
    """An unset variable of a shell does not put the store into the working directory."""
    assert refuse("up", "--store", "", *FREE_PORTS) == "rocketlet: Invalid value for '--store': it is empty\n"


def test_name_server_alone_looks_at_its_keys(start: Start, refuse: Refuse):
    """A misspelt key is warned about with the nearest one; a mode of TLS that there is not stops the start."""
    running = start("namesrv", "--namesrv-port", "0", "--set", "kvConfigPatx=there")
    assert "setting kvConfigPatx is unknown; did you mean kvConfigPath?" in running.stop()[2]
    assert "tls.server.mode is 'enforced'" in refuse("namesrv", "--set", "tls.server.mode=enforced")


async def test_broker_of_up_has_a_name_of_its_own(start: Start):
    """`up` calls its broker broker-a, whatever the machine is called."""
    running = start("up", "--ephemeral", *FREE_PORTS)
    route = await find_route(running.addresses["namesrv"], "TBW102")
    assert [data.broker_name for data in route.broker_datas] == ["broker-a"]
