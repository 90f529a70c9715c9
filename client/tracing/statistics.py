"""What producers and consumers did, by group and topic (Java's ``ConsumerStatsManager``, and the same for sends).

Counts run from the beginning; rates and averages are those of the last minute, in steps of ten seconds. An object of
``Statistics`` is a hook: who does not pass one pays nothing for it.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ...common.clock import Clock
from ...remoting.bodies.client import TopicFigures
from ...remoting.transport.event_loop import LoopClock
from ..session.hooks import ConsumeContext, PullContext, SendContext

STEP_MS = 10_000
STEPS_OF_MINUTE = 6
STEPS_OF_HOUR = 60 * STEPS_OF_MINUTE


class LastMinute(NamedTuple):
    """What was counted in the last minute."""

    messages: int
    calls: int
    took_ms: int

    @property
    def per_second(self) -> float:
        """Messages for each second of the minute."""
        return self.messages * 1000 / (STEP_MS * STEPS_OF_MINUTE)

    @property
    def average_ms(self) -> float:
        """How long one call took on average; 0 without calls."""
        return self.took_ms / self.calls if self.calls else 0.0


class Tally:
    """Messages, the calls that they came in, and how long those took."""

    __slots__ = ("_steps", "calls", "longest_ms", "messages", "took_ms")

    def __init__(self) -> None:
        self.messages = 0
        self.calls = 0
        self.took_ms = 0
        self.longest_ms = 0
        self._steps: deque[list[int]] = deque(
            maxlen=STEPS_OF_HOUR
        )  # number of the step, then the fields of ``LastMinute``

    def __repr__(self) -> str:
        return f"<Tally {self.messages} messages in {self.calls} calls>"

    def add(self, messages: int, took_ms: int, at_ms: int) -> None:
        """Count one call."""
        self.messages += messages
        self.calls += 1
        self.took_ms += took_ms
        self.longest_ms = max(self.longest_ms, took_ms)
        number = at_ms // STEP_MS
        if not self._steps or self._steps[-1][0] < number:
            self._steps.append([number, 0, 0, 0])
        step = self._steps[-1]
        step[1] += messages
        step[2] += 1
        step[3] += took_ms

    def last_minute(self, now_ms: int) -> LastMinute:
        """Return what was counted in the last six steps, the present one among them."""
        recent = self._since(now_ms // STEP_MS - STEPS_OF_MINUTE)
        return LastMinute(*(sum(step[field] for step in recent) for field in (1, 2, 3)))

    def in_last_hour(self, now_ms: int) -> int:
        """Return how many messages were counted in the last hour."""
        return sum(step[1] for step in self._since(now_ms // STEP_MS - STEPS_OF_HOUR))

    def _since(self, number: int) -> list[list[int]]:
        return [step for step in self._steps if step[0] > number]


class TopicStatistics:
    """The tallies of one group and topic."""

    __slots__ = ("_now_ms", "consumed", "failed_consumes", "failed_sends", "pulled", "sent")

    def __init__(self, clock: Clock) -> None:
        self.sent = Tally()  # one-way sends as well
        self.failed_sends = Tally()
        self.pulled = Tally()
        self.consumed = Tally()
        self.failed_consumes = Tally()
        self._now_ms = clock.now_ms

    def __repr__(self) -> str:
        return f"<TopicStatistics sent={self.sent!r} consumed={self.consumed!r} failed={self.failed_consumes!r}>"

    def last_minute(self, tally: Tally) -> LastMinute:
        """Return what one of the tallies counted in the last minute."""
        return tally.last_minute(self._now_ms())


class Statistics:
    """Counts for all producers and consumers whose ``settings.hooks`` it is in.

    statistics = Statistics()
    settings = PushConsumerSettings(hooks=(statistics,))
    ...
    print(statistics.of("billing", "orders").consumed.messages)
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or LoopClock()
        self._topics: dict[tuple[str, str], TopicStatistics] = {}

    @classmethod
    def among(cls, hooks: Iterable[object]) -> "Statistics | None":
        """Return the first of its kind among hooks."""
        return next((hook for hook in hooks if isinstance(hook, cls)), None)

    def __repr__(self) -> str:
        return f"<Statistics of {len(self._topics)} groups and topics>"

    @property
    def topics(self) -> Mapping[tuple[str, str], TopicStatistics]:
        """The statistics by group and topic."""
        return MappingProxyType(self._topics)

    def of(self, group: str, topic: str) -> TopicStatistics:
        """Return the statistics of one group and topic."""
        found = self._topics.get((group, topic))
        return self._topics.setdefault((group, topic), TopicStatistics(self._clock)) if found is None else found

    def figures_of(self, group: str, topic: str) -> TopicFigures:
        """Return what a consumer says of itself when it is asked (Java's ``ConsumeStatus``)."""
        found = self._topics.get((group, topic))
        if found is None:
            return TopicFigures()
        pulled, good, bad = (found.last_minute(each) for each in (found.pulled, found.consumed, found.failed_consumes))
        calls = good.calls + bad.calls
        return TopicFigures(
            pull_ms=pulled.average_ms,
            pulled_per_second=pulled.per_second,
            consume_ms=(good.took_ms + bad.took_ms) / calls if calls else 0.0,
            succeeded_per_second=good.per_second,
            failed_per_second=bad.per_second,
            failed_in_hour=found.failed_consumes.in_last_hour(self._clock.now_ms()),
        )

    # what hooks do

    def before_send(self, context: SendContext) -> None:
        """Do nothing."""

    def after_send(self, context: SendContext) -> None:
        """Count an attempt to send."""
        topic = self.of(context.group, context.queue.topic)
        tally = topic.sent if context.error is None else topic.failed_sends
        tally.add(len(context.messages), context.ended_at_ms - context.started_at_ms, context.ended_at_ms)

    def before_consume(self, context: ConsumeContext) -> None:
        """Do nothing."""

    def after_consume(self, context: ConsumeContext) -> None:
        """Count a call of a listener."""
        topic = self.of(context.group, context.messages[0].topic)
        tally = topic.consumed if context.has_succeeded else topic.failed_consumes
        tally.add(len(context.messages), context.ended_at_ms - context.started_at_ms, context.ended_at_ms)

    def after_pull(self, context: PullContext) -> None:
        """Count a pull that brought messages; how long one without was held says nothing."""
        if context.messages:
            took_ms = context.ended_at_ms - context.started_at_ms
            self.of(context.group, context.queue.topic).pulled.add(len(context.messages), took_ms, context.ended_at_ms)
