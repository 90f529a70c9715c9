"""The compiled twins for fields of headers do what Python does, or leave it to Python."""

import base64
import hmac
import json
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common import properties
from rocketlet.common.ids import Address
from rocketlet.common.properties import UNIQ_KEY, parse_properties
from rocketlet.common.record import NewRecord
from rocketlet.common.signing import (
    MARKS,
    NOTHING,
    HashlibHalves,
    ShortCheck,
    SigningKey,
    content_of,
    scan_signed_slowly,
    sha1_functions,
    signature_of,
)
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.headers.send import SendReplies
from rocketlet.store.consumequeue.appended import Appended

codecs: Any = properties.header_codecs
if codecs is None:
    pytest.skip("the compiled codecs are not built: they need a C compiler", allow_module_level=True)


@given(st.binary(min_size=64, max_size=64), st.binary(), st.binary(min_size=28, max_size=28), st.integers(0, 27))
def test_halves_are_alike(block: bytes, content: bytes, other: bytes, at: int) -> None:
    """The right signature fits, and no other: not one of other letters, and not one that differs in one place."""
    functions = sha1_functions()
    assert functions is not None
    halves, compiled = HashlibHalves(block), codecs.Sha1Halves(block, *functions)
    right = base64.b64encode(hmac.digest(block, content, "sha1"))
    changed = right[:at] + bytes([right[at] ^ 1]) + right[at + 1 :]
    for signature in (right, changed, other, right[:-1], right + b"=", b""):
        assert compiled.fits(signature, content) == halves.fits(signature, content) == (signature == right)


def test_halves_of_no_block() -> None:
    """Whatever is no block of the hash is refused before it is read."""
    with pytest.raises(ValueError, match="a block has 64 bytes, not 63"):
        codecs.Sha1Halves(bytes(63), 0, 0, 0)


KNOWN_NAMES = ["AccessKey", "Signature", "_UNIQUE_KEY_QUERY", "SecurityToken", "a", "b", "topic"]
NAMES = st.one_of(st.sampled_from(KNOWN_NAMES), st.text(max_size=4))
FIELD_TABLES = st.dictionaries(
    NAMES, st.one_of(st.text(max_size=8), st.sampled_from(["", "\x01\x02", "消息", '"\\/\n']))
)
SIGNED = {"AccessKey": "user", "Signature": "c2ln"}


def json_of(table: dict[str, str], *, escapes: bool) -> bytes:
    """Return a field table as clients write it."""
    return json.dumps(table, separators=(",", ":"), ensure_ascii=escapes).encode("utf-8", "surrogatepass")


@given(FIELD_TABLES, st.booleans(), st.booleans(), st.binary(max_size=9), st.sampled_from([395, 399, 400, 493]))
def test_signed_fields_are_scanned_alike(
    table: dict[str, str], is_signed: bool, escapes: bool, body: bytes, version: int
) -> None:
    """Who signed, what and how, and the values that are asked for; what is not usual is left to Python."""
    text = json_of({**table, **(SIGNED if is_signed else {})}, escapes=escapes)
    found = codecs.scan_signed(text, body, version, ("a", "topic", "missing"))
    if found is not None:
        assert found == scan_signed_slowly(text, body, version, ("a", "topic", "missing"))


@given(
    st.lists(st.sampled_from([*'{}":,\\u0129azé', '"AccessKey":"u"', '"Signature":"s"', '"b":"T"', " ", "\x01"])),
    st.binary(max_size=3),
)
def test_what_is_no_table_is_not_scanned(parts: list[str], tail: bytes) -> None:
    """Whatever stands there: nothing is read beyond it, and nothing is taken that Python would not take."""
    inside = "".join(parts).encode()
    for text in (inside, b"{" + inside + b"}", b'{"AccessKey":"u","Signature":"s",' + inside + b"}", inside + tail):
        found = codecs.scan_signed(text, b"", 493, ("b",))
        if found is not None:
            assert found == scan_signed_slowly(text, b"", 493, ("b",))


@pytest.mark.parametrize(
    ("text", "is_scanned"),
    [
        (b'{"b":"T","AccessKey":"u","Signature":"s"}', True),
        (b'{"AccessKey":"u","Signature":"s\\/","i":"KEYS\\u0001k\\u0002","z":"\\"\\\\\\b\\f\\n\\r\\t"}', True),
        ('{"AccessKey":"消息","Signature":"s","i":"é😀"}'.encode(), True),
        (b'{"AccessKey":"u","Signature":"s","b":"T","b":"U"}', False),
        (b'{"AccessKey":"u","Signature":"s","\\u0062":"T"}', False),
        (b'{"AccessKey":"u","Signature":"s","b":7}', False),
        (b'{"AccessKey":"u","Signature":"s","b":null}', False),
        (b'{"AccessKey":"u", "Signature":"s"}', False),
        (b'{"AccessKey":"u","Signature":"s","i":"\\u00e9"}', False),
        (b'{"AccessKey":"u","Signature":"s","i":"\xff"}', False),
        (b'{"AccessKey":"u","Signature":"s",}', False),
        (b'{"AccessKey":"u","Signature":"s","SecurityToken":"t"}', False),
        (b'{"AccessKey":"","Signature":"s"}', False),
        (b'{"AccessKey":"u"}', False),
        (b'{"Signature":"s"}', False),
        (b"{}", False),
        (b"", False),
    ],
)
def test_usual_fields_are_scanned(text: bytes, is_scanned: bool) -> None:
    """Those of official clients are; what could be read in two ways, as two values for one name, is not."""
    found = codecs.scan_signed(text, b"body", 493, ("b", "i"))
    assert (found is not None) is is_scanned
    if is_scanned:
        assert found == scan_signed_slowly(text, b"body", 493, ("b", "i"))


