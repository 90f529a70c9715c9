"""Recovery in blocks and recovery record by record are the same recovery."""

import pathlib
import random
import shutil
from collections.abc import Callable

import pytest
from damage import overwrite
from logbuilder import LogBuilder
from stores import StoreDirectory, file_bytes

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.common.ids import encode_host
from rocketlet.common.message import INNER_BATCH, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.store.commitlog.record_blocks import Block
from rocketlet.store.recovery import block_dispatch as blockdispatch
from rocketlet.store.recovery.queue_rebuild import ConsumeQueueRebuild

V6 = encode_host("fd00::1", 10911)
TOPICS = [
    "T",
    "Topic",
    "TopicWithALongerName",
    "%RETRY%" + "g" * 140,
    "Grüße",
    "SCHEDULE_TOPIC_XXXX",
    "TopicOf19Characters",
]
SEGMENT_BYTES = 32_768
TAGS = [
    b"",
    b"TAGS\x01tag1\x02",
    b"TAGS\x01seventeen-letters\x02",
    b"TAGS\x01\xc3\xa4\x02",
    b"TAGS\x01a\x02TAGS\x01b\x02",
]
ODD = [
    b"TAGS\x01",
    b"TAGS\x01\x02",
    b"TAGS\x01a\x02TAGS\x01b\x02",
    b"XTAGS\x01a\x02",
    b"DELAY\x012\x02TAGS\x01tag1\x02",
    b"TAGS\x01tag1\x02DELAY\x0117\x02",
    b"DELAY\x013",
    b"DELAY\x0118",
    b"DELAY\x010\x02",
    b"DELAY\x01\x02",
    b"DELAY\x01",
    b"DELAY\x01+2\x02",
    b"DELAY\x01007\x02",
    b"DELAY\x0199\x02",
    b"DELAY\x011x\x02",
    b"DELAY\x012\x02DELAY\x015\x02",
    b"DELAY\x012\x02XDELAY\x015\x02",
    b"TAGS\x01" + b"t" * 40,
]
Damage = Callable[[random.Random, pathlib.Path], None]


