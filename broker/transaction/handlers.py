"""The adapter of the wire for the end of transactions: requests 37 and 323 and their answers."""

from ...common.codes import ResponseCode
from ...common.errors import HeaderError
from ...common.outcome import Outcome
from ...remoting.codec.command import ONEWAY, Command, decode_header
from ...remoting.headers.message import EndTransactionHeader, ResumeCheckHeader
from ...remoting.transport.connection import Connection
from ..settings.refusal import Refusal
from .end_transaction import RESUME_FAILED, TRANSACTION_UNAVAILABLE, UNREADABLE, EndTransaction, ResumeCheck


class TransactionHandlers:
    """Answers producers about the ends of their transactions, and administrators about those that were given up."""

    def __init__(self, ends: EndTransaction, resumes: ResumeCheck) -> None:
        self._ends = ends
        self._resumes = resumes

    def end(self, command: Command, _connection: Connection) -> Outcome[Refusal | None]:
        """Take in what has become of a transaction."""
        header = decode_header(EndTransactionHeader, command)
        outcome = self._ends.end(header, waits=not command.flag & ONEWAY)
        if not outcome.is_dropped:
            outcome.encode = _encode_end
        return outcome

    def resume(self, command: Command, _connection: Connection) -> Outcome[Refusal | None]:
        """Have producers asked once more about a message that was given up."""
        try:
            message_id = decode_header(ResumeCheckHeader, command).message_id
        except HeaderError:
            return Outcome(UNREADABLE, is_settled=True, encode=_encode_resume)
        outcome = self._resumes.resume(message_id)
        outcome.encode = _encode_resume
        return outcome


def _encode_end(_command: Command, outcome: Outcome[Refusal | None]) -> Command:
    """A disk that takes too long counts as success: the message is stored."""
    return _encode(TRANSACTION_UNAVAILABLE if outcome.failure is not None else outcome.answer)


def _encode_resume(_command: Command, outcome: Outcome[Refusal | None]) -> Command:
    return _encode(RESUME_FAILED if outcome.failure is not None else outcome.answer)


def _encode(refusal: Refusal | None) -> Command:
    return Command.response(ResponseCode.SUCCESS) if refusal is None else Command.response(refusal.code, refusal.remark)
