"""Topics whose queues count by messages: 46-byte units, inner batches, reading, times, recovery."""

import json
import pathlib
import shutil
import struct

import pytest
from stores import GoldenStore, LimitedFiles, StoreDirectory, file_bytes, new_record

from rocketlet.common.errors import ConfigError, MessageIllegalError, StoreFullError
from rocketlet.common.record import BatchPart, NewRecord, decode_record, encode_batch
from rocketlet.store.consumequeue.batch_queue import INNER_BATCH_FLAGS, UNIT
from rocketlet.store.consumequeue.queue_reader import ReadLimits, ReadStatus
from rocketlet.store.files.store_config import BATCH_KEY, BATCH_UNIT_BYTES
from rocketlet.store.message_store import MessageStore
from rocketlet.store.recovery import recovery

UNIT_FILE = 4 * BATCH_UNIT_BYTES
TOPIC = "B"


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return a store directory whose topics.json says that the topic keeps batches."""
    made = StoreDirectory(tmp_path / "store", batch_file_bytes=UNIT_FILE)
    write_topics(made.root, {TOPIC: "BatchCQ", "T": "SimpleCQ"})
    return made


def write_topics(root: pathlib.Path, kinds: dict[str, str]) -> None:
    """Write a topics.json that tells the kinds of queues."""
    (root / "config").mkdir(parents=True, exist_ok=True)
    table = {name: {"topicName": name, "attributes": {"queue.type": kind}} for name, kind in kinds.items()}
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def inner_batch(count: int, topic: str = TOPIC, **properties: str) -> NewRecord:
    """Return a batch of so many messages as a sender hands it over."""
    body = encode_batch(BatchPart(number, b"part%d" % number, b"") for number in range(count))
    record = new_record(topic, 0, body, UNIQ_KEY="U", **properties)
    record.sys_flag |= INNER_BATCH_FLAGS
    return record


def put(store: MessageStore, *records: NewRecord) -> list[int]:
    """Store records, each with a commit of its own; return their queue offsets."""
    offsets: list[int] = []
    for record in records:
        offsets.append(store.append(record).queue_offset)
        store.commit()
    return offsets


def units_on_disk(root: pathlib.Path) -> list[tuple[int, ...]]:
    """Return the units of the queue's files."""
    folder = root / "batchconsumequeue" / TOPIC / "0"
    data = b"".join(path.read_bytes() for path in sorted(folder.iterdir()))
    return [unit for unit in struct.iter_unpack(UNIT.format, data) if unit[1]]


def test_unit_has_46_bytes() -> None:
    """The layout is Java's."""
    assert UNIT.size == BATCH_UNIT_BYTES


def test_offsets_count_messages(directory: StoreDirectory) -> None:
    """A batch takes as many queue offsets as it has messages, another record one; each is one unit."""
    with directory.open() as store:
        assert put(store, inner_batch(3), new_record(TOPIC), inner_batch(2)) == [0, 3, 4]
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (0, 6)
    assert [(unit[4], unit[5], unit[6], unit[7]) for unit in units_on_disk(directory.root)] == [
        (0, 3, -1, 0),
        (3, 1, -1, 0),
        (4, 2, -1, 0),
    ]
    assert not (directory.root / "consumequeue").exists()


def test_record_of_a_batch_says_count_and_first_offset(directory: StoreDirectory) -> None:
    """INNER_NUM and INNER_BASE stand in the stored properties, also when the batch goes to the next log file."""
    with directory.open() as store:
        put(store, *(new_record(TOPIC, 0, b"x" * 900) for _ in range(4)), inner_batch(40))
        result = store.read(TOPIC, 0, 4, ReadLimits())
        record = decode_record(result.records[0])
        assert record.log_offset == directory.config.segment_bytes
        assert (record.properties["INNER_NUM"], record.properties["INNER_BASE"]) == ("40", "4")
        assert (record.queue_offset, record.sys_flag & 0xC0) == (4, 0xC0)


