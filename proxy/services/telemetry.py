"""Telemetry: what clients say of themselves, what they are told to do by, and the broker's questions to them.

Rules

    1. Settings are answered with settings of the same kind, each time: producers get an exponential backoff, consumers
       that of their group. The rest comes back as it was said.
    2. The first settings of a stream are answered once more after a moment: the Node.js client does not see an answer
       that comes before it has the routes of all its topics, and waits for minutes.
    3. A stream without a client id gets that as its only answer. One that says neither what it publishes nor what it
       subscribes to, or uses names that it may not, ends as INVALID_ARGUMENT; a kind of client that the broker does
       not serve, as INTERNAL.
    4. What a client answers to a question of the broker is taken by its nonce (``ClientQuestions``); it counts for
       nothing else.
    5. What a client may not say is answered by the refusal alone, with which the stream ends.
    6. The server ends a stream when its client has, and when the port closes.
"""

from typing import Final

from google.protobuf.message import DecodeError as ProtobufDecodeError

from ...broker.operations import BrokerOperations
from ...common.clock import TimerHandle
from ...common.metadata import RetryPolicyType, SubscriptionGroupConfig
from ..messages import v2
from ..messages.enums import ClientType, Code
from ..messages.names import group_fault, topic_fault
from ..messages.statuses import status
from ..rpc.call import Call, GrpcStatus
from .calling import NO_CLIENT_ID, Admit, Caller, admit_anybody, caller_of
from .clients import CONSUMERS, ClientRegistry, GrpcClient
from .questions import ClientQuestions

REPEAT_MS: Final = 300
PRODUCER_ATTEMPTS: Final = 3
MOST_COMMAND_BYTES: Final = 256 << 10
"""Of settings, which are kept."""
MOST_ANSWER_BYTES: Final = 4 << 20
"""Of an answer: stacks of threads."""
RECEIVE_BATCH: Final = 32
LONG_POLL_MS: Final = 20_000
_MINUTE: Final = 60
RETRY_SECONDS: Final = (
    *(1, 5, 10, 30),
    *(minutes * _MINUTE for minutes in (*range(1, 11), 20, 30, 60, 120)),
)
"""How long the messages of a group wait unless it says otherwise (``CustomizedRetryPolicy``)."""
_FAILED: Final = "process client telemetryCommand failed. "


class TelemetryService:
    """Opens the streams."""

    def __init__(
        self,
        operations: BrokerOperations,
        clients: ClientRegistry,
        questions: ClientQuestions,
        admit: Admit = admit_anybody,
    ) -> None:
        self._operations = operations
        self._clients = clients
        self._questions = questions
        self._admit = admit

    def open(self, call: Call) -> "TelemetryStream":
        """Return who takes the commands of a client."""
        return TelemetryStream(call, self._operations, self._clients, self._questions, self._admit)


class TelemetryStream:
    """The commands of one client."""

    def __init__(
        self,
        call: Call,
        operations: BrokerOperations,
        clients: ClientRegistry,
        questions: ClientQuestions,
        admit: Admit,
    ) -> None:
        self._call = call
        self._admit = admit
        self._operations = operations
        self._clients = clients
        self._questions = questions
        self._client: GrpcClient | None = None
        self._repetition: TimerHandle | None = None
        self._names_client = bool(caller_of(call).client_id)
        call.on_over(self._leave)
        if not self._names_client:
            self._call.send(_command(status(Code.CLIENT_ID_REQUIRED, NO_CLIENT_ID)).SerializeToString())
            self._call.finish()

    def received(self, message: bytes) -> None:
        """Take a command."""
        if not self._names_client:
            return
        command = self._read(message)
        if command is None:
            return
        caller = self._admit(command, self._call)
        if not isinstance(caller, Caller):
            self.write(_command(caller))
            self._finish()
            return
        client = self._clients.hear(caller)
        if command.WhichOneof("command") == "settings":
            self._take_settings(client, command.settings)
        else:
            self._questions.take(client, command)

    def ended(self) -> None:
        """End the stream after its client."""
        self._finish()

    def write(self, command: v2.TelemetryCommand) -> None:
        """Send a command."""
        self._call.send(command.SerializeToString())

    def end(self) -> None:
        """End the stream."""
        self._finish()

    def _read(self, message: bytes) -> v2.TelemetryCommand | None:
        """Return what a client says; if nobody can tell, or it says too much, its stream ends."""
        command, limit = v2.TelemetryCommand(), MOST_ANSWER_BYTES
        if len(message) <= limit:
            try:
                command.ParseFromString(message)
            except ProtobufDecodeError:
                self._finish(GrpcStatus.UNKNOWN)
                return None
            if command.WhichOneof("command") == "settings":
                limit = MOST_COMMAND_BYTES
        if len(message) > limit:
            self._finish(GrpcStatus.INVALID_ARGUMENT, f"the command is {len(message)} bytes, limit is {limit}")
            return None
        return command

    def _take_settings(self, client: GrpcClient, settings: v2.Settings) -> None:
        fault = _fault(settings)
        if fault is not None:
            self._finish(*fault)
            return
        is_first = self._client is None
        self._client, client.stream = client, self
        self._clients.configure(client, settings)
        self._answer_settings(settings)
        if is_first:
            clock = self._operations.clock
            self._repetition = clock.call_at(clock.monotonic_ms() + REPEAT_MS, self._repeat)

    def _repeat(self) -> None:
        if self._client is not None and self._client.settings is not None:
            self._answer_settings(self._client.settings)

    def _answer_settings(self, settings: v2.Settings) -> None:
        self.write(v2.TelemetryCommand(status=status(Code.OK), settings=answer_settings(settings, self._operations)))

    def _finish(self, code: GrpcStatus = GrpcStatus.OK, text: str = "") -> None:
        self._leave()
        self._call.finish(code, text)

    def _leave(self) -> None:
        if self._client is not None and self._client.stream is self:
            self._client.stream = None
        self._client = None
        if self._repetition is not None:
            self._repetition.cancel()


