"""Messages that a group has given up: a copy goes to its dead letters, and the group is done with them.

Rules (``ConsumerProcessor.forwardMessageToDeadLetterQueue``; grpc.md §4.7)

    1. The message is found by its queue and offset, never by a place in the log that a client names.
    2. The copy is in the log before the message is acknowledged.
    3. It keeps where it was first: RETRY_TOPIC and DLQ_ORIGIN_TOPIC are the topic that its consumer knows,
       ORIGIN_MESSAGE_ID and DLQ_ORIGIN_MESSAGE_ID its ids there. It has one attempt more.
"""

from typing import Any

from ...common.codes import ResponseCode
from ...common.errors import MessageRefusedError, StoreError
from ...common.ids import format_offset_id
from ...common.outcome import Outcome
from ...common.pop_texts import normal_topic
from ...common.properties import (
    DELAY,
    DLQ_ORIGIN_MESSAGE_ID,
    DLQ_ORIGIN_TOPIC,
    ORIGIN_MESSAGE_ID,
    POP_CK,
    RETRY_TOPIC,
    UNIQ_KEY,
    WAIT,
    encode_properties,
)
from ...common.record import NewRecord, Record
from ..outcomes.scheduler import Scheduler
from ..send.send import dead_letters
from ..settings.refusal import Refusal
from ..topic.topics import TopicTable
from .acks import AckOperation, AckRequest
from .revival import PopLog

_DROPPED = frozenset({DELAY, POP_CK})


class GivingUp:
    """Moves messages to the dead letters of their groups."""

    def __init__(self, scheduler: Scheduler, topics: TopicTable, log: PopLog, acks: AckOperation) -> None:
        self._scheduler = scheduler
        self._topics = topics
        self._log = log
        self._acks = acks

    def __repr__(self) -> str:
        return f"<GivingUp {self._acks!r}>"

    def give_up(self, ack: AckRequest, consumer: tuple[str, int]) -> Outcome[Refusal | None]:
        """Copy the message of a handle, which runs, and acknowledge it."""
        message = self._log.message_at(ack.topic, ack.queue_id, ack.queue_offset)
        if message is None:
            remark = f"no message at offset {ack.queue_offset} of queue {ack.queue_id} of {ack.topic}"
            return Outcome(Refusal(ResponseCode.NO_MESSAGE, remark), is_settled=True)
        place = dead_letters(self._topics, ack.consumer_group)
        topic = normal_topic(message.topic, ack.consumer_group)
        copy = _dead_letter(message, topic, place.topic.topic_name, place.queue_id)
        try:
            outcome: Outcome[Any] = self._scheduler.append(copy)
        except (StoreError, MessageRefusedError) as error:
            return self._scheduler.failed(error, place.new_topics)
        outcome.answer, outcome.new_topics = None, place.new_topics
        self._acks.acknowledge(ack, consumer)
        return outcome


def _dead_letter(message: Record, topic: str, name: str, queue_id: int) -> NewRecord:
    properties = {key: value for key, value in message.properties.items() if key not in _DROPPED}
    properties.setdefault(RETRY_TOPIC, topic)
    origin_id = properties.get(ORIGIN_MESSAGE_ID) or format_offset_id(message.store_host, message.log_offset)
    properties |= {
        ORIGIN_MESSAGE_ID: origin_id,
        DLQ_ORIGIN_TOPIC: topic,
        DLQ_ORIGIN_MESSAGE_ID: properties.get(UNIQ_KEY) or origin_id,
        WAIT: "false",
    }
    return NewRecord(
        name,
        queue_id,
        bytes(message.body),
        encode_properties(properties),
        properties,
        message.flag,
        message.sys_flag,
        message.born_at_ms,
        message.born_host,
        message.reconsume_times + 1,
    )
