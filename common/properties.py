r"""Properties of a message: names, the text in its record, and the numbers that stand for tags and keys elsewhere.

    name \x01 value \x02  repeated; UTF-8; order does not matter

Rules (Java's ``MessageDecoder.messageProperties2String`` and ``string2messageProperties``):

- The writer leaves out missing values and checks nothing; ``Message.to_properties`` is the place where a sender's
  names and values are refused.
- The reader drops a chunk without ``\x01``, with an empty name or with an empty value, and takes the last of equal
  names. The final ``\x02`` is optional. A value may hold ``\x01``. Bytes that are not UTF-8 become U+FFFD.
- The checksum of a whole record is its last property, 20 bytes, and covers all bytes before it (store.md "General
  conventions", §2.8): ``__CRC32# \x01``, 10 decimal digits, least significant first, zeros at the right, ``\x02``.

Tags in queue entries and filters, and keys in the index, are Java's hash of a string:

    h = 31 * h + unit   over the UTF-16 units of the text, as a signed 32-bit number

That is a number whose digits to the base 31 are the units. ``int(digits, 31)`` works such a number out at the speed of
C for digits below 31, so each byte is split into a quotient and a remainder by 31: two conversions for ASCII, four for
other text. For a unique key that is a quarter of the loop's time, and needs no table of earlier texts.

``codecs`` are the compiled twins of what runs most often, here and in ``record.py``, ``header_codecs`` those of what
reads and writes the headers of requests; None without a compiler.
"""

import os
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

codecs = header_codecs = None
if not os.environ.get("ROCKETLET_PURE_PYTHON"):  # for comparisons
    try:
        from . import _codecs as codecs  # pyright: ignore[reportUnusedImport]  # what else uses it takes it from here
        from . import _header_codecs as header_codecs  # pyright: ignore[reportUnusedImport]  # as above
    except ImportError:
        codecs = header_codecs = None

NAME_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"
MAX_PROPERTIES_BYTES: Final = 32_767

# set by producers
TAGS: Final = "TAGS"
KEYS: Final = "KEYS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
INSTANCE_ID: Final = "INSTANCE_ID"
SHARDING_KEY: Final = "__SHARDINGKEY"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
START_DELIVER_TIME: Final = "__STARTDELIVERTIME"
BUYER_ID: Final = "BUYER_ID"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"

# timer messages
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"

# destination of a parked message, retries, dead letters
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

# transactions
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"

# set by the broker
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
CRC32: Final = "__CRC32#"

# request and reply
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
MSG_TYPE: Final = "MSG_TYPE"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"

# set by a consumer for its listener
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"

# POP
POP_CK: Final = "POP_CK"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"

# light queues and batch queues
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"


def encode_properties(properties: Mapping[str, str | None]) -> bytes:
    """Return the properties text; entries whose value is ``None`` are left out."""
    return format_properties(properties).encode()


def format_properties(properties: Mapping[str, str | None]) -> str:
    """Return the properties text as text, as ``encode_properties`` does in bytes."""
    text = ""
    for name, value in properties.items():
        if value is not None:
            text += f"{name}\x01{value}\x02"
    return text


def parse_properties(text: bytes | str | memoryview) -> dict[str, str]:
    """Return name and value of every usable chunk; nothing is an error here, as in Java."""
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    if codecs is not None and (found := codecs.parse_properties(text)) is not None:
        return found
    properties: dict[str, str] = {}
    for chunk in text.split("\x02"):
        name, _, value = chunk.partition("\x01")
        if value and name:
            properties[name] = value
    return properties


