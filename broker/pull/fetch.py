"""Fetching messages of one queue (``PullMessageProcessor``; spec behaviour.md B.4).

A fetch that finds nothing new and may wait is held (``LongPolling``). When it is woken it is run again from the start
and answered whatever comes: it commits no offset then and never waits twice.
"""

from collections.abc import Callable
from sys import getsizeof
from typing import final

import msgspec

from ...common.outcome import Outcome
from ...store.consumequeue.queue_reader import AcceptsCode, AcceptsRecord, ReadLimits, ReadResult, ReadStatus
from ..group.filters import PullFilter
from ..group.offsets import OffsetTable
from ..outcomes.long_polling import HeldFetch, LongPolling
from ..settings.refusal import Refusal
from .validation import FetchRequest, FetchValidator

MOST_BYTES = 128 << 20
_SHORTEST_WAIT_MS = 1
_NOTHING_NEW = (ReadStatus.OFFSET_FOUND_NULL, ReadStatus.OFFSET_OVERFLOW_ONE)

Read = Callable[[str, int, int, ReadLimits, AcceptsCode | None, AcceptsRecord | None], ReadResult]
"""``MessageStore.read``, counted."""


@final
class Fetched(msgspec.Struct, frozen=True):
    """What was found from an offset on, and the id of the broker to fetch from next."""

    result: ReadResult
    next_broker_id: int
    queue_offset: int

    @property
    def has_nothing_new(self) -> bool:
        """Whether it is worth waiting there; in a queue without messages it depends on what was asked for (B.4.4)."""
        status = self.result.status
        return status in _NOTHING_NEW or (status is ReadStatus.NO_MESSAGE_IN_QUEUE and self.queue_offset == 0)


class FetchOperation:
    """Hands out what consumers fetch."""

    def __init__(
        self,
        read: Read,
        validator: FetchValidator,
        offsets: OffsetTable,
        long_polling: LongPolling,
        *,
        short_polling_ms: int | None = None,
    ) -> None:
        self._read_store = read
        self._validator = validator
        self._offsets = offsets
        self._long_polling = long_polling
        self._short_polling_ms = short_polling_ms

    def fetch(self, fetch: FetchRequest, consumer: tuple[str, int]) -> Outcome[Fetched | Refusal]:
        """Return what there is, or wait for it."""
        wanted = self._validator.validate(fetch, consumer)
        if type(wanted) is Refusal:
            return Outcome(wanted, is_settled=True)
        if fetch.commits_offset and fetch.commit_offset >= 0:
            self._offsets.commit(fetch.consumer_group, fetch.topic, fetch.queue_id, fetch.commit_offset)
        fetched = self._read(fetch, wanted)
        if fetched.result.status is not ReadStatus.FOUND and fetch.may_wait and fetched.has_nothing_new:
            return self._hold(fetch, wanted, consumer)
        return Outcome(fetched, is_settled=True)

    def _hold(self, fetch: FetchRequest, wanted: PullFilter, consumer: tuple[str, int]) -> Outcome[Fetched | Refusal]:
        queues = {(fetch.topic, fetch.queue_id): fetch.queue_offset}
        held = HeldFetch(queues, wanted.accepts_arrival, lambda: self._run_again(fetch, consumer), consumer)
        delay_ms = fetch.suspend_ms if self._short_polling_ms is None else self._short_polling_ms
        outcome = self._long_polling.hold(held, max(delay_ms, _SHORTEST_WAIT_MS))
        outcome.extra_bytes = wanted.kept_bytes + _kept_bytes(fetch)
        return outcome

    def _run_again(self, fetch: FetchRequest, consumer: tuple[str, int]) -> Fetched | Refusal:
        wanted = self._validator.validate(fetch, consumer)
        return wanted if type(wanted) is Refusal else self._read(fetch, wanted)

    def _read(self, fetch: FetchRequest, wanted: PullFilter) -> Fetched:
        most_bytes = MOST_BYTES if fetch.max_bytes is None else fetch.max_bytes
        limits = ReadLimits(fetch.max_messages if fetch.max_messages > 0 else 1, most_bytes)
        accepts, accepts_record = wanted[:2]
        result = self._read_store(fetch.topic, fetch.queue_id, fetch.queue_offset, limits, accepts, accepts_record)
        broker_id = self._validator.suggest_broker(fetch.consumer_group, is_far_behind=result.is_far_behind)
        return Fetched(result, broker_id, fetch.queue_offset)


def _kept_bytes(fetch: FetchRequest) -> int:
    texts = (fetch.consumer_group, fetch.topic, fetch.subscription, fetch.expression_type)
    return sum(map(getsizeof, texts))
