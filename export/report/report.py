"""Proves from what a reading counted that nothing is missing, and prints it.

Rules:

- The proof: every message of the log is a row or left out for a counted reason, every queue holds each offset from
  its first to its last exactly once, and the checksums of all bodies are right.
- Damage ends the reading of its store, or is skipped, and the report says where and why; then there is no proof, even
  if no message should be missing. Without damage it says where the log ends, what stands there, and where the store
  does not tell that it ended there (``endproof``), the proof claims no more than what is read.
- Messages that are in no queue (``Reason.NOT_QUEUED``) have no queue offset that could be missing.
- Where filters were pushed down, records that they exclude are not looked at. The proof then speaks of the others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from .tally import StoreTally
from .tallyjson import store_from_json, store_to_json

_NAMED_FAULTS: Final = 5


@dataclass
class Report:
    """What the reading of some stores met, and what it proves; ``unread`` says which parts of the plan are missing."""

    stores: list[StoreTally] = field(default_factory=list[StoreTally])
    checks_crc: bool = True
    unread: list[str] = field(default_factory=list[str])

    @property
    def rows(self) -> int:
        """Rows of all stores."""
        return sum(tally.rows for tally in self.stores)

    def of_store(self, store: str) -> StoreTally:
        """Return the tally of a store, a new one at first use."""
        for tally in self.stores:
            if tally.store == store:
                return tally
        self.stores.append(StoreTally(store))
        return self.stores[-1]

    def add(self, tallies: Iterable[StoreTally]) -> None:
        """Add what was met elsewhere, in the same stores or others."""
        for tally in tallies:
            self.of_store(tally.store).merge(tally)

    def faults(self) -> list[str]:
        """Return what stands against the proof; nothing when it holds."""
        return [*self.unread, *(f"{tally.store}: {fault}" for tally in self.stores for fault in tally.faults())]

    def lines(self) -> Iterator[str]:
        """Yield the report as text: counts by queue, what was left out, and the proof."""
        for tally in self.stores:
            yield f"{tally.store}: {tally.records} records and {tally.blanks} blanks in {tally.log_bytes} bytes of log"
            yield from _queue_lines(tally)
            for reason, count in tally.left_out.items():
                yield f"  left out, {reason.label}: {count}"
            yield f"  {tally.messages} messages = {tally.rows} rows + {sum(tally.left_out.values())} left out"
            if tally.crc_failures:
                yield f"  stored bodies without their checksum: {tally.crc_failures}"
            if tally.skipped:
                yield f"  skipped as damaged: {tally.skipped_bytes} bytes in {len(tally.skipped)} places"
            for text in tally.pushed:
                yield f"  pushed down: {text}"
            if tally.end is not None:
                yield f"  the log ends in {tally.end}"
                if tally.end.unproved is not None:
                    yield f"  that the log ended there is not proved: {tally.end.unproved}"
        yield from self._proof_lines()

    def _proof_lines(self) -> Iterator[str]:
        faults = self.faults()
        for fault in faults[:_NAMED_FAULTS]:
            yield f"fault: {fault}"
        if len(faults) > _NAMED_FAULTS:
            yield f"fault: {len(faults) - _NAMED_FAULTS} more"
        bodies = "all body checksums are right" if self.checks_crc else "body checksums were not looked at"
        is_open = any(tally.end is not None and tally.end.unproved is not None for tally in self.stores)
        until = " up to where the log ends here" if is_open else ""
        if not faults and any(tally.pushed for tally in self.stores):
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
            "stores": [store_to_json(tally) for tally in self.stores],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Report":
        """Return the report of JSON values; raises KeyError, TypeError or ValueError for others."""
        return cls(list(map(store_from_json, found["stores"])), found["checksCrc"], list(found["unread"]))


def _queue_lines(tally: StoreTally) -> Iterator[str]:
    for (topic, queue_id), queue in sorted(tally.queues.items()):
        if queue.rows:
            offsets = f"offsets {queue.offsets.first} to {queue.offsets.last}"
            yield f"  {topic} queue {queue_id}: {queue.rows} rows, {offsets}"
