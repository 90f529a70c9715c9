"""Measure what a gRPC call costs our port, beside grpc.aio (`python bench/grpc_calls.py`).

Both answer a message of 128 bytes with itself, each in a process of its own on the same event loop; the same client
calls now this one, now that one, with one call in flight and with 64. Printed is the processor time of the server for a
call, the least of several bursts, and the ratio. Claim: a call takes half the time of grpc.aio's at most, with one in
flight and with 64 (docs/decisions/grpc.md).
"""

import asyncio
import contextlib
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, cast

import click
import grpc
import grpc.aio
from rounds import take_turns

from rocketlet.proxy.http2.limits import Http2Limits
from rocketlet.proxy.http2.links import Http2Links
from rocketlet.proxy.http2.protocol import Http2Link, Http2Service
from rocketlet.proxy.rpc.call import Call, UnaryMethod
from rocketlet.proxy.rpc.service import GrpcService
from rocketlet.remoting.tls.server_tls import EndpointTls, admit
from rocketlet.remoting.tls.tls_settings import TlsConfig
from rocketlet.remoting.transport.acceptor import PortAcceptor
from rocketlet.remoting.transport.event_loop import LoopClock, find_loop_factory
from rocketlet.remoting.transport.server import open_listener

METHOD: Final = "/bench.Echo/Say"
SIDES: Final = {"grpc.aio": "aio", "own port": "own"}
IN_FLIGHT: Final = (1, 64)
_HEADERS: Final = (
    ("x-mq-client-id", "host@4711@0@abcdef"),
    ("x-mq-language", "JAVA"),
    ("x-mq-client-version", "5.2.0"),
    ("x-mq-protocol", "v2"),
    ("x-mq-date-time", "20261127T101112Z"),
    ("x-mq-namespace", ""),
)


@click.command()
@click.option("--calls", default=3_200, show_default=True, help="Calls of a burst.")
@click.option("--rounds", default=7, show_default=True, help="Bursts; the one that took least is printed.")
@click.option("--serve", type=click.Choice([*SIDES.values()]), hidden=True)
def main(calls: int, rounds: int, serve: str | None) -> None:
    """Print what a call costs the server."""
    if serve is not None:
        with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
            runner.run(serve_own() if serve == "own" else serve_aio())
        return
    print("| in flight | grpc.aio | own port | ratio |\n|---|---|---|---|")
    with contextlib.ExitStack() as stack:
        sides = [stack.enter_context(running(side)) for side in SIDES.values()]
        for in_flight in IN_FLIGHT:
            bursts = [side.bursts(calls, in_flight) for side in sides]
            other_us, own_us = map(min, take_turns(rounds, bursts))
            print(f"| {in_flight} | {other_us:.0f} us | {own_us:.0f} us | {other_us / own_us:.1f} |", flush=True)


class Side:
    """A server in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._address = f"127.0.0.1:{self._ask().split()[1]}"

    def bursts(self, calls: int, in_flight: int) -> Callable[[int], float]:
        """Return what measures the microseconds of processor time that a call of a burst costs the server."""

        def burst(_round: int) -> float:
            before = int(self._ask("time"))
            asyncio.run(call_often(self._address, calls, in_flight))
            return (int(self._ask("time")) - before) / calls / 1_000

        return burst

    def _ask(self, question: str | None = None) -> str:
        assert self._process.stdin is not None, "asked for a pipe"
        assert self._process.stdout is not None, "asked for a pipe"
        if question is not None:
            print(question, file=self._process.stdin, flush=True)
        return self._process.stdout.readline()

    def end(self) -> None:
        """Let the process end."""
        assert self._process.stdin is not None, "asked for a pipe"
        self._process.stdin.close()


@contextmanager
def running(side: str) -> Generator[Side]:
    """Run a server."""
    command = [sys.executable, __file__, "--serve", side]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        server = Side(process)
        try:
            yield server
        finally:
            server.end()


async def call_often(address: str, calls: int, in_flight: int) -> None:
    """Call a server so often, with so many calls at a time."""
    message = bytes(128)
    async with grpc.aio.insecure_channel(address) as opened:
        call = cast("Any", opened).unary_unary(METHOD)

        async def work() -> None:
            for _ in range(calls // in_flight):
                assert await call(message, metadata=_HEADERS, timeout=30) == message

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(work())


async def serve_own() -> None:
    """Serve by our port."""
    clock, limits = LoopClock(), Http2Limits()
    service = GrpcService({METHOD: UnaryMethod(_say)}, clock)
    http2, links = Http2Service(service.serve, service.after_batch), Http2Links(clock)
    with tempfile.TemporaryDirectory() as directory, open_listener("127.0.0.1", 0, key="port") as listener:
        own = EndpointTls(None, str(pathlib.Path(directory) / "pair.pem"), ["h2"])
        admission = await admit(TlsConfig(), own, clock)
        acceptor = PortAcceptor(
            listener, lambda: Http2Link(http2, clock, limits, links), admission, clock, lambda: None
        )
        async with acceptor:
            await answer_times(listener.getsockname()[1])
        await links.close_all()


def _say(message: bytes, call: Call) -> None:
    call.send(message)
    call.finish()


class _Handler(grpc.GenericRpcHandler):
    def __init__(self) -> None:
        self._method: Any = cast("Any", grpc).unary_unary_rpc_method_handler(self.say)

    async def say(self, message: bytes, _context: object) -> bytes:
        """Return what was said."""
        return message

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Return the method."""
        return self._method


async def serve_aio() -> None:
    """Serve by grpc.aio."""
    server = cast("Any", grpc.aio.server())
    server.add_generic_rpc_handlers((_Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    await answer_times(port)
    await server.stop(None)


async def answer_times(port: int) -> None:
    """Say where, and for each line of the standard input the processor time so far, until it ends."""
    print(f"ready {port}", flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(time.process_time_ns(), flush=True)


if __name__ == "__main__":
    main()
