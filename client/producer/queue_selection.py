"""How a caller chooses the queue of a message: the queue itself, or a selector; without either the round decides.

    ready-made selector      queue                                    Java's
    select_by_hash           by the hash of the argument              SelectMessageQueueByHash
    select_by_key            by the hash of the message's first key
    select_at_random         any                                      SelectMessageQueueByRandom
    SelectByMachineRoom      any of the given machine rooms           SelectMessageQueueByMachineRoom (returns null)

A hash selects the same queue for as long as the list of queues stays the same: see docs/guide/ordering.md.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...common.message import Message, MessageQueue
from ...common.properties import java_hash

Selector = Callable[[Sequence[MessageQueue], Message, object], MessageQueue]
Choice = Callable[[Sequence[MessageQueue]], MessageQueue]


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
    folded = (value ^ value >> 32) & 0xFFFF_FFFF
    return folded - (1 << 32) if folded >> 31 else folded
