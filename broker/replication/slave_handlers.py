"""What a slave answers otherwise than a master (spec replication.md §9); all else it answers from its own copies.

10, 310, 320, 36, 324, 325   2, before any other check: nothing is written but what the master sends; where slaves may
                             act as master 14, and 36 is answered 1, whether the master is there or not
11, 361                      2 as well, unless ``slaveReadEnable`` is set, or the master is gone
37, 370, 323                 11; 16 where recalls are off; 1
17, 18, 200, 207, 215, 225   1: the tables are those of the master (official slaves take them, and forget them again)
222, 353, 401                1
200050, 200051, 200053,      2: what is handed out is noted in the log, which is the master's
200054, 200151
11, 361, 14, 15              14, as of a broker that is not ready, instead of what says that a topic or an offset does
                             not exist, as long as the tables were not copied
11, 361                      what the log has of a topic or a queue that is too new for the copied tables

Offsets are committed and queues locked here without the master's knowledge, as upstream has it.
"""

from collections.abc import Mapping
from typing import Final

from ...common.codes import ResponseCode
from ...common.outcome import Outcome
from ...remoting.codec.command import Command, decode_header, header_reader
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.headers.client import GroupForbiddenHeader
from ...remoting.headers.pull import PullHeader
from ...remoting.transport.connection import Connection, Handler, Reply
from ...remoting.transport.server import answers
from ..settings.live import LiveSettings
from ..settings.refusal import Refusal
from ..transaction.end_transaction import RESUME_FAILED
from .known_master import KnownMaster
from .table_copy import TableCopy

REJECTED: Final = "[REJECTREQUEST]system busy, start flow control for a while"  # Java's words, as the next ones
NOT_WRITABLE: Final = (
    "service not available now. It may be caused by one of the following reasons: "
    "messages are put to the slave, message store has been shut down, etc."
)
NOT_HERE: Final = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
NOT_READY: Final = "this slave has not copied the tables of its master yet, try again"
_UNKNOWN: Final = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.TOPIC_NOT_EXIST)
_UNKNOWN_QUEUE: Final = (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER)
_read_pull = header_reader(PullHeader)


class SlaveSends:
    """Refuses what would write to the log."""

    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    @answers(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE)
    def refuse_send(self, _command: Command, _connection: Connection) -> Command:
        """Refuse a message."""
        config = self._settings.config
        if not config.replication.acts_as_master:
            return _rejected()
        fields = {"MSG_REGION": config.region_id, "TRACE_ON": str(config.is_trace_on).lower()}
        return Command.response(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_WRITABLE, fields)

    @answers(
        Code.POP_MESSAGE,
        Code.ACK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        Code.NOTIFICATION,
        Code.BATCH_ACK_MESSAGE,
    )
    def refuse_pop(self, _command: Command, _connection: Connection) -> Command:
        """Refuse to hand a message out, and whatever follows from that."""
        return _rejected()

    @answers(Code.CONSUMER_SEND_MSG_BACK)
    def refuse_send_back(self, _command: Command, _connection: Connection) -> Command:
        """Refuse a message that could not be consumed."""
        if not self._settings.config.replication.acts_as_master:
            return _rejected()
        return Command.response(ResponseCode.SYSTEM_ERROR, f"no master available along with {self._settings.ip}")

    @answers(Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2)
    def refuse_reply(self, command: Command, connection: Connection) -> Command:
        """Refuse a reply: producers are not connected to slaves."""
        return self.refuse_send(command, connection)

    @answers(Code.END_TRANSACTION)
    def refuse_end(self, _command: Command, _connection: Connection) -> Command:
        """Refuse the end of a transaction."""
        return Command.response(ResponseCode.SLAVE_NOT_AVAILABLE)

    @answers(Code.RESUME_CHECK_HALF_MESSAGE)
    def refuse_resume(self, _command: Command, _connection: Connection) -> Command:
        """Refuse to have a transaction checked again."""
        return Command.response(RESUME_FAILED.code, RESUME_FAILED.remark)

    @answers(Code.RECALL_MESSAGE)
    def refuse_recall(self, _command: Command, _connection: Connection) -> Command:
        """Refuse to keep a message from being delivered."""
        config = self._settings.config
        code, why = ResponseCode.NO_PERMISSION, "operation is forbidden"
        if config.is_recall_enabled:
            code, why = ResponseCode.SLAVE_NOT_AVAILABLE, "broker service not available"
        return Command.response(code, f"recall failed, {why}", {"MSG_REGION": config.region_id})


class SlaveReads:
    """Serves consumers when they shall read here, or cannot read elsewhere; ``handlers`` are those of a master."""

    def __init__(
        self, handlers: Mapping[int, Handler], tables: TableCopy, master: KnownMaster, settings: LiveSettings
    ) -> None:
        self._handlers = handlers
        self._tables = tables
        self._master = master
        self._settings = settings

    @answers(Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE)
    def pull(self, command: Command, connection: Connection) -> Reply:
        """Return what there is in a queue, or wait for it."""
        if not (self._settings.config.reads_slaves or self._master.is_gone):
            return _rejected()
        pull = self._handlers[command.code]
        reply = pull(command, connection)
        if not (isinstance(reply, Outcome) and isinstance(reply.answer, Refusal)):
            return reply
        code = reply.answer.code
        if code in _UNKNOWN_QUEUE and self._tables.finds(_read_pull(command).topic):
            return pull(command, connection)
        return _not_ready() if code in _UNKNOWN and not self._tables.is_complete else reply

    @answers(Code.QUERY_CONSUMER_OFFSET, Code.UPDATE_CONSUMER_OFFSET)
    def serve_offset(self, command: Command, connection: Connection) -> Reply:
        """Tell or store how far a group has come, when the master's offsets are there."""
        return self._handlers[command.code](command, connection) if self._tables.is_complete else _not_ready()


class SlaveTables:
    """Refuses changes of tables that are the master's; what a group may read is told."""

    def __init__(self, tell_forbidden: Handler) -> None:
        self._tell_forbidden = tell_forbidden

    @answers(
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.SET_MESSAGE_REQUEST_MODE,
    )
    def refuse_change(self, _command: Command, _connection: Connection) -> Command:
        """Refuse a change of a topic or group."""
        return Command.response(ResponseCode.SYSTEM_ERROR, NOT_HERE)

    @answers(Code.UPDATE_AND_GET_GROUP_FORBIDDEN)
    def forbid(self, command: Command, connection: Connection) -> Reply:
        """Tell whether a group may read a topic, and refuse to change it."""
        if decode_header(GroupForbiddenHeader, command).readable is not None:
            return Command.response(ResponseCode.SYSTEM_ERROR, NOT_HERE)
        return self._tell_forbidden(command, connection)

    @answers(Code.INVOKE_BROKER_TO_RESET_OFFSET)
    def refuse_reset(self, _command: Command, _connection: Connection) -> Command:
        """Refuse to set a group elsewhere."""
        return Command.response(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")


def _rejected() -> Command:
    return Command.response(ResponseCode.SYSTEM_BUSY, REJECTED)


def _not_ready() -> Command:
    return Command.response(ResponseCode.SERVICE_NOT_AVAILABLE, NOT_READY)
