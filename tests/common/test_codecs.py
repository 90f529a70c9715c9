"""The compiled twins do what Python does, or leave it to Python."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketlet.common import ids, properties, record
from rocketlet.common.errors import RecordError
from rocketlet.common.properties import find_value
from rocketlet.common.record import BatchPart, NewRecord, encode_batch, encode_record, encode_records, split_batch
from rocketlet.common.subscriptions.sql_filter import compile_sql
from rocketlet.store.consumequeue import entry_filters, queue_reader
from rocketlet.store.consumequeue.consume_queue import PRE_BLANK_SIZE
from rocketlet.store.consumequeue.entry_filters import INT_CODES, SMALL_BYTES, TagCodeFilter
from rocketlet.store.index import index_build

codecs: Any = properties.codecs
if codecs is None:
    pytest.skip("the compiled codecs are not built: they need a C compiler", allow_module_level=True)

INT = st.integers(-(2**31), 2**31 - 1)
ANY_INT = st.one_of(INT, st.sampled_from([2**31, -(2**31) - 1]))
ANY_LONG = st.one_of(st.integers(-(2**63), 2**63 - 1), st.sampled_from([2**63, -(2**63) - 1]))
CHUNKS = st.one_of(
    st.tuples(
        st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"TAG", b"XTAGS", b""]),
        st.one_of(st.sampled_from([b"", b"x", b"one two", b" ", b"  a b  "]), st.binary(max_size=5)),
    ).map(b"\x01".join),
    st.sampled_from([b"TAGS", b"TAGS\x01", b"\x01", b"\x01\x01a", "KEYS\x01日本".encode()]),
)
TEXTS = st.tuples(st.lists(CHUNKS, max_size=5).map(b"\x02".join), st.sampled_from([b"", b"\x02"])).map(b"".join)
PARTS = st.lists(st.builds(BatchPart, INT, st.binary(max_size=40), TEXTS), max_size=5)
HOSTS = st.sampled_from([bytes(range(8)), bytes(range(20))])


def in_python(function: Any, *arguments: Any) -> Any:
    """Return what a function does without its twin; of an error its kind."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (ids, properties, record, index_build, entry_filters, queue_reader):
            patch.setattr(module, "codecs", None)
        try:
            return function(*arguments)
        except (RecordError, ValueError):
            return None


@given(
    st.lists(
        st.tuples(ANY_INT, st.binary(max_size=9), st.one_of(TEXTS, st.sampled_from([bytes(32_767), bytes(32_768)]))),
        max_size=4,
    )
)
def test_batch_is_encoded_alike(parts: list[tuple[int, bytes, bytes]]) -> None:
    """One that does not fit is left to Python, which refuses it."""
    assert codecs.encode_batch(parts) == in_python(encode_batch, parts)


@given(PARTS, st.integers(0, 6))
def test_batch_is_split_alike(parts: Sequence[BatchPart], most: int) -> None:
    """With as many messages as there are, and with more than are permitted."""
    body = encode_batch(parts)
    assert codecs.split_batch(body, most) == in_python(split_batch, body, most)
    assert (codecs.split_batch(body, most) is None) is (len(parts) > most)


@given(PARTS, st.data())
def test_damaged_batch_is_left_to_python(parts: Sequence[BatchPart], data: st.DataObject) -> None:
    """Wherever it is cut, and whichever byte is another one."""
    body = bytearray(encode_batch([*parts, BatchPart(1, b"body", b"a\x01b\x02")]))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(body[: data.draw(st.integers(0, len(body)))])
    assert codecs.split_batch(damaged, 99) == in_python(split_batch, damaged, 99)


@pytest.mark.parametrize("length", [2**31 - 1, -1, -(2**31), 2**31 - 23])
def test_length_of_a_body_that_overflows(length: int) -> None:
    """It leads out of the batch, not around it."""
    body = bytearray(encode_batch([BatchPart(0, b"body", b"")] * 2))
    body[16:20] = length.to_bytes(4, "big", signed=True)
    assert codecs.split_batch(bytes(body), 9) is None
    assert in_python(split_batch, bytes(body), 9) is None


