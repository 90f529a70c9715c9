import base64
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from javastores import JavaStores, Read, comparable
from logbuilder import LogBuilder
from pyarrow import ipc, parquet

from rocketlet.common.errors import ConfigError, StoreError
from rocketlet.export.columns.schema import SCHEMA
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.write import writers as write
from rocketlet.export.write.log_reader import LogReader
from rocketlet.export.write.writers import format_of, open_writer, write_all


def reading(store: pathlib.Path) -> LogReader:
    """Return a reading of a store."""
    return LogReader(plan_stores([str(store)]))


def test_parquet_holds_the_rows(java_stores: JavaStores, read: Read, tmp_path: pathlib.Path) -> None:
    """The file has the schema and the rows of the reading."""
    write_all(reading(java_stores["plain"]), str(tmp_path / "out.parquet"), "parquet")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.schema.names == SCHEMA.names
    assert comparable(table.to_pylist()) == comparable(read(java_stores["plain"])[0])


def test_parquet_row_groups_collect_batches(
    java_stores: JavaStores, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are put together up to a size, so that readers meet few row groups."""
    path = tmp_path / "out.parquet"
    write_all(reading(java_stores["killed"]), str(path), "parquet")
    assert parquet.read_metadata(path).num_row_groups == 1
    monkeypatch.setattr(write, "_ROW_GROUP_BYTES", 1)
    write_all(reading(java_stores["killed"]), str(path), "parquet")
    assert parquet.read_metadata(path).num_row_groups == 6
    assert parquet.read_metadata(path).num_rows == 653


def test_parquet_row_group_is_full_at_its_size(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group ends with the batch that reaches the size."""
    batch = pa.RecordBatch.from_pydict({"n": list(range(100))})
    monkeypatch.setattr(write, "_ROW_GROUP_BYTES", 2 * batch.nbytes)
    writer = write.ParquetWriter(str(tmp_path / "out.parquet"), batch.schema)
    for _ in range(5):
        writer.write(batch)
    writer.close()
    assert parquet.read_metadata(tmp_path / "out.parquet").num_row_groups == 3


def test_arrow_file_holds_the_rows(java_stores: JavaStores, read: Read, tmp_path: pathlib.Path) -> None:
    """The Arrow file has the schema and the rows of the reading."""
    write_all(reading(java_stores["batchcrc"]), str(tmp_path / "out.arrow"), "arrow")
    with pa.OSFile(str(tmp_path / "out.arrow")) as file:
        table = ipc.open_file(file).read_all()
    assert table.schema.equals(SCHEMA)
    assert table.to_pylist() == read(java_stores["batchcrc"])[0]


def test_json_lines_hold_the_rows(java_stores: JavaStores, read: Read, tmp_path: pathlib.Path) -> None:
    """Each line is a message; bodies are text or base64, times ISO 8601, and what is absent is left out."""
    path = tmp_path / "out.jsonl"
    write_all(reading(java_stores["plain"]), str(path), "jsonl")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    rows, _ = read(java_stores["plain"])
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        body = line["body"].encode() if "body" in line else base64.b64decode(line["bodyBase64"])
        assert body == row["body"]
        assert line["properties"] == dict(row["properties"])
        assert line.get("tags") == row["tags"]
        assert line["storeTimestamp"] == row["storeTimestamp"].isoformat(timespec="milliseconds")[:-6] + "Z"
        assert line["queueOffset"] == row["queueOffset"]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_failed_export_leaves_no_file(kind: str, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """An error on the way removes the unfinished file and keeps the one that was there."""
    path = tmp_path / f"out.{kind}"
    path.write_bytes(b"old")
    batches = list(reading(java_stores["plain"]))

    def failing() -> Iterator[pa.RecordBatch]:
        yield batches[0]
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_all(failing(), str(path), kind)
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_file_without_rows_is_complete(kind: str, tmp_path: pathlib.Path) -> None:
    """No messages make a valid file without rows."""
    path = tmp_path / f"out.{kind}"
    write_all([], str(path), kind)
    if kind == "parquet":
        assert parquet.read_metadata(path).num_rows == 0
    if kind == "arrow":
        with pa.OSFile(str(path)) as file:
            assert ipc.open_file(file).read_all().num_rows == 0
    if kind == "jsonl":
        assert path.read_bytes() == b""


def test_place_that_cannot_be_written_is_refused(tmp_path: pathlib.Path) -> None:
    """A missing folder is an error before anything is read."""
    with pytest.raises(ConfigError, match="cannot be written"), open_writer(str(tmp_path / "no" / "out"), "jsonl"):
        pass


def test_format_follows_the_suffix() -> None:
    """Known suffixes name the format in any case; others are refused."""
    assert [format_of(f"x{suffix}") for suffix in (".parquet", ".ARROW", ".feather", ".ndjson")] == [
        "parquet",
        "arrow",
        "arrow",
        "jsonl",
    ]
    with pytest.raises(ConfigError, match=r"out\.csv ends in none of"):
        format_of("out.csv")


def test_absent_values_are_no_part_of_a_line(log: LogBuilder, tmp_path: pathlib.Path) -> None:
    """Nor is the body of a message that has none; bytes that are no text are base64."""
    log.add(b"text", properties={"TAGS": "t", "KEYS": "a b"})
    log.add(b"\xff\x00", born_at_ms=2**60)
    log.add(b"no zlib", sys_flag=0x301)
    write_all(reading(log.save()), str(tmp_path / "out.jsonl"), "jsonl")
    first, second, third = (json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert (first["body"], first["tags"], first["keys"]) == ("text", "t", ["a", "b"])
    assert (first["storeTimestamp"], first["bornTimestamp"]) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:19.999Z")
    assert (second["bodyBase64"], second["keys"], second["properties"]) == ("/wA=", [], {})
    assert first.keys() == {*SCHEMA.names}
    assert second.keys() == {*SCHEMA.names, "bodyBase64"} - {"body", "tags", "bornTimestamp"}
    assert third.keys() == {*SCHEMA.names} - {"body", "tags"}


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_batches_without_rows_add_nothing(kind: str, java_stores: JavaStores, tmp_path: pathlib.Path) -> None:
    """Between others, and in the end."""
    batches = list(reading(java_stores["plain"]))
    empty = batches[0].slice(0, 0)
    write_all([empty, *batches, empty], str(tmp_path / "out"), kind)
    assert find_rows(tmp_path / "out", kind) == sum(batch.num_rows for batch in batches)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def find_rows(path: pathlib.Path, kind: str) -> int:
    """Return how many rows a file has."""
    if kind == "jsonl":
        return len(path.read_bytes().splitlines())
    if kind == "parquet":
        return parquet.read_metadata(path).num_rows
    with pa.OSFile(str(path)) as file:
        read_file = ipc.open_file(file)
        assert all(read_file.get_batch(number).num_rows for number in range(read_file.num_record_batches))
        return read_file.read_all().num_rows


def test_disk_that_takes_no_more_is_an_error_of_the_store(tmp_path: pathlib.Path) -> None:
    """Which names the file, and leaves nothing."""

    def failing() -> Iterator[pa.RecordBatch]:
        raise OSError(28, "No space left on device")
        yield

    with pytest.raises(StoreError, match=r"out cannot be written: No space left on device"):
        write_all(failing(), str(tmp_path / "out"), "jsonl")
    assert list(tmp_path.iterdir()) == []


def test_row_groups_are_of_64_mebibytes(tmp_path: pathlib.Path) -> None:
    """Which readers expect of Parquet; each begins anew."""
    schema = pa.schema([pa.field("body", pa.binary())])
    batch = pa.RecordBatch.from_arrays([pa.array([bytes(1 << 20)] * 16)], schema=schema)
    write_all([batch] * 9, str(tmp_path / "out"), "parquet", schema)
    found: Any = parquet.read_metadata(tmp_path / "out")
    assert [found.row_group(number).num_rows for number in range(found.num_row_groups)] == [64, 64, 16]
