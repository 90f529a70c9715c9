"""Answers to consumers that pop, by parts that are imported and built when the first one asks.

Most brokers never hear of POP. So that their start stays short, its modules are imported with the first such request,
or at the start of a broker whose revive topic has something that is not settled, or when something comes there.
"""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode as Code
from ..remoting.transport.connection import Connection, Handler, Reply
from ..remoting.transport.event_loop import TaskScope
from ..store.consumequeue.appended import Placed

if TYPE_CHECKING:
    from .pop.leases import InHand
    from .pop.parts import Pop, PopNeeds

REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
BATCH_FILE: Final = "consumerOrderInfo.json"
POP_CODES: Final = (
    Code.POP_MESSAGE,
    Code.ACK_MESSAGE,
    Code.CHANGE_MESSAGE_INVISIBLETIME,
    Code.NOTIFICATION,
    Code.POLLING_INFO,
    Code.BATCH_ACK_MESSAGE,
    Code.PEEK_MESSAGE,
    Code.QUERY_ASSIGNMENT,
    Code.SET_MESSAGE_REQUEST_MODE,
)


class PopAnswers:
    """POP in a broker that may never need it."""

    def __init__(self, needs: "Callable[[], PopNeeds]", revive_topic: str, now_ms: Callable[[], int]) -> None:
        self._needs = needs
        self._now_ms = now_ms
        self.moved_at_ms: dict[tuple[str, str, int], int] = {}
        """By group, topic and queue: when a group was set elsewhere, or one of them deleted."""
        self._revive_topic = revive_topic
        self._pop: Pop | None = None
        self._tasks: TaskScope | None = None

    def __repr__(self) -> str:
        return f"<PopAnswers {'not built' if self._pop is None else self._pop!r}>"

    @property
    def handlers(self) -> dict[int, Handler]:
        """Who answers which code."""
        return {int(code): self._answer for code in POP_CODES}

    @property
    def wait_ms(self) -> int | None:
        """How long nothing is due; None when nothing is planned."""
        return None if self._pop is None else self._pop.revival.wait_ms

    @property
    def pop(self) -> "Pop":
        """What the broker has of POP, which is built now if need be."""
        if self._pop is None:
            from .pop.parts import Pop

            self._pop = Pop(self._needs())
            if self._tasks is not None:
                self._pop.begin(self._tasks)
        return self._pop

    def begin(self, stack: AsyncExitStack, tasks: TaskScope, *, has_unsettled: bool) -> None:
        """Do from now on what is due."""
        self._tasks = tasks
        stack.callback(self._stop)
        if self._pop is not None:
            self._pop.begin(tasks)
        elif has_unsettled:
            _ = self.pop

    def arrived(self, records: Sequence[Placed]) -> None:
        """Look at messages that have become readable."""
        if self._tasks is None:
            return  # of a slave, or of a broker that has not begun: it reads them when it does
        if self._pop is not None:
            self._pop.arrived(records)
        else:
            for placed in records:
                if placed.topic == self._revive_topic:
                    _ = self.pop  # it reads them itself
                    return

    def forget_gone(self) -> None:
        """Forget what is handed out of topics, or to groups, that are gone."""
        if self._pop is not None:
            self._pop.forget_gone()

    def forget_queue(self, group: str, topic: str, queue_id: int) -> None:
        """Forget what is handed out of a queue, also what the timer still has: its group is set elsewhere."""
        self.moved_at_ms[group, topic, queue_id] = self._now_ms()
        if self._pop is not None:
            self._pop.forget_queue(group, topic, queue_id)

    def in_hand(self, group: str, topic: str, queue_id: int) -> "InHand | None":
        """Return what consumers of a group have of a queue; None where nobody has popped."""
        return None if self._pop is None else self._pop.in_hand(group, topic, queue_id)

    def _answer(self, command: Command, connection: Connection) -> Reply:
        return self.pop.handlers[command.code](command, connection)

    def _stop(self) -> None:
        self._tasks = None
        if self._pop is not None:
            self._pop.stop()
