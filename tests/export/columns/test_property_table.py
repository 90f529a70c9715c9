import json
import pathlib

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message import split_keys as split_one
from rocketlet.common.properties import parse_properties
from rocketlet.export.columns.property_table import parse_property_texts, split_keys

PIECES = [b"\x01", b"\x02", b"a", b"TAGS", b"KEYS", b" ", b"\x00", "é".encode(), b"\xc3", b"\xa9", b"\xed\xa0\x80"]
texts = st.one_of(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join), st.binary(max_size=12))


def check(given_texts: list[bytes]) -> None:
    """Compare the columns of texts with what each text alone gives."""
    table = parse_property_texts(pa.array(given_texts, pa.binary()))
    expected = [parse_properties(text) for text in given_texts]
    maps = table.to_map()
    maps.validate(full=True)
    assert [dict(row) for row in maps.to_pylist()] == expected
    assert [len(row) for row in maps.to_pylist()] == [len(row) for row in expected]
    assert [table.column("TAGS").to_pylist()] == [[row.get("TAGS") for row in expected]]
    keys = split_keys(table.column("KEYS"))
    keys.validate(full=True)
    assert keys.to_pylist() == [list(split_one(row.get("KEYS"))) for row in expected]


@given(st.lists(texts, max_size=8))
def test_texts_parse_as_one_by_one(given_texts: list[bytes]) -> None:
    """The columns hold what ``parse_properties`` reads from each text, whatever the bytes are."""
    check(given_texts)


def test_java_cases_parse_as_java_does(vectors: pathlib.Path) -> None:
    """The recorded cases of ``string2messageProperties`` give Java's properties, all in one column."""
    cases = json.loads((vectors / "codec" / "properties.json").read_text())
    table = parse_property_texts(pa.array([bytes.fromhex(case["hex"]) for case in cases], pa.binary()))
    for case, row in zip(cases, table.to_map().to_pylist(), strict=True):
        if case["op"] == "decode":
            assert dict(row) == case["properties"]


def test_last_of_equal_names_counts_with_many_names() -> None:
    """Repeats are found among more names than fit into the bits of a number, too."""
    many = b"".join(b"name%d\x01v\x02" % number for number in range(80))
    check([many + b"name3\x01last\x02", many, b"name3\x01first\x02name3\x01last"])


@pytest.mark.parametrize(
    "given_texts",
    [
        [b"TAGS\x01a\x02KEYS\x01k1 k2\x02", b"TAGS\x01\xc3\xa9\x02KEYS\x01k3\x02"],
        [b"KEYS\x01a\x02TAGS\x01b\x02", b"TAGS\x01a\x02KEYS\x01b\x02"],
        [b"ab\x01x\x02c\x01y\x02", b"a\x01x\x02bc\x01y\x02"],
        [b"ab\x01x\x02cd\x01y\x02", b"ab\x01x\x02ce\x01y\x02"],
        [b"TAGS\x01a\x02TAGS\x01b\x02"] * 3,
        [b"TAGS\x01a\x02b\x01c\x02", b"TAGS\x01a\x02", b"TAGS\x01a\x02b\x01c\x02d\x01e\x02"],
        [b"TAGS\x01a\x02", b"", b"TAGS\x01b\x02"],
    ],
    ids=["same", "other order", "cut otherwise", "other letter", "repeated", "as many in all", "none in one"],
)
def test_rows_with_nearly_the_same_names_are_told_apart(given_texts: list[bytes]) -> None:
    """Rows that all have the same names are read a shorter way; all other ones are not."""
    check(given_texts)


def test_texts_without_final_mark_do_not_run_into_the_next() -> None:
    """A text that lacks its last mark, or ends in half a character, ends where it ends."""
    check([b"a\x01b", b"c\x01d\x02", b"", b"e\x01\xc3", b"\xa9\x01f\x02"])


def test_no_texts_give_empty_columns() -> None:
    """No rows give no rows."""
    check([])
    check([b"", b""])
