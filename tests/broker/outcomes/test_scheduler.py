"""Outcomes of a turn, where nobody waits for the disk."""

import asyncio
import pathlib

import pytest
from stores import StoreDirectory, new_record

from rocketlet.broker.outcomes.replica_acks import ReplicaAcks
from rocketlet.broker.outcomes.scheduler import ArrivalNotices, HeldFetch, LongPolling, PutCounts, Scheduler
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.store.message_store import MessageStore
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


class Copier:
    """Notes how many messages could be read each time that it was told of a commit."""

    def __init__(self, store: MessageStore) -> None:
        self.readable: list[int] = []
        self._store = store

    def end_moved(self) -> None:
        """Note."""
        self.readable.append(self._store.max_offset("T", 0))


@pytest.mark.parametrize(("waits_at", "readable"), [((), 0), (("T", 1), 0), (("T", 0), 1)])
async def test_who_waits_for_a_message_has_it_before_slaves(
    tmp_path: pathlib.Path, waits_at: tuple[str, int] | tuple[()], readable: int
) -> None:
    """Where senders wait for slaves, these are told at once, but behind a fetch that stands at the queue."""
    directory, clock = StoreDirectory(tmp_path / "store"), ManualClock()
    store, polling = await asyncio.to_thread(directory.open), LongPolling(clock)
    scheduler = Scheduler(store, clock, lambda _names, done: done())
    notices = scheduler.readers = ArrivalNotices(PutCounts(clock.now_ms), polling)
    store.subscribe(notices.collect)
    settings = LiveSettings(BrokerConfig.from_java({"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}), "127.0.0.1")
    copier, acks = Copier(store), ReplicaAcks(settings, clock, scheduler.settle)
    scheduler.replicate([copier], acks)
    if waits_at:
        polling.hold(HeldFetch({waits_at: 0}, None, lambda _: None, ("127.0.0.1", 50_000)), 1_000)
    outcome = scheduler.append(new_record())
    scheduler.end_turn()
    assert (copier.readable, outcome.is_settled, len(polling)) == ([readable], False, waits_at == ("T", 1))
    acks.acknowledged([store.log_max_offset])
    assert outcome.is_settled
    await asyncio.to_thread(directory.close_all)
