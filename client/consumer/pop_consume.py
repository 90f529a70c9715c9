"""Listeners at work by POP (Java's ``ConsumeMessagePopConcurrentlyService``): each message is ours for a time.

    a listener ends     its messages are acknowledged, several in one request
    it fails            each message that it did not finish comes again after a delay, by the level or by its attempts;
                        after ``max_retries``, or with a level below 0, it goes to the dead letters (Java's consumer
                        acknowledges it)
    it takes longer     than ``invisible_ms``: the messages come again, what the listener says of them does not matter
    a batch is late     whose turn comes when its lease is over: it does not begin

One loop for each topic and broker asks for messages, while fewer than ``max_in_hand`` of them are unfinished. What is
not finished when the consumer closes is given back.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from ...common.clock import Clock
from ...common.errors import RocketletError
from ...common.message import MessageQueue, ReceivedMessage, describe_messages
from ...remoting.transport.event_loop import TaskScope, repeat, wait_at_most
from ..group.consumer_hooks import ConsumerHooks
from ..pop.pop_places import PopPlaces
from ..pop.pop_requests import ALL_QUEUES, PopPlan, PopRequests, handle_of
from .listeners import BatchSource, ConcurrentConsumer, ConsumeEnvironment

POLL_MS: Final = 15_000
PAUSE_MS: Final = 1_000
GIVE_BACK_MS: Final = 1_000
"""After how long others get what was not finished: the broker may still hold a request of ours until we have left."""
DELAYS_MS: Final = tuple(
    seconds * 1_000 for seconds in (10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""The delays of levels 1 to 16, and of attempts 1 to 16."""
_log = logging.getLogger(__name__)

Done = Callable[[Sequence[ReceivedMessage]], object]


class LeasedMessages:
    """What one answer brought; ``done`` learns what was finished in time."""

    def __init__(self, messages: Sequence[ReceivedMessage], clock: Clock, done: Done) -> None:
        self.unfinished = {id(message): message for message in messages}
        self._ends_at_ms = min(handle_of(message).ends_at_ms for message in messages)
        self._clock = clock
        self._done = done

    def __repr__(self) -> str:
        return f"<LeasedMessages {len(self.unfinished)} unfinished>"

    @property
    def is_dropped(self) -> bool:
        """Whether its messages come again, whatever is done with them here."""
        return self._clock.now_ms() >= self._ends_at_ms

    def holds(self, message: ReceivedMessage) -> bool:
        """Tell whether a message is unfinished."""
        return id(message) in self.unfinished

    def finish(self, messages: Sequence[ReceivedMessage]) -> None:
        """Be done with messages."""
        finished = [message for message in messages if self.release(message)]
        if self.is_dropped and finished:
            _log.warning("these took longer than invisible_ms, and come again: %s", describe_messages(finished))
        elif finished:
            self._done(finished)

    def release(self, message: ReceivedMessage) -> bool:
        """Let go of a message; tell whether it was unfinished."""
        return self.unfinished.pop(id(message), None) is not None


class PopSource(NamedTuple):
    """Whom to ask, and how."""

    places: PopPlaces
    requests: PopRequests


