"""The messages of ``apache.rocketmq.v2``: their fields, and the classes that read and write them.

    Name: number field type, …

A type is a scalar, a message or an enum (``enums.py``). ``?`` stands behind one whose presence is told, ``*`` behind
one that is repeated, ``@`` before the choice that a field belongs to. ``Ts`` and ``Dur`` are Google's Timestamp and
Duration, ``map`` brings texts to texts, ``i32`` and ``i64`` are signed.

Rules

    1. Only the numbers travel, and the path of a method; the names are those that texts of errors and JSON show.
    2. The classes are in a pool of their own: an application may have another copy of them in the same process.
    3. Numbers and fields that are not known are kept as they are.
"""

import enum
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import api_implementation
from google.protobuf.message import Message

from . import enums

PACKAGE: Final = "apache.rocketmq.v2"
TABLE: Final = """
FilterExpression: 1 type FilterType, 2 expression string
RetryPolicy: 1 max_attempts i32, 2 exponential_backoff ExponentialBackoff @strategy, 3 customized_backoff
    CustomizedBackoff @strategy
ExponentialBackoff: 1 initial Dur, 2 max Dur, 3 multiplier float
CustomizedBackoff: 1 next Dur*
Resource: 1 resource_namespace string, 2 name string
SubscriptionEntry: 1 topic Resource, 2 expression FilterExpression
Address: 1 host string, 2 port i32
Endpoints: 1 scheme AddressScheme, 2 addresses Address*
Broker: 1 name string, 2 id i32, 3 endpoints Endpoints
MessageQueue: 1 topic Resource, 2 id i32, 3 permission Permission, 4 broker Broker, 5 accept_message_types
    MessageType*
Digest: 1 type DigestType, 2 checksum string
SystemProperties: 1 tag string?, 2 keys string*, 3 message_id string, 4 body_digest Digest, 5 body_encoding Encoding,
    6 message_type MessageType, 7 born_timestamp Ts, 8 born_host string, 9 store_timestamp Ts?, 10 store_host string,
    11 delivery_timestamp Ts?, 12 receipt_handle string?, 13 queue_id i32, 14 queue_offset i64?, 15 invisible_duration
    Dur?, 16 delivery_attempt i32?, 17 message_group string?, 18 trace_context string?, 19
    orphaned_transaction_recovery_duration Dur?, 20 dead_letter_queue DeadLetterQueue?, 21 lite_topic string?, 22
    priority i32?
DeadLetterQueue: 1 topic string, 2 message_id string
Message: 1 topic Resource, 2 user_properties map, 3 system_properties SystemProperties, 4 body bytes
Assignment: 1 message_queue MessageQueue
Status: 1 code Code, 2 message string
UA: 1 language Language, 2 version string, 3 platform string, 4 hostname string
Settings: 1 client_type ClientType?, 2 access_point Endpoints?, 3 backoff_policy RetryPolicy?, 4 request_timeout Dur?,
    5 publishing Publishing @pub_sub, 6 subscription Subscription @pub_sub, 7 user_agent UA, 8 metric Metric, 9
    client_properties map
Publishing: 1 topics Resource*, 2 max_body_size i32, 3 validate_message_type bool
Subscription: 1 group Resource?, 2 subscriptions SubscriptionEntry*, 3 fifo bool?, 4 receive_batch_size i32?, 5
    long_polling_timeout Dur?, 6 lite_subscription_quota i32?, 7 max_lite_topic_size i32?
Metric: 1 on bool, 2 endpoints Endpoints?
OffsetOption: 1 policy OffsetPolicy @offset_type, 2 offset i64 @offset_type, 3 tail_n i64 @offset_type, 4 timestamp
    i64 @offset_type
QueryRouteRequest: 1 topic Resource, 2 endpoints Endpoints
QueryRouteResponse: 1 status Status, 2 message_queues MessageQueue*
SendMessageRequest: 1 messages Message*
SendResultEntry: 1 status Status, 2 message_id string, 3 transaction_id string, 4 offset i64, 5 recall_handle string
SendMessageResponse: 1 status Status, 2 entries SendResultEntry*
QueryAssignmentRequest: 1 topic Resource, 2 group Resource, 3 endpoints Endpoints
QueryAssignmentResponse: 1 status Status, 2 assignments Assignment*
ReceiveMessageRequest: 1 group Resource, 2 message_queue MessageQueue, 3 filter_expression FilterExpression, 4
    batch_size i32, 5 invisible_duration Dur?, 6 auto_renew bool, 7 long_polling_timeout Dur?, 8 attempt_id string?
ReceiveMessageResponse: 1 status Status @content, 2 message Message @content, 3 delivery_timestamp Ts @content
AckMessageEntry: 1 message_id string, 2 receipt_handle string, 3 lite_topic string?
AckMessageRequest: 1 group Resource, 2 topic Resource, 3 entries AckMessageEntry*
AckMessageResultEntry: 1 message_id string, 2 receipt_handle string, 3 status Status
AckMessageResponse: 1 status Status, 2 entries AckMessageResultEntry*
ForwardMessageToDeadLetterQueueRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle string, 4 message_id
    string, 5 delivery_attempt i32, 6 max_delivery_attempts i32, 7 lite_topic string?
ForwardMessageToDeadLetterQueueResponse: 1 status Status
HeartbeatRequest: 1 group Resource?, 2 client_type ClientType
HeartbeatResponse: 1 status Status
EndTransactionRequest: 1 topic Resource, 2 message_id string, 3 transaction_id string, 4 resolution
    TransactionResolution, 5 source TransactionSource, 6 trace_context string
EndTransactionResponse: 1 status Status
PrintThreadStackTraceCommand: 1 nonce string
ReconnectEndpointsCommand: 1 nonce string
ThreadStackTrace: 1 nonce string, 2 thread_stack_trace string?
VerifyMessageCommand: 1 nonce string, 2 message Message
VerifyMessageResult: 1 nonce string
RecoverOrphanedTransactionCommand: 1 message Message, 2 transaction_id string
NotifyUnsubscribeLiteCommand: 1 lite_topic string
TelemetryCommand: 1 status Status?, 2 settings Settings @command, 3 thread_stack_trace ThreadStackTrace @command, 4
    verify_message_result VerifyMessageResult @command, 5 recover_orphaned_transaction_command
    RecoverOrphanedTransactionCommand @command, 6 print_thread_stack_trace_command PrintThreadStackTraceCommand
    @command, 7 verify_message_command VerifyMessageCommand @command, 8 reconnect_endpoints_command
    ReconnectEndpointsCommand @command, 9 notify_unsubscribe_lite_command NotifyUnsubscribeLiteCommand @command
NotifyClientTerminationRequest: 1 group Resource?
NotifyClientTerminationResponse: 1 status Status
ChangeInvisibleDurationRequest: 1 group Resource, 2 topic Resource, 3 receipt_handle string, 4 invisible_duration Dur,
    5 message_id string, 6 lite_topic string?, 7 suspend bool?
ChangeInvisibleDurationResponse: 1 status Status, 2 receipt_handle string
PullMessageRequest: 1 group Resource, 2 message_queue MessageQueue, 3 offset i64, 4 batch_size i32, 5
    filter_expression FilterExpression, 6 long_polling_timeout Dur
PullMessageResponse: 1 status Status @content, 2 message Message @content, 3 next_offset i64 @content
UpdateOffsetRequest: 1 group Resource, 2 message_queue MessageQueue, 3 offset i64
UpdateOffsetResponse: 1 status Status
GetOffsetRequest: 1 group Resource, 2 message_queue MessageQueue
GetOffsetResponse: 1 status Status, 2 offset i64
QueryOffsetRequest: 1 message_queue MessageQueue, 2 query_offset_policy QueryOffsetPolicy, 3 timestamp Ts?
QueryOffsetResponse: 1 status Status, 2 offset i64
RecallMessageRequest: 1 topic Resource, 2 recall_handle string
RecallMessageResponse: 1 status Status, 2 message_id string
SyncLiteSubscriptionRequest: 1 action LiteSubscriptionAction, 2 topic Resource, 3 group Resource, 4 lite_topic_set
    string*, 5 version i64?, 6 offset_option OffsetOption?
SyncLiteSubscriptionResponse: 1 status Status
"""
_GOOGLE: Final = {"Ts": "Timestamp", "Dur": "Duration"}
_Proto = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Proto.TYPE_STRING,
    "bytes": _Proto.TYPE_BYTES,
    "bool": _Proto.TYPE_BOOL,
    "float": _Proto.TYPE_FLOAT,
    "i32": _Proto.TYPE_INT32,
    "i64": _Proto.TYPE_INT64,
}
_FIELD: Final = re.compile(r"(\d+) (\w+) (\w+)([?*]?)(?: @(\w+))?")
ENUMS: Final = {
    name: each for name, each in vars(enums).items() if isinstance(each, type) and issubclass(each, enum.IntEnum)
}


