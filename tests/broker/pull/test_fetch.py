"""Pulling, by raw requests to a broker whose clock stands."""

import asyncio
import pathlib
from typing import Any

import pytest
from raw_calls import Caller, open_caller, pull_header

from rocketlet.broker.group.filters import BloomShape, FilterSelection, FilterTable, tag_filter
from rocketlet.broker.group.groups import GroupTable, OffsetTable
from rocketlet.broker.group.members import Members
from rocketlet.broker.outcomes.scheduler import LongPolling
from rocketlet.broker.pull.fetch import FetchOperation, FetchValidator, Read, ReadCounts, Reads
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.broker.settings.live import LiveSettings
from rocketlet.broker.topic.topics import TopicTable, make_topic
from rocketlet.common.codes import ResponseCode
from rocketlet.common.errors import ConnectionClosedError
from rocketlet.common.message import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.properties import java_hash
from rocketlet.common.record import decode_record, iter_records
from rocketlet.common.subscriptions.subscription import parse_tag_expression
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.pull import PullHeader
from rocketlet.store.consumequeue.queue_reader import ReadLimits, ReadResult, ReadStatus
from rocketlet.testing.manual_clock import ManualClock

HOLD = PULL_SUBSCRIPTION | PULL_SUSPEND


def offsets_of(answer: Command) -> tuple[int, int, int]:
    """Return next, least and most offset of an answer."""
    return int(answer.ext["nextBeginOffset"]), int(answer.ext["minOffset"]), int(answer.ext["maxOffset"])


def bodies_of(answer: Command) -> list[bytes]:
    """Return the bodies of the messages in an answer."""
    return [bytes(record.body) for record in iter_records(answer.body)]


async def send_tagged(caller: Caller, *tags: str) -> None:
    """Send one message per tag to queue 0, its tag as body; an empty tag is none."""
    for tag in tags:
        await caller.send(body=tag.encode() or b"-", properties=f"TAGS\x01{tag}\x02" if tag else "")


async def is_parked(caller: Caller, pull: asyncio.Task[Command]) -> bool:
    """Tell whether a pull waits: whatever was sent after it has been answered."""
    await caller.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"})
    return not pull.done()


@pytest.mark.feature("P1")
async def test_found_messages_come_with_offsets(caller: Caller) -> None:
    """FOUND holds the records as stored; the next offset is the one behind the last of them."""
    await send_tagged(caller, "a", "b", "c")
    answer = await caller.pull(queue_offset=1)
    assert (answer.code, answer.remark, answer.ext["suggestWhichBrokerId"]) == (ResponseCode.SUCCESS, "FOUND", "0")
    assert (offsets_of(answer), bodies_of(answer)) == ((3, 0, 3), [b"b", b"c"])


@pytest.mark.feature("P2")
async def test_end_of_queue_without_suspend(caller: Caller) -> None:
    """At the end of the queue a pull that does not wait is answered 19."""
    await send_tagged(caller, "a")
    answer = await caller.pull(queue_offset=1)
    assert (answer.code, offsets_of(answer)) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))
    assert answer.remark == "OFFSET_OVERFLOW_ONE"


