"""Which queue a message goes to.

    call           queue
    no selector    round robin over the publish list, from a random start; after a failure that of another broker
    a selector     whatever it returns

    ready-made selector      queue                                    Java's
    select_by_hash           by the hash of the argument              SelectMessageQueueByHash
    select_by_key            by the hash of the message's first key
    select_at_random         any                                      SelectMessageQueueByRandom
    SelectByMachineRoom      any of the given machine rooms           SelectMessageQueueByMachineRoom (returns null)

A hash selects the same queue for as long as the list of queues stays the same: see docs/guide/ordering.md.

Example of the round (Java's ``MQFaultStrategy`` without latency faults): three brokers with two queues each, the send
to A0 failed: A1 is passed over and the retry goes to B0.

Brokers that were slow or failed are passed over for a while (Java's ``MQFaultStrategy``, off by default):

    an attempt took, or failed     its broker is passed over for
    less than 550 ms               no time
    from 550 ms on                 2 s
    from 1.8 s on                  5 s
    from 3 s on                    6 s
    from 5 s on, or failed         10 s
    from 15 s on                   30 s

A later instant wins over an earlier one, and a quick answer does not shorten the time. A broker that answered with an
error is unreachable besides, until it takes a message; the choice then prefers others that are passed over. The round
takes the first queue that will do, all but the last choice on another broker than the one that just failed:

    1. of a broker that is not passed over    2. of one that is reachable    3. the next one

Example: A and B take messages in 5 ms until A takes 2 s for one. The next 5 s all messages go to B.
"""

import random
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...common.errors import RemotingError, ResponseError
from ...common.hashing import java_hash
from ...common.message import Message, MessageQueue
from ..session.results import SendResult

Selector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
Choice = Callable[[Sequence[MessageQueue]], MessageQueue]


class QueueRoundRobin:
    """The round robin of one topic."""

    __slots__ = ("_next", "queues")

    def __init__(self, queues: Sequence[MessageQueue], start: int | None = None) -> None:
        self.queues = queues
        self._next = random.randrange(1 << 31) if start is None else start

    def __repr__(self) -> str:
        return f"<QueueRoundRobin {len(self.queues)} queues, next {self._next % max(1, len(self.queues))}>"

    def next_queue(self, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue, of another broker than the failed one if there is another."""
        queues = self.queues
        if failed_broker is not None:
            for _ in queues:
                queue = queues[self._advance()]
                if queue.broker_name != failed_broker:
                    return queue
        position = self._next
        self._next = position + 1
        return queues[position % len(queues)]

    def next_where(self, will_do: Callable[[str], bool]) -> MessageQueue | None:
        """Return the next queue whose broker's name will do, or None if there is none."""
        for _ in self.queues:
            queue = self.queues[self._advance()]
            if will_do(queue.broker_name):
                return queue
        return None

    def _advance(self) -> int:
        position = self._next
        self._next = position + 1
        return position % len(self.queues)


def choose_queue(message: Message, queue: MessageQueue | None, selector: Selector | None, arg: object) -> Choice | None:
    """Return how a caller chose the queue of a message, or None for the round.

    Raises:
        TypeError, ValueError: nobody can choose like that.
    """
    if queue is None:
        return None if selector is None else _choice_by(selector, message, arg)
    if selector is not None:
        raise ValueError("give queue or selector, not both")
    if not isinstance(queue, MessageQueue):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"queue is {type(queue).__name__}, it must be a MessageQueue")
    if queue.topic != message.topic:
        raise ValueError(f"the message is of topic {message.topic}, the queue of {queue.topic}")
    return lambda _queues: queue


def select_by_hash(queues: Sequence[MessageQueue], _message: Message, arg: object) -> MessageQueue:
    """Select by the hash of a text or integer, with the result of Java's ``SelectMessageQueueByHash``."""
    return queues[abs(_hash_of(arg)) % len(queues)]


def select_by_key(queues: Sequence[MessageQueue], message: Message, _arg: object) -> MessageQueue:
    """Select by the hash of the message's first key, so that messages with one key stay in order.

    Raises:
        ValueError: the message has no key.
    """
    keys = (message.keys,) if isinstance(message.keys, str) else message.keys
    if not keys:
        raise ValueError("select_by_key needs a message with a key")
    return select_by_hash(queues, message, keys[0])


