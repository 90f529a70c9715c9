"""Handles of the clients that run in a driver, and the values that travel to and from them.

Field names are ours; their camel-case form is the driver's JSON. Bodies are bytes here and base64 there.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, Self

import msgspec
from interop.driver import Driver, Failure

WAIT_MS = 30_000
STOP_LIMIT_S = 40.0
"""Shorter than that of tests, which could not say then what the client was at."""
_numbers = itertools.count(1)


class Queue(msgspec.Struct, rename="camel", frozen=True, order=True):
    """A message queue."""

    topic: str
    broker_name: str
    queue_id: int


class Outgoing(msgspec.Struct, rename="camel", omit_defaults=True):
    """A message to send."""

    body: bytes
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: Mapping[str, str] = {}
    flag: int = 0
    delay_level: int = 0
    timing: Mapping[str, int] = {}
    waits_for_store: bool = True


class Sent(msgspec.Struct, rename="camel"):
    """What a send gave; with an error, the rest is missing."""

    status: str = ""
    msg_id: str = ""
    offset_msg_id: str = ""
    queue: Queue | None = None
    queue_offset: int = -1
    region_id: str | None = None
    recall_handle: str | None = None
    state: str | None = None
    error: Failure | None = None
    answered_at: int = 0
    """When the answer had come, by the clock of the client (Java)."""

    @property
    def queue_id(self) -> int:
        """Return the id of the queue that took the message, or -1 after an error."""
        return self.queue.queue_id if self.queue else -1


class Recalled(msgspec.Struct, rename="camel"):
    """What a recall gave: the unique key of the message, or an error."""

    msg_id: str = ""
    error: Failure | None = None


class Received(msgspec.Struct, rename="camel"):
    """A message as the official client hands it over."""

    topic: str
    queue_offset: int
    log_offset: int
    msg_id: str
    body: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: str
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    store_size: int
    properties: dict[str, str]
    queue_id: int = -1
    broker_name: str | None = None
    offset_msg_id: str | None = None
    tags: str | None = None
    keys: str | None = None
    received_at: int = 0
    """When the listener of a push consumer was called with it, by the clock of the client."""


class Delivered(Protocol):
    """A message of any client that tells when it was handed over."""

    received_at: int


def waits_between(deliveries: Sequence[Delivered]) -> list[int]:
    """Return how long each delivery came after the one before, by the clock of their consumer, in milliseconds."""
    return [after.received_at - before.received_at for before, after in itertools.pairwise(deliveries)]


class Reply(msgspec.Struct):
    """A reply as the official client hands it over: it comes from no queue."""

    topic: str
    body: bytes
    properties: dict[str, str]


class Replied(msgspec.Struct):
    """What a request gave: the reply, or an error."""

    reply: Reply | None = None
    error: Failure | None = None


class _SentAnswer(msgspec.Struct):
    results: list[Sent] | None = None


class _ReceivedAnswer(msgspec.Struct):
    messages: list[Received] | None = None


class _RepliedAnswer(msgspec.Struct):
    results: list[Replied]


class _QueueAnswer(msgspec.Struct):
    queues: list[Queue]


class _OffsetAnswer(msgspec.Struct):
    offset: int


class Offsets(msgspec.Struct, rename="camel"):
    """The ends of a queue."""

    min: int
    max: int
    earliest_stored_at: int


class Pulled(msgspec.Struct, rename="camel"):
    """The answer to one pull."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Received]


