"""One store directory that our broker and the official one 5.4.0 serve in turn, after clean stops and after kills.

    a turn    start -> all that was written in earlier turns is served -> write on -> stop, or SIGKILL under load

Rules:

- Both run with the same sizes, on the same ports, and everything is asked for through the official Java client, but
  for the topics of the storm, which are read raw.
- What is served in a later turn is compared, field by field, with what was served in the turn that wrote it.
- Messages that wait for a delay level or a timer at the end of a turn are delivered in the next one; after kills,
  perhaps twice.
"""

import itertools
import pathlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from interop.clients import Admin, Outgoing, Producer, PullConsumer, Queue, Received
from interop.driver import Driver, DriverError
from interop.servers import BROKER_NAME, JavaServer, RocketletServer, Server
from interop.traffic import make_letters, make_orders
from killing.ledger import Ledger
from killing.senders import JavaStorm
from killing.victim import read_back

GROUP = "accounts"
RETRIES = 7
QUEUES = {"orders": 4, "letters": 3, "batches": 1}
ADDED_BY_CLIENT = ("MIN_OFFSET", "MAX_OFFSET")
DELAYED = "delayed"
DELAYED_PER_TURN = 20
STORM_ANSWERS = 150
MESSAGES_PER_TURN = 60 + 12 + 20
SIZES = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "mappedFileSizeTimerLog": "5216",
    "messageDelayLevel": "3s",  # by then a turn has ended
    "timerFlushIntervalMs": "1000",
}
TIMER_MS = 3_000
_FIELDS = Received.__struct_fields__
Kind = Literal["ours", "java"]
End = Literal["stop", "kill"]
_STARTS: dict[Kind, Callable[[pathlib.Path, Server | None], Server]] = {
    "ours": lambda store, before: RocketletServer(store, SIZES, before),
    "java": lambda store, before: JavaServer(store, SIZES, before),
}


class Turn(NamedTuple):
    """Who serves, and how it ends."""

    kind: Kind
    end: End


class HandOver(NamedTuple):
    """What the next broker made of the directory that another left."""

    before: Turn
    after: Kind
    acknowledged: int
    lost: int


