"""Settings are read and changed by raw requests to a broker whose clock the test moves."""

import asyncio
import json
import pathlib
import shutil
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from raw_calls import Caller, open_caller

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LIVE_KEYS
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConfigError
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.record import iter_records
from rocketlet.common.record_messages import decode_message
from rocketlet.common.settings import format_java_properties, parse_java_properties
from rocketlet.namesrv.server import NameServer
from rocketlet.remoting.bodies.body import decode_answer
from rocketlet.remoting.bodies.route import KVTable, TopicRouteData
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.testing.manual_clock import ManualClock


async def change(caller: Caller, **settings: str) -> Command:
    """Change settings."""
    return await caller.ask(Code.UPDATE_BROKER_CONFIG, None, format_java_properties(settings).encode())


async def put(caller: Caller, **settings: str) -> None:
    """Change settings, which must succeed."""
    answer = await change(caller, **settings)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)


async def tell(caller: Caller) -> dict[str, str]:
    """Return all settings."""
    answer = await caller.ask(Code.GET_BROKER_CONFIG)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    return parse_java_properties(answer.body.decode())


async def count_changes(caller: Caller) -> int:
    """Return how often settings were changed."""
    return json.loads((await caller.ask(Code.GET_BROKER_CONFIG)).ext["version"])["counter"]


def saved_file(settings: Mapping[str, str]) -> pathlib.Path:
    """Return the file in the store that keeps what was changed."""
    return pathlib.Path(settings["storePathRootDir"], "config/broker.properties")


