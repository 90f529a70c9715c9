"""A key and a certificate of a server's own, for clients that speak TLS and do not check whom they speak to.

They are made when the first client says hello, on a thread, and kept in one file that only its owner may read (0600).
Who checks certificates may be given that file: it names this host, localhost and the loopback addresses.
"""

import asyncio
import logging
import os
import socket
import ssl
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ...common.errors import ConfigError
from .certificates import Identity, make_certificate, write_private

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
            write_private(made, pem)
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


def make_pair() -> bytes:
    """Return a new key and its certificate, as PEM, for this machine under all of its names.

    Raises:
        ConfigError: the library for that is not installed.
    """
    names = [name for name in dict.fromkeys(("localhost", socket.gethostname())) if name.isascii() and name]
    pair = make_certificate(Identity("rocketlet", [*names, *_LOOPBACK], is_authority=True))
    return pair.key_pem + pair.certificate_pem
