"""A name server and a broker for tests, on an event loop of their own (``loop_thread.py``).

What a test sees of the broker is looked up on that loop (``inspection.py``), what it waits for is followed there
(``consumption.py``), and time passes there as the test likes (``broker_clock.py``). The name server has the machine's
time.
"""

import asyncio
import itertools
import pathlib
import re
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Self, TypeVar, Unpack

from ..broker.group.members import Presence
from ..broker.server import Broker
from ..broker.settings.config import BrokerConfig
from ..common.codes import ResponseCode
from ..common.message import ReceivedMessage
from ..common.metadata import SubscriptionGroupConfig
from ..common.names import retry_topic
from ..namesrv.config import NameServerConfig
from ..namesrv.server import NameServer
from ..remoting.bodies.body import encode_body
from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.client import CreateTopicHeader
from ..remoting.transport.client import ConnectionPool
from ..remoting.transport.connection import Connection, RequestHandlers
from ..remoting.transport.event_loop import LoopClock
from ..store.files.files import OS_FILES, Files
from .broker_clock import BrokerClock, in_time_of
from .consumption import ConsumptionTracker
from .inspection import GroupLag, Inspection, MessageFilter, OpenTransaction
from .loop_thread import LoopThread, is_on_event_loop
from .movable_clock import MovableClock
from .sent_messages import ExpectedMessage, check_sent

T = TypeVar("T")

BROKER_NAME: Final = "broker-a"
GOODBYE_MS: Final = 1_000
"""How long clients that a test has closed may take until the broker has seen it."""
WAIT_S: Final = 10.0
"""How long tests wait unless they say otherwise."""
_PATIENT: Final = {"channelExpiredTimeout": str(1 << 50), "serverChannelMaxIdleTimeSeconds": "2000000000"}
"""The broker's time may be moved by years, and clients are still there."""
_NO_LIMIT_MS: Final = 1 << 40  # a busy machine is no failure; how long a test may take is for its runner to say
_LONGEST_TOPIC: Final = 100  # with room for %RETRY% and a number; the protocol allows 127


