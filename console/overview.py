"""What the pages show of a cluster, asked for with as few requests as a page has rows.

    page      requests
    cluster   the list of brokers, and one for each
    topics    the list, and for each row shown one to each of its brokers
    topic     its settings, the ends of its queues, its groups, and the progress of each
    groups    the list, and for each row shown one for its progress and one for its members
    group     the same for one

Nothing is kept between pages. What a server does not answer is shown as missing, and the page with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ..client import (
    Admin,
    BrokerNode,
    ConsumedQueue,
    ConsumerGroup,
    GroupSettings,
    MessageQueue,
    QueueExtent,
    RocketletError,
    TopicSettings,
)
from ..common.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic, reply_topic

ROWS: Final = 50
MOST_AT_ONCE: Final = 16
KINDS: Final = ("application", "retry", "dead letters", "system")

Row = TypeVar("Row")
Found = TypeVar("Found")


class Page(NamedTuple, Generic[Row]):
    """Some of the rows that a search found; ``number`` counts from 1."""

    rows: Sequence[Row]
    number: int
    pages: int
    total: int


class TopicRow(NamedTuple):
    """A topic in the list; ``problem`` says why its figures are missing."""

    name: str
    brokers: int = 0
    queues: int = 0
    messages: int = 0
    per_second: float = 0.0
    last_at_ms: int = 0
    problem: str = ""


class GroupRow(NamedTuple):
    """A group in the list."""

    name: str
    members: int = 0
    model: str = ""
    topics: int = 0
    lag: int = 0
    problem: str = ""


class BrokerRow(NamedTuple):
    """A broker of a cluster."""

    node: BrokerNode
    broker_id: int
    address: str
    figures: Mapping[str, str]
    problem: str = ""


class GroupLag(NamedTuple):
    """How far a group is in one topic."""

    name: str
    lag: int
    in_flight: int
    problem: str = ""


class TopicView(NamedTuple):
    """One topic."""

    name: str
    kind: str
    settings: Mapping[str, TopicSettings]
    queues: Mapping[MessageQueue, QueueExtent]
    per_second: float
    groups: Sequence[GroupLag]

    @property
    def messages(self) -> int:
        """How many messages its queues hold."""
        return sum(extent.end_offset - extent.first_offset for extent in self.queues.values())


class GroupView(NamedTuple):
    """One group: who is online, and how far it is, by topic."""

    name: str
    settings: Mapping[str, GroupSettings]
    online: ConsumerGroup
    progress: Mapping[str, Sequence[ConsumedQueue]]

    @property
    def lag(self) -> int:
        """How many messages it has not committed."""
        return sum(queue.lag for queues in self.progress.values() for queue in queues)


def kind_of(topic: str, nodes: Sequence[BrokerNode]) -> str:
    """Return which kind of topic a name belongs to; clusters and brokers have topics of their names."""
    if topic.startswith(DLQ_PREFIX):
        return "dead letters"
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    own = {name for node in nodes for name in (node.cluster, node.name, reply_topic(node.cluster))}
    return "system" if topic in own or is_system_topic(topic) else "application"


class Overview:
    """Reads a cluster for the pages."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def brokers(self) -> list[BrokerRow]:
        """Return all brokers, slaves too; of these no figures are asked for."""
        nodes = await self._admin.brokers()
        rows = [
            BrokerRow(node, broker_id, address, {})
            for node in nodes
            for broker_id, address in sorted(node.addresses.items())
        ]
        return await self._for_all(rows, self._broker, lambda row, problem: row._replace(problem=problem))

    async def topics(self, search: str, kind: str, number: int) -> Page[TopicRow]:
        """Return the topics of a kind whose names hold a text."""
        nodes = await self._admin.brokers()
        names = [name for name in await self._admin.topics() if kind_of(name, nodes) == kind]
        return await self._page(names, search, number, self._topic_row, TopicRow)

    async def groups(self, search: str, number: int) -> Page[GroupRow]:
        """Return the groups whose names hold a text."""
        return await self._page(await self._admin.groups(), search, number, self._group_row, GroupRow)

    async def topic(self, name: str) -> TopicView:
        """Return a topic.

        Raises:
            RouteNotFoundError: there is none.
        """
        state = await self._admin.topic_state(name)
        lags = await self._for_all(
            await self._admin.groups_of(name),
            lambda group: self._lag(group, name),
            lambda group, problem: GroupLag(group, 0, 0, problem),
        )
        settings, kind = await self._admin.topic(name), kind_of(name, await self._admin.brokers())
        return TopicView(name, kind, settings, state.queues, state.puts_per_second, lags)

    async def group(self, name: str) -> GroupView:
        """Return a group; one that nobody knows has no settings, no members and no progress."""
        by_topic: dict[str, list[ConsumedQueue]] = {}
        for queue in await self._admin.all_progress(name):
            by_topic.setdefault(queue.queue.topic, []).append(queue)
        online = await self._admin.consumer_group(name)
        return GroupView(name, await self._admin.group(name), online, by_topic)

    async def _broker(self, row: BrokerRow) -> BrokerRow:
        return row if row.broker_id else row._replace(figures=await self._admin.figures(row.node.name))

    async def _topic_row(self, name: str) -> TopicRow:
        state = await self._admin.topic_state(name)
        extents = state.queues.values()
        return TopicRow(
            name,
            len({queue.broker_name for queue in state.queues}),
            len(extents),
            sum(extent.end_offset - extent.first_offset for extent in extents),
            state.puts_per_second,
            max((extent.last_at_ms for extent in extents), default=0),
        )

    async def _group_row(self, name: str) -> GroupRow:
        progress = await self._admin.all_progress(name)
        online = await self._admin.consumer_group(name)
        topics = {each.queue.topic for each in progress}
        lag = sum(each.lag for each in progress)
        return GroupRow(name, len(online.members), online.message_model, len(topics), lag)

    async def _lag(self, group: str, topic: str) -> GroupLag:
        queues = [each for each in await self._admin.all_progress(group) if each.queue.topic == topic]
        return GroupLag(group, sum(each.lag for each in queues), sum(each.in_flight for each in queues))

    async def _page(
        self,
        names: Iterable[str],
        search: str,
        number: int,
        read: Callable[[str], Awaitable[Row]],
        fail: Callable[..., Row],
    ) -> Page[Row]:
        found = [name for name in names if search.lower() in name.lower()]
        pages = max(1, -(-len(found) // ROWS))
        number = min(max(number, 1), pages)
        shown = found[(number - 1) * ROWS : number * ROWS]
        rows = await self._for_all(shown, read, lambda name, problem: fail(name, problem=problem))
        return Page(rows, number, pages, len(found))

    async def _for_all(
        self, names: Sequence[Found], read: Callable[[Found], Awaitable[Row]], fail: Callable[[Found, str], Row]
    ) -> list[Row]:
        """Read several things side by side; what a server refuses or does not answer becomes a row that says so."""

        async def read_one(name: Found) -> Row:
            async with self._turns:
                try:
                    return await read(name)
                except RocketletError as error:
                    return fail(name, str(error))

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(read_one(name)) for name in names]
        return [task.result() for task in tasks]
