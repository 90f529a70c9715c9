"""Serves gRPC over connections of HTTP/2: from requests to calls of methods, and from their ends to who must know.

    request   a stream of HTTP/2 whose headers name a method; its body is messages, its end the end of the request
    call      begins with the headers; ends by ``finish``, by its deadline, by its peer, by a fault, or by a stop

Rules
    1. A unary method is called when its request is complete, in the read that completed it: those of one read share
       what is done behind them (``end_turn``: one commit), and their answers go out together.
    2. What is kept of a request counts as held by its connection until its call is over, or, of a stream, until the
       message is complete; the windows of HTTP/2 follow.
    3. What a service raises ends its call as INTERNAL; the log says what it was.
    4. A deadline is watched when the call is not answered in the read that brought it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ...common.clock import Clock
from ...common.errors import GrpcMessageError
from ...common.ids import Address, format_address
from ..http2.events import (
    BodyReceived,
    ConnectionEnded,
    Http2Event,
    RequestReset,
    RequestStarted,
    TrailersReceived,
)
from ..http2.protocol import Http2Link
from .call import GrpcStatus, Methods, RequestStream, UnaryMethod
from .headers import NoCall, find_fault, parse_timeout
from .messages import ENCODINGS, MessageLimits, MessageReader, whole_message
from .server_call import ServerCall

_log = logging.getLogger(__name__)
_STOPPING = "the server is stopping"


class _Request(Protocol):
    """What comes of a request."""

    call: ServerCall
    waits_for_caller: bool

    def take(self, data: bytes) -> None:
        """Take a piece of its body."""
        ...

    def end(self) -> None:
        """Hear that it is complete."""
        ...


class _UnaryRequest:
    """Waits for one message, and calls the method."""

    __slots__ = ("_message", "_method", "_reader", "call", "waits_for_caller")

    def __init__(self, call: ServerCall, method: UnaryMethod, reader: MessageReader) -> None:
        self.call = call
        self.waits_for_caller = method.is_long_poll
        self._method = method
        self._reader = reader
        self._message: bytes | None = None

    def take(self, data: bytes) -> None:
        messages = self._reader.feed(data)
        if not messages:
            return
        if self._message is not None or len(messages) > 1:
            raise GrpcMessageError("the request is more than one message", GrpcStatus.INTERNAL)
        self._message = messages[0]

    def end(self) -> None:
        message, self._message = self._message, None
        if self._reader.pending_bytes:
            raise GrpcMessageError("the request ends within a message", GrpcStatus.INTERNAL)
        if message is None:
            raise GrpcMessageError("the request has no message", GrpcStatus.INTERNAL)
        self._method.serve(message, self.call)


class _WholeRequest:
    """Calls the method with the message that has come."""

    __slots__ = ("_message", "_method", "call", "waits_for_caller")

    def __init__(self, call: ServerCall, method: UnaryMethod, message: bytes) -> None:
        self.call = call
        self.waits_for_caller = method.is_long_poll
        self._method = method
        self._message = message

    def take(self, data: bytes) -> None:
        """Do nothing: the message is known."""

    def end(self) -> None:
        message, self._message = self._message, b""
        self._method.serve(message, self.call)


class _StreamRequest:
    """Hands each message on; what is handed on is not held any more."""

    __slots__ = ("_held_bytes", "_link", "_reader", "_receiver", "call", "waits_for_caller")

    def __init__(self, call: ServerCall, receiver: RequestStream, reader: MessageReader, link: Http2Link) -> None:
        self.call = call
        self.waits_for_caller = True
        self._receiver = receiver
        self._reader = reader
        self._link = link
        self._held_bytes = 0

    def take(self, data: bytes) -> None:
        messages = self._reader.feed(data)
        pending_bytes = self._reader.pending_bytes
        self._link.release(self.call.stream_id, self._held_bytes + len(data) - pending_bytes)
        self._held_bytes = pending_bytes
        for message in messages:
            if self.call.is_over:
                return
            self._receiver.received(message)

    def end(self) -> None:
        if self._reader.pending_bytes:
            raise GrpcMessageError("the request ends within a message", GrpcStatus.INTERNAL)
        self._receiver.ended()


class _RefusedRequest:
    """Waits for the end of what is no call, and says so then: a peer that still sends might read no answer."""

    __slots__ = ("_link", "_refusal", "call", "waits_for_caller")

    def __init__(self, call: ServerCall, refusal: NoCall, link: Http2Link) -> None:
        self.call = call
        self.waits_for_caller = False
        self._refusal = refusal
        self._link = link

    def take(self, data: bytes) -> None:
        self._link.release(self.call.stream_id, len(data))

    def end(self) -> None:
        self.call.refuse(self._refusal)


class GrpcService:
    """Serves methods on any number of connections; its ``serve`` and ``after_batch`` are those of an ``Http2Service``.

    ``end_turn`` is called when the calls of a read were made, before their answers are written; ``on_left`` with the
    address of each connection that has ended.
    """

    def __init__(
        self,
        methods: Methods,
        clock: Clock,
        limits: MessageLimits | None = None,
        end_turn: Callable[[], None] | None = None,
        on_left: Callable[[Address], None] | None = None,
    ) -> None:
        self._methods = {path.encode("latin-1"): method for path, method in methods.items()}
        self._clock = clock
        self._limits = limits or MessageLimits()
        self._end_turn = end_turn
        self._on_left = on_left
        self._requests: dict[Http2Link, dict[int, _Request]] = {}
        self._begun: list[_Request] = []  # in this read: most of them are answered before it ends

    def __repr__(self) -> str:
        return f"<GrpcService of {len(self._methods)} methods, {self.open_calls} calls open>"

    @property
    def open_calls(self) -> int:
        """How many calls are open."""
        return len(self._open_requests())

    def serve(self, event: Http2Event, link: Http2Link) -> None:
        """Take what a peer has done."""
        if type(event) is RequestStarted:
            self._begin(event, link)
            return
        if self._begun:
            self._keep_begun()
        if isinstance(event, BodyReceived):
            self._take_body(event, link)
        elif isinstance(event, TrailersReceived):
            if request := self._find(link, event.stream_id):
                self._hand_on(request, b"", ends=True)
        elif isinstance(event, RequestReset):
            if request := self._find(link, event.stream_id):
                request.call.cut()
        elif isinstance(event, ConnectionEnded):
            for request in tuple(self._requests.get(link, {}).values()):
                request.call.cut()
            if self._on_left is not None:
                self._on_left(link.remote_address)

    def after_batch(self) -> None:
        """Do what the calls of a read share; watch the deadlines of those that are not answered by then."""
        if self._end_turn is not None:
            self._end_turn()
        if self._begun:
            self._keep_begun()

    def _keep_begun(self) -> None:
        """Keep what has begun and is not over, and watch its deadline."""
        begun, self._begun = self._begun, []
        for request in begun:
            call = request.call
            if not call.is_over:
                call.on_end = self._forget
                self._requests.setdefault(call.link, {})[call.stream_id] = request
                call.watch_deadline()

    def stop(self) -> None:
        """End the calls that wait as long as their callers do; others go on."""
        for request in self._open_requests():
            if request.waits_for_caller:
                request.call.fail(GrpcStatus.UNAVAILABLE, _STOPPING)

    def end_all(self) -> None:
        """End every call."""
        for request in self._open_requests():
            request.call.fail(GrpcStatus.UNAVAILABLE, _STOPPING)

    def _open_requests(self) -> list[_Request]:
        self._keep_begun()
        return [request for requests in self._requests.values() for request in requests.values()]

    def _begin(self, event: RequestStarted, link: Http2Link) -> None:
        fields = event.fields
        call = ServerCall(event, link, self._clock)
        try:
            refusal = find_fault(fields)
            request = _RefusedRequest(call, refusal, link) if refusal else self._open(call, event, link)
        except GrpcMessageError as error:
            call.fail(GrpcStatus(error.status), str(error))
            return
        except Exception:  # the fault boundary of a call
            self._fail(call)
            return
        if call.is_over:
            return
        self._begun.append(request)
        if event.ends:
            body, event.body = event.body, b""  # the call keeps the event, and may wait for long
            self._hand_on(request, body, ends=True)

    def _open(self, call: ServerCall, event: RequestStarted, link: Http2Link) -> _Request:
        """Return what takes the request of a call.

        Raises:
            GrpcMessageError: it cannot be taken.
        """
        fields = event.fields
        path = fields[b":path"]
        method = self._methods.get(path)
        if method is None:
            raise GrpcMessageError(f"there is no method {path.decode('latin-1')}", GrpcStatus.UNIMPLEMENTED)
        encoding = fields.get(b"grpc-encoding", b"identity")
        if encoding not in ENCODINGS:
            text = f"messages are compressed by {encoding.decode('latin-1')!r}, which is not read"
            raise GrpcMessageError(text, GrpcStatus.UNIMPLEMENTED)
        if (text := fields.get(b"grpc-timeout")) is not None:
            call.limit(parse_timeout(text))
        if not isinstance(method, UnaryMethod):
            return _StreamRequest(call, method.open(call), MessageReader(self._limits, encoding), link)
        message = whole_message(event.body) if event.ends else None
        if message is not None and len(message) <= self._limits.max_message_bytes:
            event.body = b""  # the call keeps the event, and may wait for long
            return _WholeRequest(call, method, message)
        return _UnaryRequest(call, method, MessageReader(self._limits, encoding))

    def _take_body(self, event: BodyReceived, link: Http2Link) -> None:
        request = self._find(link, event.stream_id)
        if request is None:
            return  # HTTP/2 forgets what it holds with the stream
        self._hand_on(request, event.data, ends=event.ends)

    def _hand_on(self, request: _Request, data: bytes, *, ends: bool) -> None:
        try:
            if data:
                request.take(data)
            if ends and not request.call.is_over:
                request.end()
        except GrpcMessageError as error:
            request.call.fail(GrpcStatus(error.status), str(error))
        except Exception:  # the fault boundary of a call
            self._fail(request.call)

    def _fail(self, call: ServerCall) -> None:
        _log.exception("%s from %s failed", call.path, format_address(*call.remote_address))
        call.fail(GrpcStatus.INTERNAL, "the server failed; its log says why")

    def _find(self, link: Http2Link, stream_id: int) -> _Request | None:
        requests = self._requests.get(link)
        return None if requests is None else requests.get(stream_id)

    def _forget(self, call: ServerCall) -> None:
        requests = self._requests[call.link]
        del requests[call.stream_id]
        if not requests:
            del self._requests[call.link]
