"""Where topics are in the whole cluster, as name servers say; what they said counts for a while.

Rules (``TopicRouteInfoManager``; spec pop.md §11)

    1. What a name server has said, also that it knows no such topic, counts for ``FRESH_MS``, and longer while none
       answers.
    2. A broker that is registered nowhere knows its own topics only.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple

from ...common.clock import Clock
from ...common.message import MessageQueue
from ...common.names import PERM_READ
from ...remoting.bodies.route import TopicRouteData
from .topics import TopicTable

FRESH_MS: Final = 30_000
MOST_TOPICS: Final = 4_096


class _Route(NamedTuple):
    queues: Sequence[MessageQueue]
    asked_at_ms: int


AskRoute = Callable[[str], Coroutine[Any, Any, TopicRouteData | None]]
"""Asks the name servers; None when the broker is registered at none, or none answers."""


class TopicRoutes:
    """The queues of topics that can be read, at all brokers."""

    def __init__(self, ask: AskRoute, topics: TopicTable, own_name: str, clock: Clock) -> None:
        self._ask = ask
        self._topics = topics
        self._own_name = own_name
        self._clock = clock
        self._routes: dict[str, _Route] = {}

    def __repr__(self) -> str:
        return f"<TopicRoutes of {len(self._routes)} topics>"

    def known(self, topic: str) -> Sequence[MessageQueue] | None:
        """Return the queues of a topic, None when they have to be asked for."""
        route = self._routes.get(topic)
        if route is None or self._clock.monotonic_ms() - route.asked_at_ms >= FRESH_MS:
            return None
        return route.queues

    async def find(self, topic: str) -> Sequence[MessageQueue]:
        """Return the queues of a topic, none when it is nowhere."""
        found = await self._ask(topic)
        if found is None:
            route = self._routes.get(topic)
            return self._own_queues(topic) if route is None else route.queues
        queues = [
            MessageQueue(topic, data.broker_name, queue_id)
            for data in found.queue_datas
            if data.perm & PERM_READ
            for queue_id in range(data.read_queue_nums)
        ]
        self._routes.pop(topic, None)
        while len(self._routes) >= MOST_TOPICS:
            del self._routes[next(iter(self._routes))]
        self._routes[topic] = _Route(queues, self._clock.monotonic_ms())
        return queues

    def _own_queues(self, topic: str) -> Sequence[MessageQueue]:
        known = self._topics.get(topic)
        if known is None or not known.perm & PERM_READ:
            return []
        return [MessageQueue(topic, self._own_name, queue_id) for queue_id in range(known.read_queue_nums)]
