"""The small shops of `examples/java` and `examples/go`: their suites are green, and notice what a shop does wrong."""

import os
import pathlib
import re
import subprocess
import sys
from xml.etree import ElementTree as Xml

import pytest
from interop.toolchain import find_program
from interop.versions import skipped_without
from shop_mistakes import Mistake, copy_shop, noticed

EXAMPLES = pathlib.Path(__file__).parent.parent.parent / "examples"
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:-UsePerfData"

JAVA_MISTAKES = (
    Mistake("src/main/java/shop/Shop.java", '"placed")', '"new")', ("orderIsAnnounced",)),
    Mistake(
        "src/main/java/shop/Shop.java",
        "DECLINED -> LocalTransactionState.ROLLBACK_MESSAGE",
        "DECLINED -> LocalTransactionState.COMMIT_MESSAGE",
        ("declinedPaymentIsNotTold",),
    ),
    Mistake(
        "src/main/java/shop/Shop.java",
        "orders.isPaidBy(id, message.getTransactionId())",
        "orders.isPaidBy(id, id)",
        ("pendingPaymentIsAskedAbout", "lostCommitIsMadeGood"),
    ),
    Mistake(
        "src/main/java/shop/Shop.java",
        "RETRIES = 3",
        "RETRIES = 2",
        ("orderWaitsForStock", "orderThatCannotBeShippedIsDeadLetter"),
    ),
    Mistake("src/main/java/shop/Shop.java", "HALF_AN_HOUR = 16", "HALF_AN_HOUR = 15", ("unpaidOrderIsCancelled",)),
)
GO_MISTAKES = (
    Mistake("shop.go", '(order, "placed")', '(order, "new")', ("TestOrderIsAnnounced",)),
    Mistake(
        "payments.go",
        "\t}\n\treturn primitive.RollbackMessageState\n}\n\n",
        "\t}\n\treturn primitive.CommitMessageState\n}\n\n",
        ("TestDeclinedPaymentIsNotTold",),
    ),
    Mistake(
        "payments.go",
        "isPaidBy(order.ID, message.TransactionId)",
        "isPaidBy(order.ID, order.ID)",
        ("TestPendingPaymentIsAskedAbout", "TestLostCommitIsMadeGood"),
    ),
    Mistake(
        "shop.go",
        "retries    = 3",
        "retries    = 2",
        ("TestOrderWaitsForStock", "TestOrderThatCannotBeShippedIsDeadLetter"),
    ),
    Mistake("shop.go", "halfAnHour = 16", "halfAnHour = 15", ("TestUnpaidOrderIsCancelled",)),
)


def run(command: list[str], directory: pathlib.Path) -> "subprocess.CompletedProcess[str]":
    """Run a suite against the rocketlet of this environment."""
    with skipped_without("the small shop"):
        find_program(command[0])
    program = pathlib.Path(sys.executable).with_name("rocketlet")
    environment = {**os.environ, "ROCKETLET": str(program), "MAVEN_OPTS": QUICK_JVM}
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)


def run_junit(shop: pathlib.Path) -> tuple[set[str], set[str], str]:
    """Run the suite in Java; return the names of all tests and of those that failed, and what was printed."""
    done = run(["mvn", "-q", "-B", f"-DargLine={QUICK_JVM}", "test"], shop)
    report = shop / "target" / "surefire-reports" / "TEST-shop.ShopTest.xml"
    assert report.exists(), done.stdout + done.stderr
    cases = Xml.parse(report).iter("testcase")  # noqa: S314 # Maven wrote it a moment ago
    results = {str(case.get("name")): [each.tag for each in case] for case in cases}
    return set(results), {name for name, tags in results.items() if {"failure", "error"} & {*tags}}, done.stdout


def run_go(shop: pathlib.Path) -> tuple[set[str], set[str], str]:
    """Run the suite in Go; return what ``run_junit`` does."""
    done = run(["go", "test", "-count=1", "-shuffle=on", "-v", "."], shop)
    results = {name: result for result, name in re.findall(r"^--- (\w+): (\w+)", done.stdout, re.MULTILINE)}
    return set(results), {name for name, result in results.items() if result != "PASS"}, done.stdout + done.stderr


@pytest.mark.timeout(300)
def test_junit_suite_is_green(tmp_path: pathlib.Path) -> None:
    """The suite for JUnit 5 passes: the official client, and a broker that it starts and drives by itself."""
    tests, failed, printed = run_junit(copy_shop(EXAMPLES / "java", tmp_path / "shop"))
    assert noticed(JAVA_MISTAKES) <= tests, printed
    assert not failed, printed


@pytest.mark.timeout(300)
def test_junit_suite_notices_mistakes(tmp_path: pathlib.Path) -> None:
    """Of a shop in Java with a mistake in each subject, the tests of each subject fail."""
    tests, failed, printed = run_junit(copy_shop(EXAMPLES / "java", tmp_path / "shop", JAVA_MISTAKES))
    assert noticed(JAVA_MISTAKES) <= failed, printed
    assert "paidOrderIsNotCancelled" in tests - failed


@pytest.mark.timeout(300)
def test_go_suite_is_green(tmp_path: pathlib.Path) -> None:
    """The suite for Go passes, in any order: the official client, and a broker that it starts and drives by itself."""
    tests, failed, printed = run_go(copy_shop(EXAMPLES / "go", tmp_path / "shop"))
    assert noticed(GO_MISTAKES) <= tests, printed
    assert not failed, printed


@pytest.mark.timeout(300)
def test_go_suite_notices_mistakes(tmp_path: pathlib.Path) -> None:
    """Of a shop in Go with a mistake in each subject, the tests of each subject fail."""
    tests, failed, printed = run_go(copy_shop(EXAMPLES / "go", tmp_path / "shop", GO_MISTAKES))
    assert noticed(GO_MISTAKES) <= failed, printed
    assert "TestPaidOrderIsNotCancelled" in tests - failed