PROPERTY_CRC_BYTES: Final = 20
_PREFIX: Final = b"__CRC32#\x01"
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstu"
_QUOTIENTS: Final = bytes(_DIGITS[byte // 31] for byte in range(256))
_REMAINDERS: Final = bytes(_DIGITS[byte % 31] for byte in range(256))
_CHUNK: Final = 256  # conversions take quadratic time, and Python refuses very long ones
_CACHED_CHARACTERS: Final = 64
_TAGS_MARK: Final = b"\x02TAGS\x01"


def java_hash(text: str) -> int:
    """Return ``String.hashCode`` of the text, signed 32 bit."""
    if not text:
        return 0
    if len(text) > _CHUNK:
        value = _hash_long(text)
    elif text.isascii():
        data = text.encode("ascii")
        value = 31 * int(data.translate(_QUOTIENTS), 31) + int(data.translate(_REMAINDERS), 31)
    else:
        value = _hash_units(text)
    return to_int(value)


def to_int(code: int) -> int:
    """Return what Java's ``Long.intValue`` leaves of a code."""
    return (code + 0x80000000 & 0xFFFFFFFF) - 0x80000000


def tags_code(tags: str | None) -> int:
    """Return what a consume queue entry holds for the tag (``MessageExtBrokerInner.tagsString2tagsCode``)."""
    if not tags:
        return 0
    return _cached_hash(tags) if len(tags) <= _CACHED_CHARACTERS else java_hash(tags)


def index_hash(text: str) -> int:
    """Return the hash of an index key: its absolute value, 0 where that overflows (``IndexFile``)."""
    value = abs(java_hash(text))
    return 0 if value == 0x80000000 else value


def tags_code_in(property_text: bytes) -> int:
    """Return the ``tags_code`` of the tag in the text of properties, without parsing it."""
    value = find_value(property_text, _TAGS_MARK)
    if value is None:
        return 0
    return _cached_hash_of(value) if len(value) <= _CACHED_CHARACTERS else java_hash(str(value, "utf-8", "replace"))


def tags_codes_in(texts: Sequence[bytes]) -> list[int]:
    """Return the ``tags_code_in`` of each text.

    Mostly all have the same tag, or none, and that is seen in half of the time (0.2 us a text against 0.5).
    """
    count, together = len(texts), b"".join(texts).count(_TAGS_MARK[1:])
    if not together:
        return [0] * count
    value = find_value(texts[0], _TAGS_MARK)
    if together == count and value is not None:
        chunk = _TAGS_MARK + value + b"\x02"
        if all(chunk in text for text in texts):  # so no text has two of them
            return [tags_code_in(texts[0])] * count
    return [*map(tags_code_in, texts)]


def find_tag(property_text: bytes) -> str | None:
    """Return the tag in the text of properties, without parsing it."""
    value = find_value(property_text, _TAGS_MARK)
    return None if value is None else str(value, "utf-8", "replace")


def find_value(property_text: bytes, mark: bytes) -> bytes | None:
    """Return the value of a name in the text of properties, which ``parse_properties`` would decode.

    ``mark`` is the name in ASCII between both separators, as it stands there behind another property.
    """
    end = len(property_text)
    while True:
        at = property_text.rfind(mark, 0, end)
        if at < 0 and not property_text.startswith(mark[1:]):
            return None
        value_at = at + len(mark)  # of the first property the mark would begin before the text
        value_end = property_text.find(b"\x02", value_at)
        value = property_text[value_at:] if value_end < 0 else property_text[value_at:value_end]
        if value or at < 0:
            return value or None
        end = at  # an empty one counts for none, so an earlier one may


_cached_hash = lru_cache(maxsize=1024)(java_hash)


@lru_cache(maxsize=1024)
def _cached_hash_of(text: bytes) -> int:
    return java_hash(str(text, "utf-8", "replace"))


def _evaluate(data: bytes) -> int:
    return 31 * int(data.translate(_QUOTIENTS), 31) + int(data.translate(_REMAINDERS), 31)


def _hash_units(text: str) -> int:
    data = text.encode("utf-16-be", "surrogatepass")
    return (_evaluate(data[::2]) << 8) + _evaluate(data[1::2])


def _hash_long(text: str) -> int:
    value = 0
    for start in range(0, len(text), _CHUNK):
        chunk = text[start : start + _CHUNK]
        units = len(chunk.encode("utf-16-be", "surrogatepass")) // 2
        value = (value * pow(31, units, 1 << 32) + _hash_units(chunk)) & 0xFFFFFFFF
    return value


def crc31(data: bytes | bytearray | memoryview) -> int:
    """Return CRC-32 without its top bit (``UtilAll.crc32``)."""
    return zlib.crc32(data) & 0x7FFFFFFF


def format_property_crc(crc: int) -> bytes:
    """Return the 20 bytes that end the properties of a record (``MessageDecoder.createCrc32``)."""
    return b"%s%s\x02" % (_PREFIX, f"{crc:010d}"[::-1].encode())
