"""Replies: SEND_REPLY_MESSAGE(324) and SEND_REPLY_MESSAGE_V2(325) (``ReplyMessageProcessor``; spec behaviour.md B.13).

Rules

    1. A reply names its requester by a client id, in REPLY_TO_CLIENT. Topic and queue are checked as those of a send;
       what is refused is neither passed on nor stored.
    2. It is stored in its topic (``storeReplyMessageEnable``), whether it can be passed on or not.
    3. It is passed on to the producer with that client id (``requesters.py``), whose answer is awaited. Its sender is
       answered then: 0, or 1 and why it was not passed on; with the place of the stored reply.
    4. A reply that the store refuses, or that is not to be stored, has the message id "0"; that changes no code. One
       that the disk did not take in the end is answered as a send is.
    5. Nobody else waits. The waiting ends when the requester is gone, and when the sender is. A sender that wants no
       answer does not wait at all.
    6. The stored record keeps the bits that tell how its body is compressed. (Java drops them: nobody can read it.)

Java stores when the requester has answered; here a reply is written together with the sends of its read, so that only
an answer waits.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ...common.errors import MessageRefusedError, StoreError
from ...common.ids import encode_host
from ...common.properties import encode_properties, parse_properties
from ...common.record import NewRecord
from ...common.sysflag import COMPRESSED, COMPRESSION_MASK
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import ONEWAY, Command
from ...remoting.codec.failures import describe_request
from ...remoting.codec.later import Encoded, Later
from ...remoting.headers.send import SendHeader, decode_send_header
from ...remoting.transport.addresses import format_address
from ...remoting.transport.connection import Connection
from ...remoting.transport.service import Reply
from ...remoting.transport.tasks import TaskScope
from ...store.message_store import MessageStore
from ..delay.parking import Parking
from ..group.requesters import Recipient, Requesters
from ..topic.announcing import Announce
from .groupcommit import GroupCommit
from .sendanswers import Place, SendAnswers
from .sendgate import Refusal, SendGate

REPLY_CODES = frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
_COMPRESSION = COMPRESSED | COMPRESSION_MASK
_log = logging.getLogger(__name__)


class Owing(NamedTuple):
    """How answers are paid that wait: in tasks, and after a new topic has become known."""

    tasks: TaskScope
    announce: Announce


class ReplyKeeper:
    """Stores replies."""

    def __init__(
        self, store: MessageStore, parking: Parking, group: GroupCommit | None, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._parking = parking
        self._group = group
        self._now_ms = now_ms

    def keep(self, new: NewRecord, command: Command, property_text: str, peer: str) -> asyncio.Future[Place | None]:
        """Store a reply; the future holds its place, under SYNC_FLUSH once it is on disk, None if it is not stored.

        Raises:
            DecodeError: Its delay level is no number.
        """
        kept: asyncio.Future[Place | None] = asyncio.get_running_loop().create_future()
        try:
            stored = self._store.append(self._parking.place(new, self._now_ms()))
        except (StoreError, MessageRefusedError) as error:
            _log.info("not storing the reply of %s: %s", describe_request(command, peer), error)
            kept.set_result(None)
            return kept
        place, reply = Place(stored.log_offset, stored.queue_offset), Command.response(ResponseCode.SUCCESS)
        if self._group is not None and isinstance(self._group.hold(command, property_text, reply), Later):
            self._group.pay_last_by(partial(_settle, kept, place))
        else:
            kept.set_result(place)
        return kept


class _Passing(NamedTuple):
    """A reply on its way: to whom, by which request, and whether it is stored; None if replies are not."""

    recipient: Recipient
    push: Command
    queue_id: int
    kept: asyncio.Future[Place | None] | None


class ReplyHandler:
    """Takes replies; without a keeper they are passed on only."""

    def __init__(
        self,
        gate: SendGate,
        requesters: Requesters,
        keeper: ReplyKeeper | None,
        answers: SendAnswers,
        owing: Owing,
    ) -> None:
        self._gate = gate
        self._requesters = requesters
        self._keeper = keeper
        self._answers = answers
        self._tasks, self._announce = owing

    def reply(self, command: Command, connection: Connection) -> Reply:
        """Store a reply and pass it on."""
        header = decode_send_header(command)
        if not command.body:
            return self._answers.refused(ResponseCode.MESSAGE_ILLEGAL, "the message has no body")
        admission = self._gate.check(header, connection.remote_address)
        later = Later(command)
        pay = self._payment(later)
        if isinstance(admission, Refusal):
            pay(self._answers.refused(*admission))
            return later
        passing = self._store(header, command, connection, admission.queue_id)
        if command.flag & ONEWAY:
            self._requesters.bring_oneway(passing.recipient, passing.push)
            pay(self._answers.replied(passing.queue_id, None, None))
        else:
            later.on_drop(self._tasks.start(self._pass_on(passing, pay), "pass on a reply").cancel)
        return later

    def _payment(self, later: Later) -> Callable[[Command], None]:
        """Return what pays an answer: a topic that was created is made known before."""
        created, self._gate.created = self._gate.created, []
        return partial(self._announce, created, later) if created else later.answer

    def _store(self, header: SendHeader, command: Command, connection: Connection, queue_id: int) -> _Passing:
        text, (host, port) = header.properties or "", connection.remote_address
        properties = {**parse_properties(text), **self._answers.fields}
        recipient = self._requesters.find(properties)
        peer = format_address(host, port)
        push = self._requesters.wrap(recipient, header, command.body, peer)
        new = NewRecord(
            header.topic,
            queue_id,
            command.body,
            encode_properties(properties),
            recipient.properties,
            header.flag,
            header.sys_flag & _COMPRESSION,
            header.born_at_ms,
            encode_host(host, port),
            header.reconsume_times or 0,
        )
        kept = None if self._keeper is None else self._keeper.keep(new, command, text, peer)
        return _Passing(recipient, push, queue_id, kept)

    async def _pass_on(self, passing: _Passing, pay: Callable[[Command], None]) -> None:
        failure = await self._requesters.bring(passing.recipient, passing.push)
        place = None if passing.kept is None else await passing.kept
        pay(self._answers.replied(passing.queue_id, failure, place))


def _settle(kept: asyncio.Future[Place | None], place: Place, paid: Command | Encoded) -> None:
    """Tell what became of a reply that waited for the disk."""
    if not kept.done():
        is_lost = isinstance(paid, Command) and paid.code == ResponseCode.SERVICE_NOT_AVAILABLE
        kept.set_result(None if is_lost else place)
