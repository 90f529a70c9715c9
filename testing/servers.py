"""The servers behind a broker fixture: started, stopped, killed and started again, on the same ports and store.

Everything here runs on the broker's loop. Each server lives in a task of its own, so that any other may end it.

    stop     unregister, answer who waits, save, close: what ``rocketlet broker`` does at SIGTERM
    kill     nothing is written any more and connections are reset, as SIGKILL leaves it; the page cache survives. What
             is left then closes its files without a word: the name server finds the connection closed
    restart  recover the store and serve on the same ports; while a server is down its ports are kept from others
    reset    the same with the store of the beginning: an empty one, or that of a snapshot
    restore  the same with the store of another snapshot; if it cannot be used, all is as it was before
"""

import asyncio
import pathlib
import ssl
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from msgspec.structs import replace

from ..broker.group.members import Presence
from ..broker.server import Broker
from ..broker.settings.config import BrokerConfig
from ..common.ids import Address, format_address
from ..namesrv.config import NameServerConfig
from ..namesrv.server import NameServer
from ..remoting.tls.contexts import client_context
from ..remoting.tls.tls_settings import TlsConfig
from ..remoting.transport.addresses import Advertised, local_host
from ..remoting.transport.connection import Connection, RequestHandlers
from ..remoting.transport.event_loop import LoopClock, TaskScope
from ..store.files.files import Files
from .broker_clock import in_time_of
from .faults.broker_errors import BrokerErrors
from .faults.disk_faults import DiskFaults
from .faults.hits import RunOnLoop
from .faults.interception import BrokerIdentity, Interception
from .faults.request_faults import FaultBook
from .grpc_door import GrpcDoor
from .loop_thread import LoopThread
from .movable_clock import MovableClock
from .server_run import ServerRun, keep_ports
from .snapshots import StoreExchange, empty, unpack_file
from .views.client_requests import RequestLog
from .views.consumption import ConsumptionTracker

if TYPE_CHECKING:
    from ..proxy.rpc.call import Methods


class SharedServers(NamedTuple):
    """What brokers of one fixture share: thread and clock, and the name server of the first."""

    thread: LoopThread
    clock: MovableClock
    first: "Servers"


class Deployment(NamedTuple):
    """Where servers are, what clients are told of that, and with what they begin.

    ``nameserver`` is how the name server is set, ``advertised_port`` what clients shall use instead of the broker's
    port, unless 0; temporary directories are made in ``directory``. ``beginning`` is the snapshot with whose store the
    broker starts, and to which ``reset_broker`` goes back.
    """

    nameserver: NameServerConfig = NameServerConfig(port=0)
    advertised_port: int = 0
    directory: str | None = None
    beginning: pathlib.Path | None = None


ON_THIS_MACHINE: Final = Deployment()


class BrokerDownError(RuntimeError):
    """The broker does not run: a test has stopped or killed it."""


