"""Accepts the connections of one port and tells by their first byte whether they are TLS or plain.

    first byte   meaning
    0x16         a TLS record: the handshake comes first, then the port's own protocol
    another      the port's own protocol, in plain

Rules
    1. The byte is looked at and not taken, so that who serves the connection reads it from the socket.
    2. A peer that is silent is sent away after ``PATIENCE_MS``; until then it costs a socket and an entry of a table.
       Of more than ``MOST_SILENT`` the one that waits longest goes first.
    3. When descriptors run out nothing is accepted for a second: what waits there stays in the queue of the system.

Upstream: ``NettyRemotingServer.HandshakeHandler``, ``ProxyAndTlsProtocolNegotiator``, which look as well.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, Self

from ...common.clock import Clock, TimerHandle
from ...common.errors import ConfigError
from ...common.ids import format_address
from .addresses import address_of
from .event_loop import TaskScope
from .limits import LogRateLimiter

TLS_RECORD: Final = b"\x16"
PATIENCE_MS: Final = 10_000
MOST_SILENT: Final = 1_024
PAUSE_MS: Final = 1_000
_ACCEPTED_AT_ONCE: Final = 32
_SCARCE: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_log = logging.getLogger(__name__)

TlsSource = Callable[[], Awaitable[ssl.SSLContext]]
"""Returns the server's side of TLS; raises ``ConfigError`` where there is none."""


class PortAcceptor:
    """Serves what a listening socket brings, from entering to leaving; the socket stays its opener's.

    ``make_protocol`` makes who serves a connection; ``tls`` is asked for each that begins with a TLS record;
    ``first_kept`` names the lowest descriptor that a connection may not have, if there is one.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        tls: TlsSource,
        clock: Clock,
        first_kept: Callable[[], int | None],
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._tls = tls
        self._clock = clock
        self._first_kept = first_kept
        self._silent: dict[socket.socket, int] = {}  # until when, the first in front
        self._timer: TimerHandle | None = None
        self._pause: TimerHandle | None = None
        self._tasks = TaskScope()
        self._complaints = LogRateLimiter(clock, "connections refused")

    def __repr__(self) -> str:
        return f"<PortAcceptor, {len(self._silent)} silent peers>"

    @property
    def silent_count(self) -> int:
        """How many peers have not said a word."""
        return len(self._silent)

    async def __aenter__(self) -> Self:
        """Accept connections from now on."""
        await self._tasks.__aenter__()
        self._listener.setblocking(False)
        self._listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Accept no more, and send those away who are not served yet."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        for peer in tuple(self._silent):
            self._dismiss(peer)
        await self._tasks.__aexit__(None, None, None)

    def _listen(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                peer, _address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno not in _SCARCE:
                    continue  # that peer has gone already
                _log.warning("accepting no connections for %d ms: %s", PAUSE_MS, error.strerror)
                asyncio.get_running_loop().remove_reader(self._listener.fileno())
                self._pause = self._clock.call_at(self._clock.monotonic_ms() + PAUSE_MS, self._listen)
                return
            self._wait_for_byte(peer)

    def _wait_for_byte(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        kept = self._first_kept()
        if kept is not None and peer.fileno() >= kept:
            self._complain(peer, f"too many open files (descriptor {peer.fileno()}, the store keeps those from {kept})")
            peer.close()
            return
        if len(self._silent) >= MOST_SILENT:
            self._dismiss(next(iter(self._silent)))
        self._silent[peer] = until_ms = self._clock.monotonic_ms() + PATIENCE_MS
        asyncio.get_running_loop().add_reader(peer.fileno(), self._look, peer)
        if self._timer is None:
            self._timer = self._clock.call_at(until_ms, self._dismiss_silent)

    def _look(self, peer: socket.socket) -> None:
        try:
            first = peer.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._dismiss(peer)
            return
        asyncio.get_running_loop().remove_reader(peer.fileno())
        del self._silent[peer]
        self._tasks.start(self._connect(peer, is_tls=first == TLS_RECORD), "accept a connection")

    async def _connect(self, peer: socket.socket, *, is_tls: bool) -> None:
        """Hand a connection to its protocol, behind the handshake."""
        try:
            context = await self._tls() if is_tls else None
        except ConfigError as error:
            self._complain(peer, str(error))
            peer.close()
            return
        except BaseException:
            peer.close()
            raise
        try:  # from here on the socket is the loop's, which closes it if the handshake fails
            limit_s = PATIENCE_MS / 1000 if is_tls else None
            await asyncio.get_running_loop().connect_accepted_socket(
                self._make_protocol, peer, ssl=context, ssl_handshake_timeout=limit_s
            )
        except OSError as error:
            self._complain(peer, f"the TLS handshake failed: {error}")
        except Exception:  # the fault boundary of a connection
            _log.exception("serving a connection failed")

    def _complain(self, peer: socket.socket, reason: str) -> None:
        if self._complaints.may_log():
            _log.warning("closing the connection from %s: %s", _peer_name(peer), reason)

    def _dismiss(self, peer: socket.socket) -> None:
        del self._silent[peer]
        asyncio.get_running_loop().remove_reader(peer.fileno())
        peer.close()

    def _dismiss_silent(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        for peer, until_ms in tuple(self._silent.items()):
            if until_ms > now_ms:
                self._timer = self._clock.call_at(until_ms, self._dismiss_silent)
                return
            _log.debug("closing the connection from %s: silent for %d ms", _peer_name(peer), PATIENCE_MS)
            self._dismiss(peer)


def _peer_name(peer: socket.socket) -> str:
    try:
        return format_address(*address_of(peer.getpeername()))
    except OSError:
        return "a peer that has gone"
