"""Requests that say who asks."""

import pytest
from scripted_cluster import ScriptedCluster

from rocketlet.client import Credentials, Message, Producer, ProducerSettings
from rocketlet.client.session.interceptors import sign_request, signature_of
from rocketlet.common.errors import ConfigError
from rocketlet.remoting.codec.command import Command

KEYS = Credentials("AK", "12345678")


@pytest.mark.feature("K18")
def test_signature_is_that_of_java() -> None:
    """The vector of Java's ``AclSignerTest``."""
    assert signature_of(b"RocketMQ", "12345678") == "IUc8rrO/0gDch8CjObLQsW2rsiA="


def test_signed_text_is_all_values_in_the_order_of_their_names_and_the_body() -> None:
    """Upper case comes before lower case, as in Java's ``TreeMap``; an older signature is not part of the text."""
    request = Command.request(10, {"b": "2", "a": "1", "Signature": "old", "Zeta": "z"}, b"body")
    sign_request(request, Credentials("AK", "12345678", "token"))
    assert request.ext["Signature"] == signature_of(b"AKtokenz12body", "12345678")


def test_signing_twice_gives_the_same() -> None:
    """A command that goes to several brokers is signed for each of them."""
    request = Command.request(34, body=b"x")
    sign_request(request, KEYS)
    first = dict(request.ext)
    sign_request(request, KEYS)
    assert request.ext == first


async def test_every_request_is_signed(cluster: ScriptedCluster) -> None:
    """Routes, heartbeats, sends and the farewell; the name server is asked with a signature as well."""
    cluster.routes["T"] = {"broker-a": 1}
    broker = await cluster.add_broker("broker-a")
    settings = ProducerSettings(credentials=KEYS)
    async with Producer("pg", cluster.nameserver.address, settings=settings) as producer:
        await producer.send(Message("T", b"x"))
        await producer.send_oneway(Message("T", b"y"))
    requests = [*broker.requests, *cluster.nameserver.requests]
    assert len({request.code for request in requests}) == 4
    for request in requests:
        fields = {name: value for name, value in request.ext.items() if name != "Signature"}
        text = "".join(fields[name] for name in sorted(fields)).encode() + request.body
        assert fields["AccessKey"] == "AK"
        assert request.ext["Signature"] == signature_of(text, "12345678")


def test_secrets_are_not_shown() -> None:
    """A log line with settings gives nothing away."""
    shown = repr(ProducerSettings(credentials=Credentials("AK", "very secret", "token")))
    assert "AK" in shown
    assert "very secret" not in shown
    assert "token=" not in shown


def test_empty_key_is_refused() -> None:
    """Nobody signs with nothing."""
    with pytest.raises(ConfigError, match="secret_key"):
        Credentials("AK", "")
