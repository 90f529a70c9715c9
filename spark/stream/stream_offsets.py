"""How far a stream has come: one queue offset per queue, and how far the next batch goes.

    JSON in the checkpoint: {"Orders": {"broker-a": {"0": 17, "1": 12}}, "@seenMs": 1790000000000}

The messages before 17 and 12 were read; queues were seen to hold them at the instant.

Rules:

- A batch holds, of each queue that its start and its end name, the messages between both. A queue that is only in the
  end was found just now: it gets the offset of its first message there, and its messages come with the next batch. So
  start and end alone say what a batch holds, also when it is read again after a restart.
- A queue that is gone keeps its offset, and goes on from there when it comes back.
- A queue that ends before its offset was made anew, or has lost its last messages. The first is set back to its first
  message, in a batch without its messages; the other goes on from its end. Both, and a first message above the offset,
  are loss. They are told apart by the instant: a queue that was made anew holds no message of before.
- A limit is divided among the queues in proportion to what they hold back, as Spark's Kafka source does it; no queue
  that holds back something gets nothing while the limit allows one message for each. The sum is exact.
- Equal offsets are equal as text: queues are in the order of ``MessageQueue``.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from ...common.errors import ConfigError
from ...common.message import MessageQueue
from ..cluster.queue_ranges import QueueExtent, describe_queue

SEEN: Final = "@seenMs"  # no topic is called so
Offsets = dict[MessageQueue, int]


class BatchPlan(NamedTuple):
    """Where a batch ends, how many messages that are, how many stay behind, and what was lost: one sentence each."""

    end: Offsets
    taken: int
    backlog: int
    data_loss: list[str]


def format_offsets(offsets: Mapping[MessageQueue, int], seen_at_ms: int | None = None) -> dict[str, Any]:
    """Return offsets, and the instant at which they were seen, as the JSON object that a checkpoint keeps."""
    table: dict[str, Any] = {}
    for (topic, broker, queue_id), queue_offset in sorted(offsets.items()):
        table.setdefault(topic, {}).setdefault(broker, {})[str(queue_id)] = queue_offset
    return table if seen_at_ms is None else {**table, SEEN: seen_at_ms}


def parse_seen(table: Mapping[str, Any]) -> int | None:
    """Return the instant at which offsets were seen, ``None`` where a checkpoint of before does not say it."""
    return table.get(SEEN)


def parse_offsets(table: Any) -> Offsets:
    """Return the offsets of such an object.

    Raises:
        ConfigError: It is not of that form, so the checkpoint is another source's.
    """
    try:
        return {
            MessageQueue(topic, broker, int(queue_id)): _whole(queue_offset)
            for topic, brokers in table.items()
            if topic != SEEN
            for broker, queues in brokers.items()
            for queue_id, queue_offset in queues.items()
        }
    except (AttributeError, TypeError, ValueError):
        raise ConfigError(f"the offsets of the checkpoint are not of the rocketmq source: {table!r}") from None


def plan_batch_end(
    start: Offsets,
    extents: Mapping[MessageQueue, QueueExtent],
    limit: int | None = None,
    cut: Collection[MessageQueue] = (),
) -> BatchPlan:
    """Return where the batch ends that begins at ``start``, with ``limit`` messages at most.

    ``cut`` are queues that have lost their last messages; others that end before ``start`` were made anew.
    """
    begin = {queue: max(start[queue], extents[queue].first) for queue in start.keys() & extents.keys()}
    held = {queue: max(0, extents[queue].end - queue_offset) for queue, queue_offset in begin.items()}
    shares = held if limit is None else divide_limit(held, limit)
    end = dict(start)
    for queue, extent in extents.items():
        goes_on = queue in start and start[queue] <= extent.end
        end[queue] = begin[queue] + shares[queue] if goes_on else extent.end if queue in cut else extent.first
    taken = sum(shares.values())
    data_loss = [loss for queue in sorted(begin) for loss in _losses(queue, start[queue], extents[queue], queue in cut)]
    return BatchPlan(end, taken, sum(held.values()) - taken, data_loss)


def divide_limit(held: Mapping[MessageQueue, int], limit: int) -> dict[MessageQueue, int]:
    """Return how many messages of each queue are taken, ``limit`` in all or everything.

    {a: 90, b: 9, c: 1} and 10 are {a: 7, b: 2, c: 1}.
    """
    total = sum(held.values())
    if total <= limit:
        return dict(held)
    shares = dict.fromkeys(held, 0)
    waiting = sorted((queue for queue in held if held[queue]), key=lambda queue: (-held[queue], queue))
    if limit >= len(waiting):
        shares.update(dict.fromkeys(waiting, 1))
    rest = limit - sum(shares.values())
    left = {queue: held[queue] - shares[queue] for queue in waiting}
    total = sum(left.values())
    for queue in waiting:
        shares[queue] += left[queue] * rest // total
    missing = limit - sum(shares.values())
    waiting.sort(key=lambda queue: -(left[queue] * rest % total))
    for queue in [queue for queue in waiting if shares[queue] < held[queue]][:missing]:
        shares[queue] += 1
    return shares


def spans(start: Offsets, end: Offsets) -> Iterator[tuple[MessageQueue, QueueExtent]]:
    """Yield what a batch holds of each queue, where that is something."""
    for queue in sorted(end):
        if queue in start and start[queue] < end[queue]:
            yield queue, QueueExtent(start[queue], end[queue])


def _whole(queue_offset: Any) -> int:
    if type(queue_offset) is not int:
        raise TypeError(queue_offset)
    return queue_offset


def _losses(queue: MessageQueue, queue_offset: int, extent: QueueExtent, is_cut: bool) -> Iterator[str]:  # noqa: FBT001 # of a queue
    name = describe_queue(queue)
    if extent.end < queue_offset:
        reason = "it has lost its last messages, and goes on from its end" if is_cut else "it was made anew"
        yield f"{name} was read up to offset {queue_offset}, but ends at {extent.end}: {reason}"
    elif extent.first > queue_offset:
        yield f"{name} was read up to offset {queue_offset}, but begins at {extent.first}: what was between is deleted"