@pytest.mark.feature("P4")
async def test_offset_beyond_the_end(caller: Caller) -> None:
    """Beyond the end a pull is sent back to the end."""
    await send_tagged(caller, "a")
    answer = await caller.pull(queue_offset=100)
    assert (answer.code, offsets_of(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (1, 0, 1))
    assert answer.remark == "OFFSET_OVERFLOW_BADLY"


@pytest.mark.feature("P3")
async def test_negative_offset_is_below_the_start(caller: Caller) -> None:
    """Below the first message a pull is sent to it."""
    await send_tagged(caller, "a")
    answer = await caller.pull(queue_offset=-5)
    assert (answer.code, offsets_of(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (0, 0, 1))
    assert answer.remark == "OFFSET_TOO_SMALL"


@pytest.mark.feature("P5")
@pytest.mark.parametrize(("wanted", "code"), [(0, ResponseCode.PULL_NOT_FOUND), (7, ResponseCode.PULL_OFFSET_MOVED)])
async def test_queue_without_messages(wanted: int, code: int, caller: Caller) -> None:
    """In an empty queue offset 0 waits for the first message, any other is sent back to 0."""
    await send_tagged(caller, "a")
    answer = await caller.pull(queue_id=1, queue_offset=wanted)
    assert (answer.code, offsets_of(answer)) == (code, (0, 0, 0))


@pytest.mark.feature("P6")
async def test_long_poll_wakes_on_arrival(caller: Caller, broker: Broker) -> None:
    """A parked pull is answered by the send itself: the clock stands still."""
    await send_tagged(caller, "a")
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as group:
        pull = group.create_task(caller.pull(queue_offset=1, sys_flag=HOLD))
        assert await is_parked(caller, pull)
        await send_tagged(other, "b")
    assert (pull.result().code, bodies_of(pull.result())) == (ResponseCode.SUCCESS, [b"b"])


async def test_long_poll_at_a_queue_that_was_never_written(caller: Caller, broker: Broker) -> None:
    """The first message of a queue wakes who waits at offset 0."""
    await send_tagged(caller, "a")
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as group:
        pull = group.create_task(caller.pull(queue_id=3, sys_flag=HOLD))
        assert await is_parked(caller, pull)
        await other.send(queue_id=3)
    assert offsets_of(pull.result()) == (1, 0, 1)


async def test_send_and_long_poll_in_one_read(caller: Caller) -> None:
    """A pull that is parked in the same read as the send it waits for is woken by it."""
    await send_tagged(caller, "a")
    async with asyncio.TaskGroup() as group:
        group.create_task(caller.send(body=b"b"))
        pull = group.create_task(caller.pull(queue_offset=1, sys_flag=HOLD))
    assert bodies_of(pull.result()) == [b"b"]


@pytest.mark.feature("P7")
async def test_long_poll_ends_at_its_limit(caller: Caller, clock: ManualClock) -> None:
    """Without a message the answer is 19 after the time that the consumer gave."""
    await send_tagged(caller, "a")
    async with asyncio.TaskGroup() as group:
        pull = group.create_task(caller.pull(queue_offset=1, sys_flag=HOLD, suspend_ms=15_000))
        assert await is_parked(caller, pull)
        clock.advance(14_999)
        assert await is_parked(caller, pull)
        clock.advance(1)
    assert (pull.result().code, offsets_of(pull.result())) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))


@pytest.mark.feature("P16")
@pytest.mark.parametrize("suspend_ms", [100, 15_000])
@pytest.mark.parametrize("wait_ms", [None, 1_700], ids=["1 s unless set", "1.7 s"])
async def test_short_polling_ends_after_its_time(
    wait_ms: int | None, suspend_ms: int, settings: dict[str, str], clock: ManualClock
) -> None:
    """Without long polling a pull waits for shortPollingTimeMills, no less and no more, whatever the consumer gave."""
    settings["longPollingEnable"] = "false"
    if wait_ms is not None:
        settings["shortPollingTimeMills"] = str(wait_ms)
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send_tagged(caller, "a")
        async with asyncio.TaskGroup() as group:
            pull = group.create_task(caller.pull(queue_offset=1, sys_flag=HOLD, suspend_ms=suspend_ms))
            assert await is_parked(caller, pull)
            await clock.elapse((wait_ms or 1_000) - 1)
            assert await is_parked(caller, pull)
            await clock.elapse(1)
        assert (pull.result().code, offsets_of(pull.result())) == (ResponseCode.PULL_NOT_FOUND, (1, 0, 1))


@pytest.mark.feature("P16")
async def test_short_polling_brings_what_came_meanwhile(settings: dict[str, str], clock: ManualClock) -> None:
    """A message that comes while a pull waits for its second is in the answer."""
    settings["longPollingEnable"] = "false"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send_tagged(caller, "a")
        async with asyncio.TaskGroup() as group:
            pull = group.create_task(caller.pull(queue_offset=1, sys_flag=HOLD))
            assert await is_parked(caller, pull)
            await send_tagged(caller, "b")
            await clock.elapse(1_000)
        assert bodies_of(pull.result()) == [b"b"]


@pytest.mark.feature("P8")
async def test_unwanted_arrivals_move_the_offset(caller: Caller, broker: Broker, clock: ManualClock) -> None:
    """With other tags only, a parked pull is answered 20 within 5 s, behind what was skipped."""
    await send_tagged(caller, "a")
    async with open_caller(broker.address) as other, asyncio.TaskGroup() as group:
        pull = group.create_task(caller.pull(queue_offset=1, sys_flag=HOLD, subscription="b"))
        assert await is_parked(caller, pull)
        await send_tagged(other, "c", "c")
        assert await is_parked(caller, pull)
        clock.advance(5000)
    assert (pull.result().code, offsets_of(pull.result())) == (ResponseCode.PULL_RETRY_IMMEDIATELY, (3, 0, 3))


