"""A master and its slave on the loop of the test and on real time: the master ends, and comes back where it was."""

import pathlib
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from broker_pairs import Member, run_member, until_equal, until_so

from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.transport.event_loop import LoopClock

READABLE = {"slaveReadEnable": "true"}


class ReplicaPair:
    """Both brokers, registered at a name server; the slave is started when there is something to copy."""

    def __init__(self, nameserver: NameServer, directory: pathlib.Path, settings: dict[str, str]) -> None:
        self._nameserver = nameserver.address
        self._directory = directory
        self._settings = dict(settings)
        self._ends_master, self._ends_slave = AsyncExitStack(), AsyncExitStack()
        self.master: Member
        self.slave: Member

    async def start_master(self) -> None:
        """Start the master, at a free port, and again where it was."""
        run = run_member(self._directory / "0", LoopClock(), self._nameserver, 0, **self._settings)
        self.master = await self._ends_master.enter_async_context(run)
        self._settings["listenPort"] = self.master.broker.address.rpartition(":")[2]

    async def stop_master(self) -> None:
        """Stop the master; name servers do not know it any more."""
        await self._ends_master.aclose()

    async def start_slave(self) -> None:
        """Start the slave, and return when it has all that the master has."""
        await self._run_slave()
        await until_equal(self.master, self.slave)
        await until_so(self._is_copied)

    async def leave_alone(self, *, is_restarted: bool) -> None:
        """Stop the master, and start the slave anew, which name servers tell that there is none, or let it run on."""
        await self.stop_master()
        if is_restarted:
            await self._ends_slave.aclose()
            await self._run_slave()

    async def close(self) -> None:
        """Stop both."""
        await self._ends_master.aclose()
        await self._ends_slave.aclose()

    async def committed(self, member: Member, group: str) -> int | None:
        """Return how far a group has come in queue 0 of T as a broker says."""
        header = {"consumerGroup": group, "topic": "T", "queueId": "0"}
        answer = await member.caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return int(answer.ext["offset"]) if answer.code == 0 else None

    async def _run_slave(self) -> None:
        settings = {**self._settings, "listenPort": "0"}
        run = run_member(self._directory / "1", LoopClock(), self._nameserver, 1, **settings)
        self.slave = await self._ends_slave.enter_async_context(run)

    async def _is_copied(self) -> bool:
        await self.slave.caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})  # something to wait for
        return self.slave.broker.store.log_max_offset == self.master.broker.store.log_max_offset


@asynccontextmanager
async def replica_pair(
    nameserver: NameServer, directory: pathlib.Path, settings: dict[str, str] = READABLE
) -> AsyncGenerator[ReplicaPair]:
    """Run a master with one queue of T, and have its slave at hand."""
    pair = ReplicaPair(nameserver, directory, settings)
    try:
        await pair.start_master()
        await pair.master.put_topic("T", 1)
        yield pair
    finally:
        await pair.close()
