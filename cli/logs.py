"""How log lines look where they are more than plain text; imported then only.

    into a file or a pipe   2026-11-27 03:16:27,123 WARNING rocketlet.broker.ports: slaves cannot …   (``serve.py``)
    on a terminal           03:16:27.123 WARNING broker.ports: slaves cannot …                        in colours
    --log-format json       {"time":"2026-11-27T02:16:27.123Z","level":"WARNING","logger":"…","message":"…"}

A line of JSON has ``exception``, the traceback, where there is one, and ``broker`` where several brokers share a
stream. What a start says beside its log is such a line as well, so that every line of the stream is an object.
"""

import logging
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

SPEAKER: Final = "rocketlet"
"""The logger that notes and errors of a start are told by."""
_COLOURS: Final = {"DEBUG": "blue", "INFO": "green", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "red"}


class TerminalFormatter(logging.Formatter):
    """Short lines in colours."""

    def __init__(self) -> None:
        super().__init__(datefmt="%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 # the name in logging
        """Return the line without a traceback."""
        at = f"{self.formatTime(record, self.datefmt)}.{int(record.msecs):03}"
        level = click.style(
            record.levelname, fg=_COLOURS.get(record.levelname), bold=record.levelno >= logging.ERROR or None
        )
        name = record.name.removeprefix(f"{SPEAKER}.")
        return f"{click.style(at, dim=True)} {level} {click.style(f'{name}:', dim=True)} {record.message}"


class JsonFormatter(logging.Formatter):
    """One object a line; ``broker`` names the broker whose process logs."""

    def __init__(self, broker: str | None) -> None:
        super().__init__()
        self._broker = {"broker": broker} if broker else {}

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = {"time": at, "level": record.levelname, "logger": record.name, **self._broker}
        line["message"] = record.getMessage()
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode({key: _encodable(text) for key, text in line.items()}).decode()


def _encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: names of files may be bytes that are none."""
    return text.encode(errors="backslashreplace").decode()


def say_json(message: str, level: int = logging.INFO) -> None:
    """Write what is no log line as one of JSON to stderr."""
    record = logging.makeLogRecord(
        {"name": SPEAKER, "levelno": level, "levelname": logging.getLevelName(level), "msg": message}
    )
    click.echo(JsonFormatter(None).format(record), err=True)
