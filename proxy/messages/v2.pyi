# Written by tests/support/grpc_stub.py from the table in schema.py.
from collections.abc import Iterable, Mapping
from typing import Literal

from google.protobuf.duration_pb2 import Duration
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer, RepeatedScalarFieldContainer, ScalarMap
from google.protobuf.message import Message as _Message
from google.protobuf.timestamp_pb2 import Timestamp

class FilterExpression(_Message):
    type: int
    expression: str
    def __init__(
        self,
        *,
        type: int | None = ...,
        expression: str | None = ...,
    ) -> None: ...

class RetryPolicy(_Message):
    max_attempts: int
    @property
    def exponential_backoff(self) -> ExponentialBackoff: ...
    @property
    def customized_backoff(self) -> CustomizedBackoff: ...
    def __init__(
        self,
        *,
        max_attempts: int | None = ...,
        exponential_backoff: ExponentialBackoff | None = ...,
        customized_backoff: CustomizedBackoff | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['exponential_backoff', 'customized_backoff']) -> bool: ...
    def WhichOneof(self, oneof_group: Literal['strategy']) -> Literal['exponential_backoff', 'customized_backoff'] | None: ...

class ExponentialBackoff(_Message):
    @property
    def initial(self) -> Duration: ...
    @property
    def max(self) -> Duration: ...
    multiplier: float
    def __init__(
        self,
        *,
        initial: Duration | None = ...,
        max: Duration | None = ...,
        multiplier: float | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['initial', 'max']) -> bool: ...

class CustomizedBackoff(_Message):
    @property
    def next(self) -> RepeatedCompositeFieldContainer[Duration]: ...
    def __init__(
        self,
        *,
        next: Iterable[Duration] | None = ...,
    ) -> None: ...

class Resource(_Message):
    resource_namespace: str
    name: str
    def __init__(
        self,
        *,
        resource_namespace: str | None = ...,
        name: str | None = ...,
    ) -> None: ...

class SubscriptionEntry(_Message):
    @property
    def topic(self) -> Resource: ...
    @property
    def expression(self) -> FilterExpression: ...
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        expression: FilterExpression | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['topic', 'expression']) -> bool: ...

class Address(_Message):
    host: str
    port: int
    def __init__(
        self,
        *,
        host: str | None = ...,
        port: int | None = ...,
    ) -> None: ...

class Endpoints(_Message):
    scheme: int
    @property
    def addresses(self) -> RepeatedCompositeFieldContainer[Address]: ...
    def __init__(
        self,
        *,
        scheme: int | None = ...,
        addresses: Iterable[Address] | None = ...,
    ) -> None: ...

class Broker(_Message):
    name: str
    id: int
    @property
    def endpoints(self) -> Endpoints: ...
    def __init__(
        self,
        *,
        name: str | None = ...,
        id: int | None = ...,
        endpoints: Endpoints | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['endpoints']) -> bool: ...

class MessageQueue(_Message):
    @property
    def topic(self) -> Resource: ...
    id: int
    permission: int
    @property
    def broker(self) -> Broker: ...
    @property
    def accept_message_types(self) -> RepeatedScalarFieldContainer[int]: ...
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        id: int | None = ...,
        permission: int | None = ...,
        broker: Broker | None = ...,
        accept_message_types: Iterable[int] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['topic', 'broker']) -> bool: ...

class Digest(_Message):
    type: int
    checksum: str
    def __init__(
        self,
        *,
        type: int | None = ...,
        checksum: str | None = ...,
    ) -> None: ...

