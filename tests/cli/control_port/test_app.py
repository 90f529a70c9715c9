"""What the control port says to requests that cannot be, and what becomes of those that wait."""

import asyncio
import logging
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from rocketlet.cli.control_port import app
from rocketlet.cli.control_port.server import ControlServer
from rocketlet.testing import RocketmqBroker

JSON = {"Content-Type": "application/json"}


class HeldWait:
    """A wait that ends when it is cancelled only, in place of that of a fixture."""

    def __init__(self, broker: RocketmqBroker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        monkeypatch.setattr(broker, "consumed", self._wait)

    async def _wait(self, *_: Any, **__: Any) -> None:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"{bad", "the body is no JSON: JSON is malformed: object keys must be strings (byte 1)"),
        (b"\xff", "the body is no JSON: JSON is malformed: invalid character (byte 0)"),
        (b'{"name": "\xff"}', "the body is no JSON: 'utf-8' codec can't decode byte 0xff"),
        (b'{"name": "x", "queues": %s' % (b"[" * 100_000), "the body: Expected `int`, got `array` - at `$.queues`"),
        (b"[]", "the body: Expected `object`, got `array`"),
        (b'{"nam": "x"}', "the body: Object contains unknown field `nam`"),
        (b'{"queues": "4"}', "the body: Expected `int`, got `str` - at `$.queues`"),
        (b'{"queues": 0}', "the body: Expected `int` >= 1 - at `$.queues`"),
        (b'{"name": ""}', "the body: Expected `str` of length >= 1 - at `$.name`"),
    ],
)
async def test_body_that_cannot_be_used(control: httpx.AsyncClient, body: bytes, told: str) -> None:
    """The text says what is wrong, and where."""
    answer = await control.post("/topics", content=body, headers=JSON)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    assert answer.json()["error"].startswith(told)


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
async def test_body_of_another_kind(control: httpx.AsyncClient, kind: str | None) -> None:
    """What a page elsewhere may send unasked is refused, also where nothing is to be said."""
    for path in ("/topics", "/broker/reset"):
        answer = await control.post(path, content=b"{}", headers={"Content-Type": kind} if kind else {})
        assert (answer.status_code, "must be application/json" in answer.text) == (415, True)


async def test_json_with_a_charset(control: httpx.AsyncClient) -> None:
    """The media type counts; a body with nothing in it says nothing."""
    for body in (b"{}", b""):
        answer = await control.post(
            "/topics", content=body, headers={"Content-Type": "Application/JSON; charset=utf-8"}
        )
        assert answer.status_code == 200


async def test_json_that_is_too_deep(control: httpx.AsyncClient) -> None:
    """A value that is nested without end is refused as one that is none."""
    body = b'[{"topic": "t", "json": %s' % (b"[" * 100_000)
    answer = await control.post("/messages", content=body, headers=JSON)
    assert (answer.status_code, "the body is no JSON" in answer.text) == (400, True)


