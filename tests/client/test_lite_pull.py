"""Which request a pull consumer pulls with."""

import pytest
from scripted_cluster import ScriptedCluster, refused, silent

from rocketlet.client import MessageQueue, PullConsumer
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.remoting.codec.command import decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.pull import PullHeader

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.mark.feature("B23")
async def test_pull_consumer_sends_lite_pulls(cluster: ScriptedCluster) -> None:
    """Request 361 with the subscription, for at most 20 s: as Java's lite pull consumer."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a", {RequestCode.LITE_PULL_MESSAGE: silent})
    async with PullConsumer("cg", cluster.nameserver.address) as consumer:
        await consumer.assign([QUEUE], "A")
        [pull] = await broker.wait_asked(RequestCode.LITE_PULL_MESSAGE)
        header = decode_header(PullHeader, pull)
        assert header.sys_flag == PULL_LITE | PULL_SUBSCRIPTION | PULL_SUSPEND
        assert (header.subscription, header.suspend_ms, header.max_messages) == ("A", 20_000, 10)


async def test_older_broker_gets_plain_pulls(cluster: ScriptedCluster) -> None:
    """A broker that does not know 361 is asked by 11 from then on, with the same header."""
    cluster.routes["T"] = {"broker-a": 2}
    broker = await cluster.add_broker(
        "broker-a", {RequestCode.LITE_PULL_MESSAGE: refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)}
    )
    async with PullConsumer("cg", cluster.nameserver.address) as consumer:
        await consumer.assign([QUEUE])
        [pull] = await broker.wait_asked(RequestCode.PULL_MESSAGE)
        assert decode_header(PullHeader, pull).sys_flag == PULL_LITE | PULL_SUBSCRIPTION | PULL_SUSPEND
        await consumer.assign([QUEUE, QUEUE._replace(queue_id=1)])
        await broker.wait_asked(RequestCode.PULL_MESSAGE, 2)
        assert len(broker.asked(RequestCode.LITE_PULL_MESSAGE)) == 1
