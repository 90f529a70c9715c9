"""Which queue a message goes to."""

from typing import Any

import pytest

from rocketlet.client.producer.queue_selection import (
    SelectByMachineRoom,
    choose_queue,
    select_at_random,
    select_by_hash,
    select_by_key,
)
from rocketlet.common.message import Message, MessageQueue

QUEUES = [MessageQueue("T", f"Broker_{name}", queue_id) for name in "ABC" for queue_id in (0, 1)]
MESSAGE = Message("T", b"x")


@pytest.mark.feature("K14")
@pytest.mark.parametrize(
    ("arg", "index"),
    [(7, 7 % 6), (-7, 7 % 6), ("order-1", 2), ("", 0), (1 << 32, 1), (-1 << 40, 256 % 6)],
)
def test_hash_selector_selects_as_java_does(arg: object, index: int) -> None:
    """Texts, ints and longs hash as ``String``, ``Integer`` and ``Long`` do in Java."""
    assert select_by_hash(QUEUES, MESSAGE, arg) == QUEUES[index]


MANY_QUEUES = [MessageQueue("T", "Broker_A", queue_id) for queue_id in range(1009)]
"""So many that two hashes which are not the same hardly select the same queue."""


@pytest.mark.feature("K14")
@pytest.mark.parametrize(
    ("value", "java_hash"),
    [
        ((1 << 31) - 1, (1 << 31) - 1),
        (-1 << 31, -1 << 31),
        ((1 << 31) + 1, -(1 << 31) + 1),
        ((-1 << 31) - 1, -1 << 31),
        ((1 << 32) + 1, 0),
        ((5 << 32) + 3, 6),
        ((1 << 32) - 1, -1),
        (0x1234_5678_9ABC_DEF1, -0x7777_7777),
        (-(1 << 33), -2),
        ((1 << 63) - 1, -1 << 31),
    ],
    ids=hex,
)
def test_numbers_hash_as_integer_and_long(value: int, java_hash: int) -> None:
    """What 32 bits hold is its own hash; of a long the halves are combined, to a number with a sign."""
    assert select_by_hash(MANY_QUEUES, MESSAGE, value).queue_id == abs(java_hash) % len(MANY_QUEUES)


def test_hash_selector_refuses_what_has_no_java_hash() -> None:
    """An argument of another type is a mistake of the caller."""
    with pytest.raises(TypeError, match="not float"):
        select_by_hash(QUEUES, MESSAGE, 1.5)


def test_random_selector_selects_one_of_the_queues() -> None:
    """Every queue has its chance."""
    assert {select_at_random(QUEUES, MESSAGE, None) for _ in range(500)} == set(QUEUES)


@pytest.mark.feature("K14")
@pytest.mark.parametrize("keys", ["order-1", ["order-1", "other"]])
def test_key_selector_goes_by_the_first_key(keys: Any) -> None:
    """Messages with one key go to the queue that the hash of that key selects."""
    assert select_by_key(QUEUES, Message("T", b"x", keys=keys), None) == select_by_hash(QUEUES, MESSAGE, "order-1")


def test_key_selector_needs_a_key() -> None:
    """A message without a key has no order."""
    with pytest.raises(ValueError, match="needs a message with a key"):
        select_by_key(QUEUES, MESSAGE, None)


def test_machine_room_selector_stays_near_while_it_can() -> None:
    """Queues of brokers in the room are selected; only when there is none the others."""
    queues = [MessageQueue("T", f"{room}@broker", 0) for room in ("north", "south", "west")]
    near = SelectByMachineRoom(frozenset({"north", "west"}))
    far = SelectByMachineRoom(frozenset({"east"}))

    assert {near(queues, MESSAGE, None).broker_name for _ in range(500)} == {"north@broker", "west@broker"}
    assert {far(queues, MESSAGE, None) for _ in range(500)} == set(queues)


def returning(value: object) -> Any:
    """Return a selector that returns a value."""

    def select(_queues: object, _message: object, _arg: object) -> object:
        return value

    return select


@pytest.mark.parametrize(
    ("chosen", "error", "text"),
    [
        ({"queue": 3}, TypeError, "queue is int, it must be a MessageQueue"),
        ({"queue": ("T", "Broker_A", 0)}, TypeError, "queue is tuple, it must be a MessageQueue"),
        ({"queue": MessageQueue("U", "Broker_A", 0)}, ValueError, "the message is of topic T, the queue of U"),
        ({"queue": QUEUES[0], "selector": select_at_random}, ValueError, "give queue or selector, not both"),
        ({"selector": "hash"}, TypeError, "selector is str, it must be a function of queues, message and arg"),
        ({"selector": returning(None)}, TypeError, "the selector returned NoneType, it must return one of its queues"),
        ({"selector": returning(0)}, TypeError, "the selector returned int, it must return one of its queues"),
        ({"selector": returning(MessageQueue("U", "b", 0))}, ValueError, "returned a queue of U, the message is of T"),
    ],
)
def test_choice_that_nobody_can_follow_is_refused(chosen: Any, error: type[Exception], text: str) -> None:
    """The error says what is wrong with the queue, the selector or what it returned."""
    choice = {"queue": None, "selector": None, **chosen}
    with pytest.raises(error, match=text):
        follow(choice["queue"], choice["selector"])


def test_topic_of_one_queue() -> None:
    """A selector that returns the only queue there is is followed."""
    choice = choose_queue(MESSAGE, None, select_at_random, None)
    assert choice is not None
    assert choice(QUEUES[:1]) == QUEUES[0]


def follow(queue: Any, selector: Any) -> None:
    """Choose a queue for the message."""
    choice = choose_queue(MESSAGE, queue, selector, None)
    assert choice is not None
    choice(QUEUES)
