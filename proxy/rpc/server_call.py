"""The answering side of one call, on a stream of HTTP/2."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from ...common.clock import Clock, TimerHandle
from ...common.ids import Address
from ..http2.events import RequestStarted
from ..http2.headers import encode_headers
from ..http2.protocol import Http2Link
from .call import GrpcStatus
from .headers import ANSWER, OK_TRAILERS, CallMetadata, NoCall, status_trailers
from .messages import encode_message, encode_messages

_HEAD: Final = encode_headers(ANSWER)
_OK_TAIL: Final = encode_headers(OK_TRAILERS)
_log = logging.getLogger(__name__)


class ServerCall(Struct, eq=False):
    """One call, hashable by identity; see ``Call``.

    ``on_end`` hears of its end, however it ends, before others do.
    """

    _request: RequestStarted
    _link: Http2Link
    _clock: Clock
    on_end: Callable[[ServerCall], object] | None = None
    is_over: bool = False
    _metadata: CallMetadata | None = None
    _has_answered: bool = False
    _on_over: list[Callable[[], None]] | None = None
    _deadline_at_ms: int | None = None
    _timer: TimerHandle | None = None
    _was_cut: bool = False
    """Whether it ended without ``finish``."""

    def __repr__(self) -> str:
        return f"<ServerCall {self.path} from {self._link.peer}, {'over' if self.is_over else 'open'}>"

    # for services

    @property
    def metadata(self) -> Mapping[str, str]:
        """The headers of the caller, without those of HTTP/2."""
        if self._metadata is None:
            self._metadata = CallMetadata(self._request)
        return self._metadata

    def values(self, names: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return some headers as they came, empty where there is none; of one that came twice, the last."""
        find = self._request.fields.get
        return tuple([find(name, b"") for name in names])

    @property
    def remote_address(self) -> Address:
        """Whose call it is."""
        return self._link.remote_address

    def remaining_ms(self) -> int | None:
        """Return how long the caller still waits; None if it has not said."""
        if self._deadline_at_ms is None:
            return None
        return max(0, self._deadline_at_ms - self._clock.monotonic_ms())

    def answer(self, *messages: bytes) -> None:
        """Send all messages of the answer, and end it well."""
        if self.is_over:
            return
        self._end()
        body = encode_message(messages[0]) if len(messages) == 1 else encode_messages(messages)
        self._link.send_answer(self._request.stream_id, _HEAD, body, _OK_TAIL)

    def send(self, message: bytes) -> None:
        """Send a message of the answer."""
        if self.is_over:
            return
        if not self._has_answered:
            self._has_answered = True
            self._link.send_headers(self._request.stream_id, ANSWER)
        self._link.send_body(self._request.stream_id, encode_message(message))

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """End the answer."""
        if self.is_over:
            return
        self._end()
        trailers = status_trailers(status, text) if status or text else OK_TRAILERS
        headers = trailers if self._has_answered else ANSWER + trailers
        self._link.send_headers(self._request.stream_id, headers, ends=True)

    def on_over(self, tell: Callable[[], None]) -> None:
        """Have it told, once, that the call ended without ``finish``; at once if it has."""
        if self._was_cut:
            tell()
        elif not self.is_over:
            if self._on_over is None:
                self._on_over = []
            self._on_over.append(tell)

    def hang_up(self) -> None:
        """Close the connection of the caller at once, with all its calls."""
        self._link.abort()

    # for who has brought the request

    @property
    def path(self) -> str:
        """What is called."""
        return self._request.fields[b":path"].decode("latin-1")

    @property
    def link(self) -> Http2Link:
        """The connection of its caller."""
        return self._link

    @property
    def stream_id(self) -> int:
        """Its stream on its connection."""
        return self._request.stream_id

    def limit(self, timeout_ms: int | None) -> None:
        """Say how long the caller waits, from when it was read on; None is without end."""
        self._deadline_at_ms = None if timeout_ms is None else self._link.read_at_ms + timeout_ms

    def watch_deadline(self) -> None:
        """End the call when its caller waits no longer: nearly all are answered before anybody looks."""
        if not self.is_over and self._deadline_at_ms is not None:
            self._timer = self._clock.call_at(self._deadline_at_ms, self._expire)

    def fail(self, status: GrpcStatus, text: str) -> None:
        """End the call instead of its service."""
        if not self.is_over:
            cut = self._on_over
            self.finish(status, text)
            self._tell(cut)

    def refuse(self, refusal: NoCall) -> None:
        """Answer what is no call, without a body where the method is HEAD."""
        if self.is_over:
            return
        self._end()
        has_body = self._request.fields[b":method"] != b"HEAD"
        self._link.send_headers(self._request.stream_id, refusal.headers(), ends=not has_body)
        if has_body:
            self._link.send_body(self._request.stream_id, refusal.body(), ends=True)

    def cut(self) -> None:
        """Take in that nobody can be answered any more."""
        if not self.is_over:
            cut = self._on_over
            self._end()
            self._tell(cut)

    def _end(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._on_over = None
        if self.on_end is not None:
            self.on_end(self)

    def _tell(self, cut: list[Callable[[], None]] | None) -> None:
        self._was_cut = True
        for tell in cut or ():
            try:
                tell()
            except Exception:  # the fault boundary of a call
                _log.exception("giving back what %s from %s held failed", self.path, self._link.peer)

    def _expire(self) -> None:
        self.fail(GrpcStatus.DEADLINE_EXCEEDED, "the deadline of the call has passed")
