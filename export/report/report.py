"""Proves from what a reading counted that nothing is missing, prints the proof, and keeps it in files.

    report.json          the report of one reading in one file, or a directory to which a planner and tasks add parts:
    plan.json            which reading this is, how many parts it has, and what is known before it begins
    part-<plan>-7.json   what the task of part 7 met

Rules of the proof:

- Every message of the log is a row or left out for a counted reason, every queue holds each offset from its first to
  its last exactly once, and the checksums of all bodies are right.
- Damage ends the reading of its store, or is skipped, and the report says where and why; then there is no proof, even
  if no message should be missing. Without damage it says where the log ends, what stands there, and where the store
  does not tell that it ended there (``log_end``), the proof claims no more than what is read.
- Messages that are in no queue (``Reason.NOT_QUEUED``) have no queue offset that could be missing.
- Where filters were pushed down, records that they exclude are not looked at. The proof then speaks of the others.

Rules of the parts:

- A part is written when its task has read all of it, under a name that does not depend on the attempt: a task that is
  run again replaces its part, so nothing is counted twice. It appears whole or not at all.
- A part that is missing is a fault of the report: its task failed, or its rows were not wanted to the end.
- A directory holds the report of the reading that was planned last; planning removes the parts of others.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import msgspec

from ...common.errors import ConfigError
from ..plan.filesystems import Folder, Storage
from .counters import StoreCounters, store_from_json, store_to_json

_NAMED_FAULTS: Final = 5


@dataclass
class Report:
    """What the reading of some stores met, and what it proves; ``unread`` says which parts of the plan are missing."""

    stores: list[StoreCounters] = field(default_factory=list[StoreCounters])
    checks_crc: bool = True
    unread: list[str] = field(default_factory=list[str])

    @property
    def rows(self) -> int:
        """Rows of all stores."""
        return sum(counters.rows for counters in self.stores)

    def of_store(self, store: str) -> StoreCounters:
        """Return the counters of a store, new ones at first use."""
        for counters in self.stores:
            if counters.store == store:
                return counters
        self.stores.append(StoreCounters(store))
        return self.stores[-1]

    def add(self, all_counters: Iterable[StoreCounters]) -> None:
        """Add what was met elsewhere, in the same stores or others."""
        for counters in all_counters:
            self.of_store(counters.store).merge(counters)

    def faults(self) -> list[str]:
        """Return what stands against the proof; nothing when it holds."""
        return [
            *self.unread,
            *(f"{counters.store}: {fault}" for counters in self.stores for fault in counters.faults()),
        ]

    def lines(self) -> Iterator[str]:
        """Yield the report as text: counts by queue, what was left out, and the proof."""
        for counters in self.stores:
            records = f"{counters.records} records and {counters.blanks} blanks"
            yield f"{counters.store}: {records} in {counters.log_bytes} bytes of log"
            yield from _queue_lines(counters)
            for reason, count in counters.left_out.items():
                yield f"  left out, {reason.label}: {count}"
            yield f"  {counters.messages} messages = {counters.rows} rows + {sum(counters.left_out.values())} left out"
            if counters.crc_failures:
                yield f"  stored bodies without their checksum: {counters.crc_failures}"
            if counters.skipped:
                yield f"  skipped as damaged: {counters.skipped_bytes} bytes in {len(counters.skipped)} places"
            for text in counters.pushed:
                yield f"  pushed down: {text}"
            if counters.end is not None:
                yield f"  the log ends in {counters.end}"
                if counters.end.unproved is not None:
                    yield f"  that the log ended there is not proved: {counters.end.unproved}"
        yield from self._proof_lines()

    def _proof_lines(self) -> Iterator[str]:
        faults = self.faults()
        for fault in faults[:_NAMED_FAULTS]:
            yield f"fault: {fault}"
        if len(faults) > _NAMED_FAULTS:
            yield f"fault: {len(faults) - _NAMED_FAULTS} more"
        bodies = "all body checksums are right" if self.checks_crc else "body checksums were not looked at"
        is_open = any(counters.end is not None and counters.end.unproved is not None for counters in self.stores)
        until = " up to where the log ends here" if is_open else ""
        if not faults and any(counters.pushed for counters in self.stores):
            yield f"proof holds{until} for what pushed filters do not exclude: every message is counted, {bodies}"
        elif not faults:
            yield f"proof holds{until}: every message is counted, every queue offset is there once, {bodies}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "proved": self.checks_crc and not self.faults(),
            "checksCrc": self.checks_crc,
            "faults": self.faults(),
            "unread": self.unread,
            "stores": [store_to_json(counters) for counters in self.stores],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Report":
        """Return the report of JSON values; raises KeyError, TypeError or ValueError for others."""
        return cls(list(map(store_from_json, found["stores"])), found["checksCrc"], list(found["unread"]))


def _queue_lines(counters: StoreCounters) -> Iterator[str]:
    for (topic, queue_id), queue in sorted(counters.queues.items()):
        if queue.rows:
            offsets = f"offsets {queue.offsets.first} to {queue.offsets.last}"
            yield f"  {topic} queue {queue_id}: {queue.rows} rows, {offsets}"


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

    def finish(self, number: int, *all_counters: StoreCounters) -> None:
        """Add what the task of a part met, by store.

        Raises:
            ConfigError: The directory cannot be written to.
        """
        stores = [store_to_json(counters) for counters in all_counters]
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


def _read_part(found: Mapping[str, Any]) -> list[StoreCounters]:
    return [store_from_json(store) for store in found["stores"]]


def _parse(reason: str, text: bytes, read: Callable[[Mapping[str, Any]], _T]) -> _T:
    try:
        return read(msgspec.json.decode(text))
    except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{reason}: {error!r}") from error


def _encode(values: Mapping[str, Any]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(values), indent=2) + b"\n"
