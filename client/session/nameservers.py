"""Which name server is asked.

One is chosen at random and kept until it fails; then the next of the list is tried, each once. What is left of the
call's time is shared equally by those not tried yet, so that one that hangs leaves time for the others. An answer with
an error code is an answer and does not move the choice, unless it says that the request is not known: that is a broker
or some other server, whose address was given by mistake.
"""

import logging
import random
from collections.abc import Callable

from ...common.clock import Clock
from ...common.errors import ConfigError, RemotingError, RequestTimeoutError
from ...remoting.codec.codes import ResponseCode
from ...remoting.codec.command import Command
from ...remoting.transport.client import ConnectionPool
from .wire import Wire

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

    def __init__(
        self, addresses: tuple[str, ...], pool: ConnectionPool, clock: Clock, wire: Wire | None = None
    ) -> None:
        self.addresses = addresses
        self._pool = pool
        self._clock = clock
        self._wire = wire
        self._chosen = random.randrange(len(addresses))

    def __repr__(self) -> str:
        return f"<NameServers {';'.join(self.addresses)} chosen={self.chosen}>"

    @property
    def chosen(self) -> str:
        """The address that is asked first."""
        return self.addresses[self._chosen]

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Ask the chosen name server, after a failure the others.

        Raises:
            RemotingError: none of them answered in time.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        failure: RemotingError = RequestTimeoutError(f"no time is left to ask {self.chosen}")
        first, count = self._chosen, len(self.addresses)
        for tried in range(count):
            number = (first + tried) % count
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                break
            try:
                answer = await self._ask(self.addresses[number], command, max(1, left_ms // (count - tried)))
            except RemotingError as error:
                log.warning("name server %s failed: %s", self.addresses[number], error)
                failure = error
            else:
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED or tried == count - 1:
                    return answer
                log.warning("%s is no name server: it answered %s", self.addresses[number], answer.remark)
            if self._chosen == number:  # unless another call has found that out before
                self._chosen = (number + 1) % count
        raise failure

    async def request_all(self, make_command: Callable[[], Command], timeout_ms: int) -> list[Command]:
        """Ask every name server, each for so long; return their answers.

        Raises:
            RemotingError: one did not answer; the others were asked all the same.
        """
        answers: list[Command] = []
        failure: RemotingError | None = None
        for address in self.addresses:
            try:
                answers.append(await self._ask(address, make_command(), timeout_ms))
            except RemotingError as error:
                log.warning("name server %s failed: %s", address, error)
                failure = error
        if failure is not None:
            raise failure
        return answers

    async def _ask(self, address: str, command: Command, timeout_ms: int) -> Command:
        if self._wire is None:
            return await self._pool.request(address, command, timeout_ms)
        self._wire.send(address, command)
        answer = await self._pool.request(address, command, timeout_ms)
        self._wire.receive(address, command, answer)
        return answer
