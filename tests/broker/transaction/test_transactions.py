"""Settled and open half messages, and the rounds of checks, on a store without a broker."""

import asyncio
import logging
import pathlib
import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from javastores import unpack_store
from retention import age, cleaned_directory
from stores import HOST, LimitedFiles, StoreDirectory, new_record, read_queue

from rocketlet.broker.group.groups import OffsetTable
from rocketlet.broker.group.members import Members
from rocketlet.broker.outcomes.scheduler import Scheduler
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.broker.transaction.check_jobs import CheckJob
from rocketlet.broker.transaction.checks import CheckRules, Step, TransactionChecks
from rocketlet.broker.transaction.half_messages import given_up, half_of
from rocketlet.broker.transaction.handlers import TransactionCheckSender
from rocketlet.broker.transaction.transactions import TRANSACTION_GROUP, Cursors, SettledOffsets, Transactions
from rocketlet.common.errors import StoreFullError
from rocketlet.common.names import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_DISCARD_TOPIC
from rocketlet.common.record import Record
from rocketlet.remoting.transport.connection import Connection
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore
from rocketlet.testing.manual_clock import ManualClock

MOST_MESSAGES = 32
MOST_BYTES = 1 << 20
MOST_ROUND_MS = 60_000
OPS_A_TURN = 128
RULES = CheckRules(timeout_ms=6_000, most_checks=15, reserved_ms=72 * 3_600_000)

LATER_MS = 60_000


class World:
    """A store with its transactions and checks."""

    def __init__(self, directory: StoreDirectory) -> None:
        self.directory = directory
        self.files = LimitedFiles()
        self.offsets = OffsetTable(lambda: directory.now_ms, version_step=500)
        self.start()

    def start(self) -> None:
        """Open the store with the cursors that were saved last; op messages are not read yet."""
        self.store = self.directory.open(self.files)
        self.scheduler = Scheduler(self.store, ManualClock(), lambda _names, done: done())
        self.transactions = Transactions(
            self.store, self.offsets, self.scheduler.join, lambda: self.directory.now_ms, most_op_bytes=4_096
        )
        self.checks = TransactionChecks(self.transactions, self.scheduler.commit, lambda: RULES, given_up)

    def restart(self) -> None:
        """Stop, start again, and read what is settled."""
        self.directory.close_all()
        self.start()
        while self.transactions.read_ops():
            pass

    def send(self, *bodies: bytes, **properties: str) -> None:
        """Store half messages, born now."""
        for body in bodies:
            new = half_of(new_record("T", 0, body, UNIQ_KEY=f"k{body[:9].decode()}", PGROUP="g", **properties))
            new.born_at_ms = self.directory.now_ms
            self.store.append(new)
        self.scheduler.commit()

    def settle(self, *half_offsets: int) -> None:
        """Settle half messages together."""
        for half_offset in half_offsets:
            self.transactions.settle(half_offset)
        self.scheduler.commit()

    def step(self) -> Step:
        """Take the first turn of a round that begins now."""
        return self.checks.step(self.directory.now_ms, self.directory.now_ms)

    def round(self) -> list[bytes]:
        """Make a whole round a minute later, and return whom it asks about."""
        self.directory.now_ms += LATER_MS
        self.transactions.mark()
        asked: list[bytes] = []
        is_last = False
        while not is_last:
            step = self.step()
            asked += [question.copy.body for question in step.questions]
            is_last = step.is_last
        return asked

    def halves(self) -> list[Record]:
        """Return the queue of half messages."""
        return read_queue(self.store, HALF_TOPIC, 0)


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> Iterator[StoreDirectory]:
    """Return a directory of large files."""
    made = StoreDirectory(tmp_path / "store", segment_bytes=1 << 24, queue_file_bytes=200_000, has_index=False)
    yield made
    made.close_all()


@pytest.fixture
def world(directory: StoreDirectory) -> World:
    """Return a world without messages."""
    return World(directory)


def test_settled_messages_cost_nothing(world: World) -> None:
    """Twenty thousand settled messages with two open ones between them are passed in one turn."""
    count = 20_000
    world.send(*(b"%d" % number for number in range(count)))
    world.settle(*(number for number in range(count) if number not in (7, 19_998)))
    world.directory.now_ms += LATER_MS
    step = world.step()
    assert ([question.copy.body for question in step.questions], step.is_last) == ([b"7", b"19998"], True)
    assert world.transactions.cursors.half == count


