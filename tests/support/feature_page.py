"""Which rows of the feature table the tests show, and the page that says so.

``@pytest.mark.feature("S1", "P1")`` ties a test to rows of ``tests/features.json``; an unknown row stops the run. The
marker ``old_java`` says that a run of the test uses the Java client 4.9.8.
With ``--compatibility-page FILE`` the run ends by writing the page from the markers and outcomes that it saw.
"""

import json
import pathlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pytest
from ci_tests import is_whole

FEATURES = pathlib.Path(__file__).parent.parent / "features.json"
HEAD = """# Compatibility

Which rows of the feature table the tests show. `make compatibility` writes this page from the markers and outcomes of
a whole run; it is not edited by hand. Priority 1 is the core, 2 is expected, 3 is extra.
"""
STATES = {"passed": "shown", "skipped": "skipped", "failed": "failing"}  # from best to worst
NO_TEST = "not yet"
OLD_JAVA = "Shown with the Java client 4.9.8 as well as with 5.4.0: "


@dataclass(frozen=True, slots=True)
class Feature:
    """A row of the feature table."""

    id: str
    section: str
    feature: str
    shown_by: list[str]
    asserts: str
    priority: int
    seed: str


def load_features() -> list[Feature]:
    """Read the feature table."""
    return [Feature(**row) for row in json.loads(FEATURES.read_text())]


def test_name(nodeid: str) -> str:
    """Return how the page names a test: its file below ``tests`` and its function, without parameters.

    >>> test_name("tests/broker/send/test_send.py::test_send_answers[V2]")
    'broker/test_send.py::test_send_answers'
    """
    return nodeid.partition("[")[0].removeprefix("tests/")


test_name.__test__ = False  # type: ignore[attr-defined] # pytest must not take the name for a test


def format_page(
    features: Iterable[Feature], outcomes: Mapping[str, Mapping[str, str]], old_java: Collection[str] = ()
) -> str:
    """Write the page; ``outcomes`` maps row ids to the outcomes of their tests, ``old_java`` are those with 4.9.8."""
    sections: dict[str, list[str]] = defaultdict(list)
    counts: dict[str, int] = defaultdict(int)
    with_old_java: list[str] = []
    for feature in features:
        tests = outcomes.get(feature.id, {})
        state = _state(tests)
        with_old_java += [feature.id] * (feature.id in old_java)
        counts[state] += 1
        names = "<br>".join(f"`{name}`" for name in sorted(tests))
        text = feature.feature.replace("|", "\\|")
        sections[feature.section].append(f"| {feature.id} | {feature.priority} | {text} | {names} | {state} |")
    summary = ", ".join(f"{counts[state]} {state}" for state in (*STATES.values(), NO_TEST) if counts[state])
    tables = (_format_table(section, rows) for section, rows in sections.items())
    told = f"{OLD_JAVA}{', '.join(with_old_java) or 'none'}."
    return "\n".join([HEAD, f"{sum(counts.values())} rows: {summary}.\n", told, *tables])


def _state(tests: Mapping[str, str]) -> str:
    worst = [state for outcome, state in STATES.items() if outcome in tests.values()]
    return worst[-1] if worst else NO_TEST


def _format_table(section: str, rows: list[str]) -> str:
    return "\n".join(
        [f"\n## {section}\n", "| row | priority | feature | tests | state |", "|---|---|---|---|---|", *rows]
    )


def parse_page(page: str) -> dict[str, set[str]]:
    """Return the tests that the page lists for each row."""
    rows = re.findall(r"^\| ([A-Z]+\d+) \| \d \| (.*) \| (.*?) \| [a-z ]+ \|$", page, flags=re.MULTILINE)
    return {row: set(re.findall("`(.*?)`", tests)) for row, _, tests in rows}


def parse_old_java(page: str) -> set[str]:
    """Return the rows that the page says are shown with the old Java client."""
    return set(re.findall(r"[A-Z]+\d+", page.partition(OLD_JAVA)[2].partition("\n")[0]))


class FeatureRecorder:
    """Collects markers and outcomes of one run."""

    def __init__(self, page: pathlib.Path | None) -> None:
        self._page = page
        self._features = load_features()
        self._known = {feature.id for feature in self._features}
        self._ids: dict[str, set[str]] = {}
        self._old_java: set[str] = set()
        self.outcomes: dict[str, dict[str, str]] = defaultdict(dict)
        self.whole_page = ""
        """The page of all tests, before their outcomes; empty in a run of some folders or files."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> Iterator[None]:
        """Note the markers of the tests that were chosen, and stop the run at an unknown row."""
        if is_whole(session):
            self._note(items)
            self.whole_page = self._format()
        yield
        self._note(items)

    def _note(self, items: Iterable[pytest.Item]) -> None:
        self._ids, self._old_java, self.outcomes = {}, set(), defaultdict(dict)
        for item in items:
            ids = {str(row) for marker in item.iter_markers("feature") for row in marker.args}
            if unknown := sorted(ids - self._known):
                raise pytest.UsageError(f"{item.nodeid}: no such feature: {', '.join(unknown)}")
            self._ids[item.nodeid] = ids
            if item.get_closest_marker("old_java"):
                self._old_java |= ids
            for row in ids:
                self.outcomes[row].setdefault(test_name(item.nodeid), "")

    def _format(self) -> str:
        return format_page(self._features, self.outcomes, self._old_java) + "\n"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the worst outcome of all phases and parameters of a test."""
        order = ["", *STATES]
        for row in self._ids.get(report.nodeid, ()):
            name, tests = test_name(report.nodeid), self.outcomes[row]
            tests[name] = max(tests[name], report.outcome, key=order.index)

    def pytest_sessionfinish(self) -> None:
        """Write the page when it was asked for."""
        if self._page is not None:
            self._page.write_text(self._format())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer ``--compatibility-page``."""
    parser.addoption("--compatibility-page", type=pathlib.Path, help="write the compatibility page of this run")


def pytest_configure(config: pytest.Config) -> None:
    """Watch the run."""
    config.pluginmanager.register(FeatureRecorder(config.getoption("--compatibility-page")), "feature-recorder")


@pytest.fixture(scope="session")
def feature_recorder(request: pytest.FixtureRequest) -> FeatureRecorder:
    """Return what the running session has recorded so far."""
    recorder = request.config.pluginmanager.get_plugin("feature-recorder")
    assert isinstance(recorder, FeatureRecorder)
    return recorder
