"""Our push consumer on the official broker: what it answers Java's administration, and conditions that it sets."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import pytest
from inbox import Inbox
from interop.clients import Admin
from interop.parts import mqadmin
from interop.servers import JavaServer
from subscribed import push_consumer

from rocketlet.client import (
    ConsumeResult,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    Sql,
)


class Office:
    """The official broker, Java's administration, and a producer of ours."""

    def __init__(self, server: JavaServer, producer: Producer) -> None:
        self.server = server
        self.producer = producer
        self._admin = Admin(server.driver, namesrv=server.namesrv)

    async def call(self, method: str, *arguments: object) -> Any:
        """Call a method of ``DefaultMQAdminExt``; our loop runs meanwhile, since the consumer answers on it."""
        call = partial(self.server.driver.call_as, object, "admin.call", name=self._admin.name)
        return await asyncio.to_thread(call, method=method, args=arguments)

    async def run(self, *arguments: str) -> str:
        """Run mqadmin and return what it prints."""
        return await asyncio.to_thread(mqadmin, self.server.driver, *arguments, "-n", self.server.namesrv)


@pytest.fixture(scope="module")
def server(java_broker: Callable[..., JavaServer], tmp_path_factory: pytest.TempPathFactory) -> JavaServer:
    """Return the official broker; it leaves resets to the clients, and filters by conditions."""
    settings = {"useServerSideResetOffset": "false", "enablePropertyFilter": "true"}
    return java_broker(tmp_path_factory.mktemp("official") / "store", **settings)


@pytest.fixture
async def office(server: JavaServer) -> AsyncGenerator[Office]:
    """Yield an office."""
    async with Producer("pg", server.namesrv) as producer:
        yield Office(server, producer)


async def answer_by_body(messages: list[ReceivedMessage]) -> ConsumeResult | None:
    """Do as the message says."""
    body = messages[0].body
    if body == b"error":
        raise RuntimeError("it went wrong")
    return ConsumeResult.RETRY if body == b"retry" else None


@pytest.mark.feature("B25")
async def test_java_asks_a_running_consumer(office: Office) -> None:
    """Running info, stacks, offsets and messages out of turn, as Java's tools show them; then a reset."""
    sent = {body: await office.producer.send(Message("T", body)) for body in (b"good", b"retry", b"error")}
    inbox = Inbox()

    async def listen(messages: list[ReceivedMessage]) -> None:
        await inbox(messages)

    def make_consumer() -> PushConsumer:
        return push_consumer(office.server.namesrv, listen)

    async with make_consumer():
        await inbox.wait_for(3)
    consumer = make_consumer()  # once more: a broker resets only groups that have an offset in every queue
    async with consumer:
        await check_running_info(office, consumer.client_id)
        await check_offsets(office, consumer.client_id)
        consumer.subscribe("T", "*", answer_by_body)
        for body, result in ((b"good", "CR_SUCCESS"), (b"retry", "CR_LATER"), (b"error", "CR_THROW_EXCEPTION")):
            told = await office.call("consumeMessageDirectly", "cg", consumer.client_id, "T", sent[body].message_id)
            assert told["consumeResult"] == result
            assert not told["order"]
            assert told.get("remark") == ("RuntimeError: it went wrong" if body == b"error" else None)
        consumer.subscribe("T", "*", listen)
        await office.call("resetOffsetByTimestamp", "T", "cg", 0, True)
        await inbox.wait_for(6)
    assert inbox.bodies == dict.fromkeys(sent, 2)


async def check_running_info(office: Office, client_id: str) -> None:
    """The tool prints queues, offsets, subscriptions and stacks."""
    info = await office.call("getConsumerRunningInfo", "cg", client_id, False)
    assert info["properties"]["PROP_CONSUMEORDERLY"] == "false"
    assert {each["topic"] for each in info["subscriptionSet"]} == {"T", "%RETRY%cg"}
    printed = await office.run("consumerStatus", "-g", "cg", "-i", client_id, "-s")
    assert "PROP_CONSUME_TYPE" in printed
    assert "CONSUME_PASSIVELY" in printed
    assert printed.count("broker-a") >= 2 * 4
    assert "check_running_info" in printed  # the stack of the task that waits for this answer


async def check_offsets(office: Office, client_id: str) -> None:
    """The offsets of all queues add up to what was consumed."""
    told = await office.call("getConsumeStatus", "T", "cg", "")
    assert set(told) == {client_id}
    assert sum(offset for _, offset in told[client_id]) == 3


@pytest.mark.feature("B25")
async def test_java_asks_an_orderly_consumer(office: Office) -> None:
    """Its answer says that it is orderly and which queues are locked; other groups of the session answer themselves."""
    result = await office.producer.send(Message("T", b"x"))
    inbox = Inbox()
    consumer = push_consumer(office.server.namesrv, inbox, group="orderly", is_orderly=True)
    async with consumer:
        await inbox.wait_for(1)
        told = await office.call("consumeMessageDirectly", "orderly", consumer.client_id, "T", result.message_id)
        assert (told["order"], told["autoCommit"], told["consumeResult"]) == (True, True, "CR_SUCCESS")
        info = await office.call("getConsumerRunningInfo", "orderly", consumer.client_id, False)
        assert info["properties"]["PROP_CONSUMEORDERLY"] == "true"
        assert all(queue["locked"] for _, queue in info["mqTable"])


async def test_official_broker_chooses_by_our_condition(office: Office) -> None:
    """The broker takes the condition from the heartbeat, and knows the words that we let through."""
    for amount in range(6):
        await office.producer.send(Message("Amounts", str(amount).encode(), properties={"amount": str(amount)}))
    inbox = Inbox()
    consumer = push_consumer(
        office.server.namesrv, inbox, group="conditional", topic="Amounts", expression=Sql("amount BETWEEN 2 AND 3")
    )
    async with consumer:
        await inbox.wait_for(2)
    assert inbox.bodies == {b"2": 1, b"3": 1}
