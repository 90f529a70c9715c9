"""What push consumers have stays with them while they live (``auto_renew``; grpc.md §4.5).

Rules

    1. A client keeps what it was handed for as long as it is heard of, for ``MOST_MS`` at most. Its handles stay as
       they are: nobody has to be told.
    2. When it is gone, what it has comes again after ``GONE_MS``.
"""

from collections.abc import Callable
from typing import Final, Protocol

from ...broker.pop.leases import LeaseKeeper

FIRST_MS: Final = 60_000
"""For how long messages are handed out that are kept."""
STEP_MS: Final = 60_000
MOST_MS: Final = 3 * 3_600_000
GONE_MS: Final = 1_000


class Releases(Protocol):
    """Has what a keeper keeps come again."""

    def __call__(self, keeper: LeaseKeeper, delay_ms: int, /) -> object:
        """Do so after a while."""
        ...


class ClientKeeper:
    """Keeps what one client has."""

    def __init__(self, is_alive: Callable[[], bool], now_ms: Callable[[], int]) -> None:
        self._is_alive = is_alive
        self._now_ms = now_ms

    def __repr__(self) -> str:
        return f"<ClientKeeper of {'a client' if self._is_alive() else 'nobody'}>"

    def extend_ms(self, popped_at_ms: int) -> int:
        """Return how much longer something that was handed out at an instant stays."""
        left_ms = popped_at_ms + MOST_MS - self._now_ms()
        return min(STEP_MS, max(0, left_ms)) if self._is_alive() else 0


class ClientKeepers:
    """The keepers of all clients; ``is_alive`` tells whether one is heard of."""

    def __init__(self, is_alive: Callable[[str], bool], now_ms: Callable[[], int], release: Releases) -> None:
        self._is_alive = is_alive
        self._now_ms = now_ms
        self._release = release
        self._keepers: dict[str, ClientKeeper] = {}

    def __repr__(self) -> str:
        return f"<ClientKeepers of {len(self._keepers)} clients>"

    def of(self, client_id: str) -> ClientKeeper:
        """Return the keeper of a client."""
        keeper = self._keepers.get(client_id)
        if keeper is None:
            keeper = self._keepers[client_id] = ClientKeeper(lambda: self._is_alive(client_id), self._now_ms)
        return keeper

    def gone(self, client_id: str) -> None:
        """Have what a client has come again."""
        keeper = self._keepers.pop(client_id, None)
        if keeper is not None:
            self._release(keeper, GONE_MS)
