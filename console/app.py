"""The console as an ASGI application: which address is which page, and what an error looks like.

error                            answer
no such topic, no such page      404
a field that cannot be used      400
a form of another site           403
a server that refuses            502, with its code and remark
a server that does not answer    504
"""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ..client import (
    Admin,
    ClientStateError,
    ConfigError,
    Producer,
    RemotingError,
    ResponseError,
    RocketletError,
    RouteNotFoundError,
)
from .access import Access, AccessMiddleware, FormRefusedError
from .actions import Actions
from .pages import Pages
from .rendering import FOLDER, Rendering

_CODES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (RouteNotFoundError, 404),
    (ResponseError, 502),
    (RemotingError, 504),
    (ClientStateError, 409),
    (ConfigError, 400),
    (RocketletError, 502),
    (FormRefusedError, 403),
    (ValueError, 400),
    (TypeError, 400),
)
Endpoint = Callable[[Request], Awaitable[Response]]


def build_app(admin: Admin, producer: Producer, cluster: str, access: Access) -> Starlette:
    """Return the application; ``cluster`` stands at the head of each page."""
    rendering = Rendering(cluster, access)
    pages, actions = Pages(admin, rendering), Actions(admin, producer, access, rendering)

    async def show_error(request: Request, error: Exception) -> Response:
        code = next(code for kind, code in _CODES if isinstance(error, kind))
        return rendering.show(request, "missing.html", code, what=str(error))

    async def show_refusal(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException), "it is registered for that alone"
        what = f"There is no page {request.url.path}." if error.status_code == 404 else error.detail
        return rendering.show(request, "missing.html", error.status_code, what=what)

    async def show_start(_request: Request) -> Response:
        return RedirectResponse("/topics", 303)

    return Starlette(
        routes=[
            Route("/", show_start),
            Route("/brokers", pages.brokers),
            Route("/brokers/{name}", pages.broker),
            Route("/topics", pages.topics),
            Route("/topics/{name}", pages.topic),
            Route("/topics/{name}/messages", pages.messages),
            Route("/topics/{name}/messages/{message_id}", pages.message),
            Route("/groups", pages.groups),
            Route("/groups/{name}", pages.group),
            Route("/groups/{name}/dead-letters", pages.dead_letters),
            Route("/topics/{name}/send", actions.send, methods=["POST"]),
            Route("/groups/{name}/reset", actions.reset, methods=["POST"]),
            Route("/groups/{name}/dead-letters/resend", actions.resend, methods=["POST"]),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        middleware=[Middleware(AccessMiddleware, access)],
        exception_handlers={HTTPException: show_refusal, **{kind: show_error for kind, _ in _CODES}},
    )