def test_batches_planned_together_follow_each_other(directory: StoreDirectory) -> None:
    """Records that wait for one commit get consecutive offsets."""
    with directory.open() as store:
        assert [store.append(inner_batch(2)).queue_offset for _ in range(3)] == [0, 2, 4]
        store.commit()
        assert store.max_offset(TOPIC, 0) == 6


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (inner_batch(2, topic="T"), "does not keep"),
        (inner_batch(2, INNER_NUM="3"), "INNER_NUM"),
        (inner_batch(0), "0 messages"),
        (inner_batch(32_768), "32768"),
    ],
    ids=["ordinary topic", "wrong count", "empty", "too many"],
)
def test_illegal_batches_are_refused(record: NewRecord, reason: str, directory: StoreDirectory) -> None:
    """A batch for an ordinary topic, or whose count is wrong, gets no place."""
    with directory.open() as store:
        with pytest.raises(MessageIllegalError, match=reason):
            store.append(record)
        assert put(store, inner_batch(2)) == [0]


def test_torn_body_is_no_batch(directory: StoreDirectory) -> None:
    """A body that is cut inside a message is refused."""
    record = inner_batch(2)
    record.body = record.body[:-1]
    with directory.open() as store, pytest.raises(MessageIllegalError):
        store.append(record)


@pytest.mark.parametrize(
    ("offset", "status", "following", "first"),
    [
        (0, ReadStatus.FOUND, 5, 0),
        (1, ReadStatus.FOUND, 5, 0),
        (3, ReadStatus.FOUND, 5, 3),
        (5, ReadStatus.OFFSET_OVERFLOW_ONE, 5, None),
        (9, ReadStatus.OFFSET_OVERFLOW_BADLY, 5, None),
    ],
)
def test_read_gives_whole_records(
    offset: int, status: ReadStatus, following: int, first: int | None, directory: StoreDirectory
) -> None:
    """A read from inside a batch returns all of it; the next read begins behind the last record."""
    with directory.open() as store:
        put(store, inner_batch(3), new_record(TOPIC), new_record(TOPIC))
        result = store.read(TOPIC, 0, offset, ReadLimits())
        assert (result.status, result.next_offset) == (status, following)
        assert [decode_record(one).queue_offset for one in result.records][:1] == ([] if first is None else [first])


def test_read_limits_count_messages(directory: StoreDirectory) -> None:
    """A batch that does not fit the limit of messages waits for the next read, unless it is the first."""
    with directory.open() as store:
        put(store, inner_batch(3), inner_batch(3), inner_batch(3))
        assert store.read(TOPIC, 0, 0, ReadLimits(6)).next_offset == 6
        assert store.read(TOPIC, 0, 0, ReadLimits(5)).next_offset == 3
        assert store.read(TOPIC, 0, 3, ReadLimits(1)).next_offset == 6


def test_filter_sees_the_code_of_the_record(directory: StoreDirectory) -> None:
    """Records whose tags code is not wanted are passed over."""
    with directory.open() as store:
        put(store, inner_batch(3), new_record(TOPIC, TAGS="tag0"))
        result = store.read(TOPIC, 0, 0, ReadLimits(), accepts=lambda code: code == 3552214)
        assert (result.next_offset, [decode_record(one).queue_offset for one in result.records]) == (4, [3])


def test_queue_of_several_files(directory: StoreDirectory) -> None:
    """Each file is read by itself, found by offset, and found again by the next start."""
    with directory.open() as store:
        put(store, *(inner_batch(1 + number % 3) for number in range(11)))
    with directory.open() as store:
        high = store.max_offset(TOPIC, 0)
        assert high == sum(1 + number % 3 for number in range(11))
        offset, seen = 0, list[int]()
        while offset < high:
            result = store.read(TOPIC, 0, offset, ReadLimits())
            seen += [decode_record(one).queue_offset for one in result.records]
            offset = result.next_offset
        assert seen == [unit[4] for unit in units_on_disk(directory.root)]
        assert len(list((directory.root / "batchconsumequeue" / TOPIC / "0").iterdir())) == 3
        assert store.stored_at(TOPIC, 0, high - 1) == directory.now_ms


def test_full_disk_gives_the_places_back(directory: StoreDirectory) -> None:
    """When the log has no room for a batch, its offsets are free again."""
    files = LimitedFiles()
    store = directory.open(files)
    put(store, inner_batch(3))
    store.append(inner_batch(5))
    files.room = 0
    with pytest.raises(StoreFullError):
        store.commit()
    files.room = None
    assert put(store, inner_batch(2)) == [3]
    directory.close_all()


