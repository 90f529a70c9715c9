"""What stands before the handlers: who is served, who is refused with which words, and what that costs others."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator
from functools import partial
from typing import Any

import pytest
from badinput import samples
from badinput.variations import Sample, encode_body
from guarded import ADMIN, GUARDED, SignedCaller, open_signed
from raw_calls import Caller, decode_json_header, open_caller, send_header

from rocketlet.broker.security.failed_tries import MOST_TRIES, PERIOD_MS
from rocketlet.broker.security.guard import stored_topic
from rocketlet.broker.security.needs import STRICT_NEEDS, Asked
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.signing import content_of, sign, signature_of
from rocketlet.remoting.codec.command import Command, encode_fields
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock

ALICE = ("alice", "alicepw")
NO_NAME, WRONG = "username cannot be null.", "check signature failed."
NOBODY = "Authorization failed. Please verify your access rights and try again."
DENIED = "User:alice has no permission to access {} from 127.0.0.1, no matched policies."
SENDS = int(Code.SEND_MESSAGE_V2)


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings of a broker that asks who its clients are and what they may do."""
    return {**settings, **GUARDED, **samples.SETTINGS_OF_BROKER}


@pytest.fixture
async def admin(broker: Broker) -> AsyncGenerator[SignedCaller]:
    """Return a connection of who may do everything."""
    async with open_signed(broker.address) as caller:
        yield caller


@pytest.fixture
async def alice(broker: Broker, admin: SignedCaller) -> AsyncGenerator[SignedCaller]:
    """Return a connection of who may do nothing yet."""
    await admin.make_user(*ALICE)
    async with open_signed(broker.address, *ALICE) as caller:
        yield caller


def told(answer: Command) -> tuple[int, str | None]:
    """Return code and remark of an answer."""
    return answer.code, answer.remark


@pytest.mark.feature("A7")
async def test_refusals_leave_the_connection_open(admin: SignedCaller, caller: Caller) -> None:
    """The five texts, one after the other on one connection, on which the right signature is served afterwards."""
    body, fields = b"body", encode_fields(send_header("T"))
    assert told(await caller.ask(SENDS, fields, body)) == (16, NO_NAME)
    assert told(await caller.ask(Code.GET_BROKER_RUNTIME_INFO)) == (16, NO_NAME)
    assert told(await caller.ask(SENDS, {**fields, "AccessKey": ""}, body)) == (16, NO_NAME)
    for user, password, remark in (
        ("ghost", "x", "User:ghost is not found."),
        ("admin", "x", WRONG),
        ("admin", "Admin123", WRONG),
    ):
        sign(fields, body, user, password)
        assert told(await caller.ask(SENDS, fields, body)) == (16, remark)
    del fields["Signature"]
    assert told(await caller.ask(SENDS, fields, body)) == (16, WRONG)
    await admin.make_user("carl", "carlpw", kind="Super")
    await admin.put(Code.AUTH_UPDATE_USER, {"username": "carl"}, b'{"userStatus":"disable"}')
    sign(fields, body, "carl", "carlpw")
    assert told(await caller.ask(SENDS, fields, body)) == (16, "User:carl is disabled.")
    sign(fields, body, *ADMIN)
    answer = await caller.ask(SENDS, fields, body)
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.feature("A7")
async def test_refused_oneway_request_is_not_answered(admin: SignedCaller, caller: Caller, broker: Broker) -> None:
    """Nothing comes back, nothing is stored, and the connection goes on."""
    fields = encode_fields(send_header("T"))
    caller.ask_oneway(SENDS, fields, b"unsigned")
    sign(fields, b"unsigned", "admin", "wrong")
    caller.ask_oneway(SENDS, fields, b"unsigned")
    assert told(await caller.ask(Code.GET_BROKER_RUNTIME_INFO)) == (16, NO_NAME)
    assert broker.store.max_offset("T", 0) == 0
    admin.ask_oneway(SENDS, fields, b"signed")
    assert (await admin.ask(Code.GET_BROKER_RUNTIME_INFO)).code == ResponseCode.SUCCESS
    assert broker.store.max_offset("T", 0) == 1


