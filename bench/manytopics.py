"""Topics and groups for measurements of what asks for all of them."""

from rocketlet.client import Admin, GroupSettings, MessageQueue, TopicSettings


async def fill(nameserver: str, topics: int, groups: int) -> None:
    """Make topics of 8 queues, and groups, each with offsets of ten topics."""
    async with Admin(nameserver, timeout_ms=60_000) as admin:
        for number in range(topics):
            await admin.create_topic(f"Topic{number}", TopicSettings(read_queues=8, write_queues=8))
        for number in range(groups):
            await admin.create_group(f"Group{number}", GroupSettings())
            for step in range(10):
                topic = f"Topic{(number * 10 + step) % topics}"
                await admin.reset(f"Group{number}", {MessageQueue(topic, "broker-a", queue): 0 for queue in range(8)})
