"""A running broker.

    async with Broker(BrokerConfig.from_java(settings), LoopClock()) as broker:
        print(broker.address)

Start: lock and recover the store, load the tables, bind the ports, begin what its role does, register at the name
servers (waiting for them for a second at most). Stop, in the opposite order: unregister, end what its role does, answer
whoever waits, close the ports and every connection, save the tables, close the store. After it no connection, task,
thread, timer or file is left.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

from msgspec.structs import replace

from ..common.clock import Clock
from ..common.errors import ConfigError
from ..common.ids import decode_host, encode_host, format_address
from ..remoting.transport.addresses import Advertised, check_advertised, reachable_host, resolve_host
from ..remoting.transport.client import ConnectionPool
from ..remoting.transport.connection import Around, Connection, RequestHandlers
from ..remoting.transport.event_loop import TaskScope, repeat
from ..remoting.transport.limits import server_limits
from ..remoting.transport.server import RemotingServer
from ..store.files.files import OS_FILES, Files
from ..store.message_store import MessageStore
from .admin.cleaning import FIRST_ROUND_MS
from .components import Components
from .delay.delay_progress import DelayProgress, DelaySaveJob
from .group.filters import BloomShape, FilterTable
from .group.groups import GroupTable, OffsetTable, RequestModeTable
from .group.members import Presence
from .jobs import SaveJob
from .parts import AdminParts, StoredState
from .pop_answers import BATCH_FILE
from .ports import BrokerPorts, admit_clients
from .role import Reach, Role, slave_handlers
from .settings.config import BrokerConfig
from .settings.live import LiveSettings
from .settings.saved import SettingsFile, lay_under
from .topic.config_table import JOURNAL, ConfigFolder
from .topic.registration import NameServerLink
from .topic.topics import TopicTable
from .transaction.checks import GiveUp

if TYPE_CHECKING:
    import ssl

    from ..remoting.transport.busy_poll import BusyPoll
    from .admin.figures import Figures
    from .operations import BrokerOperations
    from .pop.ordered_batches import OrderedBatches
    from .replication.kept_tables import KeptTables
    from .replication.slave_link import SlaveState
    from .security.storage import InThread, SecurityStore

_KEPT_FILES = ("replica.json", JOURNAL)
_SECURITY_FILES = ("users.json", "acls.json")
T = TypeVar("T")


class Broker:
    """One broker over one store (``BrokerController``).

    ``files`` is how the store touches the disk. ``give_up`` says what is kept of a transaction that nobody has decided
    about after ``transactionCheckMax`` checks; unless given, a copy in TRANS_CHECK_MAX_TIME_TOPIC. ``around`` stands
    before its handlers, where there is one. ``busy_poll`` looks for requests, where the loop is there for this broker
    alone.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        files: Files = OS_FILES,
        *,
        give_up: GiveUp | None = None,
        around: Around | None = None,
        busy_poll: "BusyPoll | None" = None,
    ) -> None:
        self.busy_poll = busy_poll
        self._config = config
        self._files = files
        self._give_up = give_up
        self._around = around
        self._clock = clock
        self.advertised = Advertised(config.advertised_host, config.advertised_port, (config.host, config.port))
        self._own_ip = ""
        self._store: MessageStore | None = None
        self._parts: Components | None = None
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<Broker {self._config.broker_name} at {self.address}>"

    @property
    def address(self) -> str:
        """The ``host:port`` that clients shall use; after the start, with the port that is bound."""
        return format_address(*self.advertised.told)

    @property
    def store(self) -> MessageStore:
        """The open store of a started broker."""
        assert self._store is not None, "the store is there between start and stop"
        return self._store

    @property
    def clients(self) -> Mapping[Connection, Presence]:
        """The clients of a started broker: their connections, each with its groups."""
        assert self._parts is not None, "clients are known between start and stop"
        return self._parts.clients.connected()

    @property
    def slaves(self) -> "list[SlaveState]":
        """The slaves that copy the log of a started broker, and how far they have come."""
        assert self._parts is not None, "slaves are known between start and stop"
        return self._parts.replication.server.states()

    @property
    def figures(self) -> "Figures":
        """What measures a started broker; the one door for whoever watches it from outside."""
        assert self._parts is not None, "there is something to measure between start and stop"
        return self._parts.figures

    @property
    def operations(self) -> "BrokerOperations":
        """What a started broker does for clients, for whoever serves them by another protocol in the same process."""
        assert self._parts is not None, "there is something to do between start and stop"
        return self._parts.operations

    @property
    def parts(self) -> AdminParts:
        """What a started broker consists of, for whoever looks at it in the same process."""
        assert self._parts is not None, "there are parts between start and stop"
        return self._parts.admin_parts

    @property
    def wait_ms(self) -> int | None:
        """How long a started broker has nothing to do at an instant that was planned; None when nothing is planned."""
        assert self._parts is not None, "something may be due between start and stop"
        return self._parts.wait_ms

    @property
    def checks_asked(self) -> int:
        """How often a started broker has asked producers about a transaction."""
        assert self._parts is not None, "producers are asked between start and stop"
        return self._parts.checks_asked

    @property
    def config(self) -> BrokerConfig:
        """What the broker was started with."""
        return self._config

    async def __aenter__(self) -> Self:
        """Start.

        Raises:
            ConfigError: a setting, the port or the directory cannot be used.
            StoreInUseError: somebody else has the store open.
            StoreDamagedError: the store needs ``rocketlet store repair``.
        """
        self._own_ip = await _find_own_ip(self._config, self._clock)
        if self._config.advertised_host and self._config.advertised_port in {0, self._config.port}:
            check_advertised(self._own_ip, self._config.host)
        async with AsyncExitStack() as stack:
            writer = stack.enter_context(ThreadPoolExecutor(1, "rocketlet-files"))
            self._store = await self._open_store(stack, writer)
            await self._serve(stack, writer, await self._load_state(stack, writer))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self._stack.aclose()

    def after_read(self, peer: object, requests: int) -> None:
        """Do what waits until the requests that a read of a peer brought are answered."""
        assert self._parts is not None, "requests are read between start and stop"
        self._parts.notices.hand_out_behind(self._parts.scheduler.make_readable)
        if self.busy_poll is not None and requests <= 1:
            self.busy_poll.after_read(peer)

    async def register(self) -> None:
        """Tell all name servers everything anew; return when that is done or has failed, or after a second."""
        assert self._parts is not None, "name servers are told between start and stop"
        await self._parts.registration.tell_everybody()

    async def announce_grpc(self, address: str) -> None:
        """Tell name servers at which address a started broker serves clients of gRPC."""
        assert self._parts is not None, "name servers are told between start and stop"
        await self._parts.registration.announce_grpc(address)

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

    async def _load_state(self, stack: AsyncExitStack, writer: ThreadPoolExecutor) -> StoredState:
        """Load the tables; after a kill, bring them into accord with what the store holds."""
        now_ms, store = self._clock.now_ms, self.store
        config = await _run_in(writer, partial(lay_under, self._config, self._files))
        store.reconfigure(config.store)
        settings = LiveSettings(config, decode_host(self._store_host())[0])
        topics = TopicTable(settings, store.stamp_ms)
        groups = GroupTable(now_ms, lambda: settings.config.auto_create_groups)
        offsets = OffsetTable(now_ms, version_step=config.offset_version_step)
        shape = BloomShape.of(error_percent=config.filter_error_percent, consumers=config.filter_consumers)
        filters = FilterTable(now_ms, shape, keep_dead_ms=config.filter_keep_ms)
        delays = DelayProgress(now_ms, version_step=config.delay_version_step)
        folder = ConfigFolder(os.path.join(config.store.root, "config"), writer, self._files)
        modes = RequestModeTable()
        names = await _run_in(writer, partial(_config_files, config, self._files))
        kept = _find_kept(config, names, now_ms(), self._files)
        batches = _find_batches(names, topics, groups, now_ms)
        more = (*(kept.tables if kept else ()), *((batches,) if batches else ()))
        saving = SaveJob(folder, (topics, groups, offsets, modes, filters, *more), settings)
        await _run_in(writer, saving.load)
        await _run_in(writer, partial(folder.load, delays))
        is_slave = config.replication.is_slave
        known_until_ms = await self._take_role(writer, kept, topics.saved_at_ms, is_slave=is_slave)
        if not store.was_closed_cleanly:
            offsets.pull_back(store.max_offset)
            find_unsaved = partial(store.topics_since, known_until_ms, lambda name: topics.get(name) is not None)
            topics.restore(await _run_in(writer, find_unsaved))
            await saving.run_once()  # before a message can arrive there
        topics.adopt_batch_topics(store.batch_topics())
        stack.push_async_callback(saving.run_once)
        delay_saving = DelaySaveJob(store, folder, delays, config.flush_delays_ms)
        file = SettingsFile(config, self._files)
        tables = (topics, groups, offsets, modes, filters)
        security = await _find_security(config, names, partial(_run_in, writer), self._files)
        return StoredState(
            store, settings, file, *tables, delays, saving, delay_saving, kept, batches, security, self._files
        )

    async def _take_role(
        self, writer: ThreadPoolExecutor, kept: "KeptTables | None", saved_at_ms: int, *, is_slave: bool
    ) -> int:
        """Mark the tables as those of a slave, or as a slave's no more; return until when their topics are all."""
        if kept is None:
            return saved_at_ms
        if is_slave:
            kept.mark.begin()
            await _run_in(writer, kept.timer_check.load)
            return saved_at_ms
        if not kept.mark.is_of_slave:
            return saved_at_ms
        self.store.doubt_end()  # the tables are copies, older or newer than the log, or were never copied
        is_copied = kept.mark.is_set
        kept.mark.remove()
        return saved_at_ms if is_copied else 0

    async def _serve(self, stack: AsyncExitStack, writer: ThreadPoolExecutor, state: StoredState) -> None:
        tasks = await stack.enter_async_context(TaskScope())
        parts = self._parts = Components(self._clock, state, writer, tasks, self._store_host())
        stack.callback(parts.scheduler.close)
        user = self._config.security.inner_user
        tls = await _client_tls(self._config)
        pool = await stack.enter_async_context(ConnectionPool(self._clock, tls=tls, sign=user.sign if user else None))
        if not (self.store.was_closed_cleanly or self._config.replication.is_slave):
            delivery = parts.delay_delivery
            delivery.pass_delivered(await _run_in(writer, delivery.find_delivered))
        await state.delay_saving.run_once()
        notices = parts.notices  # what the store's end writes nobody waits for
        stack.callback(self.store.subscribe(notices.collect, notices.coming))
        ports = await self._bind(stack, parts)
        stack.callback(parts.long_polling.wake_all)
        stack.push_async_callback(parts.scheduler.drain)
        stack.callback(parts.scheduler.stop_parking)
        for job in parts.jobs:
            tasks.start(repeat(job.run, self._clock, first_ms=job.period_ms), type(job).__name__)
        tasks.start(repeat(parts.cleaning.run, self._clock, first_ms=FIRST_ROUND_MS), "cleaning")
        replication = replace(self._config.replication, ha_port=ports.ha_port)
        bound = replace(self._config, port=self.advertised.bound[1], replication=replication)
        tell = parts.replication.master.tell
        links = [NameServerLink(address, pool, bound, tell) for address in bound.nameserver_list]
        role = Role(parts, state.delay_saving, self._clock, Reach(pool, links, bound), self._give_up)
        await stack.enter_async_context(role)
        stack.push_async_callback(parts.registration.stop)
        await role.go_online()

    async def _bind(self, stack: AsyncExitStack, parts: Components) -> BrokerPorts:
        by_code = {**parts.handlers, **(slave_handlers(parts) if self._config.replication.is_slave else {})}
        handlers = RequestHandlers(by_code, parts.admin.answer, parts.scheduler.commit_turn, self.after_read)
        if parts.access is not None:
            from .security.guard import Guard  # not for brokers that serve everybody, as most do

            handlers = Guard(self._config, parts.access, self.store, self._clock).around(handlers)
        if self._around is not None:
            handlers = self._around(handlers)
        limits = server_limits(
            self._config.max_idle_seconds, self._config.high_water_bytes, self._config.low_water_bytes
        )
        clock, events = self._clock, parts.connection_events
        admission = await admit_clients(self._config, clock)

        def make_server(port: int) -> RemotingServer:
            return RemotingServer(self._config.host, port, handlers, clock, limits, events, admission=admission)

        ports = BrokerPorts(self._config, make_server, parts.replication.server)
        await stack.enter_async_context(ports)
        if self._config.port != ports.address[1]:  # a free port was asked for; nobody can have used it yet
            self.advertised = self.advertised._replace(bound=ports.address)
            self.store.set_store_host(self._store_host())
        return ports

    def _store_host(self) -> bytes:
        """The host that message ids name: callers of 33 connect to it."""
        return encode_host(self._own_ip, self.advertised.port or self.advertised.bound[1])


