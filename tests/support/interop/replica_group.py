"""A name server, a master and its slave as processes of their own, and places on the wire before both of the brokers.

The master can be killed, and started again where it was with the same store; or it is lost with its store, and the
slave goes on in its place. Clients that shall be listened to are given ``namesrv`` of the taps: what they ask the
master passes one tap, what they ask the slave the other.
"""

import asyncio
import hashlib
import pathlib
import shutil
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Protocol

from interop.parts import Part, start_nameserver
from interop.servers import BROKER_NAME, free_port
from interop.tap import Place, Tap
from polling import ask_until
from raw_calls import open_caller

from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.replication import HaStatus
from rocketlet.remoting.bodies.route import ClusterInfo
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

_PORTS = 4  # of a broker: two below its own, and one above


class ReplicaGroup:
    """The processes; they end with the stack on which they are started.

    The name server shows acting masters if the settings of the brokers want one.
    """

    def __init__(self, started: ExitStack, directory: pathlib.Path, port: str = "", **settings: str) -> None:
        self._started = started
        self._directory = directory
        self._settings = settings
        self._port = port or choose_port()
        shows = {"supportActingMaster": settings.get("enableSlaveActingMaster", "false")}
        self.namesrv = started.enter_context(start_nameserver(directory, **shows)).address
        self.master = self.start_broker(port=self._port, **settings)
        self.slave = self._start_slave()

    @property
    def master_store(self) -> pathlib.Path:
        """Where the master has its store."""
        return self._directory / f"{BROKER_NAME}-0"

    @property
    def slave_store(self) -> pathlib.Path:
        """Where the slave has its store."""
        return self._directory / f"{BROKER_NAME}-1"

    def start_broker(self, port: str = "0", **settings: str) -> Part:
        """Run a broker that registers at the name server."""
        given = {"brokerName": BROKER_NAME, **settings}
        place = self._directory / f"{given['brokerName']}-{given.get('brokerId', '0')}"
        told = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        where = ["--broker-port", port, "--namesrv", self.namesrv, "--store", place]
        return self._started.enter_context(Part("broker", *where, *told))

    def kill_master(self) -> None:
        """Kill the master, and return when the name server does not know it any more."""
        self.master.kill()
        ask_until(lambda: 0 not in self._addresses())

    def restart_master(self) -> None:
        """Start the master again, where it was."""
        self.master = self.start_broker(port=self._port, **self._settings)

    def lose_master(self) -> None:
        """Kill the master if it still runs, and throw away what it had."""
        self.master.kill()
        shutil.rmtree(self.master_store)

    def promote_slave(self) -> None:
        """Start what a slave that has ended had as the master, where the lost one was, and an empty slave beside it."""
        self.slave_store.rename(self.master_store)
        self.restart_master()
        self.slave = self._start_slave()

    def wait_copied(self, topic: str) -> None:
        """Return when the slave knows a topic, and has all that is in the master's log now."""
        end = _status_of(self.master).master_commit_log_max_offset
        ask_until(lambda: ask_once(self.slave.address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic}).code == 0)
        ask_until(lambda: _status_of(self.slave).ha_client_runtime_info.max_offset >= end)

    def wait_alone(self) -> None:
        """Return when the slave has taken all that came from a master that has ended."""
        ask_until(lambda: _status_of(self.slave).ha_client_runtime_info.last_read_timestamp, is_so=lambda at: not at)

    def wait_level(self) -> None:
        """Return when master and slave have the same log, byte for byte."""
        ask_until(lambda: log_files(self.master_store) == log_files(self.slave_store))

    @contextmanager
    def tapped(self) -> Generator["GroupTaps"]:
        """Listen to what clients ask the two brokers."""
        with (
            Tap(Place(self.namesrv, self.master.address)) as master,
            Tap(Place(master.namesrv, self.slave.address)) as slave,
        ):
            yield GroupTaps(master, slave)

    def _start_slave(self) -> Part:
        return self.start_broker(**{**self._settings, "brokerRole": "SLAVE", "brokerId": "1"})

    def _addresses(self) -> dict[int, str]:
        info = decode_answer(ClusterInfo, ask_once(self.namesrv, RequestCode.GET_BROKER_CLUSTER_INFO).body)
        return dict(info.broker_addr_table[BROKER_NAME].broker_addrs)


class GroupTaps(NamedTuple):
    """Where a test listens."""

    master: Tap
    slave: Tap

    @property
    def namesrv(self) -> str:
        """The name server as clients are given it."""
        return self.slave.namesrv


class GroupQueue(NamedTuple):
    """A queue, and a group that reads it."""

    group: str
    topic: str
    queue_id: int


class Addressed(Protocol):
    """A broker, whoever made it."""

    address: str


def committed_at(broker: Addressed, asked: GroupQueue) -> int:
    """Return how far a group has come as a broker says, -1 when it says nothing."""
    header = {"consumerGroup": asked.group, "topic": asked.topic, "queueId": str(asked.queue_id)}
    answer = ask_once(broker.address, RequestCode.QUERY_CONSUMER_OFFSET, header)
    return int(answer.ext["offset"]) if answer.code == 0 else -1


def _status_of(broker: Part) -> HaStatus:
    return decode_answer(HaStatus, ask_once(broker.address, RequestCode.GET_BROKER_HA_STATUS).body)


def choose_port() -> str:
    """Return a port that a broker may take, with those beside it."""
    return str(free_port(_PORTS) - 1)


def log_files(store: pathlib.Path) -> dict[str, str]:
    """Return the checksums of the files of a log that hold anything, by their names."""
    found: dict[str, str] = {}
    for path in sorted((store / "commitlog").glob("*")):
        data = path.read_bytes()
        if any(data):
            found[path.name] = hashlib.sha256(data).hexdigest()
    return found


def ask_once(address: str, code: RequestCode, header: Mapping[str, str] | None = None) -> Command:
    """Ask a server on a connection of its own."""

    async def ask() -> Command:
        async with open_caller(address) as caller:
            return await caller.ask(code, header)

    return asyncio.run(ask())
