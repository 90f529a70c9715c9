"""Names, kinds and labels of metrics, and their text for Prometheus, in its own format or in OpenMetrics.

Rules (prometheus/docs ``exposition_formats.md``, OpenMetrics 1.0)

    1. All values of a metric stand together, behind lines that tell its meaning and kind; each has a line
       ``name{label="text",…} number``. A backslash, a quote and a line break in a text are escaped.
    2. A counter is called without its end ``_total`` by the two lines of OpenMetrics, which ends with ``# EOF``.
    3. A label that all metrics have (``metricsLabel``) gives way to one of the same name that a metric has itself.

Rules of what is kept from one scrape to the next

    4. Figures come in runs of rows, which are values. What was written of a run is kept as long as its rows are equal.
    5. Of a run that is another one, texts of labels are kept as far as keys are equal, from which alone they are made,
       and lines as far as keys and numbers are. Only ages, which are given as the instant since when, are written anew
       by each scrape.

All numbers are finite. Names of metrics and labels are of letters, digits and ``_``, so the scheme ``underscores`` of
escaping leaves them as they are.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

_ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Family(NamedTuple):
    """A metric: its name as it is queried, its labels, and what it tells; counters end in ``_total``."""

    name: str
    labels: tuple[str, ...]
    meaning: str
    is_counter: bool = False


class Sample(NamedTuple):
    """A value of a metric, with its labels in the order of the family."""

    family: Family
    labels: tuple[str, ...]
    value: float


class Column(NamedTuple):
    """Values of metrics that are called differently and tell the same: one for each key.

    ``labels`` makes of a key the labels of its value, and of nothing else. Of ages the values are the instants since
    when, in milliseconds, 0 for none.
    """

    families: tuple[Family, ...]
    keys: Sequence[Hashable]
    labels: Callable[[Any], tuple[str, ...]]
    values: Sequence[float]
    are_ages: bool = False


Columns = Callable[[tuple[str, ...], Sequence[Any]], Iterable[Column]]
"""Returns columns, always of the same metrics, for labels that all have and the rows of a run."""


class _Lines:
    """The lines of a column: for each metric the text before a number and the number, in turn."""

    def __init__(self, families: tuple[Family, ...]) -> None:
        self._families = families
        self._keys: Sequence[Hashable] = ()
        self._values: Sequence[float] = ()
        self._are_ages = False
        self._parts: list[list[bytes]] = [[] for _ in families]
        self._texts = [b""] * len(families)

    def take(self, column: Column, common: Mapping[str, str]) -> None:
        """Write what is new in a column."""
        are_other_keys = column.keys != self._keys
        if are_other_keys:
            families = zip(self._families, self._parts, strict=True)
            self._parts = [self._place_numbers(parts, family, column, common) for family, parts in families]
        if are_other_keys or column.values != self._values:
            self._write(column.values)
        self._keys, self._values, self._are_ages = column.keys, column.values, column.are_ages

    def texts(self, at_ms: int) -> Iterable[tuple[Family, bytes]]:
        """Return the lines of each metric, ages as they are at an instant."""
        if self._are_ages:
            self._write([at_ms - since_ms if 0 < since_ms < at_ms else 0 for since_ms in self._values])
        return zip(self._families, self._texts, strict=True)

    def _place_numbers(
        self, before: list[bytes], family: Family, column: Column, common: Mapping[str, str]
    ) -> list[bytes]:
        """Return the parts of a metric for other keys, still without numbers."""
        known = dict(zip(self._keys, before[::2], strict=True))
        parts = [b""] * (2 * len(column.keys))
        parts[::2] = [
            known.get(key) or f"{family.name}{_format_labels(family, column.labels(key), common)}".encode()
            for key in column.keys
        ]
        return parts

    def _write(self, values: Sequence[float]) -> None:
        numbers = [b"%a\n" % value for value in values]
        for place, parts in enumerate(self._parts):
            parts[1::2] = numbers
            self._texts[place] = b"".join(parts)


class _Run:
    """What was written of a run."""

    def __init__(self, shared: tuple[str, ...]) -> None:
        self.shared = shared
        self.rows: Sequence[Any] | None = None
        self.lines: list[_Lines] = []

    def take(self, columns: Columns, rows: Sequence[Any], common: Mapping[str, str]) -> None:
        if rows == self.rows:
            return
        found = list(columns(self.shared, rows))
        self.lines = self.lines or [_Lines(column.families) for column in found]
        for lines, column in zip(self.lines, found, strict=True):
            lines.take(column, common)
        self.rows = rows


class Kept:
    """What one scrape leaves to the next one whose common labels are the same."""

    def __init__(self) -> None:
        self.labels: dict[tuple[tuple[str, ...], tuple[str, ...]], str] = {}
        """Texts of labels, by their names and values."""
        self.runs: dict[tuple[Columns, int], _Run] = {}


class Exposition:
    """The text of all metrics, which grows as values are added; ages are those ``at_ms``.

    It leaves ``kept`` to the next one, and takes what it can from the one before.
    """

    def __init__(
        self, families: Iterable[Family], common: Mapping[str, str], before: Kept, *, is_open: bool, at_ms: int = 0
    ) -> None:
        self._common = common
        self._is_open = is_open
        self._at_ms = at_ms
        self._pieces = {family.name: [_head(family, is_open=is_open)] for family in families}
        self._before = before
        self.kept = Kept()

    def __repr__(self) -> str:
        return f"<Exposition of {len(self._pieces)} metrics>"

    def add(self, samples: Iterable[Sample]) -> None:
        """Add values; a series must not be added twice."""
        pieces, texts, known = self._pieces, self.kept.labels, self._before.labels
        for family, labels, value in samples:
            key = family.labels, labels
            text = texts.get(key)
            if text is None:
                texts[key] = text = known.get(key) or _format_labels(family, labels, self._common)
            pieces[family.name].append(f"{family.name}{text}{value}\n".encode())

    def add_run(self, columns: Columns, shared: tuple[str, ...], number: int, rows: Sequence[Any]) -> None:
        """Add the values of a run of rows, which is the one with this number; the same goes as for ``add``."""
        run = self._before.runs.get((columns, number))
        if run is None or run.shared != shared:
            run = _Run(shared)
        self.kept.runs[columns, number] = run
        run.take(columns, rows, self._common)
        for lines in run.lines:
            for family, text in lines.texts(self._at_ms):
                self._pieces[family.name].append(text)

    def encode(self) -> list[bytes]:
        """Return the text of what was added, in pieces."""
        pieces = [piece for pieces in self._pieces.values() for piece in pieces]
        return [*pieces, b"# EOF\n"] if self._is_open else pieces


@cache
def _head(family: Family, *, is_open: bool) -> bytes:
    name = family.name.removesuffix("_total") if family.is_counter and is_open else family.name
    kind = "counter" if family.is_counter else "gauge"
    return f"# HELP {name} {family.meaning}\n# TYPE {name} {kind}\n".encode()


def _format_labels(family: Family, labels: tuple[str, ...], common: Mapping[str, str]) -> str:
    """Return the labels of a sample, by name as prometheus_client has them."""
    pairs = {**common, **dict(zip(family.labels, labels, strict=True))}
    text = ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(pairs.items())])
    return f"{{{text}}} " if text else " "
