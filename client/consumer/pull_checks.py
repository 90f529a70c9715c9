"""What a pull consumer refuses: values that can only be mistakes, each with one sentence that says so."""

from collections.abc import Iterable

from ...common.message import MessageQueue


def checked_queues(queues: Iterable[object]) -> frozenset[MessageQueue]:
    """Return queues without repetition.

    Raises:
        TypeError: one is something else, such as the name of a topic.
    """
    wanted: set[MessageQueue] = set()
    for queue in queues:
        if not isinstance(queue, MessageQueue):
            raise TypeError(f"{queue!r} is {type(queue).__name__}, it must be a MessageQueue")
        wanted.add(queue)
    return frozenset(wanted)


def check_offset(queue_offset: object) -> None:
    """Refuse what no offset can be.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is negative.
    """
    if not isinstance(queue_offset, int):
        raise TypeError(f"the offset is {type(queue_offset).__name__}, it must be int")
    if queue_offset < 0:
        raise ValueError(f"the offset is {queue_offset}, must not be negative")


def check_poll(timeout_ms: int | None, max_messages: int | None) -> None:
    """Refuse numbers with which a poll could give nothing, ever.

    Raises:
        ValueError: one is out of its range.
    """
    if timeout_ms is not None and timeout_ms < 0:
        raise ValueError(f"timeout_ms is {timeout_ms}, must not be negative")
    if max_messages is not None and max_messages < 1:
        raise ValueError(f"max_messages is {max_messages}, must be at least 1")
