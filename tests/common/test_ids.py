import ipaddress
import json
import pathlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from javastores import java_cases

from rocketlet.common.errors import ConfigError, DecodeError
from rocketlet.common.ids import (
    RecallHandle,
    UniqueIds,
    decode_host,
    encode_host,
    format_offset_id,
    format_recall_handle,
    is_among,
    parse_networks,
    parse_offset_id,
    parse_recall_handle,
    unique_id_created_at,
)

CASES = java_cases("codec/ids.json")
OFFSET_IDS = [case for case in CASES if case["kind"] == "offsetMsgId"]
DECODED_IDS = [case for case in CASES if case["kind"] == "decodeOffsetMsgId"]
UNIQUE_IDS = [case for case in CASES if case["kind"] == "uniqId"]


def _at(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp() * 1000)  # pyright: ignore[reportArgumentType]  # a date's parts


@pytest.fixture(autouse=True)
def _utc(time_zone: Callable[[str], None]) -> None:
    time_zone("UTC")


@pytest.mark.parametrize("case", OFFSET_IDS, ids=lambda case: case["id"])
def test_offset_id_is_that_of_java(case: dict[str, Any]) -> None:
    """Every recorded host and position makes Java's id and comes out of it again."""
    host = encode_host(case["host"], case["port"])
    assert format_offset_id(host, case["physicOffset"]) == case["id"]
    assert parse_offset_id(case["id"]) == (host, case["physicOffset"])
    assert host[:-4].hex() == case["decodedHostHex"]


@pytest.mark.parametrize("case", DECODED_IDS, ids=lambda case: case["id"] or "empty")
def test_offset_id_is_read_where_java_reads_it(case: dict[str, Any]) -> None:
    """Wrong lengths are refused as in Java, lower case is read; what is not hex, which Java misreads, is refused."""
    if "error" in case["result"] or "Z" in case["id"]:
        with pytest.raises(DecodeError):
            parse_offset_id(case["id"])
    else:
        host, log_offset = parse_offset_id(case["id"])
        assert host.hex() == f"{case['result']['host']}{case['result']['port']:08x}"
        assert log_offset == case["result"]["physicOffset"]


def test_offset_id_cut_or_stretched_is_refused() -> None:
    """An id of any other length is a decode error."""
    text = OFFSET_IDS[-1]["id"] + "00"
    for end in set(range(len(text) + 1)) - {32, 56}:
        with pytest.raises(DecodeError):
            parse_offset_id(text[:end])


@given(st.text(min_size=28, max_size=60) | st.text("0123456789abcdefABCDEF ", min_size=32, max_size=32))
def test_offset_id_of_arbitrary_text(text: str) -> None:
    """Arbitrary text is read or refused with a decode error."""
    try:
        host, log_offset = parse_offset_id(text)
    except DecodeError:
        return
    assert format_offset_id(host, log_offset) == text.upper()


