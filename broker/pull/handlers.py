"""The adapter of the wire for messages out: requests 11 and 361 and their answers (``PullMessageProcessor``; B.4)."""

from functools import partial

from ...common.codes import ResponseCode
from ...common.ids import format_address
from ...common.names import PERM_READ
from ...common.outcome import Outcome
from ...remoting.codec.command import Command, header_reader
from ...remoting.codec.error_replies import failure_reply
from ...remoting.codec.frames import Encoded
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.pull import (
    PullHeader,
    PullReply,
    encode_pull_reply,
)
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers
from ...store.consumequeue.queue_reader import ReadStatus
from ..settings.live import LiveSettings
from ..settings.refusal import Refusal
from .fetch import Fetched, FetchOperation

_JOIN_RECORD_BYTES = 1024  # records that average no more are cheaper to send as one copy

_CODES = {
    ReadStatus.FOUND: ResponseCode.SUCCESS,
    ReadStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    ReadStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    ReadStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    ReadStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}

_read_pull = header_reader(PullHeader)


class PullHandlers:
    """Answers consumers that pull."""

    def __init__(self, fetches: FetchOperation, settings: LiveSettings) -> None:
        self._fetches = fetches
        self._settings = settings

    @answers(Code.PULL_MESSAGE)
    def pull(self, command: Command, connection: Connection) -> Outcome[Fetched | Refusal]:
        """Return what there is in a queue, or wait for it."""
        header = _read_pull(command)
        outcome = self._fetches.fetch(header, connection.remote_address)
        if outcome.is_settled:
            outcome.encode = _encode_fetched
        else:
            command.forget_content()
            header.broker_name = None  # nobody reads it, and it may be long
            outcome.encode = partial(_encode_held, header, connection)
        return outcome

    @answers(Code.LITE_PULL_MESSAGE)
    def lite_pull(self, command: Command, connection: Connection) -> Command | Outcome[Fetched | Refusal]:
        """Do the same for consumers of this kind, if they are served."""
        config = self._settings.config
        if config.permission & PERM_READ and not config.is_lite_pull_enabled:
            return Command.response(ResponseCode.NO_PERMISSION, self._settings.forbids("for lite pull consumer"))
        return self.pull(command, connection)


def _encode_fetched(command: Command, outcome: Outcome[Fetched | Refusal]) -> Command | Encoded:
    fetched = outcome.answer
    if type(fetched) is Refusal:
        return Command.response(fetched.code, fetched.remark)
    result = fetched.result
    code = _CODES.get(result.status)
    if code is None:  # a queue without messages
        code = ResponseCode.PULL_NOT_FOUND if fetched.has_nothing_new else ResponseCode.PULL_OFFSET_MOVED
    if fetched.may_lag:
        code = ResponseCode.PULL_RETRY_IMMEDIATELY
    reply = PullReply(
        suggest_which_broker_id=fetched.next_broker_id,
        next_begin_offset=result.next_offset,
        min_offset=result.min_offset,
        max_offset=result.max_offset,
    )
    records = result.records
    if len(records) > 1 and result.size <= _JOIN_RECORD_BYTES * len(records):
        records = (b"".join(records),)
    return encode_pull_reply(command, code, result.status.value, reply, records)


def _encode_held(
    header: PullHeader, connection: Connection, command: Command, outcome: Outcome[Fetched | Refusal]
) -> Command | Encoded:
    """Encode the answer to a pull that has waited; when it failed, the log names what the request has forgotten."""
    if outcome.failure is None:
        return _encode_fetched(command, outcome)
    place = f"consumerGroup {header.consumer_group}, topic {header.topic}, queueId {header.queue_id}"
    peer = f"{format_address(*connection.remote_address)}, {place}"
    return failure_reply(command, outcome.failure, peer, is_logged=connection.may_complain())
