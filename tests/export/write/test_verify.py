"""Exported files are compared with the report of their export."""

import gzip
import json
import pathlib
import zlib
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
from rocketlet.export.plan.selection import Reason, Selection
from rocketlet.export.report.report import Report
from rocketlet.export.write import verify
from rocketlet.export.write.log_reader import LogReader, ReadOptions
from rocketlet.export.write.verify import compare, find_outputs, read_outputs
from rocketlet.export.write.writers import open_writer

TAGS = Selection(tags=frozenset({"TagA", "TagB"}))


def write_rows(rows: Sequence[Mapping[str, Any]], path: pathlib.Path) -> None:
    """Write rows as a Parquet file."""
    batch = pa.RecordBatch.from_pydict({name: [row[name] for row in rows] for name in rows[0]})
    pq.write_table(pa.Table.from_batches([batch]), path)


def table_of(columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of columns."""
    return pa.Table.from_batches([pa.RecordBatch.from_pydict(dict(columns))])


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


def rows_of(queues: Mapping[int, int]) -> list[dict[str, Any]]:
    """Return so many rows of queues."""
    return [
        {"topic": "T", "queueId": queue, "queueOffset": at} for queue, count in queues.items() for at in range(count)
    ]


def counted(*places: pathlib.Path) -> dict[tuple[str, int], list[tuple[int, int]]]:
    """Return the queue offsets in files."""
    found = read_outputs(find_outputs(map(str, places), Storage()))
    assert found.rows == sum(queue.count for queue in found.queues.values())
    return {key: queue.runs() for key, queue in found.queues.items()}


@pytest.mark.parametrize("ending", ["\n", ""])
@pytest.mark.parametrize("size", [1, 17, 8 << 20])
def test_lines_are_read_in_pieces(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, size: int, ending: str
) -> None:
    """Whatever their size, with and without the last end of line; some may lack what others have."""
    monkeypatch.setattr(verify, "_LINES_BYTES", size)
    lines = [json.dumps(row) for row in rows_of({0: 5, 3: 4})]
    (tmp_path / "out.jsonl").write_text("\n".join(lines) + ending)
    (tmp_path / "empty.jsonl").touch()
    assert counted(tmp_path) == {("T", 0): [(0, 5)], ("T", 3): [(0, 4)]}


def test_compressed_lines_are_read(tmp_path: pathlib.Path) -> None:
    """Parquet has its own compression, so such a file is of no known format."""
    with gzip.open(tmp_path / "out.JSON.gz", "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows_of({0: 3}))
    assert counted(tmp_path / "out.JSON.gz") == {("T", 0): [(0, 3)]}
    (tmp_path / "out.parquet.gz").touch()
    with pytest.raises(ConfigError, match=r"out\.parquet\.gz ends in none of"):
        counted(tmp_path / "out.parquet.gz")


def test_files_below_a_directory_are_found(tmp_path: pathlib.Path) -> None:
    """At any depth, but for those whose names begin with marks; others beside them do not disturb."""
    for number, name in enumerate(["a", "x/b", "x/y/c", "_x/d", "x/.e", "x/_f"]):
        path = tmp_path / "out" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rows([{"topic": "T", "queueId": 0, "queueOffset": number}], path)
    (tmp_path / "out" / "notes.txt").touch()
    assert counted(tmp_path / "out") == {("T", 0): [(0, 3)]}
    assert counted(tmp_path / "out" / "a.parquet", tmp_path / "out" / "x") == {("T", 0): [(0, 3)]}
    found = read_outputs(find_outputs([str(tmp_path / "out")], Storage()))
    assert (found.files, found.rows, found.checked_bodies, found.wrong_bodies) == (3, 3, 0, 0)


@pytest.mark.parametrize(
    ("place", "reason"), [("nothing", "nothing does not exist"), ("a.txt", "a.txt ends in none of")]
)
def test_place_without_rows_is_an_error(tmp_path: pathlib.Path, place: str, reason: str) -> None:
    """But for an empty directory, and a pattern that fits nothing."""
    (tmp_path / "a.txt").touch()
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=reason):
        counted(tmp_path / place)
    assert counted(tmp_path / "empty") == counted(tmp_path / "x*") == {}


def test_columns_may_be_in_the_path(tmp_path: pathlib.Path) -> None:
    """What a file has itself counts more; what is in neither is missed."""
    folder = tmp_path / "topic=A%2FB" / "queueId=7"
    folder.mkdir(parents=True)
    pq.write_table(table_of({"queueOffset": [0, 1], "queueId": [3, 3]}), folder / "a.parquet")
    pq.write_table(table_of({"queueOffset": [5]}), folder / "b.parquet")
    assert counted(tmp_path) == {("A/B", 3): [(0, 2)], ("A/B", 7): [(5, 6)]}
    pq.write_table(table_of({"queueId": [5]}), folder / "topic=x.parquet")
    with pytest.raises(ConfigError, match=r"topic=x\.parquet has no column queueOffset"):
        counted(tmp_path)


def test_bodies_are_compared_as_they_were_stored(tmp_path: pathlib.Path) -> None:
    """Those that were compressed or came in a batch cannot be, nor empty ones; their numbers add up over files."""

    def write(name: str, *rows: tuple[bytes | None, int, int]) -> None:
        bodies, sums, flags = map(list, zip(*rows, strict=True))
        columns = {"topic": ["T"] * len(rows), "queueId": [0] * len(rows), "queueOffset": list(range(len(rows)))}
        kinds = {"body": pa.array(bodies, pa.binary()), "bodyCrc": pa.array(sums, pa.int32())}
        pq.write_table(table_of({**columns, **kinds, "sysFlag": pa.array(flags, pa.int32())}), tmp_path / name)

    sum_of_x, high = zlib.crc32(b"x") & 0x7FFFFFFF, next(n for n in range(99) if zlib.crc32(b"%d" % n) >> 31)
    assert zlib.crc32(b"x") >> 31
    write("a.parquet", (b"x", sum_of_x, 0), (b"x", 5, 0), (b"x", 5, 0x1), (b"x", 5, 0x80), (b"", 5, 0), (None, 5, 0))
    write("b.parquet", (b"%d" % high, zlib.crc32(b"%d" % high) & 0x7FFFFFFF, 0x4), (b"y", 5, 0), (b"z", 5, 0))
    found = read_outputs(find_outputs([str(tmp_path)], Storage()))
    assert (found.checked_bodies, found.wrong_bodies) == (5, 3)
    assert read_outputs(find_outputs([str(tmp_path)], Storage()), checks_bodies=False).checked_bodies == 0


def test_differences_are_in_the_order_of_queues(tmp_path: pathlib.Path) -> None:
    """A single offset is named as one."""
    report = Report()
    for queue_id in (2, 0, 1):
        queue = report.of_store("store").queue("T", queue_id)
        queue.count(Reason.WANTED, 6)
        queue.offsets.add(0, 6)
        report.stores[0].delivered_rows += 6
    write_rows([row for row in rows_of({1: 6, 0: 7, 2: 4}) if (row["queueId"], row["queueOffset"]) != (2, 2)],
               tmp_path / "out.parquet")  # fmt: skip
    assert differences(report, tmp_path) == [
        "T queue 0: 7 rows instead of 6",
        "T queue 0: unexpected queue offset 6",
        "T queue 2: 3 rows instead of 6",
        "T queue 2: missing queue offset 2",
        "T queue 2: missing queue offsets 4 to 5",
    ]


@pytest.mark.parametrize(
    ("offsets", "lines"),
    [
        ((1, 2, 4), []),
        ((4, 1, 2), []),
        ((1, 3, 4), ["the queue offsets are others: they do not have the sum of the report"]),
        ((0, 2, 5), ["queue offsets 0 to 5 instead of 1 to 4"]),
        (
            (1, 2, 5),
            [
                "queue offsets 1 to 5 instead of 1 to 4",
                "the queue offsets are others: they do not have the sum of the report",
            ],
        ),
        (
            (1, 1, 5),
            ["queue offsets 1 to 5 instead of 1 to 4", "repeated queue offsets: 1 instead of 0, the first is 1"],
        ),
    ],
)
def test_rows_with_a_filter_are_compared_by_their_sum(
    tmp_path: pathlib.Path, offsets: Sequence[int], lines: list[str]
) -> None:
    """And by their ends."""
    report = Report()
    queue = report.of_store("store").queue("T", 0)
    queue.count(Reason.WANTED, 3)
    queue.count(Reason.TAG, 3)
    queue.offsets.add(0, 6)
    queue.delivered.add(1, 4, 7)
    report.stores[0].delivered_rows = 3
    write_rows([{"topic": "T", "queueId": 0, "queueOffset": at} for at in offsets], tmp_path / "out.parquet")
    assert differences(report, tmp_path) == [f"T queue 0: {line}" for line in lines]
