"""The text of metrics, held against what prometheus_client writes and reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import cast

import pytest
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import generate_latest as write_text
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import Collector

from rocketlet.metrics.exporter import EXPORTER
from rocketlet.metrics.families import Column, Exposition, Family, Kept, Sample
from rocketlet.metrics.native import NATIVE

Write = Callable[[CollectorRegistry], bytes]
Parse = Callable[[str], Iterable[Metric]]
write_openmetrics = cast("Write", vars(openmetrics)["generate_latest"])
parse_openmetrics = cast("Parse", vars(openmetrics_parser)["text_string_to_metric_families"])

GAUGE = Family("depth", ("topic", "group"), "how deep")
COUNTER = Family("sent_total", ("topic",), "how many", is_counter=True)
BARE = Family("bare", (), "without labels")
AGE, OTHER_AGE = Family("age", ("since",), "how old"), Family("age_milliseconds", ("since",), "how old")
FAMILIES = (GAUGE, COUNTER, BARE)
COMMON = {"env": 'a"b', "topic": "gives way"}
TEXTS = ["plain", "", "%RETRY%g", 'quote " and \\ and \n', "\\n", "{a}", "%s", "ümlaut", "日本", "tab\t\r", ",=}"]
NUMBERS = [0, 1, -1, 10, 999_999, 1_000_000, 123_456_789, 2**53, 2**63 - 1, 0.0, 0.5, 1e-9, 1.5e16, 1e300, 123456.7]
SAMPLES = [
    *(Sample(GAUGE, (one, "g"), number) for number, one in enumerate(TEXTS)),
    *(Sample(GAUGE, (str(place), "numbers"), number) for place, number in enumerate(NUMBERS)),
    *(Sample(COUNTER, (one,), number) for number, one in enumerate(TEXTS)),
    Sample(BARE, (), 7),
]


class Reference(Collector):
    """The same metrics for the encoders of prometheus_client."""

    def __init__(self, families: Iterable[Family], samples: Iterable[Sample], common: Mapping[str, str]) -> None:
        added = {each: {name: one for name, one in common.items() if name not in each.labels} for each in families}
        self._metrics = {each: self._begin(each, [*each.labels, *more]) for each, more in added.items()}
        for family, labels, value in samples:
            self._metrics[family].add_metric([*labels, *added[family].values()], value)

    def _begin(self, family: Family, labels: list[str]) -> CounterMetricFamily | GaugeMetricFamily:
        kind = CounterMetricFamily if family.is_counter else GaugeMetricFamily
        return kind(family.name, family.meaning, labels=labels)

    def collect(self) -> Iterable[Metric]:
        """Return the metrics."""
        return self._metrics.values()


def exposed(samples: Iterable[Sample], common: Mapping[str, str], *, is_open: bool) -> str:
    """Return our text."""
    exposition = Exposition(FAMILIES, common, Kept(), is_open=is_open)
    exposition.add(samples)
    return text_of(exposition)


def text_of(exposition: Exposition) -> str:
    """Return the whole text."""
    return b"".join(exposition.encode()).decode()


def columns(shared: tuple[str, ...], rows: Sequence[Sample]) -> Iterator[Column]:
    """Yield the samples of each metric as a column; what is shared stands behind the labels."""

    def labels(key: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([f"{one}{''.join(shared)}" for one in key])

    for family in FAMILIES:
        told = [one for one in rows if one.family is family]
        yield Column((family,), [one.labels for one in told], labels, [one.value for one in told])


def told_in_runs(kept: Kept, runs: Sequence[Sequence[Sample]], shared: tuple[str, ...] = ()) -> tuple[str, Kept]:
    """Return the text of runs, and what is kept for the next one."""
    exposition = Exposition(FAMILIES, COMMON, kept, is_open=True)
    for number, run in enumerate(runs):
        exposition.add_run(columns, shared, number, run)
    return text_of(exposition), exposition.kept


def families_of(parse: Parse, text: str) -> list[tuple[object, ...]]:
    """Return all that a text tells, in its order; numbers as floats, as Prometheus reads them."""
    return [
        (each.name, each.type, each.documentation, [(one.name, one.labels, float(one.value)) for one in each.samples])
        for each in parse(text)
    ]


@pytest.mark.parametrize("common", [{}, COMMON], ids=["alone", "with common labels"])
@pytest.mark.parametrize(
    ("write", "parse", "is_open"),
    [(write_text, parse_text, False), (write_openmetrics, parse_openmetrics, True)],
    ids=["text", "openmetrics"],
)
def test_text_says_what_prometheus_client_says(
    write: Write, parse: Parse, common: Mapping[str, str], *, is_open: bool
) -> None:
    """Names, kinds, meanings, labels and numbers are the same, in the same order, whatever stands in the labels."""
    registry = CollectorRegistry()
    registry.register(Reference((GAUGE, COUNTER, BARE), SAMPLES, common))
    found = families_of(parse, exposed(SAMPLES, common, is_open=is_open))
    assert found == families_of(parse, write(registry).decode())
    assert sum(len(cast("list[object]", one[3])) for one in found) == len(SAMPLES)


@pytest.mark.parametrize("is_open", [False, True])
def test_lines_are_as_prometheus_client_writes_them(*, is_open: bool) -> None:
    """Byte by byte, where numbers are short floats."""
    samples = [Sample(COUNTER, ("a\nb",), 0.5), Sample(GAUGE, ("z", "a"), 1.0), Sample(BARE, (), 3.0)]
    registry = CollectorRegistry()
    registry.register(Reference((COUNTER, GAUGE, BARE), samples, COMMON))
    exposition = Exposition((COUNTER, GAUGE, BARE), COMMON, Kept(), is_open=is_open)
    exposition.add(reversed(samples))
    assert text_of(exposition).encode() == (write_openmetrics if is_open else write_text)(registry)


def test_runs_tell_what_samples_tell() -> None:
    """Also when texts of the scrape before are used again, and when a run is another one or has gone."""
    kept = Kept()
    for runs in (
        [SAMPLES],
        [SAMPLES],
        [SAMPLES[:9], SAMPLES[9:]],
        [SAMPLES[:9], [one._replace(value=one.value + 1) for one in SAMPLES[9:]]],
        [SAMPLES[3:9][::-1], SAMPLES[9:]],
        [[], SAMPLES[4:]],
        [SAMPLES[:2]],
        [],
    ):
        text, kept = told_in_runs(kept, runs)
        assert text == exposed([one for run in runs for one in run], COMMON, is_open=True)


def test_shared_labels_make_another_run() -> None:
    """Rows that are as before are written anew where the labels that all have are others."""
    _, kept = told_in_runs(Kept(), [SAMPLES], ("1",))
    assert told_in_runs(kept, [SAMPLES], ("2",))[0] == told_in_runs(Kept(), [SAMPLES], ("2",))[0]


def test_rows_that_are_equal_are_not_looked_at_again() -> None:
    """Their columns are not asked for."""
    _, kept = told_in_runs(Kept(), [SAMPLES])
    exposition = Exposition(FAMILIES, COMMON, kept, is_open=True)
    exposition.add_run(columns, (), 0, list(SAMPLES))
    asked: list[Sequence[Sample]] = []

    def note(_: tuple[str, ...], rows: Sequence[Sample]) -> Iterator[Column]:
        asked.append(rows)
        yield from columns((), rows)

    for rows in ([SAMPLES[0]], [SAMPLES[0]], [SAMPLES[1]]):
        exposition = Exposition(FAMILIES, COMMON, exposition.kept, is_open=True)
        exposition.add_run(note, (), 0, rows)
    assert asked == [[SAMPLES[0]], [SAMPLES[1]]]


def test_ages_are_those_of_now() -> None:
    """They grow while the rows stay, are zero where nothing waits, and never less when a clock was set back."""

    def ages(_: tuple[str, ...], rows: Sequence[int]) -> Iterator[Column]:
        yield Column((AGE, OTHER_AGE), rows, labels, rows, are_ages=True)

    def labels(since_ms: int) -> tuple[str, ...]:
        return (str(since_ms),)

    kept = Kept()
    for at_ms, told in ((1_000, [0, 0, 100]), (1_500, [0, 300, 600]), (800, [0, 0, 0])):
        exposition = Exposition((AGE, OTHER_AGE), {}, kept, is_open=False, at_ms=at_ms)
        exposition.add_run(ages, (), 0, [0, 1_200, 900])
        kept = exposition.kept
        found = families_of(parse_text, text_of(exposition))
        assert [[value for _, _, value in cast("list[tuple[str, object, float]]", one[3])] for one in found] == [
            told
        ] * 2


def test_texts_of_labels_are_used_again() -> None:
    """The next scrape takes those that it needs from the last one, and forgets the others."""
    first = Exposition(FAMILIES, {}, Kept(), is_open=False)
    first.add(SAMPLES)
    second = Exposition(FAMILIES, {}, first.kept, is_open=False)
    second.add(SAMPLES[:3])
    assert second.kept.labels.keys() < first.kept.labels.keys()
    assert all(text is first.kept.labels[key] for key, text in second.kept.labels.items())
    assert text_of(second) == exposed(SAMPLES[:3], {}, is_open=False)


def test_no_metric_needs_more_than_this_writes() -> None:
    """Names, labels and meanings have nothing to escape."""
    for family in (*NATIVE, *EXPORTER):
        assert all(name.replace("_", "a").isalnum() and name.isascii() for name in (family.name, *family.labels))
        assert not {"\\", "\n", '"'} & set(family.meaning)
        assert family.is_counter == family.name.endswith("_total") or family.name.startswith("rocketmq_brokeruntime")
