"""Timer messages and delay levels on a broker that gets killed, by raw requests, and what has to become of them.

Rules:

- A message that was acknowledged is delivered, whenever the broker was killed, and none is delivered twice: what was
  delivered before the kill stands in the log.
- One whose recall was acknowledged is never delivered.
- One that was not acknowledged may be there or not.
"""

import random
from collections import Counter

from interop.servers import RocketletServer
from killing.raw_load import send_until_killed
from raw_calls import Caller, open_caller

from rocketlet.common.codes import ResponseCode
from rocketlet.common.message import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketlet.common.record import iter_records
from rocketlet.remoting.codec.request_codes import RequestCode

SETTINGS = {
    "timerPrecisionMs": "100",
    "timerFlushIntervalMs": "100",
    "mappedFileSizeTimerLog": "5216",
    "recallMessageEnable": "true",
    "messageDelayLevel": "1s 2s 3s",
}
LEVELS = (1, 2, 3)
TOPIC = "Timed"
WORKERS = 8
MOST_AHEAD_MS = 3_000
_LAST = b"the last"


class TimedBook:
    """What was acknowledged, over all kills."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.recalled: set[bytes] = set()
        self.doubtful: set[bytes] = set()
        self._number = 0

    def new_body(self) -> bytes:
        """Return the body of the next message."""
        self._number += 1
        return b"%d" % self._number

    def lost(self, delivered: Counter[bytes]) -> list[bytes]:
        """Return what should be delivered and is not."""
        return sorted(self.sent - self.recalled - self.doubtful - delivered.keys())

    def faults(self, delivered: Counter[bytes]) -> list[str]:
        """Return what is wrong with what was delivered."""
        told = [f"{body!r} is lost" for body in self.lost(delivered)]
        told += [f"{body!r} is delivered {count} times" for body, count in delivered.items() if count > 1]
        return told + [f"{body!r} is delivered though it was recalled" for body in self.recalled & delivered.keys()]


async def time_until_killed(server: RocketletServer, book: TimedBook, chance: random.Random, answers: int) -> None:
    """Send messages for the next seconds and recall some of them; kill after so many answers."""

    async def send_one(caller: Caller) -> None:
        if chance.random() < 0.5:
            await _send_delayed(caller, book, chance.choice(LEVELS))
        else:
            await _send(caller, book, chance.choice((50, 120, 400, 1_100, MOST_AHEAD_MS)))

    await send_until_killed(server, send_one, WORKERS, answers)


async def wait_for_the_rest(address: str) -> Counter[bytes]:
    """Return what is delivered when everything is due."""
    async with open_caller(address) as caller:
        properties = f"TIMER_DELAY_MS\x01{MOST_AHEAD_MS + 500}\x02"
        await caller.send(TOPIC, _LAST, properties=properties)
        bodies: list[bytes] = []
        while _LAST not in bodies:
            answer = await caller.pull(TOPIC, len(bodies), sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND)
            bodies += [bytes(record.body) for record in iter_records(answer.body)]
        return Counter(body for body in bodies if body != _LAST)


async def _send(caller: Caller, book: TimedBook, ahead_ms: int) -> None:
    body = book.new_body()
    answer = await caller.send(TOPIC, body, properties=f"TIMER_DELAY_MS\x01{ahead_ms}\x02")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    book.sent.add(body)
    if ahead_ms == MOST_AHEAD_MS and int(body) % 3 == 0:
        book.doubtful.add(body)
        fields = {"producerGroup": "p", "topic": TOPIC, "recallHandle": answer.ext["recallHandle"]}
        recalled = await caller.ask(RequestCode.RECALL_MESSAGE, fields)
        assert recalled.code == ResponseCode.SUCCESS, recalled.remark
        book.recalled.add(body)


async def _send_delayed(caller: Caller, book: TimedBook, level: int) -> None:
    body = book.new_body()
    answer = await caller.send(TOPIC, body, properties=f"DELAY\x01{level}\x02")
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    book.sent.add(body)
