"""The topics that failed messages go to: ``%RETRY%<group>`` and ``%DLQ%<group>`` (spec behaviour.md B.3.4, B.9).

A topic that is missing is made, with permission 6. Dead letters have one queue; an administrator may give them more,
and each of those is taken.
"""

import random
from typing import NamedTuple

from msgspec.structs import replace

from ...common.names import dlq_topic, retry_topic
from ...remoting.bodies.group import SubscriptionGroupConfig
from ...remoting.bodies.route import TopicConfig
from ..topic.topics import TopicTable, make_topic

UNIT_SUBSCRIPTION = 2  # TopicSysFlag.FLAG_UNIT_SUB


class FailurePlace(NamedTuple):
    """Where a failed message goes; ``new_topics`` holds the topic while the name servers do not know it."""

    topic: TopicConfig
    queue_id: int
    new_topics: tuple[str, ...]


def dead_letters(topics: TopicTable, group_name: str) -> FailurePlace:
    """Return where a message goes that its group has given up."""
    topic, is_new = topics.ensure(dlq_topic(group_name), 1)
    return FailurePlace(topic, random.randrange(max(1, topic.write_queue_nums)), (topic.topic_name,) if is_new else ())


def retries(topics: TopicTable, group: SubscriptionGroupConfig, *, is_unit: bool = False) -> FailurePlace:
    """Return where a message goes that its group is to consume again; the group has retry queues."""
    name = retry_topic(group.group_name)
    topic = topics.get(name)
    is_new = topic is None
    if topic is None:
        made = make_topic(name, group.retry_queue_nums)
        topic = topics.put(replace(made, topic_sys_flag=UNIT_SUBSCRIPTION if is_unit else 0))
    return FailurePlace(topic, random.randrange(group.retry_queue_nums), (name,) if is_new else ())
