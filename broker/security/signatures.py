"""Whether a request was signed by the user whom it names (``DefaultAuthenticationHandler``; spec security.md §2, §5).

Rules, beside those of ``common/signing.py``

    1. The text of the signature has to be the same, in constant time: another spelling of the same bytes is wrong.
    2. Clients up to version 399 leave ``_UNIQUE_KEY_QUERY`` out, those after it do not.
    3. A token may be part of the content or not: clients of Go leave it out, and it says nothing to a broker. (An
       official broker refuses them.)
    4. A field whose value is null counts as ``null``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from ...common.signing import (
    LAST_VERSION_WITHOUT_MARKS,
    MARKS,
    NOTHING,
    SECURITY_TOKEN,
    SIGNATURE,
    SigningKey,
    content_of,
)
from ...remoting.codec.command import UNREADABLE, Command

_NULL: Final = b"null"


def is_signed(command: Command, fields: Mapping[str, str], key: SigningKey) -> bool:
    """Tell whether the signature of a request, whose fields are given, was made with a key."""
    given = fields.get(SIGNATURE)
    if given is None:
        return False
    signature = given.encode(errors="replace")
    return any(key.fits(signature, content) for content in _contents(command, fields))


def _contents(command: Command, fields: Mapping[str, str]) -> Iterator[bytes]:
    """Yield what may have been signed."""
    left_out = MARKS if command.version <= LAST_VERSION_WITHOUT_MARKS else NOTHING
    yield content_of(fields, command.body, left_out=left_out)
    if SECURITY_TOKEN in fields:
        yield content_of(fields, command.body, left_out=left_out | {SECURITY_TOKEN})
    text = bytes(command.ext_text)
    if _NULL in text and (nulls := _find_nulls(text)):
        yield content_of({**fields, **nulls}, command.body, left_out=left_out)


def _find_nulls(text: bytes) -> Mapping[str, str]:
    """Return the fields without a value, which no handler gets to see."""
    try:
        table = msgspec.json.decode(text, type=dict[str, Any])
    except UNREADABLE:
        return {}
    return {name: "null" for name, value in table.items() if value is None}
