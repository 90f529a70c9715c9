"""The slave's copy of its master's tables: when it asks, what it takes over and what not."""

import asyncio
import logging
import pathlib

import pytest
from copied_tables import NAMESRV, VERSION, slave
from msgspec.structs import replace
from stores import new_record

from rocketlet.broker.group.groups import (
    OffsetFile,
)
from rocketlet.broker.replication.table_copy import SOON_MS
from rocketlet.broker.topic.topics import make_topic
from rocketlet.common.errors import DecodeError, RemotingError
from rocketlet.common.metadata import DataVersion, SubscriptionGroupConfig, SubscriptionGroupTable, TopicConfigTable
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.timer.timer_check import REBUILDING, TimerCheck, load_timer_check
from rocketlet.testing.manual_clock import ManualClock

FULL = ["log_end", "topics", "offsets", "delays", "groups", "modes", "timer_counts", "timer_check", "log_end"]


@pytest.mark.feature("H2", "R10")
async def test_one_copy_makes_the_tables_those_of_the_master(tmp_path: pathlib.Path) -> None:
    """It is made as soon as the master is known: contents and versions are the master's, own topics vanish."""
    async with slave(tmp_path, ManualClock()) as one:
        assert not one.copy.is_complete
        one.find_master()
        assert await one.copy_once() == FULL
        tables, master = one.tables, one.master
        assert tables.topics.content() == master.topic_table
        assert tables.groups.content() == master.group_table
        assert tables.offsets.content().offset_table == master.offset_file.offset_table
        assert tables.delays.content() == master.delay_file
        assert tables.modes.content() == master.mode_table
        assert tables.kept.timer_counts.content() == master.counts
        assert tables.kept.timer_check.told == master.check
        assert "TBW102" in one.forgotten
        assert one.copy.is_complete
        assert one.saves


async def test_copies_come_each_minute_and_checks_each_three_seconds(tmp_path: pathlib.Path) -> None:
    """What has not changed is asked for all the same, as official slaves do."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        assert await one.pass_ms(57_000) == ["timer_check"] * 19
        assert await one.pass_ms(3_000) == FULL[:-1]


async def test_a_failure_is_said_once_and_stops_nothing(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The other tables are copied; the failed one is asked for again after 3 s, and its return is said as well."""
    caplog.set_level(logging.INFO)
    async with slave(tmp_path, ManualClock()) as one:
        one.master.failing["topics"] = RemotingError("no answer")
        one.find_master()
        assert await one.copy_once() == FULL
        assert one.tables.groups.content() == one.master.group_table
        assert not one.copy.is_complete
        assert await one.pass_ms(6_000) == ["log_end", "topics", "timer_check"] * 2
        assert caplog.text.count("copying the topics of the master at 127.0.0.1:10911 failed") == 1
        del one.master.failing["topics"]
        await one.pass_ms(3_000)
        assert one.copy.is_complete
        assert "copying the topics of the master at 127.0.0.1:10911 again" in caplog.text


@pytest.mark.parametrize("name", ["topics", "offsets", "delays", "groups", "modes", "timer_counts", "timer_check"])
async def test_garbage_changes_nothing(tmp_path: pathlib.Path, name: str) -> None:
    """An answer that makes no sense leaves its table as it was, and the others are copied."""
    async with slave(tmp_path, ManualClock()) as one:
        before = {field: getattr(one.tables, field) for field in ("topics", "groups", "offsets", "delays")}
        contents = {field: repr(table.content()) for field, table in before.items()}
        one.master.failing[name] = DecodeError("garbage")
        one.find_master()
        assert await one.copy_once() == FULL
        assert {field for field, table in before.items() if repr(table.content()) == contents[field]} == (
            {name} & before.keys()
        )


