"""Reads stores as a table: plans splits in the driver, and reads each of them in a task.

Rules:

- Each log is read up to where it ended when the table was loaded (``LoadSnapshot``), so that all tasks, and all that is
  computed from the table, see one prefix of a store that a broker is writing to.
- Damage, other than a torn end of the log, fails the job with file, position and reason: a table does not show what it
  lacks. With ``onDamage`` ``skip``, the log goes on behind it. With ``prefix``, planning walks the log once, on one
  core; the table ends before the damage, and file, position and reason are logged as a warning.
- Spark's filters, and the options that select, decide what is read at all (``export.pushdown``); what is not read is
  not checked either.
- With a report, each task adds what it met when it has read its split to the end (``export.report``).
- The checksum of a body is of use to who reads bodies: without column ``body``, it is verified only if that is asked.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from ...export.columns.schema import pick_columns
from ...export.plan.filesystems import Folder
from ...export.plan.read_plan import Plan, cut_at_damage, plan_prefixes
from ...export.plan.split import Split
from ...export.pushdown.pushdown import PushdownOptions, PushdownResult, check_topics, planned_report, push_down
from ...export.report.counters import StoreCounters
from ...export.report.report import ReportParts
from ...export.write.log_reader import ReadOptions, SplitReader
from ...store.commitlog.record_blocks import ScanLimits
from ..options.filter_pushdown import PushFilters, push_filters
from ..options.spark_schemas import check_types, fit_to_spark
from ..options.store_options import FAIL, PREFIX, SKIP, StoreOptions
from .handoff import cut_at

_log = logging.getLogger(__name__)


class SplitPart(NamedTuple):
    """A split with its number among all; ``report`` is where to say what was met."""

    number: int
    split: Split
    report: ReportParts | None


class StoreReader(DataSourceReader):
    """Plans one reading, and reads its partitions; travels to the tasks."""

    def __init__(
        self,
        options: StoreOptions,
        schema: pa.Schema,
        filters: Iterable[str] = (),
        log_ends: Mapping[str, int] | None = None,
    ) -> None:
        self._options = options
        self._log_ends = log_ends
        self._selection = options.selection
        self._filters = list(filters)
        self._schema = schema
        check_types(schema, pick_columns(schema.names))

    @PushFilters
    def pushFilters(  # noqa: N802 # Spark's name  # pyright: ignore[reportIncompatibleMethodOverride] # called alike
        self, filters: list[Filter]
    ) -> Iterable[Filter]:
        """Take the filters that the reading applies itself, and return the others."""
        if not self._options.pushes_filters:
            return filters
        self._selection, left, taken = push_filters(self._selection, filters)
        self._filters += taken
        return left

    def partitions(self) -> list[InputPartition]:
        """Return one partition per split.

        Raises:
            ConfigError: A directory is not a store, or a topic is in none of them.
            StoreError: It cannot be read, or is damaged where its log ends.
        """
        plan = self.plan()
        check_topics(plan.splits, self._options.selection.topics)
        return [InputPartition(part) for part in self.parts(plan)]

    def parts(self, plan: Plan) -> list[SplitPart]:
        """Return the splits of a plan that may hold what is wanted; raises ``StoreError``."""
        options = PushdownOptions(self._options.uses_queues, self._options.index_sizes)
        pushed = push_down(plan.splits, self._selection, options)
        report = self._begin_report(plan, pushed)
        return [SplitPart(number, split, report) for number, split in enumerate(pushed.splits)]

    def among(self, topics: frozenset[str]) -> "StoreReader":
        """Return a reader of what is wanted of these topics."""
        among = self._selection.among
        selection = replace(self._selection, among=topics if among is None else among & topics)
        options = replace(self._options, selection=selection)
        return StoreReader(options, self._schema, self._filters, self._log_ends)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a partition; raises what ``SplitReader.read`` does."""
        part: SplitPart | None = partition.value
        if part is None:  # what Spark makes of a plan without partitions
            return
        skips = self._options.on_damage == SKIP
        delays_ms = self._options.delays_ms
        options = ReadOptions(self._selection, pick_columns(self._schema.names), self._limits, skips, delays_ms)
        counters = StoreCounters(part.split.store) if part.report is not None else None
        for batch in SplitReader(options, counters).read(part.split):
            if batch.num_rows:
                yield fit_to_spark(batch, self._schema)
        if part.report is not None and counters is not None:
            part.report.finish(part.number, counters)

    @property
    def _limits(self) -> ScanLimits:
        asked = self._options.verifies_crc
        return ScanLimits(checks_crc="body" in self._schema.names if asked is None else asked)

    def plan(self) -> Plan:
        """Return the splits of all stores, up to where their logs end now; raises as ``partitions``."""
        plan = plan_prefixes(self._options.stores, self._options.planning)
        if self._log_ends is not None:
            plan = cut_at(plan, self._log_ends)
        if self._options.on_damage == FAIL:
            for damage in plan.damages.values():
                raise damage
        if self._options.on_damage == PREFIX:
            plan = cut_at_damage(plan, replace(self._limits, checks_crc=self._options.verifies_crc is not False))
            for store, damage in plan.damages.items():
                _log.warning("store %s is damaged, reading only what comes before: %s", store, damage)
        return plan

    def _begin_report(self, plan: Plan, pushed: PushdownResult) -> ReportParts | None:
        if self._options.report_path is None:
            return None
        report = planned_report(plan, pushed.stores, self._filters, checks_crc=self._limits.checks_crc)
        folder = Folder(self._options.report_path, self._options.planning.storage)
        return ReportParts.begin(folder, report, len(pushed.splits))
