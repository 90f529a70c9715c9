"""One consumer's part in a group that consumes by POP: heartbeats and routes; there are no queues to share."""

import itertools
import logging
from collections.abc import Mapping, Sequence

from ...common.errors import RocketletError
from ...common.names import PERM_READ
from ...remoting.bodies.client import ConsumerData, ConsumeType
from ...remoting.transport.connection import Handler
from ..group.subscriptions import SubscriptionTable
from ..session.routes import MASTER_ID
from ..session.session import Session
from ..session.settings import ConsumeFrom

_log = logging.getLogger(__name__)


class PopMember:
    """A member of a group, as its session sees it (``SessionMember``)."""

    def __init__(self, session: Session, group: str, consume_from: ConsumeFrom) -> None:
        self.group = group
        self.handlers: Mapping[int, Handler] = {}
        self.subscriptions = SubscriptionTable(session.clock)
        self._session = session
        self._consume_from = consume_from
        self._rounds = itertools.count()

    def __repr__(self) -> str:
        return f"<PopMember of {self.group} {self.subscriptions!r}>"

    async def join(self) -> None:
        """Take part: heartbeats name the group from now on."""
        self._session.join(self)
        await self._find_routes()
        await self._session.heartbeat()

    async def leave(self) -> None:
        """Take part no more."""
        await self._session.leave(self)

    def subscriptions_changed(self) -> None:
        """Let brokers know."""
        self._session.heartbeat_soon()

    async def places(self) -> list[tuple[str, str]]:
        """Return the topics and brokers that have messages, beginning with another one each time."""
        await self._find_routes()
        found: list[tuple[str, str]] = []
        for topic in self.subscriptions.topics:
            route = self._session.routes.get(topic)
            if route is not None:
                found += [
                    (topic, share.broker_name)
                    for share in route.shares
                    if share.permission & PERM_READ and MASTER_ID in route.brokers.get(share.broker_name, {})
                ]
        turn = next(self._rounds) % len(found) if found else 0
        return found[turn:] + found[:turn]

    async def _find_routes(self) -> None:
        for topic in self.subscriptions.topics:
            try:
                await self._session.route(topic)
            except RocketletError as error:
                _log.info("group %s: topic %s not found, retrying: %s", self.group, topic, error)

    # ``SessionMember``

    def topics(self) -> Sequence[str]:
        """Return the topics that are subscribed to."""
        return self.subscriptions.topics

    def consumer_data(self) -> ConsumerData:
        """Return what heartbeats say."""
        return self.subscriptions.consumer_data(self.group, ConsumeType.CONSUME_POP, self._consume_from)

    def route_changed(self, _topic: str) -> None:
        """Go on: places are looked up for each request."""

    def members_changed(self) -> None:
        """Go on: nothing is shared."""
