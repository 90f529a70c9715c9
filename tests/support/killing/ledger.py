"""What was sent to a broker that gets killed, what it acknowledged, and whether that is what it serves afterwards.

Rules:

- The body of a message is made of its sender and a number, and so are tag and key; no message is sent twice.
- An acknowledged message is served from the queue and offset that its answer named, byte for byte. One that was not
  answered may be there or not, but not at two places.
- The offsets of a queue have no gap, and what was served once stays as it was.
- Where retention runs, a queue may begin later than before; what it served before that is retired, not lost.
"""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rocketlet.common.message import ReceivedMessage

PIECES = 40


class Place(NamedTuple):
    """Where a message is."""

    topic: str
    queue_id: int
    queue_offset: int


class Identity(NamedTuple):
    """Which message it is."""

    sender: str
    number: int

    @property
    def body(self) -> bytes:
        """The body that it was sent with."""
        return f"{self.sender}-{self.number} ".encode() * (self.number % PIECES + 1)

    @property
    def tag(self) -> str:
        """The tag that it was sent with."""
        return f"t{self.number % 3}"

    @property
    def key(self) -> str:
        """The key that it was sent with."""
        return f"k{self.number}"


class Ledger:
    """The account of one store."""

    def __init__(self) -> None:
        self.acknowledged: dict[Identity, Place] = {}
        self.unsure = Counter[str]()
        """How many messages were stored, but not as they should be, by the status of the answer."""
        self.found: dict[Identity, Place] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.begins: dict[tuple[str, int], int] = {}
        self.faults: list[str] = []

    @property
    def lost(self) -> list[Identity]:
        """Acknowledged messages that were not served from where they were acknowledged."""
        return [one for one in self.acknowledged if self.is_lost(one)]

    @property
    def topics(self) -> set[str]:
        """The topics that took messages."""
        return {place.topic for place in self.acknowledged.values()}

    def is_lost(self, one: Identity) -> bool:
        """Tell whether an acknowledged message is neither served from there nor retired."""
        place = self.acknowledged[one]
        return self.found.get(one) != place and place.queue_offset >= self.begins.get(place[:2], 0)

    def retire(self, topic: str, queue_id: int, first: int) -> None:
        """Note that a queue begins with this offset now."""
        self.begins[topic, queue_id] = first
        self.ends[topic, queue_id] = max(first, self.ends.get((topic, queue_id), 0))

    def acknowledge(self, sender: str, number: int, first: Place, count: int = 1) -> None:
        """Note the answer to a message, or to a batch that begins with it."""
        for step in range(count):
            place = first._replace(queue_offset=first.queue_offset + step)
            self.acknowledged[Identity(sender, number + step)] = place

    def add_served(self, messages: Iterable[ReceivedMessage]) -> None:
        """Note what a queue serves, in order, from the end of what was noted before."""
        for message in messages:
            place = Place(message.queue.topic, message.queue.queue_id, message.queue_offset)
            expected = self.ends.get(place[:2], 0)
            if place.queue_offset != expected:
                self.faults.append(f"{place} is served where offset {expected} should come")
            self.ends[place[:2]] = place.queue_offset + 1
            self._add(place, message)

    def _add(self, place: Place, message: ReceivedMessage) -> None:
        sender, _, number = message.body.partition(b" ")[0].decode("ascii", "replace").rpartition("-")
        one = Identity(sender, int(number) if number.isdecimal() else -1)
        if (message.body, message.tags, message.keys) != (one.body, one.tag, (one.key,)):
            self.faults.append(f"{place} is not as it was sent: {message.body[:60]!r}")
            return
        if one in self.found:
            self.faults.append(f"{one} is served from {self.found[one]} and from {place}")
        self.found[one] = place
