"""The small shop of `examples`: its suites are green, each of them can fail, and none sleeps."""

import pathlib
import re
import subprocess
import sys

import pytest
from shop_mistakes import Mistake, copy_shop, noticed

EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples"
SHOP = EXAMPLES / "shop"
SUITES = ("test_with_pytest", "test_with_asyncio", "test_with_unittest")
SOURCES = [path for kind in ("py", "java", "go") for path in EXAMPLES.glob(f"*/**/*.{kind}")]
WAITS_FOR_TIME = re.compile(r"sleep|time\.After|time\.New|time\.Tick|parkNanos|ScheduledExecutor", re.IGNORECASE)


COUNTER, WAREHOUSE = "shop/counter.py", "shop/warehouse.py"
MISTAKES = (
    Mistake(COUNTER, '"placed", order)', '"new", order)', ("test_order_is_announced",)),
    Mistake(COUNTER, "ROLLBACK\n\n", "COMMIT\n\n", ("test_declined_payment_is_not_told",)),
    Mistake(
        COUNTER,
        "COMMIT if order.payment",
        "ROLLBACK if order.payment",
        ("test_pending_payment_is_asked_about", "test_lost_commit_is_made_good"),
    ),
    Mistake(COUNTER, "PAYMENT_MS = 30 *", "PAYMENT_MS = 20 *", ("test_unpaid_order_is_cancelled",)),
    Mistake(
        WAREHOUSE,
        "RETRIES = 3",
        "RETRIES = 2",
        ("test_order_waits_for_stock", "test_order_that_cannot_be_shipped_is_a_dead_letter"),
    ),
)


def run(directory: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run Python in the folder of a shop."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)


def run_pytest(directory: pathlib.Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run pytest in the folder of a shop."""
    return run(directory, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments)


def test_suites_are_green():
    """The suites for pytest, pytest-asyncio and unittest pass under pytest, in any order."""
    done = run_pytest(SHOP, "-rA")
    assert done.returncode == 0, done.stdout + done.stderr
    for suite in SUITES:
        assert f"PASSED tests/{suite}.py" in done.stdout


def test_unittest_needs_no_pytest():
    """The suite for unittest passes under unittest alone, where warnings are errors."""
    done = run(
        SHOP,
        *("-W", "error", "-c", "import sys, unittest; sys.modules['pytest'] = None; unittest.main(module=None)"),
        *("discover", "-s", "tests", "-p", "test_with_unittest.py"),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Ran \d+ tests", done.stderr, re.MULTILINE)


def test_suites_notice_what_the_shop_does_wrong(tmp_path: pathlib.Path):
    """Of a shop with a mistake in each subject, each suite fails in the tests of that subject."""
    shop = copy_shop(SHOP, tmp_path / "shop", MISTAKES)
    done = run_pytest(shop, "-rfE", "--tb=no")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
    failed = set(re.findall(r"^FAILED tests/(\w+)\.py::(?:\w+::)?(\w+)", done.stdout, re.MULTILINE))
    assert {(suite, name) for suite in SUITES for name in noticed(MISTAKES)} <= failed
    assert ("test_with_pytest", "test_paid_order_is_not_cancelled") not in failed


@pytest.mark.parametrize("source", SOURCES, ids=[str(path.relative_to(EXAMPLES)) for path in SOURCES])
def test_no_example_waits_for_time(source: pathlib.Path):
    """Neither the shops nor their tests sleep: they wait for what happens."""
    assert not WAITS_FOR_TIME.search(source.read_text())
