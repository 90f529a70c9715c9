"""Which name server is asked.

One is chosen at random and kept until it fails; then the next of the list is tried, each once. What is left of the
call's time is shared equally by those not tried yet, so that one that hangs leaves time for the others. An answer with
an error code is an answer: it does not move the choice.
"""

import logging
import random

from ..common.clock import Clock
from ..common.errors import ConfigError, RemotingError, RequestTimeoutError
from ..remoting.client import ConnectionPool
from ..remoting.command import Command

log = logging.getLogger(__name__)


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of ``host:port;host:port``; a comma separates as well.

    Raises:
        ConfigError: there is none, or one has no port.
    """
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 65_535:
            raise ConfigError(f"name server {address!r} is not of the form host:port", key="nameserver")
    if not addresses:
        raise ConfigError("no name server is given", key="nameserver")
    return addresses


class NameServers:
    """The name servers of one client."""

    def __init__(self, addresses: tuple[str, ...], pool: ConnectionPool, clock: Clock) -> None:
        self._addresses = addresses
        self._pool = pool
        self._clock = clock
        self._chosen = random.randrange(len(addresses))

    def __repr__(self) -> str:
        return f"<NameServers {';'.join(self._addresses)} chosen={self.chosen}>"

    @property
    def chosen(self) -> str:
        """The address that is asked first."""
        return self._addresses[self._chosen]

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Ask the chosen name server, after a failure the others.

        Raises:
            RemotingError: none of them answered in time.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        failure: RemotingError = RequestTimeoutError(f"no time is left to ask {self.chosen}")
        for untried in range(len(self._addresses), 0, -1):
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                break
            try:
                return await self._pool.request(self.chosen, command, max(1, left_ms // untried))
            except RemotingError as error:
                log.warning("name server %s failed: %s", self.chosen, error)
                failure = error
                self._chosen = (self._chosen + 1) % len(self._addresses)
        raise failure
