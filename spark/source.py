"""The Spark data source ``rocketmq``: messages of stores or of a running cluster as a table, in Arrow batches.

    from rocketlet.spark import register

    register(spark)
    spark.read.format("rocketmq").option("topics", "Orders").load("/data/store")
    spark.readStream.format("rocketmq").options(nameserver="ns:9876", subscribe="Orders").load()
    table.write.format("rocketmq").options(nameserver="ns:9876", topic="Orders").mode("append").save()

Rules:

- Columns are those of ``export.schema``, with ``brokerName`` behind them where a cluster is read. Option ``columns``,
  or a schema given to ``spark.read``, picks columns: what is left out is not decoded.
- Which reader and options it is follows from what is named (``read_modes``): ``store_options``, ``cluster_options``,
  both of them, ``stream_options`` for a stream, ``sink_options`` for writing.
- Every node must see the stores under the same path, and have this package: installed, or sent with ``--py-files``.
  A session registers the source once. Where the package is installed, Spark finds the source without that, too
  (``pyspark_rocketmq``).
- All that is computed from one ``load`` sees what was there then (``LoadSnapshot``).
- Spark starts ``python3`` of the path; from a virtual environment that is not activated, that is another one. Where all
  workers run on this machine, they run this Python. On nodes it may not be there: then it is only logged.
  ``PYSPARK_PYTHON`` and ``spark.pyspark.python`` are a choice, which is kept.
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import MutableMapping
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from ..export.plan.read_plan import check_stores
from .cluster.cluster_options import parse_cluster_options
from .hybrid.read_modes import (
    Mode,
    check_batch,
    check_columns,
    check_stream,
    find_mode,
    parse_hybrid,
    pick_schema,
    reading_options,
    take_snapshot,
)
from .options.cluster_access import NAMESERVER
from .options.filter_pushdown import (
    LIMIT_KEY,
    PUSH_KEY,
    PUSH_OPTION,
    LimitReader,
    keeps_plans_apart,
    parse_pushing,
    switch_on,
    warn_of_whole_reading,
)
from .options.option_values import OptionValues
from .options.spark_schemas import keep_options, kept_options, options_of_table, without_options
from .options.store_options import parse_store_options
from .stream.stream_options import parse_stream

_SOURCES: Final = frozenset(("path", "paths", NAMESERVER))
_log = logging.getLogger(__name__)


class RocketMQDataSource(DataSource):
    """Reads RocketMQ stores and clusters; the module says how. Keeps what was there when it was loaded."""

    takes_filters = False
    takes_limits = False

    def __init__(self, options: MutableMapping[str, str]) -> None:
        of_table = options_of_table(options)
        super().__init__(options if of_table is None else of_table)
        self._is_new_table = of_table is not None
        self._snapshot = take_snapshot(self.options)

    @classmethod
    def name(cls) -> str:
        """Return the short name."""
        return "rocketmq"

    def schema(self) -> StructType:
        """Return all columns; wrong options and missing stores fail here, when ``load`` is called.

        Raises:
            ConfigError: An option or store that cannot be used.
        """
        given = reading_options(self.options)
        mode = find_mode(given)
        if mode is not Mode.CLUSTER:
            options = parse_store_options(given)
            check_stores(options.stores, options.planning.storage)
        if self._snapshot is not None and not self.takes_filters:
            warn_of_whole_reading(given, self._snapshot.log_bytes)
        schema = from_arrow_schema(pick_schema(given, mode))
        return keep_options(schema, self.options) if self._is_new_table else schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the columns of a schema.

        Raises:
            ConfigError: An option, or a column that the source does not have.
        """
        given = self._given(schema)
        if self.takes_filters and PUSH_OPTION not in given:
            given = given.plus(PUSH_OPTION, "true")
        reader = self._make_reader(given, schema)
        return LimitReader(reader) if self.takes_limits and parse_pushing(given) else reader

    def _make_reader(self, given: OptionValues, schema: StructType) -> DataSourceReader:
        mode, arrow_schema = find_mode(given), to_arrow_schema(without_options(schema), timezone="UTC")
        check_batch(given, mode)
        check_columns(given, arrow_schema)
        if mode is Mode.CLUSTER:
            from .live.cluster_reader import ClusterReader

            return ClusterReader(parse_cluster_options(given), arrow_schema, self._snapshot and self._snapshot.extents)
        if mode is Mode.HYBRID:
            from .hybrid.hybrid_reader import HybridReader

            return HybridReader(parse_hybrid(given), arrow_schema, self._snapshot)
        from .hybrid.store_reader import StoreReader

        return StoreReader(parse_store_options(given), arrow_schema, (), self._snapshot and self._snapshot.log_ends)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 # Spark's name
        """Return the reader of a stream.

        Raises:
            ConfigError: An option, or a column that the source does not have.
        """
        given = self._given(schema)
        mode, arrow_schema = find_mode(given), to_arrow_schema(without_options(schema), timezone="UTC")
        check_stream(mode)
        check_columns(given, arrow_schema)
        if mode is Mode.HYBRID:
            from .hybrid.hybrid_reader import read_as_stream

            return read_as_stream(given, arrow_schema)
        from .stream.stream_reader import ClusterStreamReader

        return ClusterStreamReader(parse_stream(given), arrow_schema)

    def _given(self, schema: StructType) -> OptionValues:
        """Return the options, of a table of the catalog those that its columns have kept too."""
        names_source = any(name.lower() in _SOURCES for name in self.options)
        return reading_options(self.options if names_source else {**kept_options(schema), **self.options})

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001 # Spark's order
        """Return the writer of a table; ``spark.sink`` says how it writes.

        Raises:
            ConfigError: An option, column or mode, or a cluster that cannot be reached.
        """
        from .sink.sink_writer import plan_batch

        return plan_batch(self.options, schema, overwrites=overwrite)

    def streamWriter(  # noqa: N802 # Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 # Spark's order
    ) -> DataSourceStreamArrowWriter:
        """Return the writer of a stream.

        Raises:
            ConfigError: An option, column or mode.
        """
        from .sink.sink_writer import plan_stream

        return plan_stream(self.options, schema, overwrites=overwrite)


