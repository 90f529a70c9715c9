"""What each address of the control port does to a broker."""

import asyncio
import logging
import os
import threading
from typing import Any

import httpx
import pytest
from inbox import Inbox
from subscribed import push_consumer

from rocketlet.cli.control_port.operations import ControlOperations
from rocketlet.cli.control_port.requests import AtBroker
from rocketlet.client import Message, Producer, ReceivedMessage, TransactionProducer, TransactionState
from rocketlet.common.errors import RemotingError
from rocketlet.testing import RocketmqBroker


class Undecided:
    """A listener that does not know whether its transactions are to be committed."""

    async def execute(self, _message: Message, _argument: object) -> TransactionState:
        """Leave it open."""
        return TransactionState.UNKNOWN

    async def check(self, _message: ReceivedMessage) -> TransactionState:
        """Leave it open."""
        return TransactionState.UNKNOWN


async def done(control: httpx.AsyncClient, method: str, path: str, **asked: Any) -> Any:
    """Return what is answered to a request that succeeds."""
    answer = await control.request(method, path, json=asked if method == "POST" else None)
    assert answer.status_code in {200, 204}, answer.text
    return answer.json() if answer.content else None


async def refused(control: httpx.AsyncClient, status: int, method: str, path: str, **asked: Any) -> str:
    """Return the text that answers a request which is refused."""
    answer = await control.request(method, path, json=asked if method == "POST" else None)
    assert answer.status_code == status, answer.text
    return answer.json()["error"]


