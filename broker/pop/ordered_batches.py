"""Messages that are handed out in order: one batch of each queue and group, and what it holds back (pop.md §9).

``config/consumerOrderInfo.json``, as Java writes it (``QueueLevelConsumerManager``; store.md §9.6):

    {"orderedConsumptionLevel": "QUEUE", "table": {"topic@group": {queueId: {
        "popTime", "i": how long it is invisible, "o": [first offset, distances from it …], "cm": bits of what is done,
        "ot": {offset: visible again at}, "oc": {offset: how often it was handed out before}, "l": last change,
        "a": attempt}}}}

Rules

    1. A queue with a batch is blocked while a message of it that is not acknowledged is invisible; not for the request
       of the same attempt, which gets the batch again.
    2. The next batch begins at the first message that is not acknowledged. What has been handed out before counts one
       time more, whether it was acknowledged or not; a repeated attempt counts nothing.
    3. An acknowledgement sets a bit; the group's offset is then the first message without one, or behind the batch.
       One of another batch's time has no effect, one of a message that is not in the batch is refused. What is
       acknowledged without a batch moves the offset behind it: the batch was lost with the broker.
    4. A change sets when a message is visible again.
    5. A batch with a keeper (``leases.py``) blocks its queue as long as that one wants it, unless a time was set for a
       message.
    6. A batch is forgotten that nobody has touched for a day, or whose topic, group or queue is gone.

Nothing of it is in the log, and there is no retry topic.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec import field

from ...common.java_json import Int32, Int64
from ..group.groups import GroupTable
from ..topic.topics import TopicTable
from .leases import LeaseKeeper

KEEP_MS: Final = 86_400_000
REFUSED: Final = -1
NOTHING: Final = -2


class OrderedBatch(msgspec.Struct, kw_only=True, rename={
    "popped_at_ms": "popTime", "invisible_ms": "i", "distances": "o", "acked": "cm", "visible_at_ms": "ot",
    "counts": "oc", "touched_at_ms": "l", "attempt_id": "a",
}):  # fmt: skip
    """What was handed out last of a queue."""

    popped_at_ms: Int64 = 0
    invisible_ms: Int64 | None = None
    distances: list[Int64] = field(default_factory=list[Int64])
    acked: Int64 = 0
    visible_at_ms: dict[int, Int64] = field(default_factory=dict[int, Int64])
    counts: dict[int, Int32] = field(default_factory=dict[int, Int32])
    touched_at_ms: Int64 = 0
    attempt_id: str | None = None

    @property
    def queue_offsets(self) -> list[int]:
        """The messages."""
        first = self.distances[0] if self.distances else 0
        return [first, *(first + distance for distance in self.distances[1:])] if self.distances else []

    def is_acked(self, number: int) -> bool:
        """Tell whether a message is done, by its place in the batch."""
        return bool(self.acked >> number & 1)

    @property
    def next_offset(self) -> int:
        """The first message that is not done, or the offset behind the last."""
        offsets = self.queue_offsets
        return next((offset for number, offset in enumerate(offsets) if not self.is_acked(number)), offsets[-1] + 1)

    def blocked_until_ms(self, invisible_ms: int | None = None) -> int | None:
        """Return when the first message that is not done is visible again; None when nothing holds the queue back."""
        lease_ms = self.invisible_ms if self.invisible_ms is not None else (invisible_ms or 0)
        open_offsets = [offset for number, offset in enumerate(self.queue_offsets) if not self.is_acked(number)]
        return max((self.visible_at_ms.get(each, self.popped_at_ms + lease_ms) for each in open_offsets), default=None)


class OrderFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of ``consumerOrderInfo.json``."""

    ordered_consumption_level: str = "QUEUE"
    table: dict[str, dict[int, OrderedBatch]] = field(default_factory=dict[str, dict[int, OrderedBatch]])


class OrderedPlace(NamedTuple):
    """A queue that a group reads in order."""

    topic: str
    group: str
    queue_id: int

    @property
    def pair(self) -> str:
        """The name of topic and group in the file."""
        return f"{self.topic}@{self.group}"


class Attempt(NamedTuple):
    """Who asks, and when: requests of one attempt may be repeated, when an answer is lost."""

    attempt_id: str | None
    invisible_ms: int
    popped_at_ms: int = 0
    """The time that handles of the batch will have; their acknowledgements name the batch by it."""


