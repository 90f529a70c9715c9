"""Rot at random places of any file: found or harmless, never served as what was written, never a crash."""

import logging
import pathlib
import random
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress

import pytest
from damage import audit, record_start, spoil
from durability_page import Trial, Trials
from stores import GoldenStore, StoreDirectory, new_record, read_all

from rocketlet.common.errors import ConfigError, StoreDamagedError, StoreError

Place = tuple[str, int]
Messages = list[tuple[int, bytes]]
SEEDS = 12
MESSAGES = 80
UNCHECKED = {
    "flag": range(16, 20),
    "system flag": range(36, 40),
    "born time": range(40, 48),
    "born host": range(48, 56),
    "store time": range(56, 64),
    "store host": range(64, 72),
    "reconsume times": range(72, 76),
    "prepared transaction offset": range(76, 84),
}


@pytest.fixture(params=["stopped", "killed"])
def rotting(directory: StoreDirectory, request: pytest.FixtureRequest) -> StoreDirectory:
    """Give a store with messages, stopped cleanly or killed."""
    directory.fill(MESSAGES)
    config = directory.root / "config"
    config.mkdir()
    (config / "topics.json").write_text('{"topicConfigTable":{"T":{"topicName":"T","perm":6}}}')
    if request.param == "killed":
        directory.abort.write_text("12345")
    return directory


def rotten(directory: StoreDirectory, folder: str, seed: int) -> Iterator[tuple[StoreDirectory, str]]:
    """Yield a copy with one spoilt file, and what was done; the copy is removed afterwards."""
    draw = random.Random(f"{folder}{seed}")
    twin = directory.copy(f"rotten{seed}", index_slots=50, index_entries=40)
    paths = [
        path for path in sorted(twin.root.rglob("*")) if path.is_file() and folder in path.relative_to(twin.root).parts
    ]
    path = draw.choice([path for path in paths if path.stat().st_size])
    data = bytearray(path.read_bytes())
    what = spoil(data, draw)
    path.write_bytes(data)
    yield twin, f"{path.relative_to(twin.root)}: {what}, seed {seed}"
    twin.close_all()
    shutil.rmtree(twin.root)


@pytest.mark.durability
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("folder", ["commitlog", "consumequeue", "index", "checkpoint", "config", "abort", "lock"])
def test_rot_is_found_or_harmless(
    rotting: StoreDirectory, folder: str, trials: Trials, caplog: pytest.LogCaptureFixture
) -> None:
    """What opens serves only bodies that were written, and goes on; what the audit calls sound is served whole."""
    caplog.set_level(logging.CRITICAL)
    if folder == "abort":
        rotting.abort.write_text("12345")
    twin = rotting.copy("untouched")
    before = read_all(twin.open())
    twin.close_all()
    written = {body for messages in before.values() for _, body in messages}
    state = "killed" if rotting.abort.exists() else "stopped"
    rounds, told = trials.rounds(SEEDS, 8 * SEEDS), 0
    lost: set[bytes] = set()
    faults: list[str] = []
    for seed in range(rounds):
        for store, what in rotten(rotting, folder, seed):
            is_sound = find_sound(store)
            told += not is_sound
            wrong = find_wrong(store, before, is_sound=is_sound, may_lack=folder == "commitlog")
            if wrong:
                lost |= wrong
                faults.append(f"{what}: {len(wrong)} bodies missing, moved or changed, e.g. {min(wrong)!r}")
    tried = f"a spoilt file in {folder} of a {state} store, each time of the same messages"
    found = "; ".join(faults[:3]) or f"{told} times told by the audit, else harmless"
    trials.add(Trial("Rot", tried, rounds, "times", len(written), len(lost), found, f"0 to {rounds - 1}"))
    assert not faults


def find_wrong(
    store: StoreDirectory, before: Mapping[Place, Messages], *, is_sound: bool, may_lack: bool
) -> set[bytes]:
    """Open a spoilt store, which may be refused where the audit says so; return the bodies that are wrong in it.

    Wrong are bodies that were never written; where the audit is silent, or the log was not spoilt, what is missing, or
    stands elsewhere.
    """
    written = {body for messages in before.values() for _, body in messages}
    try:
        opened = store.open()
    except (StoreDamagedError, ConfigError):
        return written if is_sound else set()
    served = read_all(opened)
    wrong = {body for messages in served.values() for _, body in messages} - written
    if is_sound or not may_lack:
        wrong |= {
            body for place in {*before, *served} for _, body in set(before.get(place, [])) ^ set(served.get(place, []))
        }
    for number in range(0, MESSAGES, 7):
        opened.query("T", f"k{number}", 64, 0, 1 << 62)
    opened.append(new_record())
    opened.commit()
    return wrong


def find_sound(directory: StoreDirectory) -> bool:
    """Tell whether an audit finds nothing; what it cannot read is no crash either."""
    try:
        return audit(directory).is_sound
    except (StoreError, ConfigError):
        return False


@pytest.mark.parametrize("part", ["head", "rest"])
def test_flip_in_a_record_is_found_where_anything_covers_it(directory: StoreDirectory, part: str) -> None:
    """Only the fields in ``UNCHECKED`` and the properties that are no keys can change without a finding."""
    directory.fill(4)
    path = directory.segment()
    sound = path.read_bytes()
    start, end = record_start(directory, 1), record_start(directory, 2)
    properties = sound.index(b"UNIQ_KEY", start) - start
    unchecked = {position for positions in UNCHECKED.values() for position in positions}
    missed: set[int] = set()
    for position in range(88) if part == "head" else range(88, end - start):
        data = bytearray(sound)
        data[start + position] ^= 1 << position % 8
        path.write_bytes(data)
        if audit(directory).is_sound:
            missed.add(position)
    if part == "head":
        assert missed <= unchecked
        assert missed >= set(UNCHECKED["born host"])
    else:
        assert all(position >= properties for position in missed)
        assert not missed


@pytest.mark.parametrize("kind", ["batchconsumequeue", "consumequeue", "commitlog", "index"])
def test_rot_of_a_java_store_with_checksums(vectors: pathlib.Path, tmp_path: pathlib.Path, kind: str) -> None:
    """In a store with property checksums and batch queues, rot never crashes the audit or the start."""
    store = GoldenStore.unpack(vectors, "batchcrc", tmp_path).directory
    sound = {path: path.read_bytes() for path in sorted((store.root / kind).rglob("*")) if path.is_file()}
    for seed in range(SEEDS):
        draw = random.Random(f"{kind}{seed}")
        path = draw.choice(list(sound))
        data = bytearray(sound[path])
        spoil(data, draw)
        path.write_bytes(data)
        find_sound(store)
        with suppress(StoreDamagedError, ConfigError):
            read_all(store.open())
        store.close_all()
        for other, content in sound.items():
            other.parent.mkdir(parents=True, exist_ok=True)
            other.write_bytes(content)
