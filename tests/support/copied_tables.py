"""A slave's tables, and a master whose tables a test sets."""

import asyncio
import pathlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from raw_calls import until
from stores import StoreDirectory, new_record

from rocketlet.broker.delay.delay_progress import DelayFile, DelayProgress
from rocketlet.broker.group.groups import (
    GroupTable,
    OffsetFile,
    OffsetTable,
    RequestMode,
    RequestModes,
    RequestModeTable,
)
from rocketlet.broker.replication.kept_tables import TimerCount, TimerCounts, keep_tables
from rocketlet.broker.replication.known_master import KnownMaster
from rocketlet.broker.replication.table_copy import LOOK_MS, CopiedTables, CopyHelpers, TableCopy
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.broker.settings.replication import ReplicationConfig
from rocketlet.broker.topic.topics import TopicTable, make_topic
from rocketlet.common.metadata import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable, TopicConfigTable
from rocketlet.remoting.transport.event_loop import TaskScope, repeat
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.message_store import MessageStore
from rocketlet.store.timer.timer_check import TimerCheck
from rocketlet.testing.manual_clock import ManualClock

NAMESRV, MASTER = "127.0.0.1:9876", "127.0.0.1:10911"
VERSION = DataVersion(counter=7, timestamp=1_700_000_000_000)


class ScriptedMaster:
    """A master with tables that a test sets.

    ``failing`` names the questions that it does not answer, and the answer about topics waits for ``may_tell_topics``.
    """

    def __init__(self) -> None:
        self.topic_table = TopicConfigTable(data_version=VERSION, topic_config_table={"A": make_topic("A", 4)})
        group = SubscriptionGroupConfig(group_name="G")
        self.group_table = SubscriptionGroupTable(data_version=VERSION, subscription_group_table={"G": group})
        self.offset_file = OffsetFile(offset_table={"A@G": {0: 5}})
        self.delay_file = DelayFile(offset_table={3: 2})
        mode = RequestMode(consumer_group="G", mode="POP", topic="A")
        self.mode_table = RequestModes(message_request_mode_map={"A": {"G": mode}})
        self.counts = TimerCounts(data_version=VERSION, timing_count={"A": TimerCount(count=3, time_stamp=9)})
        self.check = TimerCheck(read_at_ms=1_700_000_000_000, queue_offset=4, master_queue_offset=4, counter=2)
        self.end: int | None = 0
        self.records: dict[int, bytes] = {}
        self.failing: dict[str, Exception] = {}
        self.asked: list[str] = []
        self.may_tell_topics = asyncio.Event()
        self.may_tell_topics.set()

    def __repr__(self) -> str:
        return "<ScriptedMaster>"

    def _answer(self, name: str, answer: Any) -> Any:
        self.asked.append(name)
        if name in self.failing:
            raise self.failing[name]
        return answer

    async def topics(self) -> TopicConfigTable:
        """Return all topics, as they are when it is asked."""
        answer = self._answer("topics", self.topic_table)
        await self.may_tell_topics.wait()
        return answer

    def change_topics(self, later_ms: int = 0, **queues: int) -> None:
        """Have other topics, with so many queues, since some time after the first change."""
        before = self.topic_table.data_version
        version = DataVersion(counter=before.counter + 1, timestamp=VERSION.timestamp + later_ms)
        table = {name: make_topic(name, count) for name, count in queues.items()}
        self.topic_table = TopicConfigTable(data_version=version, topic_config_table=table)

    async def groups(self) -> SubscriptionGroupTable:
        """Return all groups."""
        return self._answer("groups", self.group_table)

    async def offsets(self) -> OffsetFile:
        """Return the offsets of all groups."""
        return self._answer("offsets", self.offset_file)

    async def delays(self) -> DelayFile:
        """Return how far the delay levels were delivered."""
        return self._answer("delays", self.delay_file)

    async def modes(self) -> RequestModes:
        """Return which groups pull and which pop."""
        return self._answer("modes", self.mode_table)

    async def timer_counts(self) -> TimerCounts:
        """Return how many timer messages wait."""
        return self._answer("timer_counts", self.counts)

    async def timer_check(self) -> TimerCheck:
        """Return how far timer messages were delivered."""
        return self._answer("timer_check", self.check)

    async def ha_address(self) -> str:
        """Return where the log is copied from."""
        return self._answer("ha_address", "127.0.0.1:10912")

    async def log_end(self) -> int | None:
        """Return where the log ends."""
        return self._answer("log_end", self.end)

    async def record_at(self, log_offset: int) -> bytes | None:
        """Return the record at a position."""
        return self.records.get(log_offset)

    async def log_bounds(self) -> tuple[int, int]:
        """Return where the log begins and ends."""
        return 0, self.end or 0