async def test_removed_topics_and_groups_vanish_with_their_offsets(tmp_path: pathlib.Path) -> None:
    """What the slave's own clients have committed elsewhere stays; who goes is told to the rest of the broker."""
    async with slave(tmp_path, ManualClock()) as one:
        one.master.topic_table.topic_config_table["B"] = make_topic("B", 1)
        one.master.group_table.subscription_group_table["H"] = SubscriptionGroupConfig(group_name="H")
        one.master.offset_file.offset_table |= {"B@G": {0: 1}, "A@H": {0: 9}}
        one.find_master()
        await one.copy_once()
        one.tables.offsets.commit("own", "A", 0, 3)
        one.forgotten.clear()
        later = DataVersion(counter=8, timestamp=VERSION.timestamp)
        one.master.topic_table = TopicConfigTable(data_version=later, topic_config_table={"A": make_topic("A", 8)})
        one.master.group_table = SubscriptionGroupTable(
            data_version=later, subscription_group_table={"G": SubscriptionGroupConfig(group_name="G")}
        )
        one.master.offset_file = OffsetFile(offset_table={"A@G": {0: 6, 1: 2}})
        await one.pass_ms(60_000)
        assert set(one.tables.topics.names()) == {"A"}
        assert one.tables.topics.version == later
        assert one.tables.groups.names() == ["G"]
        assert one.tables.offsets.content().offset_table == {"A@G": {0: 6, 1: 2}, "A@own": {0: 3}}
        assert one.forgotten == {"B"}


async def test_a_topic_is_never_missing_while_tables_are_replaced(tmp_path: pathlib.Path) -> None:
    """A table that has stayed the same keeps the very same topics."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        topic = one.tables.topics.get("A")
        later = DataVersion(counter=8, timestamp=VERSION.timestamp)
        table = {"A": make_topic("A", 4), "C": make_topic("C", 1)}
        one.master.topic_table = TopicConfigTable(data_version=later, topic_config_table=table)
        await one.pass_ms(60_000)
        assert one.tables.topics.get("A") is topic
        assert one.tables.topics.get("C") is not None


async def test_nothing_is_copied_from_a_master_that_has_lost_records(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log ends before the slave's: both ends are said, once, and what is known here is what the log has."""
    async with slave(tmp_path, ManualClock()) as one:
        one.store.append(new_record("A"))
        one.store.commit()
        own_end = one.store.log_max_offset
        one.find_master()
        assert await one.copy_once() == ["log_end"]
        assert await one.pass_ms(6_000) == ["log_end"] * 2
        assert caplog.text.count(f"its log ends at 0, before this one, which ends at {own_end}") == 1
        assert (one.queues("A"), one.queues("TBW102"), one.copy.is_complete) == (1, 8, False)
        one.master.end = own_end
        await one.pass_ms(3_000)
        assert (one.queues("A"), one.queues("TBW102"), one.copy.is_complete) == (4, 0, True)


@pytest.mark.parametrize("end", [None, RemotingError("no answer")])
async def test_a_master_that_does_not_tell_its_end_is_copied(tmp_path: pathlib.Path, end: RemotingError | None) -> None:
    """Official slaves do not ask for it."""
    async with slave(tmp_path, ManualClock()) as one:
        one.master.end = None
        if end is not None:
            one.master.failing["log_end"] = end
        one.find_master()
        await one.copy_once()
        assert one.copy.is_complete
        assert one.tables.delays.content().offset_table == ({3: 2} if end is None else {})


async def test_progress_counts_when_the_log_has_come_as_far(tmp_path: pathlib.Path) -> None:
    """Delay progress and timer check wait for the records that the master had when it told them."""
    async with slave(tmp_path, ManualClock()) as one:
        one.master.end = 1
        one.find_master()
        await one.copy_once()
        assert one.tables.delays.content().offset_table == {}
        assert await one.pass_ms(3_000) == []
        one.store.append(new_record("A"))
        one.store.commit()
        await one.pass_ms(3_000)
        assert one.tables.kept.timer_check.told == one.master.check
        assert one.tables.delays.content() == one.master.delay_file


async def test_timer_check_is_saved_for_a_broker_that_goes_on_as_master(tmp_path: pathlib.Path) -> None:
    """It says that the timer files are to be made anew, and what was put before; that time passes, once a minute."""
    async with slave(tmp_path, ManualClock()) as one:

        async def saved() -> TimerCheck:
            path = f"{one.store.config.root}/config/timercheck"
            return await asyncio.to_thread(load_timer_check, OS_FILES, path) or TimerCheck()

        one.find_master()
        await one.copy_once()
        check = one.master.check
        assert await saved() == check._replace(log_end=REBUILDING, queue_offset=4, master_queue_offset=0)
        one.master.check = check._replace(read_at_ms=check.read_at_ms + 30_000)
        await one.pass_ms(3_000)
        assert one.tables.kept.timer_check.check.read_at_ms == check.read_at_ms + 30_000
        assert (await saved()).read_at_ms == check.read_at_ms
        one.master.check = check._replace(read_at_ms=check.read_at_ms + 60_000)
        await one.pass_ms(3_000)
        assert (await saved()).read_at_ms == check.read_at_ms + 60_000


