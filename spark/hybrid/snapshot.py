"""Where the logs of stores and the queues of a cluster ended when a table was loaded.

Rule: Spark keeps what a source is when it is created, in ``load``, and may plan a reading of it many times. All of them
end where it ended then, so that all that is computed from one ``load`` sees the same messages.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...common.errors import RocketletError
from ...common.message import MessageQueue
from ...export.plan.read_plan import plan_prefixes
from ..cluster.liveoptions import LiveOptions, parse_live
from ..cluster.liverange import Extent
from ..options.options import SourceOptions, parse_options
from .history import log_ends
from .hybridoptions import HybridOptions, parse_hybrid
from .modes import Mode, check_batch, find_mode, reading_options

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
    from ..cluster.choice import find_present, find_queues
    from ..cluster.cluster import Cluster

    cluster = Cluster(replace(options.access, retries=0))
    return cluster.extents((find_queues if needs_all else find_present)(cluster, options.choice))
