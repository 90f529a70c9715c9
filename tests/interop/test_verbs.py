"""The verbs of ``rocketlet`` over our servers and over the official ones, also where these want keys and take TLS."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest
from command_line import run_in_process
from inbox import Inbox
from interop.secured import USER
from interop.servers import JavaServer, RocketletServer, Server
from subscribed import push_consumer

from rocketlet.client import Tls

Done = Callable[..., str]
SPAN = ("--from", "begin", "--until", "end")


class Reached(NamedTuple):
    """A cluster, and what verbs and clients say to get there."""

    namesrv: str
    options: tuple[str, ...] = ()
    settings: Mapping[str, Any] = {}


@pytest.fixture(params=["rocketlet", "java", "secured"])
def cluster(
    request: pytest.FixtureRequest, both_servers: Callable[[type], Server], monkeypatch: pytest.MonkeyPatch
) -> Reached:
    """Return our servers, the official ones, and a broker that is spoken to with keys and under TLS."""
    if request.param != "secured":
        return Reached(both_servers(RocketletServer if request.param == "rocketlet" else JavaServer).namesrv)
    secured: Server = request.getfixturevalue("secured")
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", USER.access_key)
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", USER.secret_key)
    under_tls = {"credentials": USER, "tls": Tls(verifies=False)}  # its certificate is made up at each start
    return Reached(secured.namesrv, ("--tls", "--tls-trust-all"), under_tls)


@pytest.fixture
def done(cluster: Reached, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Done:
    """Return a call that runs ``rocketlet ARGUMENTS`` here, expects that it works, and returns what it prints."""
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)

    def run(verb: str, *arguments: object) -> str:
        code, out, err = run_in_process(capsys, verb)(*arguments, *cluster.options)
        assert (code, err) == (0, ""), out
        return out

    return run


@pytest.fixture
def told(done: Done) -> Callable[..., Any]:
    """Return a call that runs ``rocketlet ARGUMENTS --json``, and returns what that says."""
    return lambda *arguments: json.loads(done(*arguments, "--json"))


def test_topics_and_messages(done: Done, told: Callable[..., Any], new_name: Callable[[], str]) -> None:
    """Made, changed, filled, looked at, deleted."""
    topic = new_name()
    done("topic", "create", topic, "--queues", 2)
    done("topic", "update", topic, "--permission", "rw", "--queues", 3)
    [settings] = told("topic", "show", topic)["brokers"]
    assert (settings["read_queues"], settings["write_queues"], settings["permission"]) == (3, 3, "rw")
    [sent] = told("message", "send", topic, "one", "--tag", "a", "--key", "k", "--property", "n=5", "--queue", 1)
    done("message", "send", topic, "two", "--queue", 1)
    assert done("message", "tail", topic, *SPAN, "--format", r"{body}\n") == "one\ntwo\n"
    assert done("message", "tail", topic, *SPAN, "--tag", "a", "--format", r"{offset}\n") == "0\n"
    for way in (["--id", sent["message_id"]], ["--key", "k"], ["--queue", "1", "--offset", "0"]):
        found, *_ = told("message", "query", topic, *way)
        assert (found["body"], found["tags"], found["properties"]["n"]) == ("one", "a", "5")
    assert "one" in done("message", "show", topic, sent["offset_message_id"])
    done("message", "resend", topic, sent["message_id"], "--to", topic)
    assert len(told("topic", "show", topic)["queues"]) == 3
    done("topic", "delete", topic, "--yes")
    assert topic not in done("topic", "list").splitlines()


async def test_groups_offsets_and_dead_letters(cluster: Reached, done: Done, new_name: Callable[[], str]) -> None:
    """Members are seen, offsets shown, moved and copied; a dead letter reaches its group again."""
    topic, group, other, inbox = new_name(), new_name(), new_name(), Inbox()

    async def inside(*arguments: object) -> str:
        return await asyncio.to_thread(done, *arguments)  # each verb runs a loop of its own

    await inside("topic", "create", topic, "--queues", 1)
    for name in (group, other):
        await inside("group", "create", name)
        assert name in await inside("group", "list")
    for body in ("one", "two"):
        await inside("message", "send", topic, body)
    async with push_consumer(cluster.namesrv, inbox, group=group, topic=topic, **cluster.settings) as consumer:
        await inbox.wait_for(2)
        assert consumer.client_id in await inside("client", "list")
        shown = await inside("client", "show", consumer.client_id)
        assert f"\ngroup {group}\n" in shown
        assert f"\n{topic}\tbroker-a\t0\t2\t0\t0\tno\t" in shown
        await inside("topic", "create", f"%DLQ%{group}", "--queues", 1)
        await inside("message", "send", f"%DLQ%{group}", "three", "--property", f"DLQ_ORIGIN_TOPIC={topic}")
        await inside("dlq", "resend", group, "--all")
        third = (await inbox.wait_for(3))[2]
        assert (third.topic, third.body) == (topic, b"three")
    for place, left in (("begin", 2), ("end", 0), ("1", 1)):
        await inside("offset", "reset", group, topic, "--to", place, "--yes")
        [queue] = json.loads(await inside("offset", "show", group, topic, "--json"))["queues"]
        assert queue["lag"] == left
    await inside("offset", "copy", group, other, topic, "--yes")
    assert "\t1\t" in await inside("offset", "lag", other)
    await inside("group", "delete", group, "--yes")


def test_servers(done: Done) -> None:
    """Clusters, brokers and their figures; settings are read and changed."""
    assert "DefaultCluster" in done("cluster", "list")
    assert "broker-a" in done("broker", "list")
    assert "commitLogDiskRatio" in done("broker", "status", "broker-a")
    done("config", "set", "maxMessageSize=4194303", "--broker", "broker-a")
    assert "4194303" in done("config", "get", "maxMessageSize", "--broker", "broker-a")
    done("config", "set", "maxMessageSize=4194304", "--broker", "broker-a")