class Servers:
    """A broker, and the name server at which it registers unless it is that of another broker; a context manager."""

    def __init__(
        self,
        settings: Mapping[str, str],
        files: Files,
        clock: MovableClock,
        first: "Servers | None" = None,
        deployment: Deployment = ON_THIS_MACHINE,
    ) -> None:
        self._settings = settings
        self._tls = TlsConfig.from_java(settings)
        self._beginning = deployment.beginning
        self._clock = clock
        self._first = first
        self._deployment = deployment
        self.files = files
        self.log = RequestLog()
        self.book = FaultBook()
        self.errors = BrokerErrors() if first is None else first.errors
        self._added: list[Servers] = []
        self.nameserver_door = Interception("name server", self.book, self.log, self.errors, clock)
        self.door = Interception(str(self.identity), self.book, self.log, self.errors, clock)
        self.tracker = ConsumptionTracker(lambda: self.broker.parts)
        self._tasks = TaskScope()
        self._stack = ExitStack()
        self.grpc = GrpcDoor(self._tasks, self._around_methods)
        self._broker: Broker | None = None
        self._broker_run: ServerRun | None = None
        self._nameserver_run: ServerRun | None = None
        self._kept_ports = ExitStack()
        self._kept_nameserver_port = ExitStack()
        self.address: Address = ("", 0)
        self._nameserver_port = deployment.nameserver.port
        self.nameserver = "" if first is None else first.nameserver
        """Where the name server is reached from here."""
        self.nameserver_advertised = Advertised("", 0, self.address) if first is None else first.nameserver_advertised
        """Where clients find the name server."""

    def __repr__(self) -> str:
        return f"<Servers of {self.name}, {'stopped' if self._broker is None else 'running'}>"

    @property
    def name(self) -> str:
        """The name of the broker."""
        return self._settings["brokerName"]

    @property
    def identity(self) -> BrokerIdentity:
        """The name and the number of the broker."""
        return BrokerIdentity(self.name, self._settings.get("brokerId", "0"))

    @property
    def broker(self) -> Broker:
        """The running broker (raises ``BrokerDownError`` while there is none)."""
        if self._broker is None:
            raise BrokerDownError(f"{self.name} does not run: restart starts it again")
        return self._broker

    @property
    def client_tls(self) -> ssl.SSLContext | None:
        """How clients of this process speak to the servers: by TLS, where those ask for it."""
        return client_context(self._tls)

    @property
    def local_address(self) -> str:
        """Where the running broker is reached from here, whatever clients are told."""
        host, port = self.broker.advertised.bound
        return format_address(local_host(host), port)

    @property
    def clients(self) -> Mapping[Connection, Presence]:
        """The clients of the broker, none while it does not run."""
        return {} if self._broker is None else self._broker.clients

    def running(self) -> list[tuple[Broker, ConsumptionTracker]]:
        """Return the brokers of the fixture that run, each with who follows its consumers."""
        return [(servers.broker, servers.tracker) for servers in self.root.all if servers.is_running]

    @property
    def all(self) -> "list[Servers]":
        """This broker and those that were added to it."""
        return [self, *self._added]

    @property
    def is_running(self) -> bool:
        """Whether the broker runs."""
        return self._broker is not None

    @property
    def family(self) -> list[str]:
        """The names of the brokers of the fixture."""
        return [str(servers.identity) for servers in self.root.all]

    async def __aenter__(self) -> Self:
        """Start all (raises what a server raises)."""
        await self._tasks.__aenter__()
        try:
            if self._first is None:
                self._stack.enter_context(self.errors)
                await self.start_nameserver()
            else:
                self._first.adopt(self)
            await self._fill_store()
            await self.start_broker()
        except BaseException as error:
            if self._beginning is not None:
                error.add_note(f"the store came from {self._beginning}")
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop what runs."""
        await self.stop_broker()
        if self._first is None:
            await self.stop_nameserver()
        else:
            self._first.dismiss(self)
        self._kept_ports.close()
        self._kept_nameserver_port.close()
        self.grpc.release()
        await self._tasks.__aexit__()
        self._stack.close()

    def run_disk(self, run: RunOnLoop) -> DiskFaults | None:
        """Return the disk if a test may have it fail; ``run`` is how a test's thread does something on the loop."""
        if not isinstance(self.files, DiskFaults):
            return None
        self.files.listen(run)
        return self.files

    def adopt(self, added: "Servers") -> None:
        """Take note of a broker that registers here as well."""
        self._added.append(added)

    def dismiss(self, added: "Servers") -> None:
        """Forget it."""
        if added in self._added:
            self._added.remove(added)

    async def mend(self) -> None:
        """Start what a test has stopped, killed or left without a disk that it trusts; begin anew if it moved time."""
        if self._first is None:
            await self.start_nameserver()
        if self._broker is not None and self._broker.store.flush_failure is not None:
            await self.stop_broker()
        if self._first is None and self._clock.was_moved:
            await self.reset_broker()
        await self.start_broker()

    @property
    def root(self) -> "Servers":
        """The first broker, which has the name server."""
        return self if self._first is None else self._first

    # the broker

    async def start_broker(self) -> None:
        """Start the broker, on the ports that it had; nothing happens while it runs."""
        if self._broker is not None:
            return
        self._kept_ports.close()
        settings = {**self._settings, "namesrvAddr": self.nameserver}
        if self.address[1]:
            settings["listenPort"] = str(self.address[1])
        if isinstance(self.files, DiskFaults):
            self.files.start(self._clock, asyncio.get_running_loop().call_soon_threadsafe)
        self.root.nameserver_door.hear_again(self.identity)
        config = replace(BrokerConfig.from_java(settings), advertised_port=self._deployment.advertised_port)
        broker = Broker(config, self._clock, self.files, around=self._around)
        run = ServerRun(self._tasks)
        await run.start(broker)
        broker.store.subscribe(lambda _: self.tracker.changed.set())
        self.tracker.begin()
        self._broker, self._broker_run = broker, run
        self.address = broker.advertised.bound
        await self.grpc.open(broker)

    async def stop_broker(self) -> None:
        """Stop the broker cleanly; nothing happens while none runs."""
        if isinstance(self.files, DiskFaults):
            self.files.stop()
        self.door.heal_all()
        await self._end_run()
        self.door.end()

    async def kill_broker(self) -> None:
        """End the broker as SIGKILL does; nothing happens while none runs.

        Raises:
            TypeError: its files cannot be told to change nothing any more.
        """
        if self._broker is None:
            return
        if not isinstance(self.files, DiskFaults):
            raise TypeError("this broker was given files of its own: derive them from rocketlet.testing.DiskFaults")
        with self.errors.muted():
            self.files.kill()
            self.door.end(resets=True)
            self.root.nameserver_door.answer_for(self.identity)
            await self._end_run()

    def _around(self, handlers: RequestHandlers) -> RequestHandlers:
        """Let those who follow consumers hear what is served, and not what is dropped or held back."""
        return self.door.around(self.tracker.around(in_time_of(self._clock, handlers)))

    def _around_methods(self, broker: Broker, methods: "Methods") -> "Methods":
        from .faults.grpc_interception import GrpcInterception  # not before a client of RocketMQ 5 has come

        server, end_turn = str(self.identity), broker.operations.scheduler.end_turn
        return GrpcInterception(server, self.book, self.log, self._clock, end_turn).around(methods)

    async def restart_broker(self) -> None:
        """Start the broker again, after a clean stop if it still runs."""
        await self.stop_broker()
        await self.start_broker()

    async def reset_broker(self) -> None:
        """Start the broker with the store of the beginning, at the machine's time."""
        await self.stop_broker()
        await asyncio.to_thread(empty, self._root)
        await self._fill_store()
        self._clock.return_to_machine()
        self.tracker.forget()
        await self.start_broker()

    async def save_store(self, save: Callable[[pathlib.Path], object]) -> None:
        """Have the store saved, in a thread; a broker that runs is stopped cleanly before, and started again then."""
        was_running = self.is_running
        await self.stop_broker()
        try:
            await asyncio.to_thread(save, self._root)
        finally:
            if was_running:
                await self.start_broker()

    async def restore_store(self, fill: Callable[[pathlib.Path], object]) -> None:
        """Start the broker with another store, at the machine's time; ``fill`` makes its files, in a thread.

        Raises:
            Exception: what ``fill`` raises; the broker runs on and has not noticed.
            ConfigError: the store was made with other settings. The broker has the one again that it had.
        """
        exchange = await asyncio.to_thread(StoreExchange, self._root)
        try:
            await asyncio.to_thread(fill, exchange.new)
            was_running, moved_ms, was_frozen = self.is_running, self._clock.ahead_ms, self._clock.is_frozen
            await self.stop_broker()
            await asyncio.to_thread(exchange.make)
            self._clock.return_to_machine()
            try:
                await self.start_broker()
            except BaseException as error:
                error.add_note("the store of the snapshot is put aside, the broker has the one again that it had")
                await asyncio.to_thread(exchange.undo)
                self._clock.leave_machine(moved_ms, is_frozen=was_frozen)
                if was_running:
                    await self.start_broker()
                raise
            self.tracker.forget()
        finally:
            await asyncio.to_thread(exchange.close)

    @property
    def _root(self) -> pathlib.Path:
        return pathlib.Path(self._settings["storePathRootDir"])

    async def _fill_store(self) -> None:
        if self._beginning is not None:
            await asyncio.to_thread(unpack_file, self._beginning, self._root)

    async def _end_run(self) -> None:
        run, self._broker_run = self._broker_run, None
        if self._broker is not None and run is not None:
            self._broker = None
            await self.grpc.close()
            await run.stop()
            self._kept_ports = keep_ports(self.address)

    # the name server

    async def start_nameserver(self) -> None:
        """Start the name server where it was, and have the broker register; nothing happens while it runs.

        Raises:
            ValueError: it is that of another broker.
        """
        self._check_own()
        if self._nameserver_run is not None:
            return
        self._kept_nameserver_port.close()
        config = replace(self._deployment.nameserver, port=self._nameserver_port, tls=self._tls)
        server = NameServer(config, LoopClock(), around=self.nameserver_door.around)
        run = ServerRun(self._tasks)
        await run.start(server)
        self._nameserver_run, self.nameserver, self.nameserver_advertised = run, server.local_address, server.advertised
        self._nameserver_port = server.advertised.bound[1]
        for servers in self.all:
            await servers.register()

    async def stop_nameserver(self) -> None:
        """Stop the name server; nothing happens while none runs.

        Raises:
            ValueError: it is that of another broker.
        """
        self._check_own()
        run, self._nameserver_run = self._nameserver_run, None
        if run is not None:
            await run.stop()
            self.nameserver_door.end()
            self._kept_nameserver_port = keep_ports(self.nameserver_advertised.bound, (0,))

    async def register(self) -> None:
        """Have the broker tell the name server everything, and not only after a while."""
        if self._broker is not None:
            await self._broker.register()

    def _check_own(self) -> None:
        if self._first is not None:
            raise ValueError(f"{self.name} registers at the name server of another broker, ask that one")
