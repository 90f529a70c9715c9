"""Contexts of TLS: certificate, key, whom to trust, versions and cipher suites.

Rules
    1. TLS 1.2 and 1.3, with the suites that Python takes for good; ``tls.protocols`` and ``tls.ciphers`` choose among
       them. Names of suites are those of IANA, as Java has them, or of OpenSSL.
    2. Python cannot choose among the suites of TLS 1.3: ``tls.ciphers`` names all of them or none, and with none there
       is no TLS 1.3.
    3. A key is PKCS#8 or older (PKCS#1, SEC 1), encrypted or not; who asks for a password is told it, or nothing.
    4. A certificate of the other side is checked up to an authority; the name in it is not, as in Java.

Upstream: ``TlsHelper.buildSslContext``.
"""

import os
import re
import ssl
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...common.errors import ConfigError
from .tls_settings import (
    CLIENT_TRUST_KEY,
    NONE,
    REQUIRE,
    TRUST_KEY,
    KeyPair,
    TlsConfig,
)

CIPHERS_KEY: Final = "tls.ciphers"
PROTOCOLS_KEY: Final = "tls.protocols"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_OLD: Final = frozenset({"SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1"})
_SIZES: Final = re.compile(r"(AES|CAMELLIA|ARIA)-(128|256)")
_ENCRYPTED: Final = b"ENCRYPTED"


class _Wanted(NamedTuple):
    """What the settings allow: versions from … to …, and suites of TLS 1.2, all that Python likes if none is named."""

    least: ssl.TLSVersion
    most: ssl.TLSVersion
    suites: Sequence[str]


