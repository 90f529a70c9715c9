import base64
import json
import pathlib
from collections.abc import Iterator

import pyarrow as pa
import pytest
from javastores import JavaStores, Read, comparable
from pyarrow import ipc, parquet

from rocketlet.common.errors import ConfigError
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