async def test_no_file_is_made_where_no_timer_message_was(tmp_path: pathlib.Path) -> None:
    """The check of such a master is a time that passes."""
    async with slave(tmp_path, ManualClock()) as one:
        one.master.check = TimerCheck(read_at_ms=1_700_000_000_000)
        one.find_master()
        await one.copy_once()
        assert one.tables.kept.timer_check.check.read_at_ms == 1_700_000_000_000
        assert not await asyncio.to_thread((tmp_path / "slave" / "config").exists)


async def test_a_master_that_comes_back_is_copied_at_once(tmp_path: pathlib.Path) -> None:
    """While it is gone nothing is asked, and what was copied stays."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        one.known.tell(NAMESRV, None, None)
        assert await one.pass_ms(120_000) == []
        assert one.copy.is_complete
        one.find_master()
        assert (await one.copy_once())[:2] == ["log_end", "topics"]


async def test_a_message_of_an_unknown_topic_has_the_topics_copied(tmp_path: pathlib.Path) -> None:
    """At once if they were not just asked for; who asks for a topic that is not there has them copied once a minute."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        one.clock.advance(SOON_MS)
        one.master.change_topics(A=4, New=2)
        one.receive("New")
        assert (await one.copy_once())[:2] == ["log_end", "topics"]
        assert one.queues("New") == 2
        for is_first in (True, False):
            assert one.copy.finds("Gone") is False
            assert ("topics" in await one.pass_ms(3_000)) is is_first
        one.master.change_topics(1, A=4)
        one.receive("New", 5)
        await one.pass_ms(3_000)
        assert one.copy.finds("Gone") is False
        assert "topics" in await one.pass_ms(3_000)


async def test_many_new_topics_share_a_question(tmp_path: pathlib.Path) -> None:
    """The first is asked for at once, the others together a little later; the longer answers take, the later."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        one.clock.advance(SOON_MS)
        asked = list[str]()
        for number in range(50):
            one.receive(f"New{number}")
            asked += await one.copy_once()
        assert asked.count("topics") == 1
        one.clock.advance(SOON_MS - 1)
        assert await one.copy_once() == []
        one.clock.advance(1)
        assert (await one.copy_once()).count("topics") == 1
        one.master.may_tell_topics.clear()
        one.clock.advance(SOON_MS)
        one.receive("Slow")
        await one.clock.settle()
        one.clock.advance(200)
        one.master.may_tell_topics.set()
        await one.copy_once()
        one.receive("Next")
        one.clock.advance(1_799)
        assert await one.copy_once() == []
        one.clock.advance(1)
        assert "topics" in await one.copy_once()


async def test_a_message_that_comes_while_topics_are_asked_for(tmp_path: pathlib.Path) -> None:
    """The answer is older than its topic, which is asked for again; what was made of it meanwhile is not taken away."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        one.master.may_tell_topics.clear()
        one.clock.advance(SOON_MS)
        one.receive("First")
        await one.clock.settle()
        assert one.master.asked[-1] == "topics"
        one.receive("New", 2)
        assert one.copy.finds("New")
        one.master.change_topics(A=4, New=8)
        one.forgotten.clear()
        one.master.may_tell_topics.set()
        await one.copy_once()
        assert (one.queues("New"), one.forgotten) == (3, set())
        one.clock.advance(SOON_MS)
        assert "topics" in await one.copy_once()
        assert (one.queues("New"), one.forgotten) == (8, set())


async def test_who_asks_for_a_new_topic_gets_what_the_log_has(tmp_path: pathlib.Path) -> None:
    """It is made with as many queues as have messages, until the master has said what it is; others are not there."""
    async with slave(tmp_path, ManualClock()) as one:
        assert not one.copy.finds("Nope")
        one.find_master()
        await one.copy_once()
        one.receive("New", 2)
        one.receive("A", 5)
        assert [one.copy.finds(name) for name in ("Nope", "New", "New", "A")] == [False, True, False, True]
        assert (one.queues("New"), one.queues("A"), one.told) == (3, 6, [])
        made = one.tables.topics.get("New")
        assert made is not None
        assert (made.perm, made.attributes) == (6, {})
        one.master.change_topics(1, A=8)
        one.clock.advance(SOON_MS)
        await one.copy_once()
        assert (one.queues("A"), "New" in one.forgotten, one.copy.finds("New")) == (8, True, False)


