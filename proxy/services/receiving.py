"""ReceiveMessage: messages for a time, or a wait for some (``ReceiveMessageActivity``; grpc.md §2.7).

    status  message …  delivery timestamp      each an answer of its own, always in this order

Rules

    1. All queues of the topic are read, whatever queue is named: simple consumers go round the queues, a wait at each.
    2. A client waits as long as it asks for, ``MOST_WAIT_MS`` at most, and hears that there is nothing before it gives
       up. One that does not say how long waits until half a request before its deadline. Who would give up before
       ``LEAST_WAIT_MS`` are over is told so, unless the deadline is the wait itself, less the way here, as with the
       client for Rust. (Upstream has everybody wait that long at least, and refuses a Rust client that asks for it.)
    3. Whether a group reads in order, and how many attempts it has, is what the broker knows of it.
    4. A message that has had all its attempts goes to the dead letters; one whose tag was not asked for, though the
       hash of that was, is acknowledged.
    5. Whoever has gone is handed nothing: the wait of a call that is over ends.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from ...broker.operations import BrokerOperations
from ...broker.pop.handing_out import ORDERED, Popped
from ...broker.settings.refusal import Refusal
from ...common.metadata import SubscriptionGroupConfig
from ...common.outcome import Outcome
from ...common.pop_texts import PopHandle, parse_order_counts
from ...common.properties import TAGS
from ...common.record import Record, iter_records
from ...common.subscriptions.subscription import ALL, TAG_TYPE, parse_tag_expression
from ...remoting.headers.pop import PopHeader
from ..messages import v2
from ..messages.delivery import encode_delivery, set_milliseconds
from ..messages.enums import Code, FilterType
from ..messages.names import group_fault, topic_fault
from ..messages.statuses import refused, status
from ..rpc.call import Call
from .handles import Handle, ack_of
from .keepers import FIRST_MS, ClientKeepers

LEAST_WAIT_MS: Final = 5_000
MOST_WAIT_MS: Final = 20_000
SPARE_MS: Final = 200
"""How long before a client gives up it hears that there is nothing."""
HALF_REQUEST_MS: Final = 1_500
WAY_MS: Final = 1_000
"""How much of its deadline a request may have used up on its way."""
LEAST_INVISIBLE_MS: Final = 10_000
MOST_INVISIBLE_MS: Final = 12 * 3_600_000
MOST_MESSAGES: Final = 32
_FROM_NEWEST: Final = 1
_SQL: Final = "SQL92"
_OLD_VERSION: Final = "5.0.3"


class _Wish(NamedTuple):
    """A request that is admitted."""

    header: PopHeader
    group: SubscriptionGroupConfig
    tags: frozenset[str]
    """The tags that are wanted; none says that all are."""


class _Found(NamedTuple):
    """A message that was handed out, and how often it was before."""

    record: Record
    handle: PopHandle
    attempts: int


class ReceiveService:
    """Hands messages out."""

    def __init__(self, operations: BrokerOperations, keepers: ClientKeepers) -> None:
        self._operations = operations
        self._keepers = keepers

    def __repr__(self) -> str:
        return f"<ReceiveService {self._keepers!r}>"

    def receive(self, request: v2.ReceiveMessageRequest, client_id: str, call: Call) -> None:
        """Answer a request, now or when there is something."""
        wish = self._read(request, call)
        if isinstance(wish, v2.Status):
            self._answer_with(call, wish)
            return
        keeper = self._keepers.of(client_id) if request.auto_renew else None
        outcome = self._operations.pop().pops.pop(wish.header, call.remote_address, keeper)
        if outcome.is_settled:
            self._answer(call, wish, outcome)
        else:
            outcome.on_settled = partial(self._answer, call, wish)
            call.on_over(outcome.drop)

    # --- what is asked for

    def _read(self, request: v2.ReceiveMessageRequest, call: Call) -> _Wish | v2.Status:
        topic, group_name = request.message_queue.topic, request.group.name
        fault = topic_fault(topic) or group_fault(request.group) or _filter_fault(request.filter_expression)
        if fault is not None:
            return fault
        wait_ms, invisible_ms = _wait_ms(request, call), _invisible_ms(request)
        if isinstance(wait_ms, v2.Status):
            return wait_ms
        if isinstance(invisible_ms, v2.Status):
            return invisible_ms
        if request.batch_size < 0:
            return status(Code.BAD_REQUEST, f"batch_size is {request.batch_size}")
        group = self._operations.groups.find(group_name) or SubscriptionGroupConfig(group_name=group_name)
        is_sql, expression = request.filter_expression.type == FilterType.SQL, request.filter_expression.expression
        header = PopHeader(
            consumer_group=group_name,
            topic=topic.name,
            queue_id=-1,
            max_messages=min(max(1, request.batch_size), MOST_MESSAGES),
            invisible_ms=invisible_ms,
            poll_ms=wait_ms,
            born_at_ms=self._operations.clock.now_ms(),
            init_mode=_FROM_NEWEST,
            expression_type=_SQL if is_sql else TAG_TYPE,
            expression=expression.strip() or ALL,
            is_ordered=group.consume_message_orderly,
            attempt_id=request.attempt_id or None,
        )
        return _Wish(header, group, frozenset() if is_sql else _tags_of(expression))

    # --- what is answered

    def _answer(self, call: Call, wish: _Wish, outcome: Outcome[Popped | Refusal]) -> None:
        popped = outcome.answer
        if outcome.failure is not None:
            self._answer_with(call, status(Code.INTERNAL_SERVER_ERROR, str(outcome.failure)))
        elif isinstance(popped, Refusal):
            self._answer_with(call, refused(popped))
        elif popped.is_polling_full:
            self._answer_with(call, status(Code.TOO_MANY_REQUESTS))
        else:
            wanted = [found for found in self._found(popped) if self._is_wanted(found, wish, call)]
            if not wanted:
                text = "no match message" if popped.records else "no new message"
                self._answer_with(call, status(Code.MESSAGE_NOT_FOUND, text))
                return
            self._answer_with(call, status(Code.OK), [self._delivery(found, wish.header.topic) for found in wanted])

    def _delivery(self, found: _Found, topic: str) -> bytes:
        handle = Handle(found.handle, found.record.log_offset).text()
        return encode_delivery(found.record, topic, handle, found.attempts + 1)

    def _found(self, popped: Popped) -> Iterator[_Found]:
        """Yield what was handed out."""
        name = self._operations.settings.config.broker_name
        counts = {name: count for text in popped.order_counts for name, count in parse_order_counts(text).items()}
        records = (record for run in popped.records for record in iter_records(run))
        for queue in popped.queues:
            for offset in queue.queue_offsets:
                record = next(records)
                attempts = record.reconsume_times
                if popped.revive_queue_id == ORDERED:
                    attempts = counts.get((queue.retry, f"qo{queue.queue_id}%{offset}"), 0)
                handle = PopHandle(
                    queue.start_offset,
                    popped.popped_at_ms,
                    popped.invisible_ms,
                    popped.revive_queue_id,
                    queue.retry,
                    name,
                    queue.queue_id,
                    offset,
                )
                yield _Found(record, handle, attempts)

    def _is_wanted(self, found: _Found, wish: _Wish, call: Call) -> bool:
        """Tell whether a message is for the client; be done with it if not."""
        is_other = bool(wish.tags) and found.record.properties.get(TAGS) not in wish.tags
        if not is_other and found.attempts <= wish.group.retry_max_times:
            return True
        pop, ack = self._operations.pop(), ack_of(found.handle.text(), wish.header.topic, wish.header.consumer_group)
        assert ack is not None, "a handle of ours can be read"
        if is_other:
            pop.acks.acknowledge(ack, call.remote_address)
        else:
            pop.giving_up.give_up(ack, call.remote_address)
        return False

    def _answer_with(self, call: Call, said: v2.Status, deliveries: Sequence[bytes] = ()) -> None:
        end = v2.ReceiveMessageResponse()
        set_milliseconds(end.delivery_timestamp, self._operations.clock.now_ms())
        first = v2.ReceiveMessageResponse(status=said)
        call.answer(first.SerializeToString(), *deliveries, end.SerializeToString())


def _filter_fault(wanted: v2.FilterExpression) -> v2.Status | None:
    """Return why nobody can filter like that, as far as it shows without compiling."""
    text = wanted.expression.strip()
    is_sql = wanted.type == FilterType.SQL
    if (is_sql and not text) or (not is_sql and text and not text.replace("|", "").strip()):
        return status(Code.ILLEGAL_FILTER_EXPRESSION, f"{wanted.expression!r} filters nothing")
    return None


def _tags_of(expression: str) -> frozenset[str]:
    text = expression.strip()
    return frozenset() if text in {"", ALL} else frozenset(parse_tag_expression("", text).tags)


def _wait_ms(request: v2.ReceiveMessageRequest, call: Call) -> int | v2.Status:
    """Return how long a client waits."""
    left_ms = call.remaining_ms()
    if request.HasField("long_polling_timeout"):
        asked_ms = max(0, request.long_polling_timeout.ToMilliseconds())
    else:
        asked_ms = MOST_WAIT_MS if left_ms is None else max(0, left_ms - HALF_REQUEST_MS)
    wait_ms = min(asked_ms, MOST_WAIT_MS)
    if left_ms is None or wait_ms <= left_ms - SPARE_MS:
        return wait_ms
    if left_ms + WAY_MS < min(asked_ms, LEAST_WAIT_MS):
        is_old = call.metadata.get("x-mq-client-version", "") < _OLD_VERSION
        code = Code.BAD_REQUEST if is_old else Code.ILLEGAL_POLLING_TIME
        return status(code, f"a wait of {wait_ms} ms does not end in the {left_ms} ms that the client waits")
    return max(0, left_ms - SPARE_MS)


def _invisible_ms(request: v2.ReceiveMessageRequest) -> int | v2.Status:
    """Return for how long messages are handed out."""
    if request.auto_renew:
        return FIRST_MS
    invisible_ms = request.invisible_duration.ToMilliseconds()
    if LEAST_INVISIBLE_MS <= invisible_ms <= MOST_INVISIBLE_MS:
        return invisible_ms
    text = f"invisible_duration is {invisible_ms} ms, not {LEAST_INVISIBLE_MS} to {MOST_INVISIBLE_MS}"
    return status(Code.ILLEGAL_INVISIBLE_TIME, text)
