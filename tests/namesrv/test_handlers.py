"""Settings that administrators read and change while the name server runs."""

from collections.abc import Awaitable, Callable

import pytest
from raw_calls import Caller

from rocketlet.common.codes import ResponseCode
from rocketlet.common.settings import parse_java_properties
from rocketlet.namesrv.handlers import MAX_LINES
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

Start = Callable[..., Awaitable[Caller]]


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
    assert (await change(caller, "\n" * MAX_LINES)).code == ResponseCode.SUCCESS
    answer = await change(caller, "\n" * (MAX_LINES + 1))
    assert answer.remark == f"the settings have {MAX_LINES + 1} ends of lines, limit is {MAX_LINES}"
