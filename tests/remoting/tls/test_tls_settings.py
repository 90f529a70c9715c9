"""Java's keys of TLS: what follows from which, and what contradicts itself."""

import pytest

from rocketlet.common.errors import ConfigError
from rocketlet.common.settings import describe_settings
from rocketlet.remoting.tls.tls_settings import TlsConfig, merge_tls_file

PAIR = {"tls.server.certPath": "/c.pem", "tls.server.keyPath": "/c.key"}
REQUIRED = {"tls.server.need.client.auth": "require"}
TRUST = {"tls.server.trustCertPath": "/ca.pem"}


def read(settings: dict[str, str]) -> TlsConfig:
    """Read settings."""
    return TlsConfig.from_java(settings)


def test_server_without_settings() -> None:
    """It takes TLS beside plain text, shows a certificate that it makes, asks for none, and speaks no TLS itself."""
    config = read({})
    assert (config.mode, config.pair, config.client_need, config.is_client_on) == ("permissive", None, "none", False)


def test_certificate_counts_when_it_is_given() -> None:
    """It need not be said that the test mode is over; the gRPC port shows it as well, unless it has its own."""
    config = read(PAIR)
    assert config.pair is not None
    assert config.pair.paths == ("/c.pem", "/c.key")
    assert config.grpc_pair == config.pair
    own = read({**PAIR, "tlsCertPath": "/g.pem", "tlsKeyPath": "/g.key"}).grpc_pair
    assert own is not None
    assert own.paths == ("/g.pem", "/g.key")


def test_client_inside_follows_the_mode() -> None:
    """It speaks TLS where the server takes nothing else, unless it is told; whom it shall trust, it checks."""
    assert read({"tls.server.mode": "enforcing"}).is_client_on
    assert not read({"tls.server.mode": "enforcing", "tls.enable": "false"}).is_client_on
    assert read({"useTLS": "true"}).is_client_on
    assert read({"tls.client.trustCertPath": "/ca.pem"}).checks_servers
    assert not read({"tls.client.trustCertPath": "/ca.pem", "tls.client.authServer": "false"}).checks_servers


def test_clients_that_are_asked_for_certificates() -> None:
    """``require`` checks them; Java's ``optional`` without a check asks for none; what Java's manual shows is taken."""
    assert read({**PAIR, **TRUST, "tls.server.need.client.auth": "REQUIRE"}).needs_client_certificate
    assert read({**PAIR, **TRUST, "tls.server.need.client.auth": "optional"}).checks_clients
    lenient = {**PAIR, "tls.server.need.client.auth": "optional", "tls.server.authClient": "false"}
    assert not read(lenient).checks_clients
    manual = {"tls.test.mode.enable": "false", "tls.server.need.client.auth": "none", "tls.server.authClient": "false"}
    assert not read({**PAIR, **TRUST, **manual}).checks_clients


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"tls.server.mode": "Enforcing"}, "tls.server.mode"),
        ({"tls.server.need.client.auth": "please"}, "tls.server.need.client.auth"),
        ({"tls.enable": "maybe"}, "tls.enable"),
        ({"tls.enable": "true", "useTLS": "false"}, "useTLS"),
        ({"tls.server.keyPath": "/c.key"}, "tls.server.keyPath"),
        ({"tls.server.keyPassword": "secret"}, "tls.server.keyPassword"),
        ({"tls.client.keyPath": "/c.key"}, "tls.client.keyPath"),
        ({"tlsKeyPath": "/c.key"}, "tlsKeyPath"),
        ({**PAIR, "tls.test.mode.enable": "true"}, "tls.test.mode.enable"),
        ({"tls.test.mode.enable": "false"}, "tls.server.certPath"),
        ({"tls.server.need.client.auth": "require"}, "tls.server.trustCertPath"),
        (
            {**TRUST, "tls.server.need.client.auth": "require", "tls.server.authClient": "false"},
            "tls.server.authClient",
        ),
        ({**TRUST, "tls.server.authClient": "true"}, "tls.server.need.client.auth"),
        (
            {**TRUST, "tls.server.need.client.auth": "require", "tls.server.mode": "disabled"},
            "tls.server.need.client.auth",
        ),
        ({"tls.config.file": "/tls.properties"}, "tls.config.file"),
    ],
)
def test_contradictions_are_named(settings: dict[str, str], key: str) -> None:
    """A value that cannot be used, or that would leave open what somebody takes for closed, stops the start."""
    with pytest.raises(ConfigError) as refused:
        read(settings)
    assert refused.value.key == key
    assert key in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.feature("A25")
def test_passwords_are_not_shown() -> None:
    """Neither a list of settings nor what is printed of the objects has them."""
    keys = {"tls.server.keyPassword": "s3cret", "tls.client.keyPassword": "s3cret", "tlsKeyPassword": "s3cret"}
    config = read({**PAIR, "tls.client.certPath": "/c.pem", "tlsCertPath": "/g.pem", **keys})
    assert {row.value for row in describe_settings(config) if "assword" in row.key} == {"******"}
    for shown in (config, config.pair, config.grpc_pair, config.client_pair):
        assert "s3cret" not in repr(shown)


def test_file_of_tls_settings() -> None:
    """Its keys join the others; one that says something else than theirs, and one that it cannot set, are refused."""
    given = {"tls.config.file": "/t", "tls.server.mode": "enforcing", "listenPort": "1"}
    merged = merge_tls_file(given, "/t", PAIR)
    assert merged == {"tls.server.mode": "enforcing", "listenPort": "1", **PAIR}
    with pytest.raises(ConfigError, match=r"tls\.server\.certPath has one value in /t") as refused:
        merge_tls_file({**given, "tls.server.certPath": "/other.pem"}, "/t", PAIR)
    assert refused.value.key == "tls.server.certPath"
    with pytest.raises(ConfigError, match=r"tls\.server\.mode has no effect in /t"):
        merge_tls_file(given, "/t", {"tls.server.mode": "disabled"})
