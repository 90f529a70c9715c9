"""Calls of the application's functions: where they run, what they see, how their threads end."""

import asyncio
import contextvars
import functools
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from rocketlet.client.session.callbacks import CallbackRunner
from rocketlet.client.session.lifecycle import InFlightCount

WHO = contextvars.ContextVar("WHO", default="nobody")


@pytest.fixture
async def calls() -> AsyncGenerator[CallbackRunner]:
    """Yield calls with two threads, which are ended after the test."""
    made = CallbackRunner(2, "test-calls")
    yield made
    made.close()


async def on_the_loop(value: int) -> tuple[int, int]:
    """Return the value and the thread."""
    return value, threading.get_ident()


class AsyncObject:
    """An object that is called like an asynchronous function."""

    async def __call__(self, value: int) -> tuple[int, int]:
        """Return the value and the thread."""
        return await on_the_loop(value)


@pytest.mark.parametrize("function", [on_the_loop, AsyncObject(), functools.partial(on_the_loop)])
async def test_asynchronous_functions_run_on_the_loop(
    calls: CallbackRunner, function: Callable[[int], Awaitable[tuple[int, int]]]
) -> None:
    """So do objects and partial functions that are asynchronous."""
    assert await calls.call(function, 7) == (7, threading.get_ident())


async def test_plain_functions_run_in_threads(calls: CallbackRunner) -> None:
    """They may block: two that wait for each other both end."""
    both = threading.Barrier(2)

    def meet() -> int:
        both.wait()
        return threading.get_ident()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(calls.call(meet)) for _ in range(2)]
    threads = {task.result() for task in tasks}
    assert len(threads) == 2
    assert threading.get_ident() not in threads


async def test_what_a_thread_returns_is_awaited(calls: CallbackRunner) -> None:
    """A plain function may return something to await, which then runs on the loop."""
    assert await calls.call(lambda: on_the_loop(7)) == (7, threading.get_ident())


async def test_thread_sees_the_context_of_its_caller(calls: CallbackRunner) -> None:
    """What the caller has set in a context variable is there, as for spans of a tracer."""
    token = WHO.set("caller")
    try:
        assert await calls.call(WHO.get) == "caller"
    finally:
        WHO.reset(token)


async def test_errors_reach_the_caller(calls: CallbackRunner) -> None:
    """An error in a thread is raised where the call was awaited."""
    with pytest.raises(ZeroDivisionError):
        await calls.call(lambda: 1 // 0)


async def test_closing_does_not_wait_for_what_is_stuck() -> None:
    """A thread that blocks is let go and ends with its function."""
    calls, begun, going_on = CallbackRunner(1, "stuck-calls"), asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def block() -> bool:
        loop.call_soon_threadsafe(begun.set)
        return going_on.wait()

    async with asyncio.TaskGroup() as group:
        stuck = group.create_task(calls.call(block))
        await begun.wait()
        calls.close()
        going_on.set()
        assert await stuck


async def test_ongoing_is_idle_when_everything_has_ended() -> None:
    """Who waits is woken by the last end, and does not wait when nothing goes on."""
    ongoing = InFlightCount()
    await ongoing.wait_idle()
    async with asyncio.TaskGroup() as group:
        with ongoing:
            with ongoing:
                waiting = group.create_task(ongoing.wait_idle())
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not waiting.done()
    assert ongoing.count == 0
