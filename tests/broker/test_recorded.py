"""Requests that official clients made, sent again, and compared with what the 5.4.0 broker answered.

The topics are created as they were there. What cannot be the same is left out: ids, offsets in the log, texts that
name Java classes, and fields that the specification lets a broker leave out.
"""

import pathlib

import pytest
from raw_calls import Caller, open_caller, recorded_calls

from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_SUSPEND
from rocketlet.common.record import iter_records
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

TOPICS = {"Topic540": 2, "Topic540Push": 2, "Topic540Order": 2, "Topic540Pull": 1}
OWN_FIELDS = frozenset({"msgId", "topicSysFlag", "groupSysFlag", "timestamp"})
SEND_CODES = {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
READS = {RequestCode.PULL_MESSAGE, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.VIEW_MESSAGE_BY_ID}
NOT_BUILT = {RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION}


@pytest.fixture
def settings(settings: dict[str, str]) -> dict[str, str]:
    """Return the settings with the names of the recorded broker."""
    return {**settings, "brokerName": "golden-a", "brokerClusterName": "GoldenCluster"}


async def create_topics(caller: Caller) -> None:
    """Create the topics of the recording."""
    for name, queues in TOPICS.items():
        header = {"topic": name, "defaultTopic": "", "readQueueNums": str(queues), "writeQueueNums": str(queues)}
        more = {"perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}
        await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**header, **more})


async def repeat(caller: Caller, request: Command) -> Command:
    """Send a recorded request again, with its own version and fields, and return the answer."""
    return await caller.ask(request.code, dict(request.ext), request.body, version=request.version)


def fields(answer: Command) -> dict[str, str]:
    """Return the fields that must be the same."""
    return {name: value for name, value in answer.ext.items() if name not in OWN_FIELDS}


def contents(answer: Command) -> list[tuple[int, int, bytes, str | None]]:
    """Return what the messages of a pull answer are, without what belongs to the recording."""
    return [
        (record.queue_offset, record.flag, bytes(record.body), record.properties.get("TAGS"))
        for record in iter_records(answer.body)
    ]


@pytest.mark.parametrize("scenario", ["producer-5.4.0", "producer-4.9.8", "producer-5.4.0-binaryboth"])
async def test_producer_is_answered_as_by_java(scenario: str, vectors: pathlib.Path, caller: Caller) -> None:
    """Codes, queues, offsets, region and trace of a producer's session are those of the official broker."""
    await create_topics(caller)
    shifts: dict[tuple[str, str], int] = {}  # the recorded topic held messages before
    seen = 0
    for request, expected, server in recorded_calls(vectors, scenario):
        if server != "broker" or "DELAY" in request.ext.get("i", ""):
            continue
        if expected is None:
            caller.ask_oneway(request.code, dict(request.ext), request.body)
            continue
        answer = await repeat(caller, request)
        assert (answer.code, answer.remark) == (expected.code, expected.remark)
        if request.code in SEND_CODES:
            ours, theirs = fields(answer), fields(expected)
            shift = int(theirs.pop("queueOffset", 0)) - int(ours.pop("queueOffset", 0))
            assert ours == theirs
            if answer.code == ResponseCode.SUCCESS:
                assert shifts.setdefault((request.ext["b"], request.ext["e"]), shift) == shift
            seen += 1
    assert seen >= 5


@pytest.mark.parametrize("scenario", ["pull-consumer-5.4.0", "pull-consumer-4.9.8"])
async def test_pull_consumer_is_answered_as_by_java(scenario: str, vectors: pathlib.Path, caller: Caller) -> None:
    """Statuses, offsets and messages of a pull consumer's session are those of the official broker."""
    await create_topics(caller)
    topic = "Topic540Pull" if "5.4.0" in scenario else "Topic498Pull"
    for number in range(3):
        body, tag = b"pull %d" % number, f"p{number}"
        await caller.send(topic, body, properties=f"TAGS\x01{tag}\x02", default_topic_queue_nums=1)
    seen = 0
    for request, expected, _ in recorded_calls(vectors, scenario):
        is_pull = request.code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
        if expected is None or not is_pull or int(request.ext["sysFlag"]) & PULL_SUSPEND:
            continue
        answer = await repeat(caller, request)
        assert (answer.code, answer.remark) == (expected.code, expected.remark)
        assert (fields(answer), contents(answer)) == (fields(expected), contents(expected))
        seen += 1
    assert seen >= 5


