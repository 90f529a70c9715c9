"""Names, kinds and labels of metrics, and what prometheus_client makes a text of.

A label that all metrics have (``metricsLabel``) gives way to one of the same name that a metric has itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector


class Family(NamedTuple):
    """A metric: its name as it is queried, its labels, and what it tells; counters end in ``_total``."""

    name: str
    labels: tuple[str, ...]
    meaning: str
    is_counter: bool = False


class Sample(NamedTuple):
    """A value of a metric, with its labels in the order of the family."""

    family: Family
    labels: Sequence[str]
    value: float


class Snapshot(Collector):
    """All metrics at an instant."""

    def __init__(self, families: Iterable[Family], samples: Iterable[Sample], common: Mapping[str, str]) -> None:
        self._common = common
        self._metrics = {family: self._begin(family) for family in families}
        self._added = {family: self._common_for(family)[1] for family in self._metrics}
        for family, labels, value in samples:
            self._metrics[family].add_metric([*labels, *self._added[family]], value)

    def __repr__(self) -> str:
        return f"<Snapshot of {len(self._metrics)} metrics>"

    def _common_for(self, family: Family) -> tuple[list[str], list[str]]:
        added = {name: value for name, value in self._common.items() if name not in family.labels}
        return list(added), list(added.values())

    def _begin(self, family: Family) -> CounterMetricFamily | GaugeMetricFamily:
        labels = [*family.labels, *self._common_for(family)[0]]
        if family.is_counter:
            return CounterMetricFamily(family.name, family.meaning, labels=labels)
        return GaugeMetricFamily(family.name, family.meaning, labels=labels)

    def collect(self) -> Iterator[Metric]:
        """Return the metrics."""
        yield from self._metrics.values()

    def registry(self) -> CollectorRegistry:
        """Return what encoders of prometheus_client take."""
        registry = CollectorRegistry()
        registry.register(self)
        return registry