class PopConsumer(ConcurrentConsumer):
    """Runs what brokers hand out, so many batches at a time."""

    def __init__(
        self,
        environment: ConsumeEnvironment,
        source: PopSource,
        hooks: ConsumerHooks | None,
        is_suspended: Callable[[], bool],
    ) -> None:
        super().__init__(environment)
        settings = environment.settings
        self._plan = PopPlan(settings.pop_messages, settings.invisible_ms, POLL_MS, settings.consume_from)
        self._places, self._requests = source
        self._hooks = hooks
        self._is_suspended = is_suspended
        self._leases: dict[MessageQueue, list[LeasedMessages]] = {}
        self._room = asyncio.Event()
        self._finished: list[ReceivedMessage] = []
        self._tasks: TaskScope | None = None

    def __repr__(self) -> str:
        return f"<PopConsumer asks for {len(self._leases)} topics of brokers>"

    def start(self, scope: TaskScope) -> None:
        """Start the workers, and look for topics and brokers to ask."""
        super().start(scope)
        self._tasks = scope
        scope.start(repeat(self._look_around, self._environment.clock), name="topics of brokers")

    async def drain(self) -> None:
        """Begin nothing more; when nothing runs, acknowledge what is finished and give back what is not."""
        await super().drain()
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            await self._acknowledge()
            held = [leased for leases in self._leases.values() for leased in leases]
            for message in [each for leased in held for each in leased.unfinished.values()]:
                await self._requests.give_back(message, GIVE_BACK_MS)

    async def _look_around(self) -> int:
        for topic, broker_name in await self._places.find():
            place = MessageQueue(topic, broker_name, ALL_QUEUES)
            if place not in self._leases and self._tasks is not None:
                self._leases[place] = []
                asking = repeat(lambda place=place: self._ask(place), self._environment.clock)
                self._tasks.start(asking, name=f"pop {topic} at {broker_name}")
        return PAUSE_MS

    async def _ask(self, place: MessageQueue) -> int | None:
        """Ask once; return the pause before the next time, or None when the place is gone."""
        settings = self._environment.settings
        while self._count_in_hand(place) >= settings.max_in_hand:
            self._room.clear()
            await wait_at_most(self._room, PAUSE_MS, self._environment.clock)  # leases end without a word
        subscription = self._places.subscription_of(place)
        if self._tasks is None or subscription is None:
            self._leases.pop(place)
            return None
        if self._is_suspended():
            return PAUSE_MS
        started_at_ms = self._environment.clock.now_ms()
        try:
            popped = await self._requests.pop(place.broker_name, subscription, self._plan)
        except RocketletError as error:
            _log.warning("asking broker %s for messages of %s failed: %s", place.broker_name, place.topic, error)
            return PAUSE_MS
        if popped.messages:
            self._accept(place, popped.messages, started_at_ms)
        return PAUSE_MS if popped.is_crowded else 0

    def _count_in_hand(self, place: MessageQueue) -> int:
        leases = self._leases[place]
        leases[:] = [leased for leased in leases if leased.unfinished and not leased.is_dropped]
        return sum(len(leased.unfinished) for leased in leases)

    def _accept(self, place: MessageQueue, messages: list[ReceivedMessage], started_at_ms: int) -> None:
        leased = LeasedMessages(messages, self._environment.clock, self._finish)
        self._leases[place].append(leased)
        wanted = messages if self._hooks is None else self._hooks.take(place, messages, started_at_ms)
        if len(wanted) < len(messages):
            kept = {id(message) for message in wanted}
            leased.finish([message for message in messages if id(message) not in kept])
        self._submit(leased, wanted)

    # what becomes of messages

    def _finish(self, messages: Sequence[ReceivedMessage]) -> None:
        """Acknowledge messages at the end of this turn of the loop, with others that are finished in it."""
        if not self._finished and self._tasks is not None:
            self._tasks.start(self._acknowledge(), name="acknowledge")
        self._finished += messages
        self._room.set()

    async def _acknowledge(self) -> None:
        messages, self._finished = self._finished, []
        try:
            await self._requests.acknowledge(messages)
        except RocketletError as error:
            _log.warning("not acknowledged, and may come again: %s: %s", describe_messages(messages), error)

    async def _send_back(self, source: BatchSource, messages: Iterable[ReceivedMessage], delay_level: int) -> None:
        if not isinstance(source, LeasedMessages):
            await super()._send_back(source, messages, delay_level)
            return
        returner = self._environment.returner
        assert returner is not None, "by POP there are no broadcasts"
        for message in messages:
            if not source.release(message):
                continue
            is_given_up = delay_level < 0 or message.reconsume_times >= returner.max_retries
            if is_given_up and await returner.give_up(message):
                self._finish([message])
            else:
                level = delay_level if delay_level > 0 else message.reconsume_times + 1
                await self._requests.give_back(message, DELAYS_MS[min(level, len(DELAYS_MS)) - 1])
        self._room.set()
