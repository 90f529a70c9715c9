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
from ..messages import v2
from ..messages.enums import Code
from ..messages.names import group_fault, topic_fault
from ..messages.statuses import common_status, refused, status
from ..rpc.call import Call
from .calling import answer, when_settled
from .handles import Handle, read_handle
from .receiving import MOST_INVISIBLE_MS
from .sending import failed

_WORTHLESS: Final = {
    HandleState.OVER: "receipt handle is expired",
    HandleState.NOTHING: "receipt handle speaks of no message that was handed out",
}


class AckService:
    """Ends leases, or gives them another time."""

    def __init__(self, operations: BrokerOperations) -> None:
        self._operations = operations

    def __repr__(self) -> str:
        return f"<AckService of {self._operations.settings.config.broker_name}>"

    def acknowledge(self, request: v2.AckMessageRequest, call: Call) -> None:
        """Be done with messages."""
        fault = topic_fault(request.topic) or group_fault(request.group)
        if fault is None and not request.entries:
            fault = status(Code.BAD_REQUEST, "no message is acknowledged")
        if fault is not None:
            answer(call, v2.AckMessageResponse(status=fault))
            return
        outcomes: list[Outcome[v2.Status]] = []
        for entry in request.entries:
            ack = self._ack_of(entry.receipt_handle, request.topic.name, request.group.name)
            state = self._state(ack)
            if ack is None or state in _WORTHLESS:
                outcomes.append(_settled(_worthless(state)))
            elif state is HandleState.DONE:
                outcomes.append(_settled(status(Code.OK)))
            else:
                outcomes.append(_as_status(self._operations.pop().acks.acknowledge(ack, call.remote_address)))
        _when_all(outcomes, partial(self._answer_acks, request, call))

    def _answer_acks(self, request: v2.AckMessageRequest, call: Call, statuses: Sequence[v2.Status]) -> None:
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
        ack = self._ack_of(old, request.topic.name, request.group.name)
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
            said, new = status(Code.OK), _renewed(handle, changed).text()
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
        ack = self._ack_of(request.receipt_handle, request.topic.name, request.group.name)
        state = self._state(ack)
        if fault is None and state in _WORTHLESS:
            fault = _worthless(state)
        if fault is not None or ack is None or state is HandleState.DONE:
            answer(call, v2.ForwardMessageToDeadLetterQueueResponse(status=fault or status(Code.OK)))
            return

        def tell(statuses: Sequence[v2.Status]) -> None:
            answer(call, v2.ForwardMessageToDeadLetterQueueResponse(status=statuses[0]))

        _when_all([_as_status(self._operations.pop().giving_up.give_up(ack, call.remote_address))], tell)

    def _ack_of(self, text: str, topic: str, group: str) -> AckHeader | None:
        handle = read_handle(text)
        return None if handle is None else handle.ack(topic, group)

    def _state(self, ack: AckHeader | None) -> HandleState:
        return HandleState.NOTHING if ack is None else self._operations.pop().acks.state(ack)


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


def _settled(said: v2.Status) -> Outcome[v2.Status]:
    return Outcome(said, is_settled=True)


def _as_status(outcome: Outcome[Refusal | None]) -> Outcome[v2.Status]:
    """Return what comes of an operation as a status."""
    found: Outcome[v2.Status] = Outcome()

    def settled(outcome: Outcome[Refusal | None]) -> None:
        if outcome.failure is not None:
            found.answer_with(failed(outcome.failure))
        else:
            found.answer_with(status(Code.OK) if outcome.answer is None else refused(outcome.answer))

    when_settled(outcome, settled)
    return found


def _when_all(outcomes: Sequence[Outcome[v2.Status]], tell: Callable[[Sequence[v2.Status]], object]) -> None:
    """Have the statuses told when all are there."""
    missing = [outcome for outcome in outcomes if not outcome.is_settled]
    if not missing:
        tell([outcome.answer for outcome in outcomes])
        return
    left = len(missing)

    def settled(_outcome: Outcome[v2.Status]) -> None:
        nonlocal left
        left -= 1
        if not left:
            tell([outcome.answer for outcome in outcomes])

    for outcome in missing:
        outcome.on_settled = settled
