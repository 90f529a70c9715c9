"""A cluster as a name server told it at one moment, and what its masters say since (28, 201 to 203, 208, 300, 351).

Where a master was gone at that moment, a slave is asked, but not how the broker is doing (28).

Whoever shows many topics or groups asks a name server once, when the view is made, and then each master for each of
them, side by side; nothing of what brokers say is kept. A broker that does not have a topic adds nothing.
"""

from collections.abc import Mapping

from ...common.codes import ResponseCode
from ...common.errors import RouteNotFoundError
from ...common.message import MessageQueue
from ...remoting.bodies.admin import GroupList, TopicStats
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.route import MASTER_ID, KVTable
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import TopicHeader
from ..session.session import Session
from .admin_calls import AdminCalls, readers_of
from .admin_values import BrokerNode, ConsumedQueue, ConsumerGroup, QueueExtent, TopicSettings, TopicState, read_topic
from .changes import ConfigChanges
from .group_connections import GroupConnections
from .group_offsets import GroupOffsets


class ClusterView:
    """The brokers of a cluster; ``Admin.view`` makes it. It does not notice brokers that come later.

    All calls raise ``RemotingError`` when a master does not answer, ``ResponseError`` when it answers with an error.
    """

    def __init__(self, session: Session, calls: AdminCalls, brokers: tuple[BrokerNode, ...]) -> None:
        self.brokers = brokers
        self._masters = {node.name: node.addresses[MASTER_ID] for node in brokers if MASTER_ID in node.addresses}
        self._readers = readers_of({node.name: node.addresses for node in brokers})
        self._names = session.namespace
        self._calls = calls
        self._changes = ConfigChanges(calls)
        self._connections = GroupConnections(session, calls)
        self._offsets = GroupOffsets(session, calls, self._connections)

    def __repr__(self) -> str:
        return f"<ClusterView of {len(self._masters)} masters, {len(self._readers)} readable brokers>"

    async def figures(self, broker: str) -> Mapping[str, str]:
        """Return what the master of a broker tells of itself.

        Raises:
            RouteNotFoundError: there is none of that name.
        """
        if broker not in self._masters:
            raise RouteNotFoundError(f"there is no master of the broker {broker}")
        answer = await self._calls.ask_broker(
            self._masters[broker], Command.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        )
        return decode_answer(KVTable, answer.body).table

    async def groups(self) -> list[str]:
        """Return the names of all groups that masters know."""
        tables = await self._calls.ask_each(self._readers.values(), self._changes.group_table)
        return self._own({name for table in tables for name in table.subscription_group_table})

    async def topic_state(self, name: str) -> TopicState:
        """Return the ends of each queue of a topic, and how many messages a second it gets.

        Raises:
            RouteNotFoundError: no master has it.
        """
        answers = await self._ask_with_topic(RequestCode.GET_TOPIC_STATS_INFO, name)
        if not answers:
            raise RouteNotFoundError(f"no broker has the topic {name}")
        told = [decode_answer(TopicStats, answer.body) for answer in answers]
        found: dict[MessageQueue, QueueExtent] = {}
        for queue, each in (item for one in told for item in one.offset_table.items()):
            found[self._names.strip_queue(queue)] = QueueExtent(
                each.min_offset, each.max_offset, each.last_update_timestamp
            )
        return TopicState(dict(sorted(found.items())), sum(one.topic_put_tps for one in told))

    async def topic(self, name: str) -> dict[str, TopicSettings]:
        """Return the settings of a topic on each broker that has it."""
        configs = await self._calls.ask_each(
            self._readers.values(), lambda address: self._changes.topic_config(address, name)
        )
        return {
            broker: read_topic(config)
            for broker, config in zip(self._readers, configs, strict=True)
            if config is not None
        }

    async def groups_of(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or have offsets in it."""
        answers = await self._ask_with_topic(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic)
        return self._own({name for each in answers for name in decode_answer(GroupList, each.body).group_list})

    async def progress(self, group: str, topic: str | None = None) -> tuple[ConsumedQueue, ...]:
        """Return how far a group is in a topic, or in all queues it has offsets of; nothing if nobody knows it."""
        return await self._offsets.all_progress(group, self._readers.values(), topic)

    async def consumer_group(self, name: str) -> ConsumerGroup:
        """Return who consumes in a group now, how, and what each topic's expression is; nobody is no error."""
        return await self._connections.consumer_group(name, self._readers.values())

    async def _ask_with_topic(self, code: RequestCode, topic: str) -> list[Command]:
        """Return the answers of the masters that have a topic."""
        answers = await self._calls.ask_each(
            self._readers.values(),
            lambda address: self._calls.ask_broker(
                address, Command.request(code, TopicHeader(topic=topic)), [ResponseCode.TOPIC_NOT_EXIST]
            ),
        )
        return [answer for answer in answers if answer.code == ResponseCode.SUCCESS]

    def _own(self, names: set[str]) -> list[str]:
        """Return the names that are in the namespace, as the application knows them."""
        return sorted(self._names.strip(name) for name in names if self._names.holds(name))
