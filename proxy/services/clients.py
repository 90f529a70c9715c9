"""The clients of the port, by client id: what they are, how they are reached, and when they are gone.

Rules

    1. Whatever a client calls is a sign of life. One that gives none for two minutes is gone, and so is one that says
       so. Whoever is joined to that hears of it (``on_gone``).
    2. The newest telemetry stream of a client is the way to reach it; that a stream ends says nothing about its client.
    3. A group gets its retry topic with its first member, as those of remoting do; upstream makes none here, and its
       tools find no members.
    4. A client is known from its first call on. What it has said of itself, in settings or a heartbeat, makes it a
       producer of topics or a member of a consumer group for administrators, and producers can be asked about
       transactions. Members of classic clients do not see it, and share no queues with it.
    5. Where users are known, a client is that of the user who has signed its first call, until it is gone. What was
       said in its name without a user is forgotten when one comes.
    6. Telemetry that a client has open ``LEAVE_MS`` after it said that it leaves is ended. The Java client may open it
       anew while it stops, after a restart of the server say, and waits for its end without limit.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from ...broker.admin.guests import Consumed
from ...broker.group.members import CLUSTERING, Client, ConsumerSpec
from ...broker.operations import BrokerOperations
from ...broker.transaction.checks import CheckRequest
from ...common.codes import VERSION
from ...common.ids import Address, format_address
from ...common.names import retry_topic
from ...common.outcome import Outcome
from ...common.record import Record
from ...common.subscriptions.subscription import SQL92_TYPE, TAG_TYPE, Subscription
from ..messages import v2
from ..messages.enums import ClientType, FilterType
from .calling import Caller

EXPIRY_MS: Final = 120_000
LOOK_MS: Final = 10_000
LEAVE_MS: Final = 3_000
MOST_CLIENTS: Final = 65_536
"""Beyond them the one that has been silent longest is forgotten: who calls may name itself anew each time."""
CONSUMERS: Final = frozenset({ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER})
_FROM_WHERE: Final = "CONSUME_FROM_LAST_OFFSET"


class TransactionQuestions(Protocol):
    """Brings questions about transactions to clients."""

    def ask(self, client: "GrpcClient", request: CheckRequest, store_host: bytes) -> None:
        """Ask a client what has become of a transaction."""
        ...

    def may_ask(self, client: "GrpcClient", topic: str) -> bool:
        """Tell whether a client may see the messages of a topic that are not committed."""
        ...


class CommandStream(Protocol):
    """The way to reach a client."""

    def write(self, command: v2.TelemetryCommand) -> None:
        """Send a command."""
        ...

    def end(self) -> None:
        """End the stream."""
        ...


class Questions(Protocol):
    """Asks clients; ``ClientQuestions`` is the real one."""

    def ask_stacks(self, client: "GrpcClient", /) -> Outcome[str]:
        """Ask a client where its threads are."""
        ...

    def ask_consumption(self, client: "GrpcClient", record: Record, /) -> Outcome[Consumed]:
        """Have the listener of a client consume a message."""
        ...


class GrpcClient(msgspec.Struct, eq=False):
    """A client, which administrators see as a connection; what it produces and consumes is what it last said."""

    client_id: str
    address: Address
    heard_at_ms: int
    transactions: TransactionQuestions
    questions: Questions
    came_at_ms: int = 0
    user: str | None = None
    language: str = ""
    version: str = ""
    settings: v2.Settings | None = None
    stream: CommandStream | None = None
    group: str = ""
    topics: set[str] = msgspec.field(default_factory=set[str])

    @property
    def remote_address(self) -> Address:
        """Where it has called from last."""
        return self.address

    @property
    def peer(self) -> str:
        """The same as text."""
        return format_address(*self.address)

    @property
    def unsent_bytes(self) -> int:
        """How much it has not taken: none that counts while it has a stream."""
        return 0 if self.stream is not None else 1 << 30

    def ask_transaction(self, request: CheckRequest, store_host: bytes) -> None:
        """Ask what has become of a transaction."""
        self.transactions.ask(self, request, store_host)

    def may_be_asked(self, topic: str) -> bool:
        """Tell whether its user may see what others have sent to a topic and not committed."""
        return self.transactions.may_ask(self, topic)

    def ask_stacks(self) -> Outcome[str]:
        """Ask where its threads are."""
        return self.questions.ask_stacks(self)

    def ask_consumption(self, record: Record) -> Outcome[Consumed]:
        """Have its listener consume a message."""
        return self.questions.ask_consumption(self, record)


class ClientRegistry:
    """Knows the clients, whom ``transactions`` and ``questions`` ask."""

    def __init__(self, operations: BrokerOperations, transactions: TransactionQuestions, questions: Questions) -> None:
        self._operations = operations
        self._members = operations.guests
        self._clock = operations.clock
        self._transactions = transactions
        self._questions = questions
        self._clients: OrderedDict[str, GrpcClient] = OrderedDict()  # the one heard of last is the last
        self._gone: list[Callable[[str], object]] = []

    def __repr__(self) -> str:
        return f"<ClientRegistry of {len(self._clients)} clients>"

    def __iter__(self) -> Iterator[GrpcClient]:
        return iter(self._clients.values())

    def on_gone(self, tell: Callable[[str], object]) -> None:
        """Have it told the ids of clients that are gone."""
        self._gone.append(tell)

    def find(self, client_id: str) -> GrpcClient | None:
        """Return the client with this id."""
        return self._clients.get(client_id)

    def is_alive(self, client_id: str) -> bool:
        """Tell whether a client has given a sign of life in the last two minutes."""
        client = self._clients.get(client_id)
        return client is not None and self._clock.monotonic_ms() - client.heard_at_ms <= EXPIRY_MS

    def owner_of(self, client_id: str) -> str | None:
        """Return the user whose client this is, ``None`` if it is nobody's."""
        return self._clients[client_id].user if self.is_alive(client_id) else None

    def hear(self, caller: Caller) -> GrpcClient:
        """Return the client that calls, which is alive."""
        now_ms, client = self._clock.monotonic_ms(), self._clients.get(caller.client_id)
        if client is not None and client.user != caller.user:
            self._drop(client)  # who is not its owner gets here when it was nobody's, or is silent for too long
            client = None
        if client is None:
            client = GrpcClient(
                caller.client_id,
                caller.address,
                now_ms,
                self._transactions,
                self._questions,
                self._clock.now_ms(),
                caller.user,
            )
            self._clients[caller.client_id] = client
            if len(self._clients) > MOST_CLIENTS:
                self._drop(next(iter(self._clients.values())))
        self._clients.move_to_end(caller.client_id)
        client.heard_at_ms, client.address = now_ms, caller.address
        client.language, client.version = caller.language or client.language, caller.version or client.version
        return client

    def configure(self, client: GrpcClient, settings: v2.Settings) -> None:
        """Take in what a client says of itself."""
        client.settings = settings
        if settings.WhichOneof("pub_sub") == "publishing":
            for topic in settings.publishing.topics:
                self.produces(client, topic.name)
        else:
            group = settings.subscription.group.name
            subscriptions = {each.topic.name: _subscription(each) for each in settings.subscription.subscriptions}
            self.consumes(client, group, ClientType(settings.client_type), subscriptions)

    def produces(self, client: GrpcClient, topic: str) -> None:
        """Note that a client produces for a topic."""
        client.topics.add(topic)
        self._members.join_producer(topic, _member(client), client, client.heard_at_ms)

    def consumes(
        self,
        client: GrpcClient,
        group: str,
        kind: ClientType,
        subscriptions: Mapping[str, Subscription] | None = None,
    ) -> None:
        """Note that a client is a member of a group; without subscriptions those that are known stay."""
        if client.group != group:
            self._members.leave_consumer(client.group, client)
            self._open(group)
        client.group = group
        consume_type = "CONSUME_PASSIVELY" if kind == ClientType.PUSH_CONSUMER else "CONSUME_ACTIVELY"
        spec = ConsumerSpec(group, consume_type, CLUSTERING, _FROM_WHERE, subscriptions or {}, 0)
        if subscriptions is None:
            self._members.refresh_consumer(spec, _member(client), client, client.heard_at_ms)
        else:
            self._members.join_consumer(spec, _member(client), client, client.heard_at_ms)

    def _open(self, group_name: str) -> None:
        """Have a group, and its retry topic: by the route of that tools look for who consumes in a group."""
        group = self._operations.groups.find(group_name)
        if group is None or self._operations.settings.config.replication.is_slave:
            return
        topic, is_new = self._operations.topics.ensure(retry_topic(group_name), group.retry_queue_nums)
        if is_new:
            self._operations.make_known([topic.topic_name], lambda: None)

    def refresh(self, client: GrpcClient) -> None:
        """Note a sign of life of a client where administrators look."""
        for topic in client.topics:
            self.produces(client, topic)
        if client.group:
            kind = client.settings.client_type if client.settings is not None else ClientType.PUSH_CONSUMER
            self.consumes(client, client.group, ClientType(kind))

    def leave(self, caller: Caller) -> None:
        """Forget a client that says that it leaves."""
        client = self._clients.get(caller.client_id)
        if client is not None:
            self._terminate(client.client_id)
            self._clock.call_at(self._clock.monotonic_ms() + LEAVE_MS, self._end_left, client.stream, caller)

    def _end_left(self, stream: CommandStream | None, caller: Caller) -> None:
        if stream is not None:
            stream.end()
        client = self._clients.get(caller.client_id)
        if client is not None and client.address == caller.address:  # else it was started again
            self._drop(client)

    def _terminate(self, client_id: str) -> None:
        client = self._clients.pop(client_id, None)
        if client is None:
            return
        self._members.leave_all(client)
        for tell in self._gone:
            tell(client_id)

    async def expire(self) -> int:
        """Forget the clients that are silent; return the pause."""
        silent_since_ms = self._clock.monotonic_ms() - EXPIRY_MS
        for client in [one for one in self._clients.values() if one.heard_at_ms < silent_since_ms]:
            self._drop(client)
        return LOOK_MS

    def _drop(self, client: GrpcClient) -> None:
        if client.stream is not None:
            client.stream.end()
        self._terminate(client.client_id)

    def forget_all(self) -> None:
        """Forget all clients: the port is closed; what they have stays theirs for its time."""
        clients, self._clients = self._clients, OrderedDict[str, GrpcClient]()
        for client in clients.values():
            self._members.leave_all(client)


def _member(client: GrpcClient) -> Client:
    return Client(client.client_id, client.language or "OTHER", VERSION)


def _subscription(entry: v2.SubscriptionEntry) -> Subscription:
    expression = entry.expression.expression or "*"
    kind = SQL92_TYPE if entry.expression.type == FilterType.SQL else TAG_TYPE
    tags = frozenset(word.strip() for word in expression.split("||")) if kind == TAG_TYPE and expression != "*" else ()
    return Subscription(entry.topic.name, expression, frozenset(tags), expression_type=kind)
