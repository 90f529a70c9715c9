"""What a broker does as master, as slave, or as a slave that acts as master: the one place that starts and stops it.

    master   delivers delayed messages and timers, checks transactions
    slave    copies the log and the tables of its master; its deliveries and checks are those of its master
    acting   the same without a master: serves readers and writes nothing, so that deliveries and checks wait

Where slaves may act as master, each member follows who is there (``group_watch``), and may have to be level with the
others before clients find it (``pre_online``): a master delivers nothing until then.

Whatever else a slave does hangs here: a job goes to ``slave_jobs``, what it answers otherwise than a master to
``slave_handlers``. ``replication.master`` of the components says where the master is by now (``KnownMaster``: its
``address`` takes requests, and is empty while it is gone), ``is_slave`` of the settings what this broker is.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from ..common.clock import Clock
from ..remoting.transport.client import ConnectionPool
from ..remoting.transport.connection import Handler
from ..remoting.transport.event_loop import Job, TaskScope, repeat
from ..remoting.transport.server import handlers_of
from .components import Components
from .delay.delay_delivery import start_delivery
from .delay.delay_progress import DelaySaveJob
from .delay.timer_jobs import start_timers
from .settings.config import BrokerConfig
from .topic.registration import NameServerLink
from .transaction.check_jobs import start_checks
from .transaction.checks import GiveUp

if TYPE_CHECKING:
    from .replication.group_watch import GroupWatch

ONLINE_LIMIT_MS: Final = 1_000
_log = logging.getLogger(__name__)


class Reach(NamedTuple):
    """How a broker reaches others: over connections that it makes, and where it is to be found; as what it is bound."""

    pool: ConnectionPool
    name_servers: Sequence[NameServerLink]
    config: BrokerConfig


class Role:
    """The deliveries, checks and copies of a started broker; leaving the block stops them."""

    def __init__(
        self,
        parts: Components,
        delay_saving: DelaySaveJob,
        clock: Clock,
        reach: Reach,
        give_up: GiveUp | None,
    ) -> None:
        self._parts = parts
        self._reach = reach
        self._settings = reach.config.replication
        self._delay_saving = delay_saving
        self._clock = clock
        self._give_up = give_up
        self._stack = AsyncExitStack()
        self._tasks = TaskScope()
        self._watch: GroupWatch | None = None

    def __repr__(self) -> str:
        if self._watch is not None and self._watch.is_acting:
            return "<Role acting master>"
        return f"<Role {'slave' if self._settings.is_slave else 'master'}>"

    async def __aenter__(self) -> Self:
        """Start what the role does before clients find the broker."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._tasks)
            if self._settings.is_slave:
                self._start_copies(stack)
            elif not self._settings.begins_isolated:
                self._start_deliveries(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop it."""
        await self._stack.aclose()

    async def go_online(self) -> None:
        """Let clients find the broker, when it is level with its group if it shall be; that may outlast the start."""
        if not self._settings.acts_as_master:
            await self._register()
            return
        watch = self._watch = build_watch(self._parts, self._reach, self._clock)
        if not self._settings.begins_isolated:
            await self._register()
            self._follow_group(watch)
            return
        going = self._tasks.start(self._level_and_register(watch), "go online")
        self._stack.callback(going.cancel)
        try:
            async with self._clock.timeout(ONLINE_LIMIT_MS):
                await asyncio.wait([going])
        except TimeoutError:
            _log.warning("not online after %d ms, going on in the background", ONLINE_LIMIT_MS)

    async def _register(self) -> None:
        await self._parts.registration.start(self._reach.name_servers)

    async def _level_and_register(self, watch: "GroupWatch") -> None:
        from .replication.master_requests import MasterRequests
        from .replication.pre_online import PreOnline

        parts = self._parts
        ask = partial(MasterRequests, self._reach.pool)
        level = PreOnline(watch, parts.replication, parts.master_progress(), ask, self._clock)
        await repeat(level.run, self._clock)
        if not self._settings.is_slave:
            self._start_deliveries(self._stack)
        await self._register()
        self._follow_group(watch)

    def _follow_group(self, watch: "GroupWatch") -> None:
        parts = self._parts
        parts.replication.master.subscribe(self._send_readers_home)
        for name, job in {"say that it is alive": parts.registration.say_alive, "follow the group": watch.run}.items():
            self._tasks.start(repeat(job, self._clock), name)

    def _send_readers_home(self) -> None:
        """Answer pulls that wait here when the master is back, which is named in the answers."""
        if self._parts.replication.master.address:
            self._parts.long_polling.wake_all()

    def _start_deliveries(self, stack: AsyncExitStack) -> None:
        clock, parts, tasks = self._clock, self._parts, self._tasks
        start_delivery(stack, tasks, clock, parts.delay_delivery, self._delay_saving)
        if parts.timer_delivery is not None:
            start_timers(stack, tasks, clock, parts.timer_delivery)
        parts.pop.begin(stack, self._tasks, has_unsettled=parts.has_unsettled_leases)
        start_checks(stack, tasks, clock, *parts.build_checks(self._give_up))

    def _start_copies(self, stack: AsyncExitStack) -> None:
        copy = self._parts.table_copy
        assert copy is not None, "a slave copies tables"
        stack.callback(self._parts.scheduler.store.subscribe(copy.notice))
        for name, job in slave_jobs(self._parts, self._reach.pool).items():
            self._tasks.start(repeat(job, self._clock), name)


def build_watch(parts: Components, reach: Reach, clock: Clock) -> "GroupWatch":
    """Return who follows which brokers of the group are there."""
    from .replication.group_watch import GroupWatch
    from .replication.master_requests import MasterRequests

    def ask_ha_address(address: str) -> Coroutine[Any, Any, str]:
        return MasterRequests(reach.pool, address).ha_address()

    return GroupWatch(reach.name_servers, reach.config, parts.replication, ask_ha_address, clock)


def slave_jobs(parts: Components, pool: ConnectionPool) -> Mapping[str, Job]:
    """Return what a slave does all the time, by the names of the tasks."""
    from .replication.master_requests import MasterRequests

    client, copy = parts.replication.client, parts.table_copy
    assert client is not None, "only a slave has such jobs"
    assert copy is not None, "as before"
    ask = partial(MasterRequests, pool)

    async def copy_log() -> int | None:
        await parts.replication.master.wait_ha_address()
        await copy.wait_topics()
        return await client.run(ask)

    async def copy_tables() -> int:
        return await copy.run(ask)

    return {"copy the log": copy_log, "copy the tables": copy_tables}


def slave_handlers(parts: Components) -> dict[int, Handler]:
    """Return what a slave answers otherwise than a master."""
    from .replication.slave_handlers import SlaveReads, SlaveSends, SlaveTables  # not for masters, as most brokers are

    copy, settings = parts.table_copy, parts.settings
    assert copy is not None, "only a slave answers so"
    reads = SlaveReads(parts.handlers, copy, parts.replication.master, settings)
    return handlers_of(SlaveSends(settings), reads, SlaveTables(parts.admin.answer))
