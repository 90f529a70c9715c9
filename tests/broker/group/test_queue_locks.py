"""Queue locks of ordered consumers."""

import pytest

from rocketlet.broker.group.queue_locks import QueueLocks
from rocketlet.common.message import MessageQueue

LEASE_MS = 60_000

QUEUES = [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]


@pytest.mark.feature("C10")
def test_lock_keeps_others_out_until_given_back() -> None:
    """A second client gets a queue only after the first has unlocked it."""
    locks = QueueLocks()
    assert locks.take("g", "one", QUEUES, 0) == QUEUES
    assert locks.take("g", "two", QUEUES, 1) == []
    locks.give_back("g", "two", QUEUES)
    assert locks.take("g", "two", QUEUES, 1) == []
    locks.give_back("g", "one", QUEUES[:1])
    assert locks.take("g", "two", QUEUES, 1) == QUEUES[:1]


@pytest.mark.feature("C10")
def test_lock_ends_after_its_lease() -> None:
    """A lock that is not renewed for 60 s is free; each renewal counts from its own instant."""
    locks = QueueLocks()
    locks.take("g", "one", QUEUES, 0)
    locks.take("g", "one", QUEUES[:1], 10_000)
    assert locks.take("g", "two", QUEUES, LEASE_MS + 1) == QUEUES[1:]
    assert locks.take("g", "two", QUEUES, LEASE_MS + 10_001) == QUEUES


def test_groups_lock_apart() -> None:
    """Two groups hold the same queue at once."""
    locks = QueueLocks()
    assert locks.take("g", "one", QUEUES, 0) == locks.take("h", "two", QUEUES, 0) == QUEUES


def test_live_lock_is_seen() -> None:
    """A group consumes in order while some lock of it is live."""
    locks = QueueLocks()
    assert not locks.is_any_live("g", 0)
    locks.take("g", "one", QUEUES, 0)
    assert locks.is_any_live("g", LEASE_MS)
    assert not locks.is_any_live("g", LEASE_MS + 1)


def test_locks_that_have_ended_are_forgotten() -> None:
    """A client that lost its locks never gives them back; what is live stays."""
    locks = QueueLocks()
    for number in range(100):
        locks.take(f"g{number}", "gone", [MessageQueue("T", "b", number)], 1_000_000)
    queue = MessageQueue("T", "b", 1)
    locks.take("g", "one", [queue], 1_000_000 + LEASE_MS)
    assert len(locks) == 101
    assert locks.take("g", "two", [queue], 1_000_000 + LEASE_MS + 1) == []
    assert len(locks) == 1
    locks.give_back("g", "one", [queue])
    assert len(locks) == 0


def test_locks_are_looked_through_once_in_a_lease() -> None:
    """Those that have ended stay until a minute has passed since they were looked through last."""
    locks = QueueLocks()
    for group, at_ms, count in (("a", 0, 2), ("b", 60_000, 4), ("c", 60_001, 4), ("d", 120_001, 6), ("e", 120_002, 4)):
        locks.take(group, "one", QUEUES, at_ms)
        assert len(locks) == count
