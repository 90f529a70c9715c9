"""Exported files are compared with the report of their export."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from javastores import JavaStores, Read
from logbuilder import LogBuilder

from rocketlet.common.errors import ConfigError
from rocketlet.export.plan.filesystems import Storage
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.plan.selection import Selection
from rocketlet.export.report.report import Report
from rocketlet.export.write.log_reader import LogReader, ReadOptions
from rocketlet.export.write.verify import compare, find_outputs, read_outputs
from rocketlet.export.write.writers import open_writer

TAGS = Selection(tags=frozenset({"TagA", "TagB"}))


def write_rows(rows: Sequence[Mapping[str, Any]], path: pathlib.Path) -> None:
    """Write rows as a Parquet file."""
    batch = pa.RecordBatch.from_pydict({name: [row[name] for row in rows] for name in rows[0]})
    pq.write_table(pa.Table.from_batches([batch]), path)


def export(java_stores: JavaStores, folder: pathlib.Path, selection: Selection) -> tuple[pa.Table, Report]:
    """Return the rows and the report of two stores."""
    reading = LogReader(plan_stores([str(java_stores["plain"]), str(java_stores["batchcrc"])]), ReadOptions(selection))
    return pa.Table.from_batches(list(reading)), reading.report


def differences(report: Report, *places: pathlib.Path, checks_bodies: bool = True) -> list[str]:
    """Compare files with a report."""
    found = read_outputs(find_outputs(map(str, places), Storage()), checks_bodies=checks_bodies)
    return list(compare(report, found))


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.jsonl"])
@pytest.mark.parametrize("selection", [Selection(includes_system=True), TAGS], ids=["all", "tags"])
def test_exported_file_is_what_the_report_says(
    java_stores: JavaStores, tmp_path: pathlib.Path, name: str, selection: Selection
) -> None:
    """Each format that an export writes verifies, with inner batches and with filters."""
    rows, report = export(java_stores, tmp_path, selection)
    with open_writer(str(tmp_path / name), {"parquet": "parquet", "arrow": "arrow", "jsonl": "jsonl"}[name[4:]]) as out:
        for batch in rows.to_batches():
            out.write(batch)
    assert differences(report, tmp_path) == []


def test_partitioned_files_are_read_by_their_directories(java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """Topics may stand in the names of directories, as Spark and Hive write them, escaped; markers are no data."""
    rows, report = export(java_stores, tmp_path, Selection(includes_system=True))
    pq.write_to_dataset(rows, str(tmp_path / "out"), partition_cols=["topic", "queueId"])
    (tmp_path / "out" / "_SUCCESS").touch()
    assert differences(report, tmp_path / "out") == []


CHANGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "lost": lambda rows: rows.slice(1),
    "doubled": lambda rows: pa.concat_tables([rows, rows.slice(rows.num_rows - 1)]),
    "moved": lambda rows: rows.set_column(2, rows.schema.field(2), pc.add(rows.column("queueOffset"), 1)),
    "renamed": lambda rows: rows.set_column(0, rows.schema.field(0), pa.array(["Other"] * rows.num_rows)),
}


@pytest.mark.parametrize("selection", [Selection(includes_system=True), TAGS], ids=["all", "tags"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_rows_are_found(
    java_stores: JavaStores, tmp_path: pathlib.Path, change: str, selection: Selection
) -> None:
    """A row that is lost, doubled, moved or of another topic is a difference, with filters too."""
    rows, report = export(java_stores, tmp_path, selection)
    pq.write_table(CHANGES[change](rows), tmp_path / "out.parquet")
    assert differences(report, tmp_path / "out.parquet")


def test_difference_names_queue_and_offsets(java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """Each line says which queue differs and how."""
    rows, report = export(java_stores, tmp_path, Selection(topics=frozenset({"OneQueue"})))
    kept = [*range(5), *range(9, rows.num_rows), 3]
    pq.write_table(rows.take(pa.array(kept)), tmp_path / "out.parquet")
    assert differences(report, tmp_path / "out.parquet") == [
        "OneQueue queue 0: 227 rows instead of 230",
        "OneQueue queue 0: missing queue offsets 5 to 8",
        "OneQueue queue 0: repeated queue offsets: 1 instead of 0, the first is 3",
    ]


def test_rows_that_stand_for_others_are_found(log: LogBuilder, read: Read, tmp_path: pathlib.Path) -> None:
    """Repeated rows are told where a filter left messages out, though number, ends and sum of the offsets are right."""
    for tag in "aaaab":
        log.add(properties={"TAGS": tag})
    log.save()
    rows, report = read(log.root, options=ReadOptions(Selection(tags=frozenset({"a"}))))
    write_rows([rows[number] for number in (0, 0, 3, 3)], tmp_path / "out.parquet")
    assert differences(report, tmp_path / "out.parquet") == [
        "Topic queue 0: repeated queue offsets: 2 instead of 0, the first is 0"
    ]


def test_rows_of_a_queue_that_was_left_out_are_found(log: LogBuilder, read: Read, tmp_path: pathlib.Path) -> None:
    """A row of a queue of which the filter left nothing is one too many."""
    log.add(properties={"TAGS": "a"})
    log.add(properties={"TAGS": "b"}, queue_id=1)
    log.save()
    rows, report = read(log.root, options=ReadOptions(Selection(tags=frozenset({"a"}))))
    write_rows([*rows, {**rows[0], "queueId": 1}], tmp_path / "out.parquet")
    assert differences(report, tmp_path / "out.parquet") == ["Topic queue 1: 1 rows instead of 0"]


def test_repeats_of_the_log_belong_into_the_files(log: LogBuilder, read: Read, tmp_path: pathlib.Path) -> None:
    """A queue offset that the log has three times is in the files three times; the report tells of it anyway."""
    for queue_offset in (0, 1, 1, 1):
        log.add(queue_offset=queue_offset)
    log.save()
    rows, report = read(log.root)
    told = [f"report: {log.root}: Topic queue 0: repeated queue offsets: 2"]
    expected = {4: [], 3: ["3 rows instead of 4", "repeated queue offsets: 1 instead of 2, the first is 1"]}
    expected[2] = ["2 rows instead of 4", "repeated queue offsets: 0 instead of 2"]
    for count, lines in expected.items():
        write_rows(rows[:count], tmp_path / "out.parquet")
        found = differences(report, tmp_path / "out.parquet")
        assert found == told + [f"Topic queue 0: {line}" for line in lines]


def test_changed_body_is_found(java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """A body that has not its checksum is counted, unless nobody asks."""
    rows, report = export(java_stores, tmp_path, Selection(topics=frozenset({"OneQueue"})))
    bodies = [b"changed", *rows.column("body").to_pylist()[1:]]
    at = rows.schema.names.index("body")
    pq.write_table(rows.set_column(at, rows.schema.field(at), pa.array(bodies)), tmp_path / "out.parquet")
    assert differences(report, tmp_path) == ["bodies without their checksum: 1"]
    assert differences(report, tmp_path, checks_bodies=False) == []


def test_directory_that_lost_its_files_is_a_difference(java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """What Spark leaves beside its files is none of them."""
    rows, report = export(java_stores, tmp_path, Selection())
    (tmp_path / "_SUCCESS").touch()
    lost = [line for line in differences(report, tmp_path) if "0 rows instead of" in line]
    assert sum(int(line.rpartition(" ")[2]) for line in lost) == rows.num_rows


def test_faults_of_the_report_are_differences(java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """A report that does not prove itself cannot prove files."""
    rows, report = export(java_stores, tmp_path, Selection())
    pq.write_table(rows, tmp_path / "out.parquet")
    incomplete = replace(report, unread=["1 of 3 parts were not read to their end: 2"])
    assert differences(incomplete, tmp_path) == ["report: 1 of 3 parts were not read to their end: 2"]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("out.parquet", b"PAR1", r"out\.parquet cannot be read"),
        ("out.jsonl", b'{"topic": "T", "queueId": 0}\n', r"out\.jsonl has no column queueOffset"),
        ("out.jsonl", b"{\n", r"out\.jsonl cannot be read"),
        ("out.csv", b"topic\n", "holds no file that ends in one of"),
    ],
)
def test_unreadable_output_is_one_sentence(tmp_path: pathlib.Path, name: str, content: bytes, sentence: str) -> None:
    """Files that are no output of an export are named."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        differences(Report(), tmp_path)
