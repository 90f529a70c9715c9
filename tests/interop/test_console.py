"""The web console over our servers and over the official ones."""

from collections.abc import Callable

import httpx
import pytest
from inbox import Inbox
from interop.servers import Server
from subscribed import push_consumer

from rocketlet.client import Message, Producer
from rocketlet.console.server import ConsoleConfig, ConsoleServer


async def test_pages_of_any_cluster(either: Server, new_topic: Callable[..., str]) -> None:
    """Each page answers, and shows what was stored and consumed."""
    topic, inbox = new_topic(), Inbox()
    async with Producer("shop", either.namesrv) as producer:
        sent = [await producer.send(Message(topic, b'{"number":%d}' % number, tags="a")) for number in range(3)]
    async with push_consumer(either.namesrv, inbox, group=f"{topic}-group", topic=topic):
        await inbox.wait_for(3)
    expected = {
        f"/topics?search={topic}": topic,
        f"/topics/{topic}": "3 messages",
        f"/topics/{topic}/messages?tags=a": sent[2].message_id,
        f"/topics/{topic}/messages/{sent[1].message_id}": "&#34;number&#34;: 1",
        f"/groups?search={topic}": f"{topic}-group",
        f"/groups/{topic}-group": "0 messages behind",
        f"/groups/{topic}-group/dead-letters": "There are none.",
        "/brokers": "broker-a",
        "/brokers/broker-a": "commitLogDiskRatio",
    }
    async with ConsoleServer(either.namesrv, ConsoleConfig()) as console, httpx.AsyncClient(trust_env=False) as client:
        for path, text in expected.items():
            answer = await client.get(console.url.rstrip("/") + path, timeout=30)
            assert (answer.status_code, text in answer.text) == (200, True), f"{path}: {answer.text}"


@pytest.mark.parametrize("path", ["/topics/nothing", "/groups/nobody"])
async def test_what_is_not_there(either: Server, path: str) -> None:
    """A topic that no broker has is missing; a group that nobody knows has nothing."""
    async with ConsoleServer(either.namesrv, ConsoleConfig()) as console, httpx.AsyncClient(trust_env=False) as client:
        answer = await client.get(console.url.rstrip("/") + path, timeout=30)
    assert answer.status_code == (404 if "topics" in path else 200)
