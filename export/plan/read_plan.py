"""Plans the reading of stores: which range of which file each task reads.

Rules:

- The end of the log is found once, here, so that all tasks of one reading see the same prefix of a store that a
  broker is writing to. What is written later belongs to the next reading.
- Files before the last must be whole: their tasks meet a blank at the end, or say where the damage is. A file that is
  missing or cut short is damage, too, but where a broker was killed and what lies behind was not surely on disk.
- Damage that shows already here stops a reading before its first row (``plan_stores``), or the prefix before it is
  read and the damage told (``plan_prefixes``), or what lies behind it is read as well (``skips_damage``).
- The last file is not walked from its start where it is large (``log_end``): damage far before the end of a log shows
  when it is read.
- A copy of a store may lack a part of its last file, if the store itself does not show that there was more
  (``log_end.prove_end``): that is damage, too.
- Only a walk over all records finds damage in the middle. ``plan_prefixes`` leaves that to the reading, which goes
  through the files in order and may stop; for tasks that go through them side by side, and must be told before,
  ``cut_at_damage`` walks them and cuts the plan.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ...common.errors import ConfigError, StoreDamagedError
from ...store.commitlog.log_end import Validity
from ...store.commitlog.record_blocks import ScanLimits
from ...store.files.segments import SegmentFile
from ...store.files.store_config import SEGMENT_KEY
from .filesystems import Storage
from .log_end import FoundEnd, LogEnd, LogStop, LostOffsets, find_end, prove_end
from .log_file import LogFile, check_at
from .record_walk import find_sound_record, stored_at
from .split import Split, SplitWalk, cut_file
from .store_files import find_files, find_gap, queues_of, read_store_marks

SPLIT_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class PlanOptions:
    """How stores are found and cut into splits.

    ``segment_bytes`` is the size that the files were written with; without it, it is taken from the first file.
    With ``skips_damage``, the log goes on behind damage.
    """

    segment_bytes: int | None = None
    split_bytes: int = SPLIT_BYTES
    skips_damage: bool = False
    storage: Storage = field(default_factory=Storage)


class MissingBytes(NamedTuple):
    """Bytes of the log of a store that are in no file, and why they should be, told of a place in one."""

    store: str
    path: str
    position: int
    size_bytes: int
    reason: str


class Plan(NamedTuple):
    """The splits of all stores, in log order, and by store what they end at: damage, or else the end of the log.

    ``missing`` is what a reading that skips damage goes past without a split, ``lost`` by store the queue offsets of
    records that were behind the end of the log.
    """

    splits: list[Split]
    damages: dict[str, StoreDamagedError]
    ends: dict[str, LogStop]
    missing: Sequence[MissingBytes] = ()
    lost: Mapping[str, LostOffsets] = {}


def plan_stores(stores: Iterable[str], options: PlanOptions | None = None) -> list[Split]:
    """Return the splits of all stores, in log order.

    Raises:
        ConfigError: A place holds no commit log, is given twice, or has files of another size.
        StoreDamagedError: A file is missing, or sound records follow a bad one at the end of the log.
        StoreError: A file or directory cannot be read.
    """
    plan = plan_prefixes(stores, options)
    for damage in plan.damages.values():
        raise damage
    return plan.splits


def plan_prefixes(stores: Iterable[str], options: PlanOptions | None = None) -> Plan:
    """Return the splits of all stores up to damage, and what each of them ends at.

    Raises:
        ConfigError, StoreError: As ``plan_stores``.
    """
    options = PlanOptions() if options is None else options
    missing: list[MissingBytes] = []
    lost: dict[str, LostOffsets] = {}
    plan = Plan([], {}, {}, missing, lost)
    for store, files in find_files(stores, options.storage):
        planner = _StorePlanner(store, files, options, _check_sizes(files, options.segment_bytes))
        stop = planner.plan()
        plan.splits.extend(planner.splits)
        missing.extend(planner.missing)
        lost[store] = planner.lost
        if isinstance(stop, LogStop):
            plan.ends[store] = stop
        else:
            plan.damages[store] = stop
    return plan


def check_stores(stores: Iterable[str], storage: Storage | None = None) -> None:
    """Raise what ``plan_stores`` would for places that are no stores; cheap, since no file is opened."""
    find_files(stores, storage or Storage())


class _StorePlanner:
    """Plans one store: the files up to a missing one, and those behind it if it is to be skipped."""

    def __init__(self, store: str, files: Sequence[SegmentFile], options: PlanOptions, segment_bytes: int) -> None:
        self.splits: list[Split] = []
        self.missing: list[MissingBytes] = []
        self.lost: LostOffsets = {}
        self._store = store
        self._files = files
        self._segment_bytes = segment_bytes
        self._options = options
        self._marks = read_store_marks(store, options.storage)
        self._queues = queues_of(store, options.storage)

    def plan(self) -> StoreDamagedError | LogStop:
        """Make the splits, and return what ends the log."""
        left = self._files
        while True:
            gap = find_gap(left)
            files, behind = left[:gap], left[len(left) if gap is None else gap :]
            last = self._last_with_records(files)
            opened = [self._whole(file).open() for file in files[last:]]
            end = find_end(opened, self._marks.sure_at_ms, self._queues, skips_damage=self._options.skips_damage)
            self._cut(files[: last + end.number], files[last + end.number], end)
            is_missing = bool(behind) and (self._marks.is_closed or self._is_sure(behind, end))
            if not is_missing or end.damage is not None:
                return end.damage or self._judge(end, opened)
            gap_damage = _missing_file(files[-1], behind[0], self._segment_bytes)
            if not self._options.skips_damage:
                return gap_damage
            size_bytes = behind[0].base_offset - files[-1].base_offset - files[-1].size
            is_cut = gap_damage.path == files[-1].path
            reason = f"the file has {files[-1].size} bytes" if is_cut else "the file before it is missing"
            self.missing.append(MissingBytes(self._store, gap_damage.path, gap_damage.position, size_bytes, reason))
            left = behind

    def _judge(self, end: LogEnd, files: Sequence[LogFile]) -> StoreDamagedError | LogStop:
        """Return the end of the log, or the damage when the store shows that it went on."""
        stop = end.stop(files)
        found = FoundEnd(self._store, files[end.number].base_offset + end.position, end.stored_at_ms)
        proof = prove_end(found, self._marks, self._queues, self._options.storage)
        if proof.refuted is None:
            return stop._replace(unproved=proof.unproved)
        self.lost = proof.lost
        if self._options.skips_damage:
            self.missing.append(MissingBytes(self._store, stop.path, stop.position, proof.lost_bytes, proof.refuted))
            return stop
        message = f"{stop.path} at position {stop.position}: {proof.refuted}"
        return StoreDamagedError(message, path=stop.path, position=stop.position)

    def _cut(self, files: Sequence[SegmentFile], last: SegmentFile, end: LogEnd) -> None:
        wholes = [self._whole(file) for file in files]
        if end.position:
            at = end.position
            wholes.append(replace(self._whole(last), stop=at, end=at, ends_in_blank=end.is_full))
        for whole in wholes:
            self.splits.extend(cut_file(whole, self._options.split_bytes))

    def _whole(self, file: SegmentFile) -> Split:
        path, base_offset, size = file
        place = Split(self._store, path, base_offset, 0, size, size, ends_in_blank=True)
        return replace(place, queues=self._queues, storage=self._options.storage)

    def _last_with_records(self, files: Sequence[SegmentFile]) -> int:
        """Return the number of the last file that begins with a sound record which is surely on disk, 0 without one."""
        sure_at_ms = self._marks.sure_at_ms
        for number in range(len(files) - 1, 0, -1):
            file = self._whole(files[number]).open()
            if check_at(file, 0) > 0 and (sure_at_ms is None or stored_at(file, 0) <= sure_at_ms):
                return number
        return 0

    def _is_sure(self, files: Sequence[SegmentFile], end: LogEnd) -> bool:
        """Tell whether there is a record that must not be lost."""
        covers = Validity(end.stored_at_ms, self._marks.sure_at_ms).covers
        return any(
            find_sound_record(self._whole(file).open(), 0, file.size, covers=covers) is not None for file in files
        )


def _missing_file(before: SegmentFile, behind: SegmentFile, segment_bytes: int) -> StoreDamagedError:
    if before.size < segment_bytes:
        message = f"{before.path} has {before.size} bytes instead of {segment_bytes}: it was cut short"
        return StoreDamagedError(message, path=before.path, position=before.size)
    message = f"{behind.path} does not follow {before.path}: a file between them is missing"
    return StoreDamagedError(message, path=behind.path, position=0)


def _check_sizes(files: Sequence[SegmentFile], segment_bytes: int | None) -> int:
    """Return the size of whole files.

    Raises:
        ConfigError: Files have another, unless they were cut short: then the next one begins where they should end.
    """
    expected = max(file.size for file in files) if segment_bytes is None else segment_bytes
    for number, (path, base_offset, size) in enumerate(files):
        behind = files[number + 1].base_offset if number + 1 < len(files) else base_offset + expected
        is_cut = size < expected and not (behind - base_offset) % expected
        if size != expected and not is_cut:
            raise ConfigError(f"{path} has {size} bytes, {SEGMENT_KEY} is {expected}", key=SEGMENT_KEY)
    return expected


def cut_at_damage(plan: Plan, limits: ScanLimits) -> Plan:
    """Read all records of a plan, and return the plan up to the first damage of each store (raises ``StoreError``)."""
    splits: list[Split] = []
    found: dict[str, StoreDamagedError] = {}
    for split in plan.splits:
        if split.store in found:
            continue
        damage = _find_damage(split, limits)
        if damage is not None:
            found[split.store] = damage
            stop = max(split.start, damage.position)  # a file may be cut before its split
            split = replace(split, stop=stop, end=stop, ends_in_blank=False)
        if len(split):
            splits.append(split)
    ends = {store: end for store, end in plan.ends.items() if store not in found}
    return plan._replace(splits=splits, damages={**plan.damages, **found}, ends=ends)


def _find_damage(split: Split, limits: ScanLimits) -> StoreDamagedError | None:
    try:
        deque(SplitWalk(split, limits), maxlen=0)
    except StoreDamagedError as damage:
        return damage
    return None
