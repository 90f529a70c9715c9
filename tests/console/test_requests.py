"""How many requests each page sends, to the name server and to two brokers, whatever it has to show."""

import pathlib
from collections import Counter
from collections.abc import AsyncGenerator

import httpx
import pytest
from page_text import rows_of, text_of
from real_broker import running_broker, running_nameserver

from rocketlet.broker.server import Broker
from rocketlet.client import Admin, ClientSettings, Message, MessageQueue, Producer, TopicSettings
from rocketlet.console import overview
from rocketlet.console.server import ConsoleConfig, ConsoleServer
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code

THINGS = 9


class Requests:
    """Notes what is asked of whom; a page asks while ``page`` is awaited."""

    def __init__(self, nameserver: str) -> None:
        self.nameserver = nameserver
        self.asked: Counter[tuple[str, int]] = Counter()
        self.console: httpx.AsyncClient | None = None

    def before_request(self, address: str, request: Command) -> None:
        """Count a request."""
        self.asked["name server" if address == self.nameserver else "brokers", request.code] += 1

    def after_response(self, address: str, request: Command, answer: Command) -> None:
        """Do nothing."""

    async def page(self, path: str, code: int = 200, **params: str) -> str:
        """Load a page; ``asked`` holds what was asked for it."""
        assert self.console is not None, "it is there before any test"
        self.asked.clear()
        answer = await self.console.get(path, params=params)
        assert answer.status_code == code, text_of(answer.text)
        return answer.text

    def of(self, server: str) -> dict[int, int]:
        """Return how often each code was asked for; heartbeats come by the clock."""
        return {code: n for (asked, code), n in self.asked.items() if asked == server and code != Code.HEART_BEAT}


@pytest.fixture
async def brokers(tmp_path: pathlib.Path) -> AsyncGenerator[tuple[str, Broker, Broker]]:
    """Run a name server and two brokers; yield its address and them."""
    async with (
        running_nameserver() as server,
        running_broker(server, tmp_path / "a", "broker-a") as first,
        running_broker(server, tmp_path / "b", "broker-b") as second,
    ):
        yield server.address, first, second


@pytest.fixture
async def requests(brokers: tuple[str, Broker, Broker]) -> AsyncGenerator[Requests]:
    """Make topics, and groups that have offsets of two of them, on both brokers; yield what counts the requests."""
    nameserver = brokers[0]
    counted = Requests(nameserver)
    settings = TopicSettings(read_queues=2, write_queues=2)
    async with Admin(nameserver) as admin:
        for number in range(THINGS):
            await admin.create_topic(f"T{number}", settings)
            await admin.create_group(f"g{number}")
            for topic in ("T0", f"T{number}"):
                offsets = {MessageQueue(topic, f"broker-{letter}", queue): 0 for letter in "ab" for queue in (0, 1)}
                await admin.reset(f"g{number}", offsets)
    client = ClientSettings(hooks=[counted])
    async with (
        ConsoleServer(nameserver, ConsoleConfig(), client) as console,
        httpx.AsyncClient(base_url=console.url, follow_redirects=True, trust_env=False) as counted.console,
    ):
        yield counted


@pytest.mark.parametrize("rows", [2, THINGS])
async def test_name_server_is_asked_for_a_page_and_not_for_its_rows(
    requests: Requests, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once where the brokers are, once for the names of topics; a row asks each broker, once for each thing shown."""
    monkeypatch.setattr(overview, "ROWS", rows)
    brokers = Code.GET_BROKER_CLUSTER_INFO
    page = await requests.page("/topics", search="T")
    assert [row[0] for row in rows_of(page)[1:]] == [f"T{number}" for number in range(rows)]
    assert requests.of("name server") == {brokers: 1, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: 1}
    assert requests.of("brokers") == {Code.GET_TOPIC_STATS_INFO: 2 * rows}
    page = await requests.page("/groups", search="g")
    shown = len(rows_of(page)) - 1
    assert shown >= rows
    assert requests.of("name server") == {brokers: 1}
    assert requests.of("brokers") == {
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: 2,
        Code.GET_CONSUME_STATS: 2 * shown,
        Code.GET_CONSUMER_CONNECTION_LIST: 2 * shown,
    }


async def test_single_things_ask_the_name_server_once(requests: Requests) -> None:
    """A topic with nine groups, a group with two topics, and the brokers."""
    once = {Code.GET_BROKER_CLUSTER_INFO: 1}
    page = await requests.page("/topics/T0")
    assert sum(row[0].startswith("g") for row in rows_of(page)) == THINGS
    assert requests.of("name server") == once
    assert requests.of("brokers") == {
        Code.GET_TOPIC_STATS_INFO: 2,
        Code.GET_TOPIC_CONFIG: 2,
        Code.QUERY_TOPIC_CONSUME_BY_WHO: 2,
        Code.GET_CONSUME_STATS: 2 * THINGS,
    }
    page = await requests.page("/groups/g1")
    assert {"T0", "T1"} <= set(text_of(page).split())
    assert requests.of("name server") == once
    assert requests.of("brokers") == {Code.GET_CONSUME_STATS: 2, Code.GET_CONSUMER_CONNECTION_LIST: 2}
    await requests.page("/brokers")
    assert requests.of("name server") == once
    assert requests.of("brokers") == {Code.GET_BROKER_RUNTIME_INFO: 2}


async def test_pages_show_what_is_now(requests: Requests) -> None:
    """Messages, topics and queues that came since the last page are on the next."""

    async def row_of(name: str) -> list[str]:
        return next(row for row in rows_of(await requests.page("/topics", search=name)) if row[0] == name)

    assert (await row_of("T1"))[1::4] == ["0", "2"]
    async with Producer("shop", requests.nameserver) as producer, Admin(requests.nameserver) as admin:
        await producer.send(Message("T1", b"x"))
        await admin.create_topic("T1", TopicSettings(read_queues=3, write_queues=3), brokers=["broker-b"])
        await admin.create_topic("later", TopicSettings(read_queues=1, write_queues=1), brokers=["broker-b"])
    row = await row_of("T1")
    assert (row[1], row[4], row[5]) == ("1", "5", "2")
    row = await row_of("later")
    assert (row[1], row[4], row[5]) == ("0", "1", "1")
    rows = rows_of(await requests.page("/topics/later"))
    assert [row for row in rows if row[0].startswith("broker-")][-1] == ["broker-b", "1", "1", "read and write", ""]


async def test_topic_that_no_broker_has_is_told(requests: Requests, brokers: tuple[str, Broker, Broker]) -> None:
    """A name server may still know what brokers have deleted; the other rows have their figures."""
    nameserver, *both = brokers
    async with Admin(nameserver) as admin:
        for address in [broker.address for broker in both]:
            command = Command.request(Code.DELETE_TOPIC_IN_BROKER, {"topic": "T3"})
            await admin._calls.ask_broker(address, command)  # pyright: ignore[reportPrivateUsage] # only half of a deletion
    rows = {row[0]: row[1:] for row in rows_of(await requests.page("/topics", search="T"))}
    assert rows["T3"] == ["no broker has the topic T3"]
    assert rows["T2"][3:] == ["4", "2"]
    assert "no broker has the topic T3" in text_of(await requests.page("/topics/T3", 404))
