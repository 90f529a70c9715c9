"""Who calls, and whether they may: the same users and policies as over remoting (grpc.md §1.4, security.md §7).

    authorization: MQv2-HMAC-SHA1 Credential=<user>[/…], SignedHeaders=x-mq-date-time, Signature=<hex>

The signature is HMAC-SHA1 of the bytes of the header ``x-mq-date-time`` with the user's password, in hex digits of
either case. The time is not looked at: clients put a Z behind their local time.

    call                                                        needs
    SendMessage, RecallMessage, EndTransaction                  the topic: Pub; a retry topic the group: Pub
    ReceiveMessage, AckMessage, QueryAssignment                 the group: Sub, and the topic: Sub
    ForwardMessageToDeadLetterQueue, ChangeInvisibleDuration    the same; upstream wants the group alone for the latter
    Heartbeat, NotifyClientTermination                          the group: Sub; producers nothing
    QueryRoute                                                  the topic: Pub or Sub
    Telemetry, settings                                         each topic published: Pub; the group and each topic: Sub

Who may not is answered UNAUTHORIZED, in the usual answer. White lists name calls by their messages, as in
``apache.rocketmq.v2.SendMessageRequest``.

A client belongs to the user who has signed the first call in its name: while it lives, calls in its name that another
user has signed, or nobody, are answered FORBIDDEN. (Upstream takes a client id as whoever says it means it: to end
another's client, to keep it alive, to hear what it is asked.)
"""

from __future__ import annotations

import logging
from binascii import b2a_base64, unhexlify
from collections.abc import Callable, Iterable
from typing import Any, Final

from google.protobuf.message import Message

from ...broker.security.access import Access, AccessRefusedError
from ...broker.security.decision import Need
from ...broker.security.needs import group_need, topic_need
from ...common.access import Action
from ...common.clock import Clock
from ...common.ids import Address, format_address
from ...common.signing import SigningKey
from ...remoting.transport.limits import LogRateLimiter
from ..messages import v2
from ..messages.enums import Code
from ..messages.statuses import status
from ..rpc.call import Call
from .calling import Caller, admit_anybody
from .clients import ClientRegistry

_log = logging.getLogger(__name__)
AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
WRONG_HEADER: Final = "authentication header is incorrect."
NO_DATE: Final = "datetime is null."
ANOTHER_USERS: Final = "client {} is another user's, who has signed its calls so far"
Needs = Iterable[Need]
FindNeeds = Callable[[Any], Needs]


class CallGuard:
    """Checks calls before they are served."""

    def __init__(self, access: Access, clients: ClientRegistry, clock: Clock) -> None:
        self._access = access
        self._clients = clients
        self._refusals = LogRateLimiter(clock, "calls refused to users")
        self._needs = _STRICT_NEEDS if access.is_strict else _UPSTREAM_NEEDS

    def __repr__(self) -> str:
        return f"<CallGuard {self._access!r}>"

    def admit(self, request: Message, call: Call) -> Caller | v2.Status:
        """Return who calls, or what a caller is told who may not do what a request asks for, or not as that client."""
        metadata = call.metadata
        header, date = metadata.get(AUTHORIZATION, ""), metadata.get(DATE_TIME, "")
        words = _read_header(header)
        if header and (words is None or not date):
            return status(Code.UNAUTHORIZED, WRONG_HEADER if words is None else NO_DATE)
        name, signature = words or ("", b"")
        kind, access, address = request.DESCRIPTOR.full_name, self._access, call.remote_address

        def fits(key: SigningKey) -> bool:
            return key.fits(signature, date.encode())

        try:
            user = access.identify(name, fits, address, is_open=access.is_open(kind))
            if not access.is_free(kind):
                access.authorize(user, self._needs[kind](request), address[0])
        except AccessRefusedError as refused:
            return self._refuse(Code.UNAUTHORIZED, refused.remark, kind, address)
        caller = admit_anybody(request, call)
        if not isinstance(caller, Caller):
            return caller
        owner = self._clients.owner_of(caller.client_id)
        if owner is not None and owner != user:
            return self._refuse(Code.FORBIDDEN, ANOTHER_USERS.format(caller.client_id), kind, address)
        return caller._replace(user=user)

    def _refuse(self, code: Code, remark: str, kind: str, address: Address) -> v2.Status:
        if self._refusals.may_log():
            _log.warning("refusing %s from %s: %.300r", kind, format_address(*address), remark)
        return status(code, remark)


