"""Settings and names that are checked before anything starts."""

import asyncio
import os
import pathlib
import re
import shutil
import ssl
import subprocess
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest
from scripted_cluster import ScriptedCluster

from rocketlet.client import (
    ClientSettings,
    CompressionKind,
    ConsumeFrom,
    Credentials,
    FlowLimits,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    PushConsumer,
    PushConsumerSettings,
    SendContext,
    Tls,
    TransactionProducerSettings,
)
from rocketlet.client.session.settings import (
    check_group,
    check_own_settings,
    check_topic,
    choose_nameserver,
    client_id_of,
    ssl_context_of,
)
from rocketlet.common.errors import ConfigError, ConnectFailedError
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.transport.client import ConnectionPool
from rocketlet.remoting.transport.connection import Connection, RequestHandlers
from rocketlet.remoting.transport.connections import Connections
from rocketlet.remoting.transport.event_loop import LoopClock
from rocketlet.remoting.transport.limits import Limits


class Seen:
    """A hook of sends."""

    def __repr__(self) -> str:
        return "a hook of sends"

    def before_send(self, _: SendContext) -> None:
        """Nothing to do."""

    def after_send(self, _: SendContext) -> None:
        """Nothing to do."""


RANGES = """
ClientSettings heartbeat_interval_ms: 30000, 1 to 2147483648
ProducerSettings send_timeout_ms: 3000, 1 to 2147483648
ProducerSettings attempt_timeout_ms: None, 1 to 2147483648
ProducerSettings retries: 2, 0 to 2147483648
ProducerSettings retries_nowait: 2, 0 to 2147483648
ProducerSettings compress_from_bytes: 4096, 1 to 2147483648
ProducerSettings compression_level: 5, 0 to 9
ProducerSettings max_message_bytes: 4194304, 1 to 2147483648
ProducerSettings batch_hold_ms: 10, 1 to 30000
ProducerSettings batch_bytes: 32768, 1 to 2097152
ProducerSettings batch_total_bytes: 33554432, 1 to 1099511627776
ProducerSettings new_topic_queues: 4, 1 to 65536
TransactionProducerSettings checks_at_once: 1, 1 to 1000
TransactionProducerSettings max_waiting_checks: 2000, 1 to 2147483648
TransactionProducerSettings listener_threads: 20, 1 to 1000
TransactionProducerSettings close_timeout_ms: 10000, 0 to 2147483648
TransactionProducerSettings retries: 2, 0 to 2147483648
PushConsumerSettings concurrency: 20, 1 to 1000
PushConsumerSettings batch_messages: 1, 1 to 1024
PushConsumerSettings pull_messages: 32, 1 to 1024
PushConsumerSettings pull_bytes: 262144, 1 to 2147483648
PushConsumerSettings max_topic_messages: None, 1 to 6553500
PushConsumerSettings max_topic_bytes: None, 1 to 107374182400
PushConsumerSettings max_retries: -1, -1 to 2147483648
PushConsumerSettings consume_timeout_ms: 900000, 1 to 2147483648
PushConsumerSettings pause_ms: 1000, 10 to 30000
PushConsumerSettings rebalance_interval_ms: 20000, 1 to 2147483648
PushConsumerSettings commit_interval_ms: 5000, 1 to 2147483648
PushConsumerSettings close_timeout_ms: 10000, 0 to 2147483648
PushConsumerSettings limits.max_messages: 1000, 1 to 65535
PushConsumerSettings limits.max_bytes: 104857600, 1 to 1073741824
PushConsumerSettings limits.max_span: 2000, 1 to 65535
PullConsumerSettings commit_interval_ms: 5000, 1000 to 2147483648
PullConsumerSettings poll_timeout_ms: 5000, 0 to 2147483648
PullConsumerSettings pull_messages: 10, 1 to 1024
PullConsumerSettings pull_bytes: 2147483647, 1 to 2147483647
PullConsumerSettings max_buffered_messages: 10000, 1 to 2147483648
PullConsumerSettings rebalance_interval_ms: 20000, 1 to 2147483648
PullConsumerSettings limits.max_span: 2000, 1 to 65535
PullConsumerSettings heartbeat_interval_ms: 30000, 1 to 2147483648
PushConsumerSettings heartbeat_interval_ms: 30000, 1 to 2147483648
ProducerSettings heartbeat_interval_ms: 30000, 1 to 2147483648
"""
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        ClientSettings,
        ProducerSettings,
        TransactionProducerSettings,
        PushConsumerSettings,
        PullConsumerSettings,
    )
}


@pytest.mark.parametrize("line", RANGES.strip().splitlines())
def test_setting_has_javas_default_and_range(line: str) -> None:
    """What is one too few or too many is refused with the setting's name and both bounds; the bounds are taken."""
    kind, name, default, least, _, most = re.split(r"[:,]? ", line)
    table, _, limit = name.rpartition(".")

    def made(value: int) -> Any:
        chosen = {table: FlowLimits(**{limit: value})} if table else {name: value}
        settings = KINDS[kind](**chosen)
        return getattr(settings.limits if table else settings, limit)

    settings = KINDS[kind]()
    assert str(getattr(settings.limits if table else settings, limit)) == default
    assert [made(int(least)), made(int(most))] == [int(least), int(most)]
    for value in (int(least) - 1, int(most) + 1):
        with pytest.raises(ConfigError) as raised:
            made(value)
        assert str(raised.value) == f"{name} is {value}, allowed are {least} to {most}"
        assert raised.value.key == name


def test_number_as_text_is_refused() -> None:
    """As settings read from a file may have it."""
    with pytest.raises(ConfigError, match="retries is '2', it must be a whole number"):
        ProducerSettings(retries="2")  # pyright: ignore[reportArgumentType] # the mistake that is shown


