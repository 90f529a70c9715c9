import pathlib
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from javastores import Read
from logbuilder import LogBuilder
from s3 import serve_s3

from rocketlet.common.errors import ConfigError
from rocketlet.export.plan.filesystems import Folder
from rocketlet.export.plan.log_end import LogStop
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.plan.selection import Reason
from rocketlet.export.report.counters import SplitRead, StoreCounters, store_to_json
from rocketlet.export.report.report import Report, ReportParts, load_report, save_report
from rocketlet.export.write.log_reader import LogReader, ReadOptions, SplitReader
from rocketlet.export.write.verify import compare, find_outputs, read_outputs
from rocketlet.store.commitlog.record_blocks import ScanLimits


def test_missing_and_repeated_offsets_are_faults(log: LogBuilder, read: Read) -> None:
    """A queue that lacks an offset, or has one twice, breaks the proof; the fault names queue and number."""
    for queue_offset in (3, 4, 7, 8):
        log.add(queue_offset=queue_offset)
    for queue_offset in (0, 1, 1):
        log.add(queue_id=1, queue_offset=queue_offset)
    log.save()
    _, report = read(log.root)
    assert report.faults() == [
        f"{log.root}: Topic queue 0: missing queue offsets: 2, the first is 5",
        f"{log.root}: Topic queue 1: repeated queue offsets: 1",
    ]
    assert report.to_json()["proved"] is False
    assert not any(line.startswith("proof holds") for line in report.lines())


def test_lines_name_counts_and_proof(log: LogBuilder, read: Read) -> None:
    """The text has a line per queue, the sum, and the proof."""
    log.add()
    log.add(topic="%DLQ%g")
    log.save()
    _, report = read(log.root, options=ReadOptions())
    assert list(report.lines()) == [
        f"{log.root}: 2 records and 0 blanks in {log.end} bytes of log",
        "  Topic queue 0: 1 rows, offsets 0 to 0",
        "  left out, dead letter topic: 1",
        "  2 messages = 1 rows + 1 left out",
        "proof holds: every message is counted, every queue offset is there once, all body checksums are right",
    ]


def test_proof_does_not_claim_what_was_not_looked_at(log: LogBuilder, read: Read) -> None:
    """Without checksums there is no claim about them, and the JSON report is not proved."""
    log.add()
    log.save()
    _, report = read(log.root, options=ReadOptions(limits=ScanLimits(checks_crc=False)))
    assert report.stores[0].checked_bodies == 0
    assert report.to_json()["proved"] is False
    assert list(report.lines())[-1].endswith("body checksums were not looked at")


def test_many_faults_are_summed_up(log: LogBuilder, read: Read) -> None:
    """The text names five faults and counts the others; the JSON has them all."""
    for queue_id in range(9):
        log.add(queue_id=queue_id, queue_offset=0)
        log.add(queue_id=queue_id, queue_offset=2)
    log.save()
    _, report = read(log.root)
    assert len(report.to_json()["faults"]) == 9
    assert list(report.lines())[-1] == "fault: 4 more"


def test_queue_ids_keep_their_sign(log: LogBuilder, read: Read) -> None:
    """A negative queue id, which only a broken producer sends, is counted as what it is."""
    log.add(queue_id=-1)
    log.save()
    _, report = read(log.root)
    assert list(report.stores[0].queues) == [("Topic", -1)]


@pytest.fixture
def reading(log: LogBuilder) -> LogReader:
    """Return a finished reading of a log of several files and queues."""
    for number in range(90):
        log.add(b"body %d" % number, queue_id=number % 3, topic=f"T{number % 2}")
    reading = LogReader(plan_stores([str(log.save())]))
    assert sum(batch.num_rows for batch in reading) == 90
    return reading


def all_counters(reading: LogReader) -> list[StoreCounters]:
    """Return what tasks that read one split each met."""
    found: list[StoreCounters] = []
    for split in reading.splits:
        found.append(StoreCounters(split.store))
        for _ in SplitReader(counters=found[-1]).read(split):
            pass
    return found


def counts(report: Report) -> object:
    """Return what a report says, but for the time it took."""
    for counters in report.stores:
        counters.seconds = 0
    return report.to_json()


def test_parts_add_up_to_the_report_of_one_reading(reading: LogReader, tmp_path: pathlib.Path) -> None:
    """Tasks that finish in any order, and twice, give the report that one reading of everything gives."""
    parts = ReportParts.begin(Folder(str(tmp_path / "report")), Report(), len(reading.splits))
    found = all_counters(reading)
    for number in [*reversed(range(len(found))), 0, 1]:
        parts.finish(number, found[number])
    assert counts(load_report(str(tmp_path / "report"))) == counts(reading.report)


