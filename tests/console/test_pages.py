"""What the pages show, asked over HTTP from a console over a real broker."""

import html
from collections.abc import AsyncGenerator, Awaitable, Callable

import httpx
import pytest
from inbox import Inbox
from page_text import rows_of, text_of
from subscribed import push_consumer

from rocketlet.client import Admin, Message, MessageQueue, Producer, TopicSettings
from rocketlet.console import overview, pages
from rocketlet.console.rendering import format_rate
from rocketlet.console.server import ConsoleConfig, ConsoleServer

Show = Callable[..., Awaitable[str]]


@pytest.fixture
def show(web: httpx.AsyncClient) -> Show:
    """Return what asks for a page and returns its source."""

    async def ask(path: str, code: int = 200, **params: str) -> str:
        answer = await web.get(path, params=params)
        assert answer.status_code == code, text_of(answer.text)
        return answer.text

    return ask


@pytest.fixture
async def orders(nameserver: str) -> AsyncGenerator[list[str]]:
    """Store five messages in a queue of ``orders``; yield their ids."""
    async with Admin(nameserver) as admin, Producer("shop", nameserver) as producer:
        await admin.create_topic("orders", TopicSettings(read_queues=2, write_queues=2))
        messages = [
            Message(
                "orders",
                b'{"number":%d}' % number,
                tags=("paid", "sent")[number % 2],
                keys=[f"k{number}", "all"],
                properties={"amount": str(number)},
            )
            for number in range(5)
        ]
        sent = [await producer.send(each, queue=MessageQueue("orders", "broker-a", 1)) for each in messages]
        yield [each.message_id for each in sent]


@pytest.mark.usefixtures("orders")
async def test_topics_are_listed_with_their_figures(show: Show) -> None:
    """Those of the application first; retry, dead letter and system topics have lists of their own."""
    rows = rows_of(await show("/topics"))
    assert [row[0] for row in rows[1:]] == ["orders"]
    assert (rows[1][1], rows[1][4:]) == ("5", ["2", "1"])
    assert "TBW102" in text_of(await show("/topics", kind="system"))
    assert "No retry topic." in text_of(await show("/topics", kind="retry"))
    assert "No application topic has “<b>” in its name." in text_of(await show("/topics", search="<b>"))
    assert rows_of(await show("/topics", search="RDER"))[1][0] == "orders"
    assert rows_of(await show("/topics", kind="nonsense"))[1][0] == "orders"


