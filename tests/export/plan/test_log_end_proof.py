"""That a closed store's log ends where its records end is proved, doubted, or shown to be wrong."""

import json
import pathlib
import re
import shutil
from collections import deque
from typing import Any

import pytest
from javastores import STORES, JavaStores
from pushing import fill
from stores import StoreDirectory, new_record

from rocketlet.common.errors import StoreDamagedError
from rocketlet.export.plan import read_plan as plan
from rocketlet.export.plan.log_end import LogEnd
from rocketlet.export.plan.read_plan import PlanOptions, plan_prefixes, plan_stores
from rocketlet.export.pushdown.pushdown import planned_report
from rocketlet.export.report.report import Report
from rocketlet.export.write.log_reader import SplitReader
from rocketlet.store.audit.store_audit import StoreAudit

PROOF = "proof holds: every message is counted, every queue offset is there once, all body checksums are right"


@pytest.fixture
def closed(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return a store of several files that was cleanly closed."""
    directory = StoreDirectory(tmp_path / "store")
    fill(directory)
    return directory


def reported(store: pathlib.Path | str, *, skips: bool = False) -> Report:
    """Read what is planned of a store and return the report, as ``rocketlet export`` makes it."""
    planned = plan_prefixes([str(store)], PlanOptions(skips_damage=skips))
    report = planned_report(planned, {})
    for split in planned.splits:
        deque(SplitReader(counters=report.of_store(split.store)).read(split), maxlen=0)
    return report


def logs(directory: StoreDirectory) -> list[pathlib.Path]:
    """Return the files of the log that hold records."""
    return [path for path in sorted((directory.root / "commitlog").iterdir()) if path.read_bytes().strip(b"\0")]


def cut_middle(directory: StoreDirectory) -> None:
    """Cut the last file in its middle."""
    path = logs(directory)[-1]
    content = path.read_bytes()
    path.write_bytes(content[: len(content.rstrip(b"\0")) // 2])


def zero_middle(directory: StoreDirectory) -> None:
    """Zero the second half of the last file."""
    path = logs(directory)[-1]
    content = path.read_bytes()
    path.write_bytes(content[: len(content.rstrip(b"\0")) // 2].ljust(len(content), b"\0"))


def lose_newest(directory: StoreDirectory) -> None:
    """Remove the last two files."""
    for path in logs(directory)[-2:]:
        path.unlink()


LOSSES = {"cut": cut_middle, "zeroed": zero_middle, "gone": lose_newest}


def lose_queues(root: pathlib.Path) -> None:
    """Keep nothing but the log and the checkpoint."""
    shutil.rmtree(root / "consumequeue")


def lose_checkpoint(root: pathlib.Path) -> None:
    """Keep log and queues."""
    (root / "checkpoint").unlink()


@pytest.mark.parametrize("loss", LOSSES)
def test_lost_end_of_a_closed_store_is_damage(loss: str, closed: StoreDirectory) -> None:
    """Nothing is read of it where damage fails; file, position, and how many records the queues name, are told."""
    whole = {key: queue.offsets.last for key, queue in reported(closed.root).stores[0].queues.items()}
    LOSSES[loss](closed)
    with pytest.raises(StoreDamagedError, match=r"queue entries name [0-9]+ records behind it") as raised:
        plan_stores([str(closed.root)])
    assert raised.value.path.startswith(str(closed.root / "commitlog"))
    report = reported(closed.root)
    faults = report.faults()
    named = re.search("queue entries name ([0-9]+) records", str(raised.value))
    left = {key: queue.offsets.last for key, queue in report.stores[0].queues.items()}
    gone = sum((last or 0) - (left[key] or 0) for key, last in whole.items())
    assert named is not None
    assert int(named.group(1)) == gone > 0
    for (topic, queue_id), last in whole.items():
        first = (left[topic, queue_id] or 0) + 1
        fault = f"{topic} queue {queue_id}: queue offsets {first} to {last} were to be read and were not"
        assert any(fault in one for one in faults) == (last != left[topic, queue_id])
    assert any("stopped before the end of the log" in fault for fault in faults)
    assert not StoreAudit(closed.config).run().is_sound
    assert not any(line.startswith("proof holds") for line in report.lines())


def test_lost_end_is_skipped_and_told_by_queue(closed: StoreDirectory) -> None:
    """A reading that skips damage gives all there is, and says what is missing of each queue."""
    lose_newest(closed)
    report = reported(closed.root, skips=True)
    assert report.stores[0].damage is None
    assert any("bytes skipped, the log ends here, but queue entries name" in fault for fault in report.faults())
    assert any("Orders queue 0: queue offsets" in fault for fault in report.faults())


def test_checkpoint_shows_a_lost_end_without_queues(closed: StoreDirectory) -> None:
    """A copy that lacks its queues, and its newest files, has records stored up to an instant that the log lacks."""
    lose_queues(closed.root)
    assert "not proved" not in "\n".join(reported(closed.root).lines())
    lose_newest(closed)
    with pytest.raises(StoreDamagedError, match=r"the checkpoint names a record stored at [0-9]+, the last one here"):
        plan_stores([str(closed.root)])


def test_queues_prove_the_end_without_a_checkpoint(closed: StoreDirectory) -> None:
    """Where the last record is the last that a queue names, that is the end."""
    lose_checkpoint(closed.root)
    assert list(reported(closed.root).lines())[-1] == PROOF


def test_log_alone_proves_no_end(closed: StoreDirectory) -> None:
    """The report says that nothing tells whether the log went on, and claims no more."""
    lose_queues(closed.root)
    lose_checkpoint(closed.root)
    lose_newest(closed)
    report = reported(closed.root)
    lines = list(report.lines())
    assert not report.faults()
    assert "  that the log ended there is not proved: there are neither queues nor a checkpoint that tell" in lines
    assert lines[-1] == PROOF.replace("holds", "holds up to where the log ends here")
    assert report.to_json()["stores"][0]["end"]["unproved"]
    assert Report.from_json(report.to_json()).stores[0].end == report.stores[0].end


def test_open_store_is_not_judged(closed: StoreDirectory) -> None:
    """Queues that name more than was planned are what a broker has written since, so an open store has no faults."""
    closed.abort.touch()
    lose_newest(closed)
    report = reported(closed.root)
    assert not report.faults()
    assert any(
        "not proved: abort is there: a broker has the store open, or was killed" in one for one in report.lines()
    )


def test_store_that_a_broker_opens_meanwhile_is_not_judged(
    closed: StoreDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that started after the end of the log was found has written what its queues name behind it."""
    find_end = plan.find_end

    def find_and_write(*args: Any, **options: Any) -> LogEnd:
        end = find_end(*args, **options)
        store = closed.open()
        store.append(new_record("Orders", 0))
        store.commit()
        return end

    monkeypatch.setattr(plan, "find_end", find_and_write)
    try:
        assert not reported(closed.root).faults()
    finally:
        closed.close_all()


def test_group_that_is_ahead_is_a_doubt(closed: StoreDirectory) -> None:
    """An offset behind the end of its queue does not show a loss, since clients commit what they like; it is told."""
    path = closed.root / "config" / "consumerOffset.json"
    path.write_text(json.dumps({"offsetTable": {"Orders@billing": {"0": 900, "1": 1}, "Gone@billing": {"0": 7}}}))
    report = reported(closed.root)
    assert not report.faults()
    assert any("group billing is at offset 900 of Orders queue 0, which ends at" in line for line in report.lines())


@pytest.mark.parametrize("name", STORES)
def test_java_stores_are_proved(name: str, java_stores: JavaStores) -> None:
    """Stores that a Java broker closed are proved to end there; one whose broker was killed is no fault."""
    report = reported(java_stores[name])
    assert not report.faults()
    (counters,) = report.stores
    assert counters.end is not None
    assert (counters.end.unproved is not None) == (name == "killed")


@pytest.mark.parametrize("name", [name for name in STORES if name != "killed"])
def test_lost_end_of_a_java_store_is_damage(name: str, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """Of batch queues, the offsets of all messages that are missing are told."""
    root = shutil.copytree(java_stores[name], tmp_path / name)
    cut_middle(StoreDirectory(root))
    with pytest.raises(StoreDamagedError, match="queue entries name"):
        plan_stores([str(root)])
    assert any("were to be read and were not" in fault for fault in reported(root).faults())


def test_store_without_a_message_is_no_fault(tmp_path: pathlib.Path) -> None:
    """A broker that never stored a message leaves a checkpoint with a time, which names no record."""
    directory = StoreDirectory(tmp_path / "store")
    directory.open()
    directory.close_all()
    (directory.root / "commitlog").mkdir(exist_ok=True)
    directory.segment().write_bytes(bytes(4096))
    assert (directory.root / "checkpoint").exists()
    assert not reported(directory.root).faults()
