"""Looking into a broker without consuming: messages, lag, dead letters, transactions. Runs on the broker's loop.

Names are demanding here: a topic or group that does not exist is an error, so that a test that looks for nothing in
the wrong place does not pass.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...broker.parts import AdminParts
from ...broker.transaction.half_messages import real_place
from ...common.errors import nearest
from ...common.message import MessageQueue, ReceivedMessage
from ...common.names import DLQ_PREFIX, HALF_TOPIC, is_system_topic
from ...common.properties import PRODUCER_GROUP, TRANSACTION_CHECK_TIMES
from ...common.record import decode_record, iter_records
from ...common.record_messages import decode_message
from ...store.consumequeue.queue_reader import ReadLimits
from .consumption import ConsumptionTracker
from .unknown_names import UnknownNameError


class MessageFilter(NamedTuple):
    """Which messages of a topic are meant; ``None`` asks for nothing.

    ``group`` leaves those that this consumer group subscribes to and is not done with.
    """

    tag: str | None = None
    key: str | None = None
    group: str | None = None


class GroupLag(NamedTuple):
    """How many messages a consumer group wants and is not done with: in queues where there are any, and together."""

    queues: Mapping[MessageQueue, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.queues.values())


class OpenTransaction(NamedTuple):
    """A transaction that nobody has decided about.

    ``message`` is what consumers get when it is committed; its queue is the one that it was sent to.
    """

    message: ReceivedMessage
    producer_group: str
    check_count: int


class Inspection:
    """Looks into one broker, which is called ``broker_name`` by its messages."""

    def __init__(self, parts: AdminParts, tracker: ConsumptionTracker, broker_name: str) -> None:
        self._parts = parts
        self._tracker = tracker
        self._broker_name = broker_name

    def check_topic(self, topic: str) -> None:
        """Refuse a topic that does not exist.

        Raises:
            UnknownNameError: there is none.
        """
        topics = self._parts.state.topics
        if topics.get(topic) is None:
            known = [name for name in topics.names() if not is_system_topic(name)]
            raise UnknownNameError(f"there is no topic {topic!r}{nearest(topic, known)}")

    def messages(self, topic: str, wanted: MessageFilter) -> list[ReceivedMessage]:
        """Return what is stored in a topic, by queue and offset."""
        self.check_topic(topic)
        if wanted.group is not None:
            self._tracker.check_group(wanted.group)
        store = self._parts.state.store
        queue_ids = sorted(queue_id for name, queue_id in store.queues() if name == topic)
        found = [
            message
            for queue_id in queue_ids
            for message in self._read(
                topic, queue_id, store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
            )
            if (wanted.tag is None or message.tags == wanted.tag) and (wanted.key is None or wanted.key in message.keys)
        ]
        return found if wanted.group is None else self._left(found, wanted.group)

    def _left(self, messages: list[ReceivedMessage], group: str) -> list[ReceivedMessage]:
        """Return the messages that a group wants and is not done with; all of queues that it does not read."""
        left = {queue.place[1:]: {*self._tracker.wanted(queue, queue.left)} for queue in self._tracker.places(group)}
        return [
            message
            for message in messages
            if (offsets := left.get((message.topic, message.queue.queue_id))) is None or message.queue_offset in offsets
        ]

    def _read(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[ReceivedMessage]:
        store, next_offset = self._parts.state.store, begin
        while next_offset < end:
            result = store.read(topic, queue_id, next_offset, ReadLimits())
            for part in result.records:
                for record in iter_records(bytes(part)):
                    message = decode_message(record, self._broker_name)
                    if message.queue_offset < end:
                        yield message
            next_offset = result.next_offset

    def lag(self, group: str) -> GroupLag:
        """Return how many messages a group wants and is not done with; those that wait for their time are left out."""
        self._tracker.check_group(group)
        left = {
            MessageQueue(queue.place.topic, self._broker_name, queue.place.queue_id): self._tracker.wanted(
                queue, queue.left
            )
            for queue in self._tracker.places(group)
        }
        return GroupLag({queue: len(offsets) for queue, offsets in left.items() if offsets})

    def in_flight(self, group: str) -> list[ReceivedMessage]:
        """Return what members of a group were given and are not done with."""
        self._tracker.check_group(group)
        return [
            message
            for queue in self._tracker.places(group)
            for offset in self._tracker.wanted(queue, queue.taken)
            for message in self._read(queue.place.topic, queue.place.queue_id, offset, offset + 1)
        ]

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """Return what a group has given up."""
        self._tracker.check_group(group)
        topic = DLQ_PREFIX + group
        return [] if self._parts.state.topics.get(topic) is None else self.messages(topic, MessageFilter())

    def transactions(self) -> list[OpenTransaction]:
        """Return the open transactions, the oldest first."""
        store, found = self._parts.state.store, list[OpenTransaction]()
        for offset in self._parts.transactions.open_offsets:
            for log_offset, size, _ in store.entries(HALF_TOPIC, 0, offset, 1):
                data = store.record_at(log_offset, size)
                if data is None:
                    continue
                half = decode_record(data)
                topic, queue_id = real_place(half)
                message = dataclasses.replace(
                    decode_message(half, self._broker_name),
                    topic=topic,
                    queue=MessageQueue(topic, self._broker_name, queue_id),
                )
                properties = half.properties
                checks = int(properties.get(TRANSACTION_CHECK_TIMES, "0"))
                found.append(OpenTransaction(message, properties.get(PRODUCER_GROUP, ""), checks))
        return found
