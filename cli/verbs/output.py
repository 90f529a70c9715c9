r"""What verbs print: rows as a table or JSON, messages with their bodies.

    on a terminal      a table of rich; a line for each value where that would not fit without cutting words
    into a pipe        columns between tabs, a line for each row below one with their names
    with --json        one array of objects, or one object; instants are ISO 8601 in UTC

Bodies are shown as text where they are UTF-8, JSON indented; else as hex. What would move the cursor of a terminal is
written as ``\x1b``.
"""

import base64
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import click

from ...common.properties import MAX_OFFSET, MIN_OFFSET
from .arguments import format_instant

if TYPE_CHECKING:
    from rich.table import Table

    from ...common.message import ReceivedMessage

Row = Mapping[str, object]
SHORT_CHARACTERS: Final = 60
_OF_THE_PULL: Final = frozenset({MIN_OFFSET, MAX_OFFSET})
_HEX_BYTES: Final = 16
_FOLDED_CHARACTERS: Final = 20
"""How narrow the widest column of a table may become."""


def show_rows(columns: Sequence[str], rows: Sequence[Row], *, as_json: bool) -> None:
    """Print rows; the table has the columns named, JSON everything."""
    if as_json:
        show_json(list(rows))
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    headings = [column.replace("_", " ") for column in columns]
    if not sys.stdout.isatty():
        for line in (headings, *cells):
            click.echo("\t".join(line))
        return
    from rich.console import Console

    console = Console()
    widths = _fit(headings, cells, console.width)
    if widths is None and cells:
        _show_blocks(headings, cells)
        return
    numbers = [any(isinstance(row.get(column), int | float) for row in rows) for column in columns]
    console.print(_table(headings, cells, widths or map(len, headings), numbers))


def _fit(headings: Sequence[str], cells: Sequence[Sequence[str]], console_width: int) -> list[int] | None:
    """Return the widths of columns with which a table fits, None when it does not.

    Headings may be broken between words, and the cells of the widest column anywhere; nothing else is.
    """
    from rich.cells import cell_len

    inside = [max((cell_len(line[number]) for line in cells), default=0) for number in range(len(headings))]
    whole = [max(width, len(heading)) for width, heading in zip(inside, headings, strict=True)]
    widths = [max(width, *map(len, heading.split())) for width, heading in zip(inside, headings, strict=True)]
    room = console_width - 3 * len(widths) - 1 - sum(widths)  # the rest of a line is between columns
    if room < 0:
        widest = max(range(len(widths)), key=widths.__getitem__)
        widths[widest] += room
        return widths if widths[widest] >= _FOLDED_CHARACTERS else None
    for number, width in enumerate(whole):
        wider = min(width - widths[number], room)
        widths[number] += wider
        room -= wider
    return widths


def _table(
    headings: Sequence[str], cells: Sequence[Sequence[str]], widths: Iterable[int], numbers: Sequence[bool]
) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for heading, width, is_number in zip(headings, widths, numbers, strict=True):
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold", width=width)
    for line in cells:
        table.add_row(*map(Text, line))
    return table


def _show_blocks(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print a row as lines, each a heading and its value; what is empty is left out."""
    width = max(map(len, headings))
    blocks = [
        "\n".join(f"{name:{width}}  {value}" for name, value in zip(headings, line, strict=True) if value)
        for line in cells
    ]
    click.echo("\n\n".join(blocks))


def show_pairs(pairs: Mapping[str, object], *, as_json: bool) -> None:
    """Print names and values, one a line."""
    if as_json:
        show_json(pairs)
        return
    show_rows(("name", "value"), [{"name": name, "value": value} for name, value in pairs.items()], as_json=False)


def show_json(value: object) -> None:
    """Print a value as indented JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, indent=2))


def say(text: str, *, as_json: bool, **facts: object) -> None:
    """Print what was done: a sentence, or the facts as JSON."""
    if as_json:
        show_json(facts)
    else:
        click.echo(text)


def _cell(value: object) -> str:
    match value:
        case None:
            text = ""
        case bool():
            text = "yes" if value else "no"
        case float():
            text = f"{value:g}"
        case dict():
            text = ", ".join(f"{name}={each}" for name, each in cast("dict[str, object]", value).items())
        case list() | tuple():
            text = ", ".join(map(str, cast("Sequence[object]", value)))
        case _:
            text = str(value)
    return harmless(text, keeps="")


def harmless(text: str, keeps: str = "\n\t") -> str:
    """Return a text that moves no cursor: control characters are written as escapes, but for those kept."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keeps else _escape(each) for each in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


# messages


def message_row(message: "ReceivedMessage") -> dict[str, object]:
    """Return all of a message for JSON, and a short body for tables."""
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "properties": {name: value for name, value in message.properties.items() if name not in _OF_THE_PULL},
        "stored_at": format_instant(message.stored_at_ms),
        "stored_at_ms": message.stored_at_ms,
        "born_at": format_instant(message.born_at_ms),
        "born_host": "{}:{}".format(*message.born_host),
        "store_host": "{}:{}".format(*message.store_host),
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        **body_row(message.body),
    }


def body_row(body: bytes) -> dict[str, object]:
    """Return size and text of a body for JSON; base64 of one that is no text."""
    try:
        return {"size": len(body), "body": body.decode()}
    except UnicodeDecodeError:
        return {"size": len(body), "body_base64": base64.b64encode(body).decode()}


MESSAGE_COLUMNS: Final = ("message_id", "broker", "queue", "offset", "stored_at", "tags", "keys", "size", "text")


def show_messages(messages: "Sequence[ReceivedMessage]", *, as_json: bool) -> None:
    """Print messages, a row for each."""
    rows = [message_row(message) for message in messages]
    if not as_json:
        rows = [{**row, "text": short_body(message.body)} for row, message in zip(rows, messages, strict=True)]
    show_rows(MESSAGE_COLUMNS, rows, as_json=as_json)


def show_message(message: "ReceivedMessage", *, as_json: bool) -> None:
    """Print one message: its fields, its properties, its body."""
    row = message_row(message)
    if as_json:
        show_json(row)
        return
    properties = cast("dict[str, str]", row.pop("properties"))
    for name in ("body", "body_base64", "stored_at_ms"):
        row.pop(name, None)
    for name, value in row.items():
        click.echo(f"{name.replace('_', ' ')}: {_cell(value)}".rstrip())
    click.echo("properties:")
    for name, value in sorted(properties.items()):
        click.echo(f"  {harmless(name, '')}={harmless(value, '')}")
    kind, text = describe_body(message.body)
    click.echo(f"body ({kind}):")
    click.echo(text)


def describe_body(body: bytes) -> tuple[str, str]:
    """Return what a body is, and its text: JSON indented, other text as it is, anything else as hex."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "hex", _hex_lines(body)
    if text[:1] in {"{", "["}:
        try:
            return "JSON", harmless(json.dumps(json.loads(text), ensure_ascii=False, indent=2))
        except (ValueError, RecursionError):
            pass
    return "text", harmless(text)


def _hex_lines(body: bytes) -> str:
    rows = range(0, len(body), _HEX_BYTES)
    return "\n".join(f"{at:08x}  {body[at : at + _HEX_BYTES].hex(' ')}" for at in rows)


def short_body(body: bytes) -> str:
    """Return a body for one line of a table."""
    text = harmless(body[: 4 * SHORT_CHARACTERS].decode(errors="replace"), keeps="")
    return text if len(text) <= SHORT_CHARACTERS else text[: SHORT_CHARACTERS - 1] + "…"
