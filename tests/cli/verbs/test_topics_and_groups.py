"""`rocketlet topic` and `rocketlet group` against a running cluster."""

import io
import json
from collections.abc import Awaitable, Callable

import pytest
from command_line import run_elsewhere
from raw_calls import heartbeat_body, open_caller
from subscribed import pull_consumer

from rocketlet.client import Admin, Message, Producer, PullConsumer, Session
from rocketlet.remoting.codec.request_codes import RequestCode

Done = Callable[..., str]
Elsewhere = Callable[..., Awaitable[str]]
Failed = Callable[..., str]
NewName = Callable[..., str]


class Terminal(io.StringIO):
    """Somebody who can be asked."""

    def isatty(self) -> bool:
        """Say that this is a terminal."""
        return True


def rows(printed: str) -> list[dict[str, str]]:
    """Return the rows of the first table that was printed into a pipe."""
    heading, *lines = printed.split("\n\n", 1)[0].splitlines()
    return [dict(zip(heading.split("\t"), line.split("\t"), strict=True)) for line in lines]


def test_topic_is_made_listed_shown_and_deleted(done: Done, failed: Failed, new_name: NewName) -> None:
    """It is there with what it was made with; deleting tells what goes, and it is gone."""
    name = new_name()
    made = done("topic", "create", name, "--read-queues", 3, "--write-queues", 2, "--attribute", "message.type=NORMAL")
    assert made == f"created topic {name} on broker-a\n"
    assert name in done("topic", "list").splitlines()
    shown = json.loads(done("topic", "show", name, "--json"))
    assert shown["brokers"] == [
        {
            "broker": "broker-a",
            "read_queues": 3,
            "write_queues": 2,
            "permission": "rw",
            "attributes": {"message.type": "NORMAL"},
        }
    ]
    assert [(each["queue"], each["last_stored"]) for each in shown["queues"]] == [(number, None) for number in range(3)]
    done("message", "send", name, "x", "--queue", "1")
    assert "broker-a\t1\t0\t1\t1\t20" in done("topic", "show", name)
    assert done("topic", "delete", name, "--yes") == f"deleted topic {name} on broker-a\n"
    assert failed(1, "topic", "show", name) == f"no broker has the topic {name}"
    assert name not in done("topic", "list").splitlines()


def test_system_topics_are_listed_when_asked_for(done: Done, new_topic: NewName) -> None:
    """And those of retries and of brokers themselves."""
    name = new_topic()
    few, all_ = done("topic", "list").splitlines(), done("topic", "list", "--all").splitlines()
    assert "TBW102" not in few
    assert {"TBW102", "DefaultCluster", "broker-a", name} <= set(all_)
    in_cluster = json.loads(done("topic", "list", "--cluster", "DefaultCluster", "--json"))
    assert {"topic": name} in in_cluster


def test_topic_is_changed(done: Done, failed: Failed, new_topic: NewName) -> None:
    """What is not named stays; a change of nothing, and a topic that is there already, are refused."""
    name = new_topic(2)
    done("topic", "update", name, "--permission", "r", "--attribute", "message.type=FIFO")
    [row] = rows(done("topic", "update", name, "--queues", 4))
    assert row == {
        "broker": "broker-a",
        "read queues": "4",
        "write queues": "4",
        "permission": "r",
        "attributes": "message.type=FIFO",
    }
    done("topic", "update", name, "--drop-attribute", "message.type")
    [settings] = json.loads(done("topic", "show", name, "--json"))["brokers"]
    assert (settings["attributes"], settings["permission"]) == ({}, "r")
    assert failed(1, "topic", "create", name) == f"topic {name} exists; rocketlet topic update changes it"
    assert "nothing is to be changed" in failed(2, "topic", "update", name)
    assert "both" in failed(2, "topic", "update", name, "--queues", 1, "--read-queues", 2)


