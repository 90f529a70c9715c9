"""What clients have asked, as tests see it."""

from collections.abc import Iterator

import pytest
from raw_calls import lock_body, open_caller, pull_header, send_header, until

from rocketlet.client import Message, Producer
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import MessageQueue
from rocketlet.remoting.codec.command import ROCKETMQ, Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing import RocketmqBroker
from rocketlet.testing.views import client_requests as limits


@pytest.fixture
def broker() -> Iterator[RocketmqBroker]:
    """Run a broker that nobody else asks, whose time stands still."""
    with RocketmqBroker() as started:
        started.clock.freeze()
        yield started


async def test_requests_are_decoded(broker: RocketmqBroker) -> None:
    """A send tells its topic, group, fields, body, time and answer; what the fixture asks itself is not there."""
    topic = await broker.create_topic("orders", queues=1)
    async with open_caller(broker.address) as caller:
        await caller.send(topic, b"body", properties="KEYS\x01order-1")
        port = caller.connection.local_address[1]
    (send,) = broker.requests()
    assert (send.operation, send.code, send.server) == ("send", RequestCode.SEND_MESSAGE_V2, "broker-a")
    assert (send.topic, send.group, send.client) == ("orders", "producers", None)
    assert send.fields["i"] == "KEYS\x01order-1"
    assert (send.body, send.at_ms) == (b"body", broker.clock.now_ms())
    assert (send.state, send.answer, send.remark) == ("answered", ResponseCode.SUCCESS, None)
    now = broker.clock.now()
    line = f"{now:%H:%M:%S}.{now.microsecond // 1000:03d} send of orders by 127.0.0.1:{port} (group producers): SUCCESS"
    assert repr(send) == f"<{line}>"
    assert repr(broker.requests()) == f"<1 requests\n  {line}>"


@pytest.mark.parametrize("serialize", [0, ROCKETMQ])
async def test_both_serialisations_are_read(broker: RocketmqBroker, serialize: int) -> None:
    """Headers and answers in binary tell the same."""
    fields = {"topic": "orders", "consumerGroup": "billing", "queueId": "0", "commitOffset": "7"}
    async with open_caller(broker.address) as caller:
        await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields, serialize=serialize)
        await caller.ask(RequestCode.SEND_MESSAGE_V2, send_header("orders"), b"body", serialize=serialize)
        await caller.ask(RequestCode.PULL_MESSAGE, pull_header("orders"), serialize=serialize)
    commit, send, pull = broker.requests()
    assert (commit.operation, commit.topic, commit.group, commit.fields) == (
        "commit_offset",
        "orders",
        "billing",
        fields,
    )
    assert commit.answer == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert commit.remark is not None
    assert commit.remark in str(commit)
    assert (send.answer, pull.answer) == (ResponseCode.SUCCESS, ResponseCode.SUCCESS)
    assert (pull.operation, pull.topic, pull.group) == ("pull", "orders", "consumers")


async def test_client_is_named_by_any_heartbeat_of_its_connection(broker: RocketmqBroker) -> None:
    """Also what came before the heartbeat is the client's; a heartbeat names all groups and topics."""
    topic = await broker.create_topic("orders")
    async with open_caller(broker.address) as caller:
        await caller.send(topic)
        assert broker.requests()[0].client is None
        await caller.heartbeat("10.0.0.9@7", "billing", {topic: "*", "refunds": "*"})
    send, heartbeat = broker.requests()
    assert (send.client, heartbeat.client) == ("10.0.0.9@7", "10.0.0.9@7")
    assert (heartbeat.groups, set(heartbeat.topics)) == (("billing",), {topic, "refunds"})


