"""The administrator's client against a real broker: changes that leave the rest as it is, settings, namespaces."""

import itertools

import pytest
from polling import ask_until_async
from subscribed import pull_consumer

from rocketlet.client import (
    Admin,
    ClientSettings,
    ConsumeFrom,
    GroupChange,
    GroupSettings,
    Message,
    Producer,
    ProducerSettings,
    PullConsumer,
    PullConsumerSettings,
    QueueExtent,
    TopicChange,
    TopicSettings,
)
from rocketlet.common.errors import ConfigError, ResponseError, RouteNotFoundError

_numbers = itertools.count()


async def test_one_setting_of_a_topic_is_changed(address: str) -> None:
    """What the change does not name stays: queues, permissions, attributes."""
    async with Admin(address) as admin:
        [node] = await admin.brokers()
        made = TopicSettings(read_queues=3, write_queues=2, can_write=False, attributes={"message.type": "NORMAL"})
        await admin.create_topic("T", made)
        changed = TopicSettings(read_queues=5, write_queues=2, can_write=False, attributes=made.attributes)
        assert await admin.change_topic("T", TopicChange(read_queues=5)) == {node.name: changed}
        assert await admin.topic("T") == {node.name: changed}
        await admin.change_topic("T", TopicChange(can_write=True, dropped=["message.type"]))
        assert await admin.topic("T") == {node.name: TopicSettings(read_queues=5, write_queues=2)}
        with pytest.raises(ConfigError, match="write_queues is 0"):
            await admin.change_topic("T", TopicChange(write_queues=0))
        with pytest.raises(RouteNotFoundError, match="missing"):
            await admin.change_topic("missing", TopicChange(can_read=False))


async def test_one_setting_of_a_group_is_changed(address: str) -> None:
    """What the change does not name stays; a group that no broker has is not made."""
    async with Admin(address) as admin:
        [node] = await admin.brokers()
        await admin.create_group("g", GroupSettings(retries=3, can_broadcast=False))
        changed = GroupSettings(retries=7, can_broadcast=False)
        assert await admin.change_group("g", GroupChange(retries=7)) == {node.name: changed}
        assert await admin.group("g") == {node.name: changed}
        assert await admin.change_group("nobody", GroupChange(retries=7)) == {}
        assert await admin.group("nobody") == {}


async def test_settings_of_servers_are_read_and_changed(address: str) -> None:
    """Of a broker and of the name servers, by Java's keys; a refusal has the broker's text."""
    async with Admin(address) as admin:
        [node] = await admin.brokers()
        before = await admin.broker_settings(node.name)
        assert before["brokerName"] == node.name
        await admin.change_broker_settings(node.name, {"maxMessageSize": "65537"})
        assert await admin.broker_settings(node.name) == before | {"maxMessageSize": "65537"}
        await admin.change_broker_settings(node.name, {"maxMessageSize": before["maxMessageSize"]})
        with pytest.raises(ResponseError, match="black list"):
            await admin.change_broker_settings(node.name, {"configBlackList": ""})
        with pytest.raises(ValueError, match="no master of the broker nobody"):
            await admin.broker_settings("nobody")
        await admin.change_nameserver_settings({"orderMessageEnable": "false"})
        [settings] = (await admin.nameserver_settings()).values()
        assert settings["orderMessageEnable"] == "false"


async def test_topic_tells_its_queues_and_groups(address: str) -> None:
    """The ends of its queues with the time of the last message, and who consumes it."""
    async with Admin(address) as admin, Producer("pg", address) as producer:
        await admin.create_topic("T", TopicSettings(read_queues=2, write_queues=2))
        first, other = await admin.queues("T")
        await producer.send(Message("T", b"x"), queue=first)
        # Java answers a send before the message stands in its queue.
        found = await ask_until_async(lambda: admin.message_at(first, 0))
        assert found is not None
        assert await admin.extents("T") == {first: QueueExtent(0, 1, found.stored_at_ms), other: QueueExtent(0, 0, 0)}
        assert await admin.message_at(first, 1) is None
        with pytest.raises(ValueError, match="-1"):
            await admin.message_at(first, -1)
        consumer = PullConsumer("reader", address)
        consumer.subscribe("T", "a || b")
        async with consumer:
            group = await admin.consumer_group("reader")
        assert [member.client_id for member in group.members] == [consumer.client_id]
        assert (group.message_model, group.subscriptions["T"]) == ("CLUSTERING", "a || b")
        assert await admin.groups_of("T") == ["reader"] or not await admin.members("reader")


