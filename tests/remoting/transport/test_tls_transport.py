"""TLS over a connection, without a socket: what a peer may do to it, and what who serves it hears of that."""

import asyncio
import contextlib
import pathlib
import ssl
import struct

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from memory_connection import MemoryTransport

from rocketlet.remoting.tls.certificates import Identity, make_certificate
from rocketlet.remoting.transport.tls_transport import TlsTransport

UNREAD_BYTES = 1_000
KEY_UPDATE_REQUESTED = b"\x18\x00\x00\x01\x01"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Return a server's side."""
    pair = make_certificate(Identity("server"))
    path = tmp_path_factory.mktemp("tls") / "pair.pem"
    path.write_bytes(pair.key_pem + pair.certificate_pem)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(path)
    return made


class Wire(MemoryTransport):
    """Keeps what is written until it is taken, and has its protocol pause when that is more than a little."""

    def __init__(self) -> None:
        super().__init__()
        self.tls: TlsTransport
        self._unread = b""
        self._is_full = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Keep the bytes."""
        self._unread += bytes(data)
        if len(self._unread) > UNREAD_BYTES and not self._is_full:
            self._is_full = True
            self.tls.pause_writing()

    def take(self) -> bytes:
        """Return what was written."""
        taken, self._unread = self._unread, b""
        if self._is_full:
            self._is_full = False
            self.tls.resume_writing()
        return taken

    def get_write_buffer_size(self) -> int:
        """Return how much was not taken."""
        return len(self._unread)

    def abort(self) -> None:
        """Take nothing more, and lose what there is."""
        self._unread = b""
        self.is_over = True


class Served(asyncio.Protocol):
    """Keeps what it is told; who does not read is not read from."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.received = b""
        self.told: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take note of the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """Keep the bytes."""
        self.received += data

    def pause_writing(self) -> None:
        """Read nothing."""
        self.told.append("pause")
        assert self.transport is not None
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """Read on."""
        self.told.append("resume")
        assert self.transport is not None
        self.transport.resume_reading()

    def eof_received(self) -> None:
        """Answer once more."""
        self.told.append("end")
        assert self.transport is not None
        self.transport.write(b"the last answer")

    def connection_lost(self, exc: Exception | None) -> None:
        """Take note of the end."""
        self.told.append("lost" if exc is None else f"lost: {type(exc).__name__}")


class Peer:
    """A client by hand, and the server's side that it talks to; ``settled`` is what was told of the handshake."""

    def __init__(self, context: ssl.SSLContext, client: ssl.SSLContext | None = None) -> None:
        client = client or any_server()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = client.wrap_bio(self._incoming, self._outgoing)
        self._context = context
        self.wire, self.served = Wire(), Served()
        self.settled: list[str | None] = []
        self.server = TlsTransport(self.wire, lambda: self.served, lambda _tls, failure: self.settled.append(failure))
        self.wire.tls = self.server

    def step(self) -> bytes:
        """Go on with the handshake by what the server has said; return what the client says then."""
        if said := self.wire.take():
            self._incoming.write(said)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self._outgoing.read()

    def connect(self) -> None:
        """Shake hands."""
        self.server.begin(self._context, self.step())
        self.server.data_received(self.step())
        assert self.settled == [None]

    def encrypt(self, data: bytes) -> bytes:
        """Return the records of some bytes."""
        self.tls.write(data)
        return self._outgoing.read()

    def farewell(self) -> bytes:
        """Return what says that nothing more comes."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.unwrap()
        return self._outgoing.read()

    def hear(self) -> bytes:
        """Return what the server has said, up to its farewell if there is one."""
        heard = b""
        self._incoming.write(self.wire.take())
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            while piece := self.tls.read(1 << 16):
                heard += piece
        return heard


def any_server() -> ssl.SSLContext:
    """Return a client's side that takes any server."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    return client


def test_long_hello_byte_by_byte(context: ssl.SSLContext) -> None:
    """Ten thousand bytes, each alone, are as good as all at once; nothing is answered before the last of them."""
    client = any_server()
    client.set_alpn_protocols([f"{number:05}" + "x" * 240 for number in range(40)])
    peer = Peer(context, client)
    hello = peer.step()
    assert len(hello) > 9_800
    peer.server.begin(context, hello[:1])
    for at in range(1, len(hello) - 1):
        peer.server.data_received(hello[at : at + 1])
    assert peer.wire.get_write_buffer_size() == 0
    assert peer.settled == []
    peer.server.data_received(hello[-1:])
    finished = peer.step() + peer.encrypt(b"a request")
    for at in range(len(finished)):
        peer.server.data_received(finished[at : at + 1])
    assert (peer.settled, peer.served.received) == ([None], b"a request")


