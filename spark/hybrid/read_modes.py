"""What a reading reads, and which options belong to that.

path | paths      stores: the files of a log
nameserver        a running cluster
columns           of both: only these, separated by commas, in this order
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
from ..cluster.cluster_options import CLUSTER_OPTIONS, END_NAMES, START_NAMES, STRATEGY, LiveOptions, parse_live
from ..cluster.queue_ranges import Extent
from ..options.cluster_access import NAMESERVER
from ..options.option_values import Given
from ..options.store_options import STORE_OPTIONS, SourceOptions, parse_options
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

    stores: SourceOptions
    live: LiveOptions
    store_brokers: Mapping[str, str | None]


def parse_hybrid(given: Given) -> HybridOptions:
    """Return the options.

    Raises:
        ConfigError: A value that cannot be used, options that contradict each other, or one of another reading.
    """
    given.refuse_both(_SUBSCRIBE, _TOPICS)
    given.refuse_both(_PATTERN, _TOPICS)
    for name in sorted(_BOUNDS - _TIMES):
        if name in given:
            raise ConfigError(f"{name} does not fit: where the stores end, the cluster goes on", key=name)
    stores, live = parse_options(given), parse_live(_with_choice(given))
    selection = replace(stores.selection, topics=live.choice.topics)
    everything = replace(stores.selection, topics=frozenset(), includes_system=True)
    return HybridOptions(
        replace(stores, selection=selection), replace(live, selection=everything), _parse_store_brokers(given)
    )


def _with_choice(given: Given) -> Given:
    if _SUBSCRIBE in given or _PATTERN in given:
        return given
    topics = given.text(_TOPICS)
    return given.plus(_PATTERN, ".*") if topics is None else given.plus(_SUBSCRIBE, topics)


def _parse_store_brokers(given: Given) -> dict[str, str | None]:
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


def reading_options(options: Mapping[str, str]) -> Given:
    """Return the options of a reading, of whatever mode.

    Raises:
        ConfigError: An unknown name.
    """
    return Given(options, _EVERY_NAME, ROLE)


def find_mode(given: Given) -> Mode:
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


def check_batch(given: Given, mode: Mode) -> None:
    """Raise ``ConfigError`` for an option that belongs to something else than a batch of this mode."""
    given.refuse_others(_BATCH_NAMES[mode], f"it is no option of a batch that reads {mode}")


def check_stream(mode: Mode) -> None:
    """Raise ``ConfigError`` for what cannot be read as a stream."""
    if mode is Mode.STORES:
        raise ConfigError(f"stores alone are no stream; give the {NAMESERVER} of their cluster as well", key=NAMESERVER)


def pick_schema(given: Given, mode: Mode) -> pa.Schema:
    """Return the columns of a reading: those of option ``columns``, in its order, or all.

    Raises:
        ConfigError: There is no such column.
    """
    names = _column_names(given)
    if names is None:
        with_system = given.flag("includeSystemTopics", default=False)
        names = [*(FULL_SCHEMA if with_system else SCHEMA).names, *([] if mode is Mode.STORES else [BROKER_COLUMN])]
    return pick_columns(names) if mode is Mode.STORES else pick_live_columns(names)


def check_columns(given: Given, schema: pa.Schema) -> None:
    """Raise ``ConfigError`` when a schema was given that is not what option ``columns`` asks for."""
    names = _column_names(given)
    if names is not None and names != schema.names:
        raise ConfigError(f"{COLUMNS} and the given schema contradict each other; give one of them", key=COLUMNS)


def _column_names(given: Given) -> list[str] | None:
    text = given.text(COLUMNS)
    if text is None:
        return None
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError(f"{COLUMNS} names no column", key=COLUMNS)
    return names


_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Snapshot:
    """The log offset at which each store ended, and what each queue of the cluster held; empty where none is read.

    ``log_bytes`` are those of all stores.
    """

    log_ends: Mapping[str, int] = field(default_factory=dict[str, int])
    extents: Mapping[MessageQueue, Extent] = field(default_factory=dict[MessageQueue, Extent])
    log_bytes: int = 0


def take_snapshot(options: Mapping[str, str]) -> Snapshot | None:
    """Look where everything ends that a batch with these options reads.

    It is ``None`` for the options of a stream or of a sink, and where something is not there or does not answer: that
    is told when it is read.
    """
    try:
        return _take(_parse_batch(options))
    except RocketletError as error:
        _log.debug("where a table ends is found when it is read: %s", error)
        return None


def _take(parsed: SourceOptions | LiveOptions | HybridOptions) -> Snapshot:
    if isinstance(parsed, LiveOptions):
        return Snapshot(extents=_extents_of(parsed, needs_all=True))
    stores = parsed if isinstance(parsed, SourceOptions) else parsed.stores
    plan = plan_prefixes(stores.stores, stores.planning)
    snapshot = Snapshot(log_ends(plan), log_bytes=sum(map(len, plan.splits)))
    if isinstance(parsed, HybridOptions):
        return replace(snapshot, extents=_extents_of(parsed.live, needs_all=False))
    return snapshot


def _parse_batch(options: Mapping[str, str]) -> SourceOptions | LiveOptions | HybridOptions:
    given = reading_options(options)
    mode = find_mode(given)
    check_batch(given, mode)
    if mode is Mode.STORES:
        return parse_options(given)
    return parse_live(given) if mode is Mode.CLUSTER else parse_hybrid(given)


def _extents_of(options: LiveOptions, *, needs_all: bool) -> dict[MessageQueue, Extent]:
    from ..cluster.cluster import Cluster
    from ..cluster.cluster_options import find_present, find_queues

    cluster = Cluster(replace(options.access, retries=0))
    return cluster.extents((find_queues if needs_all else find_present)(cluster, options.choice))
