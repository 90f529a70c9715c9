"""Transactions in tests: a listener that does what each message says in its properties, and questions of brokers."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from scripted_cluster import ScriptedCluster, ScriptedServer

from rocketlet.client import (
    Message,
    ReceivedMessage,
    TransactionFunctions,
    TransactionProducer,
    TransactionProducerSettings,
    TransactionState,
)
from rocketlet.common.ids import encode_host
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import NewRecord, encode_record
from rocketlet.remoting.codec.command import Command, decode_header
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.remoting.headers.message import CheckTransactionHeader, EndTransactionHeader
from rocketlet.testing import ManualClock

HOST = encode_host("127.0.0.1", 10911)

_STATES = {
    "commit": TransactionState.COMMIT,
    "rollback": TransactionState.ROLLBACK,
    "unknown": TransactionState.UNKNOWN,
    "null": None,
}


def about(outcome: str, checked: str = "unknown") -> dict[str, str]:
    """Return the properties of a message: what ``execute`` says or raises, and what ``check`` does."""
    return {"outcome": outcome, "checked": checked}


class OrderBook:
    """Keeps what it was asked; there is a wait for the checks."""

    def __init__(self) -> None:
        self.executed: list[tuple[Message, object]] = []
        self.checked: list[ReceivedMessage] = []
        self._changed = asyncio.Event()

    async def execute(self, message: Message, arg: object) -> TransactionState | None:
        """Do what the property ``outcome`` says."""
        self.executed.append((message, arg))
        return _say(message.properties["outcome"])

    async def check(self, message: ReceivedMessage) -> TransactionState | None:
        """Do what the property ``checked`` says."""
        self.checked.append(message)
        self._changed.set()
        return _say(message.properties["checked"])

    async def wait_checked(self, count: int) -> set[bytes]:
        """Return the bodies of the messages that were asked about, once there are so many."""
        while len(bodies := {message.body for message in self.checked}) < count:
            self._changed.clear()
            await self._changed.wait()
        return bodies


def _say(word: str) -> TransactionState | None:
    if word == "exception":
        raise LookupError("no such order")
    return _STATES[word]


@asynccontextmanager
async def running(
    cluster: ScriptedCluster, listener: OrderBook | TransactionFunctions, clock: ManualClock | None = None
) -> AsyncGenerator[TransactionProducer]:
    """Run a producer of the group pg, which is known to the brokers of T."""
    settings = TransactionProducerSettings(max_waiting_checks=2)
    nameserver = cluster.nameserver.address
    async with TransactionProducer(
        "pg", nameserver, listener=listener, topics=["T"], settings=settings, clock=clock
    ) as producer:
        yield producer


def check_of(body: bytes, checked: str, group: str = "pg", half_offset: int = 70) -> Command:
    """Return the question of a broker about a half message, which was copied to another place in the meantime."""
    properties = {"UNIQ_KEY": f"key-{body.decode()}", "PGROUP": group, **about("unknown", checked)}
    new = NewRecord("T", 0, body, encode_properties(properties), properties, 0, 4, 1, HOST, 0)
    header = CheckTransactionHeader(
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        half_offset=half_offset,
        log_offset=7000,
        message_id=f"key-{body.decode()}",
        transaction_id="t-1",
        broker_name="broker-a",
    )
    return Command.request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_record(new, half_offset, 7000, 2, HOST))


def ends(broker: ScriptedServer) -> list[EndTransactionHeader]:
    """Return the outcomes that a broker was told."""
    return [decode_header(EndTransactionHeader, command) for command in broker.asked(RequestCode.END_TRANSACTION)]
