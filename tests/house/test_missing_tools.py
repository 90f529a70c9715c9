"""What happens to skipped tests in continuous integration."""

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest

SKIPS = """
import pytest
def test_tool(): pytest.skip("needs Go")
@pytest.mark.skip(reason="platform: no such call here")
def test_platform(): pass
@pytest.mark.xfail
def test_expected(): assert False
"""


@pytest.mark.parametrize(("ci", "counts"), [("true", "1 failed, 1 skipped, 1 xfailed"), ("", "2 skipped, 1 xfailed")])
def test_skip_is_a_failure_in_ci(run_plugin: Callable[..., CompletedProcess[str]], ci: str, counts: str):
    """In CI a skip fails the run and keeps its reason, unless the platform is the reason; elsewhere it is a skip."""
    run = run_plugin("missing_tools", SKIPS, "-ra", CI=ci)
    assert counts in run.stdout
    assert "needs Go" in run.stdout
    assert run.returncode == (pytest.ExitCode.TESTS_FAILED if ci else pytest.ExitCode.OK)


def test_skipped_module_is_an_error_in_ci(run_plugin: Callable[..., CompletedProcess[str]]):
    """A module that skips itself because a tool is missing fails the run in CI."""
    source = "import pytest\npytest.skip('needs Maven', allow_module_level=True)\n"
    run = run_plugin("missing_tools", source, CI="true")
    assert run.returncode == pytest.ExitCode.INTERRUPTED
    assert "skipped, which is a failure in CI: needs Maven" in run.stdout