def test_old_message_does_not_hold_up_the_others(world: World) -> None:
    """One that stays open moves to the end in each round; what is settled in between is behind the cursor for good."""
    world.send(b"old")
    for number in range(5):
        world.send(*(b"%d-%d" % (number, place) for place in range(10)))
        end = world.store.max_offset(HALF_TOPIC, 0)
        world.settle(*range(end - 10, end))
        assert world.round() == [b"old"]
        assert world.transactions.cursors == (end, world.store.max_offset(OP_HALF_TOPIC, 0) - 1)
    assert world.step().questions == []


@pytest.mark.parametrize(("size", "a_turn"), [(10, MOST_MESSAGES), (300_000, MOST_BYTES // 300_000 + 1)])
def test_turn_is_bounded(size: int, a_turn: int, world: World) -> None:
    """A turn copies so many messages, or a megabyte; the next one goes on behind them."""
    world.send(*(b"%d " % number + bytes(size) for number in range(40)))
    world.directory.now_ms += LATER_MS
    began_at_ms = world.directory.now_ms
    seen = 0
    while seen < 40:
        step = world.checks.step(began_at_ms, world.directory.now_ms)
        seen += len(step.questions)
        assert len(step.questions) == a_turn or seen == 40
        assert world.transactions.cursors.half == seen
    assert world.checks.step(began_at_ms, world.directory.now_ms) == ([], True, None)


def test_round_ends_after_a_minute(world: World) -> None:
    """A round that has lasted for longer looks at nothing more."""
    world.send(b"a")
    began_at_ms = world.directory.now_ms + LATER_MS
    assert world.checks.step(began_at_ms, began_at_ms + MOST_ROUND_MS + 1) == ([], True, None)
    assert len(world.checks.step(began_at_ms, began_at_ms + MOST_ROUND_MS).questions) == 1


def test_ops_are_read_a_few_at_a_time(world: World) -> None:
    """After a restart each call reads so many op messages; then what was settled before is settled again."""
    count = 2 * OPS_A_TURN + 1
    world.send(*(b"%d" % number for number in range(count + 1)))
    for number in range(count):
        world.settle(number)
    world.directory.close_all()
    world.start()
    calls = [world.transactions.read_ops() for _ in range(3)]
    assert calls == [True, True, False]
    assert world.round() == [b"%d" % count]


def test_first_check_waits_for_the_ops(world: World) -> None:
    """The job of the checks reads on without a pause until it has read all of them."""
    world.send(*(b"%d" % number for number in range(2 * OPS_A_TURN + 10)))
    for number in range(2 * OPS_A_TURN + 10):
        world.settle(number)
    world.directory.close_all()
    world.start()
    settings = LiveSettings(BrokerConfig.from_java({"transactionCheckInterval": "7000"}), "127.0.0.1")
    sender = TransactionCheckSender(Members[Connection](lambda: 0), "broker-a")
    job = CheckJob(world.checks, sender, ManualClock(), settings)

    async def run() -> list[int]:
        return [await job.run() for _ in range(4)]

    assert asyncio.run(run()) == [0, 0, 7000, 7000]


def test_ops_before_the_cursor_are_not_read(world: World) -> None:
    """What was saved when the log was on disk is where a restart begins to read."""
    world.send(*(b"%d" % number for number in range(50)))
    for number in range(49):
        world.settle(number)
    assert world.round() == [b"49"]
    world.transactions.save(world.transactions.cursors)
    assert world.transactions.cursors == (50, 49)
    assert world.transactions.is_saved(Cursors(50, 49))
    world.restart()
    assert (world.transactions.cursors, world.round()) == ((50, 49), [b"49"])


def test_cursor_outside_its_queue_is_moved_into_it(world: World) -> None:
    """A queue that lost its end is read from there on."""
    world.send(b"a")
    for topic in (HALF_TOPIC, OP_HALF_TOPIC):
        world.offsets.commit(TRANSACTION_GROUP, topic, 0, 1_000)
    world.restart()
    assert world.transactions.cursors == (1, 0)


def test_cursor_before_its_queue_is_moved_into_it(tmp_path: pathlib.Path) -> None:
    """A queue that lost its beginning, as its files of the log expired, is read from where there is something."""
    directory = cleaned_directory(tmp_path / "store")
    world = World(directory)
    world.send(*(b"%d" % number for number in range(50)))
    world.restart()
    age(directory, range(2), hours=2)
    world.store.clean_now()
    world.restart()
    assert world.transactions.cursors.half == world.store.min_offset(HALF_TOPIC, 0) > 0
    assert world.round()[-1] == b"49"
    directory.close_all()


def test_op_message_that_names_what_is_not_there(world: World) -> None:
    """Offsets beyond the queue and below the cursor are taken for nothing, and take no memory."""
    world.send(b"a", b"b")
    op = new_record(OP_HALF_TOPIC, 0, b"0,99999999999999,", TAGS="d")
    world.store.append(op)
    world.scheduler.commit()
    world.restart()
    assert "1 bytes" in repr(world.transactions)
    assert world.round() == [b"b"]


def test_what_was_not_written_is_not_settled(world: World) -> None:
    """When the commit fails nothing has been settled; memory and disk agree."""
    world.send(b"a", b"b")
    world.files.room = 0
    with pytest.raises(StoreFullError):
        world.settle(0)
    world.files.room = None
    world.store.tick()
    assert not world.transactions.is_settled(0)
    assert world.round() == [b"a", b"b"]


def test_turn_that_was_not_written_comes_again(world: World) -> None:
    """When there is no room for the copies the cursor stays, and nobody is asked."""
    world.send(b"a", b"b")
    world.directory.now_ms += LATER_MS
    world.files.room = 0
    with pytest.raises(StoreFullError):
        world.step()
    assert world.transactions.cursors.half == 0
    world.files.room = None
    world.store.tick()
    assert world.round() == [b"a", b"b"]
    assert [record.properties.get("TRANSACTION_CHECK_TIMES") for record in world.halves()] == [None, None, "1", "1"]


def test_record_that_is_no_half_message_is_passed(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """One that says not where it belongs is named in the log; those behind it are checked."""
    world.store.append(new_record(HALF_TOPIC, 0, b"stray"))
    world.store.append(new_record(HALF_TOPIC, 0, b"stray", REAL_TOPIC="T", REAL_QID="x"))
    world.send(b"a")
    with caplog.at_level(logging.ERROR):
        assert world.round() == [b"a"]
    told = [record.message.partition(":")[0] for record in caplog.records]
    assert told == [
        "skipping the check of the half message at offset 0",
        "skipping the check of the half message at offset 1",
    ]


def test_message_that_cannot_grow_is_given_up(world: World) -> None:
    """One whose properties leave no room for the number of checks is kept as it is, and nobody is asked."""
    room = 32_767 - len(half_of(new_record("T", 0, b"", UNIQ_KEY="klong", PGROUP="g", p="v")).property_text)
    world.send(b"long", p="v" * (room + 1))
    world.send(b"a")
    assert world.round() == [b"a"]
    (kept,) = read_queue(world.store, TRANSACTION_DISCARD_TOPIC, 0)
    assert bytes(kept.body) == b"long"


def test_many_rounds_that_cannot_pass_keep_little(world: World) -> None:
    """While a round cannot move, what is remembered of the rounds is bounded; then the op cursor catches up."""
    world.send(b"a", b"b")
    for _ in range(1_000):
        world.store.append(new_record(OP_HALF_TOPIC, 0, b"x", TAGS="d"))
        world.scheduler.commit()
        world.transactions.mark()
    world.round()
    world.round()
    assert world.transactions.cursors.op >= 1_000


def test_of_many_rounds_the_first_ones_and_the_latest_are_known(world: World) -> None:
    """The op cursor of the 64th and later rounds waits for the end of the latest."""
    for number in range(70):
        world.send(b"%d" % number)
        world.store.append(new_record(OP_HALF_TOPIC, 0, b"x", TAGS="d"))
        world.scheduler.commit()
        world.transactions.mark()
    op_cursors: list[int] = []
    for half_offset in (1, 63, 64, 69, 70):
        world.transactions.pass_to(half_offset)
        op_cursors.append(world.transactions.cursors.op)
    assert op_cursors == [1, 63, 63, 63, 70]


@pytest.mark.parametrize("keeps_cursors", [True, False])
def test_java_transactions_go_on(keeps_cursors: bool, vectors: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Half and op messages of a Java broker are read as it reads them: what one op message names is settled."""
    now_ms = 1_795_249_700_000
    config = StoreConfig.from_java(
        {
            "storePathRootDir": str(unpack_store(vectors, "delay-retry", tmp_path)),
            "mappedFileSizeCommitLog": "65536",
            "mappedFileSizeConsumeQueue": "2000",
            "maxHashSlotNum": "500",
            "maxIndexNum": "400",
            "mappedFileSizeTimerLog": "102400",
        }
    )
    offsets = OffsetTable(lambda: now_ms, version_step=500)
    if keeps_cursors:
        offsets.commit(TRANSACTION_GROUP, HALF_TOPIC, 0, 14)
        offsets.commit(TRANSACTION_GROUP, OP_HALF_TOPIC, 0, 1)
    with MessageStore.open(config, now_ms=lambda: now_ms, store_host=HOST) as store:
        scheduler = Scheduler(store, ManualClock(), lambda _names, done: done())
        transactions = Transactions(store, offsets, scheduler.join, lambda: now_ms, most_op_bytes=4_096)
        assert not transactions.read_ops()
        checks = TransactionChecks(transactions, scheduler.commit, lambda: RULES._replace(most_checks=2), given_up)
        questions, is_last, _ = checks.step(now_ms, now_ms)
        assert is_last
        asked = [question.copy.body.decode() for question in questions]
        # half message 3 was copied to 8, which is settled: Java knows of no copies and asks again
        once = ["commit 1", "rollback 1", "commit 2", "unknown for ever"]
        assert asked == ([] if keeps_cursors else ["unknown, commit at check", "unknown for ever", *once])
        assert store.max_offset(TRANSACTION_DISCARD_TOPIC, 0) == 4 + (0 if keeps_cursors else 4)


@pytest.mark.parametrize("first", [0, 5, 8, 1_000_003])
def test_next_open_is_the_first_that_is_missing(first: int) -> None:
    """With all but one of a hundred in the set, that one is found from any place before it, and the end behind it."""
    for missing in range(first, first + 100):
        settled = SettledOffsets(first)
        for number in range(first, first + 100):
            if number != missing:
                settled.add(number)
        assert settled.next_open(first, first + 100) == missing
        assert settled.next_open(missing, first + 100) == missing
        assert settled.next_open(missing + 1, first + 100) == first + 100


@given(st.sets(st.integers(0, 300)), st.sets(st.integers(0, 300)), st.integers(0, 300), st.integers(0, 300))
def test_it_is_a_set(added: set[int], removed: set[int], start: int, forgotten: int) -> None:
    """It holds what a set of numbers would hold, and finds the first one missing as a search would."""
    settled = SettledOffsets(0)
    for number in added:
        settled.add(number)
    for number in removed:
        settled.discard(number)
    expected = added - removed
    assert {number for number in range(320) if number in settled} == expected
    settled.forget_below(forgotten)
    kept = {number for number in expected if number >= forgotten}
    assert {number for number in range(forgotten, 320) if number in settled} == kept
    start = max(start, forgotten)
    assert settled.next_open(start, 310) == next(number for number in range(start, 320) if number not in kept)


def test_numbers_before_the_first_are_left_out() -> None:
    """What lies before the beginning is not taken in, nor after it was forgotten."""
    settled = SettledOffsets(64)
    settled.add(3)
    assert 3 not in settled
    settled.add(70)
    settled.forget_below(1_000)
    settled.add(70)
    assert 70 not in settled
    assert settled.next_open(1_000, 2_000) == 1_000


def test_size_is_a_bit_for_each() -> None:
    """A million numbers take an eighth of a megabyte, and nothing when they are forgotten."""
    settled = SettledOffsets(0)
    for number in random.Random(1).sample(range(1_000_000), 1_000):
        settled.add(number)
    settled.add(999_999)
    assert repr(settled) == "<SettledOffsets from 0, 125000 bytes>"
    settled.forget_below(1_000_000)
    assert repr(settled) == "<SettledOffsets from 1000000, 0 bytes>"


def test_numbers_are_forgotten_again_and_again() -> None:
    """What is left keeps its numbers however often those below are dropped."""
    numbers = SettledOffsets(0)
    for number in (3, 20, 41):
        numbers.add(number)
    for end in (9, 17, 40):
        numbers.forget_below(end)
        assert [number for number in range(64) if number in numbers] == [each for each in (3, 20, 41) if each >= end]