def select_at_random(queues: Sequence[MessageQueue], _message: Message, _arg: object) -> MessageQueue:
    """Select any queue (Java's ``SelectMessageQueueByRandom``)."""
    return random.choice(queues)


@dataclass(frozen=True, slots=True)
class SelectByMachineRoom:
    """Selects any queue of the given rooms, where brokers are named ``room@name``, as in the allocation by room.

    When the topic has none there, any queue is selected: a message that travels far is better than none.
    """

    rooms: frozenset[str]

    def __call__(self, queues: Sequence[MessageQueue], _message: Message, _arg: object) -> MessageQueue:
        """Select a queue."""
        near = [queue for queue in queues if queue.broker_name.partition("@")[0] in self.rooms]
        return random.choice(near or queues)


def _choice_by(selector: Selector, message: Message, arg: object) -> Choice:
    if not callable(selector):
        raise TypeError(f"selector is {type(selector).__name__}, it must be a function of queues, message and arg")

    def choose(queues: Sequence[MessageQueue]) -> MessageQueue:
        queue = selector(queues, message, arg)
        if not isinstance(queue, MessageQueue):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
            raise TypeError(f"the selector returned {type(queue).__name__}, it must return one of its queues")
        if queue.topic != queues[0].topic:
            raise ValueError(f"the selector returned a queue of {queue.topic}, the message is of {queues[0].topic}")
        return queue

    return choose


def _hash_of(arg: object) -> int:
    """Return Java's ``hashCode``: of a ``String``, an ``Integer``, or a ``Long`` for what an int cannot hold."""
    if isinstance(arg, str):
        return java_hash(arg)
    if isinstance(arg, int):
        return arg if -(1 << 31) <= arg < 1 << 31 else _fold_long(arg)
    raise TypeError(f"select_by_hash takes a str or an int, not {type(arg).__name__}")


def _fold_long(value: int) -> int:
    folded = (value ^ (value % (1 << 64) >> 32)) & 0xFFFF_FFFF
    return folded - (1 << 32) if folded >> 31 else folded


LATENCY_MS = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)  # latencyMax
PASSED_OVER_MS = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)  # notAvailableDuration
FAILED_AS_IF_MS = 10_000  # how long a failed attempt counts as having taken


class BrokerFault(NamedTuple):
    """What the attempts so far say about a broker."""

    until_ms: int
    is_reachable: bool


class SlowBrokers:
    """The brokers that are passed over, and until when."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._faults: dict[str, BrokerFault] = {}

    def __repr__(self) -> str:
        return f"<SlowBrokers {sorted(name for name in self._faults if not self.is_available(name))}>"

    def is_available(self, broker_name: str) -> bool:
        """Tell whether a broker is not passed over now."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.until_ms <= self._monotonic_ms()

    def is_reachable(self, broker_name: str) -> bool:
        """Tell whether the last word on a broker is not that it answered with an error."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    async def watch(self, broker_name: str, attempt: Awaitable[SendResult]) -> SendResult:
        """Wait for an attempt to send and note how long its broker took."""
        begun_at_ms = self._monotonic_ms()
        try:
            result = await attempt
        except (RemotingError, ResponseError) as error:
            self.note(broker_name, FAILED_AS_IF_MS, is_reachable=isinstance(error, RemotingError))
            raise
        self.note(broker_name, self._monotonic_ms() - begun_at_ms)
        return result

    def note(self, broker_name: str, took_ms: int, *, is_reachable: bool = True) -> None:
        """Note how long an attempt took."""
        step = bisect_right(LATENCY_MS, took_ms) - 1
        until_ms = self._monotonic_ms() + PASSED_OVER_MS[step] if step >= 0 else 0
        before = self._faults.get(broker_name)
        if before is not None or until_ms > self._monotonic_ms() or not is_reachable:
            self._faults[broker_name] = BrokerFault(max(until_ms, before.until_ms if before else 0), is_reachable)


class LatencyAwareRoundRobin(QueueRoundRobin):
    """The round robin of one topic that passes over slow brokers."""

    __slots__ = ("_slow",)

    def __init__(self, queues: Sequence[MessageQueue], slow: SlowBrokers, start: int | None = None) -> None:
        super().__init__(queues, start)
        self._slow = slow

    def next_queue(self, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue of a broker that will do."""
        slow = self._slow
        return (
            self.next_where(lambda name: name != failed_broker and slow.is_available(name))
            or self.next_where(lambda name: name != failed_broker and slow.is_reachable(name))
            or super().next_queue()
        )
