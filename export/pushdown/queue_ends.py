"""Where each queue of a planned log ends: the queue offset that its next message gets.

Rule: queues tell as far as they are to be trusted (``storequeues``), and the rest of the log is walked; all of it where
there are no queues, or one of them cannot be read. A queue whose messages were all deleted from the log ends where its
own files say; of a topic that was made anew, only the new messages count, and one without files has none.
"""

import os
from collections.abc import Sequence

from ...store.commitlog.record_blocks import Block, ScanLimits
from ..columns.record_columns import block_topics, count_messages, find_batches
from ..plan.selection import Reason, Selection
from ..plan.split import PlannedLog, Split, SplitWalk
from ..plan.store_queues import StoreQueues
from ..report.counters import QueueKey

_HEADS_ONLY = ScanLimits(checks_crc=False)
_EVERYTHING = Selection(includes_system=True)


def queue_ends(splits: Sequence[Split]) -> dict[QueueKey, int]:
    """Return the end of each queue in the planned log of one store; raises what reading the splits does."""
    if not splits:
        return {}
    ends: dict[QueueKey, int] = {}
    sure_until = 0
    if splits[0].queues is not None:
        try:
            ends, sure_until = _told(StoreQueues(os.path.dirname(splits[0].queues), PlannedLog(splits)))
        except OSError:  # a broker has just deleted a file
            sure_until = 0
    for split in splits:
        if split.base_offset + split.stop > sure_until:
            for block in SplitWalk(split, _HEADS_ONLY):
                _note(ends, _behind(block, sure_until))
    return ends


def _told(store: StoreQueues) -> tuple[dict[QueueKey, int], int]:
    """Return the ends that queues tell, and up to which log offset they know all records."""
    views = {key: store.view(*key) for key in store.every_queue()}
    known = [view for view in views.values() if view is not None]
    ends = {key: view.end_offset for key, view in views.items() if view is not None and view.end_offset}
    is_sure = len(known) == len(views) and store.has_every_queue()
    return ends, store.sure_until(known) if is_sure else 0


def _behind(block: Block, log_offset: int) -> Block:
    """Return the records that begin at or behind a place of the log."""
    return block.rows_behind(log_offset - 1)


def _note(ends: dict[QueueKey, int], block: Block) -> None:
    """Take the ends of queues from the records of a block: the last one of a queue counts."""
    if not len(block):
        return
    codes, topics = block_topics(block)
    queued = _EVERYTHING.judge(block, codes, topics) == Reason.WANTED
    behind = block.number("queue_offset") + count_messages(block, find_batches(block))
    rows = zip(codes[queued].tolist(), block.number("queue_id")[queued].tolist(), behind[queued].tolist(), strict=True)
    last = {(code, queue_id): end for code, queue_id, end in rows}
    ends.update({(topics[code], queue_id): end for (code, queue_id), end in last.items()})
