"""What a load balancer says of the connections that it passes on, and who is believed."""

import asyncio
import contextlib
import ipaddress
import pathlib
import ssl
import struct

import pytest
from raw_calls import until

from rocketlet.common.errors import FrameError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.tls.server_tls import EndpointTls, admit
from rocketlet.remoting.tls.tls_settings import TlsConfig
from rocketlet.remoting.transport.connection import Connection, Reply, RequestHandlers
from rocketlet.remoting.transport.proxy_preamble import Preamble, parse_preamble
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing.manual_clock import ManualClock

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
LINE = b"PROXY TCP4 192.0.2.1 198.51.100.7 51234 10911\r\n"


def binary(command: int, family: int, body: bytes) -> bytes:
    """Return a preamble of version 2."""
    return struct.pack(">12sBBH", SIGNATURE, command, family, len(body)) + body


def addresses(source: str, port: int, more: bytes = b"") -> bytes:
    """Return the addresses of a preamble of version 2."""
    packed = ipaddress.ip_address(source).packed
    return packed + bytes(len(packed)) + struct.pack(">HH", port, 10911) + more


PREAMBLES = [
    (LINE, ("192.0.2.1", 51234)),
    (b"PROXY TCP6 2001:db8::1 2001:db8::2 1 2\r\n", ("2001:db8::1", 1)),
    (b"PROXY UNKNOWN\r\n", None),
    (binary(0x21, 0x11, addresses("192.0.2.1", 51234)), ("192.0.2.1", 51234)),
    (binary(0x21, 0x21, addresses("2001:db8::1", 7, b"more")), ("2001:db8::1", 7)),
    (binary(0x20, 0, b""), None),
    (binary(0x21, 0x31, bytes(216)), None),
]


@pytest.mark.parametrize(("data", "source"), PREAMBLES)
def test_preambles(data: bytes, source: tuple[str, int] | None) -> None:
    """Both versions tell who it is; cut anywhere they want more, and what follows is left alone."""
    assert parse_preamble(data) == Preamble(source, len(data))
    assert parse_preamble(data + b"\0\0\0\1") == Preamble(source, len(data))
    assert [parse_preamble(data[:size]) for size in range(1, len(data))] == [None] * (len(data) - 1)


@pytest.mark.parametrize("data", [b"\0\0\1\0", b"\x16\x03\x01", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n\r\nGET"])
def test_first_bytes_of_others(data: bytes) -> None:
    """They are no preamble."""
    assert parse_preamble(data) == Preamble(None, 0)


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY " + b"x" * 200,
        b"PROXY TCP4 nobody 198.51.100.7 1 2\r\n",
        b"PROXY TCP4 192.0.2.1\r\n",
        b"PROXY TCP6 192.0.2.1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 198.51.100.7 99999 2\r\n",
        binary(0x31, 0x11, addresses("192.0.2.1", 1)),
        binary(0x21, 0x11, b"short"),
        struct.pack(">12sBBH", SIGNATURE, 0x21, 0x11, 60_000),
    ],
)
def test_broken_preambles(data: bytes) -> None:
    """They are refused, and not waited for."""
    with pytest.raises(FrameError, match="PROXY preamble"):
        parse_preamble(data)


def _tell_peer(_command: Command, connection: Connection) -> Reply:
    return Command.response(0, connection.peer)


async def ask(address: tuple[str, int], preamble: bytes, *, uses_tls: bool = False) -> bytes:
    """Return what a server answers to a request behind a preamble that comes in two parts."""
    reader, writer = await asyncio.open_connection(*address)
    for part in (preamble[:3], preamble[3:]):
        writer.write(part)
        await asyncio.sleep(0)
    if uses_tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        await writer.start_tls(context)
    writer.write(bytes(encode_command(Command.request(7))))
    try:
        return await reader.read(1 << 12)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@pytest.mark.feature("A24")
@pytest.mark.parametrize(("proxies", "is_believed"), [("127.0.0.0/8", True), ("", False), ("192.0.2.9", False)])
async def test_who_is_believed(tmp_path: pathlib.Path, proxies: str, is_believed: bool) -> None:
    """A named balancer is, in plain text and before TLS; anybody else is closed, and so by default is everybody."""
    clock = ManualClock()
    admission = await admit(TlsConfig(), EndpointTls(None, str(tmp_path / "pair.pem")), clock, proxies)
    handlers = RequestHandlers({7: _tell_peer})
    async with RemotingServer("127.0.0.1", 0, handlers, clock, admission=admission) as server:
        for data, source in PREAMBLES[:5]:
            answer = await ask(server.address, data)
            told = f"{source[0]}:{source[1]}" if source else "127.0.0.1:"
            assert (told.encode() in answer) == is_believed
        if is_believed:
            assert b"192.0.2.1:51234" in await ask(server.address, LINE, uses_tls=True)
        assert b"127.0.0.1:" in await ask(server.address, b"")
        await until(lambda: len(server.connections) == 0)
