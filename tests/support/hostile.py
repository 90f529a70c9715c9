"""Peers without manners, over bare sockets, and a look at what a server keeps for them."""

import asyncio
import contextlib
import pathlib
import socket
import struct
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import pytest
from raw_calls import TIMEOUT_MS, until
from served import observe

import rocketlet.broker.server as broker_module
import rocketlet.namesrv.server as nameserver_module
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.ids import format_address
from rocketlet.namesrv.config import NameServerConfig
from rocketlet.remoting.codec.command import ROCKETMQ, Command
from rocketlet.remoting.codec.frames import PREFIX, encode_command
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.limits import Limits
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing import ManualClock

SETTINGS = {
    "brokerName": "broker-a",
    "listenPort": "0",
    "mappedFileSizeCommitLog": "16777216",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}


class Ground(NamedTuple):
    """A running server, and its listening end."""

    address: str
    server: RemotingServer
    clock: ManualClock

    async def find(self, peer: socket.socket) -> Connection:
        """Return the server's end of a peer's connection, once it is there."""
        found = list[Connection]()

        def is_there() -> bool:
            found.extend(each for each in self.server.connections if each.remote_address == peer.getsockname())
            return bool(found)

        await until(is_there)
        return found[0]


@contextlib.asynccontextmanager
async def serving(handlers: RequestHandlers, limits: Limits | None = None) -> AsyncGenerator[Ground]:
    """Run a bare server."""
    clock = ManualClock()
    async with RemotingServer("127.0.0.1", 0, handlers, clock, limits) as server:
        yield Ground(f"127.0.0.1:{server.address[1]}", server, clock)


@contextlib.asynccontextmanager
async def serving_names(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Ground]:
    """Run a real name server."""
    clock = ManualClock()
    observed = observe(monkeypatch, nameserver_module)
    async with nameserver_module.NameServer(NameServerConfig(port=0), clock) as nameserver:
        yield Ground(nameserver.address, observed[0].server, clock)


@contextlib.asynccontextmanager
async def serving_broker(
    monkeypatch: pytest.MonkeyPatch, store: pathlib.Path, **settings: str
) -> AsyncGenerator[Ground]:
    """Run a real broker that knows no name server."""
    clock = ManualClock()
    observed = observe(monkeypatch, broker_module)
    config = BrokerConfig.from_java({**SETTINGS, "storePathRootDir": str(store), **settings})
    async with broker_module.Broker(config, clock) as broker:
        servers = {format_address(*one.server.address): one.server for one in observed}  # of a broker there are more
        yield Ground(broker.address, servers[broker.address], clock)


def frame(
    code: int, opaque: int = 0, header: msgspec.Struct | Mapping[str, str] | None = None, body: bytes = b""
) -> bytes:
    """Return a request as it travels."""
    command = Command.request(code, header, body)
    command.opaque = opaque
    return encode_command(command)


def numbered(request: bytes, count: int) -> Iterator[bytes]:
    """Return a request again and again, with the opaques 0, 1, 2, ..."""
    head, tail = request[8:].split(b'"opaque":0')
    for opaque in range(count):
        header = b'%b"opaque":%d%b' % (head, opaque, tail)
        yield PREFIX.pack(4 + len(header), len(header)) + header


async def send_while_taken(peer: socket.socket, data: bytes, is_over: Callable[[], bool]) -> int:
    """Send until nothing more goes through and ``is_over``; return how much went."""
    sent, view = 0, memoryview(data)
    while sent < len(data):
        try:
            sent += peer.send(view[sent:])
        except BlockingIOError:
            if is_over():
                break
        except ConnectionError:
            break
        await asyncio.sleep(0)
    return sent


async def is_ended(peer: socket.socket) -> bool:
    """Read to the end of a connection; it ends by a reset or in order."""
    async with LoopClock().timeout(TIMEOUT_MS):
        try:
            while await asyncio.get_running_loop().sock_recv(peer, 1 << 20):
                pass
        except ConnectionError:
            pass
    return True


def reset(peer: socket.socket) -> None:
    """Leave with a reset, as a process does that is killed with unread data."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def _with_header(header: bytes, kind: int = 0) -> bytes:
    return PREFIX.pack(4 + len(header), kind << 24 | len(header)) + header


BAD_FRAMES = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": bytes.fromhex("1603010004ffffffff"),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "zeros": bytes(64),
    "length only": b"\x7f\xff\xff\xff",
    "negative length": b"\xff\xff\xff\xff\0\0\0\0",
    "most negative length": b"\x80\0\0\0\0\0\0\0",
    "length below the header word": PREFIX.pack(3, 0),
    "oversize": PREFIX.pack(16_777_213, 0),
    "header beyond frame": PREFIX.pack(10, 100) + bytes(6),
    "negative header word": PREFIX.pack(10, -1) + bytes(6),
    "unknown type": _with_header(b"{}", 9),
    "no json": _with_header(b"not json"),
    "python": _with_header(b"{'code':11,'extFields':{'a':True}}"),
    "array": _with_header(b"[1]"),
    "code of words": _with_header(b'{"code":"pull"}'),
    "code too large": _with_header(b'{"code":99999999999}'),
    "deep": _with_header(b'{"a":' * 100_000),
    "long and sloppy": _with_header(b"{code:11,a:[" + b"[]," * 100_000 + b"]}"),
    "cut binary": _with_header(b"\0\x0b\0\1", ROCKETMQ),
    "binary length": _with_header(bytes(17) + b"\x7f\xff\xff\xff", ROCKETMQ),
}
"""What ends a connection, by what is wrong with it."""
