"""How drivers and tasks reach a cluster: the options that reading and writing share.

nameserver                     HOST:PORT;HOST:PORT of name servers
accessKey, secretKey           who asks, on brokers that want to know (ACL); securityToken for temporary keys
tls                            true: connect under TLS
tlsTrustFile                   certificates to trust (PEM), without it those of the system; a path on every node
tlsCertificateFile, tlsKeyFile, tlsKeyPassword
                               the certificate to show to servers that ask for one
tlsVerify                      false: take any server for the right one
tlsCheckHostName               true: the certificate must name the address as well
group                          consumer group (reading) or producer group (writing) that requests name
timeoutMs                      how long to wait for one answer
retries, retryIntervalMs       how often a failed request is sent again, and the pause before
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...common.errors import ConfigError
from .option_values import OptionValues

# Spark starts processes for each query, and the client takes half a second to import: only where a cluster is named.
if TYPE_CHECKING:
    from ...client.session.settings import ClientSettings, Credentials, Tls

NAMESERVER: Final = "nameserver"
GROUP: Final = "group"
_TLS: Final = "tls"
_TLS_NAMES: Final = (
    "tlsTrustFile", "tlsCertificateFile", "tlsKeyFile", "tlsKeyPassword", "tlsVerify", "tlsCheckHostName",
)  # fmt: skip
_KEYS: Final = ("accessKey", "secretKey", "securityToken")
_CALLS: Final = ("timeoutMs", "retries", "retryIntervalMs")
ACCESS_OPTIONS: Final = (NAMESERVER, *_KEYS, _TLS, *_TLS_NAMES, GROUP, *_CALLS)

TIMEOUT_MS: Final = 10_000
RETRIES: Final = 3
RETRY_INTERVAL_MS: Final = 1_000


@dataclass(frozen=True)
class Access:
    """One cluster, and how to call it; travels to the tasks."""

    nameserver: str
    credentials: "Credentials | None" = None
    tls: "Tls | None" = None
    timeout_ms: int = TIMEOUT_MS
    retries: int = RETRIES
    retry_interval_ms: int = RETRY_INTERVAL_MS

    @property
    def client_settings(self) -> "ClientSettings":
        """The settings of a session."""
        from ...client.session.settings import ClientSettings

        return ClientSettings(credentials=self.credentials, tls=self.tls)


def parse_access(given: OptionValues) -> Access:
    """Return how the cluster is reached.

    Raises:
        ConfigError: An address, file or value that cannot be used, or options that need another one.
    """
    from ...client.session.routes import parse_addresses

    nameserver = given.text(NAMESERVER) or ""
    parse_addresses(nameserver)
    return Access(
        nameserver,
        _parse_credentials(given),
        _parse_tls(given),
        given.count("timeoutMs") or TIMEOUT_MS,
        _or_else(given.count("retries", least=0), RETRIES),
        _or_else(given.count("retryIntervalMs", least=0), RETRY_INTERVAL_MS),
    )


def _parse_credentials(given: OptionValues) -> "Credentials | None":
    from ...client.session.settings import Credentials

    access_key, secret_key, token = (given.text(name) for name in _KEYS)
    if access_key and secret_key:
        return Credentials(access_key, secret_key, token)
    for name, value in zip(_KEYS, (access_key, secret_key, token), strict=True):
        if value is not None:
            raise ConfigError(f"{name} needs both accessKey and secretKey", key=name)
    return None


def _parse_tls(given: OptionValues) -> "Tls | None":
    from ...client.session.settings import Tls, ssl_context_of

    if not given.flag(_TLS, default=False):
        for name in _TLS_NAMES:
            if name in given:
                raise ConfigError(f"{name} is given, but tls is not true", key=name)
        return None
    tls = Tls(
        trust_file=given.text("tlsTrustFile"),
        certificate_file=given.text("tlsCertificateFile"),
        key_file=given.text("tlsKeyFile"),
        key_password=given.text("tlsKeyPassword"),
        verifies=given.flag("tlsVerify", default=True),
        checks_host_name=given.flag("tlsCheckHostName", default=False),
    )
    ssl_context_of(tls)
    return tls


def _or_else(value: int | None, default: int) -> int:
    return default if value is None else value