class SystemProperties(_Message):
    tag: str
    @property
    def keys(self) -> RepeatedScalarFieldContainer[str]: ...
    message_id: str
    @property
    def body_digest(self) -> Digest: ...
    body_encoding: int
    message_type: int
    @property
    def born_timestamp(self) -> Timestamp: ...
    born_host: str
    @property
    def store_timestamp(self) -> Timestamp: ...
    store_host: str
    @property
    def delivery_timestamp(self) -> Timestamp: ...
    receipt_handle: str
    queue_id: int
    queue_offset: int
    @property
    def invisible_duration(self) -> Duration: ...
    delivery_attempt: int
    message_group: str
    trace_context: str
    @property
    def orphaned_transaction_recovery_duration(self) -> Duration: ...
    @property
    def dead_letter_queue(self) -> DeadLetterQueue: ...
    lite_topic: str
    priority: int
    def __init__(
        self,
        *,
        tag: str | None = ...,
        keys: Iterable[str] | None = ...,
        message_id: str | None = ...,
        body_digest: Digest | None = ...,
        body_encoding: int | None = ...,
        message_type: int | None = ...,
        born_timestamp: Timestamp | None = ...,
        born_host: str | None = ...,
        store_timestamp: Timestamp | None = ...,
        store_host: str | None = ...,
        delivery_timestamp: Timestamp | None = ...,
        receipt_handle: str | None = ...,
        queue_id: int | None = ...,
        queue_offset: int | None = ...,
        invisible_duration: Duration | None = ...,
        delivery_attempt: int | None = ...,
        message_group: str | None = ...,
        trace_context: str | None = ...,
        orphaned_transaction_recovery_duration: Duration | None = ...,
        dead_letter_queue: DeadLetterQueue | None = ...,
        lite_topic: str | None = ...,
        priority: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['tag', 'body_digest', 'born_timestamp', 'store_timestamp', 'delivery_timestamp', 'receipt_handle', 'queue_offset', 'invisible_duration', 'delivery_attempt', 'message_group', 'trace_context', 'orphaned_transaction_recovery_duration', 'dead_letter_queue', 'lite_topic', 'priority']) -> bool: ...

class DeadLetterQueue(_Message):
    topic: str
    message_id: str
    def __init__(
        self,
        *,
        topic: str | None = ...,
        message_id: str | None = ...,
    ) -> None: ...

class Message(_Message):
    @property
    def topic(self) -> Resource: ...
    @property
    def user_properties(self) -> ScalarMap[str, str]: ...
    @property
    def system_properties(self) -> SystemProperties: ...
    body: bytes
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        user_properties: Mapping[str, str] | None = ...,
        system_properties: SystemProperties | None = ...,
        body: bytes | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['topic', 'system_properties']) -> bool: ...

class Assignment(_Message):
    @property
    def message_queue(self) -> MessageQueue: ...
    def __init__(
        self,
        *,
        message_queue: MessageQueue | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['message_queue']) -> bool: ...

class Status(_Message):
    code: int
    message: str
    def __init__(
        self,
        *,
        code: int | None = ...,
        message: str | None = ...,
    ) -> None: ...

class UA(_Message):
    language: int
    version: str
    platform: str
    hostname: str
    def __init__(
        self,
        *,
        language: int | None = ...,
        version: str | None = ...,
        platform: str | None = ...,
        hostname: str | None = ...,
    ) -> None: ...

class Settings(_Message):
    client_type: int
    @property
    def access_point(self) -> Endpoints: ...
    @property
    def backoff_policy(self) -> RetryPolicy: ...
    @property
    def request_timeout(self) -> Duration: ...
    @property
    def publishing(self) -> Publishing: ...
    @property
    def subscription(self) -> Subscription: ...
    @property
    def user_agent(self) -> UA: ...
    @property
    def metric(self) -> Metric: ...
    @property
    def client_properties(self) -> ScalarMap[str, str]: ...
    def __init__(
        self,
        *,
        client_type: int | None = ...,
        access_point: Endpoints | None = ...,
        backoff_policy: RetryPolicy | None = ...,
        request_timeout: Duration | None = ...,
        publishing: Publishing | None = ...,
        subscription: Subscription | None = ...,
        user_agent: UA | None = ...,
        metric: Metric | None = ...,
        client_properties: Mapping[str, str] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['client_type', 'access_point', 'backoff_policy', 'request_timeout', 'publishing', 'subscription', 'user_agent', 'metric']) -> bool: ...
    def WhichOneof(self, oneof_group: Literal['pub_sub']) -> Literal['publishing', 'subscription'] | None: ...

