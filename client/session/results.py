"""What calls of the client API return, and what a listener returns to it.

    send status             response code
    SEND_OK                 0
    FLUSH_DISK_TIMEOUT      10    stored, but not on disk in time
    SLAVE_NOT_AVAILABLE     11    stored, but there was no replica to copy it to
    FLUSH_SLAVE_TIMEOUT     12    stored, but not copied in time

Every other code is a ``ResponseError``.
"""

import enum

import msgspec

from ...common.codes import ResponseCode
from ...common.message import MessageQueue


class SendStatus(enum.Enum):
    """How far a stored message had come when the broker answered (Java's class of this name)."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_OF_CODE: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}


class SendResult(msgspec.Struct, frozen=True):
    """Where the broker stored a message, or the messages of one batch.

    ``message_id`` is the unique key that the producer made, ``offset_message_id`` names the place in the broker's
    log; of a batch both are lists joined by commas, and ``queue_offset`` is that of the first message.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = None
    is_traced: bool = True
    recall_handle: str | None = None


class ConsumeResult(enum.Enum):
    """What a listener says about the messages it was given.

    Java's ``ConsumeConcurrentlyStatus`` and ``ConsumeOrderlyStatus``; the last two are for orderly consumers that do
    not commit by themselves.
    """

    SUCCESS = "SUCCESS"
    RETRY = "RETRY"
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """A failure that says more: which messages are to come again, and when (Java's listener contexts).

    The messages before ``from_index`` are finished. ``delay_level`` counts for concurrent consumers: 0 leaves the delay
    to the broker, a level above 0 is that delay, below 0 the message goes to the dead letters at once. ``pause_ms``
    counts for orderly ones: how long the queue rests, from 10 to 30 000 ms.
    """

    from_index: int = 0
    delay_level: int = 0
    pause_ms: int | None = None

    def __post_init__(self) -> None:
        """Refuse an index that names no message."""
        if self.from_index < 0:
            raise ValueError(f"from_index is {self.from_index}, it counts from 0")


ConsumeOutcome = ConsumeResult | Retry
