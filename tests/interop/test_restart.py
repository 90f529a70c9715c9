"""A broker that stops or is killed comes back with every acknowledged message and where its groups were."""

import pathlib
from collections.abc import Callable

import pytest
from interop.clients import Outgoing, Producer, PullConsumer, PushConsumer
from interop.driver import Driver
from interop.servers import Server
from interop.versions import every_java

StartServer = Callable[..., Server]
SUBSCRIPTION = {"orders": "*"}
SMALL_FILES = {"mappedFileSizeCommitLog": "262144"}


def numbered(prefix: str, count: int) -> list[Outgoing]:
    """Return messages whose bodies are a prefix and a number."""
    return [Outgoing(f"{prefix} {number}".encode(), keys=[str(number)]) for number in range(count)]


@pytest.mark.feature("C8", "H6", "S26")
@every_java
def test_group_goes_on_after_a_clean_stop(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """After SIGTERM and a new start a group gets what it had not yet and nothing again; `abort` is gone."""
    store = tmp_path / "store"
    server = rocketlet_up(store)
    assert (store / "abort").exists()
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all("orders", *numbered("consumed", 20))
        with PushConsumer(java, namesrv=server.namesrv, group="billing", subscriptions=SUBSCRIPTION) as consumer:
            assert len(consumer.received(20)) == 20
        producer.send_all("orders", *numbered("waiting", 20))
    server.stop()
    assert not (store / "abort").exists()
    server = rocketlet_up(store)
    with PushConsumer(java, namesrv=server.namesrv, group="billing", subscriptions=SUBSCRIPTION) as consumer:
        received = [message.body for message in consumer.received(20)]
        assert sorted(received) == sorted(message.body for message in numbered("waiting", 20))
        with Producer(java, namesrv=server.namesrv) as producer:
            producer.send_all("orders", Outgoing(b"new"))
        assert [message.body for message in consumer.received(21)[20:]] == [b"new"]


@pytest.mark.feature("S26")
@every_java
def test_acknowledged_messages_survive_a_kill(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """After SIGKILL amid sends, each message that was acknowledged is read back from where its answer said."""
    server = rocketlet_up(tmp_path / "store", **SMALL_FILES)
    messages = numbered("in flight", 4000)
    with Producer(java, namesrv=server.namesrv, settings={"retryTimesWhenSendAsyncFailed": 0}) as producer:
        early = producer.send_all("orders", *numbered("early", 10))
        with PushConsumer(java, namesrv=server.namesrv, group="billing", subscriptions=SUBSCRIPTION) as consumer:
            assert len(consumer.received(10)) == 10
            sending = producer.begin_send("orders", *messages, mode="async")
            assert len(consumer.received(300)) >= 300
            server.kill()
            results = producer.finish_send(sending)
    bodies = {result.msg_id: message.body for result, message in zip(results, messages, strict=True) if result.msg_id}
    bodies |= {result.msg_id: message.body for result, message in zip(early, numbered("early", 10), strict=True)}

    server = rocketlet_up(tmp_path / "store", **SMALL_FILES)
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        stored = {message.msg_id: message for message in reader.read_all("orders")}
    assert bodies.items() <= {key: message.body for key, message in stored.items()}.items()
    for result in (*early, *results):
        if result.msg_id:
            message = stored[result.msg_id]
            place = message.queue_id, message.queue_offset, message.offset_msg_id
            assert place == (result.queue_id, result.queue_offset, result.offset_msg_id)


@pytest.mark.feature("H6", "C8")
def test_running_clients_outlive_a_restart(rocketlet_up: StartServer, java: Driver, tmp_path: pathlib.Path) -> None:
    """Clients that run on while the broker restarts on its ports go on sending and consuming; nothing is lost."""
    server = rocketlet_up(tmp_path / "store")
    soon = {"heartbeatBrokerInterval": 500, "pollNameServerInterval": 500}
    about = {"namesrv": server.namesrv, "group": "billing", "subscriptions": SUBSCRIPTION, "settings": soon}
    with Producer(java, namesrv=server.namesrv, settings=soon) as producer:
        producer.send_all("orders", *numbered("before", 20))
        with PushConsumer(java, **about) as consumer:
            assert len(consumer.received(20)) == 20
            server.stop()
            rocketlet_up(tmp_path / "store", replaced=server)
            producer.send_all("orders", *numbered("after", 20))
            expected = {message.body for message in numbered("before", 20) + numbered("after", 20)}
            assert consumer.wait_bodies(expected) == expected
