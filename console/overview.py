"""What the pages show of a cluster, with few requests and those side by side.

    page      name server     each master
    brokers   the brokers     its figures
    topics    and the topics  one request for each row shown
    topic     the brokers     its settings, the ends of its queues, its groups, and the progress of each in it
    groups    the brokers     its groups, and for each row shown one for its progress and one for its members
    group     the brokers     the same for one

Nothing is kept between pages. What a server does not answer is shown as missing, and the page with it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from ..client import (
    Admin,
    BrokerNode,
    ClusterView,
    ConsumedQueue,
    ConsumerGroup,
    MessageQueue,
    QueueExtent,
    RocketletError,
    TopicSettings,
    TopicState,
)
from ..common.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic, reply_topic

ROWS: Final = 20
MOST_AT_ONCE: Final = 32
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
    online: ConsumerGroup
    progress: Mapping[str, Sequence[ConsumedQueue]]

    @property
    def lag(self) -> int:
        """How many messages it has not committed."""
        return sum(queue.lag for queues in self.progress.values() for queue in queues)


def kind_of(topic: str, own: Container[str]) -> str:
    """Return which kind of topic a name belongs to, given those that are named after clusters and brokers."""
    if topic.startswith(DLQ_PREFIX):
        return "dead letters"
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    return "system" if topic in own or is_system_topic(topic) else "application"


def own_topics(nodes: Iterable[BrokerNode]) -> frozenset[str]:
    """Return the topics that clusters and brokers have by their names."""
    return frozenset(name for node in nodes for name in (node.cluster, node.name, reply_topic(node.cluster)))


class Overview:
    """Reads a cluster for the pages."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def brokers(self) -> list[BrokerRow]:
        """Return all brokers, slaves too; of these no figures are asked for."""
        view = await self._admin.view()
        rows = [
            BrokerRow(node, broker_id, address, {})
            for node in view.brokers
            for broker_id, address in sorted(node.addresses.items())
        ]

        async def read(row: BrokerRow) -> BrokerRow:
            return row if row.broker_id else row._replace(figures=await view.figures(row.node.name))

        return await self._for_all(rows, read, lambda row, problem: row._replace(problem=problem))

    async def topics(self, search: str, kind: str, number: int) -> Page[TopicRow]:
        """Return the topics of a kind whose names hold a text."""
        view = await self._admin.view()
        own = own_topics(view.brokers)
        names = [name for name in await self._admin.topics() if kind_of(name, own) == kind]

        async def read(name: str) -> TopicRow:
            return _topic_row(name, await view.topic_state(name))

        return await self._page(names, search, number, read, TopicRow)

    async def groups(self, search: str, number: int) -> Page[GroupRow]:
        """Return the groups whose names hold a text."""
        view = await self._admin.view()

        async def read(name: str) -> GroupRow:
            progress, online = await view.progress(name), await view.consumer_group(name)
            topics = {each.queue.topic for each in progress}
            lag = sum(each.lag for each in progress)
            return GroupRow(name, len(online.members), online.message_model, len(topics), lag)

        return await self._page(await view.groups(), search, number, read, GroupRow)

    async def topic(self, name: str) -> TopicView:
        """Return a topic.

        Raises:
            RouteNotFoundError: there is none.
        """
        view = await self._admin.view()
        state, settings = await view.topic_state(name), await view.topic(name)
        lags = await self._for_all(
            await view.groups_of(name),
            lambda group: _lag(view, group, name),
            lambda group, problem: GroupLag(group, 0, 0, problem),
        )
        return TopicView(
            name, kind_of(name, own_topics(view.brokers)), settings, state.queues, state.puts_per_second, lags
        )

    async def group(self, name: str) -> GroupView:
        """Return a group; one that nobody knows has no members and no progress."""
        view = await self._admin.view()
        progress, online = await view.progress(name), await view.consumer_group(name)
        by_topic: dict[str, list[ConsumedQueue]] = {}
        for queue in progress:
            by_topic.setdefault(queue.queue.topic, []).append(queue)
        return GroupView(name, online, by_topic)

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


def _topic_row(name: str, state: TopicState) -> TopicRow:
    extents = state.queues.values()
    return TopicRow(
        name,
        len({queue.broker_name for queue in state.queues}),
        len(extents),
        sum(extent.end_offset - extent.first_offset for extent in extents),
        state.puts_per_second,
        max((extent.last_at_ms for extent in extents), default=0),
    )


async def _lag(view: ClusterView, group: str, topic: str) -> GroupLag:
    queues = await view.progress(group, topic)
    return GroupLag(group, sum(each.lag for each in queues), sum(each.in_flight for each in queues))
