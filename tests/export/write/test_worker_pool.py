import io
import os
import pickle
import signal

import pytest

from rocketlet.common.errors import ConfigError, StoreDamagedError, StoreError
from rocketlet.export.plan.selection import parse_instant
from rocketlet.export.write.worker_pool import open_worker_pool, serve


def test_calls_are_made_elsewhere() -> None:
    """Results and errors come back; a process that dies is an error of its call, and leaving the pool ends the rest."""
    with open_worker_pool(1) as workers:
        pid = workers.submit(os.getpid).result()
        assert pid != os.getpid()
        assert workers.submit(os.getpid).result() == pid
        with pytest.raises(ConfigError, match="'yesterday', neither") as caught:
            workers.submit(parse_instant, "yesterday", "--from").result()
        assert caught.value.key == "--from"
        with pytest.raises(StoreError, match="a process of the export died"):
            workers.submit(os._exit, 3).result()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_workers_leave_ctrl_c_and_output_to_others() -> None:
    """Ctrl-C reaches all processes of a terminal and does not end them; what a call prints is no answer."""
    with open_worker_pool(1) as workers:
        assert workers.submit(signal.raise_signal, signal.SIGINT).result() is None
        assert workers.submit(print, "printed", flush=True).result() is None
        assert workers.submit(int, "7").result() == 7


def test_server_answers_until_its_input_ends() -> None:
    """Each call has one answer, in order; damage travels with its place."""
    calls, results = io.BytesIO(), io.BytesIO()
    asked: list[tuple[object, ...]] = [(int, ("7",), {}), (_break, (), {})]
    for call in asked:
        pickle.dump(call, calls)
    calls.seek(0)
    serve(calls, results)
    results.seek(0)
    assert pickle.load(results) == (True, 7)  # noqa: S301 # our own bytes
    is_done, error = pickle.load(results)  # noqa: S301 # our own bytes
    assert (is_done, str(error), error.path, error.position, error.finding) == (False, "a; b", "log", 7, "a")
    assert results.read() == b""


def _break() -> None:
    raise StoreDamagedError("a", path="log", position=7, way_on="b")
