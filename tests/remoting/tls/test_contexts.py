"""What settings of TLS make of certificates, keys, versions and cipher suites."""

import pathlib
import ssl

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from rocketlet.common.errors import ConfigError
from rocketlet.remoting.tls.certificates import CA_FILE, CLIENT_KEY_FILE, SERVER_FILE, SERVER_KEY_FILE
from rocketlet.remoting.tls.contexts import client_context, server_context
from rocketlet.remoting.tls.tls_settings import TlsConfig

TLS_1_3 = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"


def context_of(settings: dict[str, str]) -> ssl.SSLContext:
    """Return the server's side that settings ask for."""
    config = TlsConfig.from_java(settings)
    return server_context(config, config.pair)


@pytest.mark.parametrize(
    ("form", "password"),
    [
        (PrivateFormat.PKCS8, ""),
        (PrivateFormat.PKCS8, "s3cret"),
        (PrivateFormat.TraditionalOpenSSL, ""),
        (PrivateFormat.TraditionalOpenSSL, "s3cret"),
    ],
)
def test_forms_of_keys(authority: pathlib.Path, tmp_path: pathlib.Path, form: PrivateFormat, password: str) -> None:
    """PKCS#8 and the older form are read, encrypted or not; a wrong or missing password is told, and not asked for."""
    key = load_pem_private_key((authority / SERVER_KEY_FILE).read_bytes(), None)
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    path = tmp_path / "server.key"
    path.write_bytes(key.private_bytes(Encoding.PEM, form, encryption))
    settings = {"tls.server.certPath": str(authority / SERVER_FILE), "tls.server.keyPath": str(path)}
    assert context_of({**settings, "tls.server.keyPassword": password} if password else settings)
    if password:
        for told in ({}, {"tls.server.keyPassword": "another"}):
            with pytest.raises(ConfigError) as refused:
                context_of({**settings, **told})
            assert refused.value.key == "tls.server.keyPassword"
            assert "another" not in str(refused.value)


def test_files_that_cannot_be_used(authority: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The setting is named that is to blame: a file that is not there, no PEM, a key of another certificate."""
    good = str(authority / SERVER_FILE)
    noise = tmp_path / "noise.pem"
    noise.write_bytes(b"no PEM at all")
    for settings, key in (
        ({"tls.server.certPath": str(tmp_path / "none.pem")}, "tls.server.certPath"),
        ({"tls.server.certPath": good, "tls.server.keyPath": str(tmp_path / "none")}, "tls.server.keyPath"),
        ({"tls.server.certPath": str(noise)}, "tls.server.certPath"),
        ({"tls.server.certPath": good, "tls.server.keyPath": str(authority / CLIENT_KEY_FILE)}, "tls.server.keyPath"),
    ):
        with pytest.raises(ConfigError) as refused:
            context_of(settings)
        assert refused.value.key == key
    with pytest.raises(ConfigError) as refused:
        context_of({"tls.server.need.client.auth": "require", "tls.server.trustCertPath": str(noise)})
    assert refused.value.key == "tls.server.trustCertPath"


def test_keys_are_agreed_on_once() -> None:
    """A client of TLS 1.2 cannot have the server do that again and again on one connection."""
    assert context_of({}).options & ssl.OP_NO_RENEGOTIATION


def test_versions() -> None:
    """TLS 1.2 and 1.3 unless one is chosen."""
    versions = ssl.TLSVersion
    for text, least, most in (
        ("", versions.TLSv1_2, versions.TLSv1_3),
        ("TLSv1.3", versions.TLSv1_3, versions.TLSv1_3),
        ("TLSv1.2", versions.TLSv1_2, versions.TLSv1_2),
        ("TLSv1.2, TLSv1.3", versions.TLSv1_2, versions.TLSv1_3),
    ):
        context = context_of({"tls.protocols": text})
        assert (context.minimum_version, context.maximum_version) == (least, most)


def test_cipher_suites() -> None:
    """Names are Java's or OpenSSL's; those of TLS 1.3 come all together, and without them there is none."""
    named = context_of({"tls.ciphers": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,ECDHE-ECDSA-CHACHA20-POLY1305"})
    chosen = [suite["name"] for suite in named.get_ciphers() if not suite["name"].startswith("TLS_")]
    assert chosen == ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"]
    assert named.maximum_version is ssl.TLSVersion.TLSv1_2
    assert context_of({"tls.ciphers": TLS_1_3}).minimum_version is ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"tls.protocols": "TLSv1.1"}, "tls.protocols"),
        ({"tls.protocols": "TLS9"}, "tls.protocols"),
        ({"tls.ciphers": "TLS_AES_128_GCM_SHA256"}, "tls.ciphers"),
        ({"tls.ciphers": "ECDHE-RSA-AES128-GCM-SHA256,NONESUCH"}, "tls.ciphers"),
        ({"tls.ciphers": "NONESUCH"}, "tls.ciphers"),
        ({"tls.ciphers": TLS_1_3, "tls.protocols": "TLSv1.2"}, "tls.ciphers"),
    ],
)
def test_what_python_cannot_do_is_refused(settings: dict[str, str], key: str) -> None:
    """Old versions, unknown suites, and a choice among those of TLS 1.3 stop the start."""
    with pytest.raises(ConfigError) as refused:
        context_of(settings)
    assert refused.value.key == key


def test_client_inside(authority: pathlib.Path) -> None:
    """There is none unless TLS is on; it checks certificates where it is told whom to trust, and never the name."""
    assert client_context(TlsConfig()) is None
    enforcing = {"tls.server.mode": "enforcing"}
    lenient = client_context(TlsConfig.from_java(enforcing))
    strict = client_context(TlsConfig.from_java({**enforcing, "tls.client.trustCertPath": str(authority / CA_FILE)}))
    assert lenient is not None
    assert strict is not None
    assert (lenient.verify_mode, strict.verify_mode) == (ssl.CERT_NONE, ssl.CERT_REQUIRED)
    assert not strict.check_hostname
