"""Tasks that end with their owner, and jobs that go on after an error."""

import asyncio
import itertools
import logging

import pytest

from rocketlet.common.errors import StoreFullError
from rocketlet.remoting.transport.event_loop import FIRST_PAUSE_MS, LONGEST_PAUSE_MS, TaskScope, repeat
from rocketlet.testing import ManualClock


async def test_scope_ends_its_tasks():
    """Leaving the scope cancels what still runs and waits until it has cleaned up."""
    cleaned: list[str] = []

    async def wait_forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("cleaned")

    async with TaskScope() as tasks:
        tasks.start(wait_forever(), "waits")
        await asyncio.sleep(0)
        assert repr(tasks) == "<TaskScope 1 tasks>"
    assert cleaned == ["cleaned"]
    assert repr(tasks) == "<TaskScope 0 tasks>"


async def test_error_in_the_block_passes_the_scope():
    """An error of the block itself comes out as it is."""

    async def fail() -> None:
        async with TaskScope() as tasks:
            tasks.start(asyncio.Event().wait(), "waits")
            raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await fail()


async def test_job_is_repeated_as_it_asks():
    """A job runs after its first delay, then after each delay that it returns, and ends with None."""
    manual, runs = ManualClock(), list[int]()
    start_ms = manual.now_ms()

    async def job() -> int | None:
        runs.append(manual.now_ms() - start_ms)
        return 100 if len(runs) < 3 else None

    async with TaskScope() as tasks:
        done = tasks.start(repeat(job, manual, first_ms=50), "job")
        await manual.elapse(1000)
        assert done.done()
    assert runs == [50, 150, 250]


@pytest.mark.parametrize(
    ("error", "has_traceback"), [(StoreFullError("full"), False), (OSError("gone"), False), (RuntimeError("bug"), True)]
)
async def test_failing_job_goes_on_with_growing_pauses(
    error: Exception, has_traceback: bool, caplog: pytest.LogCaptureFixture
):
    """A failing job is tried again after pauses that double up to a limit; each failure is logged."""
    manual, runs = ManualClock(), list[int]()

    async def job() -> int | None:
        runs.append(manual.now_ms())
        if len(runs) < 10:
            raise error
        return None

    async with TaskScope() as tasks:
        done = tasks.start(repeat(job, manual), "job")
        await manual.elapse(10 * LONGEST_PAUSE_MS)
        assert done.done()
    pauses = [later - earlier for earlier, later in itertools.pairwise(runs)]
    assert pauses == [min(FIRST_PAUSE_MS << number, LONGEST_PAUSE_MS) for number in range(9)]
    failures = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [bool(record.exc_info) for record in failures] == [has_traceback] * 9
