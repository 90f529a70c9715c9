"""Whether a reading takes Spark's filters and limits (option ``pushFilters``).

    messages = spark.read.format("rocketmq").load(…)
    messages.where("queueId = 0").join(messages.where("queueId = 1"), …)      two scans of one ``load``

Rule: Spark 4 keeps one plan for all scans of one ``load``, the one that was made last
(``PythonDataSourceV2.setReadInfo``). A plan that one scan's filters have narrowed would leave rows out of the others,
without a word; so there it is not narrowed by default. Who asks for it makes one scan of each ``load``. The options
that select are safe, as each ``load`` has its own. Spark 5 keeps a plan in each scan (``PythonScanBuilder``), plans it
anew for a limit, and wants the same filters to be taken each time.
"""

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from .filters import PushFilters
from .optionvalues import Given

PUSH_OPTION: Final = "pushFilters"
LIMIT_KEY: Final = "spark.sql.python.limitPushdown.enabled"
PROVIDER: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"
_SHARING: Final = "setReadInfo"
_log = logging.getLogger(__name__)


def parse_pushing(given: Given) -> bool:
    """Tell whether filters are taken (raises ``ConfigError`` for a value that is neither true nor false)."""
    return given.flag(PUSH_OPTION, default=False)


def keeps_plans_apart(spark: SparkSession, provider: str = PROVIDER) -> bool:
    """Tell whether each scan has a plan of its own: whether Spark's class of Python sources keeps none for all."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:  # a client of a Spark that runs elsewhere
        return False
    try:
        return all(method.getName() != _SHARING for method in jvm.java.lang.Class.forName(provider).getMethods())
    except Py4JError:  # it is another class by now
        return False


def warn_of_whole_reading(given: Given, log_bytes: int) -> None:
    """Say which options would leave out something of stores, where Spark's filters leave out nothing."""
    wanting = {"topics": ("topics", "subscribe", "subscribePattern"), "columns": ("columns",)}
    missing = [name for name, options in wanting.items() if not any(option in given for option in options)]
    if missing and log_bytes and not parse_pushing(given):
        _log.warning(
            "each query reads all %s of %d bytes of log, as this Spark keeps one plan for all queries of a load, "
            "which no filter may narrow; give options %s to leave out what is not needed",
            " and all ".join(missing),
            log_bytes,
            " and ".join(missing),
        )


def switch_on(spark: SparkSession, key: str) -> bool:
    """Set a setting to true unless its user has set it; tell whether it is true."""
    found = {spark.conf.get(key, default) for default in ("true", "false")}
    if len(found) > 1:  # not set: each default came back
        spark.conf.set(key, "true")
    return found != {"false"}


class LimitedReader(DataSourceReader):
    """Reads what another reader does, of each partition no more rows than Spark wants of all of them.

    Readers do not do so themselves: Spark refuses one with ``pushLimit`` while its setting ``LIMIT_KEY`` is off.
    """

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._limit: int | None = None

    @PushFilters
    def pushFilters(  # noqa: N802 # pyright: ignore[reportIncompatibleMethodOverride] # Spark's; called like a method
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Let the other reader take filters."""
        return self._reader.pushFilters(filters)

    def pushLimit(self, limit: int) -> bool:  # noqa: N802 # Spark's name
        """Take a limit; Spark takes what it needs of the rows."""
        self._limit = limit
        return True

    def partitions(self) -> list[InputPartition]:
        """Return those of the other reader."""
        return self._reader.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition until there are enough."""
        left = self._limit
        with closing(self._reader.read(partition)) as batches:
            for batch in batches:
                yield batch if left is None else batch.slice(0, left)
                if left is not None and not (left := left - min(left, batch.num_rows)):
                    return