@pytest.mark.feature("P23", "P27")
@pytest.mark.parametrize("scenario", ["sql-filter-5.4.0", "sql-filter-4.9.8"])
async def test_sql_consumer_is_answered_as_by_java(
    scenario: str, vectors: pathlib.Path, settings: dict[str, str], clock: ManualClock
) -> None:
    """Checks, heartbeats and pulls of consumers with a good and a bad SQL filter get the official broker's answers."""
    settings["enablePropertyFilter"] = "true"
    seen: dict[int, int] = {}
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        topic = "Topic540Pull" if "5.4.0" in scenario else "Topic498Pull"
        for number in range(3):  # that the recorded topic held before
            await caller.send(topic, b"pull %d" % number, default_topic_queue_nums=1)
        for request, expected, server in recorded_calls(vectors, scenario):
            if server != "broker" or expected is None:
                continue
            answer = await repeat(caller, request)
            if request.code == RequestCode.QUERY_CONSUMER_OFFSET and expected.code == ResponseCode.QUERY_NOT_FOUND:
                assert fields(answer) == {"offset": "0"}  # ours, on purpose: the group came before any message
                continue
            assert answer.code == expected.code, request
            if request.code == RequestCode.HEART_BEAT:
                assert fields(answer) == fields(expected)
            if request.code == RequestCode.PULL_MESSAGE:
                assert (answer.remark, fields(answer)) == (expected.remark, fields(expected))
                assert contents(answer) == contents(expected)
            seen[request.code] = seen.get(request.code, 0) + 1
    assert seen[RequestCode.CHECK_CLIENT_CONFIG] == 2
    assert seen[RequestCode.PULL_MESSAGE] >= 1


async def test_queries_by_tag_are_answered_as_by_java(vectors: pathlib.Path, caller: Caller) -> None:
    """Queries by tag, key and unique key find the message that the official broker found."""
    await create_topics(caller)
    wanted = [call for call in recorded_calls(vectors, "query-tag-5.4.0") if call.request.code == 12]
    assert len(wanted) == 3
    (record,) = iter_records(next(call.answer.body for call in wanted if call.answer is not None))
    await caller.send("Topic540", bytes(record.body), properties=record.property_text.decode())
    for request, expected, _ in wanted:
        answer = await repeat(caller, request)
        assert expected is not None
        assert (answer.code, answer.remark) == (expected.code, expected.remark)
        assert [found[1:] for found in contents(answer)] == [found[1:] for found in contents(expected)]


async def test_errors_are_answered_as_by_java(vectors: pathlib.Path, caller: Caller) -> None:
    """Unknown codes, bad topics and queues, pulls without subscription and broken heartbeats get Java's answers."""
    await create_topics(caller)
    seen = 0
    for request, expected, server in recorded_calls(vectors, "errors-5.4.0"):
        if server != "broker" or expected is None or not is_comparable(request, expected):
            continue
        answer = await repeat(caller, request)
        assert answer.code == expected.code, request
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR):
            assert without_port(answer.remark) == without_port(expected.remark)
        seen += 1
    assert seen >= 30


def is_comparable(request: Command, expected: Command) -> bool:
    """Leave out what depends on messages that were there, and what this broker answers otherwise on purpose."""
    if request.code in NOT_BUILT:
        return False
    if request.code == RequestCode.SEND_MESSAGE_V2 and not request.body:
        return not request.ext  # a message without a body is illegal here, an exception there
    if request.code in READS:
        return expected.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED)
    return True


def without_port(remark: str | None) -> str | None:
    """Return a remark up to the port of the client's connection."""
    return remark if remark is None else remark.rpartition("127.0.0.1:")[0] or remark
