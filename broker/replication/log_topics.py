"""Topics of which the log of a slave has messages, and its table has nothing, or fewer queues.

Rules

    1. Messages count that were stored after the last change that the table has of the master's. Whose messages are all
       older was deleted there: the log keeps them for a while.
    2. Such a topic is made from what is here: as many queues as have messages, to be read and written. What else its
       settings say the master knows alone, whose next answer replaces it.
    3. The version of the table moves on, so that name servers take the topics, and keeps its time, for rule 1.

System topics are those of each broker, and are left alone.
"""

from collections.abc import Collection
from functools import partial

from ...common.names import is_system_topic
from ...store.message_store import MessageStore
from ..topic.topics import TopicTable


class LogTopics:
    """Finds and makes them."""

    def __init__(self, topics: TopicTable, store: MessageStore) -> None:
        self._topics = topics
        self._store = store

    def __repr__(self) -> str:
        return f"<LogTopics of {self._store!r}>"

    def lacks(self, topic: str, queue_id: int) -> bool:
        """Tell whether the table does not have this queue of a topic."""
        known = self._topics.get(topic)
        queues = 0 if known is None else max(known.read_queue_nums, known.write_queue_nums)
        return queue_id >= queues and not is_system_topic(topic)

    def make(self, since_ms: int, only: Collection[str] | None = None) -> list[str]:
        """Make topics that are lacking, or their queues, if they have messages stored since then; return which."""
        counts = self._store.queue_counts_since(since_ms, partial(self._is_wanted, only))
        if counts:
            self._topics.take_from_log(counts, self._store.batch_topics())
        return list(counts)

    def _is_wanted(self, only: Collection[str] | None, topic: str, queue_id: int) -> bool:
        return (only is None or topic in only) and self.lacks(topic, queue_id)