def test_report_and_files_behind_a_url(reading: LogReader, tmp_path: pathlib.Path) -> None:
    """Parts, and the files that are compared with them, may lie in an object store; a new plan removes old parts."""
    (tmp_path / "bucket").mkdir()
    pq.write_table(pa.Table.from_batches(list(reading)), tmp_path / "bucket" / "out.parquet")
    found = all_counters(reading)
    with serve_s3(tmp_path) as storage:
        folder = Folder("s3://bucket/reports/one", storage)
        ReportParts.begin(folder, Report(), 1).finish(0, found[0])
        parts = ReportParts.begin(folder, Report(), len(found))
        for number, counters in enumerate(found):
            parts.finish(number, counters)
        assert len(folder.names()) == len(found) + 1
        report = load_report("s3://bucket/reports/one", storage)
        assert report.faults() == []
        assert list(compare(report, read_outputs(find_outputs(["s3://bucket/out.parquet"], storage)))) == []
        with pytest.raises(ConfigError, match="s3://bucket/reports/two"):
            load_report("s3://bucket/reports/two", storage)


def test_missing_part_is_a_fault(reading: LogReader, tmp_path: pathlib.Path) -> None:
    """A task that never finished is named by its number, and the report proves nothing."""
    parts = ReportParts.begin(Folder(str(tmp_path / "report")), Report(), len(reading.splits))
    parts.finish(0, all_counters(reading)[0])
    report = load_report(str(tmp_path / "report"))
    assert report.faults()[0].startswith(f"{len(reading.splits) - 1} of {len(reading.splits)} parts were not read")
    assert report.to_json()["proved"] is False


def test_new_plan_forgets_the_parts_of_the_last(reading: LogReader, tmp_path: pathlib.Path) -> None:
    """A directory that is used again has the report of the last reading, also when old tasks still write to it."""
    found = all_counters(reading)
    old = ReportParts.begin(Folder(str(tmp_path / "report")), Report(), 1)
    old.finish(0, found[0])
    new = ReportParts.begin(Folder(str(tmp_path / "report")), Report(), 1)
    old.finish(0, found[0])
    new.finish(0, found[1])
    assert load_report(str(tmp_path / "report")).rows == found[1].rows
    assert len(list((tmp_path / "report").iterdir())) == 3


def test_report_file_is_read_back(reading: LogReader, tmp_path: pathlib.Path) -> None:
    """What was saved to one file is the same report again."""
    save_report(reading.report, str(tmp_path / "report.json"))
    assert load_report(str(tmp_path / "report.json")).to_json() == reading.report.to_json()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"stores": [{}], "checksCrc": true, "unread": []}'])
def test_file_that_is_no_report_is_refused(text: str, tmp_path: pathlib.Path) -> None:
    """Other content is an error that names the file."""
    (tmp_path / "report.json").write_text(text)
    with pytest.raises(ConfigError, match=r"report\.json is no report"):
        load_report(str(tmp_path / "report.json"))


def test_report_that_is_not_there_is_an_error(tmp_path: pathlib.Path) -> None:
    """So are a missing file and a directory without a plan."""
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_report(str(tmp_path / "report.json"))
    with pytest.raises(ConfigError, match=r"is no report: it holds no plan\.json"):
        load_report(str(tmp_path))


def test_report_behind_a_url_needs_no_options(reading: LogReader) -> None:
    """One file, and a directory of parts, are written to and read from a place without any."""
    save_report(reading.report, "memory://reports/one.json")
    assert load_report("memory://reports/one.json").to_json() == reading.report.to_json()
    ReportParts.begin(Folder("memory://reports/many"), reading.report, 0)
    assert load_report("memory://reports/many").to_json() == reading.report.to_json()


@pytest.mark.parametrize(
    ("missing", "named"),
    [
        ([1], "1 of 8 parts were not read to their end: 1"),
        ([0, 2, 3, 5, 7], "5 of 8 parts were not read to their end: 0, 2, 3, 5, 7"),
        (range(1, 7), "6 of 8 parts were not read to their end: 1, 2, 3, 4, 5, …"),
    ],
)
def test_missing_parts_are_named(missing: Sequence[int], named: str, tmp_path: pathlib.Path) -> None:
    """Five of them at most."""
    parts = ReportParts.begin(Folder(str(tmp_path)), Report(), 8)
    for number in {*range(8)} - {*missing}:
        parts.finish(number)
    assert load_report(str(tmp_path)).unread == [named]