@pytest.mark.feature("A6")
async def test_replay_gains_nothing_and_changes_are_noticed(caller: Caller) -> None:
    """As upstream: a signed frame is good again, also on another connection; any other byte of it is not."""
    fields, body = encode_fields(send_header("T")), b"body"
    sign(fields, body, *ADMIN)
    for _ in range(2):
        assert (await caller.ask(SENDS, fields, body)).code == ResponseCode.SUCCESS
    for changed, changed_body in (
        ({**fields, "b": "U"}, body),
        ({**fields, "z": "more"}, body),
        ({name: text for name, text in fields.items() if name != "h"}, body),
        (fields, b"Body"),
        (fields, b""),
        ({**fields, "AccessKey": "inner"}, body),
        ({**fields, "Signature": fields["Signature"].rstrip("=")}, body),
        ({**fields, "Signature": "é"}, body),
    ):
        assert told(await caller.ask(SENDS, changed, changed_body)) == (16, WRONG)


HEADER = '{{"code":310,"extFields":{{{}}},"flag":0,"language":"JAVA","opaque":7,"version":{}}}'
FIELDS = {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "AccessKey": "admin"}


async def ask_raw(address: str, ext: dict[str, Any], content: bytes, version: int = 493) -> Command:
    """Send a header as it is, signed for a content."""
    signature = signature_of(content, ADMIN[1])
    text = HEADER.format(json.dumps({**ext, "Signature": signature})[1:-1], version).encode()
    reader, writer = await asyncio.open_connection(*address.split(":"))
    body = b"body"
    writer.write((4 + len(text) + len(body)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + body)
    size = int.from_bytes(await reader.readexactly(4), "big")
    answer = await reader.readexactly(size)
    writer.close()
    await writer.wait_closed()
    return decode_json_header(answer[4 : 4 + int.from_bytes(answer[:4], "big")])


@pytest.mark.feature("A6")
@pytest.mark.parametrize(
    ("more", "left_out", "version"),
    [
        ({}, "", 493),
        ({}, "", 395),
        ({"n": "broker", "z": "消息", "Z": "\u00e9"}, "", 493),
        ({"\U0001f600": "1", "\uff61": "2"}, "", 493),
        ({"SecurityToken": "token"}, "", 493),
        ({"SecurityToken": "token"}, "SecurityToken", 493),
        ({"_UNIQUE_KEY_QUERY": "false"}, "", 400),
        ({"_UNIQUE_KEY_QUERY": "false"}, "_UNIQUE_KEY_QUERY", 399),
        ({"e": 0, "k": False, "m": False, "j": 12}, "", 493),
        ({"z": None}, "", 493),
    ],
)
async def test_what_official_clients_sign(broker: Broker, more: dict[str, Any], left_out: str, version: int) -> None:
    """Names in the order of UTF-16, values as text whatever JSON has them be, tokens and marks by client."""
    ext = {**FIELDS, **more}
    texts = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in ext.items() if name != left_out
    }
    names = sorted(texts, key=lambda name: name.encode("utf-16-be"))
    content = "".join(texts[name] for name in names).encode() + b"body"
    assert (await ask_raw(broker.address, ext, content, version)).code == ResponseCode.SUCCESS
    wrong = await ask_raw(broker.address, ext, content + b"x", version)
    assert told(wrong) == (16, WRONG)


@pytest.mark.feature("A6")
@pytest.mark.parametrize(("left_out", "version"), [("", 399), ("_UNIQUE_KEY_QUERY", 400)])
async def test_marks_are_signed_by_version(broker: Broker, left_out: str, version: int) -> None:
    """A client up to 399 that signs the mark is refused, as is a later one that does not."""
    ext = {**FIELDS, "_UNIQUE_KEY_QUERY": "false"}
    content = content_of({name: text for name, text in ext.items() if name != left_out}, b"body")
    assert told(await ask_raw(broker.address, ext, content, version)) == (16, WRONG)


async def test_binary_header_is_checked_likewise(admin: SignedCaller) -> None:
    """The serialisation does not matter, values do."""
    assert (await admin.ask(SENDS, send_header("T"), b"body", serialize=1)).code == ResponseCode.SUCCESS


def is_refused(answer: Command) -> bool:
    """Tell whether it was the guard who answered."""
    texts = (NO_NAME, WRONG, NOBODY, " has no permission to access ")
    return answer.code == ResponseCode.NO_PERMISSION and any(text in (answer.remark or "") for text in texts)


