"""Topics and groups for measurements of what asks for all of them."""

import pathlib
from typing import Final

import msgspec

from rocketlet.broker.group.groups import OffsetFile
from rocketlet.common.metadata import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfig,
    TopicConfigTable,
)

QUEUES: Final = 8
_TOPICS_OF_GROUP: Final = 10


def fill(store: pathlib.Path, topics: int, groups: int) -> None:
    """Have a broker that is to start over a directory know topics of 8 queues, and groups with offsets of ten of them.

    They are written as its files have them: made one by one, each would be registered with all those before.
    """
    names = [f"Topic{number}" for number in range(topics)]
    members = {f"Group{number}": [names[(10 * number + step) % topics] for step in range(_TOPICS_OF_GROUP)]
               for number in range(groups)}  # fmt: skip
    made = {name: TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES) for name in names}
    offsets = {f"{topic}@{group}": dict.fromkeys(range(QUEUES), 0) for group, ten in members.items() for topic in ten}
    tables = {
        "topics.json": TopicConfigTable(topic_config_table=made),
        "subscriptionGroup.json": SubscriptionGroupTable(
            subscription_group_table={name: SubscriptionGroupConfig(group_name=name) for name in members}
        ),
        "consumerOffset.json": OffsetFile(offset_table=offsets),
    }
    folder = store / "config"
    folder.mkdir(parents=True)
    for name, table in tables.items():
        (folder / name).write_bytes(msgspec.json.encode(table))
