"""Which queues of a cluster are read: named topics, topics that a pattern matches, or named queues."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from ...common.errors import ConfigError
from ...common.message import MessageQueue
from ..options.optionvalues import Given

if TYPE_CHECKING:  # it imports the client, which who reads stores does without
    from .cluster import Cluster

# Broker (None: each) and queue id, by topic.
Wanted = Mapping[str, frozenset[tuple[str | None, int]]]

NAMES: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True)
class Choice:
    """Which topics and queues are read; ``queues`` holds broker (None: every one) and queue id by topic."""

    option: str
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    queues: Wanted = field(default_factory=dict[str, frozenset[tuple[str | None, int]]])
    includes_system: bool = False


def find_queues(cluster: "Cluster", choice: Choice, *, needs_any: bool = True) -> dict[MessageQueue, str]:
    """Return the queues that are read, with the addresses of their brokers.

    Raises:
        ConfigError: A topic or queue is not there; without ``needs_any``, a pattern may match no topic.
        RemotingError, ResponseError: A name server cannot be asked.
    """
    if choice.pattern is None:
        queues = cluster.queues(choice.topics)
        return _pick_queues(choice.queues, queues) if choice.queues else queues
    pattern = re.compile(choice.pattern)
    topics = [name for name in cluster.topics(includes_system=choice.includes_system) if pattern.fullmatch(name)]
    queues = cluster.queues(topics, skips_missing=True)
    if needs_any and not queues:
        raise ConfigError(f"subscribePattern {choice.pattern!r} matches no topic that can be read", key=choice.option)
    return queues


def find_present(cluster: "Cluster", choice: Choice) -> dict[MessageQueue, str]:
    """Return the queues that are read as far as they are there; raises ``RemotingError`` and ``ResponseError``."""
    if choice.pattern is not None:
        return find_queues(cluster, choice, needs_any=False)
    queues = cluster.queues(choice.topics, skips_missing=True)
    return {queue: address for queue, address in queues.items() if _is_chosen(queue, choice)}


def _is_chosen(queue: MessageQueue, choice: Choice) -> bool:
    places = choice.queues.get(queue.topic, frozenset())
    return not choice.queues or not places.isdisjoint({(queue.broker_name, queue.queue_id), (None, queue.queue_id)})


def _pick_queues(wanted: Wanted, queues: Mapping[MessageQueue, str]) -> dict[MessageQueue, str]:
    found: dict[MessageQueue, str] = {}
    for topic, places in sorted(wanted.items()):
        for broker, queue_id in places:
            fitting = [q for q in queues if q.topic == topic and q.queue_id == queue_id and broker in (None, q[1])]
            if not fitting:
                place = f"queue {queue_id} of {topic}" + (f" on {broker}" if broker else "")
                known = sorted({f"{q.queue_id} on {q.broker_name}" for q in queues if q.topic == topic})
                raise ConfigError(f"assign names {place}, but there are {', '.join(known)}", key="assign")
            found |= {queue: queues[queue] for queue in fitting}
    return dict(sorted(found.items()))


def parse_choice(given: Given) -> Choice:
    """Return what the options name.

    Raises:
        ConfigError: Nothing, too much, or in another form.
    """
    chosen = [name for name in NAMES if name in given]
    if not chosen:
        raise ConfigError(
            f"nothing says what to read from the cluster; give one of {', '.join(NAMES)}", key="subscribe"
        )
    for other in chosen[1:]:
        given.refuse_both(chosen[0], other)
    includes_system = given.flag("includeSystemTopics", default=False)
    if chosen[0] == "subscribe":
        topics = given.names("subscribe")
        if not topics:
            raise ConfigError("subscribe names no topic", key="subscribe")
        return Choice("subscribe", topics, includes_system=includes_system)
    if chosen[0] == "subscribePattern":
        return Choice("subscribePattern", pattern=_parse_pattern(given), includes_system=includes_system)
    queues = _parse_assignment(given.json("assign"))
    return Choice("assign", frozenset(queues), queues=queues, includes_system=includes_system)


def _parse_pattern(given: Given) -> str:
    pattern = given.text("subscribePattern") or ""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(
            f"subscribePattern {pattern!r} is no regular expression: {error}", key="subscribePattern"
        ) from None
    return pattern


def _parse_assignment(table: Any) -> dict[str, frozenset[tuple[str | None, int]]]:
    if not isinstance(table, dict) or not table:
        raise _refused_assignment(table)
    found: dict[str, frozenset[tuple[str | None, int]]] = {}
    for topic, value in cast("dict[str, Any]", table).items():
        brokers = cast("dict[str | None, Any]", value if isinstance(value, dict) else {None: value})
        found[topic] = frozenset((broker, queue) for broker, ids in brokers.items() for queue in _queue_ids(ids))
        if not found[topic]:
            raise ConfigError(f"assign names no queue of {topic}", key="assign")
    return found


def _queue_ids(ids: Any) -> list[int]:
    found: list[Any] = cast("list[Any]", ids) if isinstance(ids, list) else [None]
    if any(type(each) is not int or each < 0 for each in found):
        raise _refused_assignment(ids)
    return found


def _refused_assignment(value: Any) -> ConfigError:
    form = '{"topic": [0, 1]} or {"topic": {"broker": [0, 1]}}'
    return ConfigError(f"assign is not of the form {form}: {value!r}", key="assign")
