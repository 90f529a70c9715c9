"""What ``store check`` says about timer files, and what ``store repair`` does with them."""

import pathlib
import shutil
import struct
from collections.abc import Callable

import pytest
from damage import overwrite
from msgspec.structs import replace
from stores import GoldenStore
from timers import HOUR_MS, SECOND_MS, UNITS_PER_FILE, TimerWorld, timer_directory

from rocketlet.store.audit.audit_report import AuditReport, ReadFiles
from rocketlet.store.audit.repair import apply_repair, plan_repair, reopen
from rocketlet.store.audit.small_files_audit import audit_ext
from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.files.files import OS_FILES
from rocketlet.store.files.store_config import TIMER_LOG_KEY
from rocketlet.store.timer.timer_check import REBUILDING, load_timer_check, save_timer_check, timer_check_path
from rocketlet.store.timer.timer_wheel import SLOT_BYTES

COUNT = 2 * UNITS_PER_FILE + 3


@pytest.fixture
def world(tmp_path: pathlib.Path) -> TimerWorld:
    """Give a closed store with delivered and with waiting messages in three files of the timer log."""
    made = TimerWorld(timer_directory(tmp_path / "store"))
    for number in range(COUNT):
        made.send(b"%02d" % number, made.now_ms + (SECOND_MS if number < 10 else HOUR_MS))
    made.recall("U20", made.now_ms + HOUR_MS)
    made.pass_ms(SECOND_MS)
    made.stop()
    return made


def audit(world: TimerWorld) -> StoreAudit:
    """Return an audit of the directory."""
    return StoreAudit(world.directory.config)


@pytest.mark.feature("S26")
def test_files_of_java_are_sound(golden: Callable[[str], GoldenStore]) -> None:
    """The recorded directory has 14 units, and of those that wait one is a recall."""
    report = StoreAudit(golden("delay-retry").directory.config).run()
    assert report.is_sound
    assert (report.counts["timer units"], report.counts["timer messages waiting"]) == (14, 9)


def test_own_files_are_sound(world: TimerWorld) -> None:
    """Units and waiting messages are counted."""
    report = audit(world).run()
    assert report.is_sound, report.lines()
    assert (report.counts["timer units"], report.counts["timer messages waiting"]) == (COUNT + 1, COUNT - 10)


def test_slots_that_were_never_used_wait_for_nothing(world: TimerWorld) -> None:
    """Also where nothing was delivered yet, so that each slot that was used is looked at."""
    root = world.directory.root
    path = timer_check_path(str(root))
    check = load_timer_check(OS_FILES, path)
    assert check is not None
    save_timer_check(OS_FILES, path, check._replace(read_at_ms=0))
    overwrite(root / "timerwheel", 0, bytes(4 * SLOT_BYTES))
    report = audit(world).run()
    assert report.is_sound, report.lines()
    assert report.counts["timer messages waiting"] == COUNT


def lose_wheel(root: pathlib.Path) -> None:
    """The wheel is gone."""
    (root / "timerwheel").unlink()


def cut_wheel(root: pathlib.Path) -> None:
    """The wheel is short."""
    (root / "timerwheel").write_bytes(b"")


def lose_log(root: pathlib.Path) -> None:
    """All units are gone."""
    shutil.rmtree(root / "timerlog")


def lose_last_file(root: pathlib.Path) -> None:
    """The last units are gone."""
    max((root / "timerlog").iterdir()).unlink()


def lose_first_file(root: pathlib.Path) -> None:
    """A file is missing before others."""
    sorted((root / "timerlog").iterdir())[1].unlink()


def spoil_unit(root: pathlib.Path) -> None:
    """A unit that waits leads nowhere."""
    path = sorted((root / "timerlog").iterdir())[1]
    content = bytearray(path.read_bytes())
    content[52 + 28 : 52 + 36] = (5).to_bytes(8, "big")
    path.write_bytes(content)


def spoil_check(root: pathlib.Path) -> None:
    """Nobody knows how far they had come."""
    (root / "config" / "timercheck").write_bytes(b"\xff" * 4_096)


def cut_check(root: pathlib.Path) -> None:
    """The progress is short, but readable."""
    path = root / "config" / "timercheck"
    path.write_bytes(path.read_bytes()[:100])


