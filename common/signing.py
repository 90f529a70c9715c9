"""Signatures of requests, the same rule for who signs and who checks (Java's ``AclSigner``, ``AclUtils``).

    AccessKey        the name of the user
    SecurityToken    only where one was given; means nothing to a server
    Signature        base64(HMAC-SHA1(secret key, content))

The content is the values of all fields but ``Signature``, in the order of their names as UTF-16 has it, then the body.
Clients with a version up to 399 leave ``_UNIQUE_KEY_QUERY`` out of it, those of Go the value of ``SecurityToken``.

Neither time nor connection is part of it: a signed request is good for ever (spec security.md §2).

What a broker does for each request has compiled twins (``_header_codecs.pyx``): ``scan_signed`` reads what usual
clients write, and leaves all else to ``content_of``; ``ShortCheck`` looks the rest up, too.
"""

import base64
import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from .ids import Address
from .properties import header_codecs

if TYPE_CHECKING:
    from . import _header_codecs
    from ._header_codecs import Sha1Halves

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 # the name of a field
SIGNATURE: Final = "Signature"
OF_WHO_ASKS: Final = frozenset({ACCESS_KEY, SECURITY_TOKEN, SIGNATURE})
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
NOTHING: Final = frozenset[str]()
MARKS: Final = frozenset({UNIQUE_KEY_QUERY})
LAST_VERSION_WITHOUT_MARKS: Final = 399
"""Up to this version clients sign only what the header of a request declares."""


def content_of(fields: Mapping[str, str], body: bytes, *, left_out: frozenset[str] = NOTHING) -> bytes:
    """Return what the signature of a request is made of; fields ``left_out`` are not part of it."""
    names = sorted(fields) if all(map(str.isascii, fields)) else sorted(fields, key=_utf16)
    text = "".join([fields[name] for name in names if name != SIGNATURE and name not in left_out])
    return text.encode(errors="replace") + body  # half a surrogate pair is "?", as in Java


def scan_signed_slowly(
    text: msgspec.Raw | bytes,
    body: bytes,
    version: int,
    names: tuple[str, ...],
) -> tuple[str, bytes, bytes, tuple[str | None, ...]] | None:
    """Return who signed a request, the signature, what it is for, and the values of the fields that are named.

    ``text`` is the JSON of the fields. ``None`` for what is not usual: a token, no name or signature, no texts.
    """
    try:
        fields = _read_texts(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    name, signature = fields.get(ACCESS_KEY), fields.get(SIGNATURE)
    if not name or signature is None or SECURITY_TOKEN in fields:
        return None
    content = content_of(fields, body, left_out=MARKS if version <= LAST_VERSION_WITHOUT_MARKS else NOTHING)
    return name, signature.encode(errors="replace"), content, tuple([fields.get(wanted) for wanted in names])


_read_texts = msgspec.json.Decoder(dict[str, str]).decode
scan_signed = scan_signed_slowly if header_codecs is None else header_codecs.scan_signed
"""The same, compiled where there was a compiler."""


class SigningKey:
    """The secret of a user, ready to check signatures: both halves of HMAC have seen it, which saves most of the time.

    ``fits(signature, content)`` tells whether a signature is that of a content, in a time that does not say how far it
    is right.
    """

    __slots__ = ("fits", "halves")

    def __init__(self, secret_key: str) -> None:
        secret = secret_key.encode(errors="replace")
        if len(secret) > _BLOCK_BYTES:
            secret = hashlib.sha1(secret, usedforsecurity=False).digest()
        self.halves = _make_halves(secret.ljust(_BLOCK_BYTES, b"\0"))
        self.fits: Callable[[bytes, bytes], bool] = self.halves.fits

    def __repr__(self) -> str:
        return "<SigningKey>"


class HashlibHalves:
    """Both halves of HMAC by ``hashlib``, of which each keeps a state of the hash."""

    __slots__ = ("_inner", "_outer")

    def __init__(self, block: bytes) -> None:
        self._inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in block), usedforsecurity=False)
        self._outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in block), usedforsecurity=False)

    def __repr__(self) -> str:
        return "<HashlibHalves>"

    def fits(self, signature: bytes, content: bytes) -> bool:
        """Tell whether a signature is that of a content."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(content)
        outer.update(inner.digest())
        return hmac.compare_digest(b2a_base64(outer.digest(), newline=False), signature)


_BLOCK_BYTES: Final = 64
"""Of SHA-1 (RFC 2104)."""


def _make_halves(block: bytes) -> "HashlibHalves | Sha1Halves":
    functions = sha1_functions()
    if header_codecs is None or functions is None:
        return HashlibHalves(block)
    return header_codecs.Sha1Halves(block, *functions)


@cache
def sha1_functions() -> tuple[int, int, int] | None:
    """Return where libcrypto's functions of SHA-1 are, ``None`` where ``hashlib`` shows none that work.

    Their state is copied as it is; ``hashlib`` goes through a layer that allocates for each copy, and copies to finish.
    """
    try:
        import _hashlib
        import ctypes  # not for the many who check nothing

        library = ctypes.CDLL(_hashlib.__file__)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _SHA1_NAMES]
    except (ImportError, AttributeError, OSError):
        return None
    init, update, finish = found
    return (init, update, finish) if init and update and finish else None


_SHA1_NAMES: Final = ("SHA1_Init", "SHA1_Update", "SHA1_Final")


class ShortCheck:
    """Lets requests of one code through whose like was granted before; all else is for somebody who can say no.

    Arguments:
        code: the code of the requests.
        names: the fields that decide.
        keys: what users sign with.
        known: who has signed before on which connection.
        granted: ``(code, user, source IP, values of the fields that decide)``; ``None`` when nothing has to be.
    """

    def __init__(
        self,
        code: int,
        names: tuple[str, ...],
        keys: dict[str, SigningKey],
        known: dict[Address, set[str]],
        granted: set[object] | None,
    ) -> None:
        self._code, self._names = code, names
        self._keys, self._known, self._granted = keys, known, granted

    def __repr__(self) -> str:
        return f"<ShortCheck of code {self._code}>"

    def passes(self, text: msgspec.Raw | bytes, body: bytes, version: int, address: Address) -> bool:
        """Tell whether a request is one of those; ``text`` is the JSON of its fields."""
        found = scan_signed(text, body, version, self._names)
        if found is None:
            return False
        name, signature, content, values = found
        key = self._keys.get(name)
        return (
            key is not None
            and name in self._known.get(address, NOTHING)
            and (self._granted is None or (self._code, name, address[0], values) in self._granted)
            and key.fits(signature, content)
        )


def short_check_class() -> "type[ShortCheck | _header_codecs.ShortCheck]":
    """Return the compiled twin where keys are ``Sha1Halves``."""
    return ShortCheck if header_codecs is None or sha1_functions() is None else header_codecs.ShortCheck


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
