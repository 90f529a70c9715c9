"""What a broker does as master or as slave: the one place that starts and stops it.

    master   delivers delayed messages and timers, checks transactions
    slave    copies the log and the tables of its master; its deliveries and checks are those of its master

Whatever else a slave does hangs here: a job goes to ``slave_jobs``, what it answers otherwise than a master to
``slave_handlers``. ``replication.master`` of the components says where the master is by now (``KnownMaster``: its
``address`` takes requests, and is empty while it is gone), ``is_slave`` of the settings what this broker is.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from ..common.clock import Clock
from ..remoting.transport.client import ConnectionPool
from ..remoting.transport.connection import Handler
from ..remoting.transport.event_loop import Job, TaskScope, repeat
from ..remoting.transport.server import handlers_of
from .components import Components
from .delay.delay_delivery import start_delivery
from .delay.delay_progress import DelaySaveJob
from .delay.timer_jobs import start_timers
from .transaction.check_jobs import start_checks
from .transaction.checks import GiveUp


class Role:
    """The deliveries, checks and copies of a started broker; leaving the block stops them."""

    def __init__(
        self,
        parts: Components,
        delay_saving: DelaySaveJob,
        clock: Clock,
        pool: ConnectionPool,
        give_up: GiveUp | None,
    ) -> None:
        self._parts = parts
        self._pool = pool
        self._delay_saving = delay_saving
        self._clock = clock
        self._give_up = give_up
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<Role {'master' if self._parts.replication.client is None else 'slave'}>"

    async def __aenter__(self) -> Self:
        """Start what the role does."""
        async with AsyncExitStack() as stack:
            tasks = await stack.enter_async_context(TaskScope())
            if self._parts.replication.client is None:
                self._start_deliveries(stack, tasks)
            else:
                self._start_copies(stack, tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop it."""
        await self._stack.aclose()

    def _start_deliveries(self, stack: AsyncExitStack, tasks: TaskScope) -> None:
        clock, parts = self._clock, self._parts
        start_delivery(stack, tasks, clock, parts.delay_delivery, self._delay_saving)
        if parts.timer_delivery is not None:
            start_timers(stack, tasks, clock, parts.timer_delivery)
        start_checks(stack, tasks, clock, *parts.build_checks(self._give_up))

    def _start_copies(self, stack: AsyncExitStack, tasks: TaskScope) -> None:
        copy = self._parts.table_copy
        assert copy is not None, "a slave copies tables"
        stack.callback(self._parts.scheduler.store.subscribe(copy.notice))
        for name, job in slave_jobs(self._parts, self._pool).items():
            tasks.start(repeat(job, self._clock), name)


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
