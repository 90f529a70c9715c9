"""A store with timer messages, driven step by step, whose clock the test moves."""

from typing import Any

from stores import StoreDirectory, new_record, records_of

from rocketlet.broker.delay.timer_delivery import TimerDelivery
from rocketlet.broker.delay.timer_messages import TimerRequests
from rocketlet.common.record import Record
from rocketlet.store.consumequeue.appended import Appended
from rocketlet.store.files.files import Files
from rocketlet.store.files.store_config import TimerConfig
from rocketlet.store.message_store import MessageStore
from rocketlet.store.timer.timers import Timers

SECOND_MS = 1_000
HOUR_MS = 3_600 * SECOND_MS
DAY_MS = 24 * HOUR_MS
UNITS_PER_FILE = 20
SMALL_TIMERS: dict[str, Any] = {"file_bytes": 52 * UNITS_PER_FILE + 16}


def timer_directory(root: Any, **timers: Any) -> StoreDirectory:
    """Return a directory with large files of the log and small ones of the timers."""
    config = TimerConfig(**{**SMALL_TIMERS, **timers})
    return StoreDirectory(root, segment_bytes=1 << 22, queue_file_bytes=20_000, has_index=False, timers=config)


def deliver_due(delivery: TimerDelivery) -> None:
    """Do all that is to be done now."""
    while True:
        slow = delivery.advance()
        if slow is not None:
            slow()
        elif delivery.is_idle:
            return


def save_timers(store: MessageStore, timers: Timers) -> None:
    """Save how far timers have come, after a flush of the log."""
    save = timers.take_save()
    if save is not None:
        store.flush()
        timers.write(save)
        timers.settle(save)


class QuickFiles(Files):
    """Files that are never flushed: nothing loses power here."""

    def sync(self, descriptor: int) -> None:
        """Do nothing."""

    def sync_directory(self, path: str) -> None:
        """Do nothing."""


class TimerWorld:
    """The timers of a store; ``stop`` and ``start`` make a restart, ``copy_of`` what a kill would leave."""

    def __init__(self, directory: StoreDirectory, files: Files | None = None) -> None:
        self.directory = directory
        self.disk = files or QuickFiles()
        self.store: MessageStore
        self.timers: Timers
        self.delivery: TimerDelivery
        self.start()

    @property
    def now_ms(self) -> int:
        """The clock."""
        return self.directory.now_ms

    def start(self) -> None:
        """Open the store."""
        self.store = self.directory.open(self.disk)
        self.timers = self.store.timers()
        self.delivery = TimerDelivery(self.store, self.timers, self.store.commit, lambda: self.now_ms)
        self.requests = TimerRequests(self.directory.config.timers, self.timers.count_at, lambda _: 0)
        self.store.subscribe(self._arrived)

    def stop(self) -> None:
        """Stop cleanly."""
        self.save()
        self.timers.close()
        self.directory.close_all()

    def kill(self, name: str) -> None:
        """End as a killed process does, and go on with what it left, copied to another folder."""
        config = self.directory.config
        sizes = {"queue_file_bytes": config.queue_file_bytes, "segment_bytes": config.segment_bytes}
        twin = self.directory.copy(name, timers=config.timers, has_index=False, **sizes)
        self.timers.close()
        self.directory.close_all()
        self.directory = twin

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.stop()
        self.start()

    def send(self, body: bytes, at_ms: int, topic: str = "T", **properties: str) -> Appended:
        """Store a message that is to be delivered at a time."""
        named = {"UNIQ_KEY": f"U{body.decode()}", **properties, "TIMER_DELIVER_MS": str(at_ms)}
        new = new_record(topic, 0, body, **named)
        placed = self.store.append(self.requests.rewrite(new, self.now_ms) or new)
        self.store.commit()
        return placed

    def recall(self, key: str, at_ms: int, topic: str = "T") -> None:
        """Store what deletes the message of a key, which is due at the time."""
        self.send(b"0", at_ms, topic, UNIQ_KEY=key, TIMER_DEL_UNIQKEY=key)

    def work(self) -> None:
        """Do all that is to be done now."""
        deliver_due(self.delivery)

    def pass_to(self, at_ms: int) -> None:
        """Move the clock from deadline to deadline, working at each."""
        self.work()
        while (due_at_ms := self.delivery.due_at_ms) is not None and due_at_ms <= at_ms:
            self.directory.now_ms = max(self.now_ms, due_at_ms)
            self.work()
        self.directory.now_ms = max(self.now_ms, at_ms)
        self.work()

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        self.pass_to(self.now_ms + milliseconds)

    def save(self) -> None:
        """Save how far the timers have come, after a flush of the log."""
        save_timers(self.store, self.timers)

    def records(self, topic: str = "T", queue_id: int = 0) -> list[Record]:
        """Return what a queue holds."""
        return records_of(self.store, topic, queue_id)

    def bodies(self, topic: str = "T") -> list[bytes]:
        """Return the bodies in queue 0 of a topic."""
        return [bytes(record.body) for record in records_of(self.store, topic)]

    def _arrived(self, records: Any) -> None:
        for record in records:
            if record.topic == "rmq_sys_wheel_timer":
                self.delivery.arrived(record)