async def test_every_request_by_everybody(
    broker: Broker, admin: SignedCaller, alice: SignedCaller, caller: Caller
) -> None:
    """No key, a wrong one, no right, one on something else, all rights but one, exactly the rights: for each code."""
    await samples.prepare_broker(admin)
    async with open_signed(broker.address, "alice", "wrong") as liar:
        for sample in samples.BROKER:
            if sample.code in STRICT_NEEDS:
                assert told(await caller.ask(sample.code, sample.fields, encode_body(sample.body))) == (16, NO_NAME)
                assert (await liar.ask(sample.code, sample.fields, encode_body(sample.body))).code in {2, 16}
                await check_rights(sample, broker, admin, alice)


async def check_rights(sample: Sample, broker: Broker, admin: SignedCaller, alice: SignedCaller) -> None:
    """Give a user one right after the other, until a request is served."""
    code, fields, body = sample.code, dict(sample.fields), encode_body(sample.body)
    command = Command.request(code, fields, body)
    asked = Asked(command, fields, "cluster-a", partial(stored_topic, broker.store))
    needs = list(dict.fromkeys(STRICT_NEEDS[code].needs(asked)))
    for need in needs:
        answer = await alice.ask(code, fields, body)
        assert told(answer) == (16, DENIED.format(need.resource)), code
        await admin.allow("alice", [f"{need.resource}x All", f"{need.resource} {other_action(need.actions)}"])
        assert is_refused(await alice.ask(code, fields, body)), code
        await admin.allow("alice", [f"{need.resource} {need.actions[-1]}"])
    answer = await alice.ask(code, fields, body)
    assert not is_refused(answer), (code, answer.remark)
    if needs:
        await admin.put(Code.AUTH_DELETE_ACL, {"subject": "User:alice"})


def other_action(actions: tuple[str, ...]) -> str:
    """Return an action that is none of these."""
    return next(action for action in ("Pub", "Sub", "Get", "Update", "Create") if action not in actions)


WHITE = {
    "both": ({"authenticationWhitelist": "907, 310", "authorizationWhitelist": "310,907"}, None),
    "known to nobody": ({"authenticationWhitelist": "907,310"}, NOBODY),
    "free for users": ({"authorizationWhitelist": "907,310"}, NO_NAME),
}


@pytest.mark.feature("A17")
@pytest.mark.parametrize("lists", list(WHITE))
async def test_white_lists_open_what_stands_on_both(settings: dict[str, str], clock: ManualClock, lists: str) -> None:
    """On one only, somebody has to be known, or nobody has a right; a name without a signature is nobody's."""
    more, refusal = WHITE[lists]
    config = BrokerConfig.from_java({**settings, **more})
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        fields = encode_fields(send_header("T"))
        for claimed in ({}, {"AccessKey": "admin"}, {"AccessKey": "admin", "Signature": "x"}):
            answer = await caller.ask(SENDS, {**fields, **claimed}, b"body")
            remark = WRONG if claimed and refusal == NO_NAME else refusal
            assert told(answer) == ((0, None) if refusal is None else (16, remark))
        assert told(await caller.ask(Code.GET_BROKER_HA_STATUS)) == ((0, None) if refusal is None else (16, refusal))
        async with open_signed(broker.address) as admin:
            assert (await admin.send()).code == ResponseCode.SUCCESS
            await admin.make_user(*ALICE)
        async with open_signed(broker.address, *ALICE) as alice:
            is_free = "authorizationWhitelist" in more
            assert told(await alice.send()) == ((0, None) if is_free else (16, DENIED.format("Topic:T")))


async def test_unknown_code_is_answered_to_users_only(alice: SignedCaller, caller: Caller) -> None:
    """Who is known hears that there is no handler, everybody else that they are not known."""
    assert told(await caller.ask(9999)) == (16, NO_NAME)
    assert told(await alice.ask(9999)) == (3, " request type 9999 not supported")