@pytest.mark.parametrize("is_first_copy_done", [True, False])
async def test_new_topics_are_served_when_the_master_is_gone(
    tmp_path: pathlib.Path, is_first_copy_done: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """They are made from the log, as are queues of topics that were known, and name servers hear of them."""
    async with slave(tmp_path, ManualClock()) as one:
        if is_first_copy_done:
            one.find_master()
            await one.copy_once()
        for queue_id in (0, 3, 1):
            one.receive("New", queue_id)
        one.receive("A", 4)
        one.receive("SCHEDULE_TOPIC_XXXX", 30)
        before = one.tables.topics.version
        one.lose_master()
        await one.copy_once()
        assert (one.queues("New"), one.queues("A"), sorted(one.told)) == (4, 5, ["A", "New"])
        assert one.queues("SCHEDULE_TOPIC_XXXX") == (0 if is_first_copy_done else 18)
        assert one.tables.topics.version == replace(before, counter=before.counter + 1)
        assert "topics are served as far as the log has them" in caplog.text
        one.receive("Late", 1)
        one.receive("Late", 2)
        assert (one.queues("Late"), one.told[2:]) == (3, ["Late", "Late"])
        assert not one.copy.finds("Nope")


async def test_new_topics_are_served_when_the_master_does_not_answer(tmp_path: pathlib.Path) -> None:
    """Name servers are told when they do not know it any more: up to then they have its topics from the master."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        one.master.failing = {name: RemotingError("no answer") for name in ("log_end", "topics")}
        one.receive("New", 1)
        one.clock.advance(SOON_MS)
        assert await one.copy_once() == ["log_end", "topics"]
        assert (one.queues("New"), one.told) == (2, [])
        one.receive("Next")
        assert (one.queues("Next"), await one.copy_once()) == (1, [])
        assert await one.pass_ms(6_000) == ["log_end", "topics", "timer_check"] * 2
        one.lose_master()
        await one.copy_once()
        assert one.told == ["New", "Next"]


async def test_new_topics_of_a_master_that_comes_back(tmp_path: pathlib.Path) -> None:
    """Its settings replace what was made without it, and the next new topic is asked for again."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        one.receive("New")
        one.lose_master()
        await one.copy_once()
        one.master.change_topics(A=4, New=16)
        one.find_master()
        await one.copy_once()
        assert (one.queues("New"), one.tables.topics.version) == (16, one.master.topic_table.data_version)
        one.receive("Next")
        assert one.queues("Next") == 0
        one.clock.advance(SOON_MS)
        assert "topics" in await one.copy_once()


async def test_topics_that_the_master_has_deleted_are_not_made_again(tmp_path: pathlib.Path) -> None:
    """The log has messages of them that are older than the copied table: neither asked for nor served."""
    async with slave(tmp_path, ManualClock()) as one:
        one.master.change_topics(1, A=4)
        one.find_master()
        await one.copy_once()
        one.receive("Deleted")
        one.clock.advance(SOON_MS)
        assert await one.copy_once() == []
        assert not one.copy.finds("Deleted")
        one.lose_master()
        await one.copy_once()
        assert (one.queues("Deleted"), one.told) == (0, [])


async def test_new_batch_topics_are_made_as_such(tmp_path: pathlib.Path) -> None:
    """A slave whose log has batches that are kept whole knows what kind of topic it serves."""
    async with slave(tmp_path, ManualClock()) as one:
        one.find_master()
        await one.copy_once()
        one.store.set_batch_topics(["Batches"])
        one.receive("Batches")
        one.lose_master()
        await one.copy_once()
        made = one.tables.topics.get("Batches")
        assert made is not None
        assert (made.read_queue_nums, made.attributes) == (1, {"queue.type": "BatchCQ"})


async def test_new_batch_topics_have_batch_queues(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """One whose messages came before its settings cannot become one, which is said; it is copied all the same."""
    async with slave(tmp_path, ManualClock()) as one:
        one.store.append(new_record("Early"))
        one.store.commit()
        one.master.end = one.store.log_max_offset
        for name in ("Early", "Batch"):
            topic = make_topic(name, 1)
            topic.attributes = {"queue.type": "BatchCQ"}
            one.master.topic_table.topic_config_table[name] = topic
        one.find_master()
        await one.copy_once()
        assert one.tables.topics.get("Early") is not None
        assert "topic Early has queues that are no batch queues" in caplog.text
        assert set(one.store.batch_topics()) <= {"Batch"}
