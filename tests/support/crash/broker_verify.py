"""What must hold of a broker that starts on a directory after a power loss, by its answers alone.

1. It starts. What it serves was sent, once, to that topic.
2. A message that was answered is served at the place that its sender was told: under SYNC_FLUSH each, otherwise each
   whose record the disk had for certain.
3. It is found by its key. A delayed message comes when it is due, a half message when it is committed; one that was
   rolled back never does.
4. What is sent now is answered, and after a kill the next start serves what this one served, what was sent since, and
   nothing else: what was cut off stays away.
"""

import pathlib
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from crash.broker_world import (
    COMMIT,
    DELAY_MS,
    ROLLBACK,
    Answered,
    Asked,
    Mortal,
    Promises,
    RunningBroker,
    Wire,
    end_header,
)
from crash.verify import CarelessFiles
from raw_calls import pull_header, send_header, until

from rocketlet.common.codes import ResponseCode
from rocketlet.common.properties import encode_properties
from rocketlet.common.record import Record, iter_records
from rocketlet.remoting.codec.request_codes import RequestCode
from rocketlet.testing.manual_clock import ManualClock

LATER_MS = 86_400_000
_QUEUES = 4
Place = tuple[str, int, int]


class MortalFiles(Mortal, CarelessFiles):
    """Files that lose no power, of a process that can be killed."""


