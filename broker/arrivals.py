"""Who is told which records have become readable."""

from collections.abc import Callable, Mapping, Sequence

from ..store.dispatched import Appended
from ..store.dispatcher import Arrivals


def in_turn(*told: Arrivals) -> Arrivals:
    """Return a call that tells each of them."""

    def tell(records: Sequence[Appended]) -> None:
        for one in told:
            one(records)

    return tell


def by_topic(takers: Mapping[str, Callable[[Appended], object]]) -> Arrivals:
    """Return a call that hands records in the queues of a topic to whoever takes them; others cost nothing."""

    def hand_out(records: Sequence[Appended]) -> None:
        for record in records:
            if record.topic in takers and record.queue is not None:
                takers[record.topic](record)

    return hand_out
