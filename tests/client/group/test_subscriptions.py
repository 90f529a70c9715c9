"""What consumers may subscribe to: tags, and conditions on properties."""

import pathlib
from collections import Counter
from collections.abc import AsyncGenerator

import pytest
from inbox import Inbox
from real_broker import running_broker
from scripted_cluster import ScriptedCluster, refused
from subscribed import push_consumer

from rocketlet.client import Message, Producer, PullConsumer, PushConsumer, Sql
from rocketlet.client.group.subscriptions import SubscriptionTable
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ResponseError
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import ManualClock

FILTERING = {"enablePropertyFilter": "true"}


@pytest.mark.parametrize("expression", ["", "a >", "a > 'x'"])
def test_condition_that_is_none_is_refused(expression: str) -> None:
    """It is refused where it is written, not when a broker sees it."""
    with pytest.raises(ValueError, match=r"\w"):
        Sql(expression)


def test_expression_of_another_type_is_refused() -> None:
    """One clear sentence says what it may be."""
    table = SubscriptionTable(ManualClock())
    with pytest.raises(TypeError, match="expression is int, it must be str or Sql"):
        table.put("T", 5)  # pyright: ignore[reportArgumentType] # the mistake
    with pytest.raises(TypeError, match="condition is int, it must be str"):
        Sql(5)  # pyright: ignore[reportArgumentType] # the mistake


@pytest.fixture
async def amounts(nameserver: NameServer, tmp_path: pathlib.Path) -> AsyncGenerator[str]:
    """Yield the address of a broker with property filters, and six messages with the amounts 0 to 5."""
    async with (
        running_broker(nameserver, tmp_path / "store", settings=FILTERING),
        Producer("pg", nameserver.address) as producer,
    ):
        for amount in range(6):
            await producer.send(Message("T", str(amount).encode(), properties={"amount": str(amount)}))
        yield nameserver.address


async def test_messages_are_chosen_by_their_properties(amounts: str) -> None:
    """Brokers evaluate the condition; what it leaves out does not come, and moves the offsets all the same."""
    inbox = Inbox()
    async with push_consumer(amounts, inbox, expression=Sql("amount BETWEEN 2 AND 3")):
        await inbox.wait_for(2)
    assert inbox.bodies == Counter([b"2", b"3"])


async def test_broker_without_filters_refuses_the_start(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Else the consumer would wait for ever for messages that no broker will choose for it."""
    async with running_broker(nameserver, tmp_path / "store"), Producer("pg", nameserver.address) as producer:
        await producer.send(Message("T", b"x"))
        consumer = push_consumer(nameserver.address, Inbox(), expression=Sql("amount > 1"))
        with pytest.raises(ResponseError, match="does not support consumer to filter message by SQL92"):
            await consumer.__aenter__()


async def test_check_is_left_out_for_tags_and_unknown_topics(cluster: ScriptedCluster) -> None:
    """Brokers are asked about conditions alone, and a topic may be made later."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a", {RequestCode.CHECK_CLIENT_CONFIG: refused(ResponseCode.SYSTEM_ERROR)})
    consumer = PushConsumer("cg", cluster.nameserver.address)
    consumer.subscribe("T", "TagA", Inbox())
    consumer.subscribe("Later", Sql("a = 1"), Inbox())
    async with consumer:
        assert broker.asked(RequestCode.CHECK_CLIENT_CONFIG) == []


async def test_pull_consumer_takes_conditions_too(amounts: str) -> None:
    """Both consumers share what subscriptions are."""
    consumer = PullConsumer("cg", amounts)
    consumer.subscribe("T", Sql("amount = 1"))
    async with consumer:
        async for message in consumer:
            assert message.body == b"1"
            break
