"""Official clients for RocketMQ 5 that sign, at a broker that asks who they are and what they may do."""

import re
from collections.abc import Callable

import pytest
from guarded import GUARDED, open_signed
from interop.driver import DriverError
from interop.grpc_clients import GrpcDriver, Outgoing5, Producer5, SimpleConsumer
from interop.grpc_drivers import every_grpc_client
from interop.grpc_servers import RocketletGrpcServer

from rocketlet.remoting.codec.request_codes import RequestCode

TOPIC, GROUP = "Orders", "billing"
SERVED = "it was served"
REFUSED = r"40100|UNAUTHORIZED|Unauthorized|check signature failed|failed to fetch topic"


@pytest.mark.feature("A23", "G22")
@every_grpc_client
async def test_users_do_what_they_may(
    grpc_driver: GrpcDriver, fresh_grpc_server: Callable[..., RocketletGrpcServer]
) -> None:
    """Each with exactly the rights that it needs sends and consumes; a wrong secret and a missing right are refused."""
    server = fresh_grpc_server(**GUARDED)
    async with open_signed(server.broker) as admin:
        queues = {"readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        about = {"topic": TOPIC, "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG"}
        await admin.put(RequestCode.UPDATE_AND_CREATE_TOPIC, {**about, **queues})
        await admin.make_user("shop", "shop-secret", f"Topic:{TOPIC} Pub")
        await admin.make_user("billing", "billing-secret", f"Topic:{TOPIC} Sub", f"Group:{GROUP} Sub")
    shop = {"accessKey": "shop", "secretKey": "shop-secret"}
    with Producer5(grpc_driver, endpoints=server.grpc, topics=[TOPIC], **shop) as producer:
        (sent,) = producer.send_all(TOPIC, Outgoing5(b"hello"))
    reader = {"accessKey": "billing", "secretKey": "billing-secret"}
    subscriptions = {TOPIC: None}
    with SimpleConsumer(
        grpc_driver, endpoints=server.grpc, group=GROUP, subscriptions=subscriptions, **reader
    ) as consumer:
        (received,) = consumer.receive_all(1)
        assert (received.message_id, received.body) == (sent.message_id, b"hello")
        assert consumer.ack(received)[0].error is None
    wrong = refusal(grpc_driver, endpoints=server.grpc, topics=[TOPIC], accessKey="shop", secretKey="wrong")
    assert re.search(REFUSED, wrong), wrong
    # who may read may ask for the route: the refusal comes with the stream of settings, which some clients name alone
    assert refusal(grpc_driver, endpoints=server.grpc, topics=[TOPIC], **reader) != SERVED


def refusal(driver: GrpcDriver, **about: object) -> str:
    """Return what a producer hears that is not served, as it starts or as it sends."""
    try:
        with Producer5(driver, **about) as producer:
            (refused,) = producer.send(TOPIC, Outgoing5(b"no"))
    except DriverError as error:
        return str(error)
    return refused.error.message if refused.error is not None else SERVED
