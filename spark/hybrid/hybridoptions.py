"""Options of a reading that begins with stores and goes on with the cluster of their brokers.

path | paths, nameserver    both; and what a reading of stores or of a cluster takes, but for where to begin and end
subscribe, subscribePattern | topics
                            the topics, in stores and cluster alike; without any of them all topics
storeBrokers                whose stores they are, where their records do not tell: {"/data/a": "broker-a"}; null
                            for a broker that runs no more
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from ...common.errors import ConfigError
from ..cluster import liveoptions
from ..cluster.liveoptions import LiveOptions, parse_live
from ..options import options as coldoptions
from ..options.options import SourceOptions, parse_options
from ..options.optionvalues import Given
from .seam import STORE_BROKERS

_SUBSCRIBE: Final = "subscribe"
_PATTERN: Final = "subscribePattern"
_TOPICS: Final = "topics"
_BOUNDS: Final = frozenset((*liveoptions.START_NAMES, *liveoptions.END_NAMES, liveoptions.STRATEGY, "assign"))
_TIMES: Final = frozenset(("startingTimestamp", "endingTimestamp"))
NAMES: Final = (STORE_BROKERS,)
FITTING: Final = frozenset((*liveoptions.NAMES, *coldoptions.NAMES, *NAMES))


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