async def test_long_lists_are_parted(nameserver: str, show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page asks for the figures of its own rows only; a number beyond the last page is the last page."""
    monkeypatch.setattr(overview, "ROWS", 2)
    async with Admin(nameserver) as admin:
        for number in range(5):
            await admin.create_topic(f"T{number}")
    shown = [[row[0] for row in rows_of(await show("/topics", page=str(number)))[1:]] for number in (1, 2, 3, 9)]
    assert shown == [["T0", "T1"], ["T2", "T3"], ["T4"], ["T4"]]
    page = await show("/topics", page="2", search="T")
    assert 'rel="prev" href="?search=T&amp;kind=application&amp;page=1"' in page
    assert 'rel="next" href="?search=T&amp;kind=application&amp;page=3"' in page
    assert "must be a number" in text_of(await show("/topics", 400, page="x"))


@pytest.mark.usefixtures("orders")
async def test_topic_is_shown_with_queues_and_groups(nameserver: str, show: Show) -> None:
    """Messages of each queue, who is behind by how many, settings."""
    inbox = Inbox()
    consumer = push_consumer(nameserver, inbox, group="billing", topic="orders", expression="paid")
    async with consumer:
        await inbox.wait_for(3)
    page = await show("/topics/orders")
    rows = rows_of(page)
    assert ["billing", "0", "0"] in rows
    assert ["broker-a", "1", "5", "0", "5"] in [row[:5] for row in rows]
    assert ["broker-a", "2", "2", "read and write", ""] in rows
    assert "5 messages, " in text_of(page)
    assert 'action="/topics/orders/send"' in page
    assert 'action="/topics/TBW102/send"' not in await show("/topics/TBW102")
    assert "no broker has the topic nothing" in text_of(await show("/topics/nothing", 404))


async def test_messages_are_found(orders: list[str], show: Show) -> None:
    """By time, tag, property, key, id and offset; the newest first."""

    async def found(**params: str) -> list[str]:
        return [row[2] for row in rows_of(await show("/topics/orders/messages", **params))[1:]]

    assert await found() == ["4", "3", "2", "1", "0"]
    assert await found(tags="paid") == ["4", "2", "0"]
    assert await found(sql="amount > 2") == ["4", "3"]
    assert await found(key="k3") == ["3"]
    assert await found(key="all") == ["4", "3", "2", "1", "0"]
    assert await found(key="all", until="2020-01-01") == []
    assert await found(**{"from": "2020-01-01"}) == ["4", "3", "2", "1", "0"]
    assert await found(until="2020-01-01 12:00") == []
    assert await found(id=orders[2]) == ["2"]
    assert await found(id="nothing") == []
    assert await found(broker="broker-a", queue="1", offset="3") == ["3"]
    assert await found(broker="broker-a", queue="1", offset="9") == []
    assert await found(broker="broker-a", queue="1", offset="0") == ["0"]
    assert await found(broker="broker-a", offset="0") == []
    for params, text in (
        ({"from": "soon"}, "'soon' is no time"),
        ({"queue": "one", "offset": "1"}, "queue is 'one', it must be a number"),
        ({"broker": "broker-z", "offset": "1"}, "broker-z"),
    ):
        answer = await show("/topics/orders/messages", 404 if "broker" in params else 400, **params)
        assert text in text_of(answer)
    assert "expected a value" in text_of(await show("/topics/orders/messages", 400, sql="amount >"))


@pytest.mark.usefixtures("orders")
async def test_long_results_are_said_to_be_cut(show: Show, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as there may be more than a page shows."""
    for most, is_cut in ((6, False), (5, True), (2, True)):
        monkeypatch.setattr(pages, "MOST_MESSAGES", most)
        page = await show("/topics/orders/messages")
        assert len(rows_of(page)) - 1 == min(most, 5)
        assert (f"Only the newest {most} are shown." in text_of(page)) == is_cut


async def test_message_is_shown_whole(orders: list[str], show: Show) -> None:
    """Body, place, tag, keys, every property; and nothing of it is taken for markup."""
    page = await show(f"/topics/orders/messages/{orders[3]}")
    words = text_of(page)
    for text in (orders[3], '{ "number": 3 }', "broker-a queue 1 offset 3", "Tag sent", "Keys k3 all", "amount 3"):
        assert text in words
    assert "No group consumes this topic." in words
    assert "There is no message <x> in orders." in text_of(await show("/topics/orders/messages/<x>", 404))


async def test_message_is_shown_with_who_consumed_it(nameserver: str, orders: list[str], show: Show) -> None:
    """What each group of its topic has done with it."""
    inbox = Inbox()
    async with push_consumer(nameserver, inbox, group="billing", topic="orders", expression="paid"):
        await inbox.wait_for(3)
        track = next(
            row[1] for row in rows_of(await show(f"/topics/orders/messages/{orders[4]}")) if row[0] == "billing"
        )
        assert track in {"consumed", "not consume yet"}  # the last offset may not be committed yet
    assert ["billing", "not online"] in rows_of(await show(f"/topics/orders/messages/{orders[4]}"))


async def test_markup_in_messages_is_text(nameserver: str, show: Show) -> None:
    """Whoever sends a message cannot put a script into the page."""
    async with Producer("shop", nameserver) as producer:
        evil = "<script>alert(1)</script>"
        sent = await producer.send(Message("T", evil.encode(), tags=evil, keys=[evil], properties={evil: evil}))
    for path in ("/topics/T/messages", f"/topics/T/messages/{sent.message_id}"):
        page = await show(path)
        assert evil not in page
        assert evil in html.unescape(page)


@pytest.mark.usefixtures("orders")
async def test_group_is_shown_while_it_is_online_and_after(nameserver: str, show: Show) -> None:
    """Its members and what they subscribe to, then how far it is in each queue."""
    inbox = Inbox()
    async with push_consumer(nameserver, inbox, group="billing", topic="orders", expression="paid || sent"):
        await inbox.wait_for(5)
        page = await show("/groups/billing")
        assert "orders paid || sent" in text_of(page)
        assert "PYTHON" in [row[2] for row in rows_of(page) if len(row) == 3]
        rows = rows_of(await show("/groups"))
        assert next(row for row in rows if row[0] == "billing")[1] == "1"
    page = await show("/groups/billing")
    assert ["broker-a", "1", "5", "5", "0", "0"] in [row[:6] for row in rows_of(page)]
    assert next(row for row in rows_of(await show("/groups")) if row[0] == "billing")[1:3] == ["0", "0"]
    assert "Nobody consumes in this group now." in text_of(page)
    assert 'action="/groups/billing/reset"' in page
    assert "It has no offsets yet." in text_of(await show("/groups/nobody"))
    assert "No group has “zzz” in its name." in text_of(await show("/groups", search="zzz"))


async def test_brokers_are_shown(show: Show) -> None:
    """Each with its role and figures; a name that no broker has is an error that says so."""
    row = next(row for row in rows_of(await show("/brokers")) if "broker-a" in row)
    assert (row[2], row[4]) == ("master", "V5_3_3")
    assert "commitLogDiskRatio" in text_of(await show("/brokers/broker-a"))
    assert "no master of the broker nobody" in text_of(await show("/brokers/nobody", 400))
    assert "There is no page /nothing." in text_of(await show("/nothing", 404))


@pytest.mark.parametrize(
    ("per_second", "text"),
    [(0, "0.0"), (0.06, "0.1"), (99.9, "99.9"), (100, "100"), (100.4, "100"), (12_345.6, "12,346")],
)
def test_rates_are_shown_short(per_second: float, text: str) -> None:
    """A digit behind the point below a hundred, thousands apart."""
    assert format_rate(per_second) == text


async def test_cluster_that_is_away_is_told(unused_tcp_port: int) -> None:
    """The page names the server that did not answer."""
    address = f"127.0.0.1:{unused_tcp_port}"
    async with ConsoleServer(address, ConsoleConfig()) as console, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(f"{console.url}topics")
    assert answer.status_code == 504
    assert address in text_of(answer.text)
