"""The control port as an ASGI application: JSON in, JSON out, and a status for whatever goes wrong.

error                                              answer
a body or query that cannot be used                400
no such topic, group, client, fault, address       404
a check that fails, a state or broker that refuses 409
a page of another site                             403
a name of another machine (DNS rebinding)          421
a body that is not of the kind that is asked for   415
a body that is too large                           413
the end of the process meanwhile                   503
waited as long as ``timeout`` says                 504
anything else, which is logged                     500

A web page elsewhere cannot ask for ``application/json``, DELETE or PUT without the consent of this server, which it
never gets. A request that waits ends when its client hangs up.
"""

import asyncio
import logging
import os
import pathlib
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import IO, Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as StarletteRoute

from ...common.errors import DecodeError, RocketletError, nearest
from ...console.access import names_this_machine
from ...testing.servers import BrokerDownError
from ...testing.views.unknown_names import UnknownNameError
from .answers import Refused
from .openapi import describe
from .operations import ControlOperations, describe_failures
from .routes import BAD, FORBIDDEN, LATE, ROUTES, TAR, UNKNOWN, Route

MOST_BODY_BYTES: Final = 64 << 20
_PART_BYTES: Final = 1 << 18
JSON: Final = "application/json"
_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_STATUSES: Final[tuple[tuple[type[Exception], int], ...]] = (
    (UnknownNameError, UNKNOWN),
    (BrokerDownError, FORBIDDEN),
    (TimeoutError, LATE),
    (DecodeError, BAD),
    (RocketletError, FORBIDDEN),
    (ValueError, BAD),
    (TypeError, BAD),
    (OSError, FORBIDDEN),
)
_log = logging.getLogger(__name__)


