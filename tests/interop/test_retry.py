"""Messages whose official consumers fail: retries after a delay, and dead letters. Level n waits for n seconds here."""

from collections.abc import Callable

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Received, waits_between
from interop.driver import Driver
from interop.servers import Server
from interop.versions import every_client, every_java

StartServer = Callable[..., Server]
NewName = Callable[[], str]
LEVELS = {"messageDelayLevel": " ".join(f"{level}s" for level in range(1, 19))}


@pytest.fixture(scope="module")
def server(fresh_server: StartServer) -> Server:
    """Start a server with eighteen short levels."""
    return fresh_server(**LEVELS)


@pytest.fixture
def topic(java: Driver, server: Server, new_name: NewName) -> str:
    """Return a topic that holds one message; the retry topic of its group is there, so that no client looks twice."""
    name = new_name()
    with Producer(java, namesrv=server.namesrv) as producer, Admin(java, namesrv=server.namesrv) as admin:
        admin.create_topic(server.broker, f"%RETRY%{name}-group", 1)
        producer.send_all(name, Outgoing(b"hard", tags="a", keys=["k1", "k2"], properties={"own": "v"}))
    return name


def member(server: Server, topic: str) -> dict[str, object]:
    """Return the arguments of a consumer of the topic's group."""
    return {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}


@pytest.mark.feature("C17", "C24")
@every_client
def test_failed_message_comes_back_after_growing_delays(driver: Driver, server: Server, topic: str) -> None:
    """A message that fails twice comes after levels 3 and 4, as itself: its topic, keys, tag and id, its attempts."""
    with PushConsumer(driver, **member(server, topic), failures=2) as consumer:
        first, second, third = consumer.received(3)
    assert [one.reconsume_times for one in (first, second, third)] == [0, 1, 2]
    assert [one.properties.get("DELAY") for one in (second, third)] == ["3", "4"]
    after_first, after_second = waits_between([first, second, third])
    assert (after_first >= 3_000, after_second >= 4_000) == (True, True)
    for again in (second, third):
        assert (again.topic, again.tags, again.keys) == (topic, "a", "k1 k2")
        assert (again.body, again.msg_id, again.properties["own"]) == (b"hard", first.msg_id, "v")
        assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_msg_id


@pytest.mark.feature("C17")
@every_java
def test_retries_come_after_ten_and_thirty_seconds(java: Driver, fresh_server: StartServer, new_name: NewName) -> None:
    """With the usual levels the first retry comes after 10 s, the second after 30 s more, by the client's clock.

    A new group's client learns of its retry topic when it asks for routes again (30 s) and shares the queues (20 s).
    """
    server, topic = fresh_server(), new_name()
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, Outgoing(b"hard"))
    with PushConsumer(java, **member(server, topic), failures=2) as consumer:
        deliveries = consumer.received(3, timeout_ms=100_000)
    assert [one.reconsume_times for one in deliveries] == [0, 1, 2]
    after_first, after_second = waits_between(deliveries)
    assert (10_000 <= after_first < 10_000 + 50_000, 30_000 <= after_second < 60_000) == (True, True)


@pytest.mark.feature("C18")
@pytest.mark.parametrize("failure", ["null", "exception"])
@every_java
def test_null_and_exception_mean_later(failure: str, java: Driver, server: Server, topic: str) -> None:
    """A listener that returns null, or throws, gets the message again."""
    with PushConsumer(java, **member(server, topic), failures=1, failure=failure, delayLevel=1) as consumer:
        assert [one.reconsume_times for one in consumer.received(2)] == [0, 1]


@pytest.mark.feature("C19")
@every_java
def test_stuck_listener_means_later(java: Driver, server: Server, topic: str) -> None:
    """A message whose listener does not come back in time is sent back, and comes again to another thread."""
    settings = {"awaitTerminationMillisWhenShutdown": 0}
    with PushConsumer(java, **member(server, topic), failures=1, failure="hang", settings=settings) as consumer:
        assert len(consumer.received(1)) == 1
        consumer.expire()
        first, second = consumer.received(2)
    assert [one.reconsume_times for one in (first, second)] == [0, 1]
    assert (second.body, second.msg_id, second.properties["DELAY"]) == (b"hard", first.msg_id, "3")
    assert second.received_at - first.received_at >= 3_000