async def test_body_that_is_too_large(control: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read to its end."""
    monkeypatch.setattr(app, "MOST_BODY_BYTES", 10)
    answer = await control.post("/topics", content=b'{"name": "four"}', headers=JSON)
    assert (answer.status_code, answer.json()) == (413, {"error": "the body has more than 10 bytes"})


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/messages", "the query: Object missing required field `topic`"),
        ("/messages?topic=t&tga=x", "the query: Object contains unknown field `tga`"),
        ("/messages?topic=t&topic=u", "the query: topic is there twice"),
        ("/messages?topic=", "the query: Expected `str` of length >= 1 - at `$.topic`"),
        ("/clock?now=1", "GET /clock takes nothing behind a question mark: now"),
    ],
)
async def test_query_that_cannot_be_used(control: httpx.AsyncClient, path: str, told: str) -> None:
    """The text names the field."""
    answer = await control.get(path)
    assert (answer.status_code, answer.json()) == (400, {"error": told})


async def test_unknown_addresses(control: httpx.AsyncClient) -> None:
    """The nearest one is named; so is the method that an address takes."""
    answer = await control.get("/topic")
    told = "there is no /topic; did you mean /topics?; /openapi.json lists what there is"
    assert (answer.status_code, answer.json()) == (404, {"error": told})
    answer = await control.delete("/topics")
    assert (answer.status_code, answer.json()) == (405, {"error": "/topics takes no DELETE, but POST"})
    assert answer.headers["allow"] == "POST"
    answer = await control.get("/faults/x")
    assert (answer.status_code, answer.json()) == (404, {"error": "'x' is no number that was given here"})
    answer = await control.request("DELETE", "/test", content=b"{}")
    assert (answer.status_code, answer.json()) == (400, {"error": "DELETE /test takes no body"})


async def test_name_of_another_site(control: httpx.AsyncClient) -> None:
    """A page whose name was made to point here gets nothing; names of this machine are served."""
    for path in ("/", "/openapi.json"):
        answer = await control.get(path, headers={"Host": "evil.example:80"})
        assert answer.status_code == 421
        assert answer.json() == {"error": "this control port answers to localhost, not to 'evil.example:80'"}
    answer = await control.get("/", headers={"Host": "localhost:1"})
    assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-store")


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_page_of_another_site(control: httpx.AsyncClient, site: str) -> None:
    """What a browser says that another site has asked is refused; nothing happens to the broker."""
    answer = await control.get("/snapshot", headers={"Sec-Fetch-Site": site})
    told = f"this control port does not answer to pages of other sites: {site}"
    assert (answer.status_code, answer.json()) == (403, {"error": told})
    assert (await control.get("/", headers={"Sec-Fetch-Site": "none"})).status_code == 200


async def test_error_that_nobody_expects(
    control: httpx.AsyncClient,
    broker: RocketmqBroker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is answered, and logged with its traceback; the port goes on."""

    async def fail(**_: Any) -> None:
        raise KeyError("inside")

    monkeypatch.setattr(broker, "idle", fail)
    answer = await control.post("/wait/idle", json={})
    assert (answer.status_code, answer.json()) == (500, {"error": "rocketlet has failed: KeyError('inside')"})
    assert [record.getMessage() for record in caplog.records if record.exc_info] == ["POST /wait/idle has failed"]
    assert (await control.get("/")).status_code == 200


async def test_error_inside_the_broker(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """It is told at the end of the test, with where it happened."""

    def fail() -> None:
        try:
            raise ZeroDivisionError("a mistake of ours")
        except ZeroDivisionError:
            logging.getLogger("rocketlet.broker.test").exception("a job failed")

    await asyncio.to_thread(broker.on_loop, fail)
    answer = await control.delete("/test")
    told = (
        "the broker has failed: ZeroDivisionError('a mistake of ours')\nlogged by rocketlet.broker.test: a job failed"
    )
    assert (answer.status_code, answer.json()) == (409, {"error": told})
    assert (await control.delete("/test")).status_code == 204


async def test_client_that_hangs_up(
    port: ControlServer, broker: RocketmqBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wait ends."""
    wait = HeldWait(broker, monkeypatch)
    where = urlsplit(port.url)
    _, writer = await asyncio.open_connection(where.hostname, where.port)
    head = ["POST /wait/consumed HTTP/1.1", "Host: localhost", "Content-Type: application/json", "Content-Length: 13"]
    writer.write("\r\n".join([*head, "", '{"group":"g"}']).encode())
    await wait.begun.wait()
    writer.close()
    await writer.wait_closed()
    await wait.ended.wait()


async def test_end_with_requests_that_wait(broker: RocketmqBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered that the process stops, and end."""
    wait = HeldWait(broker, monkeypatch)
    async with asyncio.TaskGroup() as tasks, httpx.AsyncClient(trust_env=False, timeout=60) as client:
        async with ControlServer(broker, "127.0.0.1", 0, "1") as server:
            asked = tasks.create_task(client.post(f"{server.url}/wait/consumed", json={"group": "g"}))
            await wait.begun.wait()
        answer = await asked
    assert (answer.status_code, answer.json()) == (503, {"error": "rocketlet stops"})
    assert wait.ended.is_set()


async def test_two_clients_at_once(control: httpx.AsyncClient, port: ControlServer) -> None:
    """One waits for what the other sends; what starts and stops the broker takes turns."""
    async with (
        httpx.AsyncClient(base_url=port.url, trust_env=False, timeout=60) as other,
        asyncio.TaskGroup() as tasks,
    ):
        waits = [
            tasks.create_task(client.post("/wait/messages", json={"topic": "t", "count": 2, "timeout": 60}))
            for client in (control, other)
        ]
        await control.post("/messages", json=[{"topic": "t", "body": "1"}])
        await other.post("/messages", json=[{"topic": "t", "body": "2"}])
        assert [len((await wait).json()) for wait in waits] == [2, 2]
        changes = [
            tasks.create_task(client.post(path, json={}))
            for client in (control, other)
            for path in ("/broker/restart", "/broker/kill", "/broker/restart", "/clock/advance", "/nameserver/start")
        ]
        assert {(await change).status_code for change in changes} <= {200, 204}
    assert len((await control.get("/messages?topic=t")).json()) == 2
