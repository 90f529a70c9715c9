"""Requests and replies of the official clients; each requester and each responder has connections of its own."""

import itertools
from collections.abc import Callable, Sequence

import pytest
from interop.clients import PullConsumer, Requester, Responder
from interop.driver import Driver
from interop.servers import Server

NewTopic = Callable[..., str]
REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
REQUEST_TIMEOUT = 10006  # ClientErrorCode.REQUEST_TIMEOUT_EXCEPTION


def make_known(requesters: Sequence[Requester], topic: str) -> None:
    """Ask until all have a reply: the Go client tells a broker who it is a second after its start at the earliest."""
    for _ in range(20):
        asked = [requester.begin_ask(topic, b"0", timeout_ms=1_500) for requester in requesters]
        replied = [requester.finish_ask(each)[0] for requester, each in zip(requesters, asked, strict=True)]
        if all(each.reply is not None for each in replied):
            return
    raise AssertionError("some requester gets no reply")


@pytest.mark.feature("Q1")
@pytest.mark.parametrize("responder_client", ["java", "go"])
@pytest.mark.parametrize(("requester_client", "mode"), [("java", "sync"), ("java", "async"), ("go", "sync")])
def test_each_requester_gets_its_replies(
    requester_client: str,
    mode: str,
    responder_client: str,
    drivers: Callable[[str], Driver],
    server: Server,
    new_topic: NewTopic,
) -> None:
    """Of two requesters each gets the reply to each of its requests; the responder's sends are answered SEND_OK."""
    topic, driver = new_topic(), drivers(requester_client)
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "topic": topic}
    with (
        Responder(drivers(responder_client), **about) as responder,
        Requester(driver, namesrv=server.namesrv) as one,
        Requester(driver, namesrv=server.namesrv) as other,
    ):
        make_known((one, other), topic)
        asked = [one.begin_ask(topic, b"1", b"2", b"3", mode=mode), other.begin_ask(topic, b"4", b"5", b"6", mode=mode)]
        got = [requester.finish_ask(each) for requester, each in zip((one, other), asked, strict=True)]
        sent = responder.answered(8)
    assert [[each.reply.body if each.reply else each.error for each in replies] for replies in got] == [
        [b"re: 1", b"re: 2", b"re: 3"],
        [b"re: 4", b"re: 5", b"re: 6"],
    ]
    assert {(each.status, each.queue_id) for each in sent if each.error is None} == {("SEND_OK", 0)}
    assert requester_client == "go" or all(each.error is None for each in sent)
    replies = [each.reply.properties for each in itertools.chain(*got) if each.reply is not None]
    assert len({reply["CORRELATION_ID"] for reply in replies}) == 6
    assert {reply["MSG_TYPE"] for reply in replies} == {"reply"}


@pytest.mark.feature("Q1")
def test_long_bodies(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """Bodies that clients compress come back whole, and can be read where replies are stored.

    The official broker stores them without the flag that says so: there they cannot be read.
    """
    topic, body = new_topic(), b"long " * 2_000
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "topic": topic}
    with Responder(java, **about) as responder, Requester(java, namesrv=server.namesrv) as requester:
        (replied,) = requester.ask(topic, body)
        (sent,) = responder.answered(1)
    with PullConsumer(java, namesrv=server.namesrv) as reader:
        stored = reader.view(REPLY_TOPIC, sent.offset_msg_id)
    assert replied.reply is not None
    assert (replied.reply.body, stored.body, stored.topic) == (b"re: " + body, b"re: " + body, REPLY_TOPIC)
    assert stored.properties["CORRELATION_ID"] == replied.reply.properties["CORRELATION_ID"]


@pytest.mark.feature("Q2")
def test_requester_that_is_gone(java: Driver, server: Server, new_topic: NewTopic) -> None:
    """The reply to a client whose connection has ended is answered 1, however often it is tried."""
    topic = new_topic()
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "topic": topic, "held": True}
    with Responder(java, **about) as responder:
        requester = Requester(java, namesrv=server.namesrv)
        (replied,) = requester.ask(topic, b"x", timeout_ms=500)
        requester.drop()
        responder.release()
        (sent,) = responder.answered(1)
    assert replied.error is not None
    assert sent.error is not None
    assert (replied.error.code, sent.error.code) == (REQUEST_TIMEOUT, 1)


@pytest.mark.feature("Q3")
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_request_without_a_reply(mode: str, java: Driver, server: Server, new_topic: NewTopic) -> None:
    """A responder that does not reply is waited for as long as the requester wants, then the error is 10006."""
    topic = new_topic()
    about = {"namesrv": server.namesrv, "group": f"{topic}-group", "topic": topic, "silent": True}
    with Responder(java, **about) as responder, Requester(java, namesrv=server.namesrv) as requester:
        (replied,) = requester.ask(topic, b"x", timeout_ms=500, mode=mode)
        assert len(responder.answered(1)) == 1
    assert (replied.reply, replied.error and replied.error.code) == (None, REQUEST_TIMEOUT)
