"""Reports on disk: one file, or a directory to which a planner and tasks that do not know each other add their parts.

    plan.json            which reading this is, how many parts it has, and what is known before it begins
    part-<plan>-7.json   what the task of part 7 met

Rules:

- A part is written when its task has read all of it, under a name that does not depend on the attempt: a task that is
  run again replaces its part, so nothing is counted twice. It appears whole or not at all.
- A part that is missing is a fault of the report: its task failed, or its rows were not wanted to the end.
- A directory holds the report of the reading that was planned last; planning removes the parts of others.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec

from ...common.errors import ConfigError
from ..plan.places import Storage
from .folder import Folder
from .report import Report
from .tally import StoreTally
from .tallyjson import store_from_json, store_to_json

_PLAN: Final = "plan.json"
_PART: Final = "part-"
_MOST_NAMED: Final = 5
_T = TypeVar("_T")


@dataclass(frozen=True)
class ReportParts:
    """Where the parts of the report of one reading go; travels to the tasks."""

    folder: Folder
    plan_id: str

    @classmethod
    def begin(cls, folder: Folder, report: Report, parts: int) -> "ReportParts":
        """Write down what is known of a reading of so many parts before it begins.

        Raises:
            ConfigError: The directory cannot be written to.
        """
        planned = cls(folder, uuid.uuid4().hex)
        planned._write_plan(report, parts)
        for name in folder.names():
            if name.startswith(_PART) and not name.startswith(f"{_PART}{planned.plan_id}-"):
                folder.remove(name)
        return planned

    def extend(self, report: Report, parts: int) -> int:
        """Add parts to those of ``begin``, with what is known of them, and return the number of the first.

        Raises:
            ConfigError: The directory cannot be written to.
        """
        _, first, known = _parse(f"{self.folder.path} is no report", self.folder.read(_PLAN), _read_plan)
        known.add(report.stores)
        self._write_plan(known, first + parts)
        return first

    def finish(self, number: int, *tallies: StoreTally) -> None:
        """Add what the task of a part met, by store.

        Raises:
            ConfigError: The directory cannot be written to.
        """
        stores = [store_to_json(tally) for tally in tallies]
        self.folder.write(_name(self.plan_id, number), _encode({"stores": stores}))

    def _write_plan(self, report: Report, parts: int) -> None:
        self.folder.write(_PLAN, _encode({"plan": self.plan_id, "parts": parts, "report": report.to_json()}))


def save_report(report: Report, path: str) -> None:
    """Write a report to one file (raises ``ConfigError``)."""
    folder, name = Folder.of_file(path)
    folder.write(name, _encode(report.to_json()))


def load_report(path: str, storage: Storage | None = None) -> Report:
    """Return the report of a file, or of a directory with parts.

    Raises:
        ConfigError: It is not there, cannot be read, or is none.
    """
    folder = Folder(path, storage or Storage())
    if folder.exists():
        return _load_parts(folder)
    folder, name = Folder.of_file(path, storage)
    return _parse(f"{path} is no report", folder.read(name), Report.from_json)


def _load_parts(folder: Folder) -> Report:
    reason = f"{folder.path} is no report"
    if not folder.has(_PLAN):
        raise ConfigError(f"{reason}: it holds no {_PLAN}")
    plan_id, parts, report = _parse(reason, folder.read(_PLAN), _read_plan)
    names = frozenset(folder.names())
    missing: list[int] = []
    for number in range(parts):
        name = _name(plan_id, number)
        if name in names:
            report.add(_parse(f"{name} of {folder.path} is no part of a report", folder.read(name), _read_part))
        else:
            missing.append(number)
    if missing:
        report.unread.append(_describe_missing(missing, parts))
    return report


def _describe_missing(missing: list[int], parts: int) -> str:
    named = ", ".join(map(str, missing[:_MOST_NAMED])) + (", …" if len(missing) > _MOST_NAMED else "")
    return f"{len(missing)} of {parts} parts were not read to their end: {named}"


def _name(plan_id: str, number: int) -> str:
    return f"{_PART}{plan_id}-{number}.json"


def _read_plan(found: Mapping[str, Any]) -> tuple[str, int, Report]:
    return found["plan"], found["parts"], Report.from_json(found["report"])


def _read_part(found: Mapping[str, Any]) -> list[StoreTally]:
    return [store_from_json(store) for store in found["stores"]]


def _parse(reason: str, text: bytes, read: Callable[[Mapping[str, Any]], _T]) -> _T:
    try:
        return read(msgspec.json.decode(text))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{reason}: {error!r}") from error


def _encode(values: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(values), indent=2) + b"\n"
