"""Where the queues of a topic are, and which name server is asked for it.

    list          rule (Java's ``MQClientInstance.topicRouteData2Topic…``)
    publish       with an order configuration: from it alone. Else brokers by name, those with write permission whose
                  master (id 0) is known; queue ids 0 … write queues - 1 of each
    subscribe     read permission; queue ids 0 … read queues - 1 of each; a master is not needed

The wire's shape of a route is read by ``route_from``; nothing else here knows it.

One name server is chosen at random and asked until it fails; then the next of the list is tried, each once. What is
left of the call's time is shared equally by those not tried yet, so that one that hangs leaves time for the others. An
answer with an error code is an answer and does not move the choice, unless it says that the request is not known: that
is a broker or some other server, whose address was given by mistake.
"""

import logging
import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import ConfigError, RemotingError, RequestTimeoutError
from ...common.message import MessageQueue
from ...common.names import PERM_READ, PERM_WRITE
from ...remoting.bodies.route import MASTER_ID, TopicRouteData
from ...remoting.codec.command import Command
from ...remoting.transport.client import ConnectionPool
from .interceptors import RequestPipeline

_log = logging.getLogger(__name__)


class QueueShare(NamedTuple):
    """The queues of one topic on one broker."""

    broker_name: str
    permission: int
    read_queues: int
    write_queues: int


class TopicRoute(NamedTuple):
    """All brokers and queues of one topic, in an order that makes equal routes compare equal."""

    shares: tuple[QueueShare, ...]
    brokers: Mapping[str, Mapping[int, str]]  # broker name -> broker id -> address
    order_configuration: str | None = None


class BrokerAddress(NamedTuple):
    """An address that a consumer pulls from."""

    address: str
    is_slave: bool


def route_from(data: TopicRouteData) -> TopicRoute:
    """Read a route answer of a name server."""
    shares = (QueueShare(q.broker_name, q.perm, q.read_queue_nums, q.write_queue_nums) for q in data.queue_datas)
    brokers = {broker.broker_name: dict(sorted(broker.broker_addrs.items())) for broker in data.broker_datas}
    return TopicRoute(tuple(sorted(shares)), dict(sorted(brokers.items())), data.order_topic_conf or None)


def limit_queues(route: TopicRoute, max_queues: int) -> TopicRoute:
    """Return the route of a topic that is created after another one, with at most so many queues on each broker."""
    shares = (
        share._replace(read_queues=count, write_queues=count)
        for share in route.shares
        for count in [min(max_queues, share.read_queues)]
    )
    return route._replace(shares=tuple(shares))


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues that a producer may send to, in the order of the round."""
    if route.order_configuration:
        return tuple(_ordered_queues(topic, route.order_configuration))
    return tuple(
        MessageQueue(topic, share.broker_name, queue_id)
        for share in route.shares
        if share.permission & PERM_WRITE and MASTER_ID in route.brokers.get(share.broker_name, {})
        for queue_id in range(share.write_queues)
    )


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Return the queues that a consumer group shares."""
    return tuple(
        MessageQueue(topic, share.broker_name, queue_id)
        for share in route.shares
        if share.permission & PERM_READ
        for queue_id in range(share.read_queues)
    )


def choose_address(brokers: Mapping[int, str], wanted_id: int) -> BrokerAddress | None:
    """Choose where to pull: the wanted broker, for a wanted slave the next id, else any of the group."""
    if wanted_id in brokers:
        return BrokerAddress(brokers[wanted_id], wanted_id != MASTER_ID)
    broker_id = wanted_id + 1
    if wanted_id == MASTER_ID or broker_id not in brokers:
        broker_id = next(iter(brokers), None)
    return None if broker_id is None else BrokerAddress(brokers[broker_id], broker_id != MASTER_ID)


def _ordered_queues(topic: str, configuration: str) -> Iterable[MessageQueue]:
    """Read ``broker-a:4;broker-b:2``; a part that is not of that form adds nothing."""
    for part in configuration.split(";"):
        broker_name, _, count = part.partition(":")
        if count.isdecimal():
            yield from (MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(count)))


