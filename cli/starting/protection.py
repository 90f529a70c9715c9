"""What protects the servers of a start, and what does not: TLS and who may listen in.

tls             ``rocketlet up`` speaks to its own servers, too: what TLS they want must be what it has
authentication  who listens elsewhere than at the loopback addresses serves everybody, unless signatures are checked
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ...common.errors import ConfigError
from ...remoting.tls.tls_settings import (
    CLIENT_CERT_KEY,
    DISABLED,
    ENABLE_KEY,
    ENFORCING,
    MODE_KEY,
    NEED_KEY,
    PERMISSIVE,
    KeyPair,
    TlsConfig,
)

if TYPE_CHECKING:
    import ssl

AUTHENTICATION_KEY: Final = "authenticationEnabled"
_ANY_HOSTS: Final = ("0.0.0.0", "::")  # noqa: S104 # compared with, not bound
_LOOPBACK: Final = ("127.", "::1", "localhost")


def check_own_tls(config: TlsConfig) -> None:
    """Refuse settings with which the servers of one start could not speak to each other.

    Raises:
        ConfigError: they contradict each other; ``key`` names one.
    """
    if config.mode == ENFORCING and not config.is_client_on:
        text = f"{ENABLE_KEY}=false and {MODE_KEY}=enforcing contradict each other: no broker could register"
        raise ConfigError(text, key=ENABLE_KEY)
    if config.mode == DISABLED and config.is_client_on:
        text = f"{ENABLE_KEY}=true and {MODE_KEY}=disabled contradict each other: no broker could register"
        raise ConfigError(text, key=ENABLE_KEY)
    if config.is_client_on and config.needs_client_certificate and config.client_pair is None:
        text = f"{NEED_KEY}=require needs {CLIENT_CERT_KEY}: what brokers show to the name server"
        raise ConfigError(text, key=CLIENT_CERT_KEY)


def describe_protection(given: Mapping[str, str], config: TlsConfig) -> Iterator[str]:
    """Say, a line each, what is open that somebody may take for closed."""
    host = given.get("bindAddress", "").strip()
    checks = given.get(AUTHENTICATION_KEY, "").strip().lower() == "true"
    if host and not host.startswith(_LOOPBACK) and not checks:
        reached = "this machine" if host in _ANY_HOSTS else host
        yield f"whoever reaches {reached} may read and change everything: {AUTHENTICATION_KEY} is not true"
    if config.needs_client_certificate and config.mode == PERMISSIVE:
        yield f"{NEED_KEY}=require asks nobody who connects in plain text: {MODE_KEY} is {PERMISSIVE}"


def tls_options(config: TlsConfig) -> str:
    """Return what the verbs need to speak to the servers of a start."""
    if config.mode != ENFORCING:
        return ""
    pair = config.client_pair if config.needs_client_certificate else None
    shown = f" --tls-cert {pair.certificate_path}" if pair is not None else ""
    shown += f" --tls-key {pair.key_path}" if pair is not None and pair.key_path else ""
    trusted = f"--tls-trust {config.client_trust_path}" if config.client_trust_path else "--tls-trust-all"
    return f" --tls {trusted}{shown}"


def own_context(pair: KeyPair | None) -> "ssl.SSLContext":
    """Return what reaches servers of this machine whose certificate need not be checked: they are ours.

    Raises:
        ConfigError: the certificate to show cannot be used.
    """
    import ssl  # not for the help

    from ...remoting.tls.contexts import load_pair

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pair is not None:
        load_pair(context, pair)
    return context
