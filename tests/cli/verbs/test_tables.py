"""Tables on terminals of any width."""

import io
import sys
from collections.abc import Callable

import click
import pytest

from rocketlet.cli.verbs.output import show_rows

COLUMNS = ("topic", "broker", "queue", "first_offset", "last_stored")
ROWS = [
    {
        "topic": "orders-of-the-shop-in-berlin",
        "broker": "broker-a",
        "queue": 0,
        "first_offset": 17,
        "last_stored": None,
    },
    {"topic": "T", "broker": "b", "queue": 11, "first_offset": 0, "last_stored": "2026-11-24T17:05:07.397Z"},
]
VALUES = [str(value) for row in ROWS for name, value in row.items() if name != "topic" and value is not None]


class Terminal(io.StringIO):
    """Somebody who reads."""

    def isatty(self) -> bool:
        """Say that this is a terminal."""
        return True


@pytest.fixture
def shown_in(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a call that gives the lines of the table in a terminal of a width."""

    def show(width: int, rows: list[dict[str, object]]) -> list[str]:
        out = Terminal()
        monkeypatch.setattr(sys, "stdout", out)
        for name, value in (("COLUMNS", str(width)), ("LINES", "40"), ("TERM", "xterm"), ("NO_COLOR", "1")):
            monkeypatch.setenv(name, value)
        show_rows(COLUMNS, rows, as_json=False)
        return [line.rstrip() for line in click.unstyle(out.getvalue()).splitlines() if line.strip()]

    return show


@pytest.mark.parametrize("width", [20, 40, 60, 78, 79, 80, 90, 96, 97, 200])
def test_no_value_is_cut(width: int, shown_in: Callable[..., list[str]]) -> None:
    """At most the widest column is folded, headings between words; where that is not enough, each value has a line."""
    lines = shown_in(width, ROWS)
    text = "\n".join(lines)
    assert [value for value in VALUES if value not in text] == []
    is_table = any("───" in line for line in lines)
    assert is_table == (width >= 79)
    if is_table:
        assert max(map(len, lines)) <= width
        assert [
            word for word in ("topic", "broker", "queue", "first", "offset", "last", "stored") if word not in text
        ] == []
    else:
        assert lines[:2] == ["topic         orders-of-the-shop-in-berlin", "broker        broker-a"]
        assert [line for line in lines if line.startswith("last stored")] == ["last stored   2026-11-24T17:05:07.397Z"]


def test_wide_terminal_has_a_line_for_each_row(shown_in: Callable[..., list[str]]) -> None:
    """Below one line of headings."""
    heading, _, first, second = shown_in(120, ROWS)
    assert heading.split("   ")[0].strip() == "topic"
    assert "orders-of-the-shop-in-berlin   broker-a" in first
    assert second.endswith("2026-11-24T17:05:07.397Z")


def test_table_without_rows_has_its_headings(shown_in: Callable[..., list[str]]) -> None:
    """There is nothing to break them for."""
    assert "first offset" in "".join(shown_in(80, []))
