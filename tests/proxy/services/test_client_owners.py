"""Whose client it is: that of the user who signs its calls, for as long as it lives."""

from collections.abc import AsyncGenerator

import pytest
from google.protobuf.message import Message
from grpc_calls import METADATA, LocalPort, commands, make_call
from grpc_users import open_channel, open_port, sign_call
from guarded import ADMIN, GUARDED, SignedCaller, open_signed
from halfcalls import ROUND_MS, asked_half
from msgspec.structs import replace
from probe_calls import ProbeCall

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.topic.topics import make_topic
from rocketlet.proxy.messages import v2
from rocketlet.proxy.messages.enums import ClientType, Code, MessageType
from rocketlet.proxy.rpc.call import GrpcStatus
from rocketlet.proxy.services.clients import EXPIRY_MS
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

ALICE, BOB = ("alice", "alicepw"), ("bob", "bobpw")
ID = METADATA["x-mq-client-id"]
T, G = v2.Resource(name="T"), v2.Resource(name="g")
ANOTHER_USERS = f"client {ID} is another user's, who has signed its calls so far"
PUBLISHING = v2.Settings(client_type=ClientType.PRODUCER, publishing=v2.Publishing(topics=[T]))
TELLS = v2.TelemetryCommand(settings=PUBLISHING).SerializeToString()
BEAT = v2.HeartbeatRequest(group=G, client_type=ClientType.SIMPLE_CONSUMER)
LEAVE = v2.NotifyClientTerminationRequest(group=G)
RIGHTS = "Topic:T Pub,Sub", "Group:g Sub"


def half() -> v2.Message:
    """Return a message of a transaction."""
    message = v2.Message(topic=T, body=b"half")
    message.system_properties.message_id = "01AB"
    message.system_properties.message_type = MessageType.TRANSACTION
    return message


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings of a broker that asks who its clients are and what they may do."""
    return {**settings, **GUARDED}


def serve(broker: Broker) -> LocalPort:
    """Return the services of a broker with a topic for every kind of message."""
    broker.operations.topics.put(replace(make_topic("T", 4), attributes={"message.type": "MIXED"}))
    broker.operations.topics.unsaved.discard("T")
    return LocalPort(broker)


@pytest.fixture
async def admin(broker: Broker) -> AsyncGenerator[SignedCaller]:
    """Return a connection of who may do everything; two users have the same rights."""
    async with open_signed(broker.address) as caller:
        for user in (ALICE, BOB):
            await caller.make_user(*user, *RIGHTS)
        yield caller


@pytest.fixture
def port(broker: Broker, admin: SignedCaller) -> LocalPort:
    """Return the services of a broker that knows the users."""
    return serve(broker)


def beat(port: LocalPort, user: tuple[str, str], request: Message = BEAT, /, **changes: str) -> tuple[int, str]:
    """Return what a user hears who gives a sign of life of the client."""
    answer = port.call("Heartbeat", request, v2.HeartbeatResponse, sign_call(*user, **changes))
    return answer.status.code, answer.status.message


def leave(port: LocalPort, user: tuple[str, str]) -> Code:
    """Return what a user hears who ends the client."""
    answer = port.call("NotifyClientTermination", LEAVE, v2.NotifyClientTerminationResponse, sign_call(*user))
    return Code(answer.status.code)


def tell(port: LocalPort, user: tuple[str, str], **changes: str) -> ProbeCall:
    """Open a stream of a producer, and say its settings."""
    call = make_call(sign_call(*user, **changes))
    port.telemetry(call).received(TELLS)
    return call


async def test_nobody_else_calls_as_that_client(broker: Broker, admin: SignedCaller, clock: ManualClock) -> None:
    """Over the real port: neither to end it, nor to be it, nor to take its stream; not even who may do everything."""
    serve(broker)
    async with open_port(broker, clock) as number, open_channel(number) as alice, open_channel(number) as other:
        stream = alice.stream(sign_call(*ALICE))
        await stream.write(TELLS)
        assert v2.TelemetryCommand.FromString(await stream.read()).WhichOneof("command") == "settings"
        for user in (BOB, ADMIN):
            headers = sign_call(*user)
            answers: list[v2.Status] = [
                (await other.ask("NotifyClientTermination", LEAVE, v2.NotifyClientTerminationResponse, headers)).status,
                (await other.ask("Heartbeat", BEAT, v2.HeartbeatResponse, headers)).status,
                (
                    await other.ask(
                        "SendMessage", send := v2.SendMessageRequest(messages=[half()]), v2.SendMessageResponse, headers
                    )
                ).status,
                (await other.ask("QueryRoute", v2.QueryRouteRequest(topic=T), v2.QueryRouteResponse, headers)).status,
            ]
            theirs = other.stream(headers)
            await theirs.write(TELLS)
            answers.append(v2.TelemetryCommand.FromString(await theirs.read()).status)
            assert [(each.code, each.message) for each in answers] == [(Code.FORBIDDEN, ANOTHER_USERS)] * 5
            assert (await theirs.code()).value[0] == GrpcStatus.OK
        await stream.write(TELLS)
        assert v2.TelemetryCommand.FromString(await stream.read()).WhichOneof("command") == "settings"
        assert (await alice.ask("SendMessage", send, v2.SendMessageResponse, sign_call(*ALICE))).status.code == Code.OK


def test_client_is_free_when_its_user_has_ended_it(port: LocalPort) -> None:
    """Then it belongs to whoever signs first again."""
    assert beat(port, ALICE)[0] == Code.OK
    assert beat(port, BOB) == (Code.FORBIDDEN, ANOTHER_USERS)
    assert beat(port, BOB, **{"x-mq-client-id": "bob@1"})[0] == Code.OK
    assert leave(port, BOB) == Code.FORBIDDEN
    assert leave(port, ALICE) == Code.OK
    assert beat(port, BOB)[0] == Code.OK
    assert leave(port, ALICE) == Code.FORBIDDEN


async def test_client_is_free_when_it_is_silent(port: LocalPort, clock: ManualClock) -> None:
    """After two minutes, whether it has been cleared away or not; its stream ends, and what it said is not kept."""
    stream = tell(port, ALICE)
    clock.advance(EXPIRY_MS)
    assert beat(port, BOB) == (Code.FORBIDDEN, ANOTHER_USERS)
    clock.advance(1)
    assert beat(port, BOB)[0] == Code.OK
    assert stream.status is GrpcStatus.OK
    assert not port.operations.guests.producer_group("T")
    (client,) = port.services.clients
    assert (client.user, client.settings, client.group) == ("bob", None, "g")
    assert beat(port, ALICE) == (Code.FORBIDDEN, ANOTHER_USERS)
    clock.advance(EXPIRY_MS + 1)
    await port.services.clients.expire()
    assert beat(port, ALICE)[0] == Code.OK


async def test_restart_forgets_whose_clients_there_were(settings: dict[str, str], clock: ManualClock) -> None:
    """Nothing of it is stored: who calls first after a restart has the client."""
    config = BrokerConfig.from_java(settings)
    async with Broker(config, clock) as broker, open_signed(broker.address) as admin:
        for user in (ALICE, BOB):
            await admin.make_user(*user, *RIGHTS)
        port = serve(broker)
        assert beat(port, ALICE)[0] == Code.OK
        assert beat(port, BOB) == (Code.FORBIDDEN, ANOTHER_USERS)
    async with Broker(config, clock) as broker:
        port = serve(broker)
        assert beat(port, BOB)[0] == Code.OK
        assert beat(port, ALICE) == (Code.FORBIDDEN, ANOTHER_USERS)


async def test_without_a_user_nothing_is_anybodys(settings: dict[str, str], clock: ManualClock) -> None:
    """Where nobody is asked for, everybody may be any client; where calls are open, a user's client stays theirs."""
    opened = {**settings, "authenticationWhitelist": "apache.rocketmq.v2.HeartbeatRequest"}
    async with Broker(BrokerConfig.from_java({**opened, "authorizationEnabled": "false"}), clock) as broker:
        port = serve(broker)
        assert beat(port, ("", ""))[0] == Code.OK
        assert next(iter(port.services.clients)).user is None
        assert beat(port, ADMIN)[0] == Code.OK
        assert [client.user for client in port.services.clients] == [ADMIN[0]]
        assert beat(port, ("", "")) == (Code.FORBIDDEN, ANOTHER_USERS)
    for key in ("authenticationEnabled", "authorizationEnabled"):
        del settings[key]
    async with Broker(BrokerConfig.from_java(settings), clock) as broker:
        port = serve(broker)
        for user in (ALICE, BOB, ("", "")):
            assert beat(port, user)[0] == Code.OK
        assert [client.user for client in port.services.clients] == [None]
        assert leave(port, BOB) == Code.OK


