"""What a broker tells of itself to whoever watches it from outside: its figures at an instant, as plain values.

Rules

    1. Everything is read from what the broker keeps anyway, when it is asked for; nothing is counted for it.
    2. A group's progress in a topic is told while a member subscribes to the topic, or without members, while the group
       has offsets of it. (``ConsumerLagCalculator`` leaves out groups without members, whose backlog grows.)
    3. A backlog counts from what a group has committed. Where it has committed nothing, ``lag`` is 0 as in a 5.x
       broker, and ``behind`` the whole queue as in GET_CONSUME_STATS(208). Filters are not taken into account.
    4. Of topics and groups the loop looks at some at a time (``topic_figures.py``). What is deleted meanwhile is left
       out.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from ...store.cleaner import DiskReport
from ..group.members import Member
from ..outcomes.scheduler import LongPolling
from ..settings.live import LiveSettings
from .runtime_info import Lines, RuntimeInfo
from .statistics import BrokerStatistics
from .topic_figures import TopicLooks, TopicRun, WatchedTables
from .windows import MINUTE


class ClientFigures(NamedTuple):
    """A connected member of a group."""

    address: str
    client_id: str
    language: str
    version: int


class MemberFigures(NamedTuple):
    """A group that has members; types and models are empty for producers."""

    group: str
    clients: tuple[ClientFigures, ...]
    consume_type: str = ""
    message_model: str = ""


class BrokerFigures(NamedTuple):
    """All of them; ``lines`` are those of GET_BROKER_RUNTIME_INFO(28)."""

    at_ms: int
    cluster: str
    broker: str
    address: str
    permission: int
    runs: tuple[TopicRun, ...]
    consumers: tuple[MemberFigures, ...]
    producers: tuple[MemberFigures, ...]
    group_count: int
    puts_per_second: float
    gets_per_second: float
    flush_behind_bytes: int
    held_pulls: int
    parked_sends: int
    disk: DiskReport
    lines: Lines

    @property
    def topic_count(self) -> int:
        """How many topics there are."""
        return sum(len(run.topics) for run in self.runs)


class Figures(Struct, frozen=True):
    """Measures a running broker."""

    info: RuntimeInfo
    settings: LiveSettings
    tables: WatchedTables
    long_polling: LongPolling
    own_address: Callable[[], str]
    looks: TopicLooks

    async def measure(self) -> BrokerFigures:
        """Return the figures of about now; what waits for the disk is measured in a thread (raises ``OSError``)."""
        files = await self.info.measure_files()
        runs = [run async for run in self.looks.look()]
        config, scheduler, whole = self.settings.config, self.info.scheduler, self._statistics.whole_broker
        return BrokerFigures(
            at_ms=self._statistics.totals().at_ms,
            cluster=config.cluster_name,
            broker=config.broker_name,
            address=self.own_address(),
            permission=config.permission,
            runs=tuple(runs),
            consumers=tuple(self._consumers()),
            producers=tuple(
                MemberFigures(group, _clients(members))
                for group, members in self.tables.members.producer_groups().items()
            ),
            group_count=len(self.tables.groups.names()),
            puts_per_second=whole.growth("", MINUTE, 0, None).per_second,
            gets_per_second=whole.growth("", MINUTE, 2, None).per_second,
            flush_behind_bytes=scheduler.store.log_max_offset - scheduler.store.flushed_offset,
            held_pulls=len(self.long_polling),
            parked_sends=len(scheduler.stall) if scheduler.stall is not None else 0,
            disk=files.disks,
            lines=self.info.lines(files),
        )

    @property
    def _statistics(self) -> BrokerStatistics:
        return self.info.statistics

    def _consumers(self) -> Iterable[MemberFigures]:
        for name in self.tables.members.consumer_group_names():
            group = self.tables.members.consumer_group(name)
            if group is not None:
                yield MemberFigures(name, _clients(group.members), group.consume_type, group.message_model)


def _clients(members: Mapping[Any, Member]) -> tuple[ClientFigures, ...]:
    return tuple(
        ClientFigures(link.peer, member.client.client_id, member.client.language, member.client.version)
        for link, member in members.items()
    )
