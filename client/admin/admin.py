"""The administrator's client: topics, groups, offsets, messages, brokers (Java's ``DefaultMQAdminExt``).

    part                  requests
    topics                17, 351, 215, 216, 206, 224
    groups, members       200, 201, 352, 207, 203, 38
    offsets, progress     14, 15, 29, 30, 31, 222
    messages              33, 12, 29, 11 (``stored_messages.py``)
    members, tracks       204, 300, 307, 309 (``member_inspection.py``)
    brokers               106, 28, 322

Changes are made on the master of one broker after the other; when one fails, those before it are changed. Nothing is
cached, and with one cluster it need not be named.

A new topic can be used when ``create_topic`` returns: the name servers know it. A group is made by its first consumer
unless brokers are told not to (``autoCreateSubscriptionGroup``).

    progress        what is committed, and where each queue begins and ends, at the moment of asking
    reset_to_…      the brokers move the group (222), also while it consumes: it gets the messages from there on
    reset           every queue to an offset of its own, while the group has no members

A broker that does not know 222 is told the offsets as consumers do it (15). While members are online they would store
theirs over that, so it is refused then. A group that a broker does not know is an error (26): make it first.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, Self

from ...common.clock import Clock
from ...common.codes import ResponseCode
from ...common.errors import ClientStateError, ConfigError, RequestTimeoutError, RouteNotFoundError
from ...common.message import MessageQueue, ReceivedMessage
from ...common.metadata import SubscriptionGroupTable, TopicConfig
from ...common.names import AUTO_CREATE_TOPIC, client_group_remark
from ...common.subscription import ALL
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.client import ConsumerConnections, ConsumerList, ResetOffsets
from ...remoting.bodies.route import KVTable, TopicList
from ...remoting.codec.command import Command, decode_header
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import (
    ConsumerGroupHeader,
    CreateTopicHeader,
    DeletedTopicHeader,
    DeleteGroupHeader,
    TopicHeader,
)
from ...remoting.headers.namesrv import BrokerNameHeader, ClusterHeader
from ...remoting.headers.offset import ConsumerOffsetHeader, OffsetReply, ResetOffsetHeader
from ..group.broker_requests import BrokerRequests
from ..group.subscriptions import Sql
from ..session.lifecycle import Lifecycle
from ..session.results import SendResult
from ..session.session import Session, borrow_session
from ..session.settings import ClientSettings, check_queue_offset, check_topic, choose_settings
from .admin_calls import ADMIN_TIMEOUT_MS, AdminCalls
from .admin_values import (
    BrokerNode,
    GroupConnection,
    GroupProgress,
    GroupSettings,
    QueueProgress,
    TopicSettings,
    read_group,
    read_topic,
    write_group,
)
from .member_inspection import DirectConsumption, MemberInfo, MemberInspection, Track
from .stored_messages import MAX_MS, StoredMessages, TimeSpan

ROUTE_PAUSE_MS = 50
_NOBODY_CODES = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
AT_END_MS = -1
_BY_HAND_CODES = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.CONSUMER_NOT_ONLINE)
FindOffset = Callable[[MessageQueue], Awaitable[int]]


class _Reset(NamedTuple):
    """Where a group begins again in a topic; ``find_offset`` is asked where the broker cannot do it."""

    group: str
    topic: str
    at_ms: int
    find_offset: FindOffset


class Admin:
    """Asks and changes the servers; use it with ``async with``, from one event loop.

        async with Admin("127.0.0.1:9876") as admin:
            await admin.create_topic("orders", TopicSettings(read_queues=16, write_queues=16))
            print((await admin.progress("billing", "orders")).lag)

    Without ``nameserver`` the environment variable NAMESRV_ADDR names it; with an open ``session`` it is shared. All
    calls raise ``RemotingError`` when a server does not answer, and ``ResponseError`` when it answers with an error:
    code 3 says that it does not know such a request. Names are those that brokers have, with their namespace.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        settings: ClientSettings | None = None,
        session: Session | None = None,
        clock: Clock | None = None,
    ) -> None:
        session, self._entered = borrow_session(session, nameserver, choose_settings(settings, ClientSettings), clock)
        if session.namespace.name:
            raise ConfigError("an Admin names things as brokers do, without a namespace", key="namespace")
        self._session = session
        self._lifecycle = Lifecycle("admin")
        self._calls = AdminCalls(session, self._lifecycle)
        self._messages = StoredMessages(session, self._calls)
        self._inspection = MemberInspection(session, self._calls)
        self._brokers = BrokerRequests(session)

    def __repr__(self) -> str:
        return f"<Admin {self._lifecycle.stage.name.lower()}, {self._session!r}>"

    async def __aenter__(self) -> Self:
        """Start; connections are made when they are needed.

        Raises:
            ClientStateError: it has been started before.
        """
        async with self._lifecycle.starting() as stack:
            await stack.enter_async_context(self._entered)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        await self._lifecycle.close()

    # topics

    async def topics(self, cluster: str | None = None) -> list[str]:
        """Return the names of all topics, or of those of a cluster; system, retry and dead letter topics too."""
        if cluster is None:
            answer = await self._calls.ask_nameserver(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            answer = await self._calls.ask_nameserver(RequestCode.GET_TOPICS_BY_CLUSTER, ClusterHeader(cluster=cluster))
        return sorted(set(decode_answer(TopicList, answer.body).topic_list))

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic that can be read or written.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return await self._calls.queues(topic)

    async def topic(self, name: str) -> dict[str, TopicSettings]:
        """Return the settings of a topic on each broker that has it.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        found: dict[str, TopicSettings] = {}
        for broker_name, address in (await self._calls.masters_of_topic(name)).items():
            command = Command.request(RequestCode.GET_TOPIC_CONFIG, TopicHeader(topic=name))
            answer = await self._calls.ask_broker(address, command, [ResponseCode.TOPIC_NOT_EXIST])
            if answer.code == ResponseCode.SUCCESS:
                found[broker_name] = read_topic(decode_answer(TopicConfig, answer.body))
        return found

    async def create_topic(
        self,
        name: str,
        settings: TopicSettings | None = None,
        *,
        cluster: str | None = None,
        brokers: Collection[str] | None = None,
    ) -> None:
        """Create or change a topic on the masters of a cluster, or on those of the brokers named.

        Raises:
            ValueError: the name is not allowed, or there is no such cluster or broker.
            ResponseError: a broker refused it.
            RequestTimeoutError: the brokers have it, but no name server told so in time.
        """
        check_topic(name)
        settings = choose_settings(settings, TopicSettings)
        masters = await self._calls.masters(cluster, brokers)
        for address in masters.values():
            await self._calls.ask_broker(
                address, Command.request(RequestCode.UPDATE_AND_CREATE_TOPIC, _header(name, settings))
            )
        await self._wait_routed(name, set(masters))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic on its brokers and on every name server; what is in the log stays until it expires.

        Raises:
            RouteNotFoundError: there is no such topic.
            ResponseError: a server refused it.
        """
        for address in (await self._calls.masters_of_topic(name)).values():
            await self._calls.ask_broker(
                address, Command.request(RequestCode.DELETE_TOPIC_IN_BROKER, DeletedTopicHeader(topic=name))
            )
        await self._calls.ask_nameservers(RequestCode.DELETE_TOPIC_IN_NAMESRV, TopicHeader(topic=name))
        self._session.routes.discard(name)

    async def forbid_writes(self, broker: str) -> None:
        """Have no more messages sent to a broker: all its topics lose their write permission at the name servers."""
        await self._calls.ask_nameservers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name=broker))

    async def allow_writes(self, broker: str) -> None:
        """Undo ``forbid_writes``."""
        await self._calls.ask_nameservers(RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name=broker))

    async def _wait_routed(self, name: str, brokers: set[str]) -> None:
        """Return when a name server tells that the topic is on the brokers; it cannot be asked to call."""
        clock = self._session.clock
        try:
            async with clock.timeout(ADMIN_TIMEOUT_MS):
                while not await self._is_routed(name, brokers):
                    await clock.sleep(ROUTE_PAUSE_MS)
        except TimeoutError:
            raise RequestTimeoutError(f"topic {name} has no route after {ADMIN_TIMEOUT_MS} ms") from None

    async def _is_routed(self, name: str, brokers: set[str]) -> bool:
        try:
            return brokers <= {share.broker_name for share in (await self._calls.route(name)).shares}
        except RouteNotFoundError:
            return False

    # groups

    async def groups(self, cluster: str | None = None) -> list[str]:
        """Return the names of all groups that brokers of the cluster know."""
        names: set[str] = set()
        for address in (await self._calls.masters(cluster)).values():
            names |= (await self._group_table(address)).subscription_group_table.keys()
        return sorted(names)

    async def group(self, name: str, cluster: str | None = None) -> dict[str, GroupSettings]:
        """Return the settings of a group on each broker that has it; none where nobody has consumed yet."""
        found: dict[str, GroupSettings] = {}
        for broker_name, address in (await self._calls.masters(cluster)).items():
            config = (await self._group_table(address)).subscription_group_table.get(name)
            if config is not None:
                found[broker_name] = read_group(config)
        return found

    async def create_group(
        self, name: str, settings: GroupSettings | None = None, *, cluster: str | None = None
    ) -> None:
        """Create or change a group on the masters of a cluster.

        Raises:
            ConfigError: the name is not allowed.
            ValueError: there is no such cluster.
            ResponseError: a broker refused it.
        """
        remark = client_group_remark(name)
        if remark is not None:
            raise ConfigError(remark, key="group")
        body = encode_body(write_group(name, choose_settings(settings, GroupSettings)))
        for address in (await self._calls.masters(cluster)).values():
            await self._calls.ask_broker(
                address, Command.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            )

    async def delete_group(self, name: str, *, with_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a group on the masters of a cluster; its retry and dead letter topics stay.

        Raises:
            ResponseError: a broker refused it.
        """
        header = DeleteGroupHeader(group_name=name, clean_offset=with_offsets, remove_offset=with_offsets)
        for address in (await self._calls.masters(cluster)).values():
            await self._calls.ask_broker(address, Command.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))

    async def members(self, group: str, cluster: str | None = None) -> tuple[GroupConnection, ...]:
        """Return who consumes in a group now; nobody is no error.

        One client id at two addresses is a mistake: both take the same queues and leave others to nobody.
        """
        found: set[GroupConnection] = set()
        for address in (await self._calls.masters(cluster)).values():
            found |= await self._members_at(address, group)
        return tuple(sorted(found))

    async def _members_at(self, address: str, group: str) -> set[GroupConnection]:
        header = ConsumerGroupHeader(consumer_group=group)
        command = Command.request(RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        expected = (*_NOBODY_CODES, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        answer = await self._calls.ask_broker(address, command, expected)
        if answer.code == ResponseCode.SUCCESS:
            connections = decode_answer(ConsumerConnections, answer.body).connection_set
            return {
                GroupConnection(each.client_id, each.client_addr, each.language, each.version) for each in connections
            }
        if answer.code in _NOBODY_CODES:
            return set()
        return {GroupConnection(client_id) for client_id in await self._ids_at(address, header)}

    async def _ids_at(self, address: str, header: ConsumerGroupHeader) -> list[str]:
        command = Command.request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        answer = await self._calls.ask_broker(address, command, _NOBODY_CODES)
        return decode_answer(ConsumerList, answer.body).consumer_id_list if answer.code == ResponseCode.SUCCESS else []

    async def _group_table(self, address: str) -> SubscriptionGroupTable:
        answer = await self._calls.ask_broker(address, Command.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        return decode_answer(SubscriptionGroupTable, answer.body)

    # offsets

    async def progress(self, group: str, topic: str) -> GroupProgress:
        """Return how far a group is in a topic, queue by queue.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return GroupProgress(
            tuple([await self._progress_in(group, queue) for queue in await self._calls.queues(topic)])
        )

    async def offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return for each queue of a topic the first offset that it still has, and the next one that it will have."""
        queues = await self._calls.queues(topic)
        return {queue: (await self._first(queue), await self._end(queue)) for queue in queues}

    async def offsets_at(self, topic: str, at_ms: int) -> dict[MessageQueue, int]:
        """Return for each queue of a topic the offset of the first message stored at an instant or later."""
        return {queue: await self._brokers.offset_at(queue, at_ms) for queue in await self._calls.queues(topic)}

    async def reset_to_begin(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group get all messages that a topic still has; return the new offsets."""
        return await self._reset(_Reset(group, topic, 0, self._first))

    async def reset_to_end(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group leave out all that is there now; return the new offsets."""
        return await self._reset(_Reset(group, topic, AT_END_MS, self._end))

    async def reset_to_time(self, group: str, topic: str, at_ms: int) -> dict[MessageQueue, int]:
        """Have a group get the messages stored at an instant or later; return the new offsets.

        Raises:
            ValueError: the instant is negative.
            ClientStateError: a broker cannot do it while members are online.
        """
        check_queue_offset(at_ms)

        async def find(queue: MessageQueue) -> int:
            return await self._brokers.offset_at(queue, at_ms)

        return await self._reset(_Reset(group, topic, at_ms, find))

    async def reset(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Have a group begin at these offsets; nobody may consume in it.

        Raises:
            ValueError: an offset is negative.
            ClientStateError: members are online.
        """
        for queue_offset in offsets.values():
            check_queue_offset(queue_offset)
        for topic in {queue.topic for queue in offsets}:
            await self._calls.route(topic)
        await self._check_idle(group)
        for queue, queue_offset in offsets.items():
            await self._brokers.store_offset(group, queue, queue_offset)

    async def copy_offsets(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """Have one group begin where another one is; return the offsets. Nobody may consume in the first.

        Raises:
            ClientStateError: members of the target are online.
        """
        progress = await self.progress(source, topic)
        found = {each.queue: each.committed for each in progress.queues if each.committed is not None}
        await self.reset(target, found)
        return found

    async def _progress_in(self, group: str, queue: MessageQueue) -> QueueProgress:
        return QueueProgress(
            queue, await self._committed(group, queue), await self._first(queue), await self._end(queue)
        )

    async def _committed(self, group: str, queue: MessageQueue) -> int | None:
        header = ConsumerOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            broker_name=queue.broker_name,
            set_zero_if_not_found=False,  # else a broker answers 0 for a new group of a young topic
        )
        command = Command.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        answer = await self._calls.ask_broker(
            self._session.master_of(queue.broker_name), command, [ResponseCode.QUERY_NOT_FOUND]
        )
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return decode_header(OffsetReply, answer).queue_offset

    async def _reset(self, reset: _Reset) -> dict[MessageQueue, int]:
        found: dict[MessageQueue, int] = {}
        for broker_name, address in (await self._calls.masters_of_topic(reset.topic)).items():
            header = ResetOffsetHeader(topic=reset.topic, group=reset.group, at_ms=reset.at_ms)
            command = Command.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
            answer = await self._calls.ask_broker(address, command, _BY_HAND_CODES)
            if answer.code == ResponseCode.SUCCESS:
                table = decode_answer(ResetOffsets, answer.body).offset_table
                found |= {queue._replace(topic=reset.topic): queue_offset for queue, queue_offset in table.items()}
            else:
                found |= await self._reset_by_hand(reset, broker_name)
        return dict(sorted(found.items()))

    async def _reset_by_hand(self, reset: _Reset, broker_name: str) -> dict[MessageQueue, int]:
        await self._check_idle(reset.group)
        queues = [queue for queue in await self._calls.queues(reset.topic) if queue.broker_name == broker_name]
        found = {queue: await reset.find_offset(queue) for queue in queues}
        for queue, queue_offset in found.items():
            await self._brokers.store_offset(reset.group, queue, queue_offset)
        return found

    async def _check_idle(self, group: str) -> None:
        members = await self.members(group)
        if members:
            raise ClientStateError(
                f"group {group} has {len(members)} members online, which would store their offsets over the new ones"
            )

    async def _first(self, queue: MessageQueue) -> int:
        return await self._brokers.first_offset(queue)

    async def _end(self, queue: MessageQueue) -> int:
        return await self._brokers.end_offset(queue)

    # stored messages

    async def message(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """Return a message by its unique key or its offset id, or None when it is not there.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return await self._messages.find_by_id(topic, message_id)

    async def messages_by_key(
        self, topic: str, key: str, *, max_messages: int = 64, begin_ms: int = 0, end_ms: int = MAX_MS
    ) -> list[ReceivedMessage]:
        """Return messages with a key that were stored from an instant on and before another, in order of time.

        Raises:
            ValueError: ``max_messages`` is below 1.
            RouteNotFoundError: there is no such topic.
        """
        if max_messages < 1:
            raise ValueError(f"max_messages is {max_messages}, must be at least 1")
        return await self._messages.find_by_key(topic, key, max_messages, TimeSpan(begin_ms, end_ms))

    def messages(
        self, topic: str, *, begin_ms: int = 0, end_ms: int = MAX_MS, expression: str | Sql = ALL
    ) -> AsyncIterator[ReceivedMessage]:
        """Iterate over the messages stored from an instant on and before another; what comes meanwhile is left out.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return self._messages.read(topic, TimeSpan(begin_ms, end_ms), expression)

    # members and messages

    async def producers(self, group: str, cluster: str | None = None) -> tuple[GroupConnection, ...]:
        """Return who is connected for a group of producers; nobody is no error."""
        return await self._inspection.producers(group, cluster)

    async def running_info(self, group: str, client_id: str, *, with_stacks: bool = False) -> MemberInfo:
        """Return what a member of a consumer group says of itself: settings, subscriptions, queues, stacks if wanted.

        Raises:
            ResponseError: the member is not online (1), or does not answer in ten seconds (207).
        """
        return await self._inspection.running_info(group, client_id, with_stacks=with_stacks)

    async def consume_now(self, group: str, client_id: str, message: ReceivedMessage) -> DirectConsumption:
        """Have a listener of a member consume a stored message out of turn; offsets stay where they are.

        Raises:
            ResponseError: the member is not online (1), or has not finished in ten seconds (207).
        """
        return await self._inspection.consume_now(group, client_id, message)

    async def tracks(self, message: ReceivedMessage) -> dict[str, Track]:
        """Return what each group that subscribes to its topic, or has offsets of it, has done with a message."""
        groups = await self._inspection.groups_of(message.topic)
        committed = {group: await self._committed(group, message.queue) for group in groups}
        return {group: await self._inspection.track(group, message, at) for group, at in committed.items()}

    async def resend(self, message: ReceivedMessage) -> SendResult:
        """Send a stored message once more, as a new one: a dead letter goes to the topic that it came from.

        Raises:
            SendFailedError: no broker took it.
        """
        return await self._inspection.resend(message)

    # brokers

    async def brokers(self, cluster: str | None = None) -> tuple[BrokerNode, ...]:
        """Return the brokers of all clusters, or of one, by cluster and name.

        Raises:
            ValueError: there is no such cluster.
        """
        return await self._calls.brokers(cluster)

    async def figures(self, broker: str) -> dict[str, str]:
        """Return what the master of a broker tells of itself, such as ``putTps`` and ``commitLogDiskRatio``.

        Raises:
            ValueError: there is no such broker.
        """
        masters = await self._calls.masters(None, [broker])
        answer = await self._calls.ask_broker(masters[broker], Command.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return decode_answer(KVTable, answer.body).table

    async def delete_expired_files(self, broker: str) -> None:
        """Have a broker delete log files that are older than it is told to keep them, without waiting for its hour.

        Raises:
            ValueError: there is no such broker.
        """
        masters = await self._calls.masters(None, [broker])
        await self._calls.ask_broker(masters[broker], Command.request(RequestCode.DELETE_EXPIRED_COMMITLOG))


def _header(name: str, settings: TopicSettings) -> CreateTopicHeader:
    return CreateTopicHeader(
        topic=name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=settings.read_queues,
        write_queue_nums=settings.write_queues,
        perm=settings.permission,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        attributes=",".join(f"+{key}={value}" for key, value in sorted(settings.attributes.items())) or None,
    )
