"""What clients say of themselves, what they are answered, and when they are gone."""

from typing import Any

import pytest
from google.protobuf import json_format
from grpc_calls import METADATA, LocalPort, commands, make_call
from grpc_recordings import load_exchanges
from raw_calls import Caller

from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.metadata import ExponentialRetry, GroupRetryPolicy, RetryPolicyType, SubscriptionGroupConfig
from rocketlet.proxy.messages import v2
from rocketlet.proxy.messages.enums import ClientType, Code, FilterType
from rocketlet.proxy.rpc.call import GrpcStatus
from rocketlet.proxy.services import clients
from rocketlet.proxy.services.clients import EXPIRY_MS, LEAVE_MS
from rocketlet.proxy.services.telemetry import REPEAT_MS
from rocketlet.remoting.bodies.admin import ProducerConnections
from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.client import ConsumerConnections, ConsumerList
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

SCENARIOS = [
    *("telemetry-producer", "telemetry-push-GFifo", "telemetry-push-GNormal", "telemetry-push-unknown-group"),
    *("telemetry-simple-GMixed", "telemetry-errors"),
]
OTHERWISE = {
    "unknown language": "nothing depends on the language",
    "no language": "the same",
}


@pytest.fixture
def port(broker: Broker) -> LocalPort:
    """Return the services of a broker."""
    return LocalPort(broker)


def producer_settings(*topics: str) -> v2.Settings:
    """Return what a producer says of itself."""
    publishing = v2.Publishing(topics=[v2.Resource(name=topic) for topic in topics])
    return v2.Settings(client_type=ClientType.PRODUCER, publishing=publishing)


def consumer_settings(group: str, topic: str) -> v2.Settings:
    """Return what a push consumer says of itself."""
    entry = v2.SubscriptionEntry(
        topic=v2.Resource(name=topic),
        expression=v2.FilterExpression(type=FilterType.TAG, expression="a||b"),
    )
    subscription = v2.Subscription(group=v2.Resource(name=group), subscriptions=[entry])
    return v2.Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscription)


def say(port: LocalPort, settings: v2.Settings, **metadata: str) -> Any:
    """Open a stream that says these settings; return its call."""
    call = make_call({**METADATA, **metadata})
    port.telemetry(call).received(v2.TelemetryCommand(settings=settings).SerializeToString())
    return call


@pytest.mark.feature("G2")
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_streams_are_answered_as_by_the_proxy(scenario: str, port: LocalPort) -> None:
    """Each command of a recorded stream is answered with the same, and each stream ends alike."""
    port.operations.groups.put(
        SubscriptionGroupConfig(group_name="GFifo", consume_message_orderly=True, retry_max_times=3)
    )
    for exchange in load_exchanges(scenario):
        if "events" not in exchange or exchange["name"] in OTHERWISE:
            continue
        call = make_call(exchange["metadata"])
        stream = port.telemetry(call)
        theirs: list[Any] = []
        end: tuple[str, str] | None = None
        for event in exchange["events"]:
            if event["dir"] == "s2c" and "json" in event:
                theirs.append(event["json"])
            elif "end" in event and event["end"] != "CANCELLED":
                end = event["end"], event.get("details", "")
            elif event.get("halfClose"):
                stream.ended()
            elif "hex" in event:
                stream.received(bytes.fromhex(event["hex"]))
        ours = [json_format.MessageToDict(each, preserving_proto_field_name=True) for each in commands(call)]
        assert ours == theirs, exchange["name"]
        assert end == (None if call.status is None else (call.status.name, call.text)), exchange["name"]


@pytest.mark.feature("G2")
def test_first_settings_are_answered_twice(port: LocalPort, clock: ManualClock) -> None:
    """The Node.js client, which misses an answer that comes at once, gets another; later settings have one."""
    call = make_call()
    stream = port.telemetry(call)
    settings = v2.TelemetryCommand(settings=producer_settings("T")).SerializeToString()
    stream.received(settings)
    clock.advance(REPEAT_MS)
    stream.received(settings)
    clock.advance(REPEAT_MS)
    assert [each.status.code for each in commands(call)] == [Code.OK] * 3


def test_ended_stream_is_told_nothing_more(port: LocalPort, clock: ManualClock) -> None:
    """What was to be said later is not said to a client that has ended its stream."""
    call = make_call()
    stream = port.telemetry(call)
    stream.received(v2.TelemetryCommand(settings=producer_settings("T")).SerializeToString())
    stream.ended()
    clock.advance(REPEAT_MS)
    assert len(commands(call)) == 1
    assert call.status is GrpcStatus.OK


def test_group_tells_its_own_backoff(port: LocalPort) -> None:
    """The consumers of a group whose waits grow are told so."""
    policy = GroupRetryPolicy(type=RetryPolicyType.EXPONENTIAL, exponential_retry_policy=ExponentialRetry())
    port.operations.groups.put(SubscriptionGroupConfig(group_name="g", group_retry_policy=policy))
    (answer,) = commands(say(port, consumer_settings("g", "T")))
    backoff = answer.settings.backoff_policy.exponential_backoff
    assert (backoff.initial.seconds, backoff.max.seconds, backoff.multiplier) == (5, 7200, 2)


def test_garbage_ends_the_stream(port: LocalPort) -> None:
    """A command that is none ends its stream as UNKNOWN."""
    call = make_call()
    port.telemetry(call).received(b"\xff\xff")
    assert call.status is GrpcStatus.UNKNOWN


