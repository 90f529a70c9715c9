"""Who comes in at a port: the first byte of a connection tells whether it is TLS or plain.

    first byte   meaning
    0x16         a TLS record: the handshake comes first, then the port's own protocol
    another      the port's own protocol, in plain

Rules
    1. What came with the first byte is passed on with it; the choice is final for the connection. A port that does not
       take TLS, or nothing else, closes without a word.
    2. A peer that is silent is sent away after ``PATIENCE_MS``, and of more than ``most_silent`` the one that waits
       longest. Where plain connections are ``met_early``, who serves one is there before its first byte and sees to
       silence itself; it is told of an end when the first byte is one of TLS. One that has begun a handshake has
       ``PATIENCE_MS`` for it, from its first byte on.
    3. One handshake is begun in each turn of the loop, so that others are served between them: it is the handshake that
       costs a server time. Of those begun ``MOST_HANDSHAKES`` may be unfinished; more wait, until one is over or has
       had ``GRACE_MS``: who stops half-way holds up others for no longer. More than ``MOST_WAITING`` do not wait, nor
       does one that begins with more than ``MOST_HELLO_BYTES``, which are kept meanwhile.
    4. Before all this, a balancer that the settings name may say whose connection it passes on (``proxy_preamble.py``).
    5. A connection may not have one of the descriptors that are kept for files.

Upstream: ``NettyRemotingServer.HandshakeHandler``, ``ProxyAndTlsProtocolNegotiator``, which begin as many handshakes as
come, and wait for as many silent peers.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Generic, Protocol, Self, TypeVar, cast

from msgspec import Struct

from ...common.clock import Clock, TimerHandle
from ...common.errors import ConfigError, FrameError
from ...common.ids import Address, Network, format_address, is_among
from .addresses import address_of
from .connections import ConnectionEvents
from .event_loop import TaskScope, wait_at_most
from .limits import LogRateLimiter

if TYPE_CHECKING:
    from .tls_transport import TlsTransport

TLS_RECORD: Final = 0x16
PATIENCE_MS: Final = 10_000
GRACE_MS: Final = 200
MOST_SILENT: Final = 1_024
MOST_HANDSHAKES: Final = 256
MOST_WAITING: Final = 1_024
MOST_HELLO_BYTES: Final = 1 << 15
ACCEPTED_AT_ONCE: Final = 32
"""asyncio takes its backlog for this too, and when descriptors run out it reports each of them."""
_BACKLOG: Final = 1024
_log = logging.getLogger(__name__)

TlsSource = Callable[[], Awaitable[ssl.SSLContext]]
"""Returns the server's side of TLS; raises ``ConfigError`` where there is none."""
MakeProtocol = Callable[[], asyncio.Protocol]
FirstKept = Callable[[], int | None]
"""Names the lowest descriptor that a connection may not have, if there is one."""
Item = TypeVar("Item")


class Admission(Struct, frozen=True):
    """Whom a port lets in: by TLS if there is a source of it, in plain text, and what is done about the silent."""

    tls: TlsSource | None = None
    takes_plain: bool = True
    is_met_early: bool = False
    proxies: Sequence[Network] = ()
    most_silent: int = MOST_SILENT