@pytest.mark.parametrize(
    ("code", "arguments", "named"),
    [
        (2, ["topic"], "show"),
        (2, ["topic", "dance"], "dance"),
        (2, ["topic", "show"], "TOPIC"),
        (2, ["topic", "create", "x", "--queues", "0"], "--queues"),
        (2, ["topic", "create", "x", "--permission", "all"], "--permission"),
        (2, ["topic", "create", "x", "--attribute", "none"], "--attribute"),
        (1, ["topic", "create", "a b"], "illegal characters"),
        (1, ["topic", "create", "x", "--cluster", "nowhere"], "there is no cluster nowhere, but DefaultCluster"),
        (1, ["topic", "create", "x", "--broker", "nobody"], "no master of the broker nobody, but of broker-a"),
        (1, ["topic", "create", "x", "--attribute", "no.such=1"], "no.such"),
        (1, ["topic", "update", "missing", "--queues", "1"], "no broker has the topic missing"),
        (1, ["topic", "delete", "missing", "--yes"], "no broker has the topic missing"),
        (1, ["topic", "delete", "SCHEDULE_TOPIC_XXXX", "--yes"], "SCHEDULE_TOPIC_XXXX is a system topic"),
        (2, ["topic", "delete", "x"], "--yes is needed"),
        (2, ["group", "create", "a b"], "illegal characters"),
        (2, ["group", "create", "g", "--retries", "-1"], "--retries"),
        (2, ["group", "update", "g"], "nothing is to be changed"),
        (1, ["group", "update", "nobody", "--retries", "1"], "no broker knows the group nobody"),
        (1, ["group", "show", "nobody"], "no broker knows the group nobody"),
        (1, ["group", "members", "nobody"], "no broker knows the group nobody"),
        (1, ["group", "delete", "nobody", "--yes"], "no broker knows the group nobody"),
        (2, ["group", "delete", "nobody"], "--yes is needed"),
    ],
)
def test_bad_requests_are_told_in_one_line(code: int, arguments: list[str], named: str, verb: Done) -> None:
    """With 2 for what cannot be asked at all, with 1 for what is refused or not there."""
    ended, out, err = verb(*arguments)
    assert (ended, out) == (code, "")
    assert named in err


