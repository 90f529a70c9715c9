"""What the pulls of the official push and lite pull consumers carry."""

import asyncio
from collections.abc import Callable

import pytest
from interop.clients import Admin, Outgoing, Producer, PullConsumer, PushConsumer, Queue, Received
from interop.driver import Driver
from interop.servers import Server
from interop.tap import Tap
from interop.versions import JavaDriver, every_java
from raw_calls import open_caller
from registrations import register

from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.request_codes import RequestCode

NewTopic = Callable[..., str]
SUBSCRIPTION_FLAG, LITE_FLAG = 4, 16


@pytest.mark.feature("P9")
@every_java
def test_offset_rides_on_pulls(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A consumer that reports its offset once an hour commits it with its next pull."""
    queue = Queue(new_topic(1), "broker-a", 0)
    group, seldom = f"{queue.topic}-group", {"persistConsumerOffsetInterval": 3_600_000}
    about = {"namesrv": server.namesrv, "group": group, "subscriptions": {queue.topic: "*"}, "settings": seldom}
    with (
        Producer(java, namesrv=server.namesrv) as producer,
        PullConsumer(java, namesrv=server.namesrv, group=group) as reader,
        PushConsumer(java, **about) as consumer,
    ):
        producer.send_all(queue.topic, *[Outgoing(b"%d" % number) for number in range(5)])
        consumer.wait_progress(queue, 5)
        for count in (6, 7):  # the first of them answers the pull that waits, the other one the next, with the offset
            producer.send_all(queue.topic, Outgoing(b"%d" % count))
            assert len(consumer.received(count)) == count
        assert reader.committed(queue) >= 5


@pytest.mark.feature("P17")
@every_java
def test_lite_pull_consumer_gets_its_tags(java: JavaDriver, server: Server, new_topic: NewTopic) -> None:
    """A lite pull consumer polls its tags, by requests with their own subscription: 361, before version 5 lite 11."""
    topic = new_topic()
    with Producer(java, namesrv=server.namesrv) as producer:
        producer.send_all(topic, *[Outgoing(tag.encode(), tags=tag) for tag in "ABABAC"])
    with Tap(server) as tap:
        about = {"namesrv": tap.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "A"}}
        java.call("lite.start", name=topic, **about)
        polled = java.call_as(dict[str, list[Received]], "lite.poll", name=topic, count=3, timeoutMs=30_000)
        java.call("lite.stop", name=topic)
        pulls = [*tap.asked(RequestCode.PULL_MESSAGE), *tap.asked(RequestCode.LITE_PULL_MESSAGE)]
    assert [message.body for message in polled["messages"]] == [b"A"] * 3
    code = RequestCode.PULL_MESSAGE if java.version.startswith("4.") else RequestCode.LITE_PULL_MESSAGE
    assert {request.code for request in pulls} == {code}
    assert {request.ext["subscription"] for request in pulls} == {"A"}
    both = SUBSCRIPTION_FLAG | LITE_FLAG
    assert all(int(request.ext["sysFlag"]) & both == both for request in pulls)


@pytest.mark.feature("P15")
@every_java
@pytest.mark.parametrize(("percent", "by_slave"), [("0", [1, 2]), ("40", [])], ids=["far behind", "near"])
async def test_consumer_far_behind_is_sent_to_the_slave(
    percent: str, by_slave: list[int], java: Driver, fresh_server: Callable[..., Server]
) -> None:
    """With slaveReadEnable a consumer that reads far behind the end pulls from broker 1 from the next pull on.

    The slave is another address of the same broker, which is registered with id 1.
    """
    server = fresh_server(slaveReadEnable="true", accessMessageInMemoryMaxRatio=percent)

    def pull_three() -> list[int]:
        queue = Queue("Behind", "broker-a", 0)
        with Admin(java, namesrv=server.namesrv) as admin:
            admin.create_topic(server.broker, queue.topic, 1)
        with Producer(java, namesrv=server.namesrv) as producer, PullConsumer(java, namesrv=server.namesrv) as reader:
            producer.send_all(queue.topic, *[Outgoing(b"x")] * 4)
            return [reader.pull(queue, offset, count=1).next_offset for offset in range(3)]

    with Tap(server) as slave:
        async with open_caller(server.namesrv) as caller:
            cluster, address = "DefaultCluster", slave.broker_door
            answer = await register(caller, clusterName=cluster, brokerAddr=address, brokerId="1")
            assert answer.code == ResponseCode.SUCCESS
            assert await asyncio.to_thread(pull_three) == [1, 2, 3]
        asked = slave.asked(RequestCode.PULL_MESSAGE)
    assert [int(pull.ext["queueOffset"]) for pull in asked] == by_slave