async def test_parked_pull_does_not_hold_up_its_connection(caller: Caller) -> None:
    """Other requests of a connection are answered while one of its pulls waits."""
    await send_tagged(caller, "a")
    async with asyncio.TaskGroup() as group:
        pull = group.create_task(caller.pull(queue_offset=1, sys_flag=HOLD))
        assert await is_parked(caller, pull)
        assert (await caller.send(body=b"b")).code == ResponseCode.SUCCESS


@pytest.mark.feature("P9")
async def test_commit_flag_stores_the_offset_once(caller: Caller, clock: ManualClock) -> None:
    """The offset that rides on a pull is stored when the pull comes, not when it is run again."""
    await send_tagged(caller, "a", "b", "c")
    query = {"consumerGroup": "consumers", "topic": "T", "queueId": "0"}
    async with asyncio.TaskGroup() as group:
        flags = HOLD | PULL_COMMIT_OFFSET
        pull = group.create_task(caller.pull(queue_offset=3, sys_flag=flags, commit_offset=2))
        assert await is_parked(caller, pull)
        assert (await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).ext["offset"] == "2"
        await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**query, "commitOffset": "1"})
        clock.advance(15_000)
    assert (await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).ext["offset"] == "1"
    await caller.pull(queue_offset=0, commit_offset=3)
    assert (await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).ext["offset"] == "1"


@pytest.mark.feature("P9")
@pytest.mark.parametrize(("commit_offset", "stored"), [(0, "0"), (1, "1"), (-1, "3")])
async def test_offset_on_a_pull_may_be_the_first(commit_offset: int, stored: str, caller: Caller) -> None:
    """With the flag 0 is an offset, which sets a group back to the beginning; a negative number is none."""
    await send_tagged(caller, "a", "b", "c")
    query = {"consumerGroup": "consumers", "topic": "T", "queueId": "0"}
    await caller.pull(queue_offset=0)  # which makes the group
    answer = await caller.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**query, "commitOffset": "3"})
    assert answer.code == ResponseCode.SUCCESS
    await caller.pull(queue_offset=0, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, commit_offset=commit_offset)
    assert (await caller.ask(RequestCode.QUERY_CONSUMER_OFFSET, query)).ext["offset"] == stored


@pytest.mark.feature("P10")
async def test_batch_of_a_pull_is_limited(caller: Caller) -> None:
    """A pull gives at most 32 messages and 256 KiB, but always the first message."""
    async with asyncio.TaskGroup() as group:
        for number in range(40):
            group.create_task(caller.send(body=b"%d" % number))
    assert len(bodies_of(await caller.pull(max_messages=100))) == 32
    assert len(bodies_of(await caller.pull(max_messages=5))) == 5
    for _ in range(3):
        await caller.send(body=b"x" * 200_000, queue_id=1)
    assert len(bodies_of(await caller.pull(queue_id=1))) == 1
    assert len(bodies_of(await caller.pull(queue_id=0, max_bytes=1))) == 1


@pytest.mark.feature("P10")
@pytest.mark.parametrize(("more", "count"), [(0, 3), (1, 2)], ids=["full", "a byte more"])
async def test_batch_of_a_pull_ends_at_its_last_byte(more: int, count: int, caller: Caller) -> None:
    """Records of 262,144 bytes are one answer, whose body is just that long; with one byte more the last waits."""
    for _ in range(2):
        await caller.send(body=bytes(100_000))
    size = decode_record((await caller.pull()).body).total_size
    await caller.send(body=bytes(262_144 - 3 * size + 100_000 + more))
    answer = await caller.pull()
    assert (len(bodies_of(answer)), offsets_of(answer)[0]) == (count, count)
    assert len(answer.body) == (2 * size if more else 262_144)


@pytest.mark.feature("P11")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumer_group": "bad group!"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression_type": "SQL92", "subscription": "a > 1"}, ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_pull_that_is_refused(fields: dict[str, Any], code: int, caller: Caller) -> None:
    """Queue, topic, group and expression are checked; a refusal comes at once even for a pull that may wait."""
    await send_tagged(caller, "a")
    wanted: dict[str, Any] = {"topic": "T", "sys_flag": HOLD, **fields}
    assert (await caller.pull(**wanted)).code == code


