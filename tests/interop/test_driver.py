"""The drivers do what the tests and benchmarks that use them believe."""

from collections.abc import Callable

import pytest
from interop.clients import Outgoing, Producer, PushConsumer, Received
from interop.driver import Driver, DriverError
from interop.servers import Server
from interop.traffic import read_topic

NewTopic = Callable[..., str]


@pytest.mark.parametrize("client", ["java", "go"])
def test_failing_command_is_answered(driver: Driver) -> None:
    """An unknown command, and one for a client that does not run, are errors that say so."""
    with pytest.raises(DriverError, match="unknown command no\\.such"):
        driver.call("no.such")
    with pytest.raises(DriverError, match="producer nobody is not running"):
        driver.call("producer.stop", name="nobody")


def test_commands_run_side_by_side(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A command that waits for messages does not hold up the one that sends them."""
    topic = new_topic()
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with PushConsumer(java, **about) as consumer, Producer(java, namesrv=server.namesrv) as producer:
        waiting = java.begin("consumer.received", name=consumer.name, count=1, timeoutMs=30_000)
        producer.send_all(topic, Outgoing(b"awaited"))
        received = java.finish(waiting, "consumer.received", dict[str, list[Received]])
    assert [message.body for message in received["messages"]] == [b"awaited"]


@pytest.mark.parametrize(
    "how", [{"threads": 2}, {"inFlight": 16}, {"threads": 2, "batch": 10}], ids=["sync", "async", "batch"]
)
def test_load_is_counted(how: dict[str, int], java: Driver, server: Server, new_topic: NewTopic) -> None:
    """The load generator sends as many messages as it says, and consumes them again."""
    topic = new_topic()
    about = {"namesrv": server.namesrv, "topic": topic}
    sent = java.call("load.send", **about, count=200, warmup=20, bodyBytes=64, **how)
    assert (sent["sent"], sent["failed"]) == (200, 0)
    assert [len(message.body) for message in read_topic(java, server.namesrv, topic)] == [64] * 220
    consumed = java.call("load.consume", **about, group=f"{topic}-group", count=220)
    assert (consumed["received"], consumed["complete"]) == (220, True)


@pytest.mark.parametrize("consumes", [False, True], ids=["answers", "end to end"])
def test_paced_load_is_timed(consumes: bool, java: Driver, server: Server, new_topic: NewTopic) -> None:
    """The load generator sends at a rate, and knows a time for each message."""
    topic = new_topic()
    about = {"namesrv": server.namesrv, "topic": topic, "group": f"{topic}-group"}
    told = java.call("load.pace", **about, rate=200, seconds=1, bodyBytes=64, consumes=consumes)
    assert (told["sent"], told["failed"], told["complete"]) == (400, 0, True)
    assert 0 < told["p50Us"] <= told["p99Us"] <= told["p999Us"] <= told["maxUs"]
    extra = len(read_topic(java, server.namesrv, topic)) - 400
    assert extra >= 2 if consumes else extra == 0


def test_mqadmin_prints_a_route(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A command of mqadmin runs in the driver, and what it prints is returned."""
    topic = new_topic()
    printed = java.call("mqadmin", args=["topicRoute", "-n", server.namesrv, "-t", topic])
    assert server.broker in printed["output"]