CLIENT = {"namespace": "", "unit_name": "", "is_unit_mode": False, "hooks": (), "client_host": None, "tls": None}
PRODUCER = CLIENT | {
    "tries_another_broker_when_not_stored_ok": False,
    "avoids_slow_brokers": False,
    "compression": CompressionKind.ZLIB,
    "auto_batch": False,
    "template_topic": "TBW102",
}
CONSUMER = CLIENT | {"consume_from": ConsumeFrom.LAST, "consume_from_at_ms": None, "commits_itself": True}


@pytest.mark.parametrize(
    ("settings", "defaults"),
    [
        (ClientSettings(), CLIENT | {"credentials": None, "instance_name": None}),
        (ProducerSettings(), PRODUCER),
        (TransactionProducerSettings(), PRODUCER),
        (
            PushConsumerSettings(),
            CONSUMER
            | {"is_orderly": False, "is_broadcast": False, "offset_directory": None, "posts_subscription": False},
        ),
        (PullConsumerSettings(), CONSUMER),
        (
            Tls(),
            {"trust_file": None, "certificate_file": None, "key_file": None, "key_password": None, "verifies": True}
            | {"checks_host_name": False},
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_has_javas_default(settings: object, defaults: dict[str, object]) -> None:
    """But for servers' certificates, which we check."""
    assert {name: getattr(settings, name) for name in defaults} == defaults
    if isinstance(settings, PushConsumerSettings | PullConsumerSettings):
        assert settings.strategy.name == "AVG"


def test_secrets_are_not_shown() -> None:
    """Settings are logged and stand in tracebacks."""
    secret = "sesame"  # noqa: S105 # it is what must not be seen
    shown = repr((Credentials("ak", secret, "token"), Tls(certificate_file="c", key_file="k", key_password=secret)))
    assert "'ak'" in shown
    assert secret not in shown
    assert "token'" not in shown


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Credentials("", "s"), "credentials.access_key: credentials have an empty access_key"),
        (lambda: Credentials("a", ""), "credentials.secret_key: credentials have an empty secret_key"),
        (lambda: ClientSettings(client_host="name"), "client_host: client_host 'name' is no IP address"),
        (
            lambda: ClientSettings(namespace="a%b"),
            "namespace: 'a%b' cannot be a namespace: letters, digits, -, _ and | alone",
        ),
        (
            lambda: ClientSettings(namespace="a b"),
            "namespace: 'a b' cannot be a namespace: letters, digits, -, _ and | alone",
        ),
        (
            lambda: ProducerSettings(compression=3),  # pyright: ignore[reportArgumentType] # the mistake that is shown
            "compression: compression is 3, allowed are the members of CompressionKind",
        ),
        (
            lambda: ClientSettings(hooks=[Seen(), "hook"]),  # pyright: ignore[reportArgumentType] # as above
            "hooks[1]: 'hook' is no hook: it lacks the methods of every kind of hook",
        ),
        (
            lambda: ClientSettings(hooks=[Seen]),  # pyright: ignore[reportArgumentType] # as above
            f"hooks[0]: {Seen!r} is no hook: it lacks the methods of every kind of hook",
        ),
        (
            lambda: check_own_settings(ClientSettings(hooks=[Seen()])),
            "hooks: a hook of sends belongs into the settings of a producer or consumer",
        ),
        (lambda: choose_nameserver(" "), "nameserver: no name server: pass nameserver= or set NAMESRV_ADDR"),
    ],
)
def test_value_that_cannot_be_is_refused(make: Callable[[], object], words: str) -> None:
    """With the name of the setting as the error's key, and what is wrong with it."""
    with pytest.raises(ConfigError) as raised:
        make()
    assert f"{raised.value.key}: {raised.value}" == words


def test_settings_of_another_kind_are_refused() -> None:
    """As is a name that is no text: the message says what was given and what is wanted."""
    with pytest.raises(TypeError, match="settings are ProducerSettings, they must be PushConsumerSettings"):
        PushConsumer("g", "h:1", settings=ProducerSettings())  # pyright: ignore[reportArgumentType] # shown
    with pytest.raises(TypeError, match="settings are dict, they must be PullConsumerSettings"):
        PullConsumer("g", "h:1", settings={})  # pyright: ignore[reportArgumentType] # as above
    with pytest.raises(TypeError, match="nameserver is int, it must be text such as 'host:9876;other:9876'"):
        choose_nameserver(9876)  # pyright: ignore[reportArgumentType] # as above
    with pytest.raises(TypeError, match="group is bytes, it must be text"):
        check_group(b"g")  # pyright: ignore[reportArgumentType] # as above
    with pytest.raises(TypeError, match="topic is bytes, it must be text"):
        check_topic(b"t")  # pyright: ignore[reportArgumentType] # as above
    with pytest.raises(ValueError, match="illegal characters"):
        check_topic("a b")
    check_own_settings(ProducerSettings(hooks=[Seen()]))


def test_client_id_tells_clients_apart() -> None:
    """Host, instance and unit; the instance is made up so that two clients of one process differ."""
    assert client_id_of("h", ClientSettings(instance_name="i", unit_name="u")) == "h@i@u"
    assert client_id_of("h", ClientSettings(instance_name="i")) == "h@i"
    made = [client_id_of("h", ClientSettings()) for _ in range(2)]
    assert made[0] != made[1]
    assert all(re.fullmatch(rf"h@{os.getpid()}#\d+", each) for each in made)


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
    with pytest.raises(ConfigError, match=r"^tls cannot be used: .*missing\.pem: No such file"):
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
