r"""Messages as an application sees them.

``Message`` is what a producer hands over, ``ReceivedMessage`` what a consumer or a query gets, ``MessageQueue`` the
address of one queue. None of them knows a connection or a file.

Rules for the properties of a sent message:

- ``tags``, ``keys`` and ``waits_for_store`` travel as the properties ``TAGS``, ``KEYS`` (joined by one blank) and
  ``WAIT``, ``delay_level``, ``delay_ms`` and ``deliver_at_ms`` as ``DELAY``, ``TIMER_DELAY_MS`` and
  ``TIMER_DELIVER_MS``; these names are therefore refused in ``properties``.
- A message is late in one way or not at all: one of the three.
- Names and values are not blank and do not hold ``\x01`` or ``\x02``, which separate them on the wire.

When a stored message is sent again, to the same or another cluster (``replayed``), these properties go with it:

    carried      those of the application, UNIQ_KEY, the sharding key, the priority and the trace context, and where a
                 retried message came from
    as fields    TAGS, KEYS
    not carried  what servers and clients write for themselves: a copy that kept it would be taken for a transaction's
                 half, a reply, a message that is popped or due later

The bits of a message's sysFlag are those of ``MessageSysFlag`` (store.md §2.2).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from . import properties as names
from .ids import Address, decode_host
from .properties import (
    DELAY,
    KEYS,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    UNIQ_KEY,
    WAIT,
    find_tag,
    parse_properties,
)

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2
TRANSACTION_MASK: Final = 0xC
TRANSACTION_NONE: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
NEEDS_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80
COMPRESSION_MASK: Final = 0x700
COMPRESSION_SHIFT: Final = 8

# of a pull, which has a sysFlag of its own (``PullSysFlag``)
PULL_COMMIT_OFFSET: Final = 1
"""The offset that it brings is to be committed."""
PULL_SUSPEND: Final = 2
"""It waits when there is nothing new."""
PULL_SUBSCRIPTION: Final = 4
"""Its own subscription counts, and not that of the group's last heartbeat."""
PULL_CLASS_FILTER: Final = 8
"""A class of the consumer filters, so that the broker hands out everything."""
PULL_LITE: Final = 16


_OWN_FIELD = {
    TAGS: "tags",
    KEYS: "keys",
    WAIT: "waits_for_store",
    DELAY: "delay_level",
    TIMER_DELAY_MS: "delay_ms",
    TIMER_DELAY_SEC: "delay_ms",
    TIMER_DELIVER_MS: "deliver_at_ms",
}


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker; sorts as Java's ``MessageQueue.compareTo`` does."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic} queue {self.queue_id} at {self.broker_name}"


