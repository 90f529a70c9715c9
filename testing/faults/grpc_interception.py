"""Stands before the methods of a gRPC port: notes what clients of RocketMQ 5 ask, and does to it what a test wants.

What they ask has the names of remoting, so that a fault of sends meets both protocols; the body of a request is its
message in protobuf, its fields are the headers of the call, and it is answered with a code of ``apache.rocketmq.v2``.
The telemetry stream passes as it is. ``Interception`` does the same for remoting.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError as ProtobufDecodeError

from ...broker.settings.refusal import Refusal
from ...common.clock import Clock
from ...common.ids import Address, format_address
from ...proxy.messages import v2
from ...proxy.messages.enums import Code
from ...proxy.messages.statuses import refused, status
from ...proxy.rpc.call import Call, GrpcStatus, Methods, StreamMethod, UnaryMethod
from ...proxy.services.calling import SERVICE, caller_of
from ...remoting.codec.request_codes import RequestCode
from ..views.client_requests import (
    ANSWER_LOST,
    CLOSED,
    CUT_OFF,
    DROPPED,
    NO_ANSWER_YET,
    ClientLink,
    Named,
    RecordedRequest,
    RequestLog,
)
from .request_faults import Fault, FaultBook, FaultRule

Work = Callable[[], object]
_CODES: Final = frozenset(Code)
_log = logging.getLogger(__name__)


class _Asked(NamedTuple):
    """What a method is asked and answers, and what remoting calls it."""

    code: RequestCode
    request: Any
    answer: Any


_ASKED: Final[Mapping[str, _Asked]] = {
    SERVICE + name: _Asked(code, getattr(v2, f"{name}Request"), getattr(v2, f"{name}Response"))
    for name, code in {
        "QueryRoute": RequestCode.GET_ROUTEINFO_BY_TOPIC,
        "QueryAssignment": RequestCode.QUERY_ASSIGNMENT,
        "Heartbeat": RequestCode.HEART_BEAT,
        "NotifyClientTermination": RequestCode.UNREGISTER_CLIENT,
        "SendMessage": RequestCode.SEND_MESSAGE_V2,
        "RecallMessage": RequestCode.RECALL_MESSAGE,
        "EndTransaction": RequestCode.END_TRANSACTION,
        "ReceiveMessage": RequestCode.POP_MESSAGE,
        "AckMessage": RequestCode.ACK_MESSAGE,
        "ChangeInvisibleDuration": RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        "ForwardMessageToDeadLetterQueue": RequestCode.CONSUMER_SEND_MSG_BACK,
    }.items()
}


class _NotedCall:
    """A call whose answer is noted, and does not leave when it ``is_lost``."""

    def __init__(self, call: Call, request: RecordedRequest, asked: _Asked) -> None:
        self._call = call
        self._request = request
        self._asked = asked
        self.is_lost = False
        call.on_over(self._give_up)

    def __repr__(self) -> str:
        return f"<_NotedCall {self._call!r}>"

    @property
    def metadata(self) -> Mapping[str, str]:
        return self._call.metadata

    def values(self, names: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return self._call.values(names)

    @property
    def remote_address(self) -> Address:
        return self._call.remote_address

    @property
    def is_over(self) -> bool:
        return self._call.is_over

    def remaining_ms(self) -> int | None:
        return self._call.remaining_ms()

    def answer(self, *messages: bytes) -> None:
        for message in messages:
            self._note(message)
        if not self.is_lost:
            self._call.answer(*messages)

    def send(self, message: bytes) -> None:
        self._note(message)
        if not self.is_lost:
            self._call.send(message)

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        if status is not GrpcStatus.OK:
            self._request.take_code(status, text or None)
        if not self.is_lost:
            self._call.finish(status, text)

    def hang_up(self) -> None:
        self._call.hang_up()

    def on_over(self, tell: Callable[[], None]) -> None:
        self._call.on_over(tell)

    def refuse(self, code: int, remark: str | None) -> None:
        """Answer with a code of the protocol, or what one of remoting is there."""
        told = status(Code(code), remark or "") if code in _CODES else refused(Refusal(code, remark))
        self.answer(self._asked.answer(status=told).SerializeToString())

    def _note(self, message: bytes) -> None:
        answer = self._asked.answer.FromString(message)
        if answer.HasField("status"):
            self._request.take_code(Code(answer.status.code), answer.status.message or None)

    def _give_up(self) -> None:
        if self._request.state == NO_ANSWER_YET:
            self._request.give_up(CUT_OFF)


class GrpcInterception:
    """What stands before one port; lives on the broker's loop. ``end_turn`` is called behind what is served late."""

    def __init__(
        self, server: str, faults: FaultBook, log: RequestLog, clock: Clock, end_turn: Callable[[], None]
    ) -> None:
        self._server = server
        self._faults = faults
        self._log = log
        self._clock = clock
        self._end_turn = end_turn

    def __repr__(self) -> str:
        return f"<GrpcInterception of {self._server}>"

    def around(self, methods: Methods) -> Methods:
        """Return methods that pass through here."""
        return {path: self._wrap(path, method) for path, method in methods.items()}

    def _wrap(self, path: str, method: UnaryMethod | StreamMethod) -> UnaryMethod | StreamMethod:
        asked = _ASKED.get(path)
        if asked is None or isinstance(method, StreamMethod):
            return method
        return method._replace(serve=partial(self._serve, asked, method.serve))

    def _serve(self, asked: _Asked, serve: Callable[[bytes, Call], None], data: bytes, call: Call) -> None:
        request = self._record(asked, data, call)
        self._log.add(request)
        noted = _NotedCall(call, request, asked)
        fault = self._faults.meet(request)
        if fault is None:
            serve(data, noted)
            return
        work = partial(self._do, fault.rule, noted, request, partial(serve, data, noted))
        if not fault.rule.delay_ms:
            work()
        else:
            self._clock.call_at(self._clock.monotonic_ms() + fault.rule.delay_ms, partial(self._do_late, noted, work))

    def _record(self, asked: _Asked, data: bytes, call: Call) -> RecordedRequest:
        link = ClientLink(format_address(*call.remote_address))
        try:
            named = _name_parties(asked.request.FromString(data), caller_of(call).client_id)
        except ProtobufDecodeError:
            named = Named((), (), caller_of(call).client_id or None)
        return RecordedRequest(asked.code, self._server, link, named, call.metadata, data, self._clock.now_ms())

    def _do(self, rule: FaultRule, call: _NotedCall, request: RecordedRequest, serve: Work) -> None:
        answer = rule.answer
        if answer is Fault.DROP:
            request.give_up(DROPPED)
        elif answer is Fault.CLOSE:
            request.give_up(CLOSED)
            asyncio.get_running_loop().call_soon(call.hang_up)  # behind the answers of the read
        elif answer is Fault.LOSE_ANSWER:
            request.give_up(ANSWER_LOST)
            call.is_lost = True
            serve()
        elif answer is None:
            serve()
        else:
            call.refuse(answer, rule.remark)

    def _do_late(self, call: _NotedCall, work: Work) -> None:
        """Serve outside of a read, as if one had brought the request."""
        if call.is_over:
            return  # its caller has gone, or the port
        try:
            work()
        except Exception:  # the fault boundary of a call
            _log.exception("a request of %s that was served late failed", format_address(*call.remote_address))
            call.finish(GrpcStatus.INTERNAL, "the server failed; its log says why")
        self._end_turn()


def _name_parties(request: Any, client_id: str) -> Named:
    """Return whom and what a request names."""
    holders = list(getattr(request, "messages", ())) or [getattr(request, "message_queue", request)]
    topics: list[str] = [holder.topic.name for holder in holders if hasattr(holder, "topic")]
    group = request.group.name if hasattr(request, "group") else ""
    return Named(tuple(dict.fromkeys(topic for topic in topics if topic)), (group,) if group else (), client_id or None)
