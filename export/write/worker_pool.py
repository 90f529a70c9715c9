"""Processes that do one thing for this process over and over, and a thread for each that waits for it.

    this process -> pickled call -> standard input      of  python -m rocketlet.export.write.worker_pool
                 <- pickled result or error <- standard output

Rules:

- They end when their standard input does: with this process, or when the pool is left. Ctrl-C is left to this process.
- A call is a module's function with its arguments; both travel as pickles between processes of one user.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, BinaryIO, Final, ParamSpec, TypeVar

from ...common.errors import RocketletError, StoreError

_COMMAND: Final = (sys.executable, "-m", "rocketlet.export.write.worker_pool")
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


class WorkerPool:
    """A number of processes; calls are made in turn, by whichever is free."""

    def __init__(self, count: int) -> None:
        self._threads = ThreadPoolExecutor(count)
        self._own = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __repr__(self) -> str:
        return f"<WorkerPool of {len(self._processes)} processes>"

    def submit(self, call: Callable[_Given, _Result], *args: _Given.args, **kwargs: _Given.kwargs) -> "Future[_Result]":
        """Make a call in a process; the future raises what the call does, and ``StoreError`` if its process dies."""
        return self._threads.submit(self._call, call, args, kwargs)

    def close(self) -> None:
        """Forget the calls that were not begun, wait for the others, and end the processes."""
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            with process:
                assert process.stdin is not None, "it was started with a pipe"
                with contextlib.suppress(OSError):  # it died with a call half written
                    process.stdin.close()

    def _call(self, *call: object) -> Any:
        process = self._process()
        assert process.stdin is not None, "it was started with a pipe"
        assert process.stdout is not None, "it was started with a pipe"
        try:
            pickle.dump(call, process.stdin)
            process.stdin.flush()
            is_done, result = pickle.load(process.stdout)  # noqa: S301 # of our own process
        except (EOFError, OSError) as error:
            raise StoreError("a process of the export died; fewer of them need less memory") from error
        if is_done:
            return result
        raise result

    def _process(self) -> subprocess.Popen[bytes]:
        """Return the process of this thread."""
        if not hasattr(self._own, "process"):
            pipe = subprocess.PIPE
            self._own.process = subprocess.Popen(_COMMAND, stdin=pipe, stdout=pipe)  # noqa: S603 # nothing is given
            self._processes.append(self._own.process)
        return self._own.process


@contextlib.contextmanager
def open_worker_pool(count: int) -> Generator[WorkerPool]:
    """Run a pool of processes; without them after it."""
    workers = WorkerPool(count)
    try:
        yield workers
    finally:
        workers.close()


def serve(calls: BinaryIO, results: BinaryIO) -> None:
    """Make the calls that come, until no more do."""
    while True:
        try:
            call, args, kwargs = pickle.load(calls)  # noqa: S301 # of the process that started this one
        except EOFError:
            return
        try:
            answer = True, call(*args, **kwargs)
        except RocketletError as error:
            answer = False, error
        pickle.dump(answer, results)
        results.flush()


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as results:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what anything prints is no result
        serve(sys.stdin.buffer, results)


if __name__ == "__main__":
    _main()
