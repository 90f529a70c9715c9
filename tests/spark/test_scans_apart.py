"""The source under a Spark that keeps a plan for each scan, driven as such a Spark drives it.

No released Spark does (4.3 keeps one plan for all scans of a ``load``); its source tree for version 5 does:
``PythonScanBuilder`` keeps what the Python workers plan for it. Here Spark's own workers run, those that this version
has, in that order: the source travels once, a worker takes the filters of a scan and plans it, another one plans a scan
without filters, and what they return is kept by the scan and read later. The worker that takes limits is in version 5
alone: one test makes its calls to the reader in its place.
"""

import io
import json
import pathlib
from base64 import b64encode
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pushing import fill
from pyspark import worker_util
from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import BinaryType, StructType, VariantVal
from pyspark.sql.worker import data_source_pushdown_filters, plan_data_source_read
from stores import StoreDirectory

from rocketlet.spark.source import LimitingDataSource, PushingDataSource, RocketMQDataSource

# What Spark itself calls; none of it is meant for others, or has types.
PICKLES: Any = worker_util.pickleSer
PLAN: Any = plan_data_source_read
PUSH: Any = data_source_pushdown_filters


class Scan(NamedTuple):
    """What a worker has planned: the read function, partitions as they travel, and the filters that were taken."""

    read: Any
    partitions: list[bytes]
    taken: list[int]

    def rows(self) -> list[tuple[int, int]]:
        """Read all partitions as tasks do; return queue id and offset of the rows."""
        return sorted(row for part in self.partitions for row in self._rows_of(part))

    def _rows_of(self, part: bytes) -> Iterator[tuple[int, int]]:
        for batch in self.read(iter([pa.RecordBatch.from_pydict({"partition": [part]})])):
            yield from zip(batch["queueId"].to_pylist(), batch["queueOffset"].to_pylist(), strict=True)


class Load:
    """One ``load``: the source as it was pickled when it was created."""

    def __init__(self, kind: type[DataSource], **options: str) -> None:
        made = kind(options)
        self.schema = StructType([made.schema()["queueId"], made.schema()["queueOffset"], made.schema()["topic"]])  # pyright: ignore[reportArgumentType] # it is no text
        self._travels = framed(made)

    def plan(self) -> Scan:
        """Plan a scan without filters (``plan_data_source_read``)."""
        partition = StructType().add("partition", BinaryType())
        schemas = text(partition.json()) + text(self.schema.json())
        asked = self._travels + schemas + number(10_000) + bytes([True, False, True])  # pushes, no stream, bytes
        return self._run(PLAN._main, asked)

    def plan_filtered(self, **filters: object) -> Scan:
        """Plan a scan with filters on equal values (``data_source_pushdown_filters``)."""
        sent = [equal(name, value) for name, value in filters.items()]
        asked = self._travels + text(self.schema.json()) + text(json.dumps(sent)) + number(10_000) + bytes([True])
        return self._run(PUSH._main, asked)

    def reader(self) -> Any:
        """Return the reader of another worker."""
        return PICKLES._read_with_length(io.BytesIO(self._travels)).reader(self.schema)

    def _run(self, worker: Any, request: bytes) -> Scan:
        asked, told = io.BytesIO(request), io.BytesIO()
        worker(asked, told)
        assert not asked.read(), "the worker has not read all"
        told.seek(0)
        read, _ = PICKLES._read_with_length(told)
        partitions = [told.read(read_number(told)) for _ in range(read_number(told))]
        is_pushed = told.tell() < len(told.getvalue())
        return Scan(read, partitions, [read_number(told) for _ in range(read_number(told))] if is_pushed else [])


def framed(value: object) -> bytes:
    """Return a pickle behind its length."""
    made = io.BytesIO()
    PICKLES._write_with_length(value, made)
    return made.getvalue()


def number(value: int) -> bytes:
    """Return a number as Spark sends it."""
    return value.to_bytes(4, "big")


