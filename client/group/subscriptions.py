"""What one consumer has subscribed to, and what heartbeats say of it.

A subscription's version is the instant of its last change; brokers replace an older one by a newer one. It also moves
when the owned queues change (Java's ``RebalancePushImpl.messageQueueChanged``).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from ...common.clock import Clock
from ...common.subscriptions.sql_filter import compile_sql
from ...common.subscriptions.subscription import SQL92_TYPE, Subscription, parse_tag_expression
from ...remoting.bodies.client import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData
from ..session.settings import ConsumeFrom, check_topic


@dataclass(frozen=True, slots=True)
class Sql:
    """A condition on the properties of messages, for subscriptions (Java's ``MessageSelector.bySql``).

        consumer.subscribe("orders", Sql("amount > 100 AND region IN ('eu', 'uk')"), on_orders)

    Brokers evaluate it if ``enablePropertyFilter`` is on. ``TAGS`` and ``KEYS`` are properties too.

    Raises:
        ValueError: it is no condition.
    """

    expression: str

    def __post_init__(self) -> None:
        """Refuse what brokers would refuse."""
        if not isinstance(self.expression, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
            raise TypeError(f"the condition is {type(self.expression).__name__}, it must be str")
        compile_sql(self.expression)


def subscription_of(topic: str, expression: str | Sql, version: int = 0) -> Subscription:
    """Return what an application wants of a topic.

    Raises:
        ValueError: the expression holds no tag.
        TypeError: the expression is neither a text nor ``Sql``.
    """
    if isinstance(expression, Sql):
        return Subscription(topic, expression.expression, expression_type=SQL92_TYPE, version=version)
    if isinstance(expression, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        return parse_tag_expression(topic, expression, version=version)
    raise TypeError(f"the expression is {type(expression).__name__}, it must be str or Sql")


class SubscriptionTable:
    """The subscriptions of one consumer by topic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subscriptions: dict[str, Subscription] = {}
        self.by_topic: Mapping[str, Subscription] = MappingProxyType(self._subscriptions)

    def __repr__(self) -> str:
        texts = (f"{each.topic}: {each.expression}" for each in self._subscriptions.values())
        return f"<SubscriptionTable {', '.join(texts)}>"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are subscribed to."""
        return tuple(self._subscriptions)

    def put(self, topic: str, expression: str | Sql) -> None:
        """Subscribe to a topic, or change what is wanted of it.

        Raises:
            ValueError: the topic cannot exist, or the expression holds no tag.
            TypeError: the expression is neither a text nor ``Sql``.
        """
        check_topic(topic)
        self._subscriptions[topic] = subscription_of(topic, expression, self._clock.now_ms())

    def remove(self, topic: str) -> None:
        """End the subscription to a topic, if there is one."""
        self._subscriptions.pop(topic, None)

    def renew(self, topic: str) -> None:
        """Give a subscription a new version."""
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            version = max(self._clock.now_ms(), subscription.version + 1)
            self._subscriptions[topic] = msgspec.structs.replace(subscription, version=version)

    def consumer_data(
        self, group: str, consume_type: ConsumeType, consume_from: ConsumeFrom, *, is_broadcast: bool = False
    ) -> ConsumerData:
        """Return the consumer as heartbeats name it."""
        return ConsumerData(
            consume_from_where=ConsumeFromWhere(consume_from.value),
            consume_type=consume_type,
            group_name=group,
            message_model=MessageModel.BROADCASTING if is_broadcast else MessageModel.CLUSTERING,
            subscription_data_set=[SubscriptionData.from_subscription(each) for each in self._subscriptions.values()],
        )