async def test_progress_of_all_topics_of_a_group(address: str) -> None:
    """Committed, handed out, end and time of each queue; nothing of a group that nobody knows."""
    async with Admin(address) as admin, Producer("pg", address) as producer:
        for topic in ("T", "U"):
            await admin.create_topic(topic, TopicSettings(read_queues=1, write_queues=1))
            await producer.send(Message(topic, b"1"))
            await producer.send(Message(topic, b"2"))
        consumer = pull_consumer(address, group="cg")
        async with consumer:
            while not await consumer.poll(max_messages=1):
                pass
            await consumer.commit()
        found = {each.queue.topic: each for each in await admin.all_progress("cg") if "%" not in each.queue.topic}
        assert (found["T"].committed, found["T"].end_offset, found["T"].lag) == (1, 2, 1)
        assert found["T"].last_at_ms
        assert await admin.all_progress("nobody") == ()


async def test_namespace_is_a_world_of_its_own(address: str) -> None:
    """Names have it on the wire only: topics, groups, offsets and messages are made, listed, read and deleted in it."""
    space = f"ns{next(_numbers)}"
    async with (
        Admin(address, settings=ClientSettings(namespace=space)) as admin,
        Admin(address) as outside,
        Producer("pg", address, settings=ProducerSettings(namespace=space)) as producer,
    ):
        await outside.create_topic("other")
        await admin.create_topic("T", TopicSettings(read_queues=1, write_queues=1))
        await admin.create_group("g", GroupSettings(retries=3))
        assert f"{space}%T" in await outside.topics()
        assert await admin.topics() == ["T"]
        assert await admin.groups() == ["g"]
        assert f"{space}%g" in await outside.groups()
        await admin.change_topic("T", TopicChange(read_queues=2))
        await admin.change_group("g", GroupChange(retries=4))
        assert [each.retries for each in (await outside.group(f"{space}%g")).values()] == [4]
        first, other = await admin.queues("T")
        sent = await producer.send(Message("T", b"x", keys=["k"]), queue=first)
        by_place = await admin.message("T", sent.offset_message_id)
        assert by_place is not None
        assert (by_place.topic, by_place.queue) == ("T", first)
        while not (found := await admin.messages_by_key("T", "k")):
            pass
        assert found == [by_place]
        assert [message async for message in admin.messages("T")] == [await admin.message_at(first, 0)]
        assert set(await admin.extents("T")) == {first, other}
        await admin.reset("g", {first: 1})
        assert [each.committed for each in (await admin.progress("g", "T")).queues] == [1, None]
        assert {each.queue.topic for each in await admin.all_progress("g")} == {"T"}
        await admin.delete_group("g", with_offsets=True)
        await admin.delete_topic("T")
        assert (await admin.topics(), await admin.groups()) == ([], [])
        assert "other" in await outside.topics()


async def test_members_in_a_namespace(address: str) -> None:
    """They are found by the group's name in it, and their subscriptions are told without it."""
    settings = PullConsumerSettings(namespace="ns", consume_from=ConsumeFrom.FIRST)
    async with Admin(address, settings=ClientSettings(namespace="ns")) as admin:
        await admin.create_topic("T")
        consumer = PullConsumer("g", address, settings=settings)
        consumer.subscribe("T")
        async with consumer:
            group = await admin.consumer_group("g")
        assert len(group.members) == 1
        assert group.subscriptions["T"] == "*"
