"""The texts of POP: the handle of a message that was handed out, and what an answer says of offsets (pop.md §3).

    handle           startOffset popTime invisibleTime reviveQueueId retry brokerName queueId queueOffset
    startOffsetInfo  retry queueId startOffset;…
    msgOffsetInfo    retry queueId offset,offset,…;…
    orderCountInfo   retry queueId count;…  and  retry qo<queueId>%<queueOffset> count;…

Words have one space between them. ``retry`` is 0 for the topic itself, 1 and 2 for its retry topics (before RocketMQ
5.2, and since). A handle may have a ninth word, the offset in the log, which gRPC clients bring. (``ExtraInfoUtil``)
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from .errors import DecodeError
from .java_numbers import parse_int64
from .names import RETRY_PREFIX, pop_retry_topics
from .properties import codecs

NORMAL: Final = "0"
RETRY_V1: Final = "1"
RETRY_V2: Final = "2"
_WORDS: Final = 8
_LONGEST_KEPT: Final = 256
_NUMBER: Final = "([0-9]{1,18})"
_PLAIN_HANDLE: Final = re.compile(rf"{' '.join([_NUMBER] * 4)} ([012]) ([^ ]*) {_NUMBER} {_NUMBER}(?: .*)?", re.DOTALL)
"""As brokers write it; signs, digits of other scripts and longer numbers are read word by word."""
_NUMBERS: Final = {
    0: "startOffset",
    1: "popTime",
    2: "invisibleTime",
    3: "reviveQueueId",
    6: "queueId",
    7: "queueOffset",
}


class PopHandle(NamedTuple):
    """By what a consumer names a message that it was handed; times in ms, the first since 1970."""

    start_offset: int
    popped_at_ms: int
    invisible_ms: int
    revive_queue_id: int
    retry: str
    broker_name: str
    queue_id: int
    queue_offset: int

    @property
    def ends_at_ms(self) -> int:
        """When the message comes again unless it is acknowledged."""
        return self.popped_at_ms + self.invisible_ms

    def text(self) -> str:
        """Return the handle as it stands in requests."""
        place = f"{self.retry} {self.broker_name} {self.queue_id} {self.queue_offset}"
        return f"{self.start_offset} {self.popped_at_ms} {self.invisible_ms} {self.revive_queue_id} {place}"


def parse_handle(text: str) -> PopHandle:
    """Return what a handle says.

    Raises:
        DecodeError: It has fewer words, no number where one belongs, or no kind of topic.
    """
    return _parse_kept(text) if len(text) <= _LONGEST_KEPT else _parse_handle(text)


def _parse_handle(text: str) -> PopHandle:
    if codecs is not None:
        words = codecs.parse_handle(text)
        return PopHandle(*words) if words is not None else _parse_words(text)
    if match := _PLAIN_HANDLE.fullmatch(text):
        start, popped, invisible, revive, retry, broker_name, queue_id, queue_offset = match.groups()
        numbers = (int(start), int(popped), int(invisible), int(revive))
        return PopHandle(*numbers, retry, broker_name, int(queue_id), int(queue_offset))
    return _parse_words(text)


_parse_kept = lru_cache(maxsize=1024)(_parse_handle)  # several steps of one request read the same handle


def _parse_words(text: str) -> PopHandle:
    """Read a handle word by word, to take what Java takes and to say what is wrong."""
    words = text.split(" ")
    if len(words) < _WORDS:
        raise DecodeError(f"the handle {text!r} has {len(words)} words, not {_WORDS}")
    numbers: dict[int, int] = {}
    for place, name in _NUMBERS.items():
        number = parse_int64(words[place])
        if number is None:
            raise DecodeError(f"{name} of the handle {text!r} is {words[place]!r}, which is no number")
        numbers[place] = number
    retry, broker_name = words[4:6]
    if retry not in (NORMAL, RETRY_V1, RETRY_V2):
        raise DecodeError(f"the handle {text!r} has the kind of topic {retry!r}, which is none of 0, 1 and 2")
    return PopHandle(numbers[0], numbers[1], numbers[2], numbers[3], retry, broker_name, numbers[6], numbers[7])


def retry_kind(topic: str) -> str:
    """Return which kind of topic this is for POP."""
    if not topic.startswith(RETRY_PREFIX):
        return NORMAL
    return RETRY_V2 if "+" in topic else RETRY_V1


def read_topic(topic: str, group: str, retry: str) -> str:
    """Return the topic that a message was really read from, which consumers know by the name of the normal one."""
    if retry == NORMAL:
        return topic
    since_v2, before = pop_retry_topics(topic, group)
    return since_v2 if retry == RETRY_V2 else before


def normal_topic(topic: str, group: str) -> str:
    """Return the topic that a retry topic of POP belongs to; any other topic is its own."""
    for separator in "+_":
        prefix = f"{RETRY_PREFIX}{group}{separator}"
        if topic.startswith(prefix):
            return topic.removeprefix(prefix)
    return topic


class PoppedQueue(NamedTuple):
    """What was handed out of one queue; reading began at ``start_offset``, what a filter left out is not listed."""

    retry: str
    queue_id: int
    start_offset: int
    queue_offsets: list[int]


QueueKey = tuple[str, int]
"""The kind of topic and the queue."""


def format_start_offsets(queues: Iterable[PoppedQueue]) -> str:
    """Return where reading began (``startOffsetInfo``)."""
    return ";".join(f"{each.retry} {each.queue_id} {each.start_offset}" for each in queues)


def format_offsets(queues: Iterable[PoppedQueue]) -> str:
    """Return which messages were found (``msgOffsetInfo``)."""
    return ";".join(f"{each.retry} {each.queue_id} {','.join(map(str, each.queue_offsets))}" for each in queues)


def format_order_counts(retry: str, queue_id: int, counts: Mapping[int, int]) -> str:
    """Return how often messages of an ordered queue have been handed out before (``orderCountInfo``).

    ``counts`` has all of the batch, by offset. Those that are new are left out; behind them stands the least of all.
    """
    entries = [f"{retry} qo{queue_id}%{offset} {count}" for offset, count in counts.items() if count]
    return ";".join([*entries, f"{retry} {queue_id} {min(counts.values(), default=0)}"])


def parse_start_offsets(text: str) -> dict[QueueKey, int]:
    """Return where reading began in each queue.

    Raises:
        DecodeError: An entry has other words, or a queue comes twice.
    """
    return {key: _parse_offset(word, text) for key, word in _entries(text)}


def parse_offsets(text: str) -> dict[QueueKey, list[int]]:
    """Return the offsets that were found in each queue.

    Raises:
        DecodeError: An entry has other words, or a queue comes twice.
    """
    return {key: [_parse_offset(each, text) for each in word.split(",")] for key, word in _entries(text)}


def parse_order_counts(text: str) -> dict[tuple[str, str], int]:
    """Return how often messages were handed out before, by kind and ``qo<queueId>%<offset>`` or queue.

    Raises:
        DecodeError: An entry has other words, or something comes twice.
    """
    return {(retry, name): _parse_offset(word, text) for (retry, name), word in _words(text)}


def _entries(text: str) -> Iterable[tuple[QueueKey, str]]:
    for (retry, name), word in _words(text):
        yield (retry, _parse_offset(name, text)), word


def _words(text: str) -> Iterable[tuple[tuple[str, str], str]]:
    seen: set[tuple[str, str]] = set()
    for entry in text.split(";") if text else ():
        words = entry.split(" ")
        if len(words) != 3:
            raise DecodeError(f"the entry {entry!r} of {text!r} has {len(words)} words, not 3")
        key = words[0], words[1]
        if key in seen:
            raise DecodeError(f"{text!r} names {key[0]} {key[1]} twice")
        seen.add(key)
        yield key, words[2]


def _parse_offset(word: str, text: str) -> int:
    number = parse_int64(word)
    if number is None:
        raise DecodeError(f"{word!r} in {text!r} is no number")
    return number
