"""Keeps all name servers informed of this broker (spec behaviour.md A.9).

Rules
    1. Each name server is told everything at the start, every 30 s, and again after a failure with growing pauses;
       and at once when it has closed the connection, which is how it ends a registration that it holds for over.
       They are independent of each other.
    2. New and changed topics are saved, and then told to all name servers at once. Whoever waits for that is answered
       after a second at the latest; what is not done by then goes on.
    3. A name server that has the broker is told of a few new topics one by one (217): a registration of them alone
       takes back the others where ``deleteTopicWithBrokerRegistration`` is set. One that does not know that request, or
       not yet the broker, is told by a registration, and of everything if it refuses that.
    4. The version that goes with a topic is that of its change, so that no other registration hides it.
    5. More than ``MAX_TOPICS`` topics go in parts, one after the other, each with a version of its own: a name server
       takes no frame above 16 MiB. ``enableSplitRegistration`` makes the parts smaller (``splitRegistrationSize``).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any

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
_MOST_SINGLE = 16
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
        self.is_stopped = False

    def __repr__(self) -> str:
        return f"<Registration at {[link.address for link in self._links]}>"

    async def start(self, links: Sequence[NameServerLink]) -> None:
        """Begin to register; return when each name server was told or failed once, or after a second."""
        self._links = list(links)
        firsts: list[asyncio.Event] = []
        for link in links:
            firsts.append(asyncio.Event())
            work = _Round(self, link, firsts[-1], self._clock)
            self._tasks.start(repeat(work, self._clock), f"register at {link.address}")
        await self._within_limit([first.wait() for first in firsts])

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
        self._tasks.start(self._make_known(names, later, reply), "announce topics")

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

    async def _make_known(self, names: Sequence[str], later: Later, reply: Command | Encoded) -> None:
        saving = self._tasks.start(self._save(), "save topics")
        await self._within_limit([self._tell(link, names) for link in self._links])
        await saving
        self._topics.unsaved.difference_update(names)
        later.answer(reply)

    async def _tell(self, link: NameServerLink, names: Sequence[str]) -> None:
        try:
            if self._config.announces_single_topics and len(names) <= _MOST_SINGLE and link.is_registered:
                topics = [topic for name in names if (topic := self._topics.get(name)) is not None]
                if all([await link.register_topic(topic) for topic in self._permitted(topics)]):
                    return
            for table in self._tables(names):
                if not (await link.register(table)).is_accepted:
                    await self.tell_all(link)
                    return
        except RocketletError as error:
            _log.warning("registering topics %s at name server %s failed: %s", _few(names), link.address, error)

    async def _within_limit(self, works: Sequence[Coroutine[Any, Any, object]]) -> None:
        tasks = [self._tasks.start(work, "make known") for work in works]
        if tasks:
            try:
                async with self._clock.timeout(ANNOUNCE_LIMIT_MS):
                    await asyncio.wait(tasks)
            except TimeoutError:
                _log.warning("some name server takes more than %d ms; going on without it", ANNOUNCE_LIMIT_MS)

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
