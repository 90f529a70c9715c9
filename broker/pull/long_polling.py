"""Fetches that wait for a message (``PullRequestHoldService``; spec behaviour.md B.4.7), and who is told of arrivals.

Rules
    1. A fetch stands under each queue that it wants; an arrival looks at the fetches of its queue and at no others.
    2. An arrival that its filter may accept wakes it at once; so does one that the filter fails on.
    3. An arrival that it does not accept wakes it within 5 s, so that its offset moves on over what was skipped.
    4. Its time limit wakes it too. Whoever is woken is run again and answered whatever comes, also when that fails; it
       never waits twice.
    5. A fetch is woken once or dropped once, never both.
    6. A commit only collects what has arrived (``ArrivalNotices``). The loop hands it out afterwards, behind the
       answers to the producers.
    7. Whoever is told is a boundary of its own: what it raises is logged, the others are told all the same, and
       neither the producer nor the store notices.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import field

from ...common.clock import Clock, TimerHandle
from ...common.ids import Address, format_address
from ...common.outcome import Outcome
from ...store.consumequeue.appended import Appended
from ...store.recovery.dispatcher import Arrivals

RECHECK_MS = 5000
_log = logging.getLogger(__name__)

Accepts = Callable[[Appended], bool]


class HeldFetch(msgspec.Struct, eq=False):
    """One fetch that waits.

    ``wanted`` maps its queues to the offsets that it waits for, ``accepts`` tells whether a message that arrives may be
    wanted (None takes all), ``again`` runs it once more and returns its answer.
    """

    wanted: Mapping[tuple[str, int], int]
    accepts: Accepts | None
    again: Callable[[], Any]
    peer: Address = ("", 0)
    outcome: Outcome[Any] = field(default_factory=Outcome[Any])
    until_ms: int = 0
    timer: TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<HeldFetch of {', '.join(f'{key[0]}@{key[1]} from {offset}' for key, offset in self.wanted.items())}>"


class LongPolling:
    """All fetches that wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[tuple[str, int], dict[HeldFetch, None]] = {}

    def __repr__(self) -> str:
        return f"<LongPolling {len(self)} at {len(self._queues)} queues>"

    def __len__(self) -> int:
        return len(self._held())

    def hold(self, fetch: HeldFetch, delay_ms: int) -> Outcome[Any]:
        """Keep a fetch for at most so long; return what will come of it."""
        for key in fetch.wanted:
            self._queues.setdefault(key, {})[fetch] = None
        fetch.until_ms = self._clock.monotonic_ms() + delay_ms
        fetch.timer = self._clock.call_at(fetch.until_ms, self._wake, fetch)
        fetch.outcome.on_drop = partial(self._take, fetch)
        return fetch.outcome

    def arrived(self, records: Sequence[Appended]) -> None:
        """Wake who waits for a message that has become readable."""
        queues = self._queues
        if not queues:
            return
        for record in records:
            key = record.topic, record.queue_id
            if record.queue is None or key not in queues:
                continue
            for fetch in list(queues[key]):
                if record.queue_offset < fetch.wanted[key]:
                    continue
                if fetch.accepts is None or _may_want(fetch, fetch.accepts, record):
                    self._wake(fetch)
                else:
                    self._recheck_soon(fetch)

    def wake_all(self) -> None:
        """Wake everybody: the broker stops."""
        for fetch in self._held():
            self._wake(fetch)

    def _held(self) -> dict[HeldFetch, None]:
        return {fetch: None for fetches in self._queues.values() for fetch in fetches}

    def _recheck_soon(self, fetch: HeldFetch) -> None:
        at_ms = self._clock.monotonic_ms() + RECHECK_MS
        if fetch.timer is not None and at_ms < fetch.until_ms:
            fetch.timer.cancel()
            fetch.until_ms = at_ms
            fetch.timer = self._clock.call_at(at_ms, self._wake, fetch)

    def _wake(self, fetch: HeldFetch) -> None:
        if self._take(fetch):
            try:
                answer = fetch.again()
            except Exception as error:  # the fault boundary of a held request
                fetch.outcome.fail(error)
            else:
                fetch.outcome.answer_with(answer)

    def _take(self, fetch: HeldFetch) -> bool:
        """Let a fetch wait no longer; tell whether it did."""
        if fetch.timer is None:
            return False
        fetch.timer.cancel()
        fetch.timer = None
        for key in fetch.wanted:
            fetches = self._queues[key]
            del fetches[fetch]
            if not fetches:
                del self._queues[key]
        return True


def _may_want(fetch: HeldFetch, accepts: Accepts, record: Appended) -> bool:
    """Tell whether a fetch may want a message; one whose filter fails reads, and fails by itself."""
    try:
        return accepts(record)
    except Exception:  # the fault boundary of a held request
        _log.exception(
            "filtering for the long poll from %s failed at topic %s, queueId %d, offset %d: running the pull again now",
            format_address(*fetch.peer),
            record.topic,
            record.queue_id,
            record.queue_offset,
        )
        return True


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