class Publishing(_Message):
    @property
    def topics(self) -> RepeatedCompositeFieldContainer[Resource]: ...
    max_body_size: int
    validate_message_type: bool
    def __init__(
        self,
        *,
        topics: Iterable[Resource] | None = ...,
        max_body_size: int | None = ...,
        validate_message_type: bool | None = ...,
    ) -> None: ...

class Subscription(_Message):
    @property
    def group(self) -> Resource: ...
    @property
    def subscriptions(self) -> RepeatedCompositeFieldContainer[SubscriptionEntry]: ...
    fifo: bool
    receive_batch_size: int
    @property
    def long_polling_timeout(self) -> Duration: ...
    lite_subscription_quota: int
    max_lite_topic_size: int
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        subscriptions: Iterable[SubscriptionEntry] | None = ...,
        fifo: bool | None = ...,
        receive_batch_size: int | None = ...,
        long_polling_timeout: Duration | None = ...,
        lite_subscription_quota: int | None = ...,
        max_lite_topic_size: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group', 'fifo', 'receive_batch_size', 'long_polling_timeout', 'lite_subscription_quota', 'max_lite_topic_size']) -> bool: ...

class Metric(_Message):
    on: bool
    @property
    def endpoints(self) -> Endpoints: ...
    def __init__(
        self,
        *,
        on: bool | None = ...,
        endpoints: Endpoints | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['endpoints']) -> bool: ...

class OffsetOption(_Message):
    policy: int
    offset: int
    tail_n: int
    timestamp: int
    def __init__(
        self,
        *,
        policy: int | None = ...,
        offset: int | None = ...,
        tail_n: int | None = ...,
        timestamp: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['policy', 'offset', 'tail_n', 'timestamp']) -> bool: ...
    def WhichOneof(self, oneof_group: Literal['offset_type']) -> Literal['policy', 'offset', 'tail_n', 'timestamp'] | None: ...

class QueryRouteRequest(_Message):
    @property
    def topic(self) -> Resource: ...
    @property
    def endpoints(self) -> Endpoints: ...
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        endpoints: Endpoints | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['topic', 'endpoints']) -> bool: ...

class QueryRouteResponse(_Message):
    @property
    def status(self) -> Status: ...
    @property
    def message_queues(self) -> RepeatedCompositeFieldContainer[MessageQueue]: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
        message_queues: Iterable[MessageQueue] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class SendMessageRequest(_Message):
    @property
    def messages(self) -> RepeatedCompositeFieldContainer[Message]: ...
    def __init__(
        self,
        *,
        messages: Iterable[Message] | None = ...,
    ) -> None: ...

class SendResultEntry(_Message):
    @property
    def status(self) -> Status: ...
    message_id: str
    transaction_id: str
    offset: int
    recall_handle: str
    def __init__(
        self,
        *,
        status: Status | None = ...,
        message_id: str | None = ...,
        transaction_id: str | None = ...,
        offset: int | None = ...,
        recall_handle: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class SendMessageResponse(_Message):
    @property
    def status(self) -> Status: ...
    @property
    def entries(self) -> RepeatedCompositeFieldContainer[SendResultEntry]: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
        entries: Iterable[SendResultEntry] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class QueryAssignmentRequest(_Message):
    @property
    def topic(self) -> Resource: ...
    @property
    def group(self) -> Resource: ...
    @property
    def endpoints(self) -> Endpoints: ...
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        group: Resource | None = ...,
        endpoints: Endpoints | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['topic', 'group', 'endpoints']) -> bool: ...

