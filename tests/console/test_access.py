"""Who may use the console."""

import re
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import httpx
import pytest

from rocketlet.client import Admin
from rocketlet.console.access import COOKIE, FORM_KEY, MAX_FORM_BYTES
from rocketlet.console.server import ConsoleConfig, ConsoleServer


def form_key(page: str) -> str:
    """Return the key that stands in the forms of a page."""
    match = re.search(f'name="{FORM_KEY}" value="([^"]+)"', page)
    assert match
    return match[1]


@pytest.fixture
async def topic(nameserver: str) -> str:
    """Make a topic."""
    async with Admin(nameserver) as admin:
        await admin.create_topic("T")
    return "T"


async def message_count(nameserver: str) -> int:
    """Return how many messages T holds."""
    async with Admin(nameserver) as admin:
        return sum(each.end_offset for each in (await admin.extents("T")).values())


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "[::2]:80", ""])
async def test_names_of_other_sites_are_not_answered(web: httpx.AsyncClient, host: str) -> None:
    """A name that somebody lets point at this machine gets nothing to see."""
    answer = await web.get("/topics", headers={"Host": host})
    assert (answer.status_code, "Topics" in answer.text) == (421, False)


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:9", "[::1]:80", "localhost"])
async def test_names_of_this_machine_are_answered(web: httpx.AsyncClient, host: str) -> None:
    """Whatever the port, for a tunnel may bring the request."""
    assert (await web.get("/topics", headers={"Host": host})).status_code == 200


async def test_every_answer_forbids_what_pages_do_not_need(web: httpx.AsyncClient) -> None:
    """Also files, errors and refusals: no frames, no other sites, no copies kept."""
    for path, headers in (("/topics", {}), ("/nothing", {}), ("/static/console.css", {}), ("/", {"Host": "x"})):
        answer = await web.get(path, headers=headers)
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert not {"server", "date"} & answer.headers.keys()


@pytest.mark.parametrize("fault", ["no key", "wrong key", "other site", "too large", "by GET"])
async def test_forms_of_others_do_nothing(web: httpx.AsyncClient, nameserver: str, topic: str, fault: str) -> None:
    """A form needs the key of this process, comes from no other site, has a bounded size, and is posted."""
    fields = {FORM_KEY: form_key((await web.get(f"/topics/{topic}")).text), "body": "x"}
    headers: dict[str, str] = {}
    if fault == "no key":
        del fields[FORM_KEY]
    elif fault == "wrong key":
        fields[FORM_KEY] += "x"
    elif fault == "other site":
        headers["Origin"] = "http://evil.example"
    elif fault == "too large":
        fields["body"] = "x" * MAX_FORM_BYTES
    if fault == "by GET":
        answer = await web.get(f"/topics/{topic}/send", params=fields)
        assert answer.status_code == 405
    else:
        answer = await web.post(f"/topics/{topic}/send", data=fields, headers=headers)
        assert answer.status_code == 403
    assert await message_count(nameserver) == 0


async def test_form_of_its_own_page_is_taken(
    web: httpx.AsyncClient, console: ConsoleServer, nameserver: str, topic: str
) -> None:
    """With the key of the page and the origin that a browser names."""
    fields = {FORM_KEY: form_key((await web.get(f"/topics/{topic}")).text), "body": "x"}
    origin = f"http://{urlsplit(console.url).netloc}"
    answer = await web.post(f"/topics/{topic}/send", data=fields, headers={"Origin": origin})
    assert (answer.status_code, await message_count(nameserver)) == (200, 1)


@pytest.fixture
async def guarded(nameserver: str) -> AsyncGenerator[ConsoleServer]:
    """Run a console that others can reach."""
    async with ConsoleServer(nameserver, ConsoleConfig(host="0.0.0.0")) as server:  # noqa: S104 # the case
        yield server


async def test_others_need_the_token(guarded: ConsoleServer) -> None:
    """Without it there is nothing, not even a file; the printed address brings a cookie, and then it stands nowhere."""
    parts = urlsplit(guarded.url)
    base = f"http://127.0.0.1:{parts.port}"
    async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
        for path in ("/topics", "/static/console.css", "/?token=", "/?token=wrong"):
            assert (await client.get(path)).status_code == 403
        admitted = await client.get(f"/topics?search=a&{parts.query}")
        assert (admitted.status_code, admitted.headers["location"]) == (303, "/topics?search=a")
        cookie = admitted.headers["set-cookie"]
        assert parts.query.removeprefix("token=") not in cookie
        assert {"HttpOnly", "SameSite=strict"} <= set(cookie.split("; "))
        assert (await client.get("/topics?search=a")).status_code == 200
        client.cookies.set(COOKIE, "0" * 64)
    async with httpx.AsyncClient(base_url=base, trust_env=False, cookies={COOKIE: "0" * 64}) as client:
        assert (await client.get("/topics")).status_code == 403


async def test_token_may_be_chosen(nameserver: str) -> None:
    """It is asked for on the loopback address, too, then."""
    config = ConsoleConfig(token="secret")  # noqa: S106 # it is the test's
    async with (
        ConsoleServer(nameserver, config) as server,
        httpx.AsyncClient(follow_redirects=True, trust_env=False) as client,
    ):
        assert server.url.endswith("/?token=secret")
        assert (await client.get(server.url.partition("?")[0])).status_code == 403
        assert (await client.get(server.url)).status_code == 200
