"""Asking processes that do not tell by themselves, until something is so.

Between two questions the machine is left to those that work on it. What never becomes so ends by the time limit of
tests.
"""

import asyncio
import select
from collections.abc import Awaitable, Callable
from typing import TypeVar

PAUSE_S = 0.05
T = TypeVar("T")


def ask_until(ask: Callable[[], T], is_so: Callable[[T], object] = bool) -> T:
    """Return the first answer that is so."""
    while not is_so(answer := ask()):
        select.select((), (), (), PAUSE_S)
    return answer


async def ask_until_async(ask: Callable[[], Awaitable[T]], is_so: Callable[[T], object] = bool) -> T:
    """Return the first answer that is so."""
    while not is_so(answer := await ask()):  # noqa: ASYNC110 # what is asked is another process
        await asyncio.sleep(PAUSE_S)
    return answer
