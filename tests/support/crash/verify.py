"""What must hold of a store directory after a power loss, whatever was lost."""

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress

from crash.filters import FILTERS_FILE, check_filters
from crash.halves import verify_halves
from crash.ledger import Ledger, Sent
from crash.timed import verify_timed
from crash.world import DELAYS_FILE, INNER_BATCH_TOPIC, OFFSETS_FILE
from stores import HOST, read_queue

from rocketlet.common.errors import ConfigError, StoreDamagedError
from rocketlet.common.names import SCHEDULE_TOPIC
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord
from rocketlet.export.plan.read_plan import PlanOptions, plan_prefixes
from rocketlet.export.plan.split import SplitWalk
from rocketlet.store.audit.store_audit import StoreAudit
from rocketlet.store.commitlog.record_blocks import ScanLimits
from rocketlet.store.files.config_files import load_config_text
from rocketlet.store.files.files import Files
from rocketlet.store.files.store_config import StoreConfig
from rocketlet.store.message_store import MessageStore

LATER_MS = 1_760_000_000_000


class CarelessFiles(Files):
    """Files that are never flushed: what is checked here loses no power."""

    def sync(self, descriptor: int) -> None:
        """Do nothing."""

    def sync_directory(self, path: str) -> None:
        """Do nothing."""


CARELESS_FILES = CarelessFiles()


