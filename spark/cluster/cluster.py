"""What a driver asks of a running cluster: topics, queues, and their offsets; every call blocks.

    topics()             all topics that a name server knows, or those of users
    queues(topics)       their queues that can be read, each with the address of its broker
    extents(queues)      which offsets each of them holds now; ends(queues) only up to where
    offsets_at(instants) the offset of the first message stored at an instant or later
    brokers()            the addresses of each broker, master and slaves
    masterless()         the brokers of which only slaves are left

Rules:

- Each call has a session and an event loop of its own, so that nothing is open between two calls, however long that
  is, and the object travels between processes. Questions of one call are asked at the same time.
- A question is asked of the master, and of a slave when no master is known. What may succeed a
  little later is sent again (``call_with_retries``): a server that does not answer, or has no time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from ...client.session.routes import MASTER_ID, TopicRoute, choose_address, subscribe_queues
from ...client.session.session import Session
from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import ConfigError, RemotingError, ResponseError, RocketletError, RouteNotFoundError, nearest
from ...common.message import MessageQueue
from ...common.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic, reply_topic
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.route import ClusterInfo, TopicList
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.offset import MaxOffsetHeader, OffsetReply, QueueHeader, SearchOffsetHeader
from ...remoting.transport.event_loop import TaskScope
from ..options.cluster_access import Access
from .queue_ranges import QueueExtent

_PASSING: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.FLOW_CONTROL,
        ResponseCode.GO_AWAY,
    }
)


Asked = TypeVar("Asked")


Found = TypeVar("Found")


Addresses = Mapping[MessageQueue, str]


def is_transient(error: RemotingError | ResponseError) -> bool:
    """Tell whether the same request may succeed a little later."""
    return isinstance(error, RemotingError) or error.code in _PASSING


async def call_with_retries(access: Access, clock: Clock, ask: Callable[[], Awaitable[Found]]) -> Found:
    """Return what ``ask`` does, after as many failures as the access allows.

    Raises:
        RemotingError, ResponseError: The last failure, or one that will not pass.
    """
    for left in range(access.retries, -1, -1):
        try:
            return await ask()
        except (RemotingError, ResponseError) as error:
            if not left or not is_transient(error):
                raise
            _log.warning(
                "request failed, retrying in %d ms, %d retries left: %s", access.retry_interval_ms, left, error
            )
            await clock.sleep(access.retry_interval_ms)
    raise AssertionError("the last attempt returns or raises")


_AT_ONCE: Final = 32
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Cluster:
    """A cluster by its name servers."""

    access: Access

    def topics(self, *, includes_system: bool = True) -> list[str]:
        """Return the names of all topics, with or without those that brokers make: system, retry, dead-letter.

        Raises:
            RemotingError: No name server answers.
            ResponseError: One answers with an error.
        """
        return asyncio.run(self._with_session(self._topics if includes_system else self._user_topics))

    def queues(self, topics: Iterable[str], *, skips_missing: bool = False) -> dict[MessageQueue, str]:
        """Return the queues of topics that can be read, with the address of a broker that has them.

        Raises:
            ConfigError: A topic is not there or cannot be read, and is not to be skipped; names the nearest one.
            RemotingError: No name server answers.
        """
        wanted = sorted(set(topics))
        return asyncio.run(
            self._with_session(lambda session: self._queues(session, wanted, skips_missing=skips_missing))
        )

    def extents(self, queues: Addresses) -> dict[MessageQueue, QueueExtent]:
        """Return what each queue holds now.

        Raises:
            RemotingError: A broker does not answer.
            ResponseError: One answers with an error.
        """

        async def ask(session: Session, queue: MessageQueue) -> QueueExtent:
            first = await self._offset(session, queues[queue], RequestCode.GET_MIN_OFFSET, _first_header(queue))
            end = await self._offset(session, queues[queue], RequestCode.GET_MAX_OFFSET, _end_header(queue))
            return QueueExtent(first, end)

        return asyncio.run(self._with_session(lambda session: ask_all(session, queues, ask)))

    def ends(self, queues: Addresses) -> dict[MessageQueue, int]:
        """Return where each queue ends now; raises as ``extents``."""

        async def ask(session: Session, queue: MessageQueue) -> int:
            return await self._offset(session, queues[queue], RequestCode.GET_MAX_OFFSET, _end_header(queue))

        return asyncio.run(self._with_session(lambda session: ask_all(session, queues, ask)))

    def offsets_at(self, queues: Addresses, instants: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """Return for each queue of ``instants`` the offset of the first message stored then or later, or its end.

        Raises:
            RemotingError: A broker does not answer.
            ResponseError: One answers with an error.
        """

        async def ask(session: Session, queue: MessageQueue) -> int:
            header = _time_header(queue, instants[queue])
            return await self._offset(session, queues[queue], RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

        return asyncio.run(self._with_session(lambda session: ask_all(session, instants, ask)))

    def brokers(self) -> dict[str, frozenset[str]]:
        """Return the addresses of all brokers by name.

        Raises:
            RemotingError, ResponseError: No name server tells.
        """
        return asyncio.run(self._with_session(self._brokers))

    def masterless(self) -> frozenset[str]:
        """Return the names of brokers whose master no name server knows; raises as ``brokers``."""
        table = asyncio.run(self._with_session(self._info)).broker_addr_table
        return frozenset(name for name, broker in table.items() if MASTER_ID not in broker.broker_addrs)

    async def _with_session(self, work: Callable[[Session], Awaitable[Found]]) -> Found:
        async with Session(self.access.nameserver, settings=self.access.client_settings) as session:
            return await work(session)

    async def _topics(self, session: Session) -> list[str]:
        answer = await self._ask_nameserver(session, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(set(decode_answer(TopicList, answer.body).topic_list))

    async def _ask_nameserver(self, session: Session, code: RequestCode) -> Command:
        async def ask() -> Command:
            answer = await session.ask_nameserver(Command.request(code), self.access.timeout_ms)
            return _checked(answer, "a name server", code)

        return await call_with_retries(self.access, session.clock, ask)

    async def _user_topics(self, session: Session) -> list[str]:
        info = await self._info(session)
        own = {*info.broker_addr_table, *info.cluster_addr_table, *map(reply_topic, info.cluster_addr_table)}
        return [topic for topic in await self._topics(session) if topic not in own and not _is_made_by_brokers(topic)]

    async def _brokers(self, session: Session) -> dict[str, frozenset[str]]:
        table = (await self._info(session)).broker_addr_table
        return {name: frozenset(broker.broker_addrs.values()) for name, broker in sorted(table.items())}

    async def _info(self, session: Session) -> ClusterInfo:
        return decode_answer(
            ClusterInfo, (await self._ask_nameserver(session, RequestCode.GET_BROKER_CLUSTER_INFO)).body
        )

    async def _queues(self, session: Session, topics: list[str], *, skips_missing: bool) -> dict[MessageQueue, str]:
        found: dict[MessageQueue, str] = {}
        for topic in topics:
            try:
                found |= _addressed(topic, await self._route(session, topic))
            except ConfigError as error:
                if not skips_missing:
                    raise
                _log.warning("%s", error)
        return found

    async def _route(self, session: Session, topic: str) -> TopicRoute:
        try:
            return await call_with_retries(
                self.access, session.clock, lambda: session.route(topic, self.access.timeout_ms)
            )
        except RouteNotFoundError:
            hint = nearest(topic, await self._topics(session))
            raise ConfigError(f"there is no topic {topic}{hint}", key=topic) from None

    async def _offset(self, session: Session, address: str, code: int, header: msgspec.Struct) -> int:
        async def ask() -> Command:
            answer = await session.call(address, Command.request(code, header), self.access.timeout_ms)
            return _checked(answer, address, code)

        return decode_header(OffsetReply, await call_with_retries(self.access, session.clock, ask)).queue_offset


def _is_made_by_brokers(topic: str) -> bool:
    return is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))


def _addressed(topic: str, route: TopicRoute) -> dict[MessageQueue, str]:
    queues = subscribe_queues(topic, route)
    if not queues:
        raise ConfigError(f"topic {topic} cannot be read: no broker permits it", key=topic)
    found: dict[MessageQueue, str] = {}
    for queue in queues:
        chosen = choose_address(route.brokers.get(queue.broker_name, {}), MASTER_ID)
        if chosen is None:
            raise ConfigError(
                f"topic {topic} has queues on {queue.broker_name}, of which no address is known", key=topic
            )
        found[queue] = chosen.address
    return found


async def ask_all(
    session: Session, asked: Iterable[Asked], ask: Callable[[Session, Asked], Awaitable[Found]]
) -> dict[Asked, Found]:
    """Ask about each at the same time, some at once."""
    permits = asyncio.Semaphore(_AT_ONCE)

    async def ask_one(one: Asked) -> Found | RocketletError:
        async with permits:
            try:
                return await ask(session, one)
            except RocketletError as error:
                return error

    found: dict[Asked, Found] = {}
    async with TaskScope() as scope:
        tasks = [(one, scope.start(ask_one(one), name=f"ask {one}")) for one in asked]
        for one, task in tasks:
            answer = await task
            if isinstance(answer, RocketletError):
                raise answer
            found[one] = answer
    return found


def _first_header(queue: MessageQueue) -> QueueHeader:
    return QueueHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)


def _end_header(queue: MessageQueue) -> MaxOffsetHeader:
    return MaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)


def _time_header(queue: MessageQueue, at_ms: int) -> SearchOffsetHeader:
    return SearchOffsetHeader(
        topic=queue.topic, queue_id=queue.queue_id, at_ms=max(0, at_ms), broker_name=queue.broker_name
    )


def _checked(answer: Command, server: str, code: int) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark, server, RequestCode(code).name)
    return answer
