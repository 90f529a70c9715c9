"""Filters by properties, by raw requests to a broker whose clock stands."""

import asyncio
import json
import pathlib
import shutil
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from raw_calls import Caller, open_caller, pull_header, until

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_CLASS_FILTER, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.record import iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

OWN: dict[str, Any] = {"expression_type": "SQL92"}
HOLD = PULL_SUBSCRIPTION | PULL_SUSPEND
NO_DATA = "The broker's consumer filter data is not exist!Your expression may be wrong!"


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Return settings with property filters switched on."""
    return {**settings, "enablePropertyFilter": "true"}


@asynccontextmanager
async def opened(settings: dict[str, str], clock: ManualClock) -> AsyncGenerator[Caller]:
    """Run a broker and connect to it."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(BrokerConfig.from_java(settings), clock))
        yield await stack.enter_async_context(open_caller(broker.address))


async def send_priced(caller: Caller, *prices: int, topic: str = "T", **more: str) -> None:
    """Send one message per price to queue 0, its price as body and as property."""
    for price in prices:
        properties = {"price": str(price), **more}
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        await caller.send(topic, body=b"%d" % price, properties=text)


async def subscribe(caller: Caller, expression: str, version: int, kind: str = "SQL92") -> None:
    """Say that a consumer of the group is alive, with one subscription."""
    said = {"topic": "T", "subString": expression, "expressionType": kind, "subVersion": version}
    sets: list[dict[str, Any]] = [{**said, "tagsSet": [], "codeSet": [], "classFilterMode": False}]
    assert (await caller.heartbeat("client", "consumers", {}, subscriptionDataSet=sets)).code == ResponseCode.SUCCESS


async def pull_of_group(caller: Caller, version: int = 0, **fields: Any) -> Command:
    """Pull with the subscription of the group, as a push consumer does."""
    return await caller.pull(sys_flag=0, sub_version=version, expression_type="SQL92", **fields)


def found(answer: Command) -> list[int]:
    """Return the prices in an answer."""
    return [int(bytes(record.body)) for record in iter_records(answer.body)]


def check_body(expression: str | None, kind: str | None) -> bytes:
    """Return what a client that starts asks about."""
    data = {"topic": "T", "subString": expression, "expressionType": kind, "subVersion": 1}
    given = {name: value for name, value in data.items() if value is not None}
    return json.dumps({"clientId": "c", "group": "g", "subscriptionData": given}).encode()


async def is_parked(caller: Caller, pull: asyncio.Task[Command]) -> bool:
    """Tell whether a pull waits: whatever was sent after it has been answered."""
    await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    return not pull.done()


@pytest.mark.feature("P27")
@pytest.mark.parametrize(
    ("expression", "kind", "code"),
    [
        ("price > 20", "SQL92", ResponseCode.SUCCESS),
        ("price >", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (None, "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("price > 20", "LUA", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("a || b", "TAG", ResponseCode.SUCCESS),
        ("", "TAG", ResponseCode.SUCCESS),
        ("||", "", ResponseCode.SUCCESS),
        (None, None, ResponseCode.SUCCESS),
    ],
)
async def test_client_that_starts(expression: str | None, kind: str | None, code: int, caller: Caller) -> None:
    """46 takes every tag expression and what compiles; all else is answered 23, with the cause."""
    answer = await caller.ask(RequestCode.CHECK_CLIENT_CONFIG, None, check_body(expression, kind))
    assert answer.code == code
    assert (answer.remark is None) is (code == ResponseCode.SUCCESS)


@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_client_that_asks_about_nothing(body: bytes, caller: Caller) -> None:
    """46 without a subscription is a success, as it is in Java."""
    assert (await caller.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body)).code == ResponseCode.SUCCESS


@pytest.mark.feature("P23", "P24")
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("price > 20", [21, 40]),
        ("price between 10 and 21", [20, 21]),
        ("size > 1", []),
        ("size is null and price < 21", [5, 20]),
    ],
)
async def test_group_filters_by_properties(expression: str, expected: list[int], caller: Caller) -> None:
    """A group gets what its expression matches; its offset moves behind the rest."""
    await send_priced(caller, 5, 20, 21, 40)
    await subscribe(caller, expression, 7)
    answer = await pull_of_group(caller, 7)
    assert (found(answer), answer.ext["nextBeginOffset"]) == (expected, "4")
    assert answer.code == (ResponseCode.SUCCESS if expected else ResponseCode.PULL_RETRY_IMMEDIATELY)


