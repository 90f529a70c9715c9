"""The tools of mqadmin that send, find and print messages."""

import pathlib
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, Queue, Sent
from interop.driver import Driver
from interop.parts import mqadmin
from interop.servers import Server
from interop.toolchain import OLD_JAVA_VERSION, java_command
from interop.versions import JavaDriver, every_java
from polling import ask_until

NewTopic = Callable[..., str]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    """Return a topic of one queue."""
    return new_topic(1)


@pytest.fixture
def sent(java: Driver, server: Server, topic: str) -> list[Sent]:
    """Return what three messages with keys and tags gave."""
    with Producer(java, namesrv=server.namesrv) as producer:
        messages = [
            Outgoing(b"body-%d" % number, keys=["k", f"k{number}"], tags="ab"[number % 2]) for number in range(3)
        ]
        results = producer.send_all(topic, *messages, queue=Queue(topic, "broker-a", 0))
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        while len(reader.query(topic, "k")) < 3:
            pass  # the index follows the log
    return results


@pytest.mark.feature("D15")
@every_java
def test_message_is_sent_and_consumed(java: Driver, server: Server, topic: str) -> None:
    """To any queue or to one; what was sent is printed by who consumes it, and no offset moves."""
    about = ["-n", server.namesrv, "-t", topic]
    for more in ([], ["-b", "broker-a", "-i", "0"]):
        printed = mqadmin(java, "sendMessage", *about, "-p", "hello", "-k", "key", "-c", "tag", *more)
        assert re.search(r"(?m)^broker-a +0 +SEND_OK +[0-9A-F]{32,56}", printed), printed
    for more in ([], ["-b", "broker-a"], ["-b", "broker-a", "-i", "0"], ["-b", "broker-a", "-i", "0", "-o", "1"]):
        printed = mqadmin(java, "consumeMessage", *about, *more)
        assert printed.count("BODY: hello") == (1 if "-o" in more else 2), printed


@pytest.mark.feature("D15")
@every_java
def test_time_of_a_send(java: Driver, server: Server, topic: str) -> None:
    """Each of five messages has its line, and all of them an average."""
    printed = mqadmin(java, "checkMsgSendRT", "-n", server.namesrv, "-t", topic, "-a", "5", "-s", "16")
    assert len(re.findall(r"(?m)^broker-a +0 +true +\d+", printed)) == 5, printed
    assert re.search(r"Avg RT: \d+[.,]\d\d", printed)


@pytest.mark.feature("D14", "Q4", "Q5", "Q6")
@every_java
def test_message_is_found(java: JavaDriver, server: Server, topic: str, sent: list[Sent]) -> None:
    """By key, unique key, offset id, and its place in a queue."""
    about = ["-n", server.namesrv, "-t", topic]
    printed = mqadmin(java, "queryMsgByKey", *about, "-k", "k1")
    assert [line.split()[:3] for line in printed.splitlines()[1:]] == [[sent[1].msg_id, "0", "1"]]
    printed = mqadmin(java, "queryMsgByKey", *about, "-k", "k")
    assert {line.split()[0] for line in printed.splitlines()[1:]} == {result.msg_id for result in sent}
    by_id = ["-n", server.namesrv] if java.version == OLD_JAVA_VERSION else about
    for printed in (
        mqadmin(java, "queryMsgByUniqueKey", *about, "-i", sent[1].msg_id),
        mqadmin(java, "queryMsgById", *by_id, "-i", sent[1].offset_msg_id),
        mqadmin(java, "queryMsgByOffset", *about, "-b", "broker-a", "-i", "0", "-o", "1"),
    ):
        assert re.search(r"(?m)^Keys: +\[k k1\]$", printed), printed
        assert re.search(r"(?m)^Tags: +\[b\]$", printed)
        assert re.search(r"(?m)^Queue Offset: +1$", printed)


@pytest.mark.feature("D14", "Q7", "Q8")
@every_java
def test_messages_are_printed(java: Driver, server: Server, topic: str, sent: list[Sent]) -> None:
    """All of a topic, those of one queue, of one tag, and of a span of time."""
    about = ["-n", server.namesrv, "-t", topic, "-d", "true"]
    one_queue = [*about, "-a", "broker-a", "-i", "0", "-p", "true"]
    for printed in (mqadmin(java, "printMsg", *about), mqadmin(java, "printMsgByQueue", *one_queue)):
        assert re.findall(r"BODY: (body-\d)", printed) == ["body-0", "body-1", "body-2"], printed
    for printed in (
        mqadmin(java, "printMsg", *about, "-s", "b"),
        mqadmin(java, "printMsgByQueue", *one_queue, "-s", "b"),
    ):
        assert re.findall(r"BODY: (body-\d)", printed) == ["body-1"], printed
    counted = mqadmin(java, "printMsgByQueue", *one_queue[:-2], "-f", "true")
    assert re.findall(r"Tag: (\w) +Count: (\d)", counted) == [("a", "2"), ("b", "1")]
    later = str(sent[2].answered_at + 3_600_000)
    assert "BODY: " not in mqadmin(java, "printMsg", *about, "-b", later)
    assert len(re.findall("BODY: ", mqadmin(java, "printMsg", *about, "-b", "0", "-e", later))) == 3


