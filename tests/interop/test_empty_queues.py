"""Queues without messages: what our broker answers about them is what the official one answers, field by field."""

import itertools
import os
import pathlib
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pytest
from interop.servers import Server
from raw_calls import Caller, open_caller, send_header, topic_header

from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import BatchPart, encode_batch
from rocketlet.remoting.codec.command import Command
from rocketlet.remoting.codec.request_codes import RequestCode

StartServer = Callable[..., Server]
SMALL_FILES = {
    "flushDiskType": "SYNC_FLUSH",  # a file goes only when it is on the disk
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "mapperFileSizeBatchConsumeQueue": "4600",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "400",
    "fileReservedTime": "1",
    "deleteWhen": "",
    "diskMaxUsedSpaceRatio": "95",
}
KINDS = ("SimpleCQ", "BatchCQ")
ABOUT_QUEUE = (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME)
MOMENTS = ("0", "1700000000000", str(1 << 42))
BATCH = encode_batch(BatchPart(number, b"part", b"") for number in range(3))


UNTOLD_FIELDS = {"topicSysFlag", "groupSysFlag"}  # 0 here, which clients take for them where they are absent
JAVA_FAILS = "java.lang.NullPointerException"


class Answer(NamedTuple):
    """What a broker has answered; the remark of a pull is its status."""

    code: int
    fields: Mapping[str, str]
    remark: str | None


async def make_topics(caller: Caller, names: Iterable[tuple[str, str]]) -> None:
    """Make topics of one queue."""
    for topic, kind in names:
        assert (
            await caller.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_header(topic, kind))
        ).code == ResponseCode.SUCCESS


async def answers_about(server: Server, topics: Iterable[str]) -> dict[str, Answer]:
    """Ask where the queues begin and end, and pull from them."""
    answers: dict[str, Answer] = {}
    async with open_caller(server.broker) as caller:
        for topic in topics:
            queue = {"topic": topic, "queueId": "0"}
            for offset in (-1, 0, 1, 3, 4):
                answers[f"{topic} pull {offset}"] = _told(await caller.pull(topic, offset))
            for code in ABOUT_QUEUE:
                answers[f"{topic} {code.name}"] = _told(await caller.ask(code, queue))
            for boundary, at_ms in itertools.product(("LOWER", "UPPER"), MOMENTS):
                header = {**queue, "timestamp": at_ms, "boundaryType": boundary}
                answer = await caller.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
                answers[f"{topic} {boundary} {at_ms}"] = _told(answer)
    return answers


def take_failures(answers: dict[str, Answer]) -> set[str]:
    """Take out what the broker has failed to answer, and return the questions."""
    failed = {asked for asked, answer in answers.items() if (answer.remark or "").startswith(JAVA_FAILS)}
    for asked in failed:
        assert answers.pop(asked).code == ResponseCode.SYSTEM_ERROR
    return failed


def age_files(log: pathlib.Path) -> None:
    """Let every file of the log look two hours old."""
    for path in log.iterdir():
        at_s = time.time() - 7200
        os.utime(path, (at_s, at_s))


async def lose_messages(server: Server) -> None:
    """Store messages in a queue of each kind, and let the files of the log with them go."""
    log = server.store / "commitlog"
    async with open_caller(server.broker) as caller:
        await make_topics(caller, [(f"lost-{kind}", kind) for kind in KINDS])
        for kind in KINDS:
            header = send_header(f"lost-{kind}", 0, batch=True, properties="UNIQ_KEY\x01U\x02")
            assert (await caller.ask(RequestCode.SEND_BATCH_MESSAGE, header, BATCH)).code == ResponseCode.SUCCESS
        for _ in range(4):
            assert (await caller.send("filler", b"f" * 50_000)).code == ResponseCode.SUCCESS
        age_files(log)
        for code in (RequestCode.DELETE_EXPIRED_COMMITLOG, RequestCode.CLEAN_UNUSED_TOPIC):
            # The first is answered before anything is done; the second waits for what it began.
            assert (await caller.ask(code)).code == ResponseCode.SUCCESS
    assert not (log / f"{0:020}").exists()


@pytest.mark.feature("P3", "H8")
async def test_answers_about_empty_queues(
    rocketlet_up: StartServer, java_broker: StartServer, tmp_path: pathlib.Path
) -> None:
    """Of both kinds: queues that never had a message, that have lost all of them, and that were removed then.

    Java fails when it is asked for times in a batch queue that has no file; ours answers as for other empty queues.
    """
    ours = rocketlet_up(tmp_path / "store", **SMALL_FILES)
    await lose_messages(ours)
    ours.stop()
    shutil.copytree(tmp_path / "store", tmp_path / "java")
    servers = rocketlet_up(tmp_path / "store", **SMALL_FILES), java_broker(tmp_path / "java", **SMALL_FILES)
    await ask_both(servers, [f"lost-{kind}" for kind in KINDS])
    for server in servers:
        async with open_caller(server.broker) as caller:
            await make_topics(caller, [(f"new-{kind}", kind) for kind in KINDS])
            assert (await caller.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == ResponseCode.SUCCESS
    for state in ("new", "lost"):
        failed = await ask_both(servers, [f"{state}-{kind}" for kind in KINDS])
        assert {asked.split()[0] for asked in failed} == {f"{state}-BatchCQ"}


async def ask_both(servers: tuple[Server, Server], topics: list[str]) -> set[str]:
    """Compare the answers of both brokers; return what the official one has failed to answer."""
    ours, official = [await answers_about(server, topics) for server in servers]
    failed = take_failures(official)
    for asked in failed:
        without_batches = asked.replace("BatchCQ", "SimpleCQ")
        assert ours.pop(asked) == ours[without_batches]
    assert ours == official
    return failed


def _told(answer: Command) -> Answer:
    fields = {name: value for name, value in answer.ext.items() if name not in UNTOLD_FIELDS}
    return Answer(answer.code, fields, answer.remark or None)
