"""A name server and a broker for tests, on an event loop of their own (``loop_thread.py``).

What a test sees of the broker is looked up on that loop (``inspection.py``), what it waits for is followed there
(``consumption.py``), and time passes there as the test likes (``broker_clock.py``). The name server has the machine's
time.
"""

import asyncio
import itertools
import os
import pathlib
import re
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, Unpack

from ..broker.group.members import Presence
from ..broker.server import Broker
from ..common.codes import ResponseCode
from ..common.ids import format_address
from ..common.message import Message, ReceivedMessage
from ..common.metadata import SubscriptionGroupConfig
from ..common.names import retry_topic
from ..remoting.bodies.body import encode_body
from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.client import CreateTopicHeader
from ..remoting.transport.client import ConnectionPool
from ..remoting.transport.connection import Connection
from ..remoting.transport.event_loop import LoopClock
from ..store.files.files import Files
from .broker_clock import BrokerClock
from .faults.disk_faults import DiskFaults
from .faults.interception import OWN_MARK, BrokerIdentity
from .faults.partition import Partition
from .faults.request_faults import Faults
from .loop_thread import LoopThread, is_on_event_loop
from .movable_clock import MovableClock
from .own_clients import OWN_GROUP, Addressed, MessageParts, ReceiveOrder, make_message, read_lines, receive, send_all
from .servers import ON_THIS_MACHINE, Deployment, Servers, SharedServers
from .snapshots import pack_file, unpack_file
from .views.client_requests import Requests
from .views.consumption import ConsumptionTracker
from .views.inspection import GroupLag, Inspection, MessageFilter, OpenTransaction
from .views.sent_messages import ExpectedMessage, check_sent

if TYPE_CHECKING:
    from ..client import SendResult

T = TypeVar("T")

BROKER_NAME: Final = "broker-a"
GOODBYE_MS: Final = 1_000
"""How long clients that a test has closed may take until the broker has seen it."""
WAIT_S: Final = 10.0
"""How long tests wait unless they say otherwise."""
_PATIENT: Final = {"channelExpiredTimeout": str(1 << 50), "serverChannelMaxIdleTimeSeconds": "2000000000"}
_FREE_PORTS: Final = {"listenPort": "0", "grpcServerPort": "0"}
"""The broker's time may be moved by years, and clients are still there."""
_NO_LIMIT_MS: Final = 1 << 40  # a busy machine is no failure; how long a test may take is for its runner to say
_LONGEST_TOPIC: Final = 100  # with room for %RETRY% and a number; the protocol allows 127
_OF_ONE_BROKER: Final = ("listenPort", "haListenPort", "grpcServerPort", "storePathRootDir", "brokerName")


