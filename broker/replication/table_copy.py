"""The slave's copy of its master's tables (``SlaveSynchronize``; spec replication.md §7).

    topics, offsets, delay progress, groups, request modes, timer counts     every 60 s
    timer check                                                               every 3 s

Rules

    1. The first copy is begun as soon as the master is known, and again when it is another one, or comes back. What
       failed is asked for again after 3 s, and said once; it does not stop the others. (Official slaves wait for 62 s.)
    2. A table is replaced in one step: no topic is missing in between. It has the version of the master. Of offsets,
       those that the master holds are replaced, and those that it holds no more dropped.
    3. Nothing is copied from a master whose log ends before this one, or has another record where the last one is here:
       it has lost records, or is a second one with the same name. Both ends are told, once.
    4. Delay progress and timer check say what was delivered: they count when this log has all that the master's had
       when they were told. A slave that is made master would not deliver what it has not got else.
    5. A message of a topic that is not known, or of a queue that the topic does not have, is a reason to ask for the
       topics at once, but not sooner than ``SOON_MS`` after the last time. So is who asks for a topic that is not
       known; one topic once a minute, or when the master has changed some.
    6. While the master is gone, or does not answer, such topics are made from what the log has of them
       (``log_topics.py``). So are they for who asks for one before the master was: what was acknowledged can be read.
    7. Topics that are gone take their queues and who waits there with them, unless the log has newer messages of them.
    8. The store is marked as a copy when topics, groups and offsets are there. Up to then nobody is told that something
       does not exist.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from ...common.clock import Clock
from ...common.errors import ConfigError, DecodeError, RemotingError, RocketletError
from ...common.metadata import DataVersion, SubscriptionGroupTable, TopicConfig, TopicConfigTable
from ...remoting.transport.event_loop import wait_at_most
from ...store.consumequeue.appended import Placed
from ...store.message_store import MessageStore
from ...store.timer.timer_check import TimerCheck
from ..delay.delay_progress import DelayFile, DelayProgress
from ..group.groups import GroupTable, OffsetFile, OffsetTable, RequestModes, RequestModeTable
from ..outcomes.group_commit import wait_flushed
from ..topic.topics import TopicTable, is_batch_topic
from .copy_start import compare_logs
from .kept_tables import KeptTables, TimerCounts
from .known_master import KnownMaster
from .log_topics import LogTopics

PERIOD_MS: Final = 60_000
LOOK_MS: Final = 3_000
SOON_MS: Final = 100
_MOST_MISSED: Final = 1_000
_REST: Final = 10  # of the time, while topics come and come: so many times as long as an answer has taken
_MOST_NAMED: Final = 5
_log = logging.getLogger(__name__)


class CopiedTables(NamedTuple):
    """What a slave has of its master."""

    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    delays: DelayProgress
    modes: RequestModeTable
    kept: KeptTables


class Master(Protocol):
    """Answers a slave (``MasterRequests``); each question may raise ``RemotingError`` or ``DecodeError``."""

    async def topics(self) -> TopicConfigTable:
        """Return all topics."""
        ...

    async def groups(self) -> SubscriptionGroupTable:
        """Return all groups."""
        ...

    async def offsets(self) -> OffsetFile:
        """Return the offsets of all groups."""
        ...

    async def delays(self) -> DelayFile:
        """Return how far the delay levels have been delivered."""
        ...

    async def modes(self) -> RequestModes:
        """Return which groups pull and which pop."""
        ...

    async def timer_counts(self) -> TimerCounts:
        """Return how many timer messages wait."""
        ...

    async def timer_check(self) -> TimerCheck:
        """Return how far timer messages have been delivered."""
        ...

    async def log_end(self) -> int | None:
        """Return where the log of the master ends, ``None`` if it does not tell such things."""
        ...

    async def record_at(self, log_offset: int) -> bytes | None:
        """Return the record at a position of the log, ``None`` if there is none."""
        ...

    async def log_bounds(self) -> tuple[int, int]:
        """Return where the log of the master begins and ends."""
        ...

    async def ha_address(self) -> str:
        """Return where the log of the master is copied from."""
        ...


class CopyHelpers(NamedTuple):
    """Who saves all tables, lets go of topics that are gone, runs slow work, and tells name servers of topics."""

    save: Callable[[], Awaitable[object]]
    forget_topics: Callable[[frozenset[str]], object]
    run_in_thread: Callable[[Callable[[], None]], Awaitable[None]]
    make_known: Callable[[Sequence[str]], object]


class _Step:
    """A question to the master, when it is asked next, and what was wrong with the last answer."""

    def __init__(self, name: str, ask: Callable[[Master], Awaitable[None]], period_ms: int = PERIOD_MS) -> None:
        self.name = name
        self.ask = ask
        self.period_ms = period_ms
        self.asked_at_ms = self.took_ms = self.due_at_ms = 0
        self.wishes = self.granted = 0  # how often somebody wanted it asked, and which of these were answered
        self.is_done = False
        self.failure = ""

    @property
    def is_wanted(self) -> bool:
        """Whether somebody wants it asked who has come since it was asked."""
        return self.wishes > self.granted

    def is_due(self, now_ms: int) -> bool:
        """Tell whether it is to be asked now."""
        return self.due_at_ms <= now_ms or (self.is_wanted and not self.failure)

    def begin(self) -> None:
        """Have it asked at once, of another master."""
        self.due_at_ms = 0
        self.is_done = False
        self.failure = ""


class _Told(NamedTuple):
    """What a master has told that counts when this log has reached a position, ``None`` while that is not known."""

    take: Callable[[], Awaitable[None]]
    needed_offset: int | None = None


class TableCopy:
    """Keeps tables as those of the master."""

    def __init__(
        self, tables: CopiedTables, store: MessageStore, master: KnownMaster, helpers: CopyHelpers, clock: Clock
    ) -> None:
        self._tables, self._kept = tables, tables.kept
        self._store = store
        self._known_master = master
        self._helpers = helpers
        self._clock = clock
        self._address = ""
        self._master: Master | None = None
        self._woken, self._has_asked, self._turned = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._missed: set[str] = set()
        self._log_topics = LogTopics(tables.topics, store)
        self._made: set[str] = set()  # topics made from the log since the last copy
        self._is_alone = False
        self._copied_version: DataVersion | None = None
        self._told: dict[str, _Told] = {}
        self._trusts_master = False
        self._compared_at_ms: int | None = None
        self._misfits: set[str] = set()
        self._topics, self._offsets = _Step("topics", self._copy_topics), _Step("offsets", self._copy_offsets)
        self._delays, self._groups = _Step("delay progress", self._copy_delays), _Step("groups", self._copy_groups)
        self._rest = (_Step("request modes", self._copy_modes), _Step("timer counts", self._copy_counts))
        self._check = _Step("timer check", self._copy_check, LOOK_MS)
        self._end, self._settling = _Step("tables", self._compare_ends), _Step("progress", self._settle)
        self._place = _Step("HA address", self._find_log)
        master.subscribe(self._hear_of_master)

    def __repr__(self) -> str:
        return f"<TableCopy of {self._address or 'no master'}, waiting for the log: {sorted(self._told)}>"

    @property
    def is_complete(self) -> bool:
        """Whether topics, groups and offsets were copied, maybe before the start."""
        return self._kept.mark.is_set

    async def wait_topics(self) -> None:
        """Return when the topics of a known master were asked for, which say what kinds of queues its log needs.

        Who does not answer is not waited for longer than ``LOOK_MS``.
        """
        if self._known_master.address:
            await wait_at_most(self._has_asked, LOOK_MS, self._clock)

    async def run(self, connect: Callable[[str], Master]) -> int:
        """Copy what is due, and wait until something is; a job for ``repeat``."""
        self._woken.clear()
        self._turned.clear()
        address = self._known_master.address
        if address != self._address:
            self._turn_to(address, connect(address) if address else None)
        if self._master is None:
            if self._known_master.is_gone:
                self._go_on_alone()
            await self._turned.wait()
            return 0
        await self._copy(self._master)
        if not self._topics.is_wanted:
            await wait_at_most(self._woken, LOOK_MS, self._clock)
        if (rest_ms := self._rest_ms()) > 0:
            await wait_at_most(self._turned, rest_ms, self._clock)
        return 0

    # --- what is not known yet

    def finds(self, topic: str) -> bool:
        """Tell whether the log had what the table lacks of a topic, which is there now; have the master asked, too."""
        self._miss(topic)
        if self._is_alone or not (self.is_complete and self._topics.is_wanted):
            return False
        return bool(self._make([topic]))

    def notice(self, records: Sequence[Placed]) -> None:
        """Look for topics and queues that are not known among messages that have become readable."""
        get = self._tables.topics.get
        for record in records:
            topic = get(record.topic)
            if topic is None or record.queue_id >= topic.write_queue_nums:
                self._meet(record)

    def _meet(self, record: Placed) -> None:
        lacks = record.queue is not None and self._log_topics.lacks(record.topic, record.queue_id)
        if not lacks or record.stored_at_ms < self._since_ms:
            return
        if self._is_alone:
            self._make()
        elif record.topic not in self._missed:
            self._want(record.topic)

    def _miss(self, topic: str) -> None:
        if topic not in self._missed and len(self._missed) < _MOST_MISSED:
            self._want(topic)

    def _want(self, topic: str) -> None:
        self._missed.add(topic)
        self._topics.wishes += 1
        self._woken.set()

    @property
    def _since_ms(self) -> int:
        """Since when there may be topics that the table does not have."""
        return self._tables.topics.saved_at_ms if self.is_complete or self._topics.is_done else 0

    def _make(self, only: Collection[str] | None = None) -> list[str]:
        """Make what the table lacks of topics; return which."""
        names = self._log_topics.make(self._since_ms, only)
        if names:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            text = "topics are served as far as the log has them, their settings were not copied yet: %s%s"
            _log.warning(text, ", ".join(names[:_MOST_NAMED]), more)
            self._made.update(names)
            self._tell_made()
        return names

    def _go_on_alone(self) -> None:
        """Serve what the log has: the master cannot be asked."""
        if not self._is_alone:
            self._is_alone = True
            self._make()
        self._tell_made()

    def _tell_made(self) -> None:
        """Tell name servers, which know topics of the master as long as they know the master."""
        if self._made and self._known_master.is_gone:
            names, self._made = sorted(self._made), set()
            self._helpers.make_known(names)

    # --- rounds

    def _hear_of_master(self) -> None:
        self._turned.set()
        self._woken.set()

    def _rest_ms(self) -> int:
        """Return how long the topics are not to be asked for again, though somebody wants to."""
        topics = self._topics
        if not topics.is_wanted:
            return 0
        asked, pause_ms = topics, min(LOOK_MS, max(SOON_MS, _REST * topics.took_ms))
        if topics.failure or not self._trusts_master:
            asked, pause_ms = topics if self._trusts_master else self._end, LOOK_MS
        return asked.asked_at_ms + pause_ms - self._clock.monotonic_ms()

    def _turn_to(self, address: str, master: Master | None) -> None:
        self._address, self._master = address, master
        self._told.clear()
        self._trusts_master = False
        self._compared_at_ms = None
        for step in (*self._all, self._check, self._end, self._settling):
            step.begin()

    @property
    def _all(self) -> tuple[_Step, ...]:
        return (self._topics, self._offsets, self._delays, self._groups, *self._rest)

    async def _copy(self, master: Master) -> None:
        if not self._known_master.ha_address:
            await self._ask(self._place, master)
        now_ms = self._clock.monotonic_ms()
        due = [step for step in self._all if step.is_due(now_ms)]
        if self._offsets in due:
            self._missed.clear()
        if due:
            await self._ask(self._end, master)
            if self._end.failure:
                self._go_on_alone()
        if not self._trusts_master:
            return
        for step in due:
            await self._ask(step, master)
            self._has_asked.set()  # the first are the topics
        if self._topics.failure:
            self._go_on_alone()
        if due:
            if self._topics.is_done and self._offsets.is_done and self._groups.is_done:
                self._kept.mark.put(self._address, self._clock.now_ms())
            await self._helpers.save()
        if self._check.is_due(now_ms):
            await self._ask(self._check, master)
        await self._ask(self._settling, master)

    async def _ask(self, step: _Step, master: Master) -> None:
        """Ask one question; what is wrong with the answer is said once."""
        wishes, step.asked_at_ms = step.wishes, self._clock.monotonic_ms()
        try:
            await step.ask(master)
        except (RocketletError, OSError) as error:
            failure = str(error)
            level = logging.DEBUG if failure == step.failure else logging.WARNING
            text = "copying the %s of the master at %s failed, trying again every %d ms: %s"
            _log.log(level, text, step.name, self._address, LOOK_MS, failure)
            step.failure, step.due_at_ms = failure, step.asked_at_ms + LOOK_MS
            return
        if step.failure:
            _log.info("copying the %s of the master at %s again", step.name, self._address)
        step.failure, step.is_done, step.granted = "", True, wishes
        step.took_ms = self._clock.monotonic_ms() - step.asked_at_ms
        step.due_at_ms = step.asked_at_ms + step.period_ms

    # --- tables

    async def _copy_topics(self, master: Master) -> None:
        content = await master.topics()
        self._set_batch_topics(content.topic_config_table)
        self._is_alone = False
        self._made.clear()
        if content.data_version != self._copied_version:
            self._copied_version = content.data_version
            self._missed.clear()
        gone = self._tables.topics.take_copy(content)
        gone -= self._keep_newer(gone)
        for topic in gone:
            self._tables.offsets.drop_topic(topic)
        if gone:
            self._helpers.forget_topics(gone)

    def _keep_newer(self, gone: frozenset[str]) -> frozenset[str]:
        """Have topics again of which messages have come that are newer than the master's answer; return which."""
        newer = frozenset(self._log_topics.make(self._tables.topics.saved_at_ms, gone)) if gone else gone
        self._made |= newer
        for topic in newer - self._missed:
            self._want(topic)
        return newer

    def _set_batch_topics(self, topics: Mapping[str, TopicConfig]) -> None:
        """Have the queues of new batch topics made as such; what has come as others already stays so."""
        for name, topic in topics.items():
            if is_batch_topic(topic.attributes) and name not in self._misfits:
                try:
                    self._store.set_batch_topics([name])
                except ConfigError as error:
                    self._misfits.add(name)
                    _log.error("%s: empty the store of this slave and start it again", error)

    async def _copy_offsets(self, master: Master) -> None:
        self._tables.offsets.take_copy(await master.offsets())

    async def _copy_groups(self, master: Master) -> None:
        self._tables.groups.take_copy(await master.groups())

    async def _copy_modes(self, master: Master) -> None:
        self._tables.modes.take_copy(await master.modes())

    async def _copy_counts(self, master: Master) -> None:
        self._kept.timer_counts.take_copy(await master.timer_counts())

    async def _find_log(self, master: Master) -> None:
        self._known_master.learn_ha_address(await master.ha_address())

    # --- what depends on the log

    async def _compare_ends(self, master: Master) -> None:
        """Find out whether the log of the master has all that this one has; records are compared once a minute."""
        own_end, now_ms = self._store.log_max_offset, self._clock.monotonic_ms()
        self._trusts_master = True
        end = await master.log_end()
        if end is not None and end < own_end:
            self._trusts_master = False
            raise RocketletError(f"its log ends at {end}, before this one, which ends at {own_end}; nothing is copied")
        if self._compared_at_ms is not None and now_ms - self._compared_at_ms < PERIOD_MS:
            return
        try:
            await compare_logs(self._store, master)
        except (RemotingError, DecodeError):
            raise
        except RocketletError as error:
            self._trusts_master = False
            raise RocketletError(f"{error}; nothing is copied") from error
        self._compared_at_ms = now_ms

    async def _copy_delays(self, master: Master) -> None:
        if self._delays.name not in self._told:
            content = await master.delays()
            if content != self._tables.delays.content():
                self._told[self._delays.name] = _Told(partial(self._take_delays, content))

    async def _take_delays(self, content: DelayFile) -> None:
        self._tables.delays.take_copy(content)
        await self._helpers.save()

    async def _copy_check(self, master: Master) -> None:
        if self._check.name not in self._told:
            check = await master.timer_check()
            if check != self._kept.timer_check.told:
                self._told[self._check.name] = _Told(partial(self._take_check, check))

    async def _take_check(self, check: TimerCheck) -> None:
        if self._kept.timer_check.take(check):
            await self._helpers.run_in_thread(self._kept.timer_check.save)

    async def _settle(self, master: Master) -> None:
        """Let count what was told, as far as the log has come."""
        if any(told.needed_offset is None for told in self._told.values()):
            end = await master.log_end() or 0
            for name, told in self._told.items():
                if told.needed_offset is None:
                    self._told[name] = told._replace(needed_offset=end)
        for name, (take, needed_offset) in tuple(self._told.items()):
            if needed_offset is not None and needed_offset <= self._store.log_max_offset:
                await wait_flushed(self._store)
                del self._told[name]
                await take()
