"""What a scrape keeps for the next one, held against scrapes by a server that has kept nothing."""

import asyncio
import pathlib
import random
from collections.abc import AsyncGenerator

import httpx
import msgspec
import pytest
from metrics_scrape import OPENMETRICS
from msgspec.structs import replace
from raw_calls import Caller, open_caller, topic_header
from real_broker import SMALL_FILES, running_nameserver

from rocketlet.broker.admin import topic_figures
from rocketlet.broker.admin.topic_figures import TopicLooks
from rocketlet.broker.server import Broker
from rocketlet.broker.settings.config import BrokerConfig
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import parse_offset_id
from rocketlet.metrics.server import MetricsConfig, MetricsServer
from rocketlet.remoting.codec.request_codes import RequestCode as Code
from rocketlet.remoting.headers.message import SendBackHeader
from rocketlet.testing.manual_clock import ManualClock

LABELS = MetricsConfig(labels={"Env": "test"})
TOPICS = ["A", "B", "C", "D", "batches"]
GROUPS = ["g", "h", "i"]
OF_DISKS = ("rocketmq_storage_", "rocketmq_brokeruntime_")  # others write to the same disk
LONG_BODY = bytes(30_000)
STEPS = 40


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that is far ahead: by it, files that were written just now have expired."""
    return ManualClock(4_000_000_000_000)


@pytest.fixture
async def broker(tmp_path: pathlib.Path, clock: ManualClock) -> AsyncGenerator[Broker]:
    """Run a broker whose log files are full soon."""
    async with running_nameserver() as nameserver:
        settings = {
            **SMALL_FILES,
            "mappedFileSizeCommitLog": "65536",
            "serverChannelMaxIdleTimeSeconds": "1000000",
            "channelExpiredTimeout": "1000000000",
            "deleteCommitLogFilesInterval": "0",
            "deleteConsumeQueueFilesInterval": "0",
            "listenPort": "0",
            "namesrvAddr": nameserver.address,
            "storePathRootDir": str(tmp_path / "store"),
        }
        async with Broker(BrokerConfig.from_java(settings), clock) as running:
            yield running


class World:
    """A broker, what may happen to it, and the metrics that are kept from scrape to scrape."""

    def __init__(self, broker: Broker, caller: Caller, clock: ManualClock, chance: random.Random) -> None:
        self.broker, self.caller, self.clock, self.chance = broker, caller, clock, chance
        self.tables = broker.figures.tables
        self.store = broker.figures.info.scheduler.store
        self.sent: list[str] = []

    @property
    def topic(self) -> str:
        """Any topic, of this time or another."""
        return self.chance.choice(TOPICS)

    @property
    def group(self) -> str:
        """Any group."""
        return self.chance.choice(GROUPS)

    async def send(self) -> None:
        """Some messages to one queue; the topic is made if need be."""
        topic, queue_id = self.topic, self.chance.randrange(4)
        for _ in range(self.chance.randrange(1, 4)):
            answer = await self.caller.send(topic, self.chance.choice([b"x", LONG_BODY]), queue_id=queue_id)
            if answer.code == ResponseCode.SUCCESS:
                self.sent.append(answer.ext["msgId"])

    async def change_topic(self) -> None:
        """A topic is made or has more queues, or fewer, or another type."""
        topic = self.topic
        kind = "BatchCQ" if topic == "batches" else "SimpleCQ"
        header = {**topic_header(topic, kind), "readQueueNums": str(self.chance.randrange(1, 6))}
        if self.tables.topics.get(topic) is not None:
            header["attributes"] = f"+message.type={self.chance.choice(['NORMAL', 'FIFO', 'DELAY'])}"
        await self.caller.ask(Code.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self) -> None:
        """A topic goes, and comes back empty perhaps; else the next message may bring it back."""
        topic = self.topic
        known = self.tables.topics.get(topic)
        await self.caller.ask(Code.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        if known is not None and topic != "batches" and self.chance.random() < 0.3:
            self.tables.topics.put(msgspec.structs.replace(known))
            await self.clock.elapse(1)
            for queue_id in range(4):
                await self.caller.send(topic, queue_id=queue_id)

    async def delete_group(self) -> None:
        """A group goes, with its offsets or without."""
        fields = {"groupName": self.group, "cleanOffset": self.chance.choice(["true", "false"])}
        await self.caller.ask(Code.DELETE_SUBSCRIPTIONGROUP, fields)

    async def commit(self) -> None:
        """A group has consumed up to somewhere, behind the end perhaps."""
        self.tables.groups.find(self.group)
        queue_id, queue_offset = self.chance.randrange(5), self.chance.randrange(12)
        fields = {"consumerGroup": self.group, "topic": self.topic, "queueId": str(queue_id)}
        await self.caller.ask(Code.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": str(queue_offset)})

    async def reset(self) -> None:
        """An administrator sets a group back or forth."""
        self.tables.offsets.reset(self.group, self.topic, self.chance.randrange(4), self.chance.randrange(8))

    async def pull(self) -> None:
        """A group is handed messages out."""
        group, queue_id = self.group, self.chance.randrange(4)
        await self.caller.pull(
            self.topic, self.chance.randrange(4), queue_id=queue_id, consumer_group=group, max_messages=2
        )

    async def send_back(self) -> None:
        """A message comes again later, or is given up."""
        if self.sent:
            log_offset = parse_offset_id(self.chance.choice(self.sent))[1]
            level = self.chance.choice([-1, 1])
            header = SendBackHeader(log_offset=log_offset, delay_level=level, group=self.group, origin_topic=self.topic)
            await self.caller.ask(Code.CONSUMER_SEND_MSG_BACK, header, version=493)

    async def join(self) -> None:
        """A member comes, or is one of another kind."""
        client, model = self.chance.choice(["c1", "c2"]), self.chance.choice(["CLUSTERING", "BROADCASTING"])
        topics = {self.topic: "*", self.topic: "*"}
        await self.caller.heartbeat(client, self.group, topics, messageModel=model, version=len(self.sent))

    async def leave(self) -> None:
        """A member goes."""
        fields = {"clientID": self.chance.choice(["c1", "c2"]), "consumerGroup": self.group}
        await self.caller.ask(Code.UNREGISTER_CLIENT, fields)

    async def clean(self) -> None:
        """The log loses its first files, and then queues lose what lay there, or all of themselves."""
        cleaning = self.broker.figures.info.cleaning
        cleaning.cleaner.ask()
        await cleaning.do(cleaning.cleaner.round())
        if self.chance.random() < 0.5:
            await cleaning.do(cleaning.cleaner.expired_queues(lambda topic: topic not in TOPICS))

    async def wait(self) -> None:
        """Time goes by, with samples or without."""
        await self.clock.elapse(self.chance.choice([1, 999, 10_000, 70_000]))

    async def nothing(self) -> None:
        """Only another scrape."""

    async def step(self) -> str:
        """Do one of these, and say which."""
        often = [self.send, self.send, self.commit, self.pull, self.wait]
        seldom = [self.change_topic, self.delete_topic, self.delete_group, self.reset, self.send_back]
        happen = self.chance.choice([*often, *seldom, self.join, self.leave, self.clean, self.nothing])
        await happen()
        return happen.__name__

    async def told_anew(self, accept: str) -> str:
        """Return what a server tells that has never been asked before."""
        figures = self.broker.figures
        looks = TopicLooks(self.tables, self.store, figures.info.statistics)
        async with MetricsServer(replace(figures, looks=looks), LABELS, self.clock) as server:
            return await fetch(server, accept)


async def fetch(server: MetricsServer, accept: str) -> str:
    """Return what is told of topics and groups."""
    reader, writer = await asyncio.open_connection(httpx.URL(server.url).host, httpx.URL(server.url).port)
    writer.write(f"GET /metrics HTTP/1.1\r\nAccept: {accept}\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert b" 200 OK" in head
    return "\n".join(line for line in body.decode().split("\n") if not line.startswith(OF_DISKS))


@pytest.mark.parametrize("rows_in_run", [1, 8, 200])
@pytest.mark.parametrize("seed", range(2))
async def test_nothing_stale_is_told(
    seed: int, rows_in_run: int, broker: Broker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens between two scrapes, the next one tells what one would that has kept nothing."""
    monkeypatch.setattr(topic_figures, "ROWS_IN_RUN", rows_in_run)
    chance = random.Random(seed)
    async with (
        MetricsServer(broker.figures, LABELS, clock) as server,
        open_caller(broker.address) as caller,
    ):
        world, happened = World(broker, caller, clock, chance), [f"seed {seed}"]
        for _ in range(STEPS):
            happened += [await world.step() for _ in range(chance.choice([1, 1, 1, 2, 3]))]
            accept = chance.choice([OPENMETRICS, "text/plain;version=0.0.4"])
            assert await fetch(server, accept) == await world.told_anew(accept), happened
