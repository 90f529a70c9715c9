"""What consumers may subscribe to: tags, and conditions on properties."""

import pathlib
from collections import Counter

import pytest
from inbox import Inbox
from real_broker import running_broker
from scripted_cluster import ScriptedCluster, refused

from rocketlet.client import ConsumeFrom, Message, Producer, PullConsumer, PushConsumer, PushConsumerSettings, Sql
from rocketlet.client.group.subscriptions import SubscriptionTable
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ResponseError
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import ManualClock

FILTERING = {"enablePropertyFilter": "true"}
FIRST = PushConsumerSettings(consume_from=ConsumeFrom.FIRST)


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


async def test_messages_are_chosen_by_their_properties(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Brokers evaluate the condition; what it leaves out does not come, and moves the offsets all the same."""
    async with (
        running_broker(nameserver, tmp_path / "store", settings=FILTERING),
        Producer("pg", nameserver.address) as producer,
    ):
        for amount in range(6):
            await producer.send(Message("T", str(amount).encode(), properties={"amount": str(amount)}))
        inbox = Inbox()
        consumer = PushConsumer("cg", nameserver.address, settings=FIRST)
        consumer.subscribe("T", Sql("amount BETWEEN 2 AND 3"), inbox)
        async with consumer:
            await inbox.wait_for(2)
        assert inbox.bodies == Counter([b"2", b"3"])


async def test_broker_without_filters_refuses_the_start(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Else the consumer would wait for ever for messages that no broker will choose for it."""
    async with running_broker(nameserver, tmp_path / "store"), Producer("pg", nameserver.address) as producer:
        await producer.send(Message("T", b"x"))
        consumer = PushConsumer("cg", nameserver.address, settings=FIRST)
        consumer.subscribe("T", Sql("amount > 1"), Inbox())
        with pytest.raises(ResponseError, match="does not support consumer to filter message by SQL92"):
            await consumer.__aenter__()


async def test_check_is_left_out_for_tags_and_unknown_topics(cluster: ScriptedCluster) -> None:
    """Brokers are asked about conditions alone, and a topic may be made later."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    broker.answers[RequestCode.CHECK_CLIENT_CONFIG] = refused(ResponseCode.SYSTEM_ERROR)
    consumer = PushConsumer("cg", cluster.nameserver.address)
    consumer.subscribe("T", "TagA", Inbox())
    consumer.subscribe("Later", Sql("a = 1"), Inbox())
    async with consumer:
        assert broker.asked(RequestCode.CHECK_CLIENT_CONFIG) == []


async def test_pull_consumer_takes_conditions_too(nameserver: NameServer, tmp_path: pathlib.Path) -> None:
    """Both consumers share what subscriptions are."""
    async with (
        running_broker(nameserver, tmp_path / "store", settings=FILTERING),
        Producer("pg", nameserver.address) as producer,
    ):
        for amount in range(3):
            await producer.send(Message("T", str(amount).encode(), properties={"amount": str(amount)}))
        consumer = PullConsumer("cg", nameserver.address)
        consumer.subscribe("T", Sql("amount = 1"))
        async with consumer:
            async for message in consumer:
                assert message.body == b"1"
                break