def test_many_fields_are_left_to_python() -> None:
    """There is room for 48."""
    for count, is_scanned in ((46, True), (47, False)):
        table = {f"f{number}": "x" for number in range(count)} | SIGNED
        assert (codecs.scan_signed(json_of(table, escapes=True), b"", 493, ()) is not None) is is_scanned


HERE: Address = ("127.0.0.1", 4711)
USUAL_TABLES = st.dictionaries(
    st.sampled_from(["_UNIQUE_KEY_QUERY", "a", "b", "topic", "zz"]),
    st.one_of(st.text(max_size=8), st.sampled_from(["", "\x01\x02", '"\\/\n', "x" * 1_025])),
)


def short_checks(values: tuple[str | None, ...], *, granted: bool | None) -> list[Any]:
    """Return both twins where a user has signed before, and was granted what these values decide, or needs nothing."""
    grants: set[object] | None = None if granted is None else set()
    if grants is not None and granted:
        grants.add((310, "user", HERE[0], values))
    parts = 310, ("a", "topic"), {"user": SigningKey("secret")}, {HERE: {"user"}}, grants
    return [ShortCheck(*parts), codecs.ShortCheck(*parts)]


@given(
    USUAL_TABLES,
    st.binary(max_size=9),
    st.sampled_from([399, 400]),
    st.booleans(),
    st.sampled_from([True, False, None]),
)
def test_short_checks_are_alike(
    table: dict[str, str], body: bytes, version: int, escapes: bool, granted: bool | None
) -> None:
    """What was granted before passes, by the values that decide; whatever is not quite that does not."""
    user = {**table, "AccessKey": "user"}
    content = content_of(user, body, left_out=MARKS if version == 399 else NOTHING)
    signed = json_of({**user, "Signature": signature_of(content, "secret")}, escapes=escapes)
    python, compiled = short_checks((table.get("a"), table.get("topic")), granted=granted)
    passes = compiled.passes(signed, body, version, HERE)
    assert passes in (python.passes(signed, body, version, HERE), False)
    if not escapes or all(map(str.isascii, table.values())):
        assert passes is (granted is not False)
    for changed in (
        (signed, body + b"x", version, HERE),
        (signed, body, version, (HERE[0], 4712)),
        (json_of({**user, "Signature": signature_of(content, "wrong")}, escapes=escapes), body, version, HERE),
        (json_of({**user, "Signature": "short"}, escapes=escapes), body, version, HERE),
        (json_of({**user, "AccessKey": "other", "Signature": "x" * 28}, escapes=escapes), body, version, HERE),
        (signed[:-1], body, version, HERE),
    ):
        assert not compiled.passes(*changed)
        assert not python.passes(*changed)


def test_short_check_remembers_texts_and_no_verdict() -> None:
    """After one that passes another user, address, or value that decides is looked up for itself, as is a new table."""
    elsewhere: Address = ("127.0.0.2", 4711)
    secrets = {"user": "mine", "other": "theirs"}
    keys = {user: SigningKey(secret) for user, secret in secrets.items()}
    known, grants = {HERE: {"user"}, elsewhere: {"user"}}, {(310, "user", HERE[0], ("T", None))}
    check = codecs.ShortCheck(310, ("topic", "a"), keys, known, cast("set[object]", grants))

    def passes(topic: str, user: str = "user", address: Address = HERE, **more: str) -> bool:
        table = {"topic": topic, "AccessKey": user, **more}
        table["Signature"] = signature_of(content_of(table, b""), secrets[user])
        return check.passes(json_of(table, escapes=True), b"", 493, address)

    assert passes("T")
    assert not passes("U")
    assert passes("T")
    assert not passes("T", a="")
    assert passes("T")
    assert not passes("T", user="other")
    assert passes("T")
    assert not passes("T", address=elsewhere)
    assert passes("T")
    known[HERE].clear()
    assert not passes("T")
    known[HERE].add("user")
    assert passes("T")
    grants.clear()
    assert not passes("T")
    grants.add((310, "user", HERE[0], ("T", None)))
    keys.clear()
    assert not passes("T")


OWN = b"MSG_REGION\x01R\x02"
HOST = bytes(range(8))
CAREFUL = frozenset({b"DELAY", b"MSG_REGION"})
USUAL = {
    "a": "group",
    "b": "Topic",
    "c": "TBW102",
    "d": "4",
    "e": "3",
    "f": "1",
    "g": "1700000000000",
    "h": "7",
    "i": "UNIQ_KEY\x01K\x02TAGS\x01t",
    "j": "2",
    "k": "false",
    "m": "false",
    "n": "broker-a",
}


