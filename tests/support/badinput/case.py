"""A request that is wrong in one way, and what the official server answered: a line of ``vectors/bad-input``.

    {"code": 11, "title": "queueId: text", "fields": {…}, "body": …, "binary": true,
     "answer": {"code": 1, "remark": "…"}}

``fields`` is the table of a JSON header as it is sent, with whatever values; absent, the header has no table. ``body``
is a text, ``{"base64": …}``, or ``{"text": …, "times": n}``; absent, there is none. Without ``answer`` none came;
``"closed": true`` means that the connection ended instead. Addresses in remarks are ``HOST:PORT``.
"""

import base64
import gzip
import json
import pathlib
import re
from collections.abc import Iterable
from typing import Any

import msgspec

_ADDRESS = re.compile(r"\b127\.0\.0\.1:\d+")


class Answer(msgspec.Struct, omit_defaults=True, frozen=True):
    """Code and remark."""

    code: int
    remark: str | None = None


class LongBody(msgspec.Struct, omit_defaults=True, frozen=True):
    """A body that is no text, or a text many times."""

    base64: str = ""
    text: str = ""
    times: int = 0


class Case(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One line."""

    code: int
    title: str
    fields: Any = None
    body: str | LongBody = ""
    binary: bool = False
    closed: bool = False
    answer: Answer | None = None

    @property
    def name(self) -> str:
        """Where it stands in the table."""
        return f"{self.code} {self.title}"

    def body_bytes(self) -> bytes:
        """Return the body as it is sent."""
        if isinstance(self.body, str):
            return self.body.encode()
        return base64.b64decode(self.body.base64) + self.body.text.encode() * self.body.times


def describe_body(body: bytes) -> str | LongBody:
    """Return the form of a body in a line."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return LongBody(base64=base64.b64encode(body).decode())


def without_addresses(remark: str | None) -> str | None:
    """Return a remark as it is on every run."""
    return None if remark is None else _ADDRESS.sub("HOST:PORT", remark)


def save_cases(path: pathlib.Path, cases: Iterable[Case]) -> None:
    """Write a recording; the same cases give the same bytes."""
    lines = [json.dumps(msgspec.to_builtins(case), separators=(",", ":")) for case in cases]
    path.write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def load_cases(path: pathlib.Path) -> list[Case]:
    """Read a recording."""
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return [msgspec.convert(json.loads(line), Case) for line in lines]  # half characters: msgspec refuses them
