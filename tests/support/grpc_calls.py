"""Calls of gRPC without a connection: what a service answers is kept."""

from collections.abc import Mapping
from typing import TypeVar

from google.protobuf.message import Message
from probe_calls import ProbeCall

from rocketlet.broker.server import Broker
from rocketlet.common.ids import Address
from rocketlet.proxy.messages import v2
from rocketlet.proxy.rpc.call import RequestStream, StreamMethod, UnaryMethod
from rocketlet.proxy.services.calling import SERVICE
from rocketlet.proxy.services.services import Services

METADATA = {"x-mq-client-id": "me@1", "x-mq-language": "JAVA", "x-mq-client-version": "5.2.0"}
HERE = "here.example", 8081
AnswerT = TypeVar("AnswerT", bound=Message)


def make_call(metadata: Mapping[str, str] = METADATA) -> ProbeCall:
    """Return a call of a client."""
    call = ProbeCall()
    call.metadata = dict(metadata)
    return call


class LocalPort:
    """The services of a broker, called in the process."""

    def __init__(self, broker: Broker, own_address: Address = HERE) -> None:
        self.operations = broker.operations
        self.services = Services(broker.operations, own_address)

    def start(self, method: str, request: bytes, call: ProbeCall) -> ProbeCall:
        """Serve a call, and end the turn."""
        found = self.services.methods[SERVICE + method]
        assert isinstance(found, UnaryMethod)
        found.serve(request, call)
        self.operations.scheduler.end_turn()
        return call

    def call(
        self, method: str, request: Message, answer: type[AnswerT], metadata: Mapping[str, str] = METADATA
    ) -> AnswerT:
        """Return the one answer of a call that has it at once."""
        call = self.start(method, request.SerializeToString(), make_call(metadata))
        return call.one_answer(answer)

    def telemetry(self, call: ProbeCall) -> RequestStream:
        """Open a telemetry stream."""
        found = self.services.methods[SERVICE + "Telemetry"]
        assert isinstance(found, StreamMethod)
        return found.open(call)

    def send(self, *messages: v2.Message, metadata: Mapping[str, str] = METADATA) -> v2.SendMessageResponse:
        """Send messages in one request."""
        return self.call("SendMessage", v2.SendMessageRequest(messages=messages), v2.SendMessageResponse, metadata)


def commands(call: ProbeCall) -> list[v2.TelemetryCommand]:
    """Return what a telemetry stream was told."""
    return call.answers(v2.TelemetryCommand)