@pytest.mark.feature("G20")
def test_endless_settings_are_refused(port: LocalPort) -> None:
    """A command that is too long to be kept ends its stream, and nothing of it is."""
    call = say(port, producer_settings(*(f"T{number}" for number in range(100_000))))
    assert call.status is GrpcStatus.INVALID_ARGUMENT
    assert port.services.clients.find("me@1") is None


@pytest.mark.feature("G20")
def test_clients_are_bounded(port: LocalPort, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who calls by ever new names is remembered by the last of them only."""
    monkeypatch.setattr(clients, "MOST_CLIENTS", 3)
    for number in range(5):
        port.send(metadata={**METADATA, "x-mq-client-id": f"c{number}"})
        say(port, producer_settings("T"), **{"x-mq-client-id": f"c{number}"})
    assert [client.client_id for client in port.services.clients] == ["c2", "c3", "c4"]
    assert len(port.operations.guests.producer_group("T")) == 3


async def test_silent_client_is_gone(port: LocalPort, clock: ManualClock) -> None:
    """A client that gives no sign of life for two minutes is gone, its stream ends, and who has asked hears of it."""
    gone: list[str] = []
    registry = port.services.clients
    registry.on_gone(gone.append)
    call = say(port, producer_settings("T"))
    clock.advance(EXPIRY_MS)
    await registry.expire()
    assert registry.is_alive("me@1")
    clock.advance(1)
    assert not registry.is_alive("me@1")
    await registry.expire()
    assert gone == ["me@1"]
    assert call.status is GrpcStatus.OK
    assert not port.operations.guests.producer_group("T")


def test_heartbeat_keeps_a_client(port: LocalPort, clock: ManualClock) -> None:
    """A heartbeat is a sign of life, also of a client that has said nothing else."""
    group = v2.Resource(name="g")
    request = v2.HeartbeatRequest(group=group, client_type=ClientType.PUSH_CONSUMER)
    answer = port.call("Heartbeat", request, v2.HeartbeatResponse)
    assert answer.status.code == Code.OK
    clock.advance(EXPIRY_MS)
    assert port.services.clients.is_alive("me@1")
    port.call("NotifyClientTermination", v2.NotifyClientTerminationRequest(group=group), v2.HeartbeatResponse)
    assert not port.services.clients.is_alive("me@1")


def leave(port: LocalPort) -> None:
    """Say that the client leaves."""
    port.call("NotifyClientTermination", v2.NotifyClientTerminationRequest(), v2.NotifyClientTerminationResponse)


def test_what_a_client_leaves_open_is_ended(port: LocalPort, clock: ManualClock) -> None:
    """A client that left and has telemetry open, from before or opened since, is not waited for."""
    before = say(port, producer_settings("T"))
    leave(port)
    since = say(port, producer_settings("T"))
    clock.advance(LEAVE_MS - 1)
    assert (before.status, since.status) == (None, None)
    clock.advance(1)
    assert (before.status, since.status) == (GrpcStatus.OK, GrpcStatus.OK)
    assert port.services.clients.find("me@1") is None


def test_client_that_comes_back_is_not_ended(port: LocalPort, clock: ManualClock) -> None:
    """Who is started again by the same name, on another connection, is another."""
    say(port, producer_settings("T"))
    leave(port)
    call = make_call()
    call.remote_address = ("127.0.0.1", 50_001)
    port.telemetry(call).received(v2.TelemetryCommand(settings=producer_settings("T")).SerializeToString())
    clock.advance(LEAVE_MS)
    assert call.status is None
    assert port.services.clients.is_alive("me@1")


def test_kind_that_is_not_served_is_refused(port: LocalPort) -> None:
    """A heartbeat of a kind of client that the broker does not serve is refused."""
    answer = port.call("Heartbeat", v2.HeartbeatRequest(client_type=99), v2.HeartbeatResponse)
    assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE


@pytest.mark.feature("G23")
def test_lite_is_refused(port: LocalPort) -> None:
    """A lite consumer is told that there are no lite topics, at its first call and by its settings."""
    answer = port.call("SyncLiteSubscription", v2.SyncLiteSubscriptionRequest(), v2.SyncLiteSubscriptionResponse)
    assert answer.status.code == Code.NOT_IMPLEMENTED
    settings = consumer_settings("g", "T")
    settings.client_type = ClientType.LITE_PUSH_CONSUMER
    assert say(port, settings).status is GrpcStatus.INTERNAL


@pytest.mark.feature("G21")
async def test_administrators_see_clients(port: LocalPort, caller: Caller) -> None:
    """Consumers and producers are listed with what they subscribe to; members of remoting do not see them."""
    say(port, consumer_settings("g", "T"))
    say(port, producer_settings("T"), **{"x-mq-client-id": "you@2"})
    answer = await caller.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    told = decode_answer(ConsumerConnections, answer.body)
    assert [each.client_id for each in told.connection_set] == ["me@1"]
    assert told.subscription_table["T"].sub_string == "a||b"
    answer = await caller.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "T"})
    assert [each.client_id for each in decode_answer(ProducerConnections, answer.body).connection_set] == ["you@2"]
    answer = await caller.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"})
    assert answer.code != ResponseCode.SUCCESS or not decode_answer(ConsumerList, answer.body).consumer_id_list
    port.services.clients.forget_all()
    answer = await caller.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "g"})
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
