"""What a pull consumer can be asked of any queue, owned or not; nothing here moves a position."""

from ...common.message import MessageQueue
from ...common.subscription import ALL
from ..group.broker_requests import Brokers
from ..group.subscriptions import Sql
from ..session.lifecycle import Lifecycle
from ..session.session import Session
from .single_pull import PullResult, SinglePull, pull_once


class QueueQuestions:
    """Questions of one group to the brokers of queues.

    All of them raise ``ClientStateError`` outside the block, and ``RouteNotFoundError``, ``RemotingError`` or
    ``ResponseError`` when the queue's broker is not known, does not answer, or answers with an error.
    """

    def __init__(self, group: str, session: Session, lifecycle: Lifecycle) -> None:
        self.group = group
        self._session = session
        self._lifecycle = lifecycle
        self._brokers = Brokers(session)

    async def fetch_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return all queues of a topic that can be read."""
        self._lifecycle.check()
        return await self._brokers.queues_of(topic)

    async def first_offset(self, queue: MessageQueue) -> int:
        """Return the offset of the first message that a queue still has."""
        await self._find(queue)
        return await self._brokers.first_offset(queue)

    async def end_offset(self, queue: MessageQueue) -> int:
        """Return the offset that the next message of a queue will get."""
        await self._find(queue)
        return await self._brokers.end_offset(queue)

    async def offset_at(self, queue: MessageQueue, at_ms: int) -> int:
        """Return the offset of the first message that was stored at an instant or later."""
        await self._find(queue)
        return await self._brokers.offset_at(queue, at_ms)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the offset that the broker has stored for the group, or None."""
        await self._find(queue)
        return await self._brokers.stored_offset(self.group, queue)

    async def pull_once(
        self,
        queue: MessageQueue,
        queue_offset: int,
        expression: str | Sql = ALL,
        *,
        max_messages: int = 32,
        wait_ms: int = 0,
    ) -> PullResult:
        """Ask once for messages of a queue from an offset on.

        With ``wait_ms`` the broker waits so long for a message, or some seconds longer.

        Raises:
            ValueError: a number is out of its range, or the expression holds no tag.
        """
        await self._find(queue)
        return await pull_once(
            self._brokers, self.group, SinglePull(queue, queue_offset, expression, max_messages, wait_ms)
        )

    async def _find(self, queue: MessageQueue) -> None:
        """Know the broker of a queue."""
        self._lifecycle.check()
        await self._session.route(queue.topic)