@pytest.mark.feature("C19")
@pytest.mark.timeout(300, func_only=True)  # Java's shortest limit is one minute, and it looks once in each
def test_stuck_listener_means_later_after_a_minute(java: Driver, server: Server, topic: str) -> None:
    """With consumeTimeout=1 the client finds the stuck listener by its own timer, at its second look at last."""
    settings = {"awaitTerminationMillisWhenShutdown": 0, "consumeTimeout": 1}
    with PushConsumer(java, **member(server, topic), failures=1, failure="hang", settings=settings) as consumer:
        consumer.received(2, timeout_ms=90_000)
        first, second = consumer.received(2, timeout_ms=90_000)
    assert [one.reconsume_times for one in (first, second)] == [0, 1]
    assert (second.body, second.msg_id, second.properties["DELAY"]) == (b"hard", first.msg_id, "3")
    (waited,) = waits_between([first, second])
    assert 60_000 + 3_000 <= waited < 3 * 60_000  # it would be found at the third look only if one was missed


@pytest.mark.feature("C20", "C26")
@every_java
def test_no_retries_at_all(java: Driver, server: Server, topic: str) -> None:
    """With maxReconsumeTimes=0 a message is consumed once and is a dead letter, which can be read and sent again."""
    group = f"{topic}-group"
    dead = {"namesrv": server.namesrv, "group": f"{group}-dead", "subscriptions": {f"%DLQ%{group}": "*"}}
    with PushConsumer(java, **member(server, topic), failures=9, settings={"maxReconsumeTimes": 0}) as consumer:
        (only,) = consumer.received(1)
        _wait_letters(java, server, group)
        with PushConsumer(java, **dead) as undertaker, Producer(java, namesrv=server.namesrv) as producer:
            (letter,) = undertaker.received(1)
            assert (letter.body, letter.msg_id, letter.reconsume_times) == (b"hard", only.msg_id, 1)
            assert letter.properties["RETRY_TOPIC"] == topic
            producer.send_all(topic, Outgoing(letter.body, tags=letter.tags))
            assert [one.body for one in consumer.received(2)] == [b"hard", b"hard"]
            assert consumer.received(2)[1].reconsume_times == 0


@pytest.mark.feature("C21", "C26")
@every_client
def test_dead_letter_after_the_last_retry(driver: Driver, java: Driver, server: Server, topic: str) -> None:
    """A message that fails more often than its group allows lies in the dead letters, with one attempt more."""
    group = f"{topic}-group"
    java.call("mqadmin", args=_group_arguments(server, group, retries=1))
    settings = {"maxReconsumeTimes": 1}
    with PushConsumer(driver, **member(server, topic), failures=9, settings=settings) as consumer:
        assert len(consumer.received(2)) == 2
        (letter,) = _wait_letters(java, server, group)
        assert (letter.body, letter.reconsume_times, len(consumer.received())) == (b"hard", 2, 2)


@pytest.mark.feature("C22")
@every_java
def test_listener_gives_up_at_once(java: Driver, server: Server, topic: str) -> None:
    """A listener that asks for delay level -1 sends the message to the dead letters."""
    group = f"{topic}-group"
    with PushConsumer(java, **member(server, topic), failures=9, delayLevel=-1) as consumer:
        assert len(consumer.received(1)) == 1
        (letter,) = _wait_letters(java, server, group)
        assert (letter.body, letter.reconsume_times, len(consumer.received())) == (b"hard", 1, 1)


@pytest.mark.feature("C25")
@every_java
def test_retry_is_for_one_group(java: Driver, server: Server, topic: str) -> None:
    """A group whose listener succeeds does not see the retries of another."""
    about = {"namesrv": server.namesrv, "subscriptions": {topic: "*"}}
    with (
        PushConsumer(java, **member(server, topic), failures=1, delayLevel=1) as fails,
        PushConsumer(java, **about, group=f"{topic}-other") as works,
    ):
        assert len(fails.received(2)) == 2
        with Producer(java, namesrv=server.namesrv) as producer:
            producer.send_all(topic, Outgoing(b"last"))
        assert sorted(message.body for message in works.received(2)) == [b"hard", b"last"]


def _group_arguments(server: Server, group: str, *, retries: int) -> list[str]:
    return ["updateSubGroup", "-n", server.namesrv, "-b", server.broker, "-g", group, "-r", str(retries)]


def _wait_letters(java: Driver, server: Server, group: str) -> list[Received]:
    """Return the dead letters of a group, once there are any."""
    with Admin(java, namesrv=server.namesrv) as admin, PullConsumer(java, namesrv=server.namesrv) as reader:
        admin.await_route(f"%DLQ%{group}")
        return reader.read_all(f"%DLQ%{group}")