class Patience(Generic[Item]):
    """Things that wait, each for so long; ``give_up`` is called with those whose time is over, which are gone then."""

    def __init__(self, clock: Clock, limit_ms: int, give_up: Callable[[Item], object]) -> None:
        self._clock = clock
        self._limit_ms = limit_ms
        self._give_up = give_up
        self._until_ms: dict[Item, int] = {}  # the first in front
        self._timer: TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Patience of {self._limit_ms} ms with {len(self)}>"

    def __len__(self) -> int:
        return len(self._until_ms)

    def add(self, item: Item) -> None:
        """Wait for something."""
        self._until_ms[item] = until_ms = self._clock.monotonic_ms() + self._limit_ms
        if self._timer is None:
            self._timer = self._clock.call_at(until_ms, self._look)

    def discard(self, item: Item) -> bool:
        """Wait for it no longer; tell whether it was waited for."""
        return self._until_ms.pop(item, None) is not None

    def first(self) -> Item:
        """Return what has waited longest."""
        return next(iter(self._until_ms))

    def give_up_first(self) -> None:
        """Give up what has waited longest."""
        item = self.first()
        del self._until_ms[item]
        self._give_up(item)

    def waited_ms(self) -> int:
        """Return how long the first has waited."""
        return self._clock.monotonic_ms() + self._limit_ms - self._until_ms[self.first()]

    def close(self) -> None:
        """Give all up."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._until_ms:
            self.give_up_first()

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        while self._until_ms:
            until_ms = self._until_ms[self.first()]
            if until_ms > now_ms:
                self._timer = self._clock.call_at(until_ms, self._look)
                return
            self.give_up_first()


class _Newcomer(asyncio.Protocol):
    """A connection that has said nothing."""

    __slots__ = ("_entrance", "begun", "early", "is_relayed", "transport")

    def __init__(self, entrance: "Entrance") -> None:
        self._entrance = entrance
        self.early: asyncio.Protocol | None = None
        self.is_relayed = False
        self.begun = b""  # of a preamble
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self._entrance.admit(self)

    def data_received(self, data: bytes) -> None:
        self._entrance.sort(self, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._entrance.forget(self)
        early, self.early = self.early, None
        if early is not None:
            early.connection_lost(exc)


class Entrance:
    """Serves the connections of a port: ``meet`` is the protocol factory of its listening sockets."""

    def __init__(
        self,
        make_protocol: MakeProtocol,
        admission: Admission,
        clock: Clock,
        first_kept: FirstKept,
        events: ConnectionEvents | None = None,
    ) -> None:
        self._make_protocol = make_protocol
        self._admission = admission
        self._clock = clock
        self._first_kept = first_kept
        self._events = events or ConnectionEvents()
        self._meets_early = admission.is_met_early and admission.takes_plain
        self._silent: Patience[_Newcomer] = Patience(clock, PATIENCE_MS, _dismiss_silent)
        self._handshakes: Patience[TlsTransport] = Patience(clock, PATIENCE_MS, self._give_up)
        self._begun: Patience[TlsTransport] = Patience(clock, PATIENCE_MS, self._give_up)
        self._hellos: deque[tuple[TlsTransport, bytes]] = deque()
        self._has_room = asyncio.Event()
        self._tasks = TaskScope()
        self._is_shaking = False
        self._is_over = False
        self._complaints = LogRateLimiter(clock, "connections refused")

    def __repr__(self) -> str:
        return f"<Entrance, {self.silent_count} silent peers, {self.handshake_count} handshakes>"

    @property
    def silent_count(self) -> int:
        """How many peers have not said a word."""
        return len(self._silent)

    @property
    def handshake_count(self) -> int:
        """How many peers have begun a handshake that is not over."""
        return len(self._handshakes)

    async def __aenter__(self) -> Self:
        """Allow connections to come."""
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Send those away who are not served yet, and those still to come."""
        self._is_over = True
        await self._tasks.__aexit__(None, None, None)
        self._hellos.clear()
        for waiting in (self._silent, self._handshakes, self._begun):
            waiting.close()

    def meet(self) -> asyncio.Protocol:
        """Return who waits for the first byte of a connection."""
        return _Newcomer(self)

    def admit(self, newcomer: _Newcomer) -> None:
        """Take a connection that has just been accepted."""
        if self._is_over:
            newcomer.transport.abort()
            return
        if self._admission.proxies and _is_proxy(newcomer, self._admission.proxies):
            newcomer.is_relayed = True
        elif self._meets_early:
            newcomer.early = self._make_protocol()
            newcomer.early.connection_made(newcomer.transport)
            return
        kept = self._first_kept()
        if kept is not None and (descriptor := newcomer.transport.get_extra_info("socket").fileno()) >= kept:
            reason = f"too many open files (descriptor {descriptor}, the store keeps those from {kept})"
            self._refuse(newcomer.transport, reason)
            return
        if len(self._silent) >= self._admission.most_silent:
            self._silent.give_up_first()
        self._silent.add(newcomer)

    def forget(self, newcomer: _Newcomer) -> None:
        """Take note that it has gone without a word."""
        self._silent.discard(newcomer)

    def sort(self, newcomer: _Newcomer, first: bytes) -> None:
        """Have a connection served by what it has said first."""
        make_protocol = self._make_protocol
        if newcomer.is_relayed:
            from .proxy_preamble import parse_preamble  # few have balancers

            newcomer.begun += first
            try:
                preamble = parse_preamble(newcomer.begun)
            except FrameError as error:
                self._silent.discard(newcomer)
                self._refuse(newcomer.transport, str(error))
                return
            if preamble is None or len(newcomer.begun) == preamble.size:
                return  # more is to come
            first = newcomer.begun[preamble.size :]
            make_protocol = _made_for(make_protocol, preamble.source)
        self._silent.discard(newcomer)
        transport, early = newcomer.transport, newcomer.early
        newcomer.early = None
        if first[0] != TLS_RECORD and early is not None:
            transport.set_protocol(early)
            early.data_received(first)
            return
        if early is not None:
            early.connection_lost(None)
            self._events.opened -= 1  # it has never been one
            self._events.ended -= 1
        if self._is_over:
            transport.abort()
        elif first[0] == TLS_RECORD:
            self._begin_tls(transport, first, make_protocol)
        elif self._admission.takes_plain:
            protocol = make_protocol()
            transport.set_protocol(protocol)
            protocol.connection_made(transport)
            if not transport.is_closing():
                protocol.data_received(first)
        else:
            self._refuse(transport, "it does not speak TLS")

    def _begin_tls(self, transport: asyncio.Transport, hello: bytes, make_protocol: MakeProtocol) -> None:
        if self._admission.tls is None:
            self._refuse(transport, "it speaks TLS, which is disabled here")
            return
        if len(self._hellos) >= MOST_WAITING:
            self._refuse(transport, f"{MOST_WAITING} others wait to shake hands")
            return
        if len(hello) > MOST_HELLO_BYTES:
            self._refuse(transport, f"its TLS hello has {len(hello)} bytes, limit is {MOST_HELLO_BYTES}")
            return
        from .tls_transport import TlsTransport  # not before somebody speaks it

        tls = TlsTransport(transport, make_protocol, self._settle)
        transport.set_protocol(tls)
        transport.pause_reading()
        self._handshakes.add(tls)
        self._hellos.append((tls, hello))
        if not self._is_shaking:
            self._is_shaking = True
            self._tasks.start(self._shake_hands(self._admission.tls), "shake hands")

    async def _shake_hands(self, source: TlsSource) -> None:
        """Begin the handshakes that wait, one in a turn."""
        try:
            while self._hellos:
                await self._wait_for_room()
                tls, hello = self._hellos.popleft()
                try:
                    context = await source()
                    if not tls.is_closing():  # it may have been given up meanwhile
                        self._begun.add(tls)
                        tls.begin(context, hello)
                except ConfigError as error:
                    self._handshakes.discard(tls)
                    self._refuse(tls, str(error))
                except Exception:  # the fault boundary of a connection
                    _log.exception("a TLS handshake failed")
                    tls.abort()
                await asyncio.sleep(0)
        finally:
            self._is_shaking = False

    async def _wait_for_room(self) -> None:
        while len(self._begun) >= MOST_HANDSHAKES:
            left_ms = GRACE_MS - self._begun.waited_ms()
            if left_ms <= 0:
                self._begun.give_up_first()
                return
            self._has_room.clear()
            await wait_at_most(self._has_room, left_ms, self._clock)

    def _settle(self, tls: "TlsTransport", failure: str | None) -> None:
        """Take note that a handshake is over."""
        was_waited_for = self._handshakes.discard(tls)
        if self._begun.discard(tls):
            self._has_room.set()
        if failure is not None and was_waited_for and not self._is_over:
            self._complain(tls, failure)

    def _give_up(self, tls: "TlsTransport") -> None:
        self._handshakes.discard(tls)
        if self._begun.discard(tls):
            self._has_room.set()
        if not self._is_over:
            self._complain(tls, "the TLS handshake was not finished in time")
        tls.abort()

    def _refuse(self, transport: asyncio.Transport, reason: str) -> None:
        self._complain(transport, reason)
        transport.abort()

    def _complain(self, transport: asyncio.Transport, reason: str) -> None:
        if self._complaints.may_log():
            _log.warning("closing the connection from %s: %s", _peer_name(transport), reason)


