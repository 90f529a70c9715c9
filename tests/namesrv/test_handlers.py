"""Settings that administrators read and change while the name server runs."""

from collections.abc import Awaitable, Callable

import pytest
from badinput.replaying import handled_codes
from raw_calls import Caller
from registrations import BROKER, registration_body

from rocketlet.common.codes import ResponseCode
from rocketlet.common.settings import parse_java_properties
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

Start = Callable[..., Awaitable[Caller]]
KEY = {"namespace": "n", "key": "k"}


async def settings_of(caller: Caller) -> dict[str, str]:
    """Return what the name server tells about its settings."""
    answer = await caller.ask(RequestCode.GET_NAMESRV_CONFIG)
    assert answer.code == ResponseCode.SUCCESS
    return parse_java_properties(answer.body.decode())


async def change(caller: Caller, text: str) -> Command:
    """Ask for other settings."""
    return await caller.ask(RequestCode.UPDATE_NAMESRV_CONFIG, None, text.encode())


@pytest.mark.feature("N21")
async def test_changed_setting_is_read_back_and_counts(caller: Caller) -> None:
    """A new value is told, and followed from the next request on."""
    before = await settings_of(caller)
    assert (before["enableAllTopicList"], before["kvConfigPath"]) == ("true", "")
    assert list(before) == sorted(before)
    answer = await change(caller, "enableAllTopicList=false\nclientRequestThreadPoolNums = 3\n")
    assert answer.code == ResponseCode.SUCCESS
    assert await settings_of(caller) == {**before, "enableAllTopicList": "false"}
    answer = await caller.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
    assert answer.remark == "disable"


@pytest.mark.feature("N21")
@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "listenPort"])
async def test_blacklisted_setting_is_refused(key: str, start: Start) -> None:
    """Four keys are always on the black list, others by the setting; nothing of such a request is taken."""
    caller = await start(configBlackList="listenPort;x")
    answer = await change(caller, f"enableTopicList=false\n{key}=1")
    assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    assert (await settings_of(caller))["enableTopicList"] == "true"


@pytest.mark.feature("N21")
@pytest.mark.parametrize(
    ("text", "remark"),
    [
        ("enableTopicList=\\u12", "string2Properties error"),
        ("enableTopicList=maybe", "enableTopicList is 'maybe', expected true or false"),
        ("enableTopicList=false\nlistenPort=9999", "listenPort is read at the start only"),
        (
            "serverChannelMaxIdleTimeSeconds=9\nlistenPort=9\nbindAddress=::",
            "bindAddress is read at the start only",
        ),
    ],
)
async def test_change_that_cannot_be_made_says_why(text: str, remark: str, caller: Caller) -> None:
    """A bad text, a bad value and a key that is read at the start only are errors, and change nothing."""
    answer = await change(caller, text)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
    assert (await settings_of(caller))["enableTopicList"] == "true"


@pytest.mark.feature("N21")
async def test_empty_change_is_none(caller: Caller) -> None:
    """A request without a body succeeds."""
    before = await settings_of(caller)
    assert (await change(caller, "")).code == ResponseCode.SUCCESS
    assert await settings_of(caller) == before


@pytest.mark.feature("N21")
async def test_change_is_bounded_in_lines(caller: Caller) -> None:
    """As many lines as are allowed are read, one more are refused unread."""
    for ends in ("\n" * 10_000, "\r" * 10_000, "\r\n" * 5000):
        assert (await change(caller, ends)).code == ResponseCode.SUCCESS
        answer = await change(caller, f"{ends}\n")
        assert answer.remark == "the settings have 10001 ends of lines, limit is 10000"


@pytest.mark.feature("N21")
async def test_settings_that_are_not_read_are_named_in_the_log(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    """Who sets what this name server does not have is not left to believe that it counts."""
    await change(caller, "enableTopicList=false")
    assert caplog.messages == []
    await change(caller, "enableTopicList=true\ntestBeta=1\ntestAlpha=1")
    assert caplog.messages == ["settings testAlpha, testBeta were changed, but this name server does not read them"]


ANSWERED: dict[RequestCode, tuple[dict[str, str], bytes]] = {
    RequestCode.REGISTER_BROKER: ({**BROKER, "haServerAddr": "h:1"}, registration_body("T", "U")),
    RequestCode.QUERY_DATA_VERSION: (BROKER, b""),
    RequestCode.BROKER_HEARTBEAT: (BROKER, b""),
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: (BROKER, b""),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: (BROKER, b""),
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: ({"topic": "V"}, b"{}"),
    RequestCode.PUT_KV_CONFIG: ({**KEY, "value": "v"}, b""),
    RequestCode.GET_KV_CONFIG: (KEY, b""),
    RequestCode.GET_KVLIST_BY_NAMESPACE: (KEY, b""),
    RequestCode.DELETE_KV_CONFIG: (KEY, b""),
    RequestCode.GET_ROUTEINFO_BY_TOPIC: ({"topic": "T"}, b""),
    RequestCode.GET_BROKER_CLUSTER_INFO: ({}, b""),
    RequestCode.GET_BROKER_MEMBER_GROUP: (BROKER, b""),
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: ({}, b""),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: ({}, b""),
    RequestCode.GET_TOPICS_BY_CLUSTER: ({"cluster": "c"}, b""),
    RequestCode.GET_UNIT_TOPIC_LIST: ({}, b""),
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: ({}, b""),
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: ({}, b""),
    RequestCode.GET_NAMESRV_CONFIG: ({}, b""),
    RequestCode.UPDATE_NAMESRV_CONFIG: ({}, b"enableTopicList=true"),
    RequestCode.DELETE_TOPIC_IN_NAMESRV: ({"topic": "T"}, b""),
    RequestCode.UNREGISTER_BROKER: (BROKER, b""),
}


async def test_success_comes_without_a_remark(caller: Caller) -> None:
    """Each request that a name server answers, made well, is answered 0 and no remark, as by Java: tools print it."""
    for code, (fields, body) in ANSWERED.items():
        answer = await caller.ask(code, fields, body)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None), code
    assert set(ANSWERED) == await handled_codes(caller)