class Verification:
    """The checks of one state; each raises ``AssertionError`` with what is wrong."""

    def __init__(self, root: str, config: StoreConfig, ledger: Ledger, *, is_sync: bool) -> None:
        self._root = root
        self._config = config
        self._ledger = ledger
        self._is_sync = is_sync
        self.required = self.missing = len(ledger.required(ledger.retired))  # missing until it is found

    def run(self) -> None:
        """Read by an export, start, read, go on, start again."""
        self._check_export()
        store = self._open()
        try:
            found = self._check_log(store)
            self._check_queues(store, found)
            self._check_keys(store, found)
            self._check_state_files(store)
            new = self._go_on(store)
        finally:
            store.close()
        assert not os.path.exists(f"{self._root}/abort"), "the store did not stop cleanly"
        with self._open() as store:
            everything = {place: one for place, one in found.items() if place >= store.log_min_offset}
            self._check_queues(store, everything, new)
        self._check_audit()
        with self._open() as store:
            verify_timed(store, self._ledger, LATER_MS)
        self._check_audit()

    def _open(self) -> MessageStore:
        store = MessageStore.open(self._config, now_ms=lambda: LATER_MS, store_host=HOST, files=CARELESS_FILES)
        store.set_batch_topics([INNER_BATCH_TOPIC])
        return store

    def _check_export(self) -> None:
        required = self._ledger.required(self._ledger.retired)
        try:
            logs = self._config.log_directories
            store = ",".join(logs) if len(logs) > 1 else self._root
            plan = plan_prefixes([store], PlanOptions(self._config.segment_bytes))
        except ConfigError as error:
            if required:
                reason = f"an export finds no log, {len(required)} messages were acknowledged: {error}"
                raise AssertionError(reason) from error
            return
        assert not plan.damages, f"an export finds damage where a broker starts: {plan.damages}"
        assert os.path.exists(plan.ends[store].path), f"an export does not say where the log ends: {plan.ends}"
        places: set[int] = set()
        with suppress(StoreDamagedError):
            for split in plan.splits:
                for block in SplitWalk(split, ScanLimits()):
                    places.update(block.number("log_offset").tolist())
        missing = [one.log_offset for one in required if one.log_offset not in places]
        assert not missing, f"an export lacks acknowledged messages at {missing}"
        unknown = sorted(place for place in places if place not in self._ledger.sent)
        assert not unknown, f"an export has what was never sent, at {unknown}"

    def _check_audit(self) -> None:
        report = StoreAudit(self._config).run()
        assert report.is_sound, f"store check finds damage: {[finding.reason for finding in report.findings][:3]}"

    def _check_log(self, store: MessageStore) -> dict[int, Sent]:
        """Walk the log; each record must be one that was sent, and none that was acknowledged may be missing."""
        assert store.log_min_offset <= self._ledger.retired, f"the log begins at {store.log_min_offset}"
        found: dict[int, Sent] = {}
        position = store.log_min_offset
        while position < store.log_max_offset:
            record = store.record_at(position)
            if record is None:
                position += self._config.segment_bytes - position % self._config.segment_bytes
                continue
            data = bytes(record)
            same = [one for one in self._ledger.sent.get(position, ()) if one.data == data]
            assert same, f"the record at {position} was never sent"
            found[position] = same[0]
            position += len(data)
        lost = [one for one in self._ledger.required(store.log_min_offset) if found.get(one.log_offset) != one]
        self.missing = len(lost)
        assert not lost, f"{len(lost)} acknowledged messages are lost, the first at {lost[0].log_offset}"
        return found

    def _check_queues(
        self, store: MessageStore, found: dict[int, Sent], new: Sequence[tuple[str, int, int]] = ()
    ) -> None:
        """Each queue holds its messages at their offsets, all of them and nothing else."""
        expected: dict[tuple[str, int], dict[int, bytes]] = defaultdict(dict)
        for one in found.values():
            if self._ledger.is_in_queue(one):
                slots = expected[one.topic, one.queue_id]
                assert one.queue_offset not in slots, f"two messages of {one.topic} have offset {one.queue_offset}"
                slots[one.queue_offset] = one.data
        added = {(topic, queue_id): offset for topic, queue_id, offset in new}
        for key in {*expected, *store.queues()}:
            held = {record.queue_offset: record for record in read_queue(store, *key)}
            wanted = expected.get(key, {})
            extra = {n for n in held if n not in wanted and n != added.get(key, -1)}
            ghosts = {n for n in extra if self._was_removed(found, held[n].log_offset)}
            assert extra == ghosts, f"queue {key} has offsets {sorted(extra - ghosts)} that it should not have"
            for offset, data in wanted.items():
                assert offset in held, f"queue {key} lacks offset {offset} of {sorted(wanted)}, it has {sorted(held)}"
                assert held[offset].log_offset == int.from_bytes(data[28:36], "big"), f"queue {key} mixes up {offset}"
            if key in added:
                assert added[key] in held, f"queue {key} lost offset {added[key]}, which was written after the start"

    def _was_removed(self, found: dict[int, Sent], place: int) -> bool:
        return place in found and not self._ledger.is_in_queue(found[place])

    def _check_keys(self, store: MessageStore, found: dict[int, Sent]) -> None:
        for one in found.values():
            for key in one.keys[:2]:
                places = store.query(one.topic, key, 64, 0, 1 << 62).log_offsets
                assert one.log_offset in places, f"key {key} of {one.topic} does not lead to {one.log_offset}: {places}"

    def _check_state_files(self, store: MessageStore) -> None:
        for path in {*self._ledger.saved, *self._ledger.saving}:
            text, allowed = load_config_text(f"{self._root}/{path}"), self._ledger.texts(path)
            assert text in allowed, f"{path} holds {text!r}, neither the old nor the new text"
            if path == OFFSETS_FILE and text and self._is_sync:
                self._check_progress(store, text)
            if path == DELAYS_FILE and text:
                self._check_deliveries(store, text)
            if path == FILTERS_FILE and text:
                check_filters(text, LATER_MS)
        verify_halves(store, self._ledger, load_config_text(f"{self._root}/{OFFSETS_FILE}"), LATER_MS)
        for (topic, queue_id), end in self._ledger.consumed.items() if self._is_sync else ():
            assert end <= store.max_offset(topic, queue_id), f"{topic}-{queue_id} lost messages that were consumed"

    def _check_progress(self, store: MessageStore, text: str) -> None:
        for name, offsets in json.loads(text)["offsetTable"].items():
            topic = name.partition("@")[0]
            if topic in self._ledger.numbering:
                continue
            for queue_id, offset in offsets.items():
                end = store.max_offset(topic, int(queue_id))
                assert offset <= end, f"a consumer is at {offset} of {topic}-{queue_id}, which ends at {end}"

    def _check_deliveries(self, store: MessageStore, text: str) -> None:
        for level, offset in json.loads(text)["offsetTable"].items():
            end = store.max_offset(SCHEDULE_TOPIC, int(level) - 1)
            assert offset <= end, f"level {level} is at {offset}, its queue ends at {end}"
            for one in self._ledger.delivered:
                is_promised = one.level == int(level) and one.queue_offset <= offset
                assert not is_promised or one.log_end <= store.log_max_offset, f"level {level} skips {one}"

    def _go_on(self, store: MessageStore) -> list[tuple[str, int, int]]:
        """Append to every queue and a new one."""
        placed: list[tuple[str, int, int]] = []
        for topic, queue_id in [*store.queues(), ("New", 0)]:
            end = store.max_offset(topic, queue_id)
            properties = {"UNIQ_KEY": f"new-{topic}-{queue_id}"}
            text = encode_properties(properties)
            new = NewRecord(topic, queue_id, b"after the start", text, properties, 0, 0, LATER_MS, HOST)
            offset = store.append(new).queue_offset
            assert offset == end, f"the next message of {topic}-{queue_id} gets offset {offset}, its end is {end}"
            store.commit()
            placed.append((topic, queue_id, offset))
        return placed
