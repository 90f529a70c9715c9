"""`rocketlet topic` and `rocketlet group` against a running cluster."""

import io
import json
from collections.abc import Awaitable, Callable

import pytest

from rocketlet.client import PullConsumer

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
    assert [each["queue"] for each in shown["queues"]] == [0, 1, 2]
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
        [client] = json.loads(await done_elsewhere("client", "show", consumer.client_id, "--json"))
        assert client["subscriptions"][topic] == "a || b"
        assert name in json.loads(await done_elsewhere("topic", "show", topic, "--json"))["groups"]