class Client:
    """A client in a driver; a context manager that stops it properly."""

    kind = ""

    def __init__(self, driver: Driver, **arguments: object) -> None:
        self.driver = driver
        self.name = f"{self.kind}-{next(_numbers)}"
        self._is_running = True
        self.client_id: str | None = None
        self._starting = driver.begin(f"{self.kind}.start", name=self.name, **arguments)
        self._started()

    def _started(self) -> None:
        """Wait until it has started."""
        self.client_id = self.driver.finish(self._starting, f"{self.kind}.start", dict[str, Any]).get("clientId")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop it as an application does; once is enough."""
        if self._is_running:
            self._is_running = False
            command = f"{self.kind}.stop"
            self.driver.finish(self.driver.begin(command, name=self.name), command, dict[str, Any], STOP_LIMIT_S)


class Producer(Client):
    """A producer."""

    kind = "producer"

    def send(self, topic: str, *messages: Outgoing, mode: str = "sync", **where: object) -> list[Sent]:
        """Send one after the other (sync), at once (async), without answers (oneway) or together (batch)."""
        return self.finish_send(self.begin_send(topic, *messages, mode=mode, **where))

    def begin_send(self, topic: str, *messages: Outgoing, mode: str = "sync", **where: object) -> int:
        """Start to send, and return at once."""
        return self.driver.begin("producer.send", name=self.name, topic=topic, mode=mode, messages=messages, **where)

    def finish_send(self, begun: int) -> list[Sent]:
        """Return what became of the messages."""
        return self.driver.finish(begun, "producer.send", _SentAnswer).results or []

    def send_all(self, topic: str, *messages: Outgoing, mode: str = "sync", **where: object) -> list[Sent]:
        """Send, and demand that each message was stored."""
        results = self.send(topic, *messages, mode=mode, **where)
        refused = [result for result in results if result.status != "SEND_OK"]
        assert not refused, refused[:3]
        return results

    def recall(self, topic: str, handle: str) -> Recalled:
        """Recall a timer message."""
        return self.driver.call_as(Recalled, "producer.recall", name=self.name, topic=topic, handle=handle)

    def queues(self, topic: str) -> list[Queue]:
        """Return the queues that the producer would choose from."""
        return self.driver.call_as(_QueueAnswer, "producer.queues", name=self.name, topic=topic).queues


class TransactionProducer(Client):
    """A producer of transactions; each message says itself what becomes of it."""

    kind = "transaction"

    def send(self, topic: str, *bodies: bytes, outcome: str, checked: str = "unknown", **about: Any) -> list[Sent]:
        """Send one after the other, and demand that each half message was stored."""
        results = self.try_send(topic, *bodies, outcome=outcome, checked=checked, **about)
        refused = [result for result in results if result.status != "SEND_OK"]
        assert not refused, refused[:3]
        return results

    def try_send(self, topic: str, *bodies: bytes, outcome: str, checked: str = "unknown", **about: Any) -> list[Sent]:
        """Send one after the other, and return what became of each half message."""
        properties = {"outcome": outcome, "checked": checked, **about.pop("properties", {})}
        messages = [Outgoing(body, properties=properties, **about) for body in bodies]
        sending = self.driver.begin("transaction.send", name=self.name, topic=topic, messages=messages)
        return self.driver.finish(sending, "transaction.send", _SentAnswer).results or []

    def checked(self, count: int = 0, timeout_ms: int = WAIT_MS) -> list[Received]:
        """Return what the broker has asked about, once there are as many as wanted or the time is over."""
        about = {"count": count, "timeoutMs": timeout_ms}
        return self.driver.call_as(_ReceivedAnswer, "transaction.checked", name=self.name, **about).messages or []


class PushConsumer(Client):
    """A push consumer that keeps what it receives."""

    kind = "consumer"

    def received(self, count: int = 0, timeout_ms: int = WAIT_MS) -> list[Received]:
        """Return all deliveries so far, once there are as many as asked for or the time is over."""
        answer = self.driver.call_as(
            _ReceivedAnswer, "consumer.received", name=self.name, count=count, timeoutMs=timeout_ms
        )
        return answer.messages or []

    def wait_bodies(self, wanted: Iterable[bytes], timeout_ms: int = WAIT_MS) -> set[bytes]:
        """Return all bodies so far, once the wanted are among them or none comes any more; some may come twice."""
        needed, messages = set(wanted), self.received()
        while not needed <= {message.body for message in messages}:
            known = len(messages)
            messages = self.received(known + 1, timeout_ms)
            if len(messages) == known:
                break
        return {message.body for message in messages}

    def queues(self, topic: str, count: int | None = None, timeout_ms: int = WAIT_MS) -> list[Queue]:
        """Return the queues that it owns, once there are as many as asked for or the time is over."""
        answer = self.driver.call_as(
            _QueueAnswer, "consumer.queues", name=self.name, topic=topic, count=count, timeoutMs=timeout_ms
        )
        return answer.queues

    def wait_progress(self, queue: Queue, offset: int) -> None:
        """Wait until all messages of a queue before an offset are done with."""
        answer = self.driver.call_as(
            _OffsetAnswer, "consumer.progress", name=self.name, queue=queue, offset=offset, timeoutMs=WAIT_MS
        )
        assert answer.offset >= offset, f"{self.client_id} is at {answer.offset} of {queue}"

    def expire(self) -> None:
        """Take listeners that have not come back for stuck."""
        self.driver.call("consumer.expire", name=self.name)

    def drop(self) -> None:
        """Close its connections without telling anybody."""
        self._is_running = False
        self.driver.call("consumer.drop", name=self.name)


class JoiningConsumer(PushConsumer):
    """A push consumer that is still starting; entering its block waits until it has."""

    def __enter__(self) -> Self:
        super()._started()
        return self

    def _started(self) -> None:
        """Do not wait yet."""


class Requester(Client):
    """A producer that asks and waits for replies."""

    kind = "requester"

    def ask(self, topic: str, *bodies: bytes, timeout_ms: int = WAIT_MS, mode: str = "sync") -> list[Replied]:
        """Ask one after the other (sync), or with callbacks (async)."""
        return self.finish_ask(self.begin_ask(topic, *bodies, timeout_ms=timeout_ms, mode=mode))

    def begin_ask(self, topic: str, *bodies: bytes, timeout_ms: int = WAIT_MS, mode: str = "sync") -> int:
        """Start to ask, and return at once."""
        messages = [Outgoing(body) for body in bodies]
        about = {"topic": topic, "messages": messages, "timeoutMs": timeout_ms, "mode": mode}
        return self.driver.begin("requester.ask", name=self.name, **about)

    def finish_ask(self, begun: int) -> list[Replied]:
        """Return what became of the requests."""
        return self.driver.finish(begun, "requester.ask", _RepliedAnswer).results

    def drop(self) -> None:
        """Close its connections without telling anybody."""
        self._is_running = False
        self.driver.call("requester.drop", name=self.name)


class Responder(Client):
    """A consumer that replies "re: " and the body; ``silent``, it never does, ``held``, once it is released."""

    kind = "responder"

    def answered(self, count: int) -> list[Sent]:
        """Return what its replies were answered, once there are as many as asked for or the time is over."""
        about = {"count": count, "timeoutMs": WAIT_MS}
        return self.driver.call_as(_SentAnswer, "responder.answered", name=self.name, **about).results or []

    def release(self) -> None:
        """Let a held one reply."""
        self.driver.call("responder.release", name=self.name)


class PullConsumer(Client):
    """A pull consumer."""

    kind = "pull"

    def pull(self, queue: Queue, offset: int, **how: object) -> Pulled:
        """Pull once; how: count, expression, block."""
        return self.driver.call_as(Pulled, "pull.pull", name=self.name, queue=queue, offset=offset, **how)

    def read_all(self, topic: str) -> list[Received]:
        """Return every message of a topic, queue by queue."""
        return self.driver.call_as(_ReceivedAnswer, "pull.all", name=self.name, topic=topic).messages or []

    def queues(self, topic: str) -> list[Queue]:
        """Return the readable queues of a topic."""
        return self.driver.call_as(_QueueAnswer, "pull.queues", name=self.name, topic=topic).queues

    def offsets(self, queue: Queue) -> Offsets:
        """Return the ends of a queue."""
        return self.driver.call_as(Offsets, "pull.offsets", name=self.name, queue=queue)

    def query(self, topic: str, key: str) -> list[Received]:
        """Return the messages with a key."""
        return self.driver.call_as(_ReceivedAnswer, "pull.query", name=self.name, topic=topic, key=key).messages or []

    def search(self, queue: Queue, at_ms: int) -> int:
        """Return the offset of the first message that was stored at a time or later."""
        return self.driver.call_as(_OffsetAnswer, "pull.search", name=self.name, queue=queue, at=at_ms).offset

    def view(self, topic: str, message_id: str) -> Received:
        """Return a message by its unique key or offset id."""
        return self.driver.call_as(Received, "pull.view", name=self.name, topic=topic, messageId=message_id)

    def commit(self, queue: Queue, offset: int) -> None:
        """Store an offset of the group."""
        self.driver.call("pull.commit", name=self.name, queue=queue, offset=offset)

    def committed(self, queue: Queue) -> int:
        """Return the stored offset of the group, or -1."""
        return self.driver.call_as(_OffsetAnswer, "pull.committed", name=self.name, queue=queue).offset


class Admin(Client):
    """An administration client."""

    kind = "admin"

    def call(self, method: str, *arguments: object) -> dict[str, Any]:
        """Call a method of Java's ``DefaultMQAdminExt``."""
        return self.driver.call("admin.call", name=self.name, method=method, args=arguments)

    def tracks(self, topic: str, message_id: str) -> dict[str, str]:
        """Return what each group of a topic has done with a message (``TrackType``)."""
        answer = self.driver.call("admin.tracks", name=self.name, topic=topic, messageId=message_id)
        return {track["consumerGroup"]: track["trackType"] for track in answer["tracks"]}

    def create_topic(self, broker: str, topic: str, queues: int = 4, **settings: object) -> None:
        """Create a topic on a broker and wait for its route."""
        answer = self.driver.call(
            "admin.createTopic", name=self.name, broker=broker, topic=topic, queues=queues, settings=settings
        )
        assert answer["routed"], f"no route of {topic}"

    def await_route(self, topic: str, brokers: Collection[str] = ()) -> dict[str, Any]:
        """Wait until a name server tells the route of a topic, to just these brokers if any; return it."""
        self.await_route_time(topic, brokers)
        return self.call("examineTopicRouteInfo", topic)

    def await_route_time(self, topic: str, brokers: Collection[str] = ()) -> int:
        """Wait as ``await_route`` does, and return when the client saw the route, by its clock."""
        about = {"topic": topic, "brokers": [*brokers], "timeoutMs": WAIT_MS}
        answer = self.driver.call("admin.awaitRoute", name=self.name, **about)
        assert answer["routed"], f"no such route of {topic}"
        return answer["seenAt"]


def await_first_look(producer: Producer, new_name: Callable[[], str]) -> None:
    """Send to new topics until a producer has looked for routes: 10 ms after its start, and every 30 s from then on.

    A look right after the first send to a new topic finds it on one broker, and all later sends go there.
    """
    for _ in range(20):  # some hundred milliseconds
        producer.send_all(new_name(), *[Outgoing(b"before")] * 10)