@pytest.mark.feature("P11")
async def test_unknown_group_without_auto_creation(settings: dict[str, str], clock: ManualClock) -> None:
    """A group that may not be created is answered 26."""
    settings["autoCreateSubscriptionGroup"] = "false"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send_tagged(caller, "a")
        assert (await caller.pull()).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.feature("P12")
async def test_group_that_may_not_consume(caller: Caller) -> None:
    """A group with consumeEnable=false is refused, and served again when it may."""
    await send_tagged(caller, "a")
    for is_enabled, code in (("false", ResponseCode.NO_PERMISSION), ("true", ResponseCode.SUCCESS)):
        group = f'{{"groupName":"consumers","consumeEnable":{is_enabled}}}'.encode()
        await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
        assert (await caller.pull()).code == code


@pytest.mark.feature("P13")
async def test_subscription_of_the_heartbeat(caller: Caller) -> None:
    """Without the subscription flag the group's heartbeat counts: missing 24, older than the request 25."""
    await send_tagged(caller, "a", "b")

    async def code(version: int) -> int:
        return (await caller.pull(sys_flag=0, sub_version=version)).code

    assert await code(0) == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await caller.heartbeat("client", "consumers", {"Other": "*"})
    assert await code(0) == ResponseCode.SUBSCRIPTION_NOT_EXIST
    await caller.heartbeat("client", "consumers", {"T": "b"}, version=5)
    assert await code(6) == ResponseCode.SUBSCRIPTION_NOT_LATEST
    answer = await caller.pull(sys_flag=0, sub_version=5)
    assert bodies_of(answer) == [b"b"]


@pytest.mark.feature("P14")
async def test_topic_that_may_not_be_read(caller: Caller) -> None:
    """A topic without the read permission is refused."""
    await send_tagged(caller, "a")
    topic = {"topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4", "perm": "2"}
    await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**topic, "topicFilterType": "SINGLE_TAG", "order": "false"})
    assert (await caller.pull()).code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(
    ("key", "value", "code"), [("brokerPermission", "2", 11), ("litePullMessageEnable", "false", 361)]
)
async def test_broker_that_may_not_be_read(
    key: str, value: str, code: int, settings: dict[str, str], clock: ManualClock
) -> None:
    """Without its read permission a broker answers no pull, without lite pull none of those."""
    settings[key] = value
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send_tagged(caller, "a")
        assert (await caller.ask(code, pull_header("T"))).code == ResponseCode.NO_PERMISSION


@pytest.mark.feature("P17")
async def test_lite_pull_works_without_a_heartbeat(caller: Caller) -> None:
    """A lite pull brings its own subscription."""
    await send_tagged(caller, "a")
    answer = await caller.ask(RequestCode.LITE_PULL_MESSAGE, pull_header("T", sys_flag=PULL_SUBSCRIPTION | 16))
    assert bodies_of(answer) == [b"a"]


@pytest.mark.feature("P18")
async def test_tag_filter_takes_the_named_tags(caller: Caller) -> None:
    """``a || b`` gives messages with either tag only; the offset moves behind what was skipped."""
    await send_tagged(caller, "a", "c", "b", "", "c")
    answer = await caller.pull(subscription="a || b")
    assert (bodies_of(answer), offsets_of(answer)[0]) == ([b"a", b"b"], 5)


@pytest.mark.feature("P19")
@pytest.mark.parametrize("expression", ["*", "", None])
async def test_everything_is_taken(expression: str | None, caller: Caller) -> None:
    """``*``, an empty and a missing expression take messages with and without tags."""
    await send_tagged(caller, "a", "")
    assert bodies_of(await caller.pull(subscription=expression)) == [b"a", b"-"]


@pytest.mark.feature("P20", "P21")
async def test_hash_is_all_that_the_broker_compares(caller: Caller) -> None:
    """A tag with the same hash is handed out, for the client to drop; another case is another tag."""
    assert java_hash("Aa") == java_hash("BB")
    await send_tagged(caller, "Aa", "bb", "BB")
    assert bodies_of(await caller.pull(subscription="BB")) == [b"Aa", b"BB"]


