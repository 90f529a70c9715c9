"""Settings and names that are checked before anything starts."""

import asyncio
import pathlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
from scripted_cluster import ScriptedCluster

from rocketlet.client import FlowLimits, Producer, ProducerSettings, PullConsumerSettings, PushConsumerSettings, Tls
from rocketlet.client.session.settings import check_group, choose_nameserver, ssl_context_of
from rocketlet.common.errors import ConfigError, ConnectFailedError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.connections import Connections
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.limits import Limits


@pytest.mark.parametrize(
    ("kind", "settings", "key"),
    [
        (ProducerSettings, {"retries": -1}, "retries"),
        (ProducerSettings, {"send_timeout_ms": 0}, "send_timeout_ms"),
        (ProducerSettings, {"compression_level": 10}, "compression_level"),
        (PushConsumerSettings, {"batch_messages": 1025}, "batch_messages"),
        (PushConsumerSettings, {"concurrency": 0}, "concurrency"),
        (PushConsumerSettings, {"limits": FlowLimits(max_span=65_536)}, "limits.max_span"),
        (PullConsumerSettings, {"commit_interval_ms": 999}, "commit_interval_ms"),
        (PullConsumerSettings, {"pull_messages": 0}, "pull_messages"),
    ],
)
def test_setting_out_of_range_is_refused_by_name(kind: type[Any], settings: dict[str, Any], key: str) -> None:
    """Java's ranges hold, and the error names the setting."""
    with pytest.raises(ConfigError) as raised:
        kind(**settings)
    assert raised.value.key == key


def test_defaults_are_javas() -> None:
    """A send has 3 s and two retries; a pull brings 32 messages or 256 KiB; a buffer holds 1000 or 100 MiB."""
    assert (ProducerSettings().send_timeout_ms, ProducerSettings().retries) == (3000, 2)
    assert (ProducerSettings().retries_nowait, ProducerSettings().avoids_slow_brokers) == (2, False)
    batches = ProducerSettings()
    assert not batches.auto_batch
    assert (batches.batch_hold_ms, batches.batch_bytes, batches.batch_total_bytes) == (10, 32_768, 33_554_432)
    push = PushConsumerSettings()
    assert (push.concurrency, push.batch_messages, push.pull_messages, push.pull_bytes) == (20, 1, 32, 262_144)
    assert push.limits == (1000, 104_857_600, 2000)
    assert push.strategy.name == "AVG"


@pytest.mark.parametrize("group", ["", "  ", "a b", "g" * 121, "DEFAULT_PRODUCER", "DEFAULT_CONSUMER"])
def test_group_that_cannot_be_used_is_refused(group: str) -> None:
    """Blank, illegal, too long and reserved names are told apart from good ones before the start."""
    with pytest.raises(ConfigError) as raised:
        check_group(group)
    assert raised.value.key == "group"


def test_name_server_comes_from_the_environment_unless_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """NAMESRV_ADDR stands in for a missing argument, as with Java's client."""
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    assert choose_nameserver(None) == "ns:9876"
    assert choose_nameserver("other:1") == "other:1"

    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigError, match="NAMESRV_ADDR"):
        Producer("group")


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the directory of a certificate for 127.0.0.1, signed by itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    directory = tmp_path_factory.mktemp("tls")
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    options = ["req", *kind, "-subj", "/CN=rocketlet"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem", "-out", "cert.pem"]
    subprocess.run(["openssl", *options, *names], cwd=directory, check=True, capture_output=True)
    return directory


@pytest.fixture
async def tls_address(certificate: pathlib.Path) -> AsyncGenerator[str]:
    """Yield the address of a server that answers every request under TLS; it asks for a certificate, but takes none."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate / "cert.pem"))
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    context.verify_mode = ssl.CERT_OPTIONAL
    service = RequestHandlers(fallback=lambda command, _: Command.response(0, body=command.body))
    connections = Connections(LoopClock(), Limits())
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(service, LoopClock(), Limits(), connections), "127.0.0.1", 0, ssl=context
    )
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await connections.close_all()


async def ask(address: str, tls: Tls) -> bytes:
    """Return the answer to one request."""
    async with ConnectionPool(LoopClock(), tls=ssl_context_of(tls)) as pool:
        return (await pool.request(address, Command.request(1, body=b"x" * 300_000), 5_000)).body


async def test_requests_and_answers_travel_under_tls(tls_address: str, certificate: pathlib.Path) -> None:
    """To a server whose certificate is trusted, with the host name checked as well."""
    tls = Tls(trust_file=certificate / "cert.pem", checks_host_name=True)
    assert await ask(tls_address, tls) == b"x" * 300_000


async def test_own_certificate_is_shown(tls_address: str, certificate: pathlib.Path) -> None:
    """A server that asks who we are gets it."""
    tls = Tls(
        trust_file=certificate / "cert.pem",
        certificate_file=certificate / "cert.pem",
        key_file=certificate / "key.pem",
    )
    assert await ask(tls_address, tls) == b"x" * 300_000


async def test_server_that_is_not_trusted_is_refused(tls_address: str) -> None:
    """Unless the settings say that any will do."""
    with pytest.raises(ConnectFailedError, match="CERTIFICATE_VERIFY_FAILED"):
        await ask(tls_address, Tls())
    assert await ask(tls_address, Tls(verifies=False)) == b"x" * 300_000


@pytest.mark.parametrize("name", ["trust_file", "certificate_file"])
def test_file_that_is_missing_is_told(name: str, tmp_path: pathlib.Path) -> None:
    """At once, not with the first connection."""
    with pytest.raises(ConfigError, match="tls cannot be used"):
        ssl_context_of(replace(Tls(), **{name: tmp_path / "missing.pem"}))


def test_settings_that_contradict_themselves_are_refused() -> None:
    """A key without its certificate, and a host name that nobody vouches for."""
    with pytest.raises(ConfigError, match="no certificate_file"):
        Tls(key_file="key.pem")
    with pytest.raises(ConfigError, match="checks the host name only"):
        Tls(verifies=False, checks_host_name=True)


def test_context_of_the_application_is_taken_as_it_is() -> None:
    """Who needs more than ``Tls`` offers makes a context."""
    context = ssl.create_default_context()
    assert ssl_context_of(ProducerSettings(tls=context).tls) is context


async def test_server_without_tls_is_told_from_one_with(cluster: ScriptedCluster) -> None:
    """Ours, for one: it takes the handshake for a broken frame and closes."""
    with pytest.raises(ConnectFailedError, match="cannot connect"):
        await ask(cluster.nameserver.address, Tls(verifies=False))
