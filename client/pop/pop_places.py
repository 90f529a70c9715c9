"""Where messages of subscribed topics are handed out: their brokers' masters."""

import itertools
import logging
from collections.abc import Sequence
from typing import Final

from ...common.errors import RocketletError
from ...common.message import MessageQueue
from ...common.names import PERM_READ
from ...common.subscriptions.subscription import Subscription
from ..group.subscriptions import SubscriptionTable
from ..session.routes import MASTER_ID
from ..session.session import Session

_log = logging.getLogger(__name__)


class NoQueues:
    """Shares queues among the members of a group that need none."""

    name = "NONE"

    def allocate(
        self, _group: str, _client_id: str, _queues: Sequence[MessageQueue], _client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """Return no queues."""
        return []


NO_QUEUES: Final = NoQueues()


class PopPlaces:
    """The topics and brokers that a consumer asks; ``group`` is its own."""

    def __init__(self, session: Session, group: str, subscriptions: SubscriptionTable) -> None:
        self._session = session
        self._group = group
        self._subscriptions = subscriptions
        self._rounds = itertools.count()

    def __repr__(self) -> str:
        return f"<PopPlaces of {self._subscriptions!r}>"

    async def find(self) -> list[tuple[str, str]]:
        """Return topics and brokers, beginning with another one each time."""
        found: list[tuple[str, str]] = []
        for topic in self._subscriptions.topics:
            try:
                route = await self._session.route(topic)
            except RocketletError as error:
                _log.info("group %s: topic %s not found, retrying: %s", self._group, topic, error)
                continue
            found += [
                (topic, share.broker_name)
                for share in route.shares
                if share.permission & PERM_READ and MASTER_ID in route.brokers.get(share.broker_name, {})
            ]
        turn = next(self._rounds) % len(found) if found else 0
        return found[turn:] + found[:turn]

    def subscription_of(self, place: MessageQueue) -> Subscription | None:
        """Return what is wanted of a topic, None when it or its broker is asked no more."""
        if self._session.routes.master_of(place.broker_name) is None:
            return None
        return self._subscriptions.by_topic.get(place.topic)
