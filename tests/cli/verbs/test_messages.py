"""`rocketlet message`, `offset`, `dlq`, `config`, `cluster` and `broker` against a running cluster."""

import json
import pathlib
import signal
import subprocess
from collections.abc import Callable

import pytest

Done = Callable[..., str]
Spawn = Callable[..., "subprocess.Popen[bytes]"]


def read(done: Done, *arguments: object) -> list[dict[str, object]]:
    """Return the messages that ``message tail --json`` prints."""
    return [json.loads(line) for line in done("message", "tail", *arguments, "--json").splitlines()]


def test_message_is_sent_found_and_shown(done: Done, failed: Done, new_topic: Done) -> None:
    """By key, by id, by place and by time, with tag, key, property and body."""
    topic = new_topic()
    options = ("--tag", "paid", "--key", "k1", "--property", "n=5", "--queue", "broker-a:1")
    [sent] = json.loads(done("message", "send", topic, '{"a":1}', *options, "--json"))
    assert (sent["queue"], sent["offset"], sent["status"]) == (1, 0, "SEND_OK")
    for way in (["--id", sent["message_id"]], ["--queue", "1", "--offset", "0"], ["--from", "-1h"]):
        [found] = json.loads(done("message", "query", topic, *way, "--json"))
        assert (found["body"], found["tags"], found["keys"], found["properties"]["n"]) == (
            '{"a":1}',
            "paid",
            ["k1"],
            "5",
        )
    shown = done("message", "show", topic, sent["offset_message_id"])
    assert '\nbody (JSON):\n{\n  "a": 1\n}\n' in shown
    assert f"topic {topic} has no message XYZ" in failed(1, "message", "show", topic, "XYZ")
    assert "no such message" in failed(1, "message", "query", topic, "--key", "none")


def test_files_and_lines_are_sent(done: Done, new_topic: Done, spawn: Spawn, tmp_path: pathlib.Path) -> None:
    """Each file as it is, also when it is no text; each line of standard input without its end."""
    topic = new_topic(1)
    (tmp_path / "f").write_bytes(b"\xff\n\x00")
    done("message", "send", topic, "--file", tmp_path / "f")
    sending = spawn("message", "send", topic)
    _, errors = sending.communicate(b"one\r\n\ntwo")
    assert sending.returncode == 1  # an empty line is no message
    assert b"line 2, after 1 were sent: " in errors
    sending = spawn("message", "send", topic)
    sending.communicate(b"three\nfour")
    assert sending.returncode == 0
    found = read(done, topic, "--from", "begin", "--until", "end")
    assert found[0]["body_base64"] == "/woA"
    assert [each["body"] for each in found[1:]] == ["one", "three", "four"]
    assert "ff 0a 00" in done("message", "show", topic, "--queue", 0, "--offset", 0)


def test_tail_takes_what_is_asked_for(done: Done, failed: Done, new_topic: Done) -> None:
    """From and until, count, tags, conditions, formats."""
    topic = new_topic(1)
    for number in range(4):
        tag = "odd" if number % 2 else "even"
        done("message", "send", topic, f"b{number}", "--tag", tag, "--property", f"n={number}")
    span = ("--from", "begin", "--until", "end")
    assert [each["body"] for each in read(done, topic, "--from", 1, "--until", 3)] == ["b1", "b2"]
    assert [each["body"] for each in read(done, topic, *span, "--tag", "odd")] == ["b1", "b3"]
    assert [each["body"] for each in read(done, topic, *span, "--sql", "n > 1")] == ["b2", "b3"]
    for count in (1, 3):
        found = read(done, topic, "--from", "begin", "--count", count)
        assert [each["body"] for each in found] == ["b0", "b1", "b2"][:count]
    form = r"{offset}\t{tags} {property:n}{{{body}}}\\\n"
    assert done("message", "tail", topic, *span, "--tag", "odd", "--format", form) == "1\todd 1{b1}\\\n3\todd 3{b3}\\\n"
    assert " broker-a:0@0 [even] b0\n" in done("message", "tail", topic, *span)
    for bad in (["--format", "{nope}"], ["--sql", "n >"], ["--from", "x"], ["--until", "begin"], ["--queue", "x"]):
        assert bad[0] in failed(2, "message", "tail", topic, *bad)


@pytest.mark.parametrize("end", ["SIGINT", "SIGTERM", "closed"])
def test_tail_ends_cleanly(end: str, done: Done, new_topic: Done, spawn: Spawn) -> None:
    """With a signal, and when its reader goes, even if nothing more comes: exit code 0 and no word."""
    topic = new_topic()
    done("message", "send", topic, "first")
    tail = spawn("message", "tail", topic, "--from", "begin")
    assert tail.stdout is not None
    assert tail.stderr is not None
    assert tail.stdout.readline().endswith(b" first\n")
    if end == "closed":
        tail.stdout.close()
    else:
        tail.send_signal(signal.Signals[end])
    assert (tail.wait(30), tail.stderr.read()) == (0, b"")


