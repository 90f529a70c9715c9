"""A plugin of pytest: notes which test runs which line of the package, and how long each test takes.

    python -m coverage run --data-file=F -m pytest -p mutants.recorder --recording=R.json tests/store

It needs a run under coverage, whose context it sets to the test. What a fixture of a module or a session runs counts
for the test that came first.
"""

import json
import pathlib
from collections.abc import Generator
from typing import Any

import coverage
import pytest

durations: dict[str, float] = {}
"""The seconds of each test that has passed so far, with its set-up and what comes after it."""
_failed: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Have one be told where to write."""
    parser.addoption("--recording", metavar="FILE", help="write who runs which line, and for how long")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None]:
    """Have lines noted under the name of the test."""
    current = coverage.Coverage.current()
    if current is not None:
        current.switch_context(item.nodeid)
    yield
    if current is not None:
        current.switch_context("")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the phases of a test."""
    durations[report.nodeid] = durations.get(report.nodeid, 0.0) + report.duration
    if not report.passed:
        _failed.add(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write what was noted; tests that did not pass are left out."""
    target = session.config.getoption("--recording")
    current = coverage.Coverage.current()
    if target is None or current is None:
        return
    current.stop()
    data = current.get_data()
    numbers = {name: number for number, name in enumerate(durations)}
    lines: dict[str, dict[int, list[int]]] = {}
    root = session.config.rootpath
    for file in data.measured_files():
        path = pathlib.Path(file)
        if path.is_relative_to(root):
            lines[str(path.relative_to(root))] = {
                line: [numbers[name] for name in names if name in numbers and name not in _failed]
                for line, names in data.contexts_by_lineno(file).items()
            }
    recording: dict[str, Any] = {"tests": list(durations.items()), "lines": lines}
    pathlib.Path(target).write_text(json.dumps(recording))