class QueryAssignmentResponse(_Message):
    @property
    def status(self) -> Status: ...
    @property
    def assignments(self) -> RepeatedCompositeFieldContainer[Assignment]: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
        assignments: Iterable[Assignment] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class ReceiveMessageRequest(_Message):
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    @property
    def filter_expression(self) -> FilterExpression: ...
    batch_size: int
    @property
    def invisible_duration(self) -> Duration: ...
    auto_renew: bool
    @property
    def long_polling_timeout(self) -> Duration: ...
    attempt_id: str
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        message_queue: MessageQueue | None = ...,
        filter_expression: FilterExpression | None = ...,
        batch_size: int | None = ...,
        invisible_duration: Duration | None = ...,
        auto_renew: bool | None = ...,
        long_polling_timeout: Duration | None = ...,
        attempt_id: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group', 'message_queue', 'filter_expression', 'invisible_duration', 'long_polling_timeout', 'attempt_id']) -> bool: ...

class ReceiveMessageResponse(_Message):
    @property
    def status(self) -> Status: ...
    @property
    def message(self) -> Message: ...
    @property
    def delivery_timestamp(self) -> Timestamp: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
        message: Message | None = ...,
        delivery_timestamp: Timestamp | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status', 'message', 'delivery_timestamp']) -> bool: ...
    def WhichOneof(self, oneof_group: Literal['content']) -> Literal['status', 'message', 'delivery_timestamp'] | None: ...

class AckMessageEntry(_Message):
    message_id: str
    receipt_handle: str
    lite_topic: str
    def __init__(
        self,
        *,
        message_id: str | None = ...,
        receipt_handle: str | None = ...,
        lite_topic: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['lite_topic']) -> bool: ...

class AckMessageRequest(_Message):
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    @property
    def entries(self) -> RepeatedCompositeFieldContainer[AckMessageEntry]: ...
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        topic: Resource | None = ...,
        entries: Iterable[AckMessageEntry] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group', 'topic']) -> bool: ...

class AckMessageResultEntry(_Message):
    message_id: str
    receipt_handle: str
    @property
    def status(self) -> Status: ...
    def __init__(
        self,
        *,
        message_id: str | None = ...,
        receipt_handle: str | None = ...,
        status: Status | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class AckMessageResponse(_Message):
    @property
    def status(self) -> Status: ...
    @property
    def entries(self) -> RepeatedCompositeFieldContainer[AckMessageResultEntry]: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
        entries: Iterable[AckMessageResultEntry] | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class ForwardMessageToDeadLetterQueueRequest(_Message):
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    receipt_handle: str
    message_id: str
    delivery_attempt: int
    max_delivery_attempts: int
    lite_topic: str
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        topic: Resource | None = ...,
        receipt_handle: str | None = ...,
        message_id: str | None = ...,
        delivery_attempt: int | None = ...,
        max_delivery_attempts: int | None = ...,
        lite_topic: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group', 'topic', 'lite_topic']) -> bool: ...

class ForwardMessageToDeadLetterQueueResponse(_Message):
    @property
    def status(self) -> Status: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class HeartbeatRequest(_Message):
    @property
    def group(self) -> Resource: ...
    client_type: int
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        client_type: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group']) -> bool: ...

class HeartbeatResponse(_Message):
    @property
    def status(self) -> Status: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class EndTransactionRequest(_Message):
    @property
    def topic(self) -> Resource: ...
    message_id: str
    transaction_id: str
    resolution: int
    source: int
    trace_context: str
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        message_id: str | None = ...,
        transaction_id: str | None = ...,
        resolution: int | None = ...,
        source: int | None = ...,
        trace_context: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['topic']) -> bool: ...

class EndTransactionResponse(_Message):
    @property
    def status(self) -> Status: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class PrintThreadStackTraceCommand(_Message):
    nonce: str
    def __init__(
        self,
        *,
        nonce: str | None = ...,
    ) -> None: ...

