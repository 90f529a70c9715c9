"""Which queues of a topic this member owns, and when that is worked out again.

One run (Java's ``RebalanceImpl``), for each topic:
1. all queues from the route, all members from any broker of the topic; without one of them nothing changes; our own
   id twice among them is told (``ClientIdConflicts``);
2. both sorted, so that every member computes the same; a member that the broker does not list yet gets nothing;
3. ``strategy.allocate``; an error of the strategy changes nothing;
4. queues that are no longer in the share are given up before new ones are taken.

Runs: at the start, when woken (members or a route changed, an offset was refused), else every 20 s. A run that lacked
something is repeated after 1 s, then after twice as long each time, up to 20 s. Runs never overlap, and all wake-ups
during a run lead to one more right after it; Java lets a second pass between two runs, in which two members may own
one queue.

Members with one client id sort to one place, so they take the same queues: those are read twice, and as many others
not at all. Brokers list the id of every connection and do not mind. Our own ids differ; the pitfall is an instance name
that two processes were given, or the number of the process as the only difference, which is 1 in every container.
Such a conflict is logged once, with the addresses where the broker says them (GET_CONSUMER_CONNECTION_LIST, 203), and
again when it has changed. A connection that broke may be listed for up to two minutes until the broker misses it.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from ...common.allocation import AllocateMessageQueueStrategy
from ...common.clock import Clock
from ...common.errors import RocketletError, RouteNotFoundError
from ...common.message import MessageQueue
from ..session.lifecycle import TimerEvent

_log = logging.getLogger(__name__)

FIRST_REPEAT_MS = 1000


class ConnectionSource(Protocol):
    """Who knows from where a client id is connected."""

    async def addresses_of(self, group: str, topic: str, client_id: str, /) -> Sequence[str]:
        """Return from where the members with an id are connected to a broker of the topic; ours says so."""
        ...


class ClientIdConflicts:
    """Looks at the members that each rebalance sees."""

    def __init__(self, group: str, client_id: str, source: ConnectionSource) -> None:
        self._group = group
        self._client_id = client_id
        self._source = source
        self._told: dict[str, tuple[str, ...]] = {}

    def __repr__(self) -> str:
        return f"<ClientIdConflicts of {self._client_id} in {self._group}, told of {sorted(self._told)}>"

    async def look(self, topic: str, members: Sequence[str]) -> None:
        """Tell when our id is there more than once."""
        count = members.count(self._client_id)
        if count < 2:
            if self._told.pop(topic, None) is not None:
                _log.info("group %s: client id %s is unique again", self._group, self._client_id)
            return
        addresses = await self._find_addresses(topic)
        if self._told.get(topic) != addresses:
            self._told[topic] = addresses
            _log.error(
                "group %s: %d members have the client id %s and consume the same queues of %s, others are not "
                "consumed; give each member its own instance name%s",
                self._group,
                count,
                self._client_id,
                topic,
                f". They are at {', '.join(addresses)}" if addresses else "",
            )

    async def _find_addresses(self, topic: str) -> tuple[str, ...]:
        try:
            return tuple(sorted(await self._source.addresses_of(self._group, topic, self._client_id)))
        except RocketletError as error:
            _log.debug("group %s: where its members are is not known: %s", self._group, error)
            return ()


class ShareChange(NamedTuple):
    """The difference between the queues that a member owns and those it shall own."""

    given_up: tuple[MessageQueue, ...]
    taken: tuple[MessageQueue, ...]


def compare_share(owned: Iterable[MessageQueue], share: Iterable[MessageQueue]) -> ShareChange:
    """Return what has to change, each list in queue order."""
    before, after = set(owned), set(share)
    return ShareChange(tuple(sorted(before - after)), tuple(sorted(after - before)))


def repeat_delay_ms(incomplete_runs: int, interval_ms: int) -> int:
    """Return the pause after a run, given how many runs in a row lacked something."""
    if incomplete_runs == 0:
        return interval_ms
    return min(FIRST_REPEAT_MS << min(incomplete_runs - 1, 16), interval_ms)


class ShareSource(ConnectionSource, Protocol):
    """What a rebalance has to know; the client session answers from routes and brokers."""

    async def queues_of(self, topic: str) -> Sequence[MessageQueue]:
        """Return all queues of a topic that can be read; empty when its route is unknown."""
        ...

    async def members_of(self, group: str, topic: str, /) -> Sequence[str]:
        """Return the client ids of a group from one of the topic's brokers."""
        ...