@given(st.ip_addresses(), st.integers(0, 0xFFFF))
def test_host_round_trip(address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int) -> None:
    """An address of either family and its port come back."""
    host = encode_host(str(address), port)
    found, found_port = decode_host(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    expected = mapped or address
    assert (found, found_port) == (str(expected).partition("%")[0], port)
    assert len(host) == (8 if expected.version == 4 else 20)


@pytest.mark.parametrize(
    ("address", "expected"),
    [("[::1]", "::1"), ("fe80::1%eth0", "fe80::1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("[fd00:0:0::2]", "fd00::2")],
)
def test_host_in_other_spellings(address: str, expected: str) -> None:
    """Brackets and scopes are dropped, and an IPv4 address that a dual-stack socket names is IPv4."""
    assert decode_host(encode_host(address, 7)) == (expected, 7)


def test_host_that_is_none() -> None:
    """A name, a port out of range and bytes of another length are refused."""
    with pytest.raises(ValueError, match="localhost"):
        encode_host("localhost", 1)
    with pytest.raises(ValueError, match="65536"):
        encode_host("127.0.0.1", 65536)
    with pytest.raises(DecodeError, match="not 8 or 20"):
        decode_host(b"\x00" * 9)


@pytest.mark.parametrize("case", UNIQUE_IDS, ids=lambda case: case["id"])
def test_unique_id_says_when_it_was_made(case: dict[str, Any]) -> None:
    """The instant in Java's ids is found, also in one of this very millisecond, which Java takes for a month old."""
    if "createdAbout" in case:
        created_at_ms = unique_id_created_at(case["id"], case["createdAbout"] + 1000)
        assert abs(created_at_ms - case["createdAbout"]) < 100
    else:
        assert unique_id_created_at(case["id"], case["nearlyTimeAskedAt"]) == case["nearlyTime"]


def test_unique_id_of_last_month() -> None:
    """An id whose time of the month is still to come was made in the month before."""
    made_at_ms = _at(2026, 10, 31, 23, 59)
    made = UniqueIds(b"\x0a\x00\x00\x01", 1, lambda: made_at_ms).next_id()
    assert unique_id_created_at(made, _at(2026, 11, 2)) == made_at_ms


@pytest.mark.parametrize("text", ["", "zz" * 16, "order-1"])
def test_unique_id_that_is_none(text: str) -> None:
    """A key that the application chose has no instant."""
    with pytest.raises(DecodeError):
        unique_id_created_at(text, 0)


@pytest.mark.parametrize("case", UNIQUE_IDS, ids=lambda case: case["id"])
def test_unique_ids_have_javas_layout(case: dict[str, Any]) -> None:
    """The maker reproduces Java's ids from their address, process, class loader, instant and counter."""
    text, now_ms = case["id"], case.get("createdAbout", case["nearlyTime"])
    created_at_ms = unique_id_created_at(text, now_ms + 1000)
    ids = UniqueIds(
        bytes.fromhex(case["ipHex"]), case["pid"], lambda: created_at_ms, discriminator=int(text[-20:-12], 16)
    )
    made = [ids.next_id() for _ in range(int(text[-4:], 16) + 1)]
    assert made[-1] == text


def test_unique_ids_differ_and_count() -> None:
    """Ids of one millisecond differ in the counter, which goes round after 65,536."""
    ids = UniqueIds(b"\x0a\x00\x00\x01", 70_000, lambda: _at(2026, 11, 21))
    made = [ids.next_id() for _ in range(65_537)]
    assert len(set(made)) == 65_536
    assert made[0] == made[-1]
    assert repr(ids).startswith("<UniqueIds 0A000001")


def test_several_unique_ids_are_those_that_come_one_by_one() -> None:
    """They count on from each other, and the counter goes round among them."""
    one_by_one, at_once = (UniqueIds(b"\x0a\x00\x00\x01", 1, lambda: 7, discriminator=0) for _ in range(2))
    assert at_once.next_ids(65_535) == [one_by_one.next_id() for _ in range(65_535)]
    assert at_once.next_ids(3) == [one_by_one.next_id() for _ in range(3)]
    assert at_once.next_id() == one_by_one.next_id()


def test_unique_ids_of_two_makers_differ() -> None:
    """Two makers with the same address and process id do not meet."""
    first, second = (UniqueIds(b"\x0a\x00\x00\x01", 1, lambda: 0) for _ in range(2))
    assert first.next_id() != second.next_id()


def test_unique_ids_over_the_end_of_a_month() -> None:
    """The time of the month starts again, and a clock that steps back over it counts as its start."""
    now_ms = _at(2026, 12, 31, 23, 59, 59)
    ids = UniqueIds(b"\x0a\x00\x00\x01", 1, lambda: now_ms, discriminator=0)
    assert int(ids.next_id()[20:28], 16) == 31 * 86_400_000 - 1000
    now_ms += 1500
    assert int(ids.next_id()[20:28], 16) == 500
    now_ms -= 1500
    assert int(ids.next_id()[20:28], 16) == 0


def test_unique_ids_need_an_address() -> None:
    """An address that is neither IPv4 nor IPv6 is refused."""
    with pytest.raises(ValueError, match="not 4 or 16"):
        UniqueIds(b"\x00" * 5, 1, lambda: 0)


@pytest.mark.feature("L8")
def test_handles_are_those_of_java(vectors: pathlib.Path) -> None:
    """Our text of a handle is that of the official class, and is read again as it was."""
    cases = [case for case in json.loads((vectors / "codec/ids.json").read_text()) if case["kind"] == "recallHandle"]
    assert len(cases) == 2
    for case in cases:
        handle = RecallHandle(case["topic"], case["brokerName"], case["timestamp"], case["messageId"])
        assert format_recall_handle(handle) == case["handle"]
        assert parse_recall_handle(case["handle"]) == handle
        assert parse_recall_handle(case["handle"].rstrip("=")) == handle


@pytest.mark.parametrize(
    "text",
    [
        "",
        "djEgYSBi",  # v1 a b
        "djIgYSBiIDEgYw==",  # v2 a b 1 c
        "djEgYSBiIDEg",  # v1 a b 1 and nothing behind
        "djEgYSBiIDEgYw===",
        "djEgYSBiIDEgY+==",
        "djEgYSBiIDEgYw==\n",
        "d",
        "äöü",
        "====",
    ],
)
def test_what_is_no_handle(text: str) -> None:
    """Another version, too few words, and what is not base64 of URLs are refused in Java's words."""
    with pytest.raises(DecodeError, match=r"^recall handle is invalid$"):
        parse_recall_handle(text)


def test_more_words_are_passed_over() -> None:
    """Java takes the first five words."""
    assert parse_recall_handle("djEgYSBiIDEgYyBk") == RecallHandle("a", "b", "1", "c")


def test_networks() -> None:
    """Addresses and networks of both families; what is none is told by the key, and so is a list of nobody."""
    networks = parse_networks("10.0.0.0/24, 192.0.2.7,2001:db8::/64,", "haAllowFrom")
    hosts = ("10.0.0.9", "192.0.2.7", "2001:db8::5", "::ffff:10.0.0.9", "10.0.1.9", "192.0.2.8", "somewhere")
    assert [is_among(host, networks) for host in hosts] == [True] * 4 + [False] * 3
    assert parse_networks(" ", "haAllowFrom") == ()
    for text in ("10.0.0.1/24", "10.0.0.1 10.0.0.2", "somewhere", ","):
        with pytest.raises(ConfigError) as refused:
            parse_networks(text, "haAllowFrom")
        assert refused.value.key == "haAllowFrom"
