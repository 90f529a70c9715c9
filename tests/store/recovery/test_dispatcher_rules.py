"""When delayed messages are due, and entries that were written with other levels."""

import pytest
from damage import audit, flip
from stores import StoreDirectory, file_bytes, new_record

from rocketlet.store.consumequeue.consume_queue import ENTRY
from rocketlet.store.recovery.dispatcher import due_at, is_entry_of_other_levels

TOPIC = "SCHEDULE_TOPIC_XXXX"
LEVELS_MS = (1_000, 5_000, 10_000)


@pytest.mark.parametrize(
    ("text", "due_at_ms"),
    [("1", 1_100), ("3", 10_100), ("99", 10_100), ("+2", 5_100), ("٣", 10_100)]
    + [(text, None) for text in ("0", "", "-1", "x", "1x", " 1", "²")],
)
def test_due_time(text: str, due_at_ms: int | None) -> None:
    """A level above the highest is the highest; what is no number above 0 is no delay."""
    assert due_at({"DELAY": text}, 100, LEVELS_MS) == due_at_ms


@pytest.mark.parametrize("bit", range(64))
def test_a_wrong_bit_is_not_taken_for_other_levels(bit: int) -> None:
    """Each single bit of a due time that is wrong is seen, whatever the levels were."""
    due_at_ms = 1_750_000_000_123
    wrong = (due_at_ms ^ 1 << bit) - (1 << 64 if bit == 63 else 0)
    right, other = ENTRY.pack(77, 100, due_at_ms), ENTRY.pack(77, 100, wrong)
    assert not is_entry_of_other_levels(TOPIC, other, right)


def test_entry_of_other_levels_names_its_record() -> None:
    """Whole seconds earlier or later is right for a delayed message, for another record or topic it is not."""
    right = ENTRY.pack(77, 100, 1_750_000_000_123)
    for moved_ms in (-5_000, 7_200_000):
        assert is_entry_of_other_levels(TOPIC, ENTRY.pack(77, 100, 1_750_000_000_123 + moved_ms), right)
    assert not is_entry_of_other_levels("T", ENTRY.pack(77, 100, 1_750_000_001_123), right)
    assert not is_entry_of_other_levels(TOPIC, ENTRY.pack(77, 101, 1_750_000_001_123), right)
    assert not is_entry_of_other_levels(TOPIC, ENTRY.pack(78, 100, 1_750_000_001_123), right)


def fill(directory: StoreDirectory) -> None:
    """Park thirty messages in three queues."""
    with directory.open() as store:
        for number in range(30):
            store.append(new_record(TOPIC, number % 3, DELAY=str(number % 3 + 1), REAL_TOPIC="T", REAL_QID="0"))
            directory.now_ms += 137
        store.commit()


def due_times(directory: StoreDirectory) -> list[list[int]]:
    """Open the store and return the due times of each queue."""
    with directory.open() as store:
        return [[code for _, _, code in store.entries(TOPIC, queue_id, 0, 99)] for queue_id in range(3)]


@pytest.mark.feature("L3")
@pytest.mark.parametrize("levels_ms", [(60_000, 120_000), (2_000,) * 30])
@pytest.mark.parametrize("ending", ["stop", "kill"])
@pytest.mark.parametrize("walk", ["records", "blocks"])
def test_messages_keep_the_time_that_they_were_given(
    walk: str, ending: str, levels_ms: tuple[int, ...], directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With fewer or more levels, after a stop or a kill, no queue file changes, and the audit finds nothing wrong."""
    monkeypatch.setattr("rocketlet.store.recovery.recovery.SMALL_BYTES", 1 << 40 if walk == "records" else 0)
    directory = StoreDirectory(directory.root, delays_ms=LEVELS_MS)
    fill(directory)
    before = due_times(directory)
    written = file_bytes(directory.root / "consumequeue")
    if ending == "kill":
        directory.abort.touch()
    changed = StoreDirectory(directory.root, delays_ms=levels_ms)
    assert audit(changed).is_sound
    assert due_times(changed) == before
    assert file_bytes(directory.root / "consumequeue") == written


@pytest.mark.parametrize("walk", ["records", "blocks"])
def test_damaged_due_time_is_written_anew(
    walk: str, directory: StoreDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A due time with a wrong bit is found by the audit, and the start puts it right."""
    monkeypatch.setattr("rocketlet.store.recovery.recovery.SMALL_BYTES", 1 << 40 if walk == "records" else 0)
    directory = StoreDirectory(directory.root, delays_ms=LEVELS_MS)
    fill(directory)
    before = due_times(directory)
    flip(directory.queue_file(TOPIC, 1), 3 * ENTRY.size + 17)
    (found,) = audit(directory).findings
    assert "delivery time" in found.reason
    directory.abort.touch()
    assert due_times(directory) == before
