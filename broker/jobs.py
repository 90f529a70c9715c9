"""The broker's timed jobs: one round each, run by ``repeat`` (which logs a failure, pauses, and goes on).

flush      every flushIntervalCommitLog, while there is something to flush
save       every flushConsumerOffsetInterval: the tables that changed
scan       every 10 s: clients that send no heartbeats any more
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from ..common.errors import StoreNotWritableError
from ..store.message_store import MessageStore
from .clients import ClientHandlers
from .configtable import ConfigFolder, ConfigTable

_QUIET_ROUNDS = 4  # queues and index are flushed less often than the log: go on until they are, too
_log = logging.getLogger(__name__)


class TimedJob(Protocol):
    """Something to do now and then."""

    period_ms: int

    async def run(self) -> int:
        """Do it once; return the pause."""
        ...


class FlushJob:
    """Asks the store to bring to disk what was written."""

    def __init__(self, store: MessageStore, period_ms: int, worker: Executor) -> None:
        self._store = store
        self._worker = worker
        self.period_ms = period_ms
        self._seen_offset = -1
        self._rounds_left = _QUIET_ROUNDS

    async def run(self) -> int:
        """Flush, unless nothing was written for some rounds; return the pause."""
        if self._store.needs_index_tools:
            await asyncio.get_running_loop().run_in_executor(self._worker, self._store.prepare_index)
        self._store.tick()
        log_offset = self._store.log_max_offset
        self._rounds_left = _QUIET_ROUNDS if log_offset != self._seen_offset else self._rounds_left - 1
        self._seen_offset = log_offset
        if self._rounds_left > 0:
            self._store.request_flush(_report_flush)
        return self.period_ms


class SaveJob:
    """Writes the tables that changed."""

    def __init__(self, folder: ConfigFolder, tables: Sequence[ConfigTable[Any]], period_ms: int) -> None:
        self._folder = folder
        self._tables = tables
        self.period_ms = period_ms

    def load(self) -> None:
        """Fill the tables from their files (raises ``ConfigError``)."""
        for table in self._tables:
            self._folder.load(table)

    async def run(self) -> int:
        """Write; return the pause (raises ``OSError``)."""
        for table in self._tables:
            await self._folder.save(table)
        return self.period_ms

    async def run_once(self) -> None:
        """Write; what the disk does not take is logged and stays for the next round."""
        try:
            await self.run()
        except OSError as error:
            _log.warning("topics, groups or offsets are not saved: %s", error)


class ScanJob:
    """Closes the connections of clients that have fallen silent."""

    period_ms = 10_000

    def __init__(self, clients: ClientHandlers, expiry_ms: int) -> None:
        self._clients = clients
        self._expiry_ms = expiry_ms

    async def run(self) -> int:
        """Look at all clients; return the pause."""
        self._clients.close_silent(self._expiry_ms)
        return self.period_ms


def _report_flush(error: StoreNotWritableError | None) -> None:
    if error is not None:
        _log.error("a flush failed, the store takes no more messages until the broker is started again: %s", error)
