"""Tallies as JSON values: what reports print of them, and all that is needed to count on.

Values that follow from others (``rows`` of a store, ``missingOffsets``, …) are written for readers and not read back.
"""

from collections.abc import Mapping
from typing import Any, Final

from ...common.errors import StoreDamagedError
from ..plan.selection import Reason
from ..plan.tail import LogStop
from .runs import Runs
from .tally import QueueKey, QueueTally, RowSums, Skipped, SplitRead, StoreTally

_REASONS: Final = {reason.label: reason for reason in Reason}


def store_to_json(tally: StoreTally) -> dict[str, Any]:
    """Return a tally as JSON values."""
    return {
        "store": tally.store,
        "records": tally.records,
        "blanks": tally.blanks,
        "logBytes": tally.log_bytes,
        "seconds": round(tally.seconds, 3),
        "messages": tally.messages,
        "rows": tally.rows,
        "deliveredRows": tally.delivered_rows,
        "leftOut": _reasons_to_json(tally.left_out),
        "checkedBodies": tally.checked_bodies,
        "crcFailures": tally.crc_failures,
        "unreadableBodies": tally.unreadable_bodies,
        "stopped": tally.damage and _damage_to_json(tally.damage),
        "end": tally.end and dict(zip(_END_NAMES, tally.end, strict=True)),
        "skippedBytes": tally.skipped_bytes,
        "skipped": [_skipped_to_json(skipped) for skipped in sorted(tally.skipped)],
        "pushed": tally.pushed,
        "splits": [_split_to_json(split) for split in sorted(tally.splits, key=lambda split: split[:3])],
        "queues": [_queue_to_json(key, queue) for key, queue in sorted(tally.queues.items())],
    }


def store_from_json(found: Mapping[str, Any]) -> StoreTally:
    """Return the tally of JSON values; raises KeyError, TypeError or ValueError for others."""
    damage, end = found["stopped"], found["end"]
    return StoreTally(
        found["store"],
        records=found["records"],
        blanks=found["blanks"],
        log_bytes=found["logBytes"],
        seconds=found["seconds"],
        checked_bodies=found["checkedBodies"],
        crc_failures=found["crcFailures"],
        unreadable_bodies=found["unreadableBodies"],
        delivered_rows=found["deliveredRows"],
        damage=damage and StoreDamagedError(damage["reason"], path=damage["file"], position=damage["position"]),
        end=end and LogStop(*(end[name] for name in _END_NAMES)),
        pushed=list(found["pushed"]),
        splits=[SplitRead(*(each[name] for name in _SPLIT_NAMES)) for each in found["splits"]],
        skipped=[Skipped(*(each[name] for name in _SKIPPED_NAMES)) for each in found["skipped"]],
        queues=dict(map(_queue_from_json, found["queues"])),
    )


_END_NAMES: Final = ("file", "position", "reason", "unproved")
_SPLIT_NAMES: Final = ("file", "start", "stop", "began", "ended")
_SKIPPED_NAMES: Final = ("file", "position", "bytes", "reason")


def _split_to_json(split: SplitRead) -> dict[str, Any]:
    return dict(zip(_SPLIT_NAMES, split, strict=True))


def _skipped_to_json(skipped: Skipped) -> dict[str, Any]:
    return dict(zip(_SKIPPED_NAMES, skipped, strict=True))


def _damage_to_json(damage: StoreDamagedError) -> dict[str, Any]:
    return {"file": damage.path, "position": damage.position, "reason": str(damage)}


def _queue_to_json(key: QueueKey, queue: QueueTally) -> dict[str, Any]:
    return {
        "topic": key[0],
        "queueId": key[1],
        "messages": queue.messages,
        "rows": queue.rows,
        "leftOut": _reasons_to_json(queue.left_out),
        "firstOffset": queue.offsets.first,
        "lastOffset": queue.offsets.last,
        "missingOffsets": queue.offsets.missing(),
        "repeatedOffsets": queue.offsets.repeats,
        "recordBytes": queue.record_bytes,
        "crcFailures": queue.crc_failures,
        "splits": queue.splits,
        "firstStoredMs": queue.first_at_ms,
        "lastStoredMs": queue.last_at_ms,
        "firstRowOffset": queue.delivered.first,
        "lastRowOffset": queue.delivered.last,
        "rowOffsetSum": str(queue.delivered.offset_sum),  # readers that have only doubles keep it
        "ranges": list(queue.offsets),
        "expected": list(queue.expected),
    }


def _queue_from_json(found: Mapping[str, Any]) -> tuple[QueueKey, QueueTally]:
    queue = QueueTally(
        messages=found["messages"],
        rows=found["rows"],
        record_bytes=found["recordBytes"],
        crc_failures=found["crcFailures"],
        splits=found["splits"],
        first_at_ms=found["firstStoredMs"],
        last_at_ms=found["lastStoredMs"],
        left_out={_REASONS[label]: count for label, count in found["leftOut"].items()},
        offsets=Runs(map(tuple, found["ranges"]), found["repeatedOffsets"]),
        expected=Runs(map(tuple, found["expected"])),
        delivered=RowSums(found["firstRowOffset"], found["lastRowOffset"], int(found["rowOffsetSum"])),
    )
    return (found["topic"], found["queueId"]), queue


def _reasons_to_json(counts: Mapping[Reason, int]) -> dict[str, int]:
    return {reason.label: count for reason, count in counts.items()}
