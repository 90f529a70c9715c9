"""The server's certificate: which is shown, when another counts, and who must show one to it."""

import asyncio
import contextlib
import pathlib
import shutil
import ssl
from collections.abc import AsyncGenerator

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.remoting.tls.certificates import (
    CA_FILE,
    CLIENT_FILE,
    CLIENT_KEY_FILE,
    SERVER_FILE,
    SERVER_KEY_FILE,
    make_test_authority,
)
from rocketlet.remoting.tls.server_tls import LOOK_MS, EndpointTls, admit
from rocketlet.remoting.tls.tls_settings import TlsConfig
from rocketlet.remoting.transport.connection import RequestHandlers
from rocketlet.remoting.transport.server import RemotingServer
from rocketlet.testing.manual_clock import ManualClock


class TlsServer:
    """A server with the files of a directory, which a test may replace."""

    def __init__(self, directory: pathlib.Path, server: RemotingServer, clock: ManualClock) -> None:
        self.directory = directory
        self.server = server
        self.clock = clock

    async def shake_hands(self, trusted: pathlib.Path, shown: pathlib.Path | None = None) -> bytes:
        """Return the certificate that the server shows to a client which trusts an authority."""
        context = ssl.create_default_context(cafile=trusted / CA_FILE)
        if shown is not None:
            context.load_cert_chain(shown / CLIENT_FILE, shown / CLIENT_KEY_FILE)
        reader, writer = await asyncio.open_connection(
            *self.server.address, ssl=context, server_hostname="localhost", ssl_handshake_timeout=10
        )
        try:
            writer.write(b"\0\0\0\0")  # no frame, which the server closes: after it has taken the certificate
            assert await reader.read() == b""
            tls = writer.get_extra_info("ssl_object")
            certificate = tls.getpeercert(binary_form=True)
            assert certificate is not None
            return certificate
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def make_authority(directory: pathlib.Path) -> pathlib.Path:
    """Return a directory with another authority."""
    directory.mkdir()
    for name, content in make_test_authority(["localhost"], 1).items():
        (directory / name).write_bytes(content)
    return directory


@contextlib.asynccontextmanager
async def serving(directory: pathlib.Path, *, asks_clients: bool = False) -> AsyncGenerator[TlsServer]:
    """Serve by the files of a directory."""
    settings = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": str(directory / SERVER_FILE),
        "tls.server.keyPath": str(directory / SERVER_KEY_FILE),
    }
    if asks_clients:
        settings |= {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(directory / CA_FILE)}
    clock, config = ManualClock(), TlsConfig.from_java(settings)
    admission = await admit(config, EndpointTls(config.pair, ""), clock)
    async with RemotingServer("127.0.0.1", 0, RequestHandlers(), clock, admission=admission) as server:
        yield TlsServer(directory, server, clock)


def der(path: pathlib.Path) -> bytes:
    """Return the certificate of a file."""
    return ssl.PEM_cert_to_DER_cert(path.read_text())


@pytest.mark.feature("A3")
async def test_new_files_count_without_a_restart(authority: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The certificate of the file is shown; half a second after both files changed, the new one is."""
    used, other = tmp_path / "used", make_authority(tmp_path / "other")
    shutil.copytree(authority, used)
    async with serving(used) as server:
        assert await server.shake_hands(authority) == der(authority / SERVER_FILE)
        shutil.copy(other / SERVER_FILE, used)
        shutil.copy(other / SERVER_KEY_FILE, used)
        assert await server.shake_hands(authority) == der(authority / SERVER_FILE)
        server.clock.advance(LOOK_MS)
        assert await server.shake_hands(other) == der(other / SERVER_FILE)


@pytest.mark.feature("A3")
async def test_files_that_do_not_belong_together(
    authority: pathlib.Path, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """While one of the two is replaced, or with a broken one, the pair in use stays, and the log says so once."""
    used, other = tmp_path / "used", make_authority(tmp_path / "other")
    shutil.copytree(authority, used)
    async with serving(used) as server:
        shutil.copy(other / SERVER_FILE, used)
        for _ in range(3):
            server.clock.advance(LOOK_MS)
            assert await server.shake_hands(authority) == der(authority / SERVER_FILE)
        (used / SERVER_KEY_FILE).write_bytes(b"no key")
        for _ in range(3):
            server.clock.advance(LOOK_MS)
            assert await server.shake_hands(authority) == der(authority / SERVER_FILE)
        assert caplog.text.count("keeping the certificate in use") == 1
        (used / SERVER_KEY_FILE).unlink()
        server.clock.advance(LOOK_MS)
        assert await server.shake_hands(authority) == der(authority / SERVER_FILE)
        shutil.copy(other / SERVER_KEY_FILE, used)
        server.clock.advance(LOOK_MS)
        assert await server.shake_hands(other) == der(other / SERVER_FILE)


@pytest.mark.feature("A4")
async def test_clients_show_certificates(authority: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Without one, or with one of somebody else's authority, the handshake fails; a good one is served."""
    other = make_authority(tmp_path / "other")
    async with serving(authority, asks_clients=True) as server:
        assert await server.shake_hands(authority, shown=authority) == der(authority / SERVER_FILE)
        for shown in (None, other):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                await server.shake_hands(authority, shown=shown)


@pytest.mark.feature("A4")
async def test_new_authority_counts_at_once(authority: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Whom the server trusts changes with that file alone."""
    used, other = tmp_path / "used", make_authority(tmp_path / "other")
    shutil.copytree(authority, used)
    async with serving(used, asks_clients=True) as server:
        assert await server.shake_hands(authority, shown=authority)
        shutil.copy(other / CA_FILE, used)
        server.clock.advance(LOOK_MS)
        assert await server.shake_hands(authority, shown=other)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await server.shake_hands(authority, shown=authority)


async def test_files_that_cannot_be_used_stop_the_start(tmp_path: pathlib.Path) -> None:
    """They do so before the port is bound, and the setting is named."""
    for settings, key in (
        ({"tls.server.certPath": str(tmp_path / "none.pem")}, "tls.server.certPath"),
        ({"tls.protocols": "TLSv1"}, "tls.protocols"),
    ):
        config = TlsConfig.from_java(settings)
        with pytest.raises(ConfigError) as refused:
            await admit(config, EndpointTls(config.pair, str(tmp_path / "own.pem")), ManualClock())
        assert refused.value.key == key
