"""Replies: SEND_REPLY_MESSAGE(324) and SEND_REPLY_MESSAGE_V2(325) (``ReplyMessageProcessor``; spec behaviour.md B.13).

Rules

    1. A reply names its requester by a client id, in REPLY_TO_CLIENT. Topic and queue are checked as those of a send;
       what is refused is neither passed on nor stored.
    2. It is stored in its topic (``storeReplyMessageEnable``), whether it can be passed on or not.
    3. It is passed on to the producer with that client id (326), whose answer is awaited. Its sender is answered then:
       0, or 1 and why it was not passed on; with the place of the stored reply.
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
from typing import Any, NamedTuple, Protocol

from msgspec import Struct

from ...common.codes import ResponseCode
from ...common.errors import MessageRefusedError, StoreError
from ...common.ids import encode_host, format_address
from ...common.message import COMPRESSED, COMPRESSION_MASK
from ...common.outcome import Outcome
from ...common.properties import REPLY_TO_CLIENT, encode_properties, parse_properties
from ...common.record import NewRecord
from ...remoting.transport.event_loop import TaskScope
from ...store.consumequeue.appended import Appended
from ..delay.delayed_messages import DelayRouting
from ..outcomes.group_commit import wants_to_wait
from ..outcomes.scheduler import Scheduler
from ..settings.live import LiveSettings
from ..settings.refusal import Refusal
from .send import Sender, SendRequest, SendValidator

_COMPRESSION = COMPRESSED | COMPRESSION_MASK
_log = logging.getLogger(__name__)


class ReplySent(NamedTuple):
    """What became of a reply: why it was not passed on, if it was not, and where it lies, if it was stored."""

    queue_id: int
    failure: str | None
    stored: Appended | None


class ReplyRequest(SendRequest, Protocol):
    """A reply without its body, as its sender describes it."""

    producer_group: str
    unit_mode: bool | None


class ReplyPush(Protocol):
    """A reply that is ready for its requester; its properties say when it was made so."""

    @property
    def properties(self) -> dict[str, str]:
        """The properties that the requester gets."""
        ...

    def send_oneway(self) -> None:
        """Hand the reply over without asking whether it is taken."""
        ...

    async def send(self) -> bool:
        """Hand the reply over; tell whether it was taken."""
        ...


PreparePush = Callable[[str, ReplyRequest, bytes, dict[str, str], str], ReplyPush | None]
"""Makes a reply ready for the producer with a client id, None if it is not connected; last, the sender's address."""


class _Passing(NamedTuple):
    """A reply on its way: why it will not get there, if so, and what comes of storing it; None if it is not stored."""

    push: ReplyPush | None
    failure: str
    queue_id: int
    sender: str
    kept: Outcome[Appended] | None


class ReplyOperation(Struct, frozen=True):
    """Takes replies, which are passed on, and stored if the settings say so.

    ``fields`` gives the properties that all of them get.
    """

    validator: SendValidator
    prepare_push: PreparePush
    routing: DelayRouting
    scheduler: Scheduler
    tasks: TaskScope
    settings: LiveSettings
    fields: Callable[[], dict[str, str]]

    def reply(self, message: ReplyRequest, body: bytes, sender: Sender) -> Outcome[ReplySent | Refusal]:
        """Store a reply and pass it on."""
        if not body:
            return Outcome(Refusal(ResponseCode.MESSAGE_ILLEGAL, "the message has no body"), is_settled=True)
        admission = self.validator.validate_reply(message, sender.address)
        if isinstance(admission, Refusal):
            return self.scheduler.when_known(admission, admission.new_topics)
        properties, address = (
            {**parse_properties(message.properties or ""), **self.fields()},
            format_address(*sender.address),
        )
        push, failure = self._prepare(message, body, properties, address)
        kept = None
        if self.settings.config.stores_replies:
            new = _new_record(message, body, sender, admission.queue_id, properties)
            if push is not None:
                new.parsed = push.properties
            kept = self._keep(new, sender, waits=sender.waits and wants_to_wait(message.properties or ""))
        if not sender.waits:
            if push is not None:
                push.send_oneway()
            return self.scheduler.when_known(ReplySent(admission.queue_id, None, None), admission.new_topics)
        outcome: Outcome[ReplySent | Refusal] = Outcome(new_topics=admission.new_topics)
        passing = self._pass_on(_Passing(push, failure, admission.queue_id, address, kept), outcome)
        outcome.on_drop = self.tasks.start(passing, "pass on a reply").cancel
        return outcome

    def _prepare(
        self, message: ReplyRequest, body: bytes, properties: dict[str, str], sender: str
    ) -> tuple[ReplyPush | None, str]:
        """Return a reply that is ready for its requester, and what its sender is told if it does not get there."""
        client_id = properties.get(REPLY_TO_CLIENT)
        if client_id is None:
            return None, f"reply message properties[{REPLY_TO_CLIENT}] is null"
        push = self.prepare_push(client_id, message, body, properties, sender)
        if push is None:
            return None, f"push reply message fail, channel of <{client_id}> not found."
        return push, f"push reply message to {client_id}fail."

    def _keep(self, new: NewRecord, sender: Sender, *, waits: bool) -> Outcome[Appended] | None:
        """Store a reply; return what comes of that, None if it is not stored.

        Raises:
            DecodeError: Its delay level is no number.
        """
        try:
            kept = self.scheduler.append(self.routing.place(new))
        except (StoreError, MessageRefusedError) as error:
            _log.info("not storing the reply of %s to topic %s: %s", format_address(*sender.address), new.topic, error)
            return None
        kept.waits_for_store = waits
        return kept

    async def _pass_on(self, passing: _Passing, outcome: Outcome[ReplySent | Refusal]) -> None:
        kept = passing.kept
        if kept is not None and kept.failure is not None:  # the commit of its turn has failed
            _log.warning("rejecting the reply of %s, not stored: %s", passing.sender, kept.failure)
            outcome.failure = kept.failure
            self.scheduler.settle(outcome)
        is_taken = passing.push is not None and await passing.push.send()
        if kept is not None:
            await _wait_settled(kept)
        if not outcome.is_settled:
            is_stored = kept is not None and kept.failure is None
            outcome.answer = ReplySent(
                passing.queue_id, None if is_taken else passing.failure, kept.answer if kept and is_stored else None
            )
            self.scheduler.settle(outcome)


def _new_record(
    message: ReplyRequest, body: bytes, sender: Sender, queue_id: int, properties: dict[str, str]
) -> NewRecord:
    return NewRecord(
        message.topic,
        queue_id,
        body,
        encode_properties(properties),
        properties,
        message.flag,
        message.sys_flag & _COMPRESSION,
        message.born_at_ms,
        encode_host(*sender.address),
        message.reconsume_times or 0,
    )


async def _wait_settled(outcome: Outcome[Any]) -> None:
    if not outcome.is_settled:
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        outcome.on_settled = lambda _: None if settled.done() else settled.set_result(None)
        await settled
