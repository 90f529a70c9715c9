"""What one walk makes of a queue, by what stood in it, where the walk began and what the records say.

A message is a letter: ``c`` is the third record of the log, and in a queue it is the entry of that record. In capitals
it is an entry of the same record with another code, ``-`` is a pre-blank entry, ``0`` one of zeros. ``c7`` is a record
that says that its queue offset is 7, and ``c7x2`` one of a batch queue with two messages.
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from stores import HOST, StoreDirectory

from rocketlet.common.message import HOSTS_V6, TRANSACTION_COMMIT, TRANSACTION_PREPARED
from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.common.properties import tags_code
from rocketlet.common.record import NewRecord, encode_record
from rocketlet.store.consumequeue.batch_queue import INNER_BATCH_FLAGS, UNIT, BatchQueue, encode_unit
from rocketlet.store.consumequeue.consume_queue import ENTRY, PRE_BLANK, ConsumeQueue, QueueSpace
from rocketlet.store.consumequeue.queue_table import LAST_ADDRESS, BatchQueueTable, QueueTable, batch_space
from rocketlet.store.files.files import OS_FILES, Descriptors
from rocketlet.store.files.store_config import BATCH_UNIT_BYTES, ENTRY_BYTES
from rocketlet.store.recovery.dispatcher import EntryRules
from rocketlet.store.recovery.queue_rebuild import ConsumeQueueRebuild

STEP = 1_000  # between the records of the log
SIZE = 92  # of a record without body, topic T and properties of nothing


class Walk:
    """Empty queues below a folder; ``rebuild`` begins a walk over their log."""

    def __init__(self, folder: pathlib.Path, descriptors: Descriptors, **settings: int) -> None:
        self.config = StoreDirectory(folder, **{"batch_file_bytes": 4 * BATCH_UNIT_BYTES, **settings}).config
        self._descriptors = descriptors
        self.queues = self.load()
        self.queues.batches.topics.add("B")

    def load(self) -> QueueTable:
        """Return the queues as the disk has them."""
        root = f"{self.config.root}/consumequeue"
        space = QueueSpace(OS_FILES, root, self.config.queue_file_bytes, self._descriptors)
        queues = QueueTable(space, BatchQueueTable(batch_space(self.config, space)))
        queues.batches.load()
        queues.load()
        return queues

    def rebuild(self, start: int = 0, *, is_whole_log: bool = False) -> ConsumeQueueRebuild:
        """Begin a walk at a place of the log, by default at its begin."""
        rules = EntryRules(self.queues, (1_000,))
        return ConsumeQueueRebuild(self.queues, rules, start, is_whole_log=is_whole_log or not start)

    def fill(self, letters: str, topic: str = "T") -> ConsumeQueue:
        """Write entries to a queue."""
        queue = self.queues.obtain(topic, 0)
        queue.pending += b"".join(map(entry, letters))
        queue.write_pending()
        queue.set_end(queue.max_offset)
        return queue

    def fill_batches(self, text: str) -> BatchQueue:
        """Write units to a batch queue, such as ``a0x2 b2x1``: offsets and counts."""
        queue = self.queues.batches.obtain("B", 0)
        queue.pending.extend(b"".join(map(unit, text.split())))
        queue.write_pending()
        queue.take_over_slots()
        return queue


@pytest.fixture
def walk(tmp_path: pathlib.Path, descriptors: Descriptors) -> Walk:
    """Give queues without entries."""
    return Walk(tmp_path, descriptors)


def offset_of(letter: str) -> int:
    """Return where a record lies; the first does not lie at the begin of the log."""
    return (ord(letter.lower()) - ord("a") + 1) * STEP


def entry(letter: str) -> bytes:
    """Return the entry that a letter stands for."""
    if letter in "-0":
        return PRE_BLANK if letter == "-" else bytes(ENTRY_BYTES)
    return ENTRY.pack(offset_of(letter), SIZE, 5 if letter.isupper() else 0)


def record(letter: str, queue_offset: int, **fields: Any) -> memoryview:
    """Return a record of the log."""
    new = NewRecord("T", 0, b"", b"", {}, 0, 0, 1, HOST)
    for name, value in fields.items():
        setattr(new, name, value)
    place = offset_of(letter)
    return memoryview(encode_record(new, queue_offset, place, place, HOST))


def batch_record(text: str) -> memoryview:
    """Return the record of a batch queue that a letter, an offset and a count stand for, such as ``a0x2``."""
    offset, count = map(int, text[1:].split("x"))
    tags = b"TAGS\x01t\x02" if text[0].isupper() else b""
    if count == 1:
        return record(text[0], offset, topic="B", property_text=tags)
    return record(
        text[0], offset, topic="B", sys_flag=INNER_BATCH_FLAGS, property_text=tags + b"INNER_NUM\x01%d" % count
    )


def unit(text: str) -> bytes:
    """Return the unit of such a record."""
    if text == "0":
        return bytes(BATCH_UNIT_BYTES)
    offset, count = map(int, text[1:].split("x"))
    code = tags_code("t") if text[0].isupper() else 0
    found = offset_of(text[0]), len(batch_record(text)), code
    return encode_unit(found, offset_of(text[0]), offset, count)


def units_of(queue: BatchQueue) -> list[bytes]:
    """Return what stands in a batch queue."""
    return [queue.slots.read(slot, 1) for slot in range(queue.slots.max_offset)]


def records(text: str) -> Iterator[memoryview]:
    """Return records such as ``a0 b1``."""
    return (record(word[0], int(word[1:])) for word in text.split())


def end_of(fed: str, start: str) -> int:
    """Return where a log ends whose walk from a start on, by default its begin, has yielded these records."""
    return offset_of(fed.rsplit(maxsplit=1)[-1][0]) + SIZE if fed else offset_of(start or "a")


FAR = 100 * STEP
"""Behind all records: where the log may end for all that a test says."""


def letters_of(queue: ConsumeQueue) -> str:
    """Return what stands in a queue, from its first file on."""
    found: list[str] = []
    for number in range(max(queue.first_base, 0) // ENTRY_BYTES, queue.max_offset):
        data = queue.read(number, 1)
        known = [one for one in "-abcdefghijklmnopqrABCDEFGHIJKLMNOPQR" if entry(one) == data]
        found += known or ["?"]
    return "".join(found)


WHOLE_LOG = [
    ("abc", "a0 b1 c2", "abc"),  # what is there stays
    ("", "a0 b1 c2", "abc"),  # what is missing is written
    ("ab", "a0 b1 c2 d3", "abcd"),
    ("abc", "a0 b1", "ab"),  # what no record stands behind goes
    ("abc", "", ""),
    ("aBc", "a0 b1 c2", "abc"),  # from the first difference on it is written anew
    ("aBC", "a0 b1 c2 d3", "abcd"),
    ("abcdefghijklmnopqr", "a0 b1 c2 d3 e4 f5 g6 h7 i8 j9 k10 l11 m12 n13 o14 p15 q16 r17", "abcdefghijklmnopqr"),
    ("abcdefghijkLmnopqr", "a0 b1 c2 d3 e4 f5 g6 h7 i8 j9 k10 l11 m12 n13 o14 p15 q16 r17", "abcdefghijklmnopqr"),
    ("", "a12 b13", "--ab"),
    ("", "a3 b4", "---ab"),  # it begins where its first record says
    ("", "a0 b5 c6", "abc"),  # behind a gap slots shift
    ("ab", "a0 b1 c5", "abc"),
    ("ab", "a1 b2", "ab"),  # an entry that is right stays, whatever its record says
    ("abcde", "a0 d3 e4", "abcde"),  # and keeps its place when records before it are lost
    ("abCDe", "a0 b1 e4", "abCDe"),
    ("abDce", "a0 d3 e4", "ade"),  # but not when its slot holds another's
    ("abcde", "a0 e3", "ae"),
    ("abc", "a0 b1 c2 d0 e1", "de"),  # a new numbering takes the place of what it overlaps
    ("", "a0 b1 c2 d1 e2 f3", "adef"),
    ("", "a0 b1 c2 d0 f3", "df"),
    ("abcdef", "a0 b1 c2 d1 e2", "abcde"),  # unless its entries stand there
    ("afdeg", "a0 d2 e3 f1 g4", "afg"),
    ("ade", "a0 b1 c2 d1 e2", "ade"),  # of an older one, nothing is written
    ("cde", "a0 b1 c0 d1 e2", "cde"),
    ("Cde", "a0 b1 c0 d1 e2", "cde"),
    ("cde", "a0 b1 c0 d1 e2 f3 g4", "cdefg"),
    ("---de", "a3 b4 d3 e4", "---de"),
]


@pytest.mark.parametrize(("before", "fed", "after"), WHOLE_LOG)
@pytest.mark.parametrize("is_confirmed", [True, False])
def test_walk_over_the_whole_log(walk: Walk, before: str, fed: str, after: str, *, is_confirmed: bool) -> None:
    """The queue is what the rules say, in memory and on disk, whether its entries are confirmed first or not."""
    queue = walk.fill(before)
    rebuild = walk.rebuild()
    for one in records(fed):
        if not (is_confirmed and rebuild.confirm(int.from_bytes(one[28:36]), one)):
            rebuild.feed(one)
    rebuild.finish(FAR)
    assert (letters_of(queue), rebuild.broken) == (after, set())
    assert queue.next_offset == queue.max_offset
    for again in walk.load():
        assert (letters_of(again), again.max_offset) == (after, queue.max_offset)


PART = [
    ("abc", "c", "c2 d3", "abcd", False),  # entries of records before the start are trusted
    ("qBc", "c", "c2 d3", "qBcd", False),
    ("abcd", "c", "c2", "abc", False),
    ("abcd", "c", "", "ab", False),
    ("abC", "c", "c2 d3", "abcd", False),
    ("", "c", "c0 d1", "cd", False),
    ("abc", "d", "d1 e2", "ade", False),  # a new numbering
    ("abc", "d", "d0", "d", False),
    ("abc", "d", "d3 e4 f3 g4", "abcfg", False),
    ("abc", "c", "c7 d3", "abcd", False),
    ("", "c", "c1", "", True),  # it lacks entries of records before the start
    ("abc", "d", "d4 e5", "abc", True),
    ("abc", "d", "d3 e7 f8", "abc", True),
    ("ab00cd", "c", "", "ab", False),  # what is behind an entry that never arrived is none
    ("ade0000000k", "c", "", "a", False),  # neither is what was found before one, behind the end of the log
    ("abcd", "d", "d3 e5", "abcd", True),
    ("abc", "c", "c2 d4 e5", "abc", True),
    ("cde", "a", "a0 b1", "cde", True),  # the record that belongs to the slot does not come
    ("abef", "c", "c2 d3", "abef", True),
]


@pytest.mark.parametrize(("before", "start", "fed", "after", "is_broken"), PART)
def test_walk_over_the_end_of_the_log(
    walk: Walk, before: str, start: str, fed: str, after: str, *, is_broken: bool
) -> None:
    """A queue that cannot be completed by this walk is reported, and left as it is."""
    queue = walk.fill(before)
    rebuild = walk.rebuild(offset_of(start))
    for one in records(fed):
        rebuild.feed(one)
    rebuild.finish(end_of(fed, start))
    assert (letters_of(queue), rebuild.broken) == (after, {queue} if is_broken else set())


def test_walk_over_the_end_of_a_queue_that_begins_late(walk: Walk) -> None:
    """Its first files are gone, or were never made."""
    queue = walk.queues.obtain("T", 0)
    queue.begin_at(12)
    walk.fill("abcdefghijkl")
    rebuild = walk.rebuild(offset_of("k"))
    for one in records("k22 l23 m24"):
        rebuild.feed(one)
    rebuild.finish(FAR)
    assert (letters_of(queue), queue.max_offset, rebuild.broken) == ("--abcdefghijklm", 25, set())


@pytest.mark.parametrize(
    ("before", "fed", "after"),
    [
        ("ab", "c2 d3", "abcd"),
        ("ab", "c15 d16", "-----cd"),  # entries without records are worth no gap
        ("ab", "c5 d6", "-----cd"),
        ("abC", "c5 d6", "abcd"),
        ("", "c0", "c"),
    ],
)
def test_walk_over_a_log_that_has_lost_its_begin(walk: Walk, before: str, fed: str, after: str) -> None:
    """Entries of records that have expired stay, as long as the others follow them."""
    queue = walk.fill(before)
    rebuild = walk.rebuild(offset_of("c"), is_whole_log=True)
    for one in records(fed):
        rebuild.feed(one)
    rebuild.finish(FAR)
    assert (letters_of(queue), rebuild.broken) == (after, set())


def test_walk_leaves_other_queues_alone(walk: Walk) -> None:
    """Those that it is not limited to, those to skip, and those of topics that were deleted."""
    skipped, other, one = (walk.fill("aB", topic) for topic in "TUV")
    walk.queues.known_topics = frozenset("TUV")
    rebuild = walk.rebuild()
    rebuild.limit_to([one, skipped])
    rebuild.skip([skipped])
    for topic in "TUVW":
        assert rebuild.feed(record("a", 0, topic=topic)).topic == topic
        rebuild.feed(record("b", 1, topic=topic))
    rebuild.finish(FAR)
    assert [letters_of(queue) for queue in (one, other, skipped)] == ["ab", "aB", "aB"]
    assert (rebuild.broken, len(list(walk.queues))) == ({skipped}, 3)


def test_each_queue_ends_by_itself(walk: Walk) -> None:
    """One whose record did not come is reported; another one behind it is written and cut."""
    broken, other = walk.fill("cd"), walk.fill("xy", "U")
    rebuild = walk.rebuild()
    rebuild.feed(record("a", 0))
    rebuild.finish(FAR)
    assert (rebuild.broken, letters_of(broken), letters_of(other)) == ({broken}, "cd", "")


def test_record_has_the_queue_that_its_entry_went_to(walk: Walk) -> None:
    """Prepared records have none; the records of a topic that keeps batches have one of the other kind."""
    rebuild = walk.rebuild()
    assert rebuild.feed(record("a", 0)).queue is walk.queues.get("T", 0)
    assert rebuild.feed(record("b", 1, sys_flag=TRANSACTION_PREPARED)).queue is None
    assert rebuild.feed(batch_record("c0x1")).queue is walk.queues.batches.obtain("B", 0)
    rebuild.finish(FAR)
    assert [letters_of(queue) for queue in walk.queues] == ["a"]


def test_delayed_message_keeps_the_time_of_other_levels(walk: Walk) -> None:
    """Whole seconds apart from the one that its level gives now; another time is damage."""
    due_at_ms = offset_of("a") + 1_000
    for known, left in [(due_at_ms + 4_000, due_at_ms + 4_000), (due_at_ms + 4_001, due_at_ms)]:
        new = record("a", 0, topic=SCHEDULE_TOPIC, property_text=b"DELAY\x011\x02")
        queue = walk.queues.obtain(SCHEDULE_TOPIC, 0)
        queue.remove()
        queue.pending += ENTRY.pack(offset_of("a"), len(new), known)
        queue.write_pending()
        rebuild = walk.rebuild()
        rebuild.feed(new)
        rebuild.finish(FAR)
        assert queue.entry(0) == (offset_of("a"), len(new), left)


CODES = [
    (b"", 0),
    (b"KEYS\x01k\x02", 0),
    (b"TAGS\x01t\x02", tags_code("t")),
    (b"TAGS\x01t", tags_code("t")),
    (b"A\x01b\x02TAGS\x01tag\x02C\x01d", tags_code("tag")),
    (b"A\x01b\x02TAGS\x01tag", tags_code("tag")),
    (b"TAGS\x01\x02", 0),
    ("TAGS\x01t\u00e4g".encode(), tags_code("t\u00e4g")),
    (b"TAGS\x01\xff\x02", tags_code("\ufffd")),
    (b"TAGS\x01a\x02TAGS\x01b\x02", None),
    (b"XTAGS\x01a\x02", None),
    (b"K\x01TAGS\x01a\x02", None),
    (b"DELAY\x011\x02", None),
    (b"DELAY\x011\x02TAGS\x01t\x02", None),
    (b"TAGS\x01t\x02DELAY\x011\x02", None),
]


@pytest.mark.parametrize(("text", "code"), CODES)
def test_entry_is_confirmed_by_its_code(walk: Walk, text: bytes, code: int | None) -> None:
    """Without decoding the record, unless that is what it takes; an address stands for any code."""
    said = code if code is not None else tags_code("a")
    new = record("b", 1, property_text=text)
    codes = {said: code is not None, said + 1: False, LAST_ADDRESS: code is not None, LAST_ADDRESS + 1: False}
    for known, is_confirmed in codes.items():
        queue = walk.fill("a")
        queue.pending += ENTRY.pack(offset_of("b"), len(new), known)
        queue.write_pending()
        rebuild = walk.rebuild()
        rebuild.feed(record("a", 0))
        assert rebuild.confirm(offset_of("b"), new) is is_confirmed
        queue.remove()


def test_unusual_records_are_not_confirmed(walk: Walk) -> None:
    """Those without an entry, with long topics or hosts; those of another place, queue, or length."""
    long_topic = "T" * 130
    for topic in ("T", long_topic):
        walk.fill("ab", topic)
    rebuild = walk.rebuild()
    assert not rebuild.confirm(offset_of("a"), record("a", 0))  # of a queue that the walk does not know yet
    for topic in ("T", long_topic):
        rebuild.feed(record("a", 0, topic=topic))
    usual = record("b", 1)
    others = [
        record("b", 1, sys_flag=TRANSACTION_PREPARED), record("b", 1, topic=long_topic),
        record("b", 1, born_host=HOST[:4] * 4 + HOST[4:]), record("b", 1, topic="U"), record("b", 1, queue_id=1),
        record("b", 1, body=b"1"), record("b", 0), record("c", 1),
    ]  # fmt: skip
    assert others[2][36 + 3] & HOSTS_V6
    assert [rebuild.confirm(int.from_bytes(one[28:36]), one) for one in others] == [False] * len(others)
    assert rebuild.confirm(offset_of("b"), usual)
    assert not rebuild.confirm(offset_of("b"), usual)
    commit = walk.rebuild()
    commit.feed(record("a", 0))
    assert commit.confirm(offset_of("b"), record("b", 1, sys_flag=TRANSACTION_COMMIT))


PLACE = (b"T", 0)


def run(letters: str) -> memoryview:
    """Return consecutive entries."""
    return memoryview(b"".join(map(entry, letters)))


def test_run_of_entries_is_confirmed_as_far_as_it_is_there(walk: Walk) -> None:
    """From where the walk is in the queue, over the ends of files; the rest is looked at one by one."""
    queue = walk.fill("abcdefghijklmnop")
    rebuild = walk.rebuild()
    assert rebuild.confirm_run(PLACE, 0, run("a")) == 0  # no record of it was fed yet
    rebuild.feed(record("a", 0))
    assert [rebuild.confirm_run(PLACE, at, run("bc")) for at in (0, 2, 3)] == [0, 0, 0]
    assert rebuild.confirm_run(PLACE, 1, run("bc")) == 2
    assert rebuild.confirm_run(PLACE, 3, run("")) == 0
    assert rebuild.confirm_run(PLACE, 3, run("defghijkLm")) == 7  # to the end of the file
    assert rebuild.confirm_run(PLACE, 10, run("kL")) == 0
    assert rebuild.confirm_run(PLACE, 10, run("klmnopqr")) == 6
    assert rebuild.confirm_run(PLACE, 16, run("qr")) == 0
    assert rebuild.append_run(PLACE, 16, run("q"))
    assert rebuild.confirm_run(PLACE, 17, run("r")) == 0  # what waits to be written is not compared
    assert rebuild.append_run(PLACE, 17, run("r"))
    rebuild.finish(FAR)
    assert letters_of(queue) == "abcdefghijklmnopqr"


def test_run_of_entries_is_appended_behind_the_last_one_only(walk: Walk) -> None:
    """Not before it, behind a gap, in a queue that the walk does not know, nor while a slot waits for its record."""
    walk.fill("abc")
    rebuild = walk.rebuild()
    assert not rebuild.append_run(PLACE, 0, run("a"))
    rebuild.feed(record("a", 0))
    assert not rebuild.append_run(PLACE, 1, run("bc"))
    assert rebuild.confirm_run(PLACE, 1, run("bc")) == 2
    assert [rebuild.append_run(PLACE, at, run("d")) for at in (2, 4, 3, 3)] == [False, False, True, False]
    rebuild.finish(FAR)
    assert letters_of(walk.queues.obtain("T", 0)) == "abcd"


def test_run_waits_for_the_record_of_the_slot(walk: Walk) -> None:
    """Entries of an older numbering are not taken for those of the one that follows."""
    queue = walk.fill("cde")
    rebuild = walk.rebuild()
    rebuild.feed(record("a", 0))
    assert rebuild.confirm_run(PLACE, 0, run("cde")) == 0
    assert not rebuild.confirm(offset_of("c"), record("c", 0))
    rebuild.feed(record("c", 0))
    assert rebuild.confirm_run(PLACE, 1, run("de")) == 2
    rebuild.finish(FAR)
    assert (letters_of(queue), rebuild.broken) == ("cde", set())


def test_runs_of_queues_that_are_left_alone_are_taken_unseen(walk: Walk) -> None:
    """Of a queue that is left to another walk; not of those without entries, and not of batch queues."""
    one, skipped, left_out = (walk.fill("a", topic) for topic in "TUV")
    walk.fill_batches("a0x1")
    rebuild = walk.rebuild()
    rebuild.skip([skipped])
    assert [rebuild.confirm_run((name, 0), 0, run("xyz")) for name in (b"T", b"U", b"V")] == [0, 3, 0]
    rebuild.limit_to([one, skipped])
    found = [rebuild.confirm_run((name, 0), 0, run("xyz")) for name in (b"T", b"U", b"V", b"W", b"B")]
    assert found == [0, 3, 3, 0, 0]
    rebuild.finish(FAR)
    assert [letters_of(queue) for queue in (one, skipped, left_out)] == ["", "a", "a"]


def test_broken_queue_is_left_to_another_walk(walk: Walk) -> None:
    """Whatever follows for it is taken unseen."""
    queue = walk.fill("ab")
    rebuild = walk.rebuild(offset_of("c"))
    rebuild.feed(record("c", 3))
    assert rebuild.broken == {queue}
    assert rebuild.confirm_run(PLACE, 4, run("de")) == 2
    assert not rebuild.confirm(offset_of("d"), record("d", 4))
    assert not rebuild.append_run(PLACE, 2, run("d"))
    rebuild.finish(FAR)
    assert letters_of(queue) == "ab"


@pytest.mark.parametrize("is_in_runs", [False, True])
def test_what_is_collected_is_written_now_and_then(
    tmp_path: pathlib.Path, descriptors: Descriptors, *, is_in_runs: bool
) -> None:
    """Each 64 KiB: a queue that is written anew from a long log is not kept in memory."""
    walk = Walk(tmp_path, descriptors, queue_file_bytes=1 << 20)
    queue = walk.queues.obtain("T", 0)
    rebuild = walk.rebuild()
    rebuild.feed(record("a", 0))
    for number in range(1, 3277):
        assert queue.max_offset == 0
        if is_in_runs:
            assert rebuild.append_run(PLACE, number, run("b"))
        else:
            rebuild.feed(record("b", number))
    assert (queue.max_offset, queue.pending) == (3277, b"")
    rebuild.feed(record("c", 3277))
    rebuild.finish(FAR)
    assert (queue.max_offset, queue.next_offset) == (3278, 3278)


NINE = "a0x2 b2x1 c3x1 d4x3 e7x1 f8x1 g9x2 h11x1 i12x1"
BATCHES = [
    ("a0x2 b2x1", "", "a0x2 b2x1", "a0x2 b2x1"),
    ("", "", "a0x2 b2x1", "a0x2 b2x1"),
    ("a0x2 b2x1 c3x1", "", "a0x2 b2x1", "a0x2 b2x1"),
    ("a0x2 b2x1", "", "", ""),
    ("A0x2 b2x1", "", "a0x2 b2x1", "a0x2 b2x1"),
    (NINE, "", NINE, NINE),
    (NINE.replace("f", "F"), "", NINE, NINE),
    (NINE[:29], "", NINE, NINE),
    ("", "", "a5x2 b9x1", "a5x2 b9x1"),  # each stands where it says
    ("a0x2 b2x1", "", "a0x2 b7x1", "a0x2 b7x1"),
    ("a0x2 b2x1", "", "a0x2 b2x1 c0x1 d1x2", "c0x1 d1x2"),  # a new numbering
    ("c0x1 d1x2", "", "a0x2 b2x1 c0x1 d1x2", "c0x1 d1x2"),
    ("", "", "a3x1 b2x1", "b2x1"),
    ("A0x2 b2x1 c3x1", "c", "c3x1 d4x2", "A0x2 b2x1 c3x1 d4x2"),  # what is before the start is trusted
    (NINE.replace("a", "A"), "f", NINE[NINE.index("f") :], NINE.replace("a", "A")),
    ("a0x2 b2x1 c3x1", "c", "", "a0x2 b2x1"),
    ("a0x2 d2x1 0 0 k9x1", "c", "", "a0x2"),
    ("", "c", "c0x1", "c0x1"),
]


@pytest.mark.parametrize(("before", "start", "fed", "after"), BATCHES)
def test_walk_over_batches(walk: Walk, before: str, start: str, fed: str, after: str) -> None:
    """A batch queue has one unit for each record, at the offset that the record names."""
    queue = walk.fill_batches(before)
    rebuild = walk.rebuild(offset_of(start) if start else 0)
    for text in fed.split():
        assert rebuild.feed(batch_record(text)).queue is queue
    rebuild.finish(end_of(fed, start))
    assert (units_of(queue), rebuild.batches.broken) == (list(map(unit, after.split())), set())
    first, last = (UNIT.unpack(unit(after.split()[at])) if after else (0, 0, 0, 0, -1, 1) for at in (0, -1))
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (first[4], last[4] + last[5], last[4] + last[5])
    for again in walk.load().batches:
        assert units_of(again) == units_of(queue)


@pytest.mark.parametrize(
    ("before", "start", "fed"),
    [("", "b", "b1x1"), ("a0x2", "c", "c3x1 d4x1"), ("a0x2 B2x1 c3x1", "b", "b2x1 c4x1"), ("a0x2", "c", "c5x1 d0x1")],
)
def test_walk_that_lacks_batches_before_its_start(walk: Walk, before: str, start: str, fed: str) -> None:
    """The queue is reported and left alone."""
    queue = walk.fill_batches(before)
    rebuild = walk.rebuild(offset_of(start))
    for text in fed.split():
        rebuild.feed(batch_record(text))
    rebuild.finish(FAR)
    assert (units_of(queue), rebuild.batches.broken) == (list(map(unit, before.split())), {queue})


@pytest.mark.parametrize("is_skipped", [True, False])
def test_walk_leaves_other_batch_queues_alone(walk: Walk, *, is_skipped: bool) -> None:
    """Those to skip, or all that it is not limited to."""
    queue = walk.fill_batches("a0x2 B2x1")
    other = walk.queues.batches.obtain("B", 1)
    rebuild = walk.rebuild()
    if is_skipped:
        rebuild.batches.skip([queue])
    else:
        rebuild.batches.limit_to({other})
    rebuild.feed(batch_record("a0x2"))
    rebuild.feed(batch_record("b2x1"))
    rebuild.feed(batch_record("c0x1"))
    rebuild.feed(record("a", 0, topic="B", queue_id=1))
    rebuild.finish(FAR)
    assert units_of(queue) == [unit("a0x2"), unit("B2x1")]
    assert other.max_offset == 1


def test_collected_batches_are_written_now_and_then(tmp_path: pathlib.Path, descriptors: Descriptors) -> None:
    """Each 64 KiB, compared with what is there before."""
    walk = Walk(tmp_path, descriptors, batch_file_bytes=BATCH_UNIT_BYTES << 12)
    queue = walk.queues.batches.obtain("B", 0)
    for turn in range(2):
        rebuild = walk.rebuild()
        for number in range(1425):
            assert queue.max_offset == 1426 * turn
            rebuild.feed(batch_record(f"a{number}x1"))
        assert queue.max_offset == (1426 if turn else 1425)
        rebuild.feed(batch_record("a1425x1"))
        rebuild.finish(FAR)
        assert (queue.slots.max_offset, queue.max_offset, queue.next_offset) == (1426, 1426, 1426)


def test_new_numbering_of_batches_whose_first_files_are_gone(walk: Walk) -> None:
    """What is left of the old one goes as a whole."""
    queue = walk.fill_batches(NINE)
    for path in queue.slots.drop_head(4 * BATCH_UNIT_BYTES, 4):
        pathlib.Path(path).unlink()
    rebuild = walk.rebuild(offset_of("i"))
    for text in ("i12x1", "j0x1", "k1x2"):
        rebuild.feed(batch_record(text))
    rebuild.finish(FAR)
    assert units_of(queue) == [unit("j0x1"), unit("k1x2")]
    assert (queue.min_offset, queue.max_offset) == (0, 3)
