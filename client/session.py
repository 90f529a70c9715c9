"""What producers and consumers share: connections, routes, heartbeats (Java's ``MQClientInstance``).

    routes         every 30 s, for all topics in use; sooner when a broker cannot be reached
    heartbeats     after 1 s, then every 30 s, to masters, and to slaves as well when there is a consumer; also as the
                   first request on each new connection, so that a broker knows who asks

Client id: ``ip@pid#nanoseconds``. The number keeps apart what runs in one process, and containers that are all process
1 of one address. Two members of a group with one id would take the same queues and leave the rest to nobody.

Requests of brokers: NOTIFY_CONSUMER_IDS_CHANGED (40) wakes the rebalance. For others the participants are asked in
turn, and what none of them knows is answered with code 3.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from types import TracebackType
from typing import NamedTuple, Self

from ..common.clock import Clock
from ..common.errors import (
    ConfigError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    RocketletError,
    RouteNotFoundError,
)
from ..remoting.addresses import reachable_host
from ..remoting.bodies import decode_body, encode_body
from ..remoting.bodies_client import HeartbeatData, ProducerData
from ..remoting.bodies_route import TopicRouteData
from ..remoting.client import ConnectionPool
from ..remoting.clock import LoopClock
from ..remoting.codes import RequestCode, ResponseCode
from ..remoting.command import Command, decode_header
from ..remoting.connection import Connection
from ..remoting.headers_client import ConsumerGroupHeader, UnregisterClientHeader
from ..remoting.headers_namesrv import RouteHeader
from ..remoting.service import Handler, Reply, Service, refuse_unknown
from ..remoting.tasks import TaskScope, repeat
from .nameservers import NameServers, parse_addresses
from .participant import Participant, key_of
from .routes import Route, RouteTable, cut_template, route_from
from .settings import ClientSettings, choose_nameserver
from .wakeup import Wakeup

log = logging.getLogger(__name__)

ROUTE_INTERVAL_MS = 30_000
HEARTBEAT_INTERVAL_MS = 30_000
FIRST_HEARTBEAT_MS = 1_000
CALL_TIMEOUT_MS = 3_000
LEAST_PAUSE_MS = 1_000


class TemplateTopic(NamedTuple):
    """The topic whose route a new topic gets, and with how many queues at most."""

    name: str
    max_queues: int


class Session:
    """One client id: its connections, routes and heartbeats; ``async with`` starts and ends it.

    Producers and consumers make one each, unless they are given one to share:

        async with Session("127.0.0.1:9876") as session, Producer("orders", session=session) as producer:
            ...
    """

    def __init__(
        self, nameserver: str | None = None, clock: Clock | None = None, settings: ClientSettings | None = None
    ) -> None:
        self.settings = settings or ClientSettings()
        self.clock = clock or LoopClock()
        self.host = reachable_host("")
        self.client_id = f"{self.host}@{os.getpid()}#{time.perf_counter_ns()}"
        self.routes = RouteTable()
        self.tasks = TaskScope()
        notices: dict[int, Handler] = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._serve_notice}
        self._pool = ConnectionPool(self.clock, Service(notices, self._serve))
        self._nameservers = NameServers(parse_addresses(choose_nameserver(nameserver)), self._pool, self.clock)
        self._connections: dict[str, Connection] = {}
        self._participants: dict[str, Participant] = {}
        self._route_locks: dict[str, asyncio.Lock] = {}
        self._connect_locks: dict[str, asyncio.Lock] = {}
        self._route_wakeup = Wakeup(self.clock)
        self._heartbeat_wakeup = Wakeup(self.clock)
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<Session {self.client_id} {sorted(self._participants)} {self.routes!r}>"

    async def __aenter__(self) -> Self:
        """Start the jobs; connections are made when they are needed."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._pool)
            await stack.enter_async_context(self.tasks)
            self.tasks.start(repeat(self._poll_routes, self.clock, first_ms=LEAST_PAUSE_MS), name="routes")
            self.tasks.start(repeat(self._beat, self.clock, first_ms=FIRST_HEARTBEAT_MS), name="heartbeats")
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the jobs and close the connections."""
        await self._stack.__aexit__(None, None, None)

    def join(self, participant: Participant) -> None:
        """Let a producer or consumer take part in heartbeats and notices.

        Raises:
            ConfigError: its group is here already in the same role.
        """
        key = key_of(participant)
        if key in self._participants:
            raise ConfigError(f"the {key} has been created before in this client", key="group")
        self._participants[key] = participant
        if self._connections:
            self.heartbeat_soon()

    async def leave(self, participant: Participant) -> None:
        """Tell the brokers that a participant ends; who cannot be told finds out when the connection closes."""
        self._participants.pop(key_of(participant), None)
        is_consumer = participant.consumer_data() is not None
        header = UnregisterClientHeader(
            client_id=self.client_id,
            producer_group=None if is_consumer else participant.group,
            consumer_group=participant.group if is_consumer else None,
        )
        command = Command.request(RequestCode.UNREGISTER_CLIENT, header)
        async with asyncio.TaskGroup() as group:
            for address in self._connections:
                group.create_task(self._tell(address, command))

    # calls

    async def call(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request to a broker and return its answer whatever its code.

        Raises:
            RemotingError: no answer came in time.
        """
        connection = self._connections.get(address)
        if connection is None:
            deadline_ms = self.clock.now_ms() + timeout_ms
            connection = await self._connect(address, timeout_ms)
            timeout_ms = max(1, deadline_ms - self.clock.now_ms())
        answer = await connection.request(command, timeout_ms)
        if answer.code == ResponseCode.GO_AWAY:
            self._pool.close(address)  # the broker lets its connections end; the next call makes a new one
        return answer

    async def call_oneway(self, address: str, command: Command, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Send a request that is not answered.

        Raises:
            RemotingError: no connection could be made in time.
        """
        connection = self._connections.get(address) or await self._connect(address, timeout_ms)
        connection.send_oneway(command)

    def master_of(self, broker_name: str) -> str:
        """Return the address of a broker's master.

        Raises:
            RouteNotFoundError: no route in use knows one.
        """
        address = self.routes.master_of(broker_name)
        if address is None:
            raise RouteNotFoundError(f"no address of a master of broker {broker_name} is known")
        return address

    async def _connect(self, address: str, timeout_ms: int) -> Connection:
        try:
            async with self.clock.timeout(timeout_ms), self._connect_locks.setdefault(address, asyncio.Lock()):
                return self._connections.get(address) or await self._open_connection(address)
        except TimeoutError:
            self.refresh_soon()
            raise RequestTimeoutError(f"no connection to {address} in {timeout_ms} ms") from None
        except RemotingError:
            self.refresh_soon()
            raise

    async def _open_connection(self, address: str) -> Connection:
        connection = await self._pool.connect(address)
        if self._participants:
            await self._hear(address, connection.request(self._heartbeat_command(), CALL_TIMEOUT_MS))
        if not connection.is_closed:
            self._connections[address] = connection
            connection.on_close(lambda ended: self._forget(address, ended))
        return connection

    def _forget(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]

    # routes

    async def route(
        self, topic: str, timeout_ms: int = CALL_TIMEOUT_MS, template: TemplateTopic | None = None
    ) -> Route:
        """Return a topic's route, asking a name server when it is not known.

        Raises:
            RouteNotFoundError: the topic does not exist, and there is no template that it could be created after.
            RemotingError: no name server answered in time.
            ResponseError: the name server answered with another error.
        """
        route = self.routes.get(topic)
        if route is not None:
            return route
        try:
            async with self.clock.timeout(timeout_ms), self._route_locks.setdefault(topic, asyncio.Lock()):
                return self.routes.get(topic) or await self._find_route(topic, timeout_ms, template)
        except TimeoutError:
            raise RequestTimeoutError(f"the route of {topic} was not found in {timeout_ms} ms") from None

    async def _find_route(self, topic: str, timeout_ms: int, template: TemplateTopic | None) -> Route:
        route = await self._fetch_route(topic, timeout_ms)
        if route is None and template is not None:
            created_after = await self._fetch_route(template.name, timeout_ms)
            route = None if created_after is None else cut_template(created_after, template.max_queues)
        if route is None:
            raise RouteNotFoundError(f"no route info of the topic {topic}")
        self._keep_route(topic, route)
        return route

    async def refresh(self, topic: str, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Ask for a topic's route again; an unknown topic keeps the route it had.

        Raises:
            RemotingError: no name server answered in time.
            ResponseError: the name server answered with an error other than an unknown topic.
        """
        route = await self._fetch_route(topic, timeout_ms)
        if route is not None:
            self._keep_route(topic, route)

    def refresh_soon(self) -> None:
        """Ask for all routes again before their time: a broker did not answer."""
        self._route_wakeup.wake()

    async def _fetch_route(self, topic: str, timeout_ms: int) -> Route | None:
        command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic))
        answer = await self._nameservers.request(command, timeout_ms)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark)
        route = route_from(decode_body(TopicRouteData, answer.body))
        return route if route.brokers else None

    def _keep_route(self, topic: str, route: Route) -> None:
        was_known = self.routes.get(topic) is not None
        if self.routes.put(topic, route) and was_known:
            for participant in self._participants.values():
                participant.route_changed(topic)

    async def _poll_routes(self) -> int:
        await self._route_wakeup.wait(ROUTE_INTERVAL_MS - LEAST_PAUSE_MS)
        used = {topic for participant in self._participants.values() for topic in participant.topics()}
        for topic in set(self.routes.topics) - used:
            self.routes.discard(topic)
        for topic in used:
            try:
                await self.refresh(topic)
            except RocketletError as error:
                log.warning("the route of %s is kept as it is: %s", topic, error)
        return LEAST_PAUSE_MS

    # heartbeats and notices

    async def heartbeat(self) -> None:
        """Tell every broker in use who is here; who does not answer is told again with the next heartbeat."""
        with_slaves = any(each.consumer_data() is not None for each in self._participants.values())
        known, command = set(self._connections), self._heartbeat_command()
        async with asyncio.TaskGroup() as group:
            for address in self.routes.addresses(with_slaves=with_slaves):
                group.create_task(self._tell(address, command) if address in known else self._meet(address))

    def heartbeat_soon(self) -> None:
        """Send heartbeats before their time: a broker does not know us."""
        self._heartbeat_wakeup.wake()

    async def _beat(self) -> int:
        await self.heartbeat()
        await self._heartbeat_wakeup.wait(HEARTBEAT_INTERVAL_MS)
        return 0

    def _heartbeat_command(self) -> Command:
        participants = self._participants.values()
        heartbeat = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[
                ProducerData(group_name=each.group) for each in participants if not each.consumer_data()
            ],
            consumer_data_set=[data for each in participants if (data := each.consumer_data()) is not None],
        )
        return Command.request(RequestCode.HEART_BEAT, body=encode_body(heartbeat))

    async def _tell(self, address: str, command: Command) -> None:
        await self._hear(address, self.call(address, command, CALL_TIMEOUT_MS))

    async def _meet(self, address: str) -> None:
        """Connect to a broker; the first request on a connection is a heartbeat."""
        try:
            await self._connect(address, CALL_TIMEOUT_MS)
        except RemotingError as error:
            log.warning("broker %s is not told who is here: %s", address, error)

    async def _hear(self, address: str, answering: Awaitable[Command]) -> None:
        """Wait for an answer of which only a failure is of interest."""
        try:
            answer = await answering
        except RemotingError as error:
            log.warning("broker %s does not answer: %s", address, error)
            if isinstance(error, RequestTimeoutError):
                self._pool.close(address)  # it may be half open; the next call makes a new one
            return
        if answer.code != ResponseCode.SUCCESS:
            log.warning("broker %s answered %d: %s", address, answer.code, answer.remark)

    def _serve_notice(self, command: Command, _connection: Connection) -> None:
        group = decode_header(ConsumerGroupHeader, command).consumer_group
        for participant in self._participants.values():
            if participant.group == group:
                participant.members_changed()

    def _serve(self, command: Command, connection: Connection) -> Reply:
        for participant in self._participants.values():
            handler = participant.handlers.get(command.code)
            reply = None if handler is None else handler(command, connection)
            if reply is not None:
                return reply
        return refuse_unknown(command, connection)


def borrow_session(
    session: Session | None, nameserver: str | None, settings: ClientSettings, clock: Clock | None
) -> tuple[Session, AbstractAsyncContextManager[Session]]:
    """Return the session of a participant, and what it has to enter: its own session, or nothing around a shared one.

    Raises:
        ConfigError: there is no name server, or one beside a session.
    """
    if session is None:
        session = Session(nameserver, clock, settings)
        return session, session
    if nameserver is not None:
        raise ConfigError("give nameserver or session, not both", key="nameserver")
    return session, nullcontext(session)
