"""Measure what reading stores costs in Spark, beside a source that has nothing to do (`python bench/spark.py`).

- The other source yields one batch again and again: the same schema, rows, partitions and content, made before. So
  the ratio of both is what is left of the speed that Spark allows a source in Python.
- Both run in turn; the median of the ratios is printed, of time and of CPU time of Java and all workers together. The
  latter is what a machine whose cores are all busy with tasks gives, and what else runs here counts little in it.
"""

import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import click
import pyarrow as pa
import pyarrow.ipc as pa_ipc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests" / "support"))

from local_spark import cpu_ticks_of_family, start_spark
from samplelog import CONTENT, METADATA, write_log

from rocketlet.export.columns.schema import SCHEMA, pick_columns
from rocketlet.export.plan.read_plan import PlanOptions, plan_stores
from rocketlet.export.write.log_reader import LogReader, ReadOptions

_TICKS: Final = os.sysconf("SC_CLK_TCK")


class ConstantReader(DataSourceReader):
    """Yields one batch until the rows are as many as were asked for."""

    def __init__(self, path: str, rows: int, count: int) -> None:
        self._path = path
        self._rows = rows
        self._count = count

    def partitions(self) -> list[InputPartition]:
        """Return as many partitions as the other source has."""
        return [InputPartition(number) for number in range(self._count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batch."""
        batch = pa_ipc.open_file(pathlib.Path(self._path).read_bytes()).get_batch(0)
        left = self._rows // self._count
        while left > 0:
            yield batch.slice(0, min(left, batch.num_rows))
            left -= batch.num_rows


class ConstantSource(DataSource):
    """The source that has nothing to do."""

    @classmethod
    def name(cls) -> str:
        """Return the short name."""
        return "constant"

    def schema(self) -> StructType:
        """Return the schema of the batch."""
        return from_arrow_schema(pa_ipc.open_file(pathlib.Path(self.options["path"]).read_bytes()).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader."""
        return ConstantReader(self.options["path"], int(self.options["rows"]), int(self.options["count"]))


class Cost(NamedTuple):
    """What a run took."""

    seconds: float
    cpu_seconds: float


class Bench:
    """A store, and what is done with its rows."""

    def __init__(self, spark: SparkSession, folder: pathlib.Path, split_bytes: int) -> None:
        self._spark = spark
        self._folder = folder
        self._store = str(folder / "store")
        self._split_bytes = split_bytes
        self.splits = plan_stores([self._store], PlanOptions(split_bytes=split_bytes))
        self.rows = 0

    def stop(self) -> None:
        """End Spark."""
        self._spark.stop()

    def source(self, columns: tuple[str, ...]) -> DataFrame:
        """Return the rows of the store; all bodies are read, and their checksums are not verified."""
        reader = self._spark.read.format("rocketmq").options(splitBytes=self._split_bytes, verifyBodyCrc=False)
        return reader.option("columns", ",".join(columns)).load(self._store)

    def ceiling(self, columns: tuple[str, ...]) -> DataFrame:
        """Return as many rows of the other source."""
        path = str(self._folder / "constant.arrow")
        schema = pick_columns(columns)
        reading = LogReader(self.splits, ReadOptions(schema=schema))
        batch, self.rows = next(iter(reading)), 0
        with pa_ipc.new_file(path, schema) as file:
            file.write_batch(batch)
        self.rows = sum(each.num_rows for each in LogReader(self.splits, ReadOptions(schema=pick_columns(["flag"]))))
        reader = self._spark.read.format("constant").options(rows=self.rows, count=len(self.splits))
        return reader.load(path)

    def to_noop(self, frame: DataFrame) -> None:
        """Read all rows."""
        frame.write.format("noop").mode("overwrite").save()

    def to_parquet(self, frame: DataFrame) -> None:
        """Write all rows."""
        target = self._folder / "out"
        frame.write.mode("overwrite").parquet(str(target))
        shutil.rmtree(target)

    def compare(self, name: str, columns: tuple[str, ...], sink: Callable[[DataFrame], None], rounds: int) -> None:
        """Print what is left of the speed of the ceiling."""
        source, ceiling = self.source(columns), self.ceiling(columns)
        for frame in (ceiling, source):
            sink(frame)
        pairs = [(_cost(sink, ceiling), _cost(sink, source)) for _ in range(rounds)]
        time_left = statistics.median(one.seconds / other.seconds for one, other in pairs)
        cpu_left = statistics.median(one.cpu_seconds / other.cpu_seconds for one, other in pairs)
        fastest = min(other.seconds for _, other in pairs)
        rate = self.rows / fastest
        click.echo(f"{name}: {time_left:.0%} of the ceiling by time, {cpu_left:.0%} by CPU time; {rate:,.0f} rows/s")


def _cost(sink: Callable[[DataFrame], None], frame: DataFrame) -> Cost:
    started, cpu = time.perf_counter(), _cpu_seconds()
    sink(frame)
    return Cost(time.perf_counter() - started, _cpu_seconds() - cpu)


def _cpu_seconds() -> float:
    """Return the CPU time of all processes that descend from this one, and of those that they have seen end."""
    return sum(sum(ticks) for pid, ticks in cpu_ticks_of_family(os.getpid()).items() if pid != os.getpid()) / _TICKS


def _start(cores: int, folder: pathlib.Path) -> SparkSession:
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    spark = start_spark(folder, cores, {})
    spark.dataSource.register(ConstantSource)
    return spark


@click.command()
@click.option("--megabytes", default=1_000, show_default=True, help="Size of the log.")
@click.option("--body-bytes", default=1_000, show_default=True)
@click.option("--cores", default=2, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--split-bytes", default=64 << 20, show_default=True)
@click.option("--only", help="Only readings that have this in their names.")
def main(megabytes: int, body_bytes: int, cores: int, rounds: int, split_bytes: int, only: str | None) -> None:
    """Print the ratios."""
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        write_log(place / "store", megabytes * 1_000_000, body_bytes)
        bench = Bench(_start(cores, place), place, split_bytes)
        click.echo(f"{megabytes} MB of log, bodies of {body_bytes} bytes, {len(bench.splits)} splits, {cores} cores")
        readings = (
            ("metadata into noop", METADATA, bench.to_noop),
            ("bodies and properties into noop", CONTENT, bench.to_noop),
            ("all columns into Parquet", tuple(SCHEMA.names), bench.to_parquet),
        )
        for name, columns, sink in readings:
            if only is None or only in name:
                bench.compare(name, columns, sink, rounds)
        bench.stop()


if __name__ == "__main__":
    main()