class BrokerVerification:
    """The checks of one state; each raises ``AssertionError`` with what is wrong. ``lost`` counts what is missing."""

    def __init__(self, root: pathlib.Path, promises: Promises, certain: bytes, now_ms: int, *, is_sync: bool) -> None:
        self._root = root
        self._promises = promises
        self._now_ms = now_ms + LATER_MS
        self._is_sync = is_sync
        self.required = [one for one in promises.answered.values() if is_sync or self._asked(one).body in certain]
        self.lost = 0

    async def run(self) -> None:
        """Start, read, go on, kill, start and read again."""
        files = MortalFiles()
        broker = RunningBroker(self._root, files, ManualClock(self._now_ms), is_sync=self._is_sync)
        await broker.start()
        try:
            served = await self._read(broker.wires[0])
            self._check_required(served)
            self._check_served(served)
            await self._check_keys(broker.wires[0])
            added = await self._go_on(broker.wires[0], served)
        finally:
            files.is_dead = True
            await broker.stop()
        again = RunningBroker(self._root, CarelessFiles(), ManualClock(self._now_ms), is_sync=self._is_sync)
        await again.start()
        try:
            after, wanted = (self._lasting(found) for found in (await self._read(again.wires[0]), served | added))
            assert after == wanted, f"the next start serves {_differ(wanted, after)}"
            await self._check_later(again, set(after.values()))
        finally:
            await again.stop()

    def _lasting(self, served: dict[Place, bytes]) -> dict[Place, bytes]:
        """Leave out delayed messages: they come while nobody looks."""
        delayed = {one.body for one in self._promises.asked.values() if one.kind == "delayed"}
        return {place: body for place, body in served.items() if body not in delayed}

    def _asked(self, answered: Answered) -> Asked:
        return self._promises.asked[answered.key]

    async def _read(self, wire: Wire) -> dict[Place, bytes]:
        """Return what the broker serves."""
        found: dict[Place, bytes] = {}
        for topic in sorted({one.topic for one in self._promises.asked.values()}):
            for queue_id in range(_QUEUES):
                for record in await read_queue(wire, topic, queue_id):
                    found[topic, queue_id, record.queue_offset] = bytes(record.body)
        return found

    def _check_required(self, served: dict[Place, bytes]) -> None:
        plain = [(one, self._asked(one)) for one in self.required if self._asked(one).kind == "plain"]
        missing = [
            one.key for one, asked in plain if served.get((asked.topic, one.queue_id, one.queue_offset)) != asked.body
        ]
        self.lost = len(missing)
        assert not missing, f"{len(missing)} answered messages are lost: {missing[:5]}"

    def _check_served(self, served: dict[Place, bytes]) -> None:
        sent = {one.body: one for one in self._promises.asked.values()}
        for place, body in served.items():
            one = sent.pop(body, None)
            assert one is not None, f"{place} serves {body[:20]!r}, which was never sent, or twice"
            assert one.topic == place[0], f"{place} serves {one.key}, which was sent to {one.topic}"
            outcome = self._promises.ends.get(one.key, ROLLBACK)
            assert one.kind != "half" or outcome == COMMIT, f"{place} serves {one.key}, which nobody has committed"

    async def _check_keys(self, wire: Wire) -> None:
        for one in self.required:
            asked = self._asked(one)
            if asked.kind == "plain":
                fields = {"topic": asked.topic, "key": one.key, "maxNum": "8", "beginTimestamp": "0"}
                fields["endTimestamp"] = str(1 << 60)
                answer = await wire.ask(RequestCode.QUERY_MESSAGE, fields)
                bodies = [bytes(record.body) for record in iter_records(answer.body)] if answer.body else []
                assert asked.body in bodies, f"key {one.key} of {asked.topic} leads to nothing: {answer.remark}"

    async def _go_on(self, wire: Wire, served: dict[Place, bytes]) -> dict[Place, bytes]:
        """Send messages that take the very room of those that the power took, and one to each queue."""
        bodies = set(served.values())
        gone = [one for one in self._promises.asked.values() if one.kind == "plain" and one.body not in bodies]
        places = [(one, len(one.body)) for one in gone[:2]]
        if not places:
            places = [(Asked("", topic, queue_id, b""), 20) for topic, queue_id in {place[:2] for place in served}]
        added: dict[Place, bytes] = {}
        for number, (one, size) in enumerate(places):
            key, body = f"N{number:06d}", (b"new %d " % number).ljust(size, b"n")[:size]
            properties = encode_properties({"UNIQ_KEY": key, "KEYS": key, "TAGS": "t"}).decode()
            header = send_header(one.topic, one.queue_id, properties)
            answer = await wire.ask(RequestCode.SEND_MESSAGE_V2, header, body)
            if answer.code == ResponseCode.INVALID_PARAMETER:  # of the topic's queues only those with messages are left
                continue
            assert answer.code == ResponseCode.SUCCESS, f"a new message to {one.topic} is refused: {answer.remark}"
            added[one.topic, int(answer.ext["queueId"]), int(answer.ext["queueOffset"])] = body
        return added

    async def _check_later(self, broker: RunningBroker, served: Iterable[bytes]) -> None:
        """Commit what is open and let time pass; what was promised comes."""
        wire, store = broker.wires[0], broker.broker.store
        wanted = [one for one in self.required if self._must_come(one)]
        for one in wanted:
            asked = self._asked(one)
            if asked.kind == "half" and asked.body not in served:
                await wire.ask(RequestCode.END_TRANSACTION, end_header(one, COMMIT))
        count = Counter(self._asked(one).topic for one in wanted)

        def have_come() -> bool:
            return all(
                sum(store.max_offset(topic, queue_id) for queue_id in range(_QUEUES)) >= least
                for topic, least in count.items()
            )

        await broker.clock.elapse(2 * DELAY_MS)
        with suppress(TimeoutError):
            await until(have_come)
        bodies = set((await self._read(wire)).values())
        missing = [one.key for one in wanted if self._asked(one).body not in bodies]
        self.lost = len(missing)
        assert not missing, f"{len(missing)} delayed or committed messages never come: {missing[:5]}"

    def _must_come(self, answered: Answered) -> bool:
        asked = self._asked(answered)
        return asked.kind == "delayed" or (asked.kind == "half" and self._promises.ends.get(asked.key) != ROLLBACK)


async def read_queue(wire: Wire, topic: str, queue_id: int) -> list[Record]:
    """Pull a queue from its beginning to its end."""
    first = await wire.ask(RequestCode.GET_MIN_OFFSET, {"topic": topic, "queueId": str(queue_id)})
    if first.code != ResponseCode.SUCCESS:
        return []
    records, offset = list[Record](), int(first.ext["offset"])
    while True:
        header = pull_header(topic, offset, queue_id=queue_id, suspend_ms=0)
        answer = await wire.ask(RequestCode.PULL_MESSAGE, header)
        if answer.code != ResponseCode.SUCCESS:
            return records
        records += iter_records(answer.body)
        offset = int(answer.ext["nextBeginOffset"])


def _differ(wanted: dict[Place, bytes], found: dict[Place, bytes]) -> str:
    lost = {place: wanted[place][:12] for place in wanted if found.get(place) != wanted[place]}
    more = {place: found[place][:12] for place in found if found[place] != wanted.get(place)}
    return f"not {lost}, but {more}"