DAMAGE: dict[Callable[[pathlib.Path], None], str] = {
    lose_wheel: "timerwheel: the file is missing",
    cut_wheel: "the file has 0 bytes, not 38707200",
    lose_log: "the timer log is missing",
    lose_last_file: "the units end at",
    lose_first_file: "the file is missing",
    spoil_unit: "its record does not stand at 5 of the log",
    spoil_check: "all timer messages will come again",
    cut_check: "the file has 100 bytes, not 4096",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_repaired(damage: Callable[[pathlib.Path], None], world: TimerWorld) -> None:
    """Each kind is told; after a repair the store is sound, and all messages that wait come."""
    damage(world.directory.root)
    checked = audit(world)
    report = checked.run()
    assert DAMAGE[damage] in "\n".join(report.lines())
    assert set(report.totals) == {"timer"}
    plan = plan_repair(checked)
    assert any("make them anew from the timer topic" in line for line in plan.lines())
    apply_repair(plan)
    reopen(checked.found_config, lambda: world.now_ms)
    after = audit(world).run()
    assert after.is_sound, after.lines()
    world.start()
    world.pass_ms(HOUR_MS)
    wanted = {b"%02d" % number for number in range(COUNT) if number != 20}
    assert set(world.bodies()) == wanted
    world.stop()
    assert audit(world).run().is_sound


def test_damage_while_a_broker_writes_is_a_note(world: TimerWorld) -> None:
    """A broker that was killed leaves timer files that lag behind: its next start puts that right."""
    (world.directory.root / "timerwheel").unlink()
    world.directory.abort.write_bytes(b"1")
    report = audit(world).run()
    assert report.is_sound
    assert "timerwheel: the file is missing" in "\n".join(report.notes)


@pytest.mark.parametrize("content", [None, b""])
def test_progress_that_was_never_saved_is_a_note(content: bytes | None, world: TimerWorld) -> None:
    """A crash may leave units without timercheck, or an empty one: their messages come again."""
    path = world.directory.root / "config" / "timercheck"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    report = audit(world).run()
    assert report.is_sound
    assert "timercheck is missing or empty: all timer messages will come again" in "\n".join(report.notes)


def test_empty_files_of_the_timer_log(world: TimerWorld) -> None:
    """Files that were made and never written are a note at the end, and damage before others."""
    paths = sorted((world.directory.root / "timerlog").iterdir())
    paths[0].write_bytes(b"")
    assert f"{paths[0].name}: the file is empty" in str(audit(world).run().findings[0])
    for path in paths:
        path.write_bytes(b"")
    report = audit(world).run()
    assert report.totals == {"timer": 1}
    assert "\n".join(report.notes).count("its creation was cut off") == len(paths) > 1


def test_empty_file_before_others_while_they_are_made_anew(world: TimerWorld) -> None:
    """A power loss may leave a second file whole and the first one empty; nothing there counts, but for its size."""
    check_path = world.directory.root / "config" / "timercheck"
    check = load_timer_check(OS_FILES, str(check_path))
    assert check is not None
    save_timer_check(OS_FILES, str(check_path), check._replace(log_end=REBUILDING))
    paths = sorted((world.directory.root / "timerlog").iterdir())
    paths[0].write_bytes(b"")
    report = audit(world).run()
    assert (report.is_sound, len(paths) > 1) == (True, True), report.lines()
    paths[-1].write_bytes(b"short")
    assert [finding.reason for finding in audit(world).run().findings] == ["the file has 5 bytes, the others have 1056"]


@pytest.mark.parametrize("named", [frozenset[str](), frozenset([TIMER_LOG_KEY])])
def test_size_of_timer_files_is_theirs_unless_the_settings_name_it(world: TimerWorld, named: frozenset[str]) -> None:
    """Other settings than those of the broker find the same units; a size that is named has to be right."""
    config = world.directory.config
    other = replace(config, timers=replace(config.timers, file_bytes=2 * config.timers.file_bytes))
    checked = StoreAudit(other, sizes=named)
    report = checked.run()
    if named:
        size = config.timers.file_bytes
        assert f"the file has {size} bytes, the others have {2 * size}" in report.lines()[1]
        assert (report.is_sound, checked.found_config.timers.file_bytes) == (False, 2 * size)
    else:
        assert report.is_sound
        assert (report.counts["timer units"], report.counts["timer messages waiting"]) == (COUNT + 1, COUNT - 10)
        assert checked.found_config.timers.file_bytes == config.timers.file_bytes


def test_end_of_the_units_is_told(world: TimerWorld) -> None:
    """The file and the place where they end, and how far they had come when they were saved."""
    size = world.directory.config.timers.file_bytes
    (world.directory.root / "timerlog" / f"{2 * size:020d}").unlink()
    reasons = [str(finding) for finding in audit(world).run().findings]
    root = world.directory.root
    assert (
        reasons[0]
        == f"{root}/timerlog/{2 * size:020d} at position 0: the units end at {2 * size}, {2 * size + 4 * 52} was saved"
    )
    assert f"leads to {2 * size + 3 * 52} of the timer log: no unit stands there" in reasons[1]
    assert len(reasons) == 2


def ext_unit(bitmap: bytes = b"", unit_bytes: int | None = None, bitmap_bytes: int | None = None) -> bytes:
    """Return an extended entry, which may name wrong sizes."""
    sizes = (
        len(bitmap) + 20 if unit_bytes is None else unit_bytes,
        len(bitmap) if bitmap_bytes is None else bitmap_bytes,
    )
    return struct.pack(">hqqh", sizes[0], 7, 1_750_000_000_000, sizes[1]) + bitmap


@pytest.mark.parametrize(
    ("content", "count", "finding"),
    [
        (ext_unit(), 1, ""),
        (ext_unit() + ext_unit(b"bits") + ext_unit(bytes(40)), 3, ""),
        (ext_unit(b"bits") + ext_unit()[:19], 1, ""),
        (ext_unit(b"bits") + bytes(40) + ext_unit(), 1, ""),
        (ext_unit(b"bits") + b"\xff\xff" + bytes(18) + ext_unit(), 1, ""),
        (ext_unit(unit_bytes=1) + ext_unit(), 0, "at position 0: the unit has 1 bytes and a bitmap of 0"),
        (ext_unit() + ext_unit(b"bits", 23) + ext_unit(), 1, "at position 20: the unit has 23 bytes and a bitmap of 4"),
        (ext_unit(b"b") + ext_unit(b"", 21), 1, "at position 21: the unit has 21 bytes and a bitmap of 0"),
        (ext_unit() + ext_unit(b"", 18, -2), 1, "at position 20: the unit has 18 bytes and a bitmap of -2"),
        (ext_unit() + ext_unit(b"", -2, -22), 1, "at position 20: the unit has -2 bytes and a bitmap of -22"),
    ],
)
def test_units_of_extended_queues(content: bytes, count: int, finding: str, tmp_path: pathlib.Path) -> None:
    """They are counted up to the end of their file, or to the first that cannot be one; other files are left alone."""
    root = tmp_path / "consumequeue_ext"
    paths = [root / "T" / "0" / f"{0:020d}", root / "T" / "11" / f"{0:020d}", root / "U" / "0" / f"{0:020d}"]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
    (root / "notes").touch()
    report = AuditReport(str(tmp_path))
    audit_ext(ReadFiles(OS_FILES), str(tmp_path), report)
    assert report.counts["extended units"] == 3 * count
    assert list(map(str, report.findings)) == [f"{path} {finding}" for path in paths if finding]
    assert set(report.totals) == ({"extended queue"} if finding else set())


def test_empty_files_of_extended_queues(tmp_path: pathlib.Path) -> None:
    """The last ones of a queue were just being made; others that are empty have lost what they held."""
    folder = tmp_path / "consumequeue_ext" / "T" / "0"
    folder.mkdir(parents=True)
    first, last = folder / f"{0:020d}", folder / f"{200:020d}"
    first.touch()
    report = AuditReport(str(tmp_path))
    audit_ext(ReadFiles(OS_FILES), str(tmp_path), report)
    assert (report.findings, report.notes) == ([], [f"{first}: the file is empty: its creation was cut off"])
    last.touch()
    report = AuditReport(str(tmp_path))
    audit_ext(ReadFiles(OS_FILES), str(tmp_path), report)
    notes = [f"{path}: the file is empty: its creation was cut off" for path in (first, last)]
    assert (report.findings, report.notes) == ([], notes)
    last.write_bytes(bytes(200))
    report = AuditReport(str(tmp_path))
    audit_ext(ReadFiles(OS_FILES), str(tmp_path), report)
    assert (list(map(str, report.findings)), report.notes) == ([f"{first}: the file is empty"], [])
