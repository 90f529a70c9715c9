"""How name servers learn of this broker and its topics, and by which address (``BrokerOuterAPI``; behaviour.md A.9).

Rules
    1. Each name server is told everything at the start, every 30 s, and again after a failure with growing pauses;
       and at once when it has closed the connection, which is how it ends a registration that it holds for over.
       They are independent of each other.
    2. New and changed topics are saved, and told to all name servers at once. Whoever waits for that is answered after
       a second at the latest, whatever the disk, its thread and the name servers do; what is not done then goes on.
       Who comes for the same topic meanwhile waits for the rest of that second, and later not at all. What the disk
       has refused counts as not saved, and is tried again every second.
    3. A few topics are told one by one (217): a registration of them alone takes back the others where
       ``deleteTopicWithBrokerRegistration`` is set. A name server that does not know the broker, or is to hear of many,
       is told everything; one of RocketMQ 4, which does not know that request, by a registration of them alone.
    4. The version that goes with a topic is that of its change, so that no other registration hides it.
    5. All topics go in one registration, for the same reason, and compressed when they are many: so a frame holds
       100,000. Beyond that, or with ``enableSplitRegistration`` (``splitRegistrationSize`` topics each), they go in
       parts, one after the other, each with a version of its own.
    6. A topic that came or changed while all were being told is told again by itself: it is not among them.
    7. The address that is registered is, in this order: what ``--advertise`` or ``brokerIP1`` says; the address that
       the broker listens at; if it listens at all of them, the one from which it reaches this name server. In the last
       two cases a name server of ours on this machine is told that clients may use any host that leads here
       (``namesrv/route_handlers.py``); others ignore that.
    8. Answers to a slave say where its master is, or nothing while there is none.
    9. Where a broker serves clients of gRPC it says so as well, by a value of its name (100): the routes of name
       servers have no place for it, and clients that ask one broker are to find all (``other_brokers.py``).
   10. Where slaves may act as master (``enableSlaveActingMaster``) registrations say so, and after how long a silence
       the broker is gone. Between them it says that it is alive, and asks who else is there (``group_watch.py``).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import RemotingError, RocketletError
from ...common.ids import ANY_HOSTS, format_address
from ...common.metadata import DataVersion, TopicConfig
from ...common.names import BROKER_MEMBER_TOPIC_PREFIX
from ...common.properties import crc31
from ...remoting.bodies.body import decode_answer, decode_body, encode_body
from ...remoting.bodies.route import (
    MAX_PLAIN_TOPICS,
    BrokerMemberGroupBody,
    EncodedRegistration,
    KVTable,
    QueueData,
    TopicRouteData,
    encode_registration,
)
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.namesrv import (
    BrokerGroupHeader,
    BrokerHeader,
    BrokerHeartbeatHeader,
    PutKvHeader,
    RegisterBrokerHeader,
    RegisterBrokerReply,
    RegisterTopicHeader,
    RouteHeader,
    UnregisterBrokerHeader,
)
from ...remoting.transport.addresses import is_loopback, reachable_host
from ...remoting.transport.client import ConnectionPool
from ...remoting.transport.connection import Connection
from ...remoting.transport.event_loop import TaskScope, repeat, wait_at_most
from ..settings.config import BrokerConfig
from ..settings.live import LiveSettings
from .config_table import RETRY_MS
from .topics import READ_WRITE, TopicTable

UNREGISTER_TIMEOUT_MS = 3000
MEMBERS_TIMEOUT_MS = 3000
GRPC_NAMESPACE = "ROCKETLET_GRPC"
"""Where name servers keep, by the names of brokers, the addresses at which these serve clients of gRPC."""


class RegisterOutcome(NamedTuple):
    """What a name server said; ``ordered`` are the topics that it knows as ordered, None when it tells of none."""

    is_accepted: bool
    remark: str | None
    ordered: Mapping[str, str] | None


TellMaster = Callable[[str, str | None, str | None], object]
"""Told by which name server, where the master of a slave is, and where its HA port; None when there is none."""


class NameServerLink:
    """Registers one broker at one name server; ``lost`` is set when the connection of a registration has ended.

    The ports in its settings are those that are bound. ``tell_master`` is called with each answer to a slave.
    """

    def __init__(self, address: str, pool: ConnectionPool, config: BrokerConfig, tell_master: TellMaster) -> None:
        self.address = address
        self._tell_master = tell_master
        self._pool = pool
        self._config = config
        self._connection: Connection | None = None
        self._is_registered = False
        self._grpc_told: tuple[str, Connection | None] | None = None
        self.lost = asyncio.Event()

    def __repr__(self) -> str:
        return f"<NameServerLink {self.address}>"

    @property
    def is_registered(self) -> bool:
        """Whether this name server has taken a registration, and the connection of that is still there."""
        return self._is_registered and not self.lost.is_set()

    async def register(self, registration: EncodedRegistration) -> RegisterOutcome:
        """Register topics.

        Raises:
            RemotingError: no answer.
        """
        body, replication = registration.body, self._config.replication
        host, may_act = await self._own_host(), replication.acts_as_master
        ha_port = replication.ha_port or self._config.port + 1
        header = RegisterBrokerHeader(
            broker_name=self._config.broker_name,
            broker_addr=self._address_at(host),
            cluster_name=self._config.cluster_name,
            ha_server_addr=format_address(replication.told_ha_host or host, ha_port),
            broker_id=self._config.broker_id,
            heartbeat_timeout_ms=replication.not_active_ms if may_act else None,
            enable_acting_master=may_act,  # said at all, it lets a slave that is alone register its topics
            compressed=registration.is_compressed,
            body_crc32=crc31(body),
            follows_clients=not self._config.advertised_host,
        )
        command = Command.request(RequestCode.REGISTER_BROKER, header, body)
        answer = await self._pool.request(self.address, command, self._config.register_timeout_ms)
        await self._watch()
        self._is_registered = answer.code == ResponseCode.SUCCESS
        ordered = decode_body(KVTable, answer.body).table if answer.body else None
        if self._is_registered and replication.is_slave:
            told = decode_header(RegisterBrokerReply, answer)
            self._tell_master(self.address, told.master_addr, told.ha_server_addr)
        return RegisterOutcome(self._is_registered, answer.remark, ordered)

    async def register_topic(self, topic: TopicConfig) -> bool:
        """Register one topic beside those that are known; tell whether the name server could (RocketMQ 5 can).

        Raises:
            RemotingError: no answer.
        """
        queues = QueueData(
            broker_name=self._config.broker_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_sys_flag=topic.topic_sys_flag,
        )
        header, body = RegisterTopicHeader(topic=topic.topic_name), encode_body(TopicRouteData(queue_datas=[queues]))
        command = Command.request(RequestCode.REGISTER_TOPIC_IN_NAMESRV, header, body)
        answer = await self._pool.request(self.address, command, self._config.register_timeout_ms)
        return answer.code == ResponseCode.SUCCESS

    async def announce_grpc(self, address: str) -> None:
        """Tell where this broker serves clients of gRPC, once for each connection.

        Raises:
            RemotingError: no answer.
        """
        if self._grpc_told != (address, self._connection):
            header = PutKvHeader(namespace=GRPC_NAMESPACE, key=self._config.broker_name, value=address)
            await self.ask(Command.request(RequestCode.PUT_KV_CONFIG, header))
            self._grpc_told = address, self._connection

    async def ask(self, command: Command) -> Command:
        """Return what the name server answers.

        Raises:
            RemotingError: no answer.
        """
        return await self._pool.request(self.address, command, self._config.register_timeout_ms)

    async def say_alive(self, version: DataVersion) -> None:
        """Send a sign of life with the version of the topics; it is not answered.

        Raises:
            RemotingError: no connection.
        """
        name, cluster = self._config.broker_name, self._config.cluster_name
        address = self._address_at(await self._own_host())
        if self._config.replication.asks_as_before_5:
            who = BrokerHeader(
                broker_name=name, broker_addr=address, cluster_name=cluster, broker_id=self._config.broker_id
            )
            command = Command.request(RequestCode.QUERY_DATA_VERSION, who, encode_body(version))
        else:
            sign = BrokerHeartbeatHeader(cluster_name=cluster, broker_addr=address, broker_name=name)
            command = Command.request(RequestCode.BROKER_HEARTBEAT, sign)
        await self._pool.oneway(self.address, command)

    async def members(self) -> Mapping[int, str]:
        """Return the addresses of the brokers of this name by their numbers; nothing where there are none.

        Raises:
            RemotingError: no answer.
        """
        name, cluster = self._config.broker_name, self._config.cluster_name
        is_route = self._config.replication.asks_as_before_5
        if is_route:
            route = RouteHeader(topic=BROKER_MEMBER_TOPIC_PREFIX + name)
            command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
        else:
            group = BrokerGroupHeader(cluster_name=cluster, broker_name=name)
            command = Command.request(RequestCode.GET_BROKER_MEMBER_GROUP, group)
        answer = await self._pool.request(self.address, command, MEMBERS_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS or not answer.body:
            return {}
        if not is_route:
            return decode_answer(BrokerMemberGroupBody, answer.body).broker_member_group.broker_addrs
        for data in decode_answer(TopicRouteData, answer.body).broker_datas:
            if (data.broker_name, data.cluster) == (name, cluster):
                return data.broker_addrs
        return {}

    async def route(self, topic: str) -> TopicRouteData:
        """Return where a topic is in the cluster; nowhere when it is not known.

        Raises:
            RemotingError: no answer, or a refusal.
            DecodeError: an answer that cannot be read.
        """
        command = Command.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic=topic))
        answer = await self._pool.request(self.address, command, MEMBERS_TIMEOUT_MS)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return TopicRouteData()
        if answer.code != ResponseCode.SUCCESS:
            raise RemotingError(f"name server {self.address} tells no route of {topic}: {answer.remark}")
        return decode_answer(TopicRouteData, answer.body)

    async def unregister(self) -> None:
        """Take the broker out of the routes; a name server that cannot be reached forgets it by itself."""
        try:
            host = await self._own_host()
            header = UnregisterBrokerHeader(
                broker_name=self._config.broker_name,
                broker_addr=self._address_at(host),
                cluster_name=self._config.cluster_name,
                broker_id=self._config.broker_id,
            )
            command = Command.request(RequestCode.UNREGISTER_BROKER, header)
            await self._pool.request(self.address, command, UNREGISTER_TIMEOUT_MS)
        except RemotingError as error:
            _log.warning(
                "unregistering at name server %s failed, it keeps the routes until it finds the connection closed: %s",
                self.address,
                error,
            )

    async def _watch(self) -> None:
        """Hear of the end of the connection, once for each."""
        connection = await self._pool.connect(self.address)
        if connection is not self._connection:
            self._connection = connection
            self.lost.clear()
            connection.on_close(self._hear_end)

    def _hear_end(self, ended: Connection) -> None:
        if ended is self._connection:
            self.lost.set()

    def _address_at(self, host: str) -> str:
        return format_address(host, self._config.advertised_port or self._config.port)

    async def _own_host(self) -> str:
        if self._config.advertised_host:
            return self._config.advertised_host
        if self._config.host not in ANY_HOSTS:
            return self._config.host
        connection = await self._pool.connect(self.address)
        host = connection.local_address[0]
        return reachable_host(self._config.host) if is_loopback(host) else host


ANNOUNCE_LIMIT_MS = 1000
_NAMED = 5
_MOST_SINGLE = 32
_LEAST_PAUSE_MS = 1000  # between registrations at a name server that closes each connection
_log = logging.getLogger(__name__)


Save = Callable[[], Coroutine[Any, Any, bool]]


class Registration:
    """One broker's registrations; ``save`` brings changed topics to disk, and tells whether it could."""

    def __init__(self, settings: LiveSettings, topics: TopicTable, save: Save, tasks: TaskScope, clock: Clock) -> None:
        self._settings = settings
        self._topics = topics
        self._save = save
        self._tasks = tasks
        self._clock = clock
        self._links: list[NameServerLink] = []
        self._has_told_parts = False
        self._announced: dict[str, _Announced] = {}  # topics that are not on disk yet
        self._is_saving_again = False
        self.grpc_address = ""
        self.is_stopped = False

    def __repr__(self) -> str:
        return f"<Registration at {[link.address for link in self._links]}>"

    async def start(self, links: Sequence[NameServerLink]) -> None:
        """Begin to register; return when each name server was told or failed once, or after a second."""
        if self.is_stopped:
            return
        self._links = list(links)
        firsts: list[asyncio.Task[bool]] = []
        for link in links:
            first = asyncio.Event()
            work = _Round(self, link, first, self._clock)
            self._tasks.start(repeat(work, self._clock), f"register at {link.address}")
            firsts.append(self._tasks.start(first.wait(), f"first registration at {link.address}"))
        await self._wait_in_limit(firsts)

    async def stop(self) -> None:
        """Take the broker out of all routes."""
        links, self._links, self.is_stopped = self._links, [], True
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(link.unregister())

    def make_known(self, names: Sequence[str], done: Callable[[], object]) -> None:
        """Save and register these topics, then call; at once when the broker stops, which saves all."""
        if self.is_stopped:
            done()
            return
        self._begin([name for name in names if not self._is_announced(name)])
        under_way = {one.telling for name in names if not (one := self._announced[name]).telling.done()}
        if under_way:
            self._tasks.start(_call_behind(under_way, done), "wait for topics")
        else:
            done()

    async def tell_all(self, link: NameServerLink) -> int:
        """Register everything at one name server; return the pause until the next time.

        Raises:
            RemotingError: the name server did not answer, or refused.
        """
        told = list(self._topics)
        outcome = await self._register(link, told)
        if not outcome.is_accepted:
            raise RemotingError(f"name server {link.address} refused the registration: {outcome.remark}")
        await self._tell_changed(link, told)
        if self.grpc_address:
            await link.announce_grpc(self.grpc_address)
        if outcome.ordered is not None:
            self._topics.set_ordered(outcome.ordered)
        return self._settings.config.register_every_ms

    async def find_route(self, topic: str) -> TopicRouteData | None:
        """Return where a topic is in the cluster, by the first name server that says it; None when none does."""
        for link in [link for link in self._links if link.is_registered]:
            try:
                return await link.route(topic)
            except RocketletError as error:
                _log.warning("asking name server %s where %s is failed: %s", link.address, topic, error)
        return None

    async def say_alive(self) -> int:
        """Tell all name servers that the broker is alive, side by side; return the pause until the next time."""
        async with asyncio.TaskGroup() as group:
            for link in self._links:
                group.create_task(self._say_alive_at(link))
        return self._settings.config.replication.sign_of_life_ms

    async def _say_alive_at(self, link: NameServerLink) -> None:
        try:
            await link.say_alive(self._topics.version)
        except RemotingError as error:
            _log.debug("name server %s is not told that the broker is alive: %s", link.address, error)

    @property
    def links(self) -> Sequence[NameServerLink]:
        """The name servers, while the broker runs."""
        return self._links

    async def announce_grpc(self, address: str) -> None:
        """Have all name servers know where this broker serves clients of gRPC."""
        self.grpc_address = address
        registered = [link for link in self._links if link.is_registered]
        await self._wait_in_limit(
            [self._tasks.start(self._announce_grpc(link), f"announce gRPC at {link.address}") for link in registered]
        )

    async def _announce_grpc(self, link: NameServerLink) -> None:
        try:
            await link.announce_grpc(self.grpc_address)
        except RocketletError as error:
            text = "telling name server %s the gRPC port failed, trying again with the next registration: %s"
            _log.warning(text, link.address, error)

    async def tell_everybody(self) -> None:
        """Register everything anew at all name servers; return when that is done or has failed, or after a second."""
        names = [f"register anew at {link.address}" for link in self._links]
        await self._wait_in_limit(
            [self._tasks.start(self._tell_anew(link), name) for link, name in zip(self._links, names, strict=True)]
        )

    async def _tell_anew(self, link: NameServerLink) -> None:
        try:
            await self.tell_all(link)
        except RocketletError as error:
            text = "registering at name server %s failed, trying again with the next registration: %s"
            _log.warning(text, link.address, error)

    async def _tell_changed(self, link: NameServerLink, told: Sequence[TopicConfig]) -> None:
        """Tell of topics that have come or changed since a registration was made."""
        if self._settings.config.announces_single_topics:
            known = {topic.topic_name: topic for topic in told}
            late = [topic for topic in self._topics if known.get(topic.topic_name) is not topic]
            for topic in self._permitted(late):
                await link.register_topic(topic)

    def _is_announced(self, name: str) -> bool:
        """Tell whether a topic, as it is now, is being made known."""
        announced = self._announced.get(name)
        return announced is not None and announced.topic is self._topics.get(name)

    def _begin(self, names: Sequence[str]) -> None:
        if names:
            telling = self._tasks.start(self._make_known(names), "announce topics")
            self._announced |= {name: _Announced(self._topics.get(name), telling) for name in names}

    async def _make_known(self, names: Sequence[str]) -> None:
        known = {name: self._topics.get(name) for name in names}
        saving = self._tasks.start(self._save(), "save topics")
        telling = [
            self._tasks.start(self._tell(link, names), f"register topics at {link.address}") for link in self._links
        ]
        await self._wait_in_limit([saving, *telling])
        saving.add_done_callback(partial(self._end_save, known))

    def _end_save(self, known: Mapping[str, TopicConfig | None], saving: asyncio.Task[bool]) -> None:
        if saving.cancelled():
            return
        if saving.result():
            self._forget(known)
        elif not (self._is_saving_again or self.is_stopped):
            self._is_saving_again = True
            self._tasks.start(self._save_again(), "save topics again")

    async def _save_again(self) -> None:
        """Save until the disk has taken every topic that is being made known."""
        while self._announced:
            await self._clock.sleep(RETRY_MS)
            known = {name: one.topic for name, one in self._announced.items()}
            if await self._save():
                self._forget(known)
        self._is_saving_again = False

    def _forget(self, known: Mapping[str, TopicConfig | None]) -> None:
        """Let nobody wait for topics any more that are on disk, unless they have changed since."""
        for name, topic in known.items():
            if self._is_announced(name) and self._topics.get(name) is topic:
                self._topics.unsaved.discard(name)
                del self._announced[name]

    async def _tell(self, link: NameServerLink, names: Sequence[str]) -> None:
        try:
            if self._settings.config.announces_single_topics:
                if not link.is_registered or len(names) > _MOST_SINGLE:
                    await self.tell_all(link)
                    return
                if all([await link.register_topic(topic) for topic in self._permitted(self._existing(names))]):
                    return
            if not (await self._register(link, self._existing(names))).is_accepted:
                await self.tell_all(link)
        except RocketletError as error:
            text = "registering topics %s at name server %s failed, trying again with the next registration: %s"
            _log.warning(text, _few(names), link.address, error)

    async def _wait_in_limit(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if tasks:
            try:
                async with self._clock.timeout(ANNOUNCE_LIMIT_MS):
                    await asyncio.wait(tasks)
            except TimeoutError:
                late = ", ".join(task.get_name() for task in tasks if not task.done())
                _log.warning("not done after %d ms, going on in the background: %s", ANNOUNCE_LIMIT_MS, late)

    async def _register(self, link: NameServerLink, topics: Sequence[TopicConfig]) -> RegisterOutcome:
        """Register topics, in parts if one registration does not hold them; return the last outcome, or the refusal."""
        config = self._settings.config
        most = config.split_topics if config.splits_registration else max(1, len(topics))
        parts = [topics[start : start + most] for start in range(0, len(topics), most)] or [topics]
        is_whole = len(parts) == 1
        while True:
            part = parts.pop(0)
            encoded = await self._encode(part, is_whole=is_whole)
            if encoded is None:
                parts[:0] = self._halve(part)
                is_whole = False
                continue
            outcome = await link.register(encoded)
            if not (outcome.is_accepted and parts):
                return outcome

    async def _encode(self, topics: Sequence[TopicConfig], *, is_whole: bool) -> EncodedRegistration | None:
        version = self._topics.version if is_whole else self._topics.renew_version()
        if len(topics) <= MAX_PLAIN_TOPICS:
            return encode_registration(self._permitted(topics), version)
        return await asyncio.to_thread(lambda: encode_registration(self._permitted(topics), version))

    def _halve(self, topics: Sequence[TopicConfig]) -> tuple[Sequence[TopicConfig], Sequence[TopicConfig]]:
        if len(topics) == 1:
            raise RemotingError(f"topic {topics[0].topic_name} is too large for a registration")
        half = len(topics) // 2
        if not self._has_told_parts:
            self._has_told_parts = True
            text = "%d topics are more than one registration holds: registering them in parts of %d or less"
            _log.warning(text, len(topics), len(topics) - half)
        return topics[:half], topics[half:]

    def _existing(self, names: Sequence[str]) -> Sequence[TopicConfig]:
        return [topic for name in names if (topic := self._topics.get(name)) is not None]

    def _permitted(self, topics: Sequence[TopicConfig]) -> Sequence[TopicConfig]:
        permission = self._settings.config.permission
        if permission & READ_WRITE == READ_WRITE:
            return topics
        return [replace(topic, perm=topic.perm & permission) for topic in topics]


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


class _Announced(NamedTuple):
    """A topic that is being made known, and who tells it."""

    topic: TopicConfig | None
    telling: asyncio.Task[None]


async def _call_behind(under_way: Collection[asyncio.Task[None]], done: Callable[[], object]) -> None:
    await asyncio.wait(under_way)
    done()


class _Round:
    """The timed job of one name server; the first round tells when it is over."""

    def __init__(self, registration: Registration, link: NameServerLink, first: asyncio.Event, clock: Clock) -> None:
        self._registration = registration
        self._link = link
        self._first = first
        self._clock = clock
        self.__qualname__ = f"registration at {link.address}"

    async def __call__(self) -> int | None:
        if self._registration.is_stopped:
            return None
        try:
            pause_ms = await self._registration.tell_all(self._link)
        finally:
            self._first.set()
        told_at_ms = self._clock.monotonic_ms()
        await wait_at_most(self._link.lost, pause_ms, self._clock)
        if not self._link.lost.is_set() or self._registration.is_stopped:
            return 0
        _log.info("name server %s has closed the connection: registering again", self._link.address)
        return max(0, told_at_ms + _LEAST_PAUSE_MS - self._clock.monotonic_ms())
