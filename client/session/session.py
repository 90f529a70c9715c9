"""What producers and consumers share: connections, routes, heartbeats (Java's ``MQClientInstance``).

    routes         every 30 s, for all topics in use; sooner when a broker cannot be reached
    heartbeats     after 1 s, then every 30 s, to masters, and to slaves as well when there is a consumer; also as the
                   first request on each new connection, and after a request that was not answered in time

Client id: ``ip@pid#nanoseconds``, with ``@unit`` behind it where there is a unit name. The number keeps apart what runs
in one process, and containers that are all process 1 of one address. Two members of a group with one id would take the
same queues and leave the rest to nobody; who sets ``instance_name``, which replaces ``pid#nanoseconds``, takes care.

Requests of brokers: NOTIFY_CONSUMER_IDS_CHANGED (40) wakes the rebalance. Others go to the feature that has registered
for them, else to the members in turn, and what none of them knows is answered with code 3.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from typing import ClassVar, NamedTuple, Protocol, Self, TypeVar

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import (
    ConfigError,
    RemotingError,
    RequestTimeoutError,
    ResponseError,
    RocketletError,
    RouteNotFoundError,
)
from ...common.ids import format_address
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import ConsumerData, HeartbeatData, ProducerData
from ...remoting.bodies.route import TopicRouteData
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import ConsumerGroupHeader, UnregisterClientHeader
from ...remoting.headers.namesrv import RouteHeader
from ...remoting.transport.addresses import reachable_host
from ...remoting.transport.client import ConnectionPool
from ...remoting.transport.connection import Connection, Handler, Reply, RequestHandlers, refuse_unknown
from ...remoting.transport.event_loop import LoopClock, TaskScope, repeat
from .hooks import HookSource, Role
from .interceptors import RequestPipeline
from .lifecycle import Lifecycle, TimerEvent
from .routes import NameServers, TopicRoute, TopicRoutes, parse_addresses, route_from
from .settings import (
    ClientSettings,
    check_own_settings,
    check_shared_settings,
    choose_nameserver,
    choose_settings,
    client_id_of,
    ssl_context_of,
)

_log = logging.getLogger(__name__)

ROUTE_INTERVAL_MS = 30_000
FIRST_HEARTBEAT_MS = 1_000
CALL_TIMEOUT_MS = 3_000
LEAST_PAUSE_MS = 1_000
GHOST_MS = 120_000  # channelExpiredTimeout of brokers

FindRoute = Callable[[str, int], Awaitable[TopicRoute]]
"""Finds a route for a topic that no broker has, within some milliseconds."""


class Feature(Protocol):
    """What answers requests of brokers for all members of a session."""

    def __init__(self, clock: Clock) -> None: ...

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """What it answers when a broker asks, by request code."""
        ...


FeatureT = TypeVar("FeatureT", bound=Feature)


class SessionMember(Protocol):
    """What takes part in the heartbeats, notices and requests of a session."""

    @property
    def group(self) -> str:
        """The name of its group."""
        ...

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """What it answers when a broker asks, by request code; None as a reply leaves the request to others."""
        ...

    def topics(self) -> Sequence[str]:
        """Return the topics whose routes are kept fresh for it."""
        ...

    def consumer_data(self) -> ConsumerData | None:
        """Return what heartbeats say of a consumer; None for a producer."""
        ...

    def route_changed(self, topic: str, /) -> None:
        """Learn that a topic has other queues or brokers."""
        ...

    def members_changed(self) -> None:
        """Learn that members may have come or gone."""
        ...


def heartbeat_of(client_id: str, members: Iterable[SessionMember], *, unit_mode: bool) -> HeartbeatData:
    """Return what brokers are told of those who take part."""
    heartbeat = HeartbeatData(client_id=client_id)
    for member in members:
        data = member.consumer_data()
        if data is None:
            heartbeat.producer_data_set.append(ProducerData(group_name=member.group))
        else:
            data.unit_mode = unit_mode
            heartbeat.consumer_data_set.append(data)
    return heartbeat


def answer_of(members: Iterable[SessionMember], command: Command, connection: Connection) -> Reply:
    """Return what the first has to say that knows what a broker asks, else that nobody does."""
    for member in members:
        handler = member.handlers.get(command.code)
        reply = None if handler is None else handler(command, connection)
        if reply is not None:
            return reply
    return refuse_unknown(command, connection)


def farewell_of(client_id: str, member: SessionMember) -> UnregisterClientHeader:
    """Return what brokers are told when one of them ends."""
    if member.consumer_data() is None:
        return UnregisterClientHeader(client_id=client_id, producer_group=member.group)
    return UnregisterClientHeader(client_id=client_id, consumer_group=member.group)


def key_of(member: SessionMember) -> str:
    """Return what there may be one of in a session: a group in a role."""
    role = "producer" if member.consumer_data() is None else "consumer"
    return f"{role} group {member.group}"


class OutageLog:
    """The brokers that have not answered the last time."""

    def __init__(self) -> None:
        self._silent: set[str] = set()

    def __repr__(self) -> str:
        return f"<OutageLog {sorted(self._silent)}>"

    def begin(self, address: str, error: RemotingError) -> None:
        """Note that a broker did not answer."""
        level = logging.DEBUG if address in self._silent else logging.WARNING
        _log.log(level, "broker %s does not answer: %s", address, error)
        self._silent.add(address)

    def heed(self, address: str, answer: Command) -> None:
        """Note that a broker has answered, and warn of an answer that is an error."""
        if address in self._silent:
            self._silent.discard(address)
            _log.info("broker %s answers again", address)
        if answer.code != ResponseCode.SUCCESS:
            _log.warning("broker %s answered a heartbeat with %d: %s", address, answer.code, answer.remark)


class Session:
    """One client id: its connections, routes and heartbeats; ``async with`` starts and ends it.

    Producers and consumers make one each, unless they are given one to share:

        async with Session("127.0.0.1:9876") as session, Producer("orders", session=session) as producer:
            ...
    """

    on_join: ClassVar[Callable[["Session", str], object] | None] = None
    """What is told of each producer and consumer that joins a session, and in which role: the leak check of tests."""

    def __init__(
        self, nameserver: str | None = None, clock: Clock | None = None, settings: ClientSettings | None = None
    ) -> None:
        self.settings = choose_settings(settings, ClientSettings)
        check_own_settings(self.settings)
        self.clock = clock or LoopClock()
        self.host = self.settings.client_host or reachable_host("")
        self.client_id = client_id_of(self.host, self.settings)
        pipeline = RequestPipeline(self.settings, namespace=self.settings.namespace)
        self.namespace = pipeline.namespace
        self._pipeline = None if pipeline.is_empty else pipeline
        self.routes = TopicRoutes()
        self.tasks = TaskScope()
        self._lifecycle = Lifecycle("session")
        self._handlers: dict[int, Handler] = {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._serve_notice}
        self._features: dict[type[Feature], Feature] = {}
        self._pool = ConnectionPool(
            self.clock, RequestHandlers(self._handlers, self._serve), tls=ssl_context_of(self.settings.tls)
        )
        addresses = parse_addresses(choose_nameserver(nameserver))
        self._nameservers = NameServers(addresses, self._pool, self.clock, self._pipeline)
        self.connections: dict[str, Connection] = {}  # by address; to be changed here only
        self._members: dict[str, SessionMember] = {}
        self._route_locks: dict[str, asyncio.Lock] = {}
        self._connect_locks: dict[str, asyncio.Lock] = {}
        self._routed_at_ms: dict[str, int] = {}
        self._route_timer = TimerEvent(self.clock)
        self._heartbeat_timer = TimerEvent(self.clock)
        self._outage_log = OutageLog()
        self._lost_at_ms = -GHOST_MS

    def __repr__(self) -> str:
        return f"<Session {self.client_id} {sorted(self._members)} {self.routes!r}>"

    async def __aenter__(self) -> Self:
        """Start the jobs; connections are made when they are needed."""
        async with self._lifecycle.starting() as stack:
            await stack.enter_async_context(self._pool)
            await stack.enter_async_context(self.tasks)
            self.tasks.start(repeat(self._poll_routes, self.clock, first_ms=LEAST_PAUSE_MS), name="routes")
            self.tasks.start(repeat(self._beat, self.clock, first_ms=FIRST_HEARTBEAT_MS), name="heartbeats")
            stack.callback(self._lifecycle.end)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End the jobs and close the connections."""
        await self._lifecycle.close()

    @property
    def changes_requests(self) -> bool:
        """Whether requests have to pass ``call``, since something is done to each."""
        return self._pipeline is not None

    @property
    def nameserver_addresses(self) -> tuple[str, ...]:
        """The name servers that were given."""
        return self._nameservers.addresses

    @property
    def local_addresses(self) -> frozenset[str]:
        """Our ends of the connections to brokers, as ``host:port``."""
        return frozenset(format_address(*each.local_address) for each in self.connections.values())

    @property
    def may_be_listed_twice(self) -> bool:
        """Whether a broker may still list a connection that has ended here; it misses a silent one in two minutes."""
        return self.clock.monotonic_ms() < self._lost_at_ms + GHOST_MS

    def join(self, member: SessionMember) -> None:
        """Let a producer or consumer take part in heartbeats and notices.

        Raises:
            ConfigError: its group is here already in the same role.
            ClientStateError: the session is not open.
        """
        self._lifecycle.check()
        key = key_of(member)
        if key in self._members:
            raise ConfigError(f"the {key} has been created before in this client", key="group")
        self._members[key] = member
        if Session.on_join is not None:
            Session.on_join(self, key)
        if self.connections:
            self.heartbeat_soon()

    def feature(self, kind: type[FeatureT]) -> FeatureT:
        """Return what answers some requests of brokers for the whole session; it is made when it is first asked for."""
        found = self._features.get(kind)
        if not isinstance(found, kind):
            found = self._features[kind] = kind(self.clock)
            self._handlers |= found.handlers
        return found

    async def leave(self, member: SessionMember) -> None:
        """Tell the brokers that a member ends; who cannot be told finds out when the connection closes."""
        self._members.pop(key_of(member), None)
        command = Command.request(RequestCode.UNREGISTER_CLIENT, farewell_of(self.client_id, member))
        async with asyncio.TaskGroup() as group:
            for address in self.connections:
                group.create_task(self._tell(address, command))

    # calls

    async def call(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request to a broker and return its answer whatever its code.

        Raises:
            RemotingError: no answer came in time.
        """
        connection = self.connections.get(address)
        if connection is None:
            deadline_ms = self.clock.monotonic_ms() + timeout_ms
            connection = await self._connect(address, timeout_ms)
            timeout_ms = max(1, deadline_ms - self.clock.monotonic_ms())
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.before_request(address, command)
        answering = connection.ask(command, timeout_ms)
        try:
            answer = await answering
        except RequestTimeoutError:
            if command.code != RequestCode.HEART_BEAT:
                self.heartbeat_soon()  # it is not answered either when the connection is half open
            raise
        finally:
            if answering.cancelled():
                connection.forget(command)
        if pipeline is not None:
            pipeline.after_response(address, command, answer)
        if answer.code == ResponseCode.GO_AWAY:
            self.part_from(address)  # the broker lets its connections end
        return answer

    def part_from(self, address: str) -> None:
        """End a connection, and forget it at once; the next call makes a new one."""
        self.connections.pop(address, None)
        self._pool.close(address)

    async def call_oneway(self, address: str, command: Command, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Send a request that is not answered.

        Raises:
            RemotingError: no connection could be made in time.
        """
        connection = self.connections.get(address) or await self._connect(address, timeout_ms)
        self._send_oneway(address, connection, command)

    def send_on(self, connection: Connection, command: Command) -> None:
        """Send a request that is not answered on the connection on which a broker asked for it."""
        self._send_oneway(format_address(*connection.remote_address), connection, command)

    def _send_oneway(self, address: str, connection: Connection, command: Command) -> None:
        if self._pipeline is not None:
            self._pipeline.before_request(address, command)
        connection.send_oneway(command)

    async def ask_nameserver(self, command: Command, timeout_ms: int) -> Command:
        """Return the answer of a name server, whatever its code.

        Raises:
            RemotingError: none answered in time.
        """
        return await self._nameservers.request(command, timeout_ms)

    async def ask_nameservers(self, make_command: Callable[[], Command], timeout_ms: int) -> list[Command]:
        """Return the answers of all name servers.

        Raises:
            RemotingError: one did not answer; the others were asked all the same.
        """
        return await self._nameservers.request_all(make_command, timeout_ms)

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
                return self.connections.get(address) or await self._open_connection(address)
        except TimeoutError:
            self.refresh_soon()
            raise RequestTimeoutError(f"no connection to {address} in {timeout_ms} ms") from None
        except RemotingError:
            self.refresh_soon()
            raise

    async def _open_connection(self, address: str) -> Connection:
        connection = await self._pool.connect(address)
        if self._members:
            command = self._heartbeat_command()
            if self._pipeline is not None:
                self._pipeline.before_request(address, command)
            await self._hear(address, connection.request(command, CALL_TIMEOUT_MS))
        if not connection.is_closed:
            self.connections[address] = connection
            connection.on_close(lambda ended: self._forget(address, ended))
        return connection

    def _forget(self, address: str, connection: Connection) -> None:
        self._lost_at_ms = self.clock.monotonic_ms()
        if self.connections.get(address) is connection:
            del self.connections[address]

    # routes

    async def route(
        self, topic: str, timeout_ms: int = CALL_TIMEOUT_MS, otherwise: FindRoute | None = None
    ) -> TopicRoute:
        """Return a topic's route, asking a name server when it is not known, and ``otherwise`` when no broker has it.

        Raises:
            RouteNotFoundError: the topic does not exist.
            RemotingError: no name server answered in time.
            ResponseError: the name server answered with another error.
        """
        route = self.routes.get(topic)
        if route is not None:
            return route
        try:
            async with self.clock.timeout(timeout_ms), self._route_locks.setdefault(topic, asyncio.Lock()):
                return self.routes.get(topic) or await self._find_route(topic, timeout_ms, otherwise)
        except TimeoutError:
            raise RequestTimeoutError(f"the route of {topic} was not found in {timeout_ms} ms") from None

    async def _find_route(self, topic: str, timeout_ms: int, otherwise: FindRoute | None) -> TopicRoute:
        route = await self.fetch_route(topic, timeout_ms)
        if route is None:
            if otherwise is None:
                raise RouteNotFoundError(f"no broker has the topic {topic}")
            route = await otherwise(topic, timeout_ms)
        self._keep_route(topic, route)
        return route

    async def refresh(self, topic: str, timeout_ms: int = CALL_TIMEOUT_MS) -> None:
        """Ask for a topic's route again; an unknown topic keeps the route it had.

        Raises:
            RemotingError: no name server answered in time.
            ResponseError: the name server answered with an error other than an unknown topic.
        """
        route = await self.fetch_route(topic, timeout_ms)
        if route is not None:
            self._keep_route(topic, route)

    def refresh_soon(self) -> None:
        """Ask for all routes again before their time: a broker did not answer."""
        self._route_timer.wake()

    async def fetch_route(self, topic: str, timeout_ms: int) -> TopicRoute | None:
        """Return a topic's route as a name server knows it now, None when no broker has it; keep nothing.

        Raises:
            RemotingError: no name server answered in time.
            ResponseError: the name server answered with another error.
        """
        command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic))
        answer = await self._nameservers.request(command, timeout_ms)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark, "a name server", RequestCode.GET_ROUTEINFO_BY_TOPIC.name)
        route = route_from(decode_answer(TopicRouteData, answer.body))
        return route if route.brokers else None

    def _keep_route(self, topic: str, route: TopicRoute) -> None:
        self._routed_at_ms[topic] = self.clock.monotonic_ms()
        was_known = self.routes.get(topic) is not None
        if self.routes.put(topic, route) and was_known:
            for member in self._members.values():
                member.route_changed(topic)

    async def _poll_routes(self) -> int:
        await self._route_timer.wait(ROUTE_INTERVAL_MS - LEAST_PAUSE_MS)
        used = {topic for member in self._members.values() for topic in member.topics()}
        oldest_ms = self.clock.monotonic_ms() - ROUTE_INTERVAL_MS
        for topic in set(self._routed_at_ms) - used:
            if self._routed_at_ms[topic] <= oldest_ms:  # an administrator's call may be about to use a younger one
                del self._routed_at_ms[topic]
                self.routes.discard(topic)
        for topic in used:
            try:
                await self.refresh(topic)
            except RocketletError as error:
                _log.warning("looking up the route of topic %s failed, keeping the last one: %s", topic, error)
        return LEAST_PAUSE_MS

    # heartbeats and notices

    async def heartbeat(self) -> None:
        """Tell every broker in use who is here; who does not answer is told again with the next heartbeat."""
        with_slaves = any(each.consumer_data() is not None for each in self._members.values())
        known, command = set(self.connections), self._heartbeat_command()
        async with asyncio.TaskGroup() as group:
            for address in self.routes.addresses(with_slaves=with_slaves):
                group.create_task(self._tell(address, command) if address in known else self._meet(address))

    def heartbeat_soon(self) -> None:
        """Send heartbeats before their time: a broker does not know us."""
        self._heartbeat_timer.wake()

    async def _beat(self) -> int:
        await self.heartbeat()
        await self._heartbeat_timer.wait(self.settings.heartbeat_interval_ms)
        return 0

    def _heartbeat_command(self) -> Command:
        heartbeat = heartbeat_of(self.client_id, self._members.values(), unit_mode=self.settings.is_unit_mode)
        return Command.request(RequestCode.HEART_BEAT, body=encode_body(heartbeat))

    async def _tell(self, address: str, command: Command) -> None:
        await self._hear(address, self.call(address, command, CALL_TIMEOUT_MS))

    async def _meet(self, address: str) -> None:
        """Connect to a broker; the first request on a connection is a heartbeat."""
        try:
            await self._connect(address, CALL_TIMEOUT_MS)
        except RemotingError as error:
            self._outage_log.begin(address, error)

    async def _hear(self, address: str, answering: Awaitable[Command]) -> None:
        """Wait for an answer of which only a failure is of interest."""
        connection = self.connections.get(address)
        reads = connection and connection.reads
        try:
            answer = await answering
        except RemotingError as error:
            self._outage_log.begin(address, error)
            if isinstance(error, RequestTimeoutError) and reads == (connection and connection.reads):
                self.part_from(address)  # it may be half open
            return
        self._outage_log.heed(address, answer)

    def _serve_notice(self, command: Command, _connection: Connection) -> None:
        self.namespace.strip_request(command)
        group = decode_header(ConsumerGroupHeader, command).consumer_group
        for member in self._members.values():
            if member.group == group:
                member.members_changed()

    def _serve(self, command: Command, connection: Connection) -> Reply:
        self.namespace.strip_request(command)
        return answer_of(self._members.values(), command, connection)


