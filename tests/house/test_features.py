"""The feature table, its markers and the page made of them."""

import pathlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from ci_tests import listed
from feature_page import Feature, FeatureRecorder, format_page, load_features, parse_old_java, parse_page, test_name

ROWS = {
    "N": 25,
    "S": 27,
    "P": 29,
    "C": 32,
    "T": 11,
    "L": 9,
    "Q": 8,
    "O": 15,
    "H": 9,
    "K": 20,
    "B": 28,
    "D": 22,
    "R": 24,
    "G": 23,
    "A": 25,
}

UNKNOWN_TO_OLD_JAVA = {"C9"}  # 4.9.8 takes any error of an offset query for a new group


def feature(row: str, section: str = "Send", text: str = "sync send") -> Feature:
    """Return a row with the given id."""
    return Feature(row, section, text, ["J"], "SEND_OK", 1, "")


def test_table_is_whole():
    """The table has each row once, as many of each letter as its origin counts."""
    ids = [row.id for row in load_features()]
    assert len(ids) == len(set(ids)) == 307
    assert Counter(re.sub(r"\d", "", row) for row in ids) == ROWS


def test_unknown_row_stops_the_run(run_plugin: Callable[..., subprocess.CompletedProcess[str]]):
    """A marker that names no row of the table fails the collection, naming test and row."""
    source = "import pytest\n@pytest.mark.feature('S1', 'S99', 'X1')\ndef test_it(): pass\n"
    run = run_plugin("feature_page", source)
    assert run.returncode == pytest.ExitCode.USAGE_ERROR, run.stdout
    assert "test_it.py::test_it: no such feature: S99, X1" in run.stderr


def test_page_tells_the_worst_outcome():
    """A row is shown when all its tests passed, failing when one failed, and not yet shown without a test."""
    rows = [feature(row) for row in ("S1", "S2", "S3", "S4")]
    outcomes = {
        "S1": {"a.py::test_a": "passed", "b.py::test_b": "passed"},
        "S2": {"a.py::test_a": "passed", "a.py::test_c": "failed"},
        "S3": {"a.py::test_a": "passed", "a.py::test_d": "skipped"},
    }
    page = format_page(rows, outcomes)
    assert "4 rows: 1 shown, 1 skipped, 1 failing, 1 not yet." in page
    assert "| S1 | 1 | sync send | `a.py::test_a`<br>`b.py::test_b` | shown |" in page
    assert "| S2 | 1 | sync send | `a.py::test_a`<br>`a.py::test_c` | failing |" in page
    assert "| S4 | 1 | sync send |  | not yet |" in page


def test_page_is_read_back():
    """What the page lists is found again, also in a row whose text holds a bar."""
    rows = [feature("P18", text="tag filter A || B"), feature("S2")]
    page = format_page(rows, {"P18": {"a.py::test_a": "passed", "b.py::test_b": ""}})
    assert parse_page(page) == {"P18": {"a.py::test_a", "b.py::test_b"}, "S2": set()}


def test_name_leaves_parameters_out():
    """Parameters of a test are one test on the page."""
    assert test_name("tests/broker/send/test_send.py::test_send[a::b]") == "broker/send/test_send.py::test_send"


@pytest.fixture(scope="module")
def fresh_page(
    feature_recorder: FeatureRecorder, checkout: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Return the page that the markers of all tests give; where this run has some of them, collect the others."""
    if feature_recorder.whole_page:
        return feature_recorder.whole_page
    fresh = tmp_path_factory.mktemp("page") / "compatibility.md"
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", f"--compatibility-page={fresh}"]
    run = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert run.returncode == pytest.ExitCode.OK, run.stdout
    return fresh.read_text()


def test_each_row_is_shown_without_the_long_forms(fresh_page: str) -> None:
    """`make test` runs at least one test of each row that has any."""
    long_forms = {test_name(name) for name in listed() if "[" not in name}
    rows = parse_page(fresh_page)
    assert {row for row, tests in rows.items() if tests and tests <= long_forms} == set()


def test_page_is_in_step_with_the_markers(fresh_page: str, checkout: pathlib.Path):
    """The page lists the tests that carry the markers; `make compatibility` writes it anew."""
    page = (checkout / "docs" / "reference" / "compatibility.md").read_text()
    assert parse_page(page) == parse_page(fresh_page)
    assert parse_old_java(page) == parse_old_java(fresh_page)


def test_old_java_client_shows_sending_and_consuming(fresh_page: str):
    """Each row of sending and consuming that Java's client shows is run with 4.9.8 too, where that client knows it."""
    rows = {row.id for row in load_features() if row.id[0] in "SPC" and "J" in row.shown_by}
    assert rows - parse_old_java(fresh_page) == UNKNOWN_TO_OLD_JAVA


def test_page_names_rows_with_old_java():
    """Rows with a run of the old client are named in the order of the table, and read back."""
    page = format_page([feature("S2"), feature("S1"), feature("P1")], {}, {"S1", "S2"})
    assert "4.9.8 as well as with 5.4.0: S2, S1." in page
    assert parse_old_java(page) == {"S1", "S2"}
    assert parse_old_java(format_page([feature("S1")], {})) == set()
