"""The filters of consumer groups in a workload: read from their file as a broker does, changed, and checked."""

import json

from rocketlet.broker.group.filters import BloomShape, FilterFile, FilterTable
from rocketlet.common.java_json import read_json_as

FILTERS_FILE = "config/consumerFilter.json"
KEEP_DEAD_MS = 60_000
_SHAPE = BloomShape.of(error_percent=20, consumers=32)


def load_filters(text: str | None, now_ms: int) -> FilterTable:
    """Return what a broker takes over from the text of the file, or an empty table."""
    table = FilterTable(lambda: now_ms, _SHAPE, keep_dead_ms=KEEP_DEAD_MS)
    if text:
        table.load(read_json_as(text, FilterFile))
    return table


def check_filters(text: str, now_ms: int) -> None:
    """Check that a broker that starts has each filter of the file, as old as it is and waiting for its group."""
    table = load_filters(text, now_ms)
    for topic, filters in json.loads(text)["filterDataByTopic"].items():
        for group, told in filters["groupFilterData"].items():
            found = table.find(topic, group)
            assert found is not None, f"the filter of {group} for {topic} is lost"
            same = found.expression, found.client_version, found.born_at_ms
            assert same == (told["expression"], told["clientVersion"], told["bornTime"]), f"{group} has {found}"
            assert found.is_dead, f"the filter of {group} for {topic} lives before its group is back"