class OrderedBatches:
    """All batches of a broker."""

    file_name = "consumerOrderInfo.json"
    content_type = OrderFile

    def __init__(
        self, now_ms: Callable[[], int], is_there: Callable[[str, str, int], bool] = lambda _topic, _group, _queue: True
    ) -> None:
        self.change_count = 0
        self._now_ms = now_ms
        self._is_there = is_there
        self._table: dict[str, dict[int, OrderedBatch]] = {}
        self._keepers: dict[OrderedPlace, LeaseKeeper] = {}

    def __repr__(self) -> str:
        return f"<OrderedBatches {sum(map(len, self._table.values()))}>"

    def content(self) -> OrderFile:
        """Return what the file shall hold, after what is gone has been forgotten."""
        self._clean()
        return OrderFile(table=self._table)

    def load(self, content: OrderFile) -> None:
        """Take over what the file held."""
        self._table = {
            name: {queue_id: batch for queue_id, batch in queues.items() if batch.distances}
            for name, queues in content.table.items()
        }

    def find(self, place: OrderedPlace) -> OrderedBatch | None:
        """Return the batch of a queue."""
        return self._table.get(place.pair, {}).get(place.queue_id)

    def blocked_until_ms(self, place: OrderedPlace, attempt: Attempt) -> int | None:
        """Return until when a queue is blocked for a request, None when it is not."""
        batch = self.find(place)
        if batch is None or (attempt.attempt_id is not None and attempt.attempt_id == batch.attempt_id):
            return None
        until_ms, now_ms = batch.blocked_until_ms(attempt.invisible_ms), self._now_ms()
        if until_ms is None or until_ms > now_ms:
            return until_ms
        more_ms = self.keeper_ms(place, batch)
        return now_ms + more_ms if more_ms > 0 else None

    def keeper_ms(self, place: OrderedPlace, batch: OrderedBatch) -> int:
        """Return how long its keeper still wants a batch."""
        keeper = self._keepers.get(place)
        return 0 if keeper is None else keeper.extend_ms(batch.popped_at_ms)

    def release(self, keeper: LeaseKeeper, at_ms: int) -> list[OrderedPlace]:
        """Have all that a keeper has visible at an instant, unless it is before; return the queues that it is about."""
        places = [place for place, one in self._keepers.items() if one is keeper]
        for place in places:
            del self._keepers[place]
            batch = self.find(place)
            if batch is not None:
                times = {offset: min(at_ms, batch.visible_at_ms.get(offset, at_ms)) for offset in batch.queue_offsets}
                batch.visible_at_ms.update(times)
                self.change_count += 1
        return places

    def hand_out(
        self, place: OrderedPlace, queue_offsets: Sequence[int], attempt: Attempt, keeper: LeaseKeeper | None = None
    ) -> dict[int, int]:
        """Take a new batch; return how often each of its messages has been handed out before."""
        old, now_ms = self.find(place), self._now_ms()
        before: dict[int, int] = {}
        if old is not None:
            is_repeated = attempt.attempt_id is not None and attempt.attempt_id == old.attempt_id
            more = 0 if is_repeated else 1
            before = {offset: old.counts.get(offset, 0) + more for offset in old.queue_offsets}
        first = queue_offsets[0]
        counts = {offset: before.get(offset, 0) for offset in queue_offsets}
        batch = OrderedBatch(
            popped_at_ms=attempt.popped_at_ms,
            invisible_ms=attempt.invisible_ms,
            distances=[first, *(offset - first for offset in queue_offsets[1:])],
            counts={offset: count for offset, count in counts.items() if count},
            touched_at_ms=now_ms,
            attempt_id=attempt.attempt_id,
        )
        self._table.setdefault(place.pair, {})[place.queue_id] = batch
        self._keepers.pop(place, None)
        if keeper is not None:
            self._keepers[place] = keeper
        self.change_count += 1
        return counts

    def acknowledge(self, place: OrderedPlace, queue_offset: int, popped_at_ms: int) -> int:
        """Be done with a message; return the offset that the group has now, ``REFUSED`` or ``NOTHING``."""
        batch = self.find(place)
        if batch is None:
            return queue_offset + 1
        if batch.popped_at_ms != popped_at_ms:
            return NOTHING
        offsets = batch.queue_offsets
        if queue_offset not in offsets:
            return REFUSED
        batch.acked |= 1 << offsets.index(queue_offset)
        batch.touched_at_ms = self._now_ms()
        self.change_count += 1
        return batch.next_offset

    def change(self, place: OrderedPlace, queue_offset: int, popped_at_ms: int, visible_at_ms: int) -> None:
        """Have a message visible again at another time; one of another batch is passed over."""
        batch = self.find(place)
        if batch is not None and batch.popped_at_ms == popped_at_ms and queue_offset in batch.queue_offsets:
            batch.visible_at_ms[queue_offset] = visible_at_ms
            self._keepers.pop(place, None)
            batch.touched_at_ms = self._now_ms()
            self.change_count += 1

    def forget(self, place: OrderedPlace) -> None:
        """Forget the batch of a queue: the group goes on elsewhere."""
        self._keepers.pop(place, None)
        if self._table.get(place.pair, {}).pop(place.queue_id, None) is not None:
            self.change_count += 1

    def _clean(self) -> None:
        """Forget batches of topics, groups and queues that are gone, and old ones."""
        since_ms = self._now_ms() - KEEP_MS
        for name, queues in list(self._table.items()):
            topic, _, group = name.partition("@")
            for queue_id, batch in list(queues.items()):
                if batch.touched_at_ms < since_ms or not self._is_there(topic, group, queue_id):
                    del queues[queue_id]
                    self._keepers.pop(OrderedPlace(topic, group, queue_id), None)
            if not queues:
                del self._table[name]


def make_ordered_batches(topics: TopicTable, groups: GroupTable, now_ms: Callable[[], int]) -> OrderedBatches:
    """Return the table of a broker, still empty."""

    def is_there(topic: str, group: str, queue_id: int) -> bool:
        found = topics.get(topic)
        return found is not None and queue_id < found.read_queue_nums and groups.get(group) is not None

    return OrderedBatches(now_ms, is_there)