class Field(NamedTuple):
    """One field of a message; ``mark`` is ``?``, ``*`` or nothing."""

    number: int
    name: str
    type: str
    mark: str
    choice: str


def parse_table(text: str = TABLE) -> dict[str, list[Field]]:
    """Return the fields of each message."""
    fields: dict[str, list[Field]] = {}
    for entry in re.split(r"\n(?=\w)", text.strip()):
        name, _, rest = entry.partition(": ")
        fields[name] = [
            Field(int(number), *words)
            for number, *words in (match.groups("") for match in _FIELD.finditer(" ".join(rest.split())))
        ]
    return fields


def is_fast() -> bool:
    """Tell whether messages are read and written by compiled code; in Python it takes twenty times as long."""
    return api_implementation.Type() != "python"


def build_classes() -> dict[str, type[Message]]:
    """Return the class of each message."""
    pool = descriptor_pool.DescriptorPool()
    for name in ("Duration", "Timestamp"):
        pool.Add(_google_file(name))  # pyright: ignore[reportUnknownMemberType] # the stubs do not say what it takes
    table = parse_table()
    file = descriptor_pb2.FileDescriptorProto(name="rocketmq.proto", package=PACKAGE, syntax="proto3")
    file.dependency.extend(("google/protobuf/duration.proto", "google/protobuf/timestamp.proto"))
    for name, each in ENUMS.items():
        numbers = file.enum_type.add(name=name)
        for member in each:
            numbers.value.add(name=member.name, number=member.value)
    for name, fields in table.items():
        _describe(file.message_type.add(name=name), fields, table)
    pool.Add(file)  # pyright: ignore[reportUnknownMemberType] # as above
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in table}


