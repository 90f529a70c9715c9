"""The benchmarks' tables: what a line says of its rounds, and how it gets into the page."""

import pathlib

import pytest
from clientload import CLIENTS
from java import BROKERS
from rounds import take_turns
from sizes import DIMENSIONS, SIZES, measure_sizes
from sparklive import LIVE
from tables import Comparison, Growth, Table, replace_lines

PAGE = pathlib.Path(__file__).parent.parent.parent / "docs" / "reference" / "performance.md"
RATES = Comparison("sends", "/s", [100, 200, 400], [150, 100, 600], {"Java": [30, 10, 20], "own": []})
TIMES = Comparison("start", "s", [2], [0.5], {"Java": [], "own": []})
ALONE = Comparison("iteration", "/s", [], [12_345], {"Java": [], "own": [1.25]})
GROWTH = Growth("a send", [1, 100, 10_000], [[10, 20], [15, 30], [15, 60]], [[1e5, 2e5], [9e4, 9e4], [5, 15]])


@pytest.mark.parametrize(
    ("line", "cells"),
    [
        (RATES, ["sends", "200", "150", "1.50", "0.50 to 1.50", "20.0 us", ""]),
        (TIMES, ["start", "2.00 s", "0.50 s", "0.25", "0.25 to 0.25", "", ""]),
        (ALONE, ["iteration", "", "12,345", "", "", "", "1.2 us"]),
        (GROWTH, ["a send", "1 to 10,000", "15.0 us", "37.5 us", "1.50, 1.50", "150,000", "10.0"]),
    ],
)
def test_line_is_the_medians_of_its_rounds(line: Comparison | Growth, cells: list[str]) -> None:
    """Ratios are those of neighbours of one round; what was not measured is empty."""
    assert line.cells() == cells


def test_lines_take_their_places_on_a_page() -> None:
    """A line that was there is replaced where it stands, a new one comes last, others and the rest of the page stay."""
    table = Table("few", ("", "from, to", "first", "last", "ratio", "rate", "last"), (9,) * 7)
    page = "# Page\n\n<!-- few -->\n<!-- end of few -->\n\nEnd.\n"
    old = [GROWTH._replace(name=name, sizes=[5, 6]) for name in ("first", "a send", "third")]
    text = replace_lines(replace_lines(page, table, old), table, [GROWTH, GROWTH._replace(name="new")])
    before, _, rest = text.partition("<!-- few -->\n")
    lines, _, after = rest.partition("<!-- end of few -->\n")
    assert (before, after) == ("# Page\n\n", "\nEnd.\n")
    head, *rows = lines.splitlines()[2:]
    assert head == "|  | from, to | first | last | ratio | rate | last |"
    assert [line.split(" | ")[:2] for line in rows[1:]] == [
        ["| first", "5 to 6"],
        ["| a send", "1 to 10,000"],
        ["| third", "5 to 6"],
        ["| new", "1 to 10,000"],
    ]


def test_page_without_a_place_is_refused() -> None:
    """A table is not written anywhere else."""
    with pytest.raises(ValueError, match="the page has no <!-- sizes --> and <!-- end of sizes -->"):
        replace_lines("<!-- sizes -->\n", SIZES, [GROWTH])


@pytest.mark.parametrize("table", [BROKERS, CLIENTS, LIVE, SIZES], ids=lambda table: table.name)
def test_performance_page_has_a_place_for_each_table(table: Table) -> None:
    """What is measured for half an hour can be written in the end; the page has the titles of today."""
    text = PAGE.read_text()
    assert replace_lines(text, table, []).count(f"<!-- end of {table.name} -->") == 1
    assert "| " + " | ".join(table.titles) + " |" in text
    assert len(table.titles) == len(table.widths)


def test_rounds_go_over_all_sides_in_turn() -> None:
    """The first round is numbered -1 and not counted."""
    asked: list[str] = []
    found = take_turns(2, [lambda number: asked.append(f"a{number}") or 10 + number, lambda number: 20 + number])
    assert asked == ["a-1", "a0", "a1"]
    assert found == [[10, 11], [20, 21]]


@pytest.mark.parametrize("what", DIMENSIONS)
def test_each_dimension_is_measured(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Brokers of two sizes answer all that is asked of them."""
    monkeypatch.setitem(DIMENSIONS, what, DIMENSIONS[what]._replace(sizes=(1, 3)))
    lines = list(measure_sizes(lambda name: name.startswith(f"{what}:"), 1, 0.001, tmp_path))
    assert len(lines) == len(DIMENSIONS[what].counts)
    assert all(len(line.sizes) == len(line.ratios) + 1 == 2 for line in lines if all(map(all, line.costs_us)))
    assert all(rate > 0 for line in lines for rates in line.rates for rate in rates)