async def test_nothing_matched_is_answered_at_once(caller: Caller) -> None:
    """What was scanned without a match is answered 20 with the offset behind it, even to a pull that may wait."""
    await send_tagged(caller, "a", "a")
    answer = await caller.pull(subscription="b", sys_flag=HOLD)
    assert (answer.code, offsets_of(answer)) == (ResponseCode.PULL_RETRY_IMMEDIATELY, (2, 0, 2))
    assert answer.remark == "NO_MATCHED_MESSAGE"


async def test_pull_that_is_sent_elsewhere_does_not_wait(caller: Caller) -> None:
    """A group that was reset is told where to go on, though it may wait for messages where it is."""
    await send_tagged(caller, "a")
    await caller.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "g"})
    fields = {"topic": "T", "group": "g", "timestamp": "-1", "isForce": "true", "queueId": "0", "offset": "0"}
    assert (await caller.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, fields)).code == ResponseCode.SUCCESS
    answer = await caller.pull(queue_offset=1, sys_flag=HOLD, consumer_group="g")
    assert (answer.code, offsets_of(answer)) == (ResponseCode.PULL_OFFSET_MOVED, (0, 0, 1))


async def test_closed_connection_takes_its_parked_pulls_along(
    caller: Caller, broker: Broker, clock: ManualClock
) -> None:
    """After a consumer is gone, neither a message nor the time finds its pull."""
    await send_tagged(caller, "a")
    has_ended = False
    try:
        async with open_caller(broker.address) as other, asyncio.TaskGroup() as group:
            pull = group.create_task(other.pull(queue_offset=1, sys_flag=HOLD))
            assert await is_parked(other, pull)
            other.connection.abort()
    except* ConnectionClosedError:
        has_ended = True
    assert has_ended
    await send_tagged(caller, "b")
    clock.advance(15_000)
    assert (await caller.pull(queue_offset=2)).code == ResponseCode.PULL_NOT_FOUND


async def test_large_records_arrive_as_they_were_sent(caller: Caller) -> None:
    """Records of more than a KiB, which are sent as slices of the log, arrive byte for byte."""
    bodies = [bytes([number]) * 5000 for number in range(20)]
    for body in bodies:
        await caller.send(body=body)
    assert bodies_of(await caller.pull()) == bodies


@pytest.mark.feature("P15")
@pytest.mark.parametrize("reads_slaves", [True, False])
async def test_suggested_broker(*, reads_slaves: bool, settings: dict[str, str], clock: ManualClock) -> None:
    """With slaveReadEnable a group that is far behind is sent to its slave, else to its broker; without it to 0."""
    settings.update(slaveReadEnable=str(reads_slaves).lower(), accessMessageInMemoryMaxRatio="0")
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send_tagged(caller, "a", "b")
        assert (await caller.pull()).ext["suggestWhichBrokerId"] == ("1" if reads_slaves else "0")
        group = b'{"groupName":"consumers","brokerId":2,"whichBrokerWhenConsumeSlowly":3}'
        await caller.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
        far, at_end = await caller.pull(), await caller.pull(queue_offset=2)
        suggested = [answer.ext["suggestWhichBrokerId"] for answer in (far, at_end)]
        assert suggested == (["3", "2"] if reads_slaves else ["0", "0"])


@pytest.mark.feature("P15")
async def test_near_consumer_stays(settings: dict[str, str], clock: ManualClock) -> None:
    """Within 40 % of the memory from the log's end nobody is sent to a slave."""
    settings["slaveReadEnable"] = "true"
    async with Broker(BrokerConfig.from_java(settings), clock) as broker, open_caller(broker.address) as caller:
        await send_tagged(caller, "a", "b")
        assert (await caller.pull()).ext["suggestWhichBrokerId"] == "0"


def _read_nothing(*_: object) -> None:
    """Leave a message that arrives to the other read."""


def operation(read: Read, counts: ReadCounts, clock: ManualClock, root: pathlib.Path) -> FetchOperation:
    """Return what hands out messages of the topic T, which are read so."""
    settings = LiveSettings(BrokerConfig.from_java({"storePathRootDir": str(root)}), "127.0.0.1")
    topics, groups, members = TopicTable(settings, clock.now_ms), GroupTable(clock.now_ms), Members[object](lambda: 0)
    filters = FilterSelection(settings, FilterTable(clock.now_ms, BloomShape(64, 3), keep_dead_ms=0))
    validator = FetchValidator(settings, topics, groups, members, filters)
    topics.put(make_topic("T", 4))
    reads, offsets = Reads(read, _read_nothing), OffsetTable(clock.now_ms, version_step=500)
    return FetchOperation(reads, validator, offsets, LongPolling(clock), counts, settings)


