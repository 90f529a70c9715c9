"""The server's side of TLS as its settings say: by certificate files, which may be replaced, or by a pair of its own.

Rules
    1. Files are looked at when somebody shakes hands, ``LOOK_MS`` after the last look at the earliest: new handshakes
       use what is there then, and open connections go on. Nothing polls. (Java looks each 500 ms.)
    2. What has changed is taken if certificate and key belong together. If they do not, as while one of the two is
       replaced, those in use stay, which is said once. New authorities of clients count at once.
    3. Files that cannot be used stop the start.

Upstream: ``TlsHelper``, and the ``FileWatchService`` of ``BrokerController`` and ``NamesrvController``.
"""

import asyncio
import hashlib
import importlib.util
import logging
import ssl
from collections.abc import Sequence
from typing import Final, NamedTuple

from ...common.clock import Clock
from ...common.errors import ConfigError
from ...common.ids import parse_networks
from ..transport.acceptor import Admission, TlsSource
from .tls_settings import DISABLED, ENFORCING, KeyPair, TlsConfig

LOOK_MS: Final = 500
PROXIES_KEY: Final = "proxyProtocolFrom"
_log = logging.getLogger(__name__)


class FileTls:
    """The server's side of TLS by files."""

    def __init__(self, config: TlsConfig, pair: KeyPair, clock: Clock, alpn: Sequence[str] = ()) -> None:
        self._config = config
        self._pair = pair
        self._clock = clock
        self._alpn = alpn
        self._turn = asyncio.Lock()
        self._context: ssl.SSLContext | None = None
        self._look_at_ms = 0
        self._seen: _Digests | None = None
        self._used: _Digests | None = None

    def __repr__(self) -> str:
        return f"<FileTls of {self._pair!r}>"

    async def context(self) -> ssl.SSLContext:
        """Return what serves TLS now.

        Raises:
            ConfigError: the files cannot be used, and never could.
        """
        if self._context is None or self._clock.monotonic_ms() >= self._look_at_ms:
            async with self._turn:
                if self._context is None or self._clock.monotonic_ms() >= self._look_at_ms:
                    self._context = await asyncio.to_thread(self._look, self._context)
                    self._look_at_ms = self._clock.monotonic_ms() + LOOK_MS
        return self._context

    def _look(self, current: ssl.SSLContext | None) -> ssl.SSLContext:
        seen = self._digest()
        if current is not None and seen == self._seen:
            return current
        from .contexts import server_context

        try:
            context = server_context(self._config, self._pair, self._alpn)
        except ConfigError as error:
            if current is None:
                raise
            self._seen = seen
            level = logging.INFO if self._used is not None and seen.is_half_of(self._used) else logging.WARNING
            _log.log(level, "keeping the certificate in use: %s", error)
            return current
        self._seen = self._used = seen
        if current is not None:
            _log.info("new handshakes use the new files of %s", self._pair.certificate_path)
        return context

    def _digest(self) -> "_Digests":
        trust = self._config.trust_path
        return _Digests(*(_digest_file(path) for path in (self._pair.certificate_path, self._pair.key_path, trust)))


class _Digests(NamedTuple):
    """What stands in the files; a file that cannot be read, or that there is not, has none."""

    certificate: bytes
    key: bytes
    trust: bytes

    def is_half_of(self, before: "_Digests") -> bool:
        """Tell whether one file of the pair has changed and the other has not, as while they are replaced."""
        return bool(self.key) and (self.certificate == before.certificate) != (self.key == before.key)


class EndpointTls(NamedTuple):
    """One end that takes TLS: which certificate it shows, where it keeps the one that it makes, what it speaks."""

    pair: KeyPair | None
    own_path: str
    alpn: Sequence[str] = ()


def tls_source(config: TlsConfig, end: EndpointTls, clock: Clock) -> TlsSource:
    """Return the server's side of TLS."""
    if end.pair is not None:
        return FileTls(config, end.pair, clock, end.alpn).context
    return _LateTls(config, end).context


class _LateTls:
    """TLS by a pair of its own, of which nothing is imported before the first hello."""

    def __init__(self, config: TlsConfig, end: EndpointTls) -> None:
        self._config = config
        self._end = end
        self._source: TlsSource | None = None

    def __repr__(self) -> str:
        return f"<_LateTls {'used' if self._source else 'not used'}>"

    async def context(self) -> ssl.SSLContext:
        if self._source is None:
            made = await asyncio.to_thread(self._load)
            self._source = self._source or made
        return await self._source()

    def _load(self) -> TlsSource:
        from .contexts import server_context
        from .self_signed import SelfSignedTls

        config, end = self._config, self._end
        return SelfSignedTls(end.own_path, lambda: server_context(config, None, end.alpn)).context


async def admit(config: TlsConfig, end: EndpointTls, clock: Clock, proxies: str = "") -> Admission:
    """Return whom a port lets in; ``proxies`` are the balancers that it believes.

    Raises:
        ConfigError: TLS is configured and cannot be served, or such an address is none; ``key`` names the setting.
    """
    networks = parse_networks(proxies, PROXIES_KEY)
    if config.mode == DISABLED:
        return Admission(proxies=networks)
    source = tls_source(config, end, clock)
    if end.pair is not None:
        await source()
    elif config.mode == ENFORCING and importlib.util.find_spec("cryptography") is None:
        raise ConfigError("tls.server.mode=enforcing needs a certificate, or the library cryptography to make one")
    elif config.ciphers or config.protocols or config.trust_path:
        from .contexts import server_context

        await asyncio.to_thread(server_context, config, None, end.alpn)  # what is wrong with them stops the start
    return Admission(tls=source, takes_plain=config.mode != ENFORCING, proxies=networks)


def _digest_file(path: str) -> bytes:
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).digest()
    except OSError:
        return b"unreadable"
