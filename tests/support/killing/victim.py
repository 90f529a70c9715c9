"""A broker process that is killed when it has come so far, and reading back what it serves after its next start.

How far a process has come that does not answer yet is told by its calls to read and write and its page faults, which
Linux counts; elsewhere such a kill comes as soon as it is looked at.
"""

import asyncio
import os
import pathlib
import random
import select
import subprocess
from collections.abc import Mapping

from interop.servers import RocketletServer, rocketlet_command
from killing.ledger import Ledger
from killing.senders import QUEUES, TOPICS
from raw_calls import Caller, open_caller

from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import MessageQueue
from rocketlet.common.record import iter_records
from rocketlet.common.record_messages import decode_message
from rocketlet.remoting.codec.command import decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.pull import PullReply

_FAULTS_AT = 7  # of the words behind the name in /proc/PID/stat
_READ_CALLS_AT, _WRITE_CALLS_AT = 5, 7  # of the words of /proc/PID/io


class Victim:
    """``rocketlet up`` on one store and one pair of ports, as often as it is started."""

    def __init__(self, store: pathlib.Path, settings: Mapping[str, str], choose: random.Random) -> None:
        self.store = store
        self.settings = settings
        self._choose = choose
        self._server: RocketletServer | None = None
        self._steps_of_opening = 100
        self._steps_of_stop = 20

    @property
    def server(self) -> RocketletServer:
        """The process that answered last."""
        assert self._server is not None, "start comes first"
        return self._server

    def start(self) -> None:
        """Start it, on the ports that it had before."""
        self._server = RocketletServer(self.store, self.settings, self._server)

    def kill(self) -> None:
        """Kill the process that runs."""
        self.server.kill()

    def kill_while_opening(self) -> bool:
        """Start it and kill it between the taking of the lock and its ready line; tell whether it was not ready yet."""
        command = rocketlet_command(self.store, self.settings, self._server)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            while process.poll() is None and not _holds(process.pid, self.store / "lock"):
                pass
            before = _count_steps(process.pid)
            limit = self._choose.randrange(self._steps_of_opening)
            while (done := _count_steps(process.pid) - before) < limit and not _has_printed(process):
                pass
            is_ready = _has_printed(process)
        finally:
            process.kill()
            process.communicate()
        if is_ready:  # then it takes fewer steps than were thought
            self._steps_of_opening = max(1, done)
        return not is_ready

    def kill_while_stopping(self) -> None:
        """Ask it to stop, and kill it on the way."""
        before = _count_steps(self.server.pid)
        limit = self._choose.randrange(self._steps_of_stop)
        self.server.begin_stop()
        while self.server.is_running and (done := _count_steps(self.server.pid) - before) < limit:
            self._steps_of_stop = max(self._steps_of_stop, done)
        self.server.kill()

    def begin_cleaning(self) -> None:
        """Ask for what may be deleted to be deleted, and return at once."""
        asyncio.run(_begin_cleaning(self.server.broker))

    def read_back(self, ledger: Ledger) -> None:
        """Note in the ledger what each queue serves behind what was noted before."""
        read_back(self.server.broker, ledger)


def read_back(address: str, ledger: Ledger) -> None:
    """Note in the ledger what each queue of a broker serves behind what was noted before."""
    asyncio.run(_read_back(address, ledger))


async def _begin_cleaning(address: str) -> None:
    async with open_caller(address) as caller:
        answer = await caller.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def _read_back(address: str, ledger: Ledger) -> None:
    async with open_caller(address) as caller:
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                await _read_queue(caller, MessageQueue(topic, "broker-a", queue_id), ledger)


async def _read_queue(caller: Caller, queue: MessageQueue, ledger: Ledger) -> None:
    at = ledger.ends.get((queue.topic, queue.queue_id), 0)
    while True:
        answer = await caller.pull(queue.topic, at, queue_id=queue.queue_id)
        if answer.code == ResponseCode.SUCCESS:
            messages = [decode_message(record, queue.broker_name) for record in iter_records(answer.body)]
            ledger.add_served(messages)
            at = messages[-1].queue_offset + 1
            continue
        if answer.code != ResponseCode.PULL_OFFSET_MOVED:
            is_never_sent_to = answer.code == ResponseCode.TOPIC_NOT_EXIST and queue.topic not in ledger.topics
            if answer.code != ResponseCode.PULL_NOT_FOUND and not is_never_sent_to:
                ledger.faults.append(f"{queue} at {at} is answered {answer.code}: {answer.remark}")
            return
        first = decode_header(PullReply, answer).min_offset
        if first <= at:
            ledger.faults.append(f"{queue} is refused at {at}, and begins at {first}")
            return
        at = first
        ledger.retire(queue.topic, queue.queue_id, at)


def _holds(pid: int, path: pathlib.Path) -> bool:
    """Tell whether a process has a file open; a process that has ended holds nothing."""
    folder = f"/proc/{pid}/fd"
    try:
        return any(os.readlink(f"{folder}/{number}") == str(path) for number in os.listdir(folder))
    except OSError:
        return not os.path.exists("/proc/self/fd")


def _count_steps(pid: int) -> int:
    """Return the reads, writes and page faults of a process; very many when it has ended."""
    try:
        words = pathlib.Path(f"/proc/{pid}/io").read_text().split()
        faults = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[_FAULTS_AT]
        return int(words[_READ_CALLS_AT]) + int(words[_WRITE_CALLS_AT]) + int(faults)
    except (OSError, IndexError):
        return 1 << 60


def _has_printed(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None, "the pipe is made with the process"
    return bool(select.select([process.stdout], [], [], 0)[0])
