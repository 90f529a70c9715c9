"""A workload for crash points: a store under a recorder, and the table of steps that drive it.

To add a message type or a state file: write a small function that takes the ``World``, put it into ``STEPS`` with its
weight. A step that sends calls ``world.send`` (one message), ``world.send_batch`` or ``world.place`` with what it
appended; a step that saves a state file calls ``world.save``. The checks follow from the facts that these mark; what
they cannot know is a new fact in ``ledger`` and its check in ``verify``.
"""

import json
import pathlib
import random
import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import msgspec
from crash.ledger import Acknowledged, Delivered, Refused, Saved, Saving, Sent
from crash.recorder import Recorder
from stores import HOST, TINY, new_part

from rocketlet.broker.delay.delay_delivery import DelayedDelivery
from rocketlet.broker.delay.delay_progress import DelayProgress
from rocketlet.common.message import TRANSACTION_ROLLBACK
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord, encode_record
from rocketlet.store.consumequeue.appended import Appended
from rocketlet.store.files.config_files import save_config_text
from rocketlet.store.files.store_config import BATCH_UNIT_BYTES, StoreConfig, TimerConfig
from rocketlet.store.message_store import MessageStore

STORE = "store"
TOPICS_FILE = "config/topics.json"
OFFSETS_FILE = "config/consumerOffset.json"
DELAYS_FILE = "config/delayOffset.json"
INNER_BATCH_TOPIC = "Inner"
SIZES: dict[str, Any] = {**TINY, "batch_file_bytes": 5 * BATCH_UNIT_BYTES}
TIMERS = TimerConfig(file_bytes=400, wheel_slots=3_000)  # a wheel of many sectors, but not of 38 MB
_START_MS = 1_750_000_000_000
_V6 = bytes(range(16)) + b"\0\0\0\x07"


class WatchedStore(MessageStore):
    """A store that keeps what others than the workload append, until somebody takes it."""

    def append(self, new: NewRecord) -> Appended:
        """Plan a record."""
        placed = super().append(new)
        self.appended.append((new, placed))
        return placed

    @cached_property
    def appended(self) -> list[tuple[NewRecord, Appended]]:
        """What was appended."""
        return []


