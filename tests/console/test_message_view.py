"""Bodies and times as people read them."""

import pytest
from received import received

from rocketlet.console.message_view import (
    MOST_SHOWN_BYTES,
    BodyView,
    format_ms,
    parse_instant,
    view_body,
    view_message,
)


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"", "text", ""),
        (b"plain\n\ttext", "text", "plain\n\ttext"),
        ("Grüße 中😀".encode(), "text", "Grüße 中😀"),
        (
            b'{"a":1.50,"b":[],"c":{"d":[true,null,"x"]}}',
            "JSON",
            '{\n  "a": 1.50,\n  "b": [],\n  "c": {\n    "d": [\n      true,\n      null,\n      "x"\n    ]\n  }\n}',
        ),
        (b'{"a":12345678901234567890,"a":1e400}', "JSON", '{\n  "a": 12345678901234567890,\n  "a": 1e400\n}'),
        ('{"n": "Grüße"}'.encode(), "JSON", '{\n  "n": "Grüße"\n}'),
        (b"{}", "JSON", "{}"),
        (b'{"a": NaN}', "text", '{"a": NaN}'),
        (b'{"a": ', "text", '{"a": '),
        (b'"text"', "text", '"text"'),
        (b"17", "text", "17"),
        (b"[" * 100_00, "text", "[" * 100_00),
        (b"\x00\x01AB", "bytes", f"00000000  {'00 01 41 42':<47}  ..AB"),
        (b"\xff\xfe", "bytes", f"00000000  {'ff fe':<47}  .."),
        (
            bytes(range(0x61, 0x72)) + b"\x00",
            "bytes",
            f"00000000  {bytes(range(0x61, 0x71)).hex(' ')}  abcdefghijklmnop\n00000010  {'71 00':<47}  q.",
        ),
    ],
)
def test_body_is_shown_as_what_it_is(body: bytes, kind: str, text: str) -> None:
    """JSON is indented with the digits it was sent with, text stays, the rest is dumped."""
    assert view_body(body) == BodyView(kind, text, is_cut=False)


def test_long_body_is_cut_between_characters() -> None:
    """Of a long text whole characters are shown, and a long JSON body is shown as the text it begins with."""
    text = "ü" * MOST_SHOWN_BYTES
    assert view_body(f"x{text}".encode()) == BodyView("text", f"x{text[: (MOST_SHOWN_BYTES - 1) // 2]}", is_cut=True)
    kind, shown, is_cut = view_body(b"[" + b"1," * MOST_SHOWN_BYTES + b"1]")
    assert (kind, len(shown), is_cut) == ("text", MOST_SHOWN_BYTES, True)
    assert view_body(b"\xff" * (MOST_SHOWN_BYTES + 1)).kind == "bytes"


@pytest.mark.parametrize(
    ("body", "summary"),
    [
        ("a  b\n c", "a b c"),
        ("x" * 120, "x" * 120),
        ("x" * 121, "x" * 119 + "…"),
    ],
)
def test_summary_is_one_line(body: str, summary: str) -> None:
    """Of at most 120 characters; what is left out is marked."""
    assert view_message(received(0, body.encode())).summary == summary


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("", None),
        (" 1700000000123 ", 1_700_000_000_123),
        ("2023-11-14 22:13:20", 1_700_000_000_000),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-14T23:13:20+01:00", 1_700_000_000_000),
        ("2023-11-14", 1_699_920_000_000),
    ],
)
def test_instants_are_read_in_utc(text: str, at_ms: int | None) -> None:
    """A number is one of milliseconds; a time without a zone is one of UTC."""
    assert parse_instant(text) == at_ms


@pytest.mark.parametrize("text", ["soon", "-5", "2023-13-01", "1e3"])
def test_what_is_no_instant_is_refused(text: str) -> None:
    """The error says what can be written."""
    with pytest.raises(ValueError, match="is no time: write 2026-01-31 12:00:00"):
        parse_instant(text)


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, ""),
        (-1, ""),
        (1_700_000_000_007, "2023-11-14 22:13:20.007"),
        (253_402_300_799_999, "9999-12-31 23:59:59.999"),
        (253_402_300_800_000, ""),
        (1 << 62, ""),
    ],
)
def test_times_are_shown_in_utc(at_ms: int, text: str) -> None:
    """What is no time is shown as nothing."""
    assert format_ms(at_ms) == text
