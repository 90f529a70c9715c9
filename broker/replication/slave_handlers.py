"""What a slave answers otherwise than a master (spec replication.md §9)."""

from ...common.codes import ResponseCode
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode as Code
from ...remoting.transport.connection import Connection
from ...remoting.transport.server import answers

_REJECTED = "[REJECTREQUEST]system busy, start flow control for a while"


class WriteRefusals:
    """Refuses messages, before anything else is looked at."""

    @answers(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.CONSUMER_SEND_MSG_BACK)
    def refuse(self, _command: Command, _connection: Connection) -> Command:
        """Send the client elsewhere."""
        return Command.response(ResponseCode.SYSTEM_BUSY, _REJECTED)