def test_deleted_topic_begins_anew(directory: StoreDirectory) -> None:
    """Its units go, and it may get queues of the other kind."""
    with directory.open() as store:
        put(store, inner_batch(3))
        store.delete_topic(TOPIC)
        assert store.max_offset(TOPIC, 0) == 0
        assert not (directory.root / "batchconsumequeue" / TOPIC).exists()
        assert put(store, new_record(TOPIC)) == [0]
        with pytest.raises(ConfigError):
            store.set_batch_topics([TOPIC])


@pytest.mark.parametrize("kinds", [{TOPIC: "SimpleCQ"}, {TOPIC: "BatchCQ", "T": "BatchCQ"}])
def test_directory_of_the_other_kind_stops_the_start(kinds: dict[str, str], directory: StoreDirectory) -> None:
    """As it stops the Java broker; the message names the directory and the attribute."""
    with directory.open() as store:
        put(store, inner_batch(3), new_record("T"))
    write_topics(directory.root, kinds)
    with pytest.raises(ConfigError, match=r"consumequeue/.* cannot be used: .*queue\.type"):
        directory.open()


def test_wrong_size_setting_stops_the_start(directory: StoreDirectory) -> None:
    """Units files of another size than the setting are not damage."""
    with directory.open() as store:
        put(store, inner_batch(3))
    other = directory.copy("other", batch_file_bytes=2 * UNIT_FILE)
    with pytest.raises(ConfigError, match=BATCH_KEY):
        other.open()


@pytest.mark.parametrize("state", ["clean", "killed"])
@pytest.mark.parametrize(
    "damage", ["missing directory", "missing file", "short file", "wrong unit", "missing end", "unit behind the end"]
)
def test_damaged_queue_is_written_anew(damage: str, state: str, directory: StoreDirectory) -> None:
    """Whatever is wrong with the units, the next start writes those that the log says."""
    with directory.open() as store:
        put(store, *(inner_batch(1 + number % 3) for number in range(6)), new_record(TOPIC, TAGS="t"))
    good = units_on_disk(directory.root)
    _damage(directory.root / "batchconsumequeue", damage)
    if state == "killed":
        directory.abort.write_text("1")
    with directory.open() as store:
        assert units_on_disk(directory.root) == good
        assert put(store, inner_batch(2)) == [13]


def _damage(folder: pathlib.Path, damage: str) -> None:
    first, last = sorted(path for path in folder.rglob("*") if path.is_file())
    if damage == "missing directory":
        shutil.rmtree(folder)
    elif damage == "missing file":
        first.unlink()
    elif damage == "short file":
        first.write_bytes(first.read_bytes()[:100])
    elif damage == "missing end":
        last.write_bytes(bytes(UNIT_FILE))
    else:
        changed = bytearray((first if damage == "wrong unit" else last).read_bytes())
        if damage == "wrong unit":
            changed[BATCH_UNIT_BYTES + 30] ^= 1
            first.write_bytes(changed)
        else:
            struct.pack_into(UNIT.format, changed, 3 * BATCH_UNIT_BYTES, 1 << 40, 100, 0, 1, 99, 1, -1, 0)
            last.write_bytes(changed)


def test_java_units_are_written_anew_to_the_same_bytes(vectors: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Without ``batchconsumequeue/`` the units of a Java store come from the log, to Java's bytes."""
    java = GoldenStore.unpack(vectors, "batchcrc", tmp_path).directory
    before = file_bytes(java.root / "batchconsumequeue")
    shutil.rmtree(java.root / "batchconsumequeue")
    java.open()
    java.close_all()
    assert file_bytes(java.root / "batchconsumequeue") == before


def test_clean_start_walks_the_end_of_the_log_only(directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch queues alone tell how far the log goes: units before its last part are trusted as they are."""
    with directory.open() as store:
        put(store, *(inner_batch(40) for _ in range(20)))
    first = min((directory.root / "batchconsumequeue" / TOPIC / "0").iterdir())
    changed = bytearray(first.read_bytes())
    changed[19] ^= 1  # the tags code of the first unit
    first.write_bytes(changed)
    monkeypatch.setattr(recovery, "TAIL_BYTES", 4096)
    with directory.open() as store:
        assert first.read_bytes() == changed
        assert put(store, inner_batch(2)) == [800]