class RefusedError(Exception):
    """A request that is answered with a status and a text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class ControlApp:
    """The application over the operations of one fixture; ``is_local`` says that it listens at this machine only."""

    def __init__(self, operations: ControlOperations, version: str, *, is_local: bool) -> None:
        self._operations = operations
        self._is_local = is_local
        self._stopping = asyncio.Event()
        self._paths = sorted({route.path for route in ROUTES} | {"/openapi.json"})
        document = msgspec.json.encode(describe(version))

        async def show_document(request: Request) -> Response:
            self._check_site(request)
            return _respond(200, document)

        own = [StarletteRoute(route.path, self._endpoint(route), methods=[route.method]) for route in ROUTES]
        self.asgi = Starlette(
            routes=[*own, StarletteRoute("/openapi.json", show_document)],
            exception_handlers={HTTPException: self._show_unknown, RefusedError: _show_refused},
        )

    def __repr__(self) -> str:
        return f"<ControlApp over {self._operations!r}>"

    def stop(self) -> None:
        """End what waits, and serve nothing more."""
        self._stopping.set()

    def _endpoint(self, route: Route) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            try:
                self._check_site(request)
                return await self._serve(route, request)
            except ClientDisconnect:
                return Response(status_code=BAD)  # which nobody gets
            except RefusedError as refused:
                return _refuse(refused.status, str(refused))
            except Exception as error:  # the fault boundary of a request: it answers and logs what nobody expects
                return _describe(error, request)

        return serve

    def _check_site(self, request: Request) -> None:
        """Refuse what pages of other sites ask."""
        host = request.headers.get("host", "")
        if self._is_local and not names_this_machine(host):
            raise RefusedError(421, f"this control port answers to localhost, not to {host!r}")
        if (site := request.headers.get("sec-fetch-site", "none")) not in {"none", "same-origin"}:
            raise RefusedError(403, f"this control port does not answer to pages of other sites: {site}")

    async def _serve(self, route: Route, request: Request) -> Response:
        async with AsyncExitStack() as stack:
            if route.takes_file or route.gives_file:
                folder = await _enter_folder(stack, self._operations.directory)
                asked = await _read_file(route, request, folder / "snapshot.tar")
            else:
                asked = await _read(route, request)
            answer = await self._attend(request, route.operation(self._operations, *asked))
            if route.gives_file:
                return await asyncio.to_thread(_respond_with_file, asked[0])
        return _respond(204) if answer is None else _respond(200, msgspec.json.encode(answer))

    async def _attend(self, request: Request, work: Awaitable[object]) -> object:
        """Return what comes of some work, which ends when its client hangs up, or everything does."""
        async with asyncio.TaskGroup() as tasks:
            doing = tasks.create_task(_outcome(work))
            leaving = tasks.create_task(_hang_up(request))
            stopping = tasks.create_task(_end_of(self._stopping))
            await asyncio.wait([doing, leaving, stopping], return_when=asyncio.FIRST_COMPLETED)
            for task in (doing, leaving, stopping):
                task.cancel()
        if doing.cancelled():
            if self._stopping.is_set():
                raise RefusedError(503, "rocketlet stops")
            raise ClientDisconnect
        outcome = doing.result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _show_unknown(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException), "it is registered for that alone"
        path = request.url.path
        if error.status_code == 404:
            return _refuse(404, f"there is no {path}{nearest(path, self._paths)}; /openapi.json lists what there is")
        allowed = (error.headers or {}).get("Allow", "")
        return _refuse(error.status_code, f"{path} takes no {request.method}, but {allowed}", error.headers)


async def _show_refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError), "it is registered for that alone"
    return _refuse(error.status, str(error))


async def _outcome(work: Awaitable[object]) -> object:
    try:
        return await work
    except Exception as error:  # for who has asked
        return error


async def _hang_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _end_of(event: asyncio.Event) -> None:
    await event.wait()


# what is asked


async def _read(route: Route, request: Request) -> list[Any]:
    """Return what an operation takes.

    Raises:
        RefusedError: it cannot be used.
    """
    data = await _read_body(request)
    asked: list[Any] = [_read_number(request.path_params["id"])] if route.has_number else []
    if route.body is not None:
        asked.append(_decode_body(route, request, data))
    elif data:
        raise RefusedError(BAD, f"{route.method} {route.path} takes no body")
    query = request.query_params.multi_items()
    if route.query is not None:
        asked.append(_decode_query(route, query))
    elif query:
        raise RefusedError(BAD, f"{route.method} {route.path} takes nothing behind a question mark: {query[0][0]}")
    return asked


async def _read_body(request: Request) -> bytes:
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > MOST_BODY_BYTES:
            raise RefusedError(413, f"the body has more than {MOST_BODY_BYTES} bytes")
    return bytes(data)


def _read_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise RefusedError(UNKNOWN, f"{text!r} is no number that was given here")
    return int(text)


def _decode_body(route: Route, request: Request, data: bytes) -> object:
    _check_kind(request, JSON)
    try:
        return msgspec.json.decode(data or b"{}", type=route.body)
    except msgspec.ValidationError as error:
        raise RefusedError(BAD, f"the body: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(BAD, f"the body is no JSON: {error}") from error


def _check_kind(request: Request, kind: str) -> None:
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != kind:
        raise RefusedError(415, f"Content-Type is {content_type!r}, it must be {kind}")


def _decode_query(route: Route, query: list[tuple[str, str]]) -> object:
    names = [name for name, _ in query]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RefusedError(BAD, f"the query: {twice} is there twice")
    try:
        return msgspec.convert(dict(query), type=route.query, strict=False)
    except msgspec.ValidationError as error:
        raise RefusedError(BAD, f"the query: {error}") from error


# files


async def _enter_folder(stack: AsyncExitStack, parent: pathlib.Path) -> pathlib.Path:
    """Return a directory that is removed with the stack."""
    folder = await asyncio.to_thread(tempfile.TemporaryDirectory, prefix="rocketlet-", dir=parent)
    stack.push_async_callback(asyncio.to_thread, folder.cleanup)
    return pathlib.Path(folder.name)


async def _read_file(route: Route, request: Request, path: pathlib.Path) -> list[Any]:
    """Return the path of a file, with the body if that is to be one.

    Raises:
        RefusedError: it is of another kind, or empty; a request that is to have none has a body or a query.
    """
    if not route.takes_file:
        return [*await _read(route, request), path]
    _check_kind(request, TAR)
    with await asyncio.to_thread(path.open, "wb") as file:
        async for part in request.stream():
            await asyncio.to_thread(file.write, part)
    return [path]


def _respond_with_file(path: pathlib.Path) -> Response:
    """Return the bytes of a file, which may be removed before they are sent."""
    file = path.open("rb")
    headers = {**_HEADERS, "Content-Length": str(os.fstat(file.fileno()).st_size)}
    return StreamingResponse(_read_parts(file), 200, headers, TAR)


def _read_parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(_PART_BYTES):
            yield part


# what is answered


def _respond(status: int, data: bytes | None = None) -> Response:
    return Response(data, status, _HEADERS, JSON if data is not None else None)


def _refuse(status: int, text: str, headers: Any = None) -> Response:
    answer = _respond(status, msgspec.json.encode(Refused(error=text)))
    answer.headers.update(headers or {})
    return answer


def _describe(error: Exception, request: Request) -> Response:
    if isinstance(error, AssertionError | BaseExceptionGroup):
        return _refuse(FORBIDDEN, "\n".join(describe_failures(error)))
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return _refuse(status, str(error))
    _log.error("%s %s has failed", request.method, request.url.path, exc_info=error)
    return _refuse(500, f"rocketlet has failed: {error!r}")