def answer_settings(settings: v2.Settings, operations: BrokerOperations) -> v2.Settings:
    """Return the settings that a client shall use."""
    made = v2.Settings()
    made.CopyFrom(settings)
    made.metric.on = False
    if settings.WhichOneof("pub_sub") == "publishing":
        made.publishing.max_body_size = operations.store.config.max_message_bytes
        made.publishing.validate_message_type = True
        policy = v2.RetryPolicy(max_attempts=PRODUCER_ATTEMPTS)
        policy.exponential_backoff.initial.FromMilliseconds(10)
        policy.exponential_backoff.max.FromMilliseconds(1_000)
        policy.exponential_backoff.multiplier = 2
        made.backoff_policy.CopyFrom(policy)
        return made
    group = operations.groups.known(settings.subscription.group.name)
    subscription = made.subscription
    subscription.fifo = group is not None and group.consume_message_orderly
    subscription.receive_batch_size = RECEIVE_BATCH
    subscription.long_polling_timeout.FromMilliseconds(LONG_POLL_MS)
    made.backoff_policy.CopyFrom(retry_policy(group or SubscriptionGroupConfig()))
    return made


def retry_policy(group: SubscriptionGroupConfig) -> v2.RetryPolicy:
    """Return how often and when the messages of a group are tried again."""
    policy, told = group.group_retry_policy, v2.RetryPolicy(max_attempts=group.retry_max_times + 1)
    growing = policy.exponential_retry_policy
    if policy.type is RetryPolicyType.EXPONENTIAL and growing is not None:
        told.exponential_backoff.initial.FromMilliseconds(growing.initial)
        told.exponential_backoff.max.FromMilliseconds(growing.max)
        told.exponential_backoff.multiplier = growing.multiplier
        return told
    listed = policy.customized_retry_policy
    waits_ms = listed.next if listed is not None and listed.next else [1_000 * seconds for seconds in RETRY_SECONDS]
    for wait_ms in waits_ms:
        told.customized_backoff.next.add().FromMilliseconds(wait_ms)
    return told


def _fault(settings: v2.Settings) -> tuple[GrpcStatus, str] | None:
    kind = settings.WhichOneof("pub_sub")
    if kind is None:
        return GrpcStatus.INVALID_ARGUMENT, "there is no publishing or subscription data in settings"
    if kind == "publishing":
        faults = [topic_fault(topic) for topic in settings.publishing.topics]
    else:
        if settings.client_type not in CONSUMERS:
            name = _name_of(settings.client_type)
            return GrpcStatus.INTERNAL, f"{_FAILED}Client type is not consumer, type: {name}"
        faults = [group_fault(settings.subscription.group)]
        faults += [topic_fault(entry.topic) for entry in settings.subscription.subscriptions]
    fault = next((each for each in faults if each is not None), None)
    return None if fault is None else (GrpcStatus.INVALID_ARGUMENT, _FAILED + fault.message)


def _name_of(client_type: int) -> str:
    try:
        return ClientType(client_type).name
    except ValueError:
        return str(client_type)


def _command(told: v2.Status) -> v2.TelemetryCommand:
    return v2.TelemetryCommand(status=told)