class RocketmqBroker:
    """A running broker for tests; the fixture ``rocketmq_broker`` hands it out.

    ``files`` may stand for a disk of the test's own, ``faults`` lets things go wrong. With a ``snapshot``, a file of
    the method of that name, it starts from there. What waits is limited by ``timeout``, in seconds of the machine's
    clock. Methods that wait have two forms: ``wait_…`` blocks, for synchronous tests, the other is awaited.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        files: Files | None = None,
        *,
        snapshot: str | os.PathLike[str] | None = None,
        shared: SharedServers | None = None,
        deployment: Deployment = ON_THIS_MACHINE,
    ) -> None:
        self._settings = {"brokerName": BROKER_NAME, **(settings or {})}
        self._thread = LoopThread(self._serve, "rocketmq-broker", shared and shared.thread)
        self._deployment = deployment
        self._directory = tempfile.TemporaryDirectory(prefix="rocketlet-", dir=deployment.directory)
        self._names = itertools.count(1)
        self._time = shared.clock if shared else MovableClock()
        self._pool: ConnectionPool
        self._added = ExitStack()
        own = {**_FREE_PORTS, "storePathRootDir": str(self.store), **_PATIENT, **self._settings}
        beginning = None if snapshot is None else pathlib.Path(snapshot).absolute()
        begun = deployment._replace(beginning=beginning)
        self._servers = Servers(own, files or DiskFaults(), self._time, shared and shared.first, begun)
        disk = self._servers.run_disk(self.on_loop)
        self.faults = Faults(self._servers.book, self._servers.log, disk, self.on_loop)
        """What goes wrong on purpose."""
        self.clock = BrokerClock(self._time, self._thread, self._servers.running)
        """The broker's time, which a test may move."""
        self.nameserver = ""
        self.address = ""
        self.prefix = "topic"

    def __repr__(self) -> str:
        return f"<RocketmqBroker {self.address}, name server {self.nameserver}>"

    def __enter__(self) -> Self:
        """Start, and wait until clients can connect.

        Raises:
            ConfigError: a setting that cannot be used, or with which the store of the snapshot was not made.
            DecodeError: the snapshot is none, or damaged.
        """
        try:
            self._thread.start()
        except BaseException:
            self._directory.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop, and remove the store; raise what ``end_test`` raises."""
        with ExitStack() as ending:
            ending.callback(self._directory.cleanup)
            ending.callback(self._thread.stop)
            ending.callback(self._added.__exit__, kind, error, traceback)
            if kind is None:
                self._check_test()

    @property
    def name(self) -> str:
        """The name of the broker."""
        return self._settings["brokerName"]

    @property
    def store(self) -> pathlib.Path:
        """The directory of the store; it is gone after the last test."""
        return pathlib.Path(self._directory.name)

    @property
    def grpc_address(self) -> str:
        """Where clients of RocketMQ 5 connect, by gRPC; the same after a restart."""
        return self._servers.grpc.address

    @property
    def servers(self) -> Servers:
        """The name server and the broker, which live on a loop of their own (``on_loop``)."""
        return self._servers

    def topic(self, name: str | None = None, queues: int = 4) -> str:
        """Create a topic and return its name; without a name it is a new one, made from that of the test."""
        return self._thread.call(self._create_topic(self._choose_name(name), queues))

    async def create_topic(self, name: str | None = None, queues: int = 4) -> str:
        """Do what ``topic`` does without blocking the event loop of an asynchronous test."""
        return await self._thread.join(self._create_topic(self._choose_name(name), queues))

    def group(self, name: str | None = None) -> str:
        """Create a consumer group and return its name; without a name it is a new one, made from that of the test.

        It has its retry topic from the start. Java and Go learn of one that is made later only after half a minute.
        """
        return self._thread.call(self._create_group(self._choose_name(name)))

    async def create_group(self, name: str | None = None) -> str:
        """Do what ``group`` does without blocking the event loop of an asynchronous test."""
        return await self._thread.join(self._create_group(self._choose_name(name)))

    # --- sending and receiving

    def send(
        self, topic: str, body: bytes | str | None = None, *, json: Any = None, **parts: Unpack[MessageParts]
    ) -> "SendResult":
        """Send a message, for tests that have no producer: bytes, text in UTF-8, or a value as JSON.

        Raises:
            TypeError: it is to have two bodies, or none.
            RocketletError: the broker does not take it.
        """
        message = make_message(topic, body, json, parts)
        [result] = self._thread.call(self._publish([(message, None)]))
        return result

    def send_all(self, messages: Iterable[Message]) -> "list[SendResult]":
        """Send messages in order, for tests that have no producer.

        Raises:
            RocketletError: the broker does not take one.
        """
        return self._thread.call(self._publish([(message, None) for message in messages]))

    async def publish(self, messages: Sequence[Addressed]) -> "list[SendResult]":
        """Do what ``send_all`` does without blocking the caller's event loop; messages may have numbers of queues.

        Raises:
            RocketletError: the broker does not take one.
        """
        return await self._thread.join(self._publish(messages))

    def receive(
        self, topic: str, count: int = 1, *, group: str = OWN_GROUP, tags: str = "*", timeout: float = WAIT_S
    ) -> list[ReceivedMessage]:
        """Consume so many messages as a member of a group, from the first on if it is new, and acknowledge them.

        Raises:
            TimeoutError: there are fewer after so long; those that came are acknowledged nevertheless.
        """
        _forbid_on_event_loop("receive", "use a consumer, or await arrived(),")
        order = ReceiveOrder(topic, tags, count, group)
        return self._thread.call(receive(self._servers.nameserver, order, _ms(timeout), self._servers.client_tls))

    def load(self, path: str | os.PathLike[str]) -> int:
        """Send the messages of a file in order and return how many: an object a line, as ``own_clients`` describes.

        Raises:
            ValueError: a line is no message; the text names it. Nothing of the file is sent.
        """
        messages = list(read_lines(pathlib.Path(path)))
        return len(self._thread.call(self._publish(messages)))

    # --- looking

    def messages(
        self, topic: str, *, tag: str | None = None, key: str | None = None, group: str | None = None
    ) -> list[ReceivedMessage]:
        """Return what is stored in a topic, by queue and offset, whoever has consumed it.

        With ``group``, what this consumer group subscribes to and is not done with.

        Raises:
            ValueError: there is no such topic or group.
        """
        return self._look(lambda inspection: inspection.messages(topic, MessageFilter(tag, key, group)))

    def lag(self, group: str) -> GroupLag:
        """Return how many messages a consumer group wants and is not done with: ``total``, and by ``queues``.

        Raises:
            ValueError: there is no such group.
        """
        return self._look(lambda inspection: inspection.lag(group), group)

    def in_flight(self, group: str) -> list[ReceivedMessage]:
        """Return what members of a consumer group were given and are not done with.

        Raises:
            ValueError: there is no such group.
        """
        return self._look(lambda inspection: inspection.in_flight(group), group)

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """Return what a consumer group has given up.

        Raises:
            ValueError: there is no such group.
        """
        return self._look(lambda inspection: inspection.dead_letters(group))

    def transactions(self) -> list[OpenTransaction]:
        """Return the transactions that nobody has decided about, the oldest first."""
        return self._look(lambda inspection: inspection.transactions())

    def assert_sent(self, topic: str, *, times: int | None = None, **expected: Unpack[ExpectedMessage]) -> None:
        """Assert that a topic has a message like this, or so many of them, whoever has consumed them.

        Raises:
            AssertionError: it has not; the text shows the nearest messages, and what differs.
            ValueError: there is no such topic.
        """
        __tracebackhide__ = True
        check_sent(topic, self.messages(topic), expected, times)

    # --- waiting

    def wait_for(
        self, topic: str, count: int = 1, *, tag: str | None = None, key: str | None = None, timeout: float = WAIT_S
    ) -> list[ReceivedMessage]:
        """Return the messages of a topic when there are as many as ``count``; the topic may come later, too.

        Raises:
            TimeoutError: there are fewer after so long.
        """
        _forbid_on_event_loop("wait_for", "await arrived()")
        return self._thread.call(self._wait_for(topic, count, MessageFilter(tag, key), _ms(timeout)))

    def arrived(
        self, topic: str, count: int = 1, *, tag: str | None = None, key: str | None = None, timeout: float = WAIT_S
    ) -> Coroutine[Any, Any, list[ReceivedMessage]]:
        """Do what ``wait_for`` does without blocking the event loop of an asynchronous test."""
        return self._thread.join(self._wait_for(topic, count, MessageFilter(tag, key), _ms(timeout)))

    def wait_consumed(self, group: str, *, timeout: float = WAIT_S) -> None:
        """Return when a consumer group is done with all that it subscribes to.

        Raises:
            TimeoutError: it is not after so long; the text says what is missing.
        """
        _forbid_on_event_loop("wait_consumed", "await consumed()")
        self._thread.call(self._tracker.wait_consumed(group, _ms(timeout)))

    def consumed(self, group: str, *, timeout: float = WAIT_S) -> Coroutine[Any, Any, None]:
        """Do what ``wait_consumed`` does without blocking the event loop of an asynchronous test."""
        return self._thread.join(self._tracker.wait_consumed(group, _ms(timeout)))

    def wait_idle(self, *, timeout: float = WAIT_S) -> None:
        """Return when each consumer group that has members is done with all that it subscribes to.

        Raises:
            TimeoutError: one is not after so long; the text says what is missing.
        """
        _forbid_on_event_loop("wait_idle", "await idle()")
        self._thread.call(self._tracker.wait_idle(_ms(timeout)))

    def idle(self, *, timeout: float = WAIT_S) -> Coroutine[Any, Any, None]:
        """Do what ``wait_idle`` does without blocking the event loop of an asynchronous test."""
        return self._thread.join(self._tracker.wait_idle(_ms(timeout)))

    # --- faults and servers

    def requests(self, on: str | None = None, topic: str | None = None, group: str | None = None) -> Requests:
        """Return what clients have asked since the test began, the name server too: all, or what is named.

        ``on`` is an operation ("send", "pull", "commit_offset", "route": ``rocketlet.testing.views.operations``).
        """
        return self.on_loop(lambda: self._servers.log.find(on, topic, group))

    def stop(self) -> None:
        """Stop the broker cleanly; ``restart`` starts it again, and so does the end of the test."""
        self._thread.call(self._servers.stop_broker())

    def kill(self) -> None:
        """End the broker as SIGKILL does: nothing more is written, no table saved, connections are reset.

        What has been written is in the page cache, which survives.
        """
        self._thread.call(self._servers.kill_broker())

    def restart(self) -> None:
        """Start the broker on the same ports and the same store, after a clean stop if it still runs."""
        self._thread.call(self._servers.restart_broker())

    def reset(self) -> None:
        """Empty the broker: messages, topics, groups and offsets are gone, and it has the machine's time again.

        A broker that was started from a snapshot is as it was then. Clients that are connected connect anew.
        """
        self._thread.call(self._servers.reset_broker())

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Write what the broker keeps, messages, topics, groups and offsets, into a file that brokers start from.

        The broker is stopped meanwhile, and clients connect anew. The file is small, and the same for the same store.
        """
        target = pathlib.Path(path).absolute()
        self._thread.call(self._servers.save_store(lambda root: pack_file(root, target)))

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Put the broker into the state of a snapshot; it has the machine's time again, and clients connect anew.

        Raises:
            DecodeError: the file is no snapshot, or damaged; nothing has happened to the broker.
            ConfigError: its store was made with other settings. The broker has the store again that it had.
        """
        source = pathlib.Path(path).absolute()
        self._thread.call(self._servers.restore_store(lambda root: unpack_file(source, root)))

    def stop_nameserver(self) -> None:
        """Stop the name server; clients and broker are refused until it starts again, at the latest with the test."""
        self._thread.call(self._servers.stop_nameserver())

    def start_nameserver(self) -> None:
        """Start the name server where it was; the brokers of this fixture register at once."""
        self._thread.call(self._servers.start_nameserver())

    def add_broker(self, name: str = "broker-b", settings: Mapping[str, str] | None = None) -> "RocketmqBroker":
        """Start one more broker at the same name server, with a store of its own; it ends with the test.

        It has the settings of the first and those that are given: with ``brokerRole`` SLAVE, a ``brokerId`` and the
        name of the first it is a slave.

        Raises:
            ValueError: there is a broker of this name.
        """
        names = self._servers.family
        own = {key: value for key, value in self._settings.items() if key not in _OF_ONE_BROKER}
        chosen = {**own, **(settings or {}), "brokerName": name}
        identity = str(BrokerIdentity(name, chosen.get("brokerId", "0")))
        if identity in names:
            raise ValueError(f"there is a broker {identity!r} already, these are: {', '.join(names)}")
        shared = SharedServers(self._thread, self._time, self._servers.root)
        added = RocketmqBroker(chosen, shared=shared, deployment=self._deployment._replace(advertised_port=0))
        return self._added.enter_context(added)

    @contextmanager
    def partition(self, client_id: str) -> Generator[Partition]:
        """Let nothing pass between a client and the broker in the block, in either direction; sockets stay open.

        A new connection belongs to the client when a request on it names its id, as a heartbeat does, or a group that
        no other client has named; what comes before that passes. What was held back arrives behind the block.

        Raises:
            ValueError: no client of this id is connected.
        """
        partition = self.on_loop(lambda: self._servers.door.cut_off(client_id))
        try:
            yield partition
        finally:
            self.on_loop(lambda: self._servers.door.heal(partition))

    def on_loop(self, work: Callable[[], T]) -> T:
        """Do something on the broker's loop, and return what it returns."""

        async def run() -> T:
            return work()

        return self._thread.call(run())

    # --- for the plugin

    def begin_test(self) -> None:
        """Forget what was asked before."""
        self.on_loop(self._servers.log.clear)

    def end_test(self) -> None:
        """End what the test has injected and added, start what it has stopped, and raise what has gone wrong unseen.

        Raises:
            ExceptionGroup: what has failed inside the broker, with its tracebacks.
            AssertionError: faults that nothing has met.
        """
        with ExitStack() as ending:
            ending.callback(lambda: self._thread.call(self._servers.mend()))
            ending.enter_context(self._added.pop_all())
            self._check_test()

    def connections(self) -> frozenset[Connection]:
        """Return the connections of the clients that have said which groups they belong to."""
        return self._thread.call(self._find_connections())

    def wait_for_goodbyes(
        self, known: frozenset[Connection], known_ids: frozenset[str] = frozenset()
    ) -> list[Presence]:
        """Wait a moment until connections have ended that are neither known nor of known clients; return those left."""
        return self._thread.call(self._see_off(known, known_ids))

    # --- on the caller's thread

    def _look(self, look: Callable[[Inspection], T], group: str = "") -> T:
        # On an event loop members may live that cannot say how far they are before the call is over.
        return self._thread.call(self._inspect(look, "" if is_on_event_loop() else group))

    def _check_test(self) -> None:
        errors, unmet = self.on_loop(lambda: (self._servers.errors.take(), self.faults.end()))
        failures = [*errors, AssertionError("\n".join(unmet))] if unmet else errors
        if errors:
            raise ExceptionGroup(f"{self.name} has failed inside", failures)
        if failures:
            raise failures[0]

    def _choose_name(self, name: str | None) -> str:
        prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", self.prefix)[:_LONGEST_TOPIC].strip("-")
        return name or f"{prefix}-{next(self._names)}"

    # --- on the broker's thread

    @property
    def _broker(self) -> Broker:
        return self._servers.broker

    @property
    def _tracker(self) -> ConsumptionTracker:
        return self._servers.tracker

    @asynccontextmanager
    async def _serve(self) -> AsyncGenerator[None]:
        tls = self._servers.client_tls
        async with self._servers as servers, ConnectionPool(LoopClock(), tls=tls) as self._pool:
            self.nameserver, self.address = format_address(*servers.nameserver_advertised.told), servers.broker.address
            yield

    async def _inspect(self, look: Callable[[Inspection], T], asked_group: str) -> T:
        if asked_group:
            await self._tracker.ask_members(asked_group)
        return look(self._inspection())

    def _inspection(self) -> Inspection:
        return Inspection(self._broker.parts, self._tracker, self.name)

    async def _wait_for(self, topic: str, count: int, wanted: MessageFilter, limit_ms: int) -> list[ReceivedMessage]:
        found: list[ReceivedMessage] = []
        try:
            async with LoopClock().timeout(limit_ms):
                while True:
                    with suppress(ValueError):  # the topic comes with its first message
                        found = self._inspection().messages(topic, wanted) if self._servers.is_running else found
                    if len(found) >= count:
                        return found
                    await self._tracker.wait_change()
        except TimeoutError:
            self._inspection().check_topic(topic)
            raise TimeoutError(f"{len(found)} of {count} messages came to {topic!r} in {limit_ms} ms") from None

    async def _publish(self, messages: Sequence[Addressed]) -> "list[SendResult]":
        return await send_all(self._servers.nameserver, messages, self.name, self._servers.client_tls)

    async def _create_topic(self, name: str, queues: int) -> str:
        header = CreateTopicHeader(
            topic=name,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            order=False,
        )
        await self._ask(Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header))
        return name

    async def _create_group(self, name: str) -> str:
        body = encode_body(SubscriptionGroupConfig(group_name=name))
        await self._ask(Command.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))
        await self._create_topic(retry_topic(name), 1)
        return name

    async def _ask(self, request: Command) -> None:
        request.remark = OWN_MARK
        reply = await self._pool.request(self._servers.local_address, request, _NO_LIMIT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise ValueError(reply.remark)

    async def _find_connections(self) -> frozenset[Connection]:
        return frozenset(self._servers.clients)

    async def _see_off(self, known: frozenset[Connection], known_ids: frozenset[str]) -> list[Presence]:
        def strangers() -> dict[Connection, Presence]:
            found = self._servers.clients.items()
            return {each: who for each, who in found if each not in known and who.client_id not in known_ids}

        with suppress(TimeoutError):
            async with LoopClock().timeout(GOODBYE_MS):
                while left := strangers():
                    await _end_of(next(iter(left)))
        return list(strangers().values())


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


def _forbid_on_event_loop(blocking: str, awaited: str) -> None:
    if is_on_event_loop():
        raise RuntimeError(f"{blocking}() would block this event loop, and clients on it: {awaited} instead")


async def _end_of(connection: Connection) -> None:
    ended = asyncio.Event()
    connection.on_close(lambda _: ended.set())
    await ended.wait()
