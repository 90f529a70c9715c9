"""Mixed pairs: an official slave under our master, and our slave under an official master.

After each turn of traffic, kills, restarts and deletions both have the same log, from the slave's first byte on, and
give the same answers. An official slave knows topics a minute after its start: what it answers without is asked sooner.
"""

import asyncio
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Self

import pytest
from interop.clients import Outgoing, Producer, PullConsumer
from interop.driver import Driver
from interop.parts import Part
from interop.replica_group import ask_once, log_files
from interop.servers import BROKER_NAME, JavaServer, RocketletServer, Server, free_port
from interop.toolchain import java_command
from interop.traffic import SMALL_FILES
from interop.versions import every_java, skipped_without
from polling import ask_until, ask_until_async
from raw_calls import Caller, open_caller
from replicas import RETRIERS, send_all_kinds, send_for_later

from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import RemotingError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code

FILE_BYTES = 65_536
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "slaveReadEnable": "true",
    "fileReservedTime": "1",
    "cleanFileForciblyEnable": "false",  # no file goes before its time, however full the disk of the tests is
}
SLAVE = {**SETTINGS, "brokerName": BROKER_NAME, "brokerRole": "SLAVE", "brokerId": "1"}
TOPIC = "T"
TOPICS = (
    *(TOPIC, f"%RETRY%{RETRIERS}", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"),
    *("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"),
)
StartServer = Callable[..., Server]
PAGE_MESSAGES = 32


class Process(Protocol):
    """A slave in a process of its own."""

    address: str

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        ...


class JavaSlave:
    """The official broker as a slave."""

    def __init__(self, store: pathlib.Path, namesrv: str, port: int) -> None:
        with skipped_without("the official broker"):
            self._driver = Driver("java-server", java_command)
        settings = {**SLAVE, "brokerClusterName": "DefaultCluster", "listenPort": str(port)}
        started = self._driver.call("broker.start", name="b", namesrv=namesrv, store=str(store), settings=settings)
        self.address: str = started["address"]

    def __enter__(self) -> Self:
        """Return the running slave."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        self.kill()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._driver.kill()


def start_our_slave(store: pathlib.Path, namesrv: str, port: int) -> Part:
    """Return our broker as a slave."""
    settings = [word for key, value in SLAVE.items() for word in ("--set", f"{key}={value}")]
    return Part("broker", "--broker-port", str(port), "--namesrv", namesrv, "--store", store, *settings)


def start_java_master(store: pathlib.Path, replaced: Any = None) -> JavaServer:
    """Return an official master with its name server."""
    with skipped_without("the official broker"):
        return JavaServer(store, SETTINGS, replaced)


def start_our_master(store: pathlib.Path, replaced: Any = None) -> RocketletServer:
    """Return our master with its name server."""
    return RocketletServer(store, {**SETTINGS, "brokerClusterName": "DefaultCluster"}, replaced)


class Pair:
    """A master and a slave, each of one of the kinds; ``master`` and ``slave`` are those that run."""

    def __init__(
        self,
        root: pathlib.Path,
        start_master: Callable[..., JavaServer | RocketletServer],
        start_slave: Callable[[pathlib.Path, str, int], Process],
    ) -> None:
        self._root = root
        self._start_master = start_master
        self._start_slave = start_slave
        self._slave_port = free_port(4) - 1
        self.master = start_master(root / "master")
        try:
            self.slave = self.start_slave()
        except BaseException:
            self.master.kill()
            raise

    def __enter__(self) -> Self:
        """Return the running pair."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill both."""
        self.slave.kill()
        self.master.kill()

    def start_slave(self) -> Process:
        """Start a slave on the store of the slave."""
        return self._start_slave(self._root / "slave", self.master.namesrv, self._slave_port)

    def send(self, count: int = 40) -> None:
        """Send messages of all kinds to the master."""

        async def send() -> None:
            async with open_caller(self.master.broker) as caller:
                await send_all_kinds(caller, TOPIC, count)
                await send_for_later(caller, TOPIC)

        asyncio.run(send())

    def send_amid(self, kill: Callable[[], None]) -> None:
        """Kill somebody in the middle of many sends; those that are not answered may be stored or not."""

        async def send(caller: Caller) -> None:
            with suppress(RemotingError):
                await caller.send(TOPIC, b"x" * 2_000)

        async def send_many() -> None:
            async with open_caller(self.master.broker) as caller, asyncio.TaskGroup() as tasks:
                await caller.send(TOPIC, b"first")
                for _ in range(200):
                    tasks.create_task(send(caller))
                await caller.send(TOPIC, b"last before the kill")
                for _ in range(200):
                    tasks.create_task(send(caller))
                await asyncio.to_thread(kill)

        asyncio.run(send_many())

    def restart_slave(self) -> None:
        """Kill the slave amid sends, send more, and start it again."""
        self.send_amid(self.slave.kill)
        self.send()
        self.slave = self.start_slave()

    def restart_master(self) -> None:
        """Kill the master amid sends, and start it again at the same addresses."""
        self.send_amid(self.master.kill)
        self.master = self._start_master(self._root / "master", self.master)

    def wait_level(self) -> None:
        """Wait until the slave has the log of its master from its first file on."""

        def is_level() -> bool:
            master, slave = log_files(self._root / "master"), log_files(self._root / "slave")
            return bool(slave) and slave == {name: found for name, found in master.items() if name >= min(slave)}

        ask_until(is_level)

    def empty_slave(self) -> None:
        """Kill the slave, and start it again without what it had."""
        self.slave.kill()
        (self._root / "slave").rename(self._root / "slave before")
        self.slave = self.start_slave()

    def delete_first_file(self) -> None:
        """Have both delete the first file of their logs, as if it had expired: one that is two hours old has."""
        for store, address in (("master", self.master.broker), ("slave", self.slave.address)):
            ask_until(partial(self._has_deleted, self._root / store, min(log_files(self._root / store)), address))

    def _has_deleted(self, store: pathlib.Path, name: str, address: str) -> bool:
        path = store / "commitlog" / name
        if not path.exists():
            return True
        at_s = time.time() - 7_200
        os.utime(path, (at_s, at_s))
        assert ask_once(address, Code.DELETE_EXPIRED_COMMITLOG).code == ResponseCode.SUCCESS
        return False

    def master_files(self) -> list[str]:
        """Return the names of the master's log files that hold anything."""
        return sorted(log_files(self._root / "master"))

    def slave_files(self) -> list[str]:
        """Return the names of the slave's log files that hold anything."""
        return sorted(log_files(self._root / "slave"))

    def compare_answers(self, asked: "list[Question]") -> None:
        """Ask both until they answer alike: messages become due, and the slave makes queues of its log."""

        async def compare() -> None:
            async with open_caller(self.master.broker) as master, open_caller(self.slave.address) as slave:
                for ask in asked:
                    await ask_until_async(partial(ask_both, ask, master, slave), lambda both: both[0] == both[1])

        asyncio.run(compare())


async def ask_both(ask: "Question", master: Caller, slave: Caller) -> tuple[Any, Any]:
    """Return what they answer."""
    return await ask(master), await ask(slave)


Question = Callable[[Caller], Any]


def shown(answer: Command) -> tuple[int, dict[str, str], bytes]:
    """Return what two brokers with the same log have to say alike."""
    own = (
        "indexLastUpdateTimestamp",
        "indexLastUpdatePhyoffset",
        "suggestWhichBrokerId",
        "groupSysFlag",
        "topicSysFlag",
        "minOffset",  # is asked for where it is alike
    )
    return answer.code, {key: value for key, value in answer.ext.items() if key not in own}, bytes(answer.body)


def questions(*, pulls: bool, from_start: bool = True) -> list[Question]:
    """Return what to ask about queues, keys and places in the log; where queues begin if that is alike."""

    async def ends(caller: Caller) -> Any:
        codes = [Code.GET_MAX_OFFSET, *((Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME) if from_start else ())]
        return [
            shown(await caller.ask(code, {"topic": topic, "queueId": str(queue_id)}))
            for topic in TOPICS
            for queue_id in range(4)
            for code in codes
        ]

    async def by_key(caller: Caller) -> Any:
        header = {"topic": TOPIC, "key": "every", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(1 << 60)}
        return shown(await caller.ask(Code.QUERY_MESSAGE, header))[2]

    async def by_place(caller: Caller) -> Any:
        return shown(await caller.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": str(FILE_BYTES * 2)}))

    async def by_time(caller: Caller) -> Any:
        header = {"topic": TOPIC, "queueId": "1", "timestamp": str(1 << 60)}
        return shown(await caller.ask(Code.SEARCH_OFFSET_BY_TIMESTAMP, header))

    async def pulled(caller: Caller) -> Any:
        found: list[Any] = []
        for queue_id in range(4):
            queue = {"topic": TOPIC, "queueId": str(queue_id)}
            least, end = [await caller.ask(code, queue) for code in (Code.GET_MIN_OFFSET, Code.GET_MAX_OFFSET)]
            offset = int(least.ext["offset"]) if from_start else int(end.ext["offset"]) - 10
            while (answer := shown(await caller.pull(TOPIC, offset, queue_id=queue_id)))[0] == 0:
                found.append(answer)
                offset = int(answer[1]["nextBeginOffset"])
            found.append(answer)
        return found

    return [ends, by_key, by_place, by_time, *([pulled] if pulls else [])]


@pytest.fixture(params=["our master", "our slave"])
def pair(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[Pair]:
    """Run a mixed pair."""
    if request.param == "our master":
        started = Pair(tmp_path, start_our_master, JavaSlave)
    else:
        started = Pair(tmp_path, start_java_master, start_our_slave)
    with started:
        started.send(1)
        started.wait_level()  # before there is a second file: an official master gives an empty slave its newest one
        yield started


@pytest.mark.feature("R3", "R4", "R7", "H1")
def test_logs_are_equal_whoever_is_killed(pair: Pair) -> None:
    """After messages of all kinds, a kill and a restart of the slave amid more, and of the master."""
    for disturb in (lambda: None, pair.restart_slave, pair.restart_master):
        disturb()
        pair.send()
        pair.wait_level()
        pair.compare_answers(questions(pulls=isinstance(pair.slave, Part)))


@pytest.mark.feature("R1", "R3", "R4")
def test_emptied_slave_begins_anew(pair: Pair) -> None:
    """Our master gives it all files, an official one all but the first; from there on logs and answers are equal."""
    for _ in range(3):
        pair.send()
    pair.wait_level()
    before = pair.master_files()
    pair.empty_slave()
    pair.send()
    pair.wait_level()
    is_all = isinstance(pair.master, RocketletServer)
    assert pair.slave_files()[0] == before[0 if is_all else 1]
    pair.compare_answers(questions(pulls=isinstance(pair.slave, Part), from_start=is_all))


@pytest.mark.feature("R3", "R4")
@pytest.mark.timeout(400, func_only=True)
def test_first_file_is_deleted(pair: Pair) -> None:
    """By both, as it has expired: the copy goes on, and an emptied slave begins where its master does."""
    for _ in range(3):
        pair.send()
    pair.wait_level()
    first, second, *_ = pair.master_files()
    pair.delete_first_file()
    pair.send()
    pair.wait_level()
    assert pair.slave_files()[0] == pair.master_files()[0] == second > first
    pair.compare_answers(questions(pulls=True))
    pair.empty_slave()
    pair.send()
    pair.wait_level()
    assert pair.slave_files()[0] == second
    pair.compare_answers(questions(pulls=isinstance(pair.slave, Part)))


@pytest.mark.feature("R11", "S20")
@every_java
def test_sends_wait_for_the_slave(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """With a slave each is SEND_OK, without FLUSH_SLAVE_TIMEOUT unless it does not want to wait; all are stored."""
    sync = {**SETTINGS, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "500"}
    server = rocketlet_up(tmp_path / "master", **sync)
    with Producer(java, namesrv=server.namesrv) as producer, PullConsumer(java, namesrv=server.namesrv) as reader:
        (lonely,) = producer.send(TOPIC, Outgoing(b"lonely"))
        (unawaited,) = producer.send(TOPIC, Outgoing(b"unawaited", waits_for_store=False))
        assert (lonely.status, unawaited.status) == ("FLUSH_SLAVE_TIMEOUT", "SEND_OK")
        with start_our_slave(tmp_path / "slave", server.namesrv, 0) as slave:
            ask_until(lambda: producer.send(TOPIC, Outgoing(b"first"))[0].status, "SEND_OK".__eq__)
            for mode in ("sync", "async", "batch"):
                producer.send_all(TOPIC, *[Outgoing(f"{mode} {number}".encode()) for number in range(20)], mode=mode)
            slave.kill()
        (late,) = producer.send(TOPIC, Outgoing(b"late"))
        assert late.status == "FLUSH_SLAVE_TIMEOUT"
        stored = {message.body for message in reader.read_all(TOPIC)}
    assert {b"lonely", b"unawaited", b"first", b"sync 19", b"async 19", b"batch 19", b"late"} <= stored