class TopicRoutes:
    """The routes that are in use, and the addresses of all brokers in them.

    Where a broker is, the route says that came last: others may still name its master, which is gone.
    """

    def __init__(self) -> None:
        self._routes: dict[str, TopicRoute] = {}
        self.brokers: Mapping[str, Mapping[int, str]] = {}  # broker name -> broker id -> address
        self.masters: Mapping[str, str] = {}  # broker name -> address

    def __repr__(self) -> str:
        return f"<TopicRoutes {len(self._routes)} topics, {len(self.brokers)} brokers>"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics with a route."""
        return tuple(self._routes)

    def get(self, topic: str) -> TopicRoute | None:
        """Return the last known route."""
        return self._routes.get(topic)

    def put(self, topic: str, route: TopicRoute) -> bool:
        """Keep a route; tell whether it differs from the last one."""
        is_other = self._routes.pop(topic, None) != route
        self._routes[topic] = route  # the last now
        if is_other or any(self.brokers.get(name) != ids for name, ids in route.brokers.items()):
            self._collect_brokers()
        return is_other

    def discard(self, topic: str) -> None:
        """Forget a topic that is no longer in use, and brokers that only it had."""
        if self._routes.pop(topic, None) is not None:
            self._collect_brokers()

    def master_of(self, broker_name: str) -> str | None:
        """Return the address of a broker group's master."""
        return self.masters.get(broker_name)

    def addresses(self, *, with_slaves: bool) -> list[str]:
        """Return the address of every known broker, masters only unless slaves are asked for."""
        return [
            address
            for brokers in self.brokers.values()
            for broker_id, address in brokers.items()
            if with_slaves or broker_id == MASTER_ID
        ]

    def _collect_brokers(self) -> None:
        """Rebuild the addresses: a broker that left every route gets no more heartbeats."""
        self.brokers = {name: ids for route in self._routes.values() for name, ids in route.brokers.items()}
        self.masters = {name: ids[MASTER_ID] for name, ids in self.brokers.items() if MASTER_ID in ids}


def parse_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses of ``host:port;host:port``; a comma separates as well.

    Raises:
        ConfigError: there is none, or one has no port.
    """
    addresses = tuple(part.strip() for part in text.replace(",", ";").split(";") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) <= 65_535:
            raise ConfigError(f"name server {address!r} is not of the form host:port", key="nameserver")
    if not addresses:
        raise ConfigError("no name server is given", key="nameserver")
    return addresses


class NameServers:
    """The name servers of one client."""

    def __init__(
        self, addresses: tuple[str, ...], pool: ConnectionPool, clock: Clock, pipeline: RequestPipeline | None
    ) -> None:
        self.addresses = addresses
        self._pool = pool
        self._clock = clock
        self._pipeline = pipeline
        self._chosen = random.randrange(len(addresses))

    def __repr__(self) -> str:
        return f"<NameServers {';'.join(self.addresses)} chosen={self.chosen}>"

    @property
    def chosen(self) -> str:
        """The address that is asked first."""
        return self.addresses[self._chosen]

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """Ask the chosen name server, after a failure the others.

        Raises:
            RemotingError: none of them answered in time.
        """
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        failure: RemotingError = RequestTimeoutError(f"no time is left to ask {self.chosen}")
        first, count = self._chosen, len(self.addresses)
        for tried in range(count):
            number = (first + tried) % count
            left_ms = deadline_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                break
            try:
                answer = await self._ask(self.addresses[number], command, max(1, left_ms // (count - tried)))
            except RemotingError as error:
                _log.warning("name server %s failed: %s", self.addresses[number], error)
                failure = error
            else:
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED or tried == count - 1:
                    return answer
                _log.warning("%s is no name server: it answered %s", self.addresses[number], answer.remark)
            if self._chosen == number:  # unless another call has found that out before
                self._chosen = (number + 1) % count
        raise failure

    async def request_all(self, make_command: Callable[[], Command], timeout_ms: int) -> list[Command]:
        """Ask every name server, each for so long; return their answers.

        Raises:
            RemotingError: one did not answer; the others were asked all the same.
        """
        answers: list[Command] = []
        failure: RemotingError | None = None
        for address in self.addresses:
            try:
                answers.append(await self._ask(address, make_command(), timeout_ms))
            except RemotingError as error:
                _log.warning("name server %s failed: %s", address, error)
                failure = error
        if failure is not None:
            raise failure
        return answers

    async def _ask(self, address: str, command: Command, timeout_ms: int) -> Command:
        if self._pipeline is None:
            return await self._pool.request(address, command, timeout_ms)
        self._pipeline.before_request(address, command)
        answer = await self._pool.request(address, command, timeout_ms)
        self._pipeline.after_response(address, command, answer)
        return answer
