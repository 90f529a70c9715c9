"""The audit of the small files: ``checkpoint``, the JSON of ``config/``, and extended queues.

Rules (store.md §3.7, §6.2, §9.1):

- A checkpoint that is missing, short or all zeros means "nothing is sure", which is no damage. Times that lie behind
  the last record's, or in front of the first second of 1970, are.
- Of ``X`` and ``X.bak`` the first counts. When it does not parse, the second takes its place, which is older; a
  missing ``X`` beside its ``X.bak`` is what a crash between the two renames of a save leaves, and no damage.
"""

import struct
from collections.abc import Iterator
from typing import Any, Final, cast

from ...common.errors import JsonError
from ...common.json.javajson import read_json
from ..consumequeue.batchqueues import BATCH_TYPE, QUEUE_TYPE
from ..files.checkpoint import CHECKPOINT_BYTES
from .audit_report import AuditReport, Finding
from .auditfiles import ReadFiles, check_sizes, find_files, usual_size

_CHECKPOINT_TIMES: Final = struct.Struct(">qqqqq")
_TIME_NAMES: Final = ("physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp")
_EXT_HEAD: Final = struct.Struct(">hqqh")
_JSON: Final = ".json"


def audit_checkpoint(reader: ReadFiles, root: str, last_at_ms: int, report: AuditReport) -> None:
    """Judge the file ``checkpoint`` by the store time of the last record."""
    path = f"{root}/checkpoint"
    if not reader.files.exists(path):
        report.notes.append(f"{path} is missing: a start after a kill reads the whole log")
        return
    data = reader.read(path, CHECKPOINT_BYTES, 0)
    if len(data) < CHECKPOINT_BYTES:
        report.add(Finding("checkpoint", path, f"the file has {len(data)} bytes, not {CHECKPOINT_BYTES}"))
    values = _CHECKPOINT_TIMES.unpack(data[: _CHECKPOINT_TIMES.size].ljust(_CHECKPOINT_TIMES.size, b"\0"))
    for number, (name, at_ms) in enumerate(zip(_TIME_NAMES, values, strict=False)):
        if at_ms < 0 or (at_ms > last_at_ms > 0 and not report.is_open):
            reason = f"{name} is {at_ms}, the last record was stored at {last_at_ms}"
            report.add(Finding("checkpoint", path, reason, 8 * number))
    if (rest := data[_CHECKPOINT_TIMES.size :]).strip(b"\0"):
        position = len(data) - len(rest.lstrip(b"\0"))
        report.add(Finding("checkpoint", path, "bytes stand where zeros belong", position))


def audit_config(reader: ReadFiles, root: str, report: AuditReport) -> dict[str, bool] | None:
    """Parse the JSON files; return the topics, each with whether it counts by batches, ``None`` when not known."""
    topics: dict[str, bool] | None = None
    for path in sorted(_json_paths(reader, f"{root}/config")):
        value = _parse(reader, path)
        backup = _parse(reader, f"{path}.bak") if value is None else None
        if backup is not None and not reader.files.exists(path):
            report.notes.append(f"{path} is missing: a crash while it was saved left its .bak, which takes its place")
            value = backup
        elif backup is not None:
            report.add(Finding("config", path, "the file cannot be parsed; its .bak, which is older, takes its place"))
            report.backups.append(path)
            value = backup
        elif value is None:
            reason = "the file cannot be parsed, and there is no sound .bak: restore a copy, or remove it"
            report.add(Finding("config", path, reason))
        report.counts["config files"] += 1
        if path.endswith("/topics.json") and value is not None:
            topics = _topics_of(value)
    return topics


def audit_ext(reader: ReadFiles, root: str, report: AuditReport) -> None:
    """Walk the units of the extended queues."""
    for topic in reader.files.list(f"{root}/consumequeue_ext"):
        for queue in reader.files.list(f"{root}/consumequeue_ext/{topic.name}") if topic.is_directory else ():
            directory = f"{root}/consumequeue_ext/{topic.name}/{queue.name}"
            found = find_files(reader.files, [directory], report, "extended queue")
            for file in check_sizes(found, usual_size(found), report, "extended queue"):
                _walk_ext(reader, file.path, file.size, report)


def _walk_ext(reader: ReadFiles, path: str, size: int, report: AuditReport) -> None:
    position = 0
    while position + 4 <= size:
        data = reader.read(path, _EXT_HEAD.size, position)
        unit = int.from_bytes(data[:2], "big", signed=True)
        if unit in (0, -1) or len(data) < _EXT_HEAD.size:
            break
        bitmap = _EXT_HEAD.unpack(data)[3]
        if bitmap < 0 or unit != _EXT_HEAD.size + bitmap:
            report.add(Finding("extended queue", path, f"the unit has {unit} bytes and a bitmap of {bitmap}", position))
            break
        report.counts["extended units"] += 1
        position += unit


def _json_paths(reader: ReadFiles, directory: str) -> Iterator[str]:
    names = {entry.name.removesuffix(".bak") for entry in reader.files.list(directory) if not entry.is_directory}
    return (f"{directory}/{name}" for name in names if name.endswith(_JSON))


def _parse(reader: ReadFiles, path: str) -> Any:
    """Return the value of a file, ``None`` when there is none; an empty file holds nothing."""
    if not reader.files.exists(path):
        return None
    text = reader.read(path, reader.files.size(path), 0)
    try:
        return read_json(text) if text else None
    except JsonError:
        return None


def _topics_of(value: Any) -> dict[str, bool] | None:
    table = cast("dict[str, Any]", value).get("topicConfigTable") if isinstance(value, dict) else None
    if not isinstance(table, dict):
        return None
    found: dict[str, bool] = {}
    for name, topic in cast("dict[str, Any]", table).items():
        attributes = cast("dict[str, Any]", topic).get("attributes") if isinstance(topic, dict) else None
        kind = cast("dict[str, Any]", attributes).get(QUEUE_TYPE) if isinstance(attributes, dict) else None
        found[str(name)] = kind == BATCH_TYPE
    return found
