"""How far consumer groups have come, as the broker and their members say.

Rules

    1. A queue is consumed when its group has asked for what comes behind the last message that its filter takes, and is
       done with all that it was given. A held pull is not woken by others, and stays where it is.
    2. Done with is what was committed. Clients commit every five seconds only, so members are asked as well (request
       307), which clients of each language answer; who does not is known by what it has committed. What the tags or the
       SQL of a subscription leave out is in nobody's hands.
    3. A message that waits for its next delivery is in nobody's hands: it waits for the clock.
    4. Positions of pulls are read from requests as they come: ``around`` stands before the broker's handlers.
    5. By POP nobody asks for offsets: the broker's leases say what is handed out, and the rest of a queue waits.
    6. What a wait waits for is looked at after each read of a connection and after each arrival. While members have to
       be asked, they are asked every ``ASK_MS``. Waits are limited by the machine's clock, not by the broker's.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from ...broker.group.filters import TAKES_ALL, PullFilter, is_unfiltered, sql_filter, tag_filter
from ...broker.group.members import ConsumerGroup
from ...broker.parts import AdminParts
from ...common.codes import ResponseCode
from ...common.errors import DecodeError, HeaderError, RemotingError, nearest
from ...common.subscriptions.subscription import SQL92_TYPE, Subscription
from ...remoting.bodies.body import decode_answer
from ...remoting.bodies.client import ConsumeType, RunningInfo
from ...remoting.codec.command import Command
from ...remoting.codec.request_codes import RequestCode
from ...remoting.headers.client import AskedMemberHeader
from ...remoting.transport.connection import Connection, Handler, Reply, RequestHandlers
from ...remoting.transport.event_loop import LoopClock, wait_at_most
from ...store.consumequeue.consume_queue import Entry
from ...store.message_store import MessageStore
from .unknown_names import UnknownNameError

if TYPE_CHECKING:
    from ...broker.pop.leases import InHand

ASK_MS: Final = 20
_ANSWER_MS: Final = 1_000
_PULLS: Final = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


class QueuePlace(NamedTuple):
    """A queue that a group reads."""

    group: str
    topic: str
    queue_id: int


class QueueConsumption(NamedTuple):
    """Where a group is in a queue, by queue offsets; ``None`` is what nobody has told.

    ``asked`` is what was asked for last, ``first`` what was asked for first, ``handed_out`` up to where messages were
    given, ``done`` up to where the group is done with them, ``begin`` and ``end`` are those of the queue.
    """

    place: QueuePlace
    begin: int
    end: int
    first: int | None
    asked: int | None
    handed_out: int
    done: int | None
    popped: "InHand | None" = None

    @property
    def left(self) -> list[range]:
        """The offsets of messages that are not done with; who has committed nothing began where it asked first."""
        if self.popped is not None:
            return [*self.taken, *self.unasked]
        at = self.done if self.done is not None else self.first
        return [range(min(max(at or 0, self.begin), self.end), self.end)]

    @property
    def taken(self) -> list[range]:
        """The offsets of messages that were given to members and are not done with."""
        if self.popped is not None:
            return [range(offset, offset + 1) for offset in self.popped.queue_offsets]
        start = self.left[0].start
        return [range(start, max(start, min(self.handed_out, self.end)))]

    @property
    def unasked(self) -> list[range]:
        """The offsets of messages that no member has asked for."""
        at = self.asked if self.popped is None else self.popped.next_offset
        return [range(self.begin if at is None else min(max(at, self.begin), self.end), self.end)]


class ConsumptionTracker:
    """Follows the groups of one broker, from its start on; ``parts`` returns what the broker consists of."""

    def __init__(self, parts: Callable[[], AdminParts]) -> None:
        self._parts = parts
        self._clock = LoopClock()
        self._first: dict[QueuePlace, int] = {}
        self._asked: dict[QueuePlace, int] = {}
        self._told: dict[QueuePlace, int] = {}
        self.checks_answered = 0
        """How often producers have answered what they were asked about a transaction."""
        self.changed = asyncio.Event()
        """Set when a client has asked something and when a message has arrived; whoever waits for it clears it."""

    def __repr__(self) -> str:
        return f"<ConsumptionTracker of {len(self._asked)} queues>"

    def around(self, handlers: RequestHandlers) -> RequestHandlers:
        """Return handlers that do the same, and are listened to."""
        by_code = dict(handlers.by_code)
        for code in _PULLS:
            by_code[code] = self._noting_pulls(by_code[code])
        end = RequestCode.END_TRANSACTION
        by_code[end] = self._noting_ends(by_code[end])
        after_batch = handlers.after_batch

        def after() -> None:
            if after_batch is not None:
                after_batch()
            self.changed.set()

        return replace(handlers, by_code=by_code, after_batch=after)

    def _noting_pulls(self, handler: Handler) -> Handler:
        def note(command: Command, connection: Connection) -> Reply:
            with suppress(KeyError, ValueError, HeaderError):  # the handler refuses what is no pull
                fields = command.ext
                place = QueuePlace(fields["consumerGroup"], fields["topic"], int(fields["queueId"]))
                self._asked[place] = int(fields["queueOffset"])
                self._first.setdefault(place, self._asked[place])
            return handler(command, connection)

        return note

    def _noting_ends(self, handler: Handler) -> Handler:
        def note(command: Command, connection: Connection) -> Reply:
            with suppress(HeaderError):
                self.checks_answered += command.ext.get("fromTransactionCheck") == "true"
            return handler(command, connection)

        return note

    def begin(self) -> None:
        """Take note that the broker has started: of transactions nobody has been asked yet."""
        self.checks_answered = 0
        self.changed.set()

    def forget(self) -> None:
        """Forget how far groups were: the store is another one."""
        for table in (self._first, self._asked, self._told):
            table.clear()

    def groups(self) -> set[str]:
        """Return the groups that have members, offsets or settings."""
        parts = self._parts()
        offsets = parts.state.offsets.content().offset_table
        known = {name.partition("@")[2] for name in offsets}
        return known | {*parts.everybody.consumer_group_names(), *parts.state.groups.names()}

    def check_group(self, group: str) -> None:
        """Refuse a group that nobody knows.

        Raises:
            UnknownNameError: there is none.
        """
        known = self.groups()
        if group not in known:
            raise UnknownNameError(f"there is no consumer group {group!r}{nearest(group, known)}")

    def places(self, group: str) -> list[QueueConsumption]:
        """Return where a group is in each queue that it subscribes to or has read."""
        parts = self._parts()
        members = parts.everybody.consumer_group(group)
        topics = {*parts.state.offsets.topics_of(group), *(members.subscriptions if members is not None else ())}
        topics |= {place.topic for place in self._asked if place.group == group}
        return [place for topic in sorted(topics) for place in self._places_in(group, topic)]

    def _places_in(self, group: str, topic: str) -> Iterator[QueueConsumption]:
        parts = self._parts()
        config = parts.state.topics.get(topic)
        committed, handed_out = parts.state.offsets.progress(group, topic)
        for queue_id in range(config.read_queue_nums if config is not None else 0):
            place = QueuePlace(group, topic, queue_id)
            begin = max(parts.state.store.min_offset(topic, queue_id), 0)
            end = max(parts.state.store.max_offset(topic, queue_id), begin)
            done = max(committed.get(queue_id, -1), self._told.get(place, -1))
            yield QueueConsumption(
                place,
                begin,
                end,
                self._first.get(place),
                self._asked.get(place),
                handed_out.get(queue_id, 0),
                done if done >= 0 else None,
                parts.pop.in_hand(group, topic, queue_id),
            )

    def missing(self, group: str) -> list[str]:
        """Return what is missing until a group has consumed everything, in words."""
        if self._parts().everybody.consumer_group(group) is None:
            left = sum(len(offsets) for queue in self.places(group) for offsets in queue.left)
            return [f"nobody consumes: {left} messages wait"] if left else []
        return [missing for place in self.places(group) if (missing := self._missing_in(place))]

    def _missing_in(self, queue: QueueConsumption) -> str:
        where = f"{queue.place.topic} queue {queue.place.queue_id}"
        if unasked := self.wanted(queue, queue.unasked):
            return f"{where}: {len(unasked)} of {queue.end - queue.begin} messages have not been fetched"
        if in_flight := self.wanted(queue, queue.taken):
            return f"{where}: {len(in_flight)} messages have been handed out and are not acknowledged"
        return ""

    def wanted(self, queue: QueueConsumption, ranges: list[range]) -> list[int]:
        """Return those offsets of a queue at which messages are that the group's subscription takes."""
        group, topic, queue_id = queue.place
        accepts = _filter_of(self.subscription(group, topic))
        if accepts is TAKES_ALL:
            return [offset for offsets in ranges for offset in offsets]
        store, found = self._parts().state.store, list[int]()
        for offsets in ranges:
            at = offsets.start
            while at < offsets.stop and (some := store.entries(topic, queue_id, at, offsets.stop - at)):
                found += [at + number for number, entry in enumerate(some) if _is_wanted(store, entry, accepts)]
                at += len(some)
        return found

    def subscription(self, group: str, topic: str) -> Subscription | None:
        """Return what the members of a group want of a topic, if there are any."""
        members = self._parts().everybody.consumer_group(group)
        return members.subscriptions.get(topic) if members is not None else None

    async def wait_consumed(self, group: str, limit_ms: int) -> None:
        """Return when a group that has members has consumed everything.

        Raises:
            TimeoutError: it has not after so long; the text says what is missing.
        """
        try:
            async with self._clock.timeout(limit_ms):
                while self._parts().everybody.consumer_group(group) is None:
                    self.changed.clear()
                    await wait_at_most(self.changed, ASK_MS, self._clock)  # who comes by gRPC is not listened to
                await self._wait_done(group)
        except TimeoutError:
            missing = "; ".join(self.missing(group)) or "it has no members"
            raise TimeoutError(f"group {group!r} has not consumed everything in {limit_ms} ms: {missing}") from None

    async def wait_checked(self, asked: Callable[[], int]) -> None:
        """Return when producers have answered as often as ``asked`` says that they were asked."""
        while self.checks_answered < asked():
            await self.wait_change()

    async def wait_idle(self, limit_ms: int) -> None:
        """Return when each group that has members has consumed everything.

        Raises:
            TimeoutError: one has not after so long; the text says what is missing.
        """
        try:
            async with self._clock.timeout(limit_ms):
                while missing := self._missing_by_group():
                    await self._wait_done(next(iter(missing)))
        except TimeoutError:
            texts = [f"group {group!r}: {'; '.join(texts)}" for group, texts in self._missing_by_group().items()]
            raise TimeoutError(f"not idle after {limit_ms} ms: {', '.join(texts)}") from None

    def _missing_by_group(self) -> dict[str, list[str]]:
        names = self._parts().everybody.consumer_group_names()
        return {name: missing for name in names if (missing := self.missing(name))}

    async def _wait_done(self, group: str) -> None:
        while self.missing(group):
            self.changed.clear()
            if any(self.wanted(queue, queue.taken) for queue in self.places(group)):
                await self.ask_members(group)
                if not self.missing(group):
                    return
            await wait_at_most(self.changed, ASK_MS, self._clock)

    async def wait_change(self) -> None:
        """Return when a client has asked something, or a message has arrived."""
        self.changed.clear()
        await self.changed.wait()

    async def ask_members(self, group: str) -> None:
        """Have the members of a group say up to where they are done with their queues."""
        members = self._parts().members.consumer_group(group)
        links = _links(members) if members is not None and members.consume_type != ConsumeType.CONSUME_POP else []
        answers = [await self._ask(group, connection, client_id) for connection, client_id in links]
        told = [each for answer in answers if answer is not None for each in answer.items()]
        if told or not links:
            for place in [place for place in self._told if place.group == group]:
                del self._told[place]
        for place, offset in told:
            self._told[place] = max(offset, self._told.get(place, -1))

    async def _ask(self, group: str, connection: Connection, client_id: str) -> dict[QueuePlace, int] | None:
        header = AskedMemberHeader(consumer_group=group, client_id=client_id)
        request = Command.request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
        try:
            async with self._clock.timeout(_ANSWER_MS):
                answer = await connection.request(request, _ANSWER_MS)
            info = decode_answer(RunningInfo, answer.body) if answer.code == ResponseCode.SUCCESS else None
        except (RemotingError, DecodeError, TimeoutError):  # it has left, or cannot say
            return None
        if info is None:
            return None
        return {
            QueuePlace(group, queue.topic, queue.queue_id): owned.commit_offset
            for queue, owned in info.mq_table.items()
            if not owned.is_dropped
        }


def _links(members: ConsumerGroup[Connection]) -> list[tuple[Connection, str]]:
    return [(connection, member.client.client_id) for connection, member in members.members.items()]


def _filter_of(subscription: Subscription | None) -> PullFilter:
    if subscription is None or is_unfiltered(subscription):
        return TAKES_ALL
    is_sql = subscription.expression_type == SQL92_TYPE
    return sql_filter(subscription.expression) if is_sql else tag_filter(subscription)


def _is_wanted(store: MessageStore, entry: Entry, accepts: PullFilter) -> bool:
    log_offset, size, tags_code = entry
    if accepts.accepts_code is not None:
        return accepts.accepts_code(tags_code)
    record = store.record_at(log_offset, size)
    return record is not None and (accepts.accepts_record is None or accepts.accepts_record(record, 0, len(record)))