@given(
    PARTS.filter(bool),
    st.builds(
        NewRecord,
        st.sampled_from(["T", "topic" * 25, "Töpic", "long" * 40]),
        INT,
        st.just(b""),
        st.just(b""),
        st.just(dict[str, str]()),
        INT,
        st.integers(0, 15),
        st.integers(0, 2**62),
        HOSTS,
        INT,
        st.integers(-(2**62), 2**62),
    ),
    st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
    HOSTS,
)
def test_records_of_a_batch_are_alike(
    parts: Sequence[BatchPart], head: NewRecord, place: tuple[int, int], store_host: bytes
) -> None:
    """Whatever their topic, hosts and places are."""
    sized = split_batch(encode_batch(parts))
    arguments = head, sized, place, 7, store_host
    assert encode_records(*arguments) == in_python(encode_records, *arguments)


@given(
    st.builds(
        NewRecord,
        st.sampled_from(["T", "topic" * 25, "Töpic", "long" * 40, "x" * 40_000]),
        ANY_INT,
        st.binary(max_size=40),
        st.one_of(TEXTS, st.sampled_from([bytes(32_767), bytes(32_768)])),
        st.just(dict[str, str]()),
        ANY_INT,
        st.integers(-16, 64),
        ANY_LONG,
        HOSTS,
        ANY_INT,
        ANY_LONG,
    ),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    HOSTS,
)
def test_records_are_alike(new: NewRecord, queue_offset: int, log_offset: int, store_host: bytes) -> None:
    """Those that no store can hold are refused alike."""
    arguments = new, queue_offset, log_offset, 7, store_host
    expected = in_python(encode_record, *arguments)
    try:
        found = encode_record(*arguments)
    except ValueError:
        found = None
    assert found == expected


@given(st.one_of(TEXTS.map(lambda text: text.decode("utf-8", "replace")), st.text(alphabet="a\x00\x01\x02ü")))
def test_properties_are_parsed_alike(text: str) -> None:
    """What is not ASCII is left to Python."""
    assert properties.parse_properties(text) == in_python(properties.parse_properties, text)
    assert (codecs.parse_properties(text) is None) is not text.isascii()


@given(TEXTS, st.sampled_from(["T", "long" * 40]), HOSTS, HOSTS, st.binary(max_size=30), st.data())
def test_values_in_a_record_are_alike(
    text: bytes, topic: str, born_host: bytes, store_host: bytes, body: bytes, data: st.DataObject
) -> None:
    """In the middle of a log, whole, with another byte, or cut; unusual records are left to Python."""
    new = NewRecord(topic, 0, body, text, {}, 0, 0, 0, born_host)
    stored = bytearray(encode_record(new, 0, 0, 0, store_host))
    marks = tuple(f"\x02{name}\x01".encode() for name in ("TAGS", "a", "KEYS"))
    log, start, end = memoryview(b"TAGS\x01x\x02" + stored + b"a\x01y\x02"), 7, 7 + len(stored)
    found = codecs.find_values(log, start, end, marks)
    is_usual = len(topic) < 128 and len(born_host) == len(store_host) == 8
    assert found == (tuple(find_value(text, mark) for mark in marks) if is_usual else None)
    assert record.find_values(log, start, end, marks) == in_python(record.find_values, log, start, end, marks)
    at = data.draw(st.sampled_from([*range(4, 8), *range(36, 40), *range(84, len(stored))]))
    stored[at] = data.draw(st.integers(0, 255))
    log = memoryview(bytes(stored))
    for stop in {len(stored), data.draw(st.integers(91, len(stored)))}:
        found = codecs.find_values(log, 0, stop, marks)
        assert found is None or found == in_python(record.find_values, log, 0, stop, marks)