@dataclass(slots=True)
class Message:
    """A message to send (``org.apache.rocketmq.common.message.Message``); a body that is not bytes is a TypeError.

    A lone text as ``keys`` counts as one key. ``flag`` belongs to the application and is carried as it is.

    It is delivered at once, or after the time of a ``delay_level`` (1 to 18 are 1 s to 2 h unless the broker is set
    otherwise), after ``delay_ms``, or at ``deliver_at_ms`` since 1970; brokers before 5.0 know levels only.
    """

    topic: str
    body: bytes
    _: KW_ONLY
    tags: str | None = None
    keys: Sequence[str] = ()
    properties: dict[str, str] = field(default_factory=dict[str, str])
    flag: int = 0
    waits_for_store: bool = True
    delay_level: int = 0
    delay_ms: int | None = None
    deliver_at_ms: int | None = None

    def __post_init__(self) -> None:
        if type(self.body) is not bytes:
            check_body(self.body)

    @property
    def is_late(self) -> bool:
        """Whether it is to be delivered later than at once."""
        return bool(self.delay_level) or self.delay_ms is not None or self.deliver_at_ms is not None

    @property
    def message_id(self) -> str | None:
        """The unique key that was made for it before it is sent, as for one in a transaction."""
        return self.properties.get(UNIQ_KEY)

    def to_properties(self) -> dict[str, str]:
        """Return all properties as they travel.

        Raises:
            TypeError: Something is not of its type.
            ValueError: A name or value is blank, reserved or holds a separator, or there are several delays.
        """
        result = _copy_user_properties(self.properties) if self.properties else {}
        tags, keys = self.tags, self.keys
        if tags:
            if type(tags) is not str or "\x01" in tags or "\x02" in tags:
                _check_text(TAGS, tags)
            result[TAGS] = tags
        if keys:
            if not isinstance(keys, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
                raise TypeError(f"keys are {type(keys).__name__}, they must be texts")
            words = (keys,) if isinstance(keys, str) else tuple(keys)
            for word in words:
                if not isinstance(word, str):  # pyright: ignore[reportUnnecessaryIsInstance] # as above
                    raise TypeError(f"key {word!r} is {type(word).__name__}, it must be text")
                if not word or " " in word:
                    raise ValueError(f"key {word!r} is empty or holds a blank, which separates keys")
                if "\x01" in word or "\x02" in word:
                    _check_text(KEYS, word)
            result[KEYS] = " ".join(words)
        result[WAIT] = "true" if self.waits_for_store else "false"
        if self.delay_level or self.delay_ms is not None or self.deliver_at_ms is not None:
            result.update(_delay_property(self))
        return result


Later = tuple[tuple[Any, ...], bytes, Mapping[str, str]]
"""What a pulled message is made of later: head and properties of its record, and properties of the answer."""


@dataclass(slots=True)
class ReceivedMessage:
    """A stored message (``MessageExt``); ``body`` is inflated, hosts are (address, port).

    ``message_id`` is the producer's unique key, or the offset id where there is none; ``offset_message_id`` names
    broker and log position.

    A consumer decodes of what it has pulled only what it needs itself, topic, queue and body; the rest is decoded when
    any of it is asked for. ``dataclasses.replace`` makes one that differs.
    """

    topic: str
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    flag: int
    sys_flag: int
    queue: MessageQueue
    queue_offset: int
    log_offset: int
    message_id: str
    offset_message_id: str
    born_at_ms: int
    stored_at_ms: int
    born_host: tuple[str, int]
    store_host: tuple[str, int]
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    store_size: int
    later: Later = field(init=False, repr=False, compare=False)

    if not TYPE_CHECKING:  # to a type checker all fields are there, and no others

        def __getattr__(self, name: str) -> object:
            if name == "tags":  # a subscription asks for nothing else
                self.tags = find_tag(self.later[1])
            elif name in _DECODED_LATER:
                self._decode()
            else:
                raise AttributeError(f"a message has no attribute {name!r}")
            return object.__getattribute__(self, name)

    def _decode(self) -> None:
        head, text, added = self.later
        properties = parse_properties(text)
        properties.update(added)
        self.tags, self.keys, self.properties = properties.get(TAGS), split_keys(properties.get(KEYS)), properties
        (
            self.store_size, _, self.body_crc, _, self.flag, _, self.log_offset, self.sys_flag, self.born_at_ms,
            born_host, self.stored_at_ms, store_host, self.reconsume_times, self.prepared_transaction_offset, _,
        ) = head  # fmt: skip
        self.born_host, self.store_host, prefix = _hosts(born_host, store_host)
        self.offset_message_id = offset_id = f"{prefix}{self.log_offset & 0xFFFFFFFFFFFFFFFF:016X}"
        self.message_id = properties.get(UNIQ_KEY) or offset_id


_DECODED_LATER: Final = frozenset(each.name for each in fields(ReceivedMessage)) - {
    *("topic", "body", "queue", "queue_offset", "tags", "later")
}


@lru_cache(maxsize=4096)
def _hosts(born_host: bytes, store_host: bytes) -> tuple[Address, Address, str]:
    """Return both hosts, and how the ids of what the second stores begin."""
    return decode_host(born_host), decode_host(store_host), store_host.hex().upper()


def check_body(body: object) -> None:
    """Refuse a body that would have to be encoded, where it is given and not when it is sent.

    Raises:
        TypeError: it is not bytes.
    """
    if not isinstance(body, (bytes, bytearray, memoryview)):
        raise TypeError(f"body is {type(body).__name__}, it must be bytes; encode it first, as json.dumps(…).encode()")


def describe_messages(messages: Sequence[ReceivedMessage]) -> str:
    """Return how logs name messages of one queue: the first by id, place and attempt, the others by their number."""
    first = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    place = f"{first.queue} offset {first.queue_offset}, attempt {first.reconsume_times + 1}"
    return f"message {first.message_id} ({place}){more}"


def split_keys(text: str | None) -> tuple[str, ...]:
    """Return the non-empty words of a ``KEYS`` value."""
    return tuple(filter(None, text.split(" "))) if text else ()


def _copy_user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(properties, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"properties are {type(properties).__name__}, they must be a mapping of texts")
    for name, value in properties.items():
        _check_text(name, value)
        _check_text(name, name)
        if name in _OWN_FIELD:
            raise ValueError(f"property {name} is set through {_OWN_FIELD[name]}")
        if not name.strip() or not value.strip():
            raise ValueError(f"property {name!r} with value {value!r}: neither may be blank")
    return dict(properties)


def _delay_property(message: Message) -> dict[str, str]:
    """Return the one property that says when a message is due."""
    times = {TIMER_DELAY_MS: message.delay_ms, TIMER_DELIVER_MS: message.deliver_at_ms}
    given: dict[str, object] = {DELAY: message.delay_level} if message.delay_level else {}
    given |= {name: value for name, value in times.items() if value is not None}
    for name, value in given.items():
        if not isinstance(value, int):
            raise TypeError(f"{_OWN_FIELD[name]} is {type(value).__name__}, it must be a whole number")
        if value < 0:
            raise ValueError(f"{_OWN_FIELD[name]} is {value}, it must not be below 0")
    if len(given) > 1:
        raise ValueError(f"a message has one delay, not {' and '.join(_OWN_FIELD[name] for name in given)}")
    return {name: f"{value:d}" for name, value in given.items()}


def _check_text(name: str, text: str) -> None:
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] # callers without a checker
        raise TypeError(f"property {name!r} is {type(text).__name__}, it must be text")
    if "\x01" in text or "\x02" in text:
        raise ValueError(f"property {name!r} holds \\x01 or \\x02, which separate properties")


