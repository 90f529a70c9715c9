"""Signatures of requests, the same rule for who signs and who checks (Java's ``AclSigner``, ``AclUtils``).

    AccessKey        the name of the user
    SecurityToken    only where one was given; means nothing to a server
    Signature        base64(HMAC-SHA1(secret key, content))

The content is the values of all fields but ``Signature``, in the order of their names as UTF-16 has it, then the body.
Clients with a version up to 399 leave ``_UNIQUE_KEY_QUERY`` out of it, those of Go the value of ``SecurityToken``.

Neither time nor connection is part of it: a signed request is good for ever (spec security.md §2).
"""

import base64
import hmac
from collections.abc import Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 # the name of a field
SIGNATURE: Final = "Signature"
OF_WHO_ASKS: Final = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
LAST_VERSION_WITHOUT_MARKS: Final = 399
"""Up to this version clients sign only what the header of a request declares."""


def content_of(fields: Mapping[str, str], body: bytes, *, left_out: frozenset[str] = frozenset()) -> bytes:
    """Return what the signature of a request is made of; fields ``left_out`` are not part of it."""
    names = sorted(fields) if all(map(str.isascii, fields)) else sorted(fields, key=_utf16)
    text = "".join([fields[name] for name in names if name != SIGNATURE and name not in left_out])
    return text.encode(errors="replace") + body  # half a surrogate pair is "?", as in Java


def signature_of(content: bytes, secret_key: str) -> str:
    """Return the signature of bytes."""
    return base64.b64encode(hmac.digest(secret_key.encode(errors="replace"), content, "sha1")).decode()


def sign(fields: dict[str, str], body: bytes, access_key: str, secret_key: str, token: str | None = None) -> None:
    """Put who asks and the signature of all that a request holds into its fields; doing it again changes nothing."""
    fields.pop(SIGNATURE, None)
    fields[ACCESS_KEY] = access_key
    if token is not None:
        fields[SECURITY_TOKEN] = token
    fields[SIGNATURE] = signature_of(content_of(fields, body), secret_key)


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