def borrow_session(
    session: Session | None, nameserver: str | None, settings: ClientSettings, clock: Clock | None
) -> tuple[Session, AbstractAsyncContextManager[Session]]:
    """Return the session of a member, and what it has to enter: its own session, or nothing around a shared one.

    Raises:
        ConfigError: there is no name server, or one beside a session; a setting of sessions differs from the session's.
        TypeError: what was given is no session.
    """
    if session is None:
        session = Session(nameserver, clock, settings)
        return session, session
    if not isinstance(session, Session):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"session is {type(session).__name__}, it must be a Session")
    if nameserver is not None:
        raise ConfigError("give nameserver or session, not both", key="nameserver")
    check_shared_settings(settings, session.settings)
    return session, nullcontext(session)


class HookOwner(NamedTuple):
    """The producer or consumer that a hook is attached to."""

    session: Session
    group: str
    role: Role


@asynccontextmanager
async def attach_hooks(owner: HookOwner, hooks: Iterable[object]) -> AsyncGenerator[tuple[object, ...]]:
    """Let sources make the hooks of a producer or consumer; yield all its hooks in their order."""
    async with AsyncExitStack() as stack:
        yield tuple(
            [
                await stack.enter_async_context(hook.attach(owner)) if isinstance(hook, HookSource) else hook
                for hook in hooks
            ]
        )
