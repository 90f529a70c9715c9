"""Handles of the official clients for RocketMQ 5, which speak gRPC, and the values that travel to and from them.

Field names are ours; their camel-case form is the driver's JSON. Bodies are bytes here and base64 there.
"""

import re
from collections.abc import Mapping, Sequence

import msgspec
from interop.clients import WAIT_MS, Client
from interop.driver import Driver, Failure

# The Python push consumer uses a meter that it does not have, with any settings, and takes the receives that it cancels
# as it stops for failed; that of Go does not wait for the end of its long polls.
# The Rust client takes its settings for a command that it does not know.
_KNOWN = re.compile(
    "'NoneType' object has no attribute 'get_meter'|process received message error, $|"
    "Timeout waiting for all inflight receive requests|receive telemetry command but there is no handler"
)
TROUBLE = re.compile(r"\b(WARN|WARNING|ERRO|ERROR|FATAL)\b|Traceback|Exception")


class Outgoing5(msgspec.Struct, rename="camel", omit_defaults=True):
    """A message to send; with the property ``outcome`` it is sent in a transaction, which ends so."""

    body: bytes
    tag: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    message_group: str | None = None
    deliver_at_ms: int | None = None
    priority: int | None = None


class SendReceipt(msgspec.Struct, rename="camel"):
    """What a send gave; with an error, the rest is missing."""

    message_id: str = ""
    transaction_id: str | None = None
    offset: int = -1
    recall_handle: str | None = None
    error: Failure | None = None


class MessageView(msgspec.Struct, rename="camel"):
    """A message as the official client hands it over; what a client does not tell is missing."""

    topic: str
    message_id: str
    body: bytes
    keys: list[str]
    properties: dict[str, str]
    attempt: int
    born_host: str
    born_at_ms: int
    received_at: int
    """When the client handed it over, by its clock."""
    tag: str | None = None
    message_group: str | None = None
    deliver_at_ms: int | None = None
    priority: int | None = None
    corrupted: bool = False
    number: int = -1
    """By which its simple consumer knows it."""


class Outcome(msgspec.Struct, rename="camel"):
    """What became of a call about one message."""

    message_id: str = ""
    error: Failure | None = None


class _Receipts(msgspec.Struct):
    results: list[SendReceipt]


class _Views(msgspec.Struct):
    messages: list[MessageView]


class _Outcomes(msgspec.Struct):
    results: list[Outcome]


class Producer5(Client):
    """A producer of all kinds of messages."""

    kind = "producer"

    def send(self, topic: str, *messages: Outgoing5, mode: str = "sync") -> list[SendReceipt]:
        """Send one after the other (sync), or all at once (async)."""
        about = {"topic": topic, "messages": messages, "mode": mode}
        return self.driver.call_as(_Receipts, "producer.send", name=self.name, **about).results

    def send_all(self, topic: str, *messages: Outgoing5, mode: str = "sync") -> list[SendReceipt]:
        """Send, and demand that each message was stored."""
        receipts = self.send(topic, *messages, mode=mode)
        refused = [receipt for receipt in receipts if receipt.error is not None]
        assert not refused, refused[:3]
        return receipts

    def recall(self, topic: str, handle: str) -> Outcome:
        """Take back a message that is not due yet."""
        return self.driver.call_as(Outcome, "producer.recall", name=self.name, topic=topic, handle=handle)

    def checked(self, count: int = 0, timeout_ms: int = WAIT_MS) -> list[MessageView]:
        """Return what the broker has asked about, once there are as many as wanted or the time is over."""
        about = {"count": count, "timeoutMs": timeout_ms}
        return self.driver.call_as(_Views, "producer.checked", name=self.name, **about).messages


class PushConsumer5(Client):
    """A push consumer whose listener keeps what it is handed."""

    kind = "push"

    def stop(self, *, waits: bool = False) -> None:
        """Begin to stop; most clients wait for the end of their long polls, which a test need not."""
        if waits:
            super().stop()
        elif self._is_running:
            self._is_running = False
            self.driver.begin("push.stop", name=self.name)

    def received(self, count: int = 0, timeout_ms: int = WAIT_MS) -> list[MessageView]:
        """Return all deliveries so far, once there are as many as asked for or the time is over."""
        about = {"count": count, "timeoutMs": timeout_ms}
        return self.driver.call_as(_Views, "push.received", name=self.name, **about).messages


class SimpleConsumer(Client):
    """A consumer that asks for messages, and says of each what becomes of it."""

    kind = "simple"

    def receive(self, count: int = 32, invisible_ms: int = 30_000) -> list[MessageView]:
        """Ask once."""
        about = {"count": count, "invisibleMs": invisible_ms}
        return self.driver.call_as(_Views, "simple.receive", name=self.name, **about).messages

    def receive_all(self, count: int, invisible_ms: int = 30_000, rounds: int = 60) -> list[MessageView]:
        """Ask until there are so many."""
        messages: list[MessageView] = []
        for _ in range(rounds):
            messages += self.receive(min(32, count - len(messages)), invisible_ms)
            if len(messages) >= count:
                break
        return messages

    def ack(self, *messages: MessageView) -> list[Outcome]:
        """Say that messages are done with."""
        numbers = [message.number for message in messages]
        return self.driver.call_as(_Outcomes, "simple.ack", name=self.name, numbers=numbers).results

    def change(self, *messages: MessageView, invisible_ms: int) -> list[Outcome]:
        """Let messages come again after a time from now."""
        about = {"numbers": [message.number for message in messages], "invisibleMs": invisible_ms}
        return self.driver.call_as(_Outcomes, "simple.change", name=self.name, **about).results


class GrpcDriver(Driver):
    """A process with an official client that speaks gRPC."""

    @property
    def has_push_consumer(self) -> bool:
        """Tell whether the client has more than producers and simple consumers."""
        return self.name != "rust5"

    def troubles(self) -> list[str]:
        """Return the lines from a warning on that the client has logged so far, in whatever file it logs to."""
        logged = [path.read_text(errors="replace") for path in sorted(self.directory.rglob("*.log"))]
        return [
            line
            for text in [*logged, self.log_end()]
            for line in text.splitlines()
            if TROUBLE.search(line) and not _KNOWN.search(line)
        ]
