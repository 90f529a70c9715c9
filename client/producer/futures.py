"""What a task returns or raises, put into a future that its caller may await or drop.

The fault boundary of one send: whatever it raises is for its caller.
"""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def settle(outcome: asyncio.Future[T], work: Coroutine[object, object, T]) -> None:
    """Wait for a piece of work and put what comes of it into a future, unless its caller has cancelled that."""
    try:
        result = await work
    except asyncio.CancelledError:
        outcome.cancel()
        raise
    except Exception as error:  # the fault boundary of one send: whatever it raises is for its caller
        if not outcome.done():
            outcome.set_exception(error)
    else:
        if not outcome.done():
            outcome.set_result(result)