def test_farewell_of_the_peer(context: ssl.SSLContext) -> None:
    """It ends the connection in both directions, behind what was answered; what comes behind it is not heard."""
    peer = Peer(context)
    peer.connect()
    behind = peer.encrypt(b"request") + peer.farewell()
    peer.server.data_received(behind + b"\x17\x03\x03\x00\x05plain")
    assert (peer.served.received, peer.served.told) == (b"request", ["end"])
    assert peer.hear() == b"the last answer"
    assert peer.wire.is_over
    peer.server.data_received(behind)
    peer.server.write(b"too late")
    assert (peer.served.received, peer.wire.take()) == (b"request", b"")
    peer.server.connection_lost(None)
    assert peer.served.told[-1] == "lost"


def test_connection_that_ends_without_a_farewell(context: ssl.SSLContext) -> None:
    """Nothing of a record that was cut off is handed on."""
    peer = Peer(context)
    peer.connect()
    records = peer.encrypt(b"whole") + peer.encrypt(b"cut off")
    peer.server.data_received(records[:-1])
    assert peer.served.received == b"whole"
    assert not peer.server.eof_received()  # the transport below closes then
    peer.server.connection_lost(None)
    assert (peer.served.received, peer.served.told) == (b"whole", ["lost"])


@pytest.mark.parametrize("damage", ["a changed bit", "plain text", "a hello"])
def test_what_is_no_record_of_the_peer(context: ssl.SSLContext, damage: str) -> None:
    """Whoever puts something in between ends the connection, and is not heard; so does a second handshake."""
    peer = Peer(context)
    peer.connect()
    record = peer.encrypt(b"request")
    spoilt = {
        "a changed bit": record[:-1] + bytes([record[-1] ^ 1]),
        "plain text": b"\0\0\0\4\0\0\0\0",
        "a hello": Peer(context).step(),
    }[damage]
    peer.server.data_received(spoilt)
    assert peer.wire.is_over
    peer.server.data_received(record)
    peer.server.connection_lost(None)
    assert (peer.served.received, peer.served.told) == (b"", ["lost: SSLError"])


def test_long_answers_in_pieces(context: ssl.SSLContext) -> None:
    """They arrive whole and in order, whatever the pieces; who serves hears that the peer takes its time."""
    peer = Peer(context)
    peer.connect()
    pieces = [bytes([number]) * size for number, size in enumerate((1, 70_000, 0, 5, 16_384, 65_536, 3 << 20, 7))]
    peer.server.writelines(pieces)
    peer.server.write(memoryview(b"the end"))
    assert peer.served.told == ["pause"]
    assert not peer.wire.is_read
    assert peer.server.get_write_buffer_size() > 3 << 20
    assert peer.hear() == b"".join(pieces) + b"the end"
    assert peer.served.told == ["pause", "resume"]
    assert peer.wire.is_read


def _derive(secret: bytes, label: bytes, length: int) -> bytes:
    name = b"tls13 " + label
    return HKDFExpand(SHA384(), length, struct.pack(">HB", length, len(name)) + name + b"\0").derive(secret)


def test_peer_that_wants_new_keys_all_the_time(context: ssl.SSLContext, tmp_path: pathlib.Path) -> None:
    """Each wish is answered, and counts as what the peer does not read: it is not read from then, and costs no more."""
    client = any_server()
    client.minimum_version = ssl.TLSVersion.TLSv1_3
    client.keylog_filename = str(tmp_path / "keys")
    peer = Peer(context, client)
    peer.connect()
    assert peer.tls.cipher() == ("TLS_AES_256_GCM_SHA384", "TLSv1.3", 256)
    peer.hear()  # tickets
    [line] = [line for line in (tmp_path / "keys").read_text().splitlines() if line.startswith("CLIENT_TRAFFIC_SECRET")]
    secret = bytes.fromhex(line.split()[2])
    wishes = 0
    while peer.wire.is_read:
        wishes += 1
        assert wishes < 1_000
        head = b"\x17\x03\x03" + struct.pack(">H", len(KEY_UPDATE_REQUESTED) + 1 + 16)
        cipher, nonce = AESGCM(_derive(secret, b"key", 32)), _derive(secret, b"iv", 12)  # the first record of its keys
        peer.server.data_received(head + cipher.encrypt(nonce, KEY_UPDATE_REQUESTED + b"\x16", head))
        secret = _derive(secret, b"traffic upd", 48)
    assert UNREAD_BYTES < peer.wire.get_write_buffer_size() < 2 * UNREAD_BYTES
    assert peer.served.told == ["pause"]
    peer.server.write(b"still there")
    assert peer.hear() == b"still there"