def _google_file(name: str) -> descriptor_pb2.FileDescriptorProto:
    path = f"google/protobuf/{name.lower()}.proto"
    file = descriptor_pb2.FileDescriptorProto(name=path, package="google.protobuf", syntax="proto3")
    message = file.message_type.add(name=name)
    message.field.add(name="seconds", number=1, type=_Proto.TYPE_INT64, label=_Proto.LABEL_OPTIONAL)
    message.field.add(name="nanos", number=2, type=_Proto.TYPE_INT32, label=_Proto.LABEL_OPTIONAL)
    return file


def _describe(message: descriptor_pb2.DescriptorProto, fields: list[Field], table: Mapping[str, list[Field]]) -> None:
    choices = list(dict.fromkeys(_choices(fields)))
    for choice in choices:
        message.oneof_decl.add(name=choice)
    for field in fields:
        made = message.field.add(name=field.name, number=field.number)
        made.label = _Proto.LABEL_REPEATED if field.mark == "*" or field.type == "map" else _Proto.LABEL_OPTIONAL
        if field.type == "map":
            made.type, made.type_name = _Proto.TYPE_MESSAGE, f".{PACKAGE}.{message.name}.{_add_entry(message, field)}"
        elif field.type in _SCALARS:
            made.type = _SCALARS[field.type]
        elif field.type in _GOOGLE:
            made.type, made.type_name = _Proto.TYPE_MESSAGE, f".google.protobuf.{_GOOGLE[field.type]}"
        else:
            made.type = _Proto.TYPE_MESSAGE if field.type in table else _Proto.TYPE_ENUM
            made.type_name = f".{PACKAGE}.{field.type}"
        if field.choice or field.mark == "?":
            made.oneof_index = choices.index(field.choice or f"_{field.name}")
            made.proto3_optional = not field.choice


def _choices(fields: list[Field]) -> Iterator[str]:
    """Yield the choices of a message, those of one field last, as protobuf wants them."""
    yield from (field.choice for field in fields if field.choice)
    yield from (f"_{field.name}" for field in fields if field.mark == "?")


def _add_entry(message: descriptor_pb2.DescriptorProto, field: Field) -> str:
    name = "".join(word.capitalize() for word in field.name.split("_")) + "Entry"
    entry = message.nested_type.add(name=name)
    entry.options.map_entry = True
    for number, part in enumerate(("key", "value"), 1):
        entry.field.add(name=part, number=number, type=_Proto.TYPE_STRING, label=_Proto.LABEL_OPTIONAL)
    return name