async def test_reads_are_counted_as_found_or_missed(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    """A read that finds counts once, and its messages; one that does not find counts as missed; the longest is kept."""
    results = {3: 32, 7: 0, 5: 1, 6: 0}  # how long each read takes, and what it finds

    def read(_topic: str, _queue_id: int, queue_offset: int, *_rest: object) -> ReadResult:
        clock.advance(queue_offset)
        found = results[queue_offset]
        return ReadResult(ReadStatus.FOUND if found else ReadStatus.OFFSET_OVERFLOW_ONE, 0, 0, 0, [], found)

    counts = ReadCounts(clock.monotonic_ms)
    fetches = operation(read, counts, clock, tmp_path)
    for took_ms in results:
        wanted = PullHeader(
            consumer_group="g", topic="T", queue_id=0, queue_offset=took_ms, max_messages=32, sys_flag=PULL_SUBSCRIPTION
        )
        assert fetches.fetch(wanted, ("127.0.0.1", 1)).is_settled
    assert (counts.found, counts.missed, counts.messages, counts.longest_ms) == (2, 2, 33, 7)
    assert counts.queues["T", "g"] == {0: [33, 0, 2, 8]}


async def test_held_pull_counts_its_filter_and_its_texts(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    """What a connection keeps for a pull that waits grows with the tags that it names, and with their text."""

    def read(*_: object) -> ReadResult:
        return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, 0, 0, 0, [])

    fetches = operation(read, ReadCounts(clock.monotonic_ms), clock, tmp_path)
    sizes: dict[str, int] = {}
    for expression in ("*", "a", "aaa", "a||b"):
        fields: dict[str, Any] = {"consumer_group": "g", "topic": "T", "queue_id": 0, "queue_offset": 0}
        wanted = PullHeader(**fields, max_messages=1, sys_flag=HOLD, subscription=expression)
        held = fetches.fetch(wanted, ("127.0.0.1", 1))
        sizes[expression] = held.extra_bytes
        held.drop()
    a_code = tag_filter(parse_tag_expression("T", "a")).kept_bytes
    assert sizes["*"] > len("gT*")
    assert {text: size - sizes["*"] for text, size in sizes.items()} == {
        "*": 0,
        "a": a_code,
        "aaa": a_code + 2,
        "a||b": 2 * a_code + 3,
    }


@pytest.mark.parametrize(
    ("count", "size", "limits"),
    [
        (32, None, ReadLimits(32, 128 << 20)),
        (1, 0, ReadLimits(1, 0)),
        (0, 7, ReadLimits(1, 7)),
        (-5, None, ReadLimits(1, 128 << 20)),
    ],
)
async def test_pull_takes_a_message_at_least_and_128_mib_at_most(
    count: int, size: int | None, limits: ReadLimits, tmp_path: pathlib.Path, clock: ManualClock
) -> None:
    """Whatever number it asks for; it may name less than so many bytes."""
    asked: list[ReadLimits] = []

    def read(_topic: str, _queue_id: int, _offset: int, limits: ReadLimits, *_rest: object) -> ReadResult:
        asked.append(limits)
        return ReadResult(ReadStatus.FOUND, 0, 0, 0, [], 1)

    fields: dict[str, Any] = {"consumer_group": "g", "topic": "T", "queue_id": 0, "queue_offset": 0}
    wanted = PullHeader(**fields, max_messages=count, max_bytes=size, sys_flag=PULL_SUBSCRIPTION)
    operation(read, ReadCounts(clock.monotonic_ms), clock, tmp_path).fetch(wanted, ("127.0.0.1", 1))
    assert asked == [limits]


async def test_pull_without_a_time_limit_waits_for_a_millisecond(tmp_path: pathlib.Path, clock: ManualClock) -> None:
    """It is answered then, and not in the turn of the loop that has read it."""

    def read(*_: object) -> ReadResult:
        return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, 0, 0, 0, [])

    fields: dict[str, Any] = {"consumer_group": "g", "topic": "T", "queue_id": 0, "queue_offset": 0}
    wanted = PullHeader(**fields, max_messages=1, sys_flag=HOLD)
    held = operation(read, ReadCounts(clock.monotonic_ms), clock, tmp_path).fetch(wanted, ("127.0.0.1", 1))
    assert not held.is_settled
    clock.advance(1)
    assert held.is_settled
