"""The time of a broker, in the hands of a test.

Rules

    1. It runs as the machine's does, until it is frozen or moved on.
    2. ``advance`` stops at each instant for which the broker has planned something that others see: a delayed message,
       a timer, a check of transactions, the daily hour at which old files go. There it waits until the broker has done
       it, and then until consumers have taken what they were given and producers have answered what they were asked, so
       that what they do in turn happens at its own time. Jobs that come back every few seconds come back once.
    3. It waits so for ``PATIENCE_MS`` at most, by the machine's clock, and not again in the same call: a listener may
       be stuck on purpose.
    4. On an event loop ``advance`` waits for no client, since it blocks those that live there; ``elapse`` does not.
    5. Only the broker's time moves. Clients go by their own clocks, in other processes as well: their heartbeats, the
       commits of their offsets and the pauses after their errors come when they come. The broker takes connected
       clients for alive however far its time was moved, unless ``channelExpiredTimeout`` says otherwise.
    6. Messages are born in the broker's time: a transaction is not as old as the clock was moved. What a message says
       of the time at which it shall be delivered is left as it is.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from msgspec.structs import replace

from ..broker.server import Broker
from ..common.errors import HeaderError
from ..remoting.codec.command import Command
from ..remoting.codec.request_codes import RequestCode
from ..remoting.transport.connection import Connection, Handler, Reply, RequestHandlers
from ..remoting.transport.event_loop import LoopClock
from .loop_thread import LoopThread, is_on_event_loop
from .movable_clock import MovableClock
from .views.consumption import ConsumptionTracker

PATIENCE_MS: Final = 2_000
_DAY_MS: Final = 86_400_000
_MS: Final = timedelta(milliseconds=1)
_LEAST_MS: Final = 50
"""What is due within so much of each other happens together; Java's broker looks every 100 ms."""
_CLEANING_STEP_MS: Final = 100
_STUCK_MS: Final = 1_000
"""The step over something that is due and is not done: the broker tries it again after a pause."""


T = TypeVar("T")
Brokers = Callable[[], Sequence[tuple[Broker, ConsumptionTracker]]]


class BrokerClock:
    """The clock of the brokers on one loop: those that run now, each with who follows its consumers."""

    def __init__(self, clock: MovableClock, thread: LoopThread, brokers: Brokers) -> None:
        self._clock = clock
        self._thread = thread
        self._brokers = brokers

    def __repr__(self) -> str:
        return f"<BrokerClock at {self.now().isoformat()}{', frozen' if self._clock.is_frozen else ''}>"

    def now(self) -> datetime:
        """Return what the clock shows, in UTC."""
        return datetime.fromtimestamp(self.now_ms() / 1_000, UTC)

    def now_ms(self) -> int:
        """Return what the clock shows, in ms since 1970."""
        return self._thread.call(_value_of(self._clock.now_ms))

    @property
    def is_frozen(self) -> bool:
        """Whether time stands still."""
        return self._clock.is_frozen

    def freeze(self) -> None:
        """Let time stand still until ``resume``; ``advance`` moves it all the same."""
        self._thread.call(_value_of(self._clock.freeze))

    def resume(self) -> None:
        """Let time go on."""
        self._thread.call(_value_of(self._clock.resume))

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Move time on, and let happen in order what happens on the way.

        Raises:
            ValueError: time only moves on.
        """
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        self._thread.call(self._pass(span, waits=not is_on_event_loop()))

    async def elapse(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, milliseconds: float = 0
    ) -> None:
        """Do what ``advance`` does without blocking the event loop of the caller, on which clients may live.

        Raises:
            ValueError: time only moves on.
        """
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        await self._thread.join(self._pass(span, waits=True))

    async def _pass(self, span: timedelta, *, waits: bool) -> None:
        if span < timedelta():
            raise ValueError(f"time only moves on, not by {span}")
        clock = self._clock
        with self._standing_still():
            until_ms = clock.monotonic_ms() + round(span / _MS)
            await self._settle()
            waits = waits and await self._clients_are_done()
            while (now_ms := clock.monotonic_ms()) < until_ms:
                clock.advance(min(self._wait_ms(), until_ms - now_ms))
                await self._settle()
                waits = waits and await self._clients_are_done()

    @contextmanager
    def _standing_still(self) -> Generator[None]:
        was_frozen = self._clock.is_frozen
        self._clock.freeze()
        try:
            yield
        finally:
            if not was_frozen:
                self._clock.resume()

    def _wait_ms(self) -> int:
        """Return how far it is to the next instant for which something is planned."""
        left_ms = [wait_ms for broker, _ in self._brokers() if (wait_ms := broker.wait_ms) is not None]
        left_ms += [self._until_cleaning_ms(broker) for broker, _ in self._brokers() if _has_old_files(broker)]
        return max(_LEAST_MS, min((each if each > 0 else _STUCK_MS for each in left_ms), default=_DAY_MS))

    def _until_cleaning_ms(self, broker: Broker) -> int:
        """Return how far it is to the next hour at which old files go, or to the next file of those that go now."""
        if broker.parts.cleaning.is_at_work:
            return _CLEANING_STEP_MS
        now = datetime.fromtimestamp(self._clock.now_ms() / 1_000).astimezone()
        hours = broker.config.store.cleaning.hours
        begins = (now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=hour) for hour in range(1, 25))
        return next((round((begin - now) / _MS) for begin in begins if begin.hour in hours), _DAY_MS)

    async def _settle(self) -> None:
        """Let the loop run until each task waits for what has not happened, and no thread works for one."""
        await self._clock.settle()
        while calls := self._thread.calls_in_threads:
            await asyncio.wait(calls)
            await self._clock.settle()

    async def _clients_are_done(self) -> bool:
        """Wait for the clients; tell if they were done in time."""
        try:
            async with LoopClock().timeout(PATIENCE_MS):
                for broker, tracker in self._brokers():
                    await tracker.wait_checked(lambda broker=broker: broker.checks_asked)
                    await tracker.wait_idle(PATIENCE_MS)
        except TimeoutError:
            return False
        return True


_BORN: Final = {
    RequestCode.SEND_MESSAGE: "bornTimestamp",
    RequestCode.SEND_MESSAGE_V2: "g",
    RequestCode.SEND_BATCH_MESSAGE: "g",
    RequestCode.SEND_REPLY_MESSAGE: "bornTimestamp",
    RequestCode.SEND_REPLY_MESSAGE_V2: "g",
}


def in_time_of(clock: MovableClock, handlers: RequestHandlers) -> RequestHandlers:
    """Return handlers that do the same with messages that are born by a clock, however far clients are behind it."""

    def moved(name: str, handler: Handler) -> Handler:
        def move(command: Command, connection: Connection) -> Reply:
            if ahead_ms := clock.ahead_ms:
                with suppress(KeyError, ValueError, HeaderError):  # the handler refuses what is no send
                    command.ext[name] = str(int(command.ext[name]) + ahead_ms)
            return handler(command, connection)

        return move

    moves = {code: moved(name, handlers.by_code[code]) for code, name in _BORN.items()}
    return replace(handlers, by_code={**handlers.by_code, **moves})


def _has_old_files(broker: Broker) -> bool:
    return broker.store.newest_file() > broker.store.log_min_offset


async def _value_of(call: Callable[[], T]) -> T:
    return call()
