"""What becomes of messages that were to be read and are not there any more (option ``failOnDataLoss``)."""

import logging
from dataclasses import dataclass

from ...common.errors import DataLossError
from ...common.message import MessageQueue

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Losses:
    """Raises what is lost, or warns of it."""

    fails: bool = True

    def say(self, text: str) -> None:
        """Tell of a loss.

        Raises:
            DataLossError: Losses fail the reading.
        """
        if self.fails:
            raise DataLossError(f"{text} (failOnDataLoss false goes on with what there is)")
        _log.warning("%s", text)

    def below(self, queue: MessageQueue, queue_offset: int, first: int) -> None:
        """Tell that messages are gone; raises what ``say`` does."""
        self.say(f"{_name(queue)} begins at offset {first}: those from {queue_offset} on were deleted")

    def beyond(self, queue: MessageQueue, queue_offset: int, end: int) -> None:
        """Tell that a queue is shorter than it should be; raises what ``say`` does."""
        self.say(f"{_name(queue)} ends at offset {end}, before {queue_offset}: it was made anew, or never held more")


def _name(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
