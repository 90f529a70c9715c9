"""Transactions on a broker that gets killed, by raw requests, and what has to become of them.

Rules:

- Each message says in its body what its producer wants of it. It tells that with its own request, or not at all; then
  it tells it when it is asked.
- A half message that was acknowledged is delivered once if it shall be committed, whatever was answered and whenever
  the broker was killed; one that shall be rolled back is never seen.
- One that was not acknowledged may be there or not, and is delivered once at most.
"""

import asyncio
import random
from collections import Counter

from halfcalls import COMMIT, ROLLBACK, Half, asked_half, end, open_producer, pulled, send_half
from interop.servers import RocketletServer
from killing.raw_load import send_until_killed, until_gone
from raw_calls import Caller

from rocketlet.common.codes import ResponseCode
from rocketlet.common.record import decode_record
from rocketlet.remoting.transport.event_loop import LoopClock

SETTINGS = {"transactionCheckInterval": "100", "transactionTimeOut": "0", "transactionCheckMax": "1000"}
TOPIC = "Decided"
WORKERS = 16
_LAST = b"rollback, the last"
_clock = LoopClock()


class Book:
    """What was acknowledged, over all kills."""

    def __init__(self) -> None:
        self.opened: set[bytes] = set()
        self.committed: set[bytes] = set()
        self.asked = 0
        self._number = 0

    def new_body(self, chance: random.Random) -> bytes:
        """Return the body of the next message."""
        self._number += 1
        return b"%s %d" % (chance.choice((b"commit", b"commit", b"rollback")), self._number)

    def lost(self, delivered: Counter[bytes]) -> list[bytes]:
        """Return what should be delivered and is not."""
        return sorted({body for body in self.opened if _outcome(body) == COMMIT} - delivered.keys())

    def faults(self, delivered: Counter[bytes]) -> list[str]:
        """Return what is wrong with what was delivered."""
        told = [f"{body!r} is lost, its commit answered: {body in self.committed}" for body in self.lost(delivered)]
        told += [f"{body!r} is delivered {count} times" for body, count in delivered.items() if count > 1]
        return told + [f"{body!r} is delivered" for body in delivered if _outcome(body) == ROLLBACK]


async def decide_until_killed(server: RocketletServer, book: Book, chance: random.Random, answers: int) -> None:
    """Send messages, decide about most of them, and answer questions; kill after so many answers."""

    async def send_one(caller: Caller) -> None:
        body = book.new_body(chance)
        half = await send_half(caller, body, topic=TOPIC, born_at_ms=_clock.now_ms())
        book.opened.add(body)
        if chance.random() < 0.8:
            await _tell(caller, half, body, book)

    async def answer() -> None:
        async with open_producer(server.broker) as producer:
            while True:
                await _answer(producer, book)

    async with asyncio.TaskGroup() as group:
        answering = group.create_task(until_gone(answer()))
        await send_until_killed(server, send_one, WORKERS, answers)
        answering.cancel()


async def decide_the_rest(address: str, book: Book) -> Counter[bytes]:
    """Answer all questions about what is open, and return what is delivered then.

    Questions come in the order of half messages: behind that about the last one there are none about others.
    """
    async with open_producer(address) as producer:
        await send_half(producer, _LAST, topic=TOPIC, born_at_ms=_clock.now_ms())
        while await _answer(producer, book) != _LAST:
            pass
        return Counter(bytes(record.body) for record in await pulled(producer, TOPIC))


async def _answer(producer: Caller, book: Book) -> bytes:
    question = await producer.next_request()
    body = bytes(decode_record(question.body).body)
    book.asked += 1
    await _tell(producer, asked_half(question), body, book)
    return body


async def _tell(caller: Caller, half: Half, body: bytes, book: Book) -> None:
    answer = await end(caller, half, _outcome(body))
    assert answer.code == ResponseCode.SUCCESS, f"{body!r}: {answer.remark}"
    if _outcome(body) == COMMIT:
        book.committed.add(body)


def _outcome(body: bytes) -> int:
    return COMMIT if body.startswith(b"commit") else ROLLBACK
