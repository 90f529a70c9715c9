import os
import pathlib

import pytest
from javastores import Read
from logbuilder import FIRST_MS, LogBuilder, make_place

from rocketlet.common.errors import ConfigError, StoreDamagedError, StoreError
from rocketlet.export.plan.read_plan import SPLIT_BYTES, PlanOptions, check_stores, plan_prefixes, plan_stores
from rocketlet.store.files.checkpoint import Checkpoint, save_checkpoint
from rocketlet.store.files.files import OS_FILES


def fill(log: LogBuilder, count: int = 60) -> str:
    """Write a log of several files and return its directory."""
    for _ in range(count):
        log.add(bytes(50))
    log.save()
    return str(log.root)


def test_splits_are_the_files_up_to_the_end(log: LogBuilder) -> None:
    """There is one split per file; the last ends where the log does, the others with a blank."""
    splits = plan_stores([fill(log)])
    assert [split.path for split in splits] == [str(path) for path in log.files()]
    assert [split.ends_in_blank for split in splits] == [True] * (len(splits) - 1) + [False]
    assert splits[-1].base_offset + splits[-1].stop == log.end
    assert sum(map(len, splits)) == log.end


def test_plan_keeps_the_end_that_it_found(log: LogBuilder, read: Read) -> None:
    """Records written after the plan are not read by it."""
    fill(log, 3)
    (split,) = plan_stores([str(log.root)])
    log.add(b"later")
    log.save()
    assert split.stop == log.offsets[-1]
    rows, _ = read(log.root)
    assert len(rows) == 4


def test_log_whose_first_files_are_gone_is_read(tmp_path: pathlib.Path, read: Read) -> None:
    """Files that retention deleted leave a log that begins later."""
    log = LogBuilder(tmp_path / "store", first_file=3)
    fill(log)
    assert plan_stores([str(log.root)])[0].base_offset == 3 * 4096
    assert [row["logOffset"] for row in read(log.root)[0]] == log.offsets


def test_commitlog_directory_itself_is_a_store(log: LogBuilder) -> None:
    """The directory with the files can be named, too."""
    root = fill(log)
    assert len(plan_stores([f"{root}/commitlog"])) == len(plan_stores([root]))


def test_foreign_and_empty_files_are_left_alone(log: LogBuilder) -> None:
    """What is not a segment does not disturb, nor does a last file of 0 bytes."""
    root = fill(log)
    planned = plan_stores([root])
    (log.root / "commitlog" / ".DS_Store").write_bytes(b"x")
    (log.root / "commitlog" / "backup").mkdir()
    (log.root / "commitlog" / f"{len(log.files()) * 4096:020d}").touch()
    assert plan_stores([root]) == planned


def test_missing_file_is_damage(log: LogBuilder) -> None:
    """A gap between files is named by the file behind it."""
    root = fill(log)
    log.files()[1].unlink()
    with pytest.raises(StoreDamagedError, match="a file between them is missing"):
        plan_stores([root])


@pytest.mark.parametrize("segment_bytes", [1024, 8192])
def test_wrong_segment_size_is_refused(log: LogBuilder, segment_bytes: int) -> None:
    """A size that the files do not have names Java's key."""
    with pytest.raises(ConfigError, match=f"4096 bytes, mappedFileSizeCommitLog is {segment_bytes}") as caught:
        plan_stores([fill(log)], PlanOptions(segment_bytes))
    assert caught.value.key == "mappedFileSizeCommitLog"


def test_file_of_another_size_is_refused(log: LogBuilder) -> None:
    """The sizes of files fit together and the setting; a file that was cut short is damage."""
    root = fill(log)
    with pytest.raises(ConfigError, match="4096 bytes, mappedFileSizeCommitLog is 8000"):
        plan_stores([root], PlanOptions(segment_bytes=8000))
    os.truncate(log.files()[1], 5000)
    with pytest.raises(ConfigError, match="4096 bytes, mappedFileSizeCommitLog is 5000"):
        plan_stores([root])


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ("nothing", "it does not exist"),
        ("directory", "it has no directory commitlog"),
        ("file", "it has no directory commitlog"),
        ("empty log", "holds no commit log file"),
    ],
)
def test_directory_without_a_log_is_refused(tmp_path: pathlib.Path, made: str, sentence: str) -> None:
    """What is not a store is said in one sentence, by the plan and by the check before it."""
    make_place(tmp_path / "place", made)
    for find in (plan_stores, check_stores):
        with pytest.raises(ConfigError, match=sentence):
            find([str(tmp_path / "place")])


def test_store_given_twice_is_refused(log: LogBuilder, tmp_path: pathlib.Path) -> None:
    """A store is not read twice, whatever its names."""
    (tmp_path / "link").symlink_to(fill(log))
    with pytest.raises(ConfigError, match="is given twice"):
        plan_stores([str(log.root), str(tmp_path / "link")])


def test_file_that_goes_away_is_one_sentence(log: LogBuilder) -> None:
    """A file that retention deletes, or that shrinks, between plan and reading is an error of the store."""
    first, second, *_ = plan_stores([fill(log)])
    os.unlink(first.path)
    with pytest.raises(StoreError, match="cannot be read: No such file"):
        first.open()
    os.truncate(second.path, 100)
    with pytest.raises(StoreError, match="it has 100 bytes and had 4096, somebody has cut it"):
        second.open()


