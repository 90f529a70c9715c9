"""How often somebody may guess: wrong signatures are counted for each address.

Rules

    1. ``MOST_TRIES`` wrong signatures, or names of nobody, may come from an address within ``PERIOD_MS``. After that
       nothing more that comes from there is checked until the period is over.
    2. That does not concern those who have been known already: a connection that has signed rightly as a user goes on
       as this user. A client with a wrong secret does not shut out others behind the same address, but for newcomers
       towards the end of each period, who try again.
    3. Addresses are counted up to a number; those that have been quiet for longest are forgotten first. Of IPv6 the
       first 64 bits count, since whoever has one address there has all of them.

Without this rule as many secrets could be tried as the broker checks signatures: some hundred thousand a second.
"""

import ipaddress
from typing import Final

from ...common.clock import Clock

MOST_TRIES: Final = 100
PERIOD_MS: Final = 60_000
MOST_ADDRESSES: Final = 10_000
_PREFIX_BITS: Final = 64


class FailedTries:
    """The wrong signatures of a period, by address."""

    __slots__ = ("_clock", "_counts", "blocked")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, tuple[int, int]] = {}  # until when they count, and how many; the latest is last
        self.blocked: dict[str, int] = {}
        """The addresses from which nothing is checked, each with the end of that; look here before ``is_blocked``."""

    def __repr__(self) -> str:
        return f"<FailedTries of {len(self._counts)} addresses, {len(self.blocked)} blocked>"

    def is_blocked(self, address: str) -> bool:
        """Tell whether there were too many from an address."""
        place = _place_of(address)
        until_ms = self.blocked.get(place)
        if until_ms is None:
            return False
        if self._clock.monotonic_ms() < until_ms:
            return True
        del self.blocked[place]
        return False

    def note(self, address: str) -> bool:
        """Count one; tell whether it was the last that may come."""
        place, now_ms = _place_of(address), self._clock.monotonic_ms()
        until_ms, count = self._counts.pop(place, (0, 0))
        if now_ms >= until_ms:
            until_ms, count = now_ms + PERIOD_MS, 0
        elif count >= MOST_TRIES:  # from connections that are known: they go on
            self._counts[place] = until_ms, count
            return False
        if len(self._counts) >= MOST_ADDRESSES:
            forgotten = next(iter(self._counts))
            del self._counts[forgotten]
            self.blocked.pop(forgotten, None)
        self._counts[place] = until_ms, count + 1
        if count + 1 < MOST_TRIES:
            return False
        self.blocked[place] = until_ms
        return True


def _place_of(address: str) -> str:
    """Return what is counted as one."""
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _PREFIX_BITS), strict=False))
