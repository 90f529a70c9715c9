"""Keeps all name servers informed of this broker (spec behaviour.md A.9).

Rules
    1. Each name server is told everything at the start, every 30 s, and again after a failure with growing pauses;
       and at once when it has closed the connection, which is how it ends a registration that it holds for over.
       They are independent of each other.
    2. New and changed topics are saved, and told to all name servers at once. Whoever waits for that is answered after
       a second at the latest, whatever the disk, its thread and the name servers do; what is not done then goes on.
       Who comes for the same topic meanwhile waits for the rest of that second, and later not at all.
    3. A few topics are told one by one (217): a registration of them alone takes back the others where
       ``deleteTopicWithBrokerRegistration`` is set. A name server that does not know the broker, or is to hear of many,
       is told everything; one of RocketMQ 4, which does not know that request, by a registration of them alone.
    4. The version that goes with a topic is that of its change, so that no other registration hides it.
    5. More than ``MAX_TOPICS`` topics go in parts, one after the other, each with a version of its own: a name server
       takes no frame above 16 MiB. ``enableSplitRegistration`` makes the parts smaller (``splitRegistrationSize``).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from ..common.clock import Clock
from ..common.errors import RemotingError, RocketletError
from ..remoting.bodies_register import DataVersion, TopicConfig, TopicConfigTable
from ..remoting.command import Command
from ..remoting.later import Encoded, Later
from ..remoting.tasks import TaskScope, repeat, wait_at_most
from .config import BrokerConfig
from .nameservers import NameServerLink
from .topics import READ_WRITE, TopicTable

ANNOUNCE_LIMIT_MS = 1000
MAX_TOPICS = 10_000
"""Of one registration: a topic takes less than 700 bytes, and some milliseconds of the loop go to so many."""
_NAMED = 5
_MOST_SINGLE = 32
_LEAST_PAUSE_MS = 1000  # between registrations at a name server that closes each connection
_log = logging.getLogger(__name__)


Save = Callable[[], Coroutine[Any, Any, object]]


class Registration:
    """One broker's registrations; ``save`` brings changed topics to disk."""

    def __init__(self, config: BrokerConfig, topics: TopicTable, save: Save, tasks: TaskScope, clock: Clock) -> None:
        self._config = config
        self._topics = topics
        self._save = save
        self._tasks = tasks
        self._clock = clock
        self._links: list[NameServerLink] = []
        self._has_told_parts = False
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
        ordered: Mapping[str, str] | None = None
        for table in self._tables([topic.topic_name for topic in self._topics]):
            outcome = await link.register(table)
            if not outcome.is_accepted:
                raise RemotingError(f"name server {link.address} refused the registration: {outcome.remark}")
            ordered = outcome.ordered
        if ordered is not None:
            self._topics.set_ordered(ordered)
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
        saving = self._tasks.start(self._save(), "save topics")
        telling = [self._tasks.start(self._tell(link, names), f"tell {link.address}") for link in self._links]
        await self._wait_in_limit([saving, *telling])
        saving.add_done_callback(lambda saved: None if saved.cancelled() else self._forget(known))

    def _forget(self, known: Mapping[str, TopicConfig | None]) -> None:
        """Let nobody wait for topics any more that are on disk, unless they have changed since."""
        for name, topic in known.items():
            if self._is_announced(name) and self._topics.get(name) is topic:
                self._topics.unsaved.discard(name)
                del self._announced[name]

    async def _tell(self, link: NameServerLink, names: Sequence[str]) -> None:
        try:
            if self._config.announces_single_topics:
                if not link.is_registered or len(names) > _MOST_SINGLE:
                    await self.tell_all(link)
                    return
                topics = [topic for name in names if (topic := self._topics.get(name)) is not None]
                if all([await link.register_topic(topic) for topic in self._permitted(topics)]):
                    return
            for table in self._tables(names):
                if not (await link.register(table)).is_accepted:
                    await self.tell_all(link)
                    return
        except RocketletError as error:
            _log.warning("registering topics %s at name server %s failed: %s", _few(names), link.address, error)

    async def _wait_in_limit(self, tasks: Sequence[asyncio.Task[Any]]) -> None:
        if tasks:
            try:
                async with self._clock.timeout(ANNOUNCE_LIMIT_MS):
                    await asyncio.wait(tasks)
            except TimeoutError:
                late = ", ".join(task.get_name() for task in tasks if not task.done())
                _log.warning("still to be done after %d ms, going on meanwhile: %s", ANNOUNCE_LIMIT_MS, late)

    def _tables(self, names: Sequence[str]) -> Iterator[TopicConfigTable]:
        """Yield the topics that there are, in parts that a name server takes."""
        most = min(self._config.split_topics, MAX_TOPICS) if self._config.splits_registration else MAX_TOPICS
        if len(names) > MAX_TOPICS and not self._has_told_parts:
            self._has_told_parts = True
            _log.warning("%d topics are more than one registration holds; they go in parts of %d", len(names), most)
        for start in range(0, len(names), most):
            topics = [topic for name in names[start : start + most] if (topic := self._topics.get(name)) is not None]
            version = self._topics.version if len(names) <= most else self._topics.renew_version()
            yield self._table(topics, version)

    def _table(self, topics: Iterable[TopicConfig], version: DataVersion) -> TopicConfigTable:
        table = {topic.topic_name: topic for topic in self._permitted(topics)}
        return TopicConfigTable(data_version=version, topic_config_table=table)

    def _permitted(self, topics: Iterable[TopicConfig]) -> Iterable[TopicConfig]:
        permission = self._config.permission
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
