"""Names, kinds and labels of metrics, and their text for Prometheus, in its own format or in OpenMetrics.

Rules (prometheus/docs ``exposition_formats.md``, OpenMetrics 1.0)

    1. All values of a metric stand together, behind lines that tell its meaning and kind; each has a line
       ``name{label="text",…} number``. A backslash, a quote and a line break in a text are escaped.
    2. A counter is called without its end ``_total`` by the two lines of OpenMetrics, which ends with ``# EOF``.
    3. A label that all metrics have (``metricsLabel``) gives way to one of the same name that a metric has itself.

All numbers are finite. Names of metrics and labels are of letters, digits and ``_``, so the scheme ``underscores`` of
escaping leaves them as they are.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

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


LabelTexts = dict[tuple[tuple[str, ...], tuple[str, ...]], str]
"""The text between the name of a metric and its number, by the names of labels and their values."""


class Exposition:
    """The text of all metrics, which grows as samples are added.

    Many samples have the same labels, in one scrape after the other: the texts of labels are taken from the one before
    (``known``), whose ``common`` labels were the same.
    """

    def __init__(
        self, families: Iterable[Family], common: Mapping[str, str], known: LabelTexts, *, is_open: bool
    ) -> None:
        self._common = common
        self._is_open = is_open
        self._lines = {family.name: [self._head(family)] for family in families}
        self._known = known
        self.texts: LabelTexts = {}

    def __repr__(self) -> str:
        return f"<Exposition of {len(self._lines)} metrics>"

    def add(self, samples: Iterable[Sample]) -> None:
        """Add values; a series must not be added twice."""
        lines, texts, known = self._lines, self.texts, self._known
        for (name, names, _, _), labels, value in samples:
            key = names, labels
            text = texts.get(key)
            if text is None:
                texts[key] = text = known.get(key) or self._format_labels(names, labels)
            lines[name].append(f"{name}{text}{value}\n")

    def encode(self) -> bytes:
        """Return the text of what was added."""
        text = "".join(["".join(lines) for lines in self._lines.values()])
        return (f"{text}# EOF\n" if self._is_open else text).encode()

    def _head(self, family: Family) -> str:
        name = family.name.removesuffix("_total") if family.is_counter and self._is_open else family.name
        kind = "counter" if family.is_counter else "gauge"
        return f"# HELP {name} {family.meaning}\n# TYPE {name} {kind}\n"

    def _format_labels(self, names: tuple[str, ...], labels: tuple[str, ...]) -> str:
        """Return the labels of a sample, by name as prometheus_client has them."""
        pairs = {**self._common, **dict(zip(names, labels, strict=True))}
        text = ",".join([f'{name}="{value.translate(_ESCAPES)}"' for name, value in sorted(pairs.items())])
        return f"{{{text}}} " if text else " "
