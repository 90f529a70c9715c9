"""The statistics that have names, as VIEW_BROKER_STATS_DATA(315) tells them (``BrokerStatsManager``; behaviour.md D.5).

    name                                            key
    TOPIC_PUT_NUMS, TOPIC_PUT_SIZE                  topic
    TOPIC_PUT_LATENCY                               queueId@topic
    QUEUE_PUT_NUMS, QUEUE_PUT_SIZE                  topic@queueId
    GROUP_GET_NUMS, GROUP_GET_SIZE                  topic@group
    GROUP_GET_LATENCY                               queueId@topic@group
    QUEUE_GET_NUMS, QUEUE_GET_SIZE                  topic@queueId@group
    SNDBCK_PUT_NUMS                                 topic@group, the topic being the one first sent to
    SNDBCK2DLQ_TIMES                                null@topic@group@SEND_BACK_TO_DLQ
    BROKER_PUT_NUMS, BROKER_GET_NUMS                cluster; with _WITHOUT_SYSTEM_TOPIC those of user topics alone
    CONSUMER_REGISTER_TIME, PRODUCER_REGISTER_TIME  cluster
    CHANNEL_ACTIVITY                                CONNECT, CLOSE, EXCEPTION, IDLE

Rules

    1. What has never happened does not exist, and neither does what has not happened for a day, or whose topic or
       group is gone: tools take the error for "no data". What has happened once exists, with zeros until it is sampled.
    2. Latencies are in milliseconds: from a record's store time until it is readable, of a read, and of taking in a
       member with its heartbeat.
    3. Names that a 5.4.0 broker keeps elsewhere (GROUP_GET_FALL_SIZE, GROUP_GET_FALL_TIME), fills for POP alone
       (BROKER_ACK_NUMS, …) or never (DLQ_PUT_NUMS) do not exist here either.
    4. A 5.4.0 broker tells of single queues (QUEUE_…) only those in which delayed messages wait, here all are told.
    5. Where the key of SNDBCK2DLQ_TIMES says null, a client of Alibaba's cloud names its owner; others do not.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ..group.members import RegisterCounts
from ..outcomes.scheduler import PutCounts
from ..pull.fetch import ReadCounts
from ..send.send import SendBackCounts
from .statistics import BrokerStatistics
from .windows import WINDOWS, Growth, SampledCounts

_SEPARATOR = "@"


class _Place(NamedTuple):
    """Where a key points to: a row of a table, or all of one key."""

    key: Any
    queue_id: int | None = None


class _Statistic(NamedTuple):
    """A column of a table, the one that counts how often it grew, and how its keys are read."""

    table: str
    column: int
    times: int | None
    place: Callable[[list[str]], _Place | None]
    row: str | None = None  # of one whose key is the cluster


def _one(parts: list[str]) -> _Place | None:
    return _Place(parts[0]) if len(parts) == 1 else None


def _pair(parts: list[str]) -> _Place | None:
    return _Place((parts[0], parts[1])) if len(parts) == 2 else None


def _dead_letters(parts: list[str]) -> _Place | None:
    is_whole = len(parts) == 4 and (parts[0], parts[3]) == ("null", "SEND_BACK_TO_DLQ")
    return _pair(parts[1:3]) if is_whole else None


def _queue_first(parts: list[str]) -> _Place | None:
    if len(parts) not in (2, 3) or not parts[0].isdecimal():
        return None
    return _Place(parts[1] if len(parts) == 2 else (parts[1], parts[2]), int(parts[0]))


def _queue_second(parts: list[str]) -> _Place | None:
    return _queue_first([parts[1], parts[0], *parts[2:]]) if len(parts) > 1 else None


def _register_time(role: str) -> _Statistic:
    return _Statistic("registers", RegisterCounts.MILLISECONDS, RegisterCounts.TIMES, _one, role)


_STATISTICS: Mapping[str, _Statistic] = {
    "TOPIC_PUT_NUMS": _Statistic("topic_puts", PutCounts.MESSAGES, PutCounts.MESSAGES, _one),
    "TOPIC_PUT_SIZE": _Statistic("topic_puts", PutCounts.BYTES, PutCounts.MESSAGES, _one),
    "TOPIC_PUT_LATENCY": _Statistic("topic_puts", PutCounts.MILLISECONDS, PutCounts.MESSAGES, _queue_first),
    "QUEUE_PUT_NUMS": _Statistic("topic_puts", PutCounts.MESSAGES, PutCounts.MESSAGES, _queue_second),
    "QUEUE_PUT_SIZE": _Statistic("topic_puts", PutCounts.BYTES, PutCounts.MESSAGES, _queue_second),
    "GROUP_GET_NUMS": _Statistic("group_reads", ReadCounts.MESSAGES, ReadCounts.FETCHES, _pair),
    "GROUP_GET_SIZE": _Statistic("group_reads", ReadCounts.BYTES, ReadCounts.FETCHES, _pair),
    "GROUP_GET_LATENCY": _Statistic("group_reads", ReadCounts.MILLISECONDS, ReadCounts.FETCHES, _queue_first),
    "QUEUE_GET_NUMS": _Statistic("group_reads", ReadCounts.MESSAGES, ReadCounts.FETCHES, _queue_second),
    "QUEUE_GET_SIZE": _Statistic("group_reads", ReadCounts.BYTES, ReadCounts.FETCHES, _queue_second),
    "SNDBCK_PUT_NUMS": _Statistic("send_backs", SendBackCounts.MESSAGES, SendBackCounts.MESSAGES, _pair),
    "SNDBCK2DLQ_TIMES": _Statistic(
        "send_backs", SendBackCounts.DEAD_LETTERS, SendBackCounts.DEAD_LETTERS, _dead_letters
    ),
    "BROKER_PUT_NUMS": _Statistic("whole_broker", 0, None, _one, ""),
    "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": _Statistic("whole_broker", 1, None, _one, ""),
    "BROKER_GET_NUMS": _Statistic("whole_broker", 2, None, _one, ""),
    "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": _Statistic("whole_broker", 3, None, _one, ""),
    "CONSUMER_REGISTER_TIME": _register_time(RegisterCounts.CONSUMER),
    "PRODUCER_REGISTER_TIME": _register_time(RegisterCounts.PRODUCER),
    "CHANNEL_ACTIVITY": _Statistic("channels", 0, 0, _one),
}


_SUMMED = frozenset({"whole_broker", "channels"})
"""The tables whose rows are sums of others."""


class NamedStatistics:
    """Finds statistics by name and key."""

    def __init__(self, statistics: BrokerStatistics, cluster: str) -> None:
        self._cluster = cluster
        self._statistics = statistics
        self._tables: Mapping[str, SampledCounts[Any]] = {
            "topic_puts": statistics.topic_puts,
            "group_reads": statistics.group_reads,
            "send_backs": statistics.send_backs,
            "whole_broker": statistics.whole_broker,
            "registers": statistics.registers,
            "channels": statistics.channels,
        }

    def find(self, name: str, key: str) -> list[Growth] | None:
        """Return the growth in each of the ``WINDOWS``, None when there is no such statistic."""
        statistic = _STATISTICS.get(name)
        place = statistic and statistic.place(key.split(_SEPARATOR))
        if statistic is None or place is None:
            return None
        if statistic.row is not None:
            if key != self._cluster:
                return None
            place = _Place(statistic.row)
        if statistic.table in _SUMMED:
            self._statistics.take_totals()
        table = self._tables[statistic.table]
        column = statistic.column if statistic.times is None else statistic.times
        if not _total(table, place, column):
            return None
        return [
            table.growth(place.key, number, statistic.column, statistic.times, place.queue_id)
            for number in range(len(WINDOWS))
        ]


def _total(table: SampledCounts[Any], place: _Place, column: int) -> int:
    queues: Mapping[int, list[int]] = table.counts.get(place.key, {})
    if place.queue_id is None:
        return sum(row[column] for row in queues.values())
    return queues[place.queue_id][column] if place.queue_id in queues else 0
