"""Which messages of a queue a pull takes (``ExpressionMessageFilter``; spec behaviour.md B.6.1, B.6.2).

Rules
    1. A tag filter looks at the tags code, which stands in the queue's entry; the client compares the tags themselves.
    2. An SQL92 filter looks at the properties of the record. What cannot be evaluated does not match.
    3. An expression that does not compile filters nothing: RocketMQ 5.4 tells of it only when the client starts (46).
       One that is too large to be compiled is refused (``filter_table.py``).

An arrival is looked at in the same way as an entry of the queue: before it is read, a parked pull is asked with what
the dispatcher knows of the record.

Bit positions of a consumer's filter, as a Java broker keeps them in ``consumerFilter.json``.

rocketlet evaluates every filter and needs no bits; a Java broker that takes the store over ignores the whole file when
one entry has none of the right shape (spec behaviour.md B.6.3, store.md §9.6).

    bits        the smallest multiple of 8 that is >= consumers * log2(1 / error rate) * log2(e)
    positions   as many as -log2(error rate), rounded up; the i-th (from 1) is low + i * high, in 32 bits, all bits
                flipped when that is negative, modulo the number of bits
    low, high   the two halves of the first 8 bytes of Murmur3 128 (x64, seed 0) over the UTF-8 text
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from ...common.message import BORN_HOST_V6, STORE_HOST_V6
from ...common.properties import parse_properties
from ...common.record import RECORD_HEAD, find_properties
from ...common.sql_filter import SqlFilter, SqlLimitError, SqlSyntaxError, compile_sql
from ...common.subscription import Subscription
from ...store.consumequeue.appended import Appended

_MASK = 0xFFFFFFFFFFFFFFFF
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


class BloomShape(NamedTuple):
    """How many bits a filter has, and how many of them stand for one text (``BloomFilter``)."""

    bits: int
    positions: int

    @classmethod
    def of(cls, *, error_percent: int, consumers: int) -> "BloomShape":
        """Return the shape for an error rate and a number of consumers (``BloomFilter.createByFn``)."""
        rate = error_percent / 100
        bits = math.ceil(consumers * math.log2(1 / rate) * math.log2(math.e))
        return cls(8 * math.ceil(bits / 8), math.ceil(-math.log2(rate)))

    def positions_of(self, text: str) -> list[int]:
        """Return the bits that stand for a text (``BloomFilter.calcBitPositions``)."""
        hashed = murmur3_64(text.encode())
        low, high = _signed(hashed), _signed(hashed >> 32)
        combined = (_signed(low + number * high) for number in range(1, self.positions + 1))
        return [(value if value >= 0 else ~value) % self.bits for value in combined]


def murmur3_64(data: bytes) -> int:
    """Return the first 8 bytes of Murmur3 128 (x64 variant, seed 0), little-endian and unsigned."""
    first = second = 0
    whole = len(data) & ~15
    for start in range(0, whole, 16):
        first ^= _scramble(_word(data[start : start + 8]), _C1, 31, _C2)
        first = (_rotate(first, 27) + second) * 5 + 0x52DCE729 & _MASK
        second ^= _scramble(_word(data[start + 8 : start + 16]), _C2, 33, _C1)
        second = (_rotate(second, 31) + first) * 5 + 0x38495AB5 & _MASK
    second ^= _scramble(_word(data[whole + 8 :]), _C2, 33, _C1)
    first ^= _scramble(_word(data[whole : whole + 8]), _C1, 31, _C2)
    first ^= len(data)
    second ^= len(data)
    first = first + second & _MASK
    second = second + first & _MASK
    return _finish(first) + _finish(second) & _MASK


def _word(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _rotate(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _scramble(word: int, before: int, by: int, after: int) -> int:
    return _rotate(word * before & _MASK, by) * after & _MASK


def _finish(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33


def _signed(value: int) -> int:
    return (value + 0x80000000 & 0xFFFFFFFF) - 0x80000000


MAX_CACHED_TERMS: Final = 32_768
_MOST_CACHED: Final = 100
_CODE_BYTES: Final = 130  # a number and its place in a set that has just grown
_TERM_BYTES: Final = 900
AcceptsProperties = Callable[[Mapping[str, str]], bool]


class PullFilter(NamedTuple):
    """The stages of a filter, each ``None`` when it takes all: queue entry, record, record on its way into a queue."""

    accepts_code: Callable[[int], bool] | None = None
    accepts_record: Callable[[memoryview], bool] | None = None
    accepts_arrival: Callable[[Appended], bool] | None = None
    kept_bytes: int = 0
    """About how much the stages keep in memory for as long as a pull waits."""


TAKES_ALL = PullFilter()


def tag_filter(subscription: Subscription) -> PullFilter:
    """Return the filter of a tag expression."""
    if subscription.accepts_all:
        return TAKES_ALL
    codes = Subscription("", "", codes=subscription.codes)  # of the tags themselves nothing is kept
    accepts = codes.accepts_code

    def accepts_arrival(record: Appended) -> bool:
        return accepts(record.tags_code)

    return PullFilter(accepts, None, accepts_arrival, _CODE_BYTES * len(subscription.codes))


def property_filter(accepts: AcceptsProperties, terms: int = 1) -> PullFilter:
    """Return the filter that looks at properties."""

    def accepts_record(record: memoryview) -> bool:
        return accepts(read_properties(record))

    def accepts_arrival(record: Appended) -> bool:
        return accepts(record.properties)

    return PullFilter(None, accepts_record, accepts_arrival, _TERM_BYTES * terms)


def sql_filter(expression: str) -> PullFilter:
    """Return the filter of an SQL92 expression; one that does not compile takes all."""
    compiled = compile_filter(expression)
    return TAKES_ALL if isinstance(compiled, SqlSyntaxError) else property_filter(compiled.matches, compiled.terms)


class FilterCache:
    """The compiled expressions that were asked for lately, failures too (``SelectorParser.PARSE_CACHE``).

    As many as upstream keeps, and no more than ``MAX_CACHED_TERMS`` together: a term takes about 900 bytes.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[str, SqlFilter | SqlSyntaxError] = OrderedDict()
        self.terms = 0

    def __repr__(self) -> str:
        return f"<FilterCache {len(self._found)} expressions, {self.terms} terms>"

    def compile(self, expression: str) -> SqlFilter | SqlSyntaxError:
        """Return a compiled expression, or why it is none."""
        found = self._found.get(expression)
        if found is not None:
            self._found.move_to_end(expression)
            return found
        found = _compile(expression)
        if not isinstance(found, SqlLimitError):
            self._found[expression] = found
            self.terms += _terms(found)
        while len(self._found) > _MOST_CACHED or self.terms > MAX_CACHED_TERMS:
            self.terms -= _terms(self._found.popitem(last=False)[1])
        return found


def _terms(found: SqlFilter | SqlSyntaxError) -> int:
    return found.terms if isinstance(found, SqlFilter) else 1


def _compile(expression: str) -> SqlFilter | SqlSyntaxError:
    try:
        return compile_sql(expression)
    except SqlSyntaxError as error:
        return error.with_traceback(None)


compile_filter: Final = FilterCache().compile
"""What all brokers of a process share, since a compiled expression knows nothing of them."""


def read_properties(record: memoryview) -> dict[str, str]:
    """Return the properties of a stored record, whose other fields are passed over; without sound lengths none."""
    head = RECORD_HEAD.unpack_from(record)
    magic, sys_flag, body_length = head[1], head[7], head[14]
    body_at = RECORD_HEAD.size
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        body_at += 12 * (bool(sys_flag & BORN_HOST_V6) + bool(sys_flag & STORE_HOST_V6))
        body_length = int.from_bytes(record[body_at - 4 : body_at], "big", signed=True)
    end = len(record)
    properties_at = find_properties(record, body_at + body_length, end, magic) if body_length >= 0 else 0
    return parse_properties(record[properties_at:end]) if properties_at else {}
