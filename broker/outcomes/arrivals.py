"""Who is told which records have become readable, and when: after the turn that committed them.

Rules

    1. The commit only collects what has arrived. The loop hands it out afterwards, behind the answers to the producers.
    2. Whoever is told is a boundary of its own: what it raises is logged, the others are told all the same, and neither
       the producer nor the store notices.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from ...store.consumequeue.appended import Appended
from ...store.recovery.dispatcher import Arrivals

_log = logging.getLogger(__name__)


class ArrivalNotices:
    """Hands out what the store says has become readable; lives on the event loop."""

    def __init__(self, *told: Arrivals) -> None:
        self._told = told
        self._loop = asyncio.get_running_loop()
        self._collected: list[Sequence[Appended]] = []

    def __repr__(self) -> str:
        return f"<ArrivalNotices {sum(map(len, self._collected))} to be told to {len(self._told)}>"

    def collect(self, records: Sequence[Appended]) -> None:
        """Take records that one commit has made readable."""
        if not self._collected:
            self._loop.call_soon(self._hand_out)
        self._collected.append(records)

    def _hand_out(self) -> None:
        collected, self._collected = self._collected, []
        for records in collected:
            for tell in self._told:
                try:
                    tell(records)
                except Exception:  # the fault boundary of a notice
                    _log.exception(
                        "notifying long polls and deliveries of %d messages from log offset %d on failed; "
                        "the messages are stored, long polls find them when they time out",
                        len(records),
                        records[0].log_offset,
                    )


def by_topic(takers: Mapping[str, Callable[[Appended], object]]) -> Arrivals:
    """Return a call that hands records in the queues of a topic to whoever takes them; others cost nothing."""

    def hand_out(records: Sequence[Appended]) -> None:
        for record in records:
            if record.topic in takers and record.queue is not None:
                takers[record.topic](record)

    return hand_out
