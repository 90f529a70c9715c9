"""Puts blocks of records to queues and index: what ``Requeue`` and ``Index`` do record by record.

Rules:

- First everything is compared with the queues, by guessed tags codes: after a clean stop or a kill nearly all of it is
  there. What is left is looked at exactly, and appended by runs.
- What is neither there nor at its queue's end goes to ``Requeue.feed``, record by record and in order.
"""

import numpy as np

from ...common.properties import parse_properties
from ..commitlog.block_tags import exact_codes, guess_codes
from ..commitlog.record_blocks import Block, Longs
from ..consumequeue.appended import Appended
from ..files.store_config import ENTRY_BYTES
from .blockdelays import with_due_times
from .blockentries import Run, iter_runs
from .queue_rebuild import Place, Requeue

_MOST_MISSES = 2


def requeue_block(block: Block, requeue: Requeue) -> None:
    """Compare the records with the queues and write what is missing or wrong (raises ``OSError``)."""
    left: list[Longs] = []
    behind: set[Place] = set()
    for run in iter_runs(block, with_due_times(block, guess_codes(block), requeue.rules.delays_ms)):
        place = (run.topic, run.queue_id)
        taken = requeue.confirm_run(place, run.queue_offset, run.entries) if place not in behind else 0
        if taken < len(run.rows):
            left.append(run.rows[taken:])
            behind.add(place)
    if left:
        rest = block.select(np.sort(np.concatenate(left)))
        for run in iter_runs(rest, with_due_times(rest, exact_codes(rest), requeue.rules.delays_ms)):
            _place_run(rest, run, requeue)


def _place_run(block: Block, run: Run, requeue: Requeue) -> None:
    place, done, misses = (run.topic, run.queue_id), 0, 0 if run.entries else _MOST_MISSES
    while done < len(run.rows):
        if misses < _MOST_MISSES:
            before = done
            done += requeue.confirm_run(place, run.queue_offset + done, run.entries[done * ENTRY_BYTES :])
            rest = run.entries[done * ENTRY_BYTES :]
            if rest and requeue.append_run(place, run.queue_offset + done, rest):
                return
            misses += done == before
        if done < len(run.rows):
            requeue.feed(_record(block, int(run.rows[done])))
            done += 1


def _record(block: Block, row: int) -> memoryview:
    position = int(block.positions[row])
    return block.segment.view[position : position + int(block.heads["size"][row])]


def describe_block(block: Block) -> list[Appended]:
    """Return what the index needs of the records."""
    view = block.segment.view
    topics = [bytes(view[at : at + size]) for at, size in zip(block.topic_at, block.topic_bytes, strict=True)]
    starts, ends = block.properties_at.tolist(), (block.properties_at + block.properties_bytes).tolist()
    names = {topic: str(topic, "utf-8", "replace") for topic in set(topics)}
    columns = [
        block.number(name).tolist()
        for name in ("log_offset", "queue_offset", "size", "queue_id", "sys_flag", "stored_at_ms")
    ]
    return [
        Appended(at, offset, size, names[topic], queue_id, flag, stored, parse_properties(bytes(view[start:end])), None)
        for at, offset, size, queue_id, flag, stored, topic, start, end in zip(
            *columns, topics, starts, ends, strict=True
        )
    ]