class MemberIdentity(NamedTuple):
    """Who takes part in the sharing."""

    group: str
    client_id: str
    strategy: AllocateMessageQueueStrategy
    is_alone: bool = False  # in a broadcast every member has all queues


class QueueOwner(Protocol):
    """The consumer whose queues change."""

    def topics(self) -> Sequence[str]:
        """Return the topics to share."""
        ...

    def owned_queues(self) -> Sequence[MessageQueue]:
        """Return the queues that are owned now."""
        ...

    async def change_share(self, topic: str, change: ShareChange, /) -> bool:
        """Give up and take queues; tell whether everything could be taken."""
        ...


class Rebalance:
    """The job that keeps a consumer's queues in line with the members of its group."""

    def __init__(
        self, member: MemberIdentity, source: ShareSource, owner: QueueOwner, clock: Clock, interval_ms: int
    ) -> None:
        self._member = member
        self._source = source
        self._owner = owner
        self._clock = clock
        self._interval_ms = interval_ms
        self._duplicates = ClientIdConflicts(member.group, member.client_id, source)
        self._timer_event = TimerEvent(clock)
        self._has_run = asyncio.Event()
        self._unknown_topics: set[str] = set()
        self._incomplete_runs = 0

    def __repr__(self) -> str:
        return f"<Rebalance of {self._member.group}, {self._incomplete_runs} incomplete runs>"

    def wake(self) -> None:
        """Work the shares out again soon."""
        self._timer_event.wake()

    async def step(self) -> int:
        """Do one run and wait until the next is due: a job."""
        await self.run()
        await self._timer_event.wait(repeat_delay_ms(self._incomplete_runs, self._interval_ms))
        return 0

    async def wait_first_run(self, at_most_ms: int) -> None:
        """Return when a run has ended, or when the time is over."""
        try:
            async with self._clock.timeout(at_most_ms):
                await self._has_run.wait()
        except TimeoutError:
            _log.warning("group %s: the first rebalance has not ended in %d ms", self._member.group, at_most_ms)

    async def run(self) -> None:
        """Work out the share of every topic once, and give up the queues of other topics."""
        is_complete = True
        topics = self._owner.topics()
        for topic in {queue.topic for queue in self._owner.owned_queues()}.difference(topics):
            await self._owner.change_share(topic, compare_share(self._owned_of(topic), ()))
        for topic in topics:
            try:
                is_complete &= await self._balance(topic)
            except RouteNotFoundError as error:
                self._tell_unknown(topic, error)
                is_complete = False
            except (RocketletError, ValueError) as error:
                _log.warning(
                    "group %s: rebalancing topic %s failed, keeping its queues: %s", self._member.group, topic, error
                )
                is_complete = False
            else:
                self._unknown_topics.discard(topic)
        self._incomplete_runs = 0 if is_complete else self._incomplete_runs + 1
        self._has_run.set()

    def _tell_unknown(self, topic: str, error: RouteNotFoundError) -> None:
        """Warn once of a topic that does not exist: a wrong name looks like a topic without messages."""
        level = logging.INFO if topic in self._unknown_topics else logging.WARNING
        text = "group %s: topic %s not found, consuming nothing of it until it is created: %s"
        _log.log(level, text, self._member.group, topic, error)
        self._unknown_topics.add(topic)

    def _owned_of(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in self._owner.owned_queues() if queue.topic == topic]

    async def _balance(self, topic: str) -> bool:
        queues = sorted(await self._source.queues_of(topic))
        member = self._member
        members = [member.client_id] if member.is_alone else sorted(await self._source.members_of(member.group, topic))
        if not queues or not members:
            text = "group %s: rebalancing topic %s put off, it has %d queues and %d members"
            _log.warning(text, self._member.group, topic, len(queues), len(members))
            return False
        await self._duplicates.look(topic, members)
        share = self._member.strategy.allocate(self._member.group, self._member.client_id, queues, members)
        change = compare_share(self._owned_of(topic), share)
        return await self._owner.change_share(topic, change) and self._member.client_id in members
