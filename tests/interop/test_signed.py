"""Official clients with and without rights at a broker that asks who they are, and signed ones at one that does not."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from badinput.samples import CREATE_TOPIC
from guarded import GUARDED, SignedCaller, open_signed
from interop.clients import WAIT_MS, Outgoing, Producer, PushConsumer, Sent
from interop.driver import Driver
from interop.secured import PROVIDERS
from interop.servers import JavaServer, Server
from interop.versions import every_client

from rocketlet.remoting.codec.request_codes import RequestCode

QUICK_RETRIES = {"messageDelayLevel": "1s 1s 1s 1s"}
DENIED = "User:{} has no permission to access Topic:{} from 127.0.0.1, no matched policies."


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, rocketlet_up: Callable[..., Server]) -> Iterator[Server]:
    """Run a broker that asks who its clients are."""
    with rocketlet_up(tmp_path_factory.mktemp("guarded") / "store", **GUARDED, **PROVIDERS, **QUICK_RETRIES) as server:
        yield server


def administer(server: Server, work: Callable[[SignedCaller], Coroutine[Any, Any, None]]) -> None:
    """Do something as who may do everything."""

    async def run() -> None:
        async with open_signed(server.broker) as admin:
            await work(admin)

    asyncio.run(run())


def user(name: str, **more: str) -> dict[str, str]:
    """Return what a client of a user is started with."""
    return {"accessKey": name, "secretKey": f"{name}-secret", **more}


@pytest.mark.feature("A6", "A7", "A12")
@every_client
def test_exact_rights_are_enough_and_less_is_refused(
    driver: Driver, guarded: Server, new_name: Callable[[], str]
) -> None:
    """Who may send sends, whose group may read gets everything, also what it failed to process; nobody else does.

    A token changes nothing: Java signs it, Go does not, which the official broker refuses.
    """
    topic, group, sender, reader, stranger = (new_name() for _ in range(5))

    async def prepare(admin: SignedCaller) -> None:
        await admin.put(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE_TOPIC, "topic": topic})
        if isinstance(guarded, JavaServer):  # which tells name servers of it too late for the Go client's first look
            await admin.put(RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE_TOPIC, "topic": f"%RETRY%{group}"})
        await admin.make_user(sender, f"{sender}-secret", f"Topic:{topic} Pub")
        await admin.make_user(reader, f"{reader}-secret", f"Topic:{topic} Sub", f"Group:{group} Sub")
        await admin.make_user(stranger, f"{stranger}-secret", f"Topic:{topic}x All")

    administer(guarded, prepare)
    about: dict[str, Any] = {"namesrv": guarded.namesrv, "group": group, "subscriptions": {topic: "*"}}
    bodies = {b"%d" % number for number in range(8)}
    token = {} if driver.name == "go" and isinstance(guarded, JavaServer) else {"securityToken": "token"}
    with PushConsumer(driver, **about, **user(reader), failures=1) as consumer:
        with Producer(driver, namesrv=guarded.namesrv, **user(sender, **token)) as producer:
            producer.send_all(topic, *map(Outgoing, bodies))
        # the Go client looks for its retry topic at its start and, if that was too early, half a minute later
        received = consumer.received(2 * len(bodies), 2 * WAIT_MS)
    assert {message.body for message in received} == bodies
    assert len(received) == 2 * len(bodies)

    with Producer(driver, namesrv=guarded.namesrv, **user(stranger)) as producer:
        refused(producer.send(topic, Outgoing(b"no")), DENIED.format(stranger, topic))
    with Producer(driver, namesrv=guarded.namesrv, **user(sender) | {"secretKey": "wrong"}) as producer:
        refused(producer.send(topic, Outgoing(b"no")), "check signature failed.")
    with Producer(driver, namesrv=guarded.namesrv) as producer:
        refused(producer.send(topic, Outgoing(b"no")), "username cannot be null.")


def refused(results: list[Sent], remark: str) -> None:
    """Check that a client tells what a broker has said, Java's with its code."""
    [result] = results
    assert result.error is not None
    assert remark in f"{result.error.message} {result.error.cause}"
    assert result.error.code in {None, 16}


@pytest.mark.feature("A8")
@every_client
def test_open_broker_does_not_look_at_signatures(driver: Driver, server: Server, new_topic: Callable[..., str]) -> None:
    """A client that signs works as one that does not."""
    topic = new_topic()
    about: dict[str, Any] = {"namesrv": server.namesrv, "group": f"{topic}-group", "subscriptions": {topic: "*"}}
    with (
        PushConsumer(driver, **about, **user("somebody")) as consumer,
        Producer(driver, namesrv=server.namesrv, **user("somebody")) as producer,
    ):
        producer.send_all(topic, Outgoing(b"signed"))
        assert [message.body for message in consumer.received(1)] == [b"signed"]
