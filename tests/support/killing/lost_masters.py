"""Masters that are lost with their machine: killed under load, their store thrown away, and what their slave has then.

    a round    load -> SIGKILL of the master -> its store is thrown away -> the slave is read as it is
               -> its store goes on as that of the master, and is read once more -> an empty slave gets all of it
    a group    some rounds, one after the other; after the last one nothing goes on

Rules:

- The moment of a kill is a number of answers, which comes from the seed.
- What the slave lacks is told with its time: how much later the master stored the last message that it acknowledged
  than the last of them that the slave has.
- A slave may lack the newest messages of a queue only, and nothing in their place: else that is a fault.
"""

import itertools
import pathlib
import random
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from interop.driver import Driver
from interop.replica_group import ReplicaGroup
from killing.cycles import MOST_ANSWERS, SMALL_FILES
from killing.ledger import Ledger, Place
from killing.senders import TOPICS, JavaLoad, JavaStorm, Load, MixedLoad, Moment, OurLoad
from killing.victim import read_back

from rocketlet.export.columns.schema import pick_columns
from rocketlet.export.plan.read_plan import plan_stores
from rocketlet.export.write.log_reader import LogReader, ReadOptions

ROUNDS_OF_A_GROUP = 12
FIRST_MESSAGES = 50
SETTINGS = {**SMALL_FILES, "slaveReadEnable": "true"}
ASYNC_MASTER = {**SETTINGS, "brokerRole": "ASYNC_MASTER"}
SYNC_MASTER = {**SETTINGS, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}


class Loss(NamedTuple):
    """How many acknowledged messages were lost with one master, and how much time they are."""

    messages: int
    time_ms: int


@dataclass
class Losses:
    """What came of some rounds, by what was tried."""

    by_round: dict[str, list[Loss]] = field(default_factory=dict[str, list[Loss]])
    acknowledged: Counter[str] = field(default_factory=Counter[str])
    unsure: Counter[str] = field(default_factory=Counter[str])
    promotions: int = 0
    missing: list[str] = field(default_factory=list[str])
    faults: list[str] = field(default_factory=list[str])

    @property
    def rounds(self) -> int:
        """How many masters were lost."""
        return sum(map(len, self.by_round.values()))


class LostMasters:
    """Rounds on one group."""

    def __init__(self, group: ReplicaGroup, choose: random.Random, losses: Losses) -> None:
        self.group = group
        self.ledger = Ledger()
        self._choose = choose
        self._losses = losses
        self._known = 0

    def begin(self) -> None:
        """Send first messages, and wait until the slave knows their topics."""
        first = [Moment(FIRST_MESSAGES, lambda: None)]
        OurLoad(self._choose).send_past(self.group.namesrv, self.ledger, first)
        self._wait_known()

    def kill(self, load: Load) -> None:
        """Kill the master under load."""
        load.run(self.group.namesrv, self.ledger, self._choose.randrange(1, MOST_ANSWERS), self.group.master.kill)

    def look(self, tried: str) -> None:
        """Throw away what the master had, and look for the messages of this round in what the slave has."""
        times = _stored_times(self.group.master_store)
        self.group.lose_master()
        self.group.wait_alone()
        ledger = self.ledger
        read_back(self.group.slave.address, ledger)
        fresh = dict(itertools.islice(ledger.acknowledged.items(), self._known, None))
        self._known = len(ledger.acknowledged)
        lost = {one: place for one, place in fresh.items() if ledger.is_lost(one)}
        loss = Loss(len(lost), _time_between(times, fresh.values(), lost.values()))
        self._losses.by_round.setdefault(tried, []).append(loss)
        self._losses.acknowledged[tried] += len(fresh)
        self._losses.missing += [f"{one}, acknowledged at {place}, is not there" for one, place in lost.items()]
        self._losses.faults += [
            f"{one} was acknowledged at {place}, and the slave has something else there"
            for one, place in lost.items()
            if place.queue_offset < ledger.ends.get(place[:2], 0)
        ]

    def go_on(self) -> None:
        """Let what the slave has be that of the master, compare what it serves then, and wait for an empty slave."""
        slave = self.group.slave
        self._choose.choice((slave.stop, slave.kill))()
        self.group.promote_slave()
        self._losses.promotions += 1
        again = Ledger()
        read_back(self.group.master.address, again)
        if again.found != self.ledger.found:
            changed = len(set(again.found.items()) ^ set(self.ledger.found.items()))
            self._losses.faults.append(f"{changed} messages are not served by the new master as by the slave")
        self._wait_known()
        self.group.wait_level()

    def end(self) -> None:
        """Hand over what the ledger has found."""
        if self.ledger.begins:
            self._losses.faults.append(f"queues begin at {self.ledger.begins}, and nothing was to be deleted")
        self._losses.faults += self.ledger.faults
        self._losses.unsure += self.ledger.unsure

    def _wait_known(self) -> None:
        for topic in TOPICS:
            self.group.wait_copied(topic)


def lose_masters(folder: pathlib.Path, rounds: int, seed: str, driver: Driver, settings: Mapping[str, str]) -> Losses:
    """Lose so many masters, with another group after every ``ROUNDS_OF_A_GROUP``, under load of both clients."""
    losses = Losses()
    for number, start in enumerate(range(0, rounds, ROUNDS_OF_A_GROUP)):
        choose = random.Random(f"{seed}-{number}")
        place = folder / str(number)
        place.mkdir()
        with ExitStack() as started:
            group = ReplicaGroup(started, place, **settings)
            masters = LostMasters(group, choose, losses)
            masters.begin()
            storm = started.enter_context(JavaStorm(driver, group.namesrv))
            ours = OurLoad(choose)
            loads: dict[str, Load] = {"our client": ours, "the Java client": JavaLoad(storm)}
            loads["both"] = MixedLoad(storm, ours)
            _lose_in_group(masters, loads, min(ROUNDS_OF_A_GROUP, rounds - start))
            masters.end()
    return losses


def _lose_in_group(masters: LostMasters, loads: Mapping[str, Load], rounds: int) -> None:
    names = itertools.islice(itertools.cycle(loads), rounds)
    for number, name in enumerate(names):
        if number:
            masters.go_on()
        masters.kill(loads[name])
        masters.look(f"under load of {name}")


def _stored_times(store: pathlib.Path) -> dict[Place, int]:
    """Return when the messages of a store were stored."""
    schema = pick_columns(["topic", "queueId", "queueOffset", "storeTimestamp"])
    reading = LogReader(plan_stores([str(store)]), ReadOptions(schema=schema))
    return {
        Place(row["topic"], row["queueId"], row["queueOffset"]): round(row["storeTimestamp"].timestamp() * 1_000)
        for batch in reading
        for row in batch.to_pylist()
    }


def _time_between(times: Mapping[Place, int], acknowledged: Collection[Place], lost: Collection[Place]) -> int:
    """Return how much later the last acknowledged message was stored than the last one that is not lost."""
    if not lost:
        return 0
    stored = {place: times[place] for place in acknowledged}
    kept = [at_ms for place, at_ms in stored.items() if place not in lost]
    return max(stored.values()) - max(kept, default=min(stored.values()))
