"""Whether a reading takes Spark's filters and limits (option ``pushFilters``).

    messages = spark.read.format("rocketmq").load(…)
    messages.where("queueId = 0").join(messages.where("queueId = 1"), …)      two scans of one ``load``

Rule: Spark 4 keeps one plan for all scans of one ``load``, the one that was made last
(``PythonDataSourceV2.setReadInfo``). A plan that one scan's filters have narrowed would leave rows out of the others,
without a word; so there it is not narrowed by default. Who asks for it makes one scan of each ``load``. The options
that select are safe, as each ``load`` has its own.
"""

import logging
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from .optionvalues import Given

PUSH_OPTION: Final = "pushFilters"
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


def cut_rows(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield so many rows at most."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        yield batch.slice(0, left)
        left -= min(left, batch.num_rows)
        if not left:
            return
