"""Which messages of a queue a pull takes: by tags, by SQL92, and by the filters that groups have registered (B.6).

Upstream: ``ExpressionMessageFilter``, ``ConsumerFilterManager``. An arrival is looked at in the same way as an entry of
the queue: before it is read, a held pull is asked with what the dispatcher knows of the record.

Rules
    1. A tag filter looks at the tags code, which stands in the queue's entry; the client compares the tags themselves.
       An SQL92 filter looks at the properties of the record; what cannot be evaluated does not match.
    2. An expression that does not compile filters nothing: RocketMQ 5.4 tells of it only when the client starts (46).
       One that is too large to be compiled is refused.
    3. A pull that brings its own subscription is filtered by it (B.4.1); without the flag by the group's subscription,
       and by its registered property filter, which must be there (27) and not be older than the request (28). Filters
       other than tags need ``enablePropertyFilter``; that is looked at last.
    4. With ``filterSupportRetry`` such a filter of a retry topic is the one that the group has registered for the topic
       where the message comes from (``ExpressionForRetryMessageFilter``).
    5. A heartbeat registers its expressions (B.6.3). A higher version replaces what is known of the group and topic; a
       lower one changes nothing; the same one brings a dead filter back to life. A new expression that does not compile
       removes the old one: pulls are told that there is none.
    6. A filter dies when its group has no members left, or subscribes to its topic no more. Dead for too long, it is
       dropped. Filters that are loaded count as dead until their group is back.

``config/consumerFilter.json`` holds registered filters as Java does (store.md §9.6), with bits that rocketlet does not
need: a Java broker that takes the store over passes over the whole file when one entry has none of the right shape.

    bits        the smallest multiple of 8 that is >= consumers * log2(1 / error rate) * log2(e)
    positions   as many as -log2(error rate), rounded up; the i-th (from 1) is low + i * high, in 32 bits, all bits
                flipped when that is negative, modulo the number of bits
    low, high   the two halves of the first 8 bytes of Murmur3 128 (x64, seed 0) over the UTF-8 text
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import msgspec
from msgspec import field

from ...common.codes import ResponseCode
from ...common.message import PULL_CLASS_FILTER
from ...common.names import RETRY_PREFIX
from ...common.properties import RETRY_TOPIC, parse_properties
from ...common.record import read_property_text
from ...common.subscriptions.subscription import (
    ALL,
    SQL92_TYPE,
    TAG_TYPE,
    SqlLimitError,
    SqlSyntaxError,
    Subscription,
    parse_tag_expression,
)
from ...store.consumequeue.appended import Appended
from ...store.consumequeue.entry_filters import RecordFilter, Runs, TagCodeFilter
from ..settings.live import LiveSettings
from ..settings.refusal import Refusal

if TYPE_CHECKING:
    from ...common.subscriptions.sql_filter import SqlFilter

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
_SHORT_CHARACTERS: Final = 256
"""Of a tag expression that is remembered: all of them together take no more than 2 MB."""
AcceptsProperties = Callable[[Mapping[str, str]], bool]


class PullFilter(NamedTuple):
    """The stages of a filter, each ``None`` when it takes all: queue entry, record, record on its way into a queue."""

    accepts_code: Callable[[int], bool] | None = None
    accepts_record: RecordFilter | None = None
    accepts_arrival: Callable[[Appended], bool] | None = None
    kept_bytes: int = 0
    """About how much the stages keep in memory for as long as a pull waits."""


TAKES_ALL = PullFilter()
_TAG_TYPES = (None, "", TAG_TYPE)


def is_unfiltered(subscription: Subscription) -> bool:
    """Tell whether a subscription takes every message."""
    return subscription.expression_type in _TAG_TYPES and subscription.accepts_all


def tag_filter(subscription: Subscription) -> PullFilter:
    """Return the filter of a tag expression."""
    if subscription.accepts_all:
        return TAKES_ALL
    codes = TagCodeFilter(subscription.codes)  # of the tags themselves nothing is kept

    def accepts_arrival(record: Appended) -> bool:
        return record.tags_code in codes.codes

    return PullFilter(codes, None, accepts_arrival, _CODE_BYTES * len(codes.codes))


def _parse_tag_filter(expression: str) -> PullFilter:
    return tag_filter(parse_tag_expression("", expression))


_cached_tag_filter = lru_cache(maxsize=_MOST_CACHED)(_parse_tag_filter)  # pulls bring theirs again and again


class PropertyRecords(RecordFilter):
    """Looks at the properties of each record."""

    __slots__ = ("_accepts",)

    def __init__(self, accepts: AcceptsProperties) -> None:
        self._accepts = accepts

    def __repr__(self) -> str:
        return f"<PropertyRecords {self._accepts!r}>"

    def __call__(self, log: memoryview, start: int, end: int) -> bool:
        """Tell whether the record is wanted."""
        return self._accepts(parse_properties(read_property_text(log, start, end)))

    def find_runs(self, entries: bytes, log: memoryview, base: int, most: int) -> None:
        """Ask to be asked about each."""


class SqlRecords(RecordFilter):
    """Looks at the values that an expression names, which many records share."""

    __slots__ = ("_compiled",)

    def __init__(self, compiled: "SqlFilter") -> None:
        self._compiled = compiled

    def __repr__(self) -> str:
        return f"<SqlRecords {self._compiled!r}>"

    def __call__(self, log: memoryview, start: int, end: int) -> bool:
        """Tell whether the record is wanted."""
        return self._compiled.matches_record(log, start, end)

    def find_runs(self, entries: bytes, log: memoryview, base: int, most: int) -> Runs | None:
        """Return where the first records are that are wanted."""
        found = self._compiled.find_runs(entries, log, base, most)
        return None if found is None else Runs(*found)


def property_filter(accepts: AcceptsProperties, terms: int = 1) -> PullFilter:
    """Return the filter that looks at properties."""

    def accepts_arrival(record: Appended) -> bool:
        return accepts(record.properties)

    return PullFilter(None, PropertyRecords(accepts), accepts_arrival, _TERM_BYTES * terms)


def sql_filter(expression: str) -> PullFilter:
    """Return the filter of an SQL92 expression; one that does not compile takes all."""
    compiled = compile_filter(expression)
    return TAKES_ALL if isinstance(compiled, SqlSyntaxError) else sql_stages(compiled)


def sql_stages(compiled: "SqlFilter") -> PullFilter:
    """Return the filter of a compiled expression."""
    matches = compiled.matches_text

    def accepts_arrival(record: Appended) -> bool:
        return matches(record.property_text)

    return PullFilter(None, SqlRecords(compiled), accepts_arrival, _TERM_BYTES * compiled.terms)


class FilterCache:
    """The compiled expressions that were asked for lately, failures too (``SelectorParser.PARSE_CACHE``).

    As many as upstream keeps, and no more than ``MAX_CACHED_TERMS`` together: a term takes about 900 bytes. Only these
    remember verdicts.
    """

    def __init__(self) -> None:
        self._found: OrderedDict[str, SqlFilter | SqlSyntaxError] = OrderedDict()
        self.terms = 0

    def __repr__(self) -> str:
        return f"<FilterCache {len(self._found)} expressions, {self.terms} terms>"

    def compile(self, expression: str) -> "SqlFilter | SqlSyntaxError":
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
            _, last = self._found.popitem(last=False)
            self.terms -= _terms(last)
            if not isinstance(last, SqlSyntaxError):
                last.remember_nothing()  # pulls that wait may keep it
        return found


def _terms(found: "SqlFilter | SqlSyntaxError") -> int:
    return 1 if isinstance(found, SqlSyntaxError) else found.terms


def _compile(expression: str) -> "SqlFilter | SqlSyntaxError":
    from ...common.subscriptions.sql_filter import compile_sql  # most brokers never see an expression

    try:
        return compile_sql(expression)
    except SqlSyntaxError as error:
        return error.with_traceback(None)


compile_filter: Final = FilterCache().compile
"""What all brokers of a process share, since a compiled expression knows nothing of them."""


_DEAD_BEFORE_LOAD_MS = 30_000


class BloomBits(msgspec.Struct, rename="camel", kw_only=True):
    """The bits of one filter (``BloomFilterData``)."""

    bit_num: int = 0
    bit_pos: list[int] = field(default_factory=list[int])


class GroupFilter(msgspec.Struct, rename="camel", kw_only=True):
    """What a group filters one topic by (``ConsumerFilterData``); ``client_version`` is that of the subscription."""

    bloom_filter_data: BloomBits | None = None
    born_at_ms: int = field(name="bornTime", default=0)
    client_version: int = 0
    consumer_group: str = ""
    is_dead: bool = field(name="dead", default=False)
    dead_at_ms: int = field(name="deadTime", default=0)
    expression: str = ""
    expression_type: str = SQL92_TYPE
    topic: str = ""

    def die(self, at_ms: int) -> None:
        """Count as dead from an instant on, not before its birth."""
        self.dead_at_ms, self.is_dead = max(at_ms, self.born_at_ms), True

    def revive(self) -> None:
        """Count as alive."""
        self.dead_at_ms, self.is_dead = 0, False


class TopicFilters(msgspec.Struct, rename="camel", kw_only=True):
    """The filters of one topic by group (``FilterDataMapByTopic``)."""

    group_filter_data: dict[str, GroupFilter] = field(default_factory=dict[str, GroupFilter])
    topic: str = ""


class FilterFile(msgspec.Struct, rename="camel", kw_only=True):
    """The content of ``consumerFilter.json``."""

    filter_data_by_topic: dict[str, TopicFilters] = field(default_factory=dict[str, TopicFilters])


class FilterTable:
    """The filter of each group and topic."""

    file_name = "consumerFilter.json"
    content_type = FilterFile

    def __init__(self, now_ms: Callable[[], int], shape: BloomShape, *, keep_dead_ms: int) -> None:
        self.change_count = 0
        self._now_ms = now_ms
        self._shape = shape
        self._keep_dead_ms = keep_dead_ms
        self._topics: dict[str, TopicFilters] = {}
        self._topics_of: dict[str, set[str]] = {}
        """By group: a heartbeat looks at its own filters and at no others."""

    def __repr__(self) -> str:
        return f"<FilterTable of {len(self._topics)} topics>"

    def find(self, topic: str, group: str) -> GroupFilter | None:
        """Return the filter of a group, a dead one too."""
        filters = self._topics.get(topic)
        return filters.group_filter_data.get(group) if filters is not None else None

    def register(self, group: str, subscriptions: Collection[Subscription]) -> None:
        """Take over the expressions of a heartbeat that are no tags."""
        for subscription in subscriptions:
            if subscription.expression_type not in ("", TAG_TYPE) and subscription.expression:
                self._register(group, subscription)
        topics = {subscription.topic for subscription in subscriptions}
        self._kill(filter_ for filter_ in self._of_group(group) if filter_.topic not in topics)

    def unregister(self, group: str) -> None:
        """Let the filters of a group without members die."""
        self._kill(self._of_group(group))

    def drop_long_dead(self) -> None:
        """Forget the filters that have been dead for too long (``filterDataCleanTimeSpan``)."""
        until_ms = self._now_ms() - self._keep_dead_ms
        gone = [old for old in self._all() if old.is_dead and old.dead_at_ms <= until_ms]
        for old in gone:
            self._remove(old.topic, old.consumer_group)

    def content(self) -> FilterFile:
        """Return what ``consumerFilter.json`` shall hold."""
        return FilterFile(filter_data_by_topic=self._topics)

    def load(self, content: FilterFile) -> None:
        """Take over what ``consumerFilter.json`` held."""
        dead_at_ms = self._now_ms() - _DEAD_BEFORE_LOAD_MS
        for topic, filters in content.filter_data_by_topic.items():
            filters.topic = topic
            for group, loaded in filters.group_filter_data.items():
                loaded.topic, loaded.consumer_group = topic, group
                loaded.bloom_filter_data = self._bits(topic, group)
                loaded.die(loaded.dead_at_ms or dead_at_ms)
                self._topics_of.setdefault(group, set()).add(topic)
        self._topics = content.filter_data_by_topic

    def _register(self, group: str, subscription: Subscription) -> None:
        known = self.find(subscription.topic, group)
        if known is not None and subscription.version <= known.client_version:
            if subscription.version == known.client_version and known.is_dead:
                known.revive()
                self.change_count += 1
            return
        kept = known is not None and _is_same(known, subscription)
        if known is not None and kept:
            known.client_version = subscription.version
            known.revive()
        elif _compiles(subscription):
            filters = self._topics.setdefault(subscription.topic, TopicFilters(topic=subscription.topic))
            filters.group_filter_data[group] = self._new(group, subscription)
            self._topics_of.setdefault(group, set()).add(subscription.topic)
        elif known is not None:
            self._remove(subscription.topic, group)
        else:
            return
        self.change_count += 1

    def _new(self, group: str, subscription: Subscription) -> GroupFilter:
        return GroupFilter(
            bloom_filter_data=self._bits(subscription.topic, group),
            born_at_ms=self._now_ms(),
            client_version=subscription.version,
            consumer_group=group,
            expression=subscription.expression,
            expression_type=subscription.expression_type,
            topic=subscription.topic,
        )

    def _bits(self, topic: str, group: str) -> BloomBits:
        return BloomBits(bit_num=self._shape.bits, bit_pos=self._shape.positions_of(f"{group}#{topic}"))

    def _kill(self, filters: Iterator[GroupFilter]) -> None:
        for alive in filters:
            if not alive.is_dead:
                alive.die(self._now_ms())
                self.change_count += 1

    def _remove(self, topic: str, group: str) -> None:
        filters = self._topics[topic].group_filter_data
        del filters[group]
        if not filters:
            del self._topics[topic]
        self._topics_of[group].discard(topic)
        if not self._topics_of[group]:
            del self._topics_of[group]
        self.change_count += 1

    def _all(self) -> Iterator[GroupFilter]:
        for filters in self._topics.values():
            yield from filters.group_filter_data.values()

    def _of_group(self, group: str) -> Iterator[GroupFilter]:
        return (self._topics[topic].group_filter_data[group] for topic in self._topics_of.get(group, ()))


def _is_same(known: GroupFilter, subscription: Subscription) -> bool:
    return (known.expression, known.expression_type) == (subscription.expression, subscription.expression_type)


def _compiles(subscription: Subscription) -> bool:
    if subscription.expression_type != SQL92_TYPE:
        return False
    return not isinstance(compile_filter(subscription.expression), SqlSyntaxError)


_NO_DATA = "The broker's consumer filter data is not exist!Your expression may be wrong!"


class Filtered(Protocol):
    """What a consumer says of the filter that it wants; ``sys_flag`` holds the ``PULL_`` bits of ``message.py``."""

    topic: str
    consumer_group: str
    subscription: str | None
    expression_type: str | None
    sub_version: int
    sys_flag: int


class FilterSelection:
    """Finds the filter of a fetch."""

    def __init__(self, settings: LiveSettings, table: FilterTable) -> None:
        self._settings = settings
        self._table = table

    def check(self, expression_type: str | None, expression: str) -> Refusal | None:
        """Return why a client may not start with a subscription, None if it may."""
        if expression_type in _TAG_TYPES:
            return None
        if not self._settings.config.takes_property_filters:
            return _unsupported(expression_type)
        if expression_type != SQL92_TYPE:
            remark = f"{expression_type} is no type of expression, there are {TAG_TYPE} and {SQL92_TYPE}"
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        compiled = compile_filter(expression)
        if isinstance(compiled, SqlSyntaxError):
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(compiled))
        return None

    def pop_filter(self, expression_type: str | None, expression: str | None) -> PullFilter | Refusal:
        """Return the filter of a pop, which has to be understood (``PopMessageProcessor``); settings do not matter."""
        if not expression:
            return TAKES_ALL
        if expression_type in _TAG_TYPES:
            if expression == ALL:
                return TAKES_ALL
            try:
                return _cached_tag_filter(expression)
            except ValueError:
                return _unparsable()
        compiled = compile_filter(expression) if expression_type == SQL92_TYPE else None
        return _unparsable() if compiled is None or isinstance(compiled, SqlSyntaxError) else sql_stages(compiled)

    def own_filter(self, fetch: Filtered) -> PullFilter | Refusal:
        """Return the filter that stands in the request."""
        if fetch.expression_type not in _TAG_TYPES:
            if not fetch.subscription:
                return _unparsable()
            return self._filter_properties(fetch, fetch.expression_type or SQL92_TYPE, fetch.subscription)
        expression = fetch.subscription or ALL
        if expression == ALL or fetch.sys_flag & PULL_CLASS_FILTER:
            return TAKES_ALL
        try:
            is_short = len(expression) <= _SHORT_CHARACTERS
            return _cached_tag_filter(expression) if is_short else _parse_tag_filter(expression)
        except ValueError:
            return _unparsable()

    def group_filter(self, fetch: Filtered, wanted: Subscription) -> PullFilter | Refusal:
        """Return the filter of the group, whose subscription is given."""
        if wanted.expression_type in _TAG_TYPES:
            return tag_filter(wanted)
        registered = self._table.find(fetch.topic, fetch.consumer_group)
        if registered is None:
            return Refusal(ResponseCode.FILTER_DATA_NOT_EXIST, _NO_DATA)
        if registered.client_version < fetch.sub_version:
            return Refusal(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        found = self._filter_properties(fetch, wanted.expression_type, registered.expression)
        return TAKES_ALL if wanted.has_class_filter and isinstance(found, PullFilter) else found

    def _filter_properties(self, fetch: Filtered, expression_type: str, expression: str) -> PullFilter | Refusal:
        config = self._settings.config
        if not config.takes_property_filters:
            return _unsupported(expression_type)
        if config.filters_retries and fetch.topic.startswith(RETRY_PREFIX):
            return property_filter(_OfOrigin(fetch.topic.removeprefix(RETRY_PREFIX), self._table))
        if expression_type != SQL92_TYPE:
            return TAKES_ALL
        compiled = compile_filter(expression)
        if isinstance(compiled, SqlLimitError):
            return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(compiled))
        return sql_filter(expression)


class _OfOrigin:
    """Looks at a message with the group's filter for the topic where it failed; without one it is accepted."""

    __slots__ = ("_group", "_table")

    def __init__(self, group: str, table: FilterTable) -> None:
        self._group = group
        self._table = table

    def __call__(self, properties: Mapping[str, str]) -> bool:
        origin = properties.get(RETRY_TOPIC)
        registered = self._table.find(origin, self._group) if origin else None
        compiled = compile_filter(registered.expression) if registered is not None else None
        return compiled is None or isinstance(compiled, SqlSyntaxError) or compiled.matches(properties)


def _unsupported(expression_type: str | None) -> Refusal:
    remark = f"The broker does not support consumer to filter message by {expression_type}"
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)


def _unparsable() -> Refusal:
    return Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed")
