"""Takes Spark's filters as a narrower ``Selection``, so that what they exclude is not read (option ``pushFilters``).

    topic = 'A'   topic in ('A', 'B')        -> among
    queueId = 1   queueId in (0, 1)          -> queue_ids      < <= > >= are left to Spark
    queueOffset, storeTimestamp  = < <= > >= -> ranges
    tags = 'a'    tags in ('a', 'b')         -> tags           but for a second such filter

    messages = spark.read.format("rocketmq").load(…)
    messages.where("queueId = 0").join(messages.where("queueId = 1"), …)      two scans of one ``load``

Rules:

- What is taken is taken exactly, so Spark does not look again; everything else stays with Spark. The keys of a message
  are a list, of which Spark hands no filter over: there are the options ``keys`` and ``tags``.
- Spark refuses a reader with ``pushFilters`` while ``spark.sql.python.filterPushdown.enabled`` is off. ``PushFilters``
  passes for a reader without it then, and Spark filters by itself; while it is on, it is called.
- Spark 4 keeps one plan for all scans of one ``load``, the one that was made last
  (``PythonDataSourceV2.setReadInfo``). A plan that one scan's filters have narrowed would leave rows out of the others,
  without a word; so there it is not narrowed by default. Who asks for it makes one scan of each ``load``. The options
  that select are safe, as each ``load`` has its own. Spark 5 keeps a plan in each scan (``PythonScanBuilder``), plans
  it anew for a limit, and wants the same filters to be taken each time.
"""

import datetime
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ...export.columns.schema import FIRST_MS, LAST_MS, SCHEMA
from ...export.plan.selection import Selection
from .option_values import OptionValues

PUSH_KEY: Final = "spark.sql.python.filterPushdown.enabled"
_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)
_SIGNS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
NarrowedSelection = Selection | None


def push_filters(selection: Selection, filters: Iterable[Filter]) -> tuple[Selection, list[Filter], list[str]]:
    """Return the narrowed selection, the filters that are left to Spark, and those that were taken as texts."""
    left: list[Filter] = []
    taken: list[str] = []
    for each in filters:
        narrowed = _take(selection, each)
        if narrowed is None:
            left.append(each)
        else:
            selection = narrowed
            taken.append(_text(each))
    return selection, left, [text for text in taken if text]


def _take(selection: Selection, found: Filter) -> NarrowedSelection:
    match found:
        case IsNotNull(attribute=(name,)) if name in SCHEMA.names and not SCHEMA.field(name).nullable:
            return selection
        case EqualTo(attribute=(name,), value=value) if name in _SETS:
            return _take_any(selection, name, (value,))
        case In(attribute=(name,), value=values) if name in _SETS:
            return _take_any(selection, name, values)
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual() if (
            len(found.attribute) == 1
        ):
            return _take_range(selection, found.attribute[0], _SIGNS[type(found)], found.value)
        case _:
            return None


def _take_any(selection: Selection, name: str, values: Sequence[Any]) -> NarrowedSelection:
    kind, take = _SETS[name]
    wanted = frozenset(value for value in values if value is not None)
    return take(selection, wanted) if all(type(value) is kind for value in wanted) else None


def _take_topics(selection: Selection, topics: frozenset[str]) -> NarrowedSelection:
    return replace(selection, among=topics if selection.among is None else selection.among & topics)


def _take_queue_ids(selection: Selection, ids: frozenset[int]) -> NarrowedSelection:
    return replace(selection, queue_ids=ids if selection.queue_ids is None else selection.queue_ids & ids)


def _take_tags(selection: Selection, tags: frozenset[str]) -> NarrowedSelection:
    return replace(selection, tags=tags) if tags and not selection.tags else None


_SETS: Final[dict[str, tuple[type, Callable[[Selection, frozenset[Any]], NarrowedSelection]]]] = {
    "topic": (str, _take_topics),
    "queueId": (int, _take_queue_ids),
    "tags": (str, _take_tags),
}


def _take_range(selection: Selection, name: str, sign: str, value: Any) -> NarrowedSelection:
    if name == "queueOffset" and type(value) is int:
        low = {">": value + 1, ">=": value, "=": value}.get(sign)
        high = {"<": value, "<=": value + 1, "=": value + 1}.get(sign)
        first, behind = _narrow(selection.from_offset, selection.until_offset, low, high)
        return replace(selection, from_offset=first, until_offset=behind)
    if name == "storeTimestamp" and isinstance(value, datetime.datetime) and value.tzinfo is not None:
        at_us = (value - _EPOCH) // _MICROSECOND
        up, over = -(-at_us // 1000), at_us // 1000 + 1
        low = {">": over, ">=": up, "=": up}.get(sign, FIRST_MS)
        high = {"<": up, "<=": over, "=": over}.get(sign, LAST_MS + 1)
        first, behind = _narrow(selection.from_ms, selection.until_ms, low, high)
        return replace(selection, from_ms=first, until_ms=behind)
    return None


def _narrow(first: int | None, behind: int | None, low: int | None, high: int | None) -> tuple[int | None, int | None]:
    lows = [number for number in (first, low) if number is not None]
    highs = [number for number in (behind, high) if number is not None]
    return max(lows, default=None), min(highs, default=None)


def _text(found: Filter) -> str:
    match found:
        case In(attribute=(name,), value=values):
            return f"{name} in ({', '.join(map(str, values))})"
        case EqualTo() | GreaterThan() | GreaterThanOrEqual() | LessThan() | LessThanOrEqual():
            return f"{'.'.join(found.attribute)} {_SIGNS[type(found)]} {found.value}"
        case _:
            return ""


Push = Callable[[Any, list[Filter]], Iterable[Filter]]


class PushFilters:
    """Makes a method the ``pushFilters`` of a reader that Spark takes whether it pushes filters or not."""

    def __init__(self, method: Push) -> None:
        self._method = method

    def __get__(self, reader: Any, owner: type | None = None) -> Any:
        return DataSourceReader.pushFilters if reader is None else BoundPush(self._method, reader)


class BoundPush:
    """What Spark calls; by ``__func__`` it tells methods from the one that pushes nothing."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, method: Push, reader: Any) -> None:
        self._method = method
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters, and return those that are left to Spark."""
        return self._method(self._reader, filters)


PUSH_OPTION: Final = "pushFilters"
LIMIT_KEY: Final = "spark.sql.python.limitPushdown.enabled"
PROVIDER: Final = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"
_SHARING: Final = "setReadInfo"
_log = logging.getLogger(__name__)


def parse_pushing(given: OptionValues) -> bool:
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


def warn_of_whole_reading(given: OptionValues, log_bytes: int) -> None:
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


class LimitReader(DataSourceReader):
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
                yield batch.slice(0, left)
                if left is not None and not (left := left - min(left, batch.num_rows)):
                    return
