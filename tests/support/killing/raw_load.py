"""Raw requests to a broker that is killed while they are under way, and what it delivers when all that is over.

Each worker has a connection of its own and takes one step after the other until its connection ends with the broker.
"""

import asyncio
import pathlib
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from interop.servers import RocketletServer
from raw_calls import Caller, open_caller

from rocketlet.common.errors import RemotingError

Step = Callable[[Caller], Awaitable[None]]


def deliveries_after_kills(
    store: pathlib.Path,
    settings: Mapping[str, str],
    kills: int,
    load: Callable[[RocketletServer], Coroutine[Any, Any, None]],
    wait_for_the_rest: Callable[[str], Coroutine[Any, Any, Counter[bytes]]],
) -> Counter[bytes]:
    """Return what a broker delivers in the end, which is started so often for a load that kills it."""
    server: RocketletServer | None = None
    for _ in range(kills):
        server = RocketletServer(store, settings, server)
        asyncio.run(load(server))
    with RocketletServer(store, settings, server) as server:
        return asyncio.run(wait_for_the_rest(server.broker))


async def send_until_killed(server: RocketletServer, step: Step, workers: int, answers: int) -> None:
    """Let workers take steps, and kill the broker once so many were answered."""
    left = answers

    async def send() -> None:
        nonlocal left
        async with open_caller(server.broker) as caller:
            while True:
                await step(caller)
                left -= 1
                if left == 0:
                    server.kill()

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(until_gone(send()))


async def until_gone(work: Coroutine[Any, Any, None]) -> None:
    """Work until the broker is gone."""
    with suppress(RemotingError):
        await work