def build(folder: pathlib.Path, draw: random.Random, count: int) -> None:
    """Write a log of records of every kind, without queues."""
    log = LogBuilder(folder, SEGMENT_BYTES, first_file=draw.choice([0, 0, 3]))
    for number in range(count):
        extra = draw.choice([*TAGS * 4, *ODD])
        properties = b"UNIQ_KEY\x01ID%08d\x02KEYS\x01k%d all\x02" % (number, number) + extra
        flags = draw.choice([0, 0, 0, 0, 0, TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
        has_entry = flags in (0, TRANSACTION_COMMIT)
        host = draw.choice([V6, b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"])
        log.add(
            b"x" * draw.randrange(0, 200),
            topic=draw.choice(TOPICS),
            queue_id=draw.randrange(3),
            properties=properties,
            queue_offset=None if has_entry else 0,
            sys_flag=flags,
            store_host=host,
            born_host=draw.choice([V6, host]),
        )
        if number % 17 == 5:
            inner = encode_batch([BatchPart(0, b"body", b"")] * 2)
            log.add(inner, topic="Batches", properties={"INNER_NUM": "2"}, sys_flag=INNER_BATCH, queue_offset=number)
        if draw.random() < 0.05:
            log.roll()
    log.save()
    (folder / "batchconsumequeue" / "Batches").mkdir(parents=True)


def flip(draw: random.Random, path: pathlib.Path) -> None:
    """Change a written byte."""
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data.rstrip(b"\x00")) or 1)] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def zero_end(draw: random.Random, path: pathlib.Path) -> None:
    """Take away the end of what is written."""
    data = path.read_bytes()
    keep = draw.randrange(len(data.rstrip(b"\x00")) or 1)
    path.write_bytes(data[:keep] + bytes(len(data) - keep))


def scatter(draw: random.Random, path: pathlib.Path) -> None:
    """Overwrite a stretch."""
    data = bytearray(path.read_bytes())
    at = draw.randrange(len(data) - 60)
    data[at : at + 60] = draw.randbytes(60)
    path.write_bytes(data)


def leave(draw: random.Random, path: pathlib.Path) -> None:
    """Change nothing."""


def remove(draw: random.Random, path: pathlib.Path) -> None:
    """Remove the file."""
    path.unlink()


def outcome(directory: StoreDirectory) -> object:
    """Open and close; return the files, or why there is no store."""
    try:
        store = directory.open()
    except (StoreDamagedError, ConfigError) as error:
        return str(error).replace(str(directory.root), "")
    end = store.log_max_offset
    directory.close_all()
    content = file_bytes(directory.root)
    return end, {name: data for name, data in content.items() if not name.startswith(("abort", "checkpoint"))}


def open_both(directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> tuple[object, object]:
    """Open two copies, one record by record and one in blocks."""
    found: list[object] = []
    for name, small_bytes in (("single", 1 << 40), ("blocks", 0)):
        monkeypatch.setattr("rocketlet.store.recovery.recovery.SMALL_BYTES", small_bytes)
        twin = directory.copy(name)
        found.append(outcome(twin))
        twin.close_all()
        shutil.rmtree(twin.root)
    return found[0], found[1]


@pytest.mark.parametrize("damage", [leave, flip, zero_end, scatter, remove])
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index"])
@pytest.mark.parametrize("seed", range(2))
def test_recovery_in_blocks_is_recovery_by_records(
    directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch, damage: Damage, folder: str, seed: int
) -> None:
    """After damage to any kind of file every file is the same, byte for byte, or both refuse with the same words."""
    draw = random.Random(f"{folder}{damage.__name__}{seed}")
    directory = StoreDirectory(directory.root, segment_bytes=SEGMENT_BYTES, index_entries=400)
    build(directory.root, draw, 250)
    if folder == "commitlog":
        damage(draw, draw.choice(sorted((directory.root / folder).iterdir())))
    directory.abort.touch()
    single, blocks = open_both(directory, monkeypatch)
    assert blocks == single
    if folder == "commitlog" or isinstance(single, str):
        return
    monkeypatch.undo()
    directory.open()
    directory.close_all()
    damage(draw, draw.choice([path for path in sorted((directory.root / folder).rglob("*")) if path.is_file()]))
    if draw.random() < 0.5:
        directory.abort.touch()
    single, blocks = open_both(directory, monkeypatch)
    assert blocks == single


@pytest.mark.parametrize("known", range(3))
def test_records_that_name_the_same_place_leave_the_same_queue(
    directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """Whichever of them the queue leads to, it is the record behind the others that counts, however they are walked."""
    directory = StoreDirectory(directory.root, segment_bytes=SEGMENT_BYTES)
    log = LogBuilder(directory.root, SEGMENT_BYTES)
    log.add(topic="T", queue_offset=0)
    log.roll()
    for number in range(3):
        log.add(b"%d" % number, topic="T", queue_offset=1)
        log.add(b"next", topic="T", queue_offset=2)
        log.add(b"other", topic="U")
    log.save()
    directory.open()
    directory.close_all()
    for number in range(2):
        place = log.offsets[1 + 3 * known + number].to_bytes(8, "big")
        overwrite(directory.queue_file(), 20 + 20 * number, place)
    directory.abort.touch()
    single, blocks = open_both(directory, monkeypatch)
    assert blocks == single


def test_block_recovery_was_in_use(directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit that the test above moves decides: no block is made below it, and blocks are above it."""
    blocks: list[int] = []
    real = blockdispatch.rebuild_from_block

    def count(block: Block, rebuild: ConsumeQueueRebuild) -> None:
        blocks.append(len(block))
        real(block, rebuild)

    monkeypatch.setattr(blockdispatch, "rebuild_from_block", count)
    directory.fill(40)
    for small_bytes, expected in ((1 << 40, 0), (0, 40)):
        monkeypatch.setattr("rocketlet.store.recovery.recovery.SMALL_BYTES", small_bytes)
        blocks.clear()
        directory.open()
        directory.close_all()
        assert sum(blocks) == expected
