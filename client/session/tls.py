"""Connections under TLS (Java's ``useTLS`` and ``tls.client.*``).

Official brokers and name servers take plain and TLS connections on one port (mode permissive), with a certificate that
they make up at each start unless they are given one; ours take plain connections only. Unlike Java, we check the
server's certificate unless told otherwise, and its host name as well when ``checks_host_name`` is set: addresses come
from routes, as numbers, and certificates seldom hold those.
"""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

from ...common.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to use TLS: whom to trust, and the certificate to show where the server asks for one.

    ``Tls(verifies=False)`` encrypts but takes any server for the right one.
    """

    trust_file: str | Path | None = None  # tls.client.trustCertPath; without it those that the system trusts
    certificate_file: str | Path | None = None  # tls.client.certPath
    key_file: str | Path | None = None  # tls.client.keyPath
    key_password: str | None = field(default=None, repr=False)  # tls.client.keyPassword
    verifies: bool = True  # tls.client.authServer, which is false by default
    checks_host_name: bool = False

    def __post_init__(self) -> None:
        """Refuse what contradicts itself."""
        if self.key_file is not None and self.certificate_file is None:
            raise ConfigError("tls has a key_file and no certificate_file", key="tls.certificate_file")
        if self.checks_host_name and not self.verifies:
            raise ConfigError("tls checks the host name only of servers that it verifies", key="tls.verifies")


def ssl_context_of(tls: Tls | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the context for connections, or None for plain ones.

    Raises:
        ConfigError: a file is missing or is not what it should be.
    """
    if not isinstance(tls, Tls):
        return tls
    try:
        context = ssl.create_default_context(cafile=tls.trust_file)
        context.check_hostname = tls.checks_host_name
        context.verify_mode = ssl.CERT_REQUIRED if tls.verifies else ssl.CERT_NONE
        if tls.certificate_file is not None:
            context.load_cert_chain(tls.certificate_file, tls.key_file, tls.key_password)
    except OSError as error:  # SSLError is one
        raise ConfigError(f"tls cannot be used: {error}", key="tls") from error
    return context