async def test_code_without_needs_is_served_to_nobody(
    broker: Broker, admin: SignedCaller, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], clock: ManualClock
) -> None:
    """A handler that somebody adds without saying what it needs does not open anything, not even to a super user."""
    rows = {code: row for code, row in STRICT_NEEDS.items() if code not in {SENDS, 28}}
    monkeypatch.setattr("rocketlet.broker.security.guard.STRICT_NEEDS", rows)
    config = BrokerConfig.from_java({**settings, "storePathRootDir": settings["storePathRootDir"] + "2"})
    async with Broker(config, clock) as other, open_signed(other.address) as user:
        assert (await user.send()).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert (await user.ask(Code.GET_BROKER_RUNTIME_INFO)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert (await admin.send()).code == ResponseCode.SUCCESS


async def test_lists_hold_what_a_user_may_get(admin: SignedCaller, alice: SignedCaller) -> None:
    """All of that in one piece, however it is asked for; who may get what concerns the cluster gets all."""
    for topic in ("A", "B", "C"):
        await admin.put(Code.UPDATE_AND_CREATE_TOPIC, {**samples.CREATE_TOPIC, "topic": topic})
        await admin.put(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, json.dumps({"groupName": f"g{topic}"}).encode())
    await admin.put(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "gA", "topic": "A", "readable": "false"})
    for page in ({}, {"topicSeq": "1", "maxTopicNum": "1", "dataVersion": "{}"}):
        assert topics_of(await alice.put(Code.GET_ALL_TOPIC_CONFIG, page)) == (set(), "0")
    await admin.allow("alice", ["Topic:A Get", "Topic:B Pub", "Group:gA Get", "Group:gB Sub", "Group:gC Get"])
    assert topics_of(await alice.put(Code.GET_ALL_TOPIC_CONFIG)) == ({"A"}, "1")
    groups = await alice.put(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": "0"})
    tables = json.loads(groups.body)
    assert set(tables["subscriptionGroupTable"]) == {"gA", "gC"}
    assert (set(tables["forbiddenTable"]), groups.ext["totalGroupNum"]) == ({"gA"}, "2")
    await admin.allow("alice", ["Cluster:cluster-a Get"])
    assert topics_of(await alice.put(Code.GET_ALL_TOPIC_CONFIG))[0] >= {"A", "B", "C", "TBW102"}


def topics_of(answer: Command) -> tuple[set[str], str]:
    """Return the listed topics, and how many there are."""
    return set(json.loads(answer.body)["topicConfigTable"]), answer.ext["totalTopicNum"]


async def test_grants_end_with_rights(admin: SignedCaller, alice: SignedCaller) -> None:
    """What was granted is remembered until users or policies change."""
    await admin.allow("alice", ["Topic:T Pub"])
    for _ in range(2):
        assert (await alice.send()).code == ResponseCode.SUCCESS
    await admin.allow("alice", ["Topic:T Pub"], decision="Deny")
    answer = await alice.send()
    assert (answer.remark or "").endswith(", the decision is deny.")
    await admin.allow("alice", ["Topic:T Pub"], sourceIps=["10.0.0.0/8"])
    assert told(await alice.send()) == (16, DENIED.format("Topic:T"))
    await admin.put(Code.AUTH_UPDATE_USER, {"username": "alice"}, b'{"userType":"Super"}')
    assert (await alice.send()).code == ResponseCode.SUCCESS
    await admin.put(Code.AUTH_UPDATE_USER, {"username": "alice"}, b'{"password":"other"}')
    assert told(await alice.send()) == (16, WRONG)
    await admin.put(Code.AUTH_DELETE_USER, {"username": "alice"})
    assert told(await alice.send()) == (16, "User:alice is not found.")


async def test_stored_message_is_read_by_those_of_its_topic(admin: SignedCaller, alice: SignedCaller) -> None:
    """Whatever topic somebody names: to look at it, to have it sent back to the own group, to have it pushed."""
    await admin.send("Secret")
    await admin.allow("alice", ["Topic:Own Get,Pub,Sub", "Group:own Sub,Create"])
    await alice.put(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, b'{"groupName":"own"}')
    refused = 16, DENIED.format("Topic:Secret")
    assert told(await alice.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": "0", "topic": "Own"})) == refused
    assert told(await alice.ask(Code.VIEW_MESSAGE_BY_ID, {"offset": "+0"})) == refused
    back = {**samples.SEND_BACK, "group": "own", "originTopic": "Own"}
    assert told(await alice.ask(Code.CONSUMER_SEND_MSG_BACK, back)) == refused
    direct = {"consumerGroup": "own", "clientId": "c", "topic": "Own", "msgId": samples.FIRST_MESSAGE}
    assert told(await alice.ask(Code.CONSUME_MESSAGE_DIRECTLY, direct)) == refused


async def test_waiting_message_is_of_the_topic_it_goes_to(admin: SignedCaller, alice: SignedCaller) -> None:
    """Delayed ones and halves of transactions wait in other topics; who may send to theirs may end a transaction."""
    await admin.send("Own", properties="TRAN_MSG\x01true\x02PGROUP\x01producers\x02", sys_flag=4)
    end = {**samples.END_TRANSACTION, "producerGroup": "producers"}
    del end["topic"]
    assert told(await alice.ask(Code.END_TRANSACTION, end)) == (16, DENIED.format("Topic:Own"))
    assert told(await alice.ask(Code.END_TRANSACTION, {**end, "topic": "Own"})) == (16, DENIED.format("Topic:Own"))
    await admin.allow("alice", ["Topic:Own Pub"])
    assert (await alice.ask(Code.END_TRANSACTION, end)).code == ResponseCode.SUCCESS


async def test_secrets_of_an_administrator_do_not_reach_members(
    broker: Broker, admin: SignedCaller, alice: SignedCaller
) -> None:
    """What is passed on to a consumer comes without the signature, which would be good for ever."""
    await admin.allow("alice", ["Topic:T Sub", "Group:g Sub"])
    assert (await alice.heartbeat("member", "g", {"T": "*"}, version=493)).code == ResponseCode.SUCCESS
    asked = {"consumerGroup": "g", "clientId": "member"}
    async with asyncio.TaskGroup() as tasks:
        answer = tasks.create_task(admin.ask(Code.GET_CONSUMER_RUNNING_INFO, asked))
        question = await alice.next_request()
        while question.code != Code.GET_CONSUMER_RUNNING_INFO:
            question = await alice.next_request()
        answer.cancel()
    assert question.ext == asked


async def test_too_many_wrong_signatures(
    broker: Broker, admin: SignedCaller, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing more of that address is checked for a while, but for those who were known before, by their own name."""
    busy = 2, "too many wrong signatures came from this address, try again in a minute"
    await admin.make_user(*ALICE, "Topic:T Pub")
    async with open_signed(broker.address, *ALICE) as alice, open_signed(broker.address, "admin", "guess") as guesser:
        assert (await alice.send()).code == ResponseCode.SUCCESS
        for _ in range(MOST_TRIES):
            assert told(await guesser.send()) == (16, WRONG)
        assert told(await guesser.send()) == busy
        async with open_signed(broker.address) as newcomer:
            assert told(await newcomer.send()) == busy
        assert (await alice.send()).code == ResponseCode.SUCCESS
        other = SignedCaller(alice, *ADMIN)
        assert told(await other.send()) == busy
        clock.advance(PERIOD_MS)
        assert told(await guesser.send()) == (16, WRONG)
        assert (await other.send()).code == ResponseCode.SUCCESS
    assert caplog.text.count("checking nothing more from 127.0.0.1") == 1


async def test_refusals_are_logged_with_their_address(
    caller: Caller, admin: SignedCaller, caplog: pytest.LogCaptureFixture
) -> None:
    """Who asked, for what and why not, up to a number in each period; no secret, and nothing that breaks a line."""
    with caplog.at_level(logging.DEBUG):
        for _ in range(300):
            await caller.ask(SENDS, send_header("T"), b"body")
        assert caplog.text.count("refusing SEND_MESSAGE_V2 (310) from 127.0.0.1:") == 100
        assert "producerGroup producers, topic T, queueId 0: 'username cannot be null.'" in caplog.text
        fields = {"AccessKey": "a\nb" * 200, "Signature": "c2lnbmF0dXJl"}
        assert (await caller.ask(SENDS, fields)).remark == f"User:{fields['AccessKey']} is not found."
    assert "c2lnbmF0dXJl" not in caplog.text
    assert "a\nb" not in caplog.text
    assert "requests refused to users within" in caplog.text


async def test_authentication_alone_lets_users_do_everything(settings: dict[str, str], clock: ManualClock) -> None:
    """Policies do not count then; who is not known is refused as ever."""
    del settings["authorizationEnabled"]
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_signed(broker.address) as admin:
        await admin.make_user(*ALICE)
        async with open_signed(broker.address, *ALICE) as alice, open_caller(broker.address) as caller:
            assert (await alice.send()).code == ResponseCode.SUCCESS
            assert (await alice.ask(Code.GET_BROKER_CONFIG)).code == ResponseCode.SUCCESS
            assert told(await caller.send()) == (16, NO_NAME)


@pytest.mark.feature("A25")
async def test_settings_are_told_without_secrets(admin: SignedCaller) -> None:
    """Request 26 does not hold the passwords of the settings."""
    answer = await admin.put(Code.GET_BROKER_CONFIG)
    assert b"initAuthenticationUser=******" in answer.body
    assert b"admin123" not in answer.body
    assert b"inner123" not in answer.body