def times_of(log: LogBuilder) -> list[int]:
    """Return the log offsets at which the files begin."""
    return [int(path.name) for path in log.files()]


@pytest.mark.parametrize(("late", "is_lost"), [(0, True), (1, False)])
def test_missing_file_of_a_killed_store_may_never_have_been(log: LogBuilder, late: int, is_lost: bool) -> None:
    """What lies behind it was flushed for certain up to the checkpoint; what was stored later may be left over."""
    fill(log)
    second = log.files()[2]
    first_behind = next(number for number, at in enumerate(log.offsets) if at >= int(second.name))
    log.files()[1].unlink()
    (log.root / "abort").touch()
    sure_at_ms = FIRST_MS + first_behind - late
    save_checkpoint(OS_FILES, str(log.root / "checkpoint"), Checkpoint(log_at_ms=sure_at_ms))
    plan = plan_prefixes([str(log.root)])
    assert len(plan.splits) == 1
    if is_lost:
        damage = plan.damages[str(log.root)]
        assert str(damage) == f"{second} does not follow {log.root}/commitlog/{0:020d}: a file between them is missing"
        assert (damage.path, damage.position) == (str(second), 0)
        assert not plan.ends
    else:
        assert not plan.damages
        assert plan.ends[str(log.root)][:2] == (f"{log.root}/commitlog/{0:020d}", 4_096)


def test_several_missing_files_are_each_told(log: LogBuilder) -> None:
    """With their sizes; all that is there is read."""
    fill(log, 150)
    files = log.files()
    for number in (1, 2, 4):
        files[number].unlink()
    plan = plan_prefixes([str(log.root)], PlanOptions(skips_damage=True))
    store, reason = str(log.root), "the file before it is missing"
    assert plan.missing == [(store, str(files[3]), 0, 8_192, reason), (store, str(files[5]), 0, 4_096, reason)]
    assert [split.base_offset // 4_096 for split in plan.splits] == [0, 3, *range(5, len(files))]
    assert plan.ends[store].path == str(files[-1])
    stopped = plan_prefixes([store])
    assert [split.base_offset for split in stopped.splits] == [0]
    assert stopped.damages[store].path == str(files[3])


@pytest.mark.parametrize("size", [100, 4_095])
def test_last_file_may_be_cut(log: LogBuilder, size: int) -> None:
    """As in a copy that did not end; another one may not, nor may a file be longer."""
    root = fill(log)
    assert len(plan_stores([root], PlanOptions(segment_bytes=4_096))) == len(log.files())
    os.truncate(log.files()[-1], size)
    plan = plan_prefixes([root])
    assert not plan.damages
    os.truncate(log.files()[0], 4_000)
    with pytest.raises(StoreDamagedError, match="has 4000 bytes instead of 4096: it was cut short"):
        plan_stores([root])


def test_damages_of_stores_are_told_apart(log: LogBuilder, tmp_path: pathlib.Path) -> None:
    """A store behind a damaged one is planned, and neither has the end of the other."""
    root = fill(log)
    log.files()[1].unlink()
    sound = LogBuilder(tmp_path / "sound")
    fill(sound, 5)
    plan = plan_prefixes([root, str(sound.root)])
    assert list(plan.damages) == [root]
    assert list(plan.ends) == [str(sound.root)]
    assert [split.store for split in plan.splits] == [root, str(sound.root)]


def test_spare_files_are_no_part_of_the_log(log: LogBuilder) -> None:
    """However many there are, and also where the store was killed."""
    root = fill(log)
    last = times_of(log)[-1]
    for number in range(1, 4):
        (log.root / "commitlog" / f"{last + number * 4096:020d}").write_bytes(bytes(4096))
    for _ in range(2):
        splits = plan_stores([root])
        assert splits[-1].base_offset == last
        assert splits[-1].stop == splits[-1].end == log.end - last
        (log.root / "abort").touch()


@pytest.mark.parametrize("sure", [0, 1])
def test_last_file_with_sure_records_is_looked_for(log: LogBuilder, sure: int) -> None:
    """Damage before it is met when it is read; behind it the first bad record is the end."""
    root = fill(log)
    first = next(number for number, at in enumerate(log.offsets) if at >= times_of(log)[2])
    (log.root / "abort").touch()
    save_checkpoint(OS_FILES, f"{root}/checkpoint", Checkpoint(log_at_ms=FIRST_MS + first - 1 + sure))
    path = log.files()[1]
    content = bytearray(path.read_bytes())
    bad = log.offsets[first - 1] - 4_096
    content[bad + 100] ^= 1  # of the body
    path.write_bytes(content)
    plan = plan_prefixes([root])
    assert not plan.damages or not sure
    if sure:
        assert sum(map(len, plan.splits)) == log.end


def test_splits_are_of_128_mebibytes() -> None:
    """Unless somebody wishes others; so says the option of Spark's source and that of the command."""
    assert PlanOptions().split_bytes == SPLIT_BYTES == 134_217_728
    assert not PlanOptions().skips_damage
