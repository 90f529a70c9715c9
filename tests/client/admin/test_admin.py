"""The administrator's client against a real broker: topics, groups, brokers."""

import pytest

from rocketlet.client import (
    Admin,
    ClientSettings,
    GroupSettings,
    Message,
    Producer,
    PullConsumer,
    TopicSettings,
)
from rocketlet.common.errors import ClientStateError, ConfigError, ResponseError, RouteNotFoundError


async def test_topic_is_made_changed_and_read(address: str) -> None:
    """Each broker of the topic tells its settings; they can be used when the call returns."""
    async with Admin(address) as admin, Producer("pg", address) as producer:
        [node] = await admin.brokers()
        wanted = TopicSettings(read_queues=3, write_queues=2, attributes={"message.type": "NORMAL"})
        await admin.create_topic("orders", wanted)
        assert "orders" in await admin.topics()
        assert "orders" in await admin.topics(node.cluster)
        assert await admin.topic("orders") == {node.name: wanted}
        assert [queue.queue_id for queue in await admin.queues("orders")] == [0, 1, 2]
        assert (await producer.send(Message("orders", b"x"))).queue.broker_name == node.name

        await admin.create_topic("orders", TopicSettings(read_queues=5, write_queues=5), brokers=[node.name])
        assert [queue.queue_id for queue in await admin.queues("orders")] == [0, 1, 2, 3, 4]


async def test_unknown_names_are_told(address: str) -> None:
    """A topic, a cluster and a broker that are not there, names and numbers that cannot be: each has its error."""
    async with Admin(address) as admin:
        with pytest.raises(RouteNotFoundError, match="missing"):
            await admin.topic("missing")
        with pytest.raises(ValueError, match="there is no cluster nowhere"):
            await admin.brokers("nowhere")
        with pytest.raises(ValueError, match="no master of the broker nobody"):
            await admin.create_topic("T", brokers=["nobody"])
        with pytest.raises(ValueError, match="nobody"):
            await admin.figures("nobody")
        with pytest.raises(ValueError, match="not a topic"):
            await admin.create_topic("not a topic")
        with pytest.raises(ConfigError, match="no group"):
            await admin.create_group("no group")
        with pytest.raises(ConfigError, match="read_queues is 0"):
            TopicSettings(read_queues=0)
        with pytest.raises(ConfigError, match="retries is -1"):
            GroupSettings(retries=-1)


async def test_broker_refuses_a_system_topic(address: str) -> None:
    """What a broker answers reaches the caller as it is."""
    async with Admin(address) as admin:
        with pytest.raises(ResponseError, match="system topic") as caught:
            await admin.create_topic("SCHEDULE_TOPIC_XXXX")
        assert caught.value.code == 29


async def test_group_is_made_and_read(address: str) -> None:
    """Its settings come back from each broker; an unknown group has none."""
    async with Admin(address) as admin:
        [node] = await admin.brokers()
        wanted = GroupSettings(retries=3, can_broadcast=False, retry_queues=2)
        await admin.create_group("billing", wanted)
        assert "billing" in await admin.groups()
        assert await admin.group("billing") == {node.name: wanted}
        assert await admin.group("nobody") == {}


async def test_members_of_a_group_are_listed(address: str) -> None:
    """Those that are online, by client id; nobody is an empty list."""
    async with Admin(address) as admin:
        await admin.create_topic("T")
        assert await admin.members("cg") == ()
        consumer = PullConsumer("cg", address)
        consumer.subscribe("T")
        async with consumer:
            assert [member.client_id for member in await admin.members("cg")] == [consumer.client_id]


async def test_brokers_tell_of_themselves(address: str) -> None:
    """The master's address, its figures, and deleting what has expired, which deletes nothing here."""
    async with Admin(address) as admin:
        [node] = await admin.brokers()
        assert set(node.addresses) == {0}
        assert (await admin.figures(node.name))["brokerActive"] == "true"
        await admin.delete_expired_files(node.name)


async def test_writing_is_forbidden_and_allowed(address: str) -> None:
    """A broker without write permission is not sent to; its messages can still be read."""
    async with Admin(address) as admin:
        [node] = await admin.brokers()
        await admin.create_topic("T", TopicSettings(read_queues=2, write_queues=2))
        await admin.forbid_writes(node.name)
        async with Producer("pg", address) as producer:
            with pytest.raises(RouteNotFoundError):
                await producer.send(Message("T", b"x"))
        assert len(await admin.queues("T")) == 2
        await admin.allow_writes(node.name)
        async with Producer("pg", address) as producer:
            await producer.send(Message("T", b"x"))


def test_namespace_is_refused() -> None:
    """An administrator sees names as they are."""
    with pytest.raises(ConfigError, match="without a namespace"):
        Admin("127.0.0.1:1", settings=ClientSettings(namespace="ns"))


async def test_use_outside_the_block_is_refused(address: str) -> None:
    """Too early, too late, and a second start."""
    admin = Admin(address)
    with pytest.raises(ClientStateError, match="admin is not started yet"):
        await admin.topics()
    async with admin:
        with pytest.raises(ClientStateError, match="cannot be started again"):
            await admin.__aenter__()
    with pytest.raises(ClientStateError, match="admin is closed"):
        await admin.brokers()
