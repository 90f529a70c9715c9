"""The long-poll loop of one queue.

Rules (Java's ``DefaultMQPushConsumerImpl.pullMessage``):
1. One pull is under way at a time; the next begins when the answer has been handed over.
2. While the buffer is above a limit there is no pull; it goes on when the buffer says so (Java looks every 50 ms).
3. After an error: 1 s; FLOW_CONTROL (215): 20 ms. A broker that does not know our subscription is sent a heartbeat.
4. A refused offset (21) ends the loop or moves it, as the consumer decides.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from ...common.errors import ResponseError, RocketletError
from ...common.message import MessageQueue, ReceivedMessage
from ...remoting.codec.codes import ResponseCode
from ...remoting.transport.event_loop import TaskScope
from ..session.brokers import Brokers
from ..session.pulls import PullPlan, PullPosition
from ..session.routes import MASTER_ID
from ..session.session import Session
from .subscriptions import SubscriptionTable

log = logging.getLogger(__name__)

FLOW_CONTROL_PAUSE_MS = 20
ERROR_PAUSE_MS = 1_000

_UNKNOWN_CONSUMER_CODES = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    }
)


class PullSink(Protocol):
    """Where pulled messages go, and what that place says about the next pull."""

    async def wait_for_room(self) -> None:
        """Return when more may be pulled."""
        ...

    def offset_to_commit(self) -> int:
        """Return the offset to store with the next pull; 0 for none."""
        ...

    def accept(self, messages: list[ReceivedMessage], next_offset: int) -> None:
        """Take the messages of one answer, which may be none; the next pull starts at ``next_offset``."""
        ...


Refuse = Callable[[MessageQueue, int], Awaitable[bool]]


class Consumption(NamedTuple):
    """What the pull loops of one consumer have in common.

    ``refuse`` learns that a broker refused an offset and names a better one; it tells whether the loop goes on there.
    """

    session: Session
    tasks: TaskScope
    brokers: Brokers
    subscriptions: SubscriptionTable
    plan: PullPlan
    refuse: Refuse


class Puller:
    """Pulls one queue into a sink; ``step`` is a job."""

    def __init__(self, queue: MessageQueue, next_offset: int, common: Consumption, sink: PullSink) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self._broker_id = MASTER_ID
        self._common = common
        self._sink = sink

    def __repr__(self) -> str:
        return f"<Puller {self.queue} next {self.next_offset}>"

    async def step(self) -> int | None:
        """Do one pull; return the pause before the next, or None when the loop has ended."""
        common = self._common
        await self._sink.wait_for_room()
        subscription = common.subscriptions.get(self.queue.topic)
        if subscription is None:
            return ERROR_PAUSE_MS  # the next rebalance gives the queue up
        position = PullPosition(self.queue, self.next_offset, self._sink.offset_to_commit(), self._broker_id)
        try:
            answer = await common.brokers.pull(common.plan, subscription, position)
        except RocketletError as error:
            return self._pause_after(error)
        self._broker_id = answer.next_broker_id
        self.next_offset = answer.next_offset
        if answer.was_offset_refused:
            log.warning(
                "group %s: offset %d of %s is out of range, going on at %d",
                common.plan.group,
                position.queue_offset,
                self.queue,
                answer.next_offset,
            )
            return 0 if await common.refuse(self.queue, answer.next_offset) else None
        self._sink.accept(answer.messages, answer.next_offset)
        return 0

    def _pause_after(self, error: RocketletError) -> int:
        code = error.code if isinstance(error, ResponseError) else None
        if code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_PAUSE_MS
        log.warning(
            "group %s: pulling %s from offset %d failed: %s",
            self._common.plan.group,
            self.queue,
            self.next_offset,
            error,
        )
        if code in _UNKNOWN_CONSUMER_CODES:
            self._common.session.heartbeat_soon()
        return ERROR_PAUSE_MS
