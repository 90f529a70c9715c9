"""A consumer group whose members are different clients, and how it shares its queues while they come and go.

A wave is one message to each queue. Every wave is waited for until each of its messages has come to somebody. The
group is settled when a wave has come only to those members that own its queues by the strategy; while it is not, waves
may come twice or to former owners, and are followed by others.
"""

import asyncio
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Mapping

from interop.clients import Outgoing, Producer, PushConsumer, Queue
from interop.driver import Driver
from interop.servers import Server
from raw_calls import open_caller

from rocketlet.client import AllocateMessageQueueStrategy, MessageQueue
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode

SETTLE_LIMIT_S = 60.0
POLL_MS = 100
Owners = Mapping[int, list[str]]


class MixedGroup:
    """A group of members that read one topic."""

    def __init__(
        self, producer: Producer, server: Server, queues: list[Queue], strategy: AllocateMessageQueueStrategy
    ) -> None:
        self.topic = queues[0].topic
        self.group = f"{self.topic}-group"
        self._producer = producer
        self._server = server
        self._queues = queues
        self._strategy = strategy
        self._members: dict[str, PushConsumer] = {}
        self._got: dict[bytes, list[str]] = defaultdict(list)
        self._seen: dict[str, int] = defaultdict(int)
        self._waves = itertools.count()

    def join(self, name: str, driver: Driver, **options: object) -> None:
        """Start a member."""
        about = {"namesrv": self._server.namesrv, "group": self.group, "subscriptions": {self.topic: "*"}, **options}
        self._members[name] = PushConsumer(driver, strategy=type(self._strategy).__name__, **about)

    def leave(self, name: str) -> PushConsumer:
        """Count a member as gone and return it, to be stopped, dropped or killed."""
        return self._members.pop(name)

    def settle(self) -> None:
        """Send waves until one comes as the strategy says; then one more has to, each message once."""
        deadline = time.monotonic() + SETTLE_LIMIT_S
        while self._wave(deadline) != (expected := self._expected_owners()):
            assert time.monotonic() < deadline, f"not shared as {self._strategy.name} says: {expected}"
        assert self._wave(deadline) == expected

    def _wave(self, deadline: float) -> Owners:
        """Send a message to each queue; return who got those of each, once somebody has got each."""
        wave = next(self._waves)
        bodies = {b"%d of wave %d" % (queue.queue_id, wave): queue for queue in self._queues}
        for body, queue in bodies.items():
            self._producer.send_all(self.topic, Outgoing(body), queue=queue)
        while not bodies.keys() <= self._got.keys():
            assert time.monotonic() < deadline, f"nobody got {sorted(bodies.keys() - self._got.keys())}"
            self._collect(POLL_MS)
        self._collect()
        return {queue.queue_id: self._got[body] for body, queue in bodies.items()}

    def _collect(self, wait_ms: int = 0) -> None:
        for name, member in self._members.items():
            deliveries = member.received(self._seen[name] + 1, timeout_ms=wait_ms)
            wait_ms = 0
            for message in deliveries[self._seen[name] :]:
                self._got[message.body].append(name)
            self._seen[name] = len(deliveries)

    def _expected_owners(self) -> Owners:
        """Return the owner of each queue by the strategy, for the members that the broker lists."""
        listed = asyncio.run(_listed_members(self._server.broker, self.group))
        names = {member.client_id: name for name, member in self._members.items() if member.client_id}
        (unnamed,) = self._members.keys() - set(names.values()) or {""}  # Go's client does not tell its id
        queues = sorted(MessageQueue(queue.topic, queue.broker_name, queue.queue_id) for queue in self._queues)
        owners: dict[int, list[str]] = defaultdict(list)
        for client_id in listed:
            for queue in self._strategy.allocate(self.group, client_id, queues, listed):
                owners[queue.queue_id].append(names.get(client_id, unnamed))
        return owners


async def _listed_members(broker: str, group: str) -> list[str]:
    """Return the client ids of a group in order."""
    async with open_caller(broker) as caller:
        answer = await caller.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return sorted(json.loads(answer.body)["consumerIdList"]) if answer.code == ResponseCode.SUCCESS else []
