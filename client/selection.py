"""Which queue a message goes to.

    call           queue
    no selector    round robin over the publish list, from a random start; after a failure that of another broker
    a selector     whatever it returns; ``select_by_hash`` and ``select_at_random`` are Java's ready-made ones

Example of the round (Java's ``MQFaultStrategy`` without latency faults): three brokers with two queues each, the send
to A0 failed: A1 is passed over and the retry goes to B0.
"""

import random
from collections.abc import Callable, Sequence

from ..common.hashing import java_hash
from ..common.message import Message, MessageQueue

Selector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]


class QueueRound:
    """The round robin of one topic."""

    __slots__ = ("_next", "queues")

    def __init__(self, queues: Sequence[MessageQueue], start: int | None = None) -> None:
        self.queues = queues
        self._next = random.randrange(1 << 31) if start is None else start

    def __repr__(self) -> str:
        return f"<QueueRound {len(self.queues)} queues, next {self._next % max(1, len(self.queues))}>"

    def next_queue(self, failed_broker: str | None = None) -> MessageQueue:
        """Return the next queue, of another broker than the failed one if there is another."""
        queues = self.queues
        if failed_broker is not None:
            for _ in queues:
                queue = queues[self._advance()]
                if queue.broker_name != failed_broker:
                    return queue
        return queues[self._advance()]

    def _advance(self) -> int:
        position = self._next
        self._next = position + 1
        return position % len(self.queues)


def select_by_hash(queues: Sequence[MessageQueue], _message: Message, arg: object) -> MessageQueue:
    """Select by the hash of a text or integer, with the result of Java's ``SelectMessageQueueByHash``."""
    return queues[abs(_hash_of(arg)) % len(queues)]


def select_at_random(queues: Sequence[MessageQueue], _message: Message, _arg: object) -> MessageQueue:
    """Select any queue (Java's ``SelectMessageQueueByRandom``)."""
    return random.choice(queues)


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
