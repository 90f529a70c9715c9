"""Where a connection lives: who keeps it while it is open, and knows what all connections may do together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .complaints import Complaints
from .held import HeldBytes

if TYPE_CHECKING:
    from .connection import Connection


class ConnectionHome(Protocol):
    """Keeps connections; ``Connections`` is the real one."""

    held: HeldBytes
    complaints: Complaints

    def add(self, connection: Connection) -> None:
        """Take a connection that has just opened."""
        ...

    def discard(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        ...
