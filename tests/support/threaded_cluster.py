"""A name server and any number of brokers on a loop of their own, in a thread, for tests that are not asynchronous.

Brokers come and go while the name server runs; one that is started again has its store directory, port and settings.
"""

import asyncio
import pathlib
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from typing import Self, TypeVar

from raw_calls import until
from real_broker import running_broker, running_nameserver

from rocketlet.broker.server import Broker
from rocketlet.client import Admin, Message, MessageQueue, Producer, TopicSettings
from rocketlet.namesrv.server import NameServer
from rocketlet.testing.servers import keep_ports

T = TypeVar("T")


@dataclass
class _Hosted:
    """A broker, how it is stopped, and when it has ended."""

    broker: Broker
    stop: asyncio.Event
    ended: Future[None] = field(default_factory=Future[None])


class ThreadedCluster:
    """A running cluster without brokers, until some are started; a context manager that ends all of it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cluster")
        self._stack = AsyncExitStack()
        self._hosted: dict[str, _Hosted] = {}
        self._settings: dict[str, dict[str, str]] = {}
        self._kept_ports: dict[str, ExitStack] = {}
        self._nameserver: NameServer
        self._nameserver_stop = asyncio.Event()
        self._nameserver_ended: Future[None]

    def __enter__(self) -> Self:
        """Start the name server."""
        self._thread.start()
        started: Future[None] = Future()
        self._nameserver_ended = asyncio.run_coroutine_threadsafe(self._serve(started), self._loop)
        started.result()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop everything."""
        for name in list(self._hosted):
            self.stop_broker(name)
        for kept in self._kept_ports.values():
            kept.close()
        self.stop_nameserver()
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def nameserver(self) -> str:
        """The address of the name server."""
        return self._nameserver.address

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Do something on the cluster's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def store_of(self, name: str) -> pathlib.Path:
        """Return the store directory of a broker."""
        return self._folder / name

    def broker(self, name: str = "broker-a") -> Broker:
        """Return a running broker, to be used on the cluster's loop only."""
        return self._hosted[name].broker

    def start_broker(self, name: str = "broker-a", settings: Mapping[str, str] | None = None) -> None:
        """Start a broker, and wait until it is registered."""
        own = self._settings.setdefault(name, dict(settings or {}))
        self._kept_ports.pop(name, ExitStack()).close()
        started: Future[_Hosted] = Future()
        ended = asyncio.run_coroutine_threadsafe(self._host(name, own, started), self._loop)
        ended.add_done_callback(lambda done: started.set_exception(done.exception()) if not started.done() else None)
        self._hosted[name] = started.result()
        self._hosted[name].ended = ended
        own["listenPort"] = self._hosted[name].broker.address.rpartition(":")[2]

    def start_slave(self, master: str = "broker-a", name: str = "slave") -> None:
        """Start a slave of a running broker, and wait until it has its log; ``start_broker`` starts it again."""
        settings = {"brokerName": master, "brokerRole": "SLAVE", "brokerId": "1", "slaveReadEnable": "true"}
        self.start_broker(name, {**self._settings[master], **settings, "listenPort": "0"})
        logs = [self.broker(each).store for each in (master, name)]
        self.run(until(lambda: logs[0].log_max_offset == logs[1].log_max_offset))

    def stop_broker(self, name: str = "broker-a") -> None:
        """Stop a broker cleanly; its ports are kept from clients of other tests, which take any that are free."""
        hosted = self._hosted.pop(name)
        self._loop.call_soon_threadsafe(hosted.stop.set)
        hosted.ended.result()
        self._kept_ports[name] = keep_ports(("127.0.0.1", int(self._settings[name]["listenPort"])))

    def stop_nameserver(self) -> None:
        """Stop the name server; brokers go on without."""
        self._loop.call_soon_threadsafe(self._nameserver_stop.set)
        self._nameserver_ended.result()

    def create_topic(self, topic: str, queues: int = 2, brokers: Sequence[str] | None = None) -> None:
        """Create a topic, or give it another number of queues."""
        asyncio.run(self._create_topic(topic, queues, brokers))

    def send(self, topic: str, texts: Sequence[str], queue: tuple[str, int] | None = None, tags: str = "") -> None:
        """Send texts to the queues of a topic in turn, or all to the queue of that broker and number."""
        send_texts(self.nameserver, topic, texts, queue, tags)

    async def _serve(self, started: Future[None]) -> None:
        async with running_nameserver() as self._nameserver:
            started.set_result(None)
            await self._nameserver_stop.wait()

    async def _host(self, name: str, settings: Mapping[str, str], started: Future[_Hosted]) -> None:
        async with running_broker(self._nameserver, self.store_of(name), name, settings=settings) as broker:
            hosted = _Hosted(broker, asyncio.Event())
            started.set_result(hosted)
            await hosted.stop.wait()

    async def _create_topic(self, topic: str, queues: int, brokers: Sequence[str] | None) -> None:
        async with Admin(self.nameserver) as admin:
            await admin.create_topic(topic, TopicSettings(read_queues=queues, write_queues=queues), brokers=brokers)


def send_texts(
    nameserver: str, topic: str, texts: Sequence[str], queue: tuple[str, int] | None = None, tags: str = ""
) -> None:
    """Send texts to the queues of a topic in turn, or all to the queue of that broker and number."""
    asyncio.run(_send(nameserver, topic, [Message(topic, text.encode(), tags=tags or None) for text in texts], queue))


async def _send(nameserver: str, topic: str, messages: Sequence[Message], queue: tuple[str, int] | None) -> None:
    to = MessageQueue(topic, *queue) if queue else None
    async with Producer("pg", nameserver) as producer:
        for message in messages:
            await producer.send(message, queue=to)
