"""The field table of a send request, the short way: what never changes is worked out once for each producer.

The same table as ``encode_fields(LetterSendHeader(...))``; a test compares the two. ``spec/remoting.md`` §4.3.
"""

from typing import Protocol

from ...common.message import MessageQueue


class SentMessage(Protocol):
    """What the table says about a message, or a batch."""

    @property
    def sys_flag(self) -> int:
        """Bits such as that of a compressed body."""
        ...

    @property
    def flag(self) -> int:
        """The application's own number."""
        ...

    @property
    def property_text(self) -> str:
        """The encoded properties."""
        ...

    @property
    def is_batch(self) -> bool:
        """Whether the body holds several messages."""
        ...


class SendFields:
    """Makes the tables of one producer."""

    __slots__ = ("_constant",)

    def __init__(
        self, producer_group: str, default_topic: str, default_topic_queues: int, *, unit_mode: bool = False
    ) -> None:
        self._constant = {
            "a": producer_group,
            "c": default_topic,
            "d": str(default_topic_queues),
            "j": "0",
            "k": "true" if unit_mode else "false",
        }

    def encode(self, message: SentMessage, queue: MessageQueue, born_at_ms: int) -> dict[str, str]:
        """Return the table of a send to a queue."""
        fields = self._constant.copy()
        fields["b"] = queue.topic
        fields["e"] = str(queue.queue_id)
        fields["f"] = str(message.sys_flag)
        fields["g"] = str(born_at_ms)
        fields["h"] = str(message.flag)
        fields["i"] = message.property_text
        fields["m"] = "true" if message.is_batch else "false"
        fields["n"] = queue.broker_name
        return fields
