"""What others see of a broker during a flood of TLS handshakes (`python bench/handshakes.py`).

Claim: a handshake is begun in each turn of the loop, so who is connected waits for about one more of them, whatever
comes in; and those who stop half-way keep a new client from shaking hands for some tenths of a second.

    quiet        nobody else
    whole        handshakes of clients that go at once, as many as this machine makes beside the broker
    half         hellos of clients that then say nothing, on many connections

Measured are requests on a plain connection that is open, and new connections by TLS with a request on each. The flood
comes from a process of its own, and shares the cores with the broker and with who measures.
"""

import asyncio
import contextlib
import multiprocessing
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))

from interop.servers import RocketletServer

from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.offset import MaxOffsetHeader
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.event_loop import LoopClock, find_loop_factory

SECONDS: Final = 8.0
IN_FLIGHT: Final = 64
_LIMIT_MS: Final = 60_000
_HALF_OPEN: Final = 512
Address = tuple[str, int]


def any_server() -> ssl.SSLContext:
    """Return a client's side that takes any server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _run(work: Awaitable[None]) -> None:
    async def main() -> None:
        await work

    with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
        runner.run(main())


async def _shake_hands(address: Address) -> None:
    """Shake hands and go, again and again."""
    context = any_server()

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(*address, ssl=context)
                writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(again())


async def _stop_half_way(address: Address) -> None:
    """Say hello and wait until the broker hangs up, again and again."""
    outgoing = ssl.MemoryBIO()
    tls = any_server().wrap_bio(ssl.MemoryBIO(), outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()

    async def again() -> None:
        while True:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(hello)
                await reader.read()
                writer.transport.abort()

    async with asyncio.TaskGroup() as group:
        for _ in range(_HALF_OPEN):
            group.create_task(again())


def _flood_whole(address: Address) -> None:
    _run(_shake_hands(address))


def _flood_half(address: Address) -> None:
    _run(_stop_half_way(address))


@contextlib.contextmanager
def flooded(flood: Callable[[Address], None] | None, address: Address) -> Generator[None]:
    """Flood an address from another process."""
    if flood is None:
        yield
        return
    process = multiprocessing.get_context("spawn").Process(target=flood, args=(address,))
    process.start()
    time.sleep(2)  # noqa: TID251 # it has begun by then
    try:
        yield
    finally:
        process.kill()
        process.join()


def _request() -> Command:
    return Command.request(RequestCode.GET_MAX_OFFSET, MaxOffsetHeader(topic="SELF_TEST_TOPIC", queue_id=0))


async def _time(ask: Callable[[], Awaitable[object]]) -> list[float]:
    """Return how many milliseconds each of many calls took, one after the other."""
    taken: list[float] = []
    end = time.perf_counter() + SECONDS / 2
    while time.perf_counter() < end:
        begun = time.perf_counter()
        await ask()
        taken.append(1000 * (time.perf_counter() - begun))
        await asyncio.sleep(0.002)
    return taken


async def _measure(name: str, address: str) -> None:
    clock, context = LoopClock(), any_server()
    async with ConnectionPool(clock) as pool:
        await pool.request(address, _request(), _LIMIT_MS)
        plain = await _time(lambda: pool.request(address, _request(), _LIMIT_MS))

    async def connect() -> None:
        async with ConnectionPool(clock, tls=context) as own:
            await own.request(address, _request(), _LIMIT_MS)

    fresh = await _time(connect)
    print(f"{name:8}{_figures(plain)}{_figures(fresh)}")


def _figures(taken: list[float]) -> str:
    ordered = sorted(taken)
    return f"{statistics.median(ordered):11.2f}{ordered[int(0.99 * len(ordered))]:9.2f}{ordered[-1]:9.2f}"


def main() -> None:
    """Print what takes how long, in milliseconds."""
    with tempfile.TemporaryDirectory() as directory, RocketletServer(Path(directory) / "store", {}) as server:
        host, _, port = server.broker.rpartition(":")
        print(f"{'':8}{'request on a plain connection':>29}{'new connection by TLS, request':>31}")
        print(f"{'flood':8}" + 2 * f"{'p50 ms':>11}{'p99 ms':>9}{'max ms':>9}")
        for name, flood in (("quiet", None), ("whole", _flood_whole), ("half", _flood_half)):
            with flooded(flood, (host, int(port))):
                _run(_measure(name, server.broker))


if __name__ == "__main__":
    main()
