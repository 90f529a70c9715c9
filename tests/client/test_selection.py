"""Which queue a message goes to."""

import pytest

from rocketlet.client.selection import QueueRound, select_at_random, select_by_hash
from rocketlet.common.message import Message, MessageQueue

QUEUES = [MessageQueue("T", f"Broker_{name}", queue_id) for name in "ABC" for queue_id in (0, 1)]
MESSAGE = Message("T", b"x")


@pytest.mark.feature("K4")
def test_round_takes_every_queue_once() -> None:
    """From any start each queue comes once before one comes again."""
    queue_round = QueueRound(QUEUES)

    assert sorted(queue_round.next_queue() for _ in QUEUES) == QUEUES
    assert sorted(queue_round.next_queue() for _ in QUEUES) == QUEUES


@pytest.mark.feature("K4")
def test_round_starts_anywhere() -> None:
    """Producers do not all begin with the same queue."""
    starts = {QueueRound(QUEUES).next_queue() for _ in range(500)}

    assert len(starts) == len(QUEUES)


@pytest.mark.feature("K5")
def test_round_passes_over_the_failed_broker() -> None:
    """After a failure of the first queue of broker A its second is skipped and broker B comes next."""
    queue_round = QueueRound(QUEUES, start=0)
    failed = queue_round.next_queue()

    assert failed == ("T", "Broker_A", 0)
    assert queue_round.next_queue(failed.broker_name) == ("T", "Broker_B", 0)


@pytest.mark.feature("K5")
def test_round_stays_when_there_is_no_other_broker() -> None:
    """With a single broker the retry goes to its next queue."""
    queue_round = QueueRound(QUEUES[:2], start=0)
    queue_round.next_queue()

    assert queue_round.next_queue("Broker_A").broker_name == "Broker_A"


@pytest.mark.feature("K14")
@pytest.mark.parametrize(
    ("arg", "index"),
    [(7, 7 % 6), (-7, 7 % 6), ("order-1", 2), ("", 0), (1 << 32, 1), (-1 << 40, 256 % 6)],
)
def test_hash_selector_selects_as_java_does(arg: object, index: int) -> None:
    """Texts, ints and longs hash as ``String``, ``Integer`` and ``Long`` do in Java."""
    assert select_by_hash(QUEUES, MESSAGE, arg) == QUEUES[index]


def test_hash_selector_refuses_what_has_no_java_hash() -> None:
    """An argument of another type is a mistake of the caller."""
    with pytest.raises(TypeError, match="not float"):
        select_by_hash(QUEUES, MESSAGE, 1.5)


def test_random_selector_selects_one_of_the_queues() -> None:
    """Every queue has its chance."""
    assert {select_at_random(QUEUES, MESSAGE, None) for _ in range(500)} == set(QUEUES)
