"""Where a reading of a running cluster begins and ends in each queue.

    earliest, latest             the first message that a queue has; behind its last one
    offsets by queue             {"Orders": {"broker-a": {"0": 17, "1": -1}}}; -1 is latest, -2 earliest
    instants by queue, or one    the first message that was stored then or later

Rules:

- Offsets by queue name every queue that is read and no other, so that none is forgotten.
- Where a topic is on one broker the broker may be left out; one offset or instant may stand for all queues of a topic.
- A queue without a message at an instant or later: an ending is its end; a beginning is an error or its end, as the
  strategy says.
- An offset that a queue does not have, or does not have any more, is data loss: an error, or a warning where option
  ``failOnDataLoss`` is false, and the nearest one counts (``DataLoss``).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from ...common.errors import ConfigError, nearest
from ...common.message import MessageQueue
from .queue_ranges import QueueExtent, QueueRange, describe_queue

if TYPE_CHECKING:  # it imports the client, which who reads stores does without
    from .cluster import Addresses, Cluster
import logging

from ...common.errors import DataLossError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataLoss:
    """Raises what is lost, or warns of it."""

    fails: bool = True

    def report(self, text: str) -> None:
        """Tell of a loss.

        Raises:
            DataLossError: Losses fail the reading.
        """
        if self.fails:
            raise DataLossError(f"{text} (failOnDataLoss false goes on with what there is)")
        _log.warning("%s", text)

    def below(self, queue: MessageQueue, queue_offset: int, first: int) -> None:
        """Tell that messages are gone; raises what ``report`` does."""
        self.report(f"{describe_queue(queue)} begins at offset {first}: those from {queue_offset} on were deleted")

    def beyond(self, queue: MessageQueue, queue_offset: int, end: int) -> None:
        """Tell that a queue is shorter than it should be; raises what ``report`` does."""
        self.report(
            f"{describe_queue(queue)} ends at offset {end}, before {queue_offset}: it was made anew, or never held more"
        )


LATEST: Final = -1
EARLIEST: Final = -2

# Topic, broker (None: any), queue id (None: any) -> offset or instant.
QueuePlace = tuple[str, str | None, int | None]


@dataclass(frozen=True)
class OffsetBound:
    """One end of a reading, as an option names it: an offset for all, offsets by queue, or instants."""

    option: str
    queue_offset: int = EARLIEST
    offsets: Mapping[QueuePlace, int] = field(default_factory=dict[QueuePlace, int])
    at_ms: int | None = None
    instants: Mapping[QueuePlace, int] = field(default_factory=dict[QueuePlace, int])
    is_end: bool = False
    takes_latest: bool = True


def parse_places(option: str, table: Any, parse: Callable[[Any, str], int]) -> dict[QueuePlace, int]:
    """Return the values of ``{"topic": {"broker": {"queue": value}}}`` and its shorter forms.

    Raises:
        ConfigError: The value has another form.
    """
    found: dict[QueuePlace, int] = {}
    for topic, brokers in _items(option, table):
        if not isinstance(brokers, dict):
            found[topic, None, None] = parse(brokers, option)
            continue
        for name, queues in _items(option, brokers):
            if isinstance(queues, dict):
                found |= {
                    (topic, name, _queue_id(option, queue)): parse(value, option)
                    for queue, value in _items(option, queues)
                }
            else:
                place = (topic, None, int(name)) if name.isdecimal() else (topic, name, None)
                found[place] = parse(queues, option)
    return found


def resolve_offsets(
    cluster: "Cluster",
    queues: "Addresses",
    extents: Mapping[MessageQueue, QueueExtent],
    bound: OffsetBound,
    data_loss: DataLoss,
) -> dict[MessageQueue, int]:
    """Return the offset of a bound in each queue.

    Raises:
        ConfigError: The bound does not fit the queues, or finds nothing where it must.
        DataLossError: An offset is not there, and that matters.
        RemotingError, ResponseError: A broker cannot be asked.
    """
    if bound.at_ms is not None or bound.instants:
        return _resolve_instants(cluster, queues, extents, bound)
    if not bound.offsets:
        return {queue: _named(extents[queue], bound.queue_offset) for queue in queues}
    offsets = _spread(bound, bound.offsets, queues, data_loss)
    return {queue: _within(queue, extents[queue], queue_offset, data_loss) for queue, queue_offset in offsets.items()}


def make_ranges(
    queues: "Addresses", starts: Mapping[MessageQueue, int], stops: Mapping[MessageQueue, int]
) -> Iterator[QueueRange]:
    """Yield what lies between the offsets in each queue that has both."""
    for queue, address in queues.items():
        if queue in starts and queue in stops:
            yield QueueRange(queue.broker_name, address, queue.topic, queue.queue_id, starts[queue], stops[queue])


def _resolve_instants(
    cluster: "Cluster", queues: "Addresses", extents: Mapping[MessageQueue, QueueExtent], bound: OffsetBound
) -> dict[MessageQueue, int]:
    if bound.at_ms is not None:
        instants = dict.fromkeys(queues, bound.at_ms)
    else:
        instants = _spread(bound, bound.instants, queues, None)
    found = cluster.offsets_at(queues, instants)
    for queue, queue_offset in found.items():
        extent = extents[queue]
        if not bound.is_end and not bound.takes_latest and queue_offset >= extent.end:
            raise ConfigError(
                f"{bound.option}: no message of {describe_queue(queue)} was "
                f"stored at {instants[queue]} or later; startingOffsetsByTimestampStrategy latest permits that",
                key=bound.option,
            )
        found[queue] = min(max(queue_offset, extent.first), extent.end)
    return found


def _named(extent: QueueExtent, queue_offset: int) -> int:
    if queue_offset == LATEST:
        return extent.end
    return extent.first if queue_offset == EARLIEST else queue_offset


def _within(queue: MessageQueue, extent: QueueExtent, queue_offset: int, data_loss: DataLoss) -> int:
    wanted = _named(extent, queue_offset)
    if wanted < extent.first:
        data_loss.below(queue, wanted, extent.first)
    elif wanted > extent.end:
        data_loss.beyond(queue, wanted, extent.end)
    return min(max(wanted, extent.first), extent.end)


def _spread(
    bound: OffsetBound, places: Mapping[QueuePlace, int], queues: "Addresses", data_loss: DataLoss | None
) -> dict[MessageQueue, int]:
    """Return the value of each queue.

    Raises:
        ConfigError: A queue has none, or what is named is not read.
    """
    found: dict[MessageQueue, int] = {}
    for queue in queues:
        value = _value_of(queue, places, queues)
        if value is None:
            raise ConfigError(
                f"{bound.option} does not name {describe_queue(queue)}; "
                f"{LATEST} stands for latest, {EARLIEST} for earliest",
                key=bound.option,
            )
        found[queue] = value
    for place in places:
        _check_place(bound.option, place, queues, data_loss)
    return found


def _value_of(queue: MessageQueue, places: Mapping[QueuePlace, int], queues: "Addresses") -> int | None:
    topic, broker, queue_id = queue
    for place in ((topic, broker, queue_id), (topic, broker, None), (topic, None, queue_id), (topic, None, None)):
        if place in places:
            if place[1] is None and place[2] is not None:
                _check_single_broker(topic, queues)
            return places[place]
    return None


def _check_single_broker(topic: str, queues: "Addresses") -> None:
    brokers = sorted({queue.broker_name for queue in queues if queue.topic == topic})
    if len(brokers) > 1:
        raise ConfigError(f"{topic} is on brokers {', '.join(brokers)}; name one beside each queue", key=topic)


def _check_place(option: str, place: QueuePlace, queues: "Addresses", data_loss: DataLoss | None) -> None:
    topic, broker, queue_id = place
    topics = {queue.topic for queue in queues}
    if topic not in topics:
        raise ConfigError(f"{option} names topic {topic}, which is not read{nearest(topic, topics)}", key=option)
    ids = {queue.queue_id for queue in queues if queue.topic == topic and broker in (None, queue.broker_name)}
    if broker is not None and not ids:
        brokers = {queue.broker_name for queue in queues if queue.topic == topic}
        text = f"{option} names broker {broker} of {topic}, which is not there{nearest(broker, brokers)}"
        if data_loss is None:
            raise ConfigError(text, key=option)
        data_loss.report(text)
    elif queue_id is not None and queue_id not in ids:
        raise ConfigError(f"{option} names queue {queue_id} of {topic}, but there are {_listed(ids)}", key=option)


def _listed(ids: set[int]) -> str:
    return ", ".join(map(str, sorted(ids)))


def _items(option: str, table: Any) -> list[tuple[str, Any]]:
    if not isinstance(table, dict) or not table:
        raise ConfigError(
            f'{option} is not of the form {{"topic": {{"broker": {{"0": value}}}}}}: {table!r}', key=option
        )
    return list(cast("dict[str, Any]", table).items())


def _queue_id(option: str, text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"{option} names queue {text!r}, which is not a number", key=option)
    return int(text)