class Slave:
    """A slave's tables and store, with a copy of a scripted master under way."""

    def __init__(self, store: MessageStore, root: pathlib.Path, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self.master = ScriptedMaster()
        self.known = KnownMaster(ReplicationConfig(role="SLAVE"))
        settings = LiveSettings(BrokerConfig.from_java({"brokerName": "b", "brokerClusterName": "c"}), "127.0.0.1")
        self.tables = CopiedTables(
            topics=TopicTable(settings, clock.now_ms),
            groups=GroupTable(clock.now_ms),
            offsets=OffsetTable(clock.now_ms, version_step=500),
            delays=DelayProgress(clock.now_ms, version_step=200),
            modes=RequestModeTable(),
            kept=keep_tables(str(root), clock.now_ms(), OS_FILES, is_slave=True),
        )
        self.forgotten: set[str] = set()
        self.told: list[str] = []
        self.saves = 0
        helpers = CopyHelpers(self._save, self.forgotten.update, self._run_in_thread, self.told.extend)
        self.copy = TableCopy(self.tables, store, self.known, helpers, clock)

    async def _save(self) -> None:
        self.saves += 1

    async def _run_in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.to_thread(work)

    def connect(self, address: str) -> ScriptedMaster:
        """Return the master, which is at one address."""
        assert address == MASTER
        return self.master

    def find_master(self) -> None:
        """Have a name server say where the master is."""
        self.known.tell(NAMESRV, MASTER, "127.0.0.1:10912")

    def lose_master(self) -> None:
        """Have the name server say that there is no master."""
        self.known.tell(NAMESRV, None, None)

    def receive(self, topic: str, queue_id: int = 0) -> None:
        """Get a message of the master."""
        self.store.append(new_record(topic, queue_id))
        self.store.commit()
        self.master.end = self.store.log_max_offset

    def queues(self, topic: str) -> int:
        """Return how many queues a topic has, 0 without it."""
        known = self.tables.topics.get(topic)
        assert known is None or known.read_queue_nums == known.write_queue_nums
        return 0 if known is None else known.read_queue_nums

    async def copy_once(self) -> list[str]:
        """Let the copy do what is due now; return what it has asked."""
        before = len(self.master.asked)
        await self.clock.settle()
        if self.known.address:
            await until(lambda: self.clock.next_at_ms is not None)  # it waits, and nothing of it runs in a thread
        return self.master.asked[before:]

    async def pass_ms(self, time_ms: int) -> list[str]:
        """Let time pass; return what the copy has asked."""
        asked: list[str] = []
        for _ in range(0, time_ms, LOOK_MS):
            self.clock.advance(LOOK_MS)
            asked += await self.copy_once()
        return asked


@asynccontextmanager
async def slave(tmp_path: pathlib.Path, clock: ManualClock) -> AsyncGenerator[Slave]:
    """Run a copy over an empty store."""
    directory = StoreDirectory(tmp_path / "slave", segment_bytes=1 << 16)
    one = Slave(await asyncio.to_thread(directory.open_at, clock), directory.root, clock)
    try:
        async with TaskScope() as tasks:
            one.store.subscribe(one.copy.notice)
            tasks.start(repeat(lambda: one.copy.run(one.connect), clock), "copy the tables")
            await clock.settle()
            yield one
    finally:
        await asyncio.to_thread(directory.close_all)
