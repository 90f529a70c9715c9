"""CONSUMER_SEND_MSG_BACK(36) is not built: it is answered so that the consumer keeps its failed message.

    Java          on code 3 sends the message to its retry topic itself; that send asks for a delay and is refused too
                  (``unbuilt.py``), so the consumer keeps the message and gives it to its listener again
    Go up to 2.1  takes whatever answer for success and would lose the message, but keeps it when none comes within 3 s
    others        keep the message on any code but 0

So a Go client is answered when it has stopped waiting.
"""

from ..common.clock import Clock
from ..remoting.command import Command
from ..remoting.connection import Connection
from ..remoting.failures import unknown_code_reply
from ..remoting.later import Later

GO_ANSWER_MS = 5000


class SendBackHandler:
    """Refuses send-backs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def refuse(self, command: Command, _connection: Connection) -> Command | Later:
        """Answer that the request is not supported."""
        reply = unknown_code_reply(command)
        if command.language != "GO":
            return reply
        later = Later(command)
        timer = self._clock.call_at(self._clock.now_ms() + GO_ANSWER_MS, later.answer, reply)
        later.on_drop(timer.cancel)
        return later
