"""What an application does when queues come and go.

    revoked    before queues are given up: they are still owned, so positions can be read and offsets committed
    assigned   after queues were taken, before they are pulled: the place to seek

A rebalance waits for the callbacks, so they should be short. What one raises is logged; the queues change all the same.
"""

import inspect
from collections.abc import Awaitable, Callable

from ...common.message import MessageQueue

HandoverCallback = Callable[[tuple[MessageQueue, ...]], Awaitable[object] | object]
Handover = Callable[[tuple[MessageQueue, ...]], Awaitable[None]]


def handover(callback: HandoverCallback) -> Handover:
    """Return a callback that is waited for, whether it is a coroutine function or not.

    Raises:
        TypeError: it cannot be called.
    """
    if not callable(callback):
        raise TypeError(f"the callback is {type(callback).__name__}, it must be a function of the queues")

    async def call(queues: tuple[MessageQueue, ...]) -> None:
        outcome = callback(queues)
        if inspect.isawaitable(outcome):
            await outcome

    return call