def questions(call: ProbeCall) -> int:
    """Return how often a stream was asked about a transaction."""
    return sum(each.WhichOneof("command") == "recover_orphaned_transaction_command" for each in commands(call))


@pytest.mark.feature("G11")
async def test_questions_go_to_who_may_send(port: LocalPort, admin: SignedCaller, clock: ManualClock) -> None:
    """A question holds the message: whose right was taken back is not asked any more, though the stream is open."""
    bobs = {"x-mq-client-id": "bob@1"}
    streams = [tell(port, ALICE), tell(port, BOB, **bobs)]
    assert port.send(half(), metadata=sign_call(*ALICE)).status.code == Code.OK
    await admin.put(RequestCode.AUTH_DELETE_ACL, {"subject": "User:bob", "resource": "Topic:T"})
    assert tell(port, BOB, **bobs).status is GrpcStatus.OK  # who may not say that they publish there
    for _ in range(4):
        await clock.elapse(ROUND_MS)
        for user, changes in ((ALICE, {}), (BOB, bobs)):
            assert beat(port, user, v2.HeartbeatRequest(client_type=ClientType.PRODUCER), **changes)[0] == Code.OK
    assert len(port.operations.guests.producer_group("T")) == 2
    assert questions(streams[0]) > 1
    assert questions(streams[1]) == 0


async def test_questions_go_to_signed_connections(port: LocalPort, admin: SignedCaller, clock: ManualClock) -> None:
    """Over remoting anybody may say that they are of a group: asked is who has signed as somebody who may send."""
    await admin.make_user("eve", "evepw")
    assert port.send(half(), metadata=sign_call(*ALICE)).status.code == Code.OK
    address = admin.connection.remote_address
    body = b'{"clientID":"c","consumerDataSet":[],"producerDataSet":[{"groupName":"T"}]}'
    async with (
        open_signed(f"{address[0]}:{address[1]}", "eve", "evepw") as eve,
        open_signed(f"{address[0]}:{address[1]}", *BOB) as bob,
    ):
        for caller in (eve, bob):
            await caller.put(RequestCode.HEART_BEAT, None, body)
        for _ in range(4):
            await clock.elapse(ROUND_MS)
        asked = {asked_half(await bob.next_request()).unique_key, asked_half(await bob.next_request()).unique_key}
        assert asked == {"01AB"}
        assert eve.requests.empty()