def read_send(text: bytes, body: bytes = b"body") -> NewRecord | None:
    """Return what is stored of a plain message of the broker whose own property is the region."""
    return codecs.read_send(text, body, HOST, OWN, CAREFUL, NewRecord)


def test_plain_send_is_read() -> None:
    """All that is stored; how official clients write it, signed or not, with what nobody knows beside it."""
    properties = b"UNIQ_KEY\x01K\x02TAGS\x01t\x02" + OWN
    usual = NewRecord("Topic", 3, b"body", properties, None, 7, 1, 1_700_000_000_000, HOST, 2)
    for more in ({}, {"AccessKey": "u", "Signature": "s"}, {"o": "x", "topic": "Other"}, {"k": "true", "l": "16"}):
        assert read_send(json_of(USUAL | more, escapes=True)) == usual
    assert read_send(json_of(USUAL | {"i": USUAL["i"] + "\x02"}, escapes=True)) == usual
    least = {name: value for name, value in USUAL.items() if name in "befghi"} | {"i": 'UNIQ_KEY\x01\\/"\x02'}
    read = read_send(json_of(least, escapes=True))
    assert read is not None
    assert (read.property_text, read.reconsume_times) == (b'UNIQ_KEY\x01\\/"\x02' + OWN, 0)


@pytest.mark.parametrize(
    "changes",
    [
        *[{name: None} for name in "befghi"],
        *[{name: text} for name in "defghjl" for text in ("", "-1", "+1", "01", "1.0", " 1", "1" * 19, "x")],
        {"e": "1" * 10},
        {"m": "true"},
        {"m": "False"},
        {"k": "0"},
        {"i": ""},
        {"i": "TAGS\x01t"},
        {"i": "UNIQ_KEY\x01\x02"},
        {"i": "UNIQ_KEY\x02"},
        {"i": "UNIQ_KEY\x01K\x02DELAY\x011"},
        {"i": "MSG_REGION\x01other\x02UNIQ_KEY\x01K"},
        {"i": "UNIQ_KEY\x01消息"},
        {"b": "Töpic"},
        {"AccessKey": "é"},
    ],
)
@pytest.mark.parametrize("escapes", [False, True])
def test_unusual_send_is_left_to_python(changes: dict[str, str | None], escapes: bool) -> None:
    """Whatever is missing, is not written as usual, or needs care."""
    table = {name: value for name, value in (USUAL | changes).items() if value is not None}
    assert read_send(json_of(table, escapes=escapes)) is None


@pytest.mark.parametrize(
    "text",
    [b"", b"{}", b"[]", json_of(USUAL, escapes=True)[:-1], json_of(USUAL, escapes=True).replace(b'"3"', b"3")],
)
def test_table_of_no_texts_is_no_plain_send(text: bytes) -> None:
    """And neither is one with a name twice, or a message without a body."""
    assert read_send(text) is None
    usual = json_of(USUAL, escapes=True)
    assert read_send(usual[:-1] + b',"b":"Topic"}') is None
    assert read_send(usual, b"") is None


@given(
    st.lists(st.sampled_from([*'{}":,\\u0129azé', '"b":"T"', '"i":"UNIQ_KEY\\u0001K"', '"e":"1"', " ", "\x01"])),
    st.integers(0, 300),
)
def test_no_send_is_read_beyond_its_end(parts: list[str], cut: int) -> None:
    """Whatever stands there."""
    inside, usual = "".join(parts).encode(), json_of(USUAL, escapes=True)
    for text in (inside, b"{" + inside + b"}", usual[:cut] + inside + usual[cut:], usual[:cut]):
        read = read_send(text)
        assert read is None or (read.topic in text.decode() and read.property_text.endswith(OWN))


KEYS = st.one_of(st.sampled_from(["7F000001", "", '"', "\\", "\x01", "消息", "\x7f"]), st.text(max_size=5))


@given(
    st.lists(st.tuples(st.sampled_from([UNIQ_KEY, "TAGS", "XUNIQ_KEY"]), KEYS), max_size=3),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**31 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from(["DefaultRegion", "50 % %d", '"é']),
)
def test_answers_to_sends_are_alike(
    chunks: list[tuple[str, str]], log_offset: int, queue_offset: int, queue_id: int, opaque: int, region: str
) -> None:
    """Whatever key, place and opaque are; a key that JSON writes in another way is left to Python."""
    text = "".join(f"{name}\x01{value}\x02" for name, value in [(UNIQ_KEY, "first"), *chunks]).encode(errors="replace")
    stored = Appended(log_offset, queue_offset, 1, "T", queue_id, 0, 0, text, None)
    replies, command = SendReplies(region, traces=True), Command(opaque=opaque)
    key = parse_properties(text)[UNIQ_KEY]
    message_id = f"7F00000100002A9F{log_offset:016X}"
    expected = replies.stored(command, message_id, queue_id, queue_offset, key)
    assert replies.stored_one(command, "7F00000100002A9F", stored) == expected
