"""The audit of the commit log: every record of every file, and what lies between and behind them.

Rules (store.md §2.3, §7.2, §7.6):

- Unlike recovery the audit goes on behind damage, at the next sound record, so that it sees all of it.
- Records whose checksum is wrong are reported and still handed on: their queue entries are not damaged, too.
- A bad record at the end with no newer sound one behind it is a torn tail. While a broker is writing it may become
  whole in the moment that it is looked at; it is then read again.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from ...common.errors import StoreDamagedError
from ...common.properties import PROPERTY_CRC_BYTES, UNIQ_KEY, parse_properties
from ...common.record import BLANK_BYTES, Verdict, check_record, decode_record, has_sealed_crc
from ..commitlog.log_end import find_record
from ..commitlog.record_blocks import Block, BlockScan, ScanLimits, SegmentBytes, has_body_crc
from ..files.files import Files, name_file
from ..files.segments import SegmentFile
from .audit_report import AuditReport, Finding, Hit

_CHUNK: Final = 4 << 20
_MOST_RANGES: Final = 10_000
_CRC_NAME: Final = b"__CRC32#\x01"
_REASON_BODY: Final = "the body does not have its checksum"
_REASON_SEAL: Final = "the record does not have the checksum in its properties"

_LIMITS: Final = ScanLimits(checks_crc=False, reserved_bytes=BLANK_BYTES)


class _Range(NamedTuple):
    start: int
    end: int
    finding: Finding


class LogAudit:
    """Walks all files; iterate ``blocks``. ``end`` is where the log ends, once that is done."""

    def __init__(
        self, files: Files, segments: Sequence[SegmentFile], report: AuditReport, *, sure_at_ms: int, needs_seal: bool
    ) -> None:
        self._files = files
        self._segments = segments
        self.report = report
        self._sure_at_ms = sure_at_ms
        self._needs_seal = needs_seal
        self._ranges: list[_Range] = []
        self.last_at_ms = 0
        self._is_over = False
        self.advance: Callable[[int], None] = lambda _: None
        self.start = self.end = segments[0].base_offset if segments else 0

    def blocks(self) -> Iterator[Block]:
        """Yield the records of all files, in order."""
        for number, segment in enumerate(self._segments):
            mapped = self._map(segment)
            if mapped is None:
                continue
            self.report.counts["log files"] += 1
            if self._is_over:
                self._check_behind(mapped, 0)
            else:
                yield from name_file(segment.path, self._blocks_until_cut(mapped, self._segments[number + 1 :]))
            self.advance(segment.size)

    def finding_at(self, log_offset: int) -> Finding | None:
        """Return the finding whose bytes hold the position."""
        number = bisect_right(self._ranges, log_offset, key=lambda one: one.start) - 1
        return self._ranges[number].finding if number >= 0 and log_offset < self._ranges[number].end else None

    def _map(self, segment: SegmentFile) -> SegmentBytes | None:
        try:
            view = self._files.map_written(segment.path, segment.size)
        except FileNotFoundError:
            self.report.notes.append(f"{segment.path} was removed while the store was read")
            return None
        return SegmentBytes(segment.path, segment.base_offset, view)

    def _blocks_until_cut(self, segment: SegmentBytes, later: Sequence[SegmentFile]) -> Iterator[Block]:
        try:
            yield from self._segment_blocks(segment, later)
        except StoreDamagedError as cut:
            self.end = segment.base_offset + cut.position
            reason = cut.finding.removeprefix(f"{segment.path} ")
            self.report.add(Finding("log", segment.path, reason, cut.position, self.end))
            self.report.add_cut(self.end)

    def _segment_blocks(self, segment: SegmentBytes, later: Sequence[SegmentFile]) -> Iterator[Block]:
        position: int | None = 0
        while position is not None:
            scan = BlockScan(segment, position, segment.size, _LIMITS)
            for block in scan:
                self._check_block(block)
                yield block
            self.end = segment.base_offset + scan.position
            position = self._judge(segment, scan.position, later)

    def _check_block(self, block: Block) -> None:
        self.report.counts["records"] += len(block)
        self.report.counts["record bytes"] += int(block.heads["size"].sum(dtype=np.int64))
        stored_at = block.number("stored_at_ms")
        has_crc, is_sealed = has_body_crc(block), self._is_sealed(block)
        for row in np.flatnonzero(~has_crc | ~is_sealed | (stored_at <= 0)).tolist():
            time_reason = f"the store time is {int(stored_at[row])}"
            reason = _REASON_BODY if not has_crc[row] else time_reason if is_sealed[row] else _REASON_SEAL
            self._report_record(block, row, reason)
        self.report.counts["store times that go back"] += int((np.diff(stored_at, prepend=self.last_at_ms) < 0).sum())
        self.last_at_ms = int(stored_at[-1])
        if self.report.cut_at is not None:
            self.report.sound_behind += int((block.heads["log_offset"] > self.report.cut_at).sum())

    def _is_sealed(self, block: Block) -> npt.NDArray[np.bool_]:
        """Tell which records have their property checksum, or need none."""
        good = np.ones(len(block), bool)
        ends = block.properties_at + block.properties_bytes
        may_have = np.flatnonzero(block.properties_bytes >= PROPERTY_CRC_BYTES)
        starts = ends[may_have] - PROPERTY_CRC_BYTES
        has_one = block.segment.gather(starts, f"S{len(_CRC_NAME)}") == _CRC_NAME if len(may_have) else may_have > 0
        view = block.segment.view
        if self._needs_seal:
            good[:] = False
        for row in may_have[has_one].tolist():
            good[row] = has_sealed_crc(view[int(block.positions[row]) : int(ends[row])])
        return good

    def _report_record(self, block: Block, row: int, reason: str) -> None:
        position = int(block.positions[row])
        path, log_offset = block.segment.path, block.segment.base_offset + position
        self.report.add(Finding("log", path, reason, position, log_offset, [_hit(block.segment, position)], 1))
        self.report.add_cut(log_offset)

    # --- what is no record

    def _judge(self, segment: SegmentBytes, position: int, later: Sequence[SegmentFile]) -> int | None:
        """Report what stands at the position; return where records go on in this file."""
        log_offset = segment.base_offset + position
        found = check_record(segment.view, position, log_offset, checks_crc=False)
        if found > 0:
            return position  # a broker has completed it just now
        verdict = Verdict(found)
        if verdict is Verdict.BLANK and segment.size - position >= 8:
            self._check_blank(segment, position)
            return None
        following = self._next_sound(segment, position)
        if following is None and not self._goes_on(later):
            self._end_log(segment, position, verdict)
            return None
        if check_record(segment.view, position, log_offset, checks_crc=False) > 0:
            return position
        end = segment.size if following is None else following
        self._report_range(segment, position, end, verdict.reason)
        return following

    def _report_range(self, segment: SegmentBytes, start: int, end: int, reason: str) -> None:
        log_offset = segment.base_offset + start
        text = f"{reason}; {end - start} bytes are unreadable up to position {end}"
        finding = Finding("log", segment.path, text, start, log_offset)
        self.report.add(finding)
        self.report.add_cut(log_offset)
        if len(self._ranges) < _MOST_RANGES:
            self._ranges.append(_Range(log_offset, segment.base_offset + end, finding))

    def _next_sound(self, segment: SegmentBytes, position: int) -> int | None:
        """Return where the next record begins that is no older than the last one before the position."""
        if first_byte(self._files, segment, position) is None:
            return None
        position += 1
        while (found := find_record(segment.view, segment.base_offset, position)) is not None:
            if self._counts(decode_record(segment.view, found).stored_at_ms):
                return found
            position = found + 1
        return None

    def _counts(self, stored_at_ms: int) -> bool:
        """Tell whether a record behind bad bytes was part of the log; after a kill only what was surely flushed was."""
        if stored_at_ms < self.last_at_ms:
            return False
        return not self.report.is_open or not self._sure_at_ms or stored_at_ms <= self._sure_at_ms

    def _goes_on(self, later: Sequence[SegmentFile]) -> bool:
        for segment in later:
            mapped = self._map(segment)
            if mapped is not None and check_record(mapped.view, 0, segment.base_offset) > 0:
                return self._counts(decode_record(mapped.view).stored_at_ms)
        return False

    def _check_blank(self, segment: SegmentBytes, position: int) -> None:
        room = int.from_bytes(segment.view[position : position + 4], "big", signed=True)
        self.end = segment.base_offset + segment.size
        if room != segment.size - position:
            reason = f"the blank that ends the file names {room} bytes, {segment.size - position} are left"
            self.report.add(Finding("log", segment.path, reason, position, segment.base_offset + position))
            self.report.wrong_blanks.append((segment.path, position, segment.size - position))

    def _end_log(self, segment: SegmentBytes, position: int, verdict: Verdict) -> None:
        self._is_over = True
        self.end = segment.base_offset + position
        if verdict.is_damage and position < segment.size:
            reason = f"the end of the log is torn: {verdict.reason}"
            finding = Finding("log", segment.path, reason, position, self.end)
            self.report.add_or_note(finding)
            if not self.report.is_open:
                self.report.add_cut(self.end)
                self._ranges.append(_Range(self.end, segment.base_offset + segment.size, finding))
        else:
            self._check_behind(segment, position)

    def _check_behind(self, segment: SegmentBytes, position: int) -> None:
        """Report bytes behind the end of the log, which should be zeros."""
        found = first_byte(self._files, segment, position)
        if found is None or check_record(segment.view, position, segment.base_offset + position) > 0:
            return
        reason = "bytes stand behind the end of the log"
        self.report.add_or_note(Finding("log", segment.path, reason, found, segment.base_offset + found))


def first_byte(files: Files, segment: SegmentBytes, position: int) -> int | None:
    """Return the place of the first byte that is not zero, skipping holes."""
    descriptor = files.open(segment.path)
    try:
        while position < segment.size:
            data_at = files.next_data(descriptor, position)
            if data_at is None or data_at >= segment.size:
                return None
            data = bytes(segment.view[data_at : data_at + _CHUNK])
            kept = len(data) - len(data.lstrip(b"\0"))
            if kept < len(data):
                return data_at + kept
            position = data_at + len(data)
    finally:
        files.close(descriptor)
    return None


def _hit(segment: SegmentBytes, position: int) -> Hit:
    record = decode_record(segment.view, position)
    key = parse_properties(record.property_text).get(UNIQ_KEY)
    return Hit(record.topic, record.queue_id, record.queue_offset, key)