async def send(control: httpx.AsyncClient, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Send messages by the control port."""
    answer = await control.post("/messages", json=list(messages))
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_addresses(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """It tells where clients find name server and broker."""
    assert await done(control, "GET", "/") == {
        "name": "broker-a",
        "nameserver": broker.nameserver,
        "broker": broker.address,
        "grpc": broker.grpc_address,
        "version": "1.2.3",
    }


async def test_messages_are_sent_and_seen(control: httpx.AsyncClient) -> None:
    """Text, bytes and JSON, with all that a message has; tag and key choose."""
    await done(control, "POST", "/topics", name="orders", queues=2)
    places = await send(
        control,
        {"topic": "orders", "body": "größer", "tags": "paid", "keys": ["a", "b"], "properties": {"n": "1"}, "queue": 1},
        {"topic": "orders", "json": None, "queue": 0},
        {"topic": "orders", "body_base64": "/wA=", "queue": 0},
    )
    assert [(place["status"], place["queue_id"], place["queue_offset"]) for place in places] == [
        ("SEND_OK", 1, 0),
        ("SEND_OK", 0, 0),
        ("SEND_OK", 0, 1),
    ]
    seen = await done(control, "GET", "/messages?topic=orders")
    assert [(one["body"], one["body_base64"]) for one in seen] == [
        ("null", "bnVsbA=="),
        (None, "/wA="),
        ("größer", "Z3LDtsOfZXI="),
    ]
    [paid] = await done(control, "GET", "/messages?topic=orders&tag=paid")
    assert (paid["tags"], paid["keys"], paid["properties"]["n"], paid["queue_id"]) == ("paid", ["a", "b"], "1", 1)
    assert (paid["queue_offset"], paid["reconsume_times"]) == (0, 0)
    assert paid["message_id"] == places[0]["message_id"]
    assert 0 < paid["born_at_ms"] <= paid["stored_at_ms"] + 1
    assert await done(control, "GET", "/messages?topic=orders&key=b") == [paid]
    assert await send(control) == []


async def test_messages_are_sent_all_or_none(control: httpx.AsyncClient) -> None:
    """One that is none is named by its place, and nothing is sent."""
    await done(control, "POST", "/topics", name="orders")
    for wrong, told in (
        ({}, "a message has one of body, body_base64 and json - at `$[1]`"),
        ({"body": "x", "json": 1}, "a message has one of body, body_base64 and json - at `$[1]`"),
        ({"body": "x", "keys": ["a b"]}, "key 'a b' is empty or holds a blank, which separates keys - at `$[1]`"),
        ({"body": "x", "queue": -1}, "the body: Expected `int` >= 0 - at `$[1].queue`"),
    ):
        answer = await control.post("/messages", json=[{"topic": "orders", "body": "x"}, {"topic": "orders", **wrong}])
        assert (answer.status_code, answer.json()) == (400, {"error": told})
    assert await done(control, "GET", "/messages?topic=orders") == []


async def test_topics_and_groups_of_a_test(control: httpx.AsyncClient) -> None:
    """Their names are made up from that of the test; illegal ones are refused as the broker says it."""
    await done(control, "POST", "/test", name="billing pays")
    assert await done(control, "POST", "/topics") == {"name": "billing-pays-1"}
    assert await done(control, "POST", "/groups") == {"name": "billing-pays-2"}
    assert await done(control, "POST", "/groups", name="g") == {"name": "g"}
    assert await done(control, "GET", "/lag?group=g") == {"total": 0, "queues": []}
    assert "a b" in await refused(control, 400, "POST", "/topics", name="a b")


async def test_expectations(control: httpx.AsyncClient) -> None:
    """A check passes, or tells the nearest messages and what differs."""
    await send(control, {"topic": "t", "json": {"n": 1}, "tags": "a", "keys": ["k"], "properties": {"p": "1"}})
    await done(control, "POST", "/expect", topic="t", json={"n": 1}, tags="a", keys=["k"], properties={"p": "1"})
    await done(control, "POST", "/expect", topic="t", body='{"n": 1}', times=1)
    await done(control, "POST", "/expect", topic="t", body_base64="eyJuIjogMX0=")
    assert "json is {'n': 1}" in await refused(control, 409, "POST", "/expect", topic="t", json={"n": 2})
    assert "tags are 'a'" in await refused(control, 409, "POST", "/expect", topic="t", tags=None)
    assert "2 messages" in await refused(control, 409, "POST", "/expect", topic="t", times=2)
    assert "one body" in await refused(control, 400, "POST", "/expect", topic="t", body="", body_base64="")
    assert "no topic 'u'" in await refused(control, 404, "POST", "/expect", topic="u")


async def test_a_group_is_looked_at_and_waited_for(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """What it was given, what it has left, and what it has given up."""
    await done(control, "POST", "/topics", name="orders", queues=1)
    await done(control, "POST", "/groups", name="billing")
    await send(control, {"topic": "orders", "body": "1"}, {"topic": "orders", "body": "2"})
    inbox = Inbox()
    late = await refused(control, 504, "POST", "/wait/consumed", group="billing", timeout=0)
    assert late == "group 'billing' has not consumed everything in 0 ms: it has no members"
    async with push_consumer(broker.nameserver, inbox, group="billing", topic="orders"):
        await done(control, "POST", "/wait/consumed", group="billing")
        await done(control, "POST", "/wait/idle")
    assert await done(control, "GET", "/lag?group=billing") == {"total": 0, "queues": []}
    assert await done(control, "GET", "/in-flight?group=billing") == []
    assert await done(control, "GET", "/dead-letters?group=billing") == []
    await send(control, {"topic": "orders", "body": "3"})
    left = await done(control, "GET", "/lag?group=billing")
    assert left == {"total": 1, "queues": [{"topic": "orders", "queue_id": 0, "messages": 1}]}
    [waiting] = await done(control, "GET", "/messages?topic=orders&group=billing")
    assert waiting["body"] == "3"
    for look in ("lag", "in-flight", "dead-letters"):
        assert "no consumer group 'biling'" in await refused(control, 404, "GET", f"/{look}?group=biling")


async def test_messages_are_waited_for(control: httpx.AsyncClient) -> None:
    """They are answered when they are there; what is too late is told, and that there is no such topic."""
    await send(control, {"topic": "t", "body": "1", "tags": "a", "keys": ["k"]})
    [found] = await done(control, "POST", "/wait/messages", topic="t", tag="a", key="k")
    assert found["body"] == "1"
    late = await refused(control, 504, "POST", "/wait/messages", topic="t", count=2, timeout=0)
    assert late == "1 of 2 messages came to 't' in 0 ms"
    assert "no topic 'u'" in await refused(control, 404, "POST", "/wait/messages", topic="u", timeout=0)


async def test_transactions_are_seen(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """Those that nobody has decided about, with the message that was sent."""
    async with TransactionProducer("payers", broker.nameserver, listener=Undecided()) as producer:
        await producer.send_in_transaction(Message("payments", b"7"))
    [transaction] = await done(control, "GET", "/transactions")
    assert transaction["message"]["topic"] == "payments"
    assert (transaction["producer_group"], transaction["check_count"]) == ("payers", 0)


async def test_requests_are_seen(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """What a client has asked, decoded, since the test began."""
    await send(control, {"topic": "t", "body": "before"})
    await done(control, "POST", "/test", name="test")
    async with Producer("shop", nameserver=broker.nameserver) as producer:
        await producer.send(Message("t", b"1"))
    seen = await done(control, "GET", "/requests?on=send")
    [request] = seen["requests"]
    assert (request["topics"], request["groups"], request["state"]) == (["t"], ["shop"], "answered")
    assert (request["answer"], request["answer_name"], request["body_base64"]) == (0, "SUCCESS", "MQ==")
    assert seen["forgotten"] == 0
    assert (await done(control, "GET", "/requests?on=send&topic=u"))["requests"] == []
    assert (await done(control, "GET", "/requests?group=shop"))["requests"]
    assert "did you mean send" in await refused(control, 400, "GET", "/requests?on=sned")


async def test_time_moves(control: httpx.AsyncClient) -> None:
    """A delayed message comes at its time; a frozen clock stands."""
    await send(control, {"topic": "t", "body": "late", "delay_level": 18})
    before = await done(control, "POST", "/clock/freeze")
    assert before["is_frozen"]
    assert await done(control, "GET", "/clock") == before
    moved = await done(control, "POST", "/clock/advance", hours=2, seconds=1.5)
    assert moved["now_ms"] == before["now_ms"] + 7_201_500
    assert moved["now"].endswith("Z")
    await done(control, "POST", "/wait/messages", topic="t", timeout=0)
    assert not (await done(control, "POST", "/clock/resume"))["is_frozen"]
    assert ">= 0.0 - at `$.hours`" in await refused(control, 400, "POST", "/clock/advance", hours=-1)


async def test_faults_are_met(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """A request meets one, which counts; who waits for that is answered; it is removed."""
    added = await done(control, "POST", "/faults", on="send", answer="DROP", topic="t", times=None)
    assert added == {"id": 1, "fault": "send of topic t: dropped", "hits": 0, "optional": False}
    late = await refused(control, 504, "POST", "/faults/1/wait", timeout=0)
    assert late.startswith("fault 1 was met 0 times, not 1, in 0 s")
    async with Producer("shop", nameserver=broker.nameserver) as producer:
        with pytest.raises(RemotingError):
            await producer.send(Message("t", b"1"), timeout_ms=50)
    assert (await done(control, "POST", "/faults/1/wait"))["hits"] >= 1
    assert [fault["id"] for fault in await done(control, "GET", "/faults")] == [1]
    assert (await done(control, "GET", "/faults/1"))["hits"] >= 1
    await done(control, "DELETE", "/faults/1")
    assert await refused(control, 404, "GET", "/faults/1") == "there is no fault 1, these are: none"
    assert "no fault 1" in await refused(control, 404, "DELETE", "/faults/1")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"answer": "SYSTEM_BUSY", "delay_ms": 5}, "any request: answered SYSTEM_BUSY, 5 ms late"),
        ({"answer": 2, "remark": "no"}, "any request: answered 2"),
        ({"answer": "CLOSE", "group": "g", "client": "c", "after": 2}, "of group g by client c after the first 2"),
        ({"on": "pull", "answer": "LOSE_ANSWER"}, "pull: served, its answer lost"),
        ({"disk": "full"}, "the disk is full"),
        ({"disk": "slow", "delay_ms": 9}, "flushes take 9 ms"),
        ({"disk": "failing"}, "flushes fail"),
    ],
)
async def test_faults_of_each_kind(control: httpx.AsyncClient, asked: dict[str, Any], told: str) -> None:
    """They are told in words; an optional one that nothing meets is no failure."""
    added = await done(control, "POST", "/faults", optional=True, **asked)
    assert told in added["fault"]
    await done(control, "DELETE", "/test")
    assert await done(control, "GET", "/faults") == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, "nothing is to go wrong: give an answer, or delay_ms"),
        ({"answer": "SYSTEM_BUSYY"}, "no answer is called 'SYSTEM_BUSYY'; did you mean SYSTEM_BUSY? - at `$.answer`"),
        ({"on": "sendd", "answer": "DROP"}, "no operation is called 'sendd'; did you mean send?"),
        ({"disk": "full", "on": "send"}, "a fault of the disk is met by no request: disk goes without on"),
        ({"disk": "full", "delay_ms": 1}, "delay_ms goes with a slow disk, not with one that is full"),
        ({"disk": "slow"}, "delay_ms is 0, the least is 1"),
        ({"disk": "wet"}, "the body: Invalid enum value 'wet' - at `$.disk`"),
    ],
)
async def test_faults_that_cannot_be(control: httpx.AsyncClient, asked: dict[str, Any], told: str) -> None:
    """The text says why."""
    assert await refused(control, 400, "POST", "/faults", **asked) == told


async def test_unmet_fault_fails_the_test(control: httpx.AsyncClient) -> None:
    """The end of the test is refused with what was not met, and undone all the same; the next one starts clean."""
    await done(control, "POST", "/test", name="one")
    await done(control, "POST", "/faults", on="send", answer="DROP")
    told = await refused(control, 409, "DELETE", "/test")
    assert told.startswith("no request has met the fault: send: dropped")
    await send(control, {"topic": "t", "body": "1"})
    await done(control, "DELETE", "/test")


async def test_test_that_was_not_ended(control: httpx.AsyncClient) -> None:
    """The next one ends it, and tells what was wrong with it."""
    assert await done(control, "POST", "/test", name="one") == {"name": "one", "left_behind": []}
    await done(control, "POST", "/faults", on="send", answer="DROP")
    begun = await done(control, "POST", "/test", name="two")
    assert begun["left_behind"][0].startswith("no request has met the fault")
    assert await done(control, "GET", "/faults") == []


async def test_broker_stops_and_starts(control: httpx.AsyncClient) -> None:
    """Whatever asks a stopped broker is refused, in no time; what was stored is there again."""
    await send(control, {"topic": "t", "body": "1"})
    for end in ("stop", "kill"):
        await done(control, "POST", f"/broker/{end}")
        down = "broker-a does not run: restart starts it again"
        assert await refused(control, 409, "GET", "/messages?topic=t") == down
        assert await refused(control, 409, "POST", "/topics") == down
        assert await refused(control, 409, "POST", "/wait/idle") == down
        assert await refused(control, 409, "POST", "/wait/messages", topic="t", timeout=0) == down
        answer = await control.post("/messages", json=[{"topic": "t", "body": "1"}])
        assert (answer.status_code, answer.json()) == (409, {"error": down})
        await done(control, "POST", "/broker/restart")
        assert len(await done(control, "GET", "/messages?topic=t")) == 1
    await done(control, "POST", "/broker/stop")
    await done(control, "DELETE", "/test")
    assert len(await done(control, "GET", "/messages?topic=t")) == 1


async def test_broker_that_cannot_start(control: httpx.AsyncClient) -> None:
    """It is told why; the end of the test mends it."""
    await done(control, "POST", "/broker/stop")
    await done(control, "POST", "/faults", disk="full")
    assert "No space left on device" in await refused(control, 409, "POST", "/broker/restart")
    await done(control, "DELETE", "/test")
    await send(control, {"topic": "t", "body": "1"})


async def test_reset_empties_the_broker(control: httpx.AsyncClient) -> None:
    """Topics are gone, and moved time."""
    await send(control, {"topic": "t", "body": "1"})
    moved = await done(control, "POST", "/clock/advance", days=1)
    await done(control, "POST", "/broker/reset")
    assert "no topic 't'" in await refused(control, 404, "GET", "/messages?topic=t")
    assert (await done(control, "GET", "/clock"))["now_ms"] < moved["now_ms"]


async def test_name_server_stops_and_starts(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """Clients find it again where it was."""
    await done(control, "POST", "/nameserver/stop")
    answer = await control.post("/messages", json=[{"topic": "t", "body": "1"}])
    assert answer.status_code == 409
    assert broker.nameserver in answer.json()["error"]
    await done(control, "POST", "/nameserver/start")
    await send(control, {"topic": "t", "body": "1"})


async def test_second_broker(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """It is at the same name server until the test ends; settings that cannot be are refused."""
    added = await done(control, "POST", "/brokers", settings={"autoCreateTopicEnable": "false"})
    assert (added["name"], added["nameserver"]) == ("broker-b", broker.nameserver)
    assert added["broker"] != broker.address
    assert "already" in await refused(control, 400, "POST", "/brokers")
    await done(control, "POST", "/topics", name="u", broker="broker-b")
    assert await done(control, "GET", "/messages?topic=u&broker=broker-b") == []
    await refused(control, 404, "GET", "/messages?topic=u")
    await done(control, "POST", "/broker/stop", broker="broker-b")
    told = "broker-b does not run: restart starts it again"
    assert await refused(control, 409, "GET", "/transactions?broker=broker-b") == told
    await done(control, "POST", "/broker/restart", broker="broker-b")
    assert await done(control, "GET", "/transactions?broker=broker-b") == []
    told = "there is no broker 'broker-c', these are: broker-a, broker-b"
    assert await refused(control, 404, "POST", "/wait/idle", broker="broker-c") == told
    told = await refused(control, 400, "POST", "/brokers", name="c", settings={"flushDiskType": "NEVER"})
    assert told.startswith("flushDiskType")
    assert told.endswith(" - at `$.settings`")
    slave = await done(control, "POST", "/brokers", name="broker-a", settings={"brokerRole": "SLAVE", "brokerId": "1"})
    assert slave["name"] == "broker-a-1"
    await done(control, "POST", "/broker/kill", broker="broker-a-1")
    await done(control, "DELETE", "/test")
    assert "no broker 'broker-b'" in await refused(control, 404, "POST", "/wait/idle", broker="broker-b")
    assert (await done(control, "POST", "/brokers"))["name"] == "broker-b"


async def test_client_is_cut_off(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """Nothing passes until the wire is whole again, at the latest at the end of the test."""
    async with Producer("shop", nameserver=broker.nameserver) as producer:
        await producer.send(Message("t", b"1"))
        client = next(
            request["client"]
            for request in (await done(control, "GET", "/requests?on=heartbeat"))["requests"]
            if request["groups"] == ["shop"]
        )
        cut = await done(control, "POST", "/partitions", client=client)
        assert cut == {"id": 1, "client": client}
        with pytest.raises(RemotingError):
            await producer.send(Message("t", b"2"), timeout_ms=50)
        await done(control, "DELETE", "/partitions/1")
        await producer.send(Message("t", b"3"))
        assert "no partition 1" in await refused(control, 404, "DELETE", "/partitions/1")
        await done(control, "POST", "/partitions", client=client)
        await done(control, "DELETE", "/test")
        await producer.send(Message("t", b"4"))
    assert "no client 'x' is connected" in await refused(control, 404, "POST", "/partitions", client="x")


async def test_snapshot_and_back(control: httpx.AsyncClient, broker: RocketmqBroker) -> None:
    """What the broker kept is there again, and nothing else; the file is that of the fixture."""
    await send(control, {"topic": "t", "body": "kept"})
    taken = await control.get("/snapshot")
    assert (taken.status_code, taken.headers["content-type"]) == (200, "application/x-tar")
    assert int(taken.headers["content-length"]) == len(taken.content)
    await send(control, {"topic": "t", "body": "later"}, {"topic": "u", "body": "later"})
    restored = await control.put("/snapshot", content=taken.content, headers={"Content-Type": "application/x-tar"})
    assert (restored.status_code, restored.content) == (204, b"")
    assert [one["body"] for one in await done(control, "GET", "/messages?topic=t")] == ["kept"]
    assert "no topic 'u'" in await refused(control, 404, "GET", "/messages?topic=u")
    assert await asyncio.to_thread(os.listdir, broker.store.parent) == [broker.store.name]
    await done(control, "POST", "/broker/reset")
    path = broker.store.parent / "snapshot.tar"
    await asyncio.to_thread(path.write_bytes, taken.content)
    await asyncio.to_thread(broker.restore, path)
    assert [one["body"] for one in await done(control, "GET", "/messages?topic=t")] == ["kept"]


@pytest.mark.parametrize("change", ["cut", "other", "empty"])
async def test_snapshot_that_is_none(control: httpx.AsyncClient, change: str) -> None:
    """It is refused, and the broker goes on as before."""
    await send(control, {"topic": "t", "body": "kept"})
    taken = (await control.get("/snapshot")).content
    content = {"cut": taken[: len(taken) // 2], "other": b"no tar" * 1_000, "empty": b""}[change]
    answer = await control.put("/snapshot", content=content, headers={"Content-Type": "application/x-tar"})
    assert answer.status_code == 400
    assert "snapshot" in answer.json()["error"]
    assert len(await done(control, "GET", "/messages?topic=t")) == 1
    answer = await control.put("/snapshot", content=taken, headers={"Content-Type": "application/json"})
    assert (answer.status_code, "must be application/x-tar" in answer.text) == (415, True)


async def test_what_is_begun_is_done(
    broker: RocketmqBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A restart for which nobody waits any more has its turn to its end, and what comes of it is logged."""
    begun, may_end, done_in_turn = threading.Event(), threading.Event(), list[str]()

    def restart() -> None:
        begun.set()
        may_end.wait()
        done_in_turn.append("restart")
        raise RuntimeError("broken")

    monkeypatch.setattr(broker, "restart", restart)
    monkeypatch.setattr(broker, "reset", lambda: done_in_turn.append("reset"))
    caplog.set_level(logging.INFO)
    operations = ControlOperations(broker, "1")
    async with asyncio.TaskGroup() as tasks:
        left = tasks.create_task(operations.restart_broker(AtBroker()))
        await asyncio.to_thread(begun.wait)
        left.cancel()
        tasks.create_task(operations.reset_broker(AtBroker()))
        may_end.set()
    assert left.cancelled()
    assert done_in_turn == ["restart", "reset"]
    assert "nobody waits for an answer any more: broken" in caplog.text
