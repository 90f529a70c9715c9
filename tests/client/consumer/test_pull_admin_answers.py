"""What a pull consumer answers to the requests of a scripted broker."""

from dataclasses import replace

from push_bench import Bench, Feed, pulled, records
from subscribed import PULL_FROM_FIRST

from rocketlet.client import MessageQueue, PullConsumer
from rocketlet.common.codes import ResponseCode
from rocketlet.remoting.bodies.body import decode_body, encode_body
from rocketlet.remoting.bodies.client import ConsumerOffsets, OwnedQueue, ResetOffsets, RunningInfo
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.client import ConsumeDirectlyHeader, GroupTopicHeader, RunningInfoHeader
from rocketlet.remoting.headers.pull import PullHeader

QUEUE = MessageQueue("T", "broker-a", 0)
LIMIT_MS = 3000
TOPIC = GroupTopicHeader(topic="T", group="cg")


async def ask(bench: Bench, code: RequestCode, header: object, body: bytes = b"") -> Command:
    """Ask the client as its broker does."""
    command = Command.request(code, header, body)  # pyright: ignore[reportArgumentType] # any header
    return await bench.broker.connections[0].request(command, LIMIT_MS)


def consumer_of(bench: Bench, **settings: object) -> PullConsumer:
    """Return a consumer whose first pull brings three messages."""
    bench.broker.answers[RequestCode.LITE_PULL_MESSAGE] = Feed(pulled(3, records(0, 3)))
    about = replace(PULL_FROM_FIRST, **settings)  # pyright: ignore[reportArgumentType] # any setting
    return PullConsumer("cg", bench.cluster.nameserver.address, settings=about, clock=bench.clock)


async def test_running_info_tells_of_the_queues(bench: Bench) -> None:
    """What is buffered, the offset to be committed, when it was pulled and handed out last, and the settings."""
    consumer, begun_at_ms = consumer_of(bench, commits_itself=False), bench.clock.now_ms()
    async with consumer:
        await consumer.assign([QUEUE])
        (first,) = await consumer.poll(max_messages=1)
        await bench.clock.elapse(700)
        (second,) = await consumer.poll(max_messages=1)
        answer = await ask(bench, RequestCode.GET_CONSUMER_RUNNING_INFO, RunningInfoHeader(consumer_group="cg"))
    assert (first.queue_offset, second.queue_offset) == (0, 1)
    info = decode_body(RunningInfo, answer.body)
    assert info.mq_table == {
        QUEUE: OwnedQueue(
            commit_offset=0,
            cached_msg_min_offset=2,
            cached_msg_max_offset=2,
            cached_msg_count=1,
            last_pull_timestamp=begun_at_ms,
            last_consume_timestamp=begun_at_ms + 700,
        )
    }
    assert info.properties == {
        "PROP_NAMESERVER_ADDR": f"{bench.cluster.nameserver.address};",
        "PROP_CLIENT_VERSION": "rocketlet",
        "PROP_CONSUMER_START_TIMESTAMP": str(begun_at_ms),
        "PROP_CONSUME_TYPE": "CONSUME_ACTIVELY",
        "consumerGroup": "cg",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "pullBatchSize": "10",
        "autoCommit": "false",
        "autoCommitIntervalMillis": "5000",
        "pollTimeoutMillis": "5000",
        "pullThresholdForAll": "10000",
    }
    assert [each.topic for each in info.subscription_set] == ["T"]


async def test_offsets_of_a_topic_are_told(bench: Bench) -> None:
    """Those of finished messages, committed or not."""
    consumer = consumer_of(bench)
    async with consumer:
        await consumer.assign([QUEUE])
        assert len(await consumer.poll()) == 3
        assert await consumer.poll(timeout_ms=0) == []
        answer = await ask(bench, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, TOPIC)
        assert decode_body(ConsumerOffsets, answer.body).message_queue_table == {QUEUE: 3}


async def test_reset_goes_on_elsewhere(bench: Bench) -> None:
    """What is buffered is thrown away, the offset is stored at once; what others own is left alone."""
    consumer = consumer_of(bench)
    async with consumer:
        await consumer.assign([QUEUE])
        await consumer.poll(max_messages=2)
        other = MessageQueue("T", "broker-b", 0)
        body = encode_body(ResetOffsets(offset_table={QUEUE: 1, other: 7, MessageQueue("U", "broker-a", 0): 5}))
        answer = await ask(bench, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, TOPIC, body)
        assert answer.code == ResponseCode.SUCCESS
        await bench.elapse_until(lambda: _pulls(bench)[-1] == 1)
        assert consumer.position(QUEUE) == 1
        assert bench.commits() == [1]
        assert await consumer.poll(timeout_ms=0) == []
    assert bench.commits()[-1] == 1


def _pulls(bench: Bench) -> list[int]:
    asked = bench.broker.asked(RequestCode.LITE_PULL_MESSAGE)
    return [decode_header(PullHeader, each).queue_offset for each in asked]


async def test_message_out_of_turn_has_nowhere_to_go(bench: Bench) -> None:
    """There is no listener, and the answer is the one that Java's pull consumers give."""
    record = records(0, 1)
    async with consumer_of(bench) as consumer:
        await consumer.assign([QUEUE])
        header = ConsumeDirectlyHeader(consumer_group="cg", broker_name="broker-a")
        answer = await ask(bench, RequestCode.CONSUME_MESSAGE_DIRECTLY, header, record)
    remark = "The Consumer Group <cg> not exist in this consumer"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
