"""The codes and hashes of many records at once are those of one record at a time."""

import pathlib

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, given, settings
from logbuilder import LogBuilder

from examples import examples
from rocketlet.common.properties import parse_properties
from rocketlet.common.record import BLANK_BYTES, decode_record
from rocketlet.store.audit.block_keys import BlockKeys, name_topics
from rocketlet.store.commitlog.record_blocks import BlockScan, ScanLimits, SegmentBytes
from rocketlet.store.consumequeue.appended import describe
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
    log = LogBuilder(tmp_path, 1 << 16)
    for topic, text, sys_flag in records:
        log.add(topic=topic, properties=text.encode(), sys_flag=sys_flag)
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
    found, batch = (
        keys.key_entries(),
        collect([describe(view[at : at + one.total_size]) for at, one in zip(log.offsets, stored, strict=True)]),
    )
    expected: tuple[list[int], list[int]] = [], []
    if batch is not None:
        expected = batch.hashes.tolist(), batch.log_offsets.tolist()
    assert (found.hashes.tolist(), np.array(log.offsets)[found.rows].tolist()) == expected
