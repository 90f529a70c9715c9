"""The Spark data source ``rocketmq``: messages of store directories as a table, read in Arrow batches.

    from rocketlet.spark import register

    register(spark)
    spark.read.format("rocketmq").option("topics", "Orders").load("/data/store")

Rules:

- Columns are those of ``export.schema``, options those of ``spark.options``. A schema given to ``spark.read`` picks
  columns: what it leaves out is not decoded.
- Planning runs once, before the first task: it fixes where each log ends, so that all tasks see one prefix of a store
  that a broker is writing to. There is one partition per file of a commit log.
- Damage, other than a torn end of the log, fails the job with file, position and reason: a table does not show what it
  lacks. Who knows of it reads what comes before with ``readUpToDamage``: planning then walks the log once, on one core,
  and logs file, position and reason as a warning.
- Every node must see the stores under the same path, and have this package: installed, or sent with ``--py-files``.
  A session registers the source once; Spark finds sources by itself only in top-level modules named ``pyspark_*``.
- Workers run the ``python3`` of their path unless ``PYSPARK_PYTHON`` names the environment that holds this package.
"""

import logging
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ..common.errors import ConfigError
from ..export.plan import Split, check_stores, plan_prefixes, plan_stores
from ..export.prefix import cut_at_damage
from ..export.read import ReadOptions, SplitReader
from ..export.schema import SCHEMA, pick_columns
from ..store.blockscan import ScanLimits
from .options import SourceOptions, parse_options

_log = logging.getLogger(__name__)


class RocketMQDataSource(DataSource):
    """Reads RocketMQ store directories; the module says how."""

    @classmethod
    def name(cls) -> str:
        """Return the short name."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return all columns; wrong options and missing stores fail here, when ``load`` is called.

        Raises:
            ConfigError: An option or store that cannot be used.
        """
        check_stores(parse_options(self.options).stores)
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "StoreReader":
        """Return the reader of the columns of a schema.

        Raises:
            ConfigError: An option, or a column that the source does not have.
        """
        return StoreReader(parse_options(self.options), to_arrow_schema(schema, timezone="UTC"))


class StoreReader(DataSourceReader):
    """Plans one reading, and reads its partitions; travels to the tasks."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._check_types(pick_columns(schema.names))

    def partitions(self) -> list[InputPartition]:
        """Return one partition per file.

        Raises:
            ConfigError: A directory is not a store.
            StoreError: It cannot be read, or is damaged where its log ends.
        """
        return [InputPartition(split) for split in self._plan()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; raises what ``SplitReader.read`` does."""
        split: Split | None = partition.value
        if split is None:  # what Spark makes of a plan without partitions
            return
        options = ReadOptions(self._options.selection, pick_columns(self._schema.names), self._limits)
        for batch in SplitReader(options).read(split):
            if batch.num_rows:
                yield _fit(batch, self._schema)

    @property
    def _limits(self) -> ScanLimits:
        return ScanLimits(checks_crc=self._options.verifies_crc)

    def _plan(self) -> list[Split]:
        stores, segment_bytes = self._options.stores, self._options.segment_bytes
        if not self._options.reads_up_to_damage:
            return plan_stores(stores, segment_bytes)
        plan = cut_at_damage(plan_prefixes(stores, segment_bytes), self._limits)
        for store, damage in plan.damages.items():
            _log.warning("%s is read up to damage only: %s", store, damage)
        return plan.splits

    def _check_types(self, known: pa.Schema) -> None:
        for field, own in zip(self._schema, known, strict=True):
            if (
                from_arrow_schema(pa.schema([field])).simpleString()
                != from_arrow_schema(pa.schema([own])).simpleString()
            ):
                raise ConfigError(f"column {field.name} is of type {own.type}, not {field.type}", key=field.name)


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("rocketmq")`` known to a session."""
    spark.dataSource.register(RocketMQDataSource)


def _fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch with the nullability that Spark expects."""
    arrays = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
