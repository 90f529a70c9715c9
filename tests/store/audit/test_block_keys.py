"""The codes and hashes of many records at once are those of one record at a time."""

import pathlib
from collections.abc import Mapping, Sequence

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from logbuilder import LogBuilder

from examples import examples
from rocketlet.common.properties import index_hash, parse_properties
from rocketlet.common.record import BLANK_BYTES, decode_record
from rocketlet.store.audit.block_keys import BlockKeys, name_topics
from rocketlet.store.commitlog.record_blocks import BlockScan, ScanLimits, SegmentBytes
from rocketlet.store.files.store_config import DEFAULT_DELAY_LEVELS, parse_delay_levels
from rocketlet.store.index.index_build import collect
from rocketlet.store.recovery.dispatcher import entry_code

TOPICS = ("T", "Ünïcode", "SCHEDULE_TOPIC_XXXX", "long" * 50)
names = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "OTHER", "TAGSX", ""])
values = st.one_of(st.text(alphabet="ab ü😀\x00", max_size=12), st.integers(0, 30).map(str))
chunks = st.one_of(st.tuples(names, values).map("\x01".join), st.text(alphabet="aü\x01", max_size=5))
texts = st.tuples(st.lists(chunks, max_size=6).map("\x02".join), st.sampled_from(["", "\x02"])).map("".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
@given(
    records=st.lists(st.tuples(st.sampled_from(TOPICS), texts, st.sampled_from([0, 4, 8, 12])), min_size=1, max_size=12)
)
def test_block_has_the_codes_and_hashes_of_its_records(
    tmp_path: pathlib.Path, records: list[tuple[str, str, int]]
) -> None:
    """Tag codes, delivery times and index hashes of a block are what dispatcher and index make of each record."""
    check_block(tmp_path, [(topic, text.encode(), sys_flag) for topic, text, sys_flag in records])


def check_block(folder: pathlib.Path, records: Sequence[tuple[str, bytes, int]]) -> None:
    """Compare what a block has with what each of its records has, given by topic, properties and flags."""
    log = LogBuilder(folder, 1 << 18)
    for topic, text, sys_flag in records:
        log.add(topic=topic, properties=text, sys_flag=sys_flag)
    log.save()
    view = memoryview(log.files()[0].read_bytes())
    (block,) = BlockScan(SegmentBytes("log", 0, view), 0, len(view), ScanLimits(reserved_bytes=BLANK_BYTES))
    delays = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    keys = BlockKeys(block, name_topics(block), delays)
    stored = [decode_record(view, position) for position in log.offsets]
    parsed = [parse_properties(one.property_text) for one in stored]
    assert keys.tags_codes().tolist() == [
        entry_code(one.topic, properties, one.stored_at_ms, delays)
        for one, properties in zip(stored, parsed, strict=True)
    ]
    assert [keys.unique_key(row) for row in range(len(stored))] == [one.get("UNIQ_KEY") for one in parsed]
    found = keys.key_entries()
    expected = [
        (place, index_hash(f"{one.topic}#{key}"))
        for place, one, properties in zip(log.offsets, stored, parsed, strict=True)
        for key in (keys_of(properties) if one.sys_flag & 12 != 12 else ())
    ]
    assert list(zip(np.array(log.offsets)[found.rows].tolist(), found.hashes.tolist(), strict=True)) == expected
    kept = [(one, at) for one, at in zip(stored, log.offsets, strict=True) if one.sys_flag & 12 != 12]
    batch = collect(
        [one.property_text for one, _ in kept],
        [one.topic for one, _ in kept],
        [at for _, at in kept],
        [one.stored_at_ms for one, _ in kept],
    )
    collected = list(zip(batch.log_offsets.tolist(), batch.hashes.tolist(), strict=True)) if batch else []
    assert collected == expected
    tagged = [row for row, one in enumerate(parsed) if one.get("TAGS") and stored[row].sys_flag & 12 != 12]
    assert found.rows[found.is_tag].tolist() == tagged
    hashes = [index_hash(f"{stored[row].topic}#T#{parsed[row]['TAGS']}") for row in tagged]
    assert found.hashes[found.is_tag].tolist() == hashes


def keys_of(properties: Mapping[str, str]) -> list[str]:
    """Return the keys of a record, in the order of their entries."""
    found = [properties.get("UNIQ_KEY", ""), *properties.get("KEYS", "").split(" ")]
    return [*filter(None, found), *([f"T#{properties['TAGS']}"] if "TAGS" in properties else [])]


ODD = [
    b"a\x7f",
    b"a\x80",
    b"\xff",
    b"\xc3\xa4",
    b"\xf0\x9f\x98\x80b",
    b"ajvakuzm",
    b"a" * 300,
    b"",
    b"\x00",
    b"a b",
    b"  a  ",
]
DELAYED = [b"DELAY\x013", b"DELAY\x010\x02TAGS\x01a", b"DELAY\x01x\x02TAGS\x01b\x02", b"DELAY\x01", b"TAGS\x01c"]
TABLES = {
    "tags": [b"TAGS\x01" + value for value in ODD],
    "keys": [b"KEYS\x01" + value + b"\x02" for value in ODD],
    "several words": [b"KEYS\x01" + b" " * (n % 3) + b"k%d w \xc3\xa4" % n + b" " * (n % 2) for n in range(12)],
    "unique keys": [b"UNIQ_KEY\x01" + value for value in ODD],
    "one of each": [b"UNIQ_KEY\x01U%d\x02KEYS\x01k%d all\x02TAGS\x01t%d\x02" % (n, n, n % 3) for n in range(12)],
    "the last counts": [
        b"TAGS\x01a\x02TAGS\x01b\x02",
        b"TAGS\x01a\x02TAGS\x01\x02",
        b"KEYS\x01k\x02TAGS\x01a\x02KEYS\x01l",
    ],
    "delayed": DELAYED,
    "words of records without": [b"", b"KEYS\x01a b\x02", b"", b"TAGS\x01 a b \x02", b"KEYS\x01c\x02", b""],
    "marks": [
        b"\x02",
        b"\x01",
        b"\x02\x02TAGS\x01a",
        b"\x01\x01",
        b"KEYS",
        b"KEYS\x02TAGS\x01a\x01b",
        b"TAGS\x03a\x02",
    ],
    "names": [b"TAG\x01a\x02", b"TAGSX\x01a\x02", b"tags\x01a\x02", b"XEYS\x01a\x02", b"UNIQ_KEYS\x01a\x02"],
    "nothing": [b""] * 3,
}


@pytest.mark.parametrize("texts", TABLES.values(), ids=TABLES)
def test_odd_properties_have_the_codes_and_hashes_of_single_records(tmp_path: pathlib.Path, texts: list[bytes]) -> None:
    """Bytes that are no text, empty values, doubled names and blanks, of every topic and kind of transaction."""
    check_block(tmp_path, [(topic, text, flag) for topic in TOPICS for flag in (0, 4, 8, 12) for text in texts])
