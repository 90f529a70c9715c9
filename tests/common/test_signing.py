"""Signatures of requests: what is signed, and how."""

import json
import pathlib
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from raw_calls import recorded_calls

from rocketlet.common.signing import (
    SigningKey,
    content_of,
    scan_signed_slowly,
    sha1_functions,
    sign,
    signature_of,
)

SECRETS = {
    "admin": "admin123",
    "inner": "inner123",
    "alice": "alicepw",
    "RocketMQ": "12345678",
    "rocketmq2": "12345678",
}
TABLES = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.text())


@pytest.mark.feature("A6")
@pytest.mark.parametrize(
    ("content", "secret", "signature"),
    [
        (b"RocketMQ", "12345678", "IUc8rrO/0gDch8CjObLQsW2rsiA="),
        (b"RocketMQT", "12345678", "qij/uwizWhQy5fp70E15Y7+y++Q="),
        (b"RocketMQThi", "12345678", "ekhpaSLw/65BiTSw1UoRm79yCxo="),
    ],
)
def test_signature_is_that_of_java(content: bytes, secret: str, signature: str) -> None:
    """That of ``AclSignerTest``, and those of spec remoting.md §9.2."""
    assert signature_of(content, secret) == signature


@pytest.mark.feature("A6")
def test_signatures_of_official_clients() -> None:
    """The two requests of mqadmin in spec security.md §2."""
    user = b'{"username":"alice","password":"alicepw","userType":"Normal"}'
    policy = {"resource": "Topic:T1", "actions": ["Pub"], "sourceIps": [], "decision": "Allow"}
    acl = json.dumps({"policies": [{"entries": [policy]}]}, separators=(",", ":")).encode()
    for fields, body, signature in (
        ({"username": "alice"}, user, "ZYJrz894NTSuBtVSFEAwARR3gxk="),
        ({"subject": "User:alice"}, acl, "Upkf7dUdlC9jpL5rvNlaZpLLJnY="),
    ):
        sign(fields, body, "admin", "admin123")
        assert fields["Signature"] == signature


@pytest.mark.feature("A6")
def test_recorded_signatures(vectors: pathlib.Path) -> None:
    """Of official clients all are right; of those made by hand the ones that are wrong by intent are not."""
    signed = [
        call.request
        for name in ("java-clients", "auth-frames")
        for call in recorded_calls(vectors, name, "auth")
        if call.request.ext.get("AccessKey") in SECRETS and "Signature" in call.request.ext
    ]
    wrong = 0
    for request in signed:
        left_out = frozenset(["_UNIQUE_KEY_QUERY"] if request.version <= 399 else [])
        content = content_of(request.ext, request.body, left_out=left_out)
        wrong += signature_of(content, SECRETS[request.ext["AccessKey"]]) != request.ext["Signature"]
    assert (len(signed), wrong) == (147, 7)


@given(TABLES, st.binary())
def test_content_is_in_the_order_of_java(fields: dict[str, str], body: bytes) -> None:
    """Java compares UTF-16: characters beyond it come before some that are in it; half a one is ``?``."""
    names = sorted(fields, key=lambda name: name.encode("utf-16-be"))
    text = "".join(fields[name] for name in names if name != "Signature")
    expected = b"".join(b"?" if "\ud800" <= letter <= "\udfff" else letter.encode() for letter in text)
    assert content_of(fields, body) == expected + body


@given(TABLES, st.binary(), st.text(min_size=1), st.none() | st.text())
def test_signing_again_changes_nothing(fields: dict[str, str], body: bytes, secret: str, token: str | None) -> None:
    """A request that is sent to several brokers is signed for each."""
    sign(fields, body, "user", secret, token)
    first = dict(fields)
    sign(fields, body, "user", secret, token)
    assert fields == first


@given(st.binary(), st.text(min_size=1) | st.text(min_size=60, max_size=70))
def test_key_that_is_made_once_fits_the_same_signatures(content: bytes, secret: str) -> None:
    """Also those of secrets that are longer than a block of the hash; nothing else fits, and nothing of it is shown."""
    key, signature = SigningKey(secret), signature_of(content, secret).encode()
    assert key.fits(signature, content)
    assert key.fits(signature, content)
    assert not key.fits(signature, content + b"x")
    assert not key.fits(signature[:-1], content)
    assert not SigningKey(secret + "x").fits(signature, content)
    assert repr(key) == "<SigningKey>"


@pytest.mark.parametrize("missing", [{"ctypes": None}, {"_hashlib": None}, {"_hashlib": json}])
def test_without_libcrypto(missing: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are made all the same where a Python has it built in, or has no such module."""
    for name, module in missing.items():
        monkeypatch.setitem(sys.modules, name, module)
    sha1_functions.cache_clear()
    try:
        assert sha1_functions() is None
        key = SigningKey("secret")
    finally:
        sha1_functions.cache_clear()
    assert key.fits(signature_of(b"content", "secret").encode(), b"content")
    assert not key.fits(signature_of(b"content", "secret").encode(), b"other")


def test_fields_are_scanned_without_a_compiler() -> None:
    """What Python reads then is what the check needs; what it leaves out is checked in the long way."""
    text = b'{"b": "T", "AccessKey": "u", "Signature": "s", "_UNIQUE_KEY_QUERY": "false"}'
    assert scan_signed_slowly(text, b"body", 399, ("b", "c")) == ("u", b"s", b"uTbody", ("T", None))
    assert scan_signed_slowly(text, b"body", 400, ()) == ("u", b"s", b"ufalseTbody", ())
    for unusual in (b"{}", b"[]", b'{"AccessKey":"u"}', b'{"AccessKey":"u","Signature":"s","SecurityToken":"t"}', b"{"):
        assert scan_signed_slowly(unusual, b"", 493, ()) is None
