"""Asking once more about a transaction that was given up: RESUME_CHECK_HALF_MESSAGE(323) (``AdminBrokerProcessor``).

The request names the message by its offset id: the half message, or what is kept of it. A copy becomes the newest half
message, as if nobody had ever been asked. What is no message of a transaction is refused; Java would put it there.
"""

from ...common.errors import DecodeError, MessageIllegalError, StoreError
from ...common.ids import parse_offset_id
from ...common.names import HALF_TOPIC
from ...common.record import Record, decode_record
from ...remoting.codec.codes import RequestCode, ResponseCode
from ...remoting.codec.command import Command, decode_header
from ...remoting.headers.transaction import ResumeCheckHeader
from ...remoting.transport.connection import Connection
from ...store.message_store import MessageStore
from .halfmessages import is_transactional, real_place, resumed

RESUME_CODES = frozenset({RequestCode.RESUME_CHECK_HALF_MESSAGE})
_FAILED = f"Put message back to {HALF_TOPIC} failed."
_UNREADABLE = f"Exception was thrown when putting message back to {HALF_TOPIC}."


class ResumeCheckHandler:
    """Puts messages back among those that are checked."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def resume(self, command: Command, _connection: Connection) -> Command:
        """Put a message back."""
        try:
            half = self._find(decode_header(ResumeCheckHeader, command).message_id)
        except (DecodeError, ValueError, MessageIllegalError):
            half = None
        if half is None:
            return Command.response(ResponseCode.SYSTEM_ERROR, _UNREADABLE)
        try:
            self._store.append(resumed(half))
        except StoreError as error:
            return self.refuse_uncommitted(command, error)
        return Command.response(ResponseCode.SUCCESS)

    def refuse_uncommitted(self, _command: Command, _error: StoreError) -> Command:
        """Return the answer to a message that could not be put back."""
        return Command.response(ResponseCode.SYSTEM_ERROR, _FAILED)

    def _find(self, message_id: str | None) -> Record | None:
        data = self._store.record_at(parse_offset_id(message_id or "")[1])
        half = None if data is None else decode_record(data)
        if half is None or not is_transactional(half.properties, is_delayed_retry=False):
            return None
        real_place(half)
        return half
