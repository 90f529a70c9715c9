"""The broker's timed jobs: one round each, run by ``repeat`` (which logs a failure, pauses, and goes on).

flush      as often as flushIntervalCommitLog and flushIntervalConsumeQueue say, a second at most: what is due by now
save       every flushConsumerOffsetInterval: the tables that changed
scan       every 10 s: clients that send no heartbeats any more, filters of groups that are long gone
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Protocol

from ..store.files.file_sync import Done
from ..store.message_store import MessageStore
from .group.filters import FilterTable
from .group.handlers import ClientHandlers
from .settings.live import LiveSettings
from .topic.config_table import RETRY_MS, ConfigFolder, ConfigTable

_LONGEST_PERIOD_MS = 1_000  # of the checkpoint
_log = logging.getLogger(__name__)


class TimedJob(Protocol):
    """Something to do now and then."""

    @property
    def period_ms(self) -> int:
        """The pause before the first round."""
        ...

    async def run(self) -> int:
        """Do it once; return the pause."""
        ...


class FlushJob:
    """Asks the store to bring to disk what was written; ``on_flushed`` is called on the flusher's thread."""

    def __init__(self, store: MessageStore, worker: Executor, on_flushed: Done | None) -> None:
        self._store = store
        self._worker = worker
        self._on_flushed = on_flushed

    @property
    def period_ms(self) -> int:
        """The pause between rounds."""
        config = self._store.config
        return min(config.flush_log_interval_ms, config.flush_queue_interval_ms, _LONGEST_PERIOD_MS) or 1

    async def run(self) -> int:
        """Do what waits and flush what is due; return the pause."""
        if self._store.needs_index_tools:
            with suppress(OSError):  # there is no descriptor for them now; the store refuses records when too many wait
                await asyncio.get_running_loop().run_in_executor(self._worker, self._store.prepare_index)
        self._store.tick()
        self._store.flush_when_due(self._on_flushed)
        return self.period_ms


class SaveJob:
    """Writes the tables that changed."""

    def __init__(self, folder: ConfigFolder, tables: Sequence[ConfigTable[Any]], settings: LiveSettings) -> None:
        self._folder = folder
        self._tables = list(tables)
        self._settings = settings

    def add(self, table: ConfigTable[Any]) -> None:
        """Write one more table, of which there was no file."""
        self._tables.append(table)

    @property
    def period_ms(self) -> int:
        """The pause between rounds."""
        return self._settings.config.flush_offsets_ms

    def load(self) -> None:
        """Fill the tables from their files (raises ``ConfigError``)."""
        self._folder.finish()
        for table in self._tables:
            self._folder.load(table)

    async def run(self) -> int:
        """Write; return the pause, a short one if some table could not be written."""
        return self.period_ms if await self.run_once() else min(RETRY_MS, self.period_ms)

    async def run_once(self) -> bool:
        """Write what has changed, together; what cannot be written is logged and stays for the next round.

        Tell if all were written.
        """
        failures = await self._folder.save_together(self._tables)
        for name, error in failures.items():
            text = "saving config/%s failed, retrying within %d ms: %s"
            _log.warning(text, name, RETRY_MS, error, exc_info=None if isinstance(error, OSError) else error)
        return not failures


class ScanJob:
    """Closes the connections of clients that have fallen silent, and drops the filters of groups long gone."""

    period_ms = 10_000

    def __init__(self, clients: ClientHandlers, filters: FilterTable, settings: LiveSettings) -> None:
        self._clients = clients
        self._filters = filters
        self._settings = settings

    async def run(self) -> int:
        """Look at all clients and filters; return the pause."""
        self._clients.close_silent(self._settings.config.channel_expiry_ms)
        self._filters.drop_long_dead()
        return self.period_ms
