"""The test's end of a driver process: commands as JSON lines to its stdin, answers from its stdout.

    {"id": 1, "do": "producer.send", …}  ->  {"id": 1, "ok": …}  or  {"id": 1, "error": {"type", "code", "message"}}

The driver does the waiting ("until 20 messages or 10 s"); here every read has a limit, after which the driver is taken
for stuck. A driver has a directory of its own for whatever it writes, which goes with it.
"""

import os
import pathlib
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, Self, TypeVar

import msgspec

ANSWER_LIMIT_S = 120.0
EXIT_LIMIT_S = 10.0
LOG_BYTES = 6000
T = TypeVar("T")


class Failure(msgspec.Struct):
    """Why a command failed: the exception of the official client and, if it had one, the response code."""

    type: str
    message: str
    code: int | None = None
    cause: str | None = None
    """The message of what has caused it (Java)."""


class _Answer(msgspec.Struct):
    id: int
    ok: msgspec.Raw = msgspec.Raw()
    error: Failure | None = None


class DriverError(Exception):
    """A command failed in the driver."""

    def __init__(self, command: str, failure: Failure, log: str) -> None:
        super().__init__(f"{command}: {failure.type}: {failure.message}{log}")
        self.failure = failure


def last_lines(log: IO[bytes], name: str) -> str:
    """Return the end of what a process logs, under a heading; the process goes on writing where it is."""
    if log.closed:
        return ""
    size = os.fstat(log.fileno()).st_size
    text = os.pread(log.fileno(), LOG_BYTES, max(0, size - LOG_BYTES)).decode(errors="replace")
    return f"\nlog of {name}:\n{text}" if text else ""


class Driver:
    """A process that runs official clients; a context manager that ends it."""

    def __init__(self, name: str, make_command: Callable[[pathlib.Path], Sequence[str]]) -> None:
        self.name = name
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-driver-"))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 # lives as long as the process, closed in close
        self._asked = 0
        self._unread = b""
        self._answers: dict[int, _Answer] = {}
        try:
            self._process = self._start(make_command(self.directory))
        except BaseException:
            self._log.close()
            shutil.rmtree(self.directory)
            raise

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def __enter__(self) -> Self:
        """Return the running driver."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the process without any good-bye of its clients."""
        self.close()

    def __repr__(self) -> str:
        """Tell the name and whether it runs."""
        return f"<Driver {self.name} pid={self._process.pid} exit={self._process.poll()}>"

    def call(self, do: str, **arguments: object) -> dict[str, Any]:
        """Run a command and return its answer.

        Raises:
            DriverError: the command failed.
        """
        return self.call_as(dict[str, Any], do, **arguments)

    def call_as(self, answer: type[T], do: str, **arguments: object) -> T:
        """Run a command and return its answer as a value of the given type."""
        return self.finish(self.begin(do, **arguments), do, answer)

    def begin(self, do: str, **arguments: object) -> int:
        """Start a command; ``finish`` takes its answer. Others may run meanwhile."""
        self._asked += 1
        assert self._process.stdin is not None, "the pipe is made with the process"
        line = msgspec.json.encode({"id": self._asked, "do": do, **arguments})
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()
        return self._asked

    def finish(self, asked: int, do: str, answer: type[T], limit_s: float = ANSWER_LIMIT_S) -> T:
        """Return the answer of a started command."""
        deadline = time.monotonic() + limit_s
        while asked not in self._answers:
            for line in self._read_lines(deadline):
                got = msgspec.json.decode(line, type=_Answer)
                self._answers[got.id] = got
        found = self._answers.pop(asked)
        if found.error is not None:
            raise DriverError(do, found.error, self.log_end())
        return msgspec.json.decode(found.ok, type=answer)

    def log_end(self) -> str:
        """Return the last lines that the driver logged."""
        return last_lines(self._log, self.name)

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal and return at once."""
        self._process.send_signal(number)

    def wait(self) -> None:
        """Wait until the process has ended by itself, and remove what it wrote."""
        self._process.wait(ANSWER_LIMIT_S)
        self.close()

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._process.send_signal(signal.SIGKILL)
        self.close()

    def close(self) -> None:
        """End the process and remove what it wrote."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(EXIT_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        environment = os.environ | {"HOME": str(self.directory), "ROCKETMQ_GO_LOG_LEVEL": "warn"}
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            cwd=self.directory,
        )

    def _read_lines(self, deadline: float) -> list[bytes]:
        assert self._process.stdout is not None, "the pipe is made with the process"
        readable, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
        if not readable:
            raise TimeoutError(f"{self!r} did not answer in time{self.log_end()}")
        read = os.read(self._process.stdout.fileno(), 1 << 20)
        if not read:
            raise EOFError(f"{self!r} ended{self.log_end()}")
        *lines, self._unread = (self._unread + read).split(b"\n")
        return lines