def test_place_outside_of_the_log_is_left_to_python() -> None:
    """Nothing is read there."""
    stored = encode_record(NewRecord("T", 0, b"b", b"a\x01b\x02", {}, 0, 0, 0, bytes(8)), 0, 0, 0, bytes(8))
    for start, end in ((-1, len(stored)), (0, len(stored) + 1), (len(stored), len(stored)), (9, 3)):
        assert codecs.find_values(memoryview(stored), start, end, ()) is None
    assert codecs.find_values(memoryview(stored), 0, len(stored), ()) == ()


@given(st.lists(st.tuples(st.sampled_from(["T", "Other", "Töpic"]), TEXTS), min_size=1, max_size=6))
@example([("T", b"UNIQ_KEY\x01ajvakuzm\x02")])
@example([("T", b"TAGS\x01" + b"long" * 8_000)])
def test_index_entries_are_alike(records: list[tuple[str, bytes]]) -> None:
    """Those of unique keys, of the words of keys and of tags, in the order of the records."""
    topics, texts = [topic for topic, _ in records], [text for _, text in records]
    columns = texts, topics, [*range(len(records))], [0] * len(records)
    found, expected = index_build.collect(*columns), in_python(index_build.collect, *columns)
    assert (found is None) is (expected is None)
    if found is not None:
        assert [column.tolist() for column in found] == [column.tolist() for column in expected]
    is_ascii = all(map(bytes.isascii, texts))
    prefixes = dict.fromkeys(topics, (0, 0))
    assert (codecs.key_entries(texts, topics, prefixes) is not None) is is_ascii


@given(st.sampled_from(["7F00000100002A9F", "", "FE80" * 4]), st.lists(st.integers(0, (1 << 63) - 1), max_size=5))
def test_offset_ids_are_alike(host_text: str, log_offsets: list[int]) -> None:
    """Of any host, none for no record."""
    assert ids.format_offset_ids(host_text, log_offsets) == in_python(ids.format_offset_ids, host_text, log_offsets)


_MANY_NEW = 4  # so many values that are not remembered are too many for a compiled search
_SIZES = st.sampled_from([0, 1, 2, 3, 0, 1, 2, 3, SMALL_BYTES - 1, SMALL_BYTES, PRE_BLANK_SIZE, -1])


@given(
    st.lists(st.tuples(st.integers(0, 3), _SIZES, st.sampled_from([1, 2, -1, 257])), max_size=9),
    st.sets(st.sampled_from([1, -1, 257, 7])),
    st.integers(1, 9),
    st.sampled_from([0, 1 << 40, -2, (1 << 63) - 20]),
)
def test_tagged_entries_are_found_alike(
    steps: list[tuple[int, int, int]], codes: set[int], most: int, first: int
) -> None:
    """With gaps between records, with none, in no order, at places that no log has, too large; of all codes too."""
    log_offset, entries = first, b""
    for gap, size, code in steps:
        log_offset = min(log_offset + gap, (1 << 63) - 1)
        entries += INT_CODES.pack(log_offset, size, code)
        log_offset += size - (gap == 3 and 2)
    wanted = TagCodeFilter(codes)
    assert wanted.find_runs(entries, most) == in_python(wanted.find_runs, entries, most)
    everything = in_python(TagCodeFilter({code for _, _, code in steps}).find_runs, entries, most)
    assert codecs.find_tagged(entries, None, most) == everything


