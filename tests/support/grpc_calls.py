"""Calls of gRPC without a connection: what a service answers is kept."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from google.protobuf.message import Message

from rocketlet.broker.server import Broker
from rocketlet.common.ids import Address
from rocketlet.proxy.messages import v2
from rocketlet.proxy.rpc.call import GrpcStatus, RequestStream, StreamMethod, UnaryMethod
from rocketlet.proxy.services.calling import SERVICE
from rocketlet.proxy.services.services import Services

METADATA = {"x-mq-client-id": "me@1", "x-mq-language": "JAVA", "x-mq-client-version": "5.2.0"}
HERE = "here.example", 8081
AnswerT = TypeVar("AnswerT", bound=Message)


class KeptCall:
    """A call that keeps its answer."""

    def __init__(self, metadata: Mapping[str, str] = METADATA, remaining_ms: int | None = 3_000) -> None:
        self.metadata = metadata
        self.remote_address: Address = ("127.0.0.1", 4711)
        self.is_over = False
        self.messages: list[bytes] = []
        self.status: GrpcStatus | None = None
        self.text = ""
        self._remaining_ms = remaining_ms
        self._tell: list[Callable[[], None]] = []

    def remaining_ms(self) -> int | None:
        """Return how long the caller still waits."""
        return self._remaining_ms

    def send(self, message: bytes) -> None:
        """Keep a message."""
        if not self.is_over:
            self.messages.append(message)

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """Keep how the answer ends."""
        if not self.is_over:
            self.is_over, self.status, self.text = True, status, text

    def on_over(self, tell: Callable[[], None]) -> None:
        """Keep whom to tell that it is cancelled."""
        self._tell.append(tell)

    def cancel(self) -> None:
        """End without an answer, as a client that is gone."""
        if not self.is_over:
            self.is_over, self.status = True, GrpcStatus.CANCELLED
            for tell in self._tell:
                tell()


class LocalPort:
    """The services of a broker, called in the process."""

    def __init__(self, broker: Broker) -> None:
        self.operations = broker.operations
        self.services = Services(broker.operations, lambda: HERE)

    def start(self, method: str, request: bytes, call: KeptCall) -> KeptCall:
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
        call = self.start(method, request.SerializeToString(), KeptCall(metadata))
        assert call.status is GrpcStatus.OK, call.text
        (message,) = call.messages
        return answer.FromString(message)

    def telemetry(self, call: KeptCall) -> RequestStream:
        """Open a telemetry stream."""
        found = self.services.methods[SERVICE + "Telemetry"]
        assert isinstance(found, StreamMethod)
        return found.open(call)

    def send(self, *messages: v2.Message, metadata: Mapping[str, str] = METADATA) -> v2.SendMessageResponse:
        """Send messages in one request."""
        return self.call("SendMessage", v2.SendMessageRequest(messages=messages), v2.SendMessageResponse, metadata)


def commands(call: KeptCall) -> list[v2.TelemetryCommand]:
    """Return what a telemetry stream was told."""
    return [v2.TelemetryCommand.FromString(message) for message in call.messages]
