"""What was promised up to a moment of a workload: the facts of its marks, added up.

Rules:

- A message that was sent may be there, one that was acknowledged must. Both at the place they were given only.
- A state file holds the text of its last save that returned, or of one that has begun since.
- A saved progress of delayed messages says that those before it were delivered: the log holds what came of them.
- A half message stays open until its end begins.
- Removing a topic ends its numbering; its records stay in the log. Retention may remove what it was told to.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class Sent(NamedTuple):
    """A record got its place; ``data`` is what its bytes have to be."""

    log_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    has_entry: bool
    keys: tuple[str, ...]
    data: bytes

    @property
    def end(self) -> int:
        """Where the next record may begin."""
        return self.log_offset + len(self.data)


class Refused(NamedTuple):
    """A record that was sent was not taken: it may be on the disk, but nobody was told that it is."""

    sent: Sent


class Acknowledged(NamedTuple):
    """Everything sent that ends at or before the place is on disk."""

    log_end: int


class TopicRemoved(NamedTuple):
    """What lies before the place is in no queue of the topic."""

    topic: str
    log_end: int


class Retired(NamedTuple):
    """Files of the log before the place may go."""

    log_offset: int


class Saving(NamedTuple):
    """A state file is being written; the path is below the store directory."""

    path: str
    text: str


class Saved(NamedTuple):
    """The writing of a state file returned."""

    path: str
    text: str


class Consumed(NamedTuple):
    """A consumer got everything of a queue below the offset."""

    topic: str
    queue_id: int
    queue_offset: int


class Delivered(NamedTuple):
    """The delayed messages of a level before the offset were delivered; the last of them ends at the place."""

    level: int
    queue_offset: int
    log_end: int


class HalfOpened(NamedTuple):
    """A half message got its place."""

    key: str
    log_offset: int
    log_end: int


class HalfEnded(NamedTuple):
    """A transaction is about to end: it may be open still, or not any more."""

    key: str


Fact = (
    HalfOpened
    | HalfEnded
    | Delivered
    | Sent
    | Refused
    | Acknowledged
    | TopicRemoved
    | Retired
    | Saving
    | Saved
    | Consumed
)


@dataclass
class Ledger:
    """The promises of a workload so far."""

    sent: dict[int, list[Sent]] = field(default_factory=dict[int, list[Sent]])
    refused: set[Sent] = field(default_factory=set[Sent])
    acknowledged_end: int = 0
    retired: int = 0
    numbering: dict[str, int] = field(default_factory=dict[str, int])
    saved: dict[str, str] = field(default_factory=dict[str, str])
    saving: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    consumed: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    delivered: list[Delivered] = field(default_factory=list[Delivered])
    halves: dict[str, HalfOpened] = field(default_factory=dict[str, HalfOpened])

    def add(self, fact: object) -> None:
        """Take the next fact."""
        match fact:
            case Sent():
                self.sent.setdefault(fact.log_offset, []).append(fact)
            case Refused():
                self.refused.add(fact.sent)
            case Acknowledged():
                self.acknowledged_end = max(self.acknowledged_end, fact.log_end)
            case Retired():
                self.retired = max(self.retired, fact.log_offset)
            case Consumed():
                self.consumed[fact.topic, fact.queue_id] = fact.queue_offset
            case Delivered():
                self.delivered.append(fact)
            case HalfOpened():
                self.halves[fact.key] = fact
            case HalfEnded():
                self.halves.pop(fact.key, None)
            case TopicRemoved():
                self.numbering[fact.topic] = fact.log_end
                self.consumed = {place: end for place, end in self.consumed.items() if place[0] != fact.topic}
            case Saving():
                self.saving.setdefault(fact.path, []).append(fact.text)
            case Saved():
                self.saved[fact.path] = fact.text
                self.saving[fact.path] = []
            case _:
                raise TypeError(f"{fact!r} is no fact of the ledger")

    def required(self, log_min_offset: int) -> list[Sent]:
        """Return the acknowledged messages that lie at or behind a place."""
        return [
            one
            for place, candidates in self.sent.items()
            if place >= log_min_offset
            for one in candidates
            if one.end <= self.acknowledged_end and one not in self.refused
        ]

    def open_halves(self) -> list[HalfOpened]:
        """Return the half messages that were acknowledged, and whose files nobody has taken away."""
        end, start = self.acknowledged_end, self.retired
        return [one for one in self.halves.values() if one.log_end <= end and one.log_offset >= start]

    def is_in_queue(self, one: Sent) -> bool:
        """Tell whether the message belongs to the present numbering of its queue."""
        return one.has_entry and one.log_offset >= self.numbering.get(one.topic, 0)

    def texts(self, path: str) -> list[str | None]:
        """Return what a state file may hold; ``None`` stands for no file."""
        return [self.saved.get(path), *self.saving.get(path, [])]
