"""Which connection leads to the producer with a client id (``ProducerManager.clientChannelTable``).

A client id may come on several connections for a while, when a client has connected anew and the old connection has not
ended yet: the one that came last counts, and the one before it again should that end first. A connection counts as long
as it is in one group at least. (Java forgets the client id with the first group that is left or the first connection
that ends.)

Pure: a link is anything that can be the key of a table.
"""

from typing import Generic, TypeVar

LinkT = TypeVar("LinkT")


class ProducerLinks(Generic[LinkT]):
    """Finds producers by client id."""

    def __init__(self) -> None:
        self._links: dict[str, dict[LinkT, int]] = {}  # in the order in which they came, with how many groups each has

    def __repr__(self) -> str:
        return f"<ProducerLinks to {len(self._links)} clients>"

    def find(self, client_id: str) -> LinkT | None:
        """Return the connection of a client."""
        links = self._links.get(client_id)
        return next(reversed(links)) if links else None

    def join(self, client_id: str, link: LinkT) -> None:
        """Note that a connection of the client is in one group more."""
        links = self._links.setdefault(client_id, {})
        links[link] = links.get(link, 0) + 1

    def leave(self, client_id: str, link: LinkT) -> None:
        """Note that a connection of the client, one that has joined, is in one group less."""
        links = self._links[client_id]
        links[link] -= 1
        if not links[link]:
            del links[link]
            if not links:
                del self._links[client_id]
