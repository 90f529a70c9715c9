import json
import os
import pathlib
import pickle
from functools import partial

import pytest
from javastores import Row
from logbuilder import LogBuilder
from pushing import TOPICS, fill
from pyspark.sql.datasource import EqualTo, Filter
from stores import StoreDirectory

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.export.report.report import load_report
from rocketlet.spark.hybrid.read_modes import check_batch, check_columns, find_mode, pick_schema, reading_options
from rocketlet.spark.hybrid.store_reader import StoreReader
from rocketlet.spark.options.store_options import parse_store_options
from rocketlet.store.commitlog.record_blocks import ScanLimits


def open_reader(**options: str) -> StoreReader:
    """Return the reader of stores, as Spark gets it."""
    given = reading_options(options)
    mode = find_mode(given)
    check_batch(given, mode)
    return StoreReader(parse_store_options(given), pick_schema(given, mode))


def read(reader: StoreReader, filters: list[Filter] | None = None) -> list[Row]:
    """Read all partitions as Spark does: planned here, read by a copy that has travelled."""
    left = list(reader.pushFilters(filters or []))
    assert not left
    partitions = reader.partitions()
    reader, partitions = pickle.loads(pickle.dumps((reader, partitions)))  # noqa: S301 # our own
    return [row for partition in partitions for batch in reader.read(partition) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a store with queues."""
    directory = StoreDirectory(tmp_path_factory.mktemp("cold") / "store")
    fill(directory)
    return str(directory.root)


def test_columns_are_picked(store: str) -> None:
    """The option picks columns, in its order."""
    rows = read(open_reader(path=store, columns="queueOffset, topic", topics="Rare"))
    assert [list(row) for row in rows] == [["queueOffset", "topic"]] * 4


def test_columns_that_are_not_there_are_refused(store: str) -> None:
    """A misspelt column, an empty list, and a schema that says something else are errors."""
    for columns, sentence in (("topics", "there is no column topics; did you mean topic"), (",", "names no column")):
        with pytest.raises(ConfigError, match=sentence):
            open_reader(path=store, columns=columns)
    given = reading_options({"path": store, "columns": "topic"})
    with pytest.raises(ConfigError, match="columns and the given schema contradict each other"):
        check_columns(given, pick_schema(reading_options({"path": store}), find_mode(given)))


def test_checksums_are_verified_where_bodies_are_read(log: LogBuilder) -> None:
    """Without the body its checksum is not looked at, unless that is asked for."""
    for body in (b"first", b"second", b"third"):
        log.add(body)
    log.save()
    (path,) = log.files()
    path.write_bytes(path.read_bytes().replace(b"second", b"sEcond"))
    assert len(read(open_reader(path=str(log.root), columns="topic"))) == 3
    for options in ({"columns": "topic", "verifyBodyCrc": "true"}, {"columns": "body"}):
        with pytest.raises(StoreDamagedError):
            read(open_reader(path=str(log.root), **options))
    assert len(read(open_reader(path=str(log.root), verifyBodyCrc="false"))) == 3
    assert [row["body"] for row in read(open_reader(path=str(log.root), onDamage="skip"))] == [b"first", b"third"]
    assert [row["body"] for row in read(open_reader(path=str(log.root), onDamage="prefix"))] == [b"first"]


def test_report_proves_what_filters_left(store: str, tmp_path: pathlib.Path) -> None:
    """The report says what was pushed down, which offsets had to be read, and that they were."""
    options = {"splitBytes": "2k", "columns": "queueOffset", "pushFilters": "true"}
    reader = open_reader(path=store, reportPath=str(tmp_path / "report"), **options)
    rows = read(reader, [EqualTo(("topic",), "Orders"), EqualTo(("queueId",), 1)])
    report = load_report(str(tmp_path / "report"))
    (counters,) = report.stores
    assert not report.faults()
    assert counters.pushed[:2] == ["topic = Orders", "queueId = 1"]
    assert counters.pushed[2] == f"topic in (Orders): {len(rows)} records by 1 queues"
    assert counters.rows == counters.records == len(rows) == 46
    assert json.dumps(report.to_json())


def test_report_proves_the_whole_store(store: str, tmp_path: pathlib.Path) -> None:
    """Without filters, each record is a row or left out, whatever the size of splits."""
    reader = open_reader(path=store, reportPath=str(tmp_path / "report"), splitBytes="700")
    rows = read(reader)
    report = load_report(str(tmp_path / "report"))
    assert not report.faults()
    assert report.stores[0].records == 160
    assert report.rows == len(rows) == sum(report.stores[0].queues[key].rows for key in report.stores[0].queues)


def test_unknown_topic_fails_before_the_first_task(store: str) -> None:
    """A topic that the store does not have is an error of planning."""
    with pytest.raises(ConfigError, match="no store has a topic Oders; did you mean Orders"):
        open_reader(path=store, topics="Oders").partitions()
    assert len(TOPICS) == 3


def test_lost_end_of_a_closed_store(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Planning fails, or warns, or reads what there is; and the report names what is missing of each queue."""
    directory = StoreDirectory(tmp_path / "store")
    fill(directory)
    for path in sorted((directory.root / "commitlog").iterdir())[3:]:
        path.unlink()
    place, report = str(directory.root), str(tmp_path / "report")
    with pytest.raises(StoreDamagedError, match="queue entries name"):
        open_reader(path=place).partitions()
    rows = read(open_reader(path=place, onDamage="skip", reportPath=report))
    assert any("Rare queue 1: queue offsets" in fault for fault in load_report(report).faults())
    assert read(open_reader(path=place, onDamage="prefix")) == rows
    assert "is damaged, reading only what comes before" in caplog.text


def test_partition_whose_log_is_cut_while_it_is_read_names_the_file(
    log: LogBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that has handed out a batch fails with file and both sizes, and its worker lives on."""
    monkeypatch.setattr("rocketlet.spark.hybrid.store_reader.ScanLimits", partial(ScanLimits, block_records=10))
    for _ in range(20):
        log.add()
    reader = open_reader(path=str(log.save()))
    (partition,) = reader.partitions()
    batches = reader.read(partition)
    assert next(batches).num_rows == 10
    os.truncate(log.files()[0], 100)
    with pytest.raises(StoreDamagedError, match=f"{log.files()[0]} cannot be read: it has 100 bytes and had"):
        next(batches)
