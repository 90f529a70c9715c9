"""One writer per directory, in this process and among all."""

import json
import pathlib
import subprocess
import sys

import pytest
from census import count_descriptors
from stores import StoreDirectory, new_record, read_all

from rocketlet.common.errors import ConfigError, StoreDamagedError, StoreInUseError
from rocketlet.export.plan.selection import Selection
from rocketlet.export.write.log_reader import count_stores
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.files.store_lock import refuse_unknown_formats

OPEN_STORE = """
import sys
from rocketlet.common.errors import StoreInUseError
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore
try:
    store = MessageStore.open(StoreConfig(sys.argv[1], segment_bytes=4096), now_ms=lambda: 1, store_host=bytes(8))
except StoreInUseError as error:
    print(error)
else:
    print("open", flush=True)
    sys.stdin.read()
    store.close()
"""


def test_second_opening_in_this_process_is_refused(directory: StoreDirectory) -> None:
    """POSIX locks do not see their own process, so the store keeps a list; other paths to the directory count."""
    directory.open()
    link = directory.root.with_name("link")
    link.symlink_to(directory.root)
    for root in (directory.root, link):
        with pytest.raises(StoreInUseError, match="already open in this process"):
            StoreDirectory(root).open()
    directory.close_all()
    StoreDirectory(link).open().close()


def test_opening_from_another_process_is_refused(directory: StoreDirectory) -> None:
    """The other process gets the error, and this store works on, also after a reader came and went."""
    store = directory.open()
    store.append(new_record())
    store.commit()
    assert count_stores([str(directory.root)], Selection()).faults() == []
    command = [sys.executable, "-c", OPEN_STORE, str(directory.root)]
    found = subprocess.run(command, capture_output=True, text=True, check=True, input="")
    assert "in use by another process" in found.stdout
    store.append(new_record())
    store.commit()
    assert read_all(store) == {("T", 0): [(0, b"body"), (1, b"body")]}


def test_store_of_another_process_is_refused_and_free_after_its_end(directory: StoreDirectory) -> None:
    """The lock ends with the process that holds it."""
    command = [sys.executable, "-c", OPEN_STORE, str(directory.root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"
        before = count_descriptors()
        with pytest.raises(StoreInUseError, match="in use by another process"):
            directory.open()
        assert count_descriptors() == before
        other.kill()
    directory.open()


LOCK_BYTES = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    for byte in (0, 1):
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            print("free")
        except OSError:
            print("held")
"""


def test_lock_file_is_javas(directory: StoreDirectory) -> None:
    """Four bytes of text and a write lock on byte 0 and on no other."""
    with directory.open():
        lock = directory.root / "lock"
        command = [sys.executable, "-c", LOCK_BYTES, str(lock)]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["held", "free"]
        assert lock.read_bytes() == b"lock"  # to close it here gives the lock away


def test_failed_opening_gives_the_lock_back(directory: StoreDirectory) -> None:
    """After a refusal to start the directory can be opened by whoever repairs it."""
    directory.fill(60)
    data = directory.segment(1).read_bytes()
    directory.segment(1).unlink()
    for _ in range(2):
        with pytest.raises(StoreDamagedError):
            directory.open()
    directory.segment(1).write_bytes(data)
    assert directory.open().max_offset("T", 0) == 20


SIGNS = {
    "consumequeue/CURRENT": "the RocksDB store (storeType=defaultRocksDB) is not built",
    **{
        f"config/{name}/CURRENT": "configuration in RocksDB (configManagerVersion) is not built"
        for name in ("topics", "subscriptionGroups", "consumerOffsets", "rdb")
    },
}


@pytest.mark.parametrize("sign", SIGNS)
def test_directory_in_rocksdb_is_refused(sign: str, tmp_path: pathlib.Path) -> None:
    """The file that says so is named."""
    path = tmp_path / sign
    path.parent.mkdir(parents=True)
    refuse_unknown_formats(OS_FILES, str(tmp_path))
    path.touch()
    with pytest.raises(ConfigError) as caught:
        refuse_unknown_formats(OS_FILES, str(tmp_path))
    assert (str(caught.value), caught.value.key) == (f"{path} is there: {SIGNS[sign]}", "storePathRootDir")


def test_log_of_dledger_is_refused(tmp_path: pathlib.Path) -> None:
    """A directory of that name, not a file; another directory is none of ours."""
    (tmp_path / "dledger-file").touch()
    (tmp_path / "other-dledger-").mkdir()
    refuse_unknown_formats(OS_FILES, str(tmp_path))
    (tmp_path / "dledger-n0").mkdir()
    with pytest.raises(ConfigError) as caught:
        refuse_unknown_formats(OS_FILES, str(tmp_path))
    words = f"{tmp_path}/dledger-n0 is there: the DLedger log is not built"
    assert (str(caught.value), caught.value.key) == (words, "enableDLegerCommitLog")


def test_files_of_a_compacted_topic_are_refused(tmp_path: pathlib.Path) -> None:
    """A directory of one; a file beside them is none."""
    folder = tmp_path / "compaction" / "compactionLog"
    folder.mkdir(parents=True)
    (folder / "file").touch()
    refuse_unknown_formats(OS_FILES, str(tmp_path))
    (folder / "T").mkdir()
    with pytest.raises(ConfigError) as caught:
        refuse_unknown_formats(OS_FILES, str(tmp_path))
    words = f"{folder}/T has cleanup.policy=COMPACTION: compacted topics are not built"
    assert (str(caught.value), caught.value.key) == (words, "cleanup.policy")


@pytest.mark.parametrize(
    ("topic", "is_refused"),
    [
        ({"attributes": {"cleanup.policy": "COMPACTION"}}, True),
        ({"attributes": {"cleanup.policy": "DELETE"}}, False),
        ({"attributes": {"other": "COMPACTION"}}, False),
        ({"attributes": ["cleanup.policy", "COMPACTION"]}, False),
        ({"cleanup.policy": "COMPACTION"}, False),
        ("COMPACTION", False),
        ({}, False),
    ],
)
def test_topic_that_says_it_is_compacted_is_refused(topic: object, is_refused: bool, tmp_path: pathlib.Path) -> None:
    """By its attribute only; it is named, also behind others."""
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    table = {"First": {"attributes": {"note": "COMPACTION"}}, "T": topic, "Last": "COMPACTION"}
    path.write_text(json.dumps({"topicConfigTable": table}))
    if not is_refused:
        refuse_unknown_formats(OS_FILES, str(tmp_path))
        return
    with pytest.raises(ConfigError) as caught:
        refuse_unknown_formats(OS_FILES, str(tmp_path))
    words = f"{path}: topic T has cleanup.policy=COMPACTION: compacted topics are not built"
    assert (str(caught.value), caught.value.key) == (words, "cleanup.policy")


@pytest.mark.parametrize("text", ["", "COMPACTION", "[]", '["COMPACTION"]', '{"topicConfigTable":["COMPACTION"]}'])
def test_topics_that_cannot_be_read_are_left_to_others(text: str, tmp_path: pathlib.Path) -> None:
    """Whoever loads them says what is wrong."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(text)
    refuse_unknown_formats(OS_FILES, str(tmp_path))
