"""The server's side of TLS over a connection that is open and has said its first words already.

    socket's transport  <->  TlsTransport  <->  who serves the connection, once the handshake is over

Rules
    1. No task, no timer: bytes come in, what the library makes of them goes on or out. Who bounds the handshake in time
       is the owner, by ``abort``.
    2. What is written is encrypted at once: what waits for the peer waits in the socket's transport, whose marks count.
    3. A handshake that fails sends the alert that says so, and ends the connection.
    4. The end of the peer's direction is the end of the connection, with or without its farewell: frames have lengths,
       so nothing that was cut off is taken for whole.

The loops' own servers cannot begin with bytes that were read before, and count the time of a handshake by themselves.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, cast

_READ_BYTES: Final = 1 << 14  # of one record, at most
_JOIN_BYTES: Final = 1 << 16
MakeProtocol = Callable[[], asyncio.Protocol]
Settled = Callable[["TlsTransport", str | None], object]
"""Told once when a handshake is over: None, or why it has failed."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """A transport for who serves a connection, and the protocol of the transport below."""

    def __init__(self, below: asyncio.Transport, make_protocol: MakeProtocol, settled: Settled) -> None:
        super().__init__()
        self._below = below
        self._make_protocol: MakeProtocol | None = make_protocol
        self._settled: Settled | None = settled
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._protocol: asyncio.Protocol | None = None
        self._is_closing = False
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        state = "waiting" if self._tls is None else "shaking hands" if self._protocol is None else "open"
        return f"<TlsTransport {state}>"

    def begin(self, context: ssl.SSLContext, hello: bytes) -> None:
        """Shake hands, beginning with what the peer has said."""
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._below.resume_reading()
        self.data_received(hello)

    # the protocol of the transport below

    def data_received(self, data: bytes) -> None:
        """Decrypt what came."""
        if self._tls is None or self._is_closing:
            return
        self._incoming.write(data)
        if self._protocol is None and not self._shake_hands(self._tls):
            return
        self._read(self._tls)

    def pause_writing(self) -> None:
        """Pass it on."""
        if self._protocol is not None:
            self._protocol.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        if self._protocol is not None:
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on to who serves it, or has waited for the handshake."""
        self._is_closing = True
        protocol, self._protocol = self._protocol, None
        self._make_protocol = None
        if protocol is not None:
            protocol.connection_lost(exc or self._failure)
        else:
            self._settle("the peer has gone before the TLS handshake was over" if exc is None else str(exc))

    # the transport of who serves it

    def write(self, data: Any) -> None:
        """Send bytes."""
        self._encrypt(data)
        self._flush()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Send several pieces, the small ones together."""
        small: list[Any] = []
        size = 0
        for piece in list_of_data:
            small.append(piece)
            size += len(piece)
            if size >= _JOIN_BYTES:
                self._encrypt(small[0] if len(small) == 1 else b"".join(small))
                small, size = [], 0
        if small:
            self._encrypt(b"".join(small))
        self._flush()

    def close(self) -> None:
        """Take leave, and close when all is sent."""
        if self._is_closing:
            return
        self._is_closing = True
        if self._tls is not None and self._protocol is not None:
            with suppress(ssl.SSLError):  # it would wait for the peer's farewell
                self._tls.unwrap()
            self._flush()
        self._below.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closing = True
        self._below.abort()

    def is_closing(self) -> bool:
        """Tell whether nothing more can be sent."""
        return self._is_closing or self._below.is_closing()

    def pause_reading(self) -> None:
        """Read no more from the peer."""
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        self._below.resume_reading()

    def is_reading(self) -> bool:
        """Tell whether the peer is read from."""
        return self._below.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks of what the peer leaves unread."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return them."""
        return self._below.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """Return how much the peer has not taken."""
        return self._below.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Tell that TLS ends in both directions at once."""
        return False

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return who serves the connection."""
        assert self._protocol is not None, "it is asked by who serves it"
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Have somebody else serve it."""
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        if name == "ssl_object":
            return self._tls
        return self._below.get_extra_info(name, default)

    # inside

    def _shake_hands(self, tls: ssl.SSLObject) -> bool:
        """Go on with the handshake; tell whether it is over."""
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, OSError) as error:
            self._flush()
            self._settle(_describe(error))
            self._is_closing = True
            self._below.close()
            return False
        self._flush()
        make_protocol, self._make_protocol = self._make_protocol, None
        self._settle(None)
        assert make_protocol is not None, "it is used up by the handshake"
        self._protocol = make_protocol()
        self._protocol.connection_made(self)
        return True

    def _read(self, tls: ssl.SSLObject) -> None:
        """Pass on what can be decrypted, all of it at once."""
        pieces: list[bytes] = []
        has_ended = False
        try:
            while self._incoming.pending or tls.pending():
                if piece := tls.read(_READ_BYTES):
                    pieces.append(piece)
                else:
                    has_ended = True
                    break
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            has_ended = True
        except ssl.SSLError as error:
            self._failure = error
            self._flush()
            self.abort()
            return
        if self._outgoing.pending:
            self._flush()  # a key was changed
        if pieces and self._protocol is not None and not self.is_closing():
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
        if has_ended and self._protocol is not None and not self._protocol.eof_received():
            self.close()

    def _encrypt(self, data: Any) -> None:
        if self._tls is None or self.is_closing() or not data:
            return
        left = memoryview(data)
        while left:
            left = left[self._tls.write(left) :]

    def _flush(self) -> None:
        if self._outgoing.pending and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _settle(self, failure: str | None) -> None:
        settled, self._settled = self._settled, None
        if settled is not None:
            settled(self, failure)


def _describe(error: OSError) -> str:
    reason = getattr(error, "reason", None)
    return f"the TLS handshake failed: {reason or error}"
