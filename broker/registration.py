"""Keeps all name servers informed of this broker (spec behaviour.md A.9).

Rules
    1. Each name server is told everything at the start, every 30 s, and again after a failure with growing pauses;
       and at once when it has closed the connection, which is how it ends a registration that it holds for over.
       They are independent of each other.
    2. New and changed topics are saved, and told to all name servers at once. Whoever waits for that is answered after
       a second at the latest, whatever the disk, its thread and the name servers do; what is not done then goes on.
       Who comes for the same topic meanwhile waits for the rest of that second, and later not at all.
    3. A few topics are told one by one (``enableSingleTopicRegister``): a registration that names them alone would
       remove all others where deleteTopicWithBrokerRegistration is set. A name server that does not know the broker is
       told everything, and so is one that does not take single topics or is to hear of many.
    4. The version that goes with a registration is that of the last change, so that no other registration hides it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..common.clock import Clock
from ..common.errors import RemotingError, RocketletError
from ..remoting.bodies_register import TopicConfig, TopicConfigTable
from ..remoting.command import Command
from ..remoting.later import Encoded, Later
from ..remoting.tasks import TaskScope, repeat, wait_at_most
from .config import BrokerConfig
from .nameservers import NameServerLink
from .topics import READ_WRITE, TopicTable

ANNOUNCE_LIMIT_MS = 1000
_MOST_SINGLE = 32
_LEAST_PAUSE_MS = 1000  # between registrations at a name server that closes each connection
_log = logging.getLogger(__name__)


Save = Callable[[], Coroutine[Any, Any, None]]


class Registration:
    """One broker's registrations; ``save`` brings changed topics to disk."""

    def __init__(self, config: BrokerConfig, topics: TopicTable, save: Save, tasks: TaskScope, clock: Clock) -> None:
        self._config = config
        self._topics = topics
        self._save = save
        self._tasks = tasks
        self._clock = clock
        self._links: list[NameServerLink] = []
        self._announced: dict[str, _Announced] = {}  # topics that are not on disk yet
        self.is_stopped = False

    def __repr__(self) -> str:
        return f"<Registration at {[link.address for link in self._links]}>"

    async def start(self, links: Sequence[NameServerLink]) -> None:
        """Begin to register; return when each name server was told or failed once, or after a second."""
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

    def announce(self, names: Sequence[str], later: Later, reply: Command | Encoded) -> None:
        """Save and register these topics, then pay the answer; at once when the broker stops, which saves all."""
        if self.is_stopped:
            later.answer(reply)
            return
        self._begin([name for name in names if not self._is_announced(name)])
        under_way = {one.telling for name in names if not (one := self._announced[name]).telling.done()}
        if under_way:
            self._tasks.start(_pay_behind(under_way, later, reply), "pay for topics")
        else:
            later.answer(reply)

    async def tell_all(self, link: NameServerLink) -> int:
        """Register everything at one name server; return the pause until the next time.

        Raises:
            RemotingError: the name server did not answer, or refused.
        """
        outcome = await link.register(self._table(self._topics))
        if not outcome.is_accepted:
            raise RemotingError(f"name server {link.address} refused the registration: {outcome.remark}")
        if outcome.ordered is not None:
            self._topics.set_ordered(outcome.ordered)
        return self._config.register_every_ms

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
        table = self._table(topic for topic in known.values() if topic is not None)
        saving = self._tasks.start(self._save(), "save topics")
        telling = [self._tasks.start(self._tell(link, table), f"tell {link.address}") for link in self._links]
        await self._wait_in_limit([saving, *telling])
        saving.add_done_callback(lambda saved: None if saved.cancelled() else self._forget(known))

    def _forget(self, known: Mapping[str, TopicConfig | None]) -> None:
        """Let nobody wait for topics any more that are on disk, unless they have changed since."""
        for name, topic in known.items():
            if self._is_announced(name) and self._topics.get(name) is topic:
                self._topics.unsaved.discard(name)
                del self._announced[name]

    async def _tell(self, link: NameServerLink, table: TopicConfigTable) -> None:
        names = list(table.topic_config_table)
        try:
            if not await self._tell_singly(link, table):
                await self.tell_all(link)
        except RocketletError as error:
            _log.warning("name server %s does not know %s yet: %s", link.address, names, error)

    async def _tell_singly(self, link: NameServerLink, table: TopicConfigTable) -> bool:
        """Tell of topics without the others; tell whether the name server has taken them."""
        topics = table.topic_config_table.values()
        if not link.is_registered or len(topics) > _MOST_SINGLE:
            return False
        if not self._config.announces_single_topics:
            return (await link.register(table)).is_accepted
        return all([await link.register_topic(topic) for topic in topics])

    async def _wait_in_limit(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if tasks:
            try:
                async with self._clock.timeout(ANNOUNCE_LIMIT_MS):
                    await asyncio.wait(tasks)
            except TimeoutError:
                late = ", ".join(task.get_name() for task in tasks if not task.done())
                _log.warning("still to be done after %d ms, going on meanwhile: %s", ANNOUNCE_LIMIT_MS, late)

    def _table(self, topics: Iterable[TopicConfig]) -> TopicConfigTable:
        permission = self._config.permission
        if permission & READ_WRITE != READ_WRITE:
            topics = [replace(topic, perm=topic.perm & permission) for topic in topics]
        table = {topic.topic_name: topic for topic in topics}
        return TopicConfigTable(data_version=self._topics.version, topic_config_table=table)


class _Announced(NamedTuple):
    """A topic that is being made known, and who tells it."""

    topic: TopicConfig | None
    telling: asyncio.Task[None]


async def _pay_behind(under_way: Collection[asyncio.Task[None]], later: Later, reply: Command | Encoded) -> None:
    await asyncio.wait(under_way)
    later.answer(reply)


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
