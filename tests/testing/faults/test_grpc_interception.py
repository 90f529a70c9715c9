"""Faults and the record of requests, for clients of RocketMQ 5."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc_ground import Client

from rocketlet.common.codes import ResponseCode
from rocketlet.proxy.messages import v2
from rocketlet.proxy.messages.enums import Code
from rocketlet.proxy.services.calling import SERVICE
from rocketlet.testing import Fault
from rocketlet.testing.broker_thread import RocketmqBroker

CLIENT = "laptop@4711@0@abc"


class Caller:
    """Calls the methods of a port."""

    def __init__(self, channel: Client) -> None:
        self._channel = channel

    def start(self, method: str, request: Any, timeout: float = 30) -> Any:
        """Ask, and return what will be answered."""
        answer = getattr(v2, type(request).__name__.removesuffix("Request") + "Response")
        call = self._channel.unary_unary(
            SERVICE + method,
            response_deserializer=answer.FromString,
        )
        headers = (("x-mq-client-id", CLIENT), ("x-mq-language", "PYTHON"))
        return call.future(request.SerializeToString(), timeout=timeout, metadata=headers, wait_for_ready=True)

    def send(self, topic: str, body: bytes = b"42", timeout: float = 30) -> Any:
        """Send a message, and return what will be answered."""
        message = v2.Message(topic=v2.Resource(name=topic), body=body)
        message.system_properties.message_id = "01" + body.hex().rjust(32, "0")
        message.system_properties.message_type = 1
        return self.start("SendMessage", v2.SendMessageRequest(messages=[message]), timeout)


@contextmanager
def calling(broker: RocketmqBroker) -> Generator[Caller]:
    """Connect to the port of a broker."""
    with grpc.insecure_channel(broker.grpc_address) as channel:
        yield Caller(channel)


def test_requests_are_noted(rocketmq_broker: RocketmqBroker) -> None:
    """By the names of remoting, with topic, client and how they were answered."""
    topic = rocketmq_broker.topic()
    with calling(rocketmq_broker) as caller:
        assert caller.send(topic).result().status.code == Code.OK
        heartbeat = v2.HeartbeatRequest(group=v2.Resource(name="shop"), client_type=3)
        assert caller.start("Heartbeat", heartbeat).result().status.code
        missing = v2.QueryRouteRequest(topic=v2.Resource(name="no topic"))
        assert caller.start("QueryRoute", missing).result().status.code != Code.OK
    [sent] = rocketmq_broker.requests(on="send", topic=topic)
    assert (sent.operation, sent.topics, sent.client, sent.answer) == ("send", (topic,), CLIENT, Code.OK)
    assert v2.SendMessageRequest.FromString(sent.body).messages[0].body == b"42"
    assert sent.fields["x-mq-language"] == "PYTHON"
    assert str(sent).endswith(f"send of {topic} by {CLIENT}: OK (OK)")
    assert [request.groups for request in rocketmq_broker.requests(on="heartbeat")] == [("shop",)]
    [asked] = rocketmq_broker.requests(on="route")
    assert isinstance(asked.answer, Code)
    assert asked.answer is not Code.OK


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (ResponseCode.SYSTEM_BUSY, Code.TOO_MANY_REQUESTS),
        (ResponseCode.NO_PERMISSION, Code.INTERNAL_SERVER_ERROR),
        (Code.MESSAGE_BODY_TOO_LARGE, Code.MESSAGE_BODY_TOO_LARGE),
    ],
)
def test_another_answer(rocketmq_broker: RocketmqBroker, answer: int, code: Code) -> None:
    """One of remoting is answered with what it is there, one of the protocol as it is; nothing is served."""
    topic = rocketmq_broker.topic()
    rocketmq_broker.faults.add(on="send", topic=topic, answer=answer, remark="not now")
    with calling(rocketmq_broker) as caller:
        refused = caller.send(topic).result().status
        assert (refused.code, refused.message) == (code, "not now")
        assert caller.send(topic, b"43").result().status.code == Code.OK
    assert [message.body for message in rocketmq_broker.messages(topic)] == [b"43"]
    assert [request.answer for request in rocketmq_broker.requests(on="send")] == [code, Code.OK]


def test_dropped_request_is_neither_served_nor_answered(rocketmq_broker: RocketmqBroker) -> None:
    """Its caller waits as long as it likes."""
    topic = rocketmq_broker.topic()
    with calling(rocketmq_broker) as caller, rocketmq_broker.faults.add(client=CLIENT, answer=Fault.DROP) as fault:
        late = caller.send(topic)
        fault.wait()
        assert caller.send(topic, b"43").result().status.code == Code.OK
        assert not late.done()
        late.cancel()
    assert [message.body for message in rocketmq_broker.messages(topic)] == [b"43"]
    assert [request.state for request in rocketmq_broker.requests(on="send")] == ["dropped", "answered"]


def test_connection_closed(rocketmq_broker: RocketmqBroker) -> None:
    """A call ends with its connection, and nothing is served."""
    topic = rocketmq_broker.topic()
    rocketmq_broker.faults.add(on="send", answer=Fault.CLOSE)
    with calling(rocketmq_broker) as caller:
        ended = caller.send(topic)
        assert ended.exception().code() is grpc.StatusCode.UNAVAILABLE
        assert caller.send(topic, b"43").result().status.code == Code.OK
    assert [message.body for message in rocketmq_broker.messages(topic)] == [b"43"]


def test_lost_answer(rocketmq_broker: RocketmqBroker) -> None:
    """The message is there, and its producer does not know."""
    topic = rocketmq_broker.topic()
    rocketmq_broker.faults.add(on="send", answer=Fault.LOSE_ANSWER)
    with calling(rocketmq_broker) as caller:
        lost = caller.send(topic)
        rocketmq_broker.wait_for(topic)
        assert caller.send(topic, b"43").result().status.code == Code.OK
        assert not lost.done()
        lost.cancel()
    first, _ = rocketmq_broker.requests(on="send")
    assert (first.state, first.answer) == ("answer lost", Code.OK)


def test_late_request_waits_for_the_clock(rocketmq_broker: RocketmqBroker) -> None:
    """It is served when the broker's time has come, and what it stored can be read."""
    topic = rocketmq_broker.topic()
    fault = rocketmq_broker.faults.add(on="send", delay_ms=3_600_000)
    with calling(rocketmq_broker) as caller:
        late = caller.send(topic)
        fault.wait()
        assert not late.done()
        rocketmq_broker.clock.advance(hours=1)
        assert late.result().status.code == Code.OK
    assert [message.body for message in rocketmq_broker.messages(topic)] == [b"42"]


def test_late_request_whose_caller_has_gone(rocketmq_broker: RocketmqBroker) -> None:
    """It is not served any more."""
    topic = rocketmq_broker.topic()
    fault = rocketmq_broker.faults.add(on="send", delay_ms=3_600_000)
    with calling(rocketmq_broker) as caller:
        late = caller.send(topic)
        fault.wait()
        late.cancel()
        assert caller.send(topic, b"43").result().status.code == Code.OK  # behind the end of the other
        rocketmq_broker.clock.advance(hours=1)
    assert [message.body for message in rocketmq_broker.messages(topic)] == [b"43"]
    first, _ = rocketmq_broker.requests(on="send")
    assert first.state == "connection ended before the answer"


def test_late_request_needs_nobody_else(rocketmq_broker: RocketmqBroker) -> None:
    """What it stored is committed and answered though nothing else is read, and nobody moves the clock."""
    topic = rocketmq_broker.topic()
    rocketmq_broker.faults.add(on="send", topic=topic, delay_ms=1)
    with calling(rocketmq_broker) as caller:
        assert caller.send(topic).result().status.code == Code.OK
    assert [message.body for message in rocketmq_broker.messages(topic)] == [b"42"]