class World:
    """The store of one workload; ``trace`` is what happened, ``sync`` whether a send waits for the disk."""

    def __init__(self, folder: pathlib.Path, seed: str, *, is_sync: bool) -> None:
        self.chance = random.Random(seed)
        self.recorder = Recorder(folder)
        self.is_sync = is_sync
        self.log_names = self.chance.choice((["commitlog"], ["commitlog"], ["log-a", "log-b"]))
        self.config = self.config_at(folder)
        self.now_ms = _START_MS
        self.number = 0
        self._waiting: list[tuple[Sent, Appended]] = []
        self.store = self._open()
        self.save_topics()  # as a broker does, before a message can name the topic

    def config_at(self, folder: pathlib.Path) -> StoreConfig:
        """Return the settings of this workload for a store below another folder."""
        logs = tuple(f"{folder}/{STORE}/{name}" for name in self.log_names)
        return StoreConfig(
            str(folder / STORE), log_directories=logs, is_sync_flush=self.is_sync, timers=TIMERS, **SIZES
        )

    def message(self, topic: str = "Plain", queue_id: int = 0, size: int = 60, **properties: str) -> NewRecord:
        """Return a message with a unique key and a body of its own."""
        self.number += 1
        self.now_ms += self.chance.choice((0, 1, 7, 40))
        named = {"UNIQ_KEY": f"U{self.number:06d}", **properties}
        body = b"%06d " % self.number + self.chance.randbytes(size)
        text = encode_properties(named)
        return NewRecord(topic, queue_id, body, text, named, 0, 0, self.now_ms, HOST)

    def send(self, new: NewRecord) -> None:
        """Send one message; under SYNC_FLUSH wait for the disk."""
        self.place(new, self.store.append(new))
        self.commit()
        if self.is_sync:
            self.flush()

    def send_batch(self, parts: Sequence[NewRecord]) -> None:
        """Send messages that have their topic, queue and time in common."""
        head = parts[0]
        sized = [new_part(new.body, **new.properties) for new in parts]
        for new, placed in zip(parts, self.store.append_batch(head, sized).records(), strict=True):
            self.place(msgspec.structs.replace(new, born_at_ms=head.born_at_ms), placed)
        self.commit()
        if self.is_sync:
            self.flush()

    def place(self, new: NewRecord, placed: Appended) -> None:
        """Note that a message got its place; ``commit`` follows."""
        words = [word for word in (new.properties.get("UNIQ_KEY"), *new.properties.get("KEYS", "").split(" ")) if word]
        data = _stored_bytes(new, placed)
        is_queued = placed.queue is not None
        is_indexed = new.sys_flag & TRANSACTION_ROLLBACK != TRANSACTION_ROLLBACK
        keys = tuple(words) if is_indexed else ()
        sent = Sent(placed.log_offset, new.topic, new.queue_id, placed.queue_offset, is_queued, keys, data)
        self._waiting.append((sent, placed))

    def commit(self) -> None:
        """Write what was placed."""
        waiting, self._waiting = self._waiting, []
        for sent, _ in waiting:
            self.recorder.mark(sent)
        try:
            self.store.commit()
        except OSError:
            for sent, _ in waiting:
                self.recorder.mark(Refused(sent))
            raise

    def flush(self) -> None:
        """Bring to the disk what is committed; senders have their answer before queues and index are flushed."""
        flushed = threading.Event()
        self.store.request_flush(lambda _: flushed.set())
        flushed.wait()
        self.recorder.mark(Acknowledged(self.store.flushed_offset))
        self.store.flush()
        self.recorder.mark(Acknowledged(self.store.flushed_offset))

    def deliver(self, progress: DelayProgress) -> None:
        """Deliver the delayed messages that are due, as a broker does."""
        delivery = DelayedDelivery(self.store, self.commit_appended, progress)
        self.store.appended.clear()
        before = progress.latest()
        while delivery.deliver_due():
            for level, offset in progress.latest().items():
                if before.get(level) != offset:
                    self.recorder.mark(Delivered(level, offset, self.store.log_max_offset))
            before = progress.latest()

    def commit_appended(self) -> None:
        """Note and commit what the broker itself has appended; under SYNC_FLUSH bring it to the disk."""
        for new, placed in self.store.appended:
            self.place(new, placed)
        self.store.appended.clear()
        self.commit()
        if self.is_sync:
            self.flush()

    def save(self, path: str, content: object) -> None:
        """Save a state file below the store directory."""
        text = json.dumps(content, indent=1)
        self.recorder.mark(Saving(path, text))
        save_config_text(f"{self.config.root}/{path}", text, self.recorder)
        self.recorder.mark(Saved(path, text))

    def pass_time(self, milliseconds: int) -> None:
        """Move the clock."""
        self.now_ms += milliseconds

    def stop(self) -> None:
        """Stop cleanly."""
        self.commit()
        self.store.close()
        self.recorder.mark(Acknowledged(self.store.log_max_offset))

    def kill(self) -> None:
        """End as a killed process does: nothing more is written, the system keeps what was."""
        self.store._parts.close()  # pyright: ignore[reportPrivateUsage] # every other way out is an orderly one

    def reopen(self) -> None:
        """Start again."""
        self.store = self._open()

    def _open(self) -> WatchedStore:
        store = WatchedStore.open(self.config, now_ms=lambda: self.now_ms, store_host=HOST, files=self.recorder)
        store.prepare_index()
        store.set_batch_topics([INNER_BATCH_TOPIC])
        return store

    def save_topics(self) -> None:
        """Save the list of topics, with the kind of their queues."""
        topics = {INNER_BATCH_TOPIC, *(topic for topic, _ in self.store.queues())}
        kinds = {name: "BatchCQ" if name == INNER_BATCH_TOPIC else "SimpleCQ" for name in sorted(topics)}
        table = {name: {"topicName": name, "attributes": {"queue.type": kind}} for name, kind in kinds.items()}
        self.save(TOPICS_FILE, {"dataVersion": {"counter": self.number}, "topicConfigTable": table})


def _stored_bytes(new: NewRecord, placed: Appended) -> bytes:
    """Return the bytes that a record must have at its place; the store adds properties to inner batches."""
    numbered = msgspec.structs.replace(new, property_text=encode_properties(placed.properties))
    return encode_record(numbered, placed.queue_offset, placed.log_offset, placed.stored_at_ms, HOST)
