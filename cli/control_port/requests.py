"""What clients of the control port ask: the bodies and queries of its requests.

A field that is not known here is refused, so that a misspelt one does not pass for one that was left out.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

DEFAULT_WAIT_S = 10.0
Timeout = Annotated[float, Meta(ge=0, le=86_400, description="How many seconds of the machine's clock to wait at most")]
Count = Annotated[int, Meta(ge=1, description="How many there must be at least")]
Name = Annotated[str, Meta(min_length=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]


class AskedNothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request that has nothing to say."""


class AtBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which broker is meant."""

    broker: Annotated[Name | None, Meta(description="One that was added, by its name; the first unless given")] = None


class AskedTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A test that begins."""

    name: Annotated[str, Meta(min_length=1, description="Names of topics and groups that are made up begin with it")]


class AskedTopic(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to be made."""

    name: Annotated[Name | None, Meta(description="Made up from the name of the test unless given")] = None
    queues: Annotated[int, Meta(ge=1, le=65_535, description="Number of its queues")] = 4


class AskedGroup(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A consumer group to be made, with its retry topic."""

    name: Annotated[Name | None, Meta(description="Made up from the name of the test unless given")] = None


class SentMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to be sent; it has one of body, body_base64 and json."""

    topic: Name
    body: Annotated[str | UnsetType, Meta(description="Its text")] = UNSET
    body_base64: Annotated[bytes | UnsetType, Meta(description="Its bytes")] = UNSET
    json: Annotated[Any, Meta(description="A value, which it has as text")] = UNSET
    tags: str | None = None
    keys: list[str] = []
    properties: dict[str, str] = {}
    queue: Annotated[NotNegative | None, Meta(description="The number of its queue; in turn unless given")] = None
    delay_level: Annotated[int, Meta(ge=0, description="1, 2, … as messageDelayLevel names them")] = 0
    delay_ms: Annotated[NotNegative | None, Meta(description="How late it is delivered, by the broker's clock")] = None


class ExpectedSending(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a message of a topic is expected to be; fields that are left out may be anything."""

    topic: Name
    body: str | UnsetType = UNSET
    body_base64: bytes | UnsetType = UNSET
    json: Annotated[Any, Meta(description="What the body says in JSON")] = UNSET
    tags: str | UnsetType | None = UNSET
    keys: Annotated[list[str] | UnsetType, Meta(description="Keys that it must have among others")] = UNSET
    properties: Annotated[dict[str, str] | UnsetType, Meta(description="Properties that it must have among others")] = (
        UNSET
    )
    times: Annotated[NotNegative | None, Meta(description="How many messages are so; at least one unless given")] = None


class AskedMessages(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages are looked at."""

    topic: Name
    tag: str | None = None
    key: str | None = None
    group: Annotated[
        str | None, Meta(description="Only those that this consumer group subscribes to and is not done with")
    ] = None


class OfGroup(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which consumer group is looked at."""

    group: Name


class AskedRequests(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which requests of clients are looked at."""

    on: Annotated[str | None, Meta(description="An operation: send, pull, commit_offset, route, …")] = None
    topic: str | None = None
    group: str | None = None


class WaitForMessages(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages are waited for; their topic may come later, too."""

    topic: Name
    count: Count = 1
    tag: str | None = None
    key: str | None = None
    timeout: Timeout = DEFAULT_WAIT_S


class WaitForGroup(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which consumer group is waited for."""

    group: Name
    timeout: Timeout = DEFAULT_WAIT_S


class WaitForIdle(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long is waited for all consumer groups."""

    timeout: Timeout = DEFAULT_WAIT_S


class WaitForHits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often a fault must have been met."""

    hits: Count = 1
    timeout: Timeout = DEFAULT_WAIT_S


class AskedSpan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """By how much time moves on: the sum of the fields."""

    days: Annotated[float, Meta(ge=0)] = 0
    hours: Annotated[float, Meta(ge=0)] = 0
    minutes: Annotated[float, Meta(ge=0)] = 0
    seconds: Annotated[float, Meta(ge=0)] = 0
    milliseconds: Annotated[float, Meta(ge=0)] = 0


class AskedFault(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shall go wrong, with which requests, how often; or what is wrong with the disk."""

    on: Annotated[
        str | None, Meta(description="An operation: send, pull, commit_offset, route, …; any request unless given")
    ] = None
    answer: Annotated[
        str | int | None,
        Meta(description="DROP, CLOSE, LOSE_ANSWER, or a response code by name (SYSTEM_BUSY) or number"),
    ] = None
    remark: Annotated[str | None, Meta(description="Said with the response code")] = None
    delay_ms: Annotated[int, Meta(ge=0, description="How late the request is served, or the disk flushes")] = 0
    topic: str | None = None
    group: str | None = None
    client: Annotated[str | None, Meta(description="A client id")] = None
    times: Annotated[Positive | None, Meta(description="How many requests meet it; null: all")] = 1
    after: Annotated[int, Meta(ge=0, description="How many of those that fit are passed over first")] = 0
    optional: Annotated[bool, Meta(description="Whether a test passes in which nothing meets it")] = False
    disk: Annotated[
        Literal["full", "slow", "failing"] | None,
        Meta(description="The disk is full, takes delay_ms for each flush, or fails to flush"),
    ] = None


class AskedBroker(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One more broker at the same name server."""

    name: Name = "broker-b"
    settings: Annotated[dict[str, str], Meta(description="By Java's keys, over those of the first broker")] = {}


class AskedPartition(AtBroker, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client that is cut off."""

    client: Annotated[str, Meta(min_length=1, description="Its client id")]
