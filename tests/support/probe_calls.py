"""A call of gRPC that keeps what is answered, for services without a port."""

from collections.abc import Callable
from typing import TypeVar

from google.protobuf.message import Message

from rocketlet.common.ids import Address
from rocketlet.proxy.rpc.call import GrpcStatus

M = TypeVar("M", bound=Message)


class ProbeCall:
    """A call whose answer stays here; ``left_ms`` is how long its caller waits."""

    def __init__(self, left_ms: int | None = None, **metadata: str) -> None:
        self.left_ms = left_ms
        self.metadata = {name.replace("_", "-"): value for name, value in metadata.items()}
        self.remote_address: Address = ("127.0.0.1", 50_000)
        self.sent: list[bytes] = []
        self.status: GrpcStatus | None = None
        self.text = ""
        self.is_over = False
        self._tells: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<ProbeCall with {len(self.sent)} answers, {self.status}>"

    def values(self, names: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """Return headers as they would have come."""
        return tuple(self.metadata.get(name.decode(), "").encode() for name in names)

    def remaining_ms(self) -> int | None:
        """Return how long its caller waits."""
        return self.left_ms

    def answer(self, *messages: bytes) -> None:
        """Keep the whole answer."""
        for message in messages:
            self.send(message)
        self.finish()

    def send(self, message: bytes) -> None:
        """Keep a message of the answer."""
        if not self.is_over:
            assert self.status is None
            self.sent.append(message)

    def finish(self, status: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        """Keep how it ended."""
        if not self.is_over:
            assert self.status is None
            self.status, self.text = status, text

    def on_over(self, tell: Callable[[], None]) -> None:
        """Have it told that the caller has gone."""
        if self.is_over:
            tell()
        else:
            self._tells.append(tell)

    def hang_up(self) -> None:
        """End the connection, and so the call."""
        self.cancel()

    def cancel(self) -> None:
        """Let the caller go."""
        if self.status is None and not self.is_over:
            self.is_over = True
            for tell in self._tells:
                tell()

    def answers(self, kind: type[M]) -> list[M]:
        """Return the messages of the answer."""
        return [kind.FromString(data) for data in self.sent]

    def one_answer(self, kind: type[M]) -> M:
        """Return the one message of an answer that has ended well."""
        assert self.status == GrpcStatus.OK, (self.status, self.text)
        [found] = self.answers(kind)
        return found
