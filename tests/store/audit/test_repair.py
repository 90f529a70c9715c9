"""Damaged stores are sound after a repair, and keep everything before the damage."""

import os
import pathlib
from collections.abc import Callable

import pytest
from damage import audit, cut_short, flip, record_start
from stores import GoldenStore, StoreDirectory, read_all, sample
from syncs import NamedFiles, RecordedSyncs

from rocketlet.common.errors import ConfigError
from rocketlet.store.audit.repair import RepairPlan, apply_repair, plan_repair, reopen, save_cut
from rocketlet.store.audit.store_audit import StoreAudit

Damage = Callable[[StoreDirectory], None]


def plan(directory: StoreDirectory) -> RepairPlan:
    """Audit and plan."""
    found = StoreAudit(directory.config)
    found.run()
    return plan_repair(found)


def mend(directory: StoreDirectory) -> None:
    """Repair as the command does."""
    apply_repair(plan(directory))
    reopen(directory.config, lambda: directory.now_ms)


def numbers(directory: StoreDirectory) -> list[int]:
    """Return the numbers of the messages that a consumer of all queues gets."""
    with directory.open() as store:
        return sorted(int(body[:6]) for messages in read_all(store).values() for _, body in messages)


def flip_body(directory: StoreDirectory) -> None:
    """Damage message 40."""
    start = record_start(directory, 40)
    flip(directory.segment(start // 4096), start % 4096 + 90)


DAMAGES: dict[str, tuple[Damage, int]] = {
    "body": (flip_body, 40),
    "short file": (lambda one: cut_short(one.segment(2)), 40),
    "missing file": (lambda one: one.segment(2).unlink(), 32),
    "garbage": (lambda one: flip(one.segment(4), 4000), 80),
    "queue entry": (lambda one: flip(one.queue_file(number=1), 47), 80),
    "short queue": (lambda one: cut_short(one.queue_file(number=1)), 80),
    "gap in queue": (lambda one: one.queue_file(number=1).unlink(), 80),
    "stray in queue": (lambda one: (one.queue_file().parent / "stray").touch(), 80),
    "index": (lambda one: flip(sorted((one.root / "index").iterdir())[3], 400), 80),
    "short index": (lambda one: cut_short(sorted((one.root / "index").iterdir())[3]), 80),
    "checkpoint": (lambda one: flip(one.root / "checkpoint", 1), 80),
}


@pytest.mark.parametrize(("damage", "kept"), DAMAGES.values(), ids=DAMAGES)
def test_repaired_store_is_sound_and_keeps_what_lies_before_the_damage(
    directory: StoreDirectory, damage: Damage, kept: int
) -> None:
    """Queues and index are written anew from the log, which is cut at its first damage; messages can be added."""
    directory.fill(80)
    damage(directory)
    assert not audit(directory).is_sound
    mend(directory)
    assert audit(directory).lines()[-1] == "sound"
    assert numbers(directory) == list(range(kept))
    with directory.open() as store:
        store.append(sample(kept))
        store.commit()
    assert numbers(directory) == list(range(kept + 1))
    assert audit(directory).is_sound


def test_repair_makes_the_next_start_walk_the_whole_log(directory: StoreDirectory) -> None:
    """With an ``abort`` that is empty and without a checkpoint, whether there was one or not."""
    directory.fill(20)
    flip(directory.queue_file(), 0)
    for _ in range(2):
        apply_repair(plan(directory))
        assert directory.abort.read_bytes() == b""
        assert not (directory.root / "checkpoint").exists()


def test_repair_is_on_disk_and_leaves_nothing_open(directory: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """Neither of what it cuts, corrects and writes anew, nor of what it copies before."""
    directory.fill(6, topic="Old")
    directory.fill(60)
    directory.segment().unlink()
    flip(directory.queue_file("Old"), 20)
    data = directory.segment(1).read_bytes()
    flip(directory.segment(1), data.index(b"\xcb\xd4\x31\x94") - 1)
    flip(directory.segment(2), directory.segment(2).read_bytes().rindex(b"\xda\xa3\x20\xa7"))
    found, disk, saved = plan(directory), RecordedSyncs(), tmp_path / "saved"
    assert (len(found.cut_files), len(found.report.wrong_blanks)) == (3, 1)
    save_cut(found, str(saved), disk)
    names = [f"{4096 * number:020d}" for number in range(2, 5)]
    assert disk.synced == [*(f"{saved}/commitlog/{name}" for name in names), f"{saved}/commitlog/"]
    disk.synced.clear()
    apply_repair(found, disk)
    queue = ["consumequeue/Old/0/00000000000000000000", "consumequeue/Old/0/"]
    logs = [f"commitlog/{4096 * number:020d}" for number in (1, 2)]
    assert disk.synced == ["/", *logs, "commitlog/", *queue]
    assert disk.opened == {}


def test_plan_says_what_is_lost(directory: StoreDirectory) -> None:
    """The plan names the place, the bytes, the sound records behind the damage and the files."""
    directory.fill(80)
    start = record_start(directory, 40)
    flip_body(directory)
    lines = plan(directory).lines()
    assert lines[0].startswith(f"cut the log at {start}: ")
    assert "with 39 sound records behind the damage" in lines[0]
    assert str(directory.segment(start // 4096)) in lines[0]
    assert str(directory.segment(0)) not in lines[0]


def test_sound_store_needs_no_repair(directory: StoreDirectory) -> None:
    """Nothing is planned for a sound store."""
    directory.fill(5)
    found = plan(directory)
    assert found.is_empty
    assert found.lines() == ["nothing to repair"]


def test_cut_can_be_saved(directory: StoreDirectory, tmp_path: pathlib.Path) -> None:
    """The files that lose something are copied as they are, into a folder that holds nothing yet."""
    directory.fill(80)
    flip_body(directory)
    found = plan(directory)
    before = {pathlib.Path(one.path).name: pathlib.Path(one.path).read_bytes() for one in found.cut_files}
    save_cut(found, str(tmp_path / "saved"))
    saved = {path.name: path.read_bytes() for path in (tmp_path / "saved" / "commitlog").iterdir()}
    assert saved == before
    assert len(saved) == 3
    with pytest.raises(ConfigError, match="not empty"):
        save_cut(found, str(tmp_path / "saved"))


@pytest.mark.parametrize("room", [0, 1_000, 4_096, 12_000])
def test_cut_that_finds_no_room_is_not_saved(directory: StoreDirectory, tmp_path: pathlib.Path, room: int) -> None:
    """Nobody relies on half a copy; nothing of it stays open."""
    directory.fill(80)
    flip_body(directory)
    disk = NamedFiles()
    disk.room = room
    with pytest.raises(ConfigError, match="saved cannot be written: No space left on device"):
        save_cut(plan(directory), str(tmp_path / "saved"), disk)
    assert disk.opened == {}


def test_queue_without_records_keeps_its_numbering(directory: StoreDirectory) -> None:
    """The offsets of consumers stay right: a queue whose records have all expired goes on where it was."""
    directory.fill(6, topic="Old")
    directory.fill(60)
    directory.segment().unlink()
    flip(directory.queue_file("Old"), 20)
    assert audit(directory).totals == {"queue": 1}
    mend(directory)
    assert audit(directory).lines()[-1] == "sound"
    with directory.open() as store:
        assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (2, 2)


@pytest.mark.parametrize("count", [1, 9, 10, 11, 20])
def test_numbering_goes_on_wherever_in_a_file_it_stood(directory: StoreDirectory, count: int) -> None:
    """At the end of a file, before it, and behind it; the next message gets the next offset."""
    directory.fill(count, queues=1, topic="Old")
    with directory.open() as store:
        files = -(-store.log_max_offset // 4096)
    directory.fill(60)
    for number in range(files):
        directory.segment(number).unlink()
    flip(directory.queue_file("Old"), 0)
    lines = plan(directory).lines()
    old = f"{directory.root}/consumequeue/Old/0"
    assert lines[0] == f"{old}: write the queue anew from the log; no record is left, it goes on at {count}"
    mend(directory)
    assert audit(directory).lines()[-1] == "sound"
    (name,) = os.listdir(old)
    assert int(name) == (count - 1) // 10 * 200
    with directory.open() as store:
        assert (store.min_offset("Old", 0), store.max_offset("Old", 0)) == (count, count)
        assert store.append(sample(0, "Old", 1)).queue_offset == count


def test_wrong_blank_is_corrected(directory: StoreDirectory) -> None:
    """The blank at the end of a file names its own length; nothing is cut for it."""
    directory.fill(60)
    data = bytearray(directory.segment().read_bytes())
    flip(directory.segment(), data.index(b"\xcb\xd4\x31\x94") - 1)
    mend(directory)
    assert directory.segment().read_bytes() == data
    assert audit(directory).is_sound


def test_stray_file_in_the_log_is_left_to_people(directory: StoreDirectory) -> None:
    """What somebody has put into the log is not removed."""
    directory.fill(5)
    stray = directory.segment().parent / "backup.tar"
    stray.write_text("mine")
    with pytest.raises(ConfigError, match=str(stray)):
        plan(directory)
    assert stray.exists()


def test_broken_config_file_gives_way_to_its_backup(directory: StoreDirectory) -> None:
    """The older text takes the place of the one that cannot be parsed."""
    directory.fill(5)
    config = directory.root / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable":')
    (config / "topics.json.bak").write_text("{}")
    mend(directory)
    assert [(path.name, path.read_text()) for path in config.iterdir()] == [("topics.json", "{}")]
    assert audit(directory).is_sound


def test_broken_config_file_without_backup_is_left(directory: StoreDirectory) -> None:
    """Nobody knows what it said: the plan says that it stays as it is, and what to do."""
    directory.fill(5)
    path = directory.root / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text("{")
    assert [line for line in plan(directory).lines() if line.startswith(f"{path}: not repaired: ")]


def test_short_file_gets_its_size_back(directory: StoreDirectory) -> None:
    """A last file that lost only bytes never written is named in the plan, and nothing is lost."""
    directory.fill(60)
    last = max(directory.segment().parent.iterdir())
    os.truncate(last, len(last.read_bytes().rstrip(b"\x00")) + 200)
    assert plan(directory).lines()[0] == f"{last}: give it its full size of 4096 bytes again"
    mend(directory)
    assert last.stat().st_size == 4096
    assert numbers(directory) == list(range(60))


def test_queues_of_a_lost_log_are_removed(directory: StoreDirectory) -> None:
    """Without a file of the log nothing is left to read; the plan says that the queues go."""
    directory.fill(6)
    directory.segment().unlink()
    found = plan(directory)
    queue = directory.queue_file("T").parent
    assert f"{queue}: remove the queue, nothing of the log is left" in found.lines()
    mend(directory)
    with directory.open() as store:
        assert list(store.queues()) == []


def test_store_of_another_format_is_not_touched(directory: StoreDirectory) -> None:
    """Queues in RocksDB are no broken queues: neither check nor repair begins."""
    directory.fill(5)
    (directory.root / "consumequeue" / "CURRENT").write_text("")
    with pytest.raises(ConfigError, match="storeType=defaultRocksDB"):
        plan(directory)


def test_wrong_batch_queue_is_written_anew(vectors: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """The units of a batch queue follow from the log, too, and become what the Java broker wrote."""
    directory = GoldenStore.unpack(vectors, "batchcrc", tmp_path).directory
    (path,) = (directory.root / "batchconsumequeue" / "InnerBatch" / "0").iterdir()
    sound = path.read_bytes()
    flip(path, 46 + 11)
    mend(directory)
    assert path.read_bytes() == sound
    assert audit(directory).lines()[-1] == "sound"
