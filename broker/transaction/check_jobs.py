"""The timed job of transactions (``TransactionalMessageCheckService``).

First the op messages that were there at the start are read. Then a round begins every ``transactionCheckInterval``,
counted from the end of the one before. The cursors are saved as often as consumer offsets, behind a flush of the log.
"""

import asyncio
import logging
from contextlib import AsyncExitStack

from msgspec import Struct

from ...common.clock import Clock
from ...common.errors import StoreNotWritableError
from ...common.names import TRANSACTION_DISCARD_TOPIC
from ...common.record import NewRecord, Record
from ...remoting.transport.event_loop import TaskScope, repeat
from ..outcomes.group_commit import WriteRetry, wait_flushed
from ..settings.live import LiveSettings
from ..topic.topics import TopicTable
from .checks import CheckRequest, CheckSender, GiveUp, TransactionChecks
from .half_messages import given_up
from .transactions import Transactions

_log = logging.getLogger(__name__)


class CheckJob:
    """Checks the open transactions of a broker, with a pause between rounds."""

    def __init__(self, checks: TransactionChecks, sender: CheckSender, clock: Clock, settings: LiveSettings) -> None:
        self._store = checks.store
        self._transactions = checks.transactions
        self._checks = checks
        self._sender = sender
        self._clock = clock
        self._settings = settings
        self._retry = WriteRetry("transaction checks are")
        self._has_read = False
        self._next_at_ms = 0

    @property
    def wait_ms(self) -> int | None:
        """How long it is until the next round; None while no transaction is open."""
        return self._next_at_ms - self._clock.monotonic_ms() if self._transactions.has_open else None

    async def run(self) -> int:
        """Read op messages the first time, later check; return the pause."""
        pause_ms = await self._retry.run(self._check if self._has_read else self._read, self._period_ms)
        self._next_at_ms = self._clock.monotonic_ms() + pause_ms
        return pause_ms

    @property
    def _period_ms(self) -> int:
        return self._settings.config.check_period_ms

    async def _read(self) -> int:
        self._has_read = not self._transactions.read_ops()
        await asyncio.sleep(0)  # others have their turn
        return self._period_ms if self._has_read else 0

    async def _check(self) -> int:
        began_at_ms, is_last = self._store.time.stamp_ms(), False
        self._transactions.mark()
        self._sender.begin()
        while not is_last:
            step = self._checks.step(began_at_ms, self._clock.now_ms())
            await self._ask(step.questions)
            if step.failure is not None:
                raise step.failure
            is_last = step.is_last
            await asyncio.sleep(0)  # others have their turn
        return self._period_ms

    async def _ask(self, questions: list[CheckRequest]) -> None:
        if self._transactions.has_copies and self._store.confirm_offset < self._store.log_max_offset:
            await wait_flushed(self._store)  # a copy that cannot be read cannot be committed
            self._store.advance()
        self._transactions.forget_copies()
        for question in questions:
            self._sender.ask(question, self._store.store_host)


class CursorSaveJob(Struct, frozen=True):
    """Has the cursors saved that have moved."""

    transactions: Transactions
    settings: LiveSettings

    @property
    def period_ms(self) -> int:
        """The pause between rounds."""
        return self.settings.config.flush_offsets_ms

    async def run(self) -> int:
        """Do it once; return the pause (raises ``OSError``, ``StoreNotWritableError``)."""
        cursors = self.transactions.cursors
        if not self.transactions.is_saved(cursors):
            await wait_flushed(self.transactions.store)
            self.transactions.save(cursors)
        return self.period_ms

    async def run_once(self) -> None:
        """Do it for the last time; what is not saved is checked once more."""
        try:
            await self.run()
        except (StoreNotWritableError, OSError) as error:
            _log.warning(
                "saving the progress of transaction checks failed, some are checked once more after the restart: %s",
                error,
            )


def keep_given_up(topics: TopicTable) -> GiveUp:
    """Return the policy of Java's default listener: a copy goes to TRANS_CHECK_MAX_TIME_TOPIC."""

    def keep(half: Record) -> NewRecord:
        topics.ensure(TRANSACTION_DISCARD_TOPIC, 1)
        return given_up(half)

    return keep


def start_checks(stack: AsyncExitStack, tasks: TaskScope, clock: Clock, job: CheckJob, saving: CursorSaveJob) -> None:
    """Check and save from now on; leaving the stack saves for the last time."""
    stack.push_async_callback(saving.run_once)
    tasks.start(repeat(job.run, clock), "check transactions")
    tasks.start(repeat(saving.run, clock, first_ms=saving.period_ms), "save how far transactions are checked")
