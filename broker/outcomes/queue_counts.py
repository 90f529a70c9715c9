"""Numbers that only grow, by something and by queue of it.

Whoever counts adds to the list of a queue, which costs two look-ups and no call; whoever reports reads the lists. What
stands in which column says the one who counts.
"""

from collections import defaultdict
from typing import TypeVar

K = TypeVar("K")
QueueCounts = defaultdict[K, defaultdict[int, list[int]]]


def count_by_queue(columns: int) -> QueueCounts[K]:
    """Return a table without entries; each one that is looked up begins with so many zeros."""
    return defaultdict(lambda: defaultdict(lambda: [0] * columns))


def total_of(counts: QueueCounts[K], key: K, column: int) -> int:
    """Return what all queues of something have come to."""
    return sum(row[column] for row in counts[key].values()) if key in counts else 0
