"""The page of what was tried and what was lost."""

import dataclasses
from datetime import UTC, datetime

import pytest
from durability_page import PARTS, Trial, Trials, format_page

AT = datetime(2026, 1, 2, tzinfo=UTC)
ROW = Trial("Rot", "bit flips in queues", 1_500, "flips", 80_000, 2, "message 7 | 8", "oak")


def test_row_stands_in_its_part() -> None:
    """A row is in the table of its part, with its numbers, and parts without rows say so."""
    page = format_page([ROW], {}, AT)
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    assert r"| bit flips in queues | 1,500 flips | 80,000 | 2 | message 7 \| 8 | oak |" in sections["Rot"]
    assert all("Not run here." in sections[part.name] for part in PARTS if part.name != "Rot")
    assert "Run on 2026-01-02 by rocketlet" in sections["Rot"]
    assert "Not passed" not in page


def test_part_that_did_not_run_keeps_its_rows() -> None:
    """A part that ran has its new rows and date, the others stay as they are; what had not passed is forgotten."""
    kill = Trial("Kill", "kills", 3, "cycles", 40, 0)
    before = format_page([ROW, kill], {"interop/test_kill.py::test_x": "failed"}, AT)
    page = format_page([dataclasses.replace(kill, count=5)], {}, datetime(2026, 3, 4, tzinfo=UTC), before)
    assert page == format_page([dataclasses.replace(kill, count=5)], {}, datetime(2026, 3, 4, tzinfo=UTC), page)
    sections = {part.partition("\n")[0]: part for part in page.split("\n## ")}
    assert sections["Rot"] == {part.partition("\n")[0]: part for part in before.split("\n## ")}["Rot"]
    assert "| 5 cycles |" in sections["Kill"]
    assert "Run on 2026-03-04" in sections["Kill"]
    assert page.count("Not run here.") == len(PARTS) - 2
    assert "Not passed" not in page


def test_what_did_not_pass_is_on_the_page() -> None:
    """A test that failed or was skipped is named, so a missing row is not taken for a proof."""
    page = format_page([ROW], {"interop/test_exchange.py::test_rounds": "skipped"}, AT)
    assert "- `interop/test_exchange.py::test_rounds`: skipped" in page.partition("## Not passed")[2]


def test_each_part_says_how_to_run_it_alone() -> None:
    """The command of every part stands below its table."""
    page = format_page([], {}, AT)
    assert all(f".venv/bin/{part.command} --durability-page=PAGE" in page for part in PARTS)


def test_row_of_an_unknown_part_is_refused() -> None:
    """A row that no section would show does not get lost."""
    with pytest.raises(AssertionError, match="no part of the page"):
        Trials(None).add(Trial("Elsewhere", "x", 1, "flips", 1, 0))