async def test_bodies_and_goodbyes_name_clients(broker: RocketmqBroker) -> None:
    """Locks say in their body who wants which queues, a good-bye says in its header who goes."""
    body = lock_body("billing", "10.0.0.9@7", [MessageQueue("orders", "broker-a", 0)])
    async with open_caller(broker.address) as caller:
        await caller.ask(RequestCode.LOCK_BATCH_MQ, None, body)
        await caller.ask(RequestCode.LOCK_BATCH_MQ, None, b"no JSON")
    async with open_caller(broker.address) as caller:
        await caller.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "10.0.0.9@7", "producerGroup": "shop"})
    lock, bad, goodbye = broker.requests()
    assert (lock.operation, lock.topic, lock.group, lock.client) == ("lock_queues", "orders", "billing", "10.0.0.9@7")
    assert (bad.topic, bad.answer) == (None, ResponseCode.SYSTEM_ERROR)
    assert (goodbye.operation, goodbye.group, goodbye.client) == ("unregister_client", "shop", "10.0.0.9@7")


async def test_requests_are_found_by_name(broker: RocketmqBroker) -> None:
    """Operation, topic and group choose; those of servers are there by name only; no others are known."""
    topic = await broker.create_topic("orders")
    async with open_caller(broker.address) as caller, open_caller(broker.nameserver) as asking:
        await caller.send(topic)
        await caller.send(topic, producer_group="others")
        await caller.ask(99_999)
        await asking.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    assert [each.operation for each in broker.requests()] == ["send", "send", "99999", "route"]
    assert [each.server for each in broker.requests(on="route")] == ["name server"]
    assert len(broker.requests(on="send", group="others")) == 1
    assert len(broker.requests(topic="refunds")) == 0
    assert broker.requests(on="99999")[0].answer == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert broker.requests(on="register_broker")[0].server == "name server"
    with pytest.raises(ValueError, match="did you mean send"):
        broker.requests(on="sent")


async def test_states_say_what_became_of_a_request(broker: RocketmqBroker) -> None:
    """A one-way request stays so; a pull that waits has no answer yet, and none is to come when its client has gone."""
    topic = await broker.create_topic("orders", queues=1)
    async with Producer("shop", nameserver=broker.nameserver) as producer:
        await producer.send_oneway(Message(topic, b"1"))
        await producer.send(Message(topic, b"2"))
    async with open_caller(broker.address) as caller:
        pulling = caller.connection.ask(_long_pull(topic), 60_000)
        await caller.ask(RequestCode.GET_BROKER_CONFIG)
        assert broker.requests(on="pull")[0].state == "no answer yet"
    pulling.cancel()
    await until(lambda: broker.requests(on="pull")[0].state != "no answer yet")
    assert broker.requests(on="pull")[0].state == "connection ended before the answer"
    assert [send.state for send in broker.requests(on="send")] == ["one-way", "answered"]


def _long_pull(topic: str) -> Command:
    return Command.request(RequestCode.PULL_MESSAGE, pull_header(topic, 2, sys_flag=6))


async def test_old_requests_are_forgotten(broker: RocketmqBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many requests the last are kept, and it is said how many are not; a new test begins with none."""
    monkeypatch.setattr(limits, "MOST_REQUESTS", 3)
    async with open_caller(broker.address) as caller:
        for number in range(5):
            await caller.send("orders", b"%d" % number)
        kept = broker.requests()
        assert [send.body for send in kept] == [b"2", b"3", b"4"]
        assert kept.forgotten == 2
        assert "(2 older requests of this test are forgotten, 3 are kept)" in repr(kept)
        monkeypatch.setattr(limits, "MOST_BODY_BYTES", 10)
        await caller.send("orders", b"larger than that")
        assert [send.body for send in broker.requests()] == [b"larger than that"]
    broker.begin_test()
    assert (len(broker.requests()), broker.requests().forgotten) == (0, 0)


async def test_failure_of_a_handler_is_an_answer(broker: RocketmqBroker) -> None:
    """A header that cannot be read is answered with an error, which is noted."""
    async with open_caller(broker.address) as caller:
        answer = await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "orders"})
    (asked,) = broker.requests()
    assert asked.answer == answer.code == ResponseCode.SYSTEM_ERROR
    assert asked.remark is not None
    assert "queueId" in asked.remark
