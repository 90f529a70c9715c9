"""Marks the tests of ``tests/ci_tests.txt``, and all runs with the Java client 4.9.8, with ``ci``.

`make test` runs the others in ten minutes, `make test-ci` these. A run of all tests stops at a line that names no test,
and at a test of which each run is named alone: so a name without parameters says that `make test` leaves a test out.
"""

import pathlib

import pytest

LIST = pathlib.Path(__file__).parent.parent / "ci_tests.txt"


def listed() -> set[str]:
    """Return what the list names."""
    return {line for line in LIST.read_text().splitlines() if line and not line.startswith("#")}


def is_listed(nodeid: str, names: set[str]) -> bool:
    """Tell whether the list names a test, with all its parameters or with these."""
    return nodeid in names or nodeid.partition("[")[0] in names


def is_whole(session: pytest.Session) -> bool:
    """Tell whether all tests were collected, though some may be left out then."""
    return session.config.args in ([str(LIST.parent)], [LIST.parent.name])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """Mark what is listed."""
    names = listed()
    for item in items:
        if is_listed(item.nodeid, names) or item.get_closest_marker("old_java") is not None:
            item.add_marker("ci")
    if is_whole(session):
        runs = {item.nodeid for item in items}
        found = runs | {run.partition("[")[0] for run in runs}
        if missing := sorted(names - found):
            raise pytest.UsageError(f"{LIST.name} names tests that are not there: {', '.join(missing)}")
        named_in_part = {name.partition("[")[0] for name in names if "[" in name}
        kept = {item.nodeid.partition("[")[0] for item in items if item.get_closest_marker("ci") is None}
        if whole := sorted(named_in_part - kept):
            raise pytest.UsageError(f"{LIST.name} names each run of these tests, name them whole: {', '.join(whole)}")