@pytest.mark.feature("D14", "D15")
@every_java
def test_what_is_not_there(java: Driver, server: Server, topic: str) -> None:
    """A topic, a key and an offset that are not there: nothing is printed as if they were, and nothing hangs."""
    for command, *options in (
        ("queryMsgByKey", "-k", "nothing"),
        ("queryMsgByOffset", "-b", "broker-a", "-i", "0", "-o", "99"),
        ("queryMsgByOffset", "-b", "nobody", "-i", "0", "-o", "0"),
        ("queryMsgByUniqueKey", "-i", "0" * 32),
        ("printMsg",),
        ("printMsgByQueue", "-a", "nobody", "-i", "0", "-p", "true"),
        ("consumeMessage",),
    ):
        for name in (topic, f"{topic}-missing"):
            printed = mqadmin(java, command, "-n", server.namesrv, "-t", name, *options)
            assert not re.search("MSGID|Queue Offset: ", printed), printed


@pytest.mark.feature("D14")
def test_message_is_sent_again(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A stored message is sent once more, as a new one, by ``queryMsgById -s``."""
    topic = new_topic(1)
    with Producer(java, namesrv=server.namesrv) as producer:
        (sent,) = producer.send_all(topic, Outgoing(b"again", keys=["k"]))
    about = ["-n", server.namesrv, "-t", topic, "-i", sent.offset_msg_id]
    printed = mqadmin(java, "queryMsgById", *about, "-s", "true")
    assert "SEND_OK" in printed, printed
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        assert [message.body for message in reader.read_all(topic)] == [b"again"] * 2


@pytest.mark.feature("D12")
@pytest.mark.parametrize("command", ["brokerStatus", "getBrokerConfig", "brokerConsumeStats", "producer"])
def test_broker_that_is_not_there(java: Driver, server: Server, command: str) -> None:
    """An address at which nobody listens is told as such, at once."""
    told = java.call("mqadmin", args=[command, "-n", server.namesrv, "-b", "127.0.0.1:1"])
    assert "connect to 127.0.0.1:1 failed" in told["output"] + told["errors"]


ENDLESS = "rocketlet.interop.Endless"


@pytest.fixture
def endless(server: Server, tmp_path: pathlib.Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a call that runs a command of mqadmin which does not end, until the test does."""
    with ExitStack() as started:

        def start(*arguments: str) -> subprocess.Popen[str]:
            command = [*java_command(tmp_path)[:-1], ENDLESS, *arguments, "-n", server.namesrv]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            started.enter_context(process)
            started.callback(process.kill)
            return process

        yield start


@pytest.mark.feature("D12")
@pytest.mark.usefixtures("java")
def test_response_times_are_told_again_and_again(endless: Callable[..., subprocess.Popen[str]]) -> None:
    """Round after round, ``clusterRT`` sends to each broker and counts what was stored."""
    running = endless("clusterRT", "-a", "3", "-s", "16", "-i", "1")
    assert running.stdout is not None
    rounds, printed = 0, ""
    for line in running.stdout:
        printed += line
        rounds += bool(re.match(r"DefaultCluster +broker-a +[\d.]+ +3 +0\b", line))
        if rounds == 2:
            break
    assert rounds == 2, printed


@pytest.mark.feature("D6")
def test_monitor_joins_its_group(java: Driver, server: Server, endless: Callable[..., subprocess.Popen[str]]) -> None:
    """In a group of its own, ``startMonitoring`` consumes what brokers tell of moved offsets."""
    running = endless("startMonitoring")
    told = ask_until(
        lambda: mqadmin(java, "consumerConnection", "-n", server.namesrv, "-g", "__MONITOR_CONSUMER"),
        lambda told: "OFFSET_MOVED_EVENT" in told or running.poll() is not None,
    )
    assert "OFFSET_MOVED_EVENT" in told


@pytest.mark.feature("D15")
def test_trace_of_a_message(java: Driver, server: Server, topic: str, new_topic: NewTopic) -> None:
    """Who has sent a message that is traced, and when it was stored."""
    traces = new_topic(1)
    settings = {"enableTrace": True, "traceTopic": traces}
    with Producer(java, namesrv=server.namesrv, group=topic, settings=settings) as producer:
        (result,) = producer.send_all(topic, Outgoing(b"traced"))
        printed = ask_until(  # the trace is sent a moment later
            lambda: mqadmin(java, "queryMsgTraceById", "-n", server.namesrv, "-i", result.msg_id, "-t", traces),
            lambda printed: "success" in printed,
        )
    assert re.search(rf"(?m)^Pub +{re.escape(topic)}", printed), printed
