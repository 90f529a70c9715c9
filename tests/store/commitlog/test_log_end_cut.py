"""Opening with ``repairs``: what is cut, what is said, and what is left to the user."""

import shutil

import pytest
from stores import StoreDirectory, file_bytes, new_record, read_all

from rocketlet.common.errors import StoreDamagedError


def damage_middle(directory: StoreDirectory, number: int = 0) -> int:
    """Spoil a record of a file and return its position."""
    data = bytearray(directory.segment(number).read_bytes())
    start = data.find(b"\xda\xa3\x20\xa7", 1000) - 4
    data[start + 100] ^= 0x55
    directory.segment(number).write_bytes(data)
    return start


@pytest.mark.parametrize("is_clean", [True, False])
def test_repair_cuts_at_the_damage_and_says_what_is_lost(
    directory: StoreDirectory, caplog: pytest.LogCaptureFixture, is_clean: bool
) -> None:
    """The error names the way on; with ``repairs`` each file that loses bytes is named with their number."""
    directory.fill(60)
    if not is_clean:
        directory.abort.touch()
    start = damage_middle(directory)
    with pytest.raises(StoreDamagedError, match=f"`rocketlet store repair {directory.root}`"):
        directory.open()
    written = [len(directory.segment(number).read_bytes().rstrip(b"\x00")) for number in range(4)]
    caplog.clear()
    store = directory.open(repairs=True)
    assert store.log_max_offset == start
    before = read_all(store)
    assert 0 < sum(map(len, before.values())) < 12
    assert f"{directory.segment(0)}: truncating at position {start}, {written[0] - start} written bytes" in caplog.text
    for number in (1, 2, 3):
        assert f"{directory.segment(number)}: removing, {written[number]} written bytes" in caplog.text
        assert not directory.segment(number).exists()
    directory.close_all()
    store = directory.open()
    assert read_all(store) == before
    assert store.append(new_record("T", 0)).queue_offset == len(before["T", 0])


def test_repair_of_a_sound_store_changes_nothing(directory: StoreDirectory) -> None:
    """With nothing to repair the start is an ordinary one."""
    directory.fill(60)
    before = file_bytes(directory.root / "commitlog")
    with directory.open(repairs=True) as store:
        messages = read_all(store)
    assert sum(map(len, messages.values())) == 60
    assert file_bytes(directory.root / "commitlog") == before


def test_repair_does_not_fill_a_gap(directory: StoreDirectory) -> None:
    """Which side of a missing file is wanted only the user knows."""
    directory.fill(60)
    directory.segment(1).unlink()
    with pytest.raises(StoreDamagedError, match="is missing"):
        directory.open(repairs=True)
    assert directory.segment(2).exists()


def test_repair_of_a_lost_log_begins_anew(directory: StoreDirectory) -> None:
    """When the directory of the log is gone for good, queues without records go as well."""
    directory.fill(5)
    shutil.rmtree(directory.root / "commitlog")
    store = directory.open(repairs=True)
    assert list(store.queues()) == []
    assert store.append(new_record()).queue_offset == 0