class RocketmqBroker:
    """A running broker for tests; the fixture ``rocketmq_broker`` hands it out.

    ``files`` may stand for a disk that is slow or fails. What waits is limited by ``timeout``, in seconds of the
    machine's clock. Methods that wait have two forms: ``wait_…`` blocks, for synchronous tests, the other is awaited.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, files: Files = OS_FILES) -> None:
        self._settings = dict(settings or {})
        self._files = files
        self._thread = LoopThread(self._serve, "rocketmq-broker")
        self._directory = tempfile.TemporaryDirectory(prefix="rocketlet-")
        self._names = itertools.count(1)
        self._time = MovableClock()
        self._tracker = ConsumptionTracker(lambda: self._broker.parts)
        self._pool: ConnectionPool
        self._broker: Broker
        self.clock = BrokerClock(self._time, self._thread, self._running)
        """The broker's time, which a test may move."""
        self.nameserver = ""
        self.address = ""
        self.prefix = "topic"

    def __repr__(self) -> str:
        return f"<RocketmqBroker {self.address}, name server {self.nameserver}>"

    def __enter__(self) -> Self:
        """Start, and wait until clients can connect.

        Raises:
            ConfigError: a setting that cannot be used.
        """
        try:
            self._thread.start()
        except BaseException:
            self._directory.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and remove the store."""
        self._thread.stop()
        self._directory.cleanup()

    @property
    def store(self) -> pathlib.Path:
        """The directory of the store; it is gone after the last test."""
        return pathlib.Path(self._directory.name)

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
        _forbid_on_event_loop("wait_for", "arrived")
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
        _forbid_on_event_loop("wait_consumed", "consumed")
        self._thread.call(self._tracker.wait_consumed(group, _ms(timeout)))

    def consumed(self, group: str, *, timeout: float = WAIT_S) -> Coroutine[Any, Any, None]:
        """Do what ``wait_consumed`` does without blocking the event loop of an asynchronous test."""
        return self._thread.join(self._tracker.wait_consumed(group, _ms(timeout)))

    def wait_idle(self, *, timeout: float = WAIT_S) -> None:
        """Return when each consumer group that has members is done with all that it subscribes to.

        Raises:
            TimeoutError: one is not after so long; the text says what is missing.
        """
        _forbid_on_event_loop("wait_idle", "idle")
        self._thread.call(self._tracker.wait_idle(_ms(timeout)))

    def idle(self, *, timeout: float = WAIT_S) -> Coroutine[Any, Any, None]:
        """Do what ``wait_idle`` does without blocking the event loop of an asynchronous test."""
        return self._thread.join(self._tracker.wait_idle(_ms(timeout)))

    # --- for the plugin

    def connections(self) -> frozenset[Connection]:
        """Return the connections of the clients that have said which groups they belong to."""
        return self._thread.call(self._find_connections())

    def wait_for_goodbyes(self, known: frozenset[Connection]) -> list[Presence]:
        """Wait a moment for connections that are not known to end, and return who is still there."""
        return self._thread.call(self._see_off(known))

    # --- on the caller's thread

    def _look(self, look: Callable[[Inspection], T], group: str = "") -> T:
        # On an event loop members may live that cannot say how far they are before the call is over.
        return self._thread.call(self._inspect(look, "" if is_on_event_loop() else group))

    def _choose_name(self, name: str | None) -> str:
        prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", self.prefix)[:_LONGEST_TOPIC].strip("-")
        return name or f"{prefix}-{next(self._names)}"

    # --- on the broker's thread

    @asynccontextmanager
    async def _serve(self) -> AsyncGenerator[None]:
        own = {"listenPort": "0", "brokerName": BROKER_NAME, "storePathRootDir": str(self.store), **_PATIENT}
        async with NameServer(NameServerConfig(port=0), LoopClock()) as nameserver:
            config = BrokerConfig.from_java({**own, **self._settings, "namesrvAddr": nameserver.address})
            async with (
                Broker(config, self._time, self._files, around=self._around) as self._broker,
                ConnectionPool(LoopClock()) as self._pool,
            ):
                self.nameserver, self.address = nameserver.address, self._broker.address
                stop_listening = self._broker.store.subscribe(lambda _: self._tracker.changed.set())
                yield
                stop_listening()

    def _around(self, handlers: RequestHandlers) -> RequestHandlers:
        return self._tracker.around(in_time_of(self._time, handlers))

    def _running(self) -> list[tuple[Broker, ConsumptionTracker]]:
        return [(self._broker, self._tracker)]

    async def _inspect(self, look: Callable[[Inspection], T], asked_group: str) -> T:
        if asked_group:
            await self._tracker.ask_members(asked_group)
        return look(Inspection(self._broker.parts, self._tracker, BROKER_NAME))

    async def _wait_for(self, topic: str, count: int, wanted: MessageFilter, limit_ms: int) -> list[ReceivedMessage]:
        inspection, found = Inspection(self._broker.parts, self._tracker, BROKER_NAME), list[ReceivedMessage]()
        try:
            async with LoopClock().timeout(limit_ms):
                while True:
                    with suppress(ValueError):  # the topic comes with its first message
                        found = inspection.messages(topic, wanted)
                    if len(found) >= count:
                        return found
                    await self._tracker.wait_change()
        except TimeoutError:
            inspection.check_topic(topic)
            raise TimeoutError(f"{len(found)} of {count} messages came to {topic!r} in {limit_ms} ms") from None

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
        reply = await self._pool.request(self.address, request, _NO_LIMIT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise ValueError(reply.remark)

    async def _find_connections(self) -> frozenset[Connection]:
        return frozenset(self._broker.clients)

    async def _see_off(self, known: frozenset[Connection]) -> list[Presence]:
        try:
            async with LoopClock().timeout(GOODBYE_MS):
                while strangers := self._broker.clients.keys() - known:
                    await _end_of(strangers.pop())
        except TimeoutError:
            pass
        return [presence for connection, presence in self._broker.clients.items() if connection not in known]


def _ms(seconds: float) -> int:
    return round(seconds * 1_000)


def _forbid_on_event_loop(blocking: str, awaited: str) -> None:
    if is_on_event_loop():
        raise RuntimeError(f"{blocking}() would block this event loop, and clients on it: await {awaited}() instead")


async def _end_of(connection: Connection) -> None:
    ended = asyncio.Event()
    connection.on_close(lambda _: ended.set())
    await ended.wait()


def describe_presence(presence: Presence) -> str:
    """Return a client and its groups in words.

    >>> describe_presence(Presence("127.0.0.1@7#1", ("billing",), ()))
    '127.0.0.1@7#1 (consumer of billing)'
    """
    groups = [f"consumer of {group}" for group in presence.consumer_groups]
    groups += [f"producer of {group}" for group in presence.producer_groups]
    return f"{presence.client_id} ({', '.join(groups)})"