def _config_files(config: BrokerConfig, files: Files) -> frozenset[str]:
    return frozenset(entry.name.removesuffix(".bak") for entry in files.list(os.path.join(config.store.root, "config")))


def _find_kept(config: BrokerConfig, names: frozenset[str], now_ms: int, files: Files) -> "KeptTables | None":
    """Return the tables that a slave keeps, or another broker has left; none where there is nothing of the sort."""
    if not (config.replication.is_slave or names.intersection(_KEPT_FILES)):
        return None
    from .replication.kept_tables import keep_tables  # not for masters that were never slaves, as most brokers are

    return keep_tables(config.store.root, now_ms, files, is_slave=config.replication.is_slave)


def _find_batches(
    names: frozenset[str], topics: TopicTable, groups: GroupTable, now_ms: Callable[[], int]
) -> "OrderedBatches | None":
    """Return the table of what was popped in order, where there is a file of it; most brokers never have one."""
    if BATCH_FILE not in names:
        return None
    from .pop.ordered_batches import make_ordered_batches

    return make_ordered_batches(topics, groups, now_ms)


async def _find_security(
    config: BrokerConfig, names: frozenset[str], in_thread: "InThread", files: Files
) -> "SecurityStore | None":
    """Return users and policies, with those of the settings; none where nobody asks for them, as with most brokers."""
    wanted = config.security
    makes_users = wanted.init_user_text or wanted.inner_credentials_text or wanted.imports_plain_acl
    if not (wanted.authenticates or makes_users or names.intersection(_SECURITY_FILES)):
        return None
    from .security.first_users import open_security

    return await open_security(config, in_thread, files)


async def _client_tls(config: BrokerConfig) -> "ssl.SSLContext | None":
    """Return how other servers are spoken to, None for plain text."""
    if not config.tls.is_client_on:
        return None
    from ..remoting.tls.contexts import client_context

    return await asyncio.to_thread(client_context, config.tls)


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
