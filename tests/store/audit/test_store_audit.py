"""What an audit finds in a directory, what it forgives, and that it changes nothing."""

import pathlib
from collections.abc import Callable

import pytest
from damage import audit, flip, overwrite, record_start
from msgspec.structs import replace
from stores import GoldenStore, StoreDirectory, file_bytes, new_record, sample

from rocketlet.common.errors import ConfigError, StoreError
from rocketlet.store.audit.audit_report import MOST_FINDINGS, AuditReport, Finding
from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.files.files import Files
from rocketlet.store.files.store_config import SEGMENT_KEY, SLOTS_KEY
from rocketlet.store.message_store import MessageStore


class WatchedFiles(Files):
    """Files that remember what was opened, and refuse to change anything."""

    def __init__(self) -> None:
        self.opened: set[str] = set()

    def open(self, path: str, *, writable: bool = False) -> int:
        """Open for reading only."""
        assert not writable, path
        self.opened.add(path)
        return super().open(path)

    def create(self, path: str, size: int, mode: int = 0o644) -> int:
        """Refuse."""
        raise AssertionError(path)


class BusyFiles(Files):
    """Files whose every read makes a broker take two more messages."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._number = 1000

    def pread(self, descriptor: int, size: int, position: int) -> bytes:
        """Write, then read."""
        for _ in range(2):
            self._store.append(sample(self._number))
            self._number += 1
        self._store.commit()
        if self._number % 5 == 0:
            self._store.tick()
        return super().pread(descriptor, size, position)


@pytest.mark.parametrize("name", ["plain", "killed", "delay-retry", "batchcrc"])
def test_store_of_a_java_broker_is_sound(golden: Callable[[str], GoldenStore], name: str) -> None:
    """Every record, queue entry, batch unit and index entry that Java wrote is as it should be."""
    store = golden(name)
    report = audit(store.directory)
    assert report.lines()[-1] == "sound"
    assert report.counts["records"] == len(list(store.messages()))
    assert report.end == store.truth["commitLogMaxOffset"]
    assert report.counts["index entries"] > 40


def test_audit_changes_nothing_and_leaves_the_lock_alone(directory: StoreDirectory) -> None:
    """A store that is open is audited without opening a file for writing, and without opening its lock."""
    directory.fill(60)
    store = directory.open()
    store.append(new_record(UNIQ_KEY="last"))
    store.commit()
    before, files = file_bytes(directory.root), WatchedFiles()
    report = StoreAudit(directory.config, files=files).run()
    assert report.is_sound
    assert report.is_open
    assert report.counts["records"] == 61
    assert report.counts["keys not in the index yet"] == 1
    assert file_bytes(directory.root) == before
    assert str(directory.root / "lock") not in files.opened


def test_store_that_grows_while_it_is_read_is_sound(directory: StoreDirectory) -> None:
    """New records, entries, files and index entries that come with every read are neither missing nor too many."""
    directory.fill(60)
    report = StoreAudit(directory.config, files=BusyFiles(directory.open())).run()
    assert report.lines()[-1] == "sound"
    assert report.counts["records"] > 60


def test_sizes_are_taken_from_the_files(directory: StoreDirectory) -> None:
    """Without settings the sizes of log and queue files come from the directory, also when one file was cut off."""
    directory.fill(60)
    path = directory.segment(1)
    path.write_bytes(path.read_bytes()[:1000])
    config = replace(directory.config, segment_bytes=1 << 20, queue_file_bytes=6_000_000)
    found = StoreAudit(config, frozenset({SLOTS_KEY}))
    report = found.run()
    assert (found.found_config.segment_bytes, found.found_config.queue_file_bytes) == (4096, 200)
    assert f"{path}: the file has 1000 bytes, the others have 4096" in [str(finding) for finding in report.findings]


@pytest.mark.parametrize(("setting", "key"), [("segment_bytes", SEGMENT_KEY), ("index_slots", "maxIndexNum")])
def test_wrong_size_setting_is_refused(directory: StoreDirectory, setting: str, key: str) -> None:
    """A size that was given and is not that of the files is an error that names the setting, not damage."""
    directory.fill(20)
    config = replace(directory.config, **{setting: 8192})
    with pytest.raises(ConfigError) as caught:
        StoreAudit(config, frozenset({key})).run()
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("made", "words"),
    [("nothing", "does not exist"), ("file", "cannot be read"), ("empty", "has no directory commitlog")],
)
def test_what_is_no_store_is_refused(tmp_path: pathlib.Path, made: str, words: str) -> None:
    """A path that does not exist, a file and an empty directory are no stores."""
    place = tmp_path / "place"
    if made == "file":
        place.touch()
    elif made == "empty":
        place.mkdir()
    with pytest.raises((ConfigError, StoreError), match=f"{place} .*{words}"):
        StoreAudit(StoreDirectory(place).config)


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        (1, "the record is longer than what is left of the file"),
        (4, "the magic is unknown"),
        (30, "the record names another position in the log"),
        (36 + 3, ""),
        (84, "the lengths of the parts do not add up to the size of the record"),
        (90, "the body does not have its checksum"),
    ],
)
def test_damaged_record_is_named(directory: StoreDirectory, field: int, reason: str) -> None:
    """A flip in a header or body is reported with file, position and the message that was hit; the rest is read on."""
    directory.fill(60)
    start = record_start(directory, 31)
    path = directory.segment(start // 4096)
    flip(path, start % 4096 + field, 0x10)
    report = audit(directory)
    (found,) = [finding for finding in report.findings if finding.kind == "log"]
    assert (found.path, found.position, found.log_offset) == (str(path), start % 4096, start)
    assert reason in found.reason
    assert [(hit.topic, hit.queue_id, hit.queue_offset) for hit in found.hits] == [("T", 1, 10)]
    assert report.counts["records"] in (59, 60)
    assert (report.cut_at, report.sound_behind) == (start, 28)
    assert report.totals == {"log": 1}


def test_every_bit_of_a_sealed_record_is_covered(directory: StoreDirectory) -> None:
    """With property checksums there is no byte of a record whose change is not found."""
    sealed = StoreDirectory(directory.root, seals_records=True, demands_seals=True)
    sealed.fill(3)
    path = sealed.segment()
    sound = path.read_bytes()
    start = record_start(sealed, 1)
    end = record_start(sealed, 2)
    for position in range(start, end):
        flip(path, position, 1 << position % 8)
        report = audit(sealed)
        assert report.totals["log"] == 1, position
        assert report.findings[0].log_offset == start
        path.write_bytes(sound)


def test_missing_file_of_the_log_is_named(directory: StoreDirectory) -> None:
    """A hole in the log is one finding, and so is each entry that pointed into it."""
    directory.fill(60)
    directory.segment(1).unlink()
    report = audit(directory)
    assert report.totals["log"] == 1
    assert str(report.findings[0]) == f"{directory.segment(1)}: the file is missing"
    assert report.cut_at == 4096
    assert report.totals["queue"] > 10


def test_foreign_file_is_named(directory: StoreDirectory) -> None:
    """Files that do not belong into log and queues are reported; the Java broker would not start."""
    directory.fill(10)
    for path in (directory.segment().parent, directory.queue_file().parent):
        (path / "notes.txt").write_text("mine")
    report = audit(directory)
    assert report.totals == {"log": 1, "queue": 1}


def test_garbage_behind_the_end_is_damage_after_a_clean_stop_only(directory: StoreDirectory) -> None:
    """A clean stop leaves zeros behind the end of the log; after a kill the next start sees to it."""
    directory.fill(5)
    with directory.segment().open("r+b") as file:
        file.seek(4000)
        file.write(b"garbage")
    report = audit(directory)
    assert [(finding.position, finding.reason) for finding in report.findings] == [
        (4000, "bytes stand behind the end of the log")
    ]
    directory.abort.touch()
    report = audit(directory)
    assert report.is_sound
    assert any("behind the end of the log" in note for note in report.notes)


def test_torn_tail_of_a_killed_broker_is_a_note(
    directory: StoreDirectory, copy_of: Callable[..., StoreDirectory]
) -> None:
    """A last record that did not arrive whole is what a kill leaves; after a clean stop it is damage."""
    directory.fill(10)
    store = directory.open()
    killed = copy_of()
    end = store.log_max_offset
    with killed.segment().open("r+b") as file:
        file.seek(end)
        file.write(killed.segment().read_bytes()[:100])
    report = audit(killed)
    assert report.is_sound
    assert any("the end of the log is torn" in note for note in report.notes)
    killed.abort.unlink()
    assert audit(killed).totals == {"log": 1}


@pytest.mark.parametrize(
    ("position", "reason"),
    [
        (40 + 4 * 50 + 20 * 5 + 3, "no key of a record belongs to the entry"),
        (40 + 4 * 50 + 20 * 5 + 11, "no key of a record belongs to the entry"),
        (40 + 4 * 50 + 20 * 5 + 15, "the entry's time is"),
        (40 + 4 * 50 + 20 * 5 + 19, "the entry does not follow from those before it"),
        (39, "count"),
        (35, "the header counts"),
        (31, "the header's end log offset"),
        (40 + 3, "slot 0 names entry"),
    ],
)
def test_wrong_index_is_named(directory: StoreDirectory, position: int, reason: str) -> None:
    """Header, slots and every part of an entry are checked against the records and each other."""
    directory.fill(60)
    path = sorted((directory.root / "index").iterdir())[1]
    flip(path, position)
    report = audit(directory)
    assert set(report.totals) == {"index"}
    assert any(reason in finding.reason and finding.path == str(path) for finding in report.findings), report.lines()


def test_changed_key_of_a_record_is_found_by_the_index(directory: StoreDirectory) -> None:
    """Properties have no checksum; a unique key that changed is no longer the one in the index."""
    directory.fill(30)
    start = record_start(directory, 3)
    path = directory.segment()
    flip(path, path.read_bytes().index(b"ID00000003", start) + 9)
    report = audit(directory)
    assert report.totals == {"index": 2}
    assert report.findings[0].hits[0].queue_offset == 1


def test_missing_index_is_no_damage(directory: StoreDirectory) -> None:
    """An index is an option: a store without one is sound, and the report says that it has none."""
    directory.fill(10)
    for path in (directory.root / "index").iterdir():
        path.unlink()
    report = audit(directory)
    assert report.is_sound
    assert "there is no index" in report.notes


@pytest.mark.parametrize("position", [0, 8, 4000])
def test_wrong_checkpoint_is_named(directory: StoreDirectory, position: int) -> None:
    """Times behind the last record, and bytes where zeros belong, are no checkpoint."""
    directory.fill(10)
    flip(directory.root / "checkpoint", position)
    assert audit(directory).totals == {"checkpoint": 1}


def test_config_file_that_does_not_parse_is_named(directory: StoreDirectory) -> None:
    """A broken config file is damage, with a sound .bak or without; unknown fields are none."""
    directory.fill(3)
    config = directory.root / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1}},"whatIsThis":[1]}')
    assert audit(directory).is_sound
    (config / "consumerOffset.json").write_text('{"offsetTable":{"T@g":{0:1}')
    assert [finding.reason for finding in audit(directory).findings] == [
        "the file cannot be parsed, and there is no sound .bak: restore a copy, or remove it"
    ]
    (config / "consumerOffset.json.bak").write_text("{}")
    assert audit(directory).backups == [str(config / "consumerOffset.json")]


def test_findings_are_bounded_and_all_counted() -> None:
    """Of each kind a hundred findings are kept and twenty listed; the totals and the text count all of them."""
    report = AuditReport("/store")
    for number in range(MOST_FINDINGS + 7):
        report.add(Finding("log", "/store/commitlog/0", "bad", number))
    assert (len(report.findings), report.totals["log"]) == (MOST_FINDINGS, MOST_FINDINGS + 7)
    assert report.lines()[-2:] == ["log: 87 more findings are not listed", "damaged: log 107"]
    assert not report.to_json()["sound"]


@pytest.mark.parametrize(("position", "name"), [(23, "begin log offset"), (31, "end log offset")])
def test_header_of_a_single_entry_is_looked_at(directory: StoreDirectory, position: int, name: str) -> None:
    """An index file of one entry has the log offset of that entry twice in its header."""
    with directory.open() as store:
        store.append(new_record(KEYS="k"))
        store.commit()
    assert audit(directory).is_sound
    (path,) = (directory.root / "index").iterdir()
    flip(path, position)
    found = audit(directory)
    assert [name in finding.reason for finding in found.findings] == [True]


def test_findings_that_are_not_told_are_counted() -> None:
    """One more counts, none or fewer than none does not: a sound store stays sound."""
    report = AuditReport("store")
    for count in (-99, 0):
        report.add_more("index", count)
    assert report.is_sound
    for count in (1, 2):
        report.add_more("index", count)
    assert report.totals == {"index": 3}


def test_file_that_goes_while_the_store_is_read_is_noted(directory: StoreDirectory) -> None:
    """A broker may clean meanwhile; whether the log goes on behind a gap is told by the next file that is there."""
    directory.fill(60)
    gone = directory.segment(2)

    class VanishingFiles(Files):
        """Files of which one was listed, and cannot be opened any more."""

        def map_written(self, path: str, size: int) -> memoryview:
            """Fail for that one."""
            if path == str(gone):
                raise FileNotFoundError(2, "No such file or directory", path)
            return super().map_written(path, size)

    overwrite(directory.segment(1), 2_000, bytes(2_096))
    report = StoreAudit(directory.config, files=VanishingFiles()).run()
    assert f"{gone} was removed while the store was read" in report.notes
    assert [finding.path for finding in report.findings if "are unreadable" in finding.reason] == [
        str(directory.segment(1))
    ]