def test_parts_that_are_planned_later_are_numbered_on(reading: LogReader, tmp_path: pathlib.Path) -> None:
    """What is known of them is added to what was known before."""
    parts = ReportParts.begin(Folder(str(tmp_path)), Report(), 2)
    assert parts.extend(Report(), 3) == 2
    assert parts.extend(reading.report, 0) == 5
    assert parts.extend(reading.report, 1) == 5
    found = load_report(str(tmp_path))
    assert found.unread == ["6 of 6 parts were not read to their end: 0, 1, 2, 3, 4, …"]
    assert found.rows == 2 * reading.report.rows


def test_lines_tell_what_was_wrong(log: LogBuilder) -> None:
    """Failed checksums, skipped bytes, pushed filters and a doubtful end have a line each."""
    report = Report()
    counters = report.of_store("store")
    counters.fail_crc("Topic", 0)
    counters.fail_crc("Topic", 0)
    counters.skip("log", 7, 100, "the magic is unknown")
    counters.skip("log", 300, 11, "the magic is unknown")
    counters.pushed += ["tags = a"]
    counters.end = LogStop("log", 400, "zeros", "it may go on")
    lines = list(report.lines())
    assert lines[1:] == [
        "  0 messages = 0 rows + 0 left out",
        "  stored bodies without their checksum: 2",
        "  skipped as damaged: 111 bytes in 2 places",
        "  pushed down: tags = a",
        "  the log ends in log at position 400: zeros",
        "  that the log ended there is not proved: it may go on",
        "fault: store: log at position 7: 100 bytes skipped, the magic is unknown",
        "fault: store: log at position 300: 11 bytes skipped, the magic is unknown",
    ]


@pytest.mark.parametrize(("faults", "last"), [(5, "fault: part 4"), (6, "fault: 1 more")])
def test_five_faults_are_named(faults: int, last: str) -> None:
    """More are counted."""
    lines = list(Report(unread=[f"part {number}" for number in range(faults)]).lines())
    assert lines[4] == "fault: part 4"
    assert lines[-1] == last


@pytest.mark.parametrize(
    "queues",
    [
        [("A", 2), ("B", -1), ("B", 0)],
        [("A", 0), ("A", 1 << 16), ("A", 65_535)],
        [("A", 65_534), ("A", 0), ("B", 0), ("B", 65_534)],
        [("B", -1), ("A", -1), ("A", -2), ("A", 2**31 - 1)],
        [("A", 32_767), ("B", 32_767), ("B", 0)],
    ],
)
def test_queues_are_told_apart_whatever_their_numbers(
    log: LogBuilder, read: Read, queues: list[tuple[str, int]]
) -> None:
    """Of several topics, with negative and with great ones."""
    for topic, queue_id in [*queues, *queues[1:]]:
        log.add(topic=topic, queue_id=queue_id)
    log.save()
    _, report = read(log.root)
    found = {key: (queue.messages, queue.rows) for key, queue in report.stores[0].queues.items()}
    assert found == {key: (1, 1) if key == queues[0] else (2, 2) for key in queues}
    assert not report.faults()


def test_faults_are_in_the_order_of_queues() -> None:
    """Whichever was met first."""
    counters = StoreCounters("store")
    for topic, queue_id in (("B", 0), ("A", 1), ("A", 0)):
        counters.expect((topic, queue_id), 0, 1)
    assert [fault.partition(":")[0] for fault in counters.faults()] == ["A queue 0", "A queue 1", "B queue 0"]
    queues = store_to_json(counters)["queues"]
    assert [(queue["topic"], queue["queueId"]) for queue in queues] == [("A", 0), ("A", 1), ("B", 0)]


def test_places_are_told_in_the_order_of_the_log() -> None:
    """Skipped bytes and splits, in faults and in JSON."""
    counters = StoreCounters("store")
    for position in (9, 3):
        counters.skip("log", position, 1, "zeros")
        counters.splits.append(SplitRead("log", position, position + 5, None, None))
    assert [fault.partition(":")[0] for fault in counters.faults()][:2] == ["log at position 3", "log at position 9"]
    found = store_to_json(counters)
    assert [each["position"] for each in found["skipped"]] == [3, 9]
    assert [each["start"] for each in found["splits"]] == [3, 9]
    assert found["skippedBytes"] == 2


def test_queues_of_a_report_are_lines_in_order() -> None:
    """With their rows; those without any have none."""
    report = Report()
    for number, (topic, queue_id) in enumerate((("B", 0), ("A", 1), ("A", 0))):
        queue = report.of_store("store").queue(topic, queue_id)
        queue.count(Reason.WANTED, number)
        queue.offsets.add(5, 5 + number)
    assert [line for line in report.lines() if " rows, " in line] == [
        "  A queue 0: 2 rows, offsets 5 to 6",
        "  A queue 1: 1 rows, offsets 5 to 5",
    ]