class ReconnectEndpointsCommand(_Message):
    nonce: str
    def __init__(
        self,
        *,
        nonce: str | None = ...,
    ) -> None: ...

class ThreadStackTrace(_Message):
    nonce: str
    thread_stack_trace: str
    def __init__(
        self,
        *,
        nonce: str | None = ...,
        thread_stack_trace: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['thread_stack_trace']) -> bool: ...

class VerifyMessageCommand(_Message):
    nonce: str
    @property
    def message(self) -> Message: ...
    def __init__(
        self,
        *,
        nonce: str | None = ...,
        message: Message | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['message']) -> bool: ...

class VerifyMessageResult(_Message):
    nonce: str
    def __init__(
        self,
        *,
        nonce: str | None = ...,
    ) -> None: ...

class RecoverOrphanedTransactionCommand(_Message):
    @property
    def message(self) -> Message: ...
    transaction_id: str
    def __init__(
        self,
        *,
        message: Message | None = ...,
        transaction_id: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['message']) -> bool: ...

class NotifyUnsubscribeLiteCommand(_Message):
    lite_topic: str
    def __init__(
        self,
        *,
        lite_topic: str | None = ...,
    ) -> None: ...

class TelemetryCommand(_Message):
    @property
    def status(self) -> Status: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def thread_stack_trace(self) -> ThreadStackTrace: ...
    @property
    def verify_message_result(self) -> VerifyMessageResult: ...
    @property
    def recover_orphaned_transaction_command(self) -> RecoverOrphanedTransactionCommand: ...
    @property
    def print_thread_stack_trace_command(self) -> PrintThreadStackTraceCommand: ...
    @property
    def verify_message_command(self) -> VerifyMessageCommand: ...
    @property
    def reconnect_endpoints_command(self) -> ReconnectEndpointsCommand: ...
    @property
    def notify_unsubscribe_lite_command(self) -> NotifyUnsubscribeLiteCommand: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
        settings: Settings | None = ...,
        thread_stack_trace: ThreadStackTrace | None = ...,
        verify_message_result: VerifyMessageResult | None = ...,
        recover_orphaned_transaction_command: RecoverOrphanedTransactionCommand | None = ...,
        print_thread_stack_trace_command: PrintThreadStackTraceCommand | None = ...,
        verify_message_command: VerifyMessageCommand | None = ...,
        reconnect_endpoints_command: ReconnectEndpointsCommand | None = ...,
        notify_unsubscribe_lite_command: NotifyUnsubscribeLiteCommand | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status', 'settings', 'thread_stack_trace', 'verify_message_result', 'recover_orphaned_transaction_command', 'print_thread_stack_trace_command', 'verify_message_command', 'reconnect_endpoints_command', 'notify_unsubscribe_lite_command']) -> bool: ...
    def WhichOneof(self, oneof_group: Literal['command']) -> Literal['settings', 'thread_stack_trace', 'verify_message_result', 'recover_orphaned_transaction_command', 'print_thread_stack_trace_command', 'verify_message_command', 'reconnect_endpoints_command', 'notify_unsubscribe_lite_command'] | None: ...

