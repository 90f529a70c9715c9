"""What the columns promise to those who read them."""

from typing import Any, cast

import numpy as np
import pyarrow as pa

from rocketlet.export.columns.schema import (
    FIRST_MS,
    FULL_SCHEMA,
    KEYS_TYPE,
    LAST_MS,
    PROPERTIES_TYPE,
    SYSTEM_FIELDS,
    make_timestamps,
)


def test_columns_that_may_be_null() -> None:
    """All others always have a value, and so have keys, names and values inside of them."""
    nullable = {field.name for field in FULL_SCHEMA if field.nullable}
    assert nullable == {"tags", "body", "bornTimestamp", "storeTimestamp", *SYSTEM_FIELDS}
    keys, properties = cast("Any", KEYS_TYPE), cast("Any", PROPERTIES_TYPE)
    assert not keys.value_field.nullable
    assert not properties.key_field.nullable
    assert not properties.item_field.nullable


def test_instants_of_the_calendar_are_kept() -> None:
    """Those outside of it, and those that are not known, are null; the others are microseconds."""
    at_ms = np.array([FIRST_MS - 1, FIRST_MS, 7, LAST_MS, LAST_MS + 1])
    found = make_timestamps(at_ms).cast(pa.int64()).to_pylist()
    assert found == [None, FIRST_MS * 1000, 7000, LAST_MS * 1000, None]
    known = make_timestamps(at_ms, np.array([True, True, False, True, True])).cast(pa.int64()).to_pylist()
    assert known == [None, FIRST_MS * 1000, None, LAST_MS * 1000, None]
    assert (FIRST_MS, LAST_MS) == (-62_135_596_800_000, 253_402_300_799_999)
