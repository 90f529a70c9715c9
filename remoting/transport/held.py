"""What the peers of one server make it hold.

That is answers that they do not read, frames that they do not finish, and requests whose answers they wait for.

Rules
    1. A connection that holds little is not counted; it tells when it begins to hold much (``COUNTED_BYTES``, or more
       unsent than the high-water mark), while it does, and when that is over.
    2. When all of them together hold more than the limit, the one that holds most is cut off, until they hold less.
    3. What was told may be out of date, never too little by more than one read; so all are asked again before one is
       cut off.
"""

from typing import Protocol

COUNTED_BYTES = 1 << 16


class Holder(Protocol):
    """Who holds bytes for a peer; a connection."""

    @property
    def held_bytes(self) -> int:
        """How much it holds now."""
        ...

    def cut_off(self, reason: str) -> None:
        """End it at once."""
        ...


class HeldBytes:
    """The holders of one server that hold much."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._sizes: dict[Holder, int] = {}
        self.total = 0

    def __repr__(self) -> str:
        return f"<HeldBytes {self.total} of {self._limit} by {len(self._sizes)} holders>"

    def __len__(self) -> int:
        return len(self._sizes)

    def note(self, holder: Holder) -> None:
        """Take in how much a holder holds now, and cut off who holds most if that is too much."""
        self._measure(holder)
        if self.total > self._limit:
            self._make_room()

    def forget(self, holder: Holder) -> None:
        """Count a holder no longer: it holds little, or has ended."""
        self.total -= self._sizes.pop(holder, 0)

    def _measure(self, holder: Holder) -> None:
        size = holder.held_bytes
        self.total += size - self._sizes.get(holder, 0)
        self._sizes[holder] = size

    def _make_room(self) -> None:
        for holder in self._sizes:
            self._measure(holder)
        while self.total > self._limit:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            size, total = self._sizes[largest], self.total
            self.forget(largest)
            largest.cut_off(f"{size} of {total} bytes that are held for all peers, limit is {self._limit}")
