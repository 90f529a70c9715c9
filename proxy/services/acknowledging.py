"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue: what becomes of messages in hand.

Rules (``AckMessageActivity``, ``ChangeInvisibleDurationActivity``, ``ForwardMessageToDLQActivity``; grpc.md §2.8)

    1. A handle that is over, of no message or no handle at all is INVALID_RECEIPT_HANDLE: of all codes the one on
       which clients give up. (Upstream answers most of these with 50001, and is asked again each second, for ever.)
    2. What is acknowledged already is so again: an answer may have been lost.
    3. Each answer to a change has a handle, the old one where nothing has changed: clients take it before they look at
       the status.
    4. A message goes to the dead letters by its place in its queue. Again, nothing happens.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ...broker.operations import BrokerOperations
from ...broker.pop.acks import Changed, HandleState
from ...broker.pop.handing_out import ORDERED
from ...broker.settings.refusal import Refusal
from ...common.outcome import Outcome
from ...remoting.headers.pop import AckHeader
from ..http2.compiled import codecs
from ..messages import v2
from ..messages.brief import encode_acknowledged
from ..messages.enums import Code
from ..messages.names import group_fault, is_usable_group, is_usable_topic, topic_fault
from ..messages.statuses import OK, common_status, refused, status
from ..rpc.call import Call
from .calling import Caller, answer, caller_of, unary, when_all, when_settled
from .handles import Handle, ack_of, read_handle
from .receiving import MOST_INVISIBLE_MS
from .sending import failed

_WORTHLESS: Final = {
    HandleState.OVER: "receipt handle is expired",
    HandleState.NOTHING: "receipt handle speaks of no message that was handed out",
}