def server_context(config: TlsConfig, pair: KeyPair | None, alpn: Sequence[str] = ()) -> ssl.SSLContext:
    """Return the server's side by a pair, or without one, which is to be loaded then; waits for the disk.

    Raises:
        ConfigError: a file or a setting that cannot be used; ``key`` names it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, config)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if alpn:
        context.set_alpn_protocols([*alpn])
    if pair is not None:
        load_pair(context, pair)
    if config.client_need != NONE and config.checks_clients:
        context.verify_mode = ssl.CERT_REQUIRED if config.client_need == REQUIRE else ssl.CERT_OPTIONAL
        _load_trust(context, config.trust_path, TRUST_KEY)
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext | None:
    """Return the client's side for connections to other servers, None where they are plain; waits for the disk.

    Raises:
        ConfigError: a file or a setting that cannot be used; ``key`` names it.
    """
    if not config.is_client_on:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, config)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED if config.checks_servers else ssl.CERT_NONE
    if config.client_trust_path:
        _load_trust(context, config.client_trust_path, CLIENT_TRUST_KEY)
    elif config.checks_servers:
        context.load_default_certs()
    if config.client_pair is not None:
        load_pair(context, config.client_pair)
    return context


def load_pair(context: ssl.SSLContext, pair: KeyPair) -> None:
    """Have a context show a certificate.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be; ``key`` names the setting.
    """
    keys = pair.keys
    _check_readable(pair.certificate_path, keys.certificate)
    if pair.key_path:
        _check_readable(pair.key_path, keys.key)
    try:
        # a text that is empty keeps OpenSSL from asking at the terminal
        context.load_cert_chain(pair.certificate_path, pair.key_path or None, lambda: pair.password)
    except OSError as error:  # SSLError is one
        key, reason = _explain(pair, error)
        raise ConfigError(f"{key}: {reason}", key=key) from error


def _explain(pair: KeyPair, error: OSError) -> tuple[str, str]:
    """Return which setting is to blame for a pair that cannot be loaded, and what for."""
    keys = pair.keys
    where = pair.key_path or pair.certificate_path
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return (keys.key if pair.key_path else keys.certificate), f"{where} is not the key of {pair.certificate_path}"
    with open(where, "rb") as file:
        if _ENCRYPTED in file.read():
            which = "is wrong for" if pair.password else "is missing for"
            return keys.password, f"the password {which} {where}, or the key cannot be used"
    named = f"{pair.certificate_path} and {pair.key_path}" if pair.key_path else pair.certificate_path
    return keys.certificate, f"{named} cannot be used, a certificate and its key are expected in PEM"


def _load_trust(context: ssl.SSLContext, path: str, key: str) -> None:
    _check_readable(path, key)
    try:
        context.load_verify_locations(path)
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be used, certificates are expected in PEM", key=key) from error


def _check_readable(path: str, key: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"{key}: {os.path.abspath(path)} cannot be read: {error.strerror}", key=key) from error


def _restrict(context: ssl.SSLContext, config: TlsConfig) -> None:
    wanted = _wanted(config, [str(suite["name"]) for suite in context.get_ciphers() if _is_1_3(suite["name"])])
    context.minimum_version, context.maximum_version = wanted.least, wanted.most
    if not wanted.suites:
        return
    try:
        context.set_ciphers(":".join(wanted.suites))
    except ssl.SSLError as error:
        raise ConfigError(f"{CIPHERS_KEY} names no suite that can be used", key=CIPHERS_KEY) from error
    known = {str(suite["name"]) for suite in context.get_ciphers()}
    for suite in wanted.suites:
        if suite not in known:
            raise ConfigError(f"{CIPHERS_KEY} names {suite}, which is unknown or too weak", key=CIPHERS_KEY)


def _wanted(config: TlsConfig, newest: Sequence[str]) -> _Wanted:
    """Return what two settings allow; ``newest`` are the suites of TLS 1.3."""
    versions = _versions(config)
    named = [_openssl_name(name) for name in _split(config.ciphers)]
    if named:
        chosen = [name for name in named if _is_1_3(name)]
        if chosen and set(chosen) != set(newest):
            suites = ", ".join(newest)
            text = f"{CIPHERS_KEY} names {', '.join(chosen)}: of TLS 1.3 all suites can be had, or none: {suites}"
            raise ConfigError(text, key=CIPHERS_KEY)
        possible = {ssl.TLSVersion.TLSv1_3} if chosen else set[ssl.TLSVersion]()
        named = [name for name in named if not _is_1_3(name)]
        possible |= {ssl.TLSVersion.TLSv1_2} if named else set()
        versions &= possible
        if not versions:
            raise ConfigError(f"{CIPHERS_KEY} names no suite of {PROTOCOLS_KEY}={config.protocols}", key=CIPHERS_KEY)
    return _Wanted(min(versions), max(versions), named)


def _versions(config: TlsConfig) -> set[ssl.TLSVersion]:
    names = _split(config.protocols)
    for name in names:
        if name in _OLD:
            raise ConfigError(
                f"{PROTOCOLS_KEY} names {name}, which is not safe: TLSv1.2 and TLSv1.3", key=PROTOCOLS_KEY
            )
        if name not in _VERSIONS:
            raise ConfigError(f"{PROTOCOLS_KEY} names {name!r}, known are TLSv1.2 and TLSv1.3", key=PROTOCOLS_KEY)
    return {_VERSIONS[name] for name in names} or set(_VERSIONS.values())


def _split(text: str) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())]


def _is_1_3(name: str) -> bool:
    """Tell whether a suite is one of TLS 1.3; OpenSSL calls those as IANA does."""
    return name.startswith("TLS_")


def _openssl_name(name: str) -> str:
    """Return what OpenSSL calls a suite of TLS 1.2: ECDHE-RSA-AES128-GCM-SHA256 for TLS_ECDHE_RSA_WITH_AES_128_…."""
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return name
    exchange = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return exchange + _SIZES.sub(r"\1\2", cipher.replace("_", "-")).replace("-CBC-", "-").replace(
        "POLY1305-SHA256", "POLY1305"
    )
