"""The open connections of an HTTP/2 server: what they hold together, and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from ...common.clock import Clock
from ...remoting.transport.limits import LogRateLimiter, MemoryBudget
from .protocol import Http2Link

MAX_HELD_BYTES = 1 << 29
DRAIN_MS = 1_000


def _keep_none() -> None:
    """Name no descriptor that a connection may not have."""


class Http2Links:
    """Knows every open connection, ends all; ``first_kept`` as with ``Connections`` of remoting."""

    def __init__(
        self,
        clock: Clock,
        max_held_bytes: int = MAX_HELD_BYTES,
        first_kept: Callable[[], int | None] = _keep_none,
    ) -> None:
        self.held = MemoryBudget(max_held_bytes)
        self.complaints = LogRateLimiter(clock)
        self._clock = clock
        self._first_kept = first_kept
        self._links: set[Http2Link] = set()
        self._has_emptied = asyncio.Event()
        self._is_over = False

    def __repr__(self) -> str:
        return f"<Http2Links {len(self._links)} open, {self.held.total} bytes held by the large ones>"

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Http2Link]:
        return iter(tuple(self._links))

    def add(self, link: Http2Link) -> None:
        """Take a connection that has just opened."""
        self._links.add(link)
        kept = self._first_kept()
        if self._is_over:
            link.abort()  # accepted just before the end
        elif kept is not None and link.descriptor >= kept:
            link.cut_off(f"too many open files (descriptor {link.descriptor}, the store keeps those from {kept})")

    def discard(self, link: Http2Link) -> None:
        """Forget a connection that has ended."""
        self._links.discard(link)
        if not self._links:
            self._has_emptied.set()

    def shut_down(self) -> None:
        """Begin no more requests, and tell every peer so."""
        self._is_over = True
        for link in self:
            link.shut_down()

    async def drain(self) -> None:
        """Wait until the requests that are open have ended and their peers closed, ``DRAIN_MS`` at most."""
        try:
            async with self._clock.timeout(DRAIN_MS):
                await self._wait_empty()
        except TimeoutError:
            return

    async def close_all(self) -> None:
        """Close what is still open and wait for the last to end; what a peer does not read at once is lost."""
        self._is_over = True
        await asyncio.sleep(0)  # one turn of the loop to send what was said last
        for link in self:
            link.abort()
        await self._wait_empty()

    async def _wait_empty(self) -> None:
        while self._links:
            self._has_emptied.clear()
            await self._has_emptied.wait()