def _read_header(text: str) -> tuple[str, bytes] | None:
    """Return the name that a header holds, and the signature as a key makes it; None if it is none."""
    _, blank, rest = text.partition(" ")
    words: dict[str, str] = {}
    for part in rest.split(","):
        key, equal, value = part.strip().partition("=")
        if not equal:
            return None
        words[key] = value
    name = words.get("Credential", "").partition("/")[0]
    try:
        signature = b2a_base64(unhexlify(words.get("Signature", "")), newline=False)
    except ValueError:
        signature = b""  # is nobody's
    return (name, signature) if blank else None


def _published(request: Any) -> Needs:
    yield topic_need(request.topic.name, Action.PUB)


def _sent(request: v2.SendMessageRequest) -> Needs:
    for topic in dict.fromkeys(message.topic.name for message in request.messages):
        yield topic_need(topic, Action.PUB)


def _consumed(request: Any) -> Needs:
    yield group_need(request.group.name, Action.SUB)
    yield topic_need(request.topic.name, Action.SUB)


def _received(request: v2.ReceiveMessageRequest) -> Needs:
    yield group_need(request.group.name, Action.SUB)
    yield topic_need(request.message_queue.topic.name, Action.SUB)


def _of_group(request: Any) -> Needs:
    yield group_need(request.group.name, Action.SUB)


def _member(request: v2.HeartbeatRequest | v2.NotifyClientTerminationRequest) -> Needs:
    if request.group.name:
        yield group_need(request.group.name, Action.SUB)


def _route(request: v2.QueryRouteRequest) -> Needs:
    yield topic_need(request.topic.name, Action.PUB, Action.SUB)


def _told(request: v2.TelemetryCommand) -> Needs:
    kind = request.settings.WhichOneof("pub_sub")
    if kind == "publishing":
        for topic in request.settings.publishing.topics:
            yield topic_need(topic.name, Action.PUB)
    elif kind == "subscription":
        yield group_need(request.settings.subscription.group.name, Action.SUB)
        for entry in request.settings.subscription.subscriptions:
            yield topic_need(entry.topic.name, Action.SUB)


def _nothing(_request: Message) -> Needs:
    return ()


def _by_name(*rows: tuple[type[Message], FindNeeds]) -> dict[str, FindNeeds]:
    return {kind.DESCRIPTOR.full_name: find for kind, find in rows}


_STRICT_NEEDS: Final = _by_name(
    (v2.SendMessageRequest, _sent),
    (v2.RecallMessageRequest, _published),
    (v2.EndTransactionRequest, _published),
    (v2.ReceiveMessageRequest, _received),
    (v2.AckMessageRequest, _consumed),
    (v2.ChangeInvisibleDurationRequest, _consumed),
    (v2.ForwardMessageToDeadLetterQueueRequest, _consumed),
    (v2.QueryAssignmentRequest, _consumed),
    (v2.HeartbeatRequest, _member),
    (v2.NotifyClientTerminationRequest, _member),
    (v2.QueryRouteRequest, _route),
    (v2.TelemetryCommand, _told),
    (v2.SyncLiteSubscriptionRequest, _nothing),
)
_UPSTREAM_NEEDS: Final = _STRICT_NEEDS | _by_name((v2.ChangeInvisibleDurationRequest, _of_group))