@dataclass
class Exchange:
    """The turns on one directory; ``faults`` says what was not as it should be."""

    store: pathlib.Path
    driver: Driver
    truth: dict[Queue, list[Received]] = field(default_factory=lambda: defaultdict[Queue, list[Received]](list))
    ledger: Ledger = field(default_factory=Ledger)
    committed: dict[Queue, int] = field(default_factory=dict[Queue, int])
    delayed: set[bytes] = field(default_factory=set[bytes])
    faults: list[str] = field(default_factory=list[str])
    hand_overs: list[HandOver] = field(default_factory=list[HandOver])

    def run(self, turns: Sequence[Turn]) -> None:
        """Take the turns one after the other, and let the other kind look at the end of it once more."""
        server: Server | None = None
        storm: JavaStorm | None = None
        before: Turn | None = None
        for turn in turns:
            with _STARTS[turn.kind](self.store, server) as server:
                if before is None:
                    self._create_topics(server)
                    storm = JavaStorm(self.driver, server.namesrv)
                else:
                    self._check(server, before, turn.kind)
                self._write(server, turn)
                assert storm is not None, "it begins with the first turn"
                self._end(server, storm, turn.end)
            before = turn
        assert server is not None, "there is a turn"
        assert before is not None, "there is a turn"
        last: Kind = "java" if before.kind == "ours" else "ours"
        with _STARTS[last](self.store, server) as server:
            self._check(server, before, last)

    # writing

    def _create_topics(self, server: Server) -> None:
        with Admin(self.driver, namesrv=server.namesrv) as admin:
            for topic, queues in {**QUEUES, DELAYED: 1}.items():
                admin.create_topic(server.broker, topic, queues)
            group = {"groupName": GROUP, "retryMaxTimes": RETRIES}
            admin.call("createAndUpdateSubscriptionGroupConfig", server.broker, group)

    def _write(self, server: Server, turn: Turn) -> None:
        orders, letters = make_orders()[:60], make_letters()[::8]
        with Producer(self.driver, namesrv=server.namesrv) as producer:
            sent = producer.send_all("orders", *orders, mode="async")
            sent += producer.send_all("letters", *letters)
            sent += producer.send_all("batches", *orders[:20], mode="batch")
        for result in sent:
            assert result.queue is not None, "a message that was stored has a queue"
            if result.queue_offset < len(self.truth[result.queue]):
                self.faults.append(f"{turn}: {result} takes an offset that is taken")
        for queue, messages in self._read(server).items():
            self.truth[queue] = messages
        self._commit(server)

    def _commit(self, server: Server) -> None:
        with PullConsumer(self.driver, namesrv=server.namesrv, group=GROUP) as consumer:
            for queue, messages in self.truth.items():
                consumer.commit(queue, len(messages) - 1)
                self.committed[queue] = len(messages) - 1

    def _send_delayed(self, server: Server) -> None:
        bodies = [b"%d" % number for number in range(len(self.delayed), len(self.delayed) + DELAYED_PER_TURN)]
        levels = [Outgoing(body, delay_level=1) for body in bodies[::2]]
        timers = [Outgoing(body, timing={"delayTimeMs": TIMER_MS}) for body in bodies[1::2]]
        with Producer(self.driver, namesrv=server.namesrv) as producer:
            producer.send_all(DELAYED, *levels, *timers, mode="async")
        self.delayed |= set(bodies)

    def _end(self, server: Server, storm: JavaStorm, end: End) -> None:
        self._send_delayed(server)
        begun = storm.begin()
        storm.wait_answers(STORM_ANSWERS)
        getattr(server, end)()
        storm.finish(begun, self.ledger)

    # checking

    def _check(self, server: Server, before: Turn, kind: Kind) -> None:
        where = f"{kind} after {before.kind} {before.end}"
        served = self._read(server)
        for queue, messages in self.truth.items():
            if served[queue] != messages:
                self.faults.append(f"{where}: {queue} {_difference(messages, served[queue])}")
        self._check_delayed(server, where)
        self._check_queries(server, where)
        self._check_offsets(server, where, before.end)
        known = set(self.ledger.acknowledged)
        read_back(server.broker, self.ledger)
        self._check_again(server, where)
        self.hand_overs.append(HandOver(before, kind, len(known), len(self.ledger.lost)))
        self.faults += [f"{where}: {one} is lost" for one in self.ledger.lost[:3]]
        self.faults += [f"{where}: {fault}" for fault in self.ledger.faults]
        self.ledger.faults.clear()

    def _read(self, server: Server) -> dict[Queue, list[Received]]:
        served: dict[Queue, list[Received]] = defaultdict(list)
        with PullConsumer(self.driver, namesrv=server.namesrv) as reader:
            for topic, queues in QUEUES.items():
                if len(reader.queues(topic)) != queues:
                    self.faults.append(f"{topic} has {len(reader.queues(topic))} queues instead of {queues}")
                for message in reader.read_all(topic):
                    for name in ADDED_BY_CLIENT:
                        message.properties.pop(name, None)
                    served[Queue(topic, message.broker_name or "", message.queue_id)].append(message)
        return served

    def _check_delayed(self, server: Server, where: str) -> None:
        """Wait for what earlier turns left waiting; whoever delivered before a kill may have done so again."""
        missing, offset = self.delayed.copy(), 0
        with PullConsumer(self.driver, namesrv=server.namesrv) as reader:
            while missing:
                pulled = reader.pull(Queue(DELAYED, BROKER_NAME, 0), offset, block=True)
                if not pulled.messages:
                    self.faults.append(f"{where}: {len(missing)} delayed messages are not delivered")
                    return
                missing -= {message.body for message in pulled.messages}
                offset = pulled.next_offset

    def _check_queries(self, server: Server, where: str) -> None:
        with PullConsumer(self.driver, namesrv=server.namesrv) as reader:
            for queue, messages in self.truth.items():
                for message in messages[:: max(1, len(messages) // 3)]:
                    try:
                        self._check_message(reader, queue, message, where)
                    except DriverError as error:
                        self.faults.append(f"{where}: {queue} {message.queue_offset}: {error}")

    def _check_message(self, reader: PullConsumer, queue: Queue, message: Received, where: str) -> None:
        for name in filter(None, (message.offset_msg_id, message.msg_id)):
            if reader.view(queue.topic, name).body != message.body:
                self.faults.append(f"{where}: {name} names another message than {queue} {message.queue_offset}")
        for key in (message.keys or "").split()[:1]:
            if message.msg_id not in {found.msg_id for found in reader.query(queue.topic, key)}:
                self.faults.append(f"{where}: {queue} {message.queue_offset} is not found by {key}")
        at = message.store_timestamp
        first = next(other.queue_offset for other in self.truth[queue] if other.store_timestamp >= at)
        found = reader.search(queue, at)
        if found != first:
            self.faults.append(f"{where}: {queue} at {at} is {found} instead of {first}")

    def _check_offsets(self, server: Server, where: str, end: End) -> None:
        with PullConsumer(self.driver, namesrv=server.namesrv, group=GROUP) as consumer:
            for queue, committed in self.committed.items():
                found = consumer.committed(queue)
                if found != committed and (end == "stop" or found > committed):
                    self.faults.append(f"{where}: {GROUP} is at {found} of {queue} instead of {committed}")
        with Admin(self.driver, namesrv=server.namesrv) as admin:
            group = admin.call("examineSubscriptionGroupConfig", server.broker, GROUP)
        if group["retryMaxTimes"] != RETRIES:
            self.faults.append(f"{where}: {GROUP} has lost its settings: {group}")

    def _check_again(self, server: Server, where: str) -> None:
        again = Ledger()
        read_back(server.broker, again)
        if again.found != self.ledger.found:
            self.faults.append(f"{where}: what the storm left is not served as before")


def _difference(expected: Sequence[Received], served: Sequence[Received]) -> str:
    for one, other in itertools.zip_longest(expected, served):
        if one != other:
            names = [
                name for name in Received.__struct_fields__ if getattr(one, name, None) != getattr(other, name, None)
            ]
            return f"has {len(served)} of {len(expected)} messages; at {one and one.queue_offset} differ {names}"
    return "is as it was"


def alternate(first: Kind, ends: str) -> list[Turn]:
    """Return turns that change between the two, beginning with one; ``ends`` are words, ``stop`` or ``kill``."""
    kinds: tuple[Kind, Kind] = ("ours", "java") if first == "ours" else ("java", "ours")
    return [Turn(kinds[number % 2], "kill" if end == "kill" else "stop") for number, end in enumerate(ends.split())]
