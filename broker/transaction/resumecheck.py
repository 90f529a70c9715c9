"""Asking once more about a transaction that was given up: RESUME_CHECK_HALF_MESSAGE(323) (``AdminBrokerProcessor``).

The request names the message by its offset id: the half message, or what is kept of it. A copy becomes the newest half
message, as if nobody had ever been asked. What is no message of a transaction is refused; Java would put it there.
"""

from typing import Any

from ...common.errors import DecodeError, MessageIllegalError, StoreError
from ...common.ids import parse_offset_id
from ...common.names import HALF_TOPIC
from ...common.outcome import Outcome
from ...common.record import Record, decode_record
from ...remoting.codec.codes import ResponseCode
from ..outcomes.scheduler import Storing
from ..settings.refusal import Refusal
from .halfmessages import is_transactional, real_place, resumed

RESUME_FAILED = Refusal(ResponseCode.SYSTEM_ERROR, f"Put message back to {HALF_TOPIC} failed.")
UNREADABLE = Refusal(ResponseCode.SYSTEM_ERROR, f"Exception was thrown when putting message back to {HALF_TOPIC}.")


class ResumeCheck:
    """Puts messages back among those that are checked."""

    def __init__(self, storing: Storing) -> None:
        self._store, self._scheduler = storing.store, storing.scheduler

    def resume(self, message_id: str | None) -> Outcome[Refusal | None]:
        """Put a message back."""
        try:
            half = self._find(message_id)
        except (DecodeError, ValueError, MessageIllegalError):
            half = None
        if half is None:
            return Outcome(UNREADABLE, is_settled=True)
        try:
            outcome: Outcome[Any] = self._scheduler.append(resumed(half))
        except StoreError as error:
            return self._scheduler.failed(error)
        outcome.answer, outcome.waits_for_flush = None, False
        return outcome

    def _find(self, message_id: str | None) -> Record | None:
        data = self._store.record_at(parse_offset_id(message_id or "")[1])
        half = None if data is None else decode_record(data)
        if half is None or not is_transactional(half.properties, is_delayed_retry=False):
            return None
        real_place(half)
        return half