NOT_CARRIED: Final = frozenset(
    {
        names.WAIT,
        names.DELAY,
        names.INSTANCE_ID,
        names.START_DELIVER_TIME,
        names.BUYER_ID,
        names.TIMER_DELAY_SEC,
        names.TIMER_DELAY_MS,
        names.TIMER_DELIVER_MS,
        names.TIMER_OUT_MS,
        names.TIMER_ENQUEUE_MS,
        names.TIMER_DEQUEUE_MS,
        names.TIMER_ROLL_TIMES,
        names.TIMER_DEL_UNIQKEY,
        names.TIMER_DELAY_LEVEL,
        names.REAL_TOPIC,
        names.REAL_QUEUE_ID,
        names.RETRY_TOPIC,
        names.RECONSUME_TIME,
        names.MAX_RECONSUME_TIMES,
        names.CONSUME_START_TIME,
        names.TRANSACTION_PREPARED,
        names.PRODUCER_GROUP,
        names.TRANSACTION_ID,
        names.CHECK_IMMUNITY_TIME,
        names.TRANSACTION_CHECK_TIMES,
        names.TRANSACTION_PREPARED_QUEUE_OFFSET,
        names.MSG_REGION,
        names.TRACE_ON,
        names.CLUSTER,
        names.BORN_HOST,
        names.BORN_TIMESTAMP,
        names.CRC32,
        names.CORRELATION_ID,
        names.REPLY_TO_CLIENT,
        names.TTL,
        names.MSG_TYPE,
        names.ARRIVE_TIME,
        names.PUSH_REPLY_TIME,
        names.MIN_OFFSET,
        names.MAX_OFFSET,
        names.POP_CK,
        names.POP_CK_OFFSET,
        names.FIRST_POP_TIME,
        names.ORIGIN_GROUP,
        names.INNER_MULTI_DISPATCH,
        names.INNER_MULTI_QUEUE_OFFSET,
        names.INNER_NUM,
        names.INNER_BASE,
    }
)
_FIELDS: Final = frozenset({names.TAGS, names.KEYS})


def carried(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that go with a message, without those that are fields of it."""
    return {name: value for name, value in properties.items() if name not in NOT_CARRIED and name not in _FIELDS}


def replayed(topic: str, body: bytes, properties: Mapping[str, str], flag: int = 0) -> Message:
    """Return a stored message as one to send."""
    keys = split_keys(properties.get(names.KEYS))
    return Message(topic, body, tags=properties.get(names.TAGS), keys=keys, properties=carried(properties), flag=flag)
