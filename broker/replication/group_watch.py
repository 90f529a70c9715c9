"""Who is there of a group whose slaves may act as master (``BrokerController.syncBrokerMemberGroup``).

Rules (``enableSlaveActingMaster``; spec replication.md §12.1)

    1. Each second name servers are asked who is there, side by side; at once when one says that the group has changed
       (905). One that does not answer, or knows nobody, says nothing about the others; while none answers all stays as
       it was.
    2. A slave's master is gone when nobody who answers knows it: consumers read here then, and no tables are copied.
       The copy of the log goes on where it was: a master that comes back sends before it is registered.
    3. The slave with the least number acts as master meanwhile: name servers show it as one that can be read from. It
       serves pulls, offsets and locks, and writes nothing, since its log is that of the master. So delayed messages,
       timers and open transactions wait for the master. (Official slaves try to deliver them. Without remote escape
       that fails, and they pass over open transactions, about which nobody is asked any more then.)
    4. When the master is there again it is asked for its HA address (906) before tables are copied from it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from ...common.clock import Clock
from ...common.errors import RocketletError
from ...remoting.transport.event_loop import wait_at_most
from ..pull.fetch import MASTER_ID
from ..settings.config import BrokerConfig
from .log_replication import LogReplication

_log = logging.getLogger(__name__)


class MemberSource(Protocol):
    """A name server."""

    @property
    def address(self) -> str:
        """Where it is."""
        ...

    async def members(self) -> Mapping[int, str]:
        """Return the addresses of the brokers of this name by their numbers.

        Raises:
            RocketletError: There was no answer, or none that makes sense.
        """
        ...


class GroupWatch:
    """Follows who is there; ``ask_ha_address`` asks a master where its log is copied from."""

    def __init__(
        self,
        servers: Sequence[MemberSource],
        config: BrokerConfig,
        replication: LogReplication,
        ask_ha_address: Callable[[str], Awaitable[str]],
        clock: Clock,
    ) -> None:
        self._servers = servers
        self._broker_name, self._own_id = config.broker_name, config.broker_id
        self._pause_ms = config.replication.ask_members_ms
        self._replication = replication
        self._ask_ha_address = ask_ha_address
        self._clock = clock
        self.is_acting = False
        """Whether this slave acts as master."""

    def __repr__(self) -> str:
        return f"<GroupWatch of {self._broker_name}-{self._own_id}{', acting as master' if self.is_acting else ''}>"

    async def run(self) -> int:
        """Ask who is there, and wait until it is time to ask again; a job for ``repeat``."""
        asks = self._replication.asks_members
        asks.clear()
        await self.look()
        await wait_at_most(asks, self._pause_ms, self._clock)
        return 0

    async def look(self) -> Mapping[int, str] | None:
        """Return the addresses of the others by their numbers, ``None`` if no name server has answered."""
        async with asyncio.TaskGroup() as group:
            asking = {server.address: group.create_task(_members_of(server)) for server in self._servers}
        told = {address: task.result() for address, task in asking.items()}
        answers = {address: members for address, members in told.items() if members is not None}
        if self._servers and not answers:
            return None
        known = {number: address for members in answers.values() for number, address in members.items()}
        others = {number: address for number, address in known.items() if number != self._own_id}
        if known:
            self._replication.alive_members = len(others) + 1
            if self._replication.master.is_needed:
                await self._tell_master(answers, others.get(MASTER_ID))
                self._decide(others)
        return others

    async def _tell_master(self, answers: Mapping[str, Mapping[int, str]], address: str | None) -> None:
        """Have it known where the master is; who has said nothing does not know it any more."""
        master = self._replication.master
        ha_address = None
        if address is not None and address != master.address:
            try:
                ha_address = await self._ask_ha_address(address)
            except RocketletError as error:
                _log.warning("the master at %s does not say where its log is copied from: %s", address, error)
        for server in self._servers:
            members = answers.get(server.address)
            master.tell(server.address, members.get(MASTER_ID) if members else None, ha_address)

    def _decide(self, others: Mapping[int, str]) -> None:
        acts = all(number > self._own_id for number in others)
        if acts and not self.is_acting:
            _log.warning("broker %s-%d acts as master, to be read from", self._broker_name, self._own_id)
        elif self.is_acting and not acts:
            text = "broker %s-%d acts as master no more: number %d is there"
            _log.info(text, self._broker_name, self._own_id, min(others))
        self.is_acting = acts


async def _members_of(server: MemberSource) -> Mapping[int, str] | None:
    try:
        return await server.members()
    except RocketletError as error:
        _log.debug("name server %s does not say who is there: %s", server.address, error)
        return None