def test_offsets_are_shown_and_moved(done: Done, verb: Done, failed: Done, new_topic: Done, new_group: Done) -> None:
    """All queues or one, to begin, end, a time or an offset; what a queue does not have is refused; copied as well."""
    topic, group, other = new_topic(), new_group(), new_group()
    for queue in (0, 0, 1):
        done("message", "send", topic, "x", "--queue", queue)

    def committed(name: str) -> list[object]:
        return [each["committed"] for each in json.loads(done("offset", "show", name, topic, "--json"))["queues"]]

    for to, found in (("end", [2, 1]), ("begin", [0, 0]), ("+1h", [2, 1]), ("1", [1, 1])):
        done("offset", "reset", group, topic, "--to", to, "--yes")
        assert committed(group) == found
    done("offset", "reset", group, topic, "--to", "begin", "--queue", 0, "--yes")
    assert committed(group) == [0, 1]
    assert f"lag of {group}: 2" in done("offset", "show", group)
    assert verb("offset", "lag", group, "--most", 1)[0] == 1
    assert done("offset", "lag", group, "--most", 2).endswith(f"{group}\t{topic}\t2\t2\t0\n")
    done("offset", "copy", group, other, topic, "--yes")
    assert committed(other) == [0, 1]
    assert "has offsets from 0 to 1, not 2" in failed(1, "offset", "reset", group, topic, "--to", 2, "--yes")
    assert "--yes" in failed(2, "offset", "reset", group, topic, "--to", "end")
    assert "nobody" in failed(1, "offset", "show", "nobody")
    assert "nobody" in failed(1, "offset", "show", "nobody", topic)
    assert "nobody" in failed(1, "offset", "lag", "nobody")


def test_messages_and_dead_letters_are_sent_again(done: Done, failed: Done, new_topic: Done, new_group: Done) -> None:
    """A copy of a message in another topic; a dead letter goes to its group's retry topic with where it came from."""
    topic, target, group = new_topic(1), new_topic(1), new_group()
    [sent] = json.loads(done("message", "send", topic, "x", "--key", "k", "--json"))
    done("message", "resend", topic, sent["message_id"], "--to", target)
    assert [each["keys"] for each in read(done, target, "--from", "begin", "--until", "end")] == [["k"]]
    assert "nothing was sent" in failed(1, "message", "resend", topic, "none")
    assert "no dead letters" in failed(1, "dlq", "show", group)
    for name in (f"%DLQ%{group}", f"%RETRY%{group}"):
        done("topic", "create", name, "--queues", 1)
    done("message", "send", f"%DLQ%{group}", "dead", "--property", f"DLQ_ORIGIN_TOPIC={topic}")
    assert f"{group}\t1\t" in done("dlq", "list")
    [letter] = json.loads(done("dlq", "show", group, "--json"))
    assert letter["origin_topic"] == topic
    done("dlq", "resend", group, letter["message_id"])
    [again] = json.loads(done("message", "query", f"%RETRY%{group}", "--from", "-1h", "--json"))
    assert (again["body"], again["properties"]["RETRY_TOPIC"]) == ("dead", topic)
    assert "nothing was sent" in failed(1, "dlq", "resend", group, "none")


def test_servers_are_listed_and_set(done: Done, failed: Done) -> None:
    """Clusters, brokers, figures; a setting that is changed, and one that there is none of."""
    assert done("cluster", "list").endswith("DefaultCluster\t1\t1\t0\n")
    assert "DefaultCluster\tbroker-a\t0\tmaster\t127.0.0.1:" in done("cluster", "status")
    assert "DefaultCluster\tbroker-a\t0\tmaster\t127.0.0.1:" in done("broker", "list")
    assert json.loads(done("broker", "status", "broker-a", "--json"))["brokerActive"] == "true"
    done("config", "set", "maxMessageSize=65537", "--broker", "broker-a")
    assert done("config", "get", "maxMessageSize", "--broker", "broker-a") == "name\tvalue\nmaxMessageSize\t65537\n"
    assert "\torderMessageEnable\t" in done("config", "get", "orderMessageEnable", "--nameservers")
    assert failed(1, "config", "set", "nope=1", "--broker", "broker-a") == "broker broker-a has no setting nope"
    assert "--nameservers" in failed(2, "config", "get")
    assert "no client" in failed(1, "client", "show", "nobody")


def test_server_that_is_not_there_is_exit_code_3(failed: Done) -> None:
    """The address is named; options that contradict each other are 2."""
    assert "127.0.0.1:1" in failed(3, "topic", "list", "--namesrv", "127.0.0.1:1")
    assert "--secret-key" in failed(2, "topic", "list", "--access-key", "me")
    assert "--tls is not" in failed(2, "topic", "list", "--tls-trust", "x.pem")


def test_namespace_hides_other_topics(done: Done, new_name: Done) -> None:
    """What is made in it is listed in it, and outside under its whole name."""
    name = new_name()
    done("topic", "create", name, "--namespace", "ns")
    assert name in done("topic", "list", "--namespace", "ns").splitlines()
    assert f"ns%{name}" in done("topic", "list").splitlines()
    done("message", "send", name, "x", "--namespace", "ns")
    span = ("--from", "begin", "--until", "end")
    assert [each["topic"] for each in read(done, name, *span, "--namespace", "ns")] == [name]


def test_names_are_completed(new_topic: Done, spawn: Spawn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell is offered the topics that begin so."""
    name = new_topic()
    for variable, value in (
        ("_ROCKETLET_COMPLETE", "bash_complete"),
        ("COMP_WORDS", f"rocketlet topic show {name[:-1]}"),
        ("COMP_CWORD", "3"),
    ):
        monkeypatch.setenv(variable, value)
    assert name.encode() in spawn().communicate()[0]