class NotifyClientTerminationRequest(_Message):
    @property
    def group(self) -> Resource: ...
    def __init__(
        self,
        *,
        group: Resource | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group']) -> bool: ...

class NotifyClientTerminationResponse(_Message):
    @property
    def status(self) -> Status: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class ChangeInvisibleDurationRequest(_Message):
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    receipt_handle: str
    @property
    def invisible_duration(self) -> Duration: ...
    message_id: str
    lite_topic: str
    suspend: bool
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        topic: Resource | None = ...,
        receipt_handle: str | None = ...,
        invisible_duration: Duration | None = ...,
        message_id: str | None = ...,
        lite_topic: str | None = ...,
        suspend: bool | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group', 'topic', 'invisible_duration', 'lite_topic', 'suspend']) -> bool: ...

class ChangeInvisibleDurationResponse(_Message):
    @property
    def status(self) -> Status: ...
    receipt_handle: str
    def __init__(
        self,
        *,
        status: Status | None = ...,
        receipt_handle: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class PullMessageRequest(_Message):
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    offset: int
    batch_size: int
    @property
    def filter_expression(self) -> FilterExpression: ...
    @property
    def long_polling_timeout(self) -> Duration: ...
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        message_queue: MessageQueue | None = ...,
        offset: int | None = ...,
        batch_size: int | None = ...,
        filter_expression: FilterExpression | None = ...,
        long_polling_timeout: Duration | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group', 'message_queue', 'filter_expression', 'long_polling_timeout']) -> bool: ...

class PullMessageResponse(_Message):
    @property
    def status(self) -> Status: ...
    @property
    def message(self) -> Message: ...
    next_offset: int
    def __init__(
        self,
        *,
        status: Status | None = ...,
        message: Message | None = ...,
        next_offset: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status', 'message', 'next_offset']) -> bool: ...
    def WhichOneof(self, oneof_group: Literal['content']) -> Literal['status', 'message', 'next_offset'] | None: ...

class UpdateOffsetRequest(_Message):
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    offset: int
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        message_queue: MessageQueue | None = ...,
        offset: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group', 'message_queue']) -> bool: ...

class UpdateOffsetResponse(_Message):
    @property
    def status(self) -> Status: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class GetOffsetRequest(_Message):
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    def __init__(
        self,
        *,
        group: Resource | None = ...,
        message_queue: MessageQueue | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['group', 'message_queue']) -> bool: ...

class GetOffsetResponse(_Message):
    @property
    def status(self) -> Status: ...
    offset: int
    def __init__(
        self,
        *,
        status: Status | None = ...,
        offset: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class QueryOffsetRequest(_Message):
    @property
    def message_queue(self) -> MessageQueue: ...
    query_offset_policy: int
    @property
    def timestamp(self) -> Timestamp: ...
    def __init__(
        self,
        *,
        message_queue: MessageQueue | None = ...,
        query_offset_policy: int | None = ...,
        timestamp: Timestamp | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['message_queue', 'timestamp']) -> bool: ...

class QueryOffsetResponse(_Message):
    @property
    def status(self) -> Status: ...
    offset: int
    def __init__(
        self,
        *,
        status: Status | None = ...,
        offset: int | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class RecallMessageRequest(_Message):
    @property
    def topic(self) -> Resource: ...
    recall_handle: str
    def __init__(
        self,
        *,
        topic: Resource | None = ...,
        recall_handle: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['topic']) -> bool: ...

class RecallMessageResponse(_Message):
    @property
    def status(self) -> Status: ...
    message_id: str
    def __init__(
        self,
        *,
        status: Status | None = ...,
        message_id: str | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...

class SyncLiteSubscriptionRequest(_Message):
    action: int
    @property
    def topic(self) -> Resource: ...
    @property
    def group(self) -> Resource: ...
    @property
    def lite_topic_set(self) -> RepeatedScalarFieldContainer[str]: ...
    version: int
    @property
    def offset_option(self) -> OffsetOption: ...
    def __init__(
        self,
        *,
        action: int | None = ...,
        topic: Resource | None = ...,
        group: Resource | None = ...,
        lite_topic_set: Iterable[str] | None = ...,
        version: int | None = ...,
        offset_option: OffsetOption | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['topic', 'group', 'version', 'offset_option']) -> bool: ...

class SyncLiteSubscriptionResponse(_Message):
    @property
    def status(self) -> Status: ...
    def __init__(
        self,
        *,
        status: Status | None = ...,
    ) -> None: ...
    def HasField(self, field_name: Literal['status']) -> bool: ...