class PortAcceptor:
    """Serves what a listening socket brings, from entering to leaving; it listens no more then, and is its opener's.

    ``make_protocol`` makes who serves a connection.
    """

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: MakeProtocol,
        admission: Admission,
        clock: Clock,
        first_kept: FirstKept,
    ) -> None:
        self._listener = listener
        self.entrance = Entrance(make_protocol, admission, clock, first_kept)
        self._server: asyncio.Server | None = None

    def __repr__(self) -> str:
        return f"<PortAcceptor, {self.entrance!r}>"

    async def __aenter__(self) -> Self:
        """Accept connections from now on."""
        await self.entrance.__aenter__()
        own = self._listener.dup()
        own.setblocking(False)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self.entrance.meet, sock=own, backlog=ACCEPTED_AT_ONCE)
        lengthen_backlog(self._server)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Accept no more, and send those away who are not served yet."""
        assert self._server is not None, "it was entered"
        with suppress(OSError):  # not every system can
            self._listener.shutdown(
                socket.SHUT_RDWR
            )  # else peers would be let in, and cut off when the last copy is closed
        self._server.close()
        await self.entrance.__aexit__()


def _is_proxy(newcomer: _Newcomer, proxies: Sequence[Network]) -> bool:
    return is_among(address_of(newcomer.transport.get_extra_info("peername"))[0], proxies)


class _TellsPeer(Protocol):
    """Who serves a connection, and tells others who is at the other end."""

    remote_address: Address


class _Relayed(asyncio.Protocol):
    """Introduces who serves a connection to the one for whom it is passed on, and steps aside."""

    def __init__(self, protocol: asyncio.Protocol, source: Address) -> None:
        self._protocol = protocol
        self._source = source

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(transport)
        cast("_TellsPeer", self._protocol).remote_address = self._source
        transport.set_protocol(self._protocol)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)


def _made_for(make_protocol: MakeProtocol, source: Address | None) -> MakeProtocol:
    """Return what makes who serves a connection that is passed on for somebody."""
    return make_protocol if source is None else lambda: _Relayed(make_protocol(), source)


def lengthen_backlog(server: asyncio.Server) -> None:
    """Let more connections wait to be accepted."""
    for own in server.sockets:
        with socket.socket(fileno=os.dup(own.fileno())) as same:
            same.listen(_BACKLOG)


def _dismiss_silent(newcomer: _Newcomer) -> None:
    _log.debug("closing the connection from %s: it was silent", _peer_name(newcomer.transport))
    newcomer.transport.abort()


def _peer_name(transport: asyncio.BaseTransport) -> str:
    address = address_of(transport.get_extra_info("peername"))
    return format_address(*address) if address[0] else "a peer that has gone"
