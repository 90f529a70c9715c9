"""A store that cannot be used stops the start: exit code 2, one sentence that names what is wrong."""

import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest
from command_line import COMMAND, Refuse, Start
from damage import flip, record_start
from stores import StoreDirectory, file_bytes, read_queue

SIZES = {
    "mappedFileSizeCommitLog": "4096",
    "mappedFileSizeConsumeQueue": "200",
    "maxHashSlotNum": "50",
    "maxIndexNum": "40",
}
COMPACTED = '{"topicConfigTable":{"Squeezed":{"attributes":{"cleanup.policy":"COMPACTION"}}}}'
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"'
Damage = Callable[[StoreDirectory], object]


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> StoreDirectory:
    """Give a store with 60 messages, cleanly stopped."""
    store = StoreDirectory(tmp_path / "store")
    store.fill(60)
    return store


def arguments(directory: StoreDirectory, command: str = "broker", **settings: str) -> list[str]:
    """Return the words that start a broker over the directory."""
    pairs = [word for pair in {**SIZES, **settings}.items() for word in ("--set", "=".join(pair))]
    return [command, "--store", str(directory.root), "--broker-port", "0", *pairs]


def put(path: pathlib.Path, text: str = "mine") -> None:
    """Write a file, with the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def damage_message(directory: StoreDirectory) -> None:
    """Change the body of a message before others."""
    start = record_start(directory, 20)
    flip(directory.segment(start // 4096), start % 4096 + 90)


DAMAGES: dict[str, tuple[Damage, str]] = {
    "foreign file": (lambda one: put(one.segment().parent / "notes.txt"), "commitlog/notes.txt does not belong"),
    "short file": (
        lambda one: put(one.segment(1)),
        "00000000000000004096 has 4 bytes, mappedFileSizeCommitLog is 4096",
    ),
    "missing file": (lambda one: one.segment(1).unlink(), "00000000000000004096 is missing"),
    "damaged message": (damage_message, "--repair"),
    "RocksDB queues": (lambda one: put(one.root / "consumequeue" / "CURRENT"), "storeType=defaultRocksDB"),
    "RocksDB config": (lambda one: put(one.root / "config" / "topics" / "CURRENT"), "configManagerVersion"),
    "DLedger": (lambda one: put(one.root / "dledger-n0" / "data" / "0"), "DLedger"),
    "compaction": (lambda one: put(one.root / "config" / "topics.json", COMPACTED), "topic Squeezed"),
    "compacted log": (lambda one: put(one.root / "compaction" / "compactionLog" / "C" / "0" / "0"), "compactionLog/C"),
    "a file as root": (lambda one: (shutil.rmtree(one.root), put(one.root)), "is a file"),
    "broken config": (lambda one: put(one.root / "config" / "topics.json", "{"), "config/topics.json"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_unusable_store_stops_the_start(directory: StoreDirectory, refuse: Refuse, damage: Damage, reason: str) -> None:
    """The sentence names the file and what is wrong with it; the log stays as it is."""
    damage(directory)
    log = directory.root / "commitlog"
    before = file_bytes(log)
    line = refuse(*arguments(directory))
    assert reason in line
    assert str(directory.root) in line
    assert file_bytes(log) == before


@pytest.mark.parametrize("name", ["short file", "missing file", "damaged message"])
def test_sentence_holds_the_command_that_repairs(directory: StoreDirectory, refuse: Refuse, name: str) -> None:
    """The command in the sentence names the directory as it is, and makes the store sound."""
    DAMAGES[name][0](directory)
    (command,) = re.findall("`rocketlet (.*)`", refuse(*arguments(directory)))
    assert command == f"store repair {directory.root}"
    sizes = [word for key, value in SIZES.items() for word in ("--set", f"{key}={value}")]
    subprocess.run([*COMMAND, *command.split(), *sizes, "--yes"], capture_output=True, check=True)
    with directory.open() as store:
        assert 0 < len(read_queue(store, "T", 0)) <= 20


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mappedFileSizeCommitLog", "8192"),
        ("mappedFileSizeConsumeQueue", "400"),
        ("maxHashSlotNum", "51"),
        ("maxIndexNum", "50"),
        ("mappedFileSizeCommitLog", "many"),
    ],
)
def test_wrong_size_setting_stops_the_start(directory: StoreDirectory, refuse: Refuse, key: str, value: str) -> None:
    """The sentence names the setting; reading with the wrong size would cut the files in the wrong places."""
    assert key in refuse(*arguments(directory, **{key: value}))


def test_up_refuses_like_broker(directory: StoreDirectory, refuse: Refuse) -> None:
    """The same sentence and exit code from the command that starts a name server, too."""
    put(directory.segment().parent / "notes.txt")
    line = refuse(*arguments(directory, "up"), "--namesrv-port", "0")
    assert "commitlog/notes.txt does not belong" in line


def test_read_only_disk_stops_the_start(directory: StoreDirectory, refuse: Refuse) -> None:
    """A file system that cannot be written to is named."""
    behind = ("unshare", "-rm", "sh", "-c", READ_ONLY, "sh", str(directory.root))
    if not shutil.which("unshare") or subprocess.run([*behind, "true"], capture_output=True, check=False).returncode:
        pytest.skip("platform: mounts of one's own are not allowed here")
    line = refuse(*arguments(directory), behind=behind)
    assert f"cannot use the store directory {directory.root}" in line
    assert "Read-only file system" in line


def test_check_reads_a_read_only_disk(directory: StoreDirectory) -> None:
    """An audit needs no right to write."""
    behind = ("unshare", "-rm", "sh", "-c", READ_ONLY, "sh", str(directory.root))
    if not shutil.which("unshare") or subprocess.run([*behind, "true"], capture_output=True, check=False).returncode:
        pytest.skip("platform: mounts of one's own are not allowed here")
    words = [*COMMAND, "store", "check", str(directory.root), "--set", "maxHashSlotNum=50", "--set", "maxIndexNum=40"]
    ended = subprocess.run([*behind, *words], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout.splitlines()[-1]) == (0, "sound")


@pytest.mark.parametrize("place", [".", "commitlog", "config", "consumequeue/T/1"])
def test_missing_permission_stops_the_start(directory: StoreDirectory, refuse: Refuse, place: str) -> None:
    """A directory of somebody else is named."""
    behind = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--securebits=+noroot")
    if not shutil.which("setpriv") or subprocess.run([*behind, "true"], capture_output=True, check=False).returncode:
        pytest.skip("platform: rights cannot be given up here")
    closed = directory.root / place
    closed.mkdir(exist_ok=True)
    closed.chmod(0)
    try:
        line = refuse(*arguments(directory), behind=behind)
    finally:
        closed.chmod(0o755)
    assert "Permission denied" in line or "not readable" in line
    assert os.path.normpath(closed) in line


def test_unknown_fields_in_config_files_are_fine(directory: StoreDirectory, start: Start) -> None:
    """A newer Java broker's fields are passed over."""
    put(
        directory.root / "config" / "topics.json", '{"newField":[1],"topicConfigTable":{"T":{"topicName":"T","new":1}}}'
    )
    assert start(*arguments(directory)).stop()[0] == 0


def test_repair_goes_on_behind_damage(directory: StoreDirectory, start: Start) -> None:
    """With --repair the log is cut where it is damaged, which is said, and the broker serves what lies before."""
    damage_message(directory)
    code, out, err = start(*arguments(directory), "--repair").stop()
    assert (code, out) == (0, "")
    assert str(directory.segment(1)) in err
    with directory.open() as store:
        assert sum(store.max_offset("T", number) for number in range(3)) == 20
