"""Users who sign their calls of gRPC, and the real port of a broker for them."""

import hmac
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import grpc.aio
from google.protobuf.message import Message
from grpc_calls import METADATA

from rocketlet.broker.ports import admit_grpc
from rocketlet.broker.server import Broker
from rocketlet.common.clock import Clock
from rocketlet.proxy.server import serving
from rocketlet.proxy.services.calling import SERVICE
from rocketlet.remoting.transport.server import open_listener

DATE = "20261127T101112Z"
AnswerT = TypeVar("AnswerT", bound=Message)


def sign_call(name: str, secret: str, date: str = DATE, **changes: str) -> dict[str, str]:
    """Return the headers of a caller who signs."""
    signature = hmac.digest(secret.encode(), date.encode(), "sha1").hex().upper()
    words = f"MQv2-HMAC-SHA1 Credential={name}//Rocketmq, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {**METADATA, "authorization": words, "x-mq-date-time": date, **changes}


class Channel(NamedTuple):
    """One connection of ``grpc.aio``, whose types leave open what calls are of."""

    opened: Any

    async def ask(self, method: str, request: Message, answer: type[AnswerT], headers: Mapping[str, str]) -> AnswerT:
        """Return the answer of a call."""
        call = self.opened.unary_unary(SERVICE + method)
        return answer.FromString(await call(request.SerializeToString(), metadata=tuple(headers.items())))

    def stream(self, headers: Mapping[str, str]) -> Any:
        """Open a telemetry stream."""
        return self.opened.stream_stream(SERVICE + "Telemetry")(metadata=tuple(headers.items()))


@asynccontextmanager
async def open_port(broker: Broker, clock: Clock) -> AsyncGenerator[int]:
    """Serve gRPC for a broker."""
    admission = await admit_grpc(broker.config, clock)
    with open_listener("127.0.0.1", 0, key="grpcServerPort") as listener:
        async with serving(broker, clock, admission)(listener):
            yield listener.getsockname()[1]


@asynccontextmanager
async def open_channel(port: int) -> AsyncGenerator[Channel]:
    """Connect to a port, on a connection that no other channel has."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as opened:
        yield Channel(opened)
