"""One consumer's part in a group that consumes by POP: heartbeats and routes; there are no queues to share."""

from collections.abc import Mapping, Sequence

from ...remoting.bodies.client import ConsumerData, ConsumeType
from ...remoting.transport.connection import Handler
from ..group.subscriptions import SubscriptionTable
from ..session.session import Session
from ..session.settings import ConsumeFrom
from .pop_places import PopPlaces


class PopMember:
    """A member of a group, as its session sees it (``SessionMember``)."""

    def __init__(self, session: Session, group: str, consume_from: ConsumeFrom) -> None:
        self.group = group
        self.handlers: Mapping[int, Handler] = {}
        self.subscriptions = SubscriptionTable(session.clock)
        self._session = session
        self._consume_from = consume_from
        self.places = PopPlaces(session, group, self.subscriptions)

    def __repr__(self) -> str:
        return f"<PopMember of {self.group} {self.subscriptions!r}>"

    async def join(self) -> None:
        """Take part: heartbeats name the group from now on."""
        self._session.join(self)
        await self.places.find()  # brokers of routes that are known hear of us
        await self._session.heartbeat()

    async def leave(self) -> None:
        """Take part no more."""
        await self._session.leave(self)

    def subscriptions_changed(self) -> None:
        """Let brokers know."""
        self._session.heartbeat_soon()

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