@given(
    st.lists(st.tuples(st.sampled_from([b"1", b"2", b"3", b"\xff", b""]), st.booleans()), max_size=7),
    st.integers(1, 7),
    st.sampled_from([0, 1 << 30]),
    st.sampled_from([0, 0, -1, 1, 1 << 40, -(1 << 62)]),
    st.data(),
)
def test_wanted_records_are_found_alike(
    stored: list[tuple[bytes, bool]], most: int, base: int, shift: int, data: st.DataObject
) -> None:
    """By an expression, with gaps between records, in no order, outside of the file, cut short, or of many values."""
    log, places = b"", list[tuple[int, int]]()
    for number, has_entry in stored:
        new = NewRecord("T", 0, b"body", b"number\x01" + number + b"\x02", {}, 0, 0, 0, bytes(8))
        record_bytes = encode_record(new, 0, 0, 0, bytes(8))
        places += [(base + len(log), len(record_bytes))] if has_entry else []
        log += record_bytes
    order = data.draw(st.one_of(st.just(places), st.permutations(places)))
    entries = b"".join([INT_CODES.pack(log_offset + shift, size, 0) for log_offset, size in order])
    view = memoryview(log[: data.draw(st.sampled_from([len(log), len(log) // 2]))])
    wanted = compile_sql("number = '1' OR number = '3'")
    found = wanted.find_runs(entries, view, base, most)
    seen = places if order == places else order
    if found is None:
        has_many_new = len({number for number, has_entry in stored if has_entry}) >= _MANY_NEW
        assert has_many_new or seen != sorted(seen) or shift or len(view) < len(log)
        return
    taken, count = list[tuple[int, int]](), 0
    for log_offset, size in seen:
        count += 1
        start = log_offset - base
        taken += [(log_offset, size)] if wanted.matches_record(view, start, start + size) else []
        if len(taken) == most:
            break
    bounds, *_, total, looked_at = found
    assert (found[1], total, looked_at) == (len(taken), sum(size for _, size in taken), count)
    starts, ends = bounds[::2], bounds[1::2]
    assert sorted({*starts} - {*ends}) == sorted(
        {start for start, _ in taken} - {start + size for start, size in taken}
    )
    assert sum(end - start for start, end in zip(starts, ends, strict=True)) == total
    check_joined(log, view, base, bounds)


def check_joined(log: bytes, view: memoryview, base: int, bounds: list[int]) -> None:
    """Check that runs are joined, and not if their size is another one, or if they are not in the file."""
    starts, ends = bounds[::2], bounds[1::2]
    joined = b"".join([log[start - base : end - base] for start, end in zip(starts, ends, strict=True)])
    total = len(joined)
    assert codecs.join_runs(memoryview(log), base, bounds, total) == joined
    for other in (total + 1, total - 1):
        assert other < 0 or codecs.join_runs(view, base, bounds, other) is None
    if bounds:
        assert codecs.join_runs(view, base + 1, bounds, total) is None or bounds[0] > base
        assert codecs.join_runs(view[: ends[-1] - base - 1], base, bounds, total) is None


@pytest.mark.parametrize(("size", "is_small"), [(SMALL_BYTES - 1, True), (SMALL_BYTES, False)])
def test_only_small_records_are_found(size: int, is_small: bool) -> None:
    """One that is larger may end a batch, which is for the caller to see."""
    head = len(encode_record(NewRecord("T", 0, b"", b"number\x011\x02", {}, 0, 0, 0, bytes(8)), 0, 0, 0, bytes(8)))
    new = NewRecord("T", 0, bytes(size - head), b"number\x011\x02", {}, 0, 0, 0, bytes(8))
    record_bytes = encode_record(new, 0, 0, 0, bytes(8))
    entries = INT_CODES.pack(0, len(record_bytes), 0)
    found = compile_sql("number = '1'").find_runs(entries, memoryview(record_bytes), 0, 1)
    assert (found is not None, len(record_bytes)) == (is_small, size)


def test_hash_without_a_positive_counterpart_is_zero() -> None:
    """Java's ``Math.abs`` leaves the least number negative, for which the index takes 0."""
    batch = index_build.collect([b"TAGS\x01a\x02", b"TAGS\x01ajvakuzm\x02"], ["T"] * 2, [0, 1], [0, 0])
    prefix = codecs.key_entries([b"TAGS\x01ajvakuzm\x02"], ["T"], {"T": (0, 84 * 31 + 35)})
    assert batch is not None
    assert np.count_nonzero(batch.hashes) == 2
    assert prefix[1].tolist() == [0]


def test_twins_are_left_out_on_demand() -> None:
    """``ROCKETLET_PURE_PYTHON`` is for comparisons."""
    program = "import rocketlet.common.properties as properties; print(properties.codecs)"
    environment = {**os.environ, "ROCKETLET_PURE_PYTHON": "1"}
    shown = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert shown.stdout == "None\n"
