"""Whether another member of the group has our client id, and where it is.

Members with one id sort to one place, so they take the same queues: those are read twice, and as many others by nobody.
Brokers list the id of every connection and do not mind. Our own ids differ; the pitfall is an instance name that two
processes were given, or the number of the process as the only difference, which is 1 in every container.

What is found is logged once, with the addresses where the broker says them (GET_CONSUMER_CONNECTION_LIST, 203), and
again when it has changed. A connection that broke may be listed for up to two minutes until the broker misses it.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from ...common.errors import RocketletError

log = logging.getLogger(__name__)


class ConnectionSource(Protocol):
    """Who knows from where a client id is connected."""

    async def addresses_of(self, group: str, topic: str, client_id: str, /) -> Sequence[str]:
        """Return from where the members with an id are connected to a broker of the topic; ours says so."""
        ...


class DuplicateWatch:
    """Looks at the members that each rebalance sees."""

    def __init__(self, group: str, client_id: str, source: ConnectionSource) -> None:
        self._group = group
        self._client_id = client_id
        self._source = source
        self._told: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<DuplicateWatch of {self._client_id} in {self._group}, told of {sorted(self._told)}>"

    async def look(self, topic: str, members: Sequence[str]) -> None:
        """Tell when our id is there more than once."""
        count = members.count(self._client_id)
        if count < 2:
            if self._told.pop(topic, None) is not None:
                log.info("group %s: client id %s is unique again", self._group, self._client_id)
            return
        addresses = await self._find_addresses(topic)
        if self._told.get(topic) != addresses:
            self._told[topic] = addresses
            log.error(
                "group %s: %d members have the client id %s and consume the same queues of %s, others are not "
                "consumed; give each member its own instance name%s",
                self._group,
                count,
                self._client_id,
                topic,
                f". They are at {', '.join(addresses)}" if addresses else "",
            )

    async def _find_addresses(self, topic: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(await self._source.addresses_of(self._group, topic, self._client_id)))
        except RocketletError as error:
            log.debug("group %s: where its members are is not known: %s", self._group, error)
            return ()
