"""The administrator's client: topics, groups, offsets, messages, brokers (Java's ``DefaultMQAdminExt``).

    part                  requests
    topics                351, 206, 224 and ``topics.py``
    groups, members       200, 201, 207 and ``group_connections.py``
    offsets, progress     ``group_offsets.py``
    messages              ``stored_messages.py``, ``topic_tail.py``
    members, tracks       204, 328, 307, 309 (``member_inspection.py``); ``replays.py``
    brokers, settings     106, 28, 322 and ``changes.py``
    users, their rights   ``access.py``

Changes are made on the master of one broker after the other; when one fails, those before it are changed. Nothing is
cached, and with one cluster it need not be named.

A new topic can be used when ``create_topic`` returns: the name servers know it. A group is made by its first consumer
unless brokers are told not to (``autoCreateSubscriptionGroup``).

    progress        what is committed, and where each queue begins and ends, at the moment of asking
    reset_to_…      the brokers move the group (222), also while it consumes: it gets the messages from there on
    reset           every queue to an offset of its own, on brokers before 5.3 while the group has no members

A group that a broker does not know is an error (26): make it first. In a namespace, names are those of the application:
topics, groups and messages of other namespaces are not listed.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from typing import Self

from ...common.clock import Clock
from ...common.errors import ConfigError
from ...common.message import MessageQueue, ReceivedMessage
from ...common.names import client_group_remark
from ...common.subscriptions.subscription import ALL
from ...remoting.bodies.body import decode_answer, encode_body
from ...remoting.bodies.route import MASTER_ID, KVTable, TopicList
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import DeleteGroupHeader
from ...remoting.headers.namesrv import BrokerNameHeader, ClusterHeader
from ..group.subscriptions import Sql
from ..session.lifecycle import Lifecycle
from ..session.results import SendResult
from ..session.session import Session, borrow_session
from ..session.settings import ClientSettings, check_queue_offset, check_topic, choose_settings
from .access import UserAccess
from .admin_calls import ADMIN_TIMEOUT_MS, AdminCalls
from .admin_values import (
    BrokerNode,
    ConsumedQueue,
    ConsumerGroup,
    GroupConnection,
    GroupProgress,
    GroupSettings,
    QueueExtent,
    ReplicaState,
    TopicSettings,
    TopicState,
    read_group,
    read_topic,
    write_group,
)
from .changes import ConfigChanges, GroupChange, TopicChange
from .cluster_view import ClusterView
from .group_connections import GroupConnections
from .group_offsets import AT_END_MS, GroupOffsets, Reset
from .member_inspection import DirectConsumption, MemberInfo, MemberInspection, Track
from .replays import Replays
from .replicas import ask_replicas
from .stored_messages import MAX_MS, READER_GROUP, StoredMessages, TimeSpan
from .topic_tail import Position, TailPlan, TopicTail
from .topics import Topics

FROM_NOW = Position.end()


class Admin:
    """Asks and changes the servers; use it with ``async with``, from one event loop.

        async with Admin("127.0.0.1:9876") as admin:
            await admin.create_topic("orders", TopicSettings(read_queues=16, write_queues=16))
            print((await admin.progress("billing", "orders")).lag)

    Without ``nameserver`` the environment variable NAMESRV_ADDR names it; with an open ``session`` it is shared. All
    calls raise ``RemotingError`` when a server does not answer, and ``ResponseError`` when it answers with an error:
    code 3 says that it does not know such a request. A server has ``timeout_ms`` for each answer.
    """

    def __init__(
        self,
        nameserver: str | None = None,
        *,
        settings: ClientSettings | None = None,
        session: Session | None = None,
        clock: Clock | None = None,
        timeout_ms: int = ADMIN_TIMEOUT_MS,
    ) -> None:
        session, self._entered = borrow_session(session, nameserver, choose_settings(settings, ClientSettings), clock)
        self._session = session
        self._lifecycle = Lifecycle("admin")
        self._names = session.namespace
        self._names.leave_out(READER_GROUP)
        self._calls = AdminCalls(session, self._lifecycle, timeout_ms)
        self._changes = ConfigChanges(self._calls)
        self._topics = Topics(session, self._calls)
        self._connections = GroupConnections(session, self._calls)
        self._offsets = GroupOffsets(session, self._calls, self._connections)
        self._messages = StoredMessages(session, self._calls)
        self._inspection = MemberInspection(session, self._calls)
        self._replays = Replays(session)

    def __repr__(self) -> str:
        return f"<Admin {self._lifecycle.stage.name.lower()}, {self._session!r}>"

    async def __aenter__(self) -> Self:
        """Start; connections are made when they are needed.

        Raises:
            ClientStateError: it has been started before.
        """
        async with self._lifecycle.starting() as stack:
            for part in (self._entered, self._replays):
                await stack.enter_async_context(part)
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
        return self._own(decode_answer(TopicList, answer.body).topic_list)

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
            config = await self._changes.topic_config(address, name)
            if config is not None:
                found[broker_name] = read_topic(config)
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
        await self._topics.create(name, settings, await self._calls.masters(cluster, brokers))

    async def change_topic(self, name: str, change: TopicChange) -> dict[str, TopicSettings]:
        """Change some settings of a topic on each broker that has it; return how they are now.

        Raises:
            RouteNotFoundError: there is no such topic.
            ConfigError: a number is out of its range.
            ResponseError: a broker refused it.
        """
        masters = await self._calls.masters_of_topic(name)
        return {broker: await self._changes.change_topic(address, name, change) for broker, address in masters.items()}

    async def extents(self, topic: str) -> Mapping[MessageQueue, QueueExtent]:
        """Return the ends of each queue of a topic, as brokers tell them with one answer.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return (await self.topic_state(topic)).queues

    async def topic_state(self, name: str) -> TopicState:
        """Return the ends of each queue of a topic, and how many messages a second it gets.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return await (await self._view_of(name)).topic_state(name)

    async def groups_of(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or have offsets in it.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return await (await self._view_of(topic)).groups_of(topic)

    async def _view_of(self, topic: str) -> ClusterView:
        """Return the brokers that a topic is routed to."""
        route = await self._calls.route(topic)
        nodes = [BrokerNode("", name, addresses) for name, addresses in route.brokers.items()]
        return ClusterView(self._session, self._calls, tuple(nodes))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic on its brokers and on every name server; what is in the log stays until it expires.

        Raises:
            RouteNotFoundError: there is no such topic.
            ResponseError: a server refused it.
        """
        await self._topics.delete(name)

    async def forbid_writes(self, broker: str) -> None:
        """Have no more messages sent to a broker: all its topics lose their write permission at the name servers."""
        await self._calls.ask_nameservers(RequestCode.WIPE_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name=broker))

    async def allow_writes(self, broker: str) -> None:
        """Undo ``forbid_writes``."""
        await self._calls.ask_nameservers(RequestCode.ADD_WRITE_PERM_OF_BROKER, BrokerNameHeader(broker_name=broker))

    # groups

    async def groups(self, cluster: str | None = None) -> list[str]:
        """Return the names of all groups that brokers of the cluster know."""
        names: set[str] = set()
        for address in (await self._calls.masters(cluster)).values():
            names |= (await self._changes.group_table(address)).subscription_group_table.keys()
        return self._own(names)

    async def group(self, name: str, cluster: str | None = None) -> dict[str, GroupSettings]:
        """Return the settings of a group on each broker that has it; none where nobody has consumed yet."""
        found: dict[str, GroupSettings] = {}
        for broker_name, address in (await self._calls.masters(cluster)).items():
            config = (await self._changes.group_table(address)).subscription_group_table.get(self._names.wrap(name))
            if config is not None:
                found[broker_name] = read_group(config)
        return found

    async def change_group(
        self, name: str, change: GroupChange, *, cluster: str | None = None
    ) -> dict[str, GroupSettings]:
        """Change some settings of a group on each broker that has it; return how they are now, nothing if none has it.

        Raises:
            ConfigError: a number is out of its range.
            ResponseError: a broker refused it.
        """
        found: dict[str, GroupSettings] = {}
        for broker_name, address in (await self._calls.masters(cluster)).items():
            config = (await self._changes.group_table(address)).subscription_group_table.get(self._names.wrap(name))
            if config is not None:
                found[broker_name] = await self._changes.change_group(address, config, change)
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
        body = encode_body(write_group(self._names.wrap(name), choose_settings(settings, GroupSettings)))
        for address in (await self._calls.masters(cluster)).values():
            await self._calls.ask_broker(
                address, Command.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
            )

    async def delete_group(self, name: str, *, with_offsets: bool = False, cluster: str | None = None) -> None:
        """Delete a group on the masters of a cluster; its retry and dead letter topics stay.

        Raises:
            ResponseError: a broker refused it.
        """
        header = DeleteGroupHeader(
            group_name=self._names.wrap(name), clean_offset=with_offsets, remove_offset=with_offsets
        )
        for address in (await self._calls.masters(cluster)).values():
            await self._calls.ask_broker(address, Command.request(RequestCode.DELETE_SUBSCRIPTIONGROUP, header))

    async def members(self, group: str, cluster: str | None = None) -> tuple[GroupConnection, ...]:
        """Return who consumes in a group now; nobody is no error.

        One client id at two addresses is a mistake: both take the same queues and leave others to nobody.
        """
        return await self._connections.members(group, cluster)

    async def consumer_group(self, name: str, cluster: str | None = None) -> ConsumerGroup:
        """Return who consumes in a group now, how, and what each topic's expression is; nobody is no error."""
        return await self._connections.consumer_group(name, (await self._calls.masters(cluster)).values())

    # offsets

    async def progress(self, group: str, topic: str) -> GroupProgress:
        """Return how far a group is in a topic, queue by queue.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return await self._offsets.progress(group, topic)

    async def all_progress(self, group: str, cluster: str | None = None) -> tuple[ConsumedQueue, ...]:
        """Return how far a group is in all queues it has offsets of, retry topics too; nothing if nobody knows it."""
        return await self._offsets.all_progress(group, (await self._calls.masters(cluster)).values())

    async def offsets(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return for each queue of a topic the first offset that it still has, and the next one that it will have."""
        queues = await self._calls.queues(topic)
        return {queue: (await self._offsets.first(queue), await self._offsets.end(queue)) for queue in queues}

    async def offsets_at(self, topic: str, at_ms: int) -> dict[MessageQueue, int]:
        """Return for each queue of a topic the offset of the first message stored at an instant or later."""
        return {queue: await self._offsets.at(queue, at_ms) for queue in await self._calls.queues(topic)}

    async def reset_to_begin(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group get all messages that a topic still has; return the new offsets."""
        return await self._offsets.move(Reset(group, topic, 0, self._offsets.first))

    async def reset_to_end(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group leave out all that is there now; return the new offsets."""
        return await self._offsets.move(Reset(group, topic, AT_END_MS, self._offsets.end))

    async def reset_to_time(self, group: str, topic: str, at_ms: int) -> dict[MessageQueue, int]:
        """Have a group get the messages stored at an instant or later; return the new offsets.

        Raises:
            ValueError: the instant is negative.
            ClientStateError: a broker cannot do it while members are online.
        """
        check_queue_offset(at_ms)

        async def find(queue: MessageQueue) -> int:
            return await self._offsets.at(queue, at_ms)

        return await self._offsets.move(Reset(group, topic, at_ms, find))

    async def reset(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Have a group begin at these offsets; one that is online where brokers move it (``useServerSideResetOffset``).

        Raises:
            ValueError: an offset is negative.
            ClientStateError: members are online, and a broker leaves it to them to move.
        """
        await self._offsets.set(group, offsets)

    async def copy_offsets(self, source: str, target: str, topic: str) -> dict[MessageQueue, int]:
        """Have one group begin where another one is; return the offsets. Nobody may consume in the first.

        Raises:
            ClientStateError: members of the target are online, and a broker leaves it to them to move.
        """
        progress = await self.progress(source, topic)
        found = {each.queue: each.committed for each in progress.queues if each.committed is not None}
        await self.reset(target, found)
        return found

    # stored messages

    async def message(self, topic: str, message_id: str) -> ReceivedMessage | None:
        """Return a message by its unique key or its offset id, or None when it is not there.

        Raises:
            RouteNotFoundError: there is no such topic.
        """
        return await self._messages.find_by_id(topic, message_id)

    async def message_at(self, queue: MessageQueue, queue_offset: int) -> ReceivedMessage | None:
        """Return the message at an offset of a queue, or None when it is not there.

        Raises:
            ValueError: the offset is negative.
            RouteNotFoundError: there is no such topic.
        """
        return await self._messages.find_at(queue, queue_offset)

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

    async def newest(
        self, topic: str, count: int, *, begin_ms: int = 0, end_ms: int = MAX_MS, expression: str | Sql = ALL
    ) -> list[ReceivedMessage]:
        """Return the newest messages of a span of time, the newest first.

        Of each queue no more than ``stored_messages.MOST_LOOKED_AT`` messages are looked at, however few match.

        Raises:
            ValueError: ``count`` is below 1.
            RouteNotFoundError: there is no such topic.
        """
        if count < 1:
            raise ValueError(f"count is {count}, must be at least 1")
        return await self._messages.find_newest(topic, TimeSpan(begin_ms, end_ms), expression, count)

    def follow(
        self,
        topic: str,
        *,
        start: Position | Mapping[MessageQueue, int] = FROM_NOW,
        until: Position | None = None,
        expression: str | Sql = ALL,
        queues: Collection[MessageQueue] | None = None,
    ) -> TopicTail:
        """Follow a topic from a place on, until another or without end; ``async with`` begins it, ``async for`` reads.

        A mapping as ``start`` has an offset for each queue; those that it does not name are read from their beginning.

        Raises:
            ValueError: it shall end at the beginning.
        """
        plan = TailPlan(topic=topic, start=start, until=until, expression=expression, queues=queues)
        return TopicTail(self._session, self._calls, plan)

    # members and messages

    async def producers(self, group: str, cluster: str | None = None) -> tuple[GroupConnection, ...]:
        """Return who is connected for a group of producers; nobody is no error."""
        return await self._inspection.producers(group, cluster)

    async def all_producers(self, cluster: str | None = None) -> dict[str, tuple[GroupConnection, ...]]:
        """Return who is connected as a producer, by group; brokers before 4.9.4 do not tell."""
        told = await self._inspection.all_producers(cluster)
        return {name: told[self._names.wrap(name)] for name in self._own(told)}

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
        groups = await self.groups_of(message.topic)
        committed = {group: await self._offsets.committed(group, message.queue) for group in groups}
        return {group: await self._inspection.track(group, message, at) for group, at in committed.items()}

    async def resend(
        self, message: ReceivedMessage, *, group: str | None = None, topic: str | None = None
    ) -> SendResult:
        """Send a stored message once more, as a new one: to a group alone, to a topic, or to that it came from."""
        return await self._replays.send(message, group, topic)

    # brokers

    async def brokers(self, cluster: str | None = None) -> tuple[BrokerNode, ...]:
        """Return the brokers of all clusters, or of one, by cluster and name.

        Raises:
            ValueError: there is no such cluster.
        """
        return await self._calls.brokers(cluster)

    async def view(self, cluster: str | None = None) -> ClusterView:
        """Return what asks the brokers of all clusters, or of one, without asking a name server again.

        Raises:
            ValueError: there is no such cluster.
        """
        return ClusterView(self._session, self._calls, await self._calls.brokers(cluster))

    async def figures(self, broker: str, broker_id: int = MASTER_ID) -> dict[str, str]:
        """Return what a broker tells of itself, such as ``putTps`` and ``commitLogDiskRatio``; the master unless told.

        Raises:
            ValueError: there is no such broker.
        """
        address = await self._calls.address_of(broker, broker_id)
        answer = await self._calls.ask_broker(address, Command.request(RequestCode.GET_BROKER_RUNTIME_INFO))
        return decode_answer(KVTable, answer.body).table

    async def replicas(self, broker: str) -> tuple[ReplicaState, ...]:
        """Return master and slaves of a broker, by their ids, and how far the copies of the log have come.

        Raises:
            ValueError: there is no such broker.
        """
        return await ask_replicas(self._calls, await self._calls.node(broker))

    async def delete_expired_files(self, broker: str) -> None:
        """Have a broker delete log files that are older than it is told to keep them, without waiting for its hour.

        Raises:
            ValueError: there is no such broker.
        """
        masters = await self._calls.masters(None, [broker])
        await self._calls.ask_broker(masters[broker], Command.request(RequestCode.DELETE_EXPIRED_COMMITLOG))

    # settings of servers

    async def broker_settings(self, broker: str) -> dict[str, str]:
        """Return what the master of a broker is set to, by Java's keys.

        Raises:
            ValueError: there is no such broker.
        """
        masters = await self._calls.masters(None, [broker])
        return await self._changes.broker_settings(masters[broker])

    async def change_broker_settings(self, broker: str, changes: Mapping[str, str]) -> None:
        """Change settings of the running master of a broker, all of them or none.

        Raises:
            ValueError: there is no such broker.
            ResponseError: it refused one of them.
        """
        masters = await self._calls.masters(None, [broker])
        await self._changes.change_broker(masters[broker], changes)

    async def nameserver_settings(self) -> dict[str, dict[str, str]]:
        """Return what each name server is set to, by address."""
        return await self._changes.nameserver_settings()

    async def change_nameserver_settings(self, changes: Mapping[str, str]) -> None:
        """Change settings of all running name servers, one after the other.

        Raises:
            ResponseError: one of them refused it.
        """
        await self._changes.change_nameservers(changes)

    def access(self, *, cluster: str | None = None, brokers: Collection[str] | None = None) -> UserAccess:
        """Return what asks and changes users and their rights on all brokers, those of a cluster, or those named."""
        return UserAccess(self._calls, cluster, brokers)

    def _own(self, names: Iterable[str]) -> list[str]:
        """Return the names that are in the namespace, as the application knows them."""
        return sorted({self._names.strip(name) for name in names if self._names.holds(name)})
