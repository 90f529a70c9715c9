"""What one consumer has subscribed to, and what heartbeats say of it.

A subscription's version is the instant of its last change; brokers replace an older one by a newer one. It also moves
when the owned queues change (Java's ``RebalancePushImpl.messageQueueChanged``).
"""

import msgspec

from ..common.clock import Clock
from ..common.subscription import Subscription, parse_tag_expression
from ..remoting.bodies_client import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel, SubscriptionData
from .outgoing import check_topic
from .results import ConsumeFrom


class SubscriptionTable:
    """The subscriptions of one consumer by topic."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._subscriptions: dict[str, Subscription] = {}

    def __repr__(self) -> str:
        texts = (f"{each.topic}: {each.expression}" for each in self._subscriptions.values())
        return f"<SubscriptionTable {', '.join(texts)}>"

    def get(self, topic: str) -> Subscription | None:
        """Return what is wanted of a topic now."""
        return self._subscriptions.get(topic)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that are subscribed to."""
        return tuple(self._subscriptions)

    def put(self, topic: str, expression: str) -> None:
        """Subscribe to a topic, or change what is wanted of it.

        Raises:
            ValueError: the topic cannot exist, or the expression holds no tag.
        """
        check_topic(topic)
        self._subscriptions[topic] = parse_tag_expression(topic, expression, version=self._clock.now_ms())

    def remove(self, topic: str) -> None:
        """End the subscription to a topic, if there is one."""
        self._subscriptions.pop(topic, None)

    def renew(self, topic: str) -> None:
        """Give a subscription a new version."""
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            version = max(self._clock.now_ms(), subscription.version + 1)
            self._subscriptions[topic] = msgspec.structs.replace(subscription, version=version)

    def consumer_data(self, group: str, consume_type: ConsumeType, consume_from: ConsumeFrom) -> ConsumerData:
        """Return the consumer as heartbeats name it."""
        return ConsumerData(
            consume_from_where=ConsumeFromWhere(consume_from.value),
            consume_type=consume_type,
            group_name=group,
            message_model=MessageModel.CLUSTERING,
            subscription_data_set=[SubscriptionData.from_subscription(each) for each in self._subscriptions.values()],
        )
