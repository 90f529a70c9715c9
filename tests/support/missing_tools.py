"""In CI a skipped test is a failure, so that a missing tool cannot hide what it would have shown.

A skip whose reason starts with ``platform:`` stays one: what the platform lacks no set-up can bring.
"""

import os
from collections.abc import Generator
from typing import cast

import pytest

ALLOWED = "platform:"


def is_ci() -> bool:
    """Tell whether this is a run of continuous integration."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Return the reason of a skip that counts as a failure, or nothing."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return None
    text = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    reason = text.removeprefix("Skipped: ")
    return None if reason.startswith(ALLOWED) else reason


def _fail_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = skip_reason(report)
    if reason is not None and is_ci():
        report.outcome = "failed"
        report.longrepr = f"skipped, which is a failure in CI: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, object, pytest.TestReport]:
    """Turn the skip of a test into a failure."""
    report = cast("pytest.TestReport", (yield))
    _fail_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, object, pytest.CollectReport]:
    """Turn the skip of a whole module into an error."""
    report = cast("pytest.CollectReport", (yield))
    _fail_skip(report)
    return report
