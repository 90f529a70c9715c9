"""Who may use the console: the first thing that every request passes.

1. On a loopback address anybody at this machine may, unless the console signs what it asks: it would lend them the
   rights of its user. The Host header must name the machine itself, else a page of
   another site could have its own name point here and read along (DNS rebinding).
2. Then, and on other addresses, a request needs the token: once as ``?token=…``, then as the cookie that it is
   exchanged for.
3. Only POST changes something. It carries the key that stands in every form of this process, which no other site can
   read; and where the browser says which site a form comes from, it must be this one.
4. Every answer forbids to be framed, to load or send anything elsewhere, and to be kept.
"""

import hmac
import secrets
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..remoting.transport.addresses import is_loopback

COOKIE: Final = "rocketlet-console"
FORM_KEY: Final = "form-key"
MAX_FORM_BYTES: Final = 8 << 20
_OWN_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class FormRefusedError(Exception):
    """A form that this console did not make, or that is too large."""


class Access:
    """The rules for one console; ``token`` is None where everybody may."""

    def __init__(self, host: str, token: str | None = None, *, lends_rights: bool = False) -> None:
        self._is_local = host == "localhost" or is_loopback(host)
        self.token = token or (None if self._is_local and not lends_rights else secrets.token_urlsafe(24))
        self.form_key = secrets.token_urlsafe(24)

    def __repr__(self) -> str:
        return f"<Access {'with' if self.token else 'without'} a token>"

    def refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that may not pass, or that only brings its token."""
        host = request.headers.get("host", "")
        if self._is_local and not names_this_machine(host):
            return PlainTextResponse(f"this console answers to localhost, not to {host!r}\n", 421)
        if self.token is None:
            return None
        if _equals(request.cookies.get(COOKIE), self._cookie()):
            return None
        if _equals(request.query_params.get("token"), self.token):
            return self._admit(request)
        return PlainTextResponse("this console needs the token that it printed when it started: ?token=…\n", 403)

    async def read_form(self, request: Request) -> dict[str, str]:
        """Return the fields of a form of ours.

        Raises:
            FormRefusedError: it is not.
        """
        data = bytearray()
        async for part in request.stream():
            data += part
            if len(data) > MAX_FORM_BYTES:
                raise FormRefusedError(f"the form has more than {MAX_FORM_BYTES} bytes")
        fields = dict(parse_qsl(data.decode(errors="replace"), keep_blank_values=True))
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            raise FormRefusedError(f"the form comes from {origin}")
        if not _equals(fields.pop(FORM_KEY, None), self.form_key):
            raise FormRefusedError("the form is not of this console, or older than its start: load its page again")
        return fields

    def _admit(self, request: Request) -> Response:
        """Exchange the token for a cookie, so that it does not stand in addresses any longer."""
        answer = RedirectResponse(str(request.url.remove_query_params("token").replace(scheme="", netloc="")), 303)
        answer.set_cookie(COOKIE, self._cookie(), httponly=True, samesite="strict")
        return answer

    def _cookie(self) -> str:
        return hmac.digest(self.form_key.encode(), (self.token or "").encode(), "sha256").hex()


class AccessMiddleware:
    """Applies the rules before a request and to its answer."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or refuse it."""

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        if scope["type"] != "http":
            return
        refusal = self._access.refusal(Request(scope))
        await (refusal or self._app)(scope, receive, send_guarded)


def names_this_machine(host: str) -> bool:
    """Tell whether a Host header names the machine itself, and not a site whose name was made to point here."""
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name in _OWN_NAMES


def _equals(given: str | None, expected: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), expected.encode())
