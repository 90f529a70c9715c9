"""A running broker.

    async with Broker(BrokerConfig.from_java(settings), LoopClock()) as broker:
        print(broker.address)

Start: lock and recover the store, load the tables, bind the port, register at the name servers (waiting for them for a
second at most). Stop, in the opposite order: unregister, answer whoever waits, close the port and every connection,
save the tables, close the store. After it no connection, task, thread, timer or file is left.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from ..common.clock import Clock
from ..common.errors import ConfigError
from ..common.ids import encode_host, format_address
from ..common.names import SCHEDULE_TOPIC, TIMER_TOPIC
from ..remoting.transport.addresses import Advertised, check_advertised, reachable_host, resolve_host
from ..remoting.transport.client import ConnectionPool
from ..remoting.transport.connection import Connection, Service
from ..remoting.transport.event_loop import TaskScope, repeat
from ..remoting.transport.limits import server_limits
from ..remoting.transport.server import RemotingServer
from ..store.files.files import OS_FILES, Files
from ..store.message_store import MessageStore
from ..store.timer.timers import Timers
from .admin.cleaning import FIRST_ROUND_MS, CleaningJob
from .admin.runtime_info import RuntimeInfo, schedule_lines, tell_timers
from .admin.statistics import BrokerStatistics
from .build import Foundation, build_checks, build_parts
from .delay.delay_delivery import DelayedDelivery, start_delivery
from .delay.delay_progress import DelayProgress, DelaySaveJob
from .delay.delayed_messages import DelayRouting, Delays
from .delay.timer_delivery import TimerDelivery
from .delay.timer_jobs import start_timers
from .delay.timer_messages import TimerRequests
from .group.filters import BloomShape, FilterTable
from .group.groups import GroupTable, OffsetTable
from .group.handlers import ClientHandlers
from .group.members import Members, Presence
from .handlers import BrokerParts, broker_handlers
from .jobs import FlushJob, SaveJob, ScanJob, TimedJob
from .outcomes.disk_stall import Patience
from .outcomes.scheduler import Scheduler
from .pull.fetch import ReadCounts
from .pull.long_polling import ArrivalNotices, LongPolling, by_topic
from .settings.config import BrokerConfig
from .topic.config_table import ConfigFolder
from .topic.registration import NameServerLink, Registration
from .topic.topics import TopicTable
from .transaction.check_jobs import start_checks
from .transaction.checks import GiveUp
from .transaction.transactions import Transactions

T = TypeVar("T")


class _FileJobs(NamedTuple):
    """The timed jobs that write files."""

    flushing: FlushJob
    saving: SaveJob


class _Tables(NamedTuple):
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    filters: FilterTable


class _Founded(NamedTuple):
    """What the parts of the broker stand on, and what only its start needs."""

    base: Foundation
    registration: Registration
    timers: Timers | None


class Broker:
    """One broker over one store (``BrokerController``).

    ``files`` is how the store touches the disk. ``give_up`` says what is kept of a transaction that nobody has decided
    about after ``transactionCheckMax`` checks; unless given, a copy in TRANS_CHECK_MAX_TIME_TOPIC.
    """

    def __init__(
        self, config: BrokerConfig, clock: Clock, files: Files = OS_FILES, *, give_up: GiveUp | None = None
    ) -> None:
        self._config = config
        self._files = files
        self._give_up = give_up
        self._clock = clock
        self._port = config.port
        self._own_ip = ""
        self._store: MessageStore | None = None
        self._clients: ClientHandlers | None = None
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<Broker {self._config.broker_name} at {self.address}>"

    @property
    def address(self) -> str:
        """The ``host:port`` that clients shall use; after the start, with the port that is bound."""
        host = self._config.advertised_host or reachable_host(self._config.host)
        return format_address(host, self._config.advertised_port or self._port)

    @property
    def advertised(self) -> Advertised | None:
        """What clients are told if the settings name it, and where the server listens."""
        host, port = self._config.advertised_host, self._port
        return Advertised(host, self._config.advertised_port or port, (self._config.host, port)) if host else None

    @property
    def store(self) -> MessageStore:
        """The open store of a started broker."""
        assert self._store is not None, "the store is there between start and stop"
        return self._store

    @property
    def clients(self) -> Mapping[Connection, Presence]:
        """The clients of a started broker: their connections, each with its groups."""
        assert self._clients is not None, "clients are known between start and stop"
        return self._clients.connected()

    async def __aenter__(self) -> Self:
        """Start.

        Raises:
            ConfigError: a setting, the port or the directory cannot be used.
            StoreInUseError: somebody else has the store open.
            StoreDamagedError: the store needs ``rocketlet store repair``.
        """
        self._own_ip = await _find_own_ip(self._config, self._clock)
        if self._config.advertised_host and self._config.advertised_port in {0, self._port}:
            check_advertised(self._own_ip, self._config.host)
        async with AsyncExitStack() as stack:
            writer = stack.enter_context(ThreadPoolExecutor(1, "rocketlet-files"))
            self._store = await self._open_store(stack, writer)
            saving, tables = await self._load_tables(writer)
            stack.push_async_callback(saving.run_once)
            flushing = FlushJob(self._store, writer)
            await self._serve(stack, writer, _FileJobs(flushing, saving), tables)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self._stack.aclose()

    async def _open_store(self, stack: AsyncExitStack, writer: ThreadPoolExecutor) -> MessageStore:
        open_store = partial(
            MessageStore.open,
            self._config.store,
            now_ms=self._clock.now_ms,
            monotonic_ms=self._clock.monotonic_ms,
            store_host=self._store_host(),
            files=self._files,
            repairs=self._config.repairs,
        )
        opening = writer.submit(open_store)
        stack.push_async_callback(_run_in, writer, partial(_close_opened, opening))
        return await asyncio.wrap_future(opening)

    async def _load_tables(self, writer: ThreadPoolExecutor) -> tuple[SaveJob, _Tables]:
        config, now_ms = self._config, self._clock.now_ms
        tables = _Tables(
            TopicTable(config, self.store.stamp_ms),
            GroupTable(now_ms, creates_unknown=config.auto_create_groups),
            OffsetTable(now_ms, version_step=config.offset_version_step),
            FilterTable(now_ms, _bloom_shape(config), keep_dead_ms=config.filter_keep_ms),
        )
        folder = ConfigFolder(os.path.join(config.store.root, "config"), writer, self._files)
        saving = SaveJob(folder, tables, config.flush_offsets_ms)
        await _run_in(writer, saving.load)
        if not self.store.was_closed_cleanly:
            tables.offsets.pull_back(self.store.max_offset)
            topics = tables.topics
            find_unsaved = partial(
                self.store.topics_since, topics.saved_at_ms, lambda name: topics.get(name) is not None
            )
            topics.restore(await _run_in(writer, find_unsaved))
            await saving.run_once()  # before a message can arrive there
        tables.topics.adopt_batch_topics(self.store.batch_topics())
        return saving, tables

    async def _serve(
        self, stack: AsyncExitStack, writer: ThreadPoolExecutor, on_files: _FileJobs, tables: _Tables
    ) -> None:
        clock, store = self._clock, self.store
        tasks = await stack.enter_async_context(TaskScope())
        base, registration, timers = self._found(stack, writer, on_files, tables, tasks)
        parts = build_parts(base, self._store_host()[:-4])
        self._clients = parts.clients
        pool = await stack.enter_async_context(ConnectionPool(clock))
        scheduler, commit = base.scheduler, base.scheduler.commit
        delivery, delay_saving = await self._open_delays(writer, commit)
        base.runtime.sources.append(lambda: schedule_lines(store, delivery.progress))
        timing = None if timers is None else TimerDelivery(store, timers, commit, timers.now_ms)
        takers = {SCHEDULE_TOPIC: delivery.take} | ({} if timing is None else {TIMER_TOPIC: timing.arrived})
        notices = ArrivalNotices(base.runtime.statistics.arrived, base.long_polling.arrived, by_topic(takers))
        stack.callback(store.subscribe(notices.collect))  # what the end of the store writes nobody waits for
        await self._bind(stack, scheduler, parts)
        parts.sends.set_store_host(self._store_host())
        stack.callback(base.long_polling.wake_all)
        stack.push_async_callback(scheduler.drain)
        stack.callback(scheduler.stop_parking)
        self._start_jobs(base, ScanJob(parts.clients, tables.filters, self._config.channel_expiry_ms), on_files)
        start_delivery(stack, tasks, clock, delivery, delay_saving)
        if timing is not None:
            start_timers(stack, tasks, clock, timing)
            tell_timers(base.runtime, timing, timing.timers.now_ms)
        start_checks(stack, tasks, clock, *build_checks(base, commit, self._give_up))
        stack.push_async_callback(registration.stop)
        links = [NameServerLink(address, pool, self._config, self._port) for address in self._config.nameserver_list]
        await registration.start(links)

    def _found(
        self,
        stack: AsyncExitStack,
        writer: ThreadPoolExecutor,
        on_files: _FileJobs,
        tables: _Tables,
        tasks: TaskScope,
    ) -> _Founded:
        """Make what the parts of the broker stand on."""
        config, clock, store = self._config, self._clock, self.store
        cleaning = CleaningJob(store.cleaner, writer, tasks, clock)
        registration = Registration(config, tables.topics, on_files.saving.run_once, tasks, clock)
        patience = Patience(config.disk_stall_ms, config.send_wait_ms, config.most_waiting_sends)
        scheduler = Scheduler(store, clock, registration.make_known, patience if config.fails_fast else None)
        stack.callback(scheduler.close)
        on_files.flushing.on_flushed = scheduler.tell_flushed if scheduler.flushes_first else None
        timers = store.timers() if config.is_timer_wheel_enabled else None
        base = Foundation(
            config,
            clock,
            store,
            *tables,
            LongPolling(clock),
            scheduler,
            registration.make_known,
            cleaning,
            DelayRouting(
                clock.now_ms,
                Delays(store.config.delays_ms),
                timers and TimerRequests(timers.config, timers.count_at, timers.ahead_ms),
            ),
            RuntimeInfo(store, BrokerStatistics(clock, ReadCounts()), cleaning, scheduler),
            tasks,
            Transactions(store, tables.offsets, scheduler.join, clock.now_ms, most_op_bytes=config.most_op_bytes),
            Members(lambda: store.log_max_offset),
        )
        return _Founded(base, registration, timers)

    def _start_jobs(self, base: Foundation, scanning: ScanJob, on_files: _FileJobs) -> None:
        jobs: tuple[TimedJob, ...] = (*on_files, scanning, base.runtime.statistics)
        for job in jobs:
            base.tasks.start(repeat(job.run, self._clock, first_ms=job.period_ms), type(job).__name__)
        base.tasks.start(repeat(base.cleaning.run, self._clock, first_ms=FIRST_ROUND_MS), "cleaning")

    async def _open_delays(
        self, writer: ThreadPoolExecutor, commit: Callable[[], None]
    ) -> tuple[DelayedDelivery, DelaySaveJob]:
        """Return who delivers delayed messages and who saves its progress; what had to be corrected is saved."""
        config, now_ms = self._config, self._clock.now_ms
        folder = ConfigFolder(os.path.join(config.store.root, "config"), writer, self._files)
        progress = DelayProgress(now_ms, version_step=config.delay_version_step)
        await _run_in(writer, partial(folder.load, progress))
        delivery = DelayedDelivery(self.store, commit, progress)
        if not self.store.was_closed_cleanly:
            delivery.pass_delivered(await _run_in(writer, delivery.find_delivered))
        saving = DelaySaveJob(self.store, folder, progress, config.flush_delays_ms)
        await saving.run_once()
        return delivery, saving

    async def _bind(self, stack: AsyncExitStack, scheduler: Scheduler, parts: BrokerParts) -> None:
        handlers = {int(code): handler for code, handler in broker_handlers(parts).items()}
        service = Service(handlers, after_batch=scheduler.end_turn)
        limits = server_limits(
            self._config.max_idle_seconds, self._config.high_water_bytes, self._config.low_water_bytes
        )
        server = RemotingServer(self._config.host, self._config.port, service, self._clock, limits)
        await stack.enter_async_context(server)
        if self._port != server.address[1]:  # a free port was asked for; nobody can have used it yet
            self._port = server.address[1]
            self.store.set_store_host(self._store_host())

    def _store_host(self) -> bytes:
        """The host that message ids name: callers of 33 connect to it."""
        return encode_host(self._own_ip, self._config.advertised_port or self._port)


def _bloom_shape(config: BrokerConfig) -> BloomShape:
    return BloomShape.of(error_percent=config.filter_error_percent, consumers=config.filter_consumers)


async def _find_own_ip(config: BrokerConfig, clock: Clock) -> str:
    host = config.advertised_host or reachable_host(config.host)
    try:
        return (await resolve_host(host, clock))[0]
    except OSError as error:
        key = "brokerIP1" if config.advertised_host else "bindAddress"
        raise ConfigError(f"{key} is {host!r}, which names no address: {error}", key=key) from error


async def _run_in(writer: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(writer, work)


def _close_opened(opening: Future[MessageStore]) -> None:
    """Close a store, also one whose opener was cancelled while it waited; runs on the thread that opened it."""
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