class AckService:
    """Ends leases, or gives them another time."""

    def __init__(self, operations: BrokerOperations, hear: Callable[[Caller], object]) -> None:
        self._operations = operations
        self._hear = hear
        self._serve = unary(v2.AckMessageRequest, v2.AckMessageResponse, self.acknowledge).serve

    def __repr__(self) -> str:
        return f"<AckService of {self._operations.settings.config.broker_name}>"

    def serve(self, data: bytes, call: Call) -> None:
        """Answer a request to be done with messages."""
        plain = None if codecs is None else codecs.read_ack(data)
        if plain is None or not self._end_plain(plain, call):
            self._serve(data, call)

    def _end_plain(self, plain: tuple[str, str, str, str], call: Call) -> bool:
        """Be done with one message; False when something about it asks for the way of all others."""
        group, topic, message_id, handle = plain
        caller = caller_of(call)
        if not caller.client_id or not is_usable_topic(topic) or not is_usable_group(group):
            return False
        self._hear(caller)
        end = self._end(handle, topic, group, call)
        if isinstance(end, Outcome) and not end.is_settled:
            end.on_settled = partial(_answer_plain, call, message_id, handle)
        else:
            _answer_plain(call, message_id, handle, end)
        return True

    def acknowledge(self, request: v2.AckMessageRequest, caller: Caller, call: Call) -> None:
        """Be done with messages."""
        self._hear(caller)
        fault = topic_fault(request.topic) or group_fault(request.group)
        if fault is None and not request.entries:
            fault = status(Code.BAD_REQUEST, "no message is acknowledged")
        if fault is not None:
            answer(call, v2.AckMessageResponse(status=fault))
            return
        topic, group = request.topic.name, request.group.name
        ends = [self._end(entry.receipt_handle, topic, group, call) for entry in request.entries]
        waiting = [end for end in ends if isinstance(end, Outcome)]
        when_all(waiting, partial(self._answer_acks, request, call, ends))

    def _end(self, text: str, topic: str, group: str, call: Call) -> HandleState | Outcome[Refusal | None]:
        ack = ack_of(text, topic, group)
        if ack is None:
            return HandleState.NOTHING
        return self._operations.pop().acks.acknowledge_running(ack, call.remote_address)

    def _answer_acks(
        self, request: v2.AckMessageRequest, call: Call, ends: Sequence[HandleState | Outcome[Refusal | None]]
    ) -> None:
        statuses = [_status_of(end) for end in ends]
        entries = [
            v2.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=each)
            for entry, each in zip(request.entries, statuses, strict=True)
        ]
        answer(call, v2.AckMessageResponse(status=common_status(statuses), entries=entries))

    def change(self, request: v2.ChangeInvisibleDurationRequest, call: Call) -> None:
        """Have a message come again at another time."""
        old = request.receipt_handle
        invisible_ms = request.invisible_duration.ToMilliseconds()
        fault = topic_fault(request.topic) or group_fault(request.group)
        if fault is None and not 0 <= invisible_ms <= MOST_INVISIBLE_MS:
            text = f"invisible_duration is {invisible_ms} ms, not 0 to {MOST_INVISIBLE_MS}"
            fault = status(Code.ILLEGAL_INVISIBLE_TIME, text)
        ack = ack_of(old, request.topic.name, request.group.name)
        state = self._state(ack)
        if fault is None and state is not HandleState.RUNNING:
            fault = _worthless(HandleState.OVER if state is HandleState.DONE else state)
        handle = read_handle(old)
        if fault is not None or ack is None or handle is None:
            answer(call, v2.ChangeInvisibleDurationResponse(status=fault, receipt_handle=old))
            return
        outcome = self._operations.pop().acks.change(ack, invisible_ms, call.remote_address)
        when_settled(outcome, partial(self._answer_change, call, old, handle))

    def _answer_change(self, call: Call, old: str, handle: Handle, outcome: Outcome[Refusal | Changed | None]) -> None:
        changed, new = outcome.answer, old
        if isinstance(changed, Changed) and changed.has_effect:
            said, new = OK, _renewed(handle, changed).text()
        elif isinstance(changed, Changed):
            said = _worthless(HandleState.OVER)
        elif isinstance(changed, Refusal):
            said = refused(changed)
        else:
            said = status(Code.INTERNAL_SERVER_ERROR, str(outcome.failure or "the broker could not store the change"))
        answer(call, v2.ChangeInvisibleDurationResponse(status=said, receipt_handle=new))

    def forward(self, request: v2.ForwardMessageToDeadLetterQueueRequest, call: Call) -> None:
        """Give a message up."""
        fault = topic_fault(request.topic) or group_fault(request.group)
        ack = ack_of(request.receipt_handle, request.topic.name, request.group.name)
        state = self._state(ack)
        if fault is None and state in _WORTHLESS:
            fault = _worthless(state)
        if fault is not None or ack is None or state is HandleState.DONE:
            answer(call, v2.ForwardMessageToDeadLetterQueueResponse(status=fault or OK))
            return

        def tell(outcome: Outcome[Refusal | None]) -> None:
            answer(call, v2.ForwardMessageToDeadLetterQueueResponse(status=_status_of(outcome)))

        when_settled(self._operations.pop().giving_up.give_up(ack, call.remote_address), tell)

    def _state(self, ack: AckHeader | None) -> HandleState:
        return HandleState.NOTHING if ack is None else self._operations.pop().acks.state(ack)


def _answer_plain(call: Call, message_id: str, handle: str, end: HandleState | Outcome[Refusal | None]) -> None:
    said = _status_of(end)
    if said is OK:
        call.answer(encode_acknowledged(message_id, handle))
        return
    entry = v2.AckMessageResultEntry(message_id=message_id, receipt_handle=handle, status=said)
    answer(call, v2.AckMessageResponse(status=common_status([said]), entries=[entry]))


def _renewed(handle: Handle, changed: Changed) -> Handle:
    """Return the handle of the lease that a message has now; what is read in order keeps the beginning of its batch."""
    is_ordered = changed.revive_queue_id == ORDERED
    pop = handle.pop._replace(
        start_offset=handle.pop.start_offset if is_ordered else handle.pop.queue_offset,
        popped_at_ms=changed.popped_at_ms,
        invisible_ms=changed.invisible_ms,
        revive_queue_id=changed.revive_queue_id,
    )
    return handle._replace(pop=pop)


def _worthless(state: HandleState) -> v2.Status:
    return status(Code.INVALID_RECEIPT_HANDLE, _WORTHLESS[state])


def _status_of(end: HandleState | Outcome[Refusal | None]) -> v2.Status:
    """Return what has become of a message: what its handle is worth, or what the operation has come to."""
    if not isinstance(end, Outcome):
        return OK if end is HandleState.DONE else _worthless(end)
    if end.failure is not None:
        return failed(end.failure)
    return OK if end.answer is None else refused(end.answer)
