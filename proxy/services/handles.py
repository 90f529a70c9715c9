"""Receipt handles: those of POP, and behind them the place of the message in the log (grpc.md §4.4).

The ninth word is for who reads handles; nothing here believes it.
"""

from typing import NamedTuple

from ...common.errors import DecodeError
from ...common.pop_texts import PopHandle, parse_handle, read_topic
from ...remoting.headers.pop import AckHeader


class Handle(NamedTuple):
    """By what a client names a message that it was handed."""

    pop: PopHandle
    log_offset: int | None = None

    def text(self) -> str:
        """Return it as clients get it."""
        return self.pop.text() if self.log_offset is None else f"{self.pop.text()} {self.log_offset}"


def ack_of(text: str, topic: str, group: str) -> AckHeader | None:
    """Return what says to the broker which message a handle names; None if it is none."""
    try:
        pop = parse_handle(text)
    except DecodeError:
        return None
    return AckHeader(
        consumer_group=group,
        topic=read_topic(topic, group, pop.retry),
        queue_id=pop.queue_id,
        handle=text,
        queue_offset=pop.queue_offset,
    )


def read_handle(text: str) -> Handle | None:
    """Return what a handle says; None if it is none."""
    try:
        pop = parse_handle(text)
    except DecodeError:
        return None
    ninth = text.split(" ")[8:9]
    return Handle(pop, int(ninth[0]) if ninth and ninth[0].isdecimal() else None)
