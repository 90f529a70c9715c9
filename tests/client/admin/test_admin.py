"""The administrator's client against a real broker: topics, groups, brokers."""

import itertools
from collections import Counter
from collections.abc import AsyncGenerator
from functools import partial

import pytest
from polling import ask_until_async
from subscribed import pull_consumer

from rocketlet.client import (
    Admin,
    GroupSettings,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    ReceivedMessage,
    Session,
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


async def figures_of(admin: Admin, broker: str) -> dict[str, str]:
    """Return the figures of a broker; an official one fails in its first second, before it has taken a sample."""
    try:
        return await admin.figures(broker)
    except ResponseError as error:
        if "NoSuchElementException" not in str(error):
            raise
        return {}


async def test_brokers_tell_of_themselves(address: str) -> None:
    """The master's address, its figures, and deleting what has expired, which deletes nothing here."""
    async with Admin(address) as admin:
        [node] = await admin.brokers()
        assert set(node.addresses) == {0}
        figures = await ask_until_async(partial(figures_of, admin, node.name))
        assert figures["brokerActive"] == "true"
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


BODIES = [b"0", b"1", b"2", b"3", b"4"]
_numbers = itertools.count(1)


class Shop:
    """A topic of two queues with five messages each, and a group that has read some.

    The group is its own: a pull that the consumer of another test left waiting at the official broker ends when the
    topic is filled again, and makes its group again, which had been deleted.
    """

    def __init__(self, admin: Admin, address: str) -> None:
        self.admin = admin
        self.address = address
        self.group = f"cg-{next(_numbers)}"
        self.queues: tuple[MessageQueue, ...] = ()
        self.first_at = 0
        self.at_ms = 0  # when the third message of the first queue was stored

    async def fill(self) -> None:
        """Make the topic and its messages."""
        await self.admin.create_topic("T", TopicSettings(read_queues=2, write_queues=2))
        self.queues = await self.admin.queues("T")
        async with Producer("pg", self.address) as producer:
            for body in BODIES:
                for queue in self.queues:
                    await producer.send(Message("T", body), queue=queue)
        stored_at_ms = [message.stored_at_ms async for message in self.admin.messages("T")][:5]
        self.at_ms = stored_at_ms[2]
        self.first_at = stored_at_ms.index(self.at_ms)

    async def read(self, count: int) -> list[bytes]:
        """Read and commit so many messages."""
        got: list[bytes] = []
        consumer = pull_consumer(self.address, group=self.group)
        async with consumer:
            while len(got) < count:
                got += [message.body for message in await consumer.poll(max_messages=count - len(got))]
            await consumer.commit()
        return got

    async def committed(self) -> list[int | None]:
        """Return what the group has committed in both queues."""
        return [each.committed for each in (await self.admin.progress(self.group, "T")).queues]


@pytest.fixture
async def shop(address: str) -> AsyncGenerator[Shop]:
    """Yield a filled shop."""
    async with Admin(address) as admin:
        shop = Shop(admin, address)
        await shop.fill()
        yield shop


async def test_progress_counts_what_is_left(shop: Shop) -> None:
    """Before a group has come by, all is left; what it has committed counts queue by queue."""
    before = await shop.admin.progress(shop.group, "T")
    assert [each.committed for each in before.queues] == [None, None]
    assert before.lag == 10
    await shop.read(7)
    after = await shop.admin.progress(shop.group, "T")
    assert after.lag == 3
    assert [(each.first_offset, each.end_offset) for each in after.queues] == [(0, 5), (0, 5)]
    assert await shop.admin.offsets("T") == dict.fromkeys(shop.queues, (0, 5))


async def test_offsets_of_an_instant(shop: Shop) -> None:
    """In each queue the first message stored then or later."""
    found = await shop.admin.offsets_at("T", shop.at_ms)
    assert found[shop.queues[0]] == shop.first_at


async def test_group_begins_again(shop: Shop) -> None:
    """At the beginning, at the end, at an instant: the new offset is returned and stored."""
    await shop.read(8)
    for found, expected in (
        (await shop.admin.reset_to_begin(shop.group, "T"), 0),
        (await shop.admin.reset_to_end(shop.group, "T"), 5),
        (await shop.admin.reset_to_time(shop.group, "T", shop.at_ms), shop.first_at),
    ):
        assert found[shop.queues[0]] == expected
    assert (await shop.committed())[0] == shop.first_at
    with pytest.raises(ValueError, match="-5"):
        await shop.admin.reset_to_time(shop.group, "T", -5)


async def test_messages_come_again_after_a_reset(shop: Shop) -> None:
    """A group that had read all gets all once more."""
    assert sorted(await shop.read(10)) == sorted(await _again(shop))


async def _again(shop: Shop) -> list[bytes]:
    await shop.admin.reset_to_begin(shop.group, "T")
    return await shop.read(10)


async def test_offsets_are_set_and_copied(shop: Shop) -> None:
    """Any offset of any queue, and one group's offsets for another."""
    first, second = shop.queues
    group, other = shop.group, f"{shop.group}-other"
    with pytest.raises(ResponseError, match=f"{group} not exist"):
        await shop.admin.reset(group, {first: 4})
    for each in (group, other):
        await shop.admin.create_group(each)
    await shop.admin.reset(group, {first: 4, second: 1})
    assert await shop.committed() == [4, 1]
    assert await shop.admin.copy_offsets(group, other, "T") == {first: 4, second: 1}
    assert (await shop.admin.progress(other, "T")).lag == 5


async def test_offset_replaces_a_reset_that_nobody_has_fetched(shop: Shop) -> None:
    """Brokers leave out what is stored over a reset; the group begins at the offset all the same."""
    await shop.admin.create_group(shop.group)
    await shop.admin.reset_to_begin(shop.group, "T")
    await shop.admin.reset(shop.group, {shop.queues[0]: 4})
    assert await shop.committed() == [4, 0]
    assert len(await shop.read(6)) == 6
    assert (await shop.admin.progress(shop.group, "T")).lag == 0


@pytest.mark.feature("D10")
async def test_offsets_are_set_under_a_consumer(shop: Shop) -> None:
    """A running group goes on at an offset of one queue; the other queue stays where it is."""
    first = shop.queues[0]
    consumer = pull_consumer(shop.address, group=shop.group)
    async with consumer:
        count = 0
        while count < 10:
            count += len(await consumer.poll())
        await consumer.commit()
        await shop.admin.reset(shop.group, {first: 3})
        again: list[ReceivedMessage] = []
        while len(again) < 2:
            again += await consumer.poll()
        assert [(message.queue, message.queue_offset) for message in again] == [(first, 3), (first, 4)]
        await consumer.commit()
    assert await shop.committed() == [5, 5]


async def test_offsets_are_not_set_where_members_move_themselves(shop: Shop) -> None:
    """They would store their own over them; nothing changes."""
    consumer = PullConsumer(shop.group, shop.address)
    consumer.subscribe("T")
    await shop.admin.change_broker_settings("broker-a", {"useServerSideResetOffset": "false"})
    try:
        async with consumer:
            with pytest.raises(ClientStateError, match=f"group {shop.group} has 1 members online"):
                await shop.admin.reset(shop.group, dict.fromkeys(shop.queues, 1))
    finally:
        await shop.admin.change_broker_settings("broker-a", {"useServerSideResetOffset": "true"})
    with pytest.raises(ValueError, match="offset is -1"):
        await shop.admin.reset(shop.group, {shop.queues[0]: -1})
    with pytest.raises(RouteNotFoundError):
        await shop.admin.progress(shop.group, "missing")


async def test_group_that_consumes_is_moved(shop: Shop) -> None:
    """The consumer gets everything again without being asked."""
    group = shop.group
    consumer = pull_consumer(shop.address, group=group)
    async with consumer, Producer("pg", shop.address) as producer:
        got: Counter[bytes] = Counter()
        while got.total() < 10:
            got.update([message.body for message in await consumer.poll()])
        await consumer.commit()
        assert await shop.admin.reset_to_begin(group, "T") == dict.fromkeys(shop.queues, 0)
        for queue in shop.queues:
            await producer.send(Message("T", b"new"), queue=queue)  # ends the wait of the pull that is under way
        while got[b"new"] < 2 or min(got[body] for body in BODIES) < 4:
            got.update([message.body for message in await consumer.poll()])
    assert [got[body] for body in BODIES] == [4] * 5


async def test_where_members_are_is_told(shop: Shop) -> None:
    """The address of each connection, the language and the version."""
    async with Session(shop.address) as session:
        consumer = PullConsumer(shop.group, session=session)
        consumer.subscribe("T")
        async with consumer:
            [member] = await shop.admin.members(shop.group)
            assert {member.address} == session.local_addresses
    assert (member.client_id, member.language) == (consumer.client_id, "PYTHON")


async def test_topics_and_groups_are_deleted(shop: Shop) -> None:
    """What is gone has no route and no settings."""
    admin = shop.admin
    await shop.read(1)
    await admin.delete_group(shop.group, with_offsets=True)
    assert shop.group not in await admin.groups()
    assert await shop.committed() == [None, None]
    await admin.delete_topic("T")
    assert "T" not in await admin.topics()
    with pytest.raises(RouteNotFoundError):
        await admin.queues("T")
