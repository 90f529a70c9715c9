"""Outcomes of a turn, where nobody waits for the disk."""

import asyncio
import pathlib

from stores import StoreDirectory, new_record

from rocketlet.broker.outcomes.scheduler import Scheduler
from rocketlet.testing.manual_clock import ManualClock


async def test_without_sync_flush_flushes_concern_nobody(tmp_path: pathlib.Path) -> None:
    """Their ends, the drain of a stop and its close find nobody; what is appended is settled with its commit."""
    directory = StoreDirectory(tmp_path / "store")
    scheduler = Scheduler(await asyncio.to_thread(directory.open), ManualClock(), lambda _names, done: done())
    assert (scheduler.flushes_first, scheduler.stall) == (False, None)
    outcome = scheduler.append(new_record())
    scheduler.end_turn()
    assert outcome.is_settled
    scheduler.tell_flushed(None)
    await scheduler.drain()
    scheduler.stop_parking()
    scheduler.close()
    await asyncio.to_thread(directory.close_all)


class Participant:
    """Counts how often it was asked to add its records."""

    def __init__(self) -> None:
        self.joined = 0

    def join(self) -> None:
        """Count."""
        self.joined += 1

    def undo(self) -> None:
        """Nothing is undone here."""
        raise AssertionError


async def test_senders_are_answered_before_queues_are_written(tmp_path: pathlib.Path) -> None:
    """The log has the record by then; readers see it afterwards, or with the next commit if nobody comes back."""
    directory = StoreDirectory(tmp_path / "store")
    store = await asyncio.to_thread(directory.open)
    scheduler = Scheduler(store, ManualClock(), lambda _names, done: done())
    for expected, comes_back in ((1, True), (3, False)):
        outcome = scheduler.append(new_record())
        before = store.max_offset("T", 0)
        scheduler.commit_turn()
        assert (outcome.is_settled, store.log_max_offset) == (True, store.log_append_offset)
        assert store.max_offset("T", 0) == before
        scheduler.commit()  # as somebody does who has heard of the outcome, and has nothing to add
        if comes_back:
            scheduler.make_readable()
        else:
            scheduler.append(new_record())
            scheduler.commit()
        assert store.max_offset("T", 0) == expected
        scheduler.make_readable()
        assert store.max_offset("T", 0) == expected
    await asyncio.to_thread(directory.close_all)


async def test_participant_is_asked_once_at_the_end_of_its_turn(tmp_path: pathlib.Path) -> None:
    """Also when nobody has appended anything in that turn; in the next one it has to join again."""
    directory = StoreDirectory(tmp_path / "store")
    scheduler = Scheduler(await asyncio.to_thread(directory.open), ManualClock(), lambda _names, done: done())
    participant = Participant()
    scheduler.join(participant)
    for _ in range(2):
        scheduler.end_turn()
        assert participant.joined == 1
    await asyncio.to_thread(directory.close_all)
