"""Transactions by raw requests: half messages, their ends, and producers that are asked about them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

from raw_calls import Caller, open_caller

from rocketlet.broker.server import Broker
from rocketlet.common.codes import ResponseCode
from rocketlet.common.ids import parse_offset_id
from rocketlet.common.record import Record, decode_record, iter_records
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import CheckTransactionHeader, EndTransactionHeader
from rocketlet.testing.manual_clock import ManualClock

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
DISCARD_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
GROUP = "producers"
ROUND_MS = 30_000
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PATIENT = {"channelExpiredTimeout": "86400000", "serverChannelMaxIdleTimeSeconds": "86400"}


class Half(NamedTuple):
    """A half message as its producer knows it; a copy of it as the broker asks about it."""

    half_offset: int
    log_offset: int
    unique_key: str

    def end(self, outcome: int, **fields: object) -> EndTransactionHeader:
        """Return the header that ends the transaction."""
        values: dict[str, object] = {
            "producer_group": GROUP,
            "half_offset": self.half_offset,
            "log_offset": self.log_offset,
            "outcome": outcome,
            "message_id": self.unique_key,
            "transaction_id": self.unique_key,
            **fields,
        }
        return EndTransactionHeader(**values)  # pyright: ignore[reportArgumentType] # tests break them on purpose


async def send_half(caller: Caller, body: bytes = b"half", more: str = "", topic: str = "T", **fields: int) -> Half:
    """Send a message of a transaction."""
    answer = await caller.send(topic, body, properties=f"TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02{more}", **fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return Half(
        int(answer.ext["queueOffset"]), parse_offset_id(answer.ext["msgId"])[1], str(answer.ext["transactionId"])
    )


async def end(caller: Caller, half: Half, outcome: int, **fields: object) -> Command:
    """End a transaction and return the answer."""
    return await caller.ask(RequestCode.END_TRANSACTION, half.end(outcome, **fields))


@asynccontextmanager
async def open_producer(broker: Broker | str, client_id: str = "p1", group: str = GROUP) -> AsyncGenerator[Caller]:
    """Connect a producer that says it is alive, to a broker or an address."""
    async with open_caller(broker if isinstance(broker, str) else broker.address) as caller:
        producers = [{"groupName": group}, {"groupName": "CLIENT_INNER_PRODUCER"}]
        body = json.dumps({"clientID": client_id, "consumerDataSet": [], "producerDataSet": producers}).encode()
        assert (await caller.ask(RequestCode.HEART_BEAT, None, body)).code == ResponseCode.SUCCESS
        yield caller


def asked_half(question: Command) -> Half:
    """Return the half message that a producer is asked about."""
    assert question.code == RequestCode.CHECK_TRANSACTION_STATE
    header = decode_header(CheckTransactionHeader, question)
    return Half(header.half_offset, header.log_offset, header.message_id or "")


async def pulled(caller: Caller, topic: str = "T", queue_id: int = 0) -> list[Record]:
    """Return what a queue holds, from its beginning on."""
    records: list[Record] = []
    while True:
        answer = await caller.pull(topic, len(records), queue_id=queue_id)
        if answer.code != ResponseCode.SUCCESS:
            return records
        records += iter_records(answer.body)


async def bodies(caller: Caller, topic: str = "T") -> list[bytes]:
    """Return the bodies in queue 0 of a topic."""
    return [bytes(record.body) for record in await pulled(caller, topic)]


async def record_at(caller: Caller, log_offset: int) -> Record:
    """Return the record at a position of the log."""
    return decode_record((await caller.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(log_offset)})).body)


async def next_round(clock: ManualClock, count: int = 1) -> None:
    """Let rounds of checks pass, to the end of the last one."""
    await clock.elapse(count * ROUND_MS)
    await clock.settle()


async def questions(producer: Caller) -> list[Command]:
    """Return what the producer has been asked by now."""
    await producer.pull()  # what was sent before has come when this is answered
    asked: list[Command] = []
    while not producer.requests.empty():
        asked.append(producer.requests.get_nowait())
    return asked


async def asked_bodies(producer: Caller) -> list[bytes]:
    """Return the bodies of the messages that the producer has been asked about by now."""
    return [bytes(decode_record(question.body).body) for question in await questions(producer)]
