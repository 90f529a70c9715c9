"""Clients of running clusters for tests that are not asynchronous: what tests send, and how the source gets there."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketlet.client import (
    Admin,
    ClientSettings,
    Message,
    MessageQueue,
    Producer,
    ProducerSettings,
    TopicSettings,
)
from rocketlet.export.write.pulled_reader import LIVE_SCHEMA
from rocketlet.spark.cluster.cluster_options import CLUSTER_OPTIONS, ClusterOptions, parse_cluster_options
from rocketlet.spark.live.cluster_reader import RangeReading, plan_ranges_of, read_range
from rocketlet.spark.options.option_values import OptionValues

Rows = list[dict[str, Any]]


@dataclass
class Clients:
    """A cluster by its name server, with the options of the source and the settings of clients that it asks for."""

    nameserver: str
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    settings: ClientSettings = field(default_factory=ClientSettings)

    @property
    def options(self) -> dict[str, Any]:
        """The options by which the source reaches the cluster."""
        return {"nameserver": self.nameserver, **self.secrets}

    def create(self, topic: str, queues: int = 2, brokers: Sequence[str] | None = None, **attributes: str) -> None:
        """Create a topic."""
        settings = TopicSettings(read_queues=queues, write_queues=queues, attributes=attributes)
        asyncio.run(self._create(topic, settings, brokers))

    def send(self, topic: str, bodies: Sequence[bytes], to: tuple[str, int] | None = None, tags: str = "") -> None:
        """Send bodies to the queues of a topic in turn, or to one of a broker."""
        self.send_all([Message(topic, body, tags=tags or None) for body in bodies], to)

    def send_all(self, messages: Sequence[Message], to: tuple[str, int] | None = None) -> None:
        """Send messages one by one."""
        asyncio.run(self._send(messages, to))

    def send_batch(self, messages: Sequence[Message]) -> None:
        """Send messages of one topic in one request."""
        asyncio.run(self._send_batch(messages))

    async def _create(self, topic: str, settings: TopicSettings, brokers: Sequence[str] | None) -> None:
        async with Admin(self.nameserver, settings=self.settings) as admin:
            await admin.create_topic(topic, settings, brokers=brokers)

    async def _send(self, messages: Sequence[Message], to: tuple[str, int] | None) -> None:
        async with self._producer() as producer:
            for message in messages:
                await producer.send(message, queue=MessageQueue(message.topic, *to) if to else None)

    async def _send_batch(self, messages: Sequence[Message]) -> None:
        async with self._producer() as producer:
            await producer.send_batch(messages)

    def _producer(self) -> Producer:
        settings = ProducerSettings(credentials=self.settings.credentials, tls=self.settings.tls)
        return Producer("pg", self.nameserver, settings=settings)


def options_of(clients: Clients, **options: Any) -> ClusterOptions:
    """Return options for a cluster; failures are tried again once, and soon."""
    given = {**clients.options, "retries": 1, "retryIntervalMs": 1, **options}
    texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in given.items()}
    return parse_cluster_options(OptionValues(texts, CLUSTER_OPTIONS, "the source"))


def read(clients: Clients, **options: Any) -> Rows:
    """Plan a reading, and read all its ranges one by one, as tasks do."""
    parsed = options_of(clients, **options)
    reading = RangeReading(parsed, LIVE_SCHEMA)
    return [
        row for each in plan_ranges_of(parsed) for batch in read_range([each], reading) for row in batch.to_pylist()
    ]


def bodies(rows: Rows) -> list[bytes]:
    """Return the bodies in their order as text."""
    return sorted(row["body"] for row in rows)


def numbered(count: int, start: int = 0, size: int = 4) -> list[bytes]:
    """Return bodies that sort as numbers, of any size."""
    return [f"{number:04d}".encode().ljust(size, b".") for number in range(start, start + count)]
