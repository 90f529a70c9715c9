"""Keys and certificates that are made here: of a server by itself, and of an authority for laptops and tests.

Keys are of the curve P-256, signatures of SHA-256: whatever speaks TLS 1.2 takes both. Certificates begin a day ago,
since clocks of others are late.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...common.errors import ConfigError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

_FIRST: Final = datetime.timedelta(days=1)
CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca.key"
SERVER_FILE: Final = "server.pem"
SERVER_KEY_FILE: Final = "server.key"
CLIENT_FILE: Final = "client.pem"
CLIENT_KEY_FILE: Final = "client.key"


class MadePair(NamedTuple):
    """A key and its certificate."""

    key: "EllipticCurvePrivateKey"
    certificate: "Certificate"

    @property
    def key_pem(self) -> bytes:
        """The key, not encrypted, PKCS#8."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    @property
    def certificate_pem(self) -> bytes:
        """The certificate."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM)


class Identity(NamedTuple):
    """Whom a certificate is for: a name, what it is called at the network, and for how many days."""

    name: str
    hosts: Sequence[str] = ()
    days: int = 3650
    is_authority: bool = False


def make_certificate(identity: Identity, issuer: MadePair | None = None) -> MadePair:
    """Return a new key and its certificate, signed by an authority or by itself.

    Raises:
        ConfigError: the library for that is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ModuleNotFoundError as error:
        raise ConfigError(f"TLS needs the library {error.name}: pip install cryptography") from error
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, identity.name)])
    now = datetime.datetime.now(datetime.UTC)
    depth = 0 if identity.is_authority else None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _FIRST)
        .not_valid_after(now + datetime.timedelta(days=identity.days))
        .add_extension(x509.BasicConstraints(ca=identity.is_authority, path_length=depth), critical=True)
    )
    if names := [_general_name(host) for host in identity.hosts]:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return MadePair(key, builder.sign(key if issuer is None else issuer.key, hashes.SHA256()))


def make_test_authority(hosts: Sequence[str], days: int) -> dict[str, bytes]:
    """Return the files of a test authority: its own pair, and one for servers and one for clients that it has signed.

    Raises:
        ConfigError: the library for that is not installed.
    """
    authority = make_certificate(Identity("rocketlet test authority", (), days, is_authority=True))
    server = make_certificate(Identity("rocketlet test server", hosts, days), authority)
    client = make_certificate(Identity("rocketlet test client", (), days), authority)
    return {
        CA_FILE: authority.certificate_pem,
        CA_KEY_FILE: authority.key_pem,
        SERVER_FILE: server.certificate_pem,
        SERVER_KEY_FILE: server.key_pem,
        CLIENT_FILE: client.certificate_pem,
        CLIENT_KEY_FILE: client.key_pem,
    }


def write_private(path: str, content: bytes) -> None:
    """Write a new file that only its owner may read (raises ``OSError``, ``FileExistsError`` where there is one)."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)


def _general_name(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