def read_number(told: io.BytesIO) -> int:
    """Return the next number."""
    return int.from_bytes(told.read(4), "big")


def text(value: str) -> bytes:
    """Return a text behind its length."""
    return number(len(value.encode())) + value.encode()


def equal(name: str, value: object) -> dict[str, object]:
    """Return a filter as Spark sends it."""
    variant = VariantVal.parseJson(json.dumps(value))
    parts = {"value": b64encode(variant.value).decode(), "metadata": b64encode(variant.metadata).decode()}
    return {"name": "EqualTo", "columnPath": [name], "value": parts, "isNegated": False}


def overrides(reader: Any, name: str) -> bool:
    """Tell whether Spark takes a reader for one that has a method."""
    return getattr(getattr(reader, name, None), "__func__", None) is not getattr(DataSourceReader, name, None)


@pytest.fixture
def directory(tmp_path: pathlib.Path) -> StoreDirectory:
    """Return a store of three topics."""
    made = StoreDirectory(tmp_path / "store", segment_bytes=65_536)
    fill(made)
    return made


def test_scans_of_one_load_have_their_own_rows_and_one_end(directory: StoreDirectory) -> None:
    """Scans with different filters, and one without, are planned while a broker writes, and read in another order."""
    load = Load(PushingDataSource, path=str(directory.root), topics="Orders")
    before = load.plan().rows()
    first = load.plan_filtered(topic="Orders", queueId=0)
    fill(directory)
    second, everything = load.plan_filtered(queueId=1), load.plan()
    fill(directory)
    again = load.plan_filtered(queueId=0)
    assert (first.taken, second.taken) == ([0, 1], [0])
    assert {queue_id for queue_id, _ in before} == {0, 1, 2}
    assert everything.rows() == before
    assert second.rows() == [row for row in before if row[0] == 1]
    assert first.rows() == again.rows() == [row for row in before if row[0] == 0]
    later = Load(PushingDataSource, path=str(directory.root), topics="Orders")
    assert len(later.plan().rows()) == 3 * len(before)


def test_filters_are_left_to_a_spark_that_shares_plans(directory: StoreDirectory) -> None:
    """The plain source takes none of them, and a scan with filters reads what one without them does."""
    load = Load(RocketMQDataSource, path=str(directory.root), topics="Orders")
    filtered = load.plan_filtered(queueId=1)
    assert filtered.taken == []
    assert filtered.rows() == load.plan().rows()


def test_limit_is_taken_by_the_reader_of_a_plan_of_its_own(directory: StoreDirectory) -> None:
    """Version 5 pushes filters again before the limit, on a new reader, and wants the same ones taken."""
    load = Load(LimitingDataSource, path=str(directory.root), topics="Orders")
    wanted = load.plan_filtered(queueId=2)
    reader = load.reader()
    assert overrides(reader, "pushLimit")
    again = [PUSH.deserializeFilter(equal("queueId", 2))]
    assert list(reader.pushFilters(again)) == []
    assert reader.pushLimit(4)
    limited = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [batch.num_rows for batch in limited] == [4]
    assert (
        list(zip(limited[0]["queueId"].to_pylist(), limited[0]["queueOffset"].to_pylist(), strict=True))
        == wanted.rows()[:4]
    )
    assert len(load.plan().rows()) > len(wanted.rows()) > 4


@pytest.mark.parametrize("kind", [RocketMQDataSource, PushingDataSource, LimitingDataSource])
def test_reader_has_no_method_that_spark_would_refuse(directory: StoreDirectory, kind: type[DataSource]) -> None:
    """While a setting is off, Spark refuses readers with its method: only the one for sessions with limits has one."""
    reader = Load(kind, path=str(directory.root)).reader()
    assert overrides(reader, "pushLimit") == (kind is LimitingDataSource)
    assert not overrides(reader, "pushFilters")
    off = Load(kind, path=str(directory.root), pushFilters="false").reader()
    assert not overrides(off, "pushLimit")
