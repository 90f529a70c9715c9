"""Who may call what over gRPC: the users and policies of the broker."""

import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.protobuf.message import Message
from grpc_calls import METADATA, LocalPort, make_call
from grpc_users import Channel, open_channel, open_port, sign_call
from guarded import ADMIN, GUARDED, SignedCaller, open_signed
from raw_calls import until

from rocketlet.broker.security.failed_tries import MOST_TRIES, PERIOD_MS
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.topic.topics import make_topic
from rocketlet.proxy.messages import v2
from rocketlet.proxy.messages.enums import ClientType, Code
from rocketlet.proxy.rpc.call import GrpcStatus
from rocketlet.proxy.services.calling import SERVICE
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

OTHER = "other"
ALICE = ("alice", "alicepw")
T, G = v2.Resource(name="T"), v2.Resource(name="g")
DENIED = "User:alice has no permission to access {} from 127.0.0.1, no matched policies."
CONSUMES = ("Group:g", "Topic:T")


def sent(topic: str = "T") -> v2.SendMessageRequest:
    """Return a request to send."""
    message = v2.Message(topic=v2.Resource(name=topic), body=b"body")
    message.system_properties.message_id = "01AB"
    return v2.SendMessageRequest(messages=[message])


CALLS: dict[str, tuple[Message, type[Any], tuple[str, ...], str]] = {
    "SendMessage": (sent(), v2.SendMessageResponse, ("Topic:T",), "Pub"),
    "RecallMessage": (
        v2.RecallMessageRequest(topic=T, recall_handle="x"),
        v2.RecallMessageResponse,
        ("Topic:T",),
        "Pub",
    ),
    "EndTransaction": (
        v2.EndTransactionRequest(topic=T, transaction_id="01AB", resolution=1),
        v2.EndTransactionResponse,
        ("Topic:T",),
        "Pub",
    ),
    "ReceiveMessage": (
        v2.ReceiveMessageRequest(group=G, message_queue=v2.MessageQueue(topic=T), batch_size=-1),
        v2.ReceiveMessageResponse,
        CONSUMES,
        "Sub",
    ),
    "AckMessage": (
        v2.AckMessageRequest(group=G, topic=T, entries=[v2.AckMessageEntry(message_id="1", receipt_handle="x")]),
        v2.AckMessageResponse,
        CONSUMES,
        "Sub",
    ),
    "ChangeInvisibleDuration": (
        v2.ChangeInvisibleDurationRequest(group=G, topic=T, receipt_handle="x"),
        v2.ChangeInvisibleDurationResponse,
        CONSUMES,
        "Sub",
    ),
    "ForwardMessageToDeadLetterQueue": (
        v2.ForwardMessageToDeadLetterQueueRequest(group=G, topic=T, receipt_handle="x"),
        v2.ForwardMessageToDeadLetterQueueResponse,
        CONSUMES,
        "Sub",
    ),
    "QueryAssignment": (v2.QueryAssignmentRequest(group=G, topic=T), v2.QueryAssignmentResponse, CONSUMES, "Sub"),
    "Heartbeat": (
        v2.HeartbeatRequest(group=G, client_type=ClientType.SIMPLE_CONSUMER),
        v2.HeartbeatResponse,
        ("Group:g",),
        "Sub",
    ),
    "NotifyClientTermination": (
        v2.NotifyClientTerminationRequest(group=G),
        v2.NotifyClientTerminationResponse,
        ("Group:g",),
        "Sub",
    ),
    "QueryRoute": (v2.QueryRouteRequest(topic=T), v2.QueryRouteResponse, ("Topic:T",), "Sub"),
    "SyncLiteSubscription": (v2.SyncLiteSubscriptionRequest(), v2.SyncLiteSubscriptionResponse, (), ""),
}


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings of a broker that asks who its clients are and what they may do."""
    return {**settings, **GUARDED}


@pytest.fixture
async def admin(broker: Broker) -> AsyncGenerator[SignedCaller]:
    """Return a connection of who may do everything."""
    async with open_signed(broker.address) as caller:
        await caller.make_user(*ALICE)
        yield caller


@pytest.fixture
def port(broker: Broker, admin: SignedCaller) -> LocalPort:
    """Return the services of a broker with a topic, which knows alice."""
    port = LocalPort(broker)
    port.operations.topics.put(make_topic("T", 4))
    port.operations.topics.unsaved.discard("T")
    return port


def signed(name: str = ALICE[0], secret: str = ALICE[1], **changes: str) -> dict[str, str]:
    """Return the headers of a caller who signs."""
    return sign_call(name, secret, **changes)


def refusal(port: LocalPort, method: str, headers: dict[str, str]) -> str | None:
    """Return why a call is refused to somebody, ``None`` if it is served, however it ends."""
    request, kind, _, _ = CALLS[method]
    call = port.start(method, request.SerializeToString(), make_call(headers))
    (answer,) = call.answers(kind)[:1] or [None]
    if answer is None:
        return None
    return answer.status.message if answer.status.code == Code.UNAUTHORIZED else None


def test_every_call_is_guarded(port: LocalPort) -> None:
    """There is none that this page does not know."""
    assert port.services.methods.keys() == {SERVICE + name for name in (*CALLS, "Telemetry")}


@pytest.mark.feature("A23", "G22")
@pytest.mark.parametrize("method", CALLS)
async def test_calls(port: LocalPort, admin: SignedCaller, method: str) -> None:
    """Nobody, a wrong secret, users without rights, with all of them but one, with exactly these, and a super user."""
    _, _, resources, action = CALLS[method]
    assert refusal(port, method, dict(METADATA)) == "username cannot be null."
    assert refusal(port, method, signed(secret=OTHER)) == "check signature failed."
    assert refusal(port, method, signed("bob")) == "User:bob is not found."
    for resource in resources:
        assert refusal(port, method, signed()) == DENIED.format(resource)
        await admin.allow("alice", [f"{resource} Get"])
        assert refusal(port, method, signed()) == DENIED.format(resource)
        await admin.allow("alice", [f"{resource} {action}"])
    assert refusal(port, method, signed()) is None
    assert refusal(port, method, signed(*ADMIN)) is None


@pytest.mark.parametrize(
    ("headers", "remark"),
    [
        (signed(authorization=""), "username cannot be null."),
        (signed(authorization="MQv2-HMAC-SHA1"), "authentication header is incorrect."),
        (signed(authorization="MQv2-HMAC-SHA1 Credential"), "authentication header is incorrect."),
        (signed(authorization="MQv2-HMAC-SHA1 Signature=ab"), "username cannot be null."),
        (signed(authorization="MQv2-HMAC-SHA1 Credential=alice"), "check signature failed."),
        (signed(authorization="MQv2-HMAC-SHA1 Credential=alice, Signature=é"), "check signature failed."),
        (signed(**{"x-mq-date-time": ""}), "datetime is null."),
        (signed(**{"x-mq-date-time": "20261127T101113Z"}), "check signature failed."),
    ],
)
def test_headers_that_prove_nothing(port: LocalPort, headers: dict[str, str], remark: str) -> None:
    """Missing, cut off, and of another time."""
    assert refusal(port, "SendMessage", headers) == remark


async def test_signatures_in_small_letters(port: LocalPort, admin: SignedCaller) -> None:
    """Some clients write them so; the name ends at the first slash, or is all there is."""
    await admin.allow("alice", ["Topic:T Pub"])
    words = signed()["authorization"]
    head, _, signature = words.rpartition("=")
    assert refusal(port, "SendMessage", signed(authorization=f"{head}={signature.lower()}")) is None
    assert refusal(port, "SendMessage", signed(authorization=words.replace("//Rocketmq", ""))) is None


async def test_telemetry(port: LocalPort, admin: SignedCaller) -> None:
    """Settings need each topic that is published; who may not say them hears that alone, and the stream ends."""
    settings = v2.Settings(client_type=ClientType.PRODUCER, publishing=v2.Publishing(topics=[T]))
    command = v2.TelemetryCommand(settings=settings).SerializeToString()
    refused = make_call(signed())
    port.telemetry(refused).received(command)
    (answer,) = refused.answers(v2.TelemetryCommand)
    assert (answer.status.code, answer.status.message) == (Code.UNAUTHORIZED, DENIED.format("Topic:T"))
    assert answer.WhichOneof("command") is None
    assert refused.status is GrpcStatus.OK
    await admin.allow("alice", ["Topic:T Pub"])
    served = make_call(signed())
    port.telemetry(served).received(command)
    assert served.answers(v2.TelemetryCommand)[0].WhichOneof("command") == "settings"
    subscription = v2.Subscription(group=G, subscriptions=[v2.SubscriptionEntry(topic=T)])
    wants = v2.Settings(client_type=ClientType.PUSH_CONSUMER, subscription=subscription)
    port.telemetry(refused := make_call(signed())).received(v2.TelemetryCommand(settings=wants).SerializeToString())
    assert refused.answers(v2.TelemetryCommand)[0].status.message == DENIED.format("Group:g")
    assert [client.client_id for client in port.services.clients] == [METADATA["x-mq-client-id"]]


async def test_changes_count_at_once(port: LocalPort, admin: SignedCaller) -> None:
    """A right that is taken back, another password, and a user who is gone."""
    await admin.allow("alice", ["Topic:T Pub"])
    assert refusal(port, "SendMessage", signed()) is None
    await admin.put(RequestCode.AUTH_DELETE_ACL, {"subject": "User:alice", "resource": "Topic:T"})
    assert refusal(port, "SendMessage", signed()) == DENIED.format("Topic:T")
    await admin.put(RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, b'{"password":"other"}')
    assert refusal(port, "SendMessage", signed()) == "check signature failed."
    await admin.put(RequestCode.AUTH_UPDATE_USER, {"username": "alice"}, b'{"userStatus":"disable"}')
    assert refusal(port, "SendMessage", signed(secret=OTHER)) == "User:alice is disabled."
    await admin.put(RequestCode.AUTH_DELETE_USER, {"username": "alice"})
    assert refusal(port, "SendMessage", signed(secret=OTHER)) == "User:alice is not found."


async def test_guessing_ends(
    port: LocalPort, admin: SignedCaller, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """After so many wrong signatures from an address nothing more is checked; who was known there goes on."""
    await admin.allow("alice", ["Topic:T Pub"])
    assert refusal(port, "SendMessage", signed()) is None
    with caplog.at_level(logging.WARNING):
        for _ in range(MOST_TRIES):
            assert refusal(port, "SendMessage", signed("eve")) == "User:eve is not found."
    assert "too many wrong signatures" in caplog.text
    assert "alicepw" not in caplog.text
    assert str(refusal(port, "SendMessage", signed("eve"))).startswith("too many wrong signatures")
    assert refusal(port, "SendMessage", signed()) is None
    assert str(refusal(port, "SendMessage", signed(*ADMIN))).startswith("too many wrong signatures")
    clock.advance(PERIOD_MS)
    assert refusal(port, "SendMessage", signed(*ADMIN)) is None


async def send_wrongly(channel: Channel, caller: SignedCaller, tries: str) -> None:
    """Sign wrongly at the doors that letters name, r for remoting, g for gRPC."""
    for door in tries:
        if door == "r":
            assert (await caller.send()).remark == "check signature failed."
        else:
            answer = await channel.ask("SendMessage", sent(), v2.SendMessageResponse, signed("eve"))
            assert answer.status.message == "User:eve is not found."


@pytest.mark.parametrize("doors", ["g", "r", "gr"])
async def test_doors_count_wrong_signatures_together(
    broker: Broker, admin: SignedCaller, clock: ManualClock, doors: str
) -> None:
    """Whoever guesses at one door is shut out at the other; connections that have signed rightly go on at both."""
    busy = "too many wrong signatures came from this address, try again in a minute"
    async with (
        open_port(broker, clock) as number,
        open_channel(number) as known,
        open_channel(number) as guesses,
        open_signed(broker.address, "admin", "guess") as guesser,
        open_signed(broker.address) as newcomer,
    ):
        asked = "SendMessage", sent(), v2.SendMessageResponse, signed(*ADMIN)
        assert (await admin.send()).code == 0
        assert (await known.ask(*asked)).status.code != Code.UNAUTHORIZED
        await send_wrongly(guesses, guesser, doors * (MOST_TRIES // len(doors)))
        refused = await newcomer.send()
        assert (refused.code, refused.remark) == (2, busy)
        answer = await guesses.ask(*asked)
        assert (answer.status.code, answer.status.message) == (Code.UNAUTHORIZED, busy)
        assert (await known.ask(*asked)).status.code != Code.UNAUTHORIZED
        assert (await admin.send()).code == 0
        clock.advance(PERIOD_MS)
        assert (await newcomer.send()).code == 0
        assert (await guesses.ask(*asked)).status.code != Code.UNAUTHORIZED


async def test_connection_is_known_while_it_lasts(broker: Broker, admin: SignedCaller, clock: ManualClock) -> None:
    """Who connects from the same port afterwards is somebody else."""
    access = broker.operations.access
    assert access is not None
    await admin.send()
    assert list(access.known.values()) == [{ADMIN[0]}]
    async with open_port(broker, clock) as number:
        async with open_channel(number) as channel:
            await channel.ask("SendMessage", sent(), v2.SendMessageResponse, signed())
            await channel.ask("SendMessage", sent(), v2.SendMessageResponse, signed(*ADMIN))
            assert {ADMIN[0], ALICE[0]} in access.known.values()
        await until(lambda: len(access.known) == 1)
    async with open_signed(broker.address) as other:
        await other.send()
        assert len(access.known) == 2
    await until(lambda: len(access.known) == 1)


@pytest.mark.parametrize(
    "settings_of_lists", [("authenticationWhitelist",), ("authenticationWhitelist", "authorizationWhitelist")]
)
async def test_white_lists_name_messages(
    settings: dict[str, str], settings_of_lists: tuple[str, ...], clock: ManualClock
) -> None:
    """A call on both lists is served to everybody; on the first alone its sender is nobody, who may nothing."""
    for key in settings_of_lists:
        settings[key] = "apache.rocketmq.v2.SendMessageRequest"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker:
        told = refusal(LocalPort(broker), "SendMessage", dict(METADATA))
    assert (told is None) == (len(settings_of_lists) == 2)
