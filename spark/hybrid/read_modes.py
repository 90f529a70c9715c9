"""Tells what a reading reads, which options belong to that, and where it ended when a table was loaded.

path | paths                stores: the files of a log
nameserver                  a running cluster
path | paths, nameserver    both: begins with the stores and goes on with the cluster of their brokers; takes what a
                            reading of stores or of a cluster takes, but for where to begin and end
subscribe, subscribePattern | topics
                            of both, the topics, in stores and cluster alike; without any of them all topics
storeBrokers                of both, whose stores they are, where their records do not tell: {"/data/a": "broker-a"};
                            null for a broker that runs no more
columns                     only these, separated by commas, in this order

Rule: Spark keeps what a source is when it is created, in ``load``, and may plan a reading of it many times. All of them
end where it ended then (``LoadSnapshot``), so that all that is computed from one ``load`` sees the same messages.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, cast

import pyarrow as pa

from ...common.errors import ConfigError, RocketletError
from ...common.message import MessageQueue
from ...export.columns.schema import FULL_SCHEMA, SCHEMA, pick_columns
from ...export.plan.read_plan import plan_prefixes
from ...export.write.pulled_reader import BROKER_COLUMN, pick_live_columns
from ..cluster.cluster_options import (
    CLUSTER_OPTIONS,
    END_NAMES,
    START_NAMES,
    STRATEGY,
    ClusterOptions,
    parse_cluster_options,
)
from ..cluster.queue_ranges import QueueExtent
from ..options.cluster_access import NAMESERVER
from ..options.option_values import OptionValues
from ..options.store_options import STORE_OPTIONS, StoreOptions, parse_store_options
from ..stream.stream_options import STREAM_OPTIONS
from .handoff import STORE_BROKERS, log_ends

_SUBSCRIBE: Final = "subscribe"
_PATTERN: Final = "subscribePattern"
_TOPICS: Final = "topics"
_BOUNDS: Final = frozenset((*START_NAMES, *END_NAMES, STRATEGY, "assign"))
_TIMES: Final = frozenset(("startingTimestamp", "endingTimestamp"))
HYBRID_OPTIONS: Final = (STORE_BROKERS,)
_HYBRID_NAMES: Final = frozenset((*CLUSTER_OPTIONS, *STORE_OPTIONS, *HYBRID_OPTIONS))


@dataclass(frozen=True)
class HybridOptions:
    """What a reading was asked for; travels to the tasks."""

    stores: StoreOptions
    live: ClusterOptions
    store_brokers: Mapping[str, str | None]


def parse_hybrid(given: OptionValues) -> HybridOptions:
    """Return the options.

    Raises:
        ConfigError: A value that cannot be used, options that contradict each other, or one of another reading.
    """
    given.refuse_both(_SUBSCRIBE, _TOPICS)
    given.refuse_both(_PATTERN, _TOPICS)
    for name in sorted(_BOUNDS - _TIMES):
        if name in given:
            raise ConfigError(f"{name} does not fit: where the stores end, the cluster goes on", key=name)
    stores, live = parse_store_options(given), parse_cluster_options(_with_choice(given))
    selection = replace(stores.selection, topics=live.choice.topics)
    everything = replace(stores.selection, topics=frozenset(), includes_system=True)
    return HybridOptions(
        replace(stores, selection=selection), replace(live, selection=everything), _parse_store_brokers(given)
    )


def _with_choice(given: OptionValues) -> OptionValues:
    if _SUBSCRIBE in given or _PATTERN in given:
        return given
    topics = given.text(_TOPICS)
    return given.plus(_PATTERN, ".*") if topics is None else given.plus(_SUBSCRIBE, topics)


def _parse_store_brokers(given: OptionValues) -> dict[str, str | None]:
    value: Any = given.json(STORE_BROKERS) or {}
    table = cast("dict[str, Any]", value if isinstance(value, dict) else {"": value})
    if not all(broker is None or isinstance(broker, str) for broker in table.values()):
        raise ConfigError(f'{STORE_BROKERS} is not of the form {{"STORE": "BROKER"}}: {value!r}', key=STORE_BROKERS)
    return table


ROLE: Final = "the rocketmq source"
COLUMNS: Final = "columns"
_EVERY_NAME: Final = frozenset((*STORE_OPTIONS, *CLUSTER_OPTIONS, *STREAM_OPTIONS, *HYBRID_OPTIONS))


class Mode(StrEnum):
    """What a reading reads."""

    STORES = "stores"
    CLUSTER = "a cluster"
    HYBRID = "stores and their cluster"


_BATCH_NAMES: Final = {
    Mode.STORES: STORE_OPTIONS,
    Mode.CLUSTER: CLUSTER_OPTIONS,
    Mode.HYBRID: _HYBRID_NAMES,
}


def reading_options(options: Mapping[str, str]) -> OptionValues:
    """Return the options of a reading, of whatever mode.

    Raises:
        ConfigError: An unknown name.
    """
    return OptionValues(options, _EVERY_NAME, ROLE)


def find_mode(given: OptionValues) -> Mode:
    """Return what is to be read.

    Raises:
        ConfigError: Nothing is named.
    """
    has_stores = "path" in given or "paths" in given
    if has_stores:
        return Mode.HYBRID if NAMESERVER in given else Mode.STORES
    if NAMESERVER in given:
        return Mode.CLUSTER
    raise ConfigError(f'no store is named: load("STORE"), or load(["STORE", …]); nor a {NAMESERVER}', key="path")


def check_batch(given: OptionValues, mode: Mode) -> None:
    """Raise ``ConfigError`` for an option that belongs to something else than a batch of this mode."""
    given.refuse_others(_BATCH_NAMES[mode], f"it is no option of a batch that reads {mode}")


def check_stream(mode: Mode) -> None:
    """Raise ``ConfigError`` for what cannot be read as a stream."""
    if mode is Mode.STORES:
        raise ConfigError(f"stores alone are no stream; give the {NAMESERVER} of their cluster as well", key=NAMESERVER)


def pick_schema(given: OptionValues, mode: Mode) -> pa.Schema:
    """Return the columns of a reading: those of option ``columns``, in its order, or all.

    Raises:
        ConfigError: There is no such column.
    """
    names = _column_names(given)
    if names is None:
        with_system = given.flag("includeSystemTopics", default=False)
        names = [*(FULL_SCHEMA if with_system else SCHEMA).names, *([] if mode is Mode.STORES else [BROKER_COLUMN])]
    return pick_columns(names) if mode is Mode.STORES else pick_live_columns(names)


def check_columns(given: OptionValues, schema: pa.Schema) -> None:
    """Raise ``ConfigError`` when a schema was given that is not what option ``columns`` asks for."""
    names = _column_names(given)
    if names is not None and names != schema.names:
        raise ConfigError(f"{COLUMNS} and the given schema contradict each other; give one of them", key=COLUMNS)


def _column_names(given: OptionValues) -> list[str] | None:
    text = given.text(COLUMNS)
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"{COLUMNS} names no column", key=COLUMNS)
    return names


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadSnapshot:
    """The log offset at which each store ended, and what each queue of the cluster held; empty where none is read.

    ``log_bytes`` are those of all stores.
    """

    log_ends: Mapping[str, int] = field(default_factory=dict[str, int])
    extents: Mapping[MessageQueue, QueueExtent] = field(default_factory=dict[MessageQueue, QueueExtent])
    log_bytes: int = 0


def take_snapshot(options: Mapping[str, str]) -> LoadSnapshot | None:
    """Look where everything ends that a batch with these options reads.

    It is ``None`` for the options of a stream or of a sink, and where something is not there or does not answer: that
    is told when it is read.
    """
    try:
        return _take(_parse_batch(options))
    except RocketletError as error:
        _log.debug("where a table ends is found when it is read: %s", error)
        return None


def _take(parsed: StoreOptions | ClusterOptions | HybridOptions) -> LoadSnapshot:
    if isinstance(parsed, ClusterOptions):
        return LoadSnapshot(extents=_extents_of(parsed, needs_all=True))
    stores = parsed if isinstance(parsed, StoreOptions) else parsed.stores
    plan = plan_prefixes(stores.stores, stores.planning)
    snapshot = LoadSnapshot(log_ends(plan), log_bytes=sum(map(len, plan.splits)))
    if isinstance(parsed, HybridOptions):
        return replace(snapshot, extents=_extents_of(parsed.live, needs_all=False))
    return snapshot


def _parse_batch(options: Mapping[str, str]) -> StoreOptions | ClusterOptions | HybridOptions:
    given = reading_options(options)
    mode = find_mode(given)
    check_batch(given, mode)
    if mode is Mode.STORES:
        return parse_store_options(given)
    return parse_cluster_options(given) if mode is Mode.CLUSTER else parse_hybrid(given)


def _extents_of(options: ClusterOptions, *, needs_all: bool) -> dict[MessageQueue, QueueExtent]:
    from ..cluster.cluster import Cluster
    from ..cluster.cluster_options import find_present, find_queues

    cluster = Cluster(replace(options.access, retries=0))
    return cluster.extents((find_queues if needs_all else find_present)(cluster, options.choice))
