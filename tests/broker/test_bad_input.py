"""Requests that no client of ours would send: each is answered with an error, and the broker goes on."""

import asyncio
import random

import pytest
from raw_calls import Caller

from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.frames import encode_command
from rocketlet.remoting.codec.request_codes import RequestCode

NEEDS_FIELDS = [
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.QUERY_MESSAGE,
    RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.UPDATE_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
]
TAKES_ANY_TEXT = {RequestCode.UNREGISTER_CLIENT, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG}
# Java goes on without fields, and so do we: to another answer than that of a missing one.
GOES_ON = {RequestCode.UNREGISTER_CLIENT, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.UPDATE_AND_CREATE_TOPIC}
NAMES = """
    topic queueId queueOffset maxMsgNums sysFlag commitOffset suspendTimeoutMillis subVersion offset key maxNum order
    beginTimestamp endTimestamp timestamp consumerGroup group clientID producerGroup defaultTopic flag bornTimestamp
    defaultTopicQueueNums readQueueNums writeQueueNums perm topicFilterType a b c d e f g h
"""
FIELDS = NAMES.split()
NEEDS_BODY = [
    RequestCode.HEART_BEAT,
    RequestCode.CHECK_CLIENT_CONFIG,
    RequestCode.LOCK_BATCH_MQ,
    RequestCode.UNLOCK_BATCH_MQ,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
]
BAD_BODIES = [b"", b"{", b"null", b"[]", b"1", b'{"a":', b"\xff\xfe", b'"' * 50, b"[" * 5000]
NO_BODY = [b"", b"null"]
TAKES_NO_BODY = {RequestCode.CHECK_CLIENT_CONFIG, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP}
UNKNOWN_CODES = [13, 22, 47, 999, 9999, 32767, 200057]


async def test_missing_fields_are_named(caller: Caller) -> None:
    """A request without the fields that it needs is answered 1, naming the first that is missing."""
    for code in (code for code in NEEDS_FIELDS if code not in GOES_ON):
        answer = await caller.ask(code, {}, b"body")
        assert answer.code == ResponseCode.SYSTEM_ERROR, code
        assert (answer.remark or "").startswith("the custom field <"), code


@pytest.mark.parametrize("value", ["no number", "99999999999999999999", "1.5", "-", "\U0001f600"])
async def test_garbage_fields_are_refused(value: str, caller: Caller) -> None:
    """Texts where numbers belong, and numbers that are too large, never reach the store."""
    for code in NEEDS_FIELDS:
        answer = await caller.ask(code, dict.fromkeys(FIELDS, value), b"body")
        assert answer.code != ResponseCode.SUCCESS or code in TAKES_ANY_TEXT, code


@pytest.mark.parametrize("code", NEEDS_BODY)
async def test_garbage_bodies_are_refused(code: int, caller: Caller) -> None:
    """A body that is no JSON object, or not of its shape, is answered 1; without one some have nothing to do."""
    for body in BAD_BODIES:
        is_fine = body in NO_BODY and code in TAKES_NO_BODY
        expected = ResponseCode.SUCCESS if is_fine else ResponseCode.SYSTEM_ERROR
        assert (await caller.ask(code, None, body)).code == expected, body


async def test_unknown_code_is_answered_3(caller: Caller) -> None:
    """What is not handled is answered 3 with the number."""
    for code in UNKNOWN_CODES:
        answer = await caller.ask(code)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {code} not supported"


@pytest.mark.parametrize("body", [b"\0" * 64, b"\xff" * 64, b"{}" * 40])
async def test_garbage_frame_ends_only_its_connection(body: bytes, broker: Broker, caller: Caller) -> None:
    """Bytes that are no frame close their connection; others are served."""
    host, _, port = broker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(body)
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert (await caller.send()).code == ResponseCode.SUCCESS


async def test_mangled_requests_never_stop_the_broker(broker: Broker, caller: Caller) -> None:
    """A thousand requests with flipped bytes leave a broker that serves."""
    dice = random.Random(7)
    whole = encode_command(
        Command.request(RequestCode.SEND_MESSAGE_V2, {"b": "T", "e": "0", "i": "TAGS\x01a\x02"}, b"x")
    )
    host, _, port = broker.address.rpartition(":")
    for _ in range(20):
        _, writer = await asyncio.open_connection(host, int(port))
        for _ in range(50):
            frame = bytearray(whole)
            for _ in range(3):
                frame[dice.randrange(8, len(frame))] = dice.randrange(256)
            writer.write(frame)
        writer.close()
        await writer.wait_closed()
    assert (await caller.send("Whole")).code == ResponseCode.SUCCESS
