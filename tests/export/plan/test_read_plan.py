import os
import pathlib

import pytest
from javastores import Read
from logbuilder import LogBuilder, make_place

from rocketlet.common.errors import ConfigError, StoreDamagedError, StoreError
from rocketlet.export.plan.read_plan import PlanOptions, check_stores, plan_stores


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
