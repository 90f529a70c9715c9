"""TLS at the gRPC port: its modes, its own certificate, certificates of clients, and new files."""

import asyncio
import contextlib
import pathlib
import shutil
import ssl

import grpc
import grpc.aio
import pytest
from grpc_ground import GrpcGround, ask, serving_grpc

from rocketlet.broker.ports import admit_grpc
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.errors import ConfigError
from rocketlet.remoting.tls.certificates import (
    CA_FILE,
    CLIENT_FILE,
    CLIENT_KEY_FILE,
    SERVER_FILE,
    SERVER_KEY_FILE,
    make_test_authority,
)
from rocketlet.remoting.tls.server_tls import LOOK_MS
from rocketlet.testing.manual_clock import ManualClock

pytestmark = pytest.mark.usefixtures("no_channels_left")
HELLO = b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00"
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def authority(tmp_path: pathlib.Path) -> pathlib.Path:
    """Return a directory with an authority, and with certificates that it has signed."""
    return make_authority(tmp_path / "authority")


def make_authority(directory: pathlib.Path) -> pathlib.Path:
    """Return such a directory."""
    directory.mkdir()
    for name, content in make_test_authority(["localhost"], 1).items():
        (directory / name).write_bytes(content)
    return directory


def server_pair(directory: pathlib.Path) -> dict[str, str]:
    """Return settings by which every port shows a certificate."""
    return {
        "tls.server.certPath": str(directory / SERVER_FILE),
        "tls.server.keyPath": str(directory / SERVER_KEY_FILE),
    }


def own_pair(directory: pathlib.Path) -> dict[str, str]:
    """Return settings by which the gRPC port shows a certificate."""
    return {"tlsCertPath": str(directory / SERVER_FILE), "tlsKeyPath": str(directory / SERVER_KEY_FILE)}


def der(directory: pathlib.Path) -> bytes:
    """Return the server's certificate of a directory."""
    return ssl.PEM_cert_to_DER_cert((directory / SERVER_FILE).read_text())


async def say(ground: GrpcGround, first: bytes) -> bytes:
    """Return all that the port answers to these first words; nothing also where it hangs up rudely."""
    reader, writer = await asyncio.open_connection("127.0.0.1", ground.port)
    try:
        writer.write(first)
        with contextlib.suppress(ConnectionResetError):
            return await reader.read()
        return b""
    finally:
        writer.close()


async def call(ground: GrpcGround, trusted: pathlib.Path, shown: pathlib.Path | None = None) -> bytes:
    """Return what a call over TLS gets, of a client which trusts an authority and shows the certificate of one."""
    key = (shown / CLIENT_KEY_FILE).read_bytes() if shown is not None else None
    chain = (shown / CLIENT_FILE).read_bytes() if shown is not None else None
    credentials = grpc.ssl_channel_credentials((trusted / CA_FILE).read_bytes(), key, chain)
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.secure_channel(f"localhost:{ground.port}", credentials, options) as channel:
        return await ask(channel, "Say", b"hello", timeout=30)


async def certificate_at(port: int) -> bytes:
    """Return the certificate that a port shows, which speaks HTTP/2 under TLS, says so, and greets."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        tls = writer.get_extra_info("ssl_object")
        assert tls.selected_alpn_protocol() == "h2"
        writer.write(HTTP2)
        assert (await reader.readexactly(9))[3] == 4  # SETTINGS
        return tls.getpeercert(binary_form=True)
    finally:
        writer.transport.abort()


@pytest.mark.feature("A2", "G1")
async def test_enforcing(tmp_path: pathlib.Path, authority: pathlib.Path) -> None:
    """Plain HTTP/2 is closed without an answer, and a call in plain text fails; under TLS it is served."""
    enforcing = {"tls.server.mode": "enforcing", **server_pair(authority)}
    async with serving_grpc(tmp_path / "store", None, **enforcing) as ground:
        assert await say(ground, HTTP2) == b""
        async with ground.open() as plain:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask(plain, "Say", b"in plain text", timeout=30)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert ground.echo.metadata == []
        assert await call(ground, authority) == b"hello"


@pytest.mark.feature("A2", "G1")
async def test_disabled(tmp_path: pathlib.Path) -> None:
    """A TLS record is closed without an alert, a call in plain text is served, and no certificate is made."""
    async with serving_grpc(tmp_path / "store", None, **{"tls.server.mode": "disabled"}) as ground:
        assert await say(ground, HELLO) == b""
        async with ground.open() as plain:
            assert await ask(plain, "Say", b"in plain text", timeout=30) == b"in plain text"
        assert not (ground.store / "config" / "self-signed.pem").exists()


@pytest.mark.feature("A3", "G1")
async def test_certificate_of_its_own(tmp_path: pathlib.Path, authority: pathlib.Path) -> None:
    """``tlsCertPath`` is shown at the gRPC port alone; without it, what the broker shows."""
    other = make_authority(tmp_path / "other")
    async with serving_grpc(tmp_path / "store", None, **server_pair(authority), **own_pair(other)) as ground:
        assert await call(ground, other) == b"hello"
        assert await certificate_at(ground.port) == der(other)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(ground, authority)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    async with serving_grpc(tmp_path / "store", None, **server_pair(authority)) as ground:
        assert await certificate_at(ground.port) == der(authority)
    async with serving_grpc(tmp_path / "alone", None, **own_pair(other)) as ground:
        assert await certificate_at(ground.port) == der(other)
        assert not (ground.store / "config" / "self-signed.pem").exists()


@pytest.mark.feature("A4", "G1")
async def test_clients_show_certificates(tmp_path: pathlib.Path, authority: pathlib.Path) -> None:
    """Without one, or with one of somebody else's authority, no call is served; with a good one it is."""
    other = make_authority(tmp_path / "other")
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.trustCertPath": str(authority / CA_FILE),
        **server_pair(authority),
    }
    async with serving_grpc(tmp_path / "store", None, **settings) as ground:
        assert await call(ground, authority, shown=authority) == b"hello"
        for shown in (None, other):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(ground, authority, shown=shown)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert len(ground.echo.metadata) == 1


@pytest.mark.feature("A3", "G1")
async def test_new_files_count_without_a_restart(tmp_path: pathlib.Path, authority: pathlib.Path) -> None:
    """Half a second after both have changed the new certificate is shown; with half of them the old one stays."""
    used, other = tmp_path / "used", make_authority(tmp_path / "other")
    shutil.copytree(authority, used)
    clock = ManualClock()
    async with serving_grpc(tmp_path / "store", clock, **own_pair(used)) as ground:
        assert await certificate_at(ground.port) == der(authority)
        shutil.copy(other / SERVER_FILE, used)
        clock.advance(LOOK_MS)
        assert await certificate_at(ground.port) == der(authority)
        shutil.copy(other / SERVER_KEY_FILE, used)
        clock.advance(LOOK_MS)
        assert await certificate_at(ground.port) == der(other)
        assert await call(ground, other) == b"hello"


async def test_files_that_cannot_be_used(tmp_path: pathlib.Path, authority: pathlib.Path) -> None:
    """They are told of before anybody knocks, by the key that names them."""
    for given, key in (
        ({"tlsCertPath": str(tmp_path / "none.pem")}, "tlsCertPath"),
        ({**own_pair(authority), "tlsKeyPath": str(authority / CLIENT_KEY_FILE)}, "tlsKeyPath"),
    ):
        config = BrokerConfig.from_java({"storePathRootDir": str(tmp_path / "store"), **given})
        with pytest.raises(ConfigError) as refused:
            await admit_grpc(config, ManualClock())
        assert refused.value.key == key