def read_saved(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what is kept."""
    return parse_java_properties(saved_file(settings).read_text())


async def messages(caller: Caller) -> list[dict[str, str]]:
    """Pull from T; return the properties of the messages."""
    body = (await caller.pull("T")).body
    return [decode_message(record, "b").properties for record in iter_records(body)]


# --- what is changed, and what not


def other_value(key: str, value: str) -> str:
    """Return a value that is not the one which counts."""
    special = {
        "deleteWhen": "05;17",
        "regionId": "elsewhere",
        "brokerPermission": "4",
        "defaultMessageRequestMode": "POP",
    }
    if key in special:
        return special[key]
    return {"true": "false", "false": "true"}[value] if value in ("true", "false") else str(int(value) + 1)


async def test_all_live_settings_are_taken_told_and_kept(caller: Caller, settings: dict[str, str]) -> None:
    """Of all live keys at once; the others stay what they were; the version counts the change."""
    before = await tell(caller)
    assert list(before) == sorted(before)
    assert await count_changes(caller) == 0
    wanted = {key: other_value(key, before[key]) for key in LIVE_KEYS}
    await put(caller, **wanted)
    assert await tell(caller) == {**before, **wanted}
    assert await count_changes(caller) == 1
    assert read_saved(settings) == wanted


async def test_settings_of_the_start_are_refused(caller: Caller, settings: dict[str, str]) -> None:
    """Every other key that rocketlet uses is named, and nothing of its request is changed or kept."""
    before = await tell(caller)
    black = {"configBlackList"}
    for key in before.keys() - LIVE_KEYS - black:
        answer = await change(caller, **{key: before[key], "brokerPermission": "4"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert key in (answer.remark or "")
    assert await tell(caller) == before
    assert await count_changes(caller) == 0
    assert not saved_file(settings).exists()


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"brokerPermission": "8"}, 1, "brokerPermission is 8, expected 0 to 7"),
        ({"longPollingEnable": "perhaps"}, 1, "longPollingEnable is 'perhaps', expected true or false"),
        ({"maxMessageSize": "9" * 5000}, 1, "maxMessageSize is '999"),
        ({"deleteWhen": "9" * 5000}, 1, "deleteWhen is '999"),
        ({"regionId": "a\x01b"}, 1, "regionId is 'a\\x01b', it must be printable and have 255 characters at most"),
        ({"brokerRole": "SLAVE"}, 1, "brokerRole is read at the start only: "),
        ({"inSyncReplicas": "0"}, 1, "inSyncReplicas is 0, expected 1 to "),
        ({"enableControllerMode": "true"}, 1, "enableControllerMode=true cannot be used: controller mode is not built"),
        ({"aclEnable": "true"}, 1, "aclEnable=true cannot be used: the rules of plain_acl.yml are imported instead: "),
        ({"configBlackList": ""}, 16, "Can not update config in black list."),
        ({"brokerConfigPath": "x"}, 16, "Can not update config in black list."),
        ({"rocketmqHome": "x"}, 16, "Can not update config in black list."),
    ],
)
async def test_refused_changes(caller: Caller, changes: dict[str, str], code: int, remark: str) -> None:
    """Nothing of a request changes if one value cannot be used or one key not be changed."""
    before = await tell(caller)
    answer = await change(caller, **{"slaveReadEnable": "true", **changes, "traceOn": "false"})
    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    assert len(answer.remark or "") <= 1000
    assert await tell(caller) == before
    assert await count_changes(caller) == 0


async def test_black_list_of_the_settings(settings: dict[str, str], clock: ManualClock) -> None:
    """It may hold any key; those of every broker are in it, too."""
    settings["configBlackList"] = "traceOn;regionId"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        for key in ("traceOn", "regionId", "configBlackList"):
            assert (await change(caller, **{key: "true"})).code == ResponseCode.NO_PERMISSION
        await put(caller, longPollingEnable="false")


async def test_settings_without_effect(
    caller: Caller, settings: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """What Java knows, and what nobody knows, is said to be without effect; neither told nor kept."""
    unknown = {f"unheardOf{number}": "1" for number in range(9)}
    await put(caller, autoDeleteUnusedStats="true", aclEnable="false", longPolingEnable="true", **unknown)
    assert "setting autoDeleteUnusedStats has no effect: rocketlet does not use it" in caplog.text
    assert "setting longPolingEnable is unknown; did you mean longPollingEnable?" in caplog.text
    assert "7 more settings are unknown: unheardOf2" in caplog.text
    assert "autoDeleteUnusedStats" not in await tell(caller)
    assert not saved_file(settings).exists()


async def test_bodies_that_hold_nothing(caller: Caller) -> None:
    """An empty body changes nothing, and a broken escape is told; the version counts what was taken."""
    assert (await caller.ask(Code.UPDATE_BROKER_CONFIG)).code == ResponseCode.SUCCESS
    assert await count_changes(caller) == 0
    broken = await caller.ask(Code.UPDATE_BROKER_CONFIG, None, b"regionId=\\u12\n")
    assert (broken.code, broken.remark) == (ResponseCode.SYSTEM_ERROR, "string2Properties error")
    assert (await caller.ask(Code.UPDATE_BROKER_CONFIG, None, b"# nothing\n")).code == ResponseCode.SUCCESS
    assert await count_changes(caller) == 1


# --- effects


async def permission_in_route(nameserver: NameServer, topic: str) -> int:
    """Return what the name server tells of a topic."""
    async with open_caller(nameserver.address) as asker:
        answer = await asker.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return decode_answer(TopicRouteData, answer.body).queue_datas[0].perm


async def test_permission_counts_at_once(caller: Caller, nameserver: NameServer) -> None:
    """Pulls, sends back and routes follow; name servers have been told when the change is answered."""
    await caller.send("T")
    back = {"group": "g", "offset": "0", "delayLevel": "0"}
    await put(caller, brokerPermission="4")
    assert await permission_in_route(nameserver, "T") == 4
    assert (await caller.ask(Code.CONSUMER_SEND_MSG_BACK, back)).code == ResponseCode.NO_PERMISSION
    assert (await caller.pull("T")).code == ResponseCode.SUCCESS
    await put(caller, brokerPermission="2")
    assert await permission_in_route(nameserver, "T") == 2
    pulled = await caller.pull("T")
    assert (pulled.code, pulled.remark) == (
        ResponseCode.NO_PERMISSION,
        "the broker[127.0.0.1] pulling message is forbidden",
    )
    await put(caller, brokerPermission="6")
    assert await permission_in_route(nameserver, "T") == 6
    assert (await caller.ask(Code.CONSUMER_SEND_MSG_BACK, back)).code == ResponseCode.SUCCESS
    assert (await caller.pull("T")).code == ResponseCode.SUCCESS


async def test_topics_and_groups_are_made_as_long_as_it_is_allowed(caller: Caller) -> None:
    """Sends and consumers make what is missing, or are refused."""
    await put(caller, autoCreateTopicEnable="false", autoCreateSubscriptionGroup="false")
    assert (await caller.send("new")).code == ResponseCode.TOPIC_NOT_EXIST
    asked = await caller.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "new"})
    assert asked.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    await put(caller, autoCreateTopicEnable="true", autoCreateSubscriptionGroup="true")
    assert (await caller.send("new")).code == ResponseCode.SUCCESS
    assert (await caller.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "new"})).code == ResponseCode.SUCCESS


async def test_template_comes_when_topics_may_be_made(
    settings: dict[str, str], clock: ManualClock, nameserver: NameServer
) -> None:
    """A broker that was started without lets its clients find the template, and makes their topics."""
    settings["autoCreateTopicEnable"] = "false"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        assert (await caller.send("new")).code == ResponseCode.TOPIC_NOT_EXIST
        await put(caller, autoCreateTopicEnable="true")
        assert await permission_in_route(nameserver, "TBW102") == 7
        assert (await caller.send("new")).code == ResponseCode.SUCCESS


async def test_transactions_and_recalls_are_refused_or_taken(caller: Caller) -> None:
    """Half messages, and recalls, which then fail for what is wrong with the handle."""
    recall = {"topic": "T", "recallHandle": "x"}
    half = "TRAN_MSG\x01true\x02PGROUP\x01g\x02"
    await caller.send("T")
    assert (await caller.ask(Code.RECALL_MESSAGE, recall)).code == ResponseCode.NO_PERMISSION
    await put(caller, rejectTransactionMessage="true", recallMessageEnable="true")
    assert (await caller.send("T", properties=half, sys_flag=4)).code == ResponseCode.NO_PERMISSION
    assert (await caller.ask(Code.RECALL_MESSAGE, recall)).code == ResponseCode.ILLEGAL_OPERATION
    await put(caller, rejectTransactionMessage="false", allowRecallWhenBrokerNotWriteable="false", brokerPermission="4")
    assert (await caller.send("T", properties=half, sys_flag=4)).code == ResponseCode.SUCCESS
    assert (await caller.ask(Code.RECALL_MESSAGE, recall)).code == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_filters_and_lite_pulls(caller: Caller) -> None:
    """Expressions over properties are taken, and lite pulls refused, from the next request on."""
    await caller.send("T")
    sql: dict[str, Any] = {"expression_type": "SQL92", "subscription": "a IS NULL"}
    assert (await caller.pull("T", **sql)).code == ResponseCode.SYSTEM_ERROR
    await put(caller, enablePropertyFilter="true", litePullMessageEnable="false")
    assert (await caller.pull("T", **sql)).code == ResponseCode.SUCCESS
    lite = {**sql, "consumerGroup": "consumers", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1"}
    lite |= {"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "1", "subVersion": "0"}
    assert (await caller.ask(Code.LITE_PULL_MESSAGE, lite)).code == ResponseCode.NO_PERMISSION


async def test_pull_waits_as_long_as_is_set(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """Without long polling it is answered after shortPollingTimeMills, whatever it asks for."""
    await caller.send("T")
    await put(caller, longPollingEnable="false", shortPollingTimeMills="300")
    async with open_caller(broker.address) as waiter, asyncio.TaskGroup() as tasks:
        pull = tasks.create_task(waiter.pull("T", 1, sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND, suspend_ms=60_000))
        await waiter.ask(Code.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
        assert not pull.done()
        await clock.elapse(300)
        assert (await pull).code == ResponseCode.PULL_NOT_FOUND


async def test_limits_of_reading(caller: Caller) -> None:
    """How much one pull, and one query, returns; and which broker consumers far behind are sent to."""
    for _ in range(3):
        await caller.send("T", properties="KEYS\x01k\x02")
    query = {"topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": f"{2**62}"}
    assert len(await messages(caller)) == 3
    await put(caller, maxTransferCountOnMessageInMemory="2", maxMsgsNumBatch="1")
    assert len(await messages(caller)) == 2
    assert len(list(iter_records((await caller.ask(Code.QUERY_MESSAGE, query)).body))) == 1
    await put(caller, maxTransferCountOnMessageInMemory="32", maxTransferBytesOnMessageInMemory="1")
    assert len(await messages(caller)) == 1
    await put(caller, accessMessageInMemoryMaxRatio="0", slaveReadEnable="true", maxTransferCountOnMessageInDisk="2")
    pulled = await caller.pull("T")
    assert len(list(iter_records(pulled.body))) == 2
    assert pulled.ext["suggestWhichBrokerId"] == "1"


async def test_queries_by_unique_key_return_as_many_as_is_set(caller: Caller) -> None:
    """They do not say how many they want."""
    for _ in range(3):
        await caller.send("T", properties="UNIQ_KEY\x01u\x02")
    await put(caller, defaultQueryMaxNum="2")
    query = {"topic": "T", "key": "u", "maxNum": "64", "beginTimestamp": "0", "endTimestamp": f"{2**62}"}
    answer = await caller.ask(Code.QUERY_MESSAGE, {**query, "_UNIQUE_KEY_QUERY": "true"})
    assert len(list(iter_records(answer.body))) == 2


async def test_size_limit_and_region_of_messages(caller: Caller) -> None:
    """Longer bodies are refused; what the broker adds to messages and answers is the new region."""
    await put(caller, maxMessageSize="4", regionId="elsewhere %d", traceOn="false")
    assert (await caller.send("T", b"12345")).code == ResponseCode.MESSAGE_ILLEGAL
    sent = await caller.send("T", b"1234")
    assert (sent.ext["MSG_REGION"], sent.ext["TRACE_ON"]) == ("elsewhere %d", "false")
    [stored] = await messages(caller)
    assert (stored["MSG_REGION"], stored["TRACE_ON"]) == ("elsewhere %d", "false")
    await put(caller, maxMessageSize="5")
    assert (await caller.send("T", b"12345")).code == ResponseCode.SUCCESS


async def test_replies_are_stored_or_not(caller: Caller) -> None:
    """A reply that nobody waits for is stored as long as replies are."""
    await caller.send("T")
    await caller.ask(Code.SEND_REPLY_MESSAGE_V2, {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", **REPLY}, b"r")
    assert len(await messages(caller)) == 2
    await put(caller, storeReplyMessageEnable="false")
    await caller.ask(Code.SEND_REPLY_MESSAGE_V2, {"a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", **REPLY}, b"r")
    assert len(await messages(caller)) == 2


REPLY = {"f": "0", "g": "1700000000000", "h": "0", "i": "REPLY_TO_CLIENT\x01nobody\x02", "j": "0"}


async def test_members_are_told_or_not(broker: Broker, caller: Caller) -> None:
    """Of a second member that comes and goes, the first hears as long as that is set."""
    await caller.heartbeat("one", "g", {"T": "*"})
    await caller.next_request()
    await put(caller, notifyConsumerIdsChangedEnable="false")
    async with open_caller(broker.address) as second:
        await second.heartbeat("two", "g", {"T": "*"})
        await caller.ask(Code.GET_BROKER_CONFIG)
        assert caller.requests.empty()
        await put(caller, notifyConsumerIdsChangedEnable="true")
    assert (await caller.next_request()).code == Code.NOTIFY_CONSUMER_IDS_CHANGED


async def test_silent_clients_are_dropped_when_it_is_set(broker: Broker, caller: Caller, clock: ManualClock) -> None:
    """One that would be kept for two minutes goes with the next look at all."""
    async with open_caller(broker.address) as silent:
        await silent.heartbeat("one", "g", {"T": "*"})
        assert len(broker.clients) == 1
        await put(caller, channelExpiredTimeout="5000")
        await clock.elapse(20_000)
        assert not broker.clients


async def test_rules_of_transaction_checks(caller: Caller, clock: ManualClock) -> None:
    """With no checks at all the next round gives up what it finds."""
    await caller.send("T", properties="TRAN_MSG\x01true\x02PGROUP\x01g\x02", sys_flag=4, born_at_ms=clock.now_ms())
    await put(caller, transactionCheckMax="0")
    await clock.elapse(60_000)
    kept = await caller.ask(Code.GET_TOPIC_CONFIG, {"topic": "TRANS_CHECK_MAX_TIME_TOPIC"})
    assert kept.code == ResponseCode.SUCCESS


async def test_limits_of_a_stalled_disk(settings: dict[str, str], clock: ManualClock) -> None:
    """Under SYNC_FLUSH dashboards see how many sends may wait."""
    settings["flushDiskType"] = "SYNC_FLUSH"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await put(caller, sendThreadPoolQueueCapacity="77")
        table = decode_answer(KVTable, (await caller.ask(Code.GET_BROKER_RUNTIME_INFO)).body).table
        assert table["sendThreadPoolQueueCapacity"] == "77"


async def test_store_works_by_the_new_settings(broker: Broker, caller: Caller) -> None:
    """Retention and flushing read them in each round."""
    await put(caller, fileReservedTime="1", cleanResourceInterval="1234", flushIntervalCommitLog="50")
    assert broker.store.config.cleaning.reserved_ms == 3_600_000
    assert broker.store.cleaner.period_ms == 1_234
    assert broker.store.config.flush_log_interval_ms == 50


# --- what is kept


@asynccontextmanager
async def started(settings: Mapping[str, str], clock: ManualClock) -> AsyncGenerator[Caller]:
    """Run a broker, and return a caller."""
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        yield caller


async def test_changes_outlive_restart_and_kill(settings: dict[str, str], clock: ManualClock) -> None:
    """They count from the start on, in the store, too; a later change replaces an earlier one."""
    async with started(settings, clock) as caller:
        await put(caller, brokerPermission="4", maxMessageSize="5")
        await put(caller, maxMessageSize="4")
        root = settings["storePathRootDir"]
        await asyncio.to_thread(shutil.copytree, root, f"{root}-killed")
    for place in (root, f"{root}-killed"):
        async with started({**settings, "storePathRootDir": place}, clock) as caller:
            told = await tell(caller)
            assert (told["brokerPermission"], told["maxMessageSize"]) == ("4", "4")
            assert (await caller.send("T", b"12345")).code == ResponseCode.MESSAGE_ILLEGAL
            assert await count_changes(caller) == 0


async def test_what_the_start_is_given_wins(
    settings: dict[str, str], clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the saved settings that lose; the others count."""
    async with started(settings, clock) as caller:
        await put(caller, brokerPermission="4", traceOn="false", longPollingEnable="false")
    given = {**settings, "brokerPermission": "6", "traceOn": "false"}
    async with started(given, clock) as caller:
        told = await tell(caller)
    assert (told["brokerPermission"], told["traceOn"], told["longPollingEnable"]) == ("6", "false", "false")
    assert f"saved settings brokerPermission in {saved_file(settings)} do not count" in caplog.text


async def test_settings_of_a_program_win(settings: dict[str, str], clock: ManualClock) -> None:
    """What is no default was meant so."""
    async with started(settings, clock) as caller:
        await put(caller, brokerPermission="4", traceOn="false")
    config = BrokerConfig(port=0, permission=7, store=BrokerConfig.from_java(settings).store)
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        told = await tell(caller)
    assert (told["brokerPermission"], told["traceOn"]) == ("7", "false")


async def test_change_that_cannot_be_saved(caller: Caller, settings: dict[str, str], tmp_path: pathlib.Path) -> None:
    """The answer says so and the change counts all the same; the next change saves both."""
    obstacle = saved_file(settings).with_name("broker.properties.tmp")
    obstacle.mkdir(parents=True)
    answer = await change(caller, brokerPermission="4")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    said = f"the settings are changed, but could not be saved in {saved_file(settings)}: "
    assert (answer.remark or "").startswith(said)
    assert (await tell(caller))["brokerPermission"] == "4"
    obstacle.rmdir()
    await put(caller, traceOn="false")
    assert read_saved(settings) == {"brokerPermission": "4", "traceOn": "false"}


@pytest.mark.parametrize("text", ["brokerPermission=9\n", "brokerPermission=\\u1\n", "listenPort=1\n"])
async def test_damaged_file_stops_the_start(settings: dict[str, str], clock: ManualClock, text: str) -> None:
    """It is named."""
    file = saved_file(settings)
    file.parent.mkdir(parents=True)
    file.write_text(text)
    del settings["listenPort"]
    with pytest.raises(ConfigError, match=r"broker\.properties"):
        await Broker(BrokerConfig.from_java(settings), clock).__aenter__()


async def test_requests_at_once_are_all_kept(broker: Broker, settings: dict[str, str]) -> None:
    """Of two that change the same, the later one stays, in memory and on the disk."""
    async with open_caller(broker.address) as caller, asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(put(caller, shortPollingTimeMills=str(number), **{KEYS[number % len(KEYS)]: "7"}))
    async with open_caller(broker.address) as caller:
        told = await tell(caller)
    saved = read_saved(settings)
    assert saved == {key: told[key] for key in ("shortPollingTimeMills", *KEYS)}


KEYS = ("defaultQueryMaxNum", "transactionCheckMax", "maxMsgsNumBatch")


async def test_given_file_is_rewritten(settings: dict[str, str], clock: ManualClock, tmp_path: pathlib.Path) -> None:
    """Its comments, order and permissions stay, new keys come last; the store keeps nothing then."""
    file = tmp_path / "broker.conf"
    file.write_text("# ours\nbrokerPermission = 6\n\nbrokerName=broker-a")
    file.chmod(0o640)
    link = tmp_path / "link.conf"
    link.symlink_to(file)
    store = BrokerConfig.from_java(settings).store
    config = BrokerConfig(port=0, store=store, settings_file=str(link))
    async with Broker(config, clock) as broker, open_caller(broker.address) as caller:
        await put(caller, traceOn="false", brokerPermission="4")
    assert file.read_text() == "# ours\nbrokerPermission=4\n\nbrokerName=broker-a\ntraceOn=false\n"
    assert file.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert not saved_file(settings).exists()