def test_question_names_what_is_deleted(
    new_topic: NewName, done: Done, verb: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anything but a yes leaves it alone, with exit code 130."""
    name = new_topic()
    done("message", "send", name, "x")
    answers, questions = iter(["n", "y"]), list[str]()

    def answer(question: str) -> str:
        questions.append(question)
        return next(answers)

    monkeypatch.setattr("rocketlet.cli.verbs.connecting.sys.stdin", Terminal())
    monkeypatch.setattr("click.termui.visible_prompt_func", answer)
    assert verb("topic", "delete", name)[:2] == (130, "")
    monkeypatch.setattr("click.termui.visible_prompt_func", answer)
    assert name in done("topic", "list")
    assert verb("topic", "delete", name)[:2] == (0, f"deleted topic {name} on broker-a\n")
    assert len(questions) == 2


def test_group_is_made_changed_and_deleted(done: Done, failed: Failed, new_name: NewName) -> None:
    """It has what it was made with, and what was changed."""
    name = new_name()
    assert done("group", "create", name, "--retries", 3, "--broadcast", "off") == f"created group {name} on broker-a\n"
    assert failed(1, "group", "create", name) == f"group {name} exists; rocketlet group update changes it"
    assert name in done("group", "list").splitlines()
    assert "TOOLS_CONSUMER" not in done("group", "list")
    assert "TOOLS_CONSUMER" in done("group", "list", "--all")
    [row] = rows(done("group", "update", name, "--retries", 0, "--consume", "off"))
    expected = {"consume": "no", "broadcast": "no", "retries": "0", "retry queues": "1", "notify": "yes"}
    assert row == {"broker": "broker-a", **expected}
    shown = done("group", "show", name)
    assert rows(shown) == [row]
    assert shown.endswith("no member is online\n")
    assert done("group", "delete", name, "--with-offsets", "--yes").startswith(f"deleted group {name} and its offsets")
    assert name not in done("group", "list").splitlines()


async def test_members_are_listed(namesrv: str, done_elsewhere: Elsewhere, new_name: NewName) -> None:
    """Who they are, from where, and what they have subscribed to; as clients, too."""
    topic, name = new_name(), new_name()
    await done_elsewhere("topic", "create", topic)
    consumer = PullConsumer(name, namesrv)
    consumer.subscribe(topic, "a || b")
    async with consumer:
        [member] = json.loads(await done_elsewhere("group", "members", name, "--json"))
        assert (member["client_id"], member["language"]) == (consumer.client_id, "PYTHON")
        shown = json.loads(await done_elsewhere("group", "show", name, "--json"))
        assert {"topic": topic, "expression": "a || b"} in shown["subscriptions"]
        assert shown["message_model"] == "CLUSTERING"
        assert "1 online, CLUSTERING" in await done_elsewhere("group", "show", name)
        listed = json.loads(await done_elsewhere("client", "list", "--json"))
        assert [each["group"] for each in listed if each["client_id"] == consumer.client_id] == [name]
        assert name in json.loads(await done_elsewhere("topic", "show", topic, "--json"))["groups"]


async def test_clients_are_listed_by_what_they_do(namesrv: str, done_elsewhere: Elsewhere, new_name: NewName) -> None:
    """A client that sends and consumes has a row for each group; one role can be asked for."""
    topic, name = new_name(), new_name()
    await done_elsewhere("topic", "create", topic)
    async with Session(namesrv) as session, Producer(f"{name}-p", session=session) as producer:
        await producer.send(Message(topic, b"x"))
        consumer = PullConsumer(name, session=session)
        consumer.subscribe(topic)
        async with consumer:
            await session.heartbeat()
            for options, expected in (
                ((), [("consumer", name), ("producer", f"{name}-p")]),
                (("--role", "consumer"), [("consumer", name)]),
                (("--role", "producer"), [("producer", f"{name}-p")]),
            ):
                listed = json.loads(await done_elsewhere("client", "list", *options, "--json"))
                own = [each for each in listed if each["client_id"] == session.client_id]
                assert [(each["role"], each["group"]) for each in own] == expected
                assert {each["language"] for each in own} == {"PYTHON"}
                assert all(each["address"].startswith("127.0.0.1:") for each in own)
            table = await done_elsewhere("client", "list")
            assert f"{session.client_id}\t" in table
            shown = json.loads(await done_elsewhere("client", "show", session.client_id, "--json"))
    assert [(each["role"], "running" in each) for each in shown] == [("consumer", True), ("producer", False)]


async def test_client_tells_of_itself(namesrv: str, done_elsewhere: Elsewhere, new_name: NewName) -> None:
    """Its settings and queues, what it has committed and holds of them, and its stacks where they are asked for."""
    topic, name = new_name(), new_name()
    await done_elsewhere("topic", "create", topic, "--queues", "1")
    async with Producer("pg", namesrv) as producer:
        for body in (b"1", b"2", b"3"):
            await producer.send(Message(topic, body))
    consumer = pull_consumer(namesrv, group=name, topic=topic, commits_itself=False)
    async with consumer:
        (first,) = await consumer.poll(max_messages=1)
        await consumer.commit({first.queue: 1})
        [shown] = json.loads(await done_elsewhere("client", "show", consumer.client_id, "--json"))
        assert (shown["role"], shown["group"], shown["subscriptions"][topic]) == ("consumer", name, "*")
        told = shown["running"]
        assert told["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
        assert told["stacks"] is None
        [queue] = told["queues"]
        assert (queue["topic"], queue["broker"], queue["queue"]) == (topic, "broker-a", 0)
        assert (queue["committed"], queue["buffered"], queue["buffered_mib"], queue["locked"]) == (1, 2, 0, False)
        assert queue["pulled_at"] <= queue["consumed_at"]
        printed = await done_elsewhere("client", "show", consumer.client_id, "--stacks")
        assert f"\ngroup {name}\n" in printed
        assert "\nconsumerGroup\t" in printed
        assert f"\n{topic}\tbroker-a\t0\t1\t2\t0\tno\t" in printed
        assert "test_client_tells_of_itself" in printed


async def test_client_that_does_not_answer(namesrv: str, new_name: NewName) -> None:
    """What the brokers know of it is shown, and the exit code says that it was silent."""
    name = new_name()
    async with Admin(namesrv) as admin:
        [node] = await admin.brokers()
    async with open_caller(node.addresses[0]) as caller:
        beat = heartbeat_body(f"{name}-client", name, {"T": "*"})
        await caller.ask(RequestCode.HEART_BEAT, None, beat, version=1)  # too old to be asked
        code, out, err = await run_elsewhere("client", "show", f"{name}-client")
    assert code == 1
    assert rows(out)[0]["group"] == name
    assert err.startswith(f"rocketlet: the client does not answer for group {name}: ")
    assert err.count("\n") == 1
