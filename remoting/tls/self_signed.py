"""A key and a certificate of a server's own, for clients that speak TLS and do not check whom they speak to.

They are made when the first client says hello, on a thread, and kept in one file that only its owner may read (0600).
Who checks certificates may be given that file: it names this host, localhost and the loopback addresses.
"""

import asyncio
import datetime
import importlib.util
import ipaddress
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...common.errors import ConfigError

FILE_NAME: Final = "self-signed.pem"
_LASTS: Final = datetime.timedelta(days=3650)
_FIRST: Final = datetime.timedelta(days=1)  # before now: clocks of others are late
_LOOPBACK: Final = ("127.0.0.1", "::1")
_log = logging.getLogger(__name__)


class SelfSignedTls:
    """The server's side of TLS by the pair in a file, which is made when it is not there.

    Without a path the pair is not kept. ``make_context`` returns what is to show the pair.
    """

    def __init__(self, path: str, make_context: Callable[[], ssl.SSLContext]) -> None:
        self._path = path
        self._make_context = make_context
        self._context: ssl.SSLContext | None = None
        self._making = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<SelfSignedTls {self._path}, {'ready' if self._context else 'not used'}>"

    async def context(self) -> ssl.SSLContext:
        """Return what serves TLS.

        Raises:
            ConfigError: a library is missing, or the file cannot be read or written.
        """
        async with self._making:
            if self._context is None:
                self._context = await asyncio.to_thread(self._load)
            return self._context

    def _load(self) -> ssl.SSLContext:
        context = self._make_context()
        if not self._path:
            _load_unkept(context)
            return context
        try:
            context.load_cert_chain(self._path)
        except FileNotFoundError:
            self._make()
        except ssl.SSLError as error:
            _log.warning("%s cannot be read, making another certificate: %s", self._path, error)
            self._make()
        except OSError as error:
            raise ConfigError(f"TLS needs {self._path}, which cannot be read: {error.strerror}") from error
        else:
            return context
        context.load_cert_chain(self._path)
        return context

    def _make(self) -> None:
        pem, made = make_pair(), f"{self._path}.new"
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with suppress(FileNotFoundError):
                os.unlink(made)  # of a start that was killed
            descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(pem)
            os.replace(made, self._path)
        except OSError as error:
            raise ConfigError(f"TLS needs {self._path}, which cannot be written: {error.strerror}") from error
        _log.info("made a certificate for TLS: %s", self._path)


def _load_unkept(context: ssl.SSLContext) -> None:
    """Load a new pair by way of a file, as Python wants it, that only its owner may read and that goes at once."""
    descriptor, path = tempfile.mkstemp(prefix="rocketlet-", suffix=".pem")
    try:
        with open(descriptor, "wb") as file:
            file.write(make_pair())
        context.load_cert_chain(path)
    finally:
        os.unlink(path)


def can_make_pair() -> bool:
    """Tell whether the library for that is installed."""
    return importlib.util.find_spec("cryptography") is not None


def make_pair() -> bytes:
    """Return a new key and its certificate, as PEM.

    Raises:
        ConfigError: the library for that is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ModuleNotFoundError as error:
        raise ConfigError(f"TLS needs the library {error.name}: pip install cryptography") from error
    key = ec.generate_private_key(ec.SECP256R1())
    host = socket.gethostname()
    names = [x509.DNSName(name) for name in dict.fromkeys(("localhost", host)) if name.isascii() and name]
    addresses = [x509.IPAddress(ipaddress.ip_address(address)) for address in _LOOPBACK]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "rocketlet")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _FIRST)
        .not_valid_after(now + _LASTS)
        .add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, plain) + certificate.public_bytes(
        serialization.Encoding.PEM
    )