class PushingDataSource(RocketMQDataSource):
    """The same source for a Spark that keeps the plans of scans apart: it takes filters unless told otherwise."""

    takes_filters = True


class LimitingDataSource(PushingDataSource):
    """And for a session that hands over limits, which refuses readers that take them where it does not."""

    takes_limits = True


def register(spark: SparkSession) -> None:
    """Make ``spark.read.format("rocketmq")`` known to a session, and have its workers run this Python.

    Where Spark keeps the plans of scans apart (``filter_pushdown``), it is made to push filters down to sources,
    and limits where it can. Who has set ``spark.sql.python.filterPushdown.enabled`` to false keeps that, and is
    warned; a false ``spark.sql.python.limitPushdown.enabled`` is kept too. Else nothing is changed.
    """
    choose_python(spark)
    if not keeps_plans_apart(spark):
        spark.dataSource.register(RocketMQDataSource)
        return
    takes_limits = hasattr(DataSourceReader, "pushLimit") and switch_on(spark, LIMIT_KEY)
    spark.dataSource.register(LimitingDataSource if takes_limits else PushingDataSource)
    if not switch_on(spark, PUSH_KEY):
        _log.warning("%s is false, each query reads all messages and Spark filters them afterwards", PUSH_KEY)


_VARIABLE: Final = "PYSPARK_PYTHON"
_SETTINGS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")
_ASK: Final = "import importlib.util, sys; sys.exit(importlib.util.find_spec('rocketlet') is None)"


def choose_python(spark: SparkSession) -> None:
    """Make the workers of a session run this Python, or warn where they will not find the package."""
    context: Any = getattr(spark, "_sc", None)
    if context is None:  # a client of a Spark that runs elsewhere
        return
    found = shutil.which(str(context.pythonExec))
    if found is not None and os.path.samefile(os.path.dirname(found), os.path.dirname(sys.executable)):
        return
    is_sent = bool(context._python_includes)  # noqa: SLF001 # files of --py-files and addPyFile, which may be the package
    is_chosen = _VARIABLE in os.environ or any(context.getConf().get(name) for name in _SETTINGS)
    if not is_chosen and context.master.startswith("local"):
        context.pythonExec = sys.executable
    elif not is_sent and not _has_package(found):
        _log.warning(
            "Spark's workers run %s, which has no rocketlet: set %s to the Python of an environment that has it, as %s",
            found or context.pythonExec,
            _VARIABLE,
            sys.executable,
        )


def _has_package(python: str | None) -> bool:
    if python is None:
        return False
    asked = subprocess.run([python, "-c", _ASK], capture_output=True, check=False)  # noqa: S603 # what Spark would run
    return not asked.returncode