@pytest.mark.feature("P23")
async def test_pull_brings_its_own_filter(caller: Caller) -> None:
    """With the subscription flag the expression of the request counts, and no heartbeat is needed."""
    await send_priced(caller, 5, 21)
    for code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        answer = await caller.ask(code, pull_header("T", subscription="price > 20", **OWN))
        assert found(answer) == [21]


@pytest.mark.parametrize(
    ("expression", "kind", "code", "count"),
    [
        ("price >", "SQL92", ResponseCode.SUCCESS, 2),
        ("price > 20", "LUA", ResponseCode.SUCCESS, 2),
        ("", "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED, 0),
        (None, "SQL92", ResponseCode.SUBSCRIPTION_PARSE_FAILED, 0),
    ],
)
async def test_own_filter_that_is_none(
    expression: str | None, kind: str, code: int, count: int, caller: Caller
) -> None:
    """As in 5.4.0 a pull whose expression does not compile gets everything, one without an expression 23."""
    await send_priced(caller, 5, 21)
    answer = await caller.pull(subscription=expression, expression_type=kind)
    assert (answer.code, len(found(answer))) == (code, count)


@pytest.mark.parametrize("kind", ["TAG", "", None])
@pytest.mark.parametrize(
    ("expression", "more_flags", "expected"),
    [
        (None, 0, [1, 2, 3]),
        ("", 0, [1, 2, 3]),
        ("*", 0, [1, 2, 3]),
        ("a || c", 0, [1, 3]),
        ("a || c", PULL_CLASS_FILTER, [1, 2, 3]),
        ("||", PULL_CLASS_FILTER, [1, 2, 3]),
    ],
)
async def test_own_filter_of_tags(
    kind: str | None, expression: str | None, more_flags: int, expected: list[int], caller: Caller
) -> None:
    """A pull without an expression takes all, whatever its type is called; so does one that filters by a class."""
    for number, tag in enumerate("abc", 1):
        await caller.send(body=b"%d" % number, properties=f"TAGS\x01{tag}\x02")
    flags = PULL_SUBSCRIPTION | more_flags
    assert found(await caller.pull(sys_flag=flags, subscription=expression, expression_type=kind)) == expected
    answer = await caller.pull(subscription="||", expression_type=kind)
    assert (answer.code, found(answer)) == (ResponseCode.SUBSCRIPTION_PARSE_FAILED, [])


@pytest.mark.feature("P13")
async def test_filter_data_that_is_missing_or_old(caller: Caller) -> None:
    """A subscription whose expression was none is answered 27, one whose filter is older than the request 28."""
    await send_priced(caller, 5)
    await subscribe(caller, "price >", 5)
    answer = await pull_of_group(caller, 5)
    assert (answer.code, answer.remark) == (ResponseCode.FILTER_DATA_NOT_EXIST, NO_DATA)
    await subscribe(caller, "price > 1", 6)
    assert found(await pull_of_group(caller, 6)) == [5]
    assert (await pull_of_group(caller, 7)).code == ResponseCode.SUBSCRIPTION_NOT_LATEST
    await subscribe(caller, "", 7)
    answer = await pull_of_group(caller, 7)
    assert (answer.code, answer.remark) == (
        ResponseCode.FILTER_DATA_NOT_LATEST,
        "the consumer's consumer filter data not latest",
    )


@pytest.mark.feature("P25")
async def test_property_filters_are_off_unless_asked_for(settings: dict[str, str], clock: ManualClock) -> None:
    """By default 46 and pulls are answered 1; a heartbeat is taken, and an unusable expression is told of first."""
    del settings["enablePropertyFilter"]
    refused = (ResponseCode.SYSTEM_ERROR, "The broker does not support consumer to filter message by SQL92")
    async with opened(settings, clock) as caller:
        await send_priced(caller, 5)
        answer = await caller.ask(RequestCode.CHECK_CLIENT_CONFIG, None, check_body("price > 1", "SQL92"))
        assert (answer.code, answer.remark) == refused
        answer = await caller.pull(subscription="price > 1", **OWN)
        assert (answer.code, answer.remark) == refused
        assert (await caller.pull(subscription="", **OWN)).code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        await subscribe(caller, "price > 1", 1)
        answer = await pull_of_group(caller, 1)
        assert (answer.code, answer.remark) == refused
        await subscribe(caller, "price >", 2)
        assert (await pull_of_group(caller, 2)).code == ResponseCode.FILTER_DATA_NOT_EXIST


@pytest.mark.feature("P6", "P8")
async def test_held_pull_is_decided_by_properties(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """A match wakes a held pull at once; other arrivals leave it parked, and within 5 s move its offset."""
    await send_priced(caller, 21)
    about: dict[str, Any] = {"sys_flag": HOLD, "subscription": "price > 20", **OWN}
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as group:
        pull = group.create_task(caller.pull(queue_offset=1, **about))
        assert await is_parked(caller, pull)
        await send_priced(other, 5)
        assert await is_parked(caller, pull)
        await send_priced(other, 40)
        assert found(await pull) == [40]
        pull = group.create_task(caller.pull(queue_offset=3, **about))
        assert await is_parked(caller, pull)
        await send_priced(other, 6, 7)
        assert await is_parked(caller, pull)
        clock.advance(5000)
        answer = await pull
    assert (answer.code, answer.ext["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "5")


async def test_subscription_changes_while_running(caller: Caller) -> None:
    """From the heartbeat on that brings them, a newer expression, tags, and an expression again decide."""
    await send_priced(caller, 5, 21)
    await subscribe(caller, "price > 20", 1)
    assert found(await pull_of_group(caller, 1)) == [21]
    await subscribe(caller, "price < 20", 2)
    assert found(await pull_of_group(caller, 2)) == [5]
    await subscribe(caller, "*", 3, kind="TAG")
    assert found(await pull_of_group(caller, 3)) == [5, 21]
    await subscribe(caller, "price > 20", 4)
    assert found(await pull_of_group(caller, 4)) == [21]


async def test_held_pull_follows_a_changed_subscription(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """A pull that was parked under the old expression is answered by the new one when it is run again."""
    await send_priced(caller, 21)
    await subscribe(caller, "price > 20", 1)
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as group:
        fields: dict[str, Any] = {"sub_version": 1, "queue_offset": 1, "expression_type": "SQL92"}
        pull = group.create_task(caller.pull(sys_flag=PULL_SUSPEND, **fields))
        assert await is_parked(caller, pull)
        await subscribe(caller, "price < 20", 2)
        await send_priced(other, 5)
        clock.advance(5000)
        assert found(await pull) == [5]


@pytest.mark.feature("P28")
async def test_filter_survives_a_restart(settings: dict[str, str], clock: ManualClock) -> None:
    """After a restart the saved expression is there: it outlasts a heartbeat that brings an older one."""
    async with opened(settings, clock) as caller:
        await send_priced(caller, 5, 21)
        await subscribe(caller, "price > 20", 7)
    (written,) = saved_filters(settings)["T"]["groupFilterData"].values()
    assert (written["expression"], written["clientVersion"]) == ("price > 20", 7)
    async with opened(settings, clock) as caller:
        await subscribe(caller, "price < 20", 6)
        assert found(await pull_of_group(caller, 6)) == [21]


@pytest.mark.feature("P28")
@pytest.mark.parametrize("ending", ["stop", "kill"])
async def test_saved_filter_is_used_before_the_first_heartbeat(
    ending: str, settings: dict[str, str], clock: ManualClock
) -> None:
    """What waits for a group passes its saved filter although no member is back; one that is back need not say more."""
    settings["filterSupportRetry"] = "true"
    root = settings["storePathRootDir"]

    def is_saved() -> bool:
        try:
            return saved_filters(settings)["T"]["groupFilterData"]["consumers"]["clientVersion"] == 7
        except FileNotFoundError:  # one file takes the place of the other
            return False

    async with opened(settings, clock) as caller:
        await subscribe(caller, "price > 1", 6)
        await send_priced(caller, 5, 21, topic="%RETRY%consumers", RETRY_TOPIC="T")
        await send_priced(caller, 5, 21)
        await subscribe(caller, "price > 20", 7)
        await clock.elapse(10_000)
        await until(is_saved)
        await asyncio.to_thread(shutil.copytree, root, f"{root}-kill")
    if ending == "kill":
        settings["storePathRootDir"] = f"{root}-kill"
    async with opened(settings, clock) as caller:
        assert found(await caller.pull("%RETRY%consumers", subscription="price > 1", **OWN)) == [21]
        assert (await pull_of_group(caller, 7)).code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        await subscribe(caller, "price > 20", 7)
        assert found(await pull_of_group(caller, 7)) == [21]


@pytest.mark.feature("P28")
@pytest.mark.parametrize("filters_retries", [True, False])
async def test_retried_messages(*, filters_retries: bool, settings: dict[str, str], clock: ManualClock) -> None:
    """With filterSupportRetry retried messages pass the filter of their topic, from the file before any heartbeat."""
    settings["filterSupportRetry"] = str(filters_retries).lower()
    retry = "%RETRY%consumers"
    async with opened(settings, clock) as caller:
        await send_priced(caller, 5)
        await subscribe(caller, "price > 20", 7)
        await send_priced(caller, 5, 21, topic=retry, RETRY_TOPIC="T")
        await send_priced(caller, 6, topic=retry, RETRY_TOPIC="Unknown")
        await send_priced(caller, 7, topic=retry)
    async with opened(settings, clock) as caller:
        answer = await caller.pull(retry, subscription="price > 1", **OWN)
        assert found(answer) == ([21, 6, 7] if filters_retries else [5, 21, 6, 7])
        assert found(await caller.pull(retry, subscription="*")) == [5, 21, 6, 7]


@pytest.mark.parametrize("leaves", ["says so", "closes"])
async def test_group_that_leaves(leaves: str, settings: dict[str, str], clock: ManualClock) -> None:
    """When its last member leaves, or the connection closes, a group's filter is saved as dead since then."""
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(Broker(BrokerConfig.from_java(settings), clock))
        async with open_caller(broker.address) as caller:
            await send_priced(caller, 5)
            await subscribe(caller, "price > 20", 7)
            clock.advance(1000)
            if leaves == "says so":
                header = {"clientID": "client", "consumerGroup": "consumers"}
                await caller.ask(RequestCode.UNREGISTER_CLIENT, header)
        await until(lambda: not broker.clients)
        gone_at_ms = clock.now_ms()
        clock.advance(1000)
    (saved,) = saved_filters(settings)["T"]["groupFilterData"].values()
    assert (saved["dead"], saved["deadTime"]) == (True, gone_at_ms)


async def test_filter_of_a_group_long_gone(settings: dict[str, str], clock: ManualClock) -> None:
    """When filterDataCleanTimeSpan is over, the next scan forgets a dead filter; the file is written without it."""
    settings["filterDataCleanTimeSpan"] = "60000"
    async with opened(settings, clock) as caller:
        await send_priced(caller, 5)
        await subscribe(caller, "price > 20", 7)
    assert list(saved_filters(settings)) == ["T"]
    async with opened(settings, clock):
        await clock.elapse(70_000)
    assert saved_filters(settings) == {}


def saved_filters(settings: dict[str, str]) -> dict[str, Any]:
    """Return what is in ``consumerFilter.json``, by topic."""
    saved = pathlib.Path(settings["storePathRootDir"], "config", "consumerFilter.json")
    return json.loads(saved.read_text())["filterDataByTopic"]


@pytest.mark.feature("P26", "P27")
async def test_table_of_the_real_filter(caller: Caller, vectors: pathlib.Path) -> None:
    """Each expression that RocketMQ 5.4 was asked is accepted or refused at the start, and matches, as there."""
    first, *cases = json.loads((vectors / "codec" / "sql92.json").read_text())
    sets: list[dict[str, str]] = first["propertySets"][:3]  # the fourth has an empty value, which no record can hold
    for number, properties in enumerate(sets):
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        await caller.send(body=b"%d" % number, properties=text)
    for case in cases:
        expression: str = case["expression"]
        checked = await caller.ask(RequestCode.CHECK_CLIENT_CONFIG, None, check_body(expression, "SQL92"))
        wanted = ResponseCode.SUCCESS if case["compiles"] else ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert checked.code == wanted, expression
        if case["compiles"]:
            pulled = await caller.pull(subscription=expression, **OWN)
            matching = [number for number, result in enumerate(case["results"][:3]) if result is True]
            assert found(pulled) == matching, expression


async def test_pull_that_waits_gets_the_message_that_its_expression_wants(caller: Caller) -> None:
    """It looks at the record itself, when that is readable: nothing else answers it."""
    await caller.send(queue_id=3)
    async with asyncio.TaskGroup() as group:
        pull = group.create_task(caller.pull(subscription="price > 20", sys_flag=HOLD, **OWN))
        await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
        await caller.send(properties="price\x0130\x02")
    assert (pull.result().code, pull.result().ext["nextBeginOffset"]) == (ResponseCode.SUCCESS, "1")
