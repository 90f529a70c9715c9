"""A name server and a broker on an event loop of their own, in a thread of the test process.

So tests may be synchronous or asynchronous, and clients may live on any loop or in another process. What a test asks
for is done on the broker's loop; nothing of it is touched from another thread.
"""

import asyncio
import itertools
import pathlib
import re
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Final, Self, TypeVar

from ..broker.group.members import Presence
from ..broker.server import Broker
from ..broker.settings.config import BrokerConfig
from ..common.clock import Clock
from ..common.codes import ResponseCode
from ..common.message import ReceivedMessage
from ..common.record import iter_records
from ..common.record_messages import decode_message
from ..namesrv.config import NameServerConfig
from ..namesrv.server import NameServer
from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode
from ..remoting.headers.client import CreateTopicHeader
from ..remoting.transport.client import ConnectionPool
from ..remoting.transport.connection import Connection
from ..remoting.transport.event_loop import LoopClock, find_loop_factory
from ..store.consumequeue.queue_reader import ReadLimits
from ..store.files.files import OS_FILES, Files

T = TypeVar("T")

BROKER_NAME: Final = "broker-a"
GOODBYE_MS: Final = 1_000
"""How long clients that a test has closed may take until the broker has seen it."""
_NO_LIMIT_MS: Final = 1 << 40  # a busy machine is no failure; how long a test may take is for its runner to say
_LONGEST_TOPIC: Final = 100  # with room for %RETRY% and a number; the protocol allows 127


class RocketmqBroker:
    """A running broker for tests; the fixture ``rocketmq_broker`` hands it out.

    ``files`` may stand for a disk that is slow or fails, ``clock`` for a time that the test moves on the broker's loop.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, files: Files = OS_FILES, clock: Clock | None = None
    ) -> None:
        self._settings = dict(settings or {})
        self._files = files
        self._started: Future[None] = Future()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="rocketmq-broker")
        self._directory = tempfile.TemporaryDirectory(prefix="rocketlet-")
        self._names = itertools.count(1)
        self._clock = clock or LoopClock()
        self._loop: asyncio.AbstractEventLoop
        self._pool: ConnectionPool
        self._broker: Broker
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
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and remove the store."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._leave()

    @property
    def store(self) -> pathlib.Path:
        """The directory of the store; it is gone after the last test."""
        return pathlib.Path(self._directory.name)

    def topic(self, name: str | None = None, queues: int = 4) -> str:
        """Create a topic and return its name; without a name it is a new one, made from that of the test."""
        return self._call(self._create_topic(self._choose_name(name), queues))

    async def create_topic(self, name: str | None = None, queues: int = 4) -> str:
        """Do what ``topic`` does without blocking the event loop of an asynchronous test."""
        return await asyncio.wrap_future(self._submit(self._create_topic(self._choose_name(name), queues)))

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return what is stored in a topic, by queue and offset: what was sent, whoever has consumed it."""
        return self._call(self._read(topic))

    def connections(self) -> frozenset[Connection]:
        """Return the connections of the clients that have said which groups they belong to."""
        return self._call(self._find_connections())

    def wait_for_goodbyes(self, known: frozenset[Connection]) -> list[Presence]:
        """Wait a moment for connections that are not known to end, and return who is still there."""
        return self._call(self._see_off(known))

    # on the caller's thread

    def _submit(self, work: Coroutine[object, object, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _call(self, work: Coroutine[object, object, T]) -> T:
        return self._submit(work).result()

    def _choose_name(self, name: str | None) -> str:
        prefix = re.sub(r"[^A-Za-z0-9_-]+", "-", self.prefix)[:_LONGEST_TOPIC].strip("-")
        return name or f"{prefix}-{next(self._names)}"

    def _leave(self) -> None:
        self._thread.join()
        self._directory.cleanup()

    # on the broker's thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                if self._started.done():
                    raise  # pytest reports what escapes from a thread
                self._started.set_exception(error)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        own = {"listenPort": "0", "brokerName": BROKER_NAME, "storePathRootDir": str(self.store)}
        async with NameServer(NameServerConfig(port=0), self._clock) as nameserver:
            settings = {**own, **self._settings, "namesrvAddr": nameserver.address}
            async with (
                Broker(BrokerConfig.from_java(settings), self._clock, self._files) as self._broker,
                ConnectionPool(self._clock) as self._pool,
            ):
                self.nameserver, self.address = nameserver.address, self._broker.address
                self._started.set_result(None)
                await self._stopped.wait()

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
        request = Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        reply = await self._pool.request(self.address, request, _NO_LIMIT_MS)
        if reply.code != ResponseCode.SUCCESS:
            raise ValueError(reply.remark)
        return name

    async def _read(self, topic: str) -> list[ReceivedMessage]:
        store = self._broker.store
        found: list[ReceivedMessage] = []
        for queue_id in sorted(queue_id for name, queue_id in store.queues() if name == topic):
            queue_offset = store.min_offset(topic, queue_id)
            while queue_offset < store.max_offset(topic, queue_id):
                result = store.read(topic, queue_id, queue_offset, ReadLimits())
                records = (record for part in result.records for record in iter_records(bytes(part)))
                found += [decode_message(record, BROKER_NAME) for record in records]
                queue_offset = result.next_offset
        return found

    async def _find_connections(self) -> frozenset[Connection]:
        return frozenset(self._broker.clients)

    async def _see_off(self, known: frozenset[Connection]) -> list[Presence]:
        try:
            async with self._clock.timeout(GOODBYE_MS):
                while strangers := self._broker.clients.keys() - known:
                    await _end_of(strangers.pop())
        except TimeoutError:
            pass
        return [presence for connection, presence in self._broker.clients.items() if connection not in known]


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
